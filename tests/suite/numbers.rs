//! A question about numbers has one answer, whether the rows are hot, published or sealed, and however they came.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use harness::{Failure, Random, TestMixer, eventually};
use model::telemetry_codec::{self, BatchEncoding, PublisherIdentity};
use model::{EntityId, Table, Timestamp};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(120);

const QUESTIONS: [&str; 7] = [
    "select count(*) as n from metrics where name = 'load' and value > 1e9",
    "select count(*) as n from metrics where name = 'load' and value = 0.0",
    "select count(*) as n from metrics where name = 'load' and value < 0",
    "select count(*) as n from metrics where name = 'load' and value >= 0",
    "select count(*) as n from (select distinct value from metrics where name = 'load')",
    "select count(*) as n from traces where span_name = 'get' and duration_ms > 1e9",
    "select count(*) as n from traces where span_name = 'get' and duration_ms = 0",
];
/// Per encoding: two metrics of 5e9 and 0, and one span of 0.
const ANSWERS: [u64; 7] = [4, 4, 0, 8, 2, 0, 4];

fn metric(ts: &str, number: &str) -> String {
    format!(r#"{{"ts":"{ts}","name":"load","type":"gauge","value":{number}}}"#)
}

fn span(ts: &str, number: &str) -> String {
    format!(
        r#"{{"ts":"{ts}","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"00f067aa0ba902b7","span_name":"get","duration_ms":{number},"status":"ok"}}"#
    )
}

fn cbor(rows: &[String], column: &str, odd: f64) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    for row in rows {
        let value: Value = serde_json::from_str(row)?;
        all.push(ciborium::Value::serialized(&value)?);
    }
    let mut last = all.last().cloned().ok_or("no rows")?;
    for (key, value) in last.as_map_mut().ok_or("no record")? {
        if key.as_text() == Some(column) {
            *value = odd.into();
        }
    }
    all.push(last);
    let mut bytes = Vec::new();
    ciborium::into_writer(&ciborium::Value::Array(all), &mut bytes)?;
    Ok(bytes)
}

fn arrow(rows: &[String], numbers: &[f64]) -> Result<Vec<u8>, Failure> {
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name("http"),
        entity_name: "http".to_owned(),
    };
    let body = format!("[{}]", rows.join(","));
    let batch = telemetry_codec::decode(Table::Metrics, BatchEncoding::Json, &body.into(), &publisher)?.remove(0);
    let mut columns = batch.columns().to_vec();
    columns[batch.schema().index_of("value")?] = Arc::new(Float64Array::from(numbers.to_vec())) as ArrayRef;
    Ok(telemetry_codec::encode_arrow(&[RecordBatch::try_new(
        batch.schema(),
        columns,
    )?])?)
}

/// Sends a body; so many rows are stored, so many are named as bad, with the column.
fn send(mixer: &TestMixer, table: &str, kind: &str, body: &[u8], wanted: (u64, u64)) -> Result<(), Failure> {
    let answer = mixer.api.send(
        &format!("/api/v1/ingest/{table}?partial=accept"),
        &[("Content-Type", kind)],
        body,
    )?;
    let data = &answer.json["data"];
    let found = (data["stored"].as_u64(), data["rejected_total"].as_u64());
    assert_eq!(found, (Some(wanted.0), Some(wanted.1)), "{kind}: {}", answer.text);
    for bad in data["rejected"].as_array().into_iter().flatten() {
        let reason = bad["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains("duration_ms") || reason.contains("value") || kind == "application/cbor",
            "{reason}"
        );
    }
    Ok(())
}

fn answers(mixer: &TestMixer) -> Result<Vec<u64>, Failure> {
    let ask = |question: &&str| -> Result<u64, Failure> {
        let answer = mixer.api.post("/api/v1/sql", &json!({ "query": question }))?;
        let n = answer.json["data"][0]["n"].as_u64();
        n.ok_or_else(|| format!("{question}: {}", answer.text).into())
    };
    QUESTIONS.iter().map(ask).collect()
}

#[test]
fn what_a_comparison_of_numbers_finds_does_not_change_when_rows_are_sealed() -> Result<(), Failure> {
    let small = ("observability.embedded.storage.segment_size_mb", "1");
    let mixer = TestMixer::with(&[small], &[])?;
    let then = Timestamp::from(std::time::SystemTime::now()).minus(Duration::from_secs(3 * 3_600));
    let ts = then.to_string();
    let metrics = [metric(&ts, "5e9"), metric(&ts, "-0.0")];
    let spans = [span(&ts, "-0.0")];
    let (odd_metric, odd_span) = (metric(&ts, "NaN"), span(&ts, "1e39"));
    for kind in ["application/json", "application/x-ndjson"] {
        let body = |rows: &[String], odd: &String| {
            let all: Vec<&str> = rows.iter().chain([odd]).map(String::as_str).collect();
            match kind {
                "application/json" => format!("[{}]", all.join(",")),
                _ => all.join("\n"),
            }
        };
        send(&mixer, "metrics", kind, body(&metrics, &odd_metric).as_bytes(), (2, 1))?;
        send(&mixer, "traces", kind, body(&spans, &odd_span).as_bytes(), (1, 1))?;
    }
    send(
        &mixer,
        "metrics",
        "application/cbor",
        &cbor(&metrics, "value", f64::NAN)?,
        (2, 1),
    )?;
    send(
        &mixer,
        "traces",
        "application/cbor",
        &cbor(&spans, "duration_ms", 1e39)?,
        (1, 1),
    )?;
    let rows: Vec<String> = (0..5).map(|_| metric(&ts, "1")).collect();
    let numbers = [f64::NAN, 5e9, f64::INFINITY, -0.0, f64::NEG_INFINITY];
    send(
        &mixer,
        "metrics",
        "application/vnd.apache.arrow.stream",
        &arrow(&rows, &numbers)?,
        (2, 3),
    )?;
    send(&mixer, "traces", "application/json", spans[0].as_bytes(), (1, 0))?;
    assert_eq!(answers(&mixer)?, ANSWERS, "hot");
    // What does not compress makes their files large enough to be sealed.
    let mut random = Random::for_test("what_a_comparison_of_numbers_finds_does_not_change_when_rows_are_sealed");
    for (table, row, notes) in [
        ("metrics", metric(&ts, "1"), "labels"),
        ("traces", span(&ts, "1"), "attributes"),
    ] {
        let mut filler: Value = serde_json::from_str(&row)?;
        for name in ["name", "span_name"] {
            if filler.get(name).is_some() {
                filler[name] = "filler".into();
            }
        }
        let mut lines = String::new();
        for _ in 0..1_000 {
            let noise: String = (0..200).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
            filler[notes] = json!({ "noise": noise });
            lines.push_str(&format!("{filler}\n"));
        }
        send(&mixer, table, "application/x-ndjson", lines.as_bytes(), (1_000, 0))?;
    }
    eventually("both tables' files are sealed", SOON, || {
        (mixer.api.metric("platform_engine_seals_total")? >= 2.0).then_some(())
    })?;
    assert_eq!(answers(&mixer)?, ANSWERS, "sealed");
    Ok(())
}
