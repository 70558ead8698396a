//! One frame of the log: its bytes, its checksum, and how frames are found in a segment again.
//!
//! All numbers little endian. A frame starts at a multiple of 8; the padding before the next one is zero.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | length: this header, origin and payload, without padding |
//! | 4 | 4 | CRC-32C over store id, segment number, length, and everything after this field |
//! | 8 | 8 | LSN |
//! | 16 | 8 | durable: every frame up to this LSN had been synced when this frame was written |
//! | 24 | 8 | arrived, microseconds since the epoch |
//! | 32 | 4 | length of the origin |
//! | 36 | 1 | table |
//! | 37 | 3 | zero |
//! | 40 | | origin, then payload |
//!
//! # Marks
//!
//! Behind the last frame stands a mark as soon as its sync has returned and no other group is at hand: `0xffff_ffff`, a
//! CRC-32C over store id, segment number and the rest, and the LSN up to which everything is durable. The next frame takes its
//! place. It is not synced itself: the disk or the kernel has it when the process is killed, and the next sync takes it along.
//! Without it a last frame that was damaged would look like one that was being written.
//!
//! # Invariants
//!
//! - A recycled segment holds frames of its earlier lives: the segment number in the checksum makes them foreign.
//! - LSNs grow strictly within a segment.
//! - *durable* tells damage from an interrupted write. The kernel writes pages in any order, so a good frame behind a bad
//!   spot proves nothing by itself; a good frame that calls the missing ones durable proves that they were acknowledged.
//!
//! # Not here
//!
//! What an origin or a payload means. Files.

use std::ops::Range;

use bytes::Bytes;
use model::Timestamp;

use super::segment::SegmentIdentity;

/// Bytes before the origin.
pub(super) const FRAME_HEADER: usize = 40;
/// Frames start at multiples of this.
const ALIGN: usize = 8;

/// One batch as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalFrame {
    /// Its place in the log; grows from frame to frame.
    pub(crate) lsn: u64,
    /// Which table, by the committer's numbering.
    pub(crate) table: u8,
    /// When the batch arrived.
    pub(crate) arrived: Timestamp,
    /// Where it came from, opaque to the log.
    pub(crate) origin: Bytes,
    /// The rows as they came.
    pub(crate) payload: Bytes,
}

impl WalFrame {
    /// The bytes the frame takes in the log, padding included.
    pub(crate) fn encoded_len(&self) -> u64 {
        let len = (FRAME_HEADER as u64) + self.origin.len() as u64 + self.payload.len() as u64;
        len.next_multiple_of(ALIGN as u64)
    }

    /// Gives it memory of its own.
    pub(super) fn detach(&mut self) {
        for bytes in [&mut self.origin, &mut self.payload] {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }

    /// Appends the frame's bytes. `durable` is the LSN up to which the log is synced.
    ///
    /// The caller has checked that the length fits 32 bits ([`MAX_FRAME`]).
    pub(super) fn encode(&self, identity: &SegmentIdentity, durable: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let len = FRAME_HEADER + self.origin.len() + self.payload.len();
        out.reserve(len.next_multiple_of(ALIGN));
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.lsn.to_le_bytes());
        out.extend_from_slice(&durable.to_le_bytes());
        out.extend_from_slice(&self.arrived.micros().to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.origin.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&[self.table, 0, 0, 0]);
        out.extend_from_slice(&self.origin);
        out.extend_from_slice(&self.payload);
        let crc = checksum(identity, &out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        out.resize(start + len.next_multiple_of(ALIGN), 0);
    }
}

/// What a mark has where a frame has its length: no frame is that long.
const MARK: u32 = u32::MAX;
/// Bytes of a mark: fewer than any frame has, so that the next frame covers all of it.
pub(super) const MARK_BYTES: usize = 16;

/// The mark that says that everything up to `durable` is synced.
pub(super) fn mark(identity: &SegmentIdentity, durable: u64) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..4].copy_from_slice(&MARK.to_le_bytes());
    mark[8..].copy_from_slice(&durable.to_le_bytes());
    let crc = checksum(identity, &mark);
    mark[4..8].copy_from_slice(&crc.to_le_bytes());
    mark
}

/// What the mark at `at` says, if there is one.
fn parse_mark(identity: &SegmentIdentity, bytes: &[u8], at: usize) -> Option<u64> {
    let found: [u8; MARK_BYTES] = array(bytes, at)?;
    if found[..4] != MARK.to_le_bytes() {
        return None;
    }
    let durable = u64::from_le_bytes(array(&found, 8)?);
    (found == mark(identity, durable)).then_some(durable)
}

/// The longest frame that the length field can say.
pub(crate) const MAX_FRAME: u64 = u32::MAX as u64 & !(ALIGN as u64 - 1);

/// The checksum of a whole frame, its own field left out.
fn checksum(identity: &SegmentIdentity, frame: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(identity.seed(), &frame[..4]);
    crc32c::crc32c_append(crc, &frame[8..])
}

/// A frame found in a segment's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedFrame {
    pub(super) lsn: u64,
    pub(super) durable: u64,
    table: u8,
    arrived: Timestamp,
    origin: Range<usize>,
    payload: Range<usize>,
    /// Where the next frame starts.
    pub(super) end: usize,
}

impl ParsedFrame {
    /// The frame, sharing the segment's bytes.
    pub(super) fn frame(&self, segment: &Bytes) -> WalFrame {
        WalFrame {
            lsn: self.lsn,
            table: self.table,
            arrived: self.arrived,
            origin: segment.slice(self.origin.clone()),
            payload: segment.slice(self.payload.clone()),
        }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The header fields of a frame that may start at `at`, before any checksum.
struct FrameCandidate {
    len: usize,
    lsn: u64,
}

/// What the bytes at `at` claim, if a frame with an LSN above `after` could start there.
fn claim(bytes: &[u8], at: usize, after: u64) -> Option<FrameCandidate> {
    let lsn = u64::from_le_bytes(array(bytes, at.checked_add(8)?)?);
    if lsn <= after {
        return None;
    }
    let len = u32::from_le_bytes(array(bytes, at)?) as usize;
    let zero: [u8; 3] = array(bytes, at + 37)?;
    let fits = len >= FRAME_HEADER && at.checked_add(len)? <= bytes.len();
    (fits && zero == [0; 3]).then_some(FrameCandidate { len, lsn })
}

/// The frame at `at`, if a whole one of this segment with an LSN above `after` is there.
pub(super) fn parse(identity: &SegmentIdentity, bytes: &[u8], at: usize, after: u64) -> Option<ParsedFrame> {
    let FrameCandidate { len, lsn } = claim(bytes, at, after)?;
    let frame = bytes.get(at..at + len)?;
    if checksum(identity, frame) != u32::from_le_bytes(array(frame, 4)?) {
        return None;
    }
    let origin_len = u32::from_le_bytes(array(frame, 32)?) as usize;
    let origin_end = FRAME_HEADER.checked_add(origin_len).filter(|end| *end <= len)?;
    Some(ParsedFrame {
        lsn,
        durable: u64::from_le_bytes(array(frame, 16)?),
        table: frame[36],
        arrived: Timestamp::from_micros(i64::from_le_bytes(array(frame, 24)?)),
        origin: at + FRAME_HEADER..at + origin_end,
        payload: at + origin_end..at + len,
        end: (at + len).next_multiple_of(ALIGN),
    })
}

/// What a segment's bytes hold.
#[derive(Debug, Default)]
pub(super) struct SegmentScan {
    /// The frames from the start up to the first bad spot.
    pub(super) prefix: Vec<ParsedFrame>,
    /// Good frames behind the bad spot.
    pub(super) beyond: Vec<ParsedFrame>,
    /// Everything up to this LSN had been synced, says a mark behind the frames; 0 where there is none.
    pub(super) marked: u64,
    /// Bytes of bad spots that were written as frames, as far as that can be told from an earlier life's content.
    pub(super) broken_bytes: u64,
}

impl SegmentScan {
    /// Every good frame, in order.
    pub(super) fn found(&self) -> impl Iterator<Item = &ParsedFrame> {
        self.prefix.iter().chain(&self.beyond)
    }

    /// Finds every good frame of this segment from `start` on.
    ///
    /// The search behind a bad spot checks at most four times the segment's bytes: content made to look like frames cannot
    /// make it quadratic. Real content needs a few checks at most, because old frames carry old LSNs.
    pub(super) fn run(identity: &SegmentIdentity, bytes: &[u8], start: usize) -> Self {
        let mut scan = Self::default();
        let (mut at, mut last) = (start, 0);
        while let Some(found) = parse(identity, bytes, at, last) {
            (at, last) = (found.end, found.lsn);
            scan.prefix.push(found);
        }
        let mut bad = at;
        if let Some(torn) = claim(bytes, bad, last).filter(|torn| torn.lsn - last <= PLAUSIBLE_STEP) {
            scan.broken_bytes = torn.len as u64;
        }
        let mut budget = bytes.len().saturating_mul(4);
        scan.marked = parse_mark(identity, bytes, bad).unwrap_or(0);
        at = bad.saturating_add(ALIGN);
        while at.saturating_add(FRAME_HEADER) <= bytes.len() {
            if let Some(behind) = behind_zeros(bytes, at) {
                at = behind;
                continue;
            }
            let Some(claimed) = claim(bytes, at, last).filter(|claimed| claimed.len <= budget) else {
                scan.marked = scan.marked.max(parse_mark(identity, bytes, at).unwrap_or(0));
                at += ALIGN;
                continue;
            };
            budget -= claimed.len;
            let Some(found) = parse(identity, bytes, at, last) else {
                at += ALIGN;
                continue;
            };
            let gap = (at - bad) as u64;
            scan.broken_bytes = if scan.beyond.is_empty() {
                gap
            } else {
                scan.broken_bytes + gap
            };
            (at, bad, last) = (found.end, found.end, found.lsn);
            scan.beyond.push(found);
        }
        scan
    }
}

/// Bytes that are looked at together for being zeros.
const ZEROS: usize = 1024;

/// Where the search goes on behind zeros at `at`, if there are many: no frame and no mark begins in them, except with the
/// few last ones.
fn behind_zeros(bytes: &[u8], at: usize) -> Option<usize> {
    let zeros = bytes.get(at..at.checked_add(ZEROS)?)?;
    let last = ZEROS - FRAME_HEADER.next_multiple_of(ALIGN);
    (zeros.first() == Some(&0) && *zeros == [0; ZEROS]).then_some(at + last)
}

/// A broken header whose LSN is further ahead than this is old content or noise, not the next frame.
const PLAUSIBLE_STEP: u64 = 1 << 20;

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
