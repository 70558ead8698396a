//! Manifests: Avro files that list the data files of a day, with which snapshot brought each.
//!
//! The record is `manifest_entry` of the Iceberg specification, version 2, with the fields that are known of our files; optional ones
//! that are not (sizes of columns, split offsets, keys of encryption …) are left out of the schema, which readers take as null.
//!
//! # Invariants
//!
//! - All files of a manifest belong to one partition spec.
//! - Snapshot ids and sequence numbers are written out, never inherited: a manifest says the same in every list that names it.
//! - What [`write_manifest`] makes, [`read_manifest`] gives back.
//!
//! # Not here
//!
//! Which files belong together: the publisher.

use std::collections::BTreeMap;

use crate::IcebergError;
use crate::avro::{AvroDamage, AvroDecoder, AvroEncoder, AvroFile};
use crate::data_file::DataFile;
use crate::partition_spec::PartitionUnit;
use crate::schema::IcebergSchema;

const SPEC_PROPERTY: &str = "partition-spec-id";

/// Of either spec; [`schema_of`] puts in the partition's field.
const SCHEMA: &str = concat!(
    r#"{"type":"record","name":"manifest_entry","fields":["#,
    r#"{"name":"status","type":"int","field-id":0},"#,
    r#"{"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},"#,
    r#"{"name":"sequence_number","type":["null","long"],"default":null,"field-id":3},"#,
    r#"{"name":"file_sequence_number","type":["null","long"],"default":null,"field-id":4},"#,
    r#"{"name":"data_file","type":{"type":"record","name":"r2","fields":["#,
    r#"{"name":"content","type":"int","field-id":134},"#,
    r#"{"name":"file_path","type":"string","field-id":100},"#,
    r#"{"name":"file_format","type":"string","field-id":101},"#,
    r#"{"name":"partition","type":{"type":"record","name":"r102","fields":["#,
    r#"{"name":"PARTITION_NAME","type":["null","int"],"default":null,"field-id":PARTITION_ID}]},"field-id":102},"#,
    r#"{"name":"record_count","type":"long","field-id":103},"#,
    r#"{"name":"file_size_in_bytes","type":"long","field-id":104},"#,
    r#"{"name":"value_counts","type":["null",{"type":"array","items":{"type":"record","name":"k119_v120","fields":["#,
    r#"{"name":"key","type":"int","field-id":119},{"name":"value","type":"long","field-id":120}]},"logicalType":"map"}],"#,
    r#""default":null,"field-id":109},"#,
    r#"{"name":"null_value_counts","type":["null",{"type":"array","items":{"type":"record","name":"k121_v122","fields":["#,
    r#"{"name":"key","type":"int","field-id":121},{"name":"value","type":"long","field-id":122}]},"logicalType":"map"}],"#,
    r#""default":null,"field-id":110},"#,
    r#"{"name":"lower_bounds","type":["null",{"type":"array","items":{"type":"record","name":"k126_v127","fields":["#,
    r#"{"name":"key","type":"int","field-id":126},{"name":"value","type":"bytes","field-id":127}]},"logicalType":"map"}],"#,
    r#""default":null,"field-id":125},"#,
    r#"{"name":"upper_bounds","type":["null",{"type":"array","items":{"type":"record","name":"k129_v130","fields":["#,
    r#"{"name":"key","type":"int","field-id":129},{"name":"value","type":"bytes","field-id":130}]},"logicalType":"map"}],"#,
    r#""default":null,"field-id":128}"#,
    r#"]},"field-id":2}]}"#,
);

/// What became of a file in the snapshot that wrote its entry. Of those that are gone there are no entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryStatus {
    /// It was there before.
    Existing = 0,
    /// It came.
    Added = 1,
}

impl EntryStatus {
    const ALL: [Self; 2] = [Self::Existing, Self::Added];
}

/// A data file in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestEntry {
    /// What became of it.
    pub(crate) status: EntryStatus,
    /// The snapshot that added it.
    pub(crate) snapshot_id: i64,
    /// The sequence number of the snapshot that added it.
    pub(crate) sequence_number: i64,
    /// The file.
    pub(crate) file: DataFile,
}

fn schema_of(unit: PartitionUnit) -> String {
    SCHEMA
        .replace("PARTITION_NAME", unit.field_name())
        .replace("PARTITION_ID", &unit.field_id().to_string())
}

/// A manifest of a table with this schema.
///
/// # Errors
/// If a file belongs to the other partition spec, a defect.
pub(crate) fn write_manifest(
    schema: &IcebergSchema,
    schema_id: i32,
    unit: PartitionUnit,
    entries: &[ManifestEntry],
) -> Result<Vec<u8>, IcebergError> {
    let mut encoder = AvroEncoder::default();
    for entry in entries {
        if entry.file.unit != unit {
            let reason = format!("its partition is none of spec {}", unit.spec_id());
            return Err(IcebergError::refused(&entry.file.path, reason));
        }
        encode(&mut encoder, entry);
    }
    let properties = [
        ("schema", schema.to_json(schema_id).to_string()),
        ("schema-id", schema_id.to_string()),
        ("partition-spec", unit.fields_json().to_string()),
        (SPEC_PROPERTY, unit.spec_id().to_string()),
        ("format-version", "2".to_owned()),
        ("content", "data".to_owned()),
    ];
    let properties: Vec<_> = properties.iter().map(|(key, value)| (*key, value.as_str())).collect();
    Ok(encoder.into_file(&schema_of(unit), &properties, entries.len()))
}

fn encode(to: &mut AvroEncoder, entry: &ManifestEntry) {
    to.long(entry.status as i64);
    for id in [entry.snapshot_id, entry.sequence_number, entry.sequence_number] {
        to.some();
        to.long(id);
    }
    let file = &entry.file;
    to.long(0);
    to.text(&file.path);
    to.text("PARQUET");
    to.some();
    to.long(file.partition.into());
    to.count(file.rows);
    to.count(file.size);
    for counts in [&file.value_counts, &file.null_counts] {
        to.array(counts.iter(), |to, (id, count)| {
            to.long((*id).into());
            to.long(*count);
        });
    }
    for bounds in [&file.lower, &file.upper] {
        to.array(bounds.iter(), |to, (id, bound)| {
            to.long((*id).into());
            to.bytes(bound);
        });
    }
}

/// The entries of a manifest, in their order.
///
/// # Errors
/// If the bytes are not those of a manifest that this program wrote.
pub(crate) fn read_manifest(bytes: &[u8]) -> Result<Vec<ManifestEntry>, IcebergError> {
    decoded(bytes).map_err(|damage| IcebergError::damaged("a manifest", damage))
}

fn decoded(bytes: &[u8]) -> Result<Vec<ManifestEntry>, AvroDamage> {
    let file = AvroFile::open(bytes)?;
    let spec_id = file.property(SPEC_PROPERTY).and_then(|id| id.parse().ok());
    let unit = spec_id
        .and_then(PartitionUnit::of_spec)
        .ok_or(AvroDamage("its partition spec is unknown"))?;
    file.rows(&schema_of(unit), |from| decode(from, unit))
}

fn decode(from: &mut AvroDecoder<'_>, unit: PartitionUnit) -> Result<ManifestEntry, AvroDamage> {
    let number = from.long()?;
    let status = EntryStatus::ALL.into_iter().find(|status| *status as i64 == number);
    let mut ids = [0; 3];
    for id in &mut ids {
        from.some()?;
        *id = from.long()?;
    }
    let [snapshot_id, sequence_number, _] = ids;
    if from.long()? != 0 {
        return Err(AvroDamage("it lists files of deletes"));
    }
    let path = from.text()?.to_owned();
    from.text()?;
    from.some()?;
    Ok(ManifestEntry {
        status: status.ok_or(AvroDamage("an entry has an unknown status"))?,
        snapshot_id,
        sequence_number,
        file: DataFile {
            path,
            unit,
            partition: from.int()?,
            rows: from.count()?,
            size: from.count()?,
            value_counts: by_column(from, AvroDecoder::long)?,
            null_counts: by_column(from, AvroDecoder::long)?,
            lower: by_column(from, |from| Ok(from.bytes()?.to_vec()))?,
            upper: by_column(from, |from| Ok(from.bytes()?.to_vec()))?,
        },
    })
}

fn by_column<'a, T>(
    from: &mut AvroDecoder<'a>,
    mut value: impl FnMut(&mut AvroDecoder<'a>) -> Result<T, AvroDamage>,
) -> Result<BTreeMap<i32, T>, AvroDamage> {
    Ok(from
        .array(|from| Ok((from.int()?, value(from)?)))?
        .into_iter()
        .collect())
}

#[cfg(test)]
mod tests {
    use model::Table;
    use serde_json::Value;

    use super::*;
    use crate::data_file::tests::plain;

    fn logs() -> IcebergSchema {
        IcebergSchema::of(&Table::Logs.schema()).unwrap()
    }

    fn entries(unit: PartitionUnit) -> Vec<ManifestEntry> {
        let known = DataFile {
            value_counts: BTreeMap::from([(1, 10), (4, 10)]),
            null_counts: BTreeMap::from([(1, 0), (4, 3)]),
            lower: BTreeMap::from([(1, vec![0; 8]), (3, b"a".to_vec())]),
            upper: BTreeMap::from([(1, vec![255; 8])]),
            ..plain("s3://bucket/a.parquet", unit, 492_000)
        };
        let entry = |status, snapshot_id, file| ManifestEntry {
            status,
            snapshot_id,
            sequence_number: 3,
            file,
        };
        vec![
            entry(EntryStatus::Added, i64::MAX, known),
            entry(EntryStatus::Existing, 1, plain("file:///b.parquet", unit, -1)),
        ]
    }

    /// The names and numbers of the fields of a record, and of those within it.
    fn fields(schema: &Value, found: &mut Vec<(String, i64)>) {
        match schema {
            Value::Object(object) => {
                if let (Some(name), Some(id)) = (object.get("name"), object.get("field-id")) {
                    found.push((name.as_str().unwrap().to_owned(), id.as_i64().unwrap()));
                }
                object.values().for_each(|value| fields(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
            _ => {}
        }
    }

    #[test]
    fn the_schema_has_the_numbers_of_the_specification() {
        for (unit, partition) in [
            (PartitionUnit::Hour, ("ts_hour", 1000)),
            (PartitionUnit::Day, ("ts_day", 1001)),
        ] {
            let schema: Value = serde_json::from_str(&schema_of(unit)).unwrap();
            let mut found = Vec::new();
            fields(&schema, &mut found);
            found.sort_by_key(|(_, id)| *id);
            let found: Vec<_> = found.iter().map(|(name, id)| (name.as_str(), *id)).collect();
            assert_eq!(
                found,
                [
                    ("status", 0),
                    ("snapshot_id", 1),
                    ("data_file", 2),
                    ("sequence_number", 3),
                    ("file_sequence_number", 4),
                    ("file_path", 100),
                    ("file_format", 101),
                    ("partition", 102),
                    ("record_count", 103),
                    ("file_size_in_bytes", 104),
                    ("value_counts", 109),
                    ("null_value_counts", 110),
                    ("key", 119),
                    ("value", 120),
                    ("key", 121),
                    ("value", 122),
                    ("lower_bounds", 125),
                    ("key", 126),
                    ("value", 127),
                    ("upper_bounds", 128),
                    ("key", 129),
                    ("value", 130),
                    ("content", 134),
                    partition,
                ]
            );
            let names: Vec<_> = schema["fields"]
                .as_array()
                .unwrap()
                .iter()
                .map(|field| &field["name"])
                .collect();
            assert_eq!(
                names,
                [
                    "status",
                    "snapshot_id",
                    "sequence_number",
                    "file_sequence_number",
                    "data_file"
                ]
            );
        }
    }

    #[test]
    fn a_manifest_gives_back_what_was_written() {
        for unit in PartitionUnit::ALL {
            let entries = entries(unit);
            let written = write_manifest(&logs(), 4, unit, &entries).unwrap();
            assert_eq!(read_manifest(&written).unwrap(), entries);
            assert_eq!(
                written,
                write_manifest(&logs(), 4, unit, &entries).unwrap(),
                "the same bytes"
            );

            let file = AvroFile::open(&written).unwrap();
            let property = |key| file.property(key).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(property("schema")).unwrap(),
                logs().to_json(4)
            );
            assert_eq!(
                serde_json::from_str::<Value>(property("partition-spec")).unwrap(),
                unit.fields_json()
            );
            assert_eq!(property("partition-spec-id"), unit.spec_id().to_string());
            assert_eq!(
                (property("schema-id"), property("format-version"), property("content")),
                ("4", "2", "data")
            );
        }
        let empty = write_manifest(&logs(), 0, PartitionUnit::Day, &[]).unwrap();
        assert!(read_manifest(&empty).unwrap().is_empty());
    }

    #[test]
    fn an_entry_is_encoded_as_the_specification_says() {
        let entry = ManifestEntry {
            status: EntryStatus::Added,
            snapshot_id: 7,
            sequence_number: 3,
            file: DataFile {
                lower: BTreeMap::from([(1, vec![9])]),
                ..plain("f", PartitionUnit::Hour, -2)
            },
        };
        let mut encoder = AvroEncoder::default();
        encode(&mut encoder, &entry);
        let written = encoder.into_file("", &[], 1);
        let row = [
            &[2, 2, 14, 2, 6, 2, 6, 0, 2, b'f', 14][..],
            &b"PARQUET"[..],
            &[2, 3, 20, 0xd0, 0x0f, 0, 0, 2, 2, 2, 2, 9, 0, 0][..],
        ]
        .concat();
        assert!(written.windows(row.len()).any(|window| window == row), "{written:?}");
    }

    #[test]
    fn damage_is_an_error_and_so_is_a_file_of_the_other_spec() {
        let entries = entries(PartitionUnit::Hour);
        let written = write_manifest(&logs(), 4, PartitionUnit::Hour, &entries).unwrap();
        for at in 0..written.len() {
            let mut damaged = written.clone();
            damaged[at] ^= 0x10;
            assert!(read_manifest(&damaged).is_err(), "byte {at}");
            assert!(read_manifest(&written[..at]).is_err(), "cut at {at}");
        }
        let error = read_manifest(b"{}").unwrap_err().of_object("x-m.avro");
        assert!(
            error
                .to_string()
                .starts_with("x-m.avro of the Iceberg catalogue is damaged")
        );
        let mixed = write_manifest(&logs(), 4, PartitionUnit::Day, &entries).unwrap_err();
        assert_eq!(
            mixed.to_string(),
            "s3://bucket/a.parquet cannot be in the Iceberg catalogue: its partition is none of spec 1"
        );
    }
}
