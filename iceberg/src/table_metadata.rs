//! Table metadata: the JSON file `v<n>.metadata.json` of the Iceberg specification, format version 2, whose existence is a version.
//!
//! # Invariants
//!
//! - A table without snapshots has no `current-snapshot-id` and no `refs`: every reader knows that, `-1` is of older writers.
//! - What is read has the format version that is written, and its current schema and snapshot are in it. Keys that are not known here
//!   are ignored.
//! - A file has 16 MiB at most, whether written or read.
//!
//! # Not here
//!
//! What a snapshot has: [`crate::manifest_list`]. Which ones are kept: the publisher.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::IcebergError;

/// The format version that is written and read.
pub(crate) const FORMAT_VERSION: u8 = 2;
/// Bytes of a metadata file, at most.
pub(crate) const MOST_METADATA: usize = 16 << 20;
/// The branch that readers follow.
pub(crate) const MAIN_BRANCH: &str = "main";
/// Keys of a snapshot's summary: data files, and rows, that it has.
pub(crate) const TOTAL_FILES: &str = "total-data-files";
pub(crate) const TOTAL_ROWS: &str = "total-records";
/// The property by which Spark decodes a row at a time. In batches it knows only some encodings, not `DELTA_LENGTH_BYTE_ARRAY`, which ids have
/// in our files, and fails.
pub(crate) const ROW_READS: (&str, &str) = ("read.parquet.vectorization.enabled", "false");

/// A table at one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct TableMetadata {
    /// [`FORMAT_VERSION`].
    pub(crate) format_version: u8,
    /// The table's identity.
    pub(crate) table_uuid: Uuid,
    /// The URI of the table's folder.
    pub(crate) location: String,
    /// The greatest sequence number of a snapshot; 0 before the first.
    pub(crate) last_sequence_number: i64,
    /// When this version was made, in milliseconds since the epoch.
    pub(crate) last_updated_ms: i64,
    /// The greatest number of a column in any schema.
    pub(crate) last_column_id: i32,
    /// Every schema that a kept snapshot or the table has.
    pub(crate) schemas: Vec<Value>,
    /// The table's schema.
    pub(crate) current_schema_id: i32,
    /// See [`crate::partition_spec::specs_json`].
    pub(crate) partition_specs: Vec<Value>,
    /// The spec of today's files.
    pub(crate) default_spec_id: i32,
    /// The greatest number of a partition field.
    pub(crate) last_partition_id: i32,
    /// See [`unsorted`].
    pub(crate) sort_orders: Vec<Value>,
    /// The order of [`unsorted`].
    pub(crate) default_sort_order_id: i32,
    /// Properties for readers and for the publisher itself.
    #[serde(default)]
    pub(crate) properties: BTreeMap<String, String>,
    /// The snapshot that readers see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_snapshot_id: Option<i64>,
    /// [`MAIN_BRANCH`] to the current snapshot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) refs: BTreeMap<String, SnapshotReference>,
    /// The snapshots that are kept, the oldest first.
    #[serde(default)]
    pub(crate) snapshots: Vec<TableSnapshot>,
    /// Which snapshot was current since when, the oldest first.
    #[serde(default)]
    pub(crate) snapshot_log: Vec<SnapshotLogEntry>,
    /// Earlier versions of this file, the oldest first.
    #[serde(default)]
    pub(crate) metadata_log: Vec<MetadataLogEntry>,
}

/// A branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct SnapshotReference {
    /// Its newest snapshot.
    pub(crate) snapshot_id: i64,
    /// `branch`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

/// The files of a table at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct TableSnapshot {
    /// Its number: it follows from the table, the version and the files.
    pub(crate) snapshot_id: i64,
    /// The snapshot before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_snapshot_id: Option<i64>,
    /// Its number in the order of snapshots.
    pub(crate) sequence_number: i64,
    /// When it was made, in milliseconds since the epoch.
    pub(crate) timestamp_ms: i64,
    /// The URI of its manifest list.
    pub(crate) manifest_list: String,
    /// `operation`, and how many files and rows came, went, and are there.
    pub(crate) summary: BTreeMap<String, String>,
    /// The table's schema at that time.
    pub(crate) schema_id: i32,
}

/// Since when a snapshot was current.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct SnapshotLogEntry {
    /// Milliseconds since the epoch.
    pub(crate) timestamp_ms: i64,
    /// Which one.
    pub(crate) snapshot_id: i64,
}

/// An earlier version of the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct MetadataLogEntry {
    /// When it was made, in milliseconds since the epoch.
    pub(crate) timestamp_ms: i64,
    /// The URI of its file.
    pub(crate) metadata_file: String,
}

/// The only sort order of a table, number 0: none.
pub(crate) fn unsorted() -> Vec<Value> {
    vec![json!({"order-id": 0, "fields": []})]
}

impl TableMetadata {
    /// The version in a metadata file.
    ///
    /// # Errors
    /// If the bytes are not a version that this program wrote.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self, IcebergError> {
        let damaged = |reason: String| IcebergError::damaged("a metadata file", reason);
        if bytes.len() > MOST_METADATA {
            return Err(damaged(format!(
                "it has {} bytes, more than {MOST_METADATA}",
                bytes.len()
            )));
        }
        let metadata: Self = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if metadata.format_version != FORMAT_VERSION {
            let reason = format!("its format is {}, not {FORMAT_VERSION}", metadata.format_version);
            return Err(damaged(reason));
        }
        if metadata.current_snapshot_id.is_some() && metadata.current_snapshot().is_none() {
            return Err(damaged("its current snapshot is not in it".to_owned()));
        }
        if metadata.current_schema().is_none() {
            return Err(damaged("its current schema is not in it".to_owned()));
        }
        Ok(metadata)
    }

    /// The bytes of the metadata file.
    ///
    /// # Errors
    /// If they are more than can be read back.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, IcebergError> {
        let refused = |reason: String| IcebergError::refused(format!("table {}", self.location), reason);
        let bytes = serde_json::to_vec(self).map_err(|error| refused(error.to_string()))?;
        if bytes.len() > MOST_METADATA {
            let reason = format!("its metadata has {} bytes, more than {MOST_METADATA}", bytes.len());
            return Err(refused(reason));
        }
        Ok(bytes)
    }

    /// The snapshot that readers see.
    pub(crate) fn current_snapshot(&self) -> Option<&TableSnapshot> {
        let id = self.current_snapshot_id?;
        self.snapshots.iter().find(|snapshot| snapshot.snapshot_id == id)
    }

    /// The table's schema.
    pub(crate) fn current_schema(&self) -> Option<&Value> {
        let id = i64::from(self.current_schema_id);
        self.schemas
            .iter()
            .find(|schema| schema.get("schema-id").and_then(Value::as_i64) == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use model::Table;

    use super::*;
    use crate::partition_spec::{LAST_PARTITION_ID, specs_json};
    use crate::schema::IcebergSchema;

    fn empty() -> TableMetadata {
        let schema = IcebergSchema::of(&Table::Metrics.schema()).unwrap();
        TableMetadata {
            format_version: FORMAT_VERSION,
            table_uuid: Uuid::from_u128(7),
            location: "file:///store/iceberg/telemetry/metrics".to_owned(),
            last_sequence_number: 0,
            last_updated_ms: 1_700_000_000_000,
            last_column_id: schema.last_column_id(),
            schemas: vec![schema.to_json(0)],
            current_schema_id: 0,
            partition_specs: specs_json(),
            default_spec_id: 0,
            last_partition_id: LAST_PARTITION_ID,
            sort_orders: unsorted(),
            default_sort_order_id: 0,
            properties: BTreeMap::new(),
            current_snapshot_id: None,
            refs: BTreeMap::new(),
            snapshots: Vec::new(),
            snapshot_log: Vec::new(),
            metadata_log: Vec::new(),
        }
    }

    fn full() -> TableMetadata {
        let snapshot = TableSnapshot {
            snapshot_id: i64::MAX,
            parent_snapshot_id: Some(3),
            sequence_number: 2,
            timestamp_ms: 1_700_000_000_001,
            manifest_list: "file:///store/iceberg/telemetry/metrics/metadata/snap-2-7fffffffffffffff.avro".to_owned(),
            summary: BTreeMap::from([("operation".to_owned(), "append".to_owned())]),
            schema_id: 0,
        };
        TableMetadata {
            last_sequence_number: 2,
            properties: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            current_snapshot_id: Some(i64::MAX),
            refs: BTreeMap::from([(
                MAIN_BRANCH.to_owned(),
                SnapshotReference {
                    snapshot_id: i64::MAX,
                    kind: "branch".to_owned(),
                },
            )]),
            snapshots: vec![snapshot],
            snapshot_log: vec![SnapshotLogEntry {
                timestamp_ms: 1_700_000_000_001,
                snapshot_id: i64::MAX,
            }],
            metadata_log: vec![MetadataLogEntry {
                timestamp_ms: 1_700_000_000_000,
                metadata_file: "file:///store/iceberg/telemetry/metrics/metadata/v1.metadata.json".to_owned(),
            }],
            ..empty()
        }
    }

    #[test]
    fn a_table_is_written_under_the_names_of_the_specification() {
        let schema = IcebergSchema::of(&Table::Metrics.schema()).unwrap();
        let written: Value = serde_json::from_slice(&full().to_json().unwrap()).unwrap();
        assert_eq!(
            written,
            json!({
                "format-version": 2,
                "table-uuid": "00000000-0000-0000-0000-000000000007",
                "location": "file:///store/iceberg/telemetry/metrics",
                "last-sequence-number": 2,
                "last-updated-ms": 1_700_000_000_000_i64,
                "last-column-id": 7,
                "schemas": [schema.to_json(0)],
                "current-schema-id": 0,
                "partition-specs": specs_json(),
                "default-spec-id": 0,
                "last-partition-id": 1001,
                "sort-orders": [{"order-id": 0, "fields": []}],
                "default-sort-order-id": 0,
                "properties": {"a": "b"},
                "current-snapshot-id": i64::MAX,
                "refs": {"main": {"snapshot-id": i64::MAX, "type": "branch"}},
                "snapshots": [{
                    "snapshot-id": i64::MAX,
                    "parent-snapshot-id": 3,
                    "sequence-number": 2,
                    "timestamp-ms": 1_700_000_000_001_i64,
                    "manifest-list": "file:///store/iceberg/telemetry/metrics/metadata/snap-2-7fffffffffffffff.avro",
                    "summary": {"operation": "append"},
                    "schema-id": 0,
                }],
                "snapshot-log": [{"timestamp-ms": 1_700_000_000_001_i64, "snapshot-id": i64::MAX}],
                "metadata-log": [{
                    "timestamp-ms": 1_700_000_000_000_i64,
                    "metadata-file": "file:///store/iceberg/telemetry/metrics/metadata/v1.metadata.json",
                }],
            })
        );
    }

    #[test]
    fn a_table_gives_back_what_was_written_and_ignores_what_it_does_not_know() {
        for table in [empty(), full()] {
            let bytes = table.to_json().unwrap();
            assert_eq!(TableMetadata::from_json(&bytes).unwrap(), table);
            let mut more: Value = serde_json::from_slice(&bytes).unwrap();
            more["statistics"] = json!([]);
            assert_eq!(TableMetadata::from_json(more.to_string().as_bytes()).unwrap(), table);
        }
        let written: Value = serde_json::from_slice(&empty().to_json().unwrap()).unwrap();
        for key in ["current-snapshot-id", "refs"] {
            assert_eq!(written.get(key), None, "{key}");
        }
        assert_eq!(
            full().current_snapshot().map(|snapshot| snapshot.sequence_number),
            Some(2)
        );
        assert_eq!(empty().current_snapshot(), None);
    }

    #[test]
    fn what_is_no_version_is_damage() {
        let change = |key: &str, value: Value| {
            let mut table = serde_json::to_value(full()).unwrap();
            table[key] = value;
            TableMetadata::from_json(table.to_string().as_bytes()).map_err(|error| error.to_string())
        };
        assert_eq!(change("last-updated-ms", json!(1_700_000_000_000_i64)), Ok(full()));
        for (key, value, reason) in [
            ("format-version", json!(3), "its format is 3, not 2"),
            ("current-snapshot-id", json!(5), "its current snapshot is not in it"),
            ("current-schema-id", json!(5), "its current schema is not in it"),
            ("table-uuid", json!("x"), "invalid"),
        ] {
            let said = change(key, value).unwrap_err();
            assert!(said.contains(reason), "{key}: {said}");
        }
        let bytes = full().to_json().unwrap();
        for end in 0..bytes.len() {
            assert!(TableMetadata::from_json(&bytes[..end]).is_err(), "cut at {end}");
        }
        let large = vec![b' '; MOST_METADATA + 1];
        let said = TableMetadata::from_json(&large).unwrap_err().to_string();
        assert!(said.contains("it has 16777217 bytes, more than 16777216"), "{said}");
        let deep = "[".repeat(100_000);
        assert!(TableMetadata::from_json(deep.as_bytes()).is_err());
    }
}
