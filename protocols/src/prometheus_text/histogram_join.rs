//! Joins the samples of a histogram with one set of labels into one point.
//!
//! # Invariants
//!
//! - Buckets are counted alone: what Prometheus adds up is taken apart again. Buckets that do not grow, as those of a target that is
//!   being restarted, are left out; the sum and the count stay.

use model::{Attributes, MetricType, Timestamp};
use serde_json::Value;

use super::sample_line::SampleLine;
use super::{SampleRole, ScrapedPoint, exemplar_json, set_exemplars};

/// So many exemplars of a point are kept.
const MOST_EXEMPLARS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct HistogramJoin<'a> {
    name: &'a str,
    series: String,
    labels: Attributes,
    /// Upper bounds and cumulative counts, as they came.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
    ts: Option<Timestamp>,
    exemplars: Vec<Value>,
}

impl<'a> HistogramJoin<'a> {
    pub(super) fn new(name: &'a str, series: String, labels: Attributes) -> Self {
        Self {
            name,
            series,
            labels,
            buckets: Vec::new(),
            count: None,
            sum: None,
            ts: None,
            exemplars: Vec::new(),
        }
    }

    /// Takes a sample of it. A bucket without a bound is none.
    pub(super) fn add(&mut self, role: SampleRole, sample: &SampleLine<'_>) {
        self.ts = self.ts.or(sample.ts);
        if let Some(exemplar) = sample
            .exemplar
            .as_ref()
            .filter(|_| self.exemplars.len() < MOST_EXEMPLARS)
        {
            self.exemplars.push(exemplar_json(exemplar));
        }
        match role {
            SampleRole::Bucket => {
                let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
                self.buckets.extend(
                    bound
                        .filter(|bound| bound.is_finite() || *bound > 0.0)
                        .map(|bound| (bound, sample.value)),
                );
            }
            SampleRole::Count => self.count = Some(sample.value),
            SampleRole::Sum => self.sum = Some(sample.value),
            SampleRole::Value | SampleRole::Created => {}
        }
    }

    /// The point, and its series.
    pub(super) fn finish(mut self) -> (ScrapedPoint, Option<String>) {
        self.buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        self.buckets.dedup_by(|(a, _), (b, _)| a == b);
        let infinite = self.buckets.pop_if(|(bound, _)| *bound == f64::INFINITY);
        let all = infinite.map(|(_, count)| count).or(self.count);
        if let Some(count) = all.and_then(whole) {
            self.labels.set("otel.count", count);
        }
        let cumulative = self.buckets.iter().map(|(_, count)| *count).chain(all);
        if let Some(counts) = all.and(taken_apart(cumulative)) {
            let bounds: Vec<f64> = self.buckets.iter().map(|(bound, _)| *bound).collect();
            self.labels.set("otel.bounds", bounds);
            self.labels.set("otel.buckets", counts);
        }
        let sum = self.sum.filter(|sum| sum.is_finite());
        if sum.is_none() {
            self.labels.set("otel.no_sum", true);
        }
        set_exemplars(&mut self.labels, self.exemplars);
        let point = ScrapedPoint {
            name: self.name.to_owned(),
            metric_type: MetricType::Histogram,
            value: sum.unwrap_or_default(),
            ts: self.ts,
            labels: self.labels,
        };
        (point, Some(self.series))
    }
}

/// Counts that were added up, each alone; none if they do not grow.
fn taken_apart(cumulative: impl Iterator<Item = f64>) -> Option<Vec<u64>> {
    let mut before = 0;
    let alone = cumulative.map(|count| {
        let count = whole(count)?;
        let own = count.checked_sub(before)?;
        before = count;
        Some(own)
    });
    alone.collect()
}

/// A count.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "it is within the range"
)]
fn whole(count: f64) -> Option<u64> {
    let is_count = count >= 0.0 && count < u64::MAX as f64;
    is_count.then(|| count.round() as u64)
}
