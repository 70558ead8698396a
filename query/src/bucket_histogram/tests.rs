//! Against the samples themselves: a quantile lies in the bucket of the sample of its rank, however histograms were merged, made
//! coarser, or taken from each other. And by the examples of Prometheus' documentation.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests of small numbers"
)]

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

const SHARES: [f64; 9] = [0.0, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0];

/// Numbers from 0 to 1 that are the same each time.
struct Samples(u64);

impl Samples {
    fn part(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.part() * n as f64) as usize
    }

    /// Of both signs, some of them 0, over twelve powers of two.
    fn take(&mut self, count: usize) -> Vec<f64> {
        let mut sample = || {
            let size = (self.part() * 12.0 - 6.0).exp2();
            match self.below(10) {
                0 => 0.0,
                1..4 => -size,
                _ => size,
            }
        };
        (0..count).map(|_| sample()).collect()
    }
}

fn index_of(scale: i32, size: f64) -> i64 {
    (size.log2() * f64::from(scale).exp2()).ceil() as i64 - 1
}

fn range_of(scale: i32, sizes: impl Iterator<Item = f64>) -> Option<(i64, Vec<u64>)> {
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    sizes.for_each(|size| *counts.entry(index_of(scale, size)).or_default() += 1);
    let (first, last) = (*counts.first_key_value()?.0, *counts.last_key_value()?.0);
    let dense = (first..=last).map(|index| counts.get(&index).copied().unwrap_or(0));
    Some((first, dense.collect()))
}

fn exponential_labels(scale: i32, samples: &[f64]) -> String {
    let mut labels = json!({
        "otel.count": samples.len(), "otel.scale": scale, "otel.unit": "s",
        "otel.zero_count": samples.iter().filter(|sample| **sample == 0.0).count(),
    });
    for (name, sign) in [("positive", 1.0), ("negative", -1.0)] {
        let sizes = samples.iter().map(|sample| sample * sign).filter(|size| *size > 0.0);
        if let Some((offset, counts)) = range_of(scale, sizes) {
            labels[format!("otel.{name}.offset")] = offset.into();
            labels[format!("otel.{name}.counts")] = counts.into();
        }
    }
    labels.to_string()
}

fn explicit_labels(bounds: &[f64], samples: &[f64]) -> String {
    let mut counts = vec![0; bounds.len() + 1];
    for sample in samples {
        counts[bounds.partition_point(|bound| bound < sample)] += 1;
    }
    json!({ "otel.count": samples.len(), "otel.bounds": bounds, "otel.buckets": counts }).to_string()
}

fn read(labels: &str, samples: &[f64]) -> BucketHistogram {
    BucketHistogram::of(samples.iter().sum(), &PointLabels::of(labels))
}

fn exponential(scale: i32, samples: &[f64]) -> BucketHistogram {
    read(&exponential_labels(scale, samples), samples)
}

fn explicit(bounds: &[f64], samples: &[f64]) -> BucketHistogram {
    read(&explicit_labels(bounds, samples), samples)
}

/// The sample of a quantile's rank.
fn ranked(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * samples.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1]
}

/// Where the exponential bucket of a sample begins and ends.
fn exponential_bucket(scale: i32, sample: f64) -> (f64, f64) {
    if sample == 0.0 {
        return (0.0, 0.0);
    }
    let index = index_of(scale, sample.abs()) as f64;
    let bound = |index: f64| (index * f64::from(-scale).exp2()).exp2();
    match sample > 0.0 {
        true => (bound(index), bound(index + 1.0)),
        false => (-bound(index + 1.0), -bound(index)),
    }
}

fn lies_in((lower, upper): (f64, f64), quantile: f64) -> bool {
    let slack = 1e-9 * lower.abs().max(upper.abs());
    lower - slack <= quantile && quantile <= upper + slack
}

#[test]
fn a_quantile_lies_in_the_exponential_bucket_of_the_sample_of_its_rank() {
    let mut random = Samples(7);
    for round in 0..400 {
        let scale = random.below(8) as i32 - 2;
        let count = 1 + random.below(300);
        let samples = random.take(count);
        let histogram = exponential(scale, &samples);
        for share in SHARES {
            let (found, sample) = (histogram.quantile(share).unwrap(), ranked(&samples, share));
            let bucket = exponential_bucket(scale, sample);
            assert!(
                lies_in(bucket, found),
                "round {round}, scale {scale}, {share}: {found} for {sample} in {bucket:?}"
            );
        }
    }
}

#[test]
fn a_quantile_lies_in_the_explicit_bucket_of_the_sample_of_its_rank() {
    let mut random = Samples(11);
    for round in 0..400 {
        let count = 1 + random.below(12);
        let mut bounds = random.take(count);
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let count = 1 + random.below(300);
        let samples = random.take(count);
        let histogram = explicit(&bounds, &samples);
        for share in SHARES {
            let (found, sample) = (histogram.quantile(share).unwrap(), ranked(&samples, share));
            let at = bounds.partition_point(|bound| *bound < sample);
            let last = bounds[bounds.len() - 1];
            let bucket = match (at.checked_sub(1).map(|before| bounds[before]), bounds.get(at)) {
                (_, None) => (last, last),
                (None, Some(upper)) => (upper.min(0.0), *upper),
                (Some(lower), Some(upper)) => (lower, *upper),
            };
            assert!(
                lies_in(bucket, found),
                "round {round}, {share}: {found} for {sample} in {bucket:?}"
            );
        }
    }
}

#[test]
fn histograms_of_different_scales_are_one_of_the_coarser_scale() {
    let mut random = Samples(13);
    for _ in 0..300 {
        let scales = [
            random.below(7) as i32 - 2,
            random.below(7) as i32 - 2,
            random.below(7) as i32 - 2,
        ];
        let parts = scales.map(|scale| {
            let count = random.below(80);
            (scale, random.take(count))
        });
        let mut merged = BucketHistogram::default();
        parts
            .iter()
            .for_each(|(scale, samples)| merged.add(&exponential(*scale, samples)));
        let all: Vec<f64> = parts.iter().flat_map(|(_, samples)| samples.clone()).collect();
        let coarsest = *scales.iter().min().unwrap();
        assert_eq!(merged.count, all.len() as f64);
        if all.is_empty() {
            continue;
        }
        assert!((merged.sum().unwrap() - all.iter().sum::<f64>()).abs() < 1e-6);
        let direct = exponential(coarsest, &all);
        for share in SHARES {
            assert_eq!(merged.quantile(share), direct.quantile(share), "{scales:?} {share}");
        }
    }
}

#[test]
fn bounds_that_both_have_are_those_of_explicit_histograms_together() {
    let (one, other) = ([0.5, 1.5, 1.75, 4.0, 9.0], [1.25, 1.5, 4.5, 5.0]);
    let mut merged = explicit(&[1.0, 2.0, 5.0], &one);
    merged.add(&explicit(&[1.5, 2.0, 4.0, 5.0], &other));
    let both = [one.as_slice(), other.as_slice()].concat();
    assert_eq!(merged, explicit(&[2.0, 5.0], &both));
    let mut apart = explicit(&[1.0], &one);
    apart.add(&explicit(&[2.0], &other));
    assert_eq!((apart.count, apart.quantile(0.5)), (9.0, None));
    let mut mixed = explicit(&[1.0], &one);
    mixed.add(&exponential(0, &other));
    assert_eq!((mixed.count, mixed.quantile(0.5)), (9.0, None));
    mixed.add(&BucketHistogram::default());
    assert_eq!(mixed.quantile(0.5), None);
}

#[test]
fn what_a_histogram_observed_since_is_what_the_later_samples_make_whatever_became_of_its_scale() {
    let mut random = Samples(17);
    for _ in 0..300 {
        let (early, late) = (random.below(60), 1 + random.below(60));
        let samples = random.take(early + late);
        let (scale, coarser) = (random.below(6) as i32, random.below(3) as i32);
        let before = exponential(scale, &samples[..early]);
        let grown = exponential(scale - coarser, &samples).increase_since(&before);
        let expected = exponential(scale - coarser, &samples[early..]);
        let bounds = [-2.0, -0.5, 0.0, 1.0, 8.0];
        let before = explicit(&bounds, &samples[..early]);
        let explicit_grown = explicit(&bounds, &samples).increase_since(&before);
        assert_eq!(explicit_grown.count, late as f64);
        for share in SHARES {
            assert_eq!(grown.quantile(share), expected.quantile(share));
            let direct = explicit(&bounds, &samples[early..]);
            assert_eq!(explicit_grown.quantile(share), direct.quantile(share));
        }
    }
}

#[test]
fn a_histogram_that_lost_observations_or_sees_more_finely_has_restarted() {
    let (many, few) = ([1.0, 2.0, 3.0, 3.5], [1.0, 2.0, 30.0]);
    for (now, before) in [
        (explicit(&[2.0, 4.0], &few), explicit(&[2.0, 4.0], &many)),
        // As many as before, but not in each bucket.
        (explicit(&[2.0, 4.0], &[9.0; 4]), explicit(&[2.0, 4.0], &many)),
        (explicit(&[2.0, 5.0], &many), explicit(&[2.0, 4.0], &many[..2])),
        (exponential(2, &few), exponential(2, &many)),
        (exponential(2, &[9.0; 4]), exponential(2, &many)),
        (exponential(3, &many), exponential(2, &many[..2])),
        (exponential(3, &many), explicit(&[2.0], &many[..2])),
    ] {
        assert_eq!(now.increase_since(&before), now);
    }
    let (early, late) = (explicit(&[2.0, 4.0], &many[..2]), explicit(&[2.0, 4.0], &many));
    assert_eq!(late.increase_since(&early), explicit(&[2.0, 4.0], &many[2..]));
}

/// A point by labels that are written out.
fn labelled(labels: &serde_json::Value) -> BucketHistogram {
    read(&labels.to_string(), &[])
}

#[test]
fn explicit_quantiles_are_those_of_prometheus() {
    let quantile = |bounds: &[f64], counts: &[u64], share: f64| {
        labelled(&json!({ "otel.count": 1, "otel.bounds": bounds, "otel.buckets": counts })).quantile(share)
    };
    // Linear within a bucket.
    assert_eq!(
        quantile(&[0.1, 0.2, 1.0], &[0, 10, 0, 0], 0.5),
        Some(0.1 + (0.2 - 0.1) * 5.0 / 10.0)
    );
    assert_eq!(quantile(&[10.0, 20.0], &[5, 4, 1], 0.7), Some(15.0));
    // "the upper bound of the second highest bucket is returned"
    assert_eq!(quantile(&[10.0, 20.0], &[5, 4, 1], 0.99), Some(20.0));
    // "The lower limit of the lowest bucket is assumed to be 0 if the upper bound of that bucket is greater than 0"
    assert_eq!(quantile(&[10.0, 20.0], &[5, 4, 1], 0.25), Some(5.0));
    // "Otherwise, the upper bound of the lowest bucket is returned"
    assert_eq!(quantile(&[-4.0, 20.0], &[5, 5, 0], 0.25), Some(-4.0));
    assert_eq!(quantile(&[0.0, 20.0], &[5, 5, 0], 0.25), Some(0.0));
    // Nothing observed, or no bound at all.
    assert_eq!(quantile(&[10.0], &[0, 0], 0.5), None);
    assert_eq!(quantile(&[], &[7], 0.5), None);
}

#[test]
fn exponential_quantiles_are_those_of_prometheus() {
    let labels = |more: serde_json::Value| {
        let mut labels = json!({ "otel.count": 1, "otel.scale": 0 });
        let all = labels.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        labelled(&labels)
    };
    let positive = labels(json!({ "otel.positive.offset": 0, "otel.positive.counts": [10, 0, 10] }));
    // On the logarithm: half of (1, 2] is up to the root of 2.
    assert_eq!(positive.quantile(0.25), Some(0.5f64.exp2()));
    assert_eq!(positive.quantile(0.5), Some(2.0));
    assert_eq!(positive.quantile(0.75), Some(2.5f64.exp2()));
    let negative = labels(json!({ "otel.negative.offset": 0, "otel.negative.counts": [10, 0, 10] }));
    assert_eq!(negative.quantile(0.25), Some(-(2.5f64.exp2())));
    assert_eq!(negative.quantile(0.0), Some(-8.0));
    assert_eq!(negative.quantile(1.0), Some(-1.0));
    // Linear in the zero bucket, which reaches to the side that has observations.
    let zero = json!({ "otel.zero_count": 10, "otel.zero_threshold": 0.5 });
    let with = |more: serde_json::Value| {
        let mut all = zero.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        labels(all)
    };
    assert_eq!(with(json!({ "otel.positive.counts": [10] })).quantile(0.25), Some(0.25));
    assert_eq!(
        with(json!({ "otel.negative.counts": [10] })).quantile(0.75),
        Some(-0.25)
    );
    assert_eq!(with(json!({})).quantile(0.25), Some(-0.25));
    let both = with(json!({ "otel.positive.counts": [10], "otel.negative.counts": [10] }));
    assert_eq!(both.quantile(0.5), Some(0.0));
}

#[test]
fn a_zero_bucket_is_as_wide_as_the_wider_one_and_takes_in_whole_buckets() {
    let mut merged = labelled(&json!({ "otel.count": 3, "otel.scale": 0, "otel.positive.counts": [1, 1, 1] }));
    merged.add(&labelled(&json!({
        "otel.count": 13, "otel.scale": 0, "otel.zero_count": 12, "otel.zero_threshold": 3, "otel.positive.offset": 2,
        "otel.positive.counts": [1],
    })));
    // (1, 2] and (2, 4] are within it now, so it ends at 4: 14 of 16 are in it.
    assert_eq!(merged.quantile(7.0 / 16.0), Some(2.0));
    assert_eq!(merged.quantile(1.0), Some(8.0));
    let wide = labelled(&json!({ "otel.count": 2, "otel.scale": 0, "otel.zero_count": 2, "otel.zero_threshold": 2 }));
    let narrow = labelled(&json!({ "otel.count": 1, "otel.scale": 0, "otel.positive.counts": [1] }));
    assert_eq!(wide.increase_since(&narrow).count, 1.0);
    assert_eq!(narrow.increase_since(&wide), narrow);
}

#[test]
fn labels_that_are_no_histogram_have_no_quantile_and_whatever_they_say_memory_is_bounded() {
    let many = vec![1; 100_000];
    for labels in [
        json!({}),
        json!({ "otel.count": 5 }),
        json!({ "otel.bounds": [1, 2], "otel.buckets": [1, 2] }),
        json!({ "otel.bounds": [2, 1], "otel.buckets": [1, 2, 3] }),
        json!({ "otel.bounds": [1], "otel.buckets": [1, -2] }),
        json!({ "otel.bounds": ["1"], "otel.buckets": [1, 2] }),
        json!({ "otel.scale": 33, "otel.positive.counts": [1] }),
        json!({ "otel.scale": 1.5, "otel.positive.counts": [1] }),
        json!({ "otel.scale": 0, "otel.positive.counts": [-1] }),
        json!({ "otel.scale": 0, "otel.positive.counts": [1], "otel.positive.offset": 3_000_000_000_u64 }),
        json!({ "otel.scale": "0", "otel.positive.counts": "1" }),
    ] {
        assert_eq!(labelled(&labels).quantile(0.5), None, "{labels}");
    }
    let wild = [
        json!({ "otel.scale": 32, "otel.positive.counts": many, "otel.positive.offset": i32::MAX }),
        json!({ "otel.scale": -32, "otel.positive.counts": [1, 2], "otel.positive.offset": i32::MIN }),
        json!({ "otel.scale": 20, "otel.negative.counts": [1e300, 1], "otel.negative.offset": i32::MIN }),
        json!({ "otel.scale": 20, "otel.negative.counts": many, "otel.negative.offset": i32::MAX }),
        json!({ "otel.scale": 0, "otel.zero_count": 1e308, "otel.zero_threshold": 1e308, "otel.positive.counts": [1e308] }),
    ];
    let mut all = BucketHistogram::default();
    for labels in &wild {
        let one = labelled(labels);
        all.add(&one);
        for histogram in [&one, &all] {
            assert!(histogram.bytes() <= 2 * 512 * 8, "{}", histogram.bytes());
            let found = SHARES.map(|share| histogram.quantile(share));
            assert!(found.iter().flatten().all(|value| value.is_finite()), "{found:?}");
        }
    }
    assert!(labelled(&wild[0]).quantile(0.5).is_some());
}
