//! `[store]`, `[observability.embedded]` and the form of data files, as an outside reader sees them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Failure, TestMixer, duckdb, eventually};
use model::Timestamp;
use serde_json::{Value, json};

use super::{SOON, names_in};

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

fn line(ts: Timestamp, message: &str) -> Value {
    json!({ "ts": ts.to_string(), "level": "info", "message": message })
}

/// The data files of a table, by their path below it.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names_in(&folder) {
            let path = folder.join(name);
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
            }
        }
    }
    found
}

/// What DuckDB says of the first data file of a table.
fn of_file(root: &Path, what: &str, from: &str) -> Result<String, Failure> {
    let file = eventually("a data file", SOON, || files(root).into_iter().next())?;
    let sql = format!("select {what} from {from}('{}')", root.join(file).display());
    duckdb::scalar(&sql, root)
}

#[test]
fn the_store_lies_and_looks_as_the_keys_say() -> Result<(), Failure> {
    let mixer = TestMixer::with(
        &[
            ("store.cluster_key_file", "\"me.key\""),
            ("store.wal_max_size_mb", "3"),
            ("observability.embedded.data_dir", "\"tree\""),
            ("observability.embedded.flush_interval", "\"100ms\""),
            ("observability.embedded.storage.partition_by", "\"day\""),
            ("observability.embedded.storage.compression", "\"snappy\""),
            ("observability.embedded.storage.json_type", "\"string\""),
            ("observability.embedded.storage.memory_limit_mb", "64"),
            ("observability.embedded.rotation.max_age_days", "1"),
        ],
        &[("PLATFORM_STORE_DIR", "house")],
    )?;
    let (tree, house) = (mixer.path().join("tree"), names_in(&mixer.path().join("house")));
    assert!(house.contains("me.key") && !house.contains("cluster.key"), "{house:?}");
    assert!(house.contains("js") && !mixer.path().join("data").exists(), "{house:?}");
    assert_eq!(
        mixer.api.metric("platform_engine_wal_max_bytes"),
        Some(f64::from(3 << 20))
    );
    assert_eq!(
        mixer.api.metric("platform_engine_memtable_max_bytes"),
        Some(f64::from(24 << 20))
    );

    let bus = mixer.bus()?;
    // Twelve rows, each published before the next is sent: with the default tick of 5 s that takes 55 s and more.
    let began = Instant::now();
    for number in 0..12 {
        bus.send("logs", "script", &json!([line(now(), &format!("row {number}"))]))?;
        let wanted = format!("message = 'row {number}'");
        eventually("the row in DuckDB", SOON, || {
            (duckdb::count(&tree, "logs", &wanted).ok()? == 1).then_some(())
        })?;
    }
    assert!(
        began.elapsed() < Duration::from_secs(50),
        "flush_interval: {:?}",
        began.elapsed()
    );
    let logs = tree.join("logs");
    let deep: Vec<usize> = files(&logs).iter().map(|file| file.components().count()).collect();
    assert!(
        !deep.is_empty() && deep.iter().all(|depth| *depth == 4),
        "YYYY/MM/DD/file: {deep:?}"
    );
    assert_eq!(of_file(&logs, "any_value(compression)", "parquet_metadata")?, "SNAPPY");
    let kind = "any_value(logical_type) filter (name = 'attributes')";
    assert_eq!(of_file(&logs, kind, "parquet_schema")?, "StringType()");

    let old = now().micros() - 2 * 86_400_000_000;
    bus.send(
        "logs",
        "script",
        &json!([line(Timestamp::from_micros(old), "older than a day")]),
    )?;
    let wanted = "message = 'older than a day' and attributes like '%_ts_original%'";
    eventually("the old row under the time of its arrival", SOON, || {
        (duckdb::count(&tree, "logs", wanted).ok()? == 1).then_some(())
    })?;
    Ok(())
}

#[test]
fn data_files_are_sealed_at_their_size_and_may_be_uncompressed() -> Result<(), Failure> {
    let mixer = TestMixer::with(
        &[
            ("logging.debug", "true"),
            ("observability.embedded.storage.compression", "\"none\""),
            ("observability.embedded.storage.segment_size_mb", "1"),
        ],
        &[],
    )?;
    let bus = mixer.bus()?;
    for batch in 0..4 {
        let lines: Vec<Value> = (0..100)
            .map(|row| line(now(), &format!("{batch} {row} {}", "x".repeat(8_000))))
            .collect();
        bus.send("logs", "script", &Value::from(lines))?;
    }
    eventually("a sealed file", SOON, || {
        (mixer.api.metric("platform_engine_seals_total")? >= 1.0).then_some(())
    })?;
    let logs = mixer.telemetry().join("logs");
    assert_eq!(
        of_file(&logs, "any_value(compression)", "parquet_metadata")?,
        "UNCOMPRESSED"
    );
    let kind = "any_value(logical_type) filter (name = 'attributes')";
    assert_eq!(of_file(&logs, kind, "parquet_schema")?, "JsonType()", "the default");
    let deep: Vec<usize> = files(&logs).iter().map(|file| file.components().count()).collect();
    assert!(
        deep.iter().all(|depth| *depth == 5),
        "YYYY/MM/DD/HH/file is the default: {deep:?}"
    );
    eventually("a debug line", SOON, || {
        super::text_of(&mixer.path().join("logs/mixer.log"))
            .contains(" DEBUG ")
            .then_some(())
    })?;
    Ok(())
}
