//! Stream trimmer: messages that are archived and taken by every wire leave the stream when it fills up.
//!
//! The stream refuses messages when it is full, so that nothing is lost that nobody has; Racks then keep them and their sources
//! wait. What everybody has must not be what fills it.
//!
//! # Invariants
//!
//! - Nothing leaves before its age ([`super::expiry`]) that some consumer of the stream, ours or another's, has not acknowledged; nothing leaves at
//!   all while the archive's consumer is not there.
//! - A wire that the registry knows and whose consumer is not there has taken nothing: its consumer is made anew from where the wire
//!   began ([`super::wire_consumers`]), and what it wants from there on stays. One that is paused keeps nothing.
//! - What a consumer has is what it acknowledged: that nothing waits for it may be of before the last messages.
//! - Below [`FILLED`] everything stays, for who asks late.
//!
//! # Not here
//!
//! When it is looked at ([`super::flow_control`]).

use std::collections::BTreeMap;

use async_nats::jetstream::consumer::{AckPolicy, Info};
use async_nats::jetstream::stream::Stream;
use futures::TryStreamExt as _;
use model::ByteSize;

use super::text;
use crate::registry::WireRow;

/// How full the stream may be of spent messages, in percent.
const FILLED: u64 = 50;
/// From here on an operator hears of what keeps it full, in percent.
const TIGHT: u64 = 80;
/// The consumer that stores messages.
pub(super) const ARCHIVE: &str = "archive";
/// The most subjects that are cleared one by one.
const MOST_SUBJECTS: usize = 1024;

/// Who keeps the stream full.
struct TrimBlocker {
    by: String,
    wire: String,
    bytes: ByteSize,
    of: ByteSize,
}

impl TrimBlocker {
    /// For an operator.
    fn text(&self) -> String {
        format!(
            "the backlog of a consumer fills the stream ({} of {}); a full stream makes Racks wait: start the \
             consumer's reader, or raise snake.max_store_mb. A wire keeps its messages as long as the active scenario \
             has it, however long its Rack is offline: consumer {}, {}",
            self.bytes, self.of, self.by, self.wire
        )
    }
}

/// How far a consumer of the stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConsumerProgress {
    name: String,
    /// What it is for.
    wire: String,
    filters: Vec<String>,
    /// The last sequence up to which it needs nothing of its subjects any more.
    done: u64,
    waiting: u64,
}

impl ConsumerProgress {
    fn reads(&self, subject: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| matches(filter, subject))
    }
}

/// Clears a stream of so many bytes if it fills up; what it holds then, and for an operator what keeps it full. A stream that refuses to
/// be cleared is one that is full.
pub(super) async fn trim(
    stream: &Stream,
    max: u64,
    consumers: &[Info],
    wires: &BTreeMap<String, WireRow>,
) -> Result<(u64, Option<String>), String> {
    let info = stream.cached_info();
    let mut bytes = info.state.bytes;
    let share = |bytes: u64| bytes.saturating_mul(100) / max;
    // One that came or went while they were listed may have hidden another.
    if share(bytes) < FILLED || consumers.len() != info.state.consumer_count {
        return Ok((bytes, None));
    }
    let mut all: Vec<ConsumerProgress> = consumers.iter().map(progress).collect();
    let life = WireRow::life(info.created.unix_timestamp_nanos());
    all.extend(missing(wires.clone(), consumers, life));
    let Some(least) = least(&all, |_| true) else {
        return Ok((bytes, None));
    };
    let cleared = trim_to(stream, least.done, &all).await;
    if let Err(reason) = cleared {
        return Ok((bytes, Some(format!("cannot trim the stream: {reason}"))));
    }
    bytes = stream.get_info().await.map_err(text)?.state.bytes;
    let held = TrimBlocker {
        by: least.name.clone(),
        wire: least.wire.clone(),
        bytes: ByteSize::bytes(bytes),
        of: ByteSize::bytes(max),
    };
    Ok((bytes, (share(bytes) >= TIGHT).then(|| held.text())))
}

/// Up to where everybody is, then subject by subject.
async fn trim_to(stream: &Stream, done: u64, all: &[ConsumerProgress]) -> Result<(), String> {
    if done >= stream.cached_info().state.first_sequence {
        stream.purge().sequence(done + 1).await.map_err(text)?;
    }
    trim_subjects(stream, all).await
}

/// The wires without a consumer, which have nothing of what they are for, whatever that is.
fn missing(wires: BTreeMap<String, WireRow>, consumers: &[Info], life: i64) -> impl Iterator<Item = ConsumerProgress> {
    let is_missing = |name: &str| consumers.iter().all(|consumer| consumer.name != name);
    wires
        .into_iter()
        .filter(move |(name, row)| !row.is_paused && !row.ends && is_missing(row.consumer(name)))
        .map(move |(name, row)| ConsumerProgress {
            name,
            wire: "its consumer is lost and is recreated within a minute".to_owned(),
            filters: vec![row.filter]
                .into_iter()
                .filter(|filter| !filter.is_empty())
                .collect(),
            done: if row.stream == life {
                row.sequence.saturating_sub(1)
            } else {
                0
            },
            waiting: 0,
        })
}

/// Who is the furthest behind of those that a condition names; none while messages of theirs are not archived.
fn least(all: &[ConsumerProgress], reads: impl Fn(&ConsumerProgress) -> bool) -> Option<&ConsumerProgress> {
    let readers = || all.iter().filter(|progress| reads(progress));
    readers().any(|progress| progress.name == ARCHIVE).then_some(())?;
    readers().min_by_key(|progress| progress.done)
}

/// Where somebody is behind, the messages of other subjects leave all the same.
async fn trim_subjects(stream: &Stream, all: &[ConsumerProgress]) -> Result<(), String> {
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

fn progress(consumer: &Info) -> ConsumerProgress {
    let config = &consumer.config;
    let mut filters = config.filter_subjects.clone();
    if !config.filter_subject.is_empty() {
        filters.push(config.filter_subject.clone());
    }
    let done = if config.ack_policy == AckPolicy::None {
        consumer.delivered.stream_sequence
    } else {
        consumer.ack_floor.stream_sequence
    };
    ConsumerProgress {
        name: consumer.name.clone(),
        wire: config.description.clone().unwrap_or_default(),
        filters,
        done,
        waiting: consumer.num_pending + consumer.num_ack_pending as u64,
    }
}

/// Whether a subject is one that a pattern names.
pub(super) fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some(wanted), Some(word)) if wanted == "*" || wanted == word => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use async_nats::jetstream::consumer::{PullConsumer, pull};
    use futures::StreamExt as _;

    use super::*;
    use std::sync::Arc;

    use crate::bus_server::{BusServer, MixerBus};
    use crate::registry::ClusterRegistry;
    use crate::tasks::failure_channel;
    use crate::testing::{bus_settings, managed};

    fn progress(name: &str, filter: &str, done: u64) -> ConsumerProgress {
        ConsumerProgress {
            name: name.to_owned(),
            wire: String::new(),
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

    async fn look(bus: &MixerBus, registry: &ClusterRegistry) -> Option<String> {
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let max = u64::try_from(stream.cached_info().config.max_bytes).unwrap();
        let consumers: Vec<Info> = stream.consumers().try_collect().await.unwrap();
        let wires = registry.wires().unwrap();
        trim(&stream, max, &consumers, &wires).await.unwrap().1
    }

    /// Takes everything that a consumer has.
    async fn take_all(stream: &Stream, name: &str) {
        let consumer: PullConsumer = stream.get_consumer(name).await.unwrap();
        let mut messages = consumer.fetch().max_messages(1_000).messages().await.unwrap();
        while let Some(message) = messages.next().await {
            message.unwrap().double_ack().await.unwrap();
        }
    }

    #[tokio::test]
    async fn nothing_leaves_while_a_wires_consumer_is_lost_and_it_leaves_once_the_new_one_has_taken_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = bus_settings(managed(folder.path()));
        settings.streams.max_store = ByteSize::mib(4);
        let server = BusServer::start(settings, &failure_channel().0).await.unwrap();
        let bus = server.bus();
        let registry = Arc::new(ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap());
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let (gone, wire) = (
            "wire-1",
            WireRow::life(stream.cached_info().created.unix_timestamp_nanos()),
        );
        let start = WireRow {
            stream: wire,
            sequence: 1,
            ..WireRow::default()
        };
        registry
            .commit(move |change| change.put_wire(gone, &start, None))
            .await
            .unwrap();
        let consumer = |name: &str| pull::Config {
            durable_name: Some(name.to_owned()),
            ..pull::Config::default()
        };
        stream.create_consumer(consumer(ARCHIVE)).await.unwrap();
        for _ in 0..24 {
            let sent = bus
                .jetstream()
                .publish("flux.msg.a.gen.out", vec![0; 100 << 10].into())
                .await;
            sent.unwrap().await.unwrap();
        }
        take_all(&stream, ARCHIVE).await;
        let messages = async || stream.get_info().await.unwrap().state.messages;
        let held = look(bus, &registry).await;
        assert!(held.unwrap().contains(&format!("consumer {gone}")));
        assert_eq!(messages().await, 24);
        stream.create_consumer(consumer(gone)).await.unwrap();
        take_all(&stream, gone).await;
        assert!(look(bus, &registry).await.is_none());
        assert_eq!(messages().await, 0);
        server.close().await;
    }

    #[tokio::test]
    async fn a_wire_without_a_consumer_keeps_what_it_is_for_unless_it_is_paused_or_has_anothers() {
        let folder = tempfile::tempdir().unwrap();
        let server = BusServer::start(bus_settings(managed(folder.path())), &failure_channel().0)
            .await
            .unwrap();
        let stream = server.bus().jetstream().get_stream("flux-msg").await.unwrap();
        let there = pull::Config {
            durable_name: Some("of-another".to_owned()),
            ..pull::Config::default()
        };
        let there = stream.create_consumer(there).await.unwrap().cached_info().clone();
        let row = |is_paused, consumer: Option<&str>| WireRow {
            stream: 1,
            sequence: 7,
            is_paused,
            consumer: consumer.map(str::to_owned),
            ..WireRow::default()
        };
        let wires = [
            ("paused".to_owned(), row(true, None)),
            ("renamed".to_owned(), row(false, Some("of-another"))),
            ("lost".to_owned(), row(false, None)),
        ];
        let consumers = [there];
        let kept = missing(wires.into(), &consumers, 1).map(|wire| (wire.name, wire.done));
        assert_eq!(kept.collect::<Vec<_>>(), [("lost".to_owned(), 6)]);
        server.close().await;
    }

    #[test]
    fn a_pattern_names_whole_words() {
        assert!(matches(">", "a.b") && matches("a.>", "a.b.c") && matches("a.*.c", "a.b.c") && matches("a", "a"));
        assert!(!matches("a.>", "a") && !matches("a.*", "a.b.c") && !matches("a.b.c", "a.b") && !matches("a", "b"));
    }
}
