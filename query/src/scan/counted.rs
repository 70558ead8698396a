//! Log records that counts of segments tell, for charts and for statements, and what is left to be read.
//!
//! ```text
//! window:       since ┌───────────────────────────────┐ until
//! minutes:   ├────────┼──┤  │  │  │  │  │  │  │  │  │ ┼──────┤
//!               read ▲  └────── from counts ─────────┘ ▲ read, of files that have rows in them
//! ```
//!
//! # Invariants
//!
//! - A row of a segment is counted here or left to be read, never both: a segment's whole minutes are counted, those that the window
//!   cuts are read, and so are segments that do not say, rows in memory, and open files.
//! - A segment whose counts are taken is not opened: what became of its data file is not seen.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::{CountedGroup, CountsBy, MINUTE, ReadView, Segment};
use model::filter::HistogramBy;
use model::{Table, Timestamp};

use super::Scanner;
use super::files::Pieces;
use super::workers::Patience;
use crate::Error;
use crate::reader::Meter;
use crate::window::Window;

/// Bytes of the texts that may come out.
const MOST_BYTES: usize = 16 << 20;

/// A question that counts can answer.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) window: Window,
    /// Whole minutes of a bucket; without, all of the window is one.
    pub(crate) bucket: Option<i64>,
    pub(crate) split: Split,
    /// One of these levels, if they are asked for.
    pub(crate) levels: Option<Vec<&'static str>>,
    /// Names that the entity must all have.
    pub(crate) entities: Vec<String>,
    /// Groups and buckets that may come out.
    pub(crate) most: usize,
}

/// What rows are told apart by, beside their bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Split {
    pub(crate) level: bool,
    pub(crate) entity: bool,
}

impl From<HistogramBy> for Split {
    fn from(by: HistogramBy) -> Self {
        Self {
            level: by == HistogramBy::Level,
            entity: by == HistogramBy::EntityName,
        }
    }
}

/// What counts say.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Rows by level, by entity, and by the start of their bucket; by an empty text where they are not told apart.
    rows: HashMap<String, HashMap<String, HashMap<i64, i64>>>,
    /// What is left to be read: stretches of time that have rows, and where.
    pub(crate) left: Vec<(Window, Pieces)>,
    /// Segments that say how many rows they have.
    pub(crate) segments: usize,
    entries: usize,
    bytes: usize,
}

impl Scanner {
    /// What the counts of a view's files say of a question; `None` if it is more than may come out.
    pub(crate) async fn counted(
        &self,
        question: &Question,
        view: &ReadView,
        meter: &Arc<Meter>,
    ) -> Result<Option<Counted>, Error> {
        let window = question.window;
        let files = view.files(Table::Logs).iter();
        let files = files.filter(|file| window.meets(file.min_ts, file.max_ts) && file.index().is_some());
        let files: Vec<_> = files.cloned().collect();
        let mut counted = if files.is_empty() {
            Some(Counted {
                left: vec![(window, Pieces::All)],
                ..Counted::default()
            })
        } else {
            let (question, meter) = (question.clone(), Arc::clone(meter));
            self.look(move |patience| question.count(&files, &meter, patience))
                .await?
        };
        if let Some(counted) = &mut counted {
            let has_rows = |(window, pieces): &(Window, Pieces)| !pieces.are_empty(view, Table::Logs, *window);
            counted.left.retain(has_rows);
        }
        Ok(counted)
    }
}

/// The whole minutes of a segment that a window has: from the first on, before the second, where it cuts something off.
#[derive(Debug, Clone, Copy)]
struct Whole {
    from: Option<i64>,
    before: Option<i64>,
}

/// Whether minutes have rows that the window's beginning and its end cut.
#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    begin: bool,
    end: bool,
}

impl Question {
    fn count(&self, files: &[Arc<Segment>], meter: &Meter, patience: &Patience) -> Result<Option<Counted>, Error> {
        let mut counted = Counted::default();
        let (mut done, mut begun, mut ended) = (HashSet::new(), HashSet::new(), HashSet::new());
        for segment in files {
            patience.check()?;
            let Some(cut) = self.count_segment(segment, meter, &mut counted) else {
                continue;
            };
            if counted.entries > self.most || counted.bytes > MOST_BYTES {
                return Ok(None);
            }
            meter.ruled_out(segment.id);
            done.insert(segment.id);
            begun.extend(cut.begin.then_some(segment.id));
            ended.extend(cut.end.then_some(segment.id));
        }
        counted.segments = done.len();
        let (first, last) = self.cut_minutes();
        counted.left = vec![
            (self.window, Pieces::But(Arc::new(done))),
            (self.window.before(first), Pieces::Only(Arc::new(begun))),
            (self.window.from(last), Pieces::Only(Arc::new(ended))),
        ];
        Ok(Some(counted))
    }

    /// Where the minute ends that the window begins in, and where that begins which it ends in.
    fn cut_minutes(&self) -> (Timestamp, Timestamp) {
        let (since, until) = (self.window.since.micros(), self.window.until.micros());
        let minute = |minute: i64| Timestamp::from_micros(minute.saturating_mul(MINUTE));
        (minute(first_whole(since)), minute(until.div_euclid(MINUTE)))
    }

    /// `None` if its counts do not say, or the window has no whole minute and cuts it on both sides.
    fn whole(&self, segment: &Segment) -> Option<Whole> {
        let Window { since, until } = self.window;
        let from = (segment.min_ts < since).then(|| first_whole(since.micros()));
        let before = (segment.max_ts >= until).then(|| until.micros().div_euclid(MINUTE));
        let are_apart = from.zip(before).is_none_or(|(from, before)| from <= before);
        are_apart.then_some(Whole { from, before })
    }

    fn count_segment(&self, segment: &Segment, meter: &Meter, counted: &mut Counted) -> Option<Cut> {
        let index = segment.index()?;
        let whole = self.whole(segment)?;
        let needs_entities = self.split.entity || !self.entities.is_empty();
        let by = if needs_entities {
            CountsBy::LevelAndEntity
        } else {
            CountsBy::Level
        };
        let (counts, bytes) = index.counts(by)?;
        meter.index(bytes);
        let mut cut = Cut::default();
        for group in counts.groups().filter(|group| self.is_met(group)) {
            let level = if self.split.level { group.level } else { "" };
            let entity = group.entity.filter(|_| self.split.entity).unwrap_or_default();
            self.count_group(&group, whole, &mut cut, |start, rows| {
                counted.add((level, entity), start, rows);
            });
        }
        Some(cut)
    }

    fn is_met(&self, group: &CountedGroup<'_>) -> bool {
        let has_name = |name: &String| group.entity == Some(name.as_str());
        self.levels.as_ref().is_none_or(|levels| levels.contains(&group.level)) && self.entities.iter().all(has_name)
    }

    fn count_group(&self, group: &CountedGroup<'_>, whole: Whole, cut: &mut Cut, mut add: impl FnMut(i64, u64)) {
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

impl Counted {
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
