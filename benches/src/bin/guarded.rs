//! What authentication and encryption cost: ingest over TLS with a token next to plain, and an everyday question with a token next to none.
//!
//! Method: two release Mixers with default settings in temporary folders on loopback, one that asks nobody (`api.auth = "off"`, no TLS) and one
//! where everybody needs a token and, for ingest, speaks TLS 1.3 with an ECDSA P-256 certificate. Ingest: `BENCH_ROWS` (2,000,000) log lines are
//! posted as NDJSON in bodies of 10,000 lines over 4 kept connections, in turn to a new Mixer of either kind, `BENCH_ROUNDS` (5) each, the order
//! turned round each time; the clients share the machine's cores, and encrypt too. Quotas are counted, and so high that nobody meets them.
//! Questions: both Mixers hold 200,000 rows; the newest 50 rows that have a word are asked for, in as many rounds `BENCH_QUESTIONS` (4,000) times
//! each over one kept connection: each question goes to both, first to the one that was second before. Medians of the rounds' figures, and of the
//! rounds' ratios. CPU and peak memory are the kernel's figures of the Mixer's
//! process.

use std::path::Path;
use std::time::Instant;

use benches::lines::{self, LINES, write_lines};
use benches::{cost, in_turn, load, median, quantile, setting};
use harness::credentials::{admin_token, self_signed};
use harness::{Api, Failure, TestMixer};
use model::Table;

/// A quota that is counted, and never met.
const HIGH: &str = "1000000";
const QUESTION: &str = "/api/v1/telemetry/logs?q=disk&since=1h&limit=50";

/// Who is asked for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessGuard {
    Nothing,
    Token,
    TokenAndTls,
}

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    ingest()?;
    questions()?;
    println!("load after: {}", load());
    Ok(())
}

/// A Mixer, and a client that it lets in.
fn mixer(guard: AccessGuard, folder: &Path) -> Result<(TestMixer, Api), Failure> {
    let quoted = |path: String| format!("{path:?}");
    if guard == AccessGuard::Nothing {
        let mixer = TestMixer::with(&[("api.auth", "\"off\"")], &[])?;
        let api = mixer.api.clone();
        return Ok((mixer, api));
    }
    let (file, token) = admin_token(folder)?;
    let (certificate, key) = self_signed(folder)?;
    let mut keys = vec![
        ("api.auth", "\"tokens\"".to_owned()),
        ("api.tokens_file", quoted(file.display().to_string())),
        ("quotas.requests", HIGH.to_owned()),
        ("quotas.scanned_mb", HIGH.to_owned()),
        ("quotas.ingest_mb", HIGH.to_owned()),
    ];
    if guard == AccessGuard::TokenAndTls {
        keys.extend([
            ("api.tls_cert", quoted(certificate.clone())),
            ("api.tls_key", quoted(key)),
        ]);
    }
    let keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let mixer = TestMixer::with(&keys, &[])?;
    let certificate = (guard == AccessGuard::TokenAndTls).then_some(certificate.as_str());
    let api = Api::guarded(&mixer.api.base, &token, certificate)?;
    Ok((mixer, api))
}

#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn ingest() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("logs.ndjson");
    let bodies = write_lines(&path, Table::Logs, usize::try_from(setting("BENCH_ROWS", 2_000_000))?)?;
    let rows = (bodies.len() * LINES) as f64;
    let mut speeds = [Vec::new(), Vec::new()];
    for round in 0..setting("BENCH_ROUNDS", 5) {
        for (guard, speeds) in in_turn(round, [AccessGuard::Nothing, AccessGuard::TokenAndTls], &mut speeds) {
            let (mut mixer, api) = mixer(guard, folder.path())?;
            let pid = mixer.process()?.pid().as_raw();
            let (before, started) = (cost(pid), Instant::now());
            lines::post(&api, Table::Logs, &path, 4, bodies.iter().copied())?;
            let (seconds, after) = (started.elapsed().as_secs_f64(), cost(pid));
            println!(
                "ingest, {guard:?}: {:.0} rows/s, {:.2} CPU s per million rows, peak {:.0} MiB",
                rows / seconds,
                (after.cpu_seconds - before.cpu_seconds) / rows * 1e6,
                after.peak_mib
            );
            speeds.push(rows / seconds);
        }
    }
    let by_round = ratio(&speeds);
    let [plain, guarded] = speeds.each_mut().map(|speeds| median(speeds));
    println!(
        "ingest over TLS with a token next to plain: {guarded:.0} rows/s and {plain:.0}, {:.3}; by round {by_round:.3}",
        guarded / plain
    );
    Ok(())
}

/// The median over rounds of what the second one showed next to the first.
fn ratio([first, second]: &[Vec<f64>; 2]) -> f64 {
    median(
        &mut first
            .iter()
            .zip(second)
            .map(|(first, second)| second / first)
            .collect::<Vec<_>>(),
    )
}

fn questions() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("logs.ndjson");
    let bodies = write_lines(&path, Table::Logs, 200_000)?;
    let mixers = [
        mixer(AccessGuard::Nothing, folder.path())?,
        mixer(AccessGuard::Token, folder.path())?,
    ];
    for (_, api) in &mixers {
        lines::post(api, Table::Logs, &path, 4, bodies.iter().copied())?;
    }
    let (mut middles, mut tails) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..setting("BENCH_ROUNDS", 5) {
        let mut times = ask(&mixers)?;
        for (at, times) in times.iter_mut().enumerate() {
            times.sort_by(f64::total_cmp);
            middles[at].push(quantile(times, 0.5));
            tails[at].push(quantile(times, 0.99));
        }
    }
    for (name, mut figures) in [("p50", middles), ("p99", tails)] {
        let by_round = ratio(&figures);
        let [plain, guarded] = figures.each_mut().map(|figures| median(figures));
        println!(
            "question, {name}: {plain:.3} ms without and {guarded:.3} ms with a token, {:.3}; by round {by_round:.3}",
            guarded / plain
        );
    }
    Ok(())
}

/// How long a round of questions took at each Mixer, in ms.
fn ask(mixers: &[(TestMixer, Api); 2]) -> Result<[Vec<f64>; 2], Failure> {
    let mut times = [Vec::new(), Vec::new()];
    for question in 0..setting("BENCH_QUESTIONS", 4_000) {
        for ((_, api), times) in in_turn(question, mixers.each_ref(), &mut times) {
            let started = Instant::now();
            let answer = api.get(QUESTION)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
            if answer.status != 200 {
                return Err(format!("{} {}", answer.status, answer.text).into());
            }
        }
    }
    Ok(times)
}
