//! A store of two days up to now, filled over the Mixer's own API: log rows, metric points and spans as Arrow streams, a large trace and
//! a large log row.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use arrow_array::RecordBatch;
use benches::data::Source;
use benches::{cost, setting};
use harness::{Api, Failure, TestMixer, eventually};
use model::telemetry_codec::{BatchEncoding, encode_arrow};
use model::{
    Attributes, EntityId, Level, LogRecord, Span, SpanId, SpanStatus, Table, TelemetryRecord, Timestamp, TraceId,
};

/// How long the rows take.
pub(super) const HOURS: u64 = 48;
/// Rows of a body, and connections that send them.
const BODY: u64 = 10_000;
const CONNECTIONS: usize = 4;
/// Bytes of the large row's message.
const LARGE: usize = 1_500_000;
/// The entity of the large row.
pub(super) const LARGE_ENTITY: &str = "large";
/// Spans of the large trace one below the other, and side by side below its root; the others are below those.
const DEEP: usize = 1_000;
const WIDE: usize = 9_000;
/// How long a store may take that is at its limit, and until files are sealed: those of past hours are after five quiet minutes.
const ROOM: Duration = Duration::from_secs(60);
const SEALED: Duration = Duration::from_secs(1_800);
/// Files of the present hour, and of the one before, stay open.
const OPEN_FILES: u64 = 6;

/// What the store has.
pub(super) struct FilledStore {
    /// When the last rows happened.
    pub(super) end: Timestamp,
    pub(super) trace: TraceId,
    /// Spans of the trace.
    pub(super) spans: u64,
    /// When the large row happened.
    pub(super) large: Timestamp,
}

impl FilledStore {
    /// A time range in the address of a view, in hours before the end.
    pub(super) fn hours(&self, from: u64, to: u64) -> String {
        let at = |hours| self.end.minus(Duration::from_secs(3_600 * hours));
        range(at(from), at(to))
    }
}

/// A time range in the address of a view.
pub(super) fn range(since: Timestamp, until: Timestamp) -> String {
    format!("since={since}&until={until}")
}

/// Fills the store, waits until its files are sealed and indexed, and starts the Mixer anew.
pub(super) fn fill(mixer: &mut TestMixer) -> Result<FilledStore, Failure> {
    let now = Timestamp::from(SystemTime::now()).micros();
    let end = Timestamp::from_micros(now - now % 1_000_000);
    let times = (end.minus(Duration::from_secs(3_600 * HOURS)), end);
    let started = Instant::now();
    for (table, name, rows) in [
        (Table::Logs, "BENCH_ROWS", 10_000_000),
        (Table::Metrics, "BENCH_POINTS", 10_000_000),
        (Table::Traces, "BENCH_SPANS", 5_000_000),
    ] {
        let rows = setting(name, rows);
        // Time goes on with each trace, which has four and a half spans on average.
        let ticks = if table == Table::Traces { rows * 2 / 9 } else { rows };
        let queue = RowQueue {
            source: Source::between(11, ticks, times),
            left: rows,
        };
        let (begun, sent) = (Instant::now(), send_all(&mixer.api, table, queue, end)?);
        println!("{table}: {sent} rows in {:.1} s", begun.elapsed().as_secs_f64());
    }
    let spans = setting("BENCH_TRACE_SPANS", 20_000);
    let store = FilledStore {
        end,
        trace: TraceId::from_entropy([0x5a; 16]),
        spans,
        large: end.minus(Duration::from_secs(1_800)),
    };
    let trace = large_trace(
        store.trace,
        usize::try_from(spans)?,
        end.minus(Duration::from_secs(5_400)),
    )?;
    send_rows(&mixer.api, Table::Traces, &Span::to_batch(&trace)?)?;
    send_rows(
        &mixer.api,
        Table::Logs,
        &LogRecord::to_batch(&[large_row(store.large)])?,
    )?;
    if setting("BENCH_OPEN", 0) == 0 {
        wait_until_sealed(mixer)?;
    }
    let spent = cost(mixer.process()?.pid().as_raw());
    println!(
        "filled and sealed in {:.0} s, {:.1} CPU s and at most {:.0} MiB of the Mixer, which starts anew now",
        started.elapsed().as_secs_f64(),
        spent.cpu_seconds,
        spent.peak_mib
    );
    mixer.process()?.terminate(ROOM)?;
    mixer.restart()?;
    Ok(store)
}

/// Rows that nobody has taken yet.
struct RowQueue {
    source: Source,
    left: u64,
}

/// Sends all rows of a queue, those of after `end` apart; how many.
fn send_all(api: &Api, table: Table, queue: RowQueue, end: Timestamp) -> Result<u64, Failure> {
    let queue = Mutex::new(queue);
    let next = || -> Result<Option<RecordBatch>, Failure> {
        let mut queue = queue.lock().map_err(|_| "a sender died")?;
        let rows = queue.left.min(BODY);
        if rows == 0 || queue.source.now() >= end {
            return Ok(None);
        }
        queue.left -= rows;
        Ok(Some(queue.source.batch(table, usize::try_from(rows)?)?))
    };
    let sender = || -> Result<u64, Failure> {
        let mut sent = 0;
        while let Some(rows) = next()? {
            send_rows(api, table, &rows)?;
            sent += rows.num_rows() as u64;
        }
        Ok(sent)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(sender)).collect();
        let mut sent = 0;
        for thread in threads {
            sent += thread.join().map_err(|_| "a sender died")??;
        }
        Ok::<_, Failure>(sent)
    })
}

/// Sends rows as one body; waits while the store has no room for them.
pub(super) fn send_rows(api: &Api, table: Table, rows: &RecordBatch) -> Result<(), Failure> {
    let body = encode_arrow(std::slice::from_ref(rows))?;
    let path = format!("/api/v1/ingest/{table}");
    let headers = [("Content-Type", BatchEncoding::Arrow.content_type())];
    let answer = eventually("room for rows", ROOM, || match api.send(&path, &headers, &body) {
        Ok(answer) if matches!(answer.status, 429 | 503) => None,
        answer => Some(answer),
    })??;
    if answer.status != 200 || answer.json["data"]["stored"] != rows.num_rows() {
        return Err(format!("{path}: {} {}", answer.status, answer.text).into());
    }
    Ok(())
}

fn wait_until_sealed(mixer: &TestMixer) -> Result<(), Failure> {
    let storage = eventually("sealed and indexed files", SEALED, || {
        std::thread::sleep(Duration::from_secs(1));
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        let fact = |name: &str| storage["data"][name].as_u64().unwrap_or(u64::MAX);
        let is_sealed = fact("hot_rows") == 0 && fact("index_waiting") == 0 && fact("open_files") <= OPEN_FILES;
        is_sealed.then_some(storage)
    })?;
    let data = &storage["data"];
    println!(
        "store: {} rows in {} files of {} bytes, {} open, indexes of {} bytes",
        data["rows"], data["files"], data["bytes"], data["open_files"], data["index_bytes"]
    );
    Ok(())
}

/// A trace that is deep and wide.
fn large_trace(trace_id: TraceId, spans: usize, start: Timestamp) -> Result<Vec<Span>, Failure> {
    const SERVICES: [&str; 6] = ["shop", "cart", "payment", "stock", "mail", "ledger"];
    let mut trace: Vec<Span> = Vec::with_capacity(spans);
    for at in 0..spans {
        let number = u64::try_from(at)?;
        // Whose child it is, and by how many microseconds it begins later.
        let (parent, later) = match at {
            0 => (None, 0),
            1..=DEEP => (Some(at - 1), 900),
            _ if at <= DEEP + WIDE => (Some(0), 100 * number),
            _ => (Some(DEEP + 1 + at % WIDE), 100),
        };
        let parent = parent.and_then(|parent| trace.get(parent));
        let service = SERVICES[at % SERVICES.len()];
        let span = Span {
            ts: parent.map_or(start, |parent| parent.ts.plus(Duration::from_micros(later))),
            trace_id,
            span_id: SpanId::from_entropy((number + 1).to_be_bytes()),
            parent_span_id: parent.map(|parent| parent.span_id),
            flux_id: None,
            entity_id: EntityId::for_name(service),
            entity_name: service.to_owned(),
            span_name: format!("step {} of order {}", at % 40, at % 700),
            duration_ms: if at == 0 {
                1_100.0
            } else {
                f32::from(u8::try_from(at % 90)?) + 0.5
            },
            status: if at % 97 == 0 {
                SpanStatus::Error
            } else {
                SpanStatus::Ok
            },
            attributes: Attributes::new()
                .with("resource.service.name", service)
                .with("http.route", format!("/api/v2/orders/{}", at % 300))
                .with("http.status", if at % 97 == 0 { "500" } else { "200" })
                .with("thread", number % 32),
        };
        trace.push(span);
    }
    Ok(trace)
}

fn large_row(ts: Timestamp) -> LogRecord {
    const PIECE: &str = "what a program dumped in one piece; ";
    let mut message = PIECE.repeat(LARGE / PIECE.len() + 1);
    message.truncate(LARGE);
    LogRecord {
        ts,
        entity_id: EntityId::for_name(LARGE_ENTITY),
        entity_name: LARGE_ENTITY.to_owned(),
        flux_id: None,
        level: Level::Error,
        message,
        attributes: Attributes::new().with("gear.id", "dump").with("thread", "main"),
    }
}
