//! Format of a spool segment.
//!
//! ```text
//! file    = header record*
//! header  = "FLUXSPL1" | id u64 | zeros u64 | crc32c of the 24 bytes before u32 | zeros u32
//! record  = len u32 | crc32c u32 | kind u8 | table u8 | notes u16 | rows u32 | entity [16] | boot epoch u64 | seq u64 | body
//! body    = notes bytes of checkpoints, then the batch's payload; len bytes in all
//! note    = key len u16 | value len u16 | key | value
//! ```
//!
//! Numbers are little endian. A record's crc covers everything behind it, seeded with the segment's id, so that bytes of
//! another segment never pass for this one's. A later version changes the digit at the end of the magic and keeps the rest of the header:
//! its crc, which covers the digit, tells it from a flipped bit.
//!
//! # Invariants
//!
//! - Reading never panics and never allocates more than [`MAX_BODY`] on the word of a damaged length.
//!
//! # Not here
//!
//! Which segments there are and when they go ([`super::segment_log`]).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use model::{EntityId, Table};

use crate::spool::SourceCheckpoint;

pub(super) const HEADER: u64 = 32;
pub(super) const RECORD_HEADER: usize = 48;
/// The longest body. A batch is far smaller; a snapshot of ten thousand checkpoints fits.
pub(super) const MAX_BODY: u32 = 64 << 20;
/// How many bytes are looked at, at once, for a record's head.
const WINDOW: usize = 1 << 20;
/// The most bytes that are read as bodies in that search. Who has to read more has met something that was made to look so.
const MOST_TRIED: u64 = 64 << 20;
const MAGIC: &[u8; 8] = b"FLUXSPL1";
/// The magic without its version, one digit.
const KIND: &[u8; 7] = b"FLUXSPL";
/// The latest version known here.
pub(super) const VERSION: u32 = 1;

/// A producer run: what sequences count within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProducerRun {
    pub(crate) entity: EntityId,
    pub(crate) epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpoolRecordKind {
    /// A batch of rows, perhaps with a checkpoint.
    Batch,
    /// Only checkpoints.
    Notes,
    /// A batch that counts only together with the records behind it, up to and with the next of another kind.
    Part,
}

impl SpoolRecordKind {
    /// Whether it has rows to be sent.
    pub(super) const fn is_batch(self) -> bool {
        matches!(self, Self::Batch | Self::Part)
    }
}

/// Everything of a record but its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpoolRecordHeader {
    pub(super) len: u32,
    pub(super) crc: u32,
    pub(super) kind: SpoolRecordKind,
    pub(super) table: u8,
    pub(super) notes: u16,
    pub(super) rows: u32,
    pub(super) run: ProducerRun,
    pub(super) seq: u64,
}

impl SpoolRecordHeader {
    /// Whether a spool writes such a head.
    fn is_likely(&self) -> bool {
        match self.kind {
            SpoolRecordKind::Notes => self.rows == 0 && self.seq == 0 && self.table == 0,
            SpoolRecordKind::Batch | SpoolRecordKind::Part => {
                self.rows > 0 && self.seq > 0 && Table::from_number(self.table).is_some()
            }
        }
    }
}

/// A checked record.
#[derive(Debug, Clone)]
pub(super) struct SpoolRecord {
    pub(super) head: SpoolRecordHeader,
    pub(super) body: Bytes,
    /// Where the next record begins.
    pub(super) next: u64,
}

/// Why no record could be read.
#[derive(Debug)]
pub(super) enum SpoolReadError {
    /// The file ends before the record does, or the bytes are not a record.
    Damaged,
    Io(io::Error),
}

impl From<io::Error> for SpoolReadError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::Damaged
        } else {
            Self::Io(error)
        }
    }
}

pub(super) fn file_header(id: u64) -> [u8; HEADER as usize] {
    let mut bytes = [0; HEADER as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whether the file begins as a segment of this id does.
pub(super) fn has_header(file: &File, id: u64) -> io::Result<bool> {
    let mut bytes = [0; HEADER as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(bytes == file_header(id)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The version of the program's format that wrote the file, if it is not this one.
pub(super) fn other_version(file: &File) -> io::Result<Option<u32>> {
    let mut bytes = [0; HEADER as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let is_whole = bytes[24..28] == crc32c::crc32c(&bytes[..24]).to_le_bytes();
    let digit = bytes.strip_prefix(KIND).and_then(|rest| rest.first());
    let version = digit.and_then(|digit| char::from(*digit).to_digit(10));
    Ok(version.filter(|found| is_whole && *found != VERSION))
}

/// Appends one record to `out`.
pub(super) fn encode(out: &mut Vec<u8>, segment: u64, mut head: SpoolRecordHeader, notes: &[u8], payload: &[u8]) {
    head.notes = if head.kind.is_batch() {
        u16::try_from(notes.len()).unwrap_or(u16::MAX)
    } else {
        0
    };
    head.len = u32::try_from(notes.len() + payload.len()).unwrap_or(u32::MAX);
    let start = out.len();
    out.extend_from_slice(&head_bytes(&head));
    out.extend_from_slice(notes);
    out.extend_from_slice(payload);
    let crc = crc32c::crc32c_append(seed(segment), &out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

fn seed(segment: u64) -> u32 {
    crc32c::crc32c(&segment.to_le_bytes())
}

fn head_bytes(head: &SpoolRecordHeader) -> [u8; RECORD_HEADER] {
    let mut bytes = [0; RECORD_HEADER];
    bytes[..4].copy_from_slice(&head.len.to_le_bytes());
    bytes[4..8].copy_from_slice(&head.crc.to_le_bytes());
    bytes[8] = match head.kind {
        SpoolRecordKind::Batch => 1,
        SpoolRecordKind::Notes => 2,
        SpoolRecordKind::Part => 3,
    };
    bytes[9] = head.table;
    bytes[10..12].copy_from_slice(&head.notes.to_le_bytes());
    bytes[12..16].copy_from_slice(&head.rows.to_le_bytes());
    bytes[16..32].copy_from_slice(head.run.entity.as_bytes());
    bytes[32..40].copy_from_slice(&head.run.epoch.to_le_bytes());
    bytes[40..48].copy_from_slice(&head.seq.to_le_bytes());
    bytes
}

fn parse_head(bytes: &[u8; RECORD_HEADER]) -> Option<SpoolRecordHeader> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let kind = match bytes[8] {
        1 => SpoolRecordKind::Batch,
        2 => SpoolRecordKind::Notes,
        3 => SpoolRecordKind::Part,
        _ => return None,
    };
    let mut entity = [0; 16];
    entity.copy_from_slice(&bytes[16..32]);
    let head = SpoolRecordHeader {
        len: word(0),
        crc: word(4),
        kind,
        table: bytes[9],
        notes: u16::from_le_bytes([bytes[10], bytes[11]]),
        rows: word(12),
        run: ProducerRun {
            entity: EntityId::from_bytes(entity),
            epoch: long(32),
        },
        seq: long(40),
    };
    (head.len <= MAX_BODY && u32::from(head.notes) <= head.len).then_some(head)
}

/// The record at `offset` of the segment, of which `end` bytes count.
pub(super) fn read(file: &File, segment: u64, offset: u64, end: u64) -> Result<SpoolRecord, SpoolReadError> {
    let mut bytes = [0; RECORD_HEADER];
    let body_at = offset + RECORD_HEADER as u64;
    if body_at > end {
        return Err(SpoolReadError::Damaged);
    }
    file.read_exact_at(&mut bytes, offset)?;
    let head = parse_head(&bytes).ok_or(SpoolReadError::Damaged)?;
    let next = body_at + u64::from(head.len);
    if next > end {
        return Err(SpoolReadError::Damaged);
    }
    let mut body = vec![0; head.len as usize];
    file.read_exact_at(&mut body, body_at)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(seed(segment), &bytes[8..]), &body);
    if crc != head.crc {
        return Err(SpoolReadError::Damaged);
    }
    Ok(SpoolRecord {
        head,
        body: body.into(),
        next,
    })
}

/// Whether the bytes from `offset` to the end of the file, which begin with no good record, are what a crash leaves of a write:
/// the beginning of a record, or zeros, and no record behind. Anything else was durable once, and is damaged.
pub(super) fn is_torn(file: &File, segment: u64, offset: u64, end: u64) -> io::Result<bool> {
    let body_at = offset + RECORD_HEADER as u64;
    if body_at > end {
        return Ok(true);
    }
    let mut bytes = [0; RECORD_HEADER];
    file.read_exact_at(&mut bytes, offset)?;
    let Some(head) = parse_head(&bytes) else {
        return is_zero(file, offset, end);
    };
    let is_cut = body_at + u64::from(head.len) > end;
    Ok(is_cut
        && !is_whole(file, segment, (offset, end), head.crc)?
        && !followed_by_a_record(file, segment, offset, end)?)
}

/// Whether the bytes from `offset` to `end` are all of one record, whatever its length says.
fn is_whole(file: &File, segment: u64, (offset, end): (u64, u64), crc: u32) -> io::Result<bool> {
    let mut actual = seed(segment);
    in_pieces(file, offset + 8, end, |piece| {
        actual = crc32c::crc32c_append(actual, piece)
    })?;
    Ok(actual == crc)
}

fn is_zero(file: &File, offset: u64, end: u64) -> io::Result<bool> {
    let mut is_zero = true;
    in_pieces(file, offset, end, |piece| {
        is_zero &= piece.iter().all(|byte| *byte == 0)
    })?;
    Ok(is_zero)
}

fn in_pieces(file: &File, mut offset: u64, end: u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut piece = vec![0; WINDOW];
    while offset < end {
        let piece = piece.get_mut(..size_within(end - offset)).unwrap_or_default();
        file.read_exact_at(piece, offset)?;
        take(piece);
        offset += piece.len() as u64;
    }
    Ok(())
}

/// So many bytes, or what is looked at at once.
fn size_within(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(WINDOW).min(WINDOW)
}

/// Whether anywhere behind `offset` a good record begins.
fn followed_by_a_record(file: &File, segment: u64, offset: u64, end: u64) -> io::Result<bool> {
    let mut window = vec![0; WINDOW];
    let (mut at, mut tried) = (offset + 1, 0);
    while at + RECORD_HEADER as u64 <= end {
        let window = window.get_mut(..size_within(end - at)).unwrap_or_default();
        file.read_exact_at(window, at)?;
        let heads = (at..).zip(window.array_windows());
        for (start, head) in heads.filter_map(|(start, bytes)| Some((start, parse_head(bytes)?))) {
            if !head.is_likely() || start + RECORD_HEADER as u64 + u64::from(head.len) > end {
                continue;
            }
            tried += u64::from(head.len);
            if tried > MOST_TRIED || read(file, segment, start, end).is_ok() {
                return Ok(true);
            }
        }
        at += (window.len() - RECORD_HEADER + 1) as u64;
    }
    Ok(false)
}

/// Whether a checkpoint can be written: its key and its value have less than 64 KiB each.
pub(crate) fn fits_checkpoint(note: &SourceCheckpoint) -> bool {
    note.key.len().max(note.value.len()) <= usize::from(u16::MAX)
}

/// Whoever hands them over has looked whether they [fit](fits_checkpoint).
pub(super) fn encode_checkpoints<'a>(notes: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in notes {
        let (Ok(key_len), Ok(value_len)) = (u16::try_from(key.len()), u16::try_from(value.len())) else {
            continue;
        };
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&value_len.to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(value);
    }
    out
}

pub(super) fn decode_checkpoints(mut bytes: &[u8]) -> Vec<SourceCheckpoint> {
    let mut notes = Vec::new();
    while let Some((note, rest)) = decode_checkpoint(bytes) {
        notes.push(note);
        bytes = rest;
    }
    notes
}

fn decode_checkpoint(bytes: &[u8]) -> Option<(SourceCheckpoint, &[u8])> {
    let (lens, rest) = bytes.split_at_checked(4)?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([lens[0], lens[1]])))?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([lens[2], lens[3]])))?;
    let key = String::from_utf8_lossy(key).into_owned();
    let value = value.to_vec();
    Some((SourceCheckpoint { key, value }, rest))
}
