//! Builds an n-gram index from the messages of a file, block by block.
//!
//! # Invariants
//!
//! - A message is hashed into sets of bits that stay in the caches; a matrix is touched once for each bit of a span.

use std::collections::HashSet;

use model::fold_into;

use super::matrix::NgramMatrix;
use super::{
    LEAST_BYTES, MOST_BITS, MOST_BLOCKS, MOST_BYTES, MOST_MATRIX, MOST_SPANS, NgramClass, PAGE_BITS, PART_OF_FILE,
    for_each_gram,
};
use crate::index::BLOCK_ROWS;

/// A longer scratch is not kept for the next message.
const LONG: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(in crate::index) struct NgramIndexBuilder {
    /// The slots that the present span of a class has.
    present: [Vec<u64>; 2],
    matrices: [NgramMatrix; 2],
    bits: [u32; 2],
    blocks: u32,
    block: u32,
    row: u32,
    /// Bytes of both sections, at most.
    most: usize,
    folded: String,
}

impl NgramIndexBuilder {
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
        let [word_bits, number_bits] = bits;
        let matrix = |bits, most_spans, most| NgramMatrix::new(bits, blocks, most_spans, most);
        Self {
            present: bits.map(|bits| vec![0; words_of(bits)]),
            matrices: [
                matrix(word_bits, MOST_SPANS[0], MOST_MATRIX[0]),
                matrix(number_bits, MOST_SPANS[1], MOST_MATRIX[1]),
            ],
            bits,
            blocks,
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
        let [words, numbers] = &mut self.present;
        for_each_gram(self.folded.as_bytes(), |class, hash| {
            let (present, bits) = match class {
                NgramClass::Words => (words.as_mut_slice(), word_bits),
                NgramClass::Numbers => (numbers.as_mut_slice(), number_bits),
            };
            let slot = hash >> (32 - bits);
            if let Some(word) = present.get_mut(slot as usize / 64) {
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
        for (present, matrix) in self.present.iter_mut().zip(&mut self.matrices) {
            if matrix.ends_span(self.block) {
                end_span(present, matrix, self.block);
            }
        }
        self.block += 1;
    }

    /// The form and the bytes of each class's section; empty ones say nothing.
    pub(in crate::index) fn finish(mut self) -> [(NgramClass, u16, Vec<u8>); 2] {
        let is_whole = self.block == self.blocks && self.blocks <= MOST_BLOCKS;
        for (present, matrix) in self.present.iter_mut().zip(&mut self.matrices) {
            end_span(present, matrix, self.block.saturating_sub(1));
        }
        self.present = Default::default();
        let most = if is_whole { self.most } else { 0 };
        let [words, numbers] = self.matrices;
        let (word_form, words) = words.encode(most / 2).unwrap_or_default();
        let (number_form, numbers) = numbers.encode(most.saturating_sub(words.len())).unwrap_or_default();
        [
            (NgramClass::Words, word_form, words),
            (NgramClass::Numbers, number_form, numbers),
        ]
    }
}

/// Notes the slots of the span that a block is in, if there are any.
fn end_span(present: &mut [u64], matrix: &mut NgramMatrix, block: u32) {
    for (at, word) in present.iter_mut().enumerate() {
        let mut left = std::mem::take(word);
        while left != 0 {
            matrix.note(at * 64 + left.trailing_zeros() as usize, block);
            left &= left - 1;
        }
    }
}

/// Numbers of 64 bits for as many slots.
const fn words_of(bits: u32) -> usize {
    1 << (bits - 6)
}
