//! Decides for which columns a dictionary pays.
//!
//! A dictionary holds each value of a row group once, and a number per row. Where most values come once it is all cost: the
//! numbers do not compress, and every value is hashed for nothing. So the rows say it, group by group: values are chosen by
//! their hash, one in [`ONE_IN`], equal ones all or none, and what the different ones take is compared with what all take.
//!
//! Different values come ever more rarely: of 64k durations half may be different, of 128k two fifths. So where only a part of
//! a row group can be looked at, what is different in all of it follows from the part and the part's first half: with every
//! doubling of the rows it grows as it did from the one to the other. That is rather too much, the more so the smaller the part.
//!
//! # Invariants
//!
//! - A choice only costs space and time: rows are the same either way.
//! - The same rows lead to the same choice.
//!
//! # Not here
//!
//! Columns that always have a dictionary, and what a dictionary may take at most: [`super::schema`].

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, RecordBatch};
use foldhash::fast::FixedState;
use model::{ColumnType, TableColumn};

use super::promoted_columns::FileColumns;
use super::schema::{DICTIONARY_BYTES, is_id};

/// Of so many different values one is looked at, where there are enough.
const ONE_IN: u64 = 16;
/// So many of those tell.
const ENOUGH: usize = 64;
/// Otherwise each value of so many rows is looked at.
const FEW: usize = 8 << 10;
/// What Parquet adds to a text.
const LENGTH: u64 = 4;

/// Columns that repeat themselves, a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DictionaryChoice(u64);

impl DictionaryChoice {
    /// Of a row group of `group` rows, by the first `rows` of it.
    pub(super) fn of<'a>(
        columns: &FileColumns,
        batches: impl Iterator<Item = &'a RecordBatch> + Clone,
        rows: usize,
        group: usize,
    ) -> Self {
        let part = RowGroupSample { rows, group };
        let repeated = columns.may_repeat().filter(|(at, column)| match column.kind {
            ColumnType::Text | ColumnType::Json => counted(texts, &batches, *at, rows).pays(column, part),
            ColumnType::Float => counted(floats, &batches, *at, rows).pays(column, part),
            _ => false,
        });
        Self(repeated.fold(0, |bits, (at, _)| bits | bit(at)))
    }

    /// Whether the column does.
    pub(super) fn has(self, column: usize) -> bool {
        self.0 & bit(column) != 0
    }
}

/// Columns behind the 64th have none: they get no dictionary.
fn bit(column: usize) -> u64 {
    u32::try_from(column)
        .ok()
        .and_then(|at| 1_u64.checked_shl(at))
        .unwrap_or(0)
}

/// A part of a row group that stands for all of it.
#[derive(Debug, Clone, Copy)]
struct RowGroupSample {
    rows: usize,
    group: usize,
}

impl RowGroupSample {
    fn times(self) -> f64 {
        self.group.max(self.rows) as f64 / self.rows.max(1) as f64
    }

    /// What every row adds to, `now` after this part, after the whole group.
    fn even(self, now: u64) -> u64 {
        (now as f64 * self.times()) as u64
    }

    /// What only different values add to: `half` after half of this part, `now` after all of it.
    fn rarer(self, (half, now): (u64, u64)) -> u64 {
        let doubling = (now as f64 / half.max(1) as f64).clamp(1.0, 2.0);
        (now as f64 * doubling.powf(self.times().log2())) as u64
    }
}

/// What the values of a column take.
#[derive(Debug, Default)]
struct DistinctEstimator {
    values: u64,
    bytes: u64,
    /// Of so many different values one is looked at.
    one_in: u64,
    seen: HashSet<u64, FixedState>,
    /// Bytes of those, each once.
    seen_bytes: u64,
    /// How many those were, and their bytes, after half of the rows.
    half: (u64, u64),
}

impl DistinctEstimator {
    /// A value of so many bytes.
    fn add(&mut self, hash: u64, bytes: u64) {
        self.values += 1;
        self.bytes += bytes;
        if hash >> 32 & (self.one_in - 1) == 0 && self.seen.insert(hash) {
            self.seen_bytes += bytes;
        }
    }

    /// Whether a dictionary of the whole group is small enough, spares enough of the hashing it costs, and takes less with its
    /// numbers than the values themselves, both compressed.
    fn pays(&self, column: &TableColumn, part: RowGroupSample) -> bool {
        let (least, compressed) = match column.kind {
            ColumnType::Float => Self::NUMBER,
            _ if is_id(column) => Self::ID,
            _ => Self::TEXT,
        };
        let (values, bytes) = (part.even(self.values), part.even(self.bytes));
        let different = part.rarer((self.half.0, self.seen.len() as u64)) * self.one_in;
        let dictionary = part.rarer((self.half.1, self.seen_bytes)) * self.one_in;
        let saved = bytes.saturating_sub(dictionary);
        let number_bits = u64::from(different.max(2).next_power_of_two().trailing_zeros());
        values > 0
            && dictionary <= DICTIONARY_BYTES as u64 / 8 * 7
            && saved * 100 >= bytes * least
            && saved * compressed / 100 >= values * number_bits / 8
    }

    /// Hundredths of the bytes that must be there twice, and hundredths that compression leaves of values, about.
    const TEXT: (u64, u64) = (34, 20);
    /// Digits of an id that came shortly before are found by the compression as well.
    const ID: (u64, u64) = (75, 45);
    const NUMBER: (u64, u64) = (34, 90);
}

/// Some rows of a column: batch by batch, which of its values.
fn pieces<'a, A: Array + 'a>(
    batches: impl Iterator<Item = &'a RecordBatch>,
    rows: Range<usize>,
    column: impl Fn(&'a RecordBatch) -> Option<&'a A>,
) -> impl Iterator<Item = (&'a A, Range<usize>)> {
    let mut first = 0;
    batches.filter_map(column).map(move |values| {
        let within = |row: usize| row.saturating_sub(first).min(values.len());
        let piece = within(rows.start)..within(rows.end);
        first += values.len();
        (values, piece)
    })
}

/// Counts some of the values; all of fewer rows where those are few, or where there are few different ones.
fn counted<I: Clone>(
    count: impl Fn(&mut DistinctEstimator, I, usize, Range<usize>),
    batches: &I,
    at: usize,
    rows: usize,
) -> DistinctEstimator {
    for (one_in, rows) in [(ONE_IN, rows), (1, rows.min(FEW))] {
        let mut counted = DistinctEstimator {
            one_in,
            ..DistinctEstimator::default()
        };
        count(&mut counted, batches.clone(), at, 0..rows / 2);
        counted.half = (counted.seen.len() as u64, counted.seen_bytes);
        count(&mut counted, batches.clone(), at, rows / 2..rows);
        if counted.seen.len() >= ENOUGH || one_in == 1 {
            return counted;
        }
    }
    DistinctEstimator::default()
}

fn texts<'a>(
    count: &mut DistinctEstimator,
    batches: impl Iterator<Item = &'a RecordBatch>,
    at: usize,
    rows: Range<usize>,
) {
    let hasher = FixedState::default();
    let column = |batch: &'a RecordBatch| batch.columns().get(at)?.as_string_opt::<i32>();
    for (values, piece) in pieces(batches, rows, column) {
        let bytes = values.value_data();
        let ends = values.value_offsets().windows(2).enumerate();
        for (row, ends) in ends.skip(piece.start).take(piece.len()) {
            let range = usize::try_from(ends[0]).ok().zip(usize::try_from(ends[1]).ok());
            let Some(value) = range.and_then(|(start, end)| bytes.get(start..end)) else {
                continue;
            };
            if !values.is_null(row) {
                count.add(hasher.hash_one(value), value.len() as u64 + LENGTH);
            }
        }
    }
}

fn floats<'a>(
    count: &mut DistinctEstimator,
    batches: impl Iterator<Item = &'a RecordBatch>,
    at: usize,
    rows: Range<usize>,
) {
    const WIDTH: u64 = 4;
    let hasher = FixedState::default();
    let column = |batch: &'a RecordBatch| batch.columns().get(at)?.as_primitive_opt::<Float32Type>();
    for (values, piece) in pieces(batches, rows, column) {
        let numbers = values.values().iter().enumerate();
        for (row, value) in numbers.skip(piece.start).take(piece.len()) {
            if !values.is_null(row) {
                count.add(hasher.hash_one(value.to_bits()), WIDTH);
            }
        }
    }
}
