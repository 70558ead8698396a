//! Native histograms as labels, in the form that OTLP's exponential ones have.
//!
//! ```text
//! spans    (offset 2, 3 buckets) (offset 1, 1 bucket)      deltas +1 +2 -1 +4
//! Prometheus' indexes   2  3  4  ·  6                      counts  1  3  2  6
//! otel.positive.offset  1                                  otel.positive.counts [1,3,2,0,6]
//! ```
//!
//! # Invariants
//!
//! - Prometheus' bucket i is (base^(i-1), base^i], OTLP's is (base^i, base^(i+1)]: the offset is one less.
//! - Counts are those of each bucket; gaps between spans are zeros, and count for the most buckets that there may be.

use std::ops::Range;

use model::telemetry_codec::AttributeBuffer;
use serde_json::Value;

use crate::protobuf::{FieldReader, MalformedProtobuf};

/// The most buckets of one sign, with the gaps between them.
const MAX_BUCKETS: usize = 1 << 14;
/// The most bytes of a histogram: numbers become eight bytes while it is read.
const MAX_BYTES: usize = 1 << 20;
/// The schemas of exponential buckets, and the one of custom ones.
const EXPONENTIAL: std::ops::RangeInclusive<i32> = -4..=8;
const CUSTOM: i32 = -53;
/// The reset hint of a histogram that may go down.
const GAUGE: u64 = 3;

/// A histogram as it was sent; doubles of lists as their bits.
#[derive(Debug, Default)]
pub(super) struct NativeHistogram {
    pub(super) sum: f64,
    pub(super) timestamp: i64,
    /// When counting began, in milliseconds; 0 says nothing.
    pub(super) start: i64,
    count: Value,
    zero_count: Value,
    zero_threshold: f64,
    schema: i32,
    hint: u64,
    positive: BucketSide,
    negative: BucketSide,
    custom: Vec<u64>,
}

/// The buckets of one sign.
#[derive(Debug, Default)]
struct BucketSide {
    /// Offsets and lengths.
    spans: Vec<(i32, u32)>,
    deltas: Vec<u64>,
    counts: Vec<u64>,
}

impl NativeHistogram {
    pub(super) fn read(body: &[u8], range: Range<usize>) -> Result<Self, String> {
        if range.len() > MAX_BYTES {
            return Err(format!(
                "the histogram has {} bytes, more than {MAX_BYTES}",
                range.len()
            ));
        }
        let (mut reader, mut read) = (FieldReader::new(body, range), Self::default());
        while let Some(field) = reader.next()? {
            match field.number {
                1 => read.count = field.varint()?.into(),
                2 => read.count = number(field.double()?)?,
                3 => read.sum = field.double()?,
                4 => read.schema = field.zigzag()?,
                5 => read.zero_threshold = field.double()?,
                6 => read.zero_count = field.varint()?.into(),
                7 => read.zero_count = number(field.double()?)?,
                8 => read.negative.spans.push(span(body, field.range()?)?),
                9 => field.repeat_varint(body, &mut read.negative.deltas)?,
                10 => field.repeat_fixed64(body, &mut read.negative.counts)?,
                11 => read.positive.spans.push(span(body, field.range()?)?),
                12 => field.repeat_varint(body, &mut read.positive.deltas)?,
                13 => field.repeat_fixed64(body, &mut read.positive.counts)?,
                14 => read.hint = field.varint()?,
                15 => read.timestamp = field.varint()?.cast_signed(),
                16 => field.repeat_fixed64(body, &mut read.custom)?,
                17 => read.start = field.varint()?.cast_signed(),
                _ => {}
            }
        }
        Ok(read)
    }

    pub(super) fn set_labels(&self, labels: &mut AttributeBuffer) -> Result<(), String> {
        set(labels, "otel.count", &self.count);
        if self.hint == GAUGE {
            labels.set("", "prometheus.reset_hint", "gauge");
        }
        if self.schema == CUSTOM {
            return self.set_custom(labels);
        }
        if !EXPONENTIAL.contains(&self.schema) {
            return Err(format!("{} is no schema of buckets", self.schema));
        }
        labels.set("", "otel.scale", &self.schema);
        set(labels, "otel.zero_count", &self.zero_count);
        if self.zero_threshold.is_finite() {
            labels.set("", "otel.zero_threshold", &self.zero_threshold);
        }
        for (side, prefix) in [(&self.positive, "otel.positive"), (&self.negative, "otel.negative")] {
            if let Some((first, counts)) = side.dense(MAX_BUCKETS)? {
                labels.set(prefix, ".offset", &(first - 1));
                labels.set(prefix, ".counts", &counts);
            }
        }
        Ok(())
    }

    /// Buckets with bounds of their own: as OTLP's histograms, the last one has no bound.
    fn set_custom(&self, labels: &mut AttributeBuffer) -> Result<(), String> {
        let bounds: Vec<f64> = self.custom.iter().map(|bits| f64::from_bits(*bits)).collect();
        if !bounds.is_sorted_by(|a, b| a < b) || bounds.iter().any(|bound| !bound.is_finite()) {
            return Err("the custom bounds are not finite numbers in ascending order".to_owned());
        }
        let most = bounds.len() + 1;
        let mut counts = match self.positive.dense(most)? {
            Some((first, counts)) => {
                let first = usize::try_from(first).map_err(|_| "a custom bucket lies before the first".to_owned())?;
                let mut all = vec![Value::from(0); first.min(most)];
                all.extend(counts);
                all
            }
            None => Vec::new(),
        };
        if counts.len() > most {
            return Err(format!("{} buckets do not have {} bounds", counts.len(), bounds.len()));
        }
        counts.resize(most, Value::from(0));
        labels.set("", "otel.bounds", &bounds);
        labels.set("", "otel.buckets", &counts);
        Ok(())
    }
}

impl BucketSide {
    /// The index of the first bucket, and the counts from there on; none if there are no buckets.
    fn dense(&self, most: usize) -> Result<Option<(i64, Vec<Value>)>, String> {
        if self.deltas.len().max(self.counts.len()) > most {
            return Err(too_many(most));
        }
        let mut numbers = self.numbers()?.into_iter();
        let Some((first, _)) = self.spans.first() else {
            return if numbers.len() == 0 {
                Ok(None)
            } else {
                Err(self.mismatch())
            };
        };
        let mut counts: Vec<Value> = Vec::new();
        for (at, (offset, length)) in self.spans.iter().enumerate() {
            let gap = if at == 0 { 0 } else { *offset };
            let gap = usize::try_from(gap).map_err(|_| "a span of buckets lies before the one before it".to_owned())?;
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let end = counts.len().saturating_add(gap).saturating_add(length);
            if end > most {
                return Err(too_many(most));
            }
            counts.resize(counts.len() + gap, Value::from(0));
            counts.extend(numbers.by_ref().take(length));
            if counts.len() != end {
                return Err(self.mismatch());
            }
        }
        if numbers.len() > 0 {
            return Err(self.mismatch());
        }
        Ok((!counts.is_empty()).then_some((i64::from(*first), counts)))
    }

    fn mismatch(&self) -> String {
        let numbers = self.deltas.len().max(self.counts.len());
        format!(
            "{numbers} counts do not belong to the buckets of {} spans",
            self.spans.len()
        )
    }

    /// The counts of the buckets, one after another.
    fn numbers(&self) -> Result<Vec<Value>, String> {
        if !self.counts.is_empty() {
            return self.counts.iter().map(|bits| number(f64::from_bits(*bits))).collect();
        }
        let mut count = 0i64;
        let counts = self.deltas.iter().map(|delta| -> Result<Value, String> {
            let delta = (delta >> 1).cast_signed() ^ -(delta & 1).cast_signed();
            count = count
                .checked_add(delta)
                .filter(|count| *count >= 0)
                .ok_or("a bucket has a count below 0")?;
            Ok(Value::from(count))
        });
        counts.collect()
    }
}

fn too_many(most: usize) -> String {
    format!("the histogram has more than {most} buckets, with the gaps between them")
}

/// A count that is no whole number.
fn number(count: f64) -> Result<Value, String> {
    if count.is_finite() && count >= 0.0 {
        return Ok(count.into());
    }
    Err(format!("the count {count} is none"))
}

fn set(labels: &mut AttributeBuffer, key: &str, count: &Value) {
    if !count.is_null() {
        labels.set("", key, count);
    }
}

fn span(body: &[u8], range: Range<usize>) -> Result<(i32, u32), MalformedProtobuf> {
    let (mut reader, mut offset, mut length) = (FieldReader::new(body, range), 0, 0);
    while let Some(field) = reader.next()? {
        match field.number {
            1 => offset = field.zigzag()?,
            2 => length = u32::try_from(field.varint()?).unwrap_or(u32::MAX),
            _ => {}
        }
    }
    Ok((offset, length))
}
