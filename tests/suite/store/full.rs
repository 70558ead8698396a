//! A disk that fills up under a store: appends wait, queries and publishing go on, and it all resumes by itself.
//!
//! `PLATFORM_TEST_FULL_DISKS` makes it longer: the long form is 20 episodes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{AppendOutcome, Engine, HealthIssue};
use harness::disk::Disk;
use harness::store::{Heard, Judge, Load, open, settings};
use harness::{Failure, Random, eventually};

use super::{setting, store_on};

const SOON: Duration = Duration::from_secs(30);

/// Appenders in this process, and what they were told.
struct Appenders {
    tasks: Vec<tokio::task::JoinHandle<Result<(), String>>>,
    heard: Arc<Mutex<Heard>>,
    next: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Appenders {
    fn start(engine: &Arc<Engine>, load: Load) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (next, stop) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
        let tasks = (0..3).map(|_| {
            let (engine, heard) = (Arc::clone(engine), Arc::clone(&heard));
            let (next, stop) = (Arc::clone(&next), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let seq = next.fetch_add(1, Ordering::Relaxed);
                    let batch = load.batch(seq).map_err(|error| error.to_string())?;
                    match engine.append(batch).await {
                        Ok(AppendOutcome::Stored { .. }) => {
                            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                            heard.acknowledged.insert(seq);
                        }
                        other => return Err(format!("batch {seq}: {other:?}")),
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok(())
            })
        });
        Self {
            tasks: tasks.collect(),
            heard,
            next,
            stop,
        }
    }

    fn heard(&self) -> Heard {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn acknowledged(&self) -> usize {
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .acknowledged
            .len()
    }

    async fn stop(self) -> Result<(Heard, u64), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await??;
        }
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((heard, self.next.load(Ordering::Relaxed)))
    }
}

fn is_full(engine: &Engine) -> bool {
    matches!(engine.health_issue(), Some(HealthIssue::DiskFull { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_appends_wait_the_rest_goes_on_and_it_resumes_by_itself() -> Result<(), Failure> {
    let disk = match Disk::tmpfs(48) {
        Ok(disk) => disk,
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let random = Random::for_test("on_a_full_disk_appends_wait_the_rest_goes_on_and_it_resumes_by_itself");
    let store = store_on(disk.path());
    let load = Load {
        seed: random.seed,
        rows: 20,
        scripted: false,
    };
    let mut settings = settings(&store);
    // Past hours stay open: sealing them again and again would fill the disk with the load itself.
    settings.seal_grace = Duration::from_secs(100 * 3_600);
    let engine = open(settings.clone()).await?;
    let appenders = Appenders::start(&engine, load);
    let episodes = setting("PLATFORM_TEST_FULL_DISKS", 2);
    for episode in 0..episodes {
        let before = appenders.acknowledged();
        let wait = |what: &str, holds: &mut dyn FnMut() -> bool| {
            tokio::task::block_in_place(|| eventually(what, SOON, || holds().then_some(()))).map_err(|error| {
                format!(
                    "episode {episode}: {error}; {:?} {:?}",
                    engine.health_issue(),
                    engine.stats()
                )
            })
        };
        wait("acknowledged rows", &mut || appenders.acknowledged() > before + 20)?;
        disk.fill()?;
        wait("the word that the disk is full", &mut || is_full(&engine))?;
        // Those that had passed the look at the disk are answered; then nobody is.
        let mut last = usize::MAX;
        wait("the last answer", &mut || {
            let now = appenders.acknowledged();
            std::thread::park_timeout(Duration::from_millis(100));
            std::mem::replace(&mut last, now) == now
        })?;
        let heard = appenders.heard();
        let judge = Judge {
            load,
            last: appenders.next.load(Ordering::Relaxed),
            heard: &heard,
        };
        judge
            .of_view(&engine)?
            .check(&format!("episode {episode}, on a full disk"))?;
        engine
            .flush()
            .await
            .map_err(|error| format!("episode {episode}: nothing can be published: {error}"))?;
        assert_eq!(engine.stats().memtable_rows, 0, "episode {episode}");
        assert!(is_full(&engine), "episode {episode}: the disk is still full");
        judge
            .of_view(&engine)?
            .check(&format!("episode {episode}, published"))?;
        disk.make_room()?;
        wait("the end of the trouble", &mut || engine.health_issue().is_none())?;
        wait("acknowledged rows again", &mut || {
            appenders.acknowledged() > heard.acknowledged.len() + 20
        })?;
    }
    let (heard, next) = appenders.stop().await?;
    engine.close().await?;
    drop(engine);
    let judge = Judge {
        load,
        last: next,
        heard: &heard,
    };
    let verdict = judge.judge(settings).await?;
    verdict.check("after the episodes")?;
    eprintln!("{episodes} full disks, {} rows acknowledged and found", verdict.rows);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_frees_a_full_disk_and_a_store_opens_on_one() -> Result<(), Failure> {
    let disk = match Disk::tmpfs(48) {
        Ok(disk) => disk,
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let store = store_on(disk.path());
    let load = Load {
        seed: 5,
        rows: 400,
        scripted: true,
    };
    let mut kept = settings(&store);
    kept.segment_size = model::ByteSize::mib(1);
    let engine = open(kept.clone()).await?;
    for seq in Load::OLD {
        engine.append(load.batch(seq)?).await?;
    }
    engine.flush().await?;
    tokio::task::block_in_place(|| eventually("seals", SOON, || (engine.stats().seals >= 2).then_some(())))?;
    drop(engine);
    disk.fill()?;
    // The first tick of this one checks the rules: every closed partition is too much.
    kept.rotation.max_size = model::ByteSize::bytes(1);
    let engine = open(kept).await?;
    let run = engine.rotate().await?;
    let removed = |run: &engine::RetentionRun| !run.removed.is_empty();
    let history = engine.rotation();
    assert!(
        removed(&run) || history.last_removal.as_ref().is_some_and(removed),
        "{run:?} {history:?}"
    );
    engine.close().await?;
    Ok(())
}

/// Killed, started, killed again on a disk that somebody else has filled: by then no segment of the log lies ready, and what the
/// reserve has is less than a segment, or even than the rows in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_killed_on_a_full_disk_starts_and_answers_and_appends_go_on_when_there_is_room()
-> Result<(), Failure> {
    for (rows, batches) in [(20, 3), (20_000, 12)] {
        let disk = match Disk::tmpfs(320) {
            Ok(disk) => disk,
            Err(lacking) => {
                eprintln!("{lacking}");
                return Ok(());
            }
        };
        let store = store_on(disk.path());
        let load = Load {
            seed: 7,
            rows,
            scripted: false,
        };
        let mut settings = settings(&store);
        settings.wal_max = model::ByteSize::mib(512);
        settings.hot_max = model::ByteSize::mib(256);
        // Nothing is published: all rows are in the log.
        settings.flush_interval = Duration::from_secs(3_600);
        let mut heard = Heard::default();
        let append = async |engine: &Engine, seq| -> Result<(), Failure> {
            engine.append(load.batch(seq)?).await?;
            Ok(())
        };
        let mut next = 1;
        for _ in 0..2 {
            let engine = open(settings.clone()).await?;
            for seq in next..next + batches {
                append(&engine, seq).await?;
                heard.acknowledged.insert(seq);
            }
            next += batches;
        }
        for start in 0..3 {
            disk.fill()?;
            let engine = open(settings.clone())
                .await
                .map_err(|error| format!("start {start}: {error}"))?;
            let judge = Judge {
                load,
                last: next,
                heard: &heard,
            };
            judge.of_view(&engine)?.check(&format!("start {start}"))?;
            disk.fill()?;
            let waiting = tokio::time::timeout(Duration::from_secs(1), append(&engine, next)).await;
            assert!(waiting.is_err(), "start {start}: {waiting:?}");
            assert!(is_full(&engine), "start {start}: {:?}", engine.health_issue());
            // A client that went may have stored it.
            if start == 2 {
                disk.make_room()?;
                append(&engine, next).await?;
                heard.acknowledged.insert(next);
                assert_eq!(engine.health_issue(), None);
            }
        }
        let judge = Judge {
            load,
            last: next,
            heard: &heard,
        };
        judge.judge(settings).await?.check("after room was made")?;
    }
    Ok(())
}
