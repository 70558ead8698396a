//! Format of posting lists: pages of 1,024 slots, of which a lookup reads one for each gram.
//!
//! ```text
//! form:     bits u8 (there are 2^bits slots) │ shift u8 (a span is 2^shift blocks)
//! section:  pages ([`crate::index::pages`])
//! page:     which slots have a gram, 128 │ row of each that has one*
//! row:      of one span nothing, of up to 8 a bit for each in a byte, of more
//!           0: all spans │ n: n × span, u8 or of more than 256 spans u16 │ 255: a bit for each span, in whole bytes
//! ```
//!
//! The slot of a gram is the upper `bits` of its hash. A gram in three quarters of the spans counts as one in all.
//!
//! # Invariants
//!
//! - Whatever the bytes are, reading them ends with an answer or an error.

use crate::index::checksummed_pages::ChecksummedPage;
use crate::index::sidecar_format::SidecarError;
use crate::index::{BlockSelection, IndexLookup};

use super::{MOST_BITS, MOST_BLOCKS, MOST_SPANS, PAGE_BITS, spans, width_of};

pub(super) const PAGE_SLOTS: usize = 1 << PAGE_BITS;
/// Of each slot of a page a bit.
pub(super) const PRESENT: usize = PAGE_SLOTS / 8;
/// A longer page is none: which slots, and of each the longest row.
const LONGEST: u64 = (PRESENT + PAGE_SLOTS * (1 + bytes_of(MOST_SPANS[0]))) as u64;
const EVERYWHERE: u8 = 0;
const BITS: u8 = u8::MAX;

/// A row as it is written; a bit of its words is of a span.
#[derive(Debug, Clone, Copy)]
pub(super) enum PostingList<'a> {
    Everywhere,
    /// So many spans, which are listed.
    List(u32, &'a [u64]),
    Bits(&'a [u64]),
}

/// Bytes of a bit for each span.
const fn bytes_of(spans: u32) -> usize {
    spans.div_ceil(8) as usize
}

/// Bytes of the number of a span.
const fn number_bytes(spans: u32) -> usize {
    if spans <= 256 { 1 } else { 2 }
}

/// All spans.
fn every(spans: u32) -> Vec<u64> {
    let firsts = (0..spans).step_by(64);
    firsts.map(|first| u64::MAX >> (64 - (spans - first).min(64))).collect()
}

/// The spans of a row.
fn listed(words: &[u64]) -> impl Iterator<Item = u32> {
    let words = (0..).step_by(64).zip(words);
    words.flat_map(|(first, word)| {
        (0..64)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| first + bit)
    })
}

impl<'a> PostingList<'a> {
    pub(super) fn of(words: &'a [u64], spans: u32) -> Self {
        let count = words.iter().map(|word| word.count_ones()).sum::<u32>();
        let bytes = count as usize * number_bytes(spans);
        if count * 4 >= spans * 3 {
            Self::Everywhere
        } else if count < u32::from(BITS) && bytes < bytes_of(spans) {
            Self::List(count, words)
        } else {
            Self::Bits(words)
        }
    }

    pub(super) const fn length(self, spans: u32) -> usize {
        match self {
            _ if spans <= 1 => 0,
            _ if spans <= 8 => 1,
            Self::Everywhere => 1,
            Self::List(count, _) => 1 + count as usize * number_bytes(spans),
            Self::Bits(_) => 1 + bytes_of(spans),
        }
    }

    pub(super) fn spans(self, spans: u32) -> u32 {
        match self {
            Self::Everywhere => spans,
            Self::List(count, _) => count,
            Self::Bits(words) => words.iter().map(|word| word.count_ones()).sum(),
        }
    }

    pub(super) fn write(self, spans: u32, out: &mut Vec<u8>) {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        match self {
            _ if spans <= 1 => {}
            // Of up to 8 spans, a bit for each.
            Self::Everywhere if spans <= 8 => out.extend(bytes(&every(spans)).first()),
            Self::List(_, words) | Self::Bits(words) if spans <= 8 => out.extend(bytes(words).first()),
            Self::Everywhere => out.push(EVERYWHERE),
            Self::List(count, words) => {
                out.push(u8::try_from(count).unwrap_or(EVERYWHERE));
                for span in listed(words) {
                    out.extend(span.to_le_bytes().iter().take(number_bytes(spans)));
                }
            }
            Self::Bits(words) => {
                out.push(BITS);
                out.extend(bytes(words).iter().take(bytes_of(spans)));
            }
        }
    }

    /// How long the first of some rows is.
    fn length_of_first(rows: &[u8], spans: u32) -> Option<usize> {
        match rows.first() {
            _ if spans <= 1 => Some(0),
            None => None,
            Some(_) if spans <= 8 => Some(1),
            Some(&EVERYWHERE) => Some(1),
            Some(&BITS) => Some(1 + bytes_of(spans)),
            Some(count) => Some(1 + usize::from(*count) * number_bytes(spans)),
        }
    }

    /// The spans of the first of some rows.
    fn read(rows: &[u8], spans: u32) -> Option<Vec<u64>> {
        let mut every = every(spans);
        let (kind, rest) = match rows.get(..Self::length_of_first(rows, spans)?)? {
            [] | [EVERYWHERE] if spans <= 1 || spans > 8 => return Some(every),
            row if spans <= 8 => (BITS, row),
            [kind, rest @ ..] => (*kind, rest),
            [] => return None,
        };
        let mut row = vec![0; width_of(spans)];
        if kind == BITS {
            for (at, byte) in rest.iter().enumerate() {
                *row.get_mut(at / 8)? |= u64::from(*byte) << (at % 8 * 8);
            }
        } else {
            for number in rest.chunks(number_bytes(spans)) {
                let span = number.iter().rev().fold(0, |span, byte| span << 8 | usize::from(*byte));
                *row.get_mut(span / 64)? |= 1 << (span % 64);
            }
        }
        every.iter_mut().zip(row).for_each(|(every, row)| *every &= row);
        Some(every)
    }
}

/// Looks for all of some grams, of which there is one, in a section of so many bytes of a file of so many blocks.
pub(in crate::index) fn find(
    grams: &[u32],
    (form, length): (u16, u64),
    blocks: u32,
    read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
) -> Result<IndexLookup, SidecarError> {
    let [bits, shift] = form.to_le_bytes().map(u32::from);
    let is_form = (PAGE_BITS..=MOST_BITS[0]).contains(&bits) && shift < 32;
    if !is_form || blocks > MOST_BLOCKS || spans(blocks, shift) > MOST_SPANS[0] {
        return Err(SidecarError::Form("an index of texts has a form that is not known"));
    }
    let spans = spans(blocks, shift);
    let (mut met, mut bytes) = (every(spans), 0);
    for gram in grams {
        let slot = gram >> (32 - bits);
        let number = u64::from(slot >> PAGE_BITS);
        let is_whole = |bytes: u64| (PRESENT as u64..=LONGEST).contains(&bytes);
        let page = ChecksummedPage::read((number, 1 << (bits - PAGE_BITS)), length, is_whole, &read)?;
        bytes += page.bytes_read();
        let row = row_of(slot as usize % PAGE_SLOTS, page.bytes(), spans);
        let row = row.ok_or(SidecarError::Form("a page of texts cannot be decoded"))?;
        met.iter_mut().zip(row).for_each(|(met, row)| *met &= row);
        if met.iter().all(|word| *word == 0) {
            break;
        }
    }
    let blocks = if spans > 0 && met == every(spans) {
        BlockSelection::All
    } else {
        let blocks = listed(&met).flat_map(|span| (span << shift..blocks).take(1 << shift));
        BlockSelection::Some(blocks.collect())
    };
    Ok(IndexLookup { blocks, bytes })
}

/// The spans that have a gram of a slot of a page.
fn row_of(slot: usize, page: &[u8], spans: u32) -> Option<Vec<u64>> {
    let (present, mut rows) = page.split_at_checked(PRESENT)?;
    let byte = present.get(slot / 8)?;
    if byte >> (slot % 8) & 1 == 0 {
        return Some(vec![0; width_of(spans)]);
    }
    let before = present.iter().take(slot / 8).map(|byte| byte.count_ones()).sum::<u32>();
    let in_byte = byte & ((1 << (slot % 8)) - 1);
    for _ in 0..before + in_byte.count_ones() {
        rows = rows.get(PostingList::length_of_first(rows, spans)?..)?;
    }
    PostingList::read(rows, spans)
}
