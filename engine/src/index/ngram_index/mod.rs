//! N-gram index: which blocks can have a text. Four consecutive bytes of a message, case-folded, are a *gram*, and a text can only
//! be where all its grams are.
//!
//! ```text
//! message ─> folded ─> grams ─┬─ without a digit: words    few, as templates are few; most lie in few blocks, or in all
//!                             └─ with a digit:    numbers  many, each as likely as any other
//! gram ─> hash ─> slot of its kind ─> spans of blocks that have one of the slot's grams
//! ```
//!
//! Words and numbers have a section each, so that random digits do not take the room of words. A section is coarsened until it
//! fits: longer spans of blocks first, then fewer slots; at last it says nothing, which an empty one means.
//!
//! # Invariants
//!
//! - A block that has a text in a message is in the answer. Whatever shares a slot or a span only makes the answer longer.
//! - Grams are of what [`model::fold_into`] makes, as texts are compared by queries. A text that is found with regard to case is
//!   found without.
//! - The hash never changes: it is written to disks.
//! - Building takes at most 20 MiB, less for a small file, one folded message and [`MOST_BYTES`], whatever the messages are.

mod builder;
mod matrix;
mod posting_list;
#[cfg(test)]
mod tests;

use model::fold_into;

pub(super) use builder::NgramIndexBuilder;
pub(super) use posting_list::find;

use super::sidecar_format::SectionKind;

/// Bytes of a gram.
const GRAM: usize = 4;
/// Grams of a text that an index is asked for, at most.
const MOST_GRAMS: usize = 16;
/// Slots of a page of a section, as a power of two; there are no fewer.
const PAGE_BITS: u32 = 10;
/// Slots of each class, at most, as a power of two.
const MOST_BITS: [u32; 2] = [19, 18];
/// Spans of blocks of each class that are told apart, at most. Most words are in all blocks or in few, most numbers in many.
const MOST_SPANS: [u32; 2] = [4096, 128];
/// Bytes of the matrix of each class while a file is read, at most.
const MOST_MATRIX: [usize; 2] = [6 << 20, 4 << 20];
/// A file of more blocks is not indexed: an answer may name all of them.
const MOST_BLOCKS: u32 = 1 << 16;
/// Bytes of both sections, at most.
const MOST_BYTES: u64 = 3 << 20;
/// Both sections take at most such a part of the data file's bytes, and a little more where that is very small.
const PART_OF_FILE: u64 = 25;
const LEAST_BYTES: u64 = 4096;

/// What a gram is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NgramClass {
    /// It has no digit.
    Words = 0,
    /// It has one.
    Numbers = 1,
}

impl NgramClass {
    pub(super) const ALL: [Self; 2] = [Self::Words, Self::Numbers];

    pub(super) const fn kind(self) -> SectionKind {
        match self {
            Self::Words => SectionKind::Words,
            Self::Numbers => SectionKind::Numbers,
        }
    }
}

/// Mixes all bits of a number into all others, as MurmurHash3 does at its end.
const fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// Calls with the class and the hash of each gram of a folded text.
#[inline]
fn for_each_gram(folded: &[u8], mut each: impl FnMut(NgramClass, u32)) {
    // The last four bytes, and of each whether it is a digit.
    let (mut gram, mut digits) = (0u32, 0u8);
    for (at, byte) in folded.iter().enumerate() {
        gram = gram << 8 | u32::from(*byte);
        digits = digits << 1 | u8::from(byte.is_ascii_digit());
        if at + 1 >= GRAM {
            let class = if digits & 0xf == 0 {
                NgramClass::Words
            } else {
                NgramClass::Numbers
            };
            each(class, mix(gram));
        }
    }
}

/// A text that is looked for in messages, as indexes are asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NgramQuery([Vec<u32>; 2]);

impl NgramQuery {
    /// Those of a text; `None` if it is so short that it has none.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let mut folded = String::new();
        fold_into(text, &mut folded);
        let mut all = Vec::new();
        for_each_gram(folded.as_bytes(), |class, hash| all.push((class, hash)));
        let last = all.len().checked_sub(1)?;
        let mut grams = [Vec::new(), Vec::new()];
        // Spread over the text: neighbours have most in common.
        let count = all.len().min(MOST_GRAMS);
        for n in 0..count {
            let Some((class, hash)) = all.get(n * last / (count - 1).max(1)) else {
                continue;
            };
            let [words, numbers] = &mut grams;
            let of_class = match class {
                NgramClass::Words => words,
                NgramClass::Numbers => numbers,
            };
            if !of_class.contains(hash) {
                of_class.push(*hash);
            }
        }
        Some(Self(grams))
    }

    pub(super) fn of_class(&self, class: NgramClass) -> &[u32] {
        let [words, numbers] = &self.0;
        match class {
            NgramClass::Words => words,
            NgramClass::Numbers => numbers,
        }
    }
}

/// Spans of a file of so many blocks, each of `1 << shift` of them.
const fn spans(blocks: u32, shift: u32) -> u32 {
    // Not `(blocks - 1) >> shift`: there may be none.
    let whole = blocks >> shift;
    if whole << shift == blocks { whole } else { whole + 1 }
}

/// Words of a bit for each span.
const fn width_of(spans: u32) -> usize {
    spans.div_ceil(u64::BITS) as usize
}
