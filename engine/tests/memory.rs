//! One memory budget: whatever the size of rows, append, publish, seal and replay stay within it.
//!
//! Every allocation of this process is counted; the tests run one after another.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{AppendBatch, BatchOrigin, Engine, Settings};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, ByteSize, Clock, EntityId, Entropy, Level, LogRecord, Table, TelemetryRecord, Timestamp};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; only sizes are counted beside it.
#[allow(unsafe_code, reason = "counting allocations takes an allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

static MAKING: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;
const START: i64 = 1_795_255_200_000_000;

struct Store {
    dir: tempfile::TempDir,
    now: Arc<AtomicI64>,
}

impl Store {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            now: Arc::new(AtomicI64::new(START)),
        }
    }

    async fn open(&self, budget: u64, tick: Duration) -> Arc<Engine> {
        let mut settings = Settings::new(self.dir.path().join("store")).with_memory(ByteSize::mib(budget));
        settings.flush_interval = tick;
        settings.wal_max = ByteSize::mib(256);
        settings.seal_grace = Duration::ZERO;
        let now = Arc::clone(&self.now);
        let clock = Clock::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        Engine::open(settings, clock, Entropy::new(|bytes| bytes.fill(7)))
            .await
            .unwrap()
    }

    /// Ends the hour, and waits until every file of it is sealed.
    async fn seal_all(&self, engine: &Engine) {
        self.now.fetch_add(2 * 3_600_000_000, Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(120);
        while engine.stats().open_files > 0 || engine.stats().memtable_rows > 0 {
            assert!(Instant::now() < end, "not sealed: {:?}", engine.stats());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Text that compresses not at all (`step` odd and large) or very well (`step` 0).
fn text(seed: u64, bytes: usize, step: u64) -> String {
    let mut state = seed | 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
        char::from(b' ' + u8::try_from((state >> 57) % 90).unwrap())
    };
    if step == 0 {
        "x".repeat(bytes)
    } else {
        (0..bytes).map(|_| letter()).collect()
    }
}

fn batch(seed: u64, rows: u64, bytes: usize, step: u64) -> AppendBatch {
    let rows: Vec<_> = (0..rows)
        .map(|row| LogRecord {
            // Rows of different batches overlap in time, so that a seal must merge them.
            ts: Timestamp::from_micros(START + i64::try_from((seed * 7919 + row * 31) % 3_000_000).unwrap()),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: None,
            level: Level::Info,
            message: text(seed * 1_000 + row, bytes, step),
            attributes: Attributes::new().with("n", seed * 1_000 + row),
        })
        .collect();
    let rows = LogRecord::to_batch(&rows).unwrap();
    AppendBatch {
        table: Table::Logs,
        origin: BatchOrigin::default(),
        payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
        rows: vec![rows],
    }
}

/// Appends from four sides at once.
async fn flood(engine: &Arc<Engine>, batches: u64, rows: u64, bytes: usize, step: u64) {
    let mut sides = tokio::task::JoinSet::new();
    for side in 0..4 {
        let engine = Arc::clone(engine);
        sides.spawn(async move {
            for n in (side..batches).step_by(4) {
                // Making a batch takes several times its bytes; that is the test's own memory.
                let next = {
                    let _alone = MAKING.lock().unwrap();
                    batch(n, rows, bytes, step)
                };
                engine.append(next).await.unwrap();
            }
        });
    }
    while let Some(done) = sides.join_next().await {
        done.unwrap();
    }
}

/// The highest use of memory since `reset`, above what was in use then.
struct Meter(usize);

impl Meter {
    fn reset() -> Self {
        let live = LIVE.load(Ordering::Relaxed);
        PEAK.store(live, Ordering::Relaxed);
        Self(live)
    }

    fn within(&self, what: &str, mib: usize) {
        let peak = PEAK.load(Ordering::Relaxed).saturating_sub(self.0);
        println!("{what}: {} MiB of {mib}", peak / MIB);
        assert!(peak <= mib * MIB, "{what}: {} MiB, allowed are {mib}", peak / MIB);
    }
}

fn rows_of(engine: &Engine) -> u64 {
    let view = engine.view();
    let hot: usize = view.hot(Table::Logs).iter().map(|hot| hot.batch.num_rows()).sum();
    hot as u64 + view.files(Table::Logs).iter().map(|file| file.rows).sum::<u64>()
}

async fn within_budget(what: &str, batches: u64, rows: u64, bytes: usize, step: u64, budget: u64) {
    let store = Store::new();
    let meter = Meter::reset();
    let engine = store.open(budget, Duration::from_millis(50)).await;
    flood(&engine, batches, rows, bytes, step).await;
    store.seal_all(&engine).await;
    assert_eq!(rows_of(&engine), batches * rows);
    engine.close().await.unwrap();
    // The four sides hold their batches and the encoded form of them, that is not the engine's.
    let sides = 4 * 2 * usize::try_from(rows).unwrap() * bytes / MIB;
    meter.within(what, usize::try_from(budget).unwrap() + sides + 16);
}

async fn replay_within_budget() {
    let store = Store::new();
    let engine = store.open(1024, Duration::from_secs(3_600)).await;
    flood(&engine, 90, 1, 2 * MIB, 1_442_695_040_888_963_407).await;
    assert_eq!(engine.stats().flushes, 0, "all of it is in the log only");
    drop(engine);
    let meter = Meter::reset();
    let engine = store.open(64, Duration::from_secs(3_600)).await;
    assert_eq!(rows_of(&engine), 90);
    let stats = engine.stats();
    assert!(stats.flushes > 0 && stats.memtable_bytes <= 36 << 20, "{stats:?}");
    // The log was written in segments of 32 MiB, and is read one at a time.
    meter.within("replay of 180 MiB", 64 + 32);
    drop(engine);
    let engine = store.open(64, Duration::from_millis(50)).await;
    assert_eq!(
        rows_of(&engine),
        90,
        "a replay that published, and ended without warning"
    );
    store.seal_all(&engine).await;
    assert_eq!(rows_of(&engine), 90);
    engine.close().await.unwrap();
}

/// A batch as large as all hot rows may be waits until it is alone, and then passes.
async fn one_large_batch_passes() {
    let store = Store::new();
    let engine = store.open(16, Duration::from_secs(3_600)).await;
    engine.append(batch(1, 1, 1000, 0)).await.unwrap();
    let large = engine.append(batch(2, 8, 2 * MIB, 0));
    tokio::time::timeout(Duration::from_secs(30), large)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rows_of(&engine), 9);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_200_bytes_and_of_2_mib_stay_within_one_budget() {
    const NOISE: u64 = 1_442_695_040_888_963_407;
    within_budget("rows of 2 MiB that do not compress", 60, 1, 2 * MIB, NOISE, 64).await;
    within_budget("rows of 2 MiB that compress", 200, 1, 2 * MIB, 0, 64).await;
    within_budget("rows of 200 bytes", 250, 1_000, 200, NOISE, 64).await;
    replay_within_budget().await;
    one_large_batch_passes().await;
}
