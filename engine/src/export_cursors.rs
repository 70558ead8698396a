//! Export cursors: how far the telemetry in the log was exported, kept durably, one position per signal.
//!
//! `meta/export_cursors` has two blocks of 4096 bytes that are written in turn:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `PLATEXPC` |
//! | 8 | 4 | CRC-32C over the other fields |
//! | 12 | 4 | zero |
//! | 16 | 16 | store id |
//! | 32 | 8 | version: the block with the higher one counts |
//! | 40 | 8 | unstored: telemetry with this LSN or a higher one was not kept here |
//! | 48 | 3 × 16 | of logs, traces and metrics: LSN and row of the next row to export |
//!
//! # Invariants
//!
//! - A position is written as soon as it is settled, and synced now and then: a process that is killed exports nothing again that
//!   was settled, a power failure at most what was settled since the last sync.
//! - The log lets go of nothing at or behind the lowest synced position ([`ExportCursors::low_water`]).
//! - A sync that failed is not tried again on the same file: the next one makes the file anew.
//! - Positions only grow.
//!
//! # Not here
//!
//! Reading the log: [`crate::LogFollower`]. Sending anything anywhere.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::Table;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

use crate::snapshot::table_index;
use crate::{ArrivalPosition, Error, ExportMode};

const NAME: &str = "export_cursors";
const MAGIC: &[u8; 8] = b"PLATEXPC";
const BLOCK: usize = 4096;
const SIGNALS: usize = 3;
/// Bytes of a block that carry something.
const USED: usize = 48 + SIGNALS * 16;
/// While positions move, they are synced so often.
const SYNC_PAUSE: Duration = Duration::from_millis(250);

/// What the followers of a store's log share with its committer.
#[derive(Debug)]
pub(crate) struct LogExport {
    pub(crate) cursors: ExportCursors,
    /// Frames up to this LSN are durable.
    pub(crate) durable: watch::Sender<u64>,
    /// LSN of the last frame that recovery left in the log, and the lowest one that may follow it.
    pub(crate) opened: (u64, u64),
    /// Recovery has reported that frames are lost among these LSNs.
    pub(crate) lost: Vec<RangeInclusive<u64>>,
}

impl LogExport {
    /// The last frame that is in the log, of those up to `durable`.
    pub(crate) fn last_frame(&self, durable: u64) -> u64 {
        let (tail, next) = self.opened;
        if durable < next { durable.min(tail) } else { durable }
    }
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExportPositions {
    version: u64,
    /// Telemetry from this LSN on was not kept here; `u64::MAX` where all was.
    pub(crate) unstored_from: u64,
    /// Of each signal, the next row to export.
    pub(crate) next: [ArrivalPosition; SIGNALS],
}

impl ExportPositions {
    /// Every row of all signals below this LSN was exported.
    pub(crate) fn low_water(&self) -> u64 {
        self.next.iter().map(|next| next.lsn).min().unwrap_or(0)
    }

    /// The highest LSN that any position names.
    pub(crate) fn highest(&self) -> u64 {
        self.next.iter().map(|next| next.lsn).max().unwrap_or(0)
    }

    /// Whether a telemetry batch of the log was not kept here and need not be: it was exported, or is going to be.
    pub(crate) fn is_unstored(&self, table: Table, lsn: u64, mode: ExportMode) -> bool {
        let is_exported = || self.next.get(table_index(table)).is_some_and(|next| lsn < next.lsn);
        table.is_telemetry() && lsn >= self.unstored_from && (mode == ExportMode::Only || is_exported())
    }

    fn encode(&self, store: Uuid) -> [u8; BLOCK] {
        let mut fields = Vec::with_capacity(USED);
        fields.extend_from_slice(MAGIC);
        fields.extend_from_slice(&[0; 8]);
        fields.extend_from_slice(store.as_bytes());
        fields.extend_from_slice(&self.version.to_le_bytes());
        fields.extend_from_slice(&self.unstored_from.to_le_bytes());
        for next in &self.next {
            fields.extend_from_slice(&next.lsn.to_le_bytes());
            fields.extend_from_slice(&(next.row as u64).to_le_bytes());
        }
        let crc = checksum(&fields);
        fields[8..12].copy_from_slice(&crc.to_le_bytes());
        let mut block = [0; BLOCK];
        block[..USED].copy_from_slice(&fields);
        block
    }

    fn decode(block: &[u8], store: Uuid) -> Option<Self> {
        let fields = block.get(..USED)?;
        let number = |at: usize| Some(u64::from_le_bytes(fields.get(at..at + 8)?.try_into().ok()?));
        let crc = u32::from_le_bytes(fields.get(8..12)?.try_into().ok()?);
        if !fields.starts_with(MAGIC) || crc != checksum(fields) || fields.get(16..32)? != store.as_bytes() {
            return None;
        }
        let mut next = [ArrivalPosition::before(0); SIGNALS];
        for (at, next) in (48..).step_by(16).zip(&mut next) {
            next.lsn = number(at)?;
            next.row = usize::try_from(number(at + 8)?).ok()?;
        }
        Some(Self {
            version: number(32)?,
            unstored_from: number(40)?,
            next,
        })
    }

    /// What an earlier run left in the folder `meta`; `None` if it exported nothing. Where the file is damaged, everything from
    /// `low_water` on counts as not exported, and is kept here: who knows what was.
    pub(crate) fn read(meta: &Path, store: Uuid, low_water: u64) -> Result<Option<Self>, Error> {
        let path = meta.join(NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let blocks = bytes.chunks(BLOCK).filter_map(|block| Self::decode(block, store));
        let found = blocks.max_by_key(|found| found.version);
        Ok(Some(found.unwrap_or_else(|| {
            tracing::error!(
                path = %path.display(),
                "the export's positions are damaged: everything that the log still has is exported again"
            );
            Self {
                version: 0,
                unstored_from: u64::MAX,
                next: [ArrivalPosition::before(low_water); SIGNALS],
            }
        })))
    }
}

fn checksum(fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&fields[..8]), &fields[12..USED])
}

/// Whether a store that is not open exports.
pub(crate) fn are_there(meta: &Path) -> bool {
    meta.join(NAME).exists()
}

/// The positions of an open store.
#[derive(Debug)]
pub(crate) struct ExportCursors {
    store: Uuid,
    path: PathBuf,
    inner: Mutex<CursorFile>,
    /// That of the positions that are synced.
    low_water: AtomicU64,
}

#[derive(Debug)]
struct CursorFile {
    /// `None` after a failure: it is made anew.
    file: Option<File>,
    now: ExportPositions,
    /// Positions moved since the last sync.
    is_dirty: bool,
    synced: Instant,
}

impl ExportCursors {
    /// Goes on where an earlier run was, or begins with the batch `next_lsn`; durably. `None`, and the file is gone, if nothing is
    /// exported.
    pub(crate) fn begin(
        meta: &Path,
        store: Uuid,
        mode: ExportMode,
        found: Option<ExportPositions>,
        next_lsn: u64,
    ) -> Result<Option<Self>, Error> {
        let path = meta.join(NAME);
        if mode == ExportMode::Off {
            if found.is_some() {
                durable_fs::remove_if_there(&path)?;
                durable_fs::sync_dir(meta)?;
            }
            return Ok(None);
        }
        let mut now = found.unwrap_or(ExportPositions {
            version: 0,
            unstored_from: u64::MAX,
            next: [ArrivalPosition::before(next_lsn); SIGNALS],
        });
        now.unstored_from = match mode {
            ExportMode::Only => now.unstored_from.min(next_lsn),
            ExportMode::Off | ExportMode::Copy => u64::MAX,
        };
        let cursors = Self {
            store,
            path,
            low_water: now.low_water().into(),
            inner: Mutex::new(CursorFile {
                file: None,
                now,
                is_dirty: true,
                synced: Instant::now(),
            }),
        };
        cursors.sync()?;
        Ok(Some(cursors))
    }

    /// Every frame with a lower LSN is exported, durably known to be so.
    pub(crate) fn low_water(&self) -> u64 {
        self.low_water.load(Ordering::Acquire)
    }

    /// Telemetry from this LSN on is not kept beyond the log.
    pub(crate) fn unstored_from(&self) -> u64 {
        self.inner.lock().now.unstored_from
    }

    /// A signal's next row.
    pub(crate) fn next(&self, table: Table) -> Option<ArrivalPosition> {
        self.inner.lock().now.next.get(table_index(table)).copied()
    }

    /// Everything of a signal before `next` is settled. Whether a sync is due.
    pub(crate) fn advance(&self, table: Table, next: ArrivalPosition) -> Result<bool, Error> {
        let mut inner = self.inner.lock();
        let Some(position) = inner.now.next.get_mut(table_index(table)) else {
            return Ok(false);
        };
        if next > *position {
            *position = next;
            inner.now.version += 1;
            inner.is_dirty = true;
            if let Err(error) = self.write(&inner) {
                // What it has now is unknown: a sync of it would say too much.
                inner.file = None;
                return Err(error);
            }
        }
        Ok(inner.is_dirty && inner.synced.elapsed() >= SYNC_PAUSE)
    }

    fn write(&self, inner: &CursorFile) -> Result<(), Error> {
        let Some(file) = &inner.file else { return Ok(()) };
        let block = inner.now.encode(self.store);
        let at = inner.now.version % 2 * BLOCK as u64;
        file.write_all_at(&block, at).map_err(Error::io("write", &self.path))
    }

    /// Makes the positions durable, if they moved. Then the log may let go of what is before them.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if !inner.is_dirty {
            return Ok(());
        }
        match inner.file.take() {
            Some(file) => {
                durable_fs::sync_file(&file, &self.path)?;
                inner.file = Some(file);
            }
            None => inner.file = Some(self.create(&inner.now)?),
        }
        inner.is_dirty = false;
        inner.synced = Instant::now();
        self.low_water.store(inner.now.low_water(), Ordering::Release);
        Ok(())
    }

    /// The file anew, with the same in both blocks.
    fn create(&self, now: &ExportPositions) -> Result<File, Error> {
        let blocks = [now.encode(self.store); 2].concat();
        durable_fs::write_atomically(&self.path, &blocks, 0o600)?;
        let file = File::options().write(true).open(&self.path);
        file.map_err(Error::io("open", &self.path))
    }
}
