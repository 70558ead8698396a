//! Takes the messages of a file, block by block.
//!
//! # Invariants
//!
//! - A message is hashed into a set of bits that stays in the caches; the matrix is touched once for each bit of a span.

use std::collections::HashSet;

use model::fold_into;

use super::section::Matrix;
use super::{
    Class, LEAST_BYTES, MOST_BITS, MOST_BLOCKS, MOST_BYTES, MOST_SPANS, PAGE_BITS, PART_OF_FILE, for_each_gram, spans,
};
use crate::index::BLOCK_ROWS;

/// A longer scratch is not kept for the next message.
const LONG: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(in crate::index) struct Builder {
    /// The slots that the present span has: of words, then of numbers.
    present: Vec<u64>,
    bits: [u32; 2],
    rows: [Vec<u128>; 2],
    blocks: u32,
    /// Blocks of a span, as a power of two.
    shift: u32,
    block: u32,
    row: u32,
    /// Bytes of both sections, at most.
    most: usize,
    folded: String,
}

impl Builder {
    /// For a file of `size` bytes and so many blocks, with about so many bytes of different messages.
    pub(in crate::index) fn new(blocks: u32, bytes: u64, size: u64) -> Self {
        let most = (size / PART_OF_FILE + LEAST_BYTES).min(MOST_BYTES);
        // A slot takes a bit of its section at least.
        let wanted = bytes
            .saturating_mul(4)
            .min(most * 8)
            .next_power_of_two()
            .trailing_zeros();
        let bits = MOST_BITS.map(|most| wanted.clamp(PAGE_BITS, most));
        let mut shift = 0;
        while spans(blocks, shift) > MOST_SPANS {
            shift += 1;
        }
        Self {
            present: vec![0; bits.iter().map(|bits| words_of(*bits)).sum()],
            bits,
            rows: bits.map(|bits| vec![0; 1 << bits]),
            blocks,
            shift,
            block: 0,
            row: 0,
            most: usize::try_from(most).unwrap_or(0),
            folded: String::new(),
        }
    }

    /// The next rows, all of one block. Where values repeat themselves, those at one address are one. `None` if they are no texts.
    pub(in crate::index) fn add(&mut self, values: &[Option<&[u8]>], do_repeat: bool) -> Option<()> {
        let mut seen = HashSet::new();
        for value in values.iter().flatten() {
            if !do_repeat || seen.insert((value.as_ptr(), value.len())) {
                self.add_text(std::str::from_utf8(value).ok()?);
            }
        }
        self.row += u32::try_from(values.len()).ok()?;
        if self.row >= BLOCK_ROWS {
            self.end_block();
        }
        Some(())
    }

    fn add_text(&mut self, text: &str) {
        self.folded.clear();
        fold_into(text, &mut self.folded);
        let [word_bits, number_bits] = self.bits;
        let numbers = words_of(word_bits);
        let present = self.present.as_mut_slice();
        for_each_gram(self.folded.as_bytes(), |class, hash| {
            let (first, bits) = match class {
                Class::Words => (0, word_bits),
                Class::Numbers => (numbers, number_bits),
            };
            let slot = hash >> (32 - bits);
            if let Some(word) = present.get_mut(first + slot as usize / 64) {
                *word |= 1 << (slot % 64);
            }
        });
        if self.folded.capacity() > LONG {
            self.folded = String::new();
        }
    }

    /// The next row is of the next row group: a block is of one only.
    pub(in crate::index) fn end_group(&mut self) {
        if self.row > 0 {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        self.row = 0;
        self.block += 1;
        if self.block.is_multiple_of(1 << self.shift) {
            self.end_span(self.block - 1);
        }
    }

    /// Notes the slots of the span that a block is in.
    fn end_span(&mut self, block: u32) {
        let span = 1u128.checked_shl(block >> self.shift).unwrap_or(0);
        let [words, numbers] = &mut self.rows;
        let rows = words.chunks_mut(64).chain(numbers.chunks_mut(64));
        for (word, rows) in self.present.iter_mut().zip(rows) {
            let mut left = std::mem::take(word);
            while left != 0 {
                if let Some(row) = rows.get_mut(left.trailing_zeros() as usize) {
                    *row |= span;
                }
                left &= left - 1;
            }
        }
    }

    /// The form and the bytes of each class's section; empty ones say nothing.
    pub(in crate::index) fn finish(mut self) -> [(Class, u16, Vec<u8>); 2] {
        let is_whole = self.block == self.blocks && self.blocks <= MOST_BLOCKS;
        if !self.block.is_multiple_of(1 << self.shift) {
            self.end_span(self.block);
        }
        self.present = Vec::new();
        let most = if is_whole { self.most } else { 0 };
        let [words, numbers] = self.rows;
        let section = |rows, most| {
            Matrix::new(rows, self.blocks, self.shift)
                .encode(most)
                .unwrap_or_default()
        };
        let (word_form, words) = section(words, most / 4 * 3);
        let (number_form, numbers) = section(numbers, most.saturating_sub(words.len()));
        [(Class::Words, word_form, words), (Class::Numbers, number_form, numbers)]
    }
}

/// Numbers of 64 bits for as many slots.
const fn words_of(bits: u32) -> usize {
    1 << (bits - 6)
}
