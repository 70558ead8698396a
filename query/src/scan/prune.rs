//! Pruning: what an index and a footer say about where rows can be.
//!
//! | asked for | ruled out by |
//! |---|---|
//! | a window | the times of pages |
//! | a word or id, or one of several | least and greatest of the row group and of pages; the filter of `flux_id` and `trace_id` |
//! | `flux_id`, `trace_id`, `trace_id` of logs' attributes, what [`texts`] finds of messages | the index of the segment, if it has one: before the file is opened |
//!
//! Conditions of any other form rule out nothing, nor does an index when more than [`MOST_IDS`] are asked for. An index answers
//! with blocks of a segment ([`blocks`]); the answer of a footer is a set of rows of one row group, as ranges. [`candidates`]
//! joins both; plans look at footers themselves.
//!
//! # Invariants
//!
//! - No row that meets the conditions within the window is left out.

use std::ops::Range;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use engine::{BLOCK_ROWS, BlockSelection, DataFileHandle, IdColumn};
use model::Table;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::bloom_filter::Sbbf;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;

use super::ngram_predicate::{NgramPredicate, texts};
use super::row_group::SegmentRowGroup;
use crate::scalar_functions::JSON_TEXT;
use crate::segment_reader::ScanMeter;
use crate::time_range::TimeRange;

/// Rows of a row group, as ranges that do not touch, in order.
pub(super) type RowRanges = Vec<Range<usize>>;

/// A column whose value must be one of these: by its number in the table, or one of ids that are indexed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EqualityPredicate<C = usize> {
    column: C,
    any_of: Vec<Vec<u8>>,
}

/// What the conditions ask.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PruningConditions {
    columns: Vec<EqualityPredicate>,
    ids: Vec<EqualityPredicate<IdColumn>>,
    texts: Option<NgramPredicate>,
}

/// Of more ids than this each index would be asked longer than reading takes.
const MOST_IDS: usize = 100;

impl PruningConditions {
    /// Whether indexes can rule anything out.
    pub(super) const fn ask_indexes(&self) -> bool {
        !self.ids.is_empty() || self.texts.is_some()
    }
}

/// What the conditions ask of single columns and of what is indexed.
pub(super) fn needs(table: Table, conditions: &[Expr]) -> PruningConditions {
    let asked: Vec<_> = conditions.iter().filter_map(equality_of).collect();
    let column = |(of, any_of): &(&Expr, Vec<Vec<u8>>)| {
        let name = column_name(of)?;
        Some(EqualityPredicate {
            column: table.columns().iter().position(|known| known.name == name)?,
            any_of: any_of.clone(),
        })
    };
    let ids = |(of, any_of): &(&Expr, Vec<Vec<u8>>)| {
        let column = id_column(table, of).filter(|_| any_of.len() <= MOST_IDS)?;
        Some(EqualityPredicate {
            column,
            any_of: any_of.clone(),
        })
    };
    PruningConditions {
        columns: asked.iter().filter_map(column).collect(),
        ids: asked.iter().filter_map(ids).collect(),
        texts: texts(table, conditions),
    }
}

/// Whether conditions ask for ids that are indexed.
pub(crate) fn asks_for_ids(table: Table, conditions: &[Expr]) -> bool {
    !needs(table, conditions).ids.is_empty()
}

/// What must have one of some values, and these.
fn equality_of(condition: &Expr) -> Option<(&Expr, Vec<Vec<u8>>)> {
    let (of, values) = match condition {
        // A short list of a statement comes so.
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            let ((of, mut any_of), (other, more)) = (equality_of(left)?, equality_of(right)?);
            any_of.extend(more);
            return (of == other).then_some((of, any_of));
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) => (left, std::slice::from_ref(right.as_ref())),
        Expr::InList(list) if !list.negated => (&list.expr, list.list.as_slice()),
        _ => return None,
    };
    Some((of.as_ref(), values.iter().map(bytes).collect::<Option<_>>()?))
}

fn column_name(of: &Expr) -> Option<&str> {
    of.try_as_col().map(|column| column.name.as_str())
}

/// The indexed ids that an expression gives: a column, or of logs an attribute.
fn id_column(table: Table, of: &Expr) -> Option<IdColumn> {
    match (table, of) {
        (Table::Logs, Expr::ScalarFunction(ScalarFunction { func, args })) if func.name() == JSON_TEXT => {
            let [object, key] = args.as_slice() else {
                return None;
            };
            let is_it = column_name(object) == Some("attributes") && bytes(key).is_some_and(|key| key == b"trace_id");
            is_it.then_some(IdColumn::TraceId)
        }
        (Table::Logs | Table::Traces | Table::Messages, of) => match column_name(of)? {
            "flux_id" => Some(IdColumn::FluxId),
            "trace_id" => Some(IdColumn::TraceId),
            _ => None,
        },
        _ => None,
    }
}

/// The blocks of a segment that its index leaves; all of one without an index. What is read counts.
pub(super) fn blocks(segment: &DataFileHandle, needs: &PruningConditions, meter: &ScanMeter) -> BlockSelection {
    let mut left = BlockSelection::All;
    for ids in &needs.ids {
        let mut met = BlockSelection::NONE;
        for id in &ids.any_of {
            let found = segment.ids(ids.column, id);
            meter.count_index_bytes(found.bytes);
            met = met.or(found.blocks);
        }
        left = left.and(met);
        if left.is_none() {
            break;
        }
    }
    if let Some(texts) = needs.texts.as_ref().filter(|_| !left.is_none()) {
        left = left.and(texts.blocks(&mut |grams| {
            let found = segment.text(grams);
            meter.count_index_bytes(found.bytes);
            found.blocks
        }));
    }
    if left.is_none() {
        meter.count_ruled_out(segment.id);
    }
    left
}

/// The rows of some blocks that are in a group; of all groups of a file the blocks are numbered through.
pub(super) fn of_blocks(file: &ParquetMetaData, group: usize, blocks: &[u32]) -> RowRanges {
    let block_rows = BLOCK_ROWS as usize;
    let first: usize = file
        .row_groups()
        .iter()
        .take(group)
        .map(|before| rows_of(before).div_ceil(block_rows))
        .sum();
    let rows = file.row_groups().get(group).map_or(0, rows_of);
    let here = blocks.iter().filter_map(|block| (*block as usize).checked_sub(first));
    let ranges = here.map(|block| block * block_rows..((block + 1) * block_rows).min(rows));
    coalesce_ranges(ranges)
}

pub(super) fn rows_of(group: &RowGroupMetaData) -> usize {
    usize::try_from(group.num_rows()).unwrap_or(0)
}

/// The bytes by which a value is stored and compared.
fn bytes(value: &Expr) -> Option<Vec<u8>> {
    match value {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text.as_bytes().to_vec()),
        Expr::Literal(ScalarValue::FixedSizeBinary(_, Some(bytes)), _) => Some(bytes.clone()),
        _ => None,
    }
}

/// The rows of a group that can be in the window, lie in the blocks, and meet the needs.
pub(super) fn candidates(
    group: &SegmentRowGroup,
    window: TimeRange,
    blocks: &BlockSelection,
    needs: &PruningConditions,
) -> Result<RowRanges> {
    let mut ranges = match blocks {
        BlockSelection::All => coalesce_ranges(std::iter::once(0..group.rows())),
        BlockSelection::Some(blocks) => of_blocks(group.file(), group.index(), blocks),
    };
    if ranges.is_empty() {
        return Ok(ranges);
    }
    for need in &needs.columns {
        let chunk = group.metadata().column(need.column);
        // An index says more than a filter.
        let has_filter = *blocks == BlockSelection::All;
        if !may_hold(chunk, need) || (has_filter && !filter_may_hold(group, chunk, need)?) {
            return Ok(RowRanges::new());
        }
    }
    if let Some(met) = pages(group, 0, |index, page| in_window(index, page, window))? {
        ranges = intersect(&ranges, &met);
    }
    for need in &needs.columns {
        if let Some(met) = pages(group, need.column, |index, page| page_may_hold(index, page, need))? {
            ranges = intersect(&ranges, &met);
        }
    }
    Ok(ranges)
}

fn may_hold(chunk: &ColumnChunkMetaData, need: &EqualityPredicate) -> bool {
    let bounds = chunk.statistics();
    let bounds = bounds.and_then(|bounds| Some((bounds.min_bytes_opt()?, bounds.max_bytes_opt()?)));
    bounds.is_none_or(|(min, max)| need.is_within(min, max))
}

fn filter_may_hold(group: &SegmentRowGroup, chunk: &ColumnChunkMetaData, need: &EqualityPredicate) -> Result<bool> {
    // A filter is read whole: for more than one value the column is as cheap.
    let [value] = need.any_of.as_slice() else {
        return Ok(true);
    };
    let filter = Sbbf::read_from_column_chunk(chunk, group.bytes())?;
    Ok(filter.is_none_or(|filter| filter.num_blocks() == 0 || filter.check(value.as_slice())))
}

impl EqualityPredicate {
    fn is_within(&self, min: &[u8], max: &[u8]) -> bool {
        self.any_of
            .iter()
            .any(|value| min <= value.as_slice() && value.as_slice() <= max)
    }
}

fn in_window(index: &ColumnIndexMetaData, page: usize, window: TimeRange) -> bool {
    let ColumnIndexMetaData::INT64(times) = index else {
        return true;
    };
    match (times.min_value(page), times.max_value(page)) {
        (Some(min), Some(max)) => *max >= window.since.micros() && *min < window.until.micros(),
        _ => true,
    }
}

fn page_may_hold(index: &ColumnIndexMetaData, page: usize, need: &EqualityPredicate) -> bool {
    let (ColumnIndexMetaData::BYTE_ARRAY(values) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(values)) = index else {
        return true;
    };
    match (values.min_value(page), values.max_value(page)) {
        (Some(min), Some(max)) => need.is_within(min, max),
        _ => true,
    }
}

/// The rows of those pages of a column that are met; `None` if the file says nothing about its pages.
fn pages(
    group: &SegmentRowGroup,
    column: usize,
    is_met: impl Fn(&ColumnIndexMetaData, usize) -> bool,
) -> Result<Option<RowRanges>> {
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
    Ok(Some(coalesce_ranges(met.map(|(_, (start, end))| start..end))))
}

/// Ranges in order, those that touch as one.
fn coalesce_ranges(ranges: impl Iterator<Item = Range<usize>>) -> RowRanges {
    let mut all = RowRanges::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match all.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// What is in both.
pub(super) fn intersect(a: &[Range<usize>], b: &[Range<usize>]) -> RowRanges {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = RowRanges::new();
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
        assert_eq!(intersect(&a, &[]), RowRanges::new());
        assert_eq!(coalesce_ranges([0..5, 5..7, 7..7, 9..10].into_iter()), [0..7, 9..10]);
    }

    #[test]
    fn ids_are_asked_of_an_index_by_column_or_by_the_attribute_of_logs() {
        let (flux, trace) = (
            model::FluxId::at(model::Timestamp::MIN, [7; 10]),
            model::TraceId::from_entropy([7; 16]),
        );
        let ids = |column, id: &[u8]| EqualityPredicate {
            column,
            any_of: vec![id.to_vec()],
        };
        let flux_id = ids(IdColumn::FluxId, flux.as_bytes());
        let trace_id = ids(IdColumn::TraceId, trace.to_string().as_bytes());
        let of_logs = crate::filter::logs(&model::filter::LogFilter {
            flux_id: Some(flux),
            gear_id: Some("5".to_owned()),
            trace_id: Some(trace),
            ..model::filter::LogFilter::default()
        });
        assert_eq!(needs(Table::Logs, &of_logs).ids, [flux_id, trace_id]);
        let of_trace = crate::filter::of_trace(trace);
        let wanted = [ids(IdColumn::TraceId, trace.to_string().as_bytes())];
        assert_eq!(needs(Table::Traces, std::slice::from_ref(&of_trace)).ids, wanted);
        assert_eq!(needs(Table::Metrics, &[of_trace]).ids, []);
        let listed = |count: usize| ident("trace_id").in_list((0..count).map(|n| lit(n.to_string())).collect(), false);
        let asks = |count| needs(Table::Traces, &[listed(count)]).ask_indexes();
        assert!(asks(MOST_IDS) && !asks(MOST_IDS + 1));
    }

    #[test]
    fn no_index_is_asked_about_metric_points() {
        let trace = model::TraceId::from_entropy([7; 16]);
        let labels = [("trace_id", trace.to_string()), ("message", "disk full".to_owned())];
        let of_metrics = crate::filter::metrics(&model::filter::MetricFilter {
            name: Some("cpu.load".to_owned()),
            entity: Some(model::EntityId::for_name("rack-a").to_string()),
            labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
            ..model::filter::MetricFilter::default()
        });
        assert!(!needs(Table::Metrics, &of_metrics).ask_indexes());
    }

    #[test]
    fn only_equality_of_a_column_with_one_of_some_values_is_a_need() {
        let level = || ident("level");
        let found = needs(
            Table::Logs,
            &[
                level().eq(lit("error")),
                level().in_list(vec![lit("warn"), lit("fatal")], false),
                level().in_list(vec![lit("warn")], true),
                level().not_eq(lit("error")),
                level().eq(lit("error")).or(level().eq(lit("warn"))),
                level().eq(lit("error")).or(level().not_eq(lit("warn"))),
                level().eq(lit("error")).or(ident("message").eq(lit("warn"))),
                ident("nothing").eq(lit("error")),
            ],
        );
        let need = |values: &[&str]| EqualityPredicate {
            column: 4,
            any_of: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        assert_eq!(
            found.columns,
            [need(&["error"]), need(&["warn", "fatal"]), need(&["error", "warn"])]
        );
        assert_eq!(found.ids, []);
    }
}
