//! Stores as earlier versions left them, in `tests/fixtures/stores/`: each is opened by this one, for ever, and has every
//! row that was in it.
//!
//! A fixture is a `.tar.gz` with the folder `store` of a process that ended without a close (sealed and open data files,
//! a catalogue, rows in the log alone), and `rows`: what it answered, one row a line.
//!
//! `UPDATE=1` writes the fixture of this version if there is none of that name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Settings};
use harness::store::{Load, open, settings, view_rows};
use harness::{Failure, eventually};

/// Names the fixture that this version writes; a new name comes with each change of a format.
const PRESENT: &str = "2026-11-packed";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stores")
}

fn tar(arguments: &[&str]) -> Result<(), Failure> {
    let done = Command::new("tar").args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("tar {arguments:?}: {}", String::from_utf8_lossy(&done.stderr)).into())
}

/// Every row of a view as text, sorted.
fn rows(engine: &Arc<Engine>) -> Result<Vec<String>, Failure> {
    let mut rows = Vec::new();
    for (table, batch) in view_rows(&engine.view())? {
        rows.extend((0..batch.num_rows()).map(|row| {
            let row = serde_json::Value::Object(model::batch::row_json(&batch, row));
            format!("{table} {row}")
        }));
    }
    rows.sort();
    Ok(rows)
}

fn fixture_settings(store: &Path) -> Settings {
    let mut settings = settings(store);
    settings.wal_max = model::ByteSize::mib(1);
    settings.min_free = Some(model::ByteSize::bytes(0));
    settings
}

/// Writes the fixture of this version.
async fn write(archive: &Path) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let load = Load {
        seed: 7,
        rows: 24,
        scripted: false,
    };
    let mut settings = fixture_settings(&folder.path().join("store"));
    let engine = open(settings.clone()).await?;
    for seq in 1..=20 {
        engine.append(load.batch(seq)?).await?;
    }
    engine.flush().await?;
    tokio::task::block_in_place(|| {
        eventually("seals", Duration::from_secs(30), || {
            (engine.stats().seals >= 4).then_some(())
        })
    })?;
    engine.close().await?;
    drop(engine);
    settings.flush_interval = Duration::from_secs(3_600);
    let engine = open(settings).await?;
    for seq in 21..=30 {
        engine.append(load.batch(seq)?).await?;
    }
    std::fs::write(folder.path().join("rows"), rows(&engine)?.join("\n"))?;
    drop(engine);
    std::fs::create_dir_all(fixtures())?;
    let (archive, folder) = (archive.display().to_string(), folder.path().display().to_string());
    tar(&[
        "-czf",
        &archive,
        "--sort=name",
        "--mtime=@0",
        "-C",
        &folder,
        "store",
        "rows",
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_every_earlier_version_opens_with_all_of_its_rows() -> Result<(), Failure> {
    let present = fixtures().join(format!("{PRESENT}.tar.gz"));
    if !present.exists() && std::env::var("UPDATE").as_deref() == Ok("1") {
        write(&present).await?;
    }
    assert!(present.exists(), "{} is missing: UPDATE=1 writes it", present.display());
    let mut seen = 0;
    for entry in std::fs::read_dir(fixtures())? {
        let archive = entry?.path();
        let folder = tempfile::tempdir()?;
        tar(&[
            "-xzf",
            &archive.display().to_string(),
            "-C",
            &folder.path().display().to_string(),
        ])?;
        let wanted = std::fs::read_to_string(folder.path().join("rows"))?;
        let wanted: Vec<&str> = wanted.lines().collect();
        let store = folder.path().join("store");
        for opening in ["after its end", "after a close"] {
            let engine = open(fixture_settings(&store)).await?;
            assert_eq!(engine.view().partial(), None, "{}, {opening}", archive.display());
            assert_eq!(rows(&engine)?, wanted, "{}, {opening}", archive.display());
            engine.close().await?;
        }
        seen += 1;
    }
    eprintln!("{seen} stores of earlier versions");
    Ok(())
}
