//! Bit matrix of the grams of a file, of one class: which spans of blocks have a gram of which slot.
//!
//! # Invariants
//!
//! - Its rows never take more bytes than it was made for: spans become longer while it grows.

use super::posting_list::{PAGE_SLOTS, PRESENT, PostingList};
use super::{spans, width_of};
use crate::index::checksummed_pages;

/// Slots for each gram, more than which tell nothing more.
const SLOTS_OF_A_GRAM: usize = 8;
/// The slot has no row.
const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct NgramMatrix {
    /// Of each slot the number of its row; there are as many as a power of two.
    slots: Vec<u32>,
    /// Rows of `width` words each: bit `n` is of span `n`.
    words: Vec<u64>,
    width: usize,
    blocks: u32,
    /// Blocks of a span, as a power of two.
    shift: u32,
    /// Bytes of all rows, at most, unless they are as short as they can be.
    most: usize,
}

impl NgramMatrix {
    /// Of `2^bits` slots and so many blocks, with no more spans and bytes than that.
    pub(super) fn new(bits: u32, blocks: u32, most_spans: u32, most: usize) -> Self {
        let mut shift = 0;
        while spans(blocks, shift) > most_spans {
            shift += 1;
        }
        Self {
            slots: vec![NONE; 1 << bits],
            words: Vec::new(),
            width: width_of(spans(blocks, shift)),
            blocks,
            shift,
            most,
        }
    }

    /// Whether a block is the last one of its span.
    pub(super) const fn ends_span(&self, block: u32) -> bool {
        (block + 1).is_multiple_of(1 << self.shift)
    }

    /// A block has a gram of a slot.
    pub(super) fn note(&mut self, slot: usize, block: u32) {
        let row = match self.slots.get(slot) {
            Some(row) if *row != NONE => *row as usize,
            _ => self.begin_row(slot),
        };
        let span = (block >> self.shift) as usize;
        if let Some(word) = self.words.get_mut(row * self.width + span / 64) {
            *word |= 1 << (span % 64);
        }
    }

    /// Bytes of its rows.
    pub(super) const fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    fn begin_row(&mut self, slot: usize) -> usize {
        while self.bytes() + self.width * size_of::<u64>() > self.most && self.width > 1 {
            self.halve_spans();
        }
        let row = self.words.len() / self.width.max(1);
        self.words.resize(self.words.len() + self.width, 0);
        if let (Some(slot), Ok(row)) = (self.slots.get_mut(slot), u32::try_from(row)) {
            *slot = row;
        }
        row
    }

    const fn spans(&self) -> u32 {
        spans(self.blocks, self.shift)
    }

    /// The rows of some slots, those of none left out.
    fn rows<'a>(&'a self, slots: &'a [u32]) -> impl Iterator<Item = PostingList<'a>> {
        let rows = slots.iter().filter(|row| **row != NONE);
        rows.map(|row| {
            let first = *row as usize * self.width;
            let words = self.words.get(first..first + self.width).unwrap_or_default();
            PostingList::of(words, self.spans())
        })
    }

    /// The form and the section, of so many bytes at most; `None` if what fits would say little.
    pub(super) fn encode(mut self, most: usize) -> Option<(u16, Vec<u8>)> {
        let grams = self.slots.iter().filter(|row| **row != NONE).count();
        while self.slots.len() > PAGE_SLOTS && self.slots.len() / 2 >= SLOTS_OF_A_GRAM * grams {
            self.halve_slots();
        }
        loop {
            let (bytes, is_full) = self.measure();
            if is_full {
                return None;
            }
            if bytes <= most {
                let form = u16::try_from(self.slots.len().trailing_zeros() | self.shift << 8).ok()?;
                return Some((form, self.write(bytes)));
            }
            if self.spans() > 1 {
                self.halve_spans();
            } else if self.slots.len() > PAGE_SLOTS {
                self.halve_slots();
            } else {
                return None;
            }
        }
    }

    /// How long the section is, and whether more than half of all spans have a gram of a slot.
    fn measure(&self) -> (usize, bool) {
        let spans = self.spans();
        let (mut bytes, mut filled) = (0, 0u64);
        for row in self.rows(&self.slots) {
            bytes += row.length(spans);
            filled += u64::from(row.spans(spans));
        }
        let pages = self.slots.len() / PAGE_SLOTS;
        let is_full = filled * 2 > self.slots.len() as u64 * u64::from(spans.max(1));
        (bytes + checksummed_pages::overhead(pages) + pages * PRESENT, is_full)
    }

    fn halve_slots(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let mut halved = Vec::with_capacity(slots.len() / 2);
        for pair in slots.chunks(2) {
            halved.push(pair.iter().fold(NONE, |one, other| self.joined(one, *other)));
        }
        self.slots = halved;
    }

    /// One row of two.
    fn joined(&mut self, one: u32, other: u32) -> u32 {
        if one == NONE || other == NONE {
            return one.min(other);
        }
        for word in 0..self.width {
            let from = self.words.get(other as usize * self.width + word).copied();
            if let Some(to) = self.words.get_mut(one as usize * self.width + word) {
                *to |= from.unwrap_or(0);
            }
        }
        one
    }

    fn halve_spans(&mut self) {
        let rows = self.words.chunks(self.width.max(1));
        let pairs = rows.flat_map(|row| row.chunks(2));
        let halved = pairs.map(|pair| {
            let mut halves = pair.iter().map(|word| halved(*word));
            halves.next().unwrap_or(0) | halves.next().unwrap_or(0) << 32
        });
        self.words = halved.collect();
        self.shift += 1;
        self.width = width_of(self.spans());
    }

    fn write(&self, bytes: usize) -> Vec<u8> {
        let mut pages = self.slots.chunks(PAGE_SLOTS);
        checksummed_pages::section(pages.len(), bytes, |_, out| {
            let slots = pages.next().unwrap_or_default();
            let present = slots.chunks(8).map(|slots| {
                let bits = slots.iter().enumerate().filter(|(_, row)| **row != NONE);
                bits.fold(0u8, |byte, (bit, _)| byte | 1 << bit)
            });
            out.extend(present);
            for row in self.rows(slots) {
                row.write(self.spans(), out);
            }
        })
    }
}

/// A bit for each pair of bits: whether one of them is set.
const fn halved(word: u64) -> u64 {
    const KEPT: [u64; 6] = [
        u64::MAX / 3,
        u64::MAX / 5,
        u64::MAX / 17,
        u64::MAX / 257,
        u64::MAX / 65_537,
        u32::MAX as u64,
    ];
    let mut bits = (word | word >> 1) & KEPT[0];
    let mut step = 1;
    while step < KEPT.len() {
        bits = (bits | bits >> (1 << (step - 1))) & KEPT[step];
        step += 1;
    }
    bits
}
