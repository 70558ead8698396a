//! Bodies of every encoding, good, bad and hostile.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod refused;
mod writers;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::batch::conform;
use crate::{LogRecord, MetricPoint, Span, TelemetryRecord};

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

/// The stored numbers, and what is said of the records that are not stored.
fn numbers_read(table: Table, encoding: BatchEncoding, body: &[u8]) -> (Vec<f64>, Vec<String>) {
    let (batches, records) = read(table, encoding, body, usize::MAX);
    let column = if table == Table::Metrics {
        "value"
    } else {
        "duration_ms"
    };
    let numbers = batches.iter().flat_map(|batch| {
        let cast = arrow_cast_f64(batch.column_by_name(column).unwrap());
        cast.into_iter()
    });
    let reasons = records.named().iter().map(|bad| bad.reason.clone());
    (numbers.collect(), reasons.collect())
}

fn arrow_cast_f64(column: &arrow_array::ArrayRef) -> Vec<f64> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Float64Type};
    match column.as_primitive_opt::<Float64Type>() {
        Some(wide) => wide.values().to_vec(),
        None => {
            let narrow = column.as_primitive::<Float32Type>();
            narrow.values().iter().map(|value| f64::from(*value)).collect()
        }
    }
}

#[test]
fn a_number_that_is_not_finite_in_its_column_is_refused_by_name_in_every_encoding() {
    // 1e39 is a number of 64 bits and none of 32; blanks lead the second one past the quick reader.
    for number in ["1e39", "-1e39 ", "3.5e38"] {
        for encoding in [BatchEncoding::Json, BatchEncoding::Ndjson] {
            let body = of_number(Table::Traces, number);
            let (stored, reasons) = numbers_read(Table::Traces, encoding, body.as_bytes());
            assert_eq!(stored, [0.0; 0], "{number} in {encoding:?}");
            assert!(
                reasons[0].contains("duration_ms") && reasons[0].contains("finite"),
                "{reasons:?}"
            );
        }
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39] {
        for table in [Table::Metrics, Table::Traces] {
            let is_stored = table == Table::Metrics && number.is_finite();
            let column = if table == Table::Metrics {
                "value"
            } else {
                "duration_ms"
            };
            let good: Value = serde_json::from_str(&of_number(table, "1.5")).unwrap();
            let mut bad = ciborium::Value::serialized(&good).unwrap();
            for (key, value) in bad.as_map_mut().unwrap() {
                if key.as_text() == Some(column) {
                    *value = number.into();
                }
            }
            let mut body = Vec::new();
            let all = vec![ciborium::Value::serialized(&good).unwrap(), bad];
            ciborium::into_writer(&ciborium::Value::Array(all), &mut body).unwrap();
            let (stored, reasons) = numbers_read(table, BatchEncoding::Cbor, &body);
            assert_eq!(
                (stored.len(), reasons.len()),
                (1 + usize::from(is_stored), usize::from(!is_stored))
            );
            assert_eq!(
                decode(table, BatchEncoding::Cbor, &body.into(), &publisher()).is_ok(),
                is_stored,
                "{number}"
            );
            if number == 1e39 {
                continue;
            }
            let good = decode(
                table,
                BatchEncoding::Json,
                &of_number(table, "1.5").into(),
                &publisher(),
            )
            .unwrap();
            let at = good[0].schema().index_of(column).unwrap();
            let mut columns = good[0].columns().to_vec();
            columns[at] = if table == Table::Metrics {
                std::sync::Arc::new(arrow_array::Float64Array::from(vec![number]))
            } else {
                std::sync::Arc::new(arrow_array::Float32Array::from(vec![number as f32]))
            };
            let odd = RecordBatch::try_new(good[0].schema(), columns).unwrap();
            let body = encode_arrow(&[good[0].clone(), odd]).unwrap();
            let (stored, reasons) = numbers_read(table, BatchEncoding::Arrow, &body);
            assert_eq!((stored, reasons.len()), (vec![1.5], 1), "{number}");
            assert!(
                reasons[0].contains(column) && reasons[0].contains("finite"),
                "{reasons:?}"
            );
            assert!(decode_arrow(table, &body.into()).is_err(), "the bus refuses it");
        }
    }
}

#[test]
fn a_negative_zero_is_stored_as_zero_in_every_encoding() {
    // The last one is of 64 bits only, and no number of 32.
    for number in ["-0.0", "-0", "-0e0", "-1e-60"] {
        for table in [Table::Metrics, Table::Traces] {
            let body = of_number(table, number);
            let value: Value = serde_json::from_str(&body).unwrap();
            let batch = decode(table, BatchEncoding::Json, &body.clone().into(), &publisher())
                .unwrap()
                .remove(0);
            let (column, mut columns) = (
                batch.num_columns() - if table == Table::Metrics { 2 } else { 3 },
                batch.columns().to_vec(),
            );
            let zeros: arrow_array::ArrayRef = match table {
                Table::Metrics => std::sync::Arc::new(arrow_array::Float64Array::from(vec![-0.0])),
                _ => std::sync::Arc::new(arrow_array::Float32Array::from(vec![-0.0])),
            };
            columns[column] = zeros;
            let arrow = encode_arrow(&[RecordBatch::try_new(batch.schema(), columns).unwrap()]).unwrap();
            for (encoding, body) in [
                (BatchEncoding::Ndjson, body.into_bytes()),
                (BatchEncoding::Json, format!("[{value}]").into_bytes()),
                (BatchEncoding::Cbor, cbor(&json!([value]))),
                (BatchEncoding::Arrow, arrow),
            ] {
                let (stored, _) = numbers_read(table, encoding, &body);
                let is_small = number == "-1e-60" && table == Table::Metrics && encoding != BatchEncoding::Arrow;
                let wanted = if is_small { -1e-60_f64 } else { 0.0 };
                assert_eq!(
                    stored[0].to_bits(),
                    wanted.to_bits(),
                    "{number} in {encoding:?} for {table}"
                );
            }
        }
    }
}

#[test]
fn a_body_comes_in_parts_of_the_size_asked_for_and_a_large_record_comes_alone() {
    let large = "x".repeat(50_000);
    let all: Vec<Value> = (0..100)
        .map(|n| line(if n == 50 { &large } else { "a line of the usual length" }))
        .collect();
    let ndjson: String = all.iter().map(|line| format!("{line}\n")).collect();
    let arrow = decode(
        Table::Logs,
        BatchEncoding::Json,
        &Value::from(all.clone()).to_string().into(),
        &publisher(),
    )
    .unwrap();
    for (encoding, body) in [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Json, Value::from(all.clone()).to_string().into_bytes()),
        (BatchEncoding::Arrow, encode_arrow(&arrow).unwrap()),
    ] {
        let (batches, records) = read(Table::Logs, encoding, &body, 4_000);
        assert_eq!((messages(&batches).len(), records.rejected()), (100, 0));
        assert!(batches.len() > 3, "{encoding:?}: {}", batches.len());
        let with_large = batches
            .iter()
            .find(|batch| messages(std::slice::from_ref(batch)).contains(&large));
        assert_eq!(with_large.unwrap().num_rows(), 1, "{encoding:?}");
    }
}

#[test]
fn a_body_is_read_on_from_where_it_was_left_in_parts_of_any_size() {
    let all: Vec<Value> = (0..200).map(|n| line(&format!("line {n}"))).collect();
    let arrow = Value::from(all.clone()).to_string().into();
    let arrow = decode(Table::Logs, BatchEncoding::Json, &arrow, &publisher()).unwrap();
    let mixed: Vec<Value> = (0..)
        .zip(all)
        .map(|(n, line)| if n % 7 == 3 { json!(n) } else { line })
        .collect();
    let ndjson: String = mixed.iter().map(|line| format!("{line}\n\n")).collect();
    for (encoding, body) in [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Json, Value::from(mixed.clone()).to_string().into_bytes()),
        (BatchEncoding::Cbor, cbor(&Value::from(mixed))),
        (
            BatchEncoding::Arrow,
            encode_arrow(&[arrow[0].slice(0, 90), arrow[0].slice(90, 110)]).unwrap(),
        ),
    ] {
        let (whole, first) = read(Table::Logs, encoding, &body, usize::MAX);
        for (before, now) in [(500, 6_000), (6_000, 500), (1, usize::MAX), (usize::MAX, 1)] {
            let mut records = BodyRecordReader::new(Table::Logs, encoding, body.clone().into(), publisher()).unwrap();
            let mut kept = Vec::new();
            for parts in 1..=3 {
                let Some(part) = records.next_part(before).unwrap() else {
                    break;
                };
                kept.push(part.batch);
                let rows: usize = kept.iter().map(RecordBatch::num_rows).sum();
                let mut again = BodyRecordReader::new(Table::Logs, encoding, body.clone().into(), publisher()).unwrap();
                assert_eq!(
                    again.skip_to(part.to, now).unwrap(),
                    rows as u64,
                    "{encoding:?} {parts}"
                );
                let mut all = kept.clone();
                while let Some(part) = again.next_part(now).unwrap() {
                    all.push(part.batch);
                }
                assert_eq!(messages(&all), messages(&whole), "{encoding:?} {before} {now} {parts}");
                assert_eq!((again.named(), again.rejected()), (first.named(), first.rejected()));
            }
        }
    }
}

#[test]
fn what_ends_or_goes_on_where_it_should_not_is_one_more_bad_record() {
    let good = line("a").to_string();
    for (encoding, body, says) in [
        (BatchEncoding::Json, format!("[{good},{good}"), "not closed"),
        (BatchEncoding::Json, format!("[{good}] []"), "bytes follow"),
        (BatchEncoding::Json, format!("[{good},]"), "EOF"),
        (BatchEncoding::Ndjson, format!("{good}\n{}", &good[..20]), "EOF"),
        (BatchEncoding::Ndjson, format!("{good}\n{good}{good}"), "trailing"),
        (BatchEncoding::Ndjson, format!("{good}\n\u{0}"), "expected value"),
    ] {
        let (batches, records) = read(Table::Logs, encoding, body.as_bytes(), usize::MAX);
        assert_eq!((messages(&batches).len(), records.rejected()), (1, 1), "{body}");
        let bad = &records.named()[0];
        assert!(bad.row == 1 && bad.reason.contains(says), "{says}: {bad:?}");
    }
    let mut cut = cbor(&json!([line("a"), line("b")]));
    cut.truncate(cut.len() - 3);
    let (batches, records) = read(Table::Logs, BatchEncoding::Cbor, &cut, usize::MAX);
    assert_eq!((messages(&batches).len(), records.rejected()), (1, 1));
    assert!(
        records.named()[0].reason.contains("nothing behind it"),
        "{:?}",
        records.named()
    );
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

/// What the record structs make of the same text.
fn by_struct<R: TelemetryRecord>(text: &str) -> Option<RecordBatch> {
    let mut value: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let publisher = publisher();
    value
        .entry("entity_id")
        .or_insert_with(|| publisher.entity_id.to_string().into());
    value
        .entry("entity_name")
        .or_insert_with(|| publisher.entity_name.into());
    let record: R = serde_json::from_value(Value::Object(value)).ok()?;
    let batch = R::to_batch(&[record]).ok()?;
    conform(R::TABLE, &batch).ok()
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (any::<i32>(), 0..9).prop_map(|(n, places)| (f64::from(n) / 10f64.powi(places)).into()),
        any::<String>().prop_map(Value::from),
        Just(Value::from("2026-11-21T10:00:00.5Z")),
        Just(Value::from("error")),
        Just(Value::from("4BF92F3577B34DA6A3CE929D0E0E4736")),
        Just(Value::from("01935b1c-0000-7000-8000-000000000001")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-cA\"é]{0,2}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

/// The same JSON with the keys of its objects from the last to the first, and white space where it may be.
fn backwards(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let members = map.iter().rev();
            let members: Vec<_> = members
                .map(|(key, value)| format!("{} :\t{}", json!(key), backwards(value)))
                .collect();
            format!("{{ {} }}", members.join(" , "))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn columns_are_what_the_record_structs_would_have_made(
        table in 0usize..3, changed in prop::collection::vec((0usize..12, json_value()), 0..3), attributes in json_value(),
    ) {
        let table = [Table::Logs, Table::Traces, Table::Metrics][table];
        let mut record = match table {
            Table::Logs => line("hello"),
            Table::Traces => json!({
                "ts": "2026-11-21T10:00:00+01:00", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7",
                "span_name": "get", "duration_ms": 1.25, "status": "ok",
            }),
            _ => json!({ "ts": "2026-11-21T10:00:00Z", "name": "cpu", "type": "gauge", "value": 3 }),
        };
        if attributes.is_object() {
            record[table.notes_column()] = attributes;
        }
        for (column, value) in changed {
            let name = table.columns().get(column).map_or("colour", |column| column.name);
            record[name] = value;
        }
        let text = record.to_string();
        let expected = match table {
            Table::Logs => by_struct::<LogRecord>(&text),
            Table::Traces => by_struct::<Span>(&text),
            _ => by_struct::<MetricPoint>(&text),
        };
        let made = decode(table, BatchEncoding::Ndjson, &text.clone().into(), &publisher()).ok();
        prop_assert_eq!(made.map(|mut batches| batches.remove(0)), expected.clone(), "{}", text);
        let other = backwards(&record);
        let made = decode(table, BatchEncoding::Json, &other.clone().into(), &publisher()).ok();
        prop_assert_eq!(made.map(|mut batches| batches.remove(0)), expected.clone(), "{}", other);
        let record: Value = serde_json::from_str(&text).unwrap();
        let made = decode(table, BatchEncoding::Cbor, &cbor(&json!([record])).into(), &publisher()).ok();
        prop_assert_eq!(made.map(|mut batches| batches.remove(0)), expected, "{} in CBOR", text);
    }
}

#[test]
fn bad_records_are_marked_by_position_also_those_that_are_not_named_or_refused_later() {
    let line = |n: usize| match n % 3 {
        1 => "bad\n".to_owned(),
        _ => format!("{{\"ts\":\"2026-11-21T10:00:00Z\",\"level\":\"info\",\"message\":\"line {n}\"}}\n"),
    };
    let body: String = (0..400).map(line).collect();
    let reader = BodyRecordReader::new(Table::Logs, BatchEncoding::Ndjson, body.into(), publisher());
    let mut records = reader.unwrap().marking_refused();
    let mut refused_later = 0..0;
    while let Some(part) = records.next_part(2_000).unwrap() {
        assert_eq!(part.positions.len(), part.batch.num_rows());
        if refused_later.is_empty() && part.positions[0] > 200 {
            refused_later = part.positions[0]..part.to;
            records.reject_rows(&part.positions, "the log refuses them");
        }
    }
    assert_eq!(records.named().len(), NAMED);
    assert!(refused_later.end - refused_later.start > 3, "{refused_later:?}");
    let marks = records.take_marks();
    for position in 0..400_u64 {
        let is_marked = marks[(position / 64) as usize] >> (position % 64) & 1 == 1;
        let is_bad = position % 3 == 1 || refused_later.contains(&position);
        assert_eq!(is_marked, is_bad, "{position}");
    }
}
