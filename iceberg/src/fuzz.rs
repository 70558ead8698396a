//! Fuzz targets of the catalogue: readers of its objects, which lie where others may write too.
//!
//! | target | reads |
//! |---|---|
//! | `iceberg.manifest`, `iceberg.manifest_list` | an Avro file as it is, and with the marker of its content, which gets a change behind the checksum |
//! | `iceberg.metadata` | a version of a table's metadata: its schemas, its snapshots |
//! | `iceberg.tables` | the list of tables |
//! | `iceberg.names` | names of tables and versions, addresses of objects, the number in a hint |
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. Footers of data files
//! (`engine`), and how inputs are made (`model::fuzz`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::SideObjects;
use model::fuzz::FuzzTarget;
use model::{Table, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::IcebergError;
use crate::avro::with_own_marker;
use crate::catalog_table::CatalogTable;
use crate::data_file::DataFile;
use crate::day_manifests::SnapshotManifests;
use crate::manifest::{EntryStatus, ManifestEntry, read_manifest, write_manifest};
use crate::manifest_list::{read_manifest_list, sample_manifest, write_manifest_list};
use crate::metadata_folder::{MetadataFolder, hinted_version, version_name, version_of};
use crate::partition_spec::{LAST_PARTITION_ID, PartitionUnit, specs_json};
use crate::schema::IcebergSchema;
use crate::snapshot_history::{KEPT_SNAPSHOTS, kept};
use crate::table_index;
use crate::table_metadata::{TableMetadata, unsorted};
use crate::table_schemas::TableSchemas;

const LOGS: CatalogTable = CatalogTable::base(Table::Logs);
const HOUR: Duration = Duration::from_secs(3_600);

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let folder = MetadataFolder::new(&SideObjects::in_folder("/srv/mixer/iceberg".into()), LOGS);
    vec![
        FuzzTarget::new("iceberg.manifest", manifests().unwrap_or_default(), manifest),
        manifest_list(folder.clone()),
        FuzzTarget::new("iceberg.metadata", metadata_files().unwrap_or_default(), metadata),
        FuzzTarget::of_text("iceberg.tables", &[r#"["logs","messages_order-2"]"#, "[]"], |text| {
            table_index::parse(text.as_bytes()).is_ok_and(|tables| {
                assert!(
                    tables
                        .iter()
                        .all(|table| CatalogTable::parse(&table.name()) == Some(*table))
                );
                true
            })
        }),
        names(folder),
    ]
}

/// Whether a file is accepted as it is, or with the marker of its content.
fn either_way(bytes: &[u8], accepts: impl Fn(&[u8]) -> bool) -> bool {
    let marked = with_own_marker(bytes);
    accepts(bytes) | marked.is_ok_and(|marked| accepts(&marked))
}

fn entry(status: EntryStatus, unit: PartitionUnit, partition: i32) -> ManifestEntry {
    ManifestEntry {
        status,
        snapshot_id: i64::MAX,
        sequence_number: 3,
        file: DataFile {
            path: format!("file:///srv/mixer/telemetry/logs/{partition}.parquet"),
            size: 4_096,
            rows: 10,
            unit,
            partition,
            value_counts: BTreeMap::from([(1, 10), (6, 10)]),
            null_counts: BTreeMap::from([(1, 0), (6, 3)]),
            lower: BTreeMap::from([(1, vec![0; 8]), (6, b"a".to_vec())]),
            upper: BTreeMap::from([(1, vec![255; 8])]),
        },
    }
}

fn manifests() -> Result<Vec<Vec<u8>>, IcebergError> {
    let schema = IcebergSchema::of(&Table::Logs.schema())?;
    let written = PartitionUnit::ALL.map(|unit| {
        let entries = [
            entry(EntryStatus::Added, unit, 492_000),
            entry(EntryStatus::Existing, unit, -1),
        ];
        write_manifest(&schema, 0, unit, &entries)
    });
    written.into_iter().collect()
}

/// A manifest: what is read is written, and read as the same again.
fn manifest(bytes: &[u8]) -> bool {
    either_way(bytes, |bytes| {
        let Ok(entries) = read_manifest(bytes) else {
            return false;
        };
        let unit = entries.first().map_or(PartitionUnit::Hour, |entry| entry.file.unit);
        let again = IcebergSchema::of(&Table::Logs.schema())
            .and_then(|schema| write_manifest(&schema, 0, unit, &entries))
            .and_then(|written| read_manifest(&written));
        assert!(
            again.is_ok_and(|again| again == entries),
            "entries are written as they are read"
        );
        true
    })
}

/// A manifest list: what is read is written, and read as the same again; its manifests have their days.
fn manifest_list(folder: MetadataFolder) -> FuzzTarget {
    let manifest = |unit: PartitionUnit, day: &str| {
        let name = format!("{day}-0-00112233445566778899aabbccddeeff-0011223344556677-m.avro");
        sample_manifest(&folder.uri(&name), unit)
    };
    let files = [
        manifest(PartitionUnit::Hour, "2026-11-21-h"),
        manifest(PartitionUnit::Day, "2026-11-22-d"),
    ];
    let samples = write_manifest_list(5, Some(4), 9, &files).into_iter().collect();
    FuzzTarget::new("iceberg.manifest_list", samples, move |bytes| {
        either_way(bytes, |bytes| {
            let Ok(manifests) = read_manifest_list(bytes) else {
                return false;
            };
            // More files than can be counted are not written.
            if let Ok(written) = write_manifest_list(5, None, 9, &manifests) {
                let again = read_manifest_list(&written);
                assert!(
                    again.is_ok_and(|again| again == manifests),
                    "manifests are written as they are read"
                );
            }
            let count = manifests.len();
            let by_day = SnapshotManifests::of_list(&folder, manifests, |_| true);
            assert!(by_day.to_list().len() <= count && by_day.schema_ids().len() <= count);
            true
        })
    })
}

fn metadata_files() -> Result<Vec<Vec<u8>>, IcebergError> {
    let schema = IcebergSchema::of(&Table::Logs.schema())?;
    let version = |file: u64| format!("file:///srv/mixer/iceberg/telemetry/logs/metadata/v{file}.metadata.json");
    let list = |number: i64| format!("file:///srv/mixer/iceberg/telemetry/logs/metadata/snap-{number}-0011.avro");
    let snapshot = |number: i64, operation: &str| {
        json!({
            "snapshot-id": number, "parent-snapshot-id": number - 1, "sequence-number": number,
            "timestamp-ms": 1_700_000_000_000_i64 + number, "manifest-list": list(number),
            "summary": { "operation": operation, "total-records": "3" }, "schema-id": 0,
        })
    };
    let written = json!({
        "format-version": 2,
        "table-uuid": Uuid::from_u128(7),
        "location": "file:///srv/mixer/iceberg/telemetry/logs",
        "last-sequence-number": 2,
        "last-updated-ms": 1_700_000_000_002_i64,
        "last-column-id": schema.last_column_id(),
        "schemas": [schema.to_json(0)],
        "current-schema-id": 0,
        "partition-specs": specs_json(),
        "default-spec-id": 0,
        "last-partition-id": LAST_PARTITION_ID,
        "sort-orders": unsorted(),
        "default-sort-order-id": 0,
        "properties": { "a": "b" },
        "current-snapshot-id": 2,
        "refs": { "main": { "snapshot-id": 2, "type": "branch" } },
        "snapshots": [snapshot(1, "overwrite"), snapshot(2, "append")],
        "snapshot-log": [{ "timestamp-ms": 1_700_000_000_002_i64, "snapshot-id": 2 }],
        "metadata-log": [{ "timestamp-ms": 1_700_000_000_001_i64, "metadata-file": version(1) }],
    });
    Ok(vec![written.to_string().into_bytes()])
}

/// Metadata: what is read is written, and read as the same again; its schemas are those of the table or refused, and the last of its
/// snapshots is kept.
fn metadata(bytes: &[u8]) -> bool {
    let Ok(metadata) = TableMetadata::from_json(bytes) else {
        return false;
    };
    let again = metadata
        .to_json()
        .and_then(|written| TableMetadata::from_json(&written));
    assert!(
        again.is_ok_and(|again| again == metadata),
        "metadata is written as it is read"
    );
    let own = TableSchemas::new(LOGS).ok();
    if let Some(mut schemas) = own.and_then(|own| own.with_known(&metadata.schemas)) {
        let current = schemas.current(&BTreeSet::from([metadata.current_schema_id]), None);
        assert!(schemas.get(current.id).is_some(), "the current schema is known");
    }
    let all = metadata.snapshots.as_slice();
    let left = kept(all, HOUR, Timestamp::from_micros(1_700_000_000_000_000));
    assert!(left.len() <= KEPT_SNAPSHOTS && left.last() == all.last());
    true
}

/// Names that are taken apart: what is accepted is put together as the same again, and stays in its folder.
fn names(folder: MetadataFolder) -> FuzzTarget {
    let address = folder.uri("v2.metadata.json");
    let samples = [
        "dead_letters",
        "messages_order-2",
        "v17.metadata.json",
        "17",
        address.as_str(),
    ];
    FuzzTarget::of_text("iceberg.names", &samples, move |text| {
        let table = CatalogTable::parse(text);
        assert!(
            table.is_none_or(|table| table.name() == text),
            "a table has another name"
        );
        let version = version_of(text);
        assert!(
            version.is_none_or(|version| version_name(version) == text),
            "a version has another name"
        );
        let name = folder.name_of(text);
        assert!(
            name.is_none_or(|name| !name.contains('/') && folder.uri(name) == text),
            "an object lies elsewhere"
        );
        let is_name = table.is_some() || version.is_some() || name.is_some();
        is_name || hinted_version(text.as_bytes()).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reader_of_the_catalogue_panics() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }

    #[test]
    fn a_change_of_a_row_gets_behind_the_checksum() {
        let whole = manifests().unwrap().remove(0);
        assert_eq!(
            with_own_marker(&whole),
            Ok(whole.clone()),
            "what is whole stays as it is"
        );
        let name = b"492000.parquet";
        let at = whole.windows(name.len()).position(|piece| piece == name).unwrap();
        let mut changed = whole;
        changed[at] = b'5';
        assert!(read_manifest(&changed).is_err());
        let entries = read_manifest(&with_own_marker(&changed).unwrap()).unwrap();
        assert!(
            entries[0].file.path.ends_with("/592000.parquet"),
            "{}",
            entries[0].file.path
        );
    }
}
