//! The mutator: makes an input from samples of a format, by changes that parsers find hard.
//!
//! | change | |
//! |---|---|
//! | bytes | a bit flips, a byte is another, a number in 1, 2, 4 or 8 bytes is one of the limits, in either order |
//! | pieces | cut off, cut out, repeated, swapped, taken from another sample |
//! | text | digits become another number, a word of some format's grammar is put in, an opening is nested deeply |
//!
//! # Invariants
//!
//! - An input has at most [`LARGEST`] bytes, or as many as the largest sample.

use crate::extend_stable_hash;

/// The most bytes of an input, if no sample has more.
const LARGEST: usize = 64 << 10;
/// The most changes of one input.
const MOST_CHANGES: usize = 5;
/// How deep an opening is nested at the most.
const DEEPEST: usize = 2_000;

/// Numbers at which parsers change their mind.
const LIMITS: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// The same, as texts, and what is nearly a number.
const NUMBERS: [&str; 20] = [
    "0",
    "-0",
    "+1",
    "-1",
    "00",
    "255",
    "256",
    "65536",
    "2147483648",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "1e308",
    "1e999",
    "-1e-400",
    "0x7f",
    "NaN",
    ".5",
    "\u{664}\u{662}",
];

/// What grammars are made of.
const WORDS: [&str; 48] = [
    "\0",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\"",
    "'",
    "`",
    "\\",
    "\\x+1",
    "\\u0000",
    "\\uD800",
    "%00",
    "%zz",
    "%2e%2e%2f",
    "../",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "{}",
    "[]",
    ":",
    ": ",
    ", ",
    ";",
    "=",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "--- ",
    "#",
    "$",
    "${A}",
    "@",
    "+",
    "+f",
    "-",
    "é",
    "\u{feff}",
    "\u{202e}",
    "\u{10ffff}",
    "null",
];

/// What nests.
const OPENINGS: [&[u8]; 10] = [
    b"[",
    b"{\"a\":",
    b"(",
    b"- ",
    b"\x81",
    b"\xa1\x61a",
    b"\xc1",
    b"-",
    b"!",
    b"[[",
];

/// Makes one input.
#[derive(Debug, Clone)]
pub struct InputMutator {
    state: u64,
}

impl InputMutator {
    /// The mutator of an input: what it makes depends on nothing else.
    #[must_use]
    pub fn new(seed: u64, target: &str, number: u64) -> Self {
        let named = extend_stable_hash(seed, Some(target.as_bytes()));
        Self {
            state: named ^ number.wrapping_mul(0xd134_2543_de82_ef95),
        }
    }

    /// An input that is made of a sample, and of pieces of others; empty without samples.
    #[must_use]
    pub fn input(mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.pick(samples).cloned().unwrap_or_default();
        let largest = samples.iter().map(Vec::len).max().unwrap_or(0).max(LARGEST);
        for _ in 0..=self.below(MOST_CHANGES) {
            match self.below(12) {
                0 => self.flip(&mut bytes),
                1 => self.set(&mut bytes),
                2 => self.set_number(&mut bytes),
                3 => bytes.truncate(self.below(bytes.len() + 1)),
                4 => drop(bytes.drain(self.piece(&bytes))),
                5 => self.repeat(&mut bytes),
                6 => self.swap(&mut bytes),
                7 | 8 => self.splice(&mut bytes, samples),
                9 => self.renumber(&mut bytes),
                10 => self.insert_word(&mut bytes),
                _ => self.nest(&mut bytes),
            }
            bytes.truncate(largest);
        }
        bytes
    }

    /// SplitMix64: a generator of its own, so that a seed says the same for ever.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    fn below(&mut self, end: usize) -> usize {
        let number = self.next() % (end.max(1) as u64);
        usize::try_from(number).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len());
        of.get(at)
    }

    /// A piece of at most 64 bytes; seldom one of any length.
    fn piece(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let begin = self.below(bytes.len() + 1);
        let left = bytes.len() - begin;
        let most = if self.below(8) == 0 { left } else { left.min(64) };
        begin..begin + self.below(most + 1)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let (at, bit) = (self.below(bytes.len()), self.below(8));
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
    }

    fn set(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        let [new, ..] = self.next().to_le_bytes();
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = new);
    }

    fn set_number(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        let width = 1_usize << self.below(4);
        let near = self.next() % 3;
        let number = self
            .pick(&LIMITS)
            .copied()
            .unwrap_or(0)
            .wrapping_add(near)
            .wrapping_sub(1);
        let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
        let ordered: Vec<u8> = match self.below(2) {
            0 => little.into_iter().take(width).collect(),
            _ => big.into_iter().skip(8 - width).collect(),
        };
        let place = bytes.iter_mut().skip(at);
        place.zip(ordered).for_each(|(byte, new)| *byte = new);
    }

    fn repeat(&mut self, bytes: &mut Vec<u8>) {
        let piece = self.piece(bytes);
        let end = piece.end;
        let times = if self.below(8) == 0 { 1 + self.below(300) } else { 1 };
        let copies = bytes.get(piece).unwrap_or_default().repeat(times);
        bytes.splice(end..end, copies);
    }

    fn swap(&mut self, bytes: &mut Vec<u8>) {
        let piece = self.piece(bytes);
        let moved: Vec<u8> = bytes.drain(piece).collect();
        let to = self.below(bytes.len() + 1);
        bytes.splice(to..to, moved);
    }

    /// A piece of a sample in place of a piece, or all that follows it.
    fn splice(&mut self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let Some(other) = self.pick(samples) else { return };
        let (from, to) = (self.piece(other), self.piece(bytes));
        let taken = match self.below(4) {
            0 => other.get(from.start..),
            _ => other.get(from),
        };
        bytes.splice(to, taken.unwrap_or_default().iter().copied());
    }

    /// Another number in place of a run of digits.
    fn renumber(&mut self, bytes: &mut Vec<u8>) {
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let begins: Vec<usize> = (0..bytes.len())
            .filter(|at| is_digit(*at) && !at.checked_sub(1).is_some_and(is_digit))
            .collect();
        let Some(begin) = self.pick(&begins).copied() else {
            return;
        };
        let end = (begin..bytes.len()).find(|at| !is_digit(*at)).unwrap_or(bytes.len());
        let number = self.pick(&NUMBERS).copied().unwrap_or("0");
        bytes.splice(begin..end, number.bytes());
    }

    fn insert_word(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let word = self.pick(&WORDS).copied().unwrap_or(" ");
        bytes.splice(at..at, word.bytes());
    }

    fn nest(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let opening = self.pick(&OPENINGS).copied().unwrap_or_default();
        let deep = self.below(8) == 0;
        let times = self.below(if deep { DEEPEST } else { 40 });
        bytes.splice(at..at, opening.repeat(times));
    }
}
