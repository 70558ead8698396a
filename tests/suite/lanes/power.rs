//! A power cut of the Mixer's machine: what the bus had in memory is gone, and no message of a guaranteed wire is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::disk::Disk;
use harness::{Failure, TestMixer, TestRack, duckdb, eventually, gear_files};

use super::{load, mixer_log};
use crate::racks::free_port;

fn scenario(folder: &Path) -> String {
    format!(
        "meta: {{ name: power, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 20ms }} }}\n  \
         - {{ name: sink, type: file_out, deploy: rack-b, config: {{ path: {:?} }} }}\nwires:\n  - {{ from: tail.out, to: sink.in }}\n",
        folder.join("app.log").display().to_string(),
        folder.join("sink.txt").display().to_string(),
    )
}

/// The messages that are in the archive's files.
fn archived(store: &Path, folder: &Path) -> Option<u64> {
    let sql = format!(
        "select count(*) from read_parquet('{}/messages/generic/**/fluxmsg_*.parquet')",
        store.display()
    );
    duckdb::scalar(&sql, folder).ok()?.parse().ok()
}

/// Whether so many messages are stored, seen before they are in a file.
fn stored(mixer: &TestMixer, count: u64) -> Option<()> {
    let query = serde_json::json!({ "query": "SELECT count(*) AS n FROM messages" });
    let answer = mixer.api.post("/api/v1/sql", &query).ok()?;
    (answer.json["data"][0]["n"].as_u64()? >= count).then_some(())
}

#[test]
fn a_power_cut_of_the_mixers_machine_loses_no_message_of_a_wire() -> Result<(), Failure> {
    power_is_cut(false)
}

/// What the bus lost is sent again though nothing new is.
#[test]
fn a_power_cut_of_the_mixers_machine_loses_no_message_of_a_wire_that_is_silent_then() -> Result<(), Failure> {
    power_is_cut(true)
}

fn power_is_cut(is_silent: bool) -> Result<(), Failure> {
    let mut disk = match Disk::ext4(1024) {
        Ok(disk) => disk,
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let folder = gear_files()?;
    let path = folder.path().join("scenario.yaml");
    std::fs::write(&path, scenario(folder.path()))?;
    let text = |path: &Path| format!("{:?}", path.display().to_string());
    let (store, port) = (disk.path().join("data"), free_port()?);
    let (dir, startup) = (text(&store), text(&path));
    let keys = [
        ("mixer.startup_scenario", startup.as_str()),
        ("store.dir", dir.as_str()),
        ("snake.port", port.as_str()),
        ("snake.max_store_mb", "256"),
    ];
    let mut mixer = TestMixer::with(&keys, &[])?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    a.start()?;
    // The receiver is away: what is for it is on the bus only.
    let over = Arc::new(AtomicBool::new(false));
    let lines = load(folder.path().join("app.log"), 0, Arc::clone(&over));
    eventually("messages in the archive", Duration::from_secs(60), || {
        (archived(&store, folder.path())? >= 2_000).then_some(())
    })?;
    if is_silent {
        over.store(true, Ordering::Relaxed);
        // All of it is archived, the last of it since less than the bus takes to sync.
        while !lines.is_finished() {
            std::thread::yield_now();
        }
        let rest = std::fs::read_to_string(folder.path().join("app.log"))?.lines().count() as u64;
        eventually("the rest in the archive", Duration::from_secs(10), || {
            stored(&mixer, rest)
        })?;
    }
    disk.cut()?;
    mixer.kill9()?;
    eventually("the disk without users", Duration::from_secs(10), || {
        disk.power_on().ok()
    })?;
    mixer.restart()?;
    over.store(true, Ordering::Relaxed);
    let lines = lines.join().map_err(|_| "the writer panicked")??;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    b.start()?;
    let arrived = || super::isolation::numbers(&folder.path().join("sink.txt"));
    eventually("every line", Duration::from_secs(60), || {
        (arrived().len() as u64 >= lines).then_some(())
    })
    .map_err(|error| {
        let missing = (0..lines).filter(|line| !arrived().contains(line)).count();
        format!(
            "{error}: {missing} of {lines} are missing; {}{}\n{}",
            a.log(),
            b.log(),
            mixer_log(&mixer)
        )
    })?;
    assert_eq!(arrived(), (0..lines).collect::<Vec<_>>(), "in order, each once");
    Ok(())
}
