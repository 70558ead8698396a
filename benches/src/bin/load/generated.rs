//! Generated hostile statements in 64 MiB of memory for queries, alone and beside ingest.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use benches::lines::write_lines;
use benches::{cost, forget_peak, resident_mib, setting};
use harness::{Failure, TestMixer};
use model::Table;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::clients::ingest;
use super::greed::hostile_statement;
use super::hostile::{NO_ANSWER, download};

/// Statements that are named for what they took, where one connection asks.
const NAMED: usize = 12;
/// The settings of the Mixer.
const SETTINGS: &str = "[query]\nmemory_limit_mb = 64\ntimeout = \"5s\"\n";
/// The latest answer that is in time.
const LATEST: Duration = Duration::from_secs(6);

/// What became of statements, and the latest of their answers.
#[derive(Debug, Default)]
struct Outcomes {
    counts: BTreeMap<String, u64>,
    latest: (Duration, String),
    late: u64,
    /// The peaks of memory of single statements, in MiB.
    peaks: Vec<(f64, String)>,
}

impl Outcomes {
    fn add(&mut self, outcome: String, took: Duration, statement: &str) {
        *self.counts.entry(outcome).or_default() += 1;
        if took > LATEST {
            self.late += 1;
            println!("  LATE, {:.1} s: {statement:.300}", took.as_secs_f64());
        }
        if took > self.latest.0 {
            self.latest = (took, format!("{statement:.200}"));
        }
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: {:?}; the latest answer after {:.2} s: {}",
            self.counts,
            self.latest.0.as_secs_f64(),
            self.latest.1
        );
        let mut peaks: Vec<_> = self.peaks.iter().collect();
        peaks.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (peak, statement) in peaks.into_iter().take(NAMED) {
            println!("  {peak:.0} MiB: {statement}");
        }
    }
}

pub(super) fn run() -> Result<(), Failure> {
    let (count, seed) = (setting("BENCH_STATEMENTS", 10_000), setting("BENCH_SEED", 1));
    let span = Duration::from_secs(setting("BENCH_SECONDS", 60));
    let mut mixer = TestMixer::start(SETTINGS)?;
    let pid = mixer.process()?.pid().as_raw();
    let path = mixer.path().join("logs.ndjson");
    let bodies = write_lines(&path, Table::Logs, 1_000_000)?;
    let idle = resident_mib(pid);
    println!("generated: seed {seed}, {count} statements; the idle process has {idle:.0} MiB");
    let over = AtomicBool::new(false);
    let mut alone = 0.0;
    let peak = peak_of(pid, || {
        std::thread::scope(|scope| {
            let posting = scope.spawn(|| ingest(&mixer.api, &path, &bodies, &over));
            std::thread::sleep(span);
            over.store(true, Ordering::Relaxed);
            alone = posting.join().map_err(|_| "a client died")??;
            Ok(())
        })
    })?;
    println!(
        "ingest alone: {alone:.0} rows/s; peak {peak:.0} MiB, {:.0} over idle",
        peak - idle
    );
    // Rows are sealed meanwhile: what they still have is the store's.
    std::thread::sleep(Duration::from_secs(5));
    let kept = resident_mib(pid);
    let clients = setting("BENCH_CLIENTS", 4);
    let (first, second) = (seed.wrapping_mul(1_000), seed.wrapping_mul(1_000) + clients);
    let mut outcomes = Outcomes::default();
    let peak = peak_of(pid, || {
        asked(&mixer, pid, clients, count / 2, first).map(|met| outcomes = met)
    })?;
    outcomes.print("statements alone");
    println!(
        "  peak {peak:.0} MiB, {:.0} over the {kept:.0} that the process with its store had",
        peak - kept
    );
    let (mut both, over) = (0.0, AtomicBool::new(false));
    let mut beside = Outcomes::default();
    let peak = peak_of(pid, || {
        std::thread::scope(|scope| {
            let posting = scope.spawn(|| ingest(&mixer.api, &path, &bodies, &over));
            let met = asked(&mixer, pid, clients, count - count / 2, second);
            over.store(true, Ordering::Relaxed);
            both = posting.join().map_err(|_| "a client died")??;
            beside = met?;
            Ok(())
        })
    })?;
    beside.print("statements beside ingest");
    println!(
        "  peak {peak:.0} MiB, {:.0} over idle; ingest {both:.0} rows/s, {:.2} of alone",
        peak - idle,
        both / alone
    );
    let alive = mixer.process()?.is_running();
    mixer.process()?.terminate(Duration::from_secs(60))?;
    match (alive, outcomes.late + beside.late) {
        (true, 0) => Ok(()),
        (false, _) => Err("the Mixer did not survive".into()),
        (true, late) => Err(format!("{late} answers were late").into()),
    }
}

/// The most memory that the process has during some work.
fn peak_of(pid: i32, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    forget_peak(pid)?;
    work()?;
    Ok(cost(pid).peak_mib)
}

/// Asks so many statements over some connections; of one alone the peak of each is known.
fn asked(mixer: &TestMixer, pid: i32, clients: u64, count: u64, seed: u64) -> Result<Outcomes, Failure> {
    let (base, all) = (&mixer.api.base, Mutex::new(Outcomes::default()));
    std::thread::scope(|scope| {
        let client = |number: u64| {
            let all = &all;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed + number);
                for _ in 0..count / clients {
                    let statement = hostile_statement(&mut |below| random.random_range(0..below));
                    let begun = Instant::now();
                    if clients == 1 {
                        forget_peak(pid)?;
                    }
                    let outcome = match download(base, &statement, "ndjson") {
                        Ok(status) => status.to_string(),
                        Err(error) => error.to_string(),
                    };
                    if outcome == NO_ANSWER {
                        println!("  {NO_ANSWER}: {statement:.2000}");
                    }
                    let mut all = all.lock().map_err(|_| "a client died")?;
                    if clients == 1 {
                        all.peaks
                            .push((cost(pid).peak_mib, format!("{outcome}: {statement:.600}")));
                    }
                    all.add(outcome, begun.elapsed(), &statement);
                }
                Ok::<_, Failure>(())
            })
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a client died")?)
    })?;
    all.into_inner().map_err(|_| "a client died".into())
}
