//! Readers from outside: what `platform.sql`, `platform-mixer export` and `platform schema` promise them.

mod export;
mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use harness::{Api, Failure, Random, TestMixer, duckdb, eventually};
use model::Timestamp;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const ROWS: u64 = 60;
/// Rows of the writer, and of nobody else.
const OURS: &str = "entity_name = 'http' AND message LIKE 'row %'";

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

fn views(mixer: &TestMixer) -> PathBuf {
    mixer.path().join("data/platform.sql")
}

/// Stores a batch of numbered rows, half of them of now and half of 40 days ago, with attributes that do not compress.
fn write(api: &Api, random: &mut Random, batch: u64) -> Result<(), Failure> {
    write_at(api, random, batch, now())
}

fn write_at(api: &Api, random: &mut Random, batch: u64, newer: Timestamp) -> Result<(), Failure> {
    let lines: String = (0..ROWS)
        .map(|row| {
            let number = batch * ROWS + row;
            let ts = if row % 2 == 0 { newer } else { newer.minus(DAY * 40) };
            let noise: String = (0..250).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
            let line = json!({
                "ts": ts.to_string(), "level": "warn", "message": format!("row {number:08}"),
                "flux_id": "018f6f1e-7f6a-7c3e-9d5b-0123456789ab", "attributes": { "http.noise": noise, "n": number },
            });
            format!("{line}\n")
        })
        .collect();
    let answer = api.send(
        "/api/v1/ingest/logs",
        &[("Content-Type", "application/x-ndjson")],
        lines.as_bytes(),
    )?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    Ok(())
}

/// The rows as the API has them, by message.
fn of_api(api: &Api) -> Result<BTreeMap<String, Value>, Failure> {
    let rows = api.all_rows("/api/v1/telemetry/logs?entity=http&since=1500h")?;
    let mut found = BTreeMap::new();
    for row in rows {
        let message = row["message"].as_str().unwrap_or_default().to_owned();
        assert!(
            found.insert(message, Value::from(row)).is_none(),
            "a row twice in the API"
        );
    }
    Ok(found)
}

/// The rows that a reader prints when asked, by message.
fn rows(reader: &mut duckdb::Session, statement: &str) -> Result<BTreeMap<String, Value>, Failure> {
    let mut found = BTreeMap::new();
    for line in reader.ask(statement)? {
        let row: Value = serde_json::from_str(&line)?;
        let message = row["message"].as_str().unwrap_or_default().to_owned();
        assert!(found.insert(message, row).is_none(), "a row twice: {line}");
    }
    Ok(found)
}

/// The rows as the views have them, by message.
fn of_duckdb(session: &mut duckdb::Session) -> Result<BTreeMap<String, Value>, Failure> {
    let statement = format!(
        "SELECT to_json(row) FROM (SELECT * REPLACE (strftime(ts AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ') AS ts) \
         FROM logs WHERE {OURS}) row"
    );
    rows(session, &statement)
}

/// Waits until a session has what the API has, every column of it.
fn same(session: &mut duckdb::Session, api: &Api) -> Result<usize, Failure> {
    eventually("the API's rows in DuckDB", SOON, || {
        let (theirs, ours) = (of_duckdb(session).ok()?, of_api(api).ok()?);
        if theirs.len() != ours.len() {
            return None;
        }
        assert_eq!(theirs, ours);
        Some(ours.len())
    })
}

#[test]
fn a_session_on_platform_sql_has_the_rows_of_the_api_while_they_are_published_sealed_and_removed() -> Result<(), Failure>
{
    let rules = |days: u32| {
        format!(
            "[observability.embedded]\nflush_interval = \"100ms\"\n\
             [observability.embedded.storage]\nsegment_size_mb = 1\n\
             [observability.embedded.rotation]\nmax_age_days = {days}\ncheck_interval = \"100ms\"\n"
        )
    };
    let mut mixer = TestMixer::start(&rules(60))?;
    let mut random = Random::for_test("a_session_on_platform_sql_has_the_rows_of_the_api");
    eventually("the file of views", SOON, || views(&mixer).is_file().then_some(()))?;
    let mut early = duckdb::Session::open(&views(&mixer), &mixer.path().join("early.log"))?;
    assert_eq!(early.ask("SELECT count(*) FROM logs")?, ["0"]);

    write(&mixer.api, &mut random, 0)?;
    eventually("views of data files", SOON, || {
        let text = std::fs::read_to_string(views(&mixer)).ok()?;
        text.contains("/telemetry/logs/**/*.parquet").then_some(())
    })?;
    let mut session = duckdb::Session::open(&views(&mixer), &mixer.path().join("session.log"))?;

    // While rows come, an answer has no row that the API lacks, and each that an earlier answer had.
    let (is_over, looks) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| -> Result<(), Failure> {
        let writer = scope.spawn(|| {
            let written = (1..40).try_for_each(|batch: u64| -> Result<(), Failure> {
                let behind = u32::try_from(batch / 10)?;
                eventually("a look at every ten batches", SOON, || {
                    (looks.load(Ordering::Acquire) >= behind).then_some(())
                })?;
                write(&mixer.api, &mut random, batch)
            });
            is_over.store(true, Ordering::Release);
            written
        });
        let mut before = BTreeSet::new();
        while !is_over.load(Ordering::Acquire) {
            let theirs = of_duckdb(&mut session)?;
            let ours = of_api(&mixer.api)?;
            assert!(theirs.iter().all(|(message, row)| ours.get(message) == Some(row)));
            let seen: BTreeSet<String> = theirs.into_keys().collect();
            assert!(before.is_subset(&seen), "rows went: {:?}", before.difference(&seen));
            before = seen;
            looks.fetch_add(1, Ordering::AcqRel);
        }
        writer.join().unwrap()
    })?;
    let looks = looks.into_inner();
    assert_eq!(same(&mut session, &mixer.api)?, 40 * 60);
    let metric = |mixer: &TestMixer, name: &str| mixer.api.metric(name);
    let seals = metric(&mixer, "platform_engine_seals_total");
    println!("{looks} looks, {seals:?} seals");
    assert!(looks >= 3 && seals >= Some(2.0));
    // The text changed with the first rows of a table, not with every publish.
    let written = metric(&mixer, "platform_views_written_total");
    assert!(written >= Some(1.0) && written <= Some(4.0), "{written:?}");
    assert_eq!(metric(&mixer, "platform_views_failures_total"), Some(0.0));

    // Partitions go while the session goes on: it may be told so, and then it has what is left.
    assert!(mixer.process()?.terminate(Duration::from_secs(30))?.success());
    assert_eq!(of_duckdb(&mut session)?.len(), 40 * 60, "without a Mixer");
    let file = mixer.path().join("platform-mixer.toml");
    let toml = std::fs::read_to_string(&file)?.replace("max_age_days = 60", "max_age_days = 30");
    std::fs::write(&file, toml)?;
    mixer.restart()?;
    write(&mixer.api, &mut random, 40)?;
    eventually("the end of the old partition", SOON, || match of_duckdb(&mut session) {
        Ok(rows) => rows
            .values()
            .all(|row| row["ts"].as_str() > Some(&now().minus(DAY * 2).to_string()))
            .then_some(()),
        Err(error) => {
            assert!(error.to_string().contains("IO Error"), "{error}");
            None
        }
    })?;
    // Rows that are too old for the rules count as of their arrival.
    assert_eq!(same(&mut session, &mixer.api)?, 40 * 30 + 60);
    Ok(())
}

#[test]
fn views_have_the_rows_of_every_form_of_file_that_duckdb_reads_and_name_the_one_it_does_not() -> Result<(), Failure> {
    let storage = |format: &str, compression: &str| {
        format!(
            "[observability.embedded]\nflush_interval = \"100ms\"\n[observability.embedded.rotation]\nmax_age_days = 60\n\
             [observability.embedded.storage]\nformat = \"{format}\"\ncompression = \"{compression}\"\n"
        )
    };
    let mut random = Random::for_test("views_have_the_rows_of_every_form_of_file");
    let forms = [
        ("json", "zstd"),
        ("json", "none"),
        ("parquet", "zstd"),
        ("json", "snappy"),
    ];
    let mut mixer = TestMixer::start(&storage(forms[0].0, forms[0].1))?;
    let open = |mixer: &TestMixer| duckdb::Session::open(&views(mixer), &mixer.path().join("session.log"));
    for (batch, (format, compression)) in (0..).zip(forms) {
        let file = mixer.path().join("platform-mixer.toml");
        let toml = std::fs::read_to_string(&file)?;
        let (before, _) = toml.split_once("[observability.embedded]").ok_or("no section")?;
        assert!(mixer.process()?.terminate(SOON)?.success());
        std::fs::write(&file, format!("{before}{}", storage(format, compression)))?;
        mixer.restart()?;
        // Each in an hour of its own: an open file keeps its form.
        let hours = u32::try_from(batch)? * 2;
        write_at(&mixer.api, &mut random, batch, now().minus(DAY / 24 * hours))?;
        // The end of a Mixer publishes, and tells the last of it.
        assert!(mixer.process()?.terminate(SOON)?.success());
        let mut session = open(&mixer)?;
        mixer.restart()?;
        if compression == "snappy" {
            let said = session.ask("SELECT count(*) FROM logs").unwrap_err().to_string();
            assert!(said.contains("snappy") && said.contains("zstd or none"), "{said}");
            let said = session
                .ask("FROM logs_between(now() - INTERVAL 1 DAY, now())")
                .unwrap_err();
            assert!(said.to_string().contains("snappy"), "{said}");
            assert_eq!(session.ask("SELECT count(*) FROM metrics")?, ["0"]);
        } else {
            assert_eq!(same(&mut session, &mixer.api)?, usize::try_from((batch + 1) * ROWS)?);
            let recent = "logs_between(now() - INTERVAL 1 DAY, now() + INTERVAL 1 HOUR)";
            let counted = session.ask(&format!("SELECT count(*) FROM {recent} WHERE {OURS}"))?;
            assert_eq!(counted, [((batch + 1) * ROWS / 2).to_string()]);
        }
    }
    Ok(())
}

#[test]
fn a_range_of_time_opens_only_the_files_of_its_partitions() -> Result<(), Failure> {
    let keys = [
        ("observability.embedded.flush_interval", "\"100ms\""),
        ("observability.embedded.rotation.max_age_days", "60"),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let mut random = Random::for_test("a_range_of_time_opens_only_the_files_of_its_partitions");
    write(&mixer.api, &mut random, 0)?;
    let mut session = eventually("all rows in the views", SOON, || {
        let mut session = duckdb::Session::open(&views(&mixer), &mixer.path().join("session.log")).ok()?;
        (of_duckdb(&mut session).ok()?.len() == 60).then_some(session)
    })?;
    let old = now().minus(DAY * 40);
    let window = format!("logs_between('{}', '{}')", old.minus(DAY / 24), old.plus(DAY / 24));
    assert_eq!(session.ask(&format!("SELECT count(*) FROM {window}"))?, ["30"]);
    let plan = session.ask(&format!("EXPLAIN SELECT * FROM {window}"))?.concat();
    assert!(plan.contains("Scanning Files: 1/"), "{plan}");
    Ok(())
}

#[test]
fn a_failed_write_of_the_views_is_logged_once_and_counted() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("observability.embedded.flush_interval", "\"50ms\"")], &[])?;
    let mut random = Random::for_test("a_file_of_views_that_cannot_be_written");
    let failures = || mixer.api.metric("platform_views_failures_total").unwrap_or_default();
    eventually("the file of views", SOON, || views(&mixer).is_file().then_some(()))?;
    std::fs::remove_file(views(&mixer))?;
    eventually("the file again", SOON, || views(&mixer).is_file().then_some(()))?;

    // A folder with something in it cannot be replaced by a file.
    std::fs::rename(views(&mixer), mixer.path().join("aside"))?;
    std::fs::create_dir_all(views(&mixer).join("inside"))?;
    eventually("three attempts", SOON, || (failures() >= 3.0).then_some(()))?;
    write(&mixer.api, &mut random, 0)?;
    assert_eq!(of_api(&mixer.api)?.len(), 60);
    let log = std::fs::read_to_string(mixer.path().join("logs/mixer.log"))?;
    assert_eq!(log.matches("could not write the views for DuckDB").count(), 1, "{log}");

    std::fs::remove_dir_all(views(&mixer))?;
    eventually("the file once more", SOON, || views(&mixer).is_file().then_some(()))?;
    Ok(())
}
