//! `kill -9` of the Mixer, the bus and the Rack at random moments under load: every line written to the tailed file is
//! stored exactly once, seen by REST and by DuckDB.
//!
//! `PLATFORM_TEST_KILLS` and `PLATFORM_TEST_ROWS` make it longer; the suite's figures are short.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::{Failure, Random, TestRack, duckdb, eventually, process};

use crate::first_light::{mixer_with, tail_scenario};

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Writes numbered lines in bursts until `rows` are written and the kills are over.
fn writer(
    file: PathBuf,
    rows: u64,
    written: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
) -> std::thread::JoinHandle<std::io::Result<()>> {
    std::thread::spawn(move || {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
        let mut next = 0;
        while next < rows || !over.load(Ordering::Relaxed) {
            let mut burst = String::new();
            for _ in 0..100 {
                burst.push_str(&format!("line {next:09} of the load, with some words after it\n"));
                next += 1;
            }
            file.write_all(burst.as_bytes())?;
            written.store(next, Ordering::Relaxed);
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Ok(())
    })
}

#[test]
fn every_line_is_stored_exactly_once_after_kill_9_of_mixer_bus_and_rack() -> Result<(), Failure> {
    let (kills, rows) = (setting("PLATFORM_TEST_KILLS", 6), setting("PLATFORM_TEST_ROWS", 20_000));
    let mut random = Random::for_test("every_line_is_stored_exactly_once_after_kill_9_of_mixer_bus_and_rack");
    let logs = harness::gear_files()?;
    let file = logs.path().join("app.log");
    let (mut mixer, _scenario) = mixer_with(&tail_scenario(&file))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let (written, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let load = writer(file, rows, Arc::clone(&written), Arc::clone(&over));

    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(200 + random.below(2_000)));
        let victim = kill % 3;
        eprintln!("kill {kill}: {}", ["mixer", "bus", "rack"][victim as usize]);
        match victim {
            0 => {
                mixer.kill9()?;
                std::thread::sleep(Duration::from_millis(random.below(1_000)));
                mixer.restart()?;
            }
            1 => process::kill9(eventually("the bus", Duration::from_secs(30), || mixer.bus_pid().ok())?)?,
            _ => {
                rack.kill9()?;
                std::thread::sleep(Duration::from_millis(random.below(500)));
                rack.spawn()?;
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    load.join().map_err(|_| "the writer died")??;
    let written = written.load(Ordering::Relaxed);

    let telemetry = mixer.telemetry();
    let started = Instant::now();
    let wanted = "message like 'line %'";
    eventually("all rows in DuckDB", Duration::from_secs(120), || {
        let count = duckdb::count(&telemetry, "logs", wanted).ok()?;
        assert!(
            count <= written,
            "{count} rows of {written} lines: something is stored twice"
        );
        (count == written).then_some(())
    })
    .map_err(|error| {
        format!(
            "{error}; rack log:\n{}",
            rack.process().map(|p| p.log_tail()).unwrap_or_default()
        )
    })?;
    eprintln!(
        "{written} lines, all in DuckDB {:?} after the last kill",
        started.elapsed()
    );

    let root = telemetry.join("logs");
    let distinct = format!(
        "select count(distinct message) from read_parquet('{}/**/*.parquet') where {wanted}",
        root.display()
    );
    assert_eq!(duckdb::scalar(&distinct, &telemetry)?, written.to_string());

    let mut seen = vec![false; usize::try_from(written)?];
    for row in mixer
        .api
        .all_rows("/api/v1/telemetry/logs?gear_id=tail&q=of%20the%20load")?
    {
        let message = row["message"].as_str().unwrap_or_default();
        let number: usize = message.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        assert!(
            !std::mem::replace(&mut seen[number], true),
            "line {number} is there twice"
        );
    }
    assert_eq!(
        seen.iter().filter(|seen| !**seen).count(),
        0,
        "lines are missing in REST"
    );
    Ok(())
}
