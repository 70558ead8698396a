//! The buckets of histograms as labels.
//!
//! # Invariants
//!
//! - Counts are those of each bucket, not added up as Prometheus has them.

use std::ops::Range;

use model::telemetry_codec::AttributeBuffer;

use crate::protobuf::{FieldReader, MalformedProtobuf};

/// A histogram with bounds: doubles as their bits.
#[derive(Debug, Default)]
pub(super) struct HistogramBuckets {
    pub(super) counts: Vec<u64>,
    pub(super) bounds: Vec<u64>,
}

impl HistogramBuckets {
    pub(super) fn set_labels(&self, labels: &mut AttributeBuffer) -> Result<(), String> {
        if self.counts.is_empty() && self.bounds.is_empty() {
            return Ok(());
        }
        if self.counts.len() != self.bounds.len() + 1 {
            return Err(format!(
                "{} buckets do not have {} bounds",
                self.counts.len(),
                self.bounds.len()
            ));
        }
        let bounds: Vec<f64> = self.bounds.iter().map(|bits| f64::from_bits(*bits)).collect();
        if !bounds.is_sorted_by(|a, b| a < b) || bounds.iter().any(|bound| !bound.is_finite()) {
            return Err("the bounds of the buckets are not finite numbers in ascending order".to_owned());
        }
        labels.set("", "otel.bounds", &bounds);
        labels.set("", "otel.buckets", &self.counts);
        Ok(())
    }
}

/// One half of an exponential histogram.
#[derive(Debug, Default)]
pub(super) struct ExponentialBuckets {
    offset: i32,
    counts: Vec<u64>,
}

impl ExponentialBuckets {
    pub(super) fn read(body: &[u8], range: Range<usize>) -> Result<Self, MalformedProtobuf> {
        let (mut reader, mut buckets) = (FieldReader::new(body, range), Self::default());
        while let Some(field) = reader.next()? {
            match field.number {
                1 => buckets.offset = field.zigzag()?,
                2 => field.repeat_varint(body, &mut buckets.counts)?,
                _ => {}
            }
        }
        Ok(buckets)
    }

    pub(super) fn set_labels(&self, labels: &mut AttributeBuffer, prefix: &str) {
        if !self.counts.is_empty() {
            labels.set(prefix, ".offset", &self.offset);
            labels.set(prefix, ".counts", &self.counts);
        }
    }
}
