//! What is kept of the values of one group: all of them while they are few, how many lie in each of many cells when they are more.
//!
//! ```text
//! value ─> key: its bits, so that keys are ordered as values are ─> cell: the key's upper bits
//! ```
//!
//! A cell spans a 2⁻⁸ of its values at first. When the values reach over more than [`MOST_CELLS`] cells, two neighbours become
//! one, and so again: `doi:10.14778/3476249.3476274` (UDDSketch) with the cells of an HDR histogram.
//!
//! # Invariants
//!
//! - The counts of all cells are the number of values; the least and the greatest value are kept as they are.
//! - Of up to [`FEW`] values every percentile is exact. Of more, it is in the cell of the value that it should be: off by 0.4 % at
//!   most where the greatest is up to 2³² times the least, with one sign.
//! - A sketch takes at most 128 KiB, whatever the values are.

use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;

/// Values that are kept as they are.
const FEW: usize = 256;
const MOST_CELLS: usize = 8192;
/// Bits of a key that do not tell its first cell: 52 of the fraction, of which 8 tell it.
const SHIFT: u32 = 44;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sketch {
    Few(Vec<f64>),
    Cells(Box<Cells>),
}

/// How many values lie in each cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cells {
    /// Lower bits of a key that do not tell its cell.
    shift: u32,
    /// The first cell of `counts`.
    first: u64,
    counts: Vec<u64>,
    least: f64,
    greatest: f64,
    values: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// A number that is ordered as the value is: `-NaN` first, then from the least to the greatest, `NaN` last.
const fn key_of(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

const fn value_of(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 0 { !key } else { key & !(1 << 63) })
}

impl Sketch {
    /// Takes a value, and returns by how many bytes that made it larger.
    #[inline]
    pub(super) fn add(&mut self, value: f64) -> usize {
        match self {
            Self::Cells(cells) => cells.add(key_of(value), value, 1),
            Self::Few(values) if values.len() < FEW => {
                let before = values.capacity();
                values.push(value);
                (values.capacity() - before) * size_of::<f64>()
            }
            Self::Few(values) => {
                let before = values.capacity() * size_of::<f64>();
                let mut cells = Cells::new(value);
                for value in values.drain(..).chain([value]) {
                    cells.add(key_of(value), value, 1);
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
            Self::Cells(cells) => size_of::<Cells>() + cells.counts.capacity() * size_of::<u64>(),
        }
    }

    /// It as bytes, for another part of the same plan.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut write = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        match self {
            Self::Few(values) => values.iter().for_each(|value| write(value.to_bits())),
            Self::Cells(cells) => {
                let Cells {
                    shift,
                    first,
                    least,
                    greatest,
                    values,
                    ..
                } = &**cells;
                let head = [u64::from(*shift), *first, least.to_bits(), greatest.to_bits(), *values];
                head.iter().chain(&cells.counts).copied().for_each(&mut write);
            }
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
        let bad = || exec_datafusion_err!("a spilled sketch of percentiles is damaged");
        let mut next = || numbers.next().ok_or_else(bad);
        let shift = u32::try_from(next()?)
            .ok()
            .filter(|shift| (SHIFT..u64::BITS).contains(shift));
        let shift = shift.ok_or_else(bad)?;
        let first = next()?.min(u64::MAX >> shift);
        let (least, greatest) = (f64::from_bits(next()?), f64::from_bits(next()?));
        let values = next()?;
        let counts = numbers.take(MOST_CELLS).collect();
        Ok(Self::Cells(Box::new(Cells {
            shift,
            first,
            counts,
            least,
            greatest,
            values,
        })))
    }
}

impl Cells {
    const fn new(value: f64) -> Self {
        Self {
            shift: SHIFT,
            first: 0,
            counts: Vec::new(),
            least: value,
            greatest: value,
            values: 0,
        }
    }

    /// Counts values of a key, and returns by how many bytes that made it larger.
    #[inline]
    fn add(&mut self, key: u64, value: f64, count: u64) -> usize {
        self.values += count;
        if value.total_cmp(&self.least).is_lt() {
            self.least = value;
        }
        if value.total_cmp(&self.greatest).is_gt() {
            self.greatest = value;
        }
        let cell = key >> self.shift;
        // A cell before the first one is far beyond the last.
        let at = usize::try_from(cell.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(of_cell) = self.counts.get_mut(at) {
            *of_cell += count;
            return 0;
        }
        self.reach(key, count)
    }

    /// Counts values of a key that lies outside of the cells.
    #[cold]
    fn reach(&mut self, key: u64, count: u64) -> usize {
        let before = self.counts.capacity();
        loop {
            let cell = key >> self.shift;
            if self.counts.is_empty() {
                self.first = cell;
            }
            let end = self.first.saturating_add(self.counts.len() as u64);
            let (first, end) = (self.first.min(cell), end.max(cell.saturating_add(1)));
            match usize::try_from(end - first) {
                Ok(cells) if cells <= MOST_CELLS => {
                    let in_front = usize::try_from(self.first - first).unwrap_or(0);
                    self.counts.splice(..0, std::iter::repeat_n(0, in_front));
                    self.counts.resize(cells, 0);
                    self.first = first;
                    let at = usize::try_from(cell - first).unwrap_or(usize::MAX);
                    if let Some(of_cell) = self.counts.get_mut(at) {
                        *of_cell += count;
                    }
                    return self.counts.capacity().saturating_sub(before) * size_of::<u64>();
                }
                _ => self.coarsen(),
            }
        }
    }

    /// Makes one cell of two.
    fn coarsen(&mut self) {
        let first = self.first >> 1;
        // The first one may be the second of its two.
        let odd = usize::from(self.first & 1 == 1);
        let mut counts = Vec::with_capacity(self.counts.len() / 2 + 1);
        let (alone, pairs) = self.counts.split_at(odd.min(self.counts.len()));
        counts.extend(alone);
        counts.extend(pairs.chunks(2).map(|pair| pair.iter().sum::<u64>()));
        (self.first, self.counts) = (first, counts);
        self.shift += 1;
    }

    fn merge(&mut self, other: &Self) -> usize {
        while self.shift < other.shift {
            self.coarsen();
        }
        let before = self.counts.capacity();
        let counts = other.counts.iter().zip(other.first..);
        for (count, cell) in counts.filter(|(count, _)| **count > 0) {
            // Any value of the cell will do: of the least and the greatest, others are told below.
            self.add(cell << other.shift, other.least, *count);
        }
        if other.greatest.total_cmp(&self.greatest).is_gt() {
            self.greatest = other.greatest;
        }
        self.counts.capacity().saturating_sub(before) * size_of::<u64>()
    }

    fn percentile(&self, part: f64) -> f64 {
        let rank = part * self.values.saturating_sub(1) as f64;
        let mut before = 0.0;
        for (count, cell) in self.counts.iter().zip(self.first..) {
            let count = *count as f64;
            // Ranks between two cells are of the first: a half of them is nearer to it, the others are within the error.
            if rank < before + count {
                return self.within(cell, (rank - before + 0.5) / count);
            }
            before += count;
        }
        self.greatest
    }

    /// The value that lies at a part of a cell.
    fn within(&self, cell: u64, part: f64) -> f64 {
        let low = cell << self.shift;
        let (low, high) = (value_of(low), value_of(low | ((1 << self.shift) - 1)));
        let value = low + (high - low) * part.min(1.0);
        // No value is that small but zero: cells next to it have no other.
        let value = if value.is_subnormal() { 0.0 } else { value };
        match (value.total_cmp(&self.least), value.total_cmp(&self.greatest)) {
            (std::cmp::Ordering::Less, _) => self.least,
            (_, std::cmp::Ordering::Greater) => self.greatest,
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        for value in values {
            sketch.add(*value);
        }
        sketch
    }

    /// The value at a rank, as sorting finds it.
    fn exact(values: &[f64], part: f64) -> f64 {
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        values[(part * (values.len() - 1) as f64).floor() as usize]
    }

    fn spread(count: u64) -> Vec<f64> {
        // A full cycle of a linear congruential generator, over five orders of magnitude.
        let random = |n: u64| {
            n.wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407)
        };
        (0..count)
            .map(|n| 10f64.powf((random(random(n)) >> 11) as f64 / (1u64 << 53) as f64 * 5.0 - 1.0))
            .collect()
    }

    fn assert_near(sketch: &mut Sketch, values: &[f64], error: f64) {
        for part in [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0] {
            let (found, wanted) = (sketch.percentile(part).unwrap(), exact(values, part));
            assert!(
                (found - wanted).abs() <= wanted.abs() * error,
                "{part}: {found} and not {wanted}"
            );
        }
    }

    #[test]
    fn few_values_have_exact_percentiles() {
        assert_eq!(Sketch::default().percentile(0.5), None);
        let mut sketch = of(&[4.0, 1.0, 3.0, 2.0]);
        let parts = [0.0, 0.5, 0.25, 1.0];
        assert_eq!(
            parts.map(|part| sketch.percentile(part).unwrap()),
            [1.0, 2.5, 1.75, 4.0]
        );
        assert_eq!(of(&[f64::INFINITY; 3]).percentile(0.5), Some(f64::INFINITY));
    }

    #[test]
    fn many_values_have_percentiles_within_the_error() {
        let mut values = spread(20_000);
        assert_near(&mut of(&values), &values, 0.004);
        values.extend(values.clone().iter().map(|value| -value));
        values.extend([0.0; 1_000]);
        // Both signs reach over nearly all cells that there are.
        assert_near(&mut of(&values), &values, 0.25);
    }

    #[test]
    fn equal_values_are_found_as_they_are() {
        for value in [100.0, -7.5, 0.0, f64::MAX, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(of(&vec![value; 1_000]).percentile(0.5), Some(value));
        }
    }

    #[test]
    fn sketches_of_parts_are_together_the_sketch_of_all() {
        for (first, second) in [(10, 20), (10, 2_000), (2_000, 10), (2_000, 3_000)] {
            let values = spread(first + second);
            let (a, b) = values.split_at(usize::try_from(first).unwrap());
            let mut sketch = of(a);
            sketch.merge(Sketch::from_bytes(&of(b).to_bytes()).unwrap());
            if values.len() <= FEW {
                assert_eq!(sketch.percentile(0.9), of(&values).percentile(0.9));
            } else {
                assert_near(&mut sketch, &values, 0.004);
            }
        }
        let (near, far) = (
            vec![1.0; 1_000],
            spread(1_000).iter().map(|value| value * 1e100).collect::<Vec<_>>(),
        );
        let mut sketch = of(&near);
        sketch.merge(of(&far));
        assert_near(&mut sketch, &[near, far].concat(), 0.04);
    }

    #[test]
    fn no_values_make_a_sketch_large() {
        let mut grown = 0;
        let mut sketch = Sketch::default();
        for exponent in -1_000..1_000 {
            grown += sketch.add(2f64.powi(exponent)) + sketch.add(-(2f64.powi(exponent)));
        }
        assert!(sketch.heap() <= 128 << 10, "{}", sketch.heap());
        assert!(grown >= sketch.heap(), "{grown} of {}", sketch.heap());
        assert_eq!(sketch.percentile(0.0), Some(-(2f64.powi(999))));
    }

    #[test]
    fn damaged_bytes_are_an_error_or_some_sketch() {
        let bytes = of(&spread(1_000)).to_bytes();
        assert!(Sketch::from_bytes(&bytes[..9]).is_err());
        for at in 0..bytes.len().min(64) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x80;
            if let Ok(mut sketch) = Sketch::from_bytes(&bytes) {
                sketch.percentile(0.5);
                sketch.add(1.0);
            }
        }
    }
}
