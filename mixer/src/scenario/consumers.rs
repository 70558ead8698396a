//! The durable consumers of a scenario's wires.
//!
//! # Invariants
//!
//! - A consumer is there before any Rack is told of its wire, so no message is sent before somebody is known to wait for it.
//! - A wire is in force if the active scenario has it, or what a Rack runs that refused the active one. It stays in force as long as a
//!   Rack that is there runs a scenario with it, however long others are away.
//! - A wire that is in force no more is paused: where it goes on is written down before its consumer goes. What becomes of wires is
//!   said in [`super::rewiring`].
//! - A consumer that exists is left as it is but for [`AT_ONCE`] and [`ACK_WAIT`]: it knows what its Rack has.
//! - One that was lost is made anew from where its wire began (the registry knows): its Rack passes over what it has taken by the
//!   numbers of the messages. Until then nothing that it wants leaves the stream ([`super::spent`]).
//! - At the start, after every reconnect, when a Rack has another scenario or goes or comes back, and every [`LOOK`] they are looked for
//!   again: the bus may have lost its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, pull};
use async_nats::jetstream::stream::Stream;
use chassis::bus::BusState;
use futures::TryStreamExt as _;
use model::Token;
use serde::Serialize;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::courier::CourierParts;
use super::part::{Flow, WIRE};
use super::rewiring::{Rewiring, rewirings};
use crate::bus_server::{Bus, Reconnects};
use crate::registry::{Registry, WireRow};

/// Messages of a wire that may be delivered and not acknowledged: more than an inlet takes.
const AT_ONCE: i64 = 8192;
/// How long the bus waits before it delivers a message again by itself. An inlet resets its consumer when it begins, and never waits for
/// that.
const ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How often all are looked for.
const LOOK: Duration = Duration::from_secs(60);
/// After an answer of a Rack they are looked for so much later: others answer, too.
const SETTLING: Duration = Duration::from_secs(1);
/// The most wires that are paused; beyond, those that stand furthest back are forgotten.
const MOST_PAUSED: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Consumers {
    stream: String,
    registry: Arc<Registry>,
    /// The ones that are there.
    made: Mutex<BTreeSet<String>>,
    changed: Notify,
}

/// The wires that are not the active scenario's and are in force all the same.
#[derive(Debug, Default)]
pub(super) struct OtherWires {
    /// Of Racks that refused the active scenario: what they run.
    pub(super) refused: Vec<Flow>,
    /// Of Racks that have not answered so far: as they are, while they are.
    pub(super) unsettled: BTreeSet<String>,
    /// Racks that run what cannot be read: their wires are as they are.
    pub(super) unreadable: BTreeSet<Token>,
}

impl OtherWires {
    /// Whether a wire stays as it is.
    fn keeps(&self, consumer: &str, row: &WireRow) -> bool {
        let is_unreadable = row.rack.as_ref().is_none_or(|rack| self.unreadable.contains(rack));
        self.unsettled.contains(consumer) || is_unreadable
    }
}

/// What becomes of a wire when another scenario is activated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WireChange {
    /// The wire, from its subject to its gear.
    pub wire: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub change: Rewiring,
    /// The bus messages, each of one message or more, that wait for it, or for the one that it takes over from. Of one that resumes,
    /// not known.
    pub waiting: Option<u64>,
}

impl Consumers {
    /// Those on the stream of business messages.
    pub(crate) fn new(stream: String, registry: Arc<Registry>) -> Self {
        Self {
            stream,
            registry,
            made: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// A Rack has answered, or another scenario is active: wires may be in force no more.
    pub(super) fn look_soon(&self) {
        self.changed.notify_one();
    }

    /// What activating a scenario with these wires would do to wires.
    pub(super) async fn rehearse(&self, bus: &Bus, flows: &[Flow]) -> Result<Vec<WireChange>, String> {
        let infos = there(&self.stream(bus).await?).await?;
        let rows = self.registry.wires().map_err(text)?;
        let description = |consumer: &String| {
            let flow = flows.iter().find(|flow| flow.consumer == *consumer);
            let of_row = || rows.get(consumer).map(|row| row.description.clone());
            flow.map(|flow| flow.description.clone())
                .or_else(of_row)
                .unwrap_or_default()
        };
        let waiting = |consumer: &String| {
            let info = infos.get(consumer)?;
            Some(info.num_pending + info.num_ack_pending as u64)
        };
        let change = |(consumer, change): (String, Rewiring)| WireChange {
            wire: description(&consumer),
            waiting: match &change {
                Rewiring::Begins => Some(0),
                Rewiring::Resumes => None,
                Rewiring::TakesOver { consumer, .. } => waiting(consumer),
                Rewiring::Pauses => waiting(&consumer),
            },
            change,
        };
        Ok(rewirings(flows, &rows).into_iter().map(change).collect())
    }

    /// Makes those that are not there; of all wires of the active scenario, they take over from those that leave.
    pub(super) async fn ensure(&self, bus: &Bus, flows: &[Flow], is_all: bool) -> Result<(), String> {
        let mut made = self.made.lock().await;
        if flows.iter().all(|flow| made.contains(&flow.consumer)) {
            return Ok(());
        }
        let mut change = self.change(bus, flows).await?;
        // What is in force no more is found out by looking.
        change.all.retain(|_, change| *change != Rewiring::Pauses);
        if !is_all {
            for (name, change_of) in &mut change.all {
                if matches!(change_of, Rewiring::TakesOver { .. }) {
                    *change_of = Rewiring::without_another(change.rows.contains_key(name));
                }
            }
        }
        *made = change.carry_out(&self.registry).await?;
        Ok(())
    }

    /// Looks which are there, makes those that are not, and pauses the wires that are in force no more.
    async fn look_after(&self, bus: &Bus, active: Vec<Flow>, other: &OtherWires) -> Result<(), String> {
        let mut made = self.made.lock().await;
        let flows: Vec<Flow> = active.into_iter().chain(other.refused.iter().cloned()).collect();
        let mut change = self.change(bus, &flows).await?;
        change.ends_unknown = other.unsettled.is_empty() && other.unreadable.is_empty();
        let rows = &change.rows;
        change.all.retain(|name, change| {
            let is_kept = rows.get(name).is_some_and(|row| other.keeps(name, row));
            !is_kept || *change != Rewiring::Pauses
        });
        *made = change.carry_out(&self.registry).await?;
        Ok(())
    }

    async fn change<'a>(&self, bus: &Bus, flows: &'a [Flow]) -> Result<Change<'a>, String> {
        let stream = self.stream(bus).await?;
        let rows = self.registry.wires().map_err(text)?;
        Ok(Change {
            infos: there(&stream).await?,
            all: rewirings(flows, &rows),
            stream,
            flows,
            rows,
            ends_unknown: false,
        })
    }

    async fn stream(&self, bus: &Bus) -> Result<Stream, String> {
        let stream = bus.jetstream().get_stream(&self.stream).await;
        stream.map_err(|error| format!("stream {}: {error}", self.stream))
    }
}

/// A change of wires, and what is known where it is made.
struct Change<'a> {
    stream: Stream,
    infos: BTreeMap<String, Info>,
    rows: BTreeMap<String, WireRow>,
    flows: &'a [Flow],
    all: BTreeMap<String, Rewiring>,
    /// Whether consumers go that no wire is known of.
    ends_unknown: bool,
}

impl Change<'_> {
    /// Writes it down, ends the consumers of wires that are paused, and makes those that are not there. Returns the ones that are there
    /// then.
    async fn carry_out(self, registry: &Arc<Registry>) -> Result<BTreeSet<String>, String> {
        let rows = self.new_rows();
        let before = self.rows.clone();
        let put = move |change: &crate::registry::Change<'_>| {
            for (name, row) in rows.iter().filter(|(name, row)| before.get(*name) != Some(row)) {
                change.put_wire(name, row)?;
            }
            let gone = before.keys().filter(|name| !rows.contains_key(*name));
            gone.into_iter().try_for_each(|name| change.forget_wire(name))?;
            Ok::<_, crate::registry::RegistryError>(rows)
        };
        let rows = registry.commit(put).await.map_err(text)?;
        for (name, change) in &self.all {
            let (wire, sequence) = rows
                .get(name)
                .map_or(("", 0), |row| (row.description.as_str(), row.sequence));
            tracing::info!(consumer = name, wire, sequence, ?change, "a wire changes");
        }
        let mut made: BTreeSet<String> = self.infos.keys().cloned().collect();
        // A crash may have come between the note and this.
        let ends = |name: &&String| rows.get(*name).map_or(self.ends_unknown, |row| row.is_paused);
        for name in self.infos.keys().filter(ends) {
            let deleted = self.stream.delete_consumer(name).await;
            deleted.map_err(|error| format!("consumer {name}: {error}"))?;
            made.remove(name);
        }
        for flow in self
            .flows
            .iter()
            .filter(|flow| !self.infos.contains_key(&flow.consumer))
        {
            let name = flow.consumer.clone();
            let start = rows.get(&name).map_or(1, |row| row.sequence);
            let created = self.stream.create_consumer(config(flow, start)).await;
            created.map_err(|error| format!("consumer {name}: {error}"))?;
            made.insert(name);
        }
        Ok(made)
    }

    /// The wires as they are then.
    fn new_rows(&self) -> BTreeMap<String, WireRow> {
        let life = WireRow::life(self.stream.cached_info().created.unix_timestamp_nanos());
        let mut rows = self.rows.clone();
        for (name, change) in &self.all {
            let sequence = match change {
                Rewiring::Begins if !self.infos.contains_key(name) => self.stream.cached_info().state.last_sequence + 1,
                Rewiring::Begins | Rewiring::Resumes | Rewiring::Pauses => self.next_sequence(name, life),
                Rewiring::TakesOver { consumer, .. } => {
                    let sequence = self.next_sequence(consumer, life);
                    if let Some(row) = rows.get_mut(consumer) {
                        (row.stream, row.sequence, row.is_paused) = (life, sequence, true);
                    }
                    sequence
                }
            };
            let row = rows.entry(name.clone()).or_default();
            (row.stream, row.sequence, row.is_paused) = (life, sequence, *change == Rewiring::Pauses);
            if let Rewiring::TakesOver { consumer, .. } = change {
                row.after = Some(consumer.clone());
            }
        }
        for flow in self.flows {
            let row = rows.entry(flow.consumer.clone()).or_default();
            if row.stream != life {
                // Another stream, which has messages from its first one on.
                (row.stream, row.sequence) = (life, 1);
            }
            row.rack = Some(flow.rack.clone());
            row.filter.clone_from(&flow.filter);
            row.description.clone_from(&flow.description);
        }
        forget_oldest(&mut rows);
        rows
    }

    /// The first message that a wire has not taken, as far as the bus or the registry know.
    fn next_sequence(&self, name: &str, life: i64) -> u64 {
        let of_row = self
            .rows
            .get(name)
            .filter(|row| row.stream == life)
            .map_or(1, |row| row.sequence);
        let of_consumer = self
            .infos
            .get(name)
            .map_or(1, |info| info.ack_floor.stream_sequence + 1);
        of_row.max(of_consumer)
    }
}

/// Keeps the paused wires bounded.
fn forget_oldest(rows: &mut BTreeMap<String, WireRow>) {
    let paused = rows.iter().filter(|(_, row)| row.is_paused);
    let mut paused: Vec<(u64, String)> = paused.map(|(name, row)| (row.sequence, name.clone())).collect();
    paused.sort_unstable();
    for (_, name) in paused.iter().rev().skip(MOST_PAUSED) {
        rows.remove(name);
    }
}

/// The wires' consumers that exist, after their limits were brought in line with ours.
async fn there(stream: &Stream) -> Result<BTreeMap<String, Info>, String> {
    let infos: Vec<Info> = stream
        .consumers()
        .try_collect()
        .await
        .map_err(|error| format!("consumers: {error}"))?;
    let mut found = BTreeMap::new();
    for info in infos.into_iter().filter(|info| info.name.starts_with(WIRE)) {
        let (name, mut config) = (info.name.clone(), info.config.clone());
        if config.ack_policy != AckPolicy::All {
            // Somebody else's, or an older program's: it cannot be changed. Another one is made from where the wire began.
            let deleted = stream.delete_consumer(&name).await;
            deleted.map_err(|error| format!("consumer {name}: {error}"))?;
            continue;
        }
        if (config.max_ack_pending, config.ack_wait) != (AT_ONCE, ACK_WAIT) {
            (config.max_ack_pending, config.ack_wait) = (AT_ONCE, ACK_WAIT);
            let corrected = stream.update_consumer(config).await;
            corrected.map_err(|error| format!("consumer {name}: {error}"))?;
        }
        found.insert(name, info);
    }
    Ok(found)
}

fn config(flow: &Flow, start: u64) -> pull::Config {
    pull::Config {
        durable_name: Some(flow.consumer.clone()),
        description: Some(flow.description.clone()),
        filter_subject: flow.filter.clone(),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: start },
        ack_policy: AckPolicy::All,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: AT_ONCE,
        ..Default::default()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Looks after the wires in force until stopped.
pub(crate) async fn keep(parts: Arc<CourierParts>, stop: CancellationToken) {
    let mut reconnects = Reconnects::unsettled(&parts.bus);
    let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_connected = || *parts.bus.state().borrow() == BusState::Connected;
        tokio::select! {
            goes_on = reconnects.next(&stop) => if !goes_on {
                return;
            },
            () = parts.consumers.changed.notified() => {
                tokio::time::sleep(SETTLING).await;
                if !is_connected() {
                    continue;
                }
            }
            _ = look.tick() => if !is_connected() {
                continue;
            },
        }
        match look_after(&parts).await {
            Ok(()) => reconnects.settle(),
            Err(reason) => tracing::warn!(%reason, "the wires of the scenario have no consumers yet; trying again"),
        }
    }
}

async fn look_after(parts: &Arc<CourierParts>) -> Result<(), String> {
    let parts_of = Arc::clone(parts);
    let read = tokio::task::spawn_blocking(move || parts_of.wires_in_force()).await;
    let Some((active, other)) = read.map_err(text)?.map_err(text)? else {
        // What it had is known, and left as it is.
        return Ok(());
    };
    parts.consumers.look_after(&parts.bus, active, &other).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use async_nats::jetstream::consumer::PullConsumer;

    use super::super::part;
    use super::*;
    use crate::bus_server::BusServer;
    use crate::tasks::failures;
    use crate::testing::{bus_settings, managed};

    /// The wire from rack-a to this Rack.
    fn flow(to: &str) -> Flow {
        let yaml = format!(
            "meta: {{ name: plant, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: {to} }} ]\ngears:\n  \
             - {{ name: gen, type: generator, deploy: rack-a }}\n  - {{ name: sink, type: log_sink, deploy: {to} }}\nwires:\n  \
             - {{ from: gen.out, to: sink.in }}\n"
        );
        let scenario = model::scenario::parse(&yaml, rack::manifests()).unwrap();
        part::flows(&scenario, std::iter::empty()).remove(0)
    }

    /// A bus server and a registry.
    async fn ground() -> (BusServer, Arc<Registry>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let server = BusServer::start(bus_settings(managed(folder.path())), &failures().0)
            .await
            .unwrap();
        let registry = Registry::open(&folder.path().join("registry.redb")).unwrap();
        (server, Arc::new(registry), folder)
    }

    async fn publish(bus: &Bus, count: usize) {
        for _ in 0..count {
            let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
            sent.unwrap().await.unwrap();
        }
    }

    async fn names(stream: &Stream) -> Vec<String> {
        there(stream).await.unwrap().into_keys().collect()
    }

    async fn pending(stream: &Stream, flow: &Flow) -> u64 {
        let consumer: PullConsumer = stream.get_consumer(&flow.consumer).await.unwrap();
        consumer.cached_info().num_pending
    }

    #[tokio::test]
    async fn a_lost_consumer_of_a_wire_in_force_is_made_anew_and_a_lost_one_of_none_is_not() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let all = ["active", "refused", "gone"].map(flow);
        consumers.ensure(bus, &all, true).await.unwrap();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        for flow in &all {
            stream.delete_consumer(&flow.consumer).await.unwrap();
            publish(bus, 1).await;
        }
        let [active, refused, gone] = all;
        let other = OtherWires {
            refused: vec![refused.clone()],
            ..OtherWires::default()
        };
        consumers.look_after(bus, vec![active.clone()], &other).await.unwrap();
        let mut made = [active.consumer.clone(), refused.consumer.clone()];
        made.sort();
        assert_eq!(names(&stream).await, made);
        let is_paused = |flow: &Flow| registry.wire(&flow.consumer).unwrap().unwrap().is_paused;
        assert_eq!([&active, &refused, &gone].map(is_paused), [false, false, true]);
        assert_eq!(pending(&stream, &refused).await, 3, "from where it began");
        server.close().await;
    }

    #[tokio::test]
    async fn wires_of_racks_that_run_what_cannot_be_read_or_have_not_answered_stay() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let all = ["unreadable", "unsettled", "gone"].map(flow);
        consumers.ensure(bus, &all, true).await.unwrap();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let other = OtherWires {
            unreadable: ["unreadable".parse().unwrap()].into(),
            unsettled: [all[1].consumer.clone()].into(),
            ..OtherWires::default()
        };
        consumers.look_after(bus, Vec::new(), &other).await.unwrap();
        let mut stay = [all[0].consumer.clone(), all[1].consumer.clone()];
        stay.sort();
        assert_eq!(names(&stream).await, stay);
        server.close().await;
    }

    #[tokio::test]
    async fn a_moved_wire_takes_over_and_one_that_was_paused_goes_on_where_it_was() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let (before, moved) = (flow("before"), flow("moved"));
        consumers
            .ensure(bus, std::slice::from_ref(&before), true)
            .await
            .unwrap();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        publish(bus, 3).await;
        let consumer: PullConsumer = stream.get_consumer(&before.consumer).await.unwrap();
        let mut taken = consumer.fetch().max_messages(1).messages().await.unwrap();
        taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
        let said = consumers.rehearse(bus, std::slice::from_ref(&moved)).await.unwrap();
        let said: Vec<_> = said
            .iter()
            .map(|change| serde_json::to_value(change).unwrap())
            .collect();
        let wire = |to: &str| format!("flux.msg.rack-a.gen.out -> {to}.sink.in");
        let takes_over =
            serde_json::json!({ "wire": wire("moved"), "change": "takes_over", "from": wire("before"), "waiting": 2 });
        let pauses = serde_json::json!({ "wire": wire("before"), "change": "pauses", "waiting": 2 });
        assert!(
            said.len() == 2 && said.contains(&takes_over) && said.contains(&pauses),
            "{said:?}"
        );
        for (flow, waiting) in [(&moved, 2), (&before, 2)] {
            let none = OtherWires::default();
            consumers.look_after(bus, vec![flow.clone()], &none).await.unwrap();
            assert_eq!(names(&stream).await, std::slice::from_ref(&flow.consumer));
            assert_eq!(pending(&stream, flow).await, waiting);
        }
        consumers
            .look_after(bus, Vec::new(), &OtherWires::default())
            .await
            .unwrap();
        assert!(names(&stream).await.is_empty());
        publish(bus, 2).await;
        consumers
            .ensure(bus, std::slice::from_ref(&before), true)
            .await
            .unwrap();
        assert_eq!(pending(&stream, &before).await, 4);
        server.close().await;
    }

    #[tokio::test]
    async fn a_consumer_with_other_limits_is_updated_and_keeps_its_ack_floor() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let flow = flow("rack-b");
        let before = pull::Config {
            max_ack_pending: 512,
            ..config(&flow, 1)
        };
        let mut before = stream.create_consumer(before).await.unwrap();
        for _ in 0..2 {
            let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
            sent.unwrap().await.unwrap();
        }
        let mut taken = before.fetch().max_messages(1).messages().await.unwrap();
        taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
        let consumers = Consumers::new("flux-msg".to_owned(), registry);
        consumers.ensure(bus, &[flow], true).await.unwrap();
        let after = before.info().await.unwrap();
        assert_eq!(
            (after.config.max_ack_pending, after.ack_floor.stream_sequence),
            (AT_ONCE, 1)
        );
        assert_eq!(after.num_pending, 1);
        server.close().await;
    }
}
