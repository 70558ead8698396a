//! Segment pool: spare segments, new ones, preallocated ones, and the switch from one segment to the next.
//!
//! # Invariants
//!
//! - The order of a switch: a file is found, the old segment synced to its end, the new header written and synced, the name
//!   given, the folder synced. Up to and with finding the file, nothing has changed if it fails; after that, failure poisons.
//! - A spare's header is overwritten only once its name durably says that it is a spare.
//! - Before a file is made, spares go until it fits under the cap, and then the one that is being made ahead.
//!
//! # Not here
//!
//! Frames; what recovery copies.

use std::fs::File;
use std::path::PathBuf;

use super::direct_io::BlockBuffer;
use super::preallocate::{FillPace, SegmentPreallocation};
use super::segment::{SegmentHeader, SegmentIdentity, WalFileRole, file_name};
use super::{ActiveSegment, BLOCK, ClosedSegment, MADE_AHEAD, SPARES, WriteAheadLog, directory};
use crate::Error;

/// A file to become a segment, under its present name.
#[derive(Debug)]
pub(super) struct BlankSegment {
    pub(super) name: String,
    pub(super) file: File,
    pub(super) capacity: u64,
}

impl WriteAheadLog {
    /// The size of a segment that takes a group of `bytes`.
    pub(super) fn segment_for(&self, bytes: u64) -> u64 {
        self.options
            .segment_bytes
            .max(bytes.saturating_add(BLOCK).next_multiple_of(BLOCK))
    }

    pub(super) fn closed_bytes(&self) -> u64 {
        self.closed.iter().map(|closed| closed.capacity).sum()
    }

    /// Whether the active segment holds nothing that is still needed.
    fn active_is_released(&self) -> bool {
        self.active
            .as_ref()
            .is_some_and(|active| active.last < self.lsn.low_water)
    }

    /// Bytes that stay taken when a new segment replaces the active one.
    pub(super) fn kept_bytes(&self) -> u64 {
        let active = self.active.iter().map(|active| (active.capacity, active.last));
        let closed = self.closed.iter().map(|closed| (closed.capacity, closed.last));
        let kept = active.chain(closed).filter(|(_, last)| *last >= self.lsn.low_water);
        kept.map(|(capacity, _)| capacity).sum()
    }

    /// Opens a new active segment of `size` bytes.
    pub(super) fn switch_to(&mut self, size: u64) -> Result<(), Error> {
        if self.kept_bytes() + size > self.options.max_bytes {
            return Err(Error::LogFull {
                used: self.kept_bytes(),
                needed: size,
                limit: self.options.max_bytes,
            });
        }
        if self.active_is_released() {
            self.close_active()?;
        }
        self.release(self.lsn.low_water)
            .map_err(|error| self.out_of_space(error, size))?;
        let blank = self.blank(size)?;
        self.close_active()?;
        let header = SegmentHeader {
            store: self.options.store,
            number: self.take_number()?,
            first: self.lsn.next,
            before: self.lsn.tail,
            copied: 0,
        };
        let path = self.install(&blank, &header)?;
        self.active = Some(ActiveSegment {
            identity: SegmentIdentity::new(header.store, header.number),
            file: blank.file,
            path,
            capacity: blank.capacity,
            out: BlockBuffer::new(BLOCK),
            last: self.lsn.tail,
            dirty: false,
            marked: false,
        });
        self.shed();
        Ok(())
    }

    /// Notes how many segments are in use, and removes a spare that was not needed for long.
    fn shed(&mut self) {
        self.spares.needed = self.spares.needed.saturating_sub(1).max(self.closed.len());
        if self.spares.numbers.len() > self.spares.needed.max(SPARES)
            && let Some(number) = self.spares.numbers.pop()
            && self.disk.unlink(&file_name(WalFileRole::Spare, number)).is_err()
        {
            // It only takes space, and another switch tries again.
            self.spares.numbers.push(number);
        }
    }

    /// Syncs the active segment and takes it out of use.
    fn close_active(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.shut_active();
        Ok(())
    }

    /// Takes the active segment, which is synced, out of use.
    pub(super) fn shut_active(&mut self) {
        if let Some(active) = self.active.take() {
            self.closed.push_back(ClosedSegment {
                number: active.identity.number,
                capacity: active.capacity,
                last: active.last,
            });
        }
    }

    /// Writes a segment's header and gives the file its name, both durably.
    pub(super) fn install(&mut self, blank: &BlankSegment, header: &SegmentHeader) -> Result<PathBuf, Error> {
        let from = self.disk.path(&blank.name);
        let name = file_name(WalFileRole::Log, header.number);
        let installed = (|| {
            let header = BlockBuffer::of(&header.encode(), 0);
            self.disk.write_at(&blank.file, &from, header.waiting(), 0)?;
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
    pub(super) fn blank(&mut self, size: u64) -> Result<BlankSegment, Error> {
        if size == self.options.segment_bytes
            && let Some(number) = self.spares.numbers.pop()
        {
            // A spare's header is overwritten only once its name durably says that it is a spare.
            if self.names_dirty {
                self.sync_dir()?;
            }
            let name = file_name(WalFileRole::Spare, number);
            let file = self.disk.open_to_write(&name)?;
            return Ok(BlankSegment {
                name,
                file,
                capacity: size,
            });
        }
        if let Some(ahead) = self.spares.ahead.take_if(|ahead| ahead.capacity == size) {
            let name = ahead.name.clone();
            if let Some(file) = ahead.take(self.active.as_ref().map_or(0, |active| active.out.end())) {
                let capacity = size;
                return Ok(BlankSegment { name, file, capacity });
            }
        }
        let made = self.trim_spares(size).and_then(|()| {
            let name = file_name(WalFileRole::New, self.take_number()?);
            let file = self.disk.create(&name, size, &FillPace::at_once())?;
            let capacity = size;
            Ok(BlankSegment { name, file, capacity })
        });
        made.map_err(|error| self.out_of_space(error, size))
    }

    /// The error of a step before which nothing had changed: a full disk is not the log's end, `size` bytes are waited for.
    fn out_of_space(&self, error: Error, needed: u64) -> Error {
        match error {
            Error::Io { path, source, .. } if directory::is_no_space(&source) && self.poisoned.is_none() => {
                Error::NoSpace { path, needed, source }
            }
            error => error,
        }
    }

    /// Removes spares until `size` more bytes fit under the cap, or none is left.
    pub(super) fn trim_spares(&mut self, size: u64) -> Result<(), Error> {
        while self.disk_bytes() + size > self.options.max_bytes
            && let Some(number) = self.spares.numbers.pop()
        {
            self.disk.unlink(&file_name(WalFileRole::Spare, number))?;
        }
        if self.disk_bytes() + size > self.options.max_bytes {
            self.spares.ahead = None;
        }
        Ok(())
    }

    /// Begins to make the next segment's file when the active one is half full, or small, no spare is there, and the cap
    /// allows it.
    pub(super) fn look_ahead(&mut self) {
        let size = self.options.segment_bytes;
        let is_near = |active: &&ActiveSegment| active.capacity < size || active.room() < active.capacity / 2;
        let near = self.active.as_ref().filter(is_near);
        let Some((number, used)) = near.map(|active| (active.identity.number, active.out.end())) else {
            return;
        };
        let wanted = size >= MADE_AHEAD
            && self.spares.numbers.is_empty()
            && self.spares.ahead.is_none()
            && self.spares.tried_ahead != number;
        if wanted && self.disk_bytes() + size <= self.options.max_bytes {
            self.spares.tried_ahead = number;
            let name = self.take_number().map(|number| file_name(WalFileRole::New, number));
            self.spares.ahead = name
                .ok()
                .and_then(|name| SegmentPreallocation::begin(&self.disk, name, size, used));
        }
    }

    pub(super) fn take_number(&mut self) -> Result<u64, Error> {
        let number = self.next_number;
        self.next_number = number
            .checked_add(1)
            .ok_or_else(|| Error::damaged(self.disk.dir(), "a file there has the highest possible segment number"))?;
        Ok(number)
    }

    /// Keeps a file as a spare, or removes it. The caller syncs the folder.
    pub(super) fn retire(&mut self, name: &str, number: u64, capacity: u64) -> Result<(), Error> {
        self.names_dirty = true;
        let size = self.options.segment_bytes;
        let fits = self.spares.numbers.len() < self.spares.needed.max(SPARES)
            && !self.spares.numbers.contains(&number)
            && self.disk_bytes() <= self.options.max_bytes;
        if capacity == size && fits {
            self.disk.rename(name, &file_name(WalFileRole::Spare, number))?;
            self.spares.numbers.push(number);
            Ok(())
        } else {
            self.disk.unlink(name)
        }
    }
}
