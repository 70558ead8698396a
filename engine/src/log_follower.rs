//! Log follower: hands a signal's durable rows to an exporter, in the order of the log, from a durable position on.
//!
//! ```text
//! committer ── synced up to here ──> LogFollower::next ──> rows ──> exporter ──> a collector
//!                                          ^                            │ accepted
//!      log <── may release ── ExportCursors └── LogFollower::settle <────┘
//! ```
//!
//! The log is the queue: [`crate::Settings::wal_max`] bounds it, and appends wait at that cap as they do wherever rows cannot leave it.
//!
//! # Invariants
//!
//! - No row is handed out before it is durable. Every row is handed out until it is settled, over any restart.
//! - The log keeps every frame that is not settled durably. Frames without rows of the signal settle by themselves.
//! - A position is between rows: a batch of which a part was settled goes on behind that part.
//!
//! # Not here
//!
//! Requests, answers, waiting before a repetition.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use model::telemetry_codec::{DecodeError, decode_arrow};
use model::{Table, Timestamp, catch_panic};
use tokio::sync::watch;

use crate::engine_core::EngineCore;
use crate::export_cursors::LogExport;
use crate::wal::{LogReader, WalFrame};
use crate::{ArrivalPosition, Error};

/// So many bytes of the log are looked through at once.
const STRETCH: u64 = 16 << 20;

/// A batch of the log, or the part of it that is not settled.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// The place of its first row here.
    pub position: ArrivalPosition,
    /// The place behind its last one.
    pub end: ArrivalPosition,
    /// When it arrived.
    pub arrived: Timestamp,
    /// Its rows, at least one.
    pub rows: Vec<RecordBatch>,
}

impl LogEntry {
    /// How many rows it has.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows.iter().map(RecordBatch::num_rows).sum()
    }

    /// Its first `rows` rows, and the others.
    #[must_use]
    pub fn split_at(self, rows: usize) -> (Self, Self) {
        let middle = self.behind(rows);
        let (mut first, mut left) = (Vec::new(), rows);
        for batch in &self.rows {
            let taken = left.min(batch.num_rows());
            left -= taken;
            first.extend((taken > 0).then(|| batch.slice(0, taken)));
        }
        let others = Self {
            position: middle,
            rows: without_first(self.rows, rows),
            ..self
        };
        let first = Self {
            end: middle,
            rows: first,
            position: self.position,
            arrived: self.arrived,
        };
        (first, others)
    }

    /// The place behind its first `rows` rows.
    pub(crate) fn behind(&self, rows: usize) -> ArrivalPosition {
        if rows >= self.row_count() {
            self.end
        } else {
            ArrivalPosition {
                lsn: self.position.lsn,
                row: self.position.row + rows,
            }
        }
    }
}

/// Reads a signal's rows for one exporter.
#[derive(Debug)]
pub struct LogFollower {
    shared: Arc<EngineCore>,
    table: Table,
    news: watch::Receiver<u64>,
    /// `None` before the first look, and after one that was cut off.
    reader: Option<LogReader>,
    /// Everything before it was handed out.
    delivered: ArrivalPosition,
    /// Frames up to this LSN were looked at.
    scanned: u64,
}

impl LogFollower {
    pub(crate) fn start(shared: &Arc<EngineCore>, table: Table) -> Option<Self> {
        let export = shared.export.get()?;
        let delivered = export.cursors.next(table)?;
        Some(Self {
            shared: Arc::clone(shared),
            table,
            news: export.durable.subscribe(),
            reader: None,
            delivered,
            scanned: delivered.lsn.saturating_sub(1),
        })
    }

    /// The signal.
    #[must_use]
    pub const fn table(&self) -> Table {
        self.table
    }

    /// Waits for rows, and returns the next ones: whole batches, as many as are at hand, until they are about `bytes` in the log.
    ///
    /// # Errors
    /// If the log cannot be read, or positions cannot be kept: nothing is lost, it may be tried again.
    pub async fn next(&mut self, bytes: u64) -> Result<Vec<LogEntry>, Error> {
        loop {
            let durable = *self.news.borrow_and_update();
            if self.scanned >= durable {
                self.sync().await?;
                // The sender lives as long as `shared`.
                let _ = self.news.changed().await;
                continue;
            }
            let found = self.read(durable, bytes).await?;
            if !found.is_empty() {
                return Ok(found);
            }
            if self.is_settled() {
                self.settle(ArrivalPosition::before(self.scanned + 1)).await?;
            }
        }
    }

    /// Whether the log has something that was not looked at.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.scanned < *self.news.borrow()
    }

    /// Whether everything that was handed out is settled.
    fn is_settled(&self) -> bool {
        let next = self
            .shared
            .export
            .get()
            .and_then(|export| export.cursors.next(self.table));
        next.is_some_and(|next| next >= self.delivered)
    }

    /// Everything before `next` is settled: accepted by whoever it was for, or kept elsewhere, durably.
    ///
    /// # Errors
    /// If the position could not be written or synced. It counts all the same, until the process ends.
    pub async fn settle(&self, next: ArrivalPosition) -> Result<(), Error> {
        let (shared, table) = (Arc::clone(&self.shared), self.table);
        // Behind the last batch are frames without rows of the signal: they are settled with it.
        let is_all = next >= self.delivered;
        let next = if is_all {
            next.max(ArrivalPosition::before(self.scanned + 1))
        } else {
            next
        };
        blocking(move || {
            let Some(export) = shared.export.get() else {
                return Ok(());
            };
            let is_due = export.cursors.advance(table, next)?;
            // The next flush has the log let go of it.
            let is_long = shared.counters.wal_bytes.get() > shared.settings.wal_max.get() / 2;
            if is_due || is_long {
                sync_cursors(&shared, export)?;
            }
            Ok(())
        })
        .await
    }

    async fn sync(&self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            shared
                .export
                .get()
                .map_or(Ok(()), |export| sync_cursors(&shared, export))
        })
        .await
    }

    /// Looks through the log up to `durable`, until something is found.
    async fn read(&mut self, durable: u64, bytes: u64) -> Result<Vec<LogEntry>, Error> {
        let (shared, table, from) = (Arc::clone(&self.shared), self.table, self.delivered);
        let scanned = self.scanned;
        let reader = self.reader.take();
        let done = blocking(move || {
            let Some(export) = shared.export.get() else {
                return Err(Error::Closed);
            };
            let mut reader = reader.unwrap_or_else(|| {
                let (dir, store) = (&shared.store.layout.wal, shared.store.id);
                LogReader::new(dir, store, scanned, &export.lost)
            });
            let goal = LogStretch {
                table,
                from,
                durable,
                last: export.last_frame(durable),
                bytes,
            };
            let found = goal.read(&shared, &mut reader);
            Ok((reader, found))
        });
        let (mut reader, found) = done.await?;
        self.shared.counters.export_gaps.add(reader.take_gaps());
        if found.is_err() {
            reader.rewind(scanned);
        }
        self.reader = Some(reader);
        let (scanned, entries) = found?;
        self.scanned = scanned;
        if let Some(last) = entries.last() {
            self.delivered = last.end;
        }
        Ok(entries)
    }
}

/// Syncs the positions; what waits for room in the log is told.
fn sync_cursors(shared: &EngineCore, export: &LogExport) -> Result<(), Error> {
    export.cursors.sync()?;
    if shared.log_is_full() {
        shared.scheduler.request_flush();
    }
    Ok(())
}

/// What of the log is to be looked through.
struct LogStretch {
    table: Table,
    /// Rows before it were handed out.
    from: ArrivalPosition,
    durable: u64,
    /// The last frame that there is up to `durable`.
    last: u64,
    bytes: u64,
}

impl LogStretch {
    /// The LSN up to which frames were looked at, and what was found.
    fn read(&self, shared: &EngineCore, reader: &mut LogReader) -> Result<(u64, Vec<LogEntry>), Error> {
        let (mut entries, mut taken, mut passed, mut scanned) = (Vec::new(), 0, 0, 0);
        loop {
            let frame = match reader.next(self.last) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok((self.durable, entries)),
                Err(error) if entries.is_empty() => return Err(error),
                // What is before it is handed out first.
                Err(_) => return Ok((scanned, entries)),
            };
            scanned = frame.lsn;
            passed += frame.encoded_len();
            if frame.table == self.table.number() {
                taken += frame.encoded_len();
                match self.entry(&frame) {
                    Ok(entry) => entries.extend(entry),
                    Err(reason) => keep_frame(shared, &frame, &reason)?,
                }
            }
            if taken >= self.bytes || passed >= STRETCH {
                return Ok((scanned, entries));
            }
        }
    }

    /// The rows of a frame that were not handed out; none if it has none. Or why it cannot be read.
    fn entry(&self, frame: &WalFrame) -> Result<Option<LogEntry>, String> {
        // Memory of its own, aligned, as recovery reads it.
        let payload = Bytes::copy_from_slice(&frame.payload);
        let rows = catch_panic(|| match decode_arrow(self.table, &payload) {
            Ok(rows) => Ok(rows),
            Err(DecodeError::Empty) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        })?;
        let skip = if frame.lsn == self.from.lsn { self.from.row } else { 0 };
        let rows = without_first(rows, skip);
        let position = ArrivalPosition {
            lsn: frame.lsn,
            row: skip,
        };
        let arrived = frame.arrived;
        Ok((!rows.is_empty()).then_some(LogEntry {
            position,
            end: ArrivalPosition::before(frame.lsn + 1),
            arrived,
            rows,
        }))
    }
}

/// Keeps a frame that cannot be understood, durably: it must not keep those behind it.
fn keep_frame(shared: &EngineCore, frame: &WalFrame, reason: &str) -> Result<(), Error> {
    let path = shared.store.layout.quarantine.join(format!("batch_{:020}", frame.lsn));
    durable_fs::write_durably(&path, &frame.payload)?;
    shared.counters.quarantined_files.add(1);
    tracing::error!(lsn = frame.lsn, reason, path = %path.display(), "a batch of the log cannot be exported; it was kept");
    Ok(())
}

/// Rows without the first `skip` ones, and without empty batches.
fn without_first(rows: Vec<RecordBatch>, mut skip: usize) -> Vec<RecordBatch> {
    let left = rows.into_iter().map(|batch| {
        let passed = skip.min(batch.num_rows());
        skip -= passed;
        batch.slice(passed, batch.num_rows() - passed)
    });
    left.filter(|batch| batch.num_rows() > 0).collect()
}

/// Runs what waits for the disk on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Closed))
}
