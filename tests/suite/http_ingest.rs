//! Telemetry over HTTP, on a real Mixer: what was answered with 200 is there, once, whatever dies in between.

mod rejected_rows;
mod retries;

use std::io::Write;
use std::time::Duration;

use harness::{Failure, TestMixer, api::Answer, duckdb, eventually};
use model::telemetry_codec::{self, BatchEncoding, PublisherIdentity};
use model::{EntityId, Table, Timestamp};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const NDJSON: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn now() -> String {
    Timestamp::from(std::time::SystemTime::now()).to_string()
}

fn log(message: &str) -> Value {
    json!({ "ts": now(), "level": "info", "message": message, "attributes": { "http": { "status": 200 }, "n": 1 } })
}

fn logs(name: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| log(&format!("{name} {n}"))).collect()
}

fn lines(rows: &[Value]) -> Vec<u8> {
    rows.iter()
        .map(|row| format!("{row}\n"))
        .collect::<String>()
        .into_bytes()
}

fn encoded(encoding: BatchEncoding, rows: &[Value]) -> Result<Vec<u8>, Failure> {
    let array = Value::from(rows.to_vec());
    Ok(match encoding {
        BatchEncoding::Ndjson => lines(rows),
        BatchEncoding::Json => array.to_string().into_bytes(),
        BatchEncoding::Cbor => {
            let mut bytes = Vec::new();
            ciborium::into_writer(&array, &mut bytes)?;
            bytes
        }
        BatchEncoding::Arrow => {
            let publisher = PublisherIdentity {
                entity_id: EntityId::for_name("http"),
                entity_name: "http".to_owned(),
            };
            telemetry_codec::encode_arrow(&telemetry_codec::decode(
                Table::Logs,
                BatchEncoding::Json,
                &array.to_string().into(),
                &publisher,
            )?)?
        }
    })
}

fn packed(packing: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(match packing {
        "gzip" => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(body)?;
            writer.finish()?
        }
        "zstd" => zstd::encode_all(body, 1)?,
        _ => body.to_vec(),
    })
}

/// What an answer says that is 200 if no row is bad, else 207: rows stored, bad rows, whether all was a repetition.
fn counts(answer: &Answer) -> (u64, u64, bool) {
    let said = match answer.status {
        200 => &answer.json["data"],
        _ => &answer.json,
    };
    let number = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("{}", answer.text));
    let (stored, rejected) = (number("stored"), number("rejected_total"));
    let wanted = if rejected == 0 { 200 } else { 207 };
    assert_eq!(answer.status, wanted, "{}", answer.text);
    (stored, rejected, said["duplicate"].as_bool().unwrap())
}

fn seen(mixer: &TestMixer, word: &str) -> Result<usize, Failure> {
    Ok(mixer.api.all_rows(&format!("/api/v1/telemetry/logs?q={word}"))?.len())
}

#[test]
fn every_encoding_in_every_packing_is_there_when_the_answer_is_and_soon_in_duckdb() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut all = 0;
    for encoding in [
        BatchEncoding::Ndjson,
        BatchEncoding::Json,
        BatchEncoding::Cbor,
        BatchEncoding::Arrow,
    ] {
        for packing in ["identity", "gzip", "zstd"] {
            let name = format!("sent-{encoding:?}-{packing}");
            let body = packed(packing, &encoded(encoding, &logs(&name, 10))?)?;
            let headers = [("Content-Type", encoding.content_type()), ("Content-Encoding", packing)];
            let answer = mixer.api.send("/api/v1/ingest/logs", &headers, &body)?;
            assert_eq!(counts(&answer), (10, 0, false), "{name}");
            assert_eq!(seen(&mixer, &name)?, 10, "{name}");
            all += 10;
        }
    }
    let rows = mixer.api.rows("/api/v1/telemetry/logs?entity=http&limit=1000")?;
    assert_eq!(rows.len(), all);
    for row in &rows {
        assert_eq!(
            row["attributes"],
            json!({ "http.status": 200, "n": 1 }),
            "flat, whatever the encoding"
        );
    }

    let point = json!({ "ts": now(), "name": "room.temperature", "type": "gauge", "value": 21.5, "labels": { "otel.unit": "Cel" } });
    let span = json!({
        "ts": now(), "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7", "span_name": "get",
        "duration_ms": 1.5, "status": "ok",
    });
    let named = [NDJSON, ("Flux-Entity-Name", "kitchen")];
    assert_eq!(
        counts(&mixer.api.send("/api/v1/ingest/metrics", &named, &lines(&[point]))?).0,
        1
    );
    assert_eq!(
        counts(&mixer.api.send("/api/v1/ingest/traces", &named, &lines(&[span]))?).0,
        1
    );
    let points = mixer
        .api
        .rows("/api/v1/telemetry/metrics?name=room.temperature&entity=kitchen")?;
    assert_eq!((points.len(), &points[0]["value"]), (1, &json!(21.5)));
    let id = EntityId::for_name("kitchen").to_string();
    let spans = mixer
        .api
        .rows("/api/v1/telemetry/traces/4bf92f3577b34da6a3ce929d0e0e4736")?;
    assert_eq!(spans[0]["entity_id"], id, "made of the name");

    for (table, condition, rows) in [
        ("logs", "entity_name = 'http'", all as u64),
        ("metrics", "value = 21.5", 1),
        ("traces", "true", 1),
    ] {
        eventually("the rows in DuckDB", SOON, || {
            let count = duckdb::count(&mixer.telemetry(), table, condition).ok()?;
            assert!(count <= rows, "{table}: {count}");
            (count == rows).then_some(())
        })?;
    }
    assert_eq!(
        mixer.api.metric("platform_http_ingest_rows_total"),
        Some(all as f64 + 2.0)
    );
    Ok(())
}

#[test]
fn a_large_body_goes_through_a_small_log_and_a_row_that_never_fits_is_named() -> Result<(), Failure> {
    let mixer = TestMixer::start("[store]\nwal_max_size_mb = 1\n")?;
    let mut rows = logs(&"stream ".repeat(60), 4_000);
    rows.insert(1_234, log(&"x".repeat(1_500_000)));
    let answer = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &lines(&rows))?;
    assert_eq!(counts(&answer), (4_000, 1, false));
    let bad = &answer.json["errors"][0];
    assert!(
        bad["row"] == 1_234 && bad["reason"].as_str().unwrap().contains("larger than the log"),
        "{bad}"
    );
    assert_eq!(seen(&mixer, "stream")?, 4_000);

    let mixer = TestMixer::start("")?;
    let large = [log(&"y".repeat(2_000_000)), log("small")];
    let answer = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &lines(&large))?;
    assert_eq!(counts(&answer), (2, 0, false), "rows of 2 MB are rows");
    Ok(())
}

#[test]
fn what_cannot_be_taken_is_a_problem_that_says_why() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let row = lines(&[log("never stored")]);
    let bomb = packed("gzip", &vec![b' '; (64 << 20) + 1])?;
    assert!(bomb.len() < 1 << 20);
    let cut = &packed("gzip", &row)?[..20];
    let logs = "/api/v1/ingest/logs";
    let long = "n".repeat(300);
    for (path, headers, body, status, says) in [
        ("/api/v1/ingest/cats", &[NDJSON][..], &row[..], 404, "is not a path"),
        ("/api/v1/ingest/dead_letters", &[NDJSON], &row, 404, "is not a path"),
        ("/api/v1/ingest/logs?colour=red", &[NDJSON], &row, 400, "colour"),
        (
            "/api/v1/ingest/logs?partial=perhaps",
            &[NDJSON],
            &row,
            400,
            "expected `problem` or `accept`",
        ),
        (logs, &[], &row, 415, "Content-Type is missing"),
        (logs, &[("Content-Type", "text/plain")], &row, 415, "text/plain"),
        (logs, &[NDJSON, ("Content-Encoding", "br")], &row, 415, "gzip, zstd"),
        (
            logs,
            &[NDJSON, ("Content-Encoding", "gzip, zstd")],
            &row,
            415,
            "gzip, zstd",
        ),
        (logs, &[NDJSON, ("Content-Encoding", "gzip")], &bomb, 413, "larger than"),
        (logs, &[NDJSON, ("Content-Encoding", "gzip")], cut, 400, "decompressed"),
        (logs, &[NDJSON, ("Content-Encoding", "zstd")], &row, 400, "decompressed"),
        (logs, &[NDJSON], b"\n\n", 400, "no rows"),
        (
            logs,
            &[("Content-Type", "application/json")],
            b"3",
            400,
            "neither an array",
        ),
        (
            logs,
            &[("Content-Type", "application/cbor")],
            b"\xa0",
            400,
            "begin an array",
        ),
        (
            logs,
            &[("Content-Type", "application/vnd.apache.arrow.stream")],
            b"ARROW1xx",
            400,
            "Arrow",
        ),
        (logs, &[NDJSON, ("Flux-Entity-Id", "me")], &row, 400, "Flux-Entity-Id"),
        (
            logs,
            &[NDJSON, ("Flux-Entity-Name", &long)],
            &row,
            400,
            "Flux-Entity-Name",
        ),
        (
            logs,
            &[NDJSON, ("Idempotency-Key", &long)],
            &row,
            400,
            "Idempotency-Key",
        ),
        (
            logs,
            &[NDJSON, ("Origin", "http://elsewhere")],
            &row,
            403,
            "pages of this very host",
        ),
    ] {
        let answer = mixer.api.send(path, headers, body)?;
        assert_eq!(answer.status, status, "{path} {headers:?}: {}", answer.text);
        assert_eq!(answer.content_type, "application/problem+json", "{}", answer.text);
        assert!(
            answer.json["detail"].as_str().unwrap().contains(says),
            "{says}: {}",
            answer.text
        );
    }
    let read = mixer.api.get(logs)?;
    assert_eq!((read.status, &read.json["code"]), (405, &json!("method_not_allowed")));
    assert_eq!(seen(&mixer, "never")?, 0);

    let closed = TestMixer::with(&[("observability.enabled", "false")], &[])?;
    let refused = closed.api.send(logs, &[NDJSON], &row)?;
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (403, &json!("not_collected")),
        "{}",
        refused.text
    );
    Ok(())
}
