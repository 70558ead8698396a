//! Rows of every table, spread over hours that have ended.
//!
//! A file is sealed at once when it is full. So each hour has last, of each table, noise that fills a file of [`SMALL`], in one request: with
//! it all rows of the hour are in sealed files.

use std::time::Duration;

use harness::{Failure, Random, TestMixer, eventually};
use model::Timestamp;
use serde_json::{Value, json};

use super::SOON;
use crate::specs::order_at;

/// How many rows a table has, of so many log records.
type RowCount = fn(u64) -> u64;

/// The size of files.
pub(super) const SMALL: (&str, &str) = ("observability.embedded.storage.segment_size_mb", "1");
/// Tables with rows, and how many these have of an hour for so many numbered log records.
pub(super) const TABLES: [(&str, RowCount); 5] = [
    ("logs", |rows| rows + NOISE),
    ("metrics", |rows| rows.div_ceil(10) + NOISE),
    ("traces", |rows| rows.div_ceil(50) + NOISE),
    ("messages", |_| MESSAGES),
    ("messages_order", |_| MESSAGES),
];
/// Rows of noise in a table and an hour, and digits of each in words of 16.
const NOISE: u64 = 40;
const NOISE_WORDS: u64 = 4_096;
/// Messages of an hour, the last of which are noise: no two of them fill a file.
const MESSAGES: u64 = 10;
const NOISE_MESSAGES: u64 = 3;
const NOISE_MESSAGE_WORDS: u64 = 55_000;
/// Log records of a request at least; an hour has 50 requests at most.
const BODY: u64 = 2_000;
const HOUR: Duration = Duration::from_secs(3_600);
/// The part of an hour that has numbered rows.
const BEFORE_NOISE: Duration = Duration::from_secs(3_590);

const SPEC: &str = "name: order\nversion: 1\nmatch: { msg_type: order }\nprefix: ord\nfields:\n\
    \x20 - { name: number, path: /number, type: int }\n\
    \x20 - { name: amount, path: /amount, type: float }\n\
    \x20 - { name: city, path: /city, type: string }\n\
    \x20 - { name: paid, path: /paid, type: bool }\n\
    \x20 - { name: placed_at, path: /placed_at, type: timestamp }\n\
    \x20 - { name: token, path: /token, type: uuid }\n";

/// The beginning of the hour that was so many hours ago.
pub(super) fn hours_ago(hours: u32) -> Timestamp {
    let now = Timestamp::from(std::time::SystemTime::now()).micros();
    let hour = i64::try_from(HOUR.as_micros()).unwrap();
    Timestamp::from_micros(now - now.rem_euclid(hour)).minus(HOUR * hours)
}

/// The entity that has the rows of an hour, and no others.
pub(super) fn entity_of(hour: Timestamp) -> String {
    format!("host-{}", &hour.to_string()[11..13])
}

/// An hour's end and beginning as texts without a zone.
pub(super) fn bounds_of(hour: Timestamp) -> Value {
    let text = |at: Timestamp| at.to_string()[..19].to_owned();
    json!({ "from": text(hour), "to": text(hour.plus(HOUR)) })
}

/// Has the Mixer know the spec of orders.
pub(super) fn add_spec(mixer: &TestMixer) -> Result<(), Failure> {
    let folder = mixer.path().join("data/specs");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("order.yaml"), SPEC)?;
    eventually("the spec in force", SOON, || {
        let specs = mixer.api.get("/api/v1/specs").ok()?.json;
        (specs["data"]["specs"][0]["state"] == "active").then_some(())
    })
}

fn noise(random: &mut Random, words: u64) -> String {
    (0..words).map(|_| format!("{:016x}", random.below(u64::MAX))).collect()
}

/// Stores the rows of an hour, so many numbered log records and what belongs to them; `query` goes with every request.
pub(super) fn store_hour(
    mixer: &TestMixer,
    random: &mut Random,
    hour: Timestamp,
    rows: u64,
    query: &str,
) -> Result<(), Failure> {
    let step = Duration::from_micros(u64::try_from(BEFORE_NOISE.as_micros())? / rows.max(1));
    let at = |row: u64| hour.plus(step * u32::try_from(row).unwrap_or(u32::MAX)).to_string();
    let entity = entity_of(hour);
    let log = |row: u64| {
        let level = ["debug", "info", "warn", "error"][row as usize % 4];
        let mut log = json!({
            "ts": at(row), "level": level, "entity_name": entity,
            "message": format!("Größe {row} |\t\"{}\"", "x".repeat(row as usize % 40)), "attributes": { "n": row, "part": { "é": [row % 3] } },
        });
        if row.is_multiple_of(3) {
            log["flux_id"] = format!("018f6f1e-7f6a-7c3e-9d5b-{row:012x}").into();
        }
        log
    };
    let point = |row: u64| {
        json!({
            "ts": at(row), "name": "load", "type": "gauge", "entity_name": entity, "value": row as f64 * 0.5,
            "labels": { "core": (row % 4).to_string() },
        })
    };
    let span = |row: u64| {
        let mut span = json!({
            "ts": at(row), "trace_id": format!("{:032x}", row + 1), "span_id": format!("{:016x}", row + 1), "span_name": "get",
            "duration_ms": row as f64 * 1.1, "status": "ok", "entity_name": entity,
        });
        if row > 0 {
            span["parent_span_id"] = format!("{row:016x}").into();
        }
        span
    };
    let (mut first, body) = (0, BODY.max(rows / 50));
    while first < rows {
        let numbers = first..rows.min(first + body);
        post(mixer, "logs", query, numbers.clone().map(log))?;
        post(
            mixer,
            "metrics",
            query,
            numbers.clone().filter(|row| row.is_multiple_of(10)).map(point),
        )?;
        post(
            mixer,
            "traces",
            query,
            numbers.filter(|row| row.is_multiple_of(50)).map(span),
        )?;
        first += body;
    }
    store_noise(mixer, random, hour, query)?;
    store_messages(mixer, random, hour)
}

/// Stores what fills the files of an hour; no two of these rows have one time.
fn store_noise(mixer: &TestMixer, random: &mut Random, hour: Timestamp, query: &str) -> Result<(), Failure> {
    let entity = entity_of(hour);
    for (number, table) in (0..).zip(["logs", "metrics", "traces"]) {
        let rows: Vec<Value> = (0..NOISE)
            .map(|row| {
                let ts = hour.plus(BEFORE_NOISE + Duration::from_micros(1_000 + row * 10 + number));
                let more = json!({ "noise": noise(random, NOISE_WORDS) });
                let mut row = match table {
                    "logs" => json!({ "level": "info", "message": "noise", "attributes": more }),
                    "metrics" => json!({ "name": "noise", "type": "gauge", "value": 0.0, "labels": more }),
                    _ => json!({
                        "trace_id": format!("{:032x}", row + 1), "span_id": format!("{:016x}", row + 1), "span_name": "noise",
                        "duration_ms": 0.0, "status": "ok", "attributes": more,
                    }),
                };
                row["ts"] = ts.to_string().into();
                row["entity_name"] = entity.as_str().into();
                row
            })
            .collect();
        post(mixer, table, query, rows.into_iter())?;
    }
    Ok(())
}

fn post(mixer: &TestMixer, table: &str, query: &str, rows: impl Iterator<Item = Value>) -> Result<(), Failure> {
    let lines: String = rows.map(|row| format!("{row}\n")).collect();
    let path = format!("/api/v1/ingest/{table}{query}");
    let headers = [("Content-Type", "application/x-ndjson")];
    let sent = mixer.api.send(&path, &headers, lines.as_bytes())?;
    assert_eq!(sent.status, 200, "{path}: {}", sent.text);
    Ok(())
}

fn store_messages(mixer: &TestMixer, random: &mut Random, hour: Timestamp) -> Result<(), Failure> {
    let bus = mixer.bus()?;
    for number in 0..u8::try_from(MESSAGES)? {
        let ts = hour.plus(Duration::from_secs(60) * u32::from(number));
        let mut data = json!({ "number": number, "amount": f64::from(number) * 1.1, "city": format!("Ulm-{number}") });
        if number.is_multiple_of(2) {
            data["paid"] = number.is_multiple_of(4).into();
            data["placed_at"] = ts.to_string().into();
            data["token"] = format!("018f6f1e-7f6a-7c3e-9d5b-{number:012x}").into();
        }
        if u64::from(number) >= MESSAGES - NOISE_MESSAGES {
            data["noise"] = noise(random, NOISE_MESSAGE_WORDS).into();
        }
        bus.publish("flux.msg.shop.intake.out", order_at(ts, number, data))?;
    }
    Ok(())
}

/// Waits until the catalogue has so many rows of a table, and none waits.
pub(super) fn all_published(mixer: &TestMixer, table: &str, rows: u64) -> Result<(), Failure> {
    let mut last = Value::Null;
    eventually(&format!("{rows} rows of {table} in the catalogue"), SOON, || {
        let catalog = mixer.api.get("/api/v1/catalog").ok()?.json;
        let tables = catalog["data"]["tables"].as_array()?;
        last = tables.iter().find(|of| of["table"] == table)?.clone();
        (last["rows"] == rows && last["waiting_rows"] == 0).then_some(())
    })
    .map_err(|error| format!("{error}: {last}").into())
}
