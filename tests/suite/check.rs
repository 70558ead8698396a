//! `platform-mixer check` finds damage that readers of Parquet do not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::HeaderMap;
use harness::{Failure, TestMixer, binary, duckdb, eventually, process};
use model::{Timestamp, wire};
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
    let js = async_nats::jetstream::with_domain(async_nats::connect(&mixer.bus_url).await?, "flux");
    let mut headers = HeaderMap::new();
    headers.insert(wire::CONTENT_TYPE, "application/json");
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
        assert!(mixer.process()?.terminate(Duration::from_secs(20))?.success());

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
