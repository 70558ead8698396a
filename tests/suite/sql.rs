//! Statements give the answers that DuckDB gives over the same files.
//!
//! `sql/*.sql` has one statement a line, in what both understand. Columns that are computed have names, and every answer has one
//! order, so that answers compare row by row. The rows are of few values that meet often: nulls, texts of several scripts, times
//! that are equal, times around a change of clocks and on a leap day.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use engine::{AppendBatch, BatchOrigin, Engine, Settings};
use harness::{Failure, Random, TestMixer, duckdb};
use model::batch::MessageRow;
use model::telemetry_codec::encode_arrow;
use model::{
    Attributes, Clock, EntityId, Entropy, FluxId, Level, LogRecord, MessageDirection, MetricPoint, MetricType, Span,
    SpanId, SpanStatus, Table, TelemetryRecord, Timestamp, TraceId, batch,
};
use serde_json::{Map, Value, json};

const FILES: [&str; 4] = [
    include_str!("sql/rows.sql"),
    include_str!("sql/groups.sql"),
    include_str!("sql/joins.sql"),
    include_str!("sql/values.sql"),
];
/// Moments, and when the rows of them were appended: a store takes no rows that are much older.
const ERAS: [(&str, [&str; 3]); 4] = [
    (
        "2024-03-01T01:00:00Z",
        [
            "2024-02-28T23:59:59.999999Z",
            "2024-02-29T00:00:00Z",
            "2024-02-29T23:59:59.999999Z",
        ],
    ),
    (
        "2026-03-29T04:00:00Z",
        ["2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"],
    ),
    (
        "2026-10-25T04:00:00Z",
        ["2026-10-25T00:59:59.5Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"],
    ),
    (
        "2026-11-21T12:30:00Z",
        [
            "2026-11-21T12:00:00Z",
            "2026-11-21T12:00:00Z",
            "2026-11-21T12:14:59.999Z",
        ],
    ),
];
const ENTITIES: [&str; 4] = ["rack-a", "rack-b", "räck c", "架"];
const WORDS: [&str; 9] = [
    "disk",
    "FULL",
    "Ärger",
    "100% of it",
    "a_b",
    "ΟΔΟΣ",
    "",
    "日本語",
    "it's \"odd\"",
];

fn pick<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    &of[usize::try_from(random.below(of.len() as u64)).unwrap()]
}

fn moment(random: &mut Random, times: &[&str]) -> Timestamp {
    let at: Timestamp = pick(random, times).parse().unwrap();
    at.plus(Duration::from_micros(random.below(3) * 40_000_001))
}

fn flux(random: &mut Random) -> FluxId {
    let mut bytes = *b"\x01\x8f\x2c\x1e\x00\x00\x70\x00\x80\x00\x00\x00\x00\x00\x00\x00";
    bytes[15] = u8::try_from(random.below(6)).unwrap();
    FluxId::from_bytes(bytes)
}

fn maybe<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (random.below(2) == 0).then(|| make(random))
}

fn log(random: &mut Random, times: &[&str]) -> LogRecord {
    let entity = *pick(random, &ENTITIES);
    let mut attributes = Attributes::new();
    if let Some(gear) = maybe(random, |random| *pick(random, &["tail", "sink", "t\"ail", "5"])) {
        attributes.set("gear.id", gear);
    }
    if let Some(n) = maybe(random, |random| random.below(4)) {
        attributes.set("n", n);
    }
    if random.below(5) == 0 {
        attributes.set("ünï \"quoted\"", "✓");
    }
    LogRecord {
        ts: moment(random, times),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        flux_id: maybe(random, flux),
        level: *pick(random, Level::ALL),
        message: match random.below(3) {
            0 => (*pick(random, &WORDS)).to_owned(),
            _ => format!("{} {}", pick(random, &WORDS), pick(random, &WORDS)),
        },
        attributes,
    }
}

fn span(random: &mut Random, times: &[&str], number: u64) -> Span {
    let entity = *pick(random, &ENTITIES[..3]);
    let id = |number: u64| SpanId::from_entropy((number + 1).to_be_bytes());
    Span {
        ts: moment(random, times),
        trace_id: TraceId::from_entropy([u8::try_from(1 + number % 7).unwrap(); 16]),
        span_id: id(number),
        parent_span_id: maybe(random, |random| id(number.saturating_sub(7 * (1 + random.below(2))))),
        flux_id: maybe(random, flux),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        span_name: (*pick(random, &["receive", "send", "größe"])).to_owned(),
        duration_ms: f32::from(u16::try_from(random.below(80)).unwrap()) / 8.0,
        status: *pick(random, SpanStatus::ALL),
        attributes: Attributes::new().with("http.status", 200 + random.below(4) * 100),
    }
}

fn point(random: &mut Random, times: &[&str]) -> MetricPoint {
    let entity = *pick(random, &ENTITIES[1..]);
    let mut labels = Attributes::new().with("otel.unit", "By");
    if let Some(cpu) = maybe(random, |random| random.below(3)) {
        labels.set("cpu", cpu.to_string());
    }
    MetricPoint {
        ts: moment(random, times),
        name: (*pick(random, &["cpu", "mem", "net.größe"])).to_owned(),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        metric_type: *pick(random, MetricType::ALL),
        value: f64::from(u32::try_from(random.below(4_000)).unwrap()) / 16.0 - 20.0,
        labels,
    }
}

fn message(random: &mut Random, times: &[&str]) -> MessageRow {
    let entity = *pick(random, &ENTITIES);
    MessageRow {
        ts: moment(random, times),
        trace_id: TraceId::from_entropy([u8::try_from(1 + random.below(7)).unwrap(); 16]),
        flux_id: flux(random),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        src_gear_id: (*pick(random, &["in", "mill"])).to_owned(),
        dst_gear_id: maybe(random, |random| (*pick(random, &["out", "öfen"])).to_owned()),
        msg_type: (*pick(random, &["order", "part"])).to_owned(),
        direction: *pick(
            random,
            &[
                MessageDirection::Inbound,
                MessageDirection::Outbound,
                MessageDirection::Internal,
            ],
        ),
        status: *pick(random, SpanStatus::ALL),
        raw_msg: vec![0; usize::try_from(random.below(9)).unwrap()],
        promoted: Attributes::new().with("order", random.below(3)),
    }
}

/// Makes a store with rows in sealed files and in open ones.
async fn seed(settings: Settings) -> Result<(), Failure> {
    let mut random = Random::for_test("statements_give_the_answers_that_duckdb_gives_over_the_same_files");
    let now = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_micros(clock.load(Ordering::Relaxed)));
    let set = |at: &str| now.store(at.parse::<Timestamp>().unwrap().micros(), Ordering::Relaxed);
    set(ERAS[0].0);
    let engine = Engine::open(settings, clock, Entropy::new(|bytes| bytes.fill(5))).await?;
    let mut spans = 0;
    for (at, times) in &ERAS {
        set(at);
        let logs: Vec<_> = (0..200).map(|_| log(&mut random, times)).collect();
        let new: Vec<_> = (spans..spans + 60)
            .map(|number| span(&mut random, times, number))
            .collect();
        spans += 60;
        let points: Vec<_> = (0..150).map(|_| point(&mut random, times)).collect();
        let messages: Vec<_> = (0..50).map(|_| message(&mut random, times)).collect();
        let batches = [
            (Table::Logs, LogRecord::to_batch(&logs)?),
            (Table::Traces, Span::to_batch(&new)?),
            (Table::Metrics, MetricPoint::to_batch(&points)?),
            (Table::Messages, batch::messages(&messages)?),
        ];
        for (table, rows) in batches {
            let payload = encode_arrow(std::slice::from_ref(&rows))?;
            let batch = AppendBatch {
                table,
                origin: BatchOrigin::default(),
                payload: payload.into(),
                rows: vec![rows],
            };
            engine.append(batch).await?;
        }
        engine.flush().await?;
    }
    Ok(engine.close().await?)
}

/// A value as both write it: times as microseconds, numbers as numbers.
fn plain(value: &Value) -> Value {
    let Some(text) = value.as_str() else {
        return value.as_f64().map_or_else(|| value.clone(), Value::from);
    };
    let zoned = text
        .strip_suffix("+00")
        .map(|text| format!("{}Z", text.replace(' ', "T")));
    let time = zoned.as_deref().unwrap_or(text).parse::<Timestamp>();
    let is_time = text.len() > 18 && text.as_bytes()[4] == b'-';
    match time {
        Ok(time) if is_time => json!({ "µs": time.micros() }),
        _ => value.clone(),
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    match (plain(a), plain(b)) {
        // DuckDB's sums have 128 bits, for which JSON has no number.
        (Value::Number(ours), Value::String(theirs)) => theirs.parse().ok() == ours.as_f64(),
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
        }
        (a, b) => a == b,
    }
}

fn are_same(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> bool {
    ours.len() == theirs.len()
        && ours
            .iter()
            .all(|(name, value)| theirs.get(name).is_some_and(|other| is_same(value, other)))
}

#[test]
fn statements_give_the_answers_that_duckdb_gives_over_the_same_files() -> Result<(), Failure> {
    let store = tempfile::tempdir()?;
    let dir = store.path().join("data");
    let mut settings = Settings::new(&dir);
    settings.flush_interval = Duration::from_secs(3_600);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(seed(settings))?;
    let place = format!("{:?}", dir.display().to_string());
    let mixer = TestMixer::with(&[("store.dir", place.as_str())], &[])?;
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for statement in FILES.iter().flat_map(|file| file.lines()) {
        if statement.is_empty() || statement.starts_with("--") {
            continue;
        }
        asked += 1;
        let answer = mixer.api.post("/api/v1/sql", &json!({ "query": statement }))?;
        let theirs = match duckdb::rows(statement, &dir) {
            Ok(rows) => rows,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        let ours = answer.json["data"].as_array().cloned().unwrap_or_default();
        let ours: Vec<_> = ours.iter().filter_map(|row| row.as_object().cloned()).collect();
        let pairs = ours.iter().zip(&theirs).enumerate();
        let differ = pairs.into_iter().find(|(_, (ours, theirs))| !are_same(ours, theirs));
        if answer.status != 200 || ours.len() != theirs.len() || differ.is_some() {
            wrong.push(format!(
                "{statement}\n  {} of {} rows: {:.300}\n  first that differ, and which: {differ:?}",
                ours.len(),
                theirs.len(),
                answer.text
            ));
        } else if theirs.is_empty() {
            wrong.push(format!("{statement}\n  has no rows and shows nothing"));
        }
    }
    assert!(asked >= 60, "{asked} statements");
    assert!(
        wrong.is_empty(),
        "{} of {asked} statements:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}
