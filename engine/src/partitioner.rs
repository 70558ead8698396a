//! Partitioner: assigns each row of a batch to its partition.
//!
//! A row belongs to the partition of its `ts`. A row whose `ts` lies outside [arrival − `max_age`, arrival + 1 h] goes to
//! the partition of its arrival: its `ts` becomes the arrival time and the original is kept in the notes column as
//! `_ts_original`.
//!
//! # Invariants
//!
//! - A pure function of the rows, the arrival time, the [`PartitionRule`] and the specs, all of which are in the log. So replay places
//!   every row where it was placed the first time, even if the settings have changed.
//! - No row is lost or doubled; the rows of one batch that share a partition form one piece, in their order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::filter::FilterBuilder;
use model::batch::time_range;
use model::{Table, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::layout::{MAX_FUTURE, TimePartition};
use crate::{Error, HotBatch, PartitionBy, SpecName};

/// The note that keeps a misdated row's own time.
const ORIGINAL: &str = "_ts_original";

/// What of the settings decides about places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartitionRule {
    pub(crate) by: PartitionBy,
    /// Seconds.
    pub(crate) max_age: u64,
}

impl PartitionRule {
    fn partition(self, at: Timestamp, spec: Option<SpecName>) -> TimePartition {
        TimePartition::of(at, self.by).of_spec(spec)
    }
}

/// A batch's rows by partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionedBatch {
    pub(crate) pieces: Vec<(TimePartition, HotBatch)>,
    pub(crate) rows: usize,
    pub(crate) misdated: u64,
}

/// Rows by partition. `specs` has the spec of each record batch; without any, rows belong to none.
///
/// # Errors
/// If rows are not of the table's schema, or if there are specs, but not one for each record batch, or for an empty one.
pub(crate) fn partition_batch(
    table: Table,
    rows: &[RecordBatch],
    arrived: Timestamp,
    (rule, specs): (PartitionRule, &[Option<SpecName>]),
) -> Result<PartitionedBatch, Error> {
    let schema = table.schema();
    if let Some(odd) = rows.iter().find(|batch| batch.schema_ref() != &schema) {
        return Err(Error::rows(
            table,
            format!(
                "columns {:?}",
                odd.schema_ref()
                    .fields()
                    .iter()
                    .map(|field| field.name())
                    .collect::<Vec<_>>()
            ),
        ));
    }
    // The log does not keep empty ones.
    let filled = rows.iter().filter(|batch| batch.num_rows() > 0).count();
    if !specs.is_empty() && (specs.len() != rows.len() || filled != rows.len()) {
        let reason = format!("{} specs for {filled} record batches with rows", specs.len());
        return Err(Error::rows(table, reason));
    }
    let mut by_spec: BTreeMap<_, Vec<&RecordBatch>> = BTreeMap::new();
    for (at, batch) in rows.iter().enumerate() {
        by_spec.entry(specs.get(at).copied().flatten()).or_default().push(batch);
    }
    let arrow = Error::arrow("place", table);
    let arrived = arrived.clamp(Timestamp::MIN, Timestamp::MAX);
    let mut placed = PartitionedBatch::default();
    for (spec, rows) in by_spec {
        // One batch as it came, several joined: the rows of one append that share a partition must form one piece.
        let joined;
        let rows = match &rows[..] {
            [one] => *one,
            several => {
                joined = concat_batches(&schema, several.iter().copied()).map_err(arrow)?;
                &joined
            }
        };
        let more = split(table, rows, arrived, (rule, spec)).map_err(arrow)?;
        placed.pieces.extend(more.pieces);
        placed.rows += more.rows;
        placed.misdated += more.misdated;
    }
    Ok(placed)
}

fn split(
    table: Table,
    rows: &RecordBatch,
    arrived: Timestamp,
    (rule, spec): (PartitionRule, Option<SpecName>),
) -> Result<PartitionedBatch, ArrowError> {
    let oldest = arrived.minus(Duration::from_secs(rule.max_age));
    let newest = arrived.plus(MAX_FUTURE);
    let Some((min_ts, max_ts)) = time_range(rows) else {
        return Ok(PartitionedBatch::default());
    };
    let first = rule.partition(min_ts, spec);
    if oldest <= min_ts && max_ts <= newest && max_ts < first.end() {
        let whole = HotBatch {
            batch: rows.clone(),
            min_ts,
            max_ts,
            spec,
            counts: OnceLock::new(),
        };
        return Ok(PartitionedBatch {
            pieces: vec![(first, whole)],
            rows: rows.num_rows(),
            misdated: 0,
        });
    }
    let times = rows.column(0).as_primitive::<TimestampMicrosecondType>();
    let dated = |ts: i64| (oldest.micros()..=newest.micros()).contains(&ts);
    let misdated = times.values().iter().filter(|ts| !dated(**ts)).count() as u64;
    let redated;
    let rows = if misdated == 0 {
        rows
    } else {
        redated = clamp_timestamps(table, rows, arrived, dated)?;
        &redated
    };
    Ok(PartitionedBatch {
        pieces: by_partition(rows, rule, spec)?,
        rows: rows.num_rows(),
        misdated,
    })
}

/// Gives the rows whose time `dated` refuses the arrival time, and a note of their own.
fn clamp_timestamps(
    table: Table,
    rows: &RecordBatch,
    arrived: Timestamp,
    dated: impl Fn(i64) -> bool,
) -> Result<RecordBatch, ArrowError> {
    let times = rows.column(0).as_primitive::<TimestampMicrosecondType>();
    let notes_at = rows.schema_ref().index_of(table.notes_column())?;
    let notes = rows.column(notes_at).as_string::<i32>();
    let mut noted = StringBuilder::with_capacity(notes.len(), notes.value_data().len() + notes.len() * 48);
    for (row, ts) in times.values().iter().enumerate() {
        if dated(*ts) {
            noted.append_value(notes.value(row));
        } else {
            noted.append_value(with_note(notes, row, Timestamp::from_micros(*ts)));
        }
    }
    let moved: TimestampMicrosecondArray = times
        .values()
        .iter()
        .map(|ts| Some(if dated(*ts) { *ts } else { arrived.micros() }))
        .collect();
    let mut columns = rows.columns().to_vec();
    columns[0] = Arc::new(moved.with_timezone("UTC")) as ArrayRef;
    columns[notes_at] = Arc::new(noted.finish());
    RecordBatch::try_new(rows.schema(), columns)
}

fn with_note(notes: &StringArray, row: usize, original: Timestamp) -> String {
    let text = notes.value(row);
    let mut object: Map<String, Value> = serde_json::from_str(text).unwrap_or_else(|_| {
        let kept = ("_notes_original".to_owned(), Value::from(text));
        Map::from_iter([kept])
    });
    object.insert(ORIGINAL.to_owned(), original.to_string().into());
    Value::Object(object).to_string()
}

fn by_partition(
    rows: &RecordBatch,
    rule: PartitionRule,
    spec: Option<SpecName>,
) -> Result<Vec<(TimePartition, HotBatch)>, ArrowError> {
    let mut pieces = Vec::new();
    for (partition, runs) in runs(rows, rule, spec) {
        // Copies long runs at once: most rows of a batch share a partition, few are late.
        let members = FilterBuilder::new(&mask(&runs, rows.num_rows())).optimize().build();
        let batch = members.filter_record_batch(rows)?;
        let (min_ts, max_ts) = time_range(&batch).unwrap_or((partition.start(), partition.start()));
        let hot = HotBatch {
            batch,
            min_ts,
            max_ts,
            spec,
            counts: OnceLock::new(),
        };
        pieces.push((partition, hot));
    }
    Ok(pieces)
}

/// The rows of each partition as ranges that neither touch nor overlap; the earliest partition first.
fn runs(rows: &RecordBatch, rule: PartitionRule, spec: Option<SpecName>) -> BTreeMap<TimePartition, Vec<Range<usize>>> {
    let times = rows.column(0).as_primitive::<TimestampMicrosecondType>().values();
    let mut runs: BTreeMap<TimePartition, Vec<Range<usize>>> = BTreeMap::new();
    let mut from = 0;
    while let Some(first) = times.get(from) {
        let partition = rule.partition(Timestamp::from_micros(*first), spec);
        let span = partition.start().micros()..partition.end().micros();
        let rest = times.iter().skip(from);
        let end = from + rest.take_while(|ts| span.contains(ts)).count().max(1);
        runs.entry(partition).or_default().push(from..end);
        from = end;
    }
    runs
}

fn mask(runs: &[Range<usize>], rows: usize) -> BooleanArray {
    let mut mask = BooleanBufferBuilder::new(rows);
    for run in runs {
        mask.append_n(run.start - mask.len(), false);
        mask.append_n(run.len(), true);
    }
    mask.append_n(rows - mask.len(), false);
    mask.finish().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::batch::row_json;
    use model::{Attributes, EntityId, FluxId, Level, LogRecord, TelemetryRecord};
    use proptest::prelude::*;

    use super::*;

    const RULE: PartitionRule = PartitionRule {
        by: PartitionBy::Hour,
        max_age: 86_400,
    };

    fn log(n: usize, ts: i64) -> LogRecord {
        LogRecord {
            ts: Timestamp::from_micros(ts),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: None,
            level: Level::Info,
            message: format!("row {n}"),
            attributes: Attributes::new().with("n", n as u64),
        }
    }

    fn noon() -> Timestamp {
        "2026-11-21T12:30:00Z".parse().unwrap()
    }

    #[test]
    fn rows_of_one_hour_are_not_copied() {
        let rows = LogRecord::to_batch(&[log(0, noon().micros()), log(1, noon().micros() + 1)]).unwrap();
        let placed = partition_batch(Table::Logs, std::slice::from_ref(&rows), noon(), (RULE, &[])).unwrap();
        assert_eq!(placed.pieces.len(), 1);
        assert_eq!(
            placed.pieces[0].1.batch.column(5).to_data().buffers()[1].as_ptr(),
            rows.column(5).to_data().buffers()[1].as_ptr()
        );
    }

    #[test]
    fn absurd_times_go_to_the_arrival_hour_with_the_original_noted() {
        let late = noon().micros() - 25 * 3_600_000_000;
        let rows: Vec<_> = [i64::MIN, late, 0, i64::MAX, noon().micros() + 7_200_000_000]
            .iter()
            .enumerate()
            .map(|(n, ts)| log(n, *ts))
            .collect();
        let placed = partition_batch(Table::Logs, &[LogRecord::to_batch(&rows).unwrap()], noon(), (RULE, &[])).unwrap();
        assert_eq!((placed.misdated, placed.rows, placed.pieces.len()), (5, 5, 1));
        let (partition, piece) = &placed.pieces[0];
        assert_eq!(*partition, TimePartition::of(noon(), PartitionBy::Hour));
        for (n, row) in rows.iter().enumerate() {
            let json = row_json(&piece.batch, n);
            assert_eq!(json["ts"], noon().to_string());
            assert_eq!(json["attributes"]["_ts_original"], row.ts.to_string());
            assert_eq!(json["attributes"]["n"], n);
        }
    }

    #[test]
    fn rows_of_another_table_are_refused() {
        let rows = LogRecord::to_batch(&[log(0, 0)]).unwrap();
        assert!(matches!(
            partition_batch(Table::Metrics, &[rows], noon(), (RULE, &[])),
            Err(Error::Rows { .. })
        ));
    }

    #[test]
    fn record_batches_of_several_specs_are_pieces_of_each_and_a_spec_too_few_is_refused() {
        let (order, bill) = ("order".parse().unwrap(), "bill".parse().unwrap());
        let batches = [0, 1, 2, 3].map(|n| LogRecord::to_batch(&[log(n, noon().micros())]).unwrap());
        let specs = [Some(order), None, Some(bill), Some(order)];
        let placed = partition_batch(Table::Logs, &batches, noon(), (RULE, &specs)).unwrap();
        assert_eq!((placed.rows, placed.pieces.len()), (4, 3));
        for (partition, piece) in &placed.pieces {
            let rows = (0..piece.batch.num_rows()).map(|row| row_json(&piece.batch, row)["attributes"]["n"].as_u64());
            let wanted: Vec<_> = (0..4)
                .filter(|n| specs[*n] == piece.spec)
                .map(|n| Some(n as u64))
                .collect();
            assert_eq!((partition.parts().2, rows.collect::<Vec<_>>()), (piece.spec, wanted));
        }
        let few = partition_batch(Table::Logs, &batches, noon(), (RULE, &specs[..3]));
        assert!(few.unwrap_err().to_string().contains("3 specs for 4 record batches"));
        let empty = batches[0].slice(0, 0);
        assert!(partition_batch(Table::Logs, &[empty], noon(), (RULE, &specs[..1])).is_err());
    }

    proptest! {
        #[test]
        fn every_row_is_placed_once_inside_its_partition(offsets in prop::collection::vec(prop_oneof![any::<i64>(), -90_000_000_000i64..5_000_000_000], 0..60), day in any::<bool>()) {
            let rule = PartitionRule { by: if day { PartitionBy::Day } else { PartitionBy::Hour }, ..RULE };
            let rows: Vec<_> = offsets.iter().enumerate().map(|(n, off)| log(n, noon().micros().saturating_add(*off))).collect();
            let half = rows.len() / 2;
            let batches = [LogRecord::to_batch(&rows[..half]).unwrap(), LogRecord::to_batch(&rows[half..]).unwrap()];
            let placed = partition_batch(Table::Logs, &batches, noon(), (rule, &[])).unwrap();
            let mut seen = Vec::new();
            for (partition, piece) in &placed.pieces {
                prop_assert!(partition.start() <= piece.min_ts && piece.max_ts < partition.end());
                prop_assert_eq!(time_range(&piece.batch), Some((piece.min_ts, piece.max_ts)));
                for row in 0..piece.batch.num_rows() {
                    seen.push(row_json(&piece.batch, row)["message"].as_str().unwrap().to_owned());
                }
            }
            seen.sort();
            let mut wanted: Vec<_> = rows.iter().map(|row| row.message.clone()).collect();
            wanted.sort();
            prop_assert_eq!(seen, wanted);
        }

        #[test]
        fn pieces_are_those_of_a_row_by_row_split(picks in prop::collection::vec((0i64..40, 1usize..30), 0..12), late in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
            // Runs within an hour or another, some of them broken by single late rows.
            let mut hours: Vec<i64> = picks.iter().flat_map(|(hour, rows)| std::iter::repeat_n(hour / 16, *rows)).collect();
            for at in late.iter().filter(|_| !picks.is_empty()) {
                let at = at.index(hours.len());
                hours[at] = 9;
            }
            let rows: Vec<_> = hours.iter().enumerate().map(|(n, hour)| {
                let row = log(n, noon().micros() - hour * 3_600_000_000 + n as i64);
                LogRecord { flux_id: n.is_multiple_of(3).then(|| FluxId::at(row.ts, [7; 10])), ..row }
            }).collect();
            let batch = LogRecord::to_batch(&rows).unwrap();
            let placed = partition_batch(Table::Logs, std::slice::from_ref(&batch), noon(), (RULE, &[])).unwrap();
            let mut naive: BTreeMap<TimePartition, Vec<LogRecord>> = BTreeMap::new();
            for row in &rows {
                naive.entry(RULE.partition(row.ts, None)).or_default().push(row.clone());
            }
            prop_assert_eq!(placed.pieces.len(), naive.len());
            for ((partition, piece), (other, rows)) in placed.pieces.iter().zip(&naive) {
                prop_assert_eq!((partition, &piece.batch), (other, &LogRecord::to_batch(rows).unwrap()));
            }
        }
    }
}
