//! Format of a sidecar: a head that says what it belongs to and where its sections are, then the sections.
//!
//! ```text
//! 0    "PLATIDX1" 8 | length of the head u32 | CRC-32C of the head, these four bytes left out, u32
//! 16   store 16 | segment u64 | version u32 | CRC-32C of the data file u32 | its size u64 | its rows u64
//! 64   rows of a block u32 | blocks u32 | table u8 | 0 u8 ×3 | sections u32
//! 80   section*: kind u16, form u16, CRC-32C u32, offset u64, length u64
//! …    sections, each at a multiple of eight
//! ```
//!
//! All numbers little endian. A section of [`SectionKind::Digest`] is read with the head and compared with its checksum, counts are when
//! they are asked for; one of ids has a checksum in each of its buckets, one of texts in each of its pages, and 0 here: a lookup
//! reads some bytes of megabytes. Kinds that a reader does not know it passes over; what a section's form means is the section's
//! business.
//!
//! A change of the form, or of what is made, changes the magic: sidecars of before are made anew.
//!
//! # Invariants
//!
//! - Whatever the bytes are, reading them ends with a head or an error, and takes no memory that the file does not have.

use model::Table;
use uuid::Uuid;

use super::zone_map::ZoneMap;

const MAGIC: [u8; 8] = *b"PLATIDX1";
const FIXED: usize = 80;
/// Where the checksum of the head is.
pub(super) const HEAD_CRC: u64 = 12;
const SECTION: usize = 24;
/// A longer head is none.
const LONGEST: usize = 64 << 10;
/// A larger digest is none.
const LARGEST_DIGEST: u64 = 1 << 20;
/// Read at once at the opening: most heads and digests are within it.
const FIRST_READ: u64 = 1024;

/// What a section has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(super) enum SectionKind {
    /// What stays in memory.
    Digest = 3,
    /// Which blocks have a `flux_id`.
    FluxIds = 5,
    /// Which blocks have a `trace_id`; of logs, among their attributes.
    TraceIds = 6,
    /// Which blocks have a gram without a digit.
    Words = 7,
    /// Which blocks have a gram with one.
    Numbers = 8,
    /// How many rows each minute has, by level.
    LevelCounts = 9,
    /// How many rows each minute has, by level and entity.
    EntityCounts = 10,
}

impl SectionKind {
    /// Those whose sections may stay in memory.
    pub(super) const KEPT: [Self; 6] = [
        Self::FluxIds,
        Self::TraceIds,
        Self::Words,
        Self::Numbers,
        Self::LevelCounts,
        Self::EntityCounts,
    ];
}

/// The version of a data file that a sidecar is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedFile {
    pub(crate) store: Uuid,
    pub(crate) table: Table,
    pub(crate) segment: u64,
    pub(crate) version: u32,
    pub(crate) size: u64,
    pub(crate) crc: u32,
    pub(crate) rows: u64,
}

impl SectionEntry {
    pub(super) const fn is(&self, kind: SectionKind) -> bool {
        self.kind == kind as u16
    }
}

/// Where a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectionEntry {
    kind: u16,
    pub(super) form: u16,
    pub(super) crc: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// What a sidecar says of itself.
#[derive(Debug)]
pub(super) struct SidecarHeader {
    pub(super) owner: IndexedFile,
    pub(super) blocks: u32,
    pub(super) crc: u32,
    sections: Box<[SectionEntry]>,
    pub(super) digest: ZoneMap,
}

/// Why bytes are no sidecar.
#[derive(Debug, thiserror::Error)]
pub(super) enum SidecarError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it cannot be opened: {0}")]
    Shut(std::io::Error),
    #[error("{0}")]
    Form(&'static str),
}

/// A section to be written: its kind, its form, its bytes, and whether it has checksums of its own.
pub(super) struct EncodedSection {
    pub(super) kind: SectionKind,
    pub(super) form: u16,
    pub(super) bytes: Vec<u8>,
    pub(super) is_checked: bool,
}

/// A sidecar's bytes.
pub(super) fn encode(owner: &IndexedFile, block_rows: u32, blocks: u32, parts: &[EncodedSection]) -> Vec<u8> {
    let length = FIXED + SECTION * parts.len();
    let mut out = Vec::with_capacity(length + parts.iter().map(|part| part.bytes.len() + 8).sum::<usize>());
    out.extend_from_slice(&MAGIC);
    put_u32(&mut out, length);
    put_u32(&mut out, 0);
    out.extend_from_slice(owner.store.as_bytes());
    out.extend_from_slice(&owner.segment.to_le_bytes());
    out.extend_from_slice(&owner.version.to_le_bytes());
    out.extend_from_slice(&owner.crc.to_le_bytes());
    out.extend_from_slice(&owner.size.to_le_bytes());
    out.extend_from_slice(&owner.rows.to_le_bytes());
    out.extend_from_slice(&block_rows.to_le_bytes());
    out.extend_from_slice(&blocks.to_le_bytes());
    out.extend_from_slice(&[owner.table.number(), 0, 0, 0]);
    put_u32(&mut out, parts.len());
    let mut at = length.next_multiple_of(8);
    for part in parts {
        let crc = if part.is_checked {
            0
        } else {
            crc32c::crc32c(&part.bytes)
        };
        out.extend_from_slice(&(part.kind as u16).to_le_bytes());
        out.extend_from_slice(&part.form.to_le_bytes());
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&(at as u64).to_le_bytes());
        out.extend_from_slice(&(part.bytes.len() as u64).to_le_bytes());
        at = (at + part.bytes.len()).next_multiple_of(8);
    }
    let crc = head_crc(&out).to_le_bytes();
    if let Some(place) = out.get_mut(12..16) {
        place.copy_from_slice(&crc);
    }
    for part in parts {
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend_from_slice(&part.bytes);
    }
    out
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn head_crc(head: &[u8]) -> u32 {
    let (before, after) = head.split_at(head.len().min(12));
    crc32c::crc32c_append(crc32c::crc32c(before), after.get(4..).unwrap_or_default())
}

/// The number of `N` bytes at a place.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl SidecarHeader {
    /// Reads the head and the digest of a sidecar of so many bytes; `read` gives so many from a place on.
    pub(super) fn read(read: impl Fn(u64, u64) -> std::io::Result<Vec<u8>>, size: u64) -> Result<Self, SidecarError> {
        let mut first = read(0, size.min(FIRST_READ))?;
        let length = bytes_at(&first, 8).map(u32::from_le_bytes).unwrap_or_default() as usize;
        if !first.starts_with(&MAGIC) || !(FIXED..=LONGEST).contains(&length) {
            return Err(SidecarError::Form("it does not begin as an index"));
        }
        if length > first.len() {
            if length as u64 > size {
                return Err(SidecarError::Form("its head is cut short"));
            }
            first = read(0, length as u64)?;
        }
        let head = first.get(..length).unwrap_or_default();
        let mut head = Self::decode(head, size).ok_or(SidecarError::Form("its head is damaged"))?;
        if let Some(section) = head.section(SectionKind::Digest) {
            if section.length > LARGEST_DIGEST {
                return Err(SidecarError::Form("its digest is too large"));
            }
            let bytes = read(section.offset, section.length)?;
            if crc32c::crc32c(&bytes) != section.crc {
                return Err(SidecarError::Form("its digest is damaged"));
            }
            head.digest = ZoneMap::decode(&bytes).ok_or(SidecarError::Form("its digest cannot be decoded"))?;
        }
        Ok(head)
    }

    fn decode(head: &[u8], size: u64) -> Option<Self> {
        let crc = bytes_at(head, HEAD_CRC as usize).map(u32::from_le_bytes)?;
        if crc != head_crc(head) {
            return None;
        }
        let u32_at = |at| bytes_at(head, at).map(u32::from_le_bytes);
        let u64_at = |at| bytes_at(head, at).map(u64::from_le_bytes);
        let owner = IndexedFile {
            store: Uuid::from_bytes(bytes_at(head, 16)?),
            segment: u64_at(32)?,
            version: u32_at(40)?,
            crc: u32_at(44)?,
            size: u64_at(48)?,
            rows: u64_at(56)?,
            table: Table::from_number(*head.get(72)?)?,
        };
        if u32_at(64)? != super::BLOCK_ROWS {
            return None;
        }
        let sections = head.get(FIXED..)?;
        if sections.len() != SECTION * u32_at(76)? as usize {
            return None;
        }
        let sections = sections.chunks_exact(SECTION).map(|section| {
            let section = SectionEntry {
                kind: bytes_at(section, 0).map(u16::from_le_bytes)?,
                form: bytes_at(section, 2).map(u16::from_le_bytes)?,
                crc: bytes_at(section, 4).map(u32::from_le_bytes)?,
                offset: bytes_at(section, 8).map(u64::from_le_bytes)?,
                length: bytes_at(section, 16).map(u64::from_le_bytes)?,
            };
            let end = section.offset.checked_add(section.length)?;
            (section.offset >= head.len() as u64 && end <= size).then_some(section)
        });
        Some(Self {
            owner,
            blocks: u32_at(68)?,
            crc,
            sections: sections.collect::<Option<_>>()?,
            digest: ZoneMap::default(),
        })
    }

    pub(super) fn section(&self, kind: SectionKind) -> Option<SectionEntry> {
        let sections = self.sections.iter();
        sections.copied().find(|section| section.is(kind))
    }
}
