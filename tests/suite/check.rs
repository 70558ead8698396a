//! `platform-mixer check` finds damage that readers of Parquet do not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::HeaderMap;
use harness::{Failure, TestMixer, binary, duckdb, eventually, process};
use model::{Timestamp, telemetry_codec};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

fn check(folder: &Path, args: &[&str]) -> Result<process::Finished, Failure> {
    let args: Vec<&str> = ["check"].iter().chain(args).copied().collect();
    process::run(&binary("platform-mixer")?, &args, folder, &[])
}

fn first_file(folder: &Path) -> Result<PathBuf, Failure> {
    let entry = std::fs::read_dir(folder)?.next().ok_or("an empty folder")??;
    if entry.path().is_dir() {
        return first_file(&entry.path());
    }
    Ok(entry.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_data_file_is_found_and_the_file_is_named() -> Result<(), Failure> {
    let mut mixer = tokio::task::spawn_blocking(|| TestMixer::start("")).await??;
    let js = async_nats::jetstream::with_domain(mixer.operator()?.connect(&mixer.bus_url).await?, "flux");
    let mut headers = HeaderMap::new();
    headers.insert(telemetry_codec::CONTENT_TYPE, "application/json");
    let now = Timestamp::from(std::time::SystemTime::now()).to_string();
    let line = json!({ "ts": now, "level": "info", "message": "a row that matters" }).to_string();
    let sent = js.publish_with_headers("flux.telemetry.logs.script", headers, line.into());
    sent.await?.await?;
    tokio::task::block_in_place(|| {
        eventually("the row in a file", SOON, || {
            (duckdb::count(&mixer.telemetry(), "logs", "true").ok()? == 1).then_some(())
        })?;
        let beside = check(mixer.path(), &["--deep"])?;
        assert_eq!(beside.code, Some(0), "{}{}", beside.out, beside.err);
        assert!(beside.out.contains("no damage"), "{}", beside.out);
        let held = check(mixer.path(), &["--rebuild-index"])?;
        assert_eq!(held.code, Some(69), "{}", held.err);
        assert!(mixer.process()?.terminate(Duration::from_secs(20))?.success());
        let indexed = check(mixer.path(), &["--rebuild-index"])?;
        assert_eq!(indexed.code, Some(0), "{}", indexed.err);
        assert!(
            indexed.out.starts_with("0 indexes"),
            "nothing is sealed: {}",
            indexed.out
        );

        let file = first_file(&mixer.telemetry().join("logs"))?;
        let mut bytes = std::fs::read(&file)?;
        bytes[20] ^= 1;
        std::fs::write(&file, bytes)?;
        assert_eq!(
            check(mixer.path(), &[])?.code,
            Some(0),
            "its footer and length are right"
        );
        let deep = check(mixer.path(), &["--deep"])?;
        assert_eq!(deep.code, Some(65), "{}", deep.err);
        // The configuration names the store by a path from its folder.
        let name = format!("./{}", file.strip_prefix(mixer.path())?.display());
        assert!(
            deep.out.contains(&name) && deep.out.contains("checksum"),
            "{}",
            deep.out
        );
        let deep = check(mixer.path(), &["--deep", "--output", "json"])?;
        let report: Value = serde_json::from_str(&deep.out)?;
        assert_eq!(report["problems"][0]["path"], name);
        assert_eq!(report["problems"][0]["rows"], 1);

        std::fs::remove_file(&file)?;
        let missing = check(mixer.path(), &[])?;
        assert_eq!(missing.code, Some(65));
        assert!(
            missing.out.contains(&name) && missing.out.contains("missing"),
            "{}",
            missing.out
        );
        let empty = tempfile::tempdir()?;
        let none = check(empty.path(), &[])?;
        assert_eq!(none.code, Some(78));
        assert!(none.err.contains("store.dir"), "{}", none.err);
        Ok(())
    })
}

/// Files below a folder whose names begin so.
fn files_named(folder: &Path, prefixes: &[&str], found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            files_named(&path, prefixes, found)?;
        } else if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            found.push(path);
        }
    }
    Ok(())
}

async fn send(js: &async_nats::jetstream::Context, numbers: std::ops::Range<usize>) -> Result<(), Failure> {
    for number in numbers {
        let mut headers = HeaderMap::new();
        headers.insert(telemetry_codec::CONTENT_TYPE, "application/json");
        let now = Timestamp::from(std::time::SystemTime::now()).to_string();
        let line = json!({ "ts": now, "level": "info", "message": format!("row {number:03} that matters") });
        let sent = js.publish_with_headers("flux.telemetry.logs.script", headers, line.to_string().into());
        sent.await?.await?;
    }
    Ok(())
}

/// The numbers of the rows that REST has, in order.
fn numbers(mixer: &TestMixer) -> Result<Vec<usize>, Failure> {
    let mut all = Vec::new();
    for row in mixer.api.all_rows("/api/v1/telemetry/logs?q=that%20matters")? {
        let message = row["message"].as_str().unwrap_or_default().to_owned();
        all.push(message.split_whitespace().nth(1).ok_or("no number")?.parse()?);
    }
    all.sort_unstable();
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_catalogue_is_rebuilt_after_a_kill_and_every_row_is_there_once() -> Result<(), Failure> {
    let mut mixer = tokio::task::spawn_blocking(|| TestMixer::start("")).await??;
    let js = async_nats::jetstream::with_domain(mixer.operator()?.connect(&mixer.bus_url).await?, "flux");
    send(&js, 0..40).await?;
    tokio::task::block_in_place(|| {
        eventually("the first rows in a file", SOON, || {
            (duckdb::count(&mixer.telemetry(), "logs", "true").ok()? == 40).then_some(())
        })
    })?;
    send(&js, 40..60).await?;
    tokio::task::block_in_place(|| {
        eventually("all rows in REST", SOON, || {
            (numbers(&mixer).ok()?.len() == 60).then_some(())
        })?;
        let beside = check(mixer.path(), &["--repair"])?;
        assert_eq!(beside.code, Some(69), "{}", beside.err);
        assert!(beside.err.contains("in use by process"), "{}", beside.err);
        mixer.kill9()?;

        let mut catalogue = Vec::new();
        files_named(mixer.path(), &["checkpoint_", "catalogue_"], &mut catalogue)?;
        assert!(catalogue.len() >= 2, "{catalogue:?}");
        for path in &catalogue {
            let mut bytes = std::fs::read(path)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(path, bytes)?;
        }
        let refused = process::run(&binary("platform-mixer")?, &[], mixer.path(), &[])?;
        assert_eq!(refused.code, Some(65), "{}", refused.err);
        assert!(
            refused.err.contains("platform-mixer check --rebuild"),
            "{}",
            refused.err
        );
        let repair = check(mixer.path(), &["--repair"])?;
        assert_eq!(repair.code, Some(65));
        assert!(repair.err.contains("check --rebuild"), "{}", repair.err);

        let rebuilt = check(mixer.path(), &["--rebuild"])?;
        assert_eq!(rebuilt.code, Some(0), "{}{}", rebuilt.out, rebuilt.err);
        assert!(
            rebuilt.out.contains("a new catalogue of") && rebuilt.out.contains("the old catalogue is kept in"),
            "{}",
            rebuilt.out
        );
        mixer.restart()?;
        let wanted: Vec<usize> = (0..60).collect();
        eventually("all rows in files", SOON, || {
            (duckdb::count(&mixer.telemetry(), "logs", "message like 'row %'").ok()? >= 60).then_some(())
        })?;
        assert_eq!(duckdb::count(&mixer.telemetry(), "logs", "message like 'row %'")?, 60);
        assert_eq!(numbers(&mixer)?, wanted);
        let deep = check(mixer.path(), &["--deep"])?;
        assert_eq!(deep.code, Some(0), "{}{}", deep.out, deep.err);
        let whole = check(mixer.path(), &["--rebuild"])?;
        assert_eq!(whole.code, Some(69), "{}", whole.err);
        Ok(())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_taken_out_of_the_store_by_a_repair() -> Result<(), Failure> {
    let mut mixer = tokio::task::spawn_blocking(|| TestMixer::start("")).await??;
    let js = async_nats::jetstream::with_domain(mixer.operator()?.connect(&mixer.bus_url).await?, "flux");
    send(&js, 0..3).await?;
    tokio::task::block_in_place(|| {
        eventually("the rows in a file", SOON, || {
            (duckdb::count(&mixer.telemetry(), "logs", "true").ok()? == 3).then_some(())
        })?;
        assert!(mixer.process()?.terminate(Duration::from_secs(20))?.success());
        let file = first_file(&mixer.telemetry().join("logs"))?;
        let mut bytes = std::fs::read(&file)?;
        bytes[20] ^= 1;
        std::fs::write(&file, bytes)?;
        let repaired = check(mixer.path(), &["--deep", "--repair"])?;
        assert_eq!(repaired.code, Some(65), "{}{}", repaired.out, repaired.err);
        assert!(repaired.err.contains("3 rows leave the store"), "{}", repaired.err);
        assert!(!file.exists());
        let again = check(mixer.path(), &["--deep", "--repair"])?;
        assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
        mixer.restart()?;
        assert_eq!(
            numbers(&mixer)?,
            [0, 1, 2],
            "the file was open, and the log still has its rows"
        );
        Ok(())
    })
}
