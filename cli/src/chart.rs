//! Charts of metric buckets in block characters: a sparkline for each series, or a bar for each row where rows compare.
//!
//! ```text
//! temp  zone=a  20.5 to 23.1, last 21.5  ▁▂▄█▆▃·▂
//! ```
//!
//! A series is what rows have in common besides their time and their figures. Its line is scaled to its own least and
//! greatest value; time goes to the right, all lines have the same buckets, those without rows too. A bucket without a value
//! is `·`. Where there
//! are more buckets than cells, a cell is the average of its buckets. Rows compare, and have bars, if they are of one series,
//! or of one bucket and one metric. Bars are scaled to the greatest value, from zero on;
//! those of values below zero grow to the left of it.
//!
//! # Not here
//!
//! What a bucket is (the Mixer).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Timestamp;
use serde_json::{Number, Value};

use crate::client::Row;
use crate::output::plain;
use crate::terminal::{fit, text_width};
use crate::value_units::{self, UNIT};

/// One to eight eighths of a cell, from below.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// One to seven eighths of a cell, from the left.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// A bucket without a value.
const GAP: char = '·';
/// The columns of a bucket's row that are figures or its time, not its series.
const FIGURES: [&str; 8] = ["ts", "value", "samples", "count", "sum", "p50", "p90", "p99"];
/// The column that bars are shown in.
pub(crate) const BAR: &str = "chart";
/// The cells of the longest bar.
const BAR_CELLS: usize = 30;
/// What is left for blocks beside a very long name.
const LEAST_CELLS: usize = 16;

/// More empty buckets than this between the first and the last row are not drawn.
const MOST_BUCKETS: u64 = 100_000;

/// One series' values by bucket.
type Values = BTreeMap<Timestamp, Option<f64>>;

/// The buckets of a drawing, from the left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeAxis(Vec<Timestamp>);

impl TimeAxis {
    /// From the first bucket of the rows to the last one.
    pub(crate) fn of(rows: &[Row], interval: Option<Duration>) -> Self {
        let known: BTreeSet<Timestamp> = rows.iter().filter_map(time).collect();
        let (Some(first), Some(last)) = (known.first().copied(), known.last().copied()) else {
            return Self(Vec::new());
        };
        let width = interval.map_or(0, |width| u64::try_from(width.as_micros()).unwrap_or(u64::MAX));
        let span = u64::try_from(last.since(first).as_micros()).unwrap_or(u64::MAX);
        let count = span.checked_div(width).filter(|count| *count < MOST_BUCKETS);
        let at = |n: u64| first.plus(Duration::from_micros(n.saturating_mul(width)));
        let all = count.into_iter().flat_map(|count| (0..=count).map(at));
        Self(
            known
                .iter()
                .copied()
                .chain(all)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        )
    }

    /// Whether there is a time to draw a line over.
    pub(crate) fn is_line(&self) -> bool {
        self.0.len() > 1
    }

    /// The first and the last bucket, and how many there are.
    pub(crate) fn ends(&self) -> Option<(Timestamp, Timestamp, usize)> {
        Some((*self.0.first()?, *self.0.last()?, self.0.len()))
    }
}

/// Whether rows are buckets, and not points.
pub(crate) fn is_buckets(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.contains_key("samples"))
}

/// Draws a line for each series of buckets; ends with a line break.
pub(crate) fn sparklines(rows: &[Row], axis: &TimeAxis, width: usize) -> String {
    let (series, TimeAxis(times)) = (series(rows), axis);
    let shown = |value: f64| figure(rows.first(), value);
    let heads: Vec<String> = series.iter().map(|(name, values)| head(name, values, shown)).collect();
    let longest = heads.iter().map(|head| text_width(head)).max().unwrap_or(0);
    let label = longest.min(width.saturating_sub(LEAST_CELLS + 2));
    let cells = times.len().min(width.saturating_sub(label + 2)).max(1);
    let mut drawn = String::new();
    for (head, values) in heads.iter().zip(series.values()) {
        let values: Vec<Option<f64>> = times.iter().map(|at| values.get(at).copied().flatten()).collect();
        let blocks = blocks(&downsample(&values, cells));
        drawn.push_str(&format!("{}  {blocks}\n", fit(head, label)));
    }
    drawn
}

/// A bar for each row, if rows compare: they are of one series, or of one bucket and one metric. `None` too if there is
/// nothing to draw.
pub(crate) fn bars(rows: &[Row], axis: &TimeAxis) -> Option<Vec<String>> {
    let one = |of: fn(&Row) -> String| rows.iter().map(of).collect::<BTreeSet<_>>().len() == 1;
    if !one(if axis.is_line() { name } else { metric }) {
        return None;
    }
    let values: Vec<Option<f64>> = rows.iter().map(value).collect();
    let known = || values.iter().copied().flatten();
    let (least, greatest) = (known().fold(0.0, f64::min), known().fold(0.0, f64::max));
    // Halves, so that the difference of two huge values is a number.
    let span = greatest / 2.0 - least / 2.0;
    if span <= 0.0 {
        return None;
    }
    let share = |value: f64| (value / 2.0 / span).abs() * cells_of(BAR_CELLS);
    let left = count(share(least).ceil());
    let bar = |value: Option<f64>| match value {
        None => GAP.to_string(),
        Some(value) if value < 0.0 => {
            let cells = count(share(value).round()).clamp(1, left.max(1));
            format!("{}{}", " ".repeat(left.saturating_sub(cells)), "█".repeat(cells))
        }
        Some(value) => format!("{}{}", " ".repeat(left), bar(share(value))),
    };
    Some(values.into_iter().map(bar).collect())
}

/// A bar of so many cells, to the eighth.
pub(crate) fn bar(cells: f64) -> String {
    let eighths = count((cells * 8.0).round());
    let mut bar = "█".repeat(eighths / 8);
    if let Some(rest) = (eighths % 8).checked_sub(1).and_then(|at| EIGHTHS.get(at)) {
        bar.push(*rest);
    }
    bar
}

fn time(row: &Row) -> Option<Timestamp> {
    row.get("ts")?.as_str()?.parse().ok()
}

/// A bucket's value, if it is a finite number.
fn value(row: &Row) -> Option<f64> {
    row.get("value")
        .and_then(Value::as_f64)
        .filter(|value| value.is_finite())
}

fn series(rows: &[Row]) -> BTreeMap<String, Values> {
    let mut series: BTreeMap<String, Values> = BTreeMap::new();
    for row in rows {
        let Some(at) = time(row) else { continue };
        series.entry(name(row)).or_default().insert(at, value(row));
    }
    series
}

fn metric(row: &Row) -> String {
    row.get("name").map(plain).unwrap_or_default()
}

/// What a series is called: its metric first.
fn name(row: &Row) -> String {
    let shown = |key: &str| row.get(key).map(plain).filter(|text| !text.is_empty());
    let rest = row.keys().map(String::as_str);
    let rest = rest.filter(|key| !FIGURES.contains(key) && !matches!(*key, "name" | "type" | UNIT));
    shown("name")
        .into_iter()
        .chain(rest.filter_map(shown))
        .collect::<Vec<_>>()
        .join("  ")
}

/// A series' name and the figures its line is scaled to.
fn head(name: &str, values: &Values, shown: impl Fn(f64) -> String) -> String {
    let known = || values.values().copied().flatten();
    let Some(last) = known().next_back() else {
        return format!("{name}  no values");
    };
    let (least, greatest) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    format!("{name}  {} to {}, last {}", shown(least), shown(greatest), shown(last))
}

/// A value in the unit of its row, if that has one.
fn figure(row: Option<&Row>, value: f64) -> String {
    let unit = row
        .and_then(|row| row.get(UNIT)?.as_str())
        .filter(|unit| !unit.is_empty());
    match unit.zip(Number::from_f64(value)) {
        Some((unit, value)) => value_units::measured(&row.map(metric).unwrap_or_default(), unit, &value),
        None => number(value),
    }
}

/// A number in a few digits.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e9).contains(&size) {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The values in so many cells, each the average of its share.
fn downsample(values: &[Option<f64>], cells: usize) -> Vec<Option<f64>> {
    if values.len() <= cells {
        return values.to_vec();
    }
    let edge = |cell: usize| cell * values.len() / cells;
    let average = |cell: usize| {
        let known: Vec<f64> = values[edge(cell)..edge(cell + 1)].iter().copied().flatten().collect();
        // Each part is divided, so that a sum of huge values is a number.
        (!known.is_empty()).then(|| known.iter().map(|value| value / cells_of(known.len())).sum())
    };
    (0..cells).map(average).collect()
}

fn blocks(values: &[Option<f64>]) -> String {
    let known = || values.iter().copied().flatten();
    let (least, greatest) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    let span = greatest / 2.0 - least / 2.0;
    let block = |value: f64| {
        // What does not change stands in the middle.
        let share = if span > 0.0 {
            (value / 2.0 - least / 2.0) / span
        } else {
            0.5
        };
        STEPS[count((share * 7.0).round()).min(STEPS.len() - 1)]
    };
    values.iter().map(|value| value.map_or(GAP, block)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "cells and buckets are few")]
pub(crate) fn cells_of(count: usize) -> f64 {
    count as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of cells; the cast saturates and takes what is not a number for zero"
)]
pub(crate) fn count(cells: f64) -> usize {
    cells as usize
}

#[cfg(test)]
mod tests;
