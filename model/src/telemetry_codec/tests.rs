//! Bodies of every encoding, good, bad and hostile.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod numbers;
mod parts;
mod record_structs;
mod refused;
mod writers;

use serde_json::{Value, json};

use super::*;

fn publisher() -> PublisherIdentity {
    PublisherIdentity {
        entity_id: EntityId::for_name("script"),
        entity_name: "script".into(),
    }
}

#[test]
fn json_ndjson_and_cbor_of_the_same_record_make_the_same_batch() {
    let json = &br#"[{"ts":"2026-11-21T10:00:00Z","level":"info","message":"hello","attributes":{"a":{"b":1}}}]"#[..];
    let a = decode(
        Table::Logs,
        BatchEncoding::Json,
        &Bytes::from_static(json),
        &publisher(),
    )
    .unwrap();
    let b = decode(
        Table::Logs,
        BatchEncoding::Ndjson,
        &Bytes::from_static(&json[1..json.len() - 1]),
        &publisher(),
    )
    .unwrap();
    let mut cbor = Vec::new();
    ciborium::into_writer(&serde_json::from_slice::<Value>(json).unwrap(), &mut cbor).unwrap();
    let c = decode(Table::Logs, BatchEncoding::Cbor, &cbor.into(), &publisher()).unwrap();
    assert!(a == b && b == c);
    let arrow = decode(
        Table::Logs,
        BatchEncoding::Arrow,
        &encode_arrow(&a).unwrap().into(),
        &publisher(),
    )
    .unwrap();
    assert_eq!(a, arrow);
}

#[test]
fn bad_bodies_are_refused_with_the_record_and_the_reason() {
    let bad = br#"[{"ts":"2026-11-21T10:00:00Z","level":"info","message":"x"},{"ts":"yesterday","level":"info","message":"x"}]"#;
    let error = decode(Table::Logs, BatchEncoding::Json, &Bytes::from_static(bad), &publisher())
        .unwrap_err()
        .to_string();
    assert!(error.contains("record 1") && error.contains("yesterday"), "{error}");
    for (encoding, body) in [
        (BatchEncoding::Arrow, &b"garbage"[..]),
        (BatchEncoding::Cbor, b"\x81\x80\x00"),
        (BatchEncoding::Json, b"3"),
        (BatchEncoding::Ndjson, b"{}\n{"),
        (BatchEncoding::Json, b"[]"),
    ] {
        assert!(decode(Table::Logs, encoding, &Bytes::from_static(body), &publisher()).is_err());
    }
}

#[test]
fn an_encoded_stream_holds_little_more_than_its_bytes() {
    for (rows, width) in [(1, 2 << 20), (1_000, 200), (1, 10)] {
        let line = json!({ "ts": "2026-11-21T10:00:00Z", "level": "info", "message": "x".repeat(width) });
        let body = format!("{line}\n").repeat(rows);
        let batches = decode(Table::Logs, BatchEncoding::Ndjson, &body.into(), &publisher()).unwrap();
        // A slice is encoded without what is beside it.
        let half: Vec<_> = batches
            .iter()
            .map(|batch| batch.slice(0, batch.num_rows().div_ceil(2)))
            .collect();
        for batches in [&batches, &half] {
            let stream = encode_arrow(batches).unwrap();
            let (length, held) = (stream.len(), stream.capacity());
            assert!(held <= length + length / 8 + (8 << 10), "{length} bytes hold {held}");
        }
    }
}

fn lz4(batches: &[RecordBatch]) -> Vec<u8> {
    let options = IpcWriteOptions::default()
        .try_with_compression(Some(arrow_ipc::CompressionType::LZ4_FRAME))
        .unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), batches[0].schema_ref(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

#[test]
fn compressed_arrow_bodies_are_read_unless_they_become_many_times_larger() {
    let batch = |message: String| {
        let line = format!(r#"{{"ts":"2026-11-21T10:00:00Z","level":"info","message":"{message}"}}"#);
        decode(Table::Logs, BatchEncoding::Json, &line.into(), &publisher()).unwrap()
    };
    let small = batch("hello".to_owned());
    assert_eq!(decode_arrow(Table::Logs, &lz4(&small).into()).unwrap(), small);
    let bomb = lz4(&batch("a".repeat(1 << 20)));
    let refused = decode_arrow(Table::Logs, &bomb.clone().into()).unwrap_err();
    assert!(matches!(refused, DecodeError::Unpacked { .. }), "{refused}");
    // A length that is a lie is not believed either: every place that could hold one is set to 2^62.
    for at in (0..bomb.len() - 8).step_by(8) {
        let mut lie = bomb.clone();
        lie[at..at + 8].copy_from_slice(&(1u64 << 62).to_le_bytes());
        assert!(decode_arrow(Table::Logs, &lie.into()).is_err(), "at {at}");
    }
}

/// The good rows, part by part, and the bad ones.
fn read(table: Table, encoding: BatchEncoding, body: &[u8], size: usize) -> (Vec<RecordBatch>, BodyRecordReader) {
    let mut records = BodyRecordReader::new(table, encoding, body.to_vec().into(), publisher()).unwrap();
    let mut batches = Vec::new();
    while let Some(part) = records.next_part(size).unwrap() {
        assert!(part.batch.num_rows() > 0);
        batches.push(part.batch);
    }
    (batches, records)
}

fn messages(batches: &[RecordBatch]) -> Vec<String> {
    let rows = |batch: &RecordBatch| {
        (0..batch.num_rows())
            .map(|row| crate::batch::row_json(batch, row))
            .collect::<Vec<_>>()
    };
    let text = |row: serde_json::Map<String, Value>| row["message"].as_str().unwrap().to_owned();
    batches.iter().flat_map(rows).map(text).collect()
}

fn line(message: &str) -> Value {
    json!({ "ts": "2026-11-21T10:00:00Z", "level": "info", "message": message })
}

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

#[test]
fn bad_records_are_named_by_position_and_the_good_ones_are_read_in_every_encoding() {
    let mut bad = line("bad");
    bad["level"] = "loud".into();
    let mut strange = line("strange");
    strange["colour"] = "red".into();
    let all = json!([line("a"), bad, line("b"), 7, strange, { "message": "no time" }, line("c")]);
    let lines: Vec<String> = all.as_array().unwrap().iter().map(Value::to_string).collect();
    let ndjson = lines.join("\n\n") + "\r\n";
    for (encoding, body) in [
        (BatchEncoding::Json, all.to_string().into_bytes()),
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Cbor, cbor(&all)),
    ] {
        let (batches, records) = read(Table::Logs, encoding, &body, usize::MAX);
        assert_eq!(messages(&batches), ["a", "b", "c"], "{encoding:?}");
        assert_eq!(records.rejected(), 4);
        let named: Vec<_> = records.named().iter().map(|bad| bad.row).collect();
        assert_eq!(named, [1, 3, 4, 5], "{encoding:?}");
        for (bad, says) in
            records
                .named()
                .iter()
                .zip(["level: \"loud\"", "record of logs", "\"colour\"", "missing field"])
        {
            assert!(bad.reason.contains(says), "{encoding:?}: {bad:?}");
        }
    }
}

#[test]
fn bad_rows_of_an_arrow_stream_are_named_and_the_good_ones_are_kept() {
    let good = decode(
        Table::Logs,
        BatchEncoding::Json,
        &json!([line("a"), line("b"), line("c")]).to_string().into(),
        &publisher(),
    );
    let good = good.unwrap().remove(0);
    let levels = arrow_array::StringArray::from(vec!["info", "loud", "warn"]);
    let texts = arrow_array::StringArray::from(vec!["{}", "{}", "{\"a\":{}}"]);
    let mut columns = good.columns().to_vec();
    columns[4] = std::sync::Arc::new(levels);
    columns[6] = std::sync::Arc::new(texts);
    let batch = RecordBatch::try_new(good.schema(), columns).unwrap();
    let stream = encode_arrow(&[good.clone(), batch]).unwrap();
    assert!(
        decode_arrow(Table::Logs, &stream.clone().into()).is_err(),
        "the bus refuses it"
    );
    for size in [1, usize::MAX] {
        let (batches, records) = read(Table::Logs, BatchEncoding::Arrow, &stream, size);
        assert_eq!(messages(&batches), ["a", "b", "c", "a"]);
        let named: Vec<_> = records
            .named()
            .iter()
            .map(|bad| (bad.row, bad.reason.contains("loud")))
            .collect();
        assert_eq!(named, [(4, true), (5, false)]);
    }
    assert!(BodyRecordReader::new(Table::Metrics, BatchEncoding::Arrow, stream.into(), publisher()).is_err());
}

/// A metric or a span with this number, which is a JSON literal.
fn of_number(table: Table, number: &str) -> String {
    match table {
        Table::Metrics => format!(r#"{{"ts":"2026-11-21T10:00:00Z","name":"cpu","type":"gauge","value":{number}}}"#),
        _ => format!(
            r#"{{"ts":"2026-11-21T10:00:00Z","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"00f067aa0ba902b7","span_name":"get","duration_ms":{number},"status":"ok"}}"#
        ),
    }
}

#[test]
fn a_long_key_over_many_values_is_refused_and_reasons_are_short() {
    let many: serde_json::Map<_, _> = (0..2_000).map(|n| (n.to_string(), Value::from(0))).collect();
    let mut bomb = line("bomb");
    bomb["attributes"] = json!({ "k".repeat(20_000): many });
    let body = format!("{bomb}\n{}\n", line("a"));
    let (batches, records) = read(Table::Logs, BatchEncoding::Ndjson, body.as_bytes(), usize::MAX);
    assert_eq!(messages(&batches), ["a"]);
    assert!(records.named()[0].reason.contains("flattened"), "{:?}", records.named());
    let mut long = line("long");
    long["y".repeat(5_000).as_str()] = 1.into();
    let (_, records) = read(
        Table::Logs,
        BatchEncoding::Json,
        format!("[{long}]").as_bytes(),
        usize::MAX,
    );
    assert!(records.named()[0].reason.len() < 400, "{:?}", records.named());
}
