//! A segment file: its name, its header block, and the identity that its frames' checksums carry.
//!
//! | name | what |
//! |---|---|
//! | `wal_<20 digits>.log` | holds frames; its header is durable before it gets this name |
//! | `wal_<20 digits>.new` | being prepared; nothing in it counts |
//! | `wal_<20 digits>.spare` | kept for reuse; nothing in it counts |
//!
//! The first 4096 bytes are the header block, then frames ([`super::frame`]), then whatever an earlier life left.
//!
//! | at | bytes | header field |
//! |---|---|---|
//! | 0 | 8 | magic `PLATFWAL` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C over the other fields |
//! | 16 | 16 | store id |
//! | 32 | 8 | segment number |
//! | 40 | 8 | first: no frame here has a smaller LSN |
//! | 48 | 8 | before: LSN of the last frame ahead of this segment; it was durable when this header was written |
//! | 56 | 8 | copied: frames up to this LSN were in this segment, durable, when it got its name (recovery's copies; else 0) |
//!
//! # Invariants
//!
//! - Numbers are never used twice with frames: a number is burned in a synced directory before frames are written under it.
//! - *before* and *copied* tell a log that ends from a log that lost its end.
//!
//! # Not here
//!
//! The order of segments and what to do about damage: [`super::recovery`].

use uuid::Uuid;

/// Bytes before the first frame: a block of its own, so that no write of a frame touches the header's sector.
pub(super) const HEADER_BLOCK: usize = 4096;
/// Bytes of the header that carry something.
const HEADER: usize = 64;
const MAGIC: &[u8; 8] = b"PLATFWAL";
/// The only format there is.
pub(super) const FORMAT: u32 = 1;

/// Which segment of which store: part of every checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentIdentity {
    pub(super) number: u64,
    seed: u32,
}

impl SegmentIdentity {
    pub(super) fn new(store: Uuid, number: u64) -> Self {
        let seed = crc32c::crc32c_append(crc32c::crc32c(store.as_bytes()), &number.to_le_bytes());
        Self { number, seed }
    }

    /// Where the checksums of this segment start.
    pub(super) fn seed(&self) -> u32 {
        self.seed
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) store: Uuid,
    pub(super) number: u64,
    pub(super) first: u64,
    pub(super) before: u64,
    pub(super) copied: u64,
}

/// Why the first block of a file is not a header to go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Written by a later version of this program.
    Newer(u32),
    /// Not what was written.
    Damaged,
}

impl SegmentHeader {
    /// The whole header block.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(HEADER_BLOCK);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&FORMAT.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(self.store.as_bytes());
        for field in [self.number, self.first, self.before, self.copied] {
            block.extend_from_slice(&field.to_le_bytes());
        }
        let crc = header_checksum(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block.resize(HEADER_BLOCK, 0);
        block
    }

    /// Reads a header back.
    pub(super) fn decode(block: &[u8]) -> Result<Self, BadHeader> {
        let header = block.get(..HEADER).ok_or(BadHeader::Damaged)?;
        let word = |at: usize| {
            let bytes: [u8; 8] = header[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        let (format, crc) = (word(8) as u32, (word(8) >> 32) as u32);
        if &header[..8] != MAGIC || crc != header_checksum(header) {
            return Err(BadHeader::Damaged);
        }
        if format != FORMAT {
            return Err(BadHeader::Newer(format));
        }
        let store: [u8; 16] = header[16..32].try_into().map_err(|_| BadHeader::Damaged)?;
        Ok(Self {
            store: Uuid::from_bytes(store),
            number: word(32),
            first: word(40),
            before: word(48),
            copied: word(56),
        })
    }
}

fn header_checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..HEADER])
}

/// What a file in the log's folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalFileRole {
    Log,
    New,
    Spare,
}

/// The file name for a role and a number.
pub(super) fn file_name(role: WalFileRole, number: u64) -> String {
    let ending = match role {
        WalFileRole::Log => "log",
        WalFileRole::New => "new",
        WalFileRole::Spare => "spare",
    };
    format!("wal_{number:020}.{ending}")
}

/// The role and number that a file name says; `None` for a foreign file.
pub(super) fn parse_name(name: &str) -> Option<(WalFileRole, u64)> {
    let (digits, ending) = name.strip_prefix("wal_")?.split_once('.')?;
    let role = match ending {
        "log" => WalFileRole::Log,
        "new" => WalFileRole::New,
        "spare" => WalFileRole::Spare,
        _ => return None,
    };
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((role, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            store: Uuid::from_u128(7),
            number: 3,
            first: 11,
            before: 10,
            copied: 0,
        }
    }

    #[test]
    fn a_header_reads_back_and_any_flipped_bit_is_noticed() {
        let block = header().encode();
        assert_eq!(block.len(), HEADER_BLOCK);
        assert_eq!(SegmentHeader::decode(&block), Ok(header()));
        for bit in 0..HEADER * 8 {
            let mut block = block.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&block), Err(BadHeader::Damaged), "bit {bit}");
        }
        assert_eq!(SegmentHeader::decode(&block[..HEADER - 1]), Err(BadHeader::Damaged));
    }

    #[test]
    fn a_later_format_is_distinguished_from_damage() {
        let mut block = header().encode();
        block[8] = 2;
        let crc = header_checksum(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&block), Err(BadHeader::Newer(2)));
    }

    #[test]
    fn names_read_back_and_foreign_names_are_left_alone() {
        for role in [WalFileRole::Log, WalFileRole::New, WalFileRole::Spare] {
            for number in [0, 1, u64::MAX] {
                assert_eq!(parse_name(&file_name(role, number)), Some((role, number)));
            }
        }
        for foreign in [
            "wal_1.log",
            "wal_99999999999999999999.log",
            "wal_00000000000000000001.txt",
            "LOCK",
            "wal_+0000000000000000001.log",
        ] {
            assert_eq!(parse_name(foreign), None, "{foreign}");
        }
    }
}
