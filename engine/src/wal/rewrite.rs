//! Recovery's copies: frames that count are written into new segments, synced, named; then the old segments go.
//!
//! # Invariants
//!
//! - A copy's number is burned in the synced folder before a frame is written under it.
//! - An old segment goes when every frame read so far is in a named copy.
//! - Each LSN is copied once, in growing order.
//! - A frame is handed out when the copy that it is in is synced and named, and after the old segments it made superfluous
//!   have gone.
//! - A full disk stops no recovery. A copy takes a whole segment where there is room for one, else what the frames left in the
//!   old segment take; where there is no room for that either, the old segment is rewritten in place ([`SegmentRewriter::rewrite`]).
//!
//! # Not here
//!
//! Which frames count: [`super::recovery`].

use super::direct_io::BlockBuffer;
use super::frame::WalFrame;
use super::recovery::{OldSegment, WalDamage};
use super::segment::{SegmentHeader, SegmentIdentity, WalFileRole, file_name};
use super::segment_pool::BlankSegment;
use super::{ActiveSegment, BLOCK, ClosedSegment, FrameSink, WriteAheadLog};
use crate::Error;

/// Writes what counts into new segments.
pub(super) struct SegmentRewriter<'a> {
    pub(super) wal: &'a mut WriteAheadLog,
    target: Option<RewriteTarget>,
    /// Who gets the frames.
    pub(super) sink: FrameSink<'a>,
    /// Frames of the copy being written.
    frames: Vec<WalFrame>,
    /// The highest LSN read.
    pub(super) last: u64,
    /// The highest LSN reported as lost.
    pub(super) reported: u64,
    /// LSN of the last frame copied; 0 before the first.
    copied: u64,
    /// Old segments whose frames are not all in named copies yet.
    pending: Vec<OldSegment>,
    damage: Vec<WalDamage>,
}

/// What copying came to.
pub(super) struct RewriteOutcome {
    pub(super) highest: u64,
    pub(super) damage: Vec<WalDamage>,
}

/// The copy being written.
struct RewriteTarget {
    blank: BlankSegment,
    identity: SegmentIdentity,
    first: u64,
    before: u64,
    out: BlockBuffer,
}

/// Copied frames are written in pieces of about this size.
const PIECE: usize = 1 << 20;

impl<'a> SegmentRewriter<'a> {
    pub(super) fn new(wal: &'a mut WriteAheadLog, damage: Vec<WalDamage>, sink: FrameSink<'a>) -> Self {
        let last = wal.options.replay_from.saturating_sub(1);
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

    /// Copies the frames of an old segment that no copy has. Finding no room leaves those that are not copied to
    /// [`Self::rewrite`].
    pub(super) fn take_all(&mut self, frames: &[WalFrame]) -> Result<(), Error> {
        let mut left = frames.iter().map(WalFrame::encoded_len).sum();
        for frame in frames {
            self.take(frame.clone(), left)?;
            left -= frame.encoded_len();
        }
        Ok(())
    }

    /// Copies a frame; it and those behind it in its segment take `left` bytes.
    fn take(&mut self, frame: WalFrame, left: u64) -> Result<(), Error> {
        let (lsn, bytes) = (frame.lsn, frame.encoded_len());
        let is_full = |target: &RewriteTarget| target.out.end() + bytes > target.blank.capacity;
        if self.target.as_ref().is_some_and(is_full) {
            self.finish_target()?;
        }
        if self.target.is_none() {
            self.target = Some(self.start(lsn, bytes, left)?);
        }
        self.last = lsn;
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
    fn start(&mut self, first: u64, bytes: u64, left: u64) -> Result<RewriteTarget, Error> {
        let mut blank = match self.wal.blank(self.wal.segment_for(bytes)) {
            Err(Error::NoSpace { .. }) => self.wal.blank(left.next_multiple_of(BLOCK) + BLOCK)?,
            blank => blank?,
        };
        let number = self.wal.take_number()?;
        let name = file_name(WalFileRole::New, number);
        self.wal.disk.rename(&blank.name, &name)?;
        self.wal.disk.sync_dir()?;
        blank.name = name;
        Ok(RewriteTarget {
            blank,
            identity: SegmentIdentity::new(self.wal.options.store, number),
            first,
            before: self.copied,
            out: BlockBuffer::new(BLOCK),
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
        let header = SegmentHeader {
            store: self.wal.options.store,
            number: target.identity.number,
            first: target.first,
            before: target.before,
            copied: self.copied,
        };
        let path = self.wal.install(&target.blank, &header)?;
        self.close_copy();
        self.wal.active = Some(ActiveSegment {
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

    /// What was copied is synced; the copy before, if there is one, takes no more.
    fn close_copy(&mut self) {
        self.wal.lsn.tail = self.wal.lsn.tail.max(self.copied);
        self.wal.lsn.durable = self.wal.lsn.tail;
        self.wal.shut_active();
    }

    /// Keeps an old segment for which there is no room elsewhere: its first `end` bytes are written once more where they
    /// stand, and synced. Then its frames are as durable as those of a copy, and are handed out; it takes no more.
    ///
    /// Every byte stays what it was, so a crash in the middle leaves what was there before. Nothing of it is in a copy that
    /// is not finished: what finds no room is a copy's beginning.
    pub(super) fn rewrite(
        &mut self,
        old: &OldSegment,
        bytes: &[u8],
        end: usize,
        mut frames: Vec<WalFrame>,
    ) -> Result<(), Error> {
        let disk = &self.wal.disk;
        let (file, path) = (disk.open_to_write(&old.name)?, disk.path(&old.name));
        let mut out = BlockBuffer::new(0);
        for piece in bytes.get(..end).unwrap_or(bytes).chunks(PIECE) {
            out.room(piece.len()).extend_from_slice(piece);
            out.write(|bytes, at| disk.write_at(&file, &path, bytes, at))?;
        }
        disk.sync(&file, &path)?;
        self.wal.sync_dir()?;
        frames.retain(|frame| frame.lsn > self.last);
        self.last = frames.last().map_or(self.last, |frame| frame.lsn);
        self.copied = self.last;
        self.close_copy();
        self.wal.closed.push_back(ClosedSegment {
            number: old.name_number,
            capacity: old.capacity,
            last: self.last,
        });
        tracing::warn!(path = %path.display(), "no disk space to copy a segment of the log: it stays where it is");
        (self.sink)(frames)
    }

    /// Adds to the damage list; the answer is the entry's place.
    pub(super) fn report(&mut self, damage: WalDamage) -> usize {
        if let Some(missing) = &damage.missing {
            self.reported = self.reported.max(*missing.end());
        }
        self.damage.push(damage);
        self.damage.len() - 1
    }

    /// An old segment has been read to its end, and must not be kept in memory while the next one is read. So a copy that is
    /// half full by then is finished, and the frames of another one get memory of their own. There are not more copies than
    /// there were old segments.
    pub(super) fn done_with(&mut self, old: OldSegment) -> Result<(), Error> {
        self.pending.push(old);
        match &self.target {
            None => self.retire_pending(),
            Some(target) if target.out.end() > target.blank.capacity / 2 => self.finish_target(),
            Some(_) => {
                self.frames.iter_mut().for_each(WalFrame::detach);
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
    pub(super) fn finish(mut self) -> Result<RewriteOutcome, Error> {
        self.finish_target()?;
        self.retire_pending()?;
        Ok(RewriteOutcome {
            highest: self.last.max(self.reported),
            damage: self.damage,
        })
    }
}
