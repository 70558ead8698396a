//! A store of two days, sealed and indexed, or of eighteen hours whose files are all open (`BENCH_OPEN=1`): log rows, metric points
//! and spans as time goes by; twelve log rows hold a text that no other has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Engine;
use harness::{Failure, TestMixer};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, EntityId, Level, LogRecord, Table, TelemetryRecord, Timestamp};

use crate::data::{START, Source};
use crate::feed::{batch, open, seal_all, text, this};
use crate::setting;

/// How long the rows take; of more than 64 open files some would be sealed.
#[must_use]
pub fn hours() -> i64 {
    if is_open() { 18 } else { 48 }
}

/// Whether no file is sealed: `BENCH_OPEN` is not 0.
#[must_use]
pub fn is_open() -> bool {
    setting("BENCH_OPEN", 0) != 0
}

/// Longer than the rows take. A Mixer that starts on open files of past hours seals them after [`SEALED_AFTER`].
const FOR_EVER: Duration = Duration::from_secs(3_000 * 86_400);

/// How long a Mixer that was just started seals no file to which nothing comes.
pub const SEALED_AFTER: Duration = Duration::from_secs(300);

/// Microseconds.
pub const HOUR: i64 = 3_600_000_000;
/// A text that twelve rows have.
pub const NEEDLE: &str = "quorum of shard xk-4711 was lost";
const NEEDLES: i64 = 12;
/// Rows of a batch: a large one, so that filling the store is quick.
const ROWS: usize = 4096;

/// A Mixer on such a store, with settings beside the defaults. This program makes the store when it is called with `make` and the folder, in a process of
/// its own, so that its memory is nobody else's.
///
/// # Errors
/// If the store cannot be made, or the Mixer does not start on it.
pub fn mixer(settings: &str) -> Result<TestMixer, Failure> {
    let settings = format!("[observability.embedded.rotation]\nmax_age_days = 36500\n{settings}");
    let mut mixer = TestMixer::start(&settings)?;
    mixer.process()?.terminate(Duration::from_secs(30))?;
    let telemetry = mixer.telemetry();
    this(&["make", &text(telemetry.parent().ok_or("no store")?)])?;
    mixer.restart()?;
    Ok(mixer)
}

/// The first value of a column in a list of the Mixer.
///
/// # Errors
/// If no row has one.
pub fn some(mixer: &TestMixer, path: &str, name: &str) -> Result<String, Failure> {
    let rows = mixer.api.rows(path)?;
    let found = rows.iter().find_map(|row| row[name].as_str());
    Ok(found.ok_or_else(|| format!("no {name}"))?.to_owned())
}

/// Fills a store, table beside table, as time goes by: `BENCH_LOGS` (10,000,000) log rows, `BENCH_POINTS` as many metric points, `BENCH_SPANS`
/// (5,000,000) spans.
///
/// # Errors
/// If the engine refuses.
pub async fn make(store: &Path) -> Result<(), Failure> {
    let (engine, now) = open(store, |settings| {
        settings.flush_interval = Duration::from_secs(1);
        // Rows come up to ten minutes late: their hour's file is still open.
        settings.seal_grace = if is_open() {
            FOR_EVER
        } else {
            Duration::from_secs(1_200)
        };
        settings.max_age = Duration::from_secs(400 * 86_400);
    })
    .await?;
    let source = |table, name, rows| {
        // Time goes on with each trace, which has four and a half spans on average.
        let ticks = if table == Table::Traces {
            setting(name, rows) * 2 / 9
        } else {
            setting(name, rows)
        };
        let rate = ticks.cast_signed().div_euclid(hours() * 3_600).max(1);
        (table, Source::with_rate(11, rate))
    };
    let mut sources = [
        source(Table::Logs, "BENCH_LOGS", 10_000_000),
        source(Table::Metrics, "BENCH_POINTS", 10_000_000),
        source(Table::Traces, "BENCH_SPANS", 5_000_000),
    ];
    let end = START.micros() + hours() * HOUR;
    let (mut seq, mut needles) = (0, 0);
    while let Some((table, source)) = sources.iter_mut().min_by_key(|(_, source)| source.now()) {
        if source.now().micros() >= end {
            break;
        }
        let rows = source.batch(*table, ROWS)?;
        let at = source.now();
        now.fetch_max(at.micros(), Ordering::Relaxed);
        seq += 1;
        let payload = encode_arrow(&[rows])?.into();
        engine.append(batch(*table, seq, &payload)?).await?;
        if at.micros() >= START.micros() + (2 * needles + 1) * hours() * HOUR / (2 * NEEDLES) {
            needles += 1;
            seq += 1;
            append_needle(&engine, seq, at).await?;
        }
    }
    engine.flush().await?;
    if !is_open() {
        seal_all(&engine, &now).await?;
        engine.index_all().await?;
    }
    let stats = engine.stats();
    println!(
        "store: {} rows in {} files of {} MiB, {} open, indexes of {} MiB",
        stats.file_rows,
        stats.files,
        stats.file_bytes >> 20,
        stats.open_files,
        stats.index_bytes >> 20
    );
    engine.close().await?;
    Ok(())
}

async fn append_needle(engine: &Arc<Engine>, seq: u64, ts: Timestamp) -> Result<(), Failure> {
    let row = LogRecord {
        ts,
        entity_id: EntityId::for_name("db-03"),
        entity_name: "db-03".to_owned(),
        flux_id: None,
        level: Level::Warn,
        message: format!("{NEEDLE}, electing anew"),
        attributes: Attributes::new(),
    };
    let payload = encode_arrow(&[LogRecord::to_batch(&[row])?])?.into();
    engine.append(batch(Table::Logs, seq, &payload)?).await?;
    Ok(())
}
