//! Aggregates metric points without a plan: series are walked as they lie in files.
//!
//! Sealed files have the points of a series together, the latest first. A series is looked up where it begins, not for each point,
//! and a bucket is left when a point is before its start. Rows in memory and in open files are walked the same way; there it is
//! only slower.
//!
//! # Not here
//!
//! Groups by a label, rates and histograms: plans ([`crate::aggregation::metric_aggregation`], [`crate::aggregation::series_rates`]).

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType};
use datafusion::execution::memory_pool::MemoryReservation;
use model::Table;

use super::bucket_aggregator::{BucketAggregator, MetricGroups, PointTotals};
use crate::Error;
use crate::aggregation::metric_aggregation::{MAX_GROUPS, MetricAggregation, column};
use crate::query_scan::QueryScan;
use crate::scalar_functions::bucket_start;
use crate::scan::{RowSink, times_of};
use crate::time_range::TimeRange;

/// The groups of a part of the window; `None` if a plan must sum them up.
pub(crate) async fn groups(
    scan: &QueryScan,
    summary: &MetricAggregation,
    window: TimeRange,
) -> Result<Option<MetricGroups>, Error> {
    let Some(group) = summary.group_column() else {
        return Ok(None);
    };
    let walks = SeriesGrouping {
        width: summary.width,
        start: scan.window.since.micros(),
        words: [Some("name"), Some("type"), group],
    };
    let memory = scan.memory("summary");
    let begin = move || walks.begin(MAX_GROUPS, memory.new_empty());
    let walked = scan.full_scan(window, &walks.columns(), begin).await?;
    walked.map(merge_walks).transpose()
}

/// How series are walked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesGrouping {
    pub(crate) width: Option<i64>,
    /// Where the one bucket begins that there is without a width.
    pub(crate) start: i64,
    /// The columns that name, type and group of a series are of; where there is none, they are empty.
    pub(crate) words: [Option<&'static str>; 3],
}

impl SeriesGrouping {
    /// The columns that a walk looks at.
    pub(crate) fn columns(self) -> Vec<usize> {
        let wanted = ["ts", "value"].into_iter().chain(self.words.into_iter().flatten());
        let of_table = Table::Metrics.columns();
        let mut columns: Vec<usize> = wanted
            .filter_map(|name| of_table.iter().position(|column| column.name == name))
            .collect();
        columns.sort_unstable();
        columns
    }

    /// One walk of at most so many groups, and its memory.
    pub(crate) fn begin(self, groups: usize, memory: MemoryReservation) -> SeriesWalk {
        SeriesWalk {
            of: self,
            tally: BucketAggregator::new(groups),
            memory,
        }
    }
}

/// The groups of all walks.
fn merge_walks(walks: Vec<SeriesWalk>) -> Result<MetricGroups, Error> {
    let mut walks = walks.into_iter();
    let Some(mut all) = walks.next() else {
        return Ok(MetricGroups::default());
    };
    for walk in walks {
        all.tally.merge(walk.tally)?;
        all.memory.try_resize(all.tally.size())?;
    }
    all.tally.groups()
}

/// See the module.
pub(crate) struct SeriesWalk {
    of: SeriesGrouping,
    tally: BucketAggregator,
    memory: MemoryReservation,
}

impl SeriesWalk {
    /// Its groups, and the memory that they took.
    pub(crate) fn groups(self) -> Result<(MetricGroups, MemoryReservation), Error> {
        Ok((self.tally.groups()?, self.memory))
    }
}

impl RowSink for SeriesWalk {
    fn add(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let of = |name: Option<&str>| name.map(|name| WordColumn::of(column(rows, name)?)).transpose();
        let [name, kind, group] = self.of.words;
        let words = [of(name)?, of(kind)?, of(group)?];
        let values = column(rows, "value")?.as_primitive::<Float64Type>().values();
        let goes_on = |row: usize| words.iter().flatten().all(|words| words.repeats_previous(row));
        let mut series = 0;
        for (row, (ts, value)) in times_of(rows).iter().zip(values).enumerate() {
            if row == 0 || !goes_on(row) {
                let [name, kind, group] = words.each_ref().map(|words| match words {
                    Some(words) => words.text(row),
                    None => Cow::Borrowed(""),
                });
                series = self.tally.series(&name, &kind, Some(&group));
            }
            let totals = PointTotals::of(*ts, *value);
            let width = self.of.width;
            let is_in = |start: i64| width.is_none_or(|width| *ts >= start && ts.saturating_sub(start) < width);
            match self.tally.latest(series) {
                Some((start, known)) if is_in(*start) => known.add(&totals),
                _ => {
                    let start = width.map_or(self.of.start, |width| bucket_start(*ts, width));
                    self.tally.put(series, start, totals)?;
                }
            }
        }
        Ok(self.memory.try_resize(self.tally.size())?)
    }
}

/// A column of words or of ids.
enum WordColumn<'a> {
    Plain(&'a StringArray),
    Coded(&'a [i32], &'a StringArray),
    Ids(&'a FixedSizeBinaryArray),
}

impl<'a> WordColumn<'a> {
    fn of(column: &'a ArrayRef) -> Result<Self, Error> {
        let words = match column.data_type() {
            DataType::Utf8 => column.as_string_opt().map(Self::Plain),
            DataType::FixedSizeBinary(16) => column.as_fixed_size_binary_opt().map(Self::Ids),
            _ => column.as_dictionary_opt::<Int32Type>().and_then(|column| {
                let words = column.values().as_string_opt()?;
                Some(Self::Coded(column.keys().values(), words))
            }),
        };
        let odd = || ArrowError::SchemaError(format!("a column of words is {}", column.data_type()));
        Ok(words.ok_or_else(odd)?)
    }

    /// Whether a row has the word of the row before it; one that is coded in two ways may count as another.
    fn repeats_previous(&self, row: usize) -> bool {
        match self {
            Self::Plain(words) => words.value(row) == words.value(row - 1),
            Self::Coded(codes, _) => codes[row] == codes[row - 1],
            Self::Ids(ids) => ids.value(row) == ids.value(row - 1),
        }
    }

    fn text(&self, row: usize) -> Cow<'a, str> {
        match self {
            Self::Plain(words) => words.value(row).into(),
            Self::Coded(codes, words) => words.value(usize::try_from(codes[row]).unwrap_or(0)).into(),
            Self::Ids(ids) => {
                let id = uuid::Uuid::from_slice(ids.value(row)).unwrap_or_default();
                id.to_string().into()
            }
        }
    }
}
