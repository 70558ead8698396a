//! The rows of both servers: logs, points and spans with what statements get wrong.
//!
//! Numbers are multiples of an eighth, so that sums are exact in every order.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use harness::{Failure, Random, TestMixer, eventually};
use model::{EntityId, FluxId, Timestamp};
use serde_json::{Map, Value, json};
use tokio_postgres::Client;

const WORDS: [&str; 16] = [
    "disk",
    "Disk",
    "DISK full",
    "",
    "a",
    "abc",
    "a_c",
    "a%c",
    r"c:\temp",
    r"a\\b",
    "käse",
    "日本 語",
    "  padded ",
    "x\ty",
    "it's",
    "50%",
];
const NAMES: [&str; 4] = ["rack-a", "rack_b", "räck c", "Rack-A"];
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];
/// Rows of noise per table, which make its file large enough to be sealed.
const NOISY: usize = 40;
const HOUR: u64 = 3_600_000_000;

/// The tables as PostgreSQL has them.
pub(super) const TABLES: &str = "
    CREATE TABLE logs (ts timestamptz, entity_id uuid, entity_name text, flux_id uuid, level text, message text, attributes json);
    CREATE TABLE traces (ts timestamptz, trace_id text, span_id text, parent_span_id text, flux_id uuid, entity_id uuid,
        entity_name text, span_name text, duration_ms real, status text, attributes json);
    CREATE TABLE metrics (ts timestamptz, name text, entity_id uuid, entity_name text, type text, value float8, labels json);";

/// The rows of one table.
#[derive(Debug)]
pub(super) struct TableRows {
    table: &'static str,
    rows: Vec<Value>,
}

pub(super) fn pick<'a, T: ?Sized>(random: &mut Random, of: &[&'a T]) -> &'a T {
    of[usize::try_from(random.below(of.len() as u64)).unwrap_or_default()]
}

fn eighths(random: &mut Random, range: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "small whole numbers")]
    let number = random.below(range) as f64 - (range / 2) as f64;
    number / 8.0
}

fn whole(random: &mut Random, range: u64) -> i64 {
    i64::try_from(random.below(range)).unwrap_or_default() - i64::try_from(range / 2).unwrap_or_default()
}

/// What a row says beside its columns: `u` tells it from others, the rest is there most of the time.
fn notes(random: &mut Random, number: usize, noisy: bool) -> Map<String, Value> {
    let mut notes = Map::new();
    notes.insert("u".to_owned(), number.into());
    if random.below(8) > 0 {
        notes.insert("n".to_owned(), whole(random, 2_000).into());
    }
    if random.below(5) > 0 {
        notes.insert("i".to_owned(), whole(random, 12).into());
    }
    if random.below(4) > 0 {
        notes.insert("d".to_owned(), eighths(random, 4_000).into());
    }
    if random.below(3) > 0 {
        notes.insert("b".to_owned(), (random.below(2) == 0).into());
    }
    if random.below(4) > 0 {
        notes.insert("w".to_owned(), pick(random, &WORDS).into());
    }
    if random.below(4) > 0 {
        let cents = whole(random, 20_000);
        notes.insert(
            "m".to_owned(),
            format!(
                "{}{}.{:02}",
                if cents < 0 { "-" } else { "" },
                cents.abs() / 100,
                cents.abs() % 100
            )
            .into(),
        );
    }
    if noisy {
        let noise: String = (0..5_000).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
        notes.insert("zz".to_owned(), noise.into());
    }
    notes
}

/// Rows of all tables, `count` of each, over three hours.
pub(super) fn rows(random: &mut Random, count: usize) -> Vec<TableRows> {
    let now = Timestamp::from(SystemTime::now()).micros();
    let begin = now - now.rem_euclid(i64::try_from(HOUR).unwrap_or(1)) - 3 * i64::try_from(HOUR).unwrap_or(1);
    let mut tables = Vec::new();
    for table in ["logs", "traces", "metrics"] {
        let mut rows: Vec<Value> = Vec::new();
        for number in 0..count {
            if number > 0 && random.below(20) == 0 {
                rows.push(rows[number - 1].clone());
                continue;
            }
            let is_noisy = number % (count / NOISY).max(1) == 0;
            // Noise is of the first hour alone; some times are whole seconds, some are equal.
            let within = if is_noisy { HOUR } else { 3 * HOUR };
            let after = match random.below(4) {
                0 => random.below(within / 1_000_000) * 1_000_000,
                1 => random.below(within / 60_000_000) * 60_000_000,
                _ => random.below(within),
            };
            let ts = Timestamp::from_micros(begin + i64::try_from(after).unwrap_or_default());
            let notes = notes(random, number, is_noisy);
            rows.push(row(random, table, ts, &notes));
        }
        tables.push(TableRows { table, rows });
    }
    tables
}

fn row(random: &mut Random, table: &str, ts: Timestamp, notes: &Map<String, Value>) -> Value {
    let name = pick(random, &NAMES);
    let flux = (random.below(3) > 0).then(|| {
        let n = u8::try_from(random.below(4)).unwrap_or_default();
        FluxId::at(Timestamp::from_micros(1_767_225_600_000_000), [n; 10]).to_string()
    });
    let mut row =
        json!({ "ts": ts.to_string(), "entity_id": EntityId::for_name(name).to_string(), "entity_name": name });
    let more = match table {
        "logs" => json!({
            "flux_id": flux, "level": pick(random, &LEVELS),
            "message": format!("{} {}", pick(random, &WORDS), pick(random, &WORDS)), "attributes": notes,
        }),
        "traces" => {
            let parent = (random.below(2) == 0).then(|| format!("{:016x}", random.below(40) + 1));
            json!({
                "trace_id": format!("{:032x}", random.below(20) + 1), "span_id": format!("{:016x}", random.below(40) + 1),
                "parent_span_id": parent, "flux_id": flux, "span_name": pick(random, &["get", "put", "scan"]),
                "duration_ms": eighths(random, 800).abs(), "status": pick(random, &["ok", "error"]), "attributes": notes,
            })
        }
        _ => json!({
            "name": pick(random, &["cpu", "mem", "disk.used"]), "type": pick(random, &["gauge", "counter"]),
            "value": match random.below(30) { 0 => 1e300, 1 => 1e-7, 2 => 0.0, 3 => 123_456_789_012.5, _ => eighths(random, 9_000) },
            "labels": notes,
        }),
    };
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
    row
}

/// Stores the rows at the Mixer, a third of them late.
pub(super) fn store(mixer: &TestMixer, tables: &[TableRows]) -> Result<(), Failure> {
    let headers = [("Content-Type", "application/x-ndjson")];
    for TableRows { table, rows } in tables {
        let (late, timely): (Vec<_>, Vec<_>) = rows.iter().enumerate().partition(|(number, _)| number % 3 == 0);
        for rows in [timely, late] {
            for rows in rows.chunks(20) {
                let body: String = rows.iter().map(|(_, row)| format!("{row}\n")).collect();
                let mut last = String::new();
                eventually("rows that are stored", Duration::from_secs(60), || {
                    let answer = mixer
                        .api
                        .send(&format!("/api/v1/ingest/{table}"), &headers, body.as_bytes())
                        .ok()?;
                    last.clone_from(&answer.text);
                    (answer.json["data"]["stored"] == rows.len()).then_some(())
                })
                .map_err(|error| format!("{error}: {table}: {last}"))?;
            }
        }
    }
    Ok(())
}

/// Inserts the rows into the tables of PostgreSQL.
pub(super) async fn insert(client: &Client, tables: &[TableRows]) -> Result<(), Failure> {
    client.batch_execute(TABLES).await?;
    for TableRows { table, rows } in tables {
        for row in rows {
            let row = row.as_object().ok_or("a row")?;
            let (mut names, mut values) = (String::new(), String::new());
            for (name, value) in row {
                let comma = if names.is_empty() { "" } else { ", " };
                write!(names, "{comma}{name}")?;
                match value {
                    Value::Null => write!(values, "{comma}NULL")?,
                    Value::String(text) => write!(values, "{comma}'{}'", text.replace('\'', "''"))?,
                    other => write!(values, "{comma}'{}'", other.to_string().replace('\'', "''"))?,
                }
            }
            client
                .batch_execute(&format!("INSERT INTO {table} ({names}) VALUES ({values})"))
                .await?;
        }
        client.batch_execute(&format!("ANALYZE {table}")).await?;
    }
    Ok(())
}
