//! Buckets between bounds that the histogram names, as those of Prometheus' classic histograms; counts are of one bucket each.
//!
//! # Invariants
//!
//! - Bounds ascend, and there is one bucket more than bounds: the last one has no end.

use crate::point_labels::{PointLabels, counts, numbers};

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExplicitBuckets {
    bounds: Vec<f64>,
    counts: Vec<f64>,
}

impl ExplicitBuckets {
    pub(super) fn read(labels: &PointLabels<'_>) -> Option<Self> {
        let (bounds, counts) = (numbers(labels.bounds)?, counts(labels.buckets)?);
        let is_sound = counts.len() == bounds.len() + 1 && bounds.is_sorted_by(|a, b| a < b);
        is_sound.then_some(Self { bounds, counts })
    }

    /// `None` if a bucket has fewer than before, or other bounds.
    pub(super) fn increase_since(&self, before: &Self) -> Option<Self> {
        if self.bounds != before.bounds {
            return None;
        }
        let counts = self.counts.iter().zip(&before.counts).map(|(now, before)| now - before);
        let grown = Self {
            bounds: self.bounds.clone(),
            counts: counts.collect(),
        };
        grown.counts.iter().all(|count| *count >= 0.0).then_some(grown)
    }

    pub(super) fn add(&mut self, more: &Self) {
        if self.bounds == more.bounds {
            self.counts
                .iter_mut()
                .zip(&more.counts)
                .for_each(|(sum, count)| *sum += count);
            return;
        }
        let mut common = self.bounds.clone();
        common.retain(|bound| more.bounds.binary_search_by(|other| other.total_cmp(bound)).is_ok());
        let mut sums = vec![0.0; common.len() + 1];
        for buckets in [&*self, more] {
            for (index, count) in buckets.counts.iter().enumerate() {
                let place = match buckets.bounds.get(index) {
                    Some(upper) => common.partition_point(|bound| bound < upper),
                    None => common.len(),
                };
                if let Some(sum) = sums.get_mut(place) {
                    *sum += count;
                }
            }
        }
        (self.bounds, self.counts) = (common, sums);
    }

    /// Of the last bucket it is where that begins; the first one begins at 0 if it ends above.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let total: f64 = self.counts.iter().sum();
        if total <= 0.0 {
            return None;
        }
        let (rank, mut below) = (share * total, 0.0);
        for (index, within) in self.counts.iter().enumerate() {
            if *within > 0.0 && below + within >= rank {
                let Some(upper) = self.bounds.get(index) else { break };
                let before = index.checked_sub(1).and_then(|before| self.bounds.get(before));
                let lower = before.copied().unwrap_or(upper.min(0.0));
                return Some(lower + (upper - lower) * (rank - below) / within);
            }
            below += within;
        }
        self.bounds.last().copied()
    }

    pub(super) fn bytes(&self) -> usize {
        (self.bounds.len() + self.counts.len()) * size_of::<f64>()
    }
}
