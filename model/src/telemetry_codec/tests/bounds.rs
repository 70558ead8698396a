//! What a body may become: attributes that multiply, values that are many, parts, names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::batch::slice_bytes;
use crate::{Level, Timestamp};

/// A record whose attributes are `leaves` small values under a key of `length` bytes.
fn nested(length: usize, leaves: usize) -> Value {
    let values: serde_json::Map<_, _> = (0..leaves).map(|n| (n.to_string(), Value::from(0))).collect();
    let mut record = line("nested");
    record["attributes"] = json!({ "k".repeat(length): values });
    record
}

fn in_every_encoding(records: &[Value]) -> [(BatchEncoding, Vec<u8>); 3] {
    let ndjson: String = records.iter().map(|record| format!("{record}\n")).collect();
    let all = Value::from(records.to_vec());
    [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Json, all.to_string().into_bytes()),
        (BatchEncoding::Cbor, cbor(&all)),
    ]
}

#[test]
fn attributes_that_multiply_when_they_are_flattened_are_refused_by_name_in_every_encoding() {
    let bomb = nested(11_000, 1_400);
    assert!(bomb.to_string().len() < 24_000);
    for (encoding, body) in in_every_encoding(&[bomb.clone(), line("a")]) {
        let (batches, records) = read(Table::Logs, encoding, &body, usize::MAX);
        assert_eq!(messages(&batches), ["a"], "{encoding:?}");
        let [bad] = records.named() else {
            panic!("{encoding:?}: {:?}", records.named())
        };
        assert!(bad.row == 0 && bad.reason.contains("8 times"), "{encoding:?}: {bad:?}");
        assert!(bad.reason.contains("shorter keys"), "it says what to do: {bad:?}");
    }
    assert!(serde_json::from_value::<crate::Attributes>(bomb["attributes"].clone()).is_err());
    let attributes = cbor(&bomb["attributes"]);
    assert!(ciborium::from_reader::<crate::Attributes, _>(attributes.as_slice()).is_err());
}

#[test]
fn what_is_nested_in_the_usual_way_is_stored() {
    // Six names of ten bytes above each value, and a histogram's many small ones.
    let names = ["deployment"; 6];
    let mut values: Value = (0..1_000)
        .map(|n| (n.to_string(), Value::from(n)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    for name in names {
        values = json!({ name: values });
    }
    let mut record = line("nested");
    record["attributes"] = values;
    for (encoding, body) in in_every_encoding(&[record.clone()]) {
        let (batches, records) = read(Table::Logs, encoding, &body, usize::MAX);
        assert_eq!(messages(&batches), ["nested"], "{encoding:?}: {:?}", records.named());
    }
    let attributes: crate::Attributes = serde_json::from_value(record["attributes"].clone()).unwrap();
    assert_eq!(attributes.as_map().len(), 1_000);
    let flat = json!({ "text": "x".repeat(9 << 20) });
    assert!(
        serde_json::from_value::<crate::Attributes>(flat).is_ok(),
        "it does not multiply"
    );
}

#[test]
fn a_part_is_of_the_size_asked_for_however_much_its_records_become() {
    const SIZE: usize = 200_000;
    let all: Vec<_> = (0..100).map(|_| nested(600, 90)).collect();
    for (encoding, body) in in_every_encoding(&all) {
        let (batches, records) = read(Table::Logs, encoding, &body, SIZE);
        assert_eq!((messages(&batches).len(), records.rejected()), (100, 0), "{encoding:?}");
        for batch in &batches {
            assert!(
                slice_bytes(batch) <= SIZE + 1_000,
                "{encoding:?}: {}",
                slice_bytes(batch)
            );
        }
    }
}

#[test]
fn a_whole_body_becomes_no_more_than_there_was_room_for_before() {
    for all in [
        (0..100).map(|_| nested(600, 90)).collect::<Vec<_>>(),
        (0..100).map(|_| line("of the usual length")).collect(),
        vec![nested(3_000, 20)],
    ] {
        for (encoding, body) in in_every_encoding(&all) {
            let room = decoded_bytes(encoding, &body);
            match decode(Table::Logs, encoding, &body.into(), &publisher()) {
                Ok(batches) => {
                    let rows: usize = batches.iter().map(slice_bytes).sum();
                    assert!(rows as u64 <= room, "{encoding:?}: {rows} in {room}");
                }
                Err(error) => assert!(error.to_string().contains("8 times"), "{encoding:?}: {error}"),
            }
        }
    }
    let usual: Vec<_> = (0..100).map(|_| line("of the usual length")).collect();
    for (encoding, body) in in_every_encoding(&usual) {
        assert!(
            decode(Table::Logs, encoding, &body.into(), &publisher()).is_ok(),
            "{encoding:?}"
        );
    }
}

#[test]
fn a_record_of_very_many_values_is_refused_and_the_ones_behind_it_are_read() {
    let mut bomb = line("bomb");
    bomb["attributes"] = json!({ "a": { "b": vec![0; 100_000] } });
    for (encoding, body) in in_every_encoding(&[bomb, line("a")]) {
        let (batches, records) = read(Table::Logs, encoding, &body, usize::MAX);
        assert_eq!(messages(&batches), ["a"], "{encoding:?}");
        assert!(
            records.named()[0].reason.contains("values"),
            "{encoding:?}: {:?}",
            records.named()
        );
    }
}

#[test]
fn the_values_of_a_message_count_with_the_memory_that_they_take() {
    let usual = cbor(&json!({ "id": 1, "data": { "a": [1, 2, 3], "b": "x".repeat(1_000) } }));
    assert!(value_bytes(&usual) < 2_000);
    // An object of one key is 24 and 32 bytes elevenfold, in three bytes of CBOR.
    let objects = cbor(&json!({ "data": vec![json!({ "": 0 }); 10_000] }));
    assert!(objects.len() < 31_000 && value_bytes(&objects) >= 10_000 * 11 * (24 + 32));
    let cut = &objects[..objects.len() - 1];
    assert!(value_bytes(cut) >= 10_000 * 11 * (24 + 32), "all but the last is read");
    assert!(
        value_bytes(b"\xc1\x82\x00\xa0") > value_bytes(b"\x82\x00\xa0"),
        "what has a tag is counted"
    );
    let sequence = [&usual[..], &objects].concat();
    assert_eq!(value_bytes(&sequence), value_bytes(&usual) + value_bytes(&objects));
}

/// A format of which each byte is a record, and its row of so many bytes.
#[derive(Debug)]
struct LargeRows {
    found: usize,
    size: usize,
    decoded: Arc<AtomicUsize>,
}

impl RecordFormat for LargeRows {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        let at = self.found;
        self.found += 1;
        (at < body.len()).then_some(FoundRecord {
            range: at..at + 1,
            part: 0,
        })
    }

    fn push(&mut self, _: &[u8], _: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        let row = LogFields {
            ts: Timestamp::default(),
            entity: &publisher(),
            flux_id: None,
            level: Level::Info,
            message: &"x".repeat(self.size),
        };
        rows.push_log(row, &mut AttributeBuffer::default()).map(|()| true)
    }
}

#[test]
fn behind_the_row_that_is_too_much_for_a_body_nothing_is_decoded_and_the_rest_is_refused_by_one_reason() {
    // 64 times a thousand bytes and 4 MiB are four such rows.
    for size in [1, usize::MAX] {
        let decoded = Arc::new(AtomicUsize::new(0));
        let format = LargeRows {
            found: 0,
            size: 1 << 20,
            decoded: Arc::clone(&decoded),
        };
        let records = BodyRecordReader::of_format(Table::Logs, Box::new(format), vec![7; 1_000].into(), publisher());
        let mut records = records.keeping_refused().marking_refused();
        let mut rows = 0;
        while let Some(part) = records.next_part(size).unwrap() {
            rows += part.batch.num_rows();
        }
        assert_eq!((rows, records.rejected()), (4, 996), "{size}");
        assert_eq!(decoded.load(Ordering::Relaxed), 5, "{size}");
        let [named] = records.named() else {
            panic!("{:?}", records.named())
        };
        assert_eq!(named.row, 4);
        assert!(
            named.reason.contains("64 times its bytes")
                && named
                    .reason
                    .ends_with("the 995 records behind this one are refused, too"),
            "{named:?}"
        );
        let kept: Vec<_> = records.refused().iter().map(|bad| bad.row).collect();
        assert_eq!(kept, (4..1_000).collect::<Vec<_>>());
        let marks = records.take_marks();
        let marked = (0..1_000_u64).filter(|at| marks[(at / 64) as usize] >> (at % 64) & 1 == 1);
        assert_eq!(marked.collect::<Vec<_>>(), kept);
    }
}

#[test]
fn rows_that_are_too_large_end_a_body_as_those_do_that_fit() {
    const RECORDS: usize = 300_000;
    let decoded = Arc::new(AtomicUsize::new(0));
    let format = LargeRows {
        found: 0,
        size: 9 << 20,
        decoded: Arc::clone(&decoded),
    };
    let body = vec![7_u8; RECORDS].into();
    let mut records = BodyRecordReader::of_format(Table::Logs, Box::new(format), body, publisher());
    assert!(records.next_part(usize::MAX).unwrap().is_none());
    assert_eq!(records.rejected(), RECORDS as u64);
    // 64 times these bytes and 4 MiB are two such rows and a half.
    assert_eq!(decoded.load(Ordering::Relaxed), 3);
    let reasons: Vec<_> = records.named().iter().map(|bad| bad.reason.as_str()).collect();
    let wanted = ["more than 8388608", "more than 8388608", "299997 records behind"];
    assert_eq!(reasons.len(), wanted.len(), "{reasons:?}");
    for (reason, wanted) in reasons.iter().zip(wanted) {
        assert!(reason.contains(wanted), "{reasons:?}");
    }
}
