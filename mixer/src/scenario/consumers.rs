//! The durable consumers of a scenario's wires.
//!
//! # Invariants
//!
//! - A consumer is there before any Rack is told of its wire, so no message is sent before somebody is known to wait for it.
//! - A wire is in force if the active scenario has it, or what a Rack runs that refused the active one. It stays in force as long as a
//!   Rack that is there runs a scenario with it, however long others are away.
//! - A wire that is in force no more is paused: where it goes on is written down before its consumer goes. What becomes of wires is
//!   said in [`super::rewiring`]. One that takes over from another one of its Rack goes on with that one's consumer, so the Rack's notes
//!   of what it has taken hold.
//! - A consumer that exists is left as it is but for [`AT_ONCE`] and [`ACK_WAIT`]: it knows what its Rack has.
//! - One that was lost is made anew from where its wire began (the registry knows): its Rack passes over what it has taken by the
//!   numbers of the messages. Until then nothing that it wants leaves the stream ([`super::spent`]).
//! - Who changes wires holds the lock from before the active scenario is read: an older one never comes after a newer one.
//! - At the start, after every reconnect, when a Rack has another scenario or goes or comes back, and every [`LOOK`] they are looked for
//!   again: the bus may have lost its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, pull};
use async_nats::jetstream::stream::Stream;
use chassis::bus::BusState;
use futures::{StreamExt as _, TryStreamExt as _};
use model::Token;
use serde::Serialize;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::courier::CourierParts;
use super::part::{Flow, WIRE};
use super::rewiring::{Rewiring, rewirings};
use crate::bus_server::{Bus, Reconnects};
use crate::registry::{Change, Registry, RegistryError, WireRow};

/// Messages of a wire that may be delivered and not acknowledged: more than an inlet takes.
const AT_ONCE: i64 = 8192;
/// How long the bus waits before it delivers a message again by itself. An inlet resets its consumer when it begins, and never waits for
/// that.
const ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How often all are looked for.
const LOOK: Duration = Duration::from_secs(60);
/// After an answer of a Rack they are looked for so much later: others answer, too.
const SETTLING: Duration = Duration::from_secs(1);
/// So many consumers are made at once.
const CREATED_AT_ONCE: usize = 16;
/// The most wires that are paused; beyond, those that stand furthest back are forgotten.
const MOST_PAUSED: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Consumers {
    stream: String,
    registry: Arc<Registry>,
    /// The wires whose consumers are there.
    made: Mutex<BTreeSet<String>>,
    changed: Notify,
}

/// What is in force.
#[derive(Debug, Default)]
pub(super) struct WiresInForce {
    /// Of the active scenario; none if that cannot be read, and then all stay as they are.
    pub(super) active: Option<Vec<Flow>>,
    /// Of Racks that refused the active scenario: what they run.
    pub(super) refused: Vec<Flow>,
    /// Of Racks that have not answered so far: as they are, while they are.
    pub(super) unsettled: BTreeSet<String>,
    /// Racks that run what cannot be read: their wires are as they are.
    pub(super) unreadable: BTreeSet<Token>,
}

impl WiresInForce {
    /// Whether a wire stays as it is.
    fn keeps(&self, name: &str, row: &WireRow) -> bool {
        let may_be_unreadable = row
            .rack
            .as_ref()
            .map_or(!self.unreadable.is_empty(), |rack| self.unreadable.contains(rack));
        // A Rack that has not heard of another name for a wire runs it by the former one, which is its consumer's.
        let is_unsettled = self.unsettled.contains(name) || self.unsettled.contains(row.consumer(name));
        self.active.is_none() || is_unsettled || may_be_unreadable
    }

    /// The wires. One whose new name its Rack refused is that of the new name, with whose consumer the Rack goes on.
    fn flows(&self, rows: &BTreeMap<String, WireRow>) -> Vec<Flow> {
        let with_consumer = |flow: &Flow| {
            let renamed = rows
                .iter()
                .find(|(name, row)| **name != flow.name && row.consumer(name) == flow.name);
            Flow {
                name: renamed.map_or(&flow.name, |(name, _)| name).clone(),
                ..flow.clone()
            }
        };
        let refused = self.refused.iter().map(with_consumer);
        self.active.iter().flatten().cloned().chain(refused).collect()
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

    /// What activating a scenario with these wires would do to wires; those that are paused go on where they were, or begin anew.
    pub(super) async fn rehearse(&self, bus: &Bus, flows: &[Flow], resumes: bool) -> Result<Vec<WireChange>, String> {
        let infos = infos(&self.stream(bus).await?).await?;
        let mut rows = self.registry.wires().map_err(text)?;
        rows.retain(|_, row| resumes || !row.is_paused);
        let names: BTreeMap<&String, &String> = flows.iter().map(|flow| (&flow.name, &flow.description)).collect();
        let waiting = |name: &String| {
            let info = infos.get(rows.get(name)?.consumer(name))?;
            Some(info.num_pending + info.num_ack_pending as u64)
        };
        let change = |(name, change): (String, Rewiring)| {
            let of_row = || rows.get(&name).map(|row| &row.description);
            WireChange {
                wire: names.get(&name).copied().or_else(of_row).cloned().unwrap_or_default(),
                waiting: match &change {
                    Rewiring::Begins => Some(0),
                    Rewiring::Resumes => None,
                    Rewiring::TakesOver { wire, .. } => waiting(wire),
                    Rewiring::Pauses | Rewiring::Ends => waiting(&name),
                },
                change,
            }
        };
        let changes = rewirings(flows, &rows).into_iter();
        Ok(changes
            .filter(|(_, change)| *change != Rewiring::Ends)
            .map(change)
            .collect())
    }

    /// Makes those that are not there, unless another scenario than that of this hash is active; of all wires of a scenario, they take
    /// over from those that leave.
    /// Whether wires changed.
    pub(super) async fn ensure(&self, bus: &Bus, hash: &str, flows: &[Flow], is_all: bool) -> Result<bool, String> {
        let mut made = self.made.lock().await;
        if flows.iter().all(|flow| made.contains(&flow.name)) {
            return Ok(false);
        }
        let active = self.registry.active_scenario().map_err(text)?;
        if active.is_none_or(|active| active.hash != hash) {
            return Err("another scenario is active by now".to_owned());
        }
        made.clear();
        let mut turn = self.turn(bus, flows).await?;
        for change in turn.all.values_mut() {
            if !is_all && matches!(change, Rewiring::TakesOver { .. }) {
                *change = Rewiring::Begins;
            }
        }
        // What is in force no more is found out by looking.
        turn.all
            .retain(|_, change| !matches!(change, Rewiring::Pauses | Rewiring::Ends));
        let is_changed = !turn.all.is_empty();
        *made = turn.carry_out(&self.registry).await?;
        Ok(is_changed)
    }

    /// Looks which are there, makes those that are not, and pauses the wires that are in force no more.
    /// Whether wires changed.
    async fn look_after(&self, bus: &Bus, made: &mut BTreeSet<String>, wires: &WiresInForce) -> Result<bool, String> {
        made.clear();
        let rows = self.registry.wires().map_err(text)?;
        let flows = wires.flows(&rows);
        let mut turn = self.turn(bus, &flows).await?;
        turn.ends_unknown = wires.active.is_some() && wires.unsettled.is_empty() && wires.unreadable.is_empty();
        turn.keep(|name, row| wires.keeps(name, row));
        let is_changed = !turn.all.is_empty();
        *made = turn.carry_out(&self.registry).await?;
        Ok(is_changed)
    }

    async fn turn<'a>(&self, bus: &Bus, flows: &'a [Flow]) -> Result<Turn<'a>, String> {
        let stream = self.stream(bus).await?;
        let rows = self.registry.wires().map_err(text)?;
        Ok(Turn {
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

/// A turn of wires, and what is known when it is made.
struct Turn<'a> {
    stream: Stream,
    /// By consumer.
    infos: BTreeMap<String, Info>,
    /// By wire.
    rows: BTreeMap<String, WireRow>,
    flows: &'a [Flow],
    all: BTreeMap<String, Rewiring>,
    /// Whether consumers of no known wire go.
    ends_unknown: bool,
}

impl Turn<'_> {
    /// These wires do not leave, unless another one takes over.
    fn keep(&mut self, is_kept: impl Fn(&str, &WireRow) -> bool) {
        let taken_over = self.all.values().filter_map(|change| match change {
            Rewiring::TakesOver { wire, .. } => Some(wire.clone()),
            _ => None,
        });
        let taken_over: BTreeSet<String> = taken_over.collect();
        let rows = &self.rows;
        self.all.retain(|name, change| {
            let leaves = matches!(change, Rewiring::Pauses | Rewiring::Ends) && !taken_over.contains(name);
            !leaves || !rows.get(name).is_some_and(|row| is_kept(name, row))
        });
    }

    /// Writes it down, ends the consumers of wires that are paused, and makes those that are not there. Returns the wires whose consumers
    /// are there then.
    async fn carry_out(self, registry: &Arc<Registry>) -> Result<BTreeSet<String>, String> {
        let rows = self.new_rows();
        let before = self.rows.clone();
        let put = move |change: &Change<'_>| {
            for (name, row) in rows.iter().filter(|(name, row)| before.get(*name) != Some(row)) {
                change.put_wire(name, row)?;
            }
            let gone = before.keys().filter(|name| !rows.contains_key(*name));
            gone.into_iter().try_for_each(|name| change.forget_wire(name))?;
            Ok::<_, RegistryError>(rows)
        };
        let rows = registry.commit(put).await.map_err(text)?;
        for (name, change) in &self.all {
            let (wire, sequence) = rows
                .get(name)
                .map_or(("", 0), |row| (row.description.as_str(), row.sequence));
            tracing::info!(name, wire, sequence, ?change, "a wire changes");
        }
        // A crash may have come between a note and this. What ends is forgotten the next time, when its consumer is gone.
        let ends = |name: &String, row: &WireRow| row.is_paused || self.all.get(name) == Some(&Rewiring::Ends);
        let mut gone: BTreeMap<&str, bool> = BTreeMap::new();
        for (name, row) in &rows {
            *gone.entry(row.consumer(name)).or_insert(true) &= ends(name, row);
        }
        let goes = |consumer: &&String| gone.get(consumer.as_str()).copied().unwrap_or(self.ends_unknown);
        for name in self.infos.keys().filter(goes) {
            let deleted = self.stream.delete_consumer(name).await;
            deleted.map_err(|error| format!("consumer {name}: {error}"))?;
        }
        let (mut live, mut lacking) = (BTreeSet::new(), Vec::new());
        for (name, row) in rows.iter().filter(|(name, row)| !ends(name, row)) {
            if !self.infos.contains_key(row.consumer(name)) {
                // Of an older program, which did not say what it is for, or at its end.
                if row.filter.is_empty() || row.ends {
                    continue;
                }
                lacking.push(config(name, row));
            }
            live.insert(name.clone());
        }
        let create = |config: pull::Config| {
            let (stream, wire) = (self.stream.clone(), config.description.clone().unwrap_or_default());
            async move {
                let created = stream.create_consumer(config).await;
                created
                    .map(drop)
                    .map_err(|error| format!("consumer of {wire}: {error}"))
            }
        };
        let creations = futures::stream::iter(lacking.into_iter().map(create));
        creations.buffer_unordered(CREATED_AT_ONCE).try_collect::<()>().await?;
        Ok(live)
    }

    /// The wires as they are then.
    fn new_rows(&self) -> BTreeMap<String, WireRow> {
        let state = self.stream.cached_info();
        let (life, next) = (
            WireRow::life(state.created.unix_timestamp_nanos()),
            state.state.last_sequence + 1,
        );
        let mut rows = self.rows.clone();
        for (name, change) in &self.all {
            let mut row = rows.remove(name).unwrap_or_default();
            match change {
                Rewiring::Ends if self.infos.contains_key(row.consumer(name)) => {}
                Rewiring::Ends => continue,
                Rewiring::Begins if !self.has_unknown(name) => row.sequence = next,
                Rewiring::Begins | Rewiring::Resumes | Rewiring::Pauses => {
                    row.sequence = self.next_sequence(name, (life, next));
                    row.is_paused = *change == Rewiring::Pauses;
                }
                Rewiring::TakesOver { wire, .. } => {
                    row.sequence = self.next_sequence(wire, (life, next));
                    row.consumer = self.taken_over(name, wire, &mut rows);
                }
            }
            row.stream = life;
            rows.insert(name.clone(), row);
        }
        for flow in self.flows {
            let free = self.free_consumer(flow, &rows);
            let row = rows.entry(flow.name.clone()).or_default();
            row.consumer = row.consumer.take().or(free);
            row.ends = false;
            row.rack = Some(flow.rack.clone());
            row.filter.clone_from(&flow.filter);
            row.description.clone_from(&flow.description);
        }
        for row in rows.values_mut().filter(|row| !row.is_paused && row.stream != life) {
            // Another stream, which has messages from its first one on.
            (row.stream, row.sequence) = (life, 1);
        }
        if self.ends_unknown {
            self.pause_unknown(&mut rows, life);
        }
        forget_oldest(&mut rows, life);
        rows
    }

    /// The consumer of a wire that takes over from another one: that one's if it is of the same Rack, and else one of its own.
    fn taken_over(&self, name: &str, from: &str, rows: &mut BTreeMap<String, WireRow>) -> Option<String> {
        let rack = self.flows.iter().find(|flow| flow.name == name).map(|flow| &flow.rack);
        let before = rows.get_mut(from)?;
        if before.rack.as_ref() == rack {
            let consumer = before.consumer(from).to_owned();
            rows.remove(from);
            return Some(consumer).filter(|consumer| consumer != name);
        }
        before.ends = true;
        None
    }

    /// Whether there is a consumer of this name, of no known wire.
    fn has_unknown(&self, name: &str) -> bool {
        let is_known = |(wire, row): (&String, &WireRow)| row.consumer(wire) == name;
        self.infos.contains_key(name) && !self.rows.iter().any(is_known)
    }

    /// Another name for the consumer of a wire that begins, or takes over, where its own is in use.
    fn free_consumer(&self, flow: &Flow, rows: &BTreeMap<String, WireRow>) -> Option<String> {
        let is_in_use = |consumer: &str| {
            let has_it = |(name, row): (&String, &WireRow)| *name != flow.name && row.consumer(name) == consumer;
            rows.iter().any(has_it)
        };
        let is_taken = match self.all.get(&flow.name)? {
            Rewiring::Begins => is_in_use(&flow.name),
            Rewiring::TakesOver { .. } if rows.get(&flow.name)?.consumer.is_some() => false,
            // One that is left of another time stands elsewhere.
            Rewiring::TakesOver { wire, .. } => {
                let goes_on = self.rows.get(wire).is_some_and(|row| row.consumer(wire) == flow.name);
                is_in_use(&flow.name) || (self.infos.contains_key(&flow.name) && !goes_on)
            }
            Rewiring::Resumes | Rewiring::Pauses | Rewiring::Ends => false,
        };
        let names = (2..u32::MAX).map(|number| format!("{}-{number}", flow.name));
        let mut free = names.filter(|name| !is_in_use(name) && !self.infos.contains_key(name));
        is_taken.then(|| free.next())?
    }

    /// Consumers of no known wire, as after a registry of an older day was put back: where they are is kept.
    fn pause_unknown(&self, rows: &mut BTreeMap<String, WireRow>, life: i64) {
        let known: BTreeSet<String> = rows.iter().map(|(name, row)| row.consumer(name).to_owned()).collect();
        for (name, info) in &self.infos {
            if known.contains(name) || rows.contains_key(name) {
                continue;
            }
            let row = WireRow {
                stream: life,
                sequence: info.ack_floor.stream_sequence + 1,
                filter: info.config.filter_subject.clone(),
                description: info.config.description.clone().unwrap_or_default(),
                is_paused: true,
                ..WireRow::default()
            };
            rows.insert(name.clone(), row);
        }
    }

    /// The first message that a wire has not taken, as far as the bus or the registry know.
    fn next_sequence(&self, name: &str, (life, next): (i64, u64)) -> u64 {
        let row = self.rows.get(name);
        let of_row = row.filter(|row| row.stream == life).map_or(1, |row| row.sequence);
        let consumer = row.map_or(name, |row| row.consumer(name));
        let of_consumer = self
            .infos
            .get(consumer)
            .map_or(1, |info| info.ack_floor.stream_sequence + 1);
        of_row.max(of_consumer).min(next)
    }
}

/// Keeps the paused wires bounded.
fn forget_oldest(rows: &mut BTreeMap<String, WireRow>, life: i64) {
    let paused = rows.iter().filter(|(_, row)| row.is_paused);
    let mut paused: Vec<_> = paused
        .map(|(name, row)| ((row.stream == life, row.sequence), name.clone()))
        .collect();
    paused.sort_unstable();
    for (_, name) in paused.iter().rev().skip(MOST_PAUSED) {
        rows.remove(name);
    }
}

/// The wires' consumers that exist.
async fn infos(stream: &Stream) -> Result<BTreeMap<String, Info>, String> {
    let infos: Vec<Info> = stream
        .consumers()
        .try_collect()
        .await
        .map_err(|error| format!("consumers: {error}"))?;
    let ours = infos.into_iter().filter(|info| info.name.starts_with(WIRE));
    Ok(ours.map(|info| (info.name.clone(), info)).collect())
}

/// The same, after their limits were brought in line with ours.
async fn there(stream: &Stream) -> Result<BTreeMap<String, Info>, String> {
    let mut found = infos(stream).await?;
    for (name, info) in &found {
        let mut config = info.config.clone();
        if config.ack_policy != AckPolicy::All {
            // Somebody else's, or an older program's: it cannot be changed. Another one is made from where the wire began.
            let deleted = stream.delete_consumer(name).await;
            deleted.map_err(|error| format!("consumer {name}: {error}"))?;
        } else if (config.max_ack_pending, config.ack_wait) != (AT_ONCE, ACK_WAIT) {
            (config.max_ack_pending, config.ack_wait) = (AT_ONCE, ACK_WAIT);
            let corrected = stream.update_consumer(config).await;
            corrected.map_err(|error| format!("consumer {name}: {error}"))?;
        }
    }
    found.retain(|_, info| info.config.ack_policy == AckPolicy::All);
    Ok(found)
}

fn config(name: &str, row: &WireRow) -> pull::Config {
    pull::Config {
        durable_name: Some(row.consumer(name).to_owned()),
        description: Some(row.description.clone()),
        filter_subject: row.filter.clone(),
        deliver_policy: DeliverPolicy::ByStartSequence {
            start_sequence: row.sequence,
        },
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
        let settled = async {
            parts.consumers.changed.notified().await;
            tokio::time::sleep(SETTLING).await;
        };
        tokio::select! {
            goes_on = reconnects.next(&stop) => if !goes_on {
                return;
            },
            () = settled => if !is_connected() {
                continue;
            },
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
    let mut made = parts.consumers.made.lock().await;
    let parts_of = Arc::clone(parts);
    let read = tokio::task::spawn_blocking(move || parts_of.wires_in_force()).await;
    let wires = read.map_err(text)?.map_err(text)?;
    let is_changed = parts.consumers.look_after(&parts.bus, &mut made, &wires).await?;
    drop(made);
    if is_changed {
        // Rights follow what is in force.
        parts.passes.refresh().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use async_nats::jetstream::consumer::PullConsumer;

    use super::super::part;
    use super::*;
    use crate::bus_server::BusServer;
    use crate::registry::ActiveScenario;
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

    /// As a push does, of a scenario with these wires.
    async fn ensure(consumers: &Consumers, bus: &Bus, flows: &[Flow]) {
        let active = ActiveScenario {
            reference: "plant:1".to_owned(),
            hash: "h".to_owned(),
            activated: model::Timestamp::from_micros(1),
        };
        let activate = move |change: &Change<'_>| change.activate(&active);
        consumers.registry.commit(activate).await.unwrap();
        consumers.ensure(bus, "h", flows, true).await.unwrap();
    }

    async fn look(consumers: &Consumers, bus: &Bus, wires: &WiresInForce) {
        let mut made = consumers.made.lock().await;
        consumers.look_after(bus, &mut made, wires).await.unwrap();
    }

    fn only(active: &[Flow]) -> WiresInForce {
        WiresInForce {
            active: Some(active.to_vec()),
            ..WiresInForce::default()
        }
    }

    async fn pending(stream: &Stream, flow: &Flow) -> u64 {
        let consumer: PullConsumer = stream.get_consumer(&flow.name).await.unwrap();
        consumer.cached_info().num_pending
    }

    #[tokio::test]
    async fn a_lost_consumer_of_a_wire_in_force_is_made_anew_and_a_lost_one_of_none_is_not() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let all = ["active", "refused", "gone"].map(flow);
        ensure(&consumers, bus, &all).await;
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        for flow in &all {
            stream.delete_consumer(&flow.name).await.unwrap();
            publish(bus, 1).await;
        }
        let [active, refused, gone] = all;
        let wires = WiresInForce {
            active: Some(vec![active.clone()]),
            refused: vec![refused.clone()],
            ..WiresInForce::default()
        };
        look(&consumers, bus, &wires).await;
        let mut made = [active.name.clone(), refused.name.clone()];
        made.sort();
        assert_eq!(names(&stream).await, made);
        let is_paused = |flow: &Flow| registry.wire(&flow.name).unwrap().unwrap().is_paused;
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
        ensure(&consumers, bus, &all).await;
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let mut wires = WiresInForce {
            active: Some(Vec::new()),
            unreadable: ["unreadable".parse().unwrap()].into(),
            unsettled: [all[1].name.clone()].into(),
            ..WiresInForce::default()
        };
        // A lost one that stays is made anew as well.
        stream.delete_consumer(&all[1].name).await.unwrap();
        look(&consumers, bus, &wires).await;
        let mut stay = [all[0].name.clone(), all[1].name.clone()];
        stay.sort();
        assert_eq!(names(&stream).await, stay);
        wires.active = None;
        wires.unsettled.clear();
        look(&consumers, bus, &wires).await;
        assert_eq!(names(&stream).await, stay, "the active scenario cannot be read");
        server.close().await;
    }

    #[tokio::test]
    async fn a_moved_wire_takes_over_and_one_that_was_paused_goes_on_where_it_was() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let (before, moved) = (flow("before"), flow("moved"));
        ensure(&consumers, bus, std::slice::from_ref(&before)).await;
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        publish(bus, 3).await;
        let consumer: PullConsumer = stream.get_consumer(&before.name).await.unwrap();
        let mut taken = consumer.fetch().max_messages(1).messages().await.unwrap();
        taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
        let said = consumers
            .rehearse(bus, std::slice::from_ref(&moved), true)
            .await
            .unwrap();
        let said: Vec<_> = said
            .iter()
            .map(|change| serde_json::to_value(change).unwrap())
            .collect();
        let wire = |to: &str| format!("flux.msg.rack-a.gen.out -> {to}.sink.in");
        let takes_over =
            serde_json::json!({ "wire": wire("moved"), "change": "takes_over", "from": wire("before"), "waiting": 2 });
        assert_eq!(said, [takes_over]);
        for (flow, waiting) in [(&moved, 2), (&before, 2)] {
            look(&consumers, bus, &only(std::slice::from_ref(flow))).await;
            let rows = || registry.wires().unwrap().into_keys().collect::<BTreeSet<_>>();
            assert_eq!(rows().len(), 2, "the other one is known until its consumer is gone");
            assert_eq!(names(&stream).await, std::slice::from_ref(&flow.name));
            assert_eq!(pending(&stream, flow).await, waiting);
            look(&consumers, bus, &only(std::slice::from_ref(flow))).await;
            assert_eq!(rows(), [flow.name.clone()].into());
        }
        look(&consumers, bus, &only(&[])).await;
        assert!(names(&stream).await.is_empty());
        publish(bus, 2).await;
        ensure(&consumers, bus, std::slice::from_ref(&before)).await;
        assert_eq!(pending(&stream, &before).await, 4);
        server.close().await;
    }

    #[tokio::test]
    async fn a_consumer_with_other_limits_is_updated_and_keeps_its_ack_floor() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let flow = flow("rack-b");
        let row = WireRow {
            sequence: 1,
            filter: flow.filter.clone(),
            ..WireRow::default()
        };
        let before = pull::Config {
            max_ack_pending: 512,
            ..config(&flow.name, &row)
        };
        let mut before = stream.create_consumer(before).await.unwrap();
        for _ in 0..2 {
            let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
            sent.unwrap().await.unwrap();
        }
        let mut taken = before.fetch().max_messages(1).messages().await.unwrap();
        taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
        let consumers = Consumers::new("flux-msg".to_owned(), registry);
        ensure(&consumers, bus, &[flow]).await;
        let after = before.info().await.unwrap();
        assert_eq!(
            (after.config.max_ack_pending, after.ack_floor.stream_sequence),
            (AT_ONCE, 1)
        );
        assert_eq!(after.num_pending, 1);
        server.close().await;
    }
}
