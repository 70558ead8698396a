//! A metric of OTLP as JSON, into the same metric as protobuf, point by point.
//!
//! # Invariants
//!
//! - Nothing is lost in silence: what cannot be read, a point or all data of a metric, is written as a point that has its text, and is refused.
//!   Of a metric without data that text is empty.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, HistogramDataPoint, NumberDataPoint, SummaryDataPoint,
};
use prost::Message;
use prost::encoding::{self, WireType, encode_key, encode_varint, int32, message, string};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::metric_walker::UNREAD;

/// The numbers of fields. Of a metric: its name, its unit, its metadata, one of its kinds. Of its data: points, and what they have in common.
const NAME: u32 = 1;
const UNIT: u32 = 3;
const METADATA: u32 = 12;
const GAUGE: u8 = 5;
const POINTS: u8 = 1;
const TEMPORALITY: u32 = 2;
const MONOTONIC: u32 = 3;
/// The bytes of a length that is written before it is known.
pub(super) const LENGTH: usize = 5;

/// A metric, with its data as text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetricText<'t> {
    name: String,
    unit: String,
    metadata: Vec<KeyValue>,
    #[serde(borrow)]
    gauge: Option<&'t RawValue>,
    #[serde(borrow)]
    sum: Option<&'t RawValue>,
    #[serde(borrow)]
    histogram: Option<&'t RawValue>,
    #[serde(borrow)]
    exponential_histogram: Option<&'t RawValue>,
    #[serde(borrow)]
    summary: Option<&'t RawValue>,
}

/// The data of a metric, with its points as texts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DataText<'t> {
    #[serde(borrow)]
    data_points: Vec<&'t RawValue>,
    aggregation_temporality: i32,
    is_monotonic: bool,
}

/// Writes a point of some kind.
type PointWriter = fn(&str, &mut Vec<u8>);

impl MetricText<'_> {
    /// Writes the metric as a field.
    pub(super) fn write_field(&self, field: u8, out: &mut Vec<u8>) {
        let kinds: [(u8, PointWriter, Option<&RawValue>); 5] = [
            (GAUGE, put_number, self.gauge),
            (7, put_number, self.sum),
            (9, put_point::<HistogramDataPoint>, self.histogram),
            (
                10,
                put_point::<ExponentialHistogramDataPoint>,
                self.exponential_histogram,
            ),
            (11, put_point::<SummaryDataPoint>, self.summary),
        ];
        let sent = kinds.into_iter();
        let mut sent = sent
            .filter_map(|(kind, put, text)| Some((kind, put, text?.get())))
            .peekable();
        put_nested(field, out, |out| {
            for (field, text) in [(NAME, &self.name), (UNIT, &self.unit)] {
                if !text.is_empty() {
                    string::encode(field, text, out);
                }
            }
            message::encode_repeated(METADATA, &self.metadata, out);
            if sent.peek().is_none() {
                put_nested(GAUGE, out, |out| put_unread("", out));
            }
            for (kind, put, text) in sent {
                let Some(data) = read_data(text) else {
                    put_nested(GAUGE, out, |out| put_unread(text, out));
                    continue;
                };
                put_nested(kind, out, |out| {
                    int32::encode(TEMPORALITY, &data.aggregation_temporality, out);
                    encoding::bool::encode(MONOTONIC, &data.is_monotonic, out);
                    for point in data.data_points {
                        put(point.get(), out);
                    }
                });
            }
        });
    }
}

fn read_data(text: &str) -> Option<DataText<'_>> {
    let data: DataText<'_> = serde_json::from_str(text).ok()?;
    // What is no object is too short to be kept each by itself: many would be more than their text.
    let are_objects = data.data_points.iter().all(|point| point.get().starts_with('{'));
    are_objects.then_some(data)
}

fn put_point<P: Message + DeserializeOwned>(text: &str, out: &mut Vec<u8>) {
    match serde_json::from_str::<P>(text) {
        Ok(point) => message::encode(POINTS.into(), &point, out),
        Err(_) => put_unread(text, out),
    }
}

/// A value that cannot be read is none for the decoder.
fn put_number(text: &str, out: &mut Vec<u8>) {
    let has_value = ["\"asInt\"", "\"asDouble\""].iter().any(|name| text.contains(name));
    match serde_json::from_str::<NumberDataPoint>(text) {
        Ok(point) if point.value.is_some() || !has_value => message::encode(POINTS.into(), &point, out),
        _ => put_unread(text, out),
    }
}

/// Writes a point that has the text of what cannot be read.
fn put_unread(text: &str, out: &mut Vec<u8>) {
    put_nested(POINTS, out, |out| {
        encode_key(UNREAD, WireType::LengthDelimited, out);
        encode_varint(text.len() as u64, out);
        out.extend_from_slice(text.as_bytes());
    });
}

/// Writes a message as a field.
fn put_nested(field: u8, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let begun = out.len();
    out.push(field << 3 | 2);
    out.extend([0; LENGTH]);
    put(out);
    set_length(out, begun + 1);
}

/// Writes the length of what is behind its place, to the end.
pub(super) fn set_length(out: &mut Vec<u8>, at: usize) {
    let behind = at + LENGTH;
    let length = out.len() - behind;
    // A longer one has all digits. Many short ones would be more than their text with them.
    let digits = if length < 0x80 { 1 } else { LENGTH };
    for (digit, byte) in out.iter_mut().skip(at).take(digits).enumerate() {
        let more = if digit + 1 < digits { 0x80 } else { 0 };
        *byte = (length >> (7 * digit)) as u8 & 0x7f | more;
    }
    out.drain(at + digits..behind);
}
