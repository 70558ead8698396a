//! The Iceberg catalogue of the real programs: what the keys say of it, the command line, exports, several Mixers on one bucket. Engines of
//! others that read it are elsewhere (`outside`).

use std::collections::BTreeSet;
use std::path::Path;

use harness::process::{Finished, run};
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, Random, TestMixer, TestS3, binary, eventually};
use model::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::cli::SOON;

const TABLES: [&str; 5] = ["dead_letters", "logs", "messages", "metrics", "traces"];
const LISTED: &str = "/iceberg/v1/namespaces/telemetry/tables";
const LOGS: &str = "/iceberg/v1/namespaces/telemetry/tables/logs";
/// Files are sealed when they have a megabyte.
const SMALL: (&str, &str) = ("observability.embedded.storage.segment_size_mb", "1");
const OFTEN: (&str, &str) = ("observability.embedded.iceberg.interval", "\"50ms\"");
/// Rows of a body that fills more than one file.
const ROWS: u64 = 400;

fn seal(mixer: &TestMixer, random: &mut Random) -> Result<(), Failure> {
    let now = Timestamp::from(std::time::SystemTime::now());
    let mut line = |row: u64| {
        let noise: String = (0..512).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
        json!({ "ts": now.to_string(), "level": "info", "message": format!("{row} {noise}") })
    };
    let lines: Vec<Value> = (0..ROWS).map(&mut line).collect();
    let sent = mixer.api.post("/api/v1/ingest/logs", &lines.into())?;
    assert_eq!(sent.status, 200, "{}", sent.text);
    Ok(())
}

/// A table as a client loads it, once it is there.
fn load(mixer: &TestMixer, path: &str) -> Option<Value> {
    let answer = mixer.api.get(path).ok()?;
    (answer.status == 200).then_some(answer.json)
}

fn snapshots(loaded: &Value) -> Vec<i64> {
    let all = loaded["metadata"]["snapshots"].as_array().into_iter().flatten();
    all.filter_map(|snapshot| snapshot["snapshot-id"].as_i64()).collect()
}

fn current(loaded: &Value) -> Option<i64> {
    loaded["metadata"]["current-snapshot-id"].as_i64()
}

/// Has another file sealed, and gives the snapshot that has it.
fn next_snapshot(mixer: &TestMixer, random: &mut Random) -> Result<i64, Failure> {
    let before = load(mixer, LOGS).as_ref().and_then(current);
    seal(mixer, random)?;
    eventually("another snapshot", SOON, || {
        let now = load(mixer, LOGS)?;
        current(&now).filter(|id| Some(*id) != before && snapshots(&now).contains(id))
    })
}

/// A table of the catalogue, as the Mixer describes it.
fn described(mixer: &TestMixer, name: &str) -> Option<Value> {
    let catalog = mixer.api.get("/api/v1/catalog").ok()?.json;
    let tables = catalog["data"]["tables"].as_array()?;
    tables.iter().find(|table| table["table"] == name).cloned()
}

fn sealed_files(mixer: &TestMixer) -> Option<u64> {
    let logs = &mixer.api.get("/api/v1/storage").ok()?.json["data"]["tables"]["logs"];
    Some(logs["files"].as_u64()? - logs["open_files"].as_u64()?)
}

#[test]
fn snapshots_come_at_the_interval_and_stay_for_the_snapshot_age() -> Result<(), Failure> {
    let mut random = Random::for_test("snapshots_come_at_the_interval_and_stay_for_the_snapshot_age");
    let age = |age| ("observability.embedded.iceberg.snapshot_age", age);
    for (snapshot_age, is_short) in [("\"1s\"", true), ("\"1h\"", false)] {
        let mixer = TestMixer::with(&[SMALL, OFTEN, age(snapshot_age)], &[])?;
        let empty = eventually("the first publication", SOON, || load(&mixer, LOGS))?;
        assert!(snapshots(&empty).is_empty(), "{empty}");
        let first = next_snapshot(&mixer, &mut random)?;
        let mut is_there = true;
        // Each takes a publication: many of them take longer than the shorter age.
        for _ in 0..if is_short { 50 } else { 3 } {
            next_snapshot(&mixer, &mut random)?;
            is_there = snapshots(&load(&mixer, LOGS).ok_or("no logs")?).contains(&first);
            if !is_there {
                break;
            }
        }
        assert_eq!(is_there, !is_short, "{snapshot_age}");
    }
    let rare = TestMixer::with(&[SMALL, ("observability.embedded.iceberg.interval", "\"5m\"")], &[])?;
    eventually("the first publication", SOON, || load(&rare, LOGS))?;
    seal(&rare, &mut random)?;
    eventually("a sealed file", SOON, || (sealed_files(&rare)? > 0).then_some(()))?;
    let logs = described(&rare, "logs").ok_or("no logs")?;
    let of = |key: &str| logs[key].as_u64();
    assert_eq!(
        (of("version"), of("rows"), of("waiting_rows")),
        (Some(1), Some(0), Some(ROWS))
    );
    Ok(())
}

#[test]
fn a_catalogue_that_is_switched_off_is_neither_written_nor_served() -> Result<(), Failure> {
    let off = TestMixer::with(&[("observability.embedded.iceberg.enabled", "false")], &[])?;
    let refused = off.api.get(LISTED)?;
    assert_eq!(refused.status, 406, "{}", refused.text);
    assert_eq!(refused.json["error"]["type"], "UnsupportedOperationException");
    assert!(!off.path().join("data/iceberg").exists());
    assert_eq!(off.api.metric("platform_iceberg_tables"), None);
    let shown = off.platform(&["catalog"])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(
        shown.err.contains("observability.embedded.iceberg.enabled is false"),
        "{}",
        shown.err
    );

    let one = off.platform(&["catalog", "logs"])?;
    assert!(
        one.code != Some(0) && one.err.contains("observability.embedded.iceberg.enabled is false"),
        "{}",
        one.err
    );

    let on = TestMixer::with(&[OFTEN], &[])?;
    let listed = eventually("the first publication", SOON, || load(&on, LISTED))?;
    assert_eq!(listed["identifiers"].as_array().map(Vec::len), Some(TABLES.len()));
    assert!(
        on.path()
            .join("data/iceberg/telemetry/logs/metadata/v1.metadata.json")
            .is_file()
    );
    eventually("its metrics", SOON, || {
        (on.api.metric("platform_iceberg_tables")? == 5.0).then_some(())
    })?;
    assert_eq!(on.api.metric("platform_iceberg_publish_failures_total"), Some(0.0));
    for name in ["version", "lag_seconds"] {
        let of_logs = format!("platform_iceberg_{name}{{table=\"logs\"}}");
        assert!(on.api.metric(&of_logs).is_some(), "{of_logs}");
    }
    Ok(())
}

#[test]
fn what_is_served_is_what_lies_in_the_store_and_counts_each_sealed_row_once() -> Result<(), Failure> {
    let mut random = Random::for_test("what_is_served_is_what_lies_in_the_store");
    let mut mixer = TestMixer::with(&[SMALL, OFTEN], &[])?;
    seal(&mixer, &mut random)?;
    let rows_of = |mixer: &TestMixer| {
        let logs = described(mixer, "logs")?;
        Some((logs["rows"].as_u64()?, logs["waiting_rows"].as_u64()?))
    };
    eventually("rows in the catalogue", SOON, || {
        let (rows, waiting) = rows_of(&mixer)?;
        assert_eq!(rows + waiting, ROWS);
        (rows > 0).then_some(())
    })?;
    let loaded = load(&mixer, LOGS).ok_or("no logs")?;
    let file = |uri: &str| uri.strip_prefix("file://").map(|path| Path::new(path).to_owned());
    let location = loaded["metadata-location"].as_str().and_then(file).ok_or("no file")?;
    let written: Value = serde_json::from_slice(&std::fs::read(&location)?)?;
    assert_eq!(written, loaded["metadata"], "{}", location.display());
    for snapshot in written["snapshots"].as_array().into_iter().flatten() {
        let list = snapshot["manifest-list"]
            .as_str()
            .and_then(file)
            .ok_or("no manifest list")?;
        assert!(list.is_file(), "{}", list.display());
    }
    // Started again, it goes on from what is there.
    let before = snapshots(&loaded);
    assert!(mixer.path().join("data/iceberg/files").is_dir());
    assert!(mixer.process()?.terminate(SOON)?.success());
    mixer.restart()?;
    let after = eventually("the catalogue after a restart", SOON, || load(&mixer, LOGS))?;
    assert_eq!(after["metadata"]["table-uuid"], loaded["metadata"]["table-uuid"]);
    assert!(snapshots(&after).contains(before.last().ok_or("no snapshot")?));
    // Switched off, it keeps no link of a data file.
    assert!(mixer.process()?.terminate(SOON)?.success());
    let config = mixer.path().join("platform-mixer.toml");
    let off = "observability.embedded.iceberg.enabled = false\n";
    std::fs::write(&config, std::fs::read_to_string(&config)? + off)?;
    mixer.restart()?;
    assert!(!mixer.path().join("data/iceberg/files").exists());
    // Nor does it name tables to Mixers that only read.
    let names = mixer.path().join("data/iceberg/telemetry/tables.json");
    eventually("an empty list of tables", SOON, || {
        (std::fs::read_to_string(&names).ok()? == "[]").then_some(())
    })?;
    Ok(())
}

#[test]
fn the_command_shows_all_tables_or_one_in_every_format() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[OFTEN], &[])?;
    eventually("the first publication", SOON, || load(&mixer, LISTED))?;
    let answer = |args: &[&str]| -> Result<String, Failure> {
        let done = mixer.platform(&[&["catalog"], args].concat())?;
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        Ok(done.out)
    };
    let page = answer(&[])?;
    for table in TABLES {
        let is_its_row = |line: &&str| line.split_whitespace().next() == Some(table);
        assert!(page.lines().any(|line| is_its_row(&line)), "{table}: {page}");
    }
    let names = |rows: &[Value]| -> Vec<String> {
        let named = rows.iter().filter_map(|row| row["table"].as_str());
        named.map(str::to_owned).collect()
    };
    let json: Vec<Value> = serde_json::from_str(&answer(&["-o", "json"])?)?;
    assert_eq!(names(&json), TABLES);
    let keys = |row: &Value| row.as_object().map(|row| row.keys().cloned().collect::<BTreeSet<_>>());
    assert_eq!(keys(&json[0]), described(&mixer, "logs").as_ref().and_then(keys));
    let lines = answer(&["-o", "ndjson"])?;
    assert_eq!(lines.lines().count(), TABLES.len());
    let csv = answer(&["-o", "csv"])?;
    assert!(csv.starts_with("table,files,rows,bytes,latest,waiting_rows,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + TABLES.len());

    let one = answer(&["logs"])?;
    assert!(one.lines().any(|line| line.starts_with("version ")), "{one}");
    let one: Vec<Value> = serde_json::from_str(&answer(&["logs", "-o", "json"])?)?;
    assert_eq!(names(&one), ["logs"]);
    let unknown = mixer.platform(&["catalog", "lgs"])?;
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("did you mean logs?"), "{}", unknown.err);
    Ok(())
}

fn export(mixer: &TestMixer, args: &[&str]) -> Result<Finished, Failure> {
    let args = [&["export", "iceberg"], args].concat();
    run(&binary("platform-mixer")?, &args, mixer.path(), &[])
}

#[test]
fn an_exported_catalogue_has_the_sealed_files_beside_a_running_mixer_and_without_one() -> Result<(), Failure> {
    let mut random = Random::for_test("an_exported_catalogue_has_the_sealed_files");
    let mut mixer = TestMixer::with(&[SMALL, OFTEN], &[])?;
    seal(&mixer, &mut random)?;
    eventually("rows in the catalogue", SOON, || {
        (described(&mixer, "logs")?["rows"].as_u64()? > 0).then_some(())
    })?;
    // What is still open may be sealed at any time.
    let sealed = |mixer: &TestMixer| described(mixer, "logs").and_then(|logs| logs["rows"].as_u64());
    let before = sealed(&mixer).ok_or("no rows")?;
    let done = export(&mixer, &["out"])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    let locations: Vec<(&str, &str)> = done
        .out
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(table, location)| (table, location.trim()))
        .collect();
    assert_eq!(locations.iter().map(|(table, _)| *table).collect::<Vec<_>>(), TABLES);
    let metadata = |location: &str| -> Result<Value, Failure> {
        let path = location.strip_prefix("file://").ok_or("no file")?;
        assert!(
            path.contains("/out/telemetry/") && path.ends_with("/v1.metadata.json"),
            "{path}"
        );
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    };
    let rows = |metadata: &Value| -> Option<u64> {
        metadata["snapshots"][0]["summary"]["total-records"]
            .as_str()?
            .parse()
            .ok()
    };
    let logs = metadata(locations[1].1)?;
    let exported = rows(&logs).ok_or("no rows")?;
    assert!((before..=ROWS).contains(&exported), "{before} {exported}");
    assert_eq!(metadata(locations[4].1)?["snapshots"].as_array().map_or(0, Vec::len), 0);

    assert!(mixer.process()?.terminate(SOON)?.success());
    let alone = export(&mixer, &["alone/folder", "-o", "json"])?;
    assert_eq!(alone.code, Some(0), "{}", alone.err);
    let alone: Value = serde_json::from_str(&alone.out)?;
    assert_eq!(alone["tables"].as_array().map(Vec::len), Some(TABLES.len()));
    assert_eq!(alone["tables"][1]["table"], "logs");
    Ok(())
}

#[test]
fn an_export_that_cannot_be_made_says_what_to_do_and_leaves_no_file() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[OFTEN], &[])?;
    std::fs::create_dir(mixer.path().join("used"))?;
    std::fs::write(mixer.path().join("used/file"), "mine")?;
    std::fs::create_dir(mixer.path().join("empty"))?;
    for taken in ["used", "used/file"] {
        let done = export(&mixer, &[taken])?;
        assert_eq!(done.code, Some(64), "{taken}: {}", done.err);
        assert!(done.err.contains("not an empty folder"), "{}", done.err);
    }
    assert_eq!(std::fs::read_dir(mixer.path().join("used"))?.count(), 1);
    assert_eq!(export(&mixer, &["empty"])?.code, Some(0), "an empty one does");
    for inside in ["data/out", "data/iceberg/new/out"] {
        let done = export(&mixer, &[inside])?;
        assert_eq!(done.code, Some(64), "{inside}: {}", done.err);
        assert!(done.err.contains("inside store.dir"), "{}", done.err);
        assert!(!mixer.path().join(inside).exists());
    }

    let nowhere = tempfile::tempdir()?;
    let args = ["export", "iceberg", "out"];
    let done = run(&binary("platform-mixer")?, &args, nowhere.path(), &[])?;
    assert!(
        done.code != Some(0) && done.err.contains("data"),
        "{:?} {}",
        done.code,
        done.err
    );
    assert!(!nowhere.path().join("out").exists());
    let url = [("PLATFORM_OBSERVABILITY_EMBEDDED_STORAGE_URL", "s3://telemetry/plant")];
    let done = run(&binary("platform-mixer")?, &args, nowhere.path(), &url)?;
    assert_eq!(done.code, Some(64));
    assert!(
        done.err.contains("s3://telemetry/plant/iceberg/telemetry/"),
        "{}",
        done.err
    );
    Ok(())
}

#[test]
fn an_export_that_misses_a_file_leaves_no_folder() -> Result<(), Failure> {
    let mut random = Random::for_test("an_export_that_misses_a_file_leaves_no_folder");
    let mut mixer = TestMixer::with(&[SMALL, OFTEN], &[])?;
    seal(&mixer, &mut random)?;
    eventually("rows in the catalogue", SOON, || {
        (described(&mixer, "logs")?["rows"].as_u64()? > 0).then_some(())
    })?;
    assert_eq!(export(&mixer, &["whole/out"])?.code, Some(0));
    assert!(mixer.process()?.terminate(SOON)?.success());
    let files = mixer.path().join("whole/out/files");
    assert!(!files.exists(), "it has no data files");
    let tree = mixer.telemetry().join("logs");
    let away = mixer.path().join("away");
    std::fs::rename(&tree, &away)?;
    let done = export(&mixer, &["made/out"])?;
    assert!(
        done.code != Some(0) && done.err.contains(".parquet"),
        "{:?} {}",
        done.code,
        done.err
    );
    assert!(!mixer.path().join("made").exists());
    std::fs::create_dir(mixer.path().join("there"))?;
    assert_ne!(export(&mixer, &["there"])?.code, Some(0));
    assert_eq!(std::fs::read_dir(mixer.path().join("there"))?.count(), 0);
    std::fs::rename(&away, &tree)?;
    assert_eq!(export(&mixer, &["made/out"])?.code, Some(0));
    Ok(())
}

#[test]
fn every_mixer_on_a_bucket_serves_the_same_metadata() -> Result<(), Failure> {
    let server = Runtime::new()?.block_on(TestS3::start())?;
    let url = server.url();
    let envs = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL", url.as_str()),
    ];
    let bucket = format!("\"s3://{BUCKET}/plant/a\"");
    let at_bucket = ("observability.embedded.storage.url", bucket.as_str());
    let soon = ("observability.embedded.storage.upload_interval", "\"200ms\"");
    let writing = TestMixer::with(&[at_bucket, soon, OFTEN], &envs)?;
    let now = chrono::Utc::now().to_rfc3339();
    let line = json!([{ "ts": now, "level": "info", "entity_name": "edge-1", "message": "of an open file" }]);
    let sent = writing.api.post("/api/v1/ingest/logs?durable=bucket", &line)?;
    assert_eq!(sent.status, 200, "{}", sent.text);
    eventually("the row in the catalogue", SOON, || {
        (described(&writing, "logs")?["rows"] == 1).then_some(())
    })?;
    let reading = TestMixer::with(
        &[at_bucket, ("observability.embedded.storage.read_only", "true")],
        &envs,
    )?;
    let (written, read) = eventually("the same version at both", SOON, || {
        let (written, read) = (load(&writing, LOGS)?, load(&reading, LOGS)?);
        (written["metadata-location"] == read["metadata-location"]).then_some((written, read))
    })?;
    assert_eq!(written, read);
    let location = read["metadata-location"].as_str().ok_or("no location")?;
    let below = format!("s3://{BUCKET}/plant/a/iceberg/telemetry/logs/metadata/");
    assert!(location.starts_with(&below), "{location}");
    assert_eq!(read["config"]["s3.endpoint"], url);
    assert_eq!(
        (&read["config"]["s3.region"], &read["config"]["client.region"]),
        (&json!("us-east-1"), &json!("us-east-1"))
    );
    let config = read["config"].to_string();
    assert!(!config.contains(SECRET) && !config.contains(KEY), "{config}");
    let catalog = reading.api.get("/api/v1/catalog")?.json;
    assert_eq!(
        (&catalog["data"]["publishes"], &catalog["data"]["trouble"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(
        reading.api.metric("platform_iceberg_tables"),
        None,
        "it publishes nothing"
    );
    Ok(())
}
