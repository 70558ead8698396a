//! A process with an open store under a known load; tests kill it, cut its power, and make its system calls fail.
//!
//! ```text
//! store-driver script <store> <seed> <address>           each step that a store knows, once, in one order
//! store-driver stream <store> <seed> <first> <rows> <appenders> <address>   batches from <first> on, without end
//! store-driver fill   <store> <seed> <first> <rows> <appenders> <address>   the same, until the store waits for room
//! ```
//!
//! # Invariants
//!
//! - A batch is reported when [`Engine::append`] has returned, not earlier.
//! - It ends with 0 when every step succeeded, with 74 when the store gave up, as the Mixer does, and `fill` with 75 when the
//!   store has said for some seconds that it waits for room. Nothing else is a legal end.
//! - No I/O driver runs in its runtime, and it reports by `send`: the writes that a tracer counts are the engine's.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{AppendOutcome, Engine, Error, HealthIssue, Settings};
use harness::Failure;
use harness::store::{Load, NOON, Told, script_settings, settings};
use model::{ByteSize, Clock, Entropy, Table, Timestamp};

/// The store gave up, as it may: the process is to be started again.
const GAVE_UP: u8 = 74;
/// The store waits for room, and says so.
const WAITS: u8 = 75;
/// How long it must have said so without a pause: a log that is being published says it for a moment.
const WAITED: Duration = Duration::from_secs(3);
/// How often a step that failed without harm is tried again.
const TRIES: usize = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("store-driver: {error}");
            ExitCode::from(64)
        }
    }
}

fn run(arguments: &[String]) -> Result<u8, Failure> {
    let [mode, store, seed, rest @ ..] = arguments else {
        return Err(
            "usage: store-driver script|stream|fill <store> <seed> [<first> <rows> <appenders>] <address>".into(),
        );
    };
    let (Some(address), seed) = (rest.last(), seed.parse()?) else {
        return Err("the address is missing".into());
    };
    let reports = TcpStream::connect(address)?;
    reports.set_nodelay(true)?;
    let driver = Arc::new(Driver {
        reports,
        now: Arc::new(AtomicI64::new(NOON)),
    });
    driver.tell(&Told::Pid(std::process::id()))?;
    let scripted = mode == "script";
    let rows = rest.get(1).filter(|_| !scripted).map_or(Ok(24), |rows| rows.parse())?;
    let load = Load { seed, rows, scripted };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build()?;
    let store = Path::new(store);
    runtime.block_on(async {
        if scripted {
            let whole = driver.script(load, store).await?;
            return Ok(if whole { 0 } else { GAVE_UP });
        }
        let first = rest.first().ok_or("the first batch is missing")?.parse()?;
        let appenders = rest.get(2).ok_or("the number of appenders is missing")?.parse()?;
        let Some(engine) = driver.open(&settings(store)).await? else {
            return Ok(GAVE_UP);
        };
        tokio::select! {
            ended = driver.stream(load, &engine, first, appenders) => ended.map(|()| GAVE_UP),
            () = waits(&engine), if mode == "fill" => Ok(WAITS),
        }
    })
}

struct Driver {
    reports: TcpStream,
    now: Arc<AtomicI64>,
}

/// Whether the store goes on; `false` once it gave up.
type Goes = Result<bool, Failure>;

impl Driver {
    fn tell(&self, what: &Told) -> Result<(), Failure> {
        Ok((&self.reports).write_all(what.line().as_bytes())?)
    }

    async fn open(&self, settings: &Settings) -> Result<Option<Arc<Engine>>, Failure> {
        let now = Arc::clone(&self.now);
        let clock = Clock::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        match Engine::open(settings.clone(), clock, Entropy::new(|bytes| bytes.fill(7))).await {
            Ok(engine) => Ok(Some(engine)),
            Err(error) => {
                self.tell(&Told::Note(format!("not opened: {error}")))?;
                Ok(None)
            }
        }
    }

    /// Opens, seals, rotates, ends without a close, recovers, goes on, closes, opens once more.
    async fn script(&self, load: Load, store: &Path) -> Goes {
        let kept = script_settings(store);
        let mut small = kept.clone();
        small.rotation.max_size = ByteSize::bytes(1);
        let part = |from, to| from..=to;
        Ok(self
            .with_store(&kept, async |engine| {
                Ok(self.append_all(engine, load, Load::OLD).await?
                    && self.flush(engine).await?
                    && self.seals(engine, 3).await?
                    && self.close(engine).await?)
            })
            .await?
            && self
                .with_store(&small, async |engine| {
                    Ok(self.rotate(engine).await? && self.append_all(engine, load, part(9, 10)).await?)
                })
                .await?
            && self
                .with_store(&kept, async |engine| {
                    Ok(self.append_all(engine, load, part(11, 16)).await?
                        && self.flush(engine).await?
                        && self.seals(engine, 2).await?
                        && self.append_all(engine, load, part(17, 20)).await?)
                })
                .await?
            && self
                .with_store(&kept, async |engine| {
                    Ok(self.append_all(engine, load, part(21, 23)).await?
                        && self.flush(engine).await?
                        && self.append_all(engine, load, part(24, 25)).await?
                        && self.close(engine).await?)
                })
                .await?
            // What was stored is not stored again, whoever asks.
            && self
                .with_store(&kept, async |engine| self.append_all(engine, load, part(9, 26)).await)
                .await?)
    }

    /// Opens the store, does a part of the script, and drops it, which is no close.
    async fn with_store(&self, settings: &Settings, part: impl AsyncFnOnce(&Arc<Engine>) -> Goes) -> Goes {
        let small = settings.rotation.max_size.get() == 1;
        if small {
            // The first tick checks the rules too.
            self.tell(&Told::Rotating)?;
        }
        match self.open(settings).await? {
            Some(engine) => part(&engine).await,
            None => Ok(false),
        }
    }

    async fn append_all(&self, engine: &Arc<Engine>, load: Load, batches: std::ops::RangeInclusive<u64>) -> Goes {
        for seq in batches {
            if !self.append(engine, load, seq).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn append(&self, engine: &Engine, load: Load, seq: u64) -> Goes {
        match engine.append(load.batch(seq)?).await {
            Ok(AppendOutcome::Stored { .. } | AppendOutcome::Duplicate) => {
                self.tell(&Told::Acknowledged(seq))?;
                Ok(true)
            }
            Err(error @ (Error::Poisoned { .. } | Error::Closed)) => {
                self.tell(&Told::Note(format!("{seq} refused: {error}")))?;
                Ok(false)
            }
            Err(error) => Err(format!("batch {seq}: {error}").into()),
        }
    }

    async fn flush(&self, engine: &Engine) -> Goes {
        for _ in 0..TRIES {
            match engine.flush().await {
                Ok(()) => return Ok(true),
                Err(error) => self.tell(&Told::Note(format!("not flushed: {error}")))?,
            }
            if engine.stats().wal_failed > 0 {
                return Ok(false);
            }
        }
        Err("a flush failed again and again".into())
    }

    async fn rotate(&self, engine: &Engine) -> Goes {
        for _ in 0..TRIES {
            match engine.rotate().await {
                Ok(_) => {
                    if only_present(engine) {
                        self.tell(&Told::Rotated)?;
                    }
                    return Ok(true);
                }
                Err(error) => self.tell(&Told::Note(format!("not rotated: {error}")))?,
            }
            if engine.stats().wal_failed > 0 {
                return Ok(false);
            }
        }
        Err("a rotation failed again and again".into())
    }

    /// Lets ticks pass until so many files are sealed; failed seals are tried again later than this waits.
    async fn seals(&self, engine: &Engine, wanted: u64) -> Goes {
        let end = Instant::now() + Duration::from_secs(5);
        while engine.stats().seals < wanted && engine.stats().seal_failures == 0 && Instant::now() < end {
            if engine.stats().wal_failed > 0 {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(true)
    }

    async fn close(&self, engine: &Engine) -> Goes {
        match engine.close().await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.tell(&Told::Note(format!("not closed: {error}")))?;
                Ok(false)
            }
        }
    }

    /// Appends until the store gives up, or somebody ends it.
    async fn stream(
        self: &Arc<Self>,
        load: Load,
        engine: &Arc<Engine>,
        first: u64,
        appenders: usize,
    ) -> Result<(), Failure> {
        let next = Arc::new(AtomicU64::new(first));
        let appenders: Vec<_> = (0..appenders)
            .map(|_| {
                let (driver, engine, next) = (Arc::clone(self), Arc::clone(engine), Arc::clone(&next));
                tokio::spawn(async move {
                    while driver
                        .append(&engine, load, next.fetch_add(1, Ordering::Relaxed))
                        .await?
                    {}
                    Ok::<(), Failure>(())
                })
            })
            .collect();
        for appender in appenders {
            appender.await??;
        }
        Ok(())
    }
}

/// Returns when the store has said for [`WAITED`] that it does not take rows just now.
async fn waits(engine: &Engine) {
    let mut since = Instant::now();
    while since.elapsed() < WAITED {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if matches!(engine.health_issue(), None | Some(HealthIssue::Poisoned(_))) {
            since = Instant::now();
        }
    }
}

/// Whether no row of an hour before the present one is left.
fn only_present(engine: &Engine) -> bool {
    let view = engine.view();
    let begin = Timestamp::from_micros(NOON - 1_800_000_000);
    Table::ALL.iter().all(|table| {
        let (mut hot, mut files) = (view.hot(*table).iter(), view.files(*table).iter());
        hot.all(|hot| hot.min_ts >= begin) && files.all(|file| file.min_ts >= begin)
    })
}
