//! The form of a section of grams: pages of 1,024 slots, of which a lookup reads one for each gram.
//!
//! ```text
//! form:     bits u8 (there are 2^bits slots) │ shift u8 (a span is 2^shift blocks)
//! section:  pages ([`crate::index::pages`])
//! page:     which slots have a gram, 128 │ row of each that has one*
//! row:      of one span nothing, of up to 8 a bit for each in a byte, of more
//!           0: all spans │ n, 1 to 16: n × span u8 │ 255: a bit for each span, in whole bytes
//! ```
//!
//! The slot of a gram is the upper `bits` of its hash. A gram in three quarters of the spans counts as one in all.
//!
//! # Invariants
//!
//! - Whatever the bytes are, reading them ends with an answer or an error.

use crate::index::format::Bad;
use crate::index::pages::{self, Page};
use crate::index::{Blocks, Lookup};

use super::{MOST_BITS, MOST_BLOCKS, MOST_SPANS, PAGE_BITS, spans};

const PAGE_SLOTS: usize = 1 << PAGE_BITS;
/// Of each slot of a page a bit.
const PRESENT: usize = PAGE_SLOTS / 8;
/// A longer page is none: which slots, and of each the longest row.
const LONGEST: u64 = (PRESENT + PAGE_SLOTS * 17) as u64;
/// Slots for each gram, more than which tell nothing more.
const SLOTS_OF_A_GRAM: usize = 8;

const EVERYWHERE: u8 = 0;
const BITS: u8 = u8::MAX;

/// Which spans have a gram of each slot.
#[derive(Debug)]
pub(super) struct Matrix {
    rows: Vec<u128>,
    blocks: u32,
    shift: u32,
}

impl Matrix {
    /// `rows` are as many as a power of two; of each, bit `n` is of span `n`.
    pub(super) const fn new(rows: Vec<u128>, blocks: u32, shift: u32) -> Self {
        Self { rows, blocks, shift }
    }

    const fn spans(&self) -> u32 {
        spans(self.blocks, self.shift)
    }

    const fn bits(&self) -> u32 {
        self.rows.len().trailing_zeros()
    }

    /// The form and the section, of so many bytes at most; `None` if what fits would say little.
    pub(super) fn encode(mut self, most: usize) -> Option<(u16, Vec<u8>)> {
        let grams = self.rows.iter().filter(|row| **row != 0).count();
        while self.rows.len() > PAGE_SLOTS && self.rows.len() / 2 >= SLOTS_OF_A_GRAM * grams {
            self.halve_slots();
        }
        loop {
            let (bytes, is_full) = self.measure();
            if is_full {
                return None;
            }
            if bytes <= most {
                let form = u16::try_from(self.bits() | self.shift << 8).ok()?;
                return Some((form, self.write(bytes)));
            }
            if self.spans() > 1 {
                self.halve_spans();
            } else if self.rows.len() > PAGE_SLOTS {
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
        for row in self.rows.iter().filter(|row| **row != 0) {
            let row = Row::of(*row, spans);
            bytes += row.length(spans);
            filled += u64::from(row.spans(spans));
        }
        let pages = self.rows.len() / PAGE_SLOTS;
        let is_full = filled * 2 > self.rows.len() as u64 * u64::from(spans.max(1));
        (bytes + pages::overhead(pages) + pages * PRESENT, is_full)
    }

    fn halve_slots(&mut self) {
        let half = self.rows.len() / 2;
        for slot in 0..half {
            let both = self.rows.iter().skip(slot * 2).take(2).fold(0, |both, row| both | row);
            if let Some(row) = self.rows.get_mut(slot) {
                *row = both;
            }
        }
        self.rows.truncate(half);
    }

    fn halve_spans(&mut self) {
        self.rows.iter_mut().for_each(|row| *row = halved(*row));
        self.shift += 1;
    }

    fn write(&self, bytes: usize) -> Vec<u8> {
        let spans = self.spans();
        let mut pages = self.rows.chunks(PAGE_SLOTS);
        pages::section(pages.len(), bytes, |_, out| {
            let rows = pages.next().unwrap_or_default();
            let present = rows.chunks(8).map(|rows| {
                let bits = rows.iter().enumerate().filter(|(_, row)| **row != 0);
                bits.fold(0u8, |byte, (bit, _)| byte | 1 << bit)
            });
            out.extend(present);
            for row in rows.iter().filter(|row| **row != 0) {
                Row::of(*row, spans).write(spans, out);
            }
        })
    }
}

/// A bit for each pair of bits: whether one of them is set.
const fn halved(row: u128) -> u128 {
    const KEPT: [u128; 7] = [
        u128::MAX / 3,
        u128::MAX / 5,
        u128::MAX / 17,
        u128::MAX / 257,
        u128::MAX / 65_537,
        u128::MAX / 0x1_0000_0001,
        u64::MAX as u128,
    ];
    let mut bits = (row | row >> 1) & KEPT[0];
    let mut step = 1;
    while step < KEPT.len() {
        bits = (bits | bits >> (1 << (step - 1))) & KEPT[step];
        step += 1;
    }
    bits
}

/// A row as it is written.
#[derive(Debug, Clone, Copy)]
enum Row {
    Everywhere,
    /// So many spans, which are listed.
    List(u32, u128),
    Bits(u128),
}

/// Bytes of a bit for each span.
const fn bytes_of(spans: u32) -> usize {
    spans.div_ceil(8) as usize
}

/// All spans.
const fn every(spans: u32) -> u128 {
    if spans >= MOST_SPANS {
        u128::MAX
    } else {
        (1 << spans) - 1
    }
}

impl Row {
    const fn of(row: u128, spans: u32) -> Self {
        let count = row.count_ones();
        if count * 4 >= spans * 3 {
            Self::Everywhere
        } else if (count as usize) < bytes_of(spans) {
            Self::List(count, row)
        } else {
            Self::Bits(row)
        }
    }

    const fn length(self, spans: u32) -> usize {
        match self {
            _ if spans <= 1 => 0,
            _ if spans <= 8 => 1,
            Self::Everywhere => 1,
            Self::List(count, _) => 1 + count as usize,
            Self::Bits(_) => 1 + bytes_of(spans),
        }
    }

    const fn spans(self, spans: u32) -> u32 {
        match self {
            Self::Everywhere => spans,
            Self::List(count, _) => count,
            Self::Bits(row) => row.count_ones(),
        }
    }

    fn write(self, spans: u32, out: &mut Vec<u8>) {
        match self {
            _ if spans <= 1 => {}
            _ if spans <= 8 => out.push(self.byte(spans)),
            Self::Everywhere => out.push(EVERYWHERE),
            Self::List(count, row) => {
                out.push(u8::try_from(count).unwrap_or(EVERYWHERE));
                out.extend((0..128u8).filter(|span| row >> span & 1 == 1));
            }
            Self::Bits(row) => {
                out.push(BITS);
                out.extend(row.to_le_bytes().iter().take(bytes_of(spans)));
            }
        }
    }

    /// Of up to 8 spans, a bit for each.
    fn byte(self, spans: u32) -> u8 {
        let row = match self {
            Self::Everywhere => every(spans),
            Self::List(_, row) | Self::Bits(row) => row,
        };
        row.to_le_bytes()[0]
    }

    /// The spans of the first row, and what lies behind it.
    fn read(rows: &[u8], spans: u32) -> Option<(u128, &[u8])> {
        if spans <= 1 {
            return Some((every(spans), rows));
        }
        let (kind, rest) = rows.split_first()?;
        if spans <= 8 {
            return Some((u128::from(*kind) & every(spans), rest));
        }
        match *kind {
            EVERYWHERE => Some((every(spans), rest)),
            BITS => {
                let (bits, rest) = rest.split_at_checked(bytes_of(spans))?;
                let mut row = [0; 16];
                row.iter_mut().zip(bits).for_each(|(to, from)| *to = *from);
                Some((u128::from_le_bytes(row) & every(spans), rest))
            }
            count => {
                let (list, rest) = rest.split_at_checked(usize::from(count))?;
                let row = list
                    .iter()
                    .try_fold(0, |row, span| Some(row | 1u128.checked_shl(u32::from(*span))?));
                Some((row? & every(spans), rest))
            }
        }
    }
}

/// Looks for all of some grams, of which there is one, in a section of so many bytes of a file of so many blocks.
pub(in crate::index) fn find(
    grams: &[u32],
    (form, length): (u16, u64),
    blocks: u32,
    read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
) -> Result<Lookup, Bad> {
    let [bits, shift] = form.to_le_bytes().map(u32::from);
    let is_form = (PAGE_BITS..=MOST_BITS[0]).contains(&bits) && shift < 32;
    if !is_form || blocks > MOST_BLOCKS || spans(blocks, shift) > MOST_SPANS {
        return Err(Bad::Form("an index of texts has a form that is not known"));
    }
    let spans = spans(blocks, shift);
    let (mut met, mut bytes) = (every(spans), 0);
    for gram in grams {
        let slot = gram >> (32 - bits);
        let number = u64::from(slot >> PAGE_BITS);
        let is_whole = |bytes: u64| (PRESENT as u64..=LONGEST).contains(&bytes);
        let page = Page::read((number, 1 << (bits - PAGE_BITS)), length, is_whole, &read)?;
        bytes += page.bytes_read();
        let row = row_of(slot as usize % PAGE_SLOTS, page.bytes(), spans);
        met &= row.ok_or(Bad::Form("a page of texts says nothing"))?;
        if met == 0 {
            break;
        }
    }
    let blocks = if met == every(spans) && met != 0 {
        Blocks::All
    } else {
        let met = (0..spans).filter(|span| met >> span & 1 == 1);
        let blocks = met.flat_map(|span| (span << shift..blocks).take(1 << shift));
        Blocks::Some(blocks.collect())
    };
    Ok(Lookup { blocks, bytes })
}

/// The spans that have a gram of a slot of a page.
fn row_of(slot: usize, page: &[u8], spans: u32) -> Option<u128> {
    let (present, mut rows) = page.split_at_checked(PRESENT)?;
    let byte = present.get(slot / 8)?;
    if byte >> (slot % 8) & 1 == 0 {
        return Some(0);
    }
    let before = present.iter().take(slot / 8).map(|byte| byte.count_ones()).sum::<u32>();
    let in_byte = byte & ((1 << (slot % 8)) - 1);
    for _ in 0..before + in_byte.count_ones() {
        rows = Row::read(rows, spans)?.1;
    }
    Row::read(rows, spans).map(|(row, _)| row)
}
