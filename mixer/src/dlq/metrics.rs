//! Counts open letters for `/metrics`, and drops the marks of letters whose rows are gone.
//!
//! # Invariants
//!
//! - At most [`MOST_NAMED`] gears have a count of their own; those with fewer letters count together as `other`.
//! - Marks leave only if all of the table is readable: a file that is put aside may come back.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use model::dead_letter::LetterState;
use model::{Table, Timestamp, subject};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{DeadLetterQueue, DlqError, lock};

/// Gears that are counted by name.
const MOST_NAMED: usize = 100;
/// Subjects that are looked at.
const MOST_SUBJECTS: u32 = 1_000;
const EVERY: Duration = Duration::from_secs(5);

/// The last count.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenLetterCounts {
    /// Open letters by Rack and gear.
    pub(super) open: BTreeMap<(String, String), u64>,
    /// The rows that were counted, and the oldest of them; none if they must be counted again.
    counted: Option<(u64, Option<Timestamp>)>,
}

impl OpenLetterCounts {
    /// Marks have changed.
    pub(super) const fn outdate(&mut self) {
        self.counted = None;
    }
}

impl DeadLetterQueue {
    /// Counts until stopped.
    pub(crate) async fn keep_count(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let counted = tokio::select! {
                () = stop.cancelled() => return,
                counted = self.count() => counted,
            };
            if let Err(error) = counted {
                tracing::debug!(%error, "cannot count dead letters yet; retrying");
            }
        }
    }

    async fn count(&self) -> Result<(), DlqError> {
        let (rows, oldest, is_whole) = self.rows();
        if lock(&self.open_counts).counted == Some((rows, oldest)) {
            return Ok(());
        }
        if is_whole {
            self.forget(oldest).await?;
        }
        // What changes meanwhile is counted by the next tick.
        lock(&self.open_counts).counted = Some((rows, oldest));
        let by_subject = self.parts.querier.letter_counts(MOST_SUBJECTS).await;
        let by_subject = by_subject.inspect_err(|_| lock(&self.open_counts).outdate())?;
        let mut settled: HashMap<String, u64> = HashMap::new();
        self.parts.registry.each_mark(|_, mark| {
            if mark.state != LetterState::Open {
                *settled.entry(mark.subject).or_default() += 1;
            }
        })?;
        let open = by_subject.into_iter().filter_map(|(subject, count)| {
            let open = count.saturating_sub(settled.get(&subject).copied().unwrap_or(0));
            (open > 0).then(|| (of(&subject), open))
        });
        lock(&self.open_counts).open = named(open);
        Ok(())
    }

    /// The rows of the table, the oldest of them, and whether all can be read.
    fn rows(&self) -> (u64, Option<Timestamp>, bool) {
        let view = self.parts.engine.view();
        let (files, hot) = (view.files(Table::DeadLetters), view.hot(Table::DeadLetters));
        let rows = files.iter().map(|file| file.rows).sum::<u64>();
        let rows = rows + hot.iter().map(|hot| hot.batch.num_rows() as u64).sum::<u64>();
        let oldest = files
            .iter()
            .map(|file| file.min_ts)
            .chain(hot.iter().map(|hot| hot.min_ts));
        (rows, oldest.min(), view.partial().is_none())
    }

    /// Forgets the marks of letters that are older than every row.
    async fn forget(&self, oldest: Option<Timestamp>) -> Result<(), DlqError> {
        let before = oldest.unwrap_or(Timestamp::MAX);
        let gone = self
            .parts
            .registry
            .commit(move |change| change.forget_letters(before))
            .await?;
        if gone > 0 {
            tracing::info!(gone, "forgot the states of expired dead letters");
        }
        Ok(())
    }
}

/// The Rack and the gear of a subject.
fn of(subject: &str) -> (String, String) {
    if let Some((rack, gear)) = subject::parse_gear(subject) {
        return (rack.to_string(), gear.to_string());
    }
    if let Some((rack, gear, _)) = subject::parse_message(subject) {
        return (rack.to_string(), gear.to_string());
    }
    let rack = subject::parse_telemetry(subject).map(|(_, rack)| rack.to_string());
    (rack.unwrap_or_else(|| "other".to_owned()), String::new())
}

/// The counts of gears, the smallest of too many together.
fn named(counts: impl Iterator<Item = ((String, String), u64)>) -> BTreeMap<(String, String), u64> {
    let mut by_gear: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (gear, count) in counts {
        *by_gear.entry(gear).or_default() += count;
    }
    let mut sorted: Vec<_> = by_gear.into_iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest: u64 = sorted.iter().skip(MOST_NAMED).map(|(_, count)| count).sum();
    sorted.truncate(MOST_NAMED);
    let mut named: BTreeMap<_, _> = sorted.into_iter().collect();
    if rest > 0 {
        *named.entry(("other".to_owned(), String::new())).or_default() += rest;
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_counts_for_its_gear_and_too_many_gears_count_together() {
        let count = |subject: &str, count| (of(subject), count);
        let few = named([count("flux.gear.a.b", 2), count("flux.msg.a.b.out", 1), count("x", 4)].into_iter());
        let other = ("other".to_owned(), String::new());
        assert_eq!(few.get(&("a".to_owned(), "b".to_owned())), Some(&3));
        assert_eq!(few.get(&other), Some(&4));
        let many = named((0..150).map(|n| count(&format!("flux.gear.a.g{n}"), n + 1)));
        assert_eq!((many.len(), many.values().sum::<u64>()), (101, (1..=150).sum::<u64>()));
        assert_eq!(many.get(&other), Some(&(1..=50).sum::<u64>()));
    }
}
