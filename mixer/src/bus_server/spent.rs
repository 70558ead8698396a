//! Room in the stream of business messages: what is archived, and taken by every wire, leaves it when it fills up.
//!
//! The stream refuses messages when it is full, so that nothing is lost that nobody has; Racks then keep them and their sources
//! wait. What everybody has must not be what fills it.
//!
//! # Invariants
//!
//! - Nothing leaves before its age that some consumer of the stream, ours or another's, has not acknowledged; nothing leaves at
//!   all while the archive's consumer is not there.
//! - Below [`FILLED`] everything stays, for who asks late.
//!
//! # Not here
//!
//! The end by age, which is the server's.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, Info};
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use chassis::bus::BusState;
use futures::TryStreamExt as _;
use model::ByteSize;
use tokio_util::sync::CancellationToken;

use super::Bus;

/// How full the stream may be of spent messages, in percent.
const FILLED: u64 = 50;
/// From here on an operator hears of what keeps it full, in percent.
const TIGHT: u64 = 80;
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// The consumer that stores messages.
const ARCHIVE: &str = "archive";
/// The most subjects that are cleared one by one.
const MOST_SUBJECTS: usize = 1024;

/// Clears the stream whenever it fills up, until stopped.
pub(super) async fn keep(bus: Bus, stream: String, stop: CancellationToken) {
    let mut told = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if *bus.state().borrow() != BusState::Connected {
            continue;
        }
        match look(&bus, &stream).await {
            Ok(held) => {
                if let Some(held) = held.as_ref().filter(|held| told.as_ref() != Some(&held.by)) {
                    tracing::warn!(stream, consumer = held.by, waiting = held.waiting, bytes = %held.bytes, of = %held.of, "the stream fills up with what a consumer has not taken; full, it makes Racks wait: start what reads there, deactivate its wire, remove its Rack, or raise snake.max_store_mb");
                }
                told = held.map(|held| held.by);
            }
            Err(reason) => tracing::debug!(stream, reason, "the stream cannot be cleared just now"),
        }
    }
}

/// Who keeps the stream full.
struct Held {
    by: String,
    waiting: u64,
    bytes: ByteSize,
    of: ByteSize,
}

/// How far a consumer of the stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Progress {
    name: String,
    filters: Vec<String>,
    /// The last sequence up to which it needs nothing any more.
    done: u64,
    waiting: u64,
}

impl Progress {
    fn reads(&self, subject: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| matches(filter, subject))
    }
}

async fn look(bus: &Bus, name: &str) -> Result<Option<Held>, String> {
    let stream = bus.jetstream().get_stream(name).await.map_err(text)?;
    let info = stream.cached_info();
    let Some(max) = u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0) else {
        return Ok(None);
    };
    let share = |bytes: u64| bytes.saturating_mul(100) / max;
    if share(info.state.bytes) < FILLED {
        return Ok(None);
    }
    // Asked before the consumers are: what comes meanwhile stays.
    let last = info.state.last_sequence;
    let mut all = Vec::new();
    let consumers: Vec<Info> = stream.consumers().try_collect().await.map_err(text)?;
    for consumer in &consumers {
        all.push(progress(&stream, consumer, last).await?);
    }
    let Some(least) = least(&all, |_| true) else {
        return Ok(None);
    };
    if least.done >= info.state.first_sequence {
        let purged = stream.purge().sequence(least.done + 1).await.map_err(text)?.purged;
        tracing::debug!(stream = name, purged, "what everybody has left the stream");
    }
    let mut bytes = stream.get_info().await.map_err(text)?.state.bytes;
    if share(bytes) >= FILLED {
        clear_subjects(&stream, &all).await?;
        bytes = stream.get_info().await.map_err(text)?.state.bytes;
    }
    Ok((share(bytes) >= TIGHT).then(|| Held {
        by: least.name.clone(),
        waiting: least.waiting,
        bytes: ByteSize::bytes(bytes),
        of: ByteSize::bytes(max),
    }))
}

/// Who is the furthest behind of those that a condition names; none while messages of theirs are not archived.
fn least(all: &[Progress], reads: impl Fn(&Progress) -> bool) -> Option<&Progress> {
    let readers = || all.iter().filter(|progress| reads(progress));
    readers().any(|progress| progress.name == ARCHIVE).then_some(())?;
    readers().min_by_key(|progress| progress.done)
}

/// Where somebody is behind, the messages of other subjects leave all the same.
async fn clear_subjects(stream: &Stream, all: &[Progress]) -> Result<(), String> {
    let subjects = stream.info_with_subjects(">").await.map_err(text)?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let counted: Vec<(String, usize)> = subjects.try_collect().await.map_err(text)?;
    counts.extend(counted);
    let mut subjects: Vec<(String, usize)> = counts.into_iter().collect();
    subjects.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (subject, _) in subjects.into_iter().take(MOST_SUBJECTS) {
        if let Some(least) = least(all, |progress| progress.reads(&subject)) {
            let purge = stream.purge().filter(subject.as_str()).sequence(least.done + 1);
            purge.await.map_err(text)?;
        }
    }
    Ok(())
}

async fn progress(stream: &Stream, consumer: &Info, last: u64) -> Result<Progress, String> {
    let config = &consumer.config;
    let mut filters = config.filter_subjects.clone();
    if !config.filter_subject.is_empty() {
        filters.push(config.filter_subject.clone());
    }
    let waiting = consumer.num_pending + consumer.num_ack_pending as u64;
    let done = if waiting == 0 {
        last
    } else if config.ack_policy == AckPolicy::None {
        consumer.delivered.stream_sequence
    } else {
        first_wanted(stream, &filters, consumer.ack_floor.stream_sequence)
            .await?
            .map_or(last, |first| first - 1)
    };
    Ok(Progress {
        name: consumer.name.clone(),
        filters,
        done: done.min(last),
        waiting,
    })
}

/// The first message behind a sequence that one of these filters lets through.
async fn first_wanted(stream: &Stream, filters: &[String], behind: u64) -> Result<Option<u64>, String> {
    let everything = [">".to_owned()];
    let filters = if filters.is_empty() { &everything } else { filters };
    let mut first: Option<u64> = None;
    for filter in filters {
        let asked = stream
            .raw_message_builder()
            .sequence(behind + 1)
            .next_by_subject(filter);
        match asked.send().await {
            Ok(message) => first = Some(first.map_or(message.sequence, |first| first.min(message.sequence))),
            Err(error) => match error.kind() {
                RawMessageErrorKind::NoMessageFound => {}
                RawMessageErrorKind::JetStream(error) if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => {}
                _ => return Err(text(error)),
            },
        }
    }
    Ok(first)
}

/// Whether a subject is one that a pattern names.
fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some(wanted), Some(word)) if wanted == "*" || wanted == word => {}
            _ => return false,
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn progress(name: &str, filter: &str, done: u64) -> Progress {
        Progress {
            name: name.to_owned(),
            filters: vec![filter.to_owned()],
            done,
            waiting: 1,
        }
    }

    #[test]
    fn nothing_leaves_that_is_not_archived_and_each_subject_waits_for_its_own_readers() {
        let wires = [
            progress("wire-1", "flux.msg.a.gen.out", 3),
            progress("wire-2", "flux.msg.*.far.out", 7),
        ];
        assert_eq!(least(&wires, |_| true), None);
        let mut all = wires.to_vec();
        all.push(progress(ARCHIVE, "flux.msg.>", 9));
        assert_eq!(least(&all, |_| true).unwrap().name, "wire-1");
        for (subject, done) in [
            ("flux.msg.a.gen.out", Some(3)),
            ("flux.msg.b.far.out", Some(7)),
            ("flux.msg.b.gen.out", Some(9)),
            ("flux.gear.b.gen", None),
        ] {
            let least = least(&all, |progress| progress.reads(subject));
            assert_eq!(least.map(|progress| progress.done), done, "{subject}");
        }
    }

    #[test]
    fn a_pattern_names_whole_words() {
        assert!(matches(">", "a.b") && matches("a.>", "a.b.c") && matches("a.*.c", "a.b.c") && matches("a", "a"));
        assert!(!matches("a.>", "a") && !matches("a.*", "a.b.c") && !matches("a.b.c", "a.b") && !matches("a", "b"));
    }
}
