//! Everyday questions by many clients, and beside ingest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use benches::data::START;
use benches::days::{HOUR, NEEDLE, hours, mixer, some};
use benches::lines::{self, Bodies, LINES, write_lines};
use benches::{cost, quantile, setting};
use harness::{Api, Failure, TestMixer};
use model::{Table, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;

/// A question and the data of its answer.
struct Question {
    path: String,
    data: Value,
}

/// Questions over closed ranges, each with the answer that it has alone.
fn questions(mixer: &TestMixer) -> Result<Vec<Question>, Failure> {
    let at = |hours: i64| Timestamp::from_micros(START.micros() + hours * HOUR);
    let within = |from: i64, to: i64| format!("since={}&until={}", at(from), at(to));
    let (hour, day) = (within(hours() - 2, hours() - 1), within(hours() - 25, hours() - 1));
    let all = within(0, hours() - 1);
    let around = format!("{}&limit=1000", within(24, 25));
    let flux = some(mixer, &format!("/api/v1/telemetry/logs?{around}"), "flux_id")?;
    let trace = some(mixer, &format!("/api/v1/telemetry/traces?{around}"), "trace_id")?;
    let text = NEEDLE.replace(' ', "%20");
    let paths = [
        format!("logs?{hour}&limit=50"),
        format!("logs?{day}&limit=50&min_level=error"),
        format!("logs?{day}&limit=50&entity=web-01"),
        format!("logs?{all}&limit=50&q={text}"),
        format!("logs?{day}&limit=50&q=timeout"),
        format!("logs?{all}&limit=50&flux_id={flux}"),
        format!("traces/{trace}"),
        format!("traces?{day}&limit=50&status=error&min_duration_ms=100"),
        format!(
            "metrics?{hour}&name=http.server.requests&group_by=entity_name&interval=1m&agg=avg&shape=series&limit=10000"
        ),
        format!(
            "metrics?{day}&name=http.server.requests&group_by=entity_name&interval=1h&agg=avg&shape=series&limit=10000"
        ),
        format!("logs/histogram?{day}&interval=1h&by=level"),
        format!("logs/top?{day}&field=entity_name&min_level=error"),
    ];
    let alone = |path: String| {
        let path = format!("/api/v1/telemetry/{path}");
        let answer = mixer.api.get(&path)?;
        if answer.status != 200 {
            return Err(format!("{path}: {} {}", answer.status, answer.text).into());
        }
        let data = answer.json["data"].clone();
        Ok(Question { path, data })
    };
    paths.into_iter().map(alone).collect()
}

/// What clients met.
#[derive(Debug, Default)]
struct Met {
    /// Milliseconds of each answer.
    took: Vec<f64>,
    /// The same, by question.
    of: BTreeMap<String, Vec<f64>>,
    turned_away: u64,
    wrong: u64,
}

impl Met {
    /// Asks one question; `from` is when it was to be asked.
    fn ask(&mut self, api: &Api, question: &Question, from: Instant) -> Result<(), Failure> {
        let answer = api.get(&question.path)?;
        let took = from.elapsed().as_secs_f64() * 1e3;
        match answer.status {
            200 if answer.json["data"] == question.data => {
                self.took.push(took);
                self.of.entry(question.path.clone()).or_default().push(took);
            }
            429 | 503 => self.turned_away += 1,
            _ => {
                println!("wrong: {} {} {:.200}", question.path, answer.status, answer.text);
                self.wrong += 1;
            }
        }
        Ok(())
    }

    fn add(&mut self, other: Self) {
        self.took.extend(other.took);
        for (path, took) in other.of {
            self.of.entry(path).or_default().extend(took);
        }
        self.turned_away += other.turned_away;
        self.wrong += other.wrong;
    }

    fn print(&mut self, what: &str) -> f64 {
        self.took.sort_by(f64::total_cmp);
        let p99 = quantile(&self.took, 0.99);
        println!(
            "{what}: {} answers, {} turned away, {} wrong; p50 {:.1} ms, p99 {p99:.1} ms, worst {:.1} ms",
            self.took.len(),
            self.turned_away,
            self.wrong,
            quantile(&self.took, 0.5),
            quantile(&self.took, 1.0)
        );
        // What a long wait was for.
        for (path, took) in &mut self.of {
            took.sort_by(f64::total_cmp);
            let (p50, p99) = (quantile(took, 0.5), quantile(took, 0.99));
            println!("  p50 {p50:6.1} ms, p99 {p99:6.1} ms: {path:.110}");
        }
        p99
    }
}

/// `clients`, then `beside`, on one store.
pub(super) fn both() -> Result<(), Failure> {
    let mut mixer = mixer("")?;
    let questions = questions(&mixer)?;
    let seconds = Duration::from_secs(setting("BENCH_SECONDS", 60));
    clients(&mut mixer, &questions, seconds)?;
    beside(&mixer, &questions, seconds)
}

fn clients(mixer: &mut TestMixer, questions: &[Question], span: Duration) -> Result<(), Failure> {
    let pid = mixer.process()?.pid().as_raw();
    let (before, end) = (cost(pid), Instant::now() + span);
    let base = &mixer.api.base;
    let clients = setting("BENCH_CLIENTS", 200);
    let mut all = Met::default();
    std::thread::scope(|scope| {
        let client = |number| {
            scope.spawn(move || {
                let (api, mut random) = (Api::new(base), StdRng::seed_from_u64(number));
                let mut met = Met::default();
                while Instant::now() < end {
                    let question = &questions[random.random_range(0..questions.len())];
                    met.ask(&api, question, Instant::now())?;
                }
                Ok::<_, Failure>(met)
            })
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        for thread in threads {
            all.add(thread.join().map_err(|_| "a client died")??);
        }
        Ok::<_, Failure>(())
    })?;
    let after = cost(pid);
    all.print(&format!("{clients} clients for {} s", span.as_secs()));
    println!(
        "  the Mixer: {:.1} CPU s, peak {:.0} MiB (1024 MiB are for queries by default, 512 for ingest)",
        after.cpu_seconds - before.cpu_seconds,
        after.peak_mib
    );
    Ok(())
}

/// Asks ten times a second, each question when it is due.
fn steadily(api: &Api, questions: &[Question], span: Duration) -> Result<Met, Failure> {
    let (start, mut met) = (Instant::now(), Met::default());
    for (number, question) in (0u32..).zip(questions.iter().cycle()) {
        let due = start + Duration::from_millis(100) * number;
        if due - start >= span {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        met.ask(api, question, due)?;
    }
    Ok(met)
}

/// Posts lines until it is over; rows per second.
#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
pub(super) fn ingest(api: &Api, path: &Path, bodies: &Bodies, over: &AtomicBool) -> Result<f64, Failure> {
    let (sent, start) = (AtomicU64::new(0), Instant::now());
    let again = bodies.iter().copied().cycle();
    let until = again.take_while(|_| !over.load(Ordering::Relaxed)).inspect(|_| {
        sent.fetch_add(1, Ordering::Relaxed);
    });
    lines::post(api, Table::Logs, path, 4, until)?;
    let rows = sent.load(Ordering::Relaxed) * LINES as u64;
    Ok(rows as f64 / start.elapsed().as_secs_f64())
}

fn beside(mixer: &TestMixer, questions: &[Question], span: Duration) -> Result<(), Failure> {
    let path = mixer.path().join("logs.ndjson");
    let bodies = write_lines(&path, Table::Logs, 1_000_000)?;
    let api = &mixer.api;
    let with_ingest = |meanwhile: &mut dyn FnMut() -> Result<(), Failure>| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let posting = scope.spawn(|| ingest(api, &path, &bodies, &over));
            let done = meanwhile();
            over.store(true, Ordering::Relaxed);
            let rate = posting.join().map_err(|_| "a client died")??;
            done.map(|()| rate)
        })
    };
    let idle = steadily(api, questions, span)?.print("ten questions a second, alone");
    let alone = with_ingest(&mut || {
        std::thread::sleep(span);
        Ok(())
    })?;
    let mut met = Met::default();
    let both = with_ingest(&mut || {
        met = steadily(api, questions, span)?;
        Ok(())
    })?;
    let busy = met.print("ten questions a second beside ingest");
    println!(
        "  ingest alone {alone:.0} rows/s, beside the questions {both:.0}, {:.1} % less; their p99 {:.1} times that without ingest",
        100.0 * (1.0 - both / alone),
        busy / idle
    );
    Ok(())
}
