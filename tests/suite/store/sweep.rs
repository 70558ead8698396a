//! System calls fail: the N-th of each kind, for every N that a run through every step of a store makes.
//!
//! A run opens a store, appends, publishes, seals, rotates, ends without a close, recovers, closes and opens again. After
//! each refused call the next start must find what was acknowledged, once, whole.
//!
//! `PLATFORM_TEST_SWEEP=all` tries every call; `PLATFORM_TEST_SWEEP=fsync:EIO:3` one. The suite tries a few by seed. Where
//! an ext4 of its own can be had, the power is cut after each run in which a sync was refused: what relied on it shows.

use std::path::Path;
use std::time::Duration;

use harness::disk::Disk;
use harness::store::{Driver, Heard, Judge, Load, script_settings};
use harness::strace::{self, Refusal, Trace};
use harness::{Failure, Random};

use super::{setting, store_on};

/// The calls, and what each may say.
const CALLS: [(&str, &[&str]); 17] = [
    ("openat", &["EIO", "ENOSPC"]),
    ("write", &["EIO", "ENOSPC"]),
    ("pwrite64", &["EIO", "ENOSPC"]),
    ("read", &["EIO"]),
    ("pread64", &["EIO"]),
    ("fsync", &["EIO"]),
    ("fdatasync", &["EIO"]),
    ("rename", &["EIO", "ENOSPC"]),
    ("renameat2", &["EIO", "ENOSPC"]),
    ("linkat", &["EIO", "ENOSPC"]),
    ("unlink", &["EIO"]),
    ("rmdir", &["EIO"]),
    ("mkdir", &["EIO", "ENOSPC"]),
    ("fallocate", &["EIO", "ENOSPC"]),
    ("ftruncate", &["EIO", "ENOSPC"]),
    ("statx", &["EIO"]),
    ("getdents64", &["EIO"]),
];
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Batches of a scripted run.
const LAST: u64 = 26;

/// Where runs happen.
struct Place {
    folder: tempfile::TempDir,
    disk: Option<Disk>,
    load: Load,
}

/// What came of a run.
struct Outcome {
    trace: Trace,
    heard: Heard,
    code: Option<i32>,
}

impl Place {
    fn new(seed: u64) -> Result<Self, Failure> {
        let disk = Disk::ext4(64);
        if let Err(lacking) = &disk {
            eprintln!("power cuts after refused syncs: {lacking}");
        }
        Ok(Self {
            folder: tempfile::tempdir()?,
            disk: disk.ok(),
            load: Load {
                seed,
                rows: 24,
                scripted: true,
            },
        })
    }

    fn run(&mut self, calls: &[&str], refusal: Option<&Refusal>) -> Result<Outcome, Failure> {
        let base = self.disk.as_ref().map_or(self.folder.path(), Disk::path).to_owned();
        let store = store_on(&base);
        match std::fs::remove_dir_all(base.join("disk")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        // The store's own folder is the driver's to make.
        std::fs::create_dir(base.join("disk"))?;
        let (log, errors) = (self.folder.path().join("trace"), self.folder.path().join("errors"));
        std::fs::write(&errors, "")?;
        let wrapper = strace::wrapper(calls, refusal, &log);
        let arguments = [
            "script".to_owned(),
            store.display().to_string(),
            self.load.seed.to_string(),
        ];
        let driver = Driver::start(&wrapper, &arguments, &errors)?;
        let (status, heard) = driver.finish(PATIENCE)?;
        let status = status.ok_or_else(|| format!("{}: the driver hangs: {:?}", about(refusal), heard.notes))?;
        Ok(Outcome {
            trace: strace::read(&log, &base.join("disk"))?,
            heard,
            code: status.code(),
        })
    }

    /// Runs with a refusal and judges what is left. How many of our calls were refused, and all.
    fn refuse(&mut self, refusal: &Refusal) -> Result<(usize, usize), Failure> {
        let outcome = self.run(&[refusal.call], Some(refusal))?;
        let Trace { ours, refused, .. } = &outcome.trace;
        if ours.is_empty() {
            return Ok((0, *refused));
        }
        if !matches!(outcome.code, Some(0 | 74)) {
            let errors = std::fs::read_to_string(self.folder.path().join("errors"))?;
            let (code, notes) = (outcome.code, &outcome.heard.notes);
            return Err(
                format!("{refusal}: the driver ended with {code:?}: {errors} {notes:?}, refused {ours:?}").into(),
            );
        }
        if let Some(disk) = self.disk.as_mut().filter(|_| refusal.call.contains("sync")) {
            disk.cut()?;
            disk.power_on()?;
        }
        let base = self.disk.as_ref().map_or(self.folder.path(), Disk::path);
        judge(self.load, &outcome.heard, &store_on(base))
            .map_err(|error| format!("{refusal}: {error}; {:?}, refused {ours:?}", outcome.heard.notes))?;
        Ok((ours.len(), *refused))
    }
}

fn about(refusal: Option<&Refusal>) -> String {
    refusal.map_or_else(|| "without a refusal".to_owned(), ToString::to_string)
}

fn judge(load: Load, heard: &Heard, store: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let judge = Judge {
        load,
        last: LAST,
        heard,
    };
    runtime.block_on(judge.judge(script_settings(store)))?.check("judged")
}

/// The refusal that `PLATFORM_TEST_SWEEP` names.
fn chosen(text: &str) -> Result<Refusal, Failure> {
    let parts: Vec<&str> = text.split(':').collect();
    let [call, errno, at] = parts[..] else {
        return Err(format!("PLATFORM_TEST_SWEEP={text}: give all, or call:errno:number").into());
    };
    let known = CALLS.iter().find(|(name, _)| *name == call);
    let (call, errnos) = known.ok_or_else(|| format!("{call} is not swept"))?;
    let errno = errnos.iter().find(|known| **known == errno);
    Ok(Refusal {
        call,
        errno: errno.ok_or("that errno is not swept")?,
        at: at.parse()?,
    })
}

/// Every refusal that a run without one makes room for.
fn all(clean: &Trace) -> Vec<Refusal> {
    let mut all = Vec::new();
    for (call, errnos) in CALLS {
        let most = clean.calls.get(call).copied().unwrap_or(0);
        for errno in errnos {
            all.extend((1..=most).map(|at| Refusal { call, errno, at }));
        }
    }
    all
}

#[test]
fn whichever_system_call_fails_nothing_acknowledged_is_lost_doubled_or_torn() -> Result<(), Failure> {
    if let Err(lacking) = strace::available() {
        eprintln!("{lacking}");
        return Ok(());
    }
    let mut random = Random::for_test("whichever_system_call_fails_nothing_acknowledged_is_lost_doubled_or_torn");
    let mut place = Place::new(random.seed)?;
    let names: Vec<&str> = CALLS.iter().map(|(call, _)| *call).collect();
    let clean = place.run(&names, None)?;
    assert_eq!(clean.code, Some(0), "{:?}", clean.heard.notes);
    assert!(clean.heard.rotated, "the script rotates: {:?}", clean.heard.notes);
    let mut todo = all(&clean.trace);
    let sites = todo.len();
    match std::env::var("PLATFORM_TEST_SWEEP").as_deref() {
        Ok("all") => {}
        Ok(one) => todo = vec![chosen(one)?],
        Err(_) => {
            let wanted = usize::try_from(setting("PLATFORM_TEST_SWEEP_RUNS", 24))?;
            todo = (0..wanted.min(sites))
                .map(|_| todo[random.below(sites as u64) as usize].clone())
                .collect();
        }
    }
    let (runs, mut refused, mut failures) = (todo.len(), 0, Vec::new());
    for refusal in todo {
        match place.refuse(&refusal) {
            Ok((ours, _)) => refused += ours,
            Err(error) => {
                eprintln!(
                    "PLATFORM_TEST_SEED={} PLATFORM_TEST_SWEEP={refusal}: {error}",
                    random.seed
                );
                failures.push(refusal.to_string());
            }
        }
    }
    eprintln!(
        "{sites} sites, {runs} runs, {refused} calls refused, {} violations",
        failures.len()
    );
    assert!(failures.is_empty(), "{failures:?}");
    Ok(())
}
