//! Sudden ends under load: kill -9 of the process, and power cuts of its disk.
//!
//! `PLATFORM_TEST_STORE_KILLS`, `PLATFORM_TEST_POWER_CUTS` and `PLATFORM_TEST_BATCH_ROWS` make it longer: the long form is
//! 200 kills and 100 cuts over a million acknowledged rows.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::disk::Disk;
use harness::store::{Driver, Heard, Judge, Load, settings};
use harness::{Failure, Random};

use super::{setting, store_on};

/// A store grows over so many ends, then the next begins.
const ENDS_PER_STORE: u64 = 10;

/// Starts the driver where the last one was stopped.
fn start(load: Load, store: &Path, heard: &Heard, errors: &Path) -> Result<Driver, Failure> {
    let arguments = [
        "stream".to_owned(),
        store.display().to_string(),
        load.seed.to_string(),
        heard.next().to_string(),
        load.rows.to_string(),
        "4".to_owned(),
    ];
    Driver::start(&[], &arguments, errors)
}

fn judge(load: Load, heard: &Heard, store: &Path) -> Result<u64, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    // Batches in flight were sent and not acknowledged.
    let last = heard.acknowledged.last().copied().unwrap_or(0) + 64;
    let judge = Judge { load, last, heard };
    let verdict = runtime.block_on(judge.judge(settings(store)))?;
    verdict.check("judged")?;
    Ok(verdict.rows)
}

/// Lets a load run for a random while, then ends it by `end`, again and again; each time the store must be whole.
fn endings(
    name: &str,
    ends: u64,
    mut place: impl FnMut() -> Result<std::path::PathBuf, Failure>,
    mut end: impl FnMut(Driver) -> Result<Heard, Failure>,
) -> Result<(), Failure> {
    let mut random = Random::for_test(name);
    let folder = tempfile::tempdir()?;
    let errors = folder.path().join("errors");
    let rows = setting("PLATFORM_TEST_BATCH_ROWS", 40);
    let (mut acknowledged, mut in_all, begun) = (0, 0, Instant::now());
    let mut heard = Heard::default();
    let mut load = Load {
        seed: random.seed,
        rows,
        scripted: false,
    };
    let mut store = place()?;
    for round in 0..ends {
        if round > 0 && round % ENDS_PER_STORE == 0 {
            in_all += acknowledged;
            (heard, store) = (Heard::default(), place()?);
            load.seed = load.seed.wrapping_add(1);
        }
        let mut driver = start(load, &store, &heard, &errors)?;
        driver.wait_for(1)?;
        std::thread::sleep(Duration::from_millis(random.below(1_000)));
        heard.join(end(driver)?);
        acknowledged =
            judge(load, &heard, &store).map_err(|error| format!("seed {}, end {round}: {error}", load.seed))?;
    }
    in_all += acknowledged;
    eprintln!(
        "{ends} ends, {in_all} rows acknowledged and found, {:?}",
        begun.elapsed()
    );
    Ok(())
}

#[test]
fn after_kill_9_of_the_process_every_acknowledged_row_is_there_once() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut stores = 0;
    let place = || {
        let last = store_on(&folder.path().join(stores.to_string()));
        if last.exists() {
            std::fs::remove_dir_all(&last)?;
        }
        stores += 1;
        Ok(store_on(&folder.path().join(stores.to_string())))
    };
    let name = "after_kill_9_of_the_process_every_acknowledged_row_is_there_once";
    endings(name, setting("PLATFORM_TEST_STORE_KILLS", 4), place, Driver::kill9)
}

#[test]
fn after_a_power_cut_every_acknowledged_row_is_there_once() -> Result<(), Failure> {
    let disk = match Disk::ext4(512) {
        Ok(disk) => std::cell::RefCell::new(disk),
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let place = || {
        let store = store_on(disk.borrow().path());
        if store.exists() {
            std::fs::remove_dir_all(&store)?;
        }
        Ok(store)
    };
    let cut = |driver: Driver| {
        disk.borrow().cut()?;
        let heard = driver.kill9()?;
        disk.borrow_mut().power_on()?;
        Ok(heard)
    };
    let name = "after_a_power_cut_every_acknowledged_row_is_there_once";
    endings(name, setting("PLATFORM_TEST_POWER_CUTS", 4), place, cut)
}
