//! What a footer alone says about where rows can be.
//!
//! | asked for | ruled out by |
//! |---|---|
//! | a window | the times of pages |
//! | a word or id, or one of several | least and greatest of the row group and of pages; the filter of `flux_id` and `trace_id` |
//!
//! Conditions of any other form rule out nothing. The answer is a set of rows of one row group, as ranges: what an index of a
//! segment knows is joined with it by [`intersect`], in [`candidates`] and nowhere else.
//!
//! # Invariants
//!
//! - No row that meets the conditions within the window is left out.

use std::ops::Range;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use model::Table;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::bloom_filter::Sbbf;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;

use super::pages::Group;
use crate::window::Window;

/// Rows of a row group, as ranges that do not touch, in order.
pub(super) type Ranges = Vec<Range<usize>>;

/// A column whose value must be one of these.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Need {
    column: usize,
    any_of: Vec<Vec<u8>>,
}

/// What the conditions ask of single columns.
pub(super) fn needs(table: Table, conditions: &[Expr]) -> Vec<Need> {
    conditions
        .iter()
        .filter_map(|condition| need(table, condition))
        .collect()
}

fn need(table: Table, condition: &Expr) -> Option<Need> {
    let (column, values) = match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) => (left, std::slice::from_ref(right.as_ref())),
        Expr::InList(list) if !list.negated => (&list.expr, list.list.as_slice()),
        _ => return None,
    };
    let Expr::Column(column) = column.as_ref() else {
        return None;
    };
    Some(Need {
        column: table.columns().iter().position(|known| known.name == column.name)?,
        any_of: values.iter().map(bytes).collect::<Option<_>>()?,
    })
}

/// The bytes by which a value is stored and compared.
fn bytes(value: &Expr) -> Option<Vec<u8>> {
    match value {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text.as_bytes().to_vec()),
        Expr::Literal(ScalarValue::FixedSizeBinary(_, Some(bytes)), _) => Some(bytes.clone()),
        _ => None,
    }
}

/// The rows of a group that can be in the window and meet the needs.
pub(super) fn candidates(group: &Group, window: Window, needs: &[Need]) -> Result<Ranges> {
    let mut ranges = joined(std::iter::once(0..group.rows()));
    for need in needs {
        let chunk = group.metadata().column(need.column);
        if !may_hold(chunk, need) || !filter_may_hold(group, chunk, need)? {
            return Ok(Ranges::new());
        }
    }
    if let Some(met) = pages(group, 0, |index, page| in_window(index, page, window))? {
        ranges = intersect(&ranges, &met);
    }
    for need in needs {
        if let Some(met) = pages(group, need.column, |index, page| page_may_hold(index, page, need))? {
            ranges = intersect(&ranges, &met);
        }
    }
    Ok(ranges)
}

fn may_hold(chunk: &ColumnChunkMetaData, need: &Need) -> bool {
    let bounds = chunk.statistics();
    let bounds = bounds.and_then(|bounds| Some((bounds.min_bytes_opt()?, bounds.max_bytes_opt()?)));
    bounds.is_none_or(|(min, max)| need.is_within(min, max))
}

fn filter_may_hold(group: &Group, chunk: &ColumnChunkMetaData, need: &Need) -> Result<bool> {
    // A filter is read whole: for more than one value the column is as cheap.
    let [value] = need.any_of.as_slice() else {
        return Ok(true);
    };
    let filter = Sbbf::read_from_column_chunk(chunk, group.bytes())?;
    Ok(filter.is_none_or(|filter| filter.num_blocks() == 0 || filter.check(value.as_slice())))
}

impl Need {
    fn is_within(&self, min: &[u8], max: &[u8]) -> bool {
        self.any_of
            .iter()
            .any(|value| min <= value.as_slice() && value.as_slice() <= max)
    }
}

fn in_window(index: &ColumnIndexMetaData, page: usize, window: Window) -> bool {
    let ColumnIndexMetaData::INT64(times) = index else {
        return true;
    };
    match (times.min_value(page), times.max_value(page)) {
        (Some(min), Some(max)) => *max >= window.since.micros() && *min < window.until.micros(),
        _ => true,
    }
}

fn page_may_hold(index: &ColumnIndexMetaData, page: usize, need: &Need) -> bool {
    let (ColumnIndexMetaData::BYTE_ARRAY(values) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(values)) = index else {
        return true;
    };
    match (values.min_value(page), values.max_value(page)) {
        (Some(min), Some(max)) => need.is_within(min, max),
        _ => true,
    }
}

/// The rows of those pages of a column that are met; `None` if the file says nothing about its pages.
fn pages(group: &Group, column: usize, is_met: impl Fn(&ColumnIndexMetaData, usize) -> bool) -> Result<Option<Ranges>> {
    let index = group.file().column_index().and_then(|index| index.get(group.index()));
    let Some(index) = index.and_then(|columns| columns.get(column)) else {
        return Ok(None);
    };
    let places = group.places(column)?;
    if index.num_pages() != places.len() as u64 {
        return Ok(None);
    }
    let row = |row: i64| usize::try_from(row).unwrap_or(usize::MAX);
    let starts = places.iter().map(|place| row(place.first_row_index));
    let ends = places.iter().skip(1).map(|place| row(place.first_row_index));
    let pages = starts.zip(ends.chain([group.rows()])).enumerate();
    let met = pages.filter(|(page, _)| is_met(index, *page));
    Ok(Some(joined(met.map(|(_, (start, end))| start..end))))
}

/// Ranges in order, those that touch as one.
fn joined(ranges: impl Iterator<Item = Range<usize>>) -> Ranges {
    let mut all = Ranges::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match all.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// What is in both.
pub(super) fn intersect(a: &[Range<usize>], b: &[Range<usize>]) -> Ranges {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Ranges::new();
    while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
        let range = left.start.max(right.start)..left.end.min(right.end);
        if left.end <= right.end {
            a.next();
        } else {
            b.next();
        }
        if !range.is_empty() {
            both.push(range);
        }
    }
    both
}

/// For a reader of a group of so many rows; `None` if it is all of them.
pub(super) fn selection(ranges: &[Range<usize>], rows: usize) -> Option<RowSelection> {
    match ranges {
        [all] if *all == (0..rows) => None,
        some => Some(RowSelection::from_consecutive_ranges(some.iter().cloned(), rows)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{ident, lit};

    use super::*;

    #[test]
    fn ranges_meet_where_both_have_rows() {
        let a = [0..10, 20..30, 40..50];
        let b = [5..25, 28..29, 49..60];
        assert_eq!(intersect(&a, &b), [5..10, 20..25, 28..29, 49..50]);
        assert_eq!(intersect(&a, &[]), Ranges::new());
        assert_eq!(joined([0..5, 5..7, 7..7, 9..10].into_iter()), [0..7, 9..10]);
    }

    #[test]
    fn only_equality_of_a_column_is_a_need() {
        let level = || ident("level");
        let found = needs(
            Table::Logs,
            &[
                level().eq(lit("error")),
                level().in_list(vec![lit("warn"), lit("fatal")], false),
                level().in_list(vec![lit("warn")], true),
                level().not_eq(lit("error")),
                level().eq(lit("error")).or(level().eq(lit("warn"))),
                ident("nothing").eq(lit("error")),
            ],
        );
        let need = |values: &[&str]| Need {
            column: 4,
            any_of: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        assert_eq!(found, [need(&["error"]), need(&["warn", "fatal"])]);
    }
}
