//! Batches in a file, and a store whose clock is theirs: what the benches of the engine share.
//!
//! # Not here
//!
//! What the rows are: [`crate::data`].

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use engine::{AppendBatch, BatchOrigin, Engine, Settings};
use harness::Failure;
use model::telemetry_codec::{BatchId, decode_arrow, encode_arrow};
use model::{Clock, EntityId, Entropy, Table, Timestamp};

use crate::data::{START, Source};

/// Rows of a batch, as a busy Rack sends them.
pub const BATCH_ROWS: usize = 500;

/// A runtime of two threads.
///
/// # Errors
/// If the system refuses threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

/// The table of a name.
///
/// # Errors
/// If there is none.
pub fn table(name: &str) -> Result<Table, Failure> {
    let found = Table::ALL.into_iter().find(|known| known.name() == name);
    found.ok_or_else(|| format!("no table is named {name}").into())
}

/// A path as an argument.
#[must_use]
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs one part of this program in a process of its own and passes on what it prints.
///
/// # Errors
/// If it fails.
pub fn this(args: &[&str]) -> Result<String, Failure> {
    let output = Command::new(std::env::current_exe()?).args(args).output()?;
    std::io::stderr().write_all(&output.stderr)?;
    let printed = String::from_utf8(output.stdout)?;
    print!("{printed}");
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("{args:?} ended with {}", output.status).into())
    }
}

/// The number behind a word that a part printed.
///
/// # Errors
/// If it did not print it.
pub fn figure(printed: &str, behind: &str) -> Result<f64, Failure> {
    let (_, rest) = printed
        .split_once(behind)
        .ok_or_else(|| format!("no {behind:?} was printed"))?;
    let number = rest.trim_start().split([',', ' ', '\n', ';']).next();
    Ok(number.unwrap_or_default().parse()?)
}

/// Writes deterministic batches to a file as Arrow IPC.
///
/// # Errors
/// If the disk refuses.
pub fn generate(table: Table, rows: usize, file: &Path) -> Result<(), Failure> {
    let mut source = Source::new(7);
    let batches = (0..rows / BATCH_ROWS).map(|_| {
        let batch = source.batch(table, BATCH_ROWS)?;
        Ok((source.now(), batch))
    });
    let bytes = write(batches, file)?;
    let (name, each) = (table.name(), bytes / rows.max(1));
    println!("data: {name} {rows} rows, {each} bytes per row as Arrow IPC");
    Ok(())
}

/// Writes batches, each with the time at which it is appended, to a file as Arrow IPC; the bytes of the batches.
///
/// # Errors
/// If the disk refuses, or there is no next batch.
pub fn write(
    batches: impl Iterator<Item = Result<(Timestamp, RecordBatch), Failure>>,
    file: &Path,
) -> Result<usize, Failure> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let mut bytes = 0;
    for next in batches {
        let (at, batch) = next?;
        let payload = encode_arrow(&[batch])?;
        bytes += payload.len();
        out.write_all(&u32::try_from(payload.len())?.to_le_bytes())?;
        out.write_all(&at.micros().to_le_bytes())?;
        out.write_all(&payload)?;
    }
    out.into_inner()?.sync_all()?;
    Ok(bytes)
}

/// The batches of a generated file, in order.
#[derive(Debug)]
pub struct Batches(BufReader<File>);

impl Batches {
    /// Opens a generated file.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn open(file: &Path) -> Result<Self, Failure> {
        Ok(Self(BufReader::with_capacity(1 << 20, File::open(file)?)))
    }

    /// The next batch and the time of its last row; `None` at the end.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn read(&mut self) -> Result<Option<(i64, Bytes)>, Failure> {
        let mut head = [0; 12];
        match self.0.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (length, now) = head.split_at(4);
        let mut payload = vec![0; u32::from_le_bytes(length.try_into()?) as usize];
        self.0.read_exact(&mut payload)?;
        Ok(Some((i64::from_le_bytes(now.try_into()?), payload.into())))
    }
}

/// A payload as a batch of the bench's own producer.
///
/// # Errors
/// If it is not the table's.
pub fn batch(table: Table, seq: u64, payload: &Bytes) -> Result<AppendBatch, Failure> {
    let producer = BatchId {
        entity: EntityId::for_name("bench"),
        boot_epoch: 1,
        seq,
    };
    Ok(AppendBatch {
        table,
        origin: BatchOrigin {
            producer: Some(producer),
            ..BatchOrigin::default()
        },
        payload: payload.clone(),
        rows: decode_arrow(table, payload)?,
    })
}

/// Opens a store whose clock is the data's; the clock comes back to be moved.
///
/// # Errors
/// If the store cannot be opened.
pub async fn open(store: &Path, change: impl FnOnce(&mut Settings)) -> Result<(Arc<Engine>, Arc<AtomicI64>), Failure> {
    let now = Arc::new(AtomicI64::new(START.micros()));
    let read = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_micros(read.load(Ordering::Relaxed)));
    let mut settings = Settings::new(store);
    change(&mut settings);
    let engine = Engine::open(settings, clock, Entropy::new(|bytes| bytes.fill(7))).await?;
    Ok((engine, now))
}

/// Appends the batches of a file, 32 at a time, the clock at their time; the bytes of the batches.
///
/// # Errors
/// If the file or the engine refuses.
pub async fn append_all(engine: &Arc<Engine>, now: &Arc<AtomicI64>, table: Table, file: &Path) -> Result<u64, Failure> {
    let source = Arc::new(Mutex::new((Batches::open(file)?, 0u64)));
    let bytes = Arc::new(AtomicU64::new(0));
    let appenders: Vec<_> = (0..32)
        .map(|_| {
            let (engine, source) = (Arc::clone(engine), Arc::clone(&source));
            let (now, bytes) = (Arc::clone(now), Arc::clone(&bytes));
            tokio::spawn(async move {
                loop {
                    let next = {
                        let mut source = source.lock().map_err(|_| "a reader failed")?;
                        source.1 += 1;
                        (source.1, source.0.read().map_err(|error| error.to_string())?)
                    };
                    let (seq, Some((at, payload))) = next else {
                        return Ok::<(), String>(());
                    };
                    now.fetch_max(at, Ordering::Relaxed);
                    bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
                    let batch = batch(table, seq, &payload).map_err(|error| error.to_string())?;
                    engine.append(batch).await.map_err(|error| error.to_string())?;
                }
            })
        })
        .collect();
    for appender in appenders {
        appender.await??;
    }
    Ok(bytes.load(Ordering::Relaxed))
}

/// Lets the clock pass the data's last hour and waits until every file is sealed. The flush spares it the wait for a tick.
///
/// # Errors
/// If the engine cannot flush.
pub async fn seal_all(engine: &Engine, now: &AtomicI64) -> Result<(), Failure> {
    now.fetch_add(2 * 3_600_000_000, Ordering::Relaxed);
    engine.flush().await?;
    while engine.stats().open_files > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
