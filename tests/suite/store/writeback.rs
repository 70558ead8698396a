//! A disk that fails behind the kernel's back: a sync fails once and the next one says that all is well, because the kernel
//! has marked the lost pages clean; and now and then a sync says that all is well whose writes failed (the loop device takes a
//! write that was cut short for a whole one).
//!
//! The disk is an ext4 whose image lies on a tmpfs with less room than the image promises, so that write-back really fails.
//! The store gives up at the first failed sync. Where a write itself is told that there is no room, it waits for room, as on
//! any full disk, and is ended here by its driver. What such a disk has lost of files whose sync succeeded, no program can
//! bring back (a dozen lines that append, sync and exchange two files lose it too): but after a restart of the machine no
//! row may be wrong or doubled, and nothing may be missing without a word: of what is gone from the end of the log, only the
//! word that it left when it gave up is proof.
//!
//! A second form loses contents only. It is run by hand, as such a disk also loses data files and the catalogue behind syncs that
//! succeeded, and what a start does not look at (the footer of a file) is found by readers first.
//!
//! `PLATFORM_TEST_LOST_WRITES` makes it longer: the long form is 20.

use std::path::Path;
use std::time::Duration;

use harness::disk::{Disk, Lacking};
use harness::store::{Driver, Heard, Judge, Load, files_below, open, settings};
use harness::{Failure, Random};

use super::{setting, store_on};

/// What the memory under the image has at first, and later.
const SCARCE: u64 = 14;
const ROOM: u64 = 10;
const PLENTY: u64 = 160;

/// What a store says whose catalogue lost something.
const REBUILD: &str = "`platform-mixer check --rebuild` rebuilds the catalogue";

/// What a disk finds no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Contents and the file system's own blocks alike: it stops at the first of those, so the store does not open before a restart.
    Anything,
    /// Contents only, as the blocks of the journal were all written before.
    Contents,
}

fn disks(lost: Lost) -> Result<(Disk, Disk), Failure> {
    let memory = Disk::tmpfs(PLENTY)?;
    let disk = memory.ext4_within(96)?;
    let room = match lost {
        Lost::Anything => SCARCE,
        Lost::Contents => {
            disk.write_journal()?;
            memory.used()? + ROOM
        }
    };
    memory.resize(room)?;
    Ok((memory, disk))
}

/// Runs until the store gives up because of its disk, or waits for it.
fn run_until_lost(disk: &Disk, load: Load) -> Result<Heard, Failure> {
    let store = store_on(disk.path());
    let errors = tempfile::NamedTempFile::new()?;
    let arguments = [
        "fill",
        &store.display().to_string(),
        &load.seed.to_string(),
        "1",
        &load.rows.to_string(),
        "4",
    ];
    let driver = Driver::start(&[], &arguments.map(str::to_owned), errors.path())?;
    let (status, heard) = driver.finish(Duration::from_secs(180))?;
    let code = status
        .ok_or("the disk never fails, and the store does not wait for it")?
        .code();
    let said = std::fs::read_to_string(errors.path())?;
    assert!(matches!(code, Some(74 | 75)), "{code:?} {:?} {said}", heard.notes);
    Ok(heard)
}

/// What the store consists of: what came of a loss is to be seen from it.
fn sizes(store: &Path) -> Result<Vec<(String, u64)>, Failure> {
    let files = files_below(store)?.into_iter().map(|path| {
        let name = path.strip_prefix(store).unwrap_or(&path).display().to_string();
        Ok((name, path.symlink_metadata()?.len()))
    });
    files.collect()
}

/// What came of some disks.
#[derive(Debug, Default)]
struct Came {
    reopened: u64,
    told: u64,
    rows: u64,
}

fn lose(lost: Lost, name: &str) -> Result<(), Failure> {
    let mut random = Random::for_test(name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let mut came = Came::default();
    let rounds = setting("PLATFORM_TEST_LOST_WRITES", 1);
    for _ in 0..rounds {
        let disks = match disks(lost) {
            Err(error) if error.is::<Lacking>() => {
                eprintln!("{error}");
                return Ok(());
            }
            disks => disks?,
        };
        let load = Load {
            seed: random.below(u64::MAX),
            rows: 200,
            scripted: false,
        };
        round(&runtime, disks, (lost, load), &mut came)?;
    }
    eprintln!("{rounds} disks lost writes: {came:?}");
    Ok(())
}

fn round(
    runtime: &tokio::runtime::Runtime,
    (memory, mut disk): (Disk, Disk),
    (lost, load): (Lost, Load),
    came: &mut Came,
) -> Result<(), Failure> {
    let heard = run_until_lost(&disk, load)?;
    memory.resize(PLENTY)?;
    let store = store_on(disk.path());
    // The process is started again on the machine as it is. Its disk may refuse all writing until a restart.
    let mut told = None;
    if let Ok(engine) = runtime.block_on(open(settings(&store))) {
        came.reopened += 1;
        told = engine.view().partial().map(str::to_owned);
    }
    disk.restart()?;
    let judge = Judge {
        load,
        last: heard.acknowledged.last().copied().unwrap_or(0) + 64,
        heard: &heard,
    };
    let verdict = runtime.block_on(judge.judge(settings(&store)))?;
    let about = format!("seed {}: {:?}", load.seed, heard.notes);
    if lost == Lost::Contents && verdict.violations.iter().any(|it| it.contains(REBUILD)) {
        // Of the catalogue's contents something is gone, which it says, with the way out.
        came.told += 1;
        return Ok(());
    }
    assert_eq!(verdict.violations, Vec::<String>::new(), "{about}");
    let told = verdict.partial.or(told);
    assert!(
        verdict.lost.is_empty() || told.is_some(),
        "{about}: not told: {} missing, {:?} … {:?}, of batches up to {:?}; {:?}",
        verdict.lost.len(),
        verdict.lost.first(),
        verdict.lost.last(),
        heard.acknowledged.last(),
        sizes(&store)?
    );
    came.told += u64::from(told.is_some());
    came.rows += verdict.rows;
    Ok(())
}

#[test]
fn what_a_disk_lost_behind_the_kernels_back_is_reported() -> Result<(), Failure> {
    lose(Lost::Anything, "what_a_disk_lost_behind_the_kernels_back_is_reported")
}

#[test]
#[ignore = "one of some twenty rounds still fails, by what such a disk lost elsewhere than at the log's end: run it by hand"]
fn contents_that_a_disk_lost_are_reported_though_its_file_system_is_intact() -> Result<(), Failure> {
    lose(
        Lost::Contents,
        "contents_that_a_disk_lost_are_reported_though_its_file_system_is_intact",
    )
}
