//! Id index: an on-disk hash table from ids to blocks, of which a lookup reads two pieces.
//!
//! ```text
//! hash of an id:  bucket (bits) │ tag 16 │ not used
//! section:        a page ([`super::pages`]) for each of 2^bits buckets
//! page:           entry*: tag u16, block u16
//! ```
//!
//! An id in `n` blocks has `n` entries. Buckets have 8 to 16 entries on average: an id that is not there is found with a
//! probability of 2 in 10,000, and then only as a block to look into.
//!
//! # Invariants
//!
//! - The hash never changes: it is written to disks ([`model::stable_hash`]).

use model::stable_hash;

use super::checksummed_pages::{self, ChecksummedPage};
use super::sidecar_format::{SidecarError, bytes_at};
use super::{BlockSelection, IndexLookup};

/// Entries of a section, at most: while it is built each takes eight bytes.
const MOST: usize = 8 << 20;
/// A directory of more bits is none.
const MOST_BITS: u32 = 24;
const ENTRIES_OF_A_BUCKET: usize = 16;

/// Takes the ids of a column row by row.
#[derive(Debug, Default)]
pub(super) struct IdIndexBuilder {
    /// The upper 48 bits of hashes, and blocks.
    entries: Vec<u64>,
    /// Of the present block.
    hashes: Vec<u64>,
    block: u32,
    row: u32,
    is_too_much: bool,
}

impl IdIndexBuilder {
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
            Ok(block) if !self.is_too_much && self.entries.len() + self.hashes.len() <= MOST => {
                self.entries
                    .extend(self.hashes.iter().map(|hash| hash | u64::from(block)));
            }
            _ => {
                self.is_too_much = true;
                self.entries = Vec::new();
            }
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
        let mut left = self.entries.as_slice();
        let bytes = checksummed_pages::overhead(buckets) + 4 * self.entries.len();
        let section = checksummed_pages::section(buckets, bytes, |number, section| {
            let count = left.partition_point(|entry| bucket_of(*entry, bits) <= number as u64);
            let (these, others) = left.split_at(count);
            left = others;
            for entry in these {
                section.extend_from_slice(&tag_of(*entry, bits).to_le_bytes());
                section.extend_from_slice(&entry.to_le_bytes()[..2]);
            }
        });
        Some((u16::try_from(bits).ok()?, section))
    }
}

const fn bucket_of(hash: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

const fn tag_of(hash: u64, bits: u32) -> u16 {
    ((hash << bits) >> 48) as u16
}

/// Looks an id up in a section of so many bytes of a file of so many blocks; `read` fills a buffer from a place of it.
pub(super) fn find(
    id: &[u8],
    (form, length): (u16, u64),
    blocks: u32,
    read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
) -> Result<IndexLookup, SidecarError> {
    let bits = u32::from(form);
    if bits > MOST_BITS {
        return Err(SidecarError::Form("an index of ids has too many buckets"));
    }
    let hash = stable_hash(id) & !0xffff;
    let is_of_entries = |bytes: u64| bytes.is_multiple_of(4);
    let bucket = ChecksummedPage::read((bucket_of(hash, bits), 1 << bits), length, is_of_entries, read)?;
    let tag = tag_of(hash, bits).to_le_bytes();
    let of_tag = bucket.bytes().chunks_exact(4).filter(|entry| entry.starts_with(&tag));
    let mut found: Vec<u32> = of_tag
        .filter_map(|entry| bytes_at(entry, 2).map(u16::from_le_bytes))
        .map(u32::from)
        .collect();
    found.sort_unstable();
    found.dedup();
    if found.last().is_some_and(|last| *last >= blocks) {
        return Err(SidecarError::Form("an index of ids names a block that is not there"));
    }
    Ok(IndexLookup {
        blocks: BlockSelection::Some(found),
        bytes: bucket.bytes_read(),
    })
}
