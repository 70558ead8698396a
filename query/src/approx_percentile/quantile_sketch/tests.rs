//! Percentiles of sketches are those of their values.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "tests")]
use super::*;

fn of(values: &[f64]) -> QuantileSketch {
    let mut sketch = QuantileSketch::default();
    for value in values {
        sketch.add(*value);
    }
    sketch
}

/// The value at a rank, as sorting finds it.
fn exact(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[(part * (values.len() - 1) as f64).floor() as usize]
}

fn spread(count: u64) -> Vec<f64> {
    // A full cycle of a linear congruential generator, over five orders of magnitude.
    let random = |n: u64| {
        n.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    };
    (0..count)
        .map(|n| 10f64.powf((random(random(n)) >> 11) as f64 / (1u64 << 53) as f64 * 5.0 - 1.0))
        .collect()
}

fn assert_near(sketch: &mut QuantileSketch, values: &[f64], error: f64) {
    for part in [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0] {
        let (found, wanted) = (sketch.percentile(part).unwrap(), exact(values, part));
        assert!(
            (found - wanted).abs() <= wanted.abs() * error,
            "{part}: {found} and not {wanted}"
        );
    }
}

#[test]
fn few_values_have_exact_percentiles() {
    assert_eq!(QuantileSketch::default().percentile(0.5), None);
    let mut sketch = of(&[4.0, 1.0, 3.0, 2.0]);
    let parts = [0.0, 0.5, 0.25, 1.0];
    assert_eq!(
        parts.map(|part| sketch.percentile(part).unwrap()),
        [1.0, 2.5, 1.75, 4.0]
    );
    assert_eq!(of(&[f64::INFINITY; 3]).percentile(0.5), Some(f64::INFINITY));
}

#[test]
fn many_values_have_percentiles_within_the_error() {
    let mut values = spread(20_000);
    assert_near(&mut of(&values), &values, 0.004);
    values.extend(values.clone().iter().map(|value| -value));
    values.extend([0.0; 1_000]);
    values.extend([f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE / 2.0]);
    let mut sketch = of(&values);
    assert_eq!(
        [0.0, 1.0].map(|part| sketch.percentile(part)),
        [f64::NEG_INFINITY, f64::INFINITY].map(Some)
    );
    values.retain(|value| value.is_finite());
    assert_near(&mut of(&values), &values, 0.004);
}

#[test]
fn equal_values_are_found_as_they_are() {
    for value in [100.0, -7.5, 0.0, f64::MAX, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(of(&vec![value; 1_000]).percentile(0.5), Some(value));
    }
}

#[test]
fn sketches_of_parts_are_together_the_sketch_of_all() {
    for (first, second) in [(10, 20), (10, 2_000), (2_000, 10), (2_000, 3_000)] {
        let values = spread(first + second);
        let (a, b) = values.split_at(usize::try_from(first).unwrap());
        let mut sketch = of(a);
        sketch.merge(QuantileSketch::from_bytes(&of(b).to_bytes()).unwrap());
        if values.len() <= FEW {
            assert_eq!(sketch.percentile(0.9), of(&values).percentile(0.9));
        } else {
            assert_near(&mut sketch, &values, 0.004);
        }
    }
    let (near, far) = (
        vec![1.0; 1_000],
        spread(1_000).iter().map(|value| value * 1e100).collect::<Vec<_>>(),
    );
    let mut sketch = of(&near);
    sketch.merge(of(&far));
    // Sixteen cells for each power of two.
    assert_near(&mut sketch, &[near, far].concat(), 0.0626);
}

#[test]
fn values_that_repeat_themselves_are_counted_each_time() {
    let values: Vec<f64> = (0..14_400u32)
        .map(|n| f64::from(f32::from((n % 120 % 41) as u8) / 4.0 + f32::from((n / 120 % 39) as u8) / 28.0))
        .collect();
    let mut whole = of(&values);
    assert_near(&mut whole, &values, 0.004);
    let mut parts = QuantileSketch::default();
    for part in values.chunks(1_700) {
        parts.merge(QuantileSketch::from_bytes(&of(part).to_bytes()).unwrap());
    }
    assert_near(&mut parts, &values, 0.004);
}

#[test]
fn no_values_make_a_sketch_large() {
    let mut grown = 0;
    let mut sketch = QuantileSketch::default();
    for exponent in -1_000..1_000 {
        grown += sketch.add(2f64.powi(exponent)) + sketch.add(-(2f64.powi(exponent)));
    }
    assert!(sketch.heap() <= 257 << 10, "{}", sketch.heap());
    assert!(grown >= sketch.heap(), "{grown} of {}", sketch.heap());
    assert_eq!(sketch.percentile(0.0), Some(-(2f64.powi(999))));
}

#[test]
fn damaged_bytes_are_an_error_or_some_sketch() {
    let bytes = of(&spread(1_000)).to_bytes();
    assert!(QuantileSketch::from_bytes(&bytes[..9]).is_err());
    for at in 0..bytes.len().min(64) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x80;
        if let Ok(mut sketch) = QuantileSketch::from_bytes(&bytes) {
            sketch.percentile(0.5);
            sketch.add(1.0);
        }
    }
}
