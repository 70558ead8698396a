//! The sort order of rows in files: newest first, or by series.
//!
//! | table | order |
//! |---|---|
//! | metrics | `name`, `entity_id`, then `ts` descending: a series is in one place, takes a quarter of the space, and is read alone |
//! | others | `ts` descending |
//!
//! Rows that are equal by that keep their order of arrival.
//!
//! # Invariants
//!
//! - All row groups of a file have one order, which their metadata says (`sorting_columns`). An open file that was begun in another
//!   order than its table's goes on in its own until it is sealed.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::{FixedSizeBinaryArray, RecordBatch, StringArray};
use foldhash::HashMap;
use model::Table;
use parquet::file::metadata::{RowGroupMetaData, SortingColumn};

use super::row_group::times;
use crate::Error;

/// Where `name` and `entity_id` are in metrics.
const NAME: i32 = 1;
const ENTITY: i32 = 2;

/// How rows lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FileSortOrder {
    /// Later times first.
    #[default]
    Newest,
    /// A series after another, later times first in each.
    Series,
}

impl FileSortOrder {
    /// That of new files of a table.
    pub(super) const fn of(table: Table) -> Self {
        match table {
            Table::Metrics => Self::Series,
            _ => Self::Newest,
        }
    }

    /// That of a file with row groups; of a new one without.
    pub(super) fn of_groups(table: Table, groups: &[RowGroupMetaData]) -> Self {
        let columns = Self::Series.columns();
        let by_series = groups.iter().all(|group| group.sorting_columns() == Some(&columns));
        if by_series { Self::of(table) } else { Self::Newest }
    }

    /// As it stands in the metadata of row groups.
    pub(super) fn columns(self) -> Vec<SortingColumn> {
        let column = |column_idx, descending| SortingColumn {
            column_idx,
            descending,
            nulls_first: false,
        };
        match self {
            Self::Newest => vec![column(0, true)],
            Self::Series => vec![column(NAME, false), column(ENTITY, false), column(0, true)],
        }
    }
}

/// What of a batch decides about its rows' places.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortKeys<'a> {
    times: &'a [i64],
    series: Option<(&'a StringArray, &'a FixedSizeBinaryArray)>,
}

impl<'a> SortKeys<'a> {
    pub(super) fn new(table: Table, order: FileSortOrder, batch: &'a RecordBatch) -> Result<Self, Error> {
        let column = |at: i32| batch.columns().get(usize::try_from(at).unwrap_or(usize::MAX));
        let series = match order {
            FileSortOrder::Newest => None,
            FileSortOrder::Series => {
                let name = column(NAME).and_then(|column| column.as_string_opt());
                let entity = column(ENTITY).and_then(|column| column.as_fixed_size_binary_opt());
                let odd = || Error::rows(table, "they have no series");
                Some(name.zip(entity).ok_or_else(odd)?)
            }
        };
        Ok(Self {
            times: times(table, batch)?,
            series,
        })
    }

    /// Name and entity of a row's series; both empty where series do not matter.
    pub(super) fn series(&self, row: usize) -> (&'a [u8], &'a [u8]) {
        self.series.map_or((&[], &[]), |(name, entity)| {
            (name.value(row).as_bytes(), entity.value(row))
        })
    }

    pub(super) fn ts(&self, row: usize) -> Option<i64> {
        self.times.get(row).copied()
    }

    pub(super) const fn times(&self) -> &'a [i64] {
        self.times
    }
}

/// The rows of several batches in order, each as its batch and its place there.
pub(super) fn sort(batches: &[SortKeys<'_>]) -> Vec<(usize, usize)> {
    let rows = batches.iter().map(|keys| keys.times.len()).sum();
    let ranks = ranks(batches, rows);
    // Where each series begins; where series do not matter, there is one.
    let mut begins = vec![0; ranks.iter().max().map_or(1, |last| *last as usize + 1) + 1];
    for rank in &ranks {
        begins[*rank as usize + 1] += 1;
    }
    if ranks.is_empty() {
        begins[1] = rows;
    }
    for at in 1..begins.len() {
        begins[at] += begins[at - 1];
    }
    // One number per row: its time from the newest on, and its place, which makes the sort stable.
    let (mut keyed, mut free) = (vec![0u128; rows], begins.clone());
    let mut places = Vec::with_capacity(rows);
    for (at, keys) in batches.iter().enumerate() {
        for (row, ts) in keys.times.iter().enumerate() {
            let place = places.len();
            let slot = &mut free[ranks.get(place).map_or(0, |rank| *rank as usize)];
            keyed[*slot] = u128::from(newest_first(*ts)) << 32 | place as u128;
            *slot += 1;
            places.push((at, row));
        }
    }
    for ends in begins.windows(2) {
        keyed[ends[0]..ends[1]].sort_unstable();
    }
    let place = |key: u128| places.get((key & u128::from(u32::MAX)) as usize).copied();
    keyed.into_iter().filter_map(place).collect()
}

/// A number that is the smaller the later the time is.
const fn newest_first(ts: i64) -> u64 {
    !(ts.cast_unsigned() ^ (1 << 63))
}

/// For each row the place of its series among all series here; nothing where series do not matter.
fn ranks(batches: &[SortKeys<'_>], rows: usize) -> Vec<u32> {
    if batches.iter().all(|keys| keys.series.is_none()) {
        return Vec::new();
    }
    let mut known: HashMap<(&[u8], &[u8]), u32> = HashMap::default();
    let mut ranks = Vec::with_capacity(rows);
    for keys in batches {
        // Rows of one series often come one after another.
        let mut last = None;
        for row in 0..keys.times.len() {
            let series = keys.series(row);
            let rank = match last {
                Some((same, rank)) if same == series => rank,
                _ => {
                    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
                    *known.entry(series).or_insert(next)
                }
            };
            last = Some((series, rank));
            ranks.push(rank);
        }
    }
    // So far a series' rank is when it was met first.
    let mut met: Vec<_> = known.into_iter().collect();
    met.sort_unstable();
    let mut sorted = vec![0; met.len()];
    for (rank, (_, first)) in (0u32..).zip(met) {
        if let Some(place) = sorted.get_mut(first as usize) {
            *place = rank;
        }
    }
    for rank in &mut ranks {
        *rank = sorted.get(*rank as usize).copied().unwrap_or(*rank);
    }
    ranks
}

/// A row's place in the order of a file, and the group that it is in: the greatest comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeHead {
    pub(super) name: Vec<u8>,
    pub(super) entity: Vec<u8>,
    pub(super) ts: i64,
    pub(super) group: usize,
}

impl MergeHead {
    /// Before every row.
    pub(super) const fn first(group: usize) -> Self {
        Self {
            name: Vec::new(),
            entity: Vec::new(),
            ts: i64::MAX,
            group,
        }
    }

    /// Moves to a row of the same group; whether it comes behind the one before.
    pub(super) fn advance(&mut self, (name, entity): (&[u8], &[u8]), ts: i64) -> bool {
        let forward = match (name, entity).cmp(&(&self.name, &self.entity)) {
            Ordering::Less => false,
            Ordering::Equal => ts <= self.ts,
            Ordering::Greater => {
                name.clone_into(&mut self.name);
                entity.clone_into(&mut self.entity);
                true
            }
        };
        self.ts = ts;
        forward
    }
}

impl Ord for MergeHead {
    fn cmp(&self, other: &Self) -> Ordering {
        let series = (&other.name, &other.entity).cmp(&(&self.name, &self.entity));
        series.then(self.ts.cmp(&other.ts)).then(other.group.cmp(&self.group))
    }
}

impl PartialOrd for MergeHead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
