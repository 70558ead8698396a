//! pyarrow, pandas, polars, ClickHouse (chdb) and DuckDB from Python, over the live tree: the API's rows, column by column.
//!
//! They take 1.2 GB and come by `make readers`; without them the test says that it is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::process::run;
use harness::{Failure, Random, TestMixer, binary, duckdb, eventually};
use serde_json::Value;

use super::{SOON, of_api, rows, views, write};

/// Readers, and the dialect that tells them what to read.
const READERS: [(&str, Option<&str>); 5] = [
    ("duckdb", None),
    ("pyarrow", None),
    ("pandas", None),
    ("polars", Some("polars")),
    ("chdb", Some("clickhouse")),
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A reader of the store of `mixer` that is asked again and again.
fn open(python: &Path, mixer: &TestMixer, name: &str, dialect: Option<&str>) -> Result<duckdb::Session, Failure> {
    let store = mixer.path().join("data").display().to_string();
    let schema = match dialect {
        None => views(mixer),
        Some(dialect) => {
            let args = ["schema", "logs", "--dialect", dialect, "--store", &store];
            let printed = run(&binary("platform")?, &args, mixer.path(), &[])?;
            let file = mixer.path().join(dialect);
            std::fs::write(&file, printed.out)?;
            file
        }
    };
    let script = project().join("tests/suite/outside/readers.py");
    let args = ["-W".into(), "ignore".into(), script, name.into(), store.into(), schema];
    duckdb::Session::start(python, &args, &mixer.path().join(format!("{name}.log")))
}

fn seals(mixer: &TestMixer) -> Option<f64> {
    mixer.api.metric("platform_engine_seals_total")
}

#[test]
fn readers_from_python_have_the_rows_of_the_api_while_they_are_written() -> Result<(), Failure> {
    let python = project().join(".tools/bench-python/bin/python");
    if !python.is_file() {
        println!("left out: the readers from Python are missing; make readers installs them");
        return Ok(());
    }
    let mixer = TestMixer::with(
        &[
            ("observability.embedded.flush_interval", "\"100ms\""),
            ("observability.embedded.storage.segment_size_mb", "1"),
            ("observability.embedded.rotation.max_age_days", "60"),
        ],
        &[],
    )?;
    let mut random = Random::for_test("readers_from_python_have_the_rows_of_the_api_while_they_are_written");
    write(&mixer.api, &mut random, 0)?;
    eventually("views of data files", SOON, || {
        let text = std::fs::read_to_string(views(&mixer)).ok()?;
        text.contains("/telemetry/logs/**/*.parquet").then_some(())
    })?;
    let readers = READERS.map(|(name, dialect)| open(&python, &mixer, name, dialect).map(|reader| (name, reader)));
    let mut readers = readers.into_iter().collect::<Result<Vec<_>, _>>()?;

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let writer = scope.spawn(|| {
            let written = (1..40).try_for_each(|batch| write(&mixer.api, &mut random, batch));
            is_over.store(true, Ordering::Release);
            written
        });
        let mut before: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
        let mut looks = 0;
        while !is_over.load(Ordering::Acquire) || looks < 3 {
            looks += 1;
            for (name, reader) in &mut readers {
                let sealed = seals(&mixer);
                match rows(reader, "read") {
                    Ok(seen) => {
                        let ours = of_api(&mixer.api)?;
                        let unknown = seen.iter().find(|(message, row)| ours.get(*message) != Some(*row));
                        assert!(unknown.is_none(), "{name}: {unknown:?}");
                        let earlier = before.entry(*name).or_default();
                        assert!(
                            earlier.keys().all(|message| seen.contains_key(message)),
                            "{name}: rows went"
                        );
                        *earlier = seen;
                    }
                    // One that looks a length up before it opens the file may be told so at a seal (ADR 4).
                    Err(error) => {
                        eventually(&format!("a seal to explain: {name}: {error}"), SOON, || {
                            (seals(&mixer) != sealed).then_some(())
                        })?;
                    }
                }
            }
        }
        println!("{looks} looks of each, {:?} seals", seals(&mixer));
        writer.join().unwrap()
    })?;
    for (name, reader) in &mut readers {
        let ours = of_api(&mixer.api)?;
        assert_eq!(ours.len(), 40 * 60);
        eventually(&format!("all rows in {name}"), SOON, || {
            (rows(reader, "read").ok()? == ours).then_some(())
        })?;
    }
    Ok(())
}
