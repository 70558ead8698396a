//! The write-ahead log: appended frames are durable after [`WriteAheadLog::sync`] and come back, in order, after any crash.
//!
//! ```text
//! append ─> active segment ─ sync ─> closed segments ─ release ─> spares ─┐
//!             ^                                                          │ renamed to a new number
//!             └──────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - A failed write or sync poisons the log: nothing is retried, everything later is refused, the process restarts. What a
//!   failed write left behind is unknown, so nothing may ever follow it in the same segment.
//! - Segments are allocated and zero-written before use: an append into one can not find the disk full. A full disk or a
//!   full log is met when a segment is wanted; that error leaves the log as it was, and the append may be tried again.
//! - Segments, spares included, never take more than `max_bytes`; beside them is one block ([`durable_lsn`]).
//! - Writes pass the page cache by where the file system lets them: the memory is for data files, and nothing is copied twice.
//! - One append is one write in one segment. A group larger than a segment gets a segment of its own size.
//! - A segment is synced to its end before the next one's header exists; a header is synced before the segment gets its
//!   name; the folder is synced before the first frame is written. So a torn tail is possible in one place only.
//! - What recovery hands out has been rewritten and synced by recovery ([`recovery`]), on a full disk where it stood.
//! - The first segment of a new log is small: the next one is made while it is written.
//!
//! # Limits
//!
//! Damage that reaches to the end of what was written, the mark included, can not be told from an interrupted write: it is
//! cut. So it is where the power failed before the last mark was on the disk. The next group written closes that gap for
//! everything before it, and a log that gives up or finds no room leaves durable_lsn of how far it was ([`durable_lsn`]).
//!
//! # Not here
//!
//! What frames mean, group commit, when to release: the committer and the flusher.

mod buffer_pool;
mod direct_io;
mod directory;
mod durable_lsn;
mod frame;
mod inspect;
mod log_reader;
mod preallocate;
mod recovery;
mod rewrite;
mod segment;
mod segment_pool;

#[cfg(test)]
mod fault_injection;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

pub(crate) use frame::{MAX_FRAME, WalFrame};
pub(crate) use inspect::{inspect_log, is_there};
pub(crate) use log_reader::LogReader;
pub(crate) use recovery::WalRecovery;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use recovery::fuzz_segment;

use crate::Error;
use direct_io::BlockBuffer;
use directory::WalDirectory;
use durable_lsn::DurableLsn;
use preallocate::SegmentPreallocation;
use segment::{HEADER_BLOCK, SegmentIdentity, WalFileRole, file_name};

/// Segment sizes are multiples of this.
const BLOCK: u64 = HEADER_BLOCK as u64;
/// A smaller segment is made in no time.
const MADE_AHEAD: u64 = 1 << 20;
/// The size of a log's very first segment, so that a new store need not wait for a large one.
const FIRST: u64 = 8 << 20;
/// Spares kept for reuse, at least; more if the log needed more of late.
const SPARES: usize = 4;

/// How a log is laid out and from where it matters.
#[derive(Debug, Clone)]
pub(crate) struct WalOptions {
    /// The store's id: frames of another store are foreign.
    pub(crate) store: Uuid,
    /// Size of a segment; reduced so that four fit into `max_bytes`.
    pub(crate) segment_bytes: u64,
    /// What all files of the log may take together.
    pub(crate) max_bytes: u64,
    /// Frames below this LSN are stored elsewhere, durably: they are not recovered, and not missed.
    pub(crate) low_water: u64,
    /// Not above it: frames from here on are recovered too, as far as they are still there, and not missed below it.
    pub(crate) replay_from: u64,
    /// Where damaged files go; on the same file system.
    pub(crate) quarantine: PathBuf,
    /// Of the frames below `replay_from`, the last ones of each segment, so many bytes, are handed out too where they are still there.
    pub(crate) recall: u64,
}

impl WalOptions {
    /// The options with a segment size that works.
    fn checked(mut self) -> Result<Self, Error> {
        if self.max_bytes < 8 * BLOCK {
            return Err(Error::Setting {
                key: "store.wal_max_size_mb",
                value: self.max_bytes.to_string(),
                reason: format!("the log needs at least {} bytes", 8 * BLOCK),
            });
        }
        let most = self.max_bytes / 4 / BLOCK * BLOCK;
        self.segment_bytes = (self.segment_bytes / BLOCK * BLOCK).clamp(2 * BLOCK, most);
        Ok(self)
    }

    /// The largest group that the log could ever take.
    pub(crate) const fn max_group_bytes(&self) -> u64 {
        self.max_bytes / BLOCK * BLOCK - BLOCK
    }
}

/// A segment that holds frames and takes no more.
#[derive(Debug)]
struct ClosedSegment {
    number: u64,
    capacity: u64,
    /// LSN of its last frame.
    last: u64,
}

/// The segment being written.
#[derive(Debug)]
struct ActiveSegment {
    identity: SegmentIdentity,
    file: File,
    path: PathBuf,
    capacity: u64,
    /// What is written next, and where.
    out: BlockBuffer,
    /// LSN of its last frame; of the last frame before it while it has none.
    last: u64,
    /// Written to since the last sync.
    dirty: bool,
    /// Whether its end is marked as synced.
    marked: bool,
}

impl ActiveSegment {
    fn room(&self) -> u64 {
        self.capacity - self.out.end()
    }
}

/// Who takes the frames that recovery finds, some at a time.
pub(crate) type FrameSink<'a> = &'a mut dyn FnMut(Vec<WalFrame>) -> Result<(), Error>;

/// The log. One thread owns it.
#[derive(Debug)]
pub(crate) struct WriteAheadLog {
    disk: WalDirectory,
    options: WalOptions,
    /// In LSN order.
    closed: VecDeque<ClosedSegment>,
    active: Option<ActiveSegment>,
    spares: SpareSegments,
    /// Names changed since the folder was last synced.
    names_dirty: bool,
    next_number: u64,
    lsn: LogPositions,
    word: DurableLsn,
    poisoned: Option<Arc<str>>,
}

/// Files for segments to come.
#[derive(Debug, Default)]
struct SpareSegments {
    /// Their numbers; each has `segment_bytes`.
    numbers: Vec<u64>,
    /// How many segments were in use at once, less one for every segment that was begun since then without so many.
    needed: usize,
    /// The next segment's file, if one is being made and no spare is there.
    ahead: Option<SegmentPreallocation>,
    /// The segment for which that was tried last.
    tried_ahead: u64,
}

/// How far the log is.
#[derive(Debug)]
struct LogPositions {
    /// The smallest LSN that the next frame may have.
    next: u64,
    /// LSN of the last frame in the log.
    tail: u64,
    /// Frames up to this LSN are synced.
    durable: u64,
    low_water: u64,
}

impl WriteAheadLog {
    /// Opens the log in `dir`, creating it if need be, and recovers what it holds: the frames that are to be replayed, in LSN
    /// order, go to `sink` as soon as they are durable anew; before them those that are to be recalled. An error of it ends the recovery; a later one begins again.
    pub(crate) fn open(dir: &Path, options: WalOptions, sink: FrameSink<'_>) -> Result<(Self, WalRecovery), Error> {
        durable_fs::create_private_dirs(dir)?;
        Self::open_on(WalDirectory::open(dir)?, options, sink)
    }

    fn open_on(disk: WalDirectory, options: WalOptions, sink: FrameSink<'_>) -> Result<(Self, WalRecovery), Error> {
        let options = options.checked()?;
        let below = options.low_water.saturating_sub(1);
        let mut wal = Self {
            word: DurableLsn::open(&disk, options.store),
            disk,
            closed: VecDeque::new(),
            active: None,
            spares: SpareSegments::default(),
            names_dirty: false,
            next_number: 1,
            lsn: LogPositions {
                next: below.saturating_add(1),
                tail: below,
                durable: below,
                low_water: options.replay_from,
            },
            options,
            poisoned: None,
        };
        let recovered = recovery::run(&mut wal, sink)?;
        if wal.active.is_none() {
            match wal.begin() {
                // A full disk or log must not keep queries from starting; appends will say it again.
                Ok(()) | Err(Error::NoSpace { .. } | Error::LogFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((wal, recovered))
    }

    /// Makes a log without segments ready: with a spare if there is one, else with a small segment, and the next one is begun.
    fn begin(&mut self) -> Result<(), Error> {
        let most = if self.spares.numbers.is_empty() {
            FIRST
        } else {
            u64::MAX
        };
        self.switch_to(self.options.segment_bytes.min(most))?;
        self.look_ahead();
        Ok(())
    }

    /// The smallest LSN that the next frame may have.
    #[cfg(test)]
    pub(crate) fn next_lsn(&self) -> u64 {
        self.lsn.next
    }

    /// LSN of the last frame in the log.
    pub(crate) const fn tail(&self) -> u64 {
        self.lsn.tail
    }

    /// Why the log accepts nothing any more, if so.
    pub(crate) fn poisoned(&self) -> Option<&Arc<str>> {
        self.poisoned.as_ref()
    }

    /// Bytes of segments with frames that are not released, and of the active one.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.closed_bytes() + self.active.as_ref().map_or(0, |active| active.capacity)
    }

    /// Bytes of all files of the log, spares and the one being made included; never more than `max_bytes` once recovery is done.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let ahead = self.spares.ahead.as_ref().map_or(0, |ahead| ahead.capacity);
        self.used_bytes() + self.spares.numbers.len() as u64 * self.options.segment_bytes + ahead
    }

    /// Whether an append of `bytes` (the sum of [`WalFrame::encoded_len`]) finds room without anything being released first.
    #[cfg(test)]
    pub(crate) fn would_fit(&self, bytes: u64) -> bool {
        self.active.as_ref().is_some_and(|active| bytes <= active.room())
            || self.kept_bytes() + self.segment_for(bytes) <= self.options.max_bytes
    }

    /// Makes sure that the active segment has room for a group of `bytes` (the sum of [`WalFrame::encoded_len`]).
    ///
    /// [`Error::LogFull`] and [`Error::NoSpace`] leave the log as it was: free something and try again.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        self.check_poison()?;
        if self.active.as_ref().is_some_and(|active| active.room() >= bytes) {
            return Ok(());
        }
        let switched = self.switch_to(self.segment_for(bytes));
        if matches!(switched, Err(Error::NoSpace { .. })) {
            self.persist_durable_lsn();
        }
        switched
    }

    /// Writes a group of frames with growing LSNs, in one write, without a sync. Reserves their room if nobody did, and fails
    /// as [`WriteAheadLog::reserve`] then; any failure after bytes may have been written poisons.
    pub(crate) fn append(&mut self, frames: &[WalFrame]) -> Result<(), Error> {
        self.check_poison()?;
        let Some(last) = frames.last().map(|frame| frame.lsn) else {
            return Ok(());
        };
        let bytes = self.check(frames)?;
        self.reserve(bytes)?;
        let Some(active) = self.active.as_mut() else {
            return Ok(());
        };
        let out = active.out.room(usize::try_from(bytes).unwrap_or(usize::MAX));
        for frame in frames {
            frame.encode(&active.identity, self.lsn.durable, out);
        }
        (active.dirty, active.marked) = (true, false);
        let (file, path) = (&active.file, &active.path);
        let written = active.out.write(|bytes, at| self.disk.write_at(file, path, bytes, at));
        if let Err(error) = written {
            return Err(self.poison(error));
        }
        active.last = last;
        self.lsn.tail = last;
        self.lsn.next = last.saturating_add(1);
        Ok(())
    }

    /// Makes every appended frame durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.check_poison()?;
        if let Some(active) = self.active.as_mut().filter(|active| active.dirty) {
            if let Err(error) = self.disk.sync(&active.file, &active.path) {
                return Err(self.poison(error));
            }
            active.dirty = false;
        }
        self.lsn.durable = self.lsn.tail;
        self.look_ahead();
        Ok(())
    }

    /// Leaves durable_lsn of how far the log is, for the disk is in trouble: see [`durable_lsn`].
    pub(crate) fn persist_durable_lsn(&mut self) {
        self.word.persist(&self.disk, self.lsn.durable);
    }

    /// Marks the last frame as synced, where the next one will stand. Needs no sync: see [`frame`].
    pub(crate) fn write_sync_mark(&mut self) -> Result<(), Error> {
        self.check_poison()?;
        let Some(active) = self.active.as_mut().filter(|active| !active.dirty && !active.marked) else {
            return Ok(());
        };
        active.marked = true;
        if active.room() < frame::MARK_BYTES as u64 {
            return Ok(());
        }
        let mark = frame::mark(&active.identity, self.lsn.durable);
        let (file, path) = (&active.file, &active.path);
        let write = |bytes: &[u8], at| self.disk.write_at(file, path, bytes, at);
        let marked = active.out.write_with(&mark, write);
        marked.map_err(|error| self.poison(error))
    }

    /// Frames below `low_water` are stored elsewhere, durably: segments that hold no others become spares or go.
    pub(crate) fn release(&mut self, low_water: u64) -> Result<(), Error> {
        self.check_poison()?;
        self.lsn.low_water = self.lsn.low_water.max(low_water);
        while let Some(oldest) = self.closed.front().filter(|oldest| oldest.last < self.lsn.low_water) {
            let (number, capacity) = (oldest.number, oldest.capacity);
            self.retire(&file_name(WalFileRole::Log, number), number, capacity)?;
            self.closed.pop_front();
        }
        Ok(())
    }

    /// Checks a group and adds up its bytes.
    fn check(&self, frames: &[WalFrame]) -> Result<u64, Error> {
        let (mut next, mut bytes) = (self.lsn.next, 0);
        let most = self.options.max_group_bytes();
        for frame in frames {
            let (len, limit) = (frame.encoded_len(), MAX_FRAME.min(most));
            if len > limit {
                return Err(Error::LogGroup { bytes: len, limit });
            }
            if frame.lsn < next {
                return Err(Error::LogOrder { lsn: frame.lsn, next });
            }
            next = frame.lsn.saturating_add(1);
            bytes += len;
        }
        if bytes > most {
            return Err(Error::LogGroup { bytes, limit: most });
        }
        Ok(bytes)
    }

    fn sync_dir(&mut self) -> Result<(), Error> {
        match self.disk.sync_dir() {
            Ok(()) => {
                self.names_dirty = false;
                Ok(())
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    fn check_poison(&self) -> Result<(), Error> {
        match &self.poisoned {
            Some(reason) => Err(Error::Poisoned {
                reason: Arc::clone(reason),
            }),
            None => Ok(()),
        }
    }

    /// Marks the log as unusable, leaves word of how far it was, and hands the error back.
    fn poison(&mut self, error: Error) -> Error {
        self.persist_durable_lsn();
        self.poisoned = Some(error.to_string().into());
        error
    }
}

#[cfg(test)]
impl WriteAheadLog {
    /// A switch that makes every later sync of a file fail.
    pub(crate) fn failing_syncs(&self) -> impl Fn() + Send + Sync + 'static {
        let faults = self.disk.faults.clone();
        move || {
            faults.plan(Some(fault_injection::DiskFaultPlan {
                at: 0,
                op: Some(directory::DiskOperation::SyncFile),
                on: true,
                errno: libc::EIO,
            }));
        }
    }
}
