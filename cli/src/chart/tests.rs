//! Drawings of series of every shape.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn bucket(minute: usize, name: &str, label: &str, value: &Value) -> Row {
    let ts = format!("2026-11-21T{:02}:{:02}:00.000000Z", minute / 60, minute % 60);
    let row =
        json!({ "ts": ts, "name": name, "type": "gauge", "labels": { "zone": label }, "value": value, "samples": 1 });
    row.as_object().cloned().unwrap()
}

fn line_of(values: &[Value], width: usize) -> String {
    let rows: Vec<Row> = values
        .iter()
        .enumerate()
        .map(|(at, value)| bucket(at, "t", "a", value))
        .rev()
        .collect();
    sparklines(&rows, &TimeAxis::of(&rows, None), width)
}

#[test]
fn each_series_has_a_line_over_the_same_buckets() {
    let wave = [1.0, 2.0, 4.0, 8.0, 4.0, 2.0];
    let mut rows: Vec<Row> = wave
        .iter()
        .enumerate()
        .map(|(at, value)| bucket(at, "temp", "a", &json!(value)))
        .collect();
    rows.extend([
        bucket(1, "temp", "b", &json!(20.5)),
        bucket(4, "temp", "b", &json!(-3.25)),
    ]);
    rows.push(bucket(2, "load", "a", &json!(7)));
    rows.push(bucket(2, "none", "a", &Value::Null));
    insta::assert_snapshot!(sparklines(&rows, &TimeAxis::of(&rows, None), 80), @r"
    load  zone=a  7 to 7, last 7             ··▅···
    none  zone=a  no values                  ······
    temp  zone=a  1 to 8, last 2             ▁▂▄█▄▂
    temp  zone=b  -3.25 to 20.5, last -3.25  ·█··▁·
    ");
}

#[test]
fn a_single_series_has_bars_from_zero_on() {
    let rows: Vec<Row> = [json!(1), json!(0.5), json!(0), Value::Null, json!("NaN"), json!(0.01)]
        .iter()
        .enumerate()
        .map(|(at, value)| bucket(at, "t", "a", value))
        .collect();
    let full = "█".repeat(30);
    let half = "█".repeat(15);
    assert_eq!(
        bars(&rows, &TimeAxis::of(&rows, None)).unwrap(),
        [full.as_str(), &half, "", "·", "·", "▎"]
    );
}

#[test]
fn bars_below_zero_grow_to_the_left() {
    let rows: Vec<Row> = [-10.0, 20.0, -5.0]
        .iter()
        .map(|value| bucket(0, "t", "a", &json!(value)))
        .collect();
    let (ten, twenty, five) = ("█".repeat(10), "█".repeat(20), "█".repeat(5));
    assert_eq!(
        bars(&rows, &TimeAxis::of(&rows, None)).unwrap(),
        [ten, format!("{:10}{twenty}", ""), format!("{:5}{five}", "")]
    );
}

#[test]
fn rows_that_do_not_compare_have_no_bars() {
    let drawn = |rows: &[Row]| bars(rows, &TimeAxis::of(rows, None));
    let of_two = [bucket(0, "t", "a", &json!(1)), bucket(1, "t", "b", &json!(1))];
    assert_eq!(drawn(&of_two), None, "two series over time");
    assert_eq!(
        drawn(&[bucket(0, "t", "a", &json!(1)), bucket(0, "u", "a", &json!(1))]),
        None,
        "two metrics"
    );
    assert_eq!(drawn(&[bucket(0, "t", "a", &json!(0))]), None, "nothing but zeros");
    assert_eq!(drawn(&[]), None);
    let of_one_bucket = [bucket(0, "t", "a", &json!(1)), bucket(0, "t", "b", &json!(2))];
    assert_eq!(drawn(&of_one_bucket), Some(vec!["█".repeat(15), "█".repeat(30)]));
}

#[test]
fn buckets_without_rows_are_gaps() {
    let rows = [bucket(0, "t", "a", &json!(1)), bucket(5, "t", "a", &json!(2))];
    let minute = Some(Duration::from_secs(60));
    let axis = TimeAxis::of(&rows, minute);
    assert!(sparklines(&rows, &axis, 80).ends_with("  ▁····█\n"));
    assert_eq!(axis.ends().map(|(_, _, count)| count), Some(6));
    let tiny = TimeAxis::of(&rows, Some(Duration::from_micros(1)));
    assert_eq!(tiny.ends().map(|(_, _, count)| count), Some(2), "not 300 million");
    assert_eq!(TimeAxis::of(&[], minute).ends(), None);
    assert_eq!(TimeAxis::of(&rows, Some(Duration::ZERO)), TimeAxis::of(&rows, None));
}

#[test]
fn more_buckets_than_cells_are_averaged() {
    let values: Vec<Value> = (0..600).map(|at| json!(at)).collect();
    let line = line_of(&values, 60);
    assert_eq!(text_width(line.trim_end()), 60, "{line}");
    let drawn: Vec<char> = line.trim_end().chars().skip_while(|c| !STEPS.contains(c)).collect();
    assert!(
        drawn.is_sorted() && drawn.first() == Some(&'▁') && drawn.last() == Some(&'█'),
        "{line}"
    );
}

#[test]
fn extreme_values_are_drawn() {
    assert!(line_of(&[json!(f64::MAX), json!(f64::MIN), json!(0)], 80).ends_with("█▁▅\n"));
    assert!(line_of(&[json!("inf"), json!(5e-324), json!(1e300)], 80).ends_with("·▁█\n"));
    let rows = [
        bucket(0, "t", "a", &json!(f64::MAX)),
        bucket(1, "t", "a", &json!(f64::MIN)),
    ];
    assert_eq!(
        bars(&rows, &TimeAxis::of(&rows, None))
            .unwrap()
            .iter()
            .map(|bar| text_width(bar))
            .max(),
        Some(30)
    );
}

proptest! {
    #[test]
    fn nothing_stored_moves_the_cursor_or_the_edge(
        points in prop::collection::vec((0usize..50, crate::test_strings::text(), crate::test_strings::text(), any::<f64>()), 1..40),
        width in 40usize..200,
    ) {
        let rows: Vec<Row> = points.iter().map(|(at, name, label, value)| bucket(*at, name, label, &json!(value))).collect();
        let drawn = sparklines(&rows, &TimeAxis::of(&rows, None), width);
        for line in drawn.lines() {
            prop_assert!(text_width(line) <= width, "{line:?}");
            prop_assert!(!line.contains(crate::control_chars::is_control_or_bidi), "{line:?}");
        }
        for bar in bars(&rows, &TimeAxis::of(&rows, None)).unwrap_or_default() {
            prop_assert!(text_width(&bar) <= BAR_CELLS + 1, "{bar:?}");
        }
    }
}
