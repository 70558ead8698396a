//! Late rows that trickle: how many data files they leave.
//!
//! Method: `bench-late [ROUNDS] [HOURS] [SECONDS]` (60, 700, 10). The release Mixer with default settings (data is kept for 60 days) in a
//! temporary folder. Every so many seconds one request with a log row of each of the last hours, so that more partitions come than may
//! be open; every tenth request is followed by a `kill -9` and a new start. At the end the Mixer is stopped, started, and every data
//! file of the tree is counted by its partition, every row by an SQL query.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use benches::{cost, load};
use harness::{Failure, TestMixer};
use model::Timestamp;
use serde_json::json;

/// How long a stop may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (rounds, hours, pause) = (number(60)?, number(700)?, Duration::from_secs(number(10)?));
    let mut mixer = TestMixer::with(&[("observability.embedded.rotation.max_age_days", "60")], &[])?;
    let began = Instant::now();
    for round in 0..rounds {
        send(&mixer, round, hours)?;
        std::thread::sleep(pause);
        if round % 10 == 9 {
            mixer.kill9()?;
            mixer.restart()?;
            let files = count_files(&mixer.telemetry())?;
            let most = files.values().max();
            println!(
                "{:>5.0} s: {} files, at most {most:?}",
                began.elapsed().as_secs_f64(),
                files.values().sum::<u64>()
            );
        }
    }
    mixer.process()?.terminate(PATIENCE)?;
    mixer.restart()?;
    let files = count_files(&mixer.telemetry())?;
    let mut spread: BTreeMap<u64, u64> = BTreeMap::new();
    files.values().for_each(|count| *spread.entry(*count).or_default() += 1);
    let found = mixer.api.post(
        "/api/v1/sql",
        &json!({ "query": "select count(*) as n, count(distinct message) as d from logs where message like 'late %'" }),
    )?;
    println!(
        "{} rows sent over {hours} hours; {} there, {} of them different; {} data files in {} partitions, partitions by number of files {spread:?}; \
         peak {:.0} MiB since the last start",
        rounds * hours,
        found.json["data"][0]["n"],
        found.json["data"][0]["d"],
        files.values().sum::<u64>(),
        files.len(),
        cost(mixer.process()?.pid().as_raw()).peak_mib,
    );
    println!("load after: {}", load());
    Ok(())
}

/// One row of each hour.
fn send(mixer: &TestMixer, round: u64, hours: u64) -> Result<(), Failure> {
    let now = Timestamp::from(SystemTime::now());
    let mut body = String::new();
    for hour in 0..hours {
        let ts = now.minus(Duration::from_secs(hour * 3_600));
        writeln!(
            body,
            r#"{{"ts":"{ts}","level":"info","message":"late {round} {hour}"}}"#
        )?;
    }
    let answer = mixer.api.send(
        "/api/v1/ingest/logs",
        &[("Content-Type", "application/x-ndjson")],
        body.as_bytes(),
    )?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!("{status} {}", answer.text).into()),
    }
}

/// Data files of logs by the folder that they lie in.
fn count_files(tree: &Path) -> Result<BTreeMap<String, u64>, Failure> {
    let mut counts = BTreeMap::new();
    let mut folders = vec![tree.join("logs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                *counts.entry(folder.display().to_string()).or_default() += 1;
            }
        }
    }
    Ok(counts)
}
