//! What one scan asks for.
//!
//! Method: log rows of each of the last `BENCH_HOURS` (96) full hours, 2,000 an hour, in a folder and behind a bucket, until the catalogue has all of
//! them in sealed files (some minutes). Then a client that has just started counts the rows of all hours, and of one, through the catalogue:
//! `benches/iceberg_scan.py`, with the Python that `BENCH_LAKEHOUSE` names (`benches/run.sh` finds the one of `make lakehouse`). Mixer and bucket are reached
//! over links that record what passes: each HTTP request is counted, the Mixer's own ones of the bucket left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use benches::data::Source;
use benches::feed::runtime;
use benches::setting;
use harness::s3::{KEY, SECRET};
use harness::{Failure, Link, TestMixer, TestS3, eventually};
use model::Timestamp;

use super::catalog_mixer::{at_bucket, in_folder, published_logs, send_rows};

const HOUR: Duration = Duration::from_secs(3_600);
const ROWS: u64 = 2_000;
/// How long it may take until all rows are in sealed files.
const PATIENCE: Duration = Duration::from_secs(1_800);
const ENGINES: [&str; 2] = ["pyiceberg", "duckdb"];
/// What the Mixer's client of the bucket calls itself.
const MIXERS_OWN: &str = "object_store/";

/// Requests by what they are for.
type RequestCounts = BTreeMap<String, u64>;

pub(crate) fn measure() -> Result<(), Failure> {
    let Some(python) = std::env::var_os("BENCH_LAKEHOUSE") else {
        println!("requests: left out, BENCH_LAKEHOUSE names no Python with pyiceberg and DuckDB");
        return Ok(());
    };
    let python = Path::new(&python);
    scan_all("folder", &in_folder(&[], &[])?, None, python)?;
    let server = runtime()?.block_on(TestS3::start())?;
    let bucket = Link::recording(&server.url())?;
    let mixer = at_bucket(&format!("http://127.0.0.1:{}", bucket.port()), &[])?;
    scan_all("bucket", &mixer, Some(&bucket), python)
}

fn scan_all(name: &str, mixer: &TestMixer, bucket: Option<&Link>, python: &Path) -> Result<(), Failure> {
    let hours = setting("BENCH_HOURS", 96);
    let now = Timestamp::from(SystemTime::now());
    let start = |hour: u64| {
        let full = now.micros().div_euclid(3_600_000_000) * 3_600_000_000;
        Timestamp::from_micros(full).minus(HOUR * u32::try_from(hour).unwrap_or(u32::MAX))
    };
    let mut source = Source::new(7);
    for hour in 1..=hours {
        send_rows(&mixer.api, &mut source, ROWS, start(hour).plus(HOUR / 2))?;
    }
    let published = eventually("all rows in sealed files", PATIENCE, || {
        std::thread::sleep(Duration::from_secs(1));
        published_logs(&mixer.api).filter(|found| found.rows == ROWS * hours && found.files == hours)
    })?;
    println!("requests, {name}: {} rows in {} files", published.rows, published.files);
    let link = Link::recording(&mixer.api.base)?;
    for engine in ENGINES {
        for (what, from, to) in [
            ("all hours", start(hours), start(0)),
            ("one hour", start(hours / 2), start(hours / 2 - 1)),
        ] {
            let counted = || (counts(&link), bucket.map(counts).unwrap_or_default());
            let before = counted();
            let mut command = Command::new(python);
            command
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("iceberg_scan.py"))
                .arg(engine)
                .arg(format!("http://127.0.0.1:{}/iceberg", link.port()))
                .args([from.to_string(), to.to_string()]);
            if let Some(bucket) = bucket {
                let endpoint = format!("127.0.0.1:{}", bucket.port());
                command.args([endpoint.as_str(), KEY, SECRET]);
            }
            let output = command.output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{engine}, {what}, {name}: {said}").into());
            }
            let after = counted();
            println!(
                "  {engine}, {what}: {}; at the Mixer {}; at the bucket {}",
                String::from_utf8_lossy(&output.stdout).trim(),
                told(&before.0, &after.0),
                told(&before.1, &after.1)
            );
        }
    }
    Ok(())
}

/// The requests that have passed a link.
fn counts(link: &Link) -> RequestCounts {
    let mut counts = RequestCounts::new();
    for passed in link.recorded() {
        let passed = String::from_utf8_lossy(&passed);
        let mut rest = &*passed;
        while let Some((before, after)) = rest.split_once(" HTTP/1.1\r\n") {
            let line = before.rsplit('\n').next().unwrap_or_default();
            let headers = after.split_once("\r\n\r\n").map_or(after, |(headers, _)| headers);
            rest = after;
            if let Some((method, target)) = line.split_once(" /")
                && !headers.to_ascii_lowercase().contains(MIXERS_OWN)
            {
                let path = target.split_once('?').map_or(target, |(path, _)| path);
                *counts.entry(format!("{method} {}", kind(path))).or_default() += 1;
            }
        }
    }
    counts
}

/// What a request is for.
fn kind(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name {
        _ if name.ends_with("-m.avro") => "manifest",
        _ if name.starts_with("snap-") => "manifest list",
        _ if name.ends_with(".metadata.json") => "metadata",
        _ if name.ends_with(".parquet") => "data file",
        _ => name,
    }
}

/// What came between two counts.
fn told(before: &RequestCounts, after: &RequestCounts) -> String {
    let new: Vec<(&str, u64)> = after
        .iter()
        .map(|(kind, count)| (kind.as_str(), count - before.get(kind).copied().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let all: u64 = new.iter().map(|(_, count)| count).sum();
    let each: Vec<String> = new.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("{all} ({})", each.join(", "))
}
