//! Native histograms: their buckets and sums as labels, and those that cannot be.

use super::*;

/// The labels of the row of a histogram of version 1.0.
fn histogram_labels(fields: &[Vec<u8>]) -> Result<Value, String> {
    let body = series("h", &[bytes(4, &fields.concat())]);
    let (rows, refused, _) = points(WriteVersion::V1, &body).unwrap();
    match refused.into_iter().next() {
        Some((_, reason)) => Err(reason),
        None => Ok(rows[0]["labels"].clone()),
    }
}

/// A value in the middle of Prometheus' bucket i has OTLP's index i - 1, by the definitions of both.
#[test]
fn the_offset_is_that_of_otlp_whose_buckets_include_their_lower_side() {
    let (schema, index) = (3, 5);
    let base = 2f64.powf(2f64.powi(-schema));
    let middle = f64::midpoint(base.powi(index - 1), base.powi(index));
    let of_otlp = middle.log(base).floor();
    let labels = histogram_labels(&[
        varint(1, 1),
        varint(4, zigzag(schema.into())),
        span(11, index.into(), 1),
        deltas(12, &[1]),
        varint(15, NOON),
    ])
    .unwrap();
    assert_eq!(labels["otel.positive.offset"], json!(of_otlp as i64));
    assert_eq!(labels["otel.positive.counts"], json!([1]));
}

#[test]
fn histograms_of_floats_of_both_signs_and_of_custom_buckets_are_kept() {
    let floats = histogram_labels(&[
        double(2, 3.75),
        varint(4, zigzag(-1)),
        double(7, 0.25),
        span(8, -2, 2),
        bytes(10, &[1.5f64.to_le_bytes(), 0.5f64.to_le_bytes()].concat()),
        span(11, 0, 1),
        bytes(13, &1.5f64.to_le_bytes()),
        varint(14, 3),
        varint(15, NOON),
    ])
    .unwrap();
    assert_eq!(
        floats,
        json!({
            "otel.count": 3.75, "otel.scale": -1, "otel.zero_count": 0.25, "otel.zero_threshold": 0.0, "prometheus.reset_hint": "gauge",
            "otel.negative.offset": -3, "otel.negative.counts": [1.5, 0.5], "otel.positive.offset": -1, "otel.positive.counts": [1.5],
        })
    );
    let bounds = [0.1f64.to_le_bytes(), 1f64.to_le_bytes(), 10f64.to_le_bytes()].concat();
    let custom = |spans: &[Vec<u8>], counts: &[i64]| {
        // The key of field 16 has two bytes.
        let bounds = [&[0x82, 0x01, 24][..], &bounds].concat();
        histogram_labels(&[
            varint(1, 9),
            varint(4, zigzag(-53)),
            spans.concat(),
            deltas(12, counts),
            bounds,
            varint(15, NOON),
        ])
    };
    assert_eq!(
        custom(&[span(11, 1, 1), span(11, 1, 1)], &[4, 1]).unwrap(),
        json!({ "otel.count": 9, "otel.bounds": [0.1, 1.0, 10.0], "otel.buckets": [0, 4, 0, 5] })
    );
    assert_eq!(custom(&[], &[]).unwrap()["otel.buckets"], json!([0, 0, 0, 0]));
    assert!(
        custom(&[span(11, 3, 2)], &[4, 1])
            .unwrap_err()
            .contains("5 buckets do not have 3 bounds")
    );
    assert!(
        custom(&[span(11, -1, 1)], &[4])
            .unwrap_err()
            .contains("before the first")
    );
}

#[test]
fn a_histogram_that_cannot_be_is_refused_with_the_reason() {
    let with = |fields: &[Vec<u8>]| {
        let all = [&[varint(1, 1), varint(15, NOON)][..], fields].concat();
        histogram_labels(&all).unwrap_err()
    };
    for (fields, reason) in [
        (vec![varint(4, zigzag(9))], "9 is no schema"),
        (
            vec![span(11, 0, 2), deltas(12, &[1])],
            "1 counts do not belong to the buckets of 1 spans",
        ),
        (vec![span(11, 0, 1), deltas(12, &[1, 1])], "2 counts do not belong"),
        (
            vec![deltas(12, &[1])],
            "1 counts do not belong to the buckets of 0 spans",
        ),
        (vec![span(11, 0, 1), deltas(12, &[-1])], "a bucket has a count below 0"),
        (
            vec![span(11, 0, 1), span(11, -1, 1), deltas(12, &[1, 1])],
            "lies before the one before it",
        ),
        (
            vec![span(11, 0, 1), span(11, i64::from(i32::MAX), 1), deltas(12, &[1, 1])],
            "more than 16384 buckets",
        ),
        (
            vec![span(11, 0, i64::from(u32::MAX)), deltas(12, &[1])],
            "more than 16384 buckets",
        ),
        (
            vec![bytes(13, &f64::NAN.to_le_bytes()), span(11, 0, 1)],
            "the count NaN is none",
        ),
        (vec![double(2, -1.0)], "the count -1 is none"),
        (vec![vec![0x7a; 2]], "the message ends within a field"),
    ] {
        let error = with(&fields);
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let large = histogram_labels(&[bytes(13, &vec![0; (1 << 20) + 8])]).unwrap_err();
    assert!(large.contains("bytes, more than 1048576"), "{large}");
    let control = histogram_labels(&[histogram()]).unwrap();
    assert!(control.get("otel.no_sum").is_none(), "{control}");
    // The last sum counts.
    for sum in [f64::INFINITY, f64::NAN] {
        let labels = histogram_labels(&[histogram(), double(3, sum)]).unwrap();
        let mut wanted = control.clone();
        wanted["otel.no_sum"] = true.into();
        assert_eq!(labels, wanted, "{sum}");
    }
}
