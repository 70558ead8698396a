//! Rows to lines and back, descriptions, and what is no file of ours.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use arrow_array::RecordBatch;
use model::Table;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::datafile::file_format::FileFormat;
use crate::datafile::tests::sample::{Cell, batch};
use crate::datafile::{FileIdentity, FilePrefix, FooterFacts, WriteOptions, inspect};

const FORMS: [FileFormat; 3] = [FileFormat::Json, FileFormat::JsonZstd, FileFormat::JsonSnappy];

fn cell() -> impl Strategy<Value = Cell> {
    let json = prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"a":1.0,"a.b":"x\"}{","c":[1,{"d":null}],"n":123456789012345678901234567890}"#.to_owned()),
        Just("{\"a\":\n1}".to_owned()),
        Just("{\"a\":".to_owned()),
        Just("null".to_owned()),
        any::<String>(),
    ];
    let ts = model::Timestamp::MIN.micros()..model::Timestamp::MAX.micros();
    let number = prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), Just(-0.0)];
    (
        ts,
        any::<[u8; 16]>(),
        any::<String>(),
        json,
        number,
        any::<Vec<u8>>(),
        any::<bool>(),
    )
        .prop_map(|(ts, id, text, json, number, blob, missing)| Cell {
            ts,
            id,
            text,
            json,
            number,
            blob,
            missing,
        })
}

fn identity(table: Table) -> FileIdentity {
    FileIdentity {
        store: Uuid::from_u128(7),
        table,
        segment: 3,
    }
}

fn options(form: FileFormat) -> WriteOptions {
    WriteOptions {
        form,
        ..WriteOptions::default()
    }
}

/// As text, so that NaN is NaN.
fn shown(batch: &RecordBatch) -> String {
    format!("{batch:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_value_of_every_column_is_read_as_it_was_written(mut cells in prop::collection::vec(cell(), 1..8)) {
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.ts));
        let dir = tempfile::tempdir().unwrap();
        for (table, form) in Table::ALL.into_iter().zip(FORMS.into_iter().cycle()) {
            let rows = batch(table, &cells);
            let staged = dir.path().join(format!("{table}.{}", form.ending()));
            let sealed = write_sealed(&identity(table), std::slice::from_ref(&rows), &FooterFacts::default(), &staged, &options(form)).unwrap();
            let file = FilePrefix::new(fs::File::open(&staged).unwrap(), sealed.size);
            let read: Vec<RecordBatch> = NdjsonReader::new(table, &staged, form, &file, sealed.rows).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(read.iter().map(shown).collect::<Vec<_>>(), vec![shown(&rows)]);
        }
    }

    #[test]
    fn a_description_is_found_at_the_end_whatever_is_before_it(before in any::<Vec<u8>>(), values in prop::collection::vec(any::<String>(), 0..6)) {
        let dir = tempfile::tempdir().unwrap();
        let pairs: FooterPairs = values.into_iter().enumerate().map(|(n, value)| (format!("k{n}"), value)).collect();
        for form in FORMS {
            let path = dir.path().join("file");
            let described = description(form, &pairs).unwrap();
            fs::write(&path, [before.clone(), described.clone()].concat()).unwrap();
            let length = (before.len() + described.len()) as u64;
            let file = FilePrefix::new(fs::File::open(&path).unwrap(), length);
            let raw = raw_description(&file).unwrap().unwrap();
            prop_assert_eq!(&raw, &described);
            prop_assert_eq!(pairs_of(&raw).unwrap(), pairs.clone());
            let mut flipped = raw;
            let middle = flipped.len() / 2;
            flipped[middle] ^= 1;
            prop_assert!(pairs_of(&flipped).is_err());
        }
    }

    #[test]
    fn whatever_lies_in_a_file_is_no_description_or_a_right_one(bytes in any::<Vec<u8>>(), magic in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut bytes = bytes;
        if magic {
            bytes.extend_from_slice(b"PLJ1");
        }
        fs::write(&path, &bytes).unwrap();
        prop_assert!(inspect(&path).is_err());
        let _ = pairs_of(&bytes);
    }

    #[test]
    fn a_line_that_is_no_row_is_an_error_and_never_a_panic(line in any::<Vec<u8>>(), tail in "[ -~]{0,40}") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs.json");
        fs::write(&path, [line, format!("{{\"ts\":{tail}").into_bytes()].concat()).unwrap();
        let file = FilePrefix::new(fs::File::open(&path).unwrap(), fs::metadata(&path).unwrap().len());
        let mut lines = NdjsonReader::new(Table::Logs, &path, FileFormat::Json, &file, 1).unwrap();
        prop_assert!(lines.next().unwrap().is_err());
        prop_assert!(lines.next().is_none());
    }
}

#[test]
fn a_long_description_fits_the_room_that_readers_of_snappy_frames_have() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let noise: String = (0..200_000u64)
        .map(|n| char::from(b'!' + u8::try_from(n * n * 7919 % 89).unwrap()))
        .collect();
    let rows = model::batch::logs(&[]).unwrap();
    assert_eq!(rows.num_rows(), 0);
    let cells = [Cell {
        ts: 5,
        id: [1; 16],
        text: "a".into(),
        json: "{}".into(),
        number: 1.5,
        blob: vec![1],
        missing: false,
    }];
    for form in FORMS {
        let path = dir.path().join(form.ending());
        let facts = FooterFacts {
            origins: noise.clone(),
            ..FooterFacts::default()
        };
        let rows = batch(Table::Logs, &cells);
        write_sealed(&identity(Table::Logs), &[rows], &facts, &path, &options(form)).unwrap();
        let found = inspect(&path).unwrap();
        assert_eq!((found.facts, found.extent.rows, found.sealed), (facts, 1, true));
        let file = fs::File::open(&path).unwrap();
        let mut text = String::new();
        match form {
            FileFormat::JsonZstd => zstd::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap(),
            FileFormat::JsonSnappy => snap::read::FrameDecoder::new(file).read_to_string(&mut text).unwrap(),
            _ => std::io::BufReader::new(file).read_to_string(&mut text).unwrap(),
        };
        let values: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(values.len(), 1);
        assert_eq!(values[0]["message"], "a");
    }
}
