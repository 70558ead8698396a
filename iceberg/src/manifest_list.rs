//! Manifest lists: the Avro file of a snapshot that names its manifests, with the partitions and the numbers of files of each.
//!
//! The record is `manifest_file` of the Iceberg specification, version 2. Readers skip manifests by the partitions alone, before they
//! open one.
//!
//! # Not here
//!
//! The manifests: [`crate::manifest`].

use crate::IcebergError;
use crate::avro::{AvroDamage, AvroDecoder, AvroEncoder, AvroFile};
use crate::partition_spec::PartitionUnit;

const SCHEMA: &str = concat!(
    r#"{"type":"record","name":"manifest_file","fields":["#,
    r#"{"name":"manifest_path","type":"string","field-id":500},"#,
    r#"{"name":"manifest_length","type":"long","field-id":501},"#,
    r#"{"name":"partition_spec_id","type":"int","field-id":502},"#,
    r#"{"name":"content","type":"int","field-id":517},"#,
    r#"{"name":"sequence_number","type":"long","field-id":515},"#,
    r#"{"name":"min_sequence_number","type":"long","field-id":516},"#,
    r#"{"name":"added_snapshot_id","type":"long","field-id":503},"#,
    r#"{"name":"added_files_count","type":"int","field-id":504},"#,
    r#"{"name":"existing_files_count","type":"int","field-id":505},"#,
    r#"{"name":"deleted_files_count","type":"int","field-id":506},"#,
    r#"{"name":"added_rows_count","type":"long","field-id":512},"#,
    r#"{"name":"existing_rows_count","type":"long","field-id":513},"#,
    r#"{"name":"deleted_rows_count","type":"long","field-id":514},"#,
    r#"{"name":"partitions","type":["null",{"type":"array","items":{"type":"record","name":"r508","fields":["#,
    r#"{"name":"contains_null","type":"boolean","field-id":509},"#,
    r#"{"name":"contains_nan","type":["null","boolean"],"default":null,"field-id":518},"#,
    r#"{"name":"lower_bound","type":["null","bytes"],"default":null,"field-id":510},"#,
    r#"{"name":"upper_bound","type":["null","bytes"],"default":null,"field-id":511}]},"element-id":508}],"#,
    r#""default":null,"field-id":507}"#,
    r#"]}"#,
);

/// Files, and rows, that the manifest's snapshot removed: its entries do not have them.
const NO_DELETED: u64 = 0;

/// A manifest as a snapshot names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    /// Its URI.
    pub(crate) path: String,
    /// Its size in bytes.
    pub(crate) length: u64,
    /// The length of its partitions.
    pub(crate) unit: PartitionUnit,
    /// The sequence number of the snapshot that wrote it.
    pub(crate) sequence_number: i64,
    /// The least sequence number of a file that is live in it.
    pub(crate) min_sequence_number: i64,
    /// The snapshot that wrote it.
    pub(crate) added_snapshot_id: i64,
    /// Files that came with that snapshot.
    pub(crate) added_files: u64,
    /// Files that were there before.
    pub(crate) existing_files: u64,
    /// Rows of files that came.
    pub(crate) added_rows: u64,
    /// Rows of files that were there.
    pub(crate) existing_rows: u64,
    /// The least partition of its files.
    pub(crate) partition_lower: i32,
    /// The greatest partition of its files.
    pub(crate) partition_upper: i32,
}

/// The manifest list of a snapshot.
///
/// # Errors
/// If a manifest has more files than an `int` can count.
pub(crate) fn write_manifest_list(
    snapshot_id: i64,
    parent: Option<i64>,
    sequence_number: i64,
    manifests: &[ManifestFile],
) -> Result<Vec<u8>, IcebergError> {
    let mut encoder = AvroEncoder::default();
    for manifest in manifests {
        let files = [manifest.added_files, manifest.existing_files];
        if files.iter().any(|count| i32::try_from(*count).is_err()) {
            return Err(IcebergError::refused(&manifest.path, "it has too many files"));
        }
        encode(&mut encoder, manifest);
    }
    let (id, number) = (snapshot_id.to_string(), sequence_number.to_string());
    let parent = parent.map_or_else(|| "null".to_owned(), |parent| parent.to_string());
    let properties = [
        ("snapshot-id", id.as_str()),
        ("parent-snapshot-id", parent.as_str()),
        ("sequence-number", number.as_str()),
        ("format-version", "2"),
    ];
    Ok(encoder.into_file(SCHEMA, &properties, manifests.len()))
}

fn encode(to: &mut AvroEncoder, manifest: &ManifestFile) {
    to.text(&manifest.path);
    to.count(manifest.length);
    to.long(manifest.unit.spec_id().into());
    to.long(0);
    for number in [
        manifest.sequence_number,
        manifest.min_sequence_number,
        manifest.added_snapshot_id,
    ] {
        to.long(number);
    }
    for count in [
        manifest.added_files,
        manifest.existing_files,
        NO_DELETED,
        manifest.added_rows,
        manifest.existing_rows,
        NO_DELETED,
    ] {
        to.count(count);
    }
    to.array(
        [(manifest.partition_lower, manifest.partition_upper)].iter(),
        |to, bounds| {
            to.boolean(false);
            to.some();
            to.boolean(false);
            for bound in [bounds.0, bounds.1] {
                to.some();
                to.bytes(&bound.to_le_bytes());
            }
        },
    );
}

/// The manifests that a snapshot names, in their order.
///
/// # Errors
/// If the bytes are not those of a manifest list that this program wrote.
pub(crate) fn read_manifest_list(bytes: &[u8]) -> Result<Vec<ManifestFile>, IcebergError> {
    AvroFile::open(bytes)
        .and_then(|file| file.rows(SCHEMA, decode))
        .map_err(|damage| IcebergError::damaged("a manifest list", damage))
}

fn decode(from: &mut AvroDecoder<'_>) -> Result<ManifestFile, AvroDamage> {
    let (path, length) = (from.text()?.to_owned(), from.count()?);
    let unit = PartitionUnit::of_spec(from.int()?).ok_or(AvroDamage("a partition spec is unknown"))?;
    if from.long()? != 0 {
        return Err(AvroDamage("it names manifests of deletes"));
    }
    let mut numbers = [0; 3];
    for number in &mut numbers {
        *number = from.long()?;
    }
    let mut counts = [0; 6];
    for count in &mut counts {
        *count = from.count()?;
    }
    let partitions = from.array(|from| {
        from.boolean()?;
        from.some()?;
        from.boolean()?;
        Ok([bound(from)?, bound(from)?])
    })?;
    let [[partition_lower, partition_upper]] = partitions[..] else {
        return Err(AvroDamage("a manifest has another partition field"));
    };
    let [sequence_number, min_sequence_number, added_snapshot_id] = numbers;
    let [added_files, existing_files, _, added_rows, existing_rows, _] = counts;
    Ok(ManifestFile {
        path,
        length,
        unit,
        sequence_number,
        min_sequence_number,
        added_snapshot_id,
        added_files,
        existing_files,
        added_rows,
        existing_rows,
        partition_lower,
        partition_upper,
    })
}

fn bound(from: &mut AvroDecoder<'_>) -> Result<i32, AvroDamage> {
    from.some()?;
    let bytes = from.bytes()?.try_into();
    bytes
        .map(i32::from_le_bytes)
        .map_err(|_| AvroDamage("a partition is no int"))
}

/// A manifest with another number in each field.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn sample_manifest(path: &str, unit: PartitionUnit) -> ManifestFile {
    ManifestFile {
        path: path.to_owned(),
        length: 4321,
        unit,
        sequence_number: 7,
        min_sequence_number: 2,
        added_snapshot_id: i64::MAX,
        added_files: 1,
        existing_files: 20,
        added_rows: 100,
        existing_rows: 5_000_000_000,
        partition_lower: -5,
        partition_upper: 492_023,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::sample_manifest as manifest;
    use super::*;

    #[test]
    fn the_schema_has_the_numbers_of_the_specification() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let ids = |fields: &Value| -> Vec<(String, i64)> {
            let fields = fields.as_array().unwrap().iter();
            fields
                .map(|field| {
                    (
                        field["name"].as_str().unwrap().to_owned(),
                        field["field-id"].as_i64().unwrap(),
                    )
                })
                .collect()
        };
        let names = |fields: &[(String, i64)], at: usize| (fields[at].0.clone(), fields[at].1);
        let fields = ids(&schema["fields"]);
        let numbers: Vec<_> = fields.iter().map(|(_, id)| *id).collect();
        assert_eq!(
            numbers,
            [500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507]
        );
        assert_eq!(names(&fields, 7), ("added_files_count".to_owned(), 504));
        assert_eq!(names(&fields, 13), ("partitions".to_owned(), 507));
        let partitions = &schema["fields"][13]["type"][1];
        assert_eq!(partitions["element-id"], 508);
        let bounds: Vec<_> = ids(&partitions["items"]["fields"])
            .into_iter()
            .map(|(_, id)| id)
            .collect();
        assert_eq!(bounds, [509, 518, 510, 511]);
    }

    #[test]
    fn a_list_gives_back_what_was_written() {
        let manifests = [
            manifest("file:///a-m.avro", PartitionUnit::Hour),
            manifest("s3://b/c-m.avro", PartitionUnit::Day),
        ];
        let written = write_manifest_list(5, Some(4), 9, &manifests).unwrap();
        assert_eq!(read_manifest_list(&written).unwrap(), manifests);
        assert_eq!(
            written,
            write_manifest_list(5, Some(4), 9, &manifests).unwrap(),
            "the same bytes"
        );
        let file = AvroFile::open(&written).unwrap();
        for (key, value) in [
            ("snapshot-id", "5"),
            ("parent-snapshot-id", "4"),
            ("sequence-number", "9"),
            ("format-version", "2"),
        ] {
            assert_eq!(file.property(key), Some(value), "{key}");
        }
        let first = write_manifest_list(5, None, 1, &[]).unwrap();
        assert_eq!(
            AvroFile::open(&first).unwrap().property("parent-snapshot-id"),
            Some("null")
        );
        assert!(read_manifest_list(&first).unwrap().is_empty());
    }

    #[test]
    fn partitions_are_encoded_as_the_specification_says() {
        let mut encoder = AvroEncoder::default();
        encode(&mut encoder, &manifest("m", PartitionUnit::Day));
        let written = encoder.into_file("", &[], 1);
        let tail = [
            &[2, 2, 0, 2, 0, 2, 8, 0xfb, 255, 255, 255, 2, 8][..],
            &492_023_i32.to_le_bytes()[..],
            &[0][..],
        ]
        .concat();
        assert!(written.windows(tail.len()).any(|window| window == tail), "{written:?}");
    }

    #[test]
    fn damage_is_an_error_and_so_are_more_files_than_an_int_counts() {
        let written = write_manifest_list(5, Some(4), 9, &[manifest("m", PartitionUnit::Day)]).unwrap();
        for at in 0..written.len() {
            let mut damaged = written.clone();
            damaged[at] ^= 0x10;
            assert!(read_manifest_list(&damaged).is_err(), "byte {at}");
            assert!(read_manifest_list(&written[..at]).is_err(), "cut at {at}");
        }
        let many = ManifestFile {
            existing_files: 1 << 31,
            ..manifest("m", PartitionUnit::Day)
        };
        assert!(write_manifest_list(5, None, 9, &[many]).is_err());
    }
}
