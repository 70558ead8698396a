//! What publication costs ingest.
//!
//! Method: `BENCH_ROWS` (3,000,000) log lines are posted as NDJSON in bodies of 10,000 lines over 4 kept connections, in turn to a new Mixer with the
//! catalogue and to one without (`iceberg.enabled`), `BENCH_ROUNDS` (5) rounds, the order turned round each time. CPU seconds are the kernel's of the
//! Mixer's process from the first body until 15 s after the last one: the catalogue is published every 10 s, so that its last publication counts.
//! Ratios are of medians; the bound is 2 %. In a folder with default settings and with the smallest files (1 MiB), and behind a bucket with default
//! settings and with `upload_interval` 5 s.
//!
//! Rounds on a shared machine differ by more than the bound, so the threads are looked at too: the publisher's, and those that talk to the
//! bucket, for the catalogue and for uploads. Not in it: threads that have ended, as those that read the footers of new files.

use std::time::{Duration, Instant};

use benches::feed::runtime;
use benches::lines::{self, Bodies, LINES, write_lines};
use benches::{Cost, cost, in_turn, median, setting, thread_seconds};
use harness::{Failure, TestMixer, TestS3};
use model::Table;
use tempfile::TempDir;

use super::catalog_mixer::{PublishedLogs, at_bucket, in_folder, published_logs};

/// How long the Mixer is watched after the last body.
const REST: Duration = Duration::from_secs(15);
/// The publisher's thread, and those of requests to a bucket.
const THREADS: [&str; 2] = ["iceberg", "engine-remote"];
const ENABLED: &str = "observability.embedded.iceberg.enabled";

/// Where the store is, and its keys.
type StoreCase = (&'static str, bool, &'static [(&'static str, &'static str)]);

const CASES: [StoreCase; 4] = [
    ("folder, default settings", false, &[]),
    (
        "folder, segment_size_mb 1",
        false,
        &[("observability.embedded.storage.segment_size_mb", "1")],
    ),
    ("bucket, default settings", true, &[]),
    (
        "bucket, upload_interval 5 s",
        true,
        &[("observability.embedded.storage.upload_interval", "\"5s\"")],
    ),
];

/// The lines that are sent.
struct SentLines {
    folder: TempDir,
    bodies: Bodies,
}

/// What rounds with the catalogue, or without it, showed.
#[derive(Default)]
struct IngestRounds {
    /// Rows a second until the last body was answered.
    speeds: Vec<f64>,
    cpu_seconds: Vec<f64>,
    /// Those of [`THREADS`].
    thread_seconds: Vec<f64>,
    peaks: Vec<f64>,
}

pub(crate) fn measure() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let rows = usize::try_from(setting("BENCH_ROWS", 3_000_000))?;
    let bodies = write_lines(&folder.path().join("logs.ndjson"), Table::Logs, rows)?;
    let sent = SentLines { folder, bodies };
    CASES.iter().try_for_each(|case| compare(case, &sent))
}

fn compare(&(name, is_at_bucket, keys): &StoreCase, sent: &SentLines) -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut rounds = [IngestRounds::default(), IngestRounds::default()];
    let mut published = PublishedLogs::default();
    for round in 0..setting("BENCH_ROUNDS", 5) {
        for (enabled, kept) in in_turn(round, ["false", "true"], &mut rounds) {
            // Each Mixer has a bucket of its own.
            let server = match is_at_bucket {
                true => Some(runtime.block_on(TestS3::start())?),
                false => None,
            };
            let keys = [&[(ENABLED, enabled)][..], keys].concat();
            let mut mixer = match &server {
                Some(server) => at_bucket(&server.url(), &keys)?,
                None => in_folder(&keys, &[])?,
            };
            run(&mut mixer, sent, kept)?;
            published = published_logs(&mixer.api).unwrap_or(published);
        }
    }
    let figures = rounds.map(|mut of| {
        [
            median(&mut of.speeds),
            median(&mut of.cpu_seconds),
            median(&mut of.thread_seconds),
            median(&mut of.peaks),
        ]
    });
    let [without, with] = figures;
    let rows = sent.bodies.len() * LINES;
    println!(
        "ingest, {name}, {rows} rows: {:.0} rows/s with the catalogue and {:.0} without, {:.3}; {:.2} CPU s and {:.2}, {:.3}; \
         of them {:.3} and {:.3} in threads of the catalogue and of the bucket, {:.2} % more; peak {:.0} MiB and {:.0}",
        with[0],
        without[0],
        with[0] / without[0],
        with[1],
        without[1],
        with[1] / without[1],
        with[2],
        without[2],
        (with[2] - without[2]) / with[1] * 100.0,
        with[3],
        without[3]
    );
    println!(
        "  the last catalogue: version {}, {} rows in {} files",
        published.version, published.rows, published.files
    );
    Ok(())
}

/// Posts the lines to a Mixer.
fn run(mixer: &mut TestMixer, sent: &SentLines, kept: &mut IngestRounds) -> Result<(), Failure> {
    let pid = mixer.process()?.pid().as_raw();
    let path = sent.folder.path().join("logs.ndjson");
    let own = || THREADS.iter().map(|name| thread_seconds(pid, name)).sum::<f64>();
    let (before, own_before, started) = (cost(pid), own(), Instant::now());
    lines::post(&mixer.api, Table::Logs, &path, 4, sent.bodies.iter().copied())?;
    let seconds = started.elapsed().as_secs_f64();
    std::thread::sleep(REST);
    let Cost { cpu_seconds, peak_mib } = cost(pid);
    kept.speeds.push((sent.bodies.len() * LINES) as f64 / seconds);
    kept.cpu_seconds.push(cpu_seconds - before.cpu_seconds);
    kept.thread_seconds.push(own() - own_before);
    kept.peaks.push(peak_mib);
    Ok(())
}
