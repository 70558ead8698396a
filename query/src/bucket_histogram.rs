//! Histograms that points carry in their labels: increases, merges and quantiles.
//!
//! | buckets | labels | bucket `i` | within a bucket a quantile is |
//! |---|---|---|---|
//! | explicit | `otel.bounds`, `otel.buckets` | `(bounds[i - 1], bounds[i]]` | linear |
//! | exponential | `otel.scale`, `otel.zero_count`, `otel.zero_threshold`, `otel.positive.offset`, `.counts`, `otel.negative.…` | `(base^i, base^(i + 1)]`, base = 2^(2^-scale); the same of negative values | exponential |
//!
//! Quantiles are those of Prometheus' `histogram_quantile`, for classic histograms and for native ones.
//!
//! # Invariants
//!
//! - A merged histogram knows what both parts know: the bounds that both have, or the coarser scale. Explicit and exponential buckets
//!   have nothing in common: there is no quantile of both.
//! - Memory is bounded whatever labels say: explicit buckets never become more, exponential ones become coarser.
//!
//! # Not here
//!
//! Series, and which points follow each other: [`crate::aggregation::series_rates`].

mod explicit_buckets;
mod exponential_buckets;
#[cfg(test)]
mod tests;

use self::explicit_buckets::ExplicitBuckets;
use self::exponential_buckets::ExponentialBuckets;
use crate::point_labels::{PointLabels, number};

/// What a histogram observed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BucketHistogram {
    pub(crate) count: f64,
    /// NaN if that of a part is not known.
    sum: f64,
    buckets: ObservedBuckets,
}

#[derive(Debug, Clone, Default, PartialEq)]
enum ObservedBuckets {
    /// Nothing was observed.
    #[default]
    Nothing,
    Explicit(ExplicitBuckets),
    Exponential(ExponentialBuckets),
    /// Some observations are in no bucket, or in one of another kind.
    Unknown,
}

/// The quantile of the histogram that a point's labels have; `None` if they have none.
pub(crate) fn quantile_of(labels: &str, share: f64) -> Option<f64> {
    BucketHistogram::of(0.0, &PointLabels::of(labels)).quantile(share)
}

impl BucketHistogram {
    /// A histogram's point: its sum and its labels.
    pub(crate) fn of(sum: f64, labels: &PointLabels<'_>) -> Self {
        let exponential = || ExponentialBuckets::read(labels).map(ObservedBuckets::Exponential);
        let explicit = || ExplicitBuckets::read(labels).map(ObservedBuckets::Explicit);
        let count = number(labels.count).unwrap_or(0.0);
        let unknown = || match count > 0.0 {
            true => ObservedBuckets::Unknown,
            false => ObservedBuckets::Nothing,
        };
        Self {
            count,
            sum: if labels.no_sum == "true" { f64::NAN } else { sum },
            buckets: exponential().or_else(explicit).unwrap_or_else(unknown),
        }
    }

    /// What came since `before`; after a restart, all of it. One that lost observations, or sees more finely, has restarted.
    pub(crate) fn increase_since(&self, before: &Self) -> Self {
        use ObservedBuckets::{Explicit, Exponential, Nothing, Unknown};
        let buckets = match (&self.buckets, &before.buckets) {
            (Explicit(now), Explicit(before)) => now.increase_since(before).map(Explicit),
            (Exponential(now), Exponential(before)) => now.increase_since(before).map(Exponential),
            (now, Nothing) => Some(now.clone()),
            (Unknown, Unknown) => Some(Unknown),
            _ => None,
        };
        match buckets {
            Some(buckets) if self.count >= before.count => Self {
                count: self.count - before.count,
                sum: self.sum - before.sum,
                buckets,
            },
            _ => self.clone(),
        }
    }

    /// Adds what another one observed.
    pub(crate) fn add(&mut self, more: &Self) {
        use ObservedBuckets::{Explicit, Exponential, Nothing, Unknown};
        self.count += more.count;
        self.sum += more.sum;
        match (&mut self.buckets, &more.buckets) {
            (_, Nothing) => {}
            (Explicit(own), Explicit(more)) => own.add(more),
            (Exponential(own), Exponential(more)) => own.add(more),
            (Nothing, more) => self.buckets = more.clone(),
            _ => self.buckets = Unknown,
        }
    }

    /// The sum of what was observed, where it is known.
    pub(crate) fn sum(&self) -> Option<f64> {
        (!self.sum.is_nan()).then_some(self.sum)
    }

    /// The mean of what was observed.
    pub(crate) fn mean(&self) -> Option<f64> {
        let sum = self.sum().filter(|_| self.count > 0.0)?;
        Some(sum / self.count)
    }

    /// The value below which `share` of the observations lie. Nothing if there are none, or if their buckets are not known.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let value = match &self.buckets {
            ObservedBuckets::Explicit(buckets) => buckets.quantile(share),
            ObservedBuckets::Exponential(buckets) => buckets.quantile(share),
            ObservedBuckets::Nothing | ObservedBuckets::Unknown => None,
        };
        value.filter(|value| value.is_finite())
    }

    /// The bytes of its buckets, about.
    pub(crate) fn bytes(&self) -> usize {
        match &self.buckets {
            ObservedBuckets::Explicit(buckets) => buckets.bytes(),
            ObservedBuckets::Exponential(buckets) => buckets.bytes(),
            ObservedBuckets::Nothing | ObservedBuckets::Unknown => 0,
        }
    }
}
