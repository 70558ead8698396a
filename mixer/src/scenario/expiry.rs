//! Expiry of business messages: where the stream stood at earlier times, and what of it is too old.
//!
//! # Invariants
//!
//! - Ages are measured by a clock that has run evenly: a jump of it moves all marks, so that it makes nothing older, and neither does the
//!   time in which the Mixer was away and its clock was not believed. What times the bus gives its messages does not matter.
//! - A mark is in the registry before it counts, and so is a jump: until then the next look finds it again, of another process too. The
//!   time of a look is there half an hour later at most.
//! - Another stream has other sequences: it begins without marks.
//!
//! # Not here
//!
//! Which clock has run evenly: rotation judges that ([`engine::Engine`]).

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use model::Timestamp;
use tokio::time::Instant;

use super::text;
use crate::registry::{ClusterRegistry, RegistryError, RegistryTransaction, StreamMarks, WireRow};

/// So many marks are there for an age.
const MARKS: u32 = 32;
/// A clock that went further than the time that passed has jumped.
const SLACK: Duration = Duration::from_secs(3_600);

/// See the module.
pub(crate) struct StreamExpiry {
    /// The time that is relied on; none while there is none.
    time: Box<dyn Fn() -> Option<Timestamp> + Send + Sync>,
    max_age: Duration,
    last: Option<(Timestamp, Instant)>,
}

impl std::fmt::Debug for StreamExpiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamExpiry")
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

impl StreamMarks {
    /// Moves all marks by a jump of the clock, adds one if it is time, and takes those away that are too old: up to where that is.
    fn at(&mut self, now: Timestamp, jump: i64, last: u64, max_age: Duration) -> Option<u64> {
        for (time, _) in &mut self.marks {
            *time = time.saturating_add(jump).min(now.micros());
        }
        let is_due = |(time, _): &(i64, u64)| {
            now.since(Timestamp::from_micros(*time)) >= max_age / MARKS || now.micros() < *time
        };
        if self.marks.last().is_none_or(is_due) {
            self.marks.push((now.micros(), last));
        }
        let looked = self.looked.map(Timestamp::from_micros);
        let is_old = |looked: Timestamp| now.since(looked) >= SLACK / 2 || now < looked;
        if jump != 0 || looked.is_none_or(is_old) {
            self.looked = Some(now.micros());
        }
        let before = now.minus(max_age).micros();
        let old = self.marks.iter().take_while(|(time, _)| *time <= before).count();
        self.marks.drain(..old).next_back().map(|(_, sequence)| sequence)
    }
}

impl StreamExpiry {
    pub(crate) fn new(time: Box<dyn Fn() -> Option<Timestamp> + Send + Sync>, max_age: Duration) -> Self {
        Self {
            time,
            max_age,
            last: None,
        }
    }

    /// How much further the clock went than the time that passed since the last look, of this process or the one before, in µs; 0 within
    /// an hour.
    fn jump(&self, now: Timestamp, instant: Instant, looked: Option<i64>) -> i64 {
        let passed = match self.last {
            Some((before, _)) if before == now => return 0,
            Some((before, at)) => Some(before.plus(instant - at)),
            None => looked.map(Timestamp::from_micros),
        };
        let ahead = passed.map_or(0, |passed| now.micros().saturating_sub(passed.micros()));
        let is_jump = Duration::from_micros(ahead.unsigned_abs()) > SLACK;
        if is_jump { ahead } else { 0 }
    }

    /// Removes what is too old, whoever wants it.
    pub(super) async fn expire(&mut self, registry: &Arc<ClusterRegistry>, stream: &Stream) -> Result<(), String> {
        let Some(now) = (self.time)() else { return Ok(()) };
        let (info, instant) = (stream.cached_info(), Instant::now());
        let life = WireRow::life(info.created.unix_timestamp_nanos());
        let before = registry.stream_marks().map_err(text)?.unwrap_or_default();
        let mut marks = before.clone();
        if before.stream != life {
            (marks.stream, marks.marks) = (life, Vec::new());
        }
        let jump = self.jump(now, instant, before.looked);
        let through = marks.at(now, jump, info.state.last_sequence, self.max_age);
        if marks != before {
            let put = move |change: &RegistryTransaction<'_>| change.set_stream_marks(&marks);
            registry.commit::<_, RegistryError>(put).await.map_err(text)?;
        }
        // It goes in steps of an hour where nothing is stored.
        if self.last.is_none_or(|(before, _)| before != now) {
            self.last = Some((now, instant));
        }
        if let Some(through) = through.filter(|through| *through >= info.state.first_sequence) {
            let purged = stream.purge().sequence(through + 1).await.map_err(text)?.purged;
            tracing::info!(
                purged,
                "messages older than snake.business_stream_max_age left the stream"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(32 * 3_600);

    const fn hours(hours: i64) -> Timestamp {
        Timestamp::from_micros(hours * 3_600_000_000)
    }

    #[test]
    fn what_is_older_than_the_age_ends_where_the_stream_stood_then_and_a_jump_makes_nothing_older() {
        let mut marks = StreamMarks::default();
        for hour in 0..32 {
            assert_eq!(marks.at(hours(hour), 0, 100 + hour.unsigned_abs(), AGE), None);
        }
        assert_eq!(marks.at(hours(34), 0, 134, AGE), Some(102), "of the first three hours");
        // Forty days ahead, half an hour later.
        let jump = 40 * 24 * 3_600_000_000;
        let mut jumped = marks.clone();
        assert_eq!(jumped.at(hours(34 + 40 * 24), jump, 135, AGE), None);
        assert_eq!(jumped.at(hours(35 + 40 * 24), 0, 136, AGE), Some(103));
        assert!(marks.marks.len() <= 33, "{}", marks.marks.len());
    }

    #[test]
    fn a_jump_while_no_process_looked_is_found_by_the_next_one_until_it_is_written_down() {
        let mut marks = StreamMarks::default();
        assert_eq!(marks.at(hours(10), 0, 100, AGE), None);
        let looked = marks.looked;
        assert_eq!(marks.at(hours(10).plus(SLACK / 3), 0, 101, AGE), None);
        assert_eq!(marks.looked, looked, "not each look is a write");
        let mut expiry = StreamExpiry::new(Box::new(|| None), AGE);
        let (now, instant) = (hours(10 + 40 * 24), Instant::now());
        let jump = expiry.jump(now, instant, looked);
        assert_eq!(Timestamp::from_micros(jump), hours(40 * 24));
        assert_eq!(marks.at(now, jump, 102, AGE), None);
        assert_eq!(expiry.jump(now, instant, marks.looked), 0);
        expiry.last = Some((now, instant));
        assert_eq!(expiry.jump(now.plus(SLACK / 2), instant, None), 0);
        assert_eq!(expiry.jump(now.plus(SLACK * 2), instant, None), 7_200_000_000);
    }
}
