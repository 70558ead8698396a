//! Recovery's copies: frames that count are written into new segments, synced, named; then the old segments go.
//!
//! # Invariants
//!
//! - A copy's number is burned in the synced folder before a frame is written under it.
//! - An old segment goes when every frame read so far is in a named copy.
//! - Each LSN is copied once, in growing order.
//! - A frame is handed out when the copy that it is in is synced and named, and after the old segments it made superfluous
//!   have gone.
//!
//! # Not here
//!
//! Which frames count: [`super::recover`].

use super::blocks::Blocks;
use super::frame::Frame;
use super::recover::{Damage, Old};
use super::segment::{Header, Identity, Role, file_name};
use super::supply::Blank;
use super::{Active, BLOCK, Closed, Sink, Wal};
use crate::Error;

/// Writes what counts into new segments.
pub(super) struct Copier<'a> {
    pub(super) wal: &'a mut Wal,
    target: Option<Target>,
    /// Who gets the frames.
    pub(super) sink: Sink<'a>,
    /// Frames of the copy being written.
    frames: Vec<Frame>,
    /// The highest LSN read.
    pub(super) last: u64,
    /// The highest LSN reported as lost.
    pub(super) reported: u64,
    /// LSN of the last frame copied; 0 before the first.
    copied: u64,
    /// Old segments whose frames are not all in named copies yet.
    pending: Vec<Old>,
    damage: Vec<Damage>,
}

/// What copying came to.
pub(super) struct Done {
    pub(super) highest: u64,
    pub(super) damage: Vec<Damage>,
}

/// The copy being written.
struct Target {
    blank: Blank,
    identity: Identity,
    first: u64,
    before: u64,
    out: Blocks,
}

/// Copied frames are written in pieces of about this size.
const PIECE: usize = 1 << 20;

impl<'a> Copier<'a> {
    pub(super) fn new(wal: &'a mut Wal, damage: Vec<Damage>, sink: Sink<'a>) -> Self {
        let last = wal.tail;
        Self {
            wal,
            target: None,
            sink,
            frames: Vec::new(),
            last,
            reported: 0,
            copied: 0,
            pending: Vec::new(),
            damage,
        }
    }

    /// Copies a frame, unless a copy of it or a later one was taken before. Below the low water nothing is taken.
    pub(super) fn take(&mut self, lsn: u64, frame: impl FnOnce() -> Frame) -> Result<(), Error> {
        if lsn <= self.last {
            return Ok(());
        }
        self.last = lsn;
        let frame = frame();
        let bytes = frame.encoded_len();
        let is_full = |target: &Target| target.out.end() + bytes > target.blank.capacity;
        if self.target.as_ref().is_some_and(is_full) {
            self.finish_target()?;
        }
        if self.target.is_none() {
            self.target = Some(self.start(lsn, bytes)?);
        }
        let Some(target) = &mut self.target else {
            return Ok(());
        };
        let out = target.out.room(usize::try_from(bytes).unwrap_or(usize::MAX));
        frame.encode(&target.identity, lsn, out);
        self.frames.push(frame);
        self.copied = lsn;
        if target.out.waiting().len() >= PIECE {
            self.write_out()
        } else {
            Ok(())
        }
    }

    /// Begins a copy. Its number is burned in the synced folder before a frame is written under it.
    fn start(&mut self, first: u64, bytes: u64) -> Result<Target, Error> {
        let mut blank = self.wal.blank(self.wal.segment_for(bytes))?;
        let number = self.wal.take_number()?;
        let name = file_name(Role::New, number);
        self.wal.disk.rename(&blank.name, &name)?;
        self.wal.disk.sync_dir()?;
        blank.name = name;
        Ok(Target {
            blank,
            identity: Identity::new(self.wal.options.store, number),
            first,
            before: self.copied,
            out: Blocks::new(BLOCK),
        })
    }

    fn write_out(&mut self) -> Result<(), Error> {
        if let Some(target) = &mut self.target {
            let (disk, file) = (&self.wal.disk, &target.blank.file);
            let path = disk.path(&target.blank.name);
            target.out.write(|bytes, at| disk.write_at(file, &path, bytes, at))?;
        }
        Ok(())
    }

    /// Makes the copy durable under its name; it becomes the active segment, the one before it is closed. Then its frames
    /// are handed out.
    fn finish_target(&mut self) -> Result<(), Error> {
        self.write_out()?;
        let Some(target) = self.target.take() else {
            return Ok(());
        };
        let header = Header {
            store: self.wal.options.store,
            number: target.identity.number,
            first: target.first,
            before: target.before,
            copied: self.copied,
        };
        let path = self.wal.install(&target.blank, &header)?;
        self.wal.tail = self.copied;
        self.wal.durable = self.copied;
        if let Some(previous) = self.wal.active.take() {
            self.wal.closed.push_back(Closed {
                number: previous.identity.number,
                capacity: previous.capacity,
                last: previous.last,
            });
        }
        self.wal.active = Some(Active {
            identity: target.identity,
            file: target.blank.file,
            path,
            capacity: target.blank.capacity,
            out: target.out,
            last: self.copied,
            dirty: false,
            marked: false,
        });
        self.retire_pending()?;
        (self.sink)(std::mem::take(&mut self.frames))
    }

    /// Adds to the damage list; the answer is the entry's place.
    pub(super) fn report(&mut self, damage: Damage) -> usize {
        if let Some(missing) = &damage.missing {
            self.reported = self.reported.max(*missing.end());
        }
        self.damage.push(damage);
        self.damage.len() - 1
    }

    /// An old segment has been read to its end, and must not be kept in memory while the next one is read. So a copy that is
    /// half full by then is finished, and the frames of another one get memory of their own. There are not more copies than
    /// there were old segments.
    pub(super) fn done_with(&mut self, old: Old) -> Result<(), Error> {
        self.pending.push(old);
        match &self.target {
            None => self.retire_pending(),
            Some(target) if target.out.end() > target.blank.capacity / 2 => self.finish_target(),
            Some(_) => {
                self.frames.iter_mut().for_each(Frame::detach);
                Ok(())
            }
        }
    }

    /// Everything of the pending segments is in named copies: they go.
    fn retire_pending(&mut self) -> Result<(), Error> {
        for old in self.pending.drain(..) {
            match old.damage.and_then(|index| self.damage.get_mut(index)) {
                Some(damage) => {
                    damage.kept = Some(self.wal.disk.quarantine(&old.name, &self.wal.options.quarantine)?);
                }
                None => self.wal.retire(&old.name, old.name_number, old.capacity)?,
            }
        }
        Ok(())
    }

    /// Finishes the last copy and clears the old segments away.
    pub(super) fn finish(mut self) -> Result<Done, Error> {
        self.finish_target()?;
        self.retire_pending()?;
        Ok(Done {
            highest: self.last.max(self.reported),
            damage: self.damage,
        })
    }
}
