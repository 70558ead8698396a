//! Remote write requests as fuzz targets, and the requests that tests write.

use std::sync::Arc;

use bytes::Bytes;
use model::fuzz::FuzzTarget;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use model::{EntityId, Table, Timestamp};
use prost::encoding::encode_varint;

use super::{WriteSettings, WriteVersion, request};
use crate::sender::SenderSettings;

/// 2026-11-21T12:00:00Z.
pub(super) const NOON: i64 = 1_795_262_400_000;

/// A field with its length before it.
pub(super) fn bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

/// A field that is a number.
pub(super) fn varint(number: u8, value: i64) -> Vec<u8> {
    // The numbers from 16 on have keys of two bytes.
    let mut field = Vec::new();
    encode_varint(u64::from(number) << 3, &mut field);
    encode_varint(value.cast_unsigned(), &mut field);
    field
}

/// A field that is a double.
pub(super) fn double(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

/// A number with zigzag encoding.
pub(super) const fn zigzag(value: i64) -> i64 {
    (value << 1) ^ (value >> 63)
}

/// A packed list of numbers with zigzag encoding.
pub(super) fn deltas(number: u8, values: &[i64]) -> Vec<u8> {
    let mut packed = Vec::new();
    values
        .iter()
        .for_each(|value| encode_varint(zigzag(*value).cast_unsigned(), &mut packed));
    bytes(number, &packed)
}

/// Labels of version 1.0.
pub(super) fn labels(pairs: &[(&str, &str)]) -> Vec<u8> {
    let label =
        |(name, value): &(&str, &str)| bytes(1, &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat());
    pairs.iter().flat_map(label).collect()
}

/// A span of buckets.
pub(super) fn span(number: u8, offset: i64, length: i64) -> Vec<u8> {
    bytes(number, &[varint(1, zigzag(offset)), varint(2, length)].concat())
}

pub(super) fn sample(value: f64, millis: i64) -> Vec<u8> {
    [double(1, value), varint(2, millis)].concat()
}

/// A native histogram with a gap between its buckets.
pub(super) fn histogram() -> Vec<u8> {
    [
        varint(1, 13),
        double(3, 2.5),
        varint(4, zigzag(3)),
        double(5, 0.001),
        varint(6, 1),
        span(11, 2, 3),
        span(11, 1, 1),
        deltas(12, &[1, 2, -1, 4]),
        varint(15, NOON),
    ]
    .concat()
}

/// A request of version 1.0 with records of every kind.
pub(super) fn version_1() -> Vec<u8> {
    let exemplar = [
        labels(&[("trace_id", "0123456789abcdef0123456789abcdef"), ("user", "7")]),
        double(2, 0.5),
        varint(3, NOON),
    ];
    let total = [
        labels(&[("__name__", "requests_total"), ("job", "api")]),
        bytes(2, &sample(7.0, NOON)),
    ];
    let bucket = [
        labels(&[("__name__", "latency_bucket"), ("le", "+Inf")]),
        bytes(2, &sample(3.0, NOON)),
        bytes(3, &exemplar.concat()),
    ];
    let native = [
        labels(&[("__name__", "latency"), ("instance", "press-1")]),
        bytes(4, &histogram()),
    ];
    let metadata = [varint(1, 1), bytes(2, b"odd_name"), bytes(4, b"help")];
    let odd = [labels(&[("__name__", "odd_name")]), bytes(2, &sample(1.0, NOON))];
    [
        bytes(1, &total.concat()),
        bytes(1, &bucket.concat()),
        bytes(1, &native.concat()),
        bytes(1, &odd.concat()),
        bytes(3, &metadata.concat()),
    ]
    .concat()
}

/// A request of version 2.0; its symbols stand behind its series.
pub(super) fn version_2() -> Vec<u8> {
    let symbols = [
        "",
        "__name__",
        "temperature",
        "instance",
        "press-1",
        "Cel",
        "trace_id",
        "0123456789abcdef0123456789abcdef",
    ];
    let exemplar = [bytes(1, &[6, 7]), double(2, 0.5), varint(3, NOON)];
    let series = [
        bytes(2, &[sample(21.5, NOON), varint(3, NOON - 2_000)].concat()),
        bytes(1, &[1, 2, 3, 4]),
        bytes(3, &histogram()),
        bytes(4, &exemplar.concat()),
        bytes(5, &[varint(1, 2), varint(3, 0), varint(4, 5)].concat()),
        varint(6, NOON - 1_000),
    ];
    let symbols = symbols.iter().map(|symbol| bytes(4, symbol.as_bytes()));
    std::iter::once(bytes(5, &series.concat()))
        .chain(symbols)
        .flatten()
        .collect()
}

/// The targets.
pub(crate) fn fuzz_targets() -> Vec<FuzzTarget> {
    vec![
        FuzzTarget::new("remote_write.v1", vec![version_1()], |body| {
            reads(WriteVersion::V1, body)
        }),
        FuzzTarget::new("remote_write.v2", vec![version_2()], |body| {
            reads(WriteVersion::V2, body)
        }),
    ]
}

/// Reads all rows of a request: whether it is one.
fn reads(version: WriteVersion, body: &[u8]) -> bool {
    let fallback = PublisherIdentity {
        entity_id: EntityId::for_name("http"),
        entity_name: "http".to_owned(),
    };
    let settings = SenderSettings {
        entity: Arc::from(["instance".to_owned(), "job".to_owned()]),
        fallback: fallback.clone(),
        now: Timestamp::from_micros(0),
    };
    let write = WriteSettings {
        version,
        kinds: Arc::default(),
    };
    let kinds = Arc::clone(&write.kinds);
    let Ok(opened) = request(Bytes::copy_from_slice(body), write, settings) else {
        return false;
    };
    let mut records = BodyRecordReader::of_format(Table::Metrics, opened.records, opened.body, fallback);
    let mut rows = 0;
    while let Ok(Some(part)) = records.next_part(4 << 10) {
        rows += part.batch.num_rows() as u64;
    }
    let told = kinds.get().map_or(0, |kinds| kinds.len() as u64);
    assert!(rows + records.rejected() <= told, "more rows than records");
    true
}
