//! Buckets whose bounds are powers of a base that the scale gives, as those of Prometheus' native histograms.
//!
//! ```text
//! base = 2^(2^-scale)        … │ (base^-1, 1] │ (1, base] │ (base, base^2] │ …        scale - 1: two neighbours become one
//!                                 index -1        0           1                     index >> 1
//! ```
//!
//! # Invariants
//!
//! - Negative values have the same buckets, mirrored; what lies within the threshold of 0 is counted apart.
//! - There are never more than [`MOST_BUCKETS`] on a side: the scale is lowered until it is so.

use crate::point_labels::{PointLabels, counts, number, whole};

/// More buckets on a side are made coarser; writers have 160 at most.
const MOST_BUCKETS: i64 = 512;
/// A scale beyond is none: its buckets would be of a billionth of a value, or of all values.
const SCALES: std::ops::RangeInclusive<i32> = -32..=32;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExponentialBuckets {
    scale: i32,
    zero_count: f64,
    zero_threshold: f64,
    positive: BucketRange,
    negative: BucketRange,
}

/// Counts of buckets that follow each other, from an index on.
#[derive(Debug, Clone, Default, PartialEq)]
struct BucketRange {
    offset: i64,
    counts: Vec<f64>,
}

impl ExponentialBuckets {
    pub(super) fn read(labels: &PointLabels<'_>) -> Option<Self> {
        let mut buckets = Self {
            scale: whole(labels.scale).filter(|scale| SCALES.contains(scale))?,
            zero_count: number(labels.zero_count).unwrap_or(0.0).max(0.0),
            zero_threshold: number(labels.zero_threshold).unwrap_or(0.0).max(0.0),
            positive: BucketRange::read(labels.positive)?,
            negative: BucketRange::read(labels.negative)?,
        };
        while buckets.positive.len().max(buckets.negative.len()) > MOST_BUCKETS {
            buckets.coarsen(1);
        }
        Some(buckets)
    }

    /// Lowers the scale.
    fn coarsen(&mut self, by: u32) {
        if by > 0 {
            self.scale = self.scale.saturating_sub_unsigned(by);
            self.positive.coarsen(by);
            self.negative.coarsen(by);
        }
    }

    /// Counts what lies within a threshold as 0; a bucket that the threshold cuts, too, and then it ends where the bucket ends.
    fn widen_zero(&mut self, threshold: f64) {
        self.zero_threshold = self.zero_threshold.max(threshold);
        for range in [&mut self.positive, &mut self.negative] {
            for (index, count) in (range.offset..).zip(&mut range.counts) {
                if *count > 0.0 && bound(self.scale, index, 0.0) < self.zero_threshold {
                    self.zero_count += std::mem::take(count);
                    self.zero_threshold = self.zero_threshold.max(bound(self.scale, index, 1.0));
                }
            }
        }
    }

    /// How many buckets a side has of both together.
    fn span(&self, other: &Self) -> i64 {
        let positive = self.positive.span(&other.positive);
        positive.max(self.negative.span(&other.negative))
    }

    /// Both with the same scale and threshold.
    fn align(&mut self, other: &mut Self) {
        let scale = self.scale.min(other.scale);
        self.coarsen(self.scale.abs_diff(scale));
        other.coarsen(other.scale.abs_diff(scale));
        if self.zero_threshold.total_cmp(&other.zero_threshold).is_ne() {
            self.widen_zero(other.zero_threshold);
            other.widen_zero(self.zero_threshold);
            self.widen_zero(other.zero_threshold);
        }
    }

    /// `None` if a bucket has fewer than before, or buckets are finer.
    pub(super) fn increase_since(&self, before: &Self) -> Option<Self> {
        if self.scale > before.scale || self.zero_threshold < before.zero_threshold {
            return None;
        }
        let (mut grown, mut before) = (self.clone(), before.clone());
        grown.align(&mut before);
        grown.zero_count -= before.zero_count;
        grown.positive.subtract(&before.positive)?;
        grown.negative.subtract(&before.negative)?;
        (grown.zero_count >= 0.0).then_some(grown)
    }

    pub(super) fn add(&mut self, more: &Self) {
        let mut more = more.clone();
        self.align(&mut more);
        while self.span(&more) > MOST_BUCKETS {
            self.coarsen(1);
            more.coarsen(1);
        }
        self.zero_count += more.zero_count;
        self.positive.add(&more.positive);
        self.negative.add(&more.negative);
    }

    /// Of the zero bucket it is linear; that reaches to the side only on which there are observations, if it is one.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let [negative, positive] = [&self.negative, &self.positive].map(|range| range.counts.iter().sum::<f64>());
        let total = negative + self.zero_count + positive;
        if total <= 0.0 {
            return None;
        }
        let rank = share * total;
        if negative > 0.0 && rank <= negative {
            let (index, passed) = place(self.negative.filled().rev(), rank)?;
            return Some(-bound(self.scale, index, 1.0 - passed));
        }
        let rank = rank - negative;
        if self.zero_count > 0.0 && rank <= self.zero_count {
            let (lower, upper) = match (negative > 0.0, positive > 0.0) {
                (false, true) => (0.0, self.zero_threshold),
                (true, false) => (-self.zero_threshold, 0.0),
                _ => (-self.zero_threshold, self.zero_threshold),
            };
            return Some(lower + (upper - lower) * rank / self.zero_count);
        }
        let (index, passed) = place(self.positive.filled(), rank - self.zero_count)?;
        Some(bound(self.scale, index, passed))
    }

    pub(super) fn bytes(&self) -> usize {
        (self.positive.counts.len() + self.negative.counts.len()) * size_of::<f64>()
    }
}

/// The bucket in which a rank is, and how much of it lies before; buckets come as they are walked through.
fn place(buckets: impl Iterator<Item = (i64, f64)>, rank: f64) -> Option<(i64, f64)> {
    let (mut below, mut last) = (0.0, None);
    for (index, within) in buckets {
        if below + within >= rank {
            return Some((index, (rank - below) / within));
        }
        below += within;
        last = Some((index, 1.0));
    }
    last
}

/// Where a bucket begins, or what lies in it behind such a part of it: on the logarithm.
#[allow(clippy::cast_precision_loss, reason = "an index is far below 2^53")]
fn bound(scale: i32, index: i64, part: f64) -> f64 {
    let exponent = (index as f64 + part) * (-f64::from(scale)).exp2();
    exponent.exp2().min(f64::MAX)
}

impl BucketRange {
    fn read((offset, written): (&str, &str)) -> Option<Self> {
        if written.is_empty() {
            return Some(Self::default());
        }
        let offset = if offset.is_empty() { 0 } else { whole(offset)? };
        Some(Self {
            offset: offset.into(),
            counts: counts(written)?,
        })
    }

    fn len(&self) -> i64 {
        i64::try_from(self.counts.len()).unwrap_or(i64::MAX)
    }

    fn end(&self) -> i64 {
        self.offset.saturating_add(self.len())
    }

    /// From the first bucket of both to the last one.
    fn span(&self, other: &Self) -> i64 {
        match (self.counts.is_empty(), other.counts.is_empty()) {
            (_, true) => self.len(),
            (true, false) => other.len(),
            _ => self.end().max(other.end()) - self.offset.min(other.offset),
        }
    }

    /// The buckets that have observations.
    fn filled(&self) -> impl DoubleEndedIterator<Item = (i64, f64)> + '_ {
        let offset = self.offset;
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0.0);
        filled.map(move |(at, count)| (offset.saturating_add_unsigned(at as u64), *count))
    }

    fn coarsen(&mut self, by: u32) {
        let by = by.min(63);
        let offset = self.offset >> by;
        let mut counts: Vec<f64> = Vec::new();
        for (index, count) in (self.offset..).zip(&self.counts) {
            let at = usize::try_from((index >> by) - offset).unwrap_or(0);
            match counts.get_mut(at) {
                Some(sum) => *sum += count,
                None => counts.push(*count),
            }
        }
        *self = Self { offset, counts };
    }

    fn add(&mut self, more: &Self) {
        if more.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            self.clone_from(more);
            return;
        }
        let offset = self.offset.min(more.offset);
        let span = usize::try_from(self.span(more)).unwrap_or(0);
        let mut counts = vec![0.0; span];
        for range in [&*self, more] {
            let from = usize::try_from(range.offset - offset).unwrap_or(0);
            let sums = counts.iter_mut().skip(from).zip(&range.counts);
            sums.for_each(|(sum, count)| *sum += count);
        }
        *self = Self { offset, counts };
    }

    /// `None` if there were more in a bucket.
    fn subtract(&mut self, before: &Self) -> Option<()> {
        for (index, count) in before.filled() {
            let at = usize::try_from(index - self.offset).ok()?;
            let now = self.counts.get_mut(at)?;
            *now -= count;
            if *now < 0.0 {
                return None;
            }
        }
        Some(())
    }
}
