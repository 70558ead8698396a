//! One bit flips in a file of a store that ended by kill -9. The next start and its queries notice, or nothing is different.
//!
//! | what is flipped | it is noticed |
//! |---|---|
//! | a data file | always: all of its bytes have a checksum; the rows of an open one that the log still has are there again |
//! | the catalogue | unless the flip lies in a mark or in a generation that is kept for an emergency: then every row is there |
//! | the log | unless the flip lies outside of what counts: then every row is there |
//!
//! `PLATFORM_TEST_FLIPS` makes it longer: the long form is 10,000.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::disk::Disk;
use harness::store::{Driver, Heard, Judge, Load, files_below, open, script_settings, settings};
use harness::{Failure, Random, eventually};

use super::{setting, store_on};

/// A store that ended, and what it had acknowledged.
struct Ended {
    store: PathBuf,
    load: Load,
    last: u64,
    heard: Heard,
    settings: fn(&Path) -> engine::Settings,
}

/// What became of a flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Noticed {
    /// The start was refused; it named the file.
    AtStart,
    /// Answers say that they are partial.
    InAnswers,
    /// The file was put aside and the log had all of its rows: they are there, also after the next end.
    Mended,
    /// Every row is there.
    Harmless,
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), Failure> {
    for file in files_below(from)? {
        let target = to.join(file.strip_prefix(from)?);
        std::fs::create_dir_all(target.parent().ok_or("no folder")?)?;
        std::fs::copy(file, target)?;
    }
    Ok(())
}

/// A store after the scripted run, and one that was killed under load.
fn ended(folder: &Path, seed: u64) -> Result<Vec<Ended>, Failure> {
    let errors = folder.join("errors");
    let scripted = Load {
        seed,
        rows: 24,
        scripted: true,
    };
    let store = store_on(&folder.join("scripted"));
    let arguments = ["script".to_owned(), store.display().to_string(), seed.to_string()];
    let (status, heard) = Driver::start(&[], &arguments, &errors)?.finish(Duration::from_secs(60))?;
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{:?}", heard.notes);
    let first = Ended {
        store,
        load: scripted,
        last: 26,
        heard,
        settings: script_settings,
    };
    let load = Load {
        seed,
        rows: 24,
        scripted: false,
    };
    let store = store_on(&folder.join("killed"));
    let arguments = [
        "stream",
        &store.display().to_string(),
        &seed.to_string(),
        "1",
        "24",
        "4",
    ]
    .map(str::to_owned);
    let mut driver = Driver::start(&[], &arguments, &errors)?;
    driver.wait_for(120)?;
    eventually("a data file", Duration::from_secs(60), || {
        let files = files_below(&settings(&store).data_dir).ok()?;
        (!files.is_empty()).then_some(())
    })?;
    let heard = driver.kill9()?;
    // A publish whose record was lost in the kill is taken as the file itself describes it; a start writes that down.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    drop(runtime.block_on(open(settings(&store)))?);
    let second = Ended {
        store,
        load,
        last: heard.acknowledged.last().copied().unwrap_or(0) + 64,
        heard,
        settings,
    };
    Ok(vec![first, second])
}

/// What kind of file it is; `None` for files that hold nothing.
fn kind(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    match path.extension().and_then(std::ffi::OsStr::to_str) {
        Some("parquet" | "zst") => Some("data file"),
        Some("log") if name.starts_with("wal_") => Some("log"),
        Some("log") => Some("catalogue log"),
        _ if name.starts_with("checkpoint_") => Some("checkpoint"),
        _ if name == "store.id" => Some("store id"),
        _ => None,
    }
}

impl Ended {
    /// Flips a bit in a copy, opens it, and reads everything.
    async fn try_flip(&self, copy: &Path, random: &mut Random) -> Result<(&'static str, Noticed, String), Failure> {
        if copy.exists() {
            std::fs::remove_dir_all(copy)?;
        }
        copy_tree(&self.store, copy)?;
        let mut kinds: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
        for file in files_below(copy)? {
            if let Some(kind) = kind(&file) {
                kinds.entry(kind).or_default().push(file);
            }
        }
        // Data files twice as often as any other kind.
        let mut names: Vec<&'static str> = kinds.keys().copied().collect();
        names.push("data file");
        let kind = names[usize::try_from(random.below(names.len() as u64))?];
        let files = &kinds[kind];
        let file = &files[usize::try_from(random.below(files.len() as u64))?];
        let mut bytes = std::fs::read(file)?;
        // A log is mostly zeros that nothing counts: its beginning is where frames are.
        let reach = if kind == "log" { written(&bytes) } else { bytes.len() };
        let at = usize::try_from(random.below(reach as u64))?;
        let bit = random.below(8);
        bytes[at] ^= 1 << bit;
        std::fs::write(file, bytes)?;
        let what = format!("bit {bit} of byte {at} of {}", file.display());
        let noticed = self.look(copy).await.map_err(|error| format!("{what}: {error}"))?;
        Ok((kind, noticed, what))
    }

    async fn look(&self, copy: &Path) -> Result<Noticed, Failure> {
        let engine = match open((self.settings)(copy)).await {
            Ok(engine) => engine,
            Err(error) if error.kind() == engine::ErrorKind::Damage => return Ok(Noticed::AtStart),
            Err(error) => return Err(format!("the start is refused for another reason: {error}").into()),
        };
        let judge = Judge {
            load: self.load,
            last: self.last,
            heard: &self.heard,
        };
        let verdict = judge.of_view(&engine)?;
        if let Some(wrong) = verdict.violations.first() {
            return Err(format!("{wrong}; partial {:?}", verdict.partial).into());
        }
        let is_aside = engine.stats().quarantined_files > 0;
        match (verdict.partial, verdict.lost.first()) {
            (Some(_), _) => Ok(Noticed::InAnswers),
            (None, None) if is_aside => {
                drop(engine);
                let verdict = judge.of_view(&open((self.settings)(copy)).await?)?;
                verdict.check("after the next end")?;
                Ok(Noticed::Mended)
            }
            (None, None) => Ok(Noticed::Harmless),
            (None, Some(lost)) => Err(format!("not noticed: {lost}").into()),
        }
    }
}

/// Where the last byte that is not zero lies.
fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1)
}

#[test]
fn a_flipped_bit_in_any_file_is_noticed_or_changes_nothing_and_never_gives_a_wrong_row() -> Result<(), Failure> {
    let name = "a_flipped_bit_in_any_file_is_noticed_or_changes_nothing_and_never_gives_a_wrong_row";
    let mut random = Random::for_test(name);
    let panics = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&panics);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::Relaxed);
        usual(panic);
    }));
    let folder = tempfile::tempdir()?;
    let memory = Disk::tmpfs(256);
    if let Err(lacking) = &memory {
        eprintln!("flips on a disk instead of in memory: {lacking}");
    }
    let base = memory.as_ref().map_or(folder.path(), Disk::path);
    let stores = ended(base, random.seed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let mut outcomes: BTreeMap<(&str, Noticed), u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let flips = setting("PLATFORM_TEST_FLIPS", 300);
    for flip in 0..flips {
        let ended = &stores[usize::try_from(flip)? % stores.len()];
        match runtime.block_on(ended.try_flip(&base.join("copy"), &mut random)) {
            Ok((kind, noticed, what)) => {
                *outcomes.entry((kind, noticed)).or_default() += 1;
                if kind == "data file" && noticed == Noticed::Harmless {
                    failures.push(format!("not noticed: {what}"));
                }
            }
            Err(error) => failures.push(format!("flip {flip}: {error}")),
        }
    }
    for ((kind, noticed), count) in &outcomes {
        eprintln!("{kind}: {noticed:?}: {count}");
    }
    eprintln!(
        "{flips} flips, {} violations, {} panics",
        failures.len(),
        panics.load(Ordering::Relaxed)
    );
    assert!(
        failures.is_empty(),
        "{} of {flips}: {:#?}",
        failures.len(),
        &failures[..failures.len().min(10)]
    );
    assert_eq!(panics.load(Ordering::Relaxed), 0, "panics");
    Ok(())
}
