//! Hostile inputs: every parser of bytes that somebody else wrote reads changed samples, and none may crash, hang or believe what is false.
//!
//! Method: `BENCH_INPUTS` (50,000,000) inputs, as many for each target, made from its samples by `model::fuzz` with the seed `BENCH_SEED` (20261129). Each
//! target runs in a process of its own, on all cores. A panic is caught and counted; what ends the process (an abort, a stack that overflows) is found by
//! reading its inputs once more, one after another; an input that takes longer than [`LONGEST`] ends the run. Built with the profile `checked`, numbers
//! that overflow and the assertions of libraries are panics as well. CPU and memory are the kernel's figures.
//!
//! ```text
//! bench-hostile-inputs                     all targets: a table; fails if anything does
//! bench-hostile-inputs TARGET              one of them
//! bench-hostile-inputs TARGET NUMBER       one input: how it is read
//! ```

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use benches::{Cost, cost, load, median, setting};
use harness::Failure;
use model::fuzz::FuzzTarget;
use serde::{Deserialize, Serialize};

/// An input that takes longer is a failure.
const LONGEST: Duration = Duration::from_secs(10);
/// So many failures of a target are told.
const MOST_TOLD: usize = 5;
/// The first argument of a process that reads the inputs of one target.
const WORKER: &str = "--worker";
/// The same, with one thread that says which input it is about to read.
const CAREFUL: &str = "--careful";

/// What a target's process did.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TargetReport {
    accepted: u64,
    refused: u64,
    seconds: f64,
    /// The input that took longest, and how long, in microseconds.
    worst: (u64, u64),
    cpu_seconds: f64,
    peak_mib: f64,
    /// Numbers of inputs, and what the panics said.
    failures: Vec<(u64, String)>,
}

impl TargetReport {
    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.failures.extend(other.failures);
        if other.worst.1 > self.worst.1 {
            self.worst = other.worst;
        }
    }

    fn fail(&mut self, number: u64, reason: String) {
        self.failures.push((number, reason));
    }

    #[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
    fn rate(&self) -> f64 {
        (self.accepted + self.refused) as f64 / self.seconds.max(1e-6)
    }
}

fn main() -> Result<ExitCode, Failure> {
    let seed = setting("BENCH_SEED", 20_261_129);
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>();
    match args[..] {
        [mode @ (WORKER | CAREFUL), name, inputs] => {
            // What panics is counted, and told by the first process.
            std::panic::set_hook(Box::new(|_| ()));
            let target = target(name)?;
            let mut report = match mode {
                CAREFUL => read_carefully(&target, seed, number(inputs)?)?,
                _ => read_all(&target, seed, number(inputs)?),
            };
            (report.cpu_seconds, report.peak_mib) = own_cost();
            println!("{}", serde_json::to_string(&report)?);
            Ok(ExitCode::SUCCESS)
        }
        [name, input] => {
            let (target, number) = (target(name)?, number(input)?);
            let bytes = target.input(seed, number);
            println!(
                "{name}, seed {seed}, input {number}: {} bytes\n{}",
                bytes.len(),
                bytes.escape_ascii()
            );
            match target.read(&bytes)? {
                true => println!("accepted"),
                false => println!("refused"),
            }
            Ok(ExitCode::SUCCESS)
        }
        ref chosen => run(chosen.first().copied(), seed),
    }
}

fn targets() -> Vec<FuzzTarget> {
    let mut all = model::fuzz::targets();
    all.extend(chassis::fuzz::targets());
    all.extend(gear_spec::fuzz::targets());
    all.extend(engine::fuzz::targets());
    all.extend(iceberg::fuzz::targets());
    all.extend(ingest::fuzz::targets());
    all.extend(protocols::fuzz::targets());
    all.extend(query::fuzz::targets());
    all.extend(rack::fuzz::targets());
    all.extend(mixer::fuzz::targets());
    all.sort_by_key(FuzzTarget::name);
    all
}

fn target(name: &str) -> Result<FuzzTarget, Failure> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.ok_or_else(|| format!("no target is named {name}").into())
}

/// CPU seconds and peak memory of this process.
fn own_cost() -> (f64, f64) {
    let Cost { cpu_seconds, peak_mib } = cost(i32::try_from(std::process::id()).unwrap_or_default());
    (cpu_seconds, peak_mib)
}

/// Runs the targets one after another.
fn run(only: Option<&str>, seed: u64) -> Result<ExitCode, Failure> {
    let inputs = setting("BENCH_INPUTS", 50_000_000);
    let all = targets();
    let names: BTreeSet<&str> = all.iter().map(FuzzTarget::name).collect();
    if names.len() < all.len() {
        return Err("two targets have one name".into());
    }
    let chosen: Vec<&FuzzTarget> = all
        .iter()
        .filter(|target| only.is_none_or(|name| name == target.name()))
        .collect();
    if chosen.is_empty() {
        return Err(format!("no such target; there are {}", Vec::from_iter(names).join(", ")).into());
    }
    let each = inputs.div_ceil(chosen.len() as u64);
    println!(
        "seed {seed}, {} targets, {each} inputs each, load {}",
        chosen.len(),
        load()
    );
    println!(
        "{:26} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8}",
        "target", "inputs", "accepted", "refused", "inputs/s", "worst ms", "MiB"
    );
    let (mut all_inputs, mut failed, mut cpu, mut peak) = (0, 0, 0.0, 0.0_f64);
    let mut rates = Vec::new();
    for target in chosen {
        let mut report = run_target(target.name(), each)?;
        if let Err(failure) = target.check_samples(seed) {
            report.fail(u64::MAX, failure.reason);
        }
        all_inputs += report.accepted + report.refused;
        failed += report.failures.len();
        cpu += report.cpu_seconds;
        peak = peak.max(report.peak_mib);
        rates.push((target.name(), report.rate()));
        print_report(target.name(), &report);
    }
    let middle = median(&mut rates.iter().map(|(_, rate)| *rate).collect::<Vec<_>>());
    let slow: Vec<&str> = rates
        .iter()
        .filter(|(_, rate)| rate * 50.0 < middle)
        .map(|(name, _)| *name)
        .collect();
    println!(
        "{all_inputs} inputs, {failed} failures, seed {seed}: {cpu:.0} CPU seconds, at most {peak:.0} MiB, load {}",
        load()
    );
    println!("more than 50 times slower than the median of {middle:.0} inputs/s: {slow:?}");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn print_report(name: &str, report: &TargetReport) {
    let TargetReport {
        accepted,
        refused,
        worst,
        peak_mib,
        ..
    } = report;
    let (inputs, worst) = (accepted + refused, worst.1 as f64 / 1_000.0);
    let rate = report.rate();
    println!("{name:26} {inputs:>10} {accepted:>10} {refused:>10} {rate:>10.0} {worst:>9.1} {peak_mib:>8.0}");
    for (number, reason) in report.failures.iter().take(MOST_TOLD) {
        println!("    FAILED at input {number}: {reason}");
    }
}

/// Reads the inputs of a target in another process, and finds the one at which that process ended.
fn run_target(name: &str, inputs: u64) -> Result<TargetReport, Failure> {
    if let Ok(report) = run_process(WORKER, name, inputs)? {
        return Ok(report);
    }
    let mut report = TargetReport::default();
    match run_process(CAREFUL, name, inputs)? {
        Ok(careful) => {
            report.add(careful);
            report.fail(
                inputs,
                "the process ended, and not when its inputs were read one after another".to_owned(),
            );
        }
        Err(last) => report.fail(last, "the process ended, or the input took too long".to_owned()),
    }
    Ok(report)
}

/// The report of a process; the last input that it named, if it made none.
fn run_process(mode: &str, name: &str, inputs: u64) -> Result<Result<TargetReport, u64>, Failure> {
    let program = std::env::current_exe()?;
    let args = [mode, name, &inputs.to_string()];
    let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn()?;
    let mut last = String::new();
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        last = line?;
    }
    let status = child.wait()?;
    Ok(match serde_json::from_str(&last) {
        Ok(report) if status.success() => Ok(report),
        _ => Err(last.parse().unwrap_or_default()),
    })
}

/// What a thread reads, and since when, in milliseconds from the start of the run; 0 for nothing.
#[derive(Debug, Default)]
struct InputInProgress {
    number: AtomicU64,
    since: AtomicU64,
}

fn read_all(target: &FuzzTarget, seed: u64, inputs: u64) -> TargetReport {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let places: Vec<InputInProgress> = (0..threads).map(|_| InputInProgress::default()).collect();
    let (began, next, left) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(threads as u64));
    let all = Mutex::new(TargetReport::default());
    std::thread::scope(|scope| {
        for place in &places {
            let (next, left, all) = (&next, &left, &all);
            scope.spawn(move || {
                let report = read_some(target, seed, (next, inputs), (began, place));
                if let Ok(mut all) = all.lock() {
                    all.add(report);
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        while left.load(Relaxed) > 0 {
            watch(&places, began);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut report = all.into_inner().unwrap_or_default();
    report.seconds = began.elapsed().as_secs_f64();
    report
}

/// Ends the process if an input takes too long.
fn watch(places: &[InputInProgress], began: Instant) {
    for place in places {
        let (since, number) = (place.since.load(Relaxed), place.number.load(Relaxed));
        if since > 0 && began.elapsed() > Duration::from_millis(since) + LONGEST {
            eprintln!("input {number} takes longer than {LONGEST:?}");
            std::process::exit(1);
        }
    }
}

fn read_some(
    target: &FuzzTarget,
    seed: u64,
    (next, inputs): (&AtomicU64, u64),
    (began, place): (Instant, &InputInProgress),
) -> TargetReport {
    let millis = |moment: Instant| u64::try_from(moment.duration_since(began).as_millis()).unwrap_or(u64::MAX) + 1;
    let mut report = TargetReport::default();
    loop {
        let number = next.fetch_add(1, Relaxed);
        if number >= inputs || report.failures.len() >= MOST_TOLD {
            place.since.store(0, Relaxed);
            return report;
        }
        place.number.store(number, Relaxed);
        place.since.store(millis(Instant::now()), Relaxed);
        read_one(target, seed, number, &mut report);
    }
}

fn read_one(target: &FuzzTarget, seed: u64, number: u64, report: &mut TargetReport) {
    let bytes = target.input(seed, number);
    let began = Instant::now();
    let read = target.read(&bytes);
    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    if took > report.worst.1 {
        report.worst = (number, took);
    }
    match read {
        Ok(true) => report.accepted += 1,
        Ok(false) => report.refused += 1,
        Err(reason) => report.fail(number, reason),
    }
}

fn read_carefully(target: &FuzzTarget, seed: u64, inputs: u64) -> Result<TargetReport, Failure> {
    let place = [InputInProgress::default()];
    let began = Instant::now();
    std::thread::scope(|scope| {
        // A thread as in the usual run: the stack of the first one is larger.
        let reading = scope.spawn(|| -> Result<TargetReport, std::io::Error> {
            let mut report = TargetReport::default();
            for number in 0..inputs {
                writeln!(std::io::stdout(), "{number}")?;
                let since = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
                place.iter().for_each(|place| {
                    place.number.store(number, Relaxed);
                    place.since.store(since, Relaxed);
                });
                read_one(target, seed, number, &mut report);
            }
            Ok(report)
        });
        while !reading.is_finished() {
            watch(&place, began);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(reading.join().map_err(|_| "the thread that reads ended")??)
    })
}
