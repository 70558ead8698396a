//! The write-ahead log: appended frames are durable after [`Wal::sync`] and come back, in order, after any crash.
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
//! - Files of the log, spares included, never take more than `max_bytes`.
//! - One append is one write in one segment. A group larger than a segment gets a segment of its own size.
//! - A segment is synced to its end before the next one's header exists; a header is synced before the segment gets its
//!   name; the folder is synced before the first frame is written. So a torn tail is possible in one place only.
//! - What recovery hands out has been rewritten and synced by recovery ([`recover`]).
//!
//! # Limits
//!
//! Damage to the very last synced group, with nothing written after it, can not be told from an interrupted write.
//!
//! # Not here
//!
//! What frames mean, group commit, when to release: the committer and the publisher.

mod disk;
mod frame;
mod recover;
mod replay;
mod segment;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

pub(crate) use frame::{Frame, MAX_FRAME};
pub(crate) use recover::Recovered;

use crate::Error;
use disk::Disk;
use segment::{HEADER_BLOCK, Header, Identity, Role, file_name};

/// Segment sizes are multiples of this.
const BLOCK: u64 = HEADER_BLOCK as u64;
/// Of the buffer that a group is encoded in, this much is kept for the next one.
const KEPT_BUFFER: usize = 4 << 20;
/// Spares kept for reuse; more are removed.
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
    /// Where damaged files go; on the same file system.
    pub(crate) quarantine: PathBuf,
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
}

/// A segment that holds frames and takes no more.
#[derive(Debug)]
struct Closed {
    number: u64,
    capacity: u64,
    /// LSN of its last frame.
    last: u64,
}

/// The segment being written.
#[derive(Debug)]
struct Active {
    identity: Identity,
    file: File,
    path: PathBuf,
    capacity: u64,
    /// Where the next frame goes.
    at: u64,
    /// LSN of its last frame; of the last frame before it while it has none.
    last: u64,
    /// Written to since the last sync.
    dirty: bool,
}

impl Active {
    fn room(&self) -> u64 {
        self.capacity - self.at
    }
}

/// A file to become a segment, under its present name.
#[derive(Debug)]
struct Blank {
    name: String,
    file: File,
    capacity: u64,
}

/// The log. One thread owns it.
#[derive(Debug)]
pub(crate) struct Wal {
    disk: Disk,
    options: WalOptions,
    /// In LSN order.
    closed: VecDeque<Closed>,
    active: Option<Active>,
    /// Numbers of the spare files, each of `segment_bytes`.
    spares: Vec<u64>,
    /// Names changed since the folder was last synced.
    names_dirty: bool,
    next_number: u64,
    /// The smallest LSN that the next frame may have.
    next_lsn: u64,
    /// LSN of the last frame in the log.
    tail: u64,
    /// Frames up to this LSN are synced.
    durable: u64,
    low_water: u64,
    poisoned: Option<Arc<str>>,
    buffer: Vec<u8>,
}

impl Wal {
    /// Opens the log in `dir`, creating it if need be, and recovers what it holds.
    pub(crate) fn open(dir: &Path, options: WalOptions) -> Result<(Self, Recovered), Error> {
        disk::create_dir_durably(dir)?;
        Self::open_on(Disk::open(dir)?, options)
    }

    fn open_on(disk: Disk, options: WalOptions) -> Result<(Self, Recovered), Error> {
        let options = options.checked()?;
        let below = options.low_water.saturating_sub(1);
        let mut wal = Self {
            disk,
            closed: VecDeque::new(),
            active: None,
            spares: Vec::new(),
            names_dirty: false,
            next_number: 1,
            next_lsn: below.saturating_add(1),
            tail: below,
            durable: below,
            low_water: options.low_water,
            options,
            poisoned: None,
            buffer: Vec::new(),
        };
        let recovered = recover::run(&mut wal)?;
        if wal.active.is_none() {
            match wal.switch(0) {
                // A full disk must not keep queries from starting; appends will say it again.
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((wal, recovered))
    }

    /// The smallest LSN that the next frame may have.
    #[cfg(test)]
    pub(crate) fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// Why the log accepts nothing any more, if so.
    pub(crate) fn poisoned(&self) -> Option<&Arc<str>> {
        self.poisoned.as_ref()
    }

    /// Bytes of segments with frames that are not released, and of the active one.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.closed_bytes() + self.active.as_ref().map_or(0, |active| active.capacity)
    }

    /// Bytes of all files of the log, spares included; never more than `max_bytes` once recovery is done.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.used_bytes() + self.spares.len() as u64 * self.options.segment_bytes
    }

    /// The largest group that the log could ever take.
    pub(crate) fn max_group_bytes(&self) -> u64 {
        self.options.max_bytes / BLOCK * BLOCK - BLOCK
    }

    /// Whether an append of `bytes` (the sum of [`Frame::encoded_len`]) finds room without anything being released first.
    #[cfg(test)]
    pub(crate) fn would_fit(&self, bytes: u64) -> bool {
        self.active.as_ref().is_some_and(|active| bytes <= active.room())
            || self.kept_bytes() + self.segment_for(bytes) <= self.options.max_bytes
    }

    /// Writes a group of frames with growing LSNs, in one write, without a sync.
    ///
    /// [`Error::LogFull`] and [`Error::NoSpace`] leave the log as it was: free something and try again. Any failure
    /// after bytes may have been written poisons.
    pub(crate) fn append(&mut self, frames: &[Frame]) -> Result<(), Error> {
        self.check_poison()?;
        let Some(last) = frames.last().map(|frame| frame.lsn) else {
            return Ok(());
        };
        let bytes = self.check(frames)?;
        if self.active.as_ref().is_none_or(|active| active.room() < bytes) {
            self.switch(bytes)?;
        }
        let Some(active) = self.active.as_mut() else {
            return Ok(());
        };
        self.buffer.clear();
        for frame in frames {
            frame.encode(&active.identity, self.durable, &mut self.buffer);
        }
        active.dirty = true;
        if let Err(error) = self.disk.write_at(&active.file, &active.path, &self.buffer, active.at) {
            return Err(self.poison(error));
        }
        self.buffer.shrink_to(KEPT_BUFFER);
        active.at += bytes;
        active.last = last;
        self.tail = last;
        self.next_lsn = last.saturating_add(1);
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
        self.durable = self.tail;
        Ok(())
    }

    /// Frames below `low_water` are stored elsewhere, durably: segments that hold no others become spares or go.
    pub(crate) fn release(&mut self, low_water: u64) -> Result<(), Error> {
        self.check_poison()?;
        self.low_water = self.low_water.max(low_water);
        while let Some(oldest) = self.closed.front().filter(|oldest| oldest.last < self.low_water) {
            let (number, capacity) = (oldest.number, oldest.capacity);
            self.retire(&file_name(Role::Log, number), number, capacity)?;
            self.closed.pop_front();
        }
        Ok(())
    }

    /// Checks a group and adds up its bytes.
    fn check(&self, frames: &[Frame]) -> Result<u64, Error> {
        let mut next = self.next_lsn;
        let mut bytes = 0;
        for frame in frames {
            let len = frame.encoded_len();
            if len > MAX_FRAME.min(self.max_group_bytes()) {
                return Err(Error::LogGroup {
                    bytes: len,
                    limit: MAX_FRAME.min(self.max_group_bytes()),
                });
            }
            if frame.lsn < next {
                return Err(Error::LogOrder { lsn: frame.lsn, next });
            }
            next = frame.lsn.saturating_add(1);
            bytes += len;
        }
        if bytes > self.max_group_bytes() {
            return Err(Error::LogGroup {
                bytes,
                limit: self.max_group_bytes(),
            });
        }
        Ok(bytes)
    }

    /// The size of a segment that takes a group of `bytes`.
    fn segment_for(&self, bytes: u64) -> u64 {
        self.options
            .segment_bytes
            .max(bytes.saturating_add(BLOCK).next_multiple_of(BLOCK))
    }

    fn closed_bytes(&self) -> u64 {
        self.closed.iter().map(|closed| closed.capacity).sum()
    }

    /// Whether the active segment holds nothing that is still needed.
    fn active_is_released(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.last < self.low_water)
    }

    /// Bytes that stay taken when a new segment replaces the active one.
    fn kept_bytes(&self) -> u64 {
        if self.active_is_released() {
            self.closed_bytes()
        } else {
            self.used_bytes()
        }
    }

    /// Opens a new active segment with room for `bytes`.
    fn switch(&mut self, bytes: u64) -> Result<(), Error> {
        let size = self.segment_for(bytes);
        if self.kept_bytes() + size > self.options.max_bytes {
            return Err(Error::LogFull {
                used: self.kept_bytes(),
                needed: size,
                limit: self.options.max_bytes,
            });
        }
        if self.active_is_released() {
            self.close_active()?;
            self.release(self.low_water)?;
        }
        let blank = self.blank(size)?;
        self.close_active()?;
        let header = Header {
            store: self.options.store,
            number: self.take_number()?,
            first: self.next_lsn,
            before: self.tail,
            copied: 0,
        };
        let path = self.install(&blank, &header)?;
        self.active = Some(Active {
            identity: Identity::new(header.store, header.number),
            file: blank.file,
            path,
            capacity: blank.capacity,
            at: BLOCK,
            last: self.tail,
            dirty: false,
        });
        Ok(())
    }

    /// Syncs the active segment and takes it out of use.
    fn close_active(&mut self) -> Result<(), Error> {
        self.sync()?;
        if let Some(active) = self.active.take() {
            self.closed.push_back(Closed {
                number: active.identity.number,
                capacity: active.capacity,
                last: active.last,
            });
        }
        Ok(())
    }

    /// Writes a segment's header and gives the file its name, both durably.
    fn install(&mut self, blank: &Blank, header: &Header) -> Result<PathBuf, Error> {
        let from = self.disk.path(&blank.name);
        let name = file_name(Role::Log, header.number);
        let installed = (|| {
            self.disk.write_at(&blank.file, &from, &header.encode(), 0)?;
            self.disk.sync(&blank.file, &from)?;
            self.disk.rename(&blank.name, &name)?;
            self.disk.sync_dir()
        })();
        match installed {
            Ok(()) => Ok(self.disk.path(&name)),
            Err(error) => Err(self.poison(error)),
        }
    }

    /// A file of `size` bytes to become a segment: a spare, or a new one within the cap.
    fn blank(&mut self, size: u64) -> Result<Blank, Error> {
        if size == self.options.segment_bytes
            && let Some(number) = self.spares.pop()
        {
            // A spare's header is overwritten only once its name durably says that it is a spare.
            if self.names_dirty {
                self.sync_dir()?;
            }
            let name = file_name(Role::Spare, number);
            let file = self.disk.open_file(&name)?;
            return Ok(Blank {
                name,
                file,
                capacity: size,
            });
        }
        self.trim_spares(size)?;
        let name = file_name(Role::New, self.take_number()?);
        match self.disk.create(&name, size) {
            Ok(file) => Ok(Blank {
                name,
                file,
                capacity: size,
            }),
            Err(Error::Io { path, source, .. }) if disk::is_no_space(&source) => Err(Error::NoSpace {
                path,
                needed: size,
                source,
            }),
            Err(error) => Err(error),
        }
    }

    /// Removes spares until `size` more bytes fit under the cap, or none is left.
    fn trim_spares(&mut self, size: u64) -> Result<(), Error> {
        while self.disk_bytes() + size > self.options.max_bytes
            && let Some(number) = self.spares.pop()
        {
            self.disk.unlink(&file_name(Role::Spare, number))?;
        }
        Ok(())
    }

    fn take_number(&mut self) -> Result<u64, Error> {
        let number = self.next_number;
        self.next_number = number.checked_add(1).ok_or_else(|| Error::Damaged {
            path: self.disk.dir().to_owned(),
            reason: "a file there has the highest possible segment number".to_owned(),
        })?;
        Ok(number)
    }

    /// Keeps a file as a spare, or removes it. The caller syncs the folder.
    fn retire(&mut self, name: &str, number: u64, capacity: u64) -> Result<(), Error> {
        self.names_dirty = true;
        let size = self.options.segment_bytes;
        let fits =
            self.spares.len() < SPARES && !self.spares.contains(&number) && self.disk_bytes() <= self.options.max_bytes;
        if capacity == size && fits {
            self.disk.rename(name, &file_name(Role::Spare, number))?;
            self.spares.push(number);
            Ok(())
        } else {
            self.disk.unlink(name)
        }
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

    /// Marks the log as unusable and hands the error back.
    fn poison(&mut self, error: Error) -> Error {
        self.poisoned = Some(error.to_string().into());
        error
    }
}

#[cfg(test)]
impl Wal {
    /// A switch that makes every later sync of a file fail.
    pub(crate) fn failing_syncs(&self) -> impl Fn() + Send + Sync + 'static {
        let faults = self.disk.faults.clone();
        move || {
            faults.plan(Some(faults::Plan {
                at: 0,
                op: Some(disk::Op::SyncFile),
                on: true,
                errno: libc::EIO,
            }));
        }
    }
}
