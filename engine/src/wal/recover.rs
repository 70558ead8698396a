//! What happens to a log at start: read, judged, rewritten, and only then trusted.
//!
//! Segments are read in the order of the LSNs that their headers promise. Every frame that counts is copied into new
//! segments, which are synced and named before the old ones go. A page that a failed sync left in the cache looks stored
//! and is not: after the copy it is.
//!
//! # Torn or damaged
//!
//! Every good frame of a segment counts, those behind a bad spot too: they may have been acknowledged. The bad spot itself is
//! - an interrupted write, if nothing proves that its frames had been acknowledged: it is cut, its bytes are counted;
//! - damage, if something proves it (a later frame's *durable*, the next segment's *before*, a copy's *copied*): the file
//!   goes to quarantine and is reported.
//!
//! # Invariants
//!
//! - A crash anywhere in here repeats: old and new copies of a frame may both exist, the second is skipped by its LSN.
//! - An old segment goes only when every counting frame of it is in a synced and named copy. So one spare segment of
//!   space is enough to recover a log of any size.
//! - The name of a file is a hint. Its header says which segment it is; without a readable header the name is tried.
//!
//! # Not here
//!
//! Logging what was found, and deciding whether to start: the caller has [`Recovered::damage`].

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use bytes::Bytes;

use super::frame::{Frame, Scan};
use super::replay::{Copy, Replay};
use super::segment::{BadHeader, HEADER_BLOCK, Header, Identity, Role, file_name, parse_name};
use super::{Active, BLOCK, Blank, Closed, Wal};
use crate::Error;

/// What a log held when it was opened.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The frames from `low_water` on, in LSN order; to be read to the end before the first release.
    pub(crate) frames: Replay,
    /// The smallest LSN that the next frame may have.
    pub(crate) next_lsn: u64,
    /// Bytes of interrupted writes that were cut; never acknowledged.
    pub(crate) torn_bytes: u64,
    /// What was damaged; empty in a healthy store, after any crash.
    pub(crate) damage: Vec<Damage>,
}

/// A part of the log that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("segment {segment} of the log is damaged: {reason}")]
pub(crate) struct Damage {
    /// The segment.
    pub(crate) segment: u64,
    /// What was found.
    pub(crate) reason: String,
    /// Among these LSNs acknowledged frames are lost; `None` if none is known to be.
    pub(crate) missing: Option<RangeInclusive<u64>>,
    /// Where its file is kept; `None` if there is no file.
    pub(crate) kept: Option<PathBuf>,
}

/// A segment file found at start.
struct Old {
    name: String,
    name_number: u64,
    capacity: u64,
    header: Result<Header, BadHeader>,
    /// Its place in the order.
    first: u64,
    /// Which entry of the damage list keeps its path.
    damage: Option<usize>,
}

impl Old {
    fn number(&self) -> u64 {
        self.header.as_ref().map_or(self.name_number, |header| header.number)
    }

    fn before(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.before)
    }

    fn identity(&self, wal: &Wal) -> Identity {
        Identity::new(wal.options.store, self.number())
    }
}

/// Recovers the log: afterwards `wal` holds only segments that were written and synced here.
pub(super) fn run(wal: &mut Wal) -> Result<Recovered, Error> {
    let mut damage = Vec::new();
    let olds = survey(wal, &mut damage)?;
    let befores: Vec<u64> = olds.iter().skip(1).map(Old::before).chain([0]).collect();
    let mut torn_bytes = 0;
    let mut copier = Copier::new(wal, damage);
    if let Some(oldest) = olds.first().filter(|oldest| oldest.before() > copier.last) {
        let missing = copier.last + 1..=oldest.before();
        copier.report(Damage {
            segment: oldest.number(),
            reason: "the segments before it are gone".to_owned(),
            missing: Some(missing),
            kept: None,
        });
    }
    for (mut old, next_before) in olds.into_iter().zip(befores) {
        let bytes = Bytes::from(copier.wal.disk.read(&old.name)?);
        let scan = Scan::run(&old.identity(copier.wal), &bytes, HEADER_BLOCK.min(bytes.len()));
        let verdict = judge(&old, &scan, copier.last.max(copier.reported), next_before);
        for found in scan.prefix.iter().chain(&scan.beyond) {
            copier.take(found.lsn, || found.frame(&bytes))?;
        }
        match verdict {
            Some(damage) => old.damage = Some(copier.report(damage)),
            None => torn_bytes += scan.broken_bytes,
        }
        copier.done_with(old)?;
    }
    let done = copier.finish()?;
    wal.next_lsn = wal.next_lsn.max(done.highest.saturating_add(1));
    wal.trim_spares(0)?;
    wal.sync_dir()?;
    Ok(Recovered {
        frames: Replay::new(done.copies),
        next_lsn: wal.next_lsn,
        torn_bytes,
        damage: done.damage,
    })
}

/// Finds the segments in LSN order, and turns everything else of ours into spares.
fn survey(wal: &mut Wal, damage: &mut Vec<Damage>) -> Result<Vec<Old>, Error> {
    let mut names: Vec<(Role, u64, String)> = wal
        .disk
        .list()?
        .into_iter()
        .filter_map(|name| parse_name(&name).map(|(role, number)| (role, number, name)))
        .collect();
    names.sort_by_key(|(_, number, _)| *number);
    let mut olds = Vec::new();
    let mut highest = 0;
    for (role, number, name) in names {
        highest = highest.max(number);
        let path = wal.disk.path(&name);
        let capacity = path.symlink_metadata().map_err(Error::io("read", &path))?.len();
        match role {
            Role::Log => {}
            Role::Spare => {
                wal.retire(&name, number, capacity)?;
                continue;
            }
            // Its last sync may have failed: such a file is not used again.
            Role::New => {
                wal.disk.unlink(&name)?;
                continue;
            }
        }
        let Some(old) = look(wal, name, number, capacity, damage)? else {
            continue;
        };
        highest = highest.max(old.number());
        olds.push(old);
    }
    wal.next_number = highest;
    wal.take_number()?;
    olds.sort_by_key(|old| (old.first, old.number()));
    Ok(olds)
}

/// Reads a segment's header; `None` if the file is another store's and went to quarantine.
fn look(wal: &Wal, name: String, number: u64, capacity: u64, damage: &mut Vec<Damage>) -> Result<Option<Old>, Error> {
    let block = wal.disk.read_start(&name, HEADER_BLOCK)?;
    let header = Header::decode(&block);
    let first = match &header {
        Err(BadHeader::Newer(format)) => {
            return Err(Error::Newer {
                path: wal.disk.path(&name),
                found: *format,
                known: super::segment::FORMAT,
            });
        }
        Ok(header) if header.store != wal.options.store => {
            damage.push(Damage {
                segment: header.number,
                reason: format!(
                    "it belongs to store {}, this is store {}",
                    header.store, wal.options.store
                ),
                missing: None,
                kept: Some(wal.disk.quarantine(&name, &wal.options.quarantine)?),
            });
            return Ok(None);
        }
        Ok(header) => header.first,
        Err(BadHeader::Damaged) => {
            let bytes = wal.disk.read(&name)?;
            let identity = Identity::new(wal.options.store, number);
            let scan = Scan::run(&identity, &bytes, HEADER_BLOCK.min(bytes.len()));
            scan.prefix
                .iter()
                .chain(&scan.beyond)
                .map(|found| found.lsn)
                .next()
                .unwrap_or(u64::MAX)
        }
    };
    Ok(Some(Old {
        name,
        name_number: number,
        capacity,
        header,
        first,
        damage: None,
    }))
}

/// Tells an interrupted write from damage. `last` is the last LSN read before this segment, `next_before` what the next
/// segment's header says came before it.
fn judge(old: &Old, scan: &Scan, last: u64, next_before: u64) -> Option<Damage> {
    let good = scan.prefix.last().map_or(last, |found| found.lsn.max(last));
    let copied = old.header.as_ref().map_or(0, |header| header.copied);
    let claimed = scan.beyond.iter().map(|found| found.durable).max().unwrap_or(0);
    let proven = copied.max(claimed).max(next_before);
    if proven > good {
        let salvaged = scan.beyond.iter().filter(|found| found.lsn > good).count();
        let mut end = proven;
        for found in scan.beyond.iter().rev() {
            if found.lsn == end {
                end -= 1;
            }
        }
        return Some(Damage {
            segment: old.number(),
            reason: format!("frames up to {proven} were acknowledged; after {good} only {salvaged} good ones follow"),
            missing: (end > good).then_some(good + 1..=end),
            kept: None,
        });
    }
    if old.header.is_err() {
        return Some(Damage {
            segment: old.number(),
            reason: "its header is not what was written".to_owned(),
            missing: None,
            kept: None,
        });
    }
    None
}

/// Writes what counts into new segments.
struct Copier<'a> {
    wal: &'a mut Wal,
    target: Option<Target>,
    copies: VecDeque<Copy>,
    /// The highest LSN read.
    last: u64,
    /// The highest LSN reported as lost.
    reported: u64,
    /// LSN of the last frame copied; 0 before the first.
    copied: u64,
    /// Old segments whose frames are not all in named copies yet.
    pending: Vec<Old>,
    damage: Vec<Damage>,
    buffer: Vec<u8>,
}

/// What copying came to.
struct Done {
    copies: VecDeque<Copy>,
    highest: u64,
    damage: Vec<Damage>,
}

/// The copy being written.
struct Target {
    blank: Blank,
    identity: Identity,
    first: u64,
    before: u64,
    /// Where the buffer goes.
    at: u64,
    frames: usize,
}

/// Copied frames are written in pieces of about this size.
const PIECE: usize = 1 << 20;

impl<'a> Copier<'a> {
    fn new(wal: &'a mut Wal, damage: Vec<Damage>) -> Self {
        let last = wal.tail;
        Self {
            wal,
            target: None,
            copies: VecDeque::new(),
            last,
            reported: 0,
            copied: 0,
            pending: Vec::new(),
            damage,
            buffer: Vec::new(),
        }
    }

    /// Copies a frame, unless a copy of it or a later one was taken before. Below the low water nothing is taken.
    fn take(&mut self, lsn: u64, frame: impl FnOnce() -> Frame) -> Result<(), Error> {
        if lsn <= self.last {
            return Ok(());
        }
        self.last = lsn;
        let frame = frame();
        let bytes = frame.encoded_len();
        let full = |target: &Target, buffered: usize| target.at + buffered as u64 + bytes > target.blank.capacity;
        if self
            .target
            .as_ref()
            .is_some_and(|target| full(target, self.buffer.len()))
        {
            self.finish_target()?;
        }
        if self.target.is_none() {
            self.target = Some(self.start(lsn, bytes)?);
        }
        if let Some(target) = &mut self.target {
            frame.encode(&target.identity, lsn, &mut self.buffer);
            target.frames += 1;
            self.copied = lsn;
        }
        if self.buffer.len() >= PIECE {
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
            at: BLOCK,
            frames: 0,
        })
    }

    fn write_out(&mut self) -> Result<(), Error> {
        if let Some(target) = &mut self.target {
            let path = self.wal.disk.path(&target.blank.name);
            self.wal
                .disk
                .write_at(&target.blank.file, &path, &self.buffer, target.at)?;
            target.at += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Makes the copy durable under its name; it becomes the active segment, the one before it is closed.
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
        let file = target.blank.file.try_clone().map_err(Error::io("open", &path))?;
        self.copies.push_back(Copy {
            identity: target.identity,
            file,
            path: path.clone(),
            start: BLOCK,
            end: target.at,
            frames: target.frames,
        });
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
            at: target.at,
            last: self.copied,
            dirty: false,
        });
        self.retire_pending()
    }

    /// Adds to the damage list; the answer is the entry's place.
    fn report(&mut self, damage: Damage) -> usize {
        if let Some(missing) = &damage.missing {
            self.reported = self.reported.max(*missing.end());
        }
        self.damage.push(damage);
        self.damage.len() - 1
    }

    /// An old segment has been read to its end.
    fn done_with(&mut self, old: Old) -> Result<(), Error> {
        self.pending.push(old);
        if self.target.is_none() {
            self.retire_pending()
        } else {
            Ok(())
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
    fn finish(mut self) -> Result<Done, Error> {
        self.finish_target()?;
        self.retire_pending()?;
        Ok(Done {
            copies: self.copies,
            highest: self.last.max(self.reported),
            damage: self.damage,
        })
    }
}
