//! Columns are what the record structs would have made of the same text.

use proptest::prelude::*;

use super::*;
use crate::batch::conform;
use crate::{LogRecord, MetricPoint, Span, TelemetryRecord};

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
