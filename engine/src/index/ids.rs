//! Which blocks have an id: a hash table on disk, of which a lookup reads two pieces.
//!
//! ```text
//! hash of an id:  bucket (bits) │ tag 16 │ not used
//! section:        directory: (2^bits + 1) × u32, where each bucket begins, from the section's beginning
//!                 bucket*: CRC-32C u32 of its number and its entries │ entry*: tag u16, block u16
//! ```
//!
//! An id in `n` blocks has `n` entries. Buckets have 8 to 16 entries on average: an id that is not there is found with a
//! probability of 2 in 10,000, and then only as a block to look into.
//!
//! # Invariants
//!
//! - A bucket is believed only under its checksum, which counts its number in: neither a flipped byte of it nor one of the
//!   directory makes an id look absent. An empty bucket has a checksum too.
//! - The hash never changes: it is written to disks ([`model::stable_hash`]).

use model::stable_hash;

use super::format::{Bad, bytes_at};

/// Entries of a section, at most: while it is built each takes eight bytes.
const MOST: usize = 8 << 20;
/// A directory of more bits is none.
const MOST_BITS: u32 = 24;
const ENTRIES_OF_A_BUCKET: usize = 16;

/// Takes the ids of a column row by row.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// The upper 48 bits of hashes, and blocks.
    entries: Vec<u64>,
    /// Of the present block.
    hashes: Vec<u64>,
    block: u32,
    row: u32,
    is_too_much: bool,
}

impl Builder {
    /// The next row of a row group, and its id if it has one.
    pub(super) fn add(&mut self, id: Option<&[u8]>) {
        self.hashes.extend(id.map(|id| stable_hash(id) & !0xffff));
        self.row += 1;
        if self.row == super::BLOCK_ROWS {
            self.end_block();
        }
    }

    /// The next row is of the next row group: a block is of one only.
    pub(super) fn end_group(&mut self) {
        if self.row > 0 {
            self.end_block();
        }
    }

    /// Blocks so far.
    pub(super) const fn blocks(&self) -> u32 {
        self.block
    }

    fn end_block(&mut self) {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        match u16::try_from(self.block) {
            Ok(block) if self.entries.len() + self.hashes.len() <= MOST => {
                self.entries
                    .extend(self.hashes.iter().map(|hash| hash | u64::from(block)));
            }
            _ => self.is_too_much = true,
        }
        self.hashes.clear();
        self.row = 0;
        self.block += 1;
    }

    /// The number of bits, and the section; `None` if there is too much for one.
    pub(super) fn finish(mut self) -> Option<(u16, Vec<u8>)> {
        if self.is_too_much {
            return None;
        }
        self.entries.sort_unstable();
        let buckets = self.entries.len().div_ceil(ENTRIES_OF_A_BUCKET).next_power_of_two();
        let bits = buckets.trailing_zeros();
        let mut section = vec![0; (buckets + 1) * 4];
        section.reserve((buckets + self.entries.len()) * 4);
        let mut left = self.entries.as_slice();
        for number in 0..buckets {
            begin(&mut section, number);
            let count = left.partition_point(|entry| bucket_of(*entry, bits) <= number as u64);
            let (these, others) = left.split_at(count);
            left = others;
            let start = section.len();
            section.extend_from_slice(&[0; 4]);
            for entry in these {
                section.extend_from_slice(&tag_of(*entry, bits).to_le_bytes());
                section.extend_from_slice(&entry.to_le_bytes()[..2]);
            }
            let crc = checksum(number as u64, section.get(start + 4..).unwrap_or_default());
            if let Some(place) = section.get_mut(start..start + 4) {
                place.copy_from_slice(&crc.to_le_bytes());
            }
        }
        begin(&mut section, buckets);
        Some((u16::try_from(bits).ok()?, section))
    }
}

/// Writes where a bucket begins, which is here, into the directory.
fn begin(section: &mut [u8], bucket: usize) {
    let here = u32::try_from(section.len()).unwrap_or(u32::MAX);
    if let Some(place) = section.get_mut(bucket * 4..bucket * 4 + 4) {
        place.copy_from_slice(&here.to_le_bytes());
    }
}

const fn bucket_of(hash: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

const fn tag_of(hash: u64, bits: u32) -> u16 {
    ((hash << bits) >> 48) as u16
}

fn checksum(bucket: u64, entries: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bucket.to_le_bytes()), entries)
}

/// Blocks that can have an id, and how many bytes were read to find them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) blocks: Vec<u32>,
    pub(super) bytes: u64,
}

/// Looks an id up in a section of so many bytes, of which `read` fills a buffer from a place.
pub(super) fn find(
    id: &[u8],
    form: u16,
    length: u64,
    read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
) -> Result<Found, Bad> {
    let bits = u32::from(form);
    if bits > MOST_BITS {
        return Err(Bad::Form("an index of ids has too many buckets"));
    }
    let hash = stable_hash(id) & !0xffff;
    let number = bucket_of(hash, bits);
    let directory = 4 * ((1u64 << bits) + 1);
    if directory > length {
        return Err(Bad::Form("an index of ids is cut short"));
    }
    let mut place = [0; 8];
    read(&mut place, number * 4)?;
    let [start, end] = [0, 4].map(|at| bytes_at(&place, at).map_or(0, u32::from_le_bytes));
    let (start, end) = (u64::from(start), u64::from(end));
    if start < directory || end > length || end < start + 4 || !(end - start).is_multiple_of(4) {
        return Err(Bad::Form("a directory of ids is damaged"));
    }
    let mut bucket = vec![0; usize::try_from(end - start).unwrap_or(0)];
    read(&mut bucket, start)?;
    let entries = bucket.get(4..).unwrap_or_default();
    if bytes_at(&bucket, 0).map(u32::from_le_bytes) != Some(checksum(number, entries)) {
        return Err(Bad::Form("a bucket of ids is damaged"));
    }
    let tag = tag_of(hash, bits).to_le_bytes();
    let of_tag = entries.chunks_exact(4).filter(|entry| entry.starts_with(&tag));
    let mut blocks: Vec<u32> = of_tag
        .filter_map(|entry| bytes_at(entry, 2).map(u16::from_le_bytes))
        .map(u32::from)
        .collect();
    blocks.sort_unstable();
    blocks.dedup();
    Ok(Found {
        blocks,
        bytes: 8 + (end - start),
    })
}
