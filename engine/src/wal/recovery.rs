//! Recovery of the log at start: read, judged, rewritten, and only then trusted.
//!
//! Segments are read in the order of the LSNs that their headers promise. Every frame that counts is copied into new
//! segments, which are synced and named before the old ones go. A page that a failed sync left in the cache looks stored
//! and is not: after the copy it is. Then, and not before, the frames of that copy are handed out, from the memory that was
//! checked and written.
//!
//! # Torn or damaged
//!
//! Every good frame of a segment counts, those behind a bad spot too: they may have been acknowledged. The bad spot itself is
//! - an interrupted write, if nothing proves that its frames had been acknowledged: it is cut, its bytes are counted;
//! - damage, if something proves it (a mark behind it, a later frame's *durable*, the next segment's *before*, a copy's
//!   *copied*): the file goes to quarantine and is reported.
//!
//! What is missing at the end of the log leaves nothing behind but, where the log gave up, its last word: it is reported.
//!
//! # Invariants
//!
//! - A crash anywhere in here repeats: old and new copies of a frame may both exist, the second is skipped by its LSN.
//! - An old segment goes only when every counting frame of it is in a synced and named copy.
//! - A log of any size is recovered on a disk without any room: an old segment that finds none for a copy, not even one of
//!   the size of its frames, is rewritten in place and synced, and stays. The pages that a failed sync left behind are
//!   dirty again then, and this sync counts them. Every byte is written as it was read, so an interruption changes nothing; a file
//!   system that copies on write needs as much room for it as the frames take. A damaged segment is not kept so: it belongs
//!   into quarantine, for which its frames must be copied first, and the error says how much room that takes.
//! - One segment is held at a time, apart from those whose frames the caller still holds.
//! - The name of a file is a hint. Its header says which segment it is; without a readable header the name is tried.
//!
//! # Not here
//!
//! Logging what was found, and deciding whether to start: the caller has [`WalRecovery::damage`].

use std::ops::RangeInclusive;
use std::path::PathBuf;

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use super::frame::{SegmentScan, WalFrame};
use super::rewrite::SegmentRewriter;
use super::segment::{BadHeader, FORMAT, HEADER_BLOCK, SegmentHeader, SegmentIdentity, WalFileRole, parse_name};
use super::{FrameSink, WriteAheadLog};
use crate::Error;

/// What a log held when it was opened.
#[derive(Debug)]
pub(crate) struct WalRecovery {
    /// The smallest LSN that the next frame may have.
    pub(crate) next_lsn: u64,
    /// Bytes of interrupted writes that were cut; never acknowledged.
    pub(crate) torn_bytes: u64,
    /// What was damaged; empty in a healthy store, after any crash.
    pub(crate) damage: Vec<WalDamage>,
}

/// A part of the log that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("segment {segment} of the log is damaged: {reason}")]
pub(crate) struct WalDamage {
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
pub(super) struct OldSegment {
    pub(super) name: String,
    pub(super) name_number: u64,
    pub(super) capacity: u64,
    header: Result<SegmentHeader, BadHeader>,
    /// Its place in the order.
    first: u64,
    /// Which entry of the damage list keeps its path.
    pub(super) damage: Option<usize>,
}

impl OldSegment {
    fn number(&self) -> u64 {
        self.header.as_ref().map_or(self.name_number, |header| header.number)
    }

    fn before(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.before)
    }

    fn identity(&self, wal: &WriteAheadLog) -> SegmentIdentity {
        SegmentIdentity::new(wal.options.store, self.number())
    }
}

/// Recovers the log: afterwards `wal` holds only segments that were written and synced here, and `sink` has had their frames.
pub(super) fn run(wal: &mut WriteAheadLog, sink: FrameSink<'_>) -> Result<WalRecovery, Error> {
    let mut damage = Vec::new();
    let olds = survey(wal, &mut damage)?;
    let befores: Vec<u64> = olds.iter().skip(1).map(OldSegment::before).chain([0]).collect();
    let mut torn_bytes = 0;
    let mut copier = SegmentRewriter::new(wal, damage, sink);
    let pool = BufferPool::default();
    let stored = copier.wal.lsn.tail;
    if let Some(oldest) = olds.first().filter(|oldest| oldest.before() > stored) {
        let missing = stored + 1..=oldest.before();
        copier.report(WalDamage {
            segment: oldest.number(),
            reason: "the segments before it are gone".to_owned(),
            missing: Some(missing),
            kept: None,
        });
    }
    let newest = olds.last().map_or(0, OldSegment::number);
    let mut olds = olds.into_iter().zip(befores).peekable();
    while let Some((mut old, next_before)) = olds.next() {
        if let Some((next, _)) = olds.peek() {
            copier.wal.disk.prefetch(&next.name);
        }
        let bytes = if olds.peek().is_some() {
            read(copier.wal, &old, &pool)?
        } else {
            read_last(copier.wal, &old, &pool)?
        };
        let scan = SegmentScan::run(&old.identity(copier.wal), &bytes, HEADER_BLOCK.min(bytes.len()));
        let recalled = recalled(&copier, &scan, &bytes);
        if !recalled.is_empty() {
            (copier.sink)(recalled)?;
        }
        let verdict = judge(&old, &scan, copier.last.max(copier.reported).max(stored), next_before);
        let found = scan.found();
        let frames: Vec<WalFrame> = found
            .filter(|found| found.lsn > copier.last)
            .map(|found| found.frame(&bytes))
            .collect();
        match copier.take_all(&frames) {
            Err(Error::NoSpace { .. }) if verdict.is_none() && scan.beyond.is_empty() => {
                torn_bytes += scan.broken_bytes;
                let end = scan.prefix.last().map_or(0, |found| found.end);
                copier.rewrite(&old, &bytes, end.next_multiple_of(HEADER_BLOCK), frames)?;
                continue;
            }
            taken => taken?,
        }
        match verdict {
            Some(damage) => old.damage = Some(copier.report(damage)),
            None => torn_bytes += scan.broken_bytes,
        }
        copier.done_with(old)?;
    }
    let (end, said) = (
        copier.last.max(copier.reported).max(stored),
        copier.wal.word.persisted(),
    );
    if said > end {
        copier.report(WalDamage {
            segment: newest,
            reason: format!("it ends with frame {end}; frames up to {said} were synced when the log failed"),
            missing: Some(end + 1..=said),
            kept: None,
        });
    }
    let done = copier.finish()?;
    wal.lsn.next = wal.lsn.next.max(done.highest.saturating_add(1));
    wal.trim_spares(0)?;
    // What went stays gone: a later start does not read and copy it again.
    wal.sync_dir()?;
    Ok(WalRecovery {
        next_lsn: wal.lsn.next,
        torn_bytes,
        damage: done.damage,
    })
}

/// The last frames of a segment that are not replayed, as many as are to be recalled.
fn recalled(copier: &SegmentRewriter<'_>, scan: &SegmentScan, bytes: &Bytes) -> Vec<WalFrame> {
    let (mut left, below) = (copier.wal.options.recall, copier.wal.options.replay_from);
    let found = scan.found();
    let released = found.take_while(|found| found.lsn < below).collect::<Vec<_>>();
    let frames = released.into_iter().rev().map(|found| found.frame(bytes));
    let mut frames: Vec<WalFrame> = frames
        .take_while(|frame| {
            let fits = frame.encoded_len() <= left;
            left = left.saturating_sub(frame.encoded_len());
            fits
        })
        .collect();
    frames.reverse();
    frames
}

/// The whole of a segment.
fn read(wal: &WriteAheadLog, old: &OldSegment, pool: &BufferPool) -> Result<Bytes, Error> {
    let len = usize::try_from(old.capacity).unwrap_or(usize::MAX);
    let mut buffer = pool.take(len);
    wal.disk
        .read_into(&old.name, buffer.get_mut(..len).unwrap_or_default())?;
    Ok(pool.lend(buffer, len))
}

/// The whole of the last segment. Most of it may be the zeros that it was made of: they take no memory.
fn read_last(wal: &WriteAheadLog, old: &OldSegment, pool: &BufferPool) -> Result<Bytes, Error> {
    pool.clear();
    let len = usize::try_from(old.capacity).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len];
    wal.disk.read_sparsely(&old.name, &mut bytes)?;
    Ok(pool.lend(bytes, len))
}

/// Finds the segments in LSN order, and turns everything else of ours into spares.
fn survey(wal: &mut WriteAheadLog, damage: &mut Vec<WalDamage>) -> Result<Vec<OldSegment>, Error> {
    let mut names: Vec<(WalFileRole, u64, String)> = wal
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
            WalFileRole::Log => {}
            WalFileRole::Spare => {
                wal.retire(&name, number, capacity)?;
                continue;
            }
            // Its last sync may have failed: such a file is not used again.
            WalFileRole::New => {
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
fn look(
    wal: &WriteAheadLog,
    name: String,
    number: u64,
    capacity: u64,
    damage: &mut Vec<WalDamage>,
) -> Result<Option<OldSegment>, Error> {
    let block = wal.disk.read_start(&name, HEADER_BLOCK)?;
    let header = SegmentHeader::decode(&block);
    let first = match &header {
        Err(BadHeader::Newer(found)) => return Err(Error::newer(&wal.disk.path(&name), *found, FORMAT)),
        Ok(header) if header.store != wal.options.store => {
            damage.push(WalDamage {
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
            let bytes = wal.disk.read_start(&name, usize::MAX)?;
            let identity = SegmentIdentity::new(wal.options.store, number);
            let scan = SegmentScan::run(&identity, &bytes, HEADER_BLOCK.min(bytes.len()));
            scan.found().map(|found| found.lsn).next().unwrap_or(u64::MAX)
        }
    };
    Ok(Some(OldSegment {
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
fn judge(old: &OldSegment, scan: &SegmentScan, last: u64, next_before: u64) -> Option<WalDamage> {
    let good = scan.prefix.last().map_or(last, |found| found.lsn.max(last));
    let copied = old.header.as_ref().map_or(0, |header| header.copied);
    let claimed = scan.beyond.iter().map(|found| found.durable).max().unwrap_or(0);
    let proven = copied.max(claimed).max(next_before).max(scan.marked);
    if proven > good {
        let salvaged = scan.beyond.iter().filter(|found| found.lsn > good).count();
        let mut end = proven;
        for found in scan.beyond.iter().rev() {
            if found.lsn == end {
                end -= 1;
            }
        }
        return Some(WalDamage {
            segment: old.number(),
            reason: format!("frames up to {proven} were acknowledged; after {good} only {salvaged} good ones follow"),
            missing: (end > good).then_some(good + 1..=end),
            kept: None,
        });
    }
    if old.header.is_err() {
        return Some(WalDamage {
            segment: old.number(),
            reason: "its header is not what was written".to_owned(),
            missing: None,
            kept: None,
        });
    }
    None
}

/// What a segment's bytes hold, by the header they have or as segment 1: the LSN and the origin of each good frame.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_segment(store: uuid::Uuid, bytes: &[u8]) -> Vec<(u64, Bytes)> {
    let number = SegmentHeader::decode(bytes).map_or(1, |header| header.number);
    let bytes = Bytes::copy_from_slice(bytes);
    let scan = SegmentScan::run(
        &SegmentIdentity::new(store, number),
        &bytes,
        HEADER_BLOCK.min(bytes.len()),
    );
    let found = scan.found();
    found.map(|found| (found.lsn, found.frame(&bytes).origin)).collect()
}
