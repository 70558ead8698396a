//! Quantile sketch of one group: all values while they are few, else how many lie in each of many cells.
//!
//! ```text
//! value ─> magnitude: its bits without the sign, in the order of values ─> cell: the upper ones of these bits
//! below │ negative cells, the greatest magnitude first │ zeros │ positive cells │ above
//! ```
//!
//! A cell spans a 2⁻⁸ of its values at first. When those of one sign reach over more than [`MOST_CELLS`] cells, two neighbours become
//! one, and so again: `doi:10.14778/3476249.3476274` (UDDSketch) with the cells of an HDR histogram. Infinities and what is no
//! number are counted apart, below and above all cells.
//!
//! # Invariants
//!
//! - All counts are together the number of values; the least and the greatest value are kept as they are.
//! - Of up to [`FEW`] values every percentile is exact. Of more, it is in the cell of the value that it should be: off by 0.4 % at
//!   most where values of one sign differ by a factor of up to 2³².
//! - A sketch takes at most 256 KiB, whatever the values are.

use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;

/// Values that are kept as they are.
const FEW: usize = 256;
/// Cells of one sign.
const MOST_CELLS: usize = 8192;
/// Bits of a magnitude that do not tell its first cell: 52 of the fraction, of which 8 tell it.
const SHIFT: u32 = 44;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum QuantileSketch {
    Few(Vec<f64>),
    Cells(Box<SketchCells>),
}

/// How many values lie where.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SketchCells {
    /// Lower bits of a magnitude that do not tell its cell.
    shift: u32,
    /// What is less than all numbers.
    below: u64,
    negative: CellRange,
    /// With what is too small to be told from zero.
    zeros: u64,
    positive: CellRange,
    /// What is greater than all numbers, or none.
    above: u64,
    least: f64,
    greatest: f64,
}

/// Neighbouring cells.
#[derive(Debug, Clone, Default, PartialEq)]
struct CellRange {
    first: u64,
    counts: Vec<u64>,
}

impl Default for QuantileSketch {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl QuantileSketch {
    /// Takes a value, and returns by how many bytes that made it larger.
    #[inline]
    pub(super) fn add(&mut self, value: f64) -> usize {
        match self {
            Self::Cells(cells) => cells.add(value, 1),
            Self::Few(values) if values.len() < FEW => {
                let before = values.capacity();
                values.push(value);
                (values.capacity() - before) * size_of::<f64>()
            }
            Self::Few(values) => {
                let before = values.capacity() * size_of::<f64>();
                let mut cells = SketchCells::new(value);
                for value in values.drain(..).chain([value]) {
                    cells.add(value, 1);
                }
                *self = Self::Cells(Box::new(cells));
                self.heap().saturating_sub(before)
            }
        }
    }

    /// Takes the values of another one, and returns by how many bytes that made it larger.
    pub(super) fn merge(&mut self, other: Self) -> usize {
        match (&mut *self, other) {
            (sketch, Self::Few(values)) => values.into_iter().map(|value| sketch.add(value)).sum(),
            (Self::Cells(cells), Self::Cells(other)) => cells.merge(&other),
            (Self::Few(values), cells) => {
                let values = std::mem::take(values);
                let before = values.capacity() * size_of::<f64>();
                *self = cells;
                for value in values {
                    self.add(value);
                }
                self.heap().saturating_sub(before)
            }
        }
    }

    /// The value that a part of the values, 0 to 1, are not greater than, between two of them in proportion; `None` without values.
    pub(super) fn percentile(&mut self, part: f64) -> Option<f64> {
        match self {
            Self::Few(values) => {
                values.sort_unstable_by(f64::total_cmp);
                let rank = part * values.len().checked_sub(1)? as f64;
                let low = *values.get(rank.floor() as usize)?;
                let high = *values.get(rank.ceil() as usize)?;
                // Not by the difference alone: of equal infinities it is no number.
                Some(if low == high {
                    low
                } else {
                    low + (high - low) * rank.fract()
                })
            }
            Self::Cells(cells) => Some(cells.percentile(part)),
        }
    }

    /// Bytes outside of it.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Few(values) => values.capacity() * size_of::<f64>(),
            Self::Cells(cells) => size_of::<SketchCells>() + cells.heap(),
        }
    }

    /// It as bytes, for another part of the same plan.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut write = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        match self {
            Self::Few(values) => values.iter().for_each(|value| write(value.to_bits())),
            Self::Cells(cells) => cells.numbers().for_each(&mut write),
        }
        // What numbers they are: values have none after them.
        bytes.extend(matches!(self, Self::Cells(_)).then_some(0));
        bytes
    }

    /// What [`Self::to_bytes`] made.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().copied().map(u64::from_le_bytes);
        if rest.is_empty() {
            return Ok(Self::Few(numbers.map(f64::from_bits).collect()));
        }
        let cells = SketchCells::from_numbers(&mut numbers);
        let cells = cells.ok_or_else(|| exec_datafusion_err!("a spilled sketch of percentiles is damaged"))?;
        Ok(Self::Cells(Box::new(cells)))
    }
}

impl SketchCells {
    fn new(value: f64) -> Self {
        Self {
            shift: SHIFT,
            below: 0,
            negative: CellRange::default(),
            zeros: 0,
            positive: CellRange::default(),
            above: 0,
            least: value,
            greatest: value,
        }
    }

    fn heap(&self) -> usize {
        (self.negative.counts.capacity() + self.positive.counts.capacity()) * size_of::<u64>()
    }

    /// Counts a value so many times, and returns by how many bytes that made it larger.
    #[inline]
    fn add(&mut self, value: f64, count: u64) -> usize {
        if value.total_cmp(&self.least).is_lt() {
            self.least = value;
        }
        if value.total_cmp(&self.greatest).is_gt() {
            self.greatest = value;
        }
        let is_negative = value.is_sign_negative();
        if value.is_normal() {
            return self.add_magnitude(is_negative, value.abs().to_bits(), count);
        }
        let place = match (value.is_finite(), is_negative) {
            (true, _) => &mut self.zeros,
            (false, true) => &mut self.below,
            (false, false) => &mut self.above,
        };
        *place += count;
        0
    }

    #[inline]
    fn add_magnitude(&mut self, is_negative: bool, magnitude: u64, count: u64) -> usize {
        let shift = self.shift;
        match self.row(is_negative).get_mut(magnitude >> shift) {
            Some(of_cell) => {
                *of_cell += count;
                0
            }
            None => self.extend_range(is_negative, magnitude, count),
        }
    }

    const fn row(&mut self, is_negative: bool) -> &mut CellRange {
        if is_negative {
            &mut self.negative
        } else {
            &mut self.positive
        }
    }

    /// Counts values that lie outside of the cells.
    #[cold]
    fn extend_range(&mut self, is_negative: bool, magnitude: u64, count: u64) -> usize {
        let before = self.heap();
        loop {
            let cell = magnitude >> self.shift;
            if self.row(is_negative).grow(cell) {
                if let Some(of_cell) = self.row(is_negative).get_mut(cell) {
                    *of_cell += count;
                }
                return self.heap().saturating_sub(before);
            }
            self.coarsen();
        }
    }

    /// Makes one cell of two.
    fn coarsen(&mut self) {
        self.negative.halve();
        self.positive.halve();
        self.shift += 1;
    }

    fn merge(&mut self, other: &Self) -> usize {
        while self.shift < other.shift {
            self.coarsen();
        }
        let before = self.heap();
        for (is_negative, row) in [(true, &other.negative), (false, &other.positive)] {
            for (cell, count) in row.cells().filter(|(_, count)| *count > 0) {
                self.add_magnitude(is_negative, cell << other.shift, count);
            }
        }
        self.below += other.below;
        self.zeros += other.zeros;
        self.above += other.above;
        if other.least.total_cmp(&self.least).is_lt() {
            self.least = other.least;
        }
        if other.greatest.total_cmp(&self.greatest).is_gt() {
            self.greatest = other.greatest;
        }
        self.heap().saturating_sub(before)
    }

    fn percentile(&self, part: f64) -> f64 {
        let cells = self.negative.counts.iter().chain(&self.positive.counts).sum::<u64>();
        let values = self.below + cells + self.zeros + self.above;
        let mut rank = part * values.saturating_sub(1) as f64;
        // How far into these the rank is; ranks between two are of the first.
        let mut within = |count: u64| {
            let count = count as f64;
            if rank < count {
                return Some((rank + 0.5) / count);
            }
            rank -= count;
            None
        };
        if within(self.below).is_some() {
            return self.least;
        }
        for (cell, count) in self.negative.cells().rev() {
            if let Some(part) = within(count) {
                return self.value(true, cell, 1.0 - part);
            }
        }
        if within(self.zeros).is_some() {
            return 0.0;
        }
        for (cell, count) in self.positive.cells() {
            if let Some(part) = within(count) {
                return self.value(false, cell, part);
            }
        }
        self.greatest
    }

    /// The value that lies at a part of a cell, by magnitude.
    fn value(&self, is_negative: bool, cell: u64, part: f64) -> f64 {
        let low = cell << self.shift;
        let high = f64::from_bits(low | ((1 << self.shift) - 1)).min(f64::MAX);
        let low = f64::from_bits(low);
        let magnitude = low + (high - low) * part.clamp(0.0, 1.0);
        let value = if is_negative { -magnitude } else { magnitude };
        match (value.total_cmp(&self.least), value.total_cmp(&self.greatest)) {
            (std::cmp::Ordering::Less, _) => self.least,
            (_, std::cmp::Ordering::Greater) => self.greatest,
            _ => value,
        }
    }

    /// All of it.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let head = [
            u64::from(self.shift),
            self.below,
            self.zeros,
            self.above,
            self.least.to_bits(),
            self.greatest.to_bits(),
        ];
        let row = |row: &CellRange| {
            [row.first, row.counts.len() as u64]
                .into_iter()
                .chain(row.counts.clone())
        };
        head.into_iter().chain(row(&self.negative)).chain(row(&self.positive))
    }

    /// `None` if they are not all of one.
    fn from_numbers(numbers: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let shift = u32::try_from(numbers.next()?).ok();
        let shift = shift.filter(|shift| (SHIFT..u64::BITS).contains(shift))?;
        let (below, zeros, above) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (least, greatest) = (f64::from_bits(numbers.next()?), f64::from_bits(numbers.next()?));
        let (negative, positive) = (
            CellRange::from_numbers(numbers, shift)?,
            CellRange::from_numbers(numbers, shift)?,
        );
        Some(Self {
            shift,
            below,
            negative,
            zeros,
            positive,
            above,
            least,
            greatest,
        })
    }
}

impl CellRange {
    #[inline]
    fn get_mut(&mut self, cell: u64) -> Option<&mut u64> {
        // A cell before the first one is far beyond the last.
        let at = usize::try_from(cell.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        self.counts.get_mut(at)
    }

    /// The cells and what they count.
    fn cells(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.map(|(at, count)| (self.first + at as u64, *count))
    }

    /// Reaches to a cell; not, if that would be too many.
    fn grow(&mut self, cell: u64) -> bool {
        if self.counts.is_empty() {
            self.first = cell;
        }
        let end = self.first + self.counts.len() as u64;
        let (first, end) = (self.first.min(cell), end.max(cell + 1));
        let cells = usize::try_from(end - first).unwrap_or(usize::MAX);
        if cells > MOST_CELLS {
            return false;
        }
        let in_front = usize::try_from(self.first - first).unwrap_or(0);
        self.counts.splice(..0, std::iter::repeat_n(0, in_front));
        self.counts.resize(cells, 0);
        self.first = first;
        true
    }

    fn halve(&mut self) {
        // The first one may be the second of its two.
        let alone = usize::from(self.first & 1 == 1).min(self.counts.len());
        let (alone, pairs) = self.counts.split_at(alone);
        let pairs = pairs.chunks(2).map(|pair| pair.iter().sum::<u64>());
        self.counts = alone.iter().copied().chain(pairs).collect();
        self.first >>= 1;
    }

    fn from_numbers(numbers: &mut impl Iterator<Item = u64>, shift: u32) -> Option<Self> {
        let first = numbers.next().filter(|first| *first <= u64::MAX >> shift)?;
        let count = usize::try_from(numbers.next()?)
            .ok()
            .filter(|count| *count <= MOST_CELLS)?;
        let counts: Vec<_> = numbers.take(count).collect();
        (counts.len() == count).then_some(Self { first, counts })
    }
}

#[cfg(test)]
mod tests;
