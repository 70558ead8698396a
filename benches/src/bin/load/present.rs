//! The present hour: histograms, a top list and texts of the last hour (`BENCH_SINCE`), beside rows that come at a steady rate.
//!
//! Method: a Mixer on an empty store with default settings. One connection posts a body of NDJSON each tenth of a second, 30,000 rows a second
//! (`BENCH_RATE`) whose times are those of the posting; once a minute one row has a text that no other has. Another connection asks each question
//! twice a second, from when it is due. Printed are p50 and p99 by tenth of the time.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::data::Source;
use benches::{cost, quantile, resident_mib, setting};
use harness::{Api, Failure, TestMixer};
use model::batch::row_json;
use model::{Attributes, EntityId, Level, LogRecord, Table, TelemetryRecord, Timestamp};

/// What one row of a minute has.
const RARE: &str = "kernel panic: not syncing";
/// Bodies that are posted again and again.
const BODIES: u64 = 50;
const TENTHS: usize = 10;
/// Between two bodies, and between two questions.
const EACH: Duration = Duration::from_millis(100);

const QUESTIONS: [(&str, &str); 5] = [
    ("histogram by level", "logs/histogram?since=SINCE&by=level"),
    (
        "histogram by entity",
        "logs/histogram?since=SINCE&by=entity_name&interval=1m",
    ),
    ("top entities", "logs/top?since=SINCE&field=entity_name&min_level=error"),
    ("rare text", "logs?since=SINCE&limit=50&q=kernel%20panic%3A%20not"),
    ("absent text", "logs?since=SINCE&limit=50&q=segmentation%20fault"),
];

/// Lines of NDJSON, and where their times are.
struct Body {
    text: Vec<u8>,
    times: Vec<Range<usize>>,
}

impl Body {
    fn new(source: &mut Source, rows: usize) -> Result<Self, Failure> {
        let batch = source.batch(Table::Logs, rows)?;
        let (mut text, mut times) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let mut line = row_json(&batch, row);
            line.retain(|name, value| name != "ts" && !value.is_null());
            let line = serde_json::to_string(&line)?;
            text.extend_from_slice(b"{\"ts\":\"");
            let ts = source.now().to_string();
            times.push(text.len()..text.len() + ts.len());
            text.extend_from_slice(ts.as_bytes());
            text.extend_from_slice(b"\",");
            text.extend_from_slice(&line.as_bytes()[1..]);
            text.push(b'\n');
        }
        Ok(Self { text, times })
    }

    /// Its rows happen now.
    fn at(&mut self, now: Timestamp) -> &[u8] {
        let now = now.to_string();
        for place in &self.times {
            self.text[place.clone()].copy_from_slice(now.as_bytes());
        }
        &self.text
    }
}

fn rare(ts: Timestamp) -> Result<String, Failure> {
    let row = LogRecord {
        ts,
        entity_id: EntityId::for_name("web-00"),
        entity_name: "web-00".to_owned(),
        flux_id: None,
        level: Level::Error,
        message: RARE.to_owned(),
        attributes: Attributes::new(),
    };
    let mut line = row_json(&LogRecord::to_batch(&[row])?, 0);
    line.retain(|_, value| !value.is_null());
    Ok(serde_json::to_string(&line)? + "\n")
}

/// Posts until it is over; how many bodies were late by more than a second.
fn post(api: &Api, rows: usize, over: &AtomicBool) -> Result<u64, Failure> {
    let mut source = Source::new(7);
    let bodies = (0..BODIES).map(|_| Body::new(&mut source, rows));
    let mut bodies: Vec<_> = bodies.collect::<Result<_, _>>()?;
    let (start, mut late, mut number) = (Instant::now(), 0, 0u32);
    let headers = [("Content-Type", "application/x-ndjson")];
    let send = |body: &[u8]| -> Result<(), Failure> {
        let answer = api.send("/api/v1/ingest/logs", &headers, body)?;
        if answer.status == 200 {
            return Ok(());
        }
        Err(format!("{} {}", answer.status, answer.text).into())
    };
    while !over.load(Ordering::Relaxed) {
        let due = start + EACH * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        late += u64::from(due.elapsed() > Duration::from_secs(1));
        let (count, now) = (bodies.len(), Timestamp::from(SystemTime::now()));
        send(bodies[number as usize % count].at(now))?;
        if number.is_multiple_of(600) {
            send(rare(now)?.as_bytes())?;
        }
        number += 1;
    }
    Ok(late)
}

/// Milliseconds of each answer, by question and tenth.
type Took = [[Vec<f64>; TENTHS]; QUESTIONS.len()];

fn ask(api: &Api, span: Duration) -> Result<Took, Failure> {
    let since = std::env::var("BENCH_SINCE").unwrap_or_else(|_| "1h".to_owned());
    let (start, mut took) = (Instant::now(), Took::default());
    for (number, (of, (name, path))) in (0u32..).zip(QUESTIONS.iter().enumerate().cycle()) {
        let due = start + EACH * number;
        if due - start >= span {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let answer = api.get(&format!("/api/v1/telemetry/{}", path.replace("SINCE", &since)))?;
        if answer.status != 200 || !answer.json["stats"]["partial"].is_null() {
            return Err(format!("{name}: {} {:.300}", answer.status, answer.text).into());
        }
        let tenth = (due - start).as_millis() * TENTHS as u128 / span.as_millis();
        took[of][usize::try_from(tenth)?].push(due.elapsed().as_secs_f64() * 1e3);
    }
    Ok(took)
}

pub(super) fn run(minutes: u64) -> Result<(), Failure> {
    let rate = setting("BENCH_RATE", 30_000);
    let mut mixer = TestMixer::start("")?;
    let pid = mixer.process()?.pid().as_raw();
    let (span, over, base) = (
        Duration::from_secs(60 * minutes),
        AtomicBool::new(false),
        mixer.api.base.clone(),
    );
    let rows = usize::try_from(rate)? / 10;
    let (took, late) = std::thread::scope(|scope| {
        let posting = scope.spawn(|| post(&Api::new(&base), rows, &over));
        let took = ask(&Api::new(&base), span);
        over.store(true, Ordering::Relaxed);
        let late = posting.join().map_err(|_| "a client died")??;
        took.map(|took| (took, late))
    })?;
    let cost = cost(pid);
    println!(
        "present: {rate} rows/s for {minutes} min, {late} bodies late by more than a second; the Mixer: {:.0} CPU s, peak {:.0} MiB, {:.0} at the end",
        cost.cpu_seconds,
        cost.peak_mib,
        resident_mib(pid)
    );
    for ((name, _), tenths) in QUESTIONS.iter().zip(took) {
        let each = tenths.map(|mut took| {
            took.sort_by(f64::total_cmp);
            format!("{:.1}/{:.1}", quantile(&took, 0.5), quantile(&took, 0.99))
        });
        println!("{name}, p50/p99 in ms by tenth: {}", each.join(" "));
    }
    Ok(())
}
