//! Reads counts of log records from roll-ups, for charts and for statements, and what is left to be scanned.
//!
//! ```text
//! window:       since ┌───────────────────────────────┐ until
//! minutes:   ├────────┼──┤  │  │  │  │  │  │  │  │  │ ┼──────┤
//!               read ▲  └────── from counts ─────────┘ ▲ read, of files that have rows in them
//! ```
//!
//! # Invariants
//!
//! - A row is counted here or left to be read, never both: whole minutes of a segment, and of rows in memory, are counted, those that
//!   the window cuts are read, and so are segments that do not say.
//! - A sealed segment whose counts are taken is not opened: what became of its data file is not seen.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use engine::{DataFileHandle, MINUTE, MinuteRollup, ReadView, RollupDimension, RollupGroup};
use model::filter::HistogramGrouping;
use model::{Table, Timestamp};

use super::index_pruning::SegmentSelection;
use super::scan_workers::TimeSlicedPermit;
use super::{ScanExecutor, ScanShortcut};
use crate::Error;
use crate::segment_reader::ScanMeter;
use crate::time_range::TimeRange;

/// Bytes of the texts that may come out.
const MOST_BYTES: usize = 16 << 20;

/// A question that counts can answer.
#[derive(Debug, Clone)]
pub(crate) struct RollupQuery {
    pub(crate) window: TimeRange,
    /// Whole minutes of a bucket; without, all of the window is one.
    pub(crate) bucket: Option<i64>,
    pub(crate) split: RollupGrouping,
    /// One of these levels, if they are asked for.
    pub(crate) levels: Option<Vec<&'static str>>,
    /// Names that the entity must all have.
    pub(crate) entities: Vec<String>,
    /// Names that it must not have.
    pub(crate) other_than: BTreeSet<String>,
    /// Groups and buckets that may come out.
    pub(crate) most: usize,
}

/// What rows are grouped by, beside their bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RollupGrouping {
    pub(crate) level: bool,
    pub(crate) entity: bool,
}

impl From<HistogramGrouping> for RollupGrouping {
    fn from(by: HistogramGrouping) -> Self {
        Self {
            level: by == HistogramGrouping::Level,
            entity: by == HistogramGrouping::EntityName,
        }
    }
}

/// What counts say.
#[derive(Debug, Default)]
pub(crate) struct RollupCounts {
    /// Rows by level, by entity, and by the start of their bucket; by an empty text where they are not told apart.
    rows: HashMap<String, HashMap<String, HashMap<i64, i64>>>,
    /// What is left to be read: stretches of time that have rows, and where.
    pub(crate) left: Vec<(TimeRange, SegmentSelection)>,
    /// Whether no counts were there.
    pub(crate) is_nothing: bool,
    entries: usize,
    bytes: usize,
}

impl ScanExecutor {
    /// What the counts of a view's files say of a question; `None` if it is more than may come out.
    pub(crate) async fn count_from_rollup(
        &self,
        question: &RollupQuery,
        view: &ReadView,
        meter: &Arc<ScanMeter>,
    ) -> Result<Option<RollupCounts>, Error> {
        if !self.is_enabled(ScanShortcut::Counts) {
            return Ok(None);
        }
        let (asked, seen, costs) = (question.clone(), view.clone(), Arc::clone(meter));
        let mut counted = self.run_lookup(move |turns| asked.count(&seen, &costs, turns)).await?;
        if let Some(counted) = &mut counted {
            let has_rows =
                |(window, pieces): &(TimeRange, SegmentSelection)| !pieces.is_empty_in(view, Table::Logs, *window);
            counted.left.retain(has_rows);
        }
        Ok(counted)
    }
}

/// The whole minutes of a segment that a window has: from the first on, before the second, where it cuts something off.
#[derive(Debug, Clone, Copy)]
struct MinuteRange {
    from: Option<i64>,
    before: Option<i64>,
}

/// Whether minutes have rows that the window's beginning and its end cut.
#[derive(Debug, Clone, Copy, Default)]
struct PartialMinutes {
    begin: bool,
    end: bool,
}

impl RollupQuery {
    fn count(
        &self,
        view: &ReadView,
        meter: &ScanMeter,
        turns: &mut TimeSlicedPermit,
    ) -> Result<Option<RollupCounts>, Error> {
        let mut counted = RollupCounts::default();
        let (mut done, mut begun, mut ended) = (HashSet::new(), HashSet::new(), HashSet::new());
        let window = self.window;
        let files = view.files(Table::Logs).iter();
        for segment in files.filter(|file| window.overlaps(file.min_ts, file.max_ts)) {
            turns.yield_if_due()?;
            let Some(cut) = self.count_segment(segment, meter, &mut counted) else {
                continue;
            };
            if counted.is_over_limit(self.most) {
                return Ok(None);
            }
            meter.count_ruled_out(segment.id);
            done.insert(segment.id);
            begun.extend(cut.begin.then_some(segment.id));
            ended.extend(cut.end.then_some(segment.id));
        }
        turns.yield_if_due()?;
        let memory = self.count_memory(view, &mut counted);
        if counted.is_over_limit(self.most) {
            return Ok(None);
        }
        counted.is_nothing = done.is_empty() && memory.is_none();
        let (first, last) = self.cut_minutes();
        let (is_left, cut) = (memory.is_none(), memory.unwrap_or_default());
        counted.left = vec![
            (window, SegmentSelection::But(Arc::new(done), is_left)),
            (window.before(first), SegmentSelection::Only(Arc::new(begun), cut.begin)),
            (window.from(last), SegmentSelection::Only(Arc::new(ended), cut.end)),
        ];
        Ok(Some(counted))
    }

    /// Where the minute ends that the window begins in, and where that begins which it ends in.
    fn cut_minutes(&self) -> (Timestamp, Timestamp) {
        let (since, until) = (self.window.since.micros(), self.window.until.micros());
        let minute = |minute: i64| Timestamp::from_micros(minute.saturating_mul(MINUTE));
        (minute(first_whole(since)), minute(until.div_euclid(MINUTE)))
    }

    /// `None` if the window has no whole minute and cuts rows from the first time to the last on both sides.
    fn whole(&self, min_ts: Timestamp, max_ts: Timestamp) -> Option<MinuteRange> {
        let TimeRange { since, until } = self.window;
        let from = (min_ts < since).then(|| first_whole(since.micros()));
        let before = (max_ts >= until).then(|| until.micros().div_euclid(MINUTE));
        let are_apart = from.zip(before).is_none_or(|(from, before)| from <= before);
        are_apart.then_some(MinuteRange { from, before })
    }

    fn counts_by(&self) -> RollupDimension {
        if self.split.entity || !self.entities.is_empty() || !self.other_than.is_empty() {
            RollupDimension::LevelAndEntity
        } else {
            RollupDimension::Level
        }
    }

    /// `None` if its counts do not say.
    fn count_segment(
        &self,
        segment: &DataFileHandle,
        meter: &ScanMeter,
        counted: &mut RollupCounts,
    ) -> Option<PartialMinutes> {
        let whole = self.whole(segment.min_ts, segment.max_ts)?;
        let (all, bytes) = segment.counts(self.counts_by())?;
        meter.count_index_bytes(bytes);
        let mut cut = PartialMinutes::default();
        for counts in all {
            self.count_groups(&counts, whole, &mut cut, counted);
        }
        Some(cut)
    }

    /// Counts all rows in memory; `None` if the counts of some do not say.
    fn count_memory(&self, view: &ReadView, counted: &mut RollupCounts) -> Option<PartialMinutes> {
        let hot = view.hot(Table::Logs).iter();
        let hot: Vec<_> = hot.filter(|hot| self.window.overlaps(hot.min_ts, hot.max_ts)).collect();
        let (Some(min_ts), Some(max_ts)) = (
            hot.iter().map(|hot| hot.min_ts).min(),
            hot.iter().map(|hot| hot.max_ts).max(),
        ) else {
            return Some(PartialMinutes::default());
        };
        // Where the window cuts any of them it cuts all: what it cuts is read of all.
        let whole = self.whole(min_ts, max_ts)?;
        let counts = hot.iter().map(|hot| hot.counts(self.counts_by()));
        let all: Vec<MinuteRollup> = counts.collect::<Option<_>>()?;
        let mut cut = PartialMinutes::default();
        for counts in all {
            self.count_groups(&counts, whole, &mut cut, counted);
        }
        Some(cut)
    }

    fn count_groups(
        &self,
        counts: &MinuteRollup,
        whole: MinuteRange,
        cut: &mut PartialMinutes,
        counted: &mut RollupCounts,
    ) {
        for group in counts.groups().filter(|group| self.is_met(group)) {
            let level = if self.split.level { group.level } else { "" };
            let entity = group.entity.filter(|_| self.split.entity).unwrap_or_default();
            self.count_group(&group, whole, cut, |start, rows| {
                counted.add((level, entity), start, rows);
            });
        }
    }

    fn is_met(&self, group: &RollupGroup<'_>) -> bool {
        let has_name = |name: &String| group.entity == Some(name.as_str());
        self.levels.as_ref().is_none_or(|levels| levels.contains(&group.level))
            && self.entities.iter().all(has_name)
            && group.entity.is_none_or(|name| !self.other_than.contains(name))
    }

    fn count_group(
        &self,
        group: &RollupGroup<'_>,
        whole: MinuteRange,
        cut: &mut PartialMinutes,
        mut add: impl FnMut(i64, u64),
    ) {
        let is_within =
            whole.from.is_none_or(|from| group.first >= from) && whole.before.is_none_or(|before| group.last < before);
        let (start, end) = (self.start(group.first), self.start(group.last));
        if is_within && start == end {
            return add(start, group.rows);
        }
        let mut present: Option<(i64, u64)> = None;
        for (minute, rows) in group.minutes() {
            if whole.from.is_some_and(|from| minute < from) {
                cut.begin |= cuts(self.window.since, minute);
            } else if whole.before.is_some_and(|before| minute >= before) {
                cut.end |= cuts(self.window.until, minute);
            } else {
                let start = self.start(minute);
                match &mut present {
                    Some((of, so_far)) if *of == start => *so_far += rows,
                    _ => {
                        if let Some((of, so_far)) = present.replace((start, rows)) {
                            add(of, so_far);
                        }
                    }
                }
            }
        }
        if let Some((start, rows)) = present {
            add(start, rows);
        }
    }

    /// The start of the bucket that a minute is in.
    fn start(&self, minute: i64) -> i64 {
        let Some(bucket) = self.bucket.map(|bucket| bucket.max(1)) else {
            return 0;
        };
        let width = bucket.saturating_mul(MINUTE);
        minute.div_euclid(bucket).saturating_mul(width)
    }
}

/// Whether a time is within a minute, after its beginning.
fn cuts(ts: Timestamp, minute: i64) -> bool {
    ts.micros().div_euclid(MINUTE) == minute && ts.micros().rem_euclid(MINUTE) > 0
}

/// The first minute that begins at a time or after it.
fn first_whole(ts: i64) -> i64 {
    ts.div_euclid(MINUTE) + i64::from(ts.rem_euclid(MINUTE) > 0)
}

impl RollupCounts {
    const fn is_over_limit(&self, most: usize) -> bool {
        self.entries > most || self.bytes > MOST_BYTES
    }

    /// Level, entity, and the rows by the start of their bucket.
    pub(crate) fn groups(self) -> impl Iterator<Item = (String, String, HashMap<i64, i64>)> {
        self.rows.into_iter().flat_map(|(level, entities)| {
            let group = move |(entity, buckets)| (level.clone(), entity, buckets);
            entities.into_iter().map(group)
        })
    }

    fn add(&mut self, (level, entity): (&str, &str), start: i64, rows: u64) {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let bytes = &mut self.bytes;
        let mut new = |name: &str| {
            *bytes += name.len();
            name.to_owned()
        };
        if !self.rows.contains_key(level) {
            self.rows.insert(new(level), HashMap::new());
        }
        let Some(entities) = self.rows.get_mut(level) else {
            return;
        };
        if !entities.contains_key(entity) {
            entities.insert(new(entity), HashMap::new());
        }
        let Some(buckets) = entities.get_mut(entity) else {
            return;
        };
        let before = buckets.len();
        let so_far = buckets.entry(start).or_default();
        *so_far = so_far.saturating_add(rows);
        self.entries += buckets.len() - before;
    }
}
