//! Reconciles the consumers of wires with a scenario's: what becomes of each is written down first, then done.
//!
//! # Invariants
//!
//! - Where a wire goes on is in the registry before its consumer goes, and a consumer's wire before it is made: whatever a crash leaves
//!   undone is done by the next one.
//! - No consumer is of two wires, and none goes that a wire in force has.
//!
//! # Not here
//!
//! Which wires are in force, and when ([`super::wire_consumers`]); what becomes of them ([`super::wire_transition`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, pull};
use async_nats::jetstream::stream::Stream;
use futures::{StreamExt as _, TryStreamExt as _};

use super::assignment::{GuaranteedWire, WIRE};
use super::text;
use super::wire_transition::WireTransition;
use crate::registry::{ClusterRegistry, RegistryError, RegistryTransaction, WireRow};

/// Messages of a wire that may be delivered and not acknowledged: more than an inlet takes.
pub(super) const AT_ONCE: i64 = 8192;
/// How long the bus waits before it delivers a message again by itself. An inlet resets its consumer when it begins, and never waits for
/// that.
pub(super) const ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// So many consumers are made at once.
const CREATED_AT_ONCE: usize = 16;
/// The most wires that are paused; beyond, those that stand furthest back are forgotten.
const MOST_PAUSED: usize = 4096;

/// See the module.
pub(super) struct ConsumerReconciliation<'a> {
    pub(super) stream: Stream,
    /// By consumer.
    pub(super) infos: BTreeMap<String, Info>,
    /// By wire.
    pub(super) rows: BTreeMap<String, WireRow>,
    pub(super) flows: &'a [GuaranteedWire],
    pub(super) all: BTreeMap<String, WireTransition>,
    /// Whether consumers of no known wire go.
    pub(super) ends_unknown: bool,
}

impl ConsumerReconciliation<'_> {
    /// These wires do not leave, unless another one takes over.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&str, &WireRow) -> bool) {
        let taken_over = self.all.values().filter_map(|change| match change {
            WireTransition::TakesOver { wire, .. } => Some(wire.clone()),
            _ => None,
        });
        let taken_over: BTreeSet<String> = taken_over.collect();
        let rows = &self.rows;
        self.all.retain(|name, change| {
            let leaves = matches!(change, WireTransition::Pauses | WireTransition::Ends) && !taken_over.contains(name);
            !leaves || !rows.get(name).is_some_and(|row| is_kept(name, row))
        });
    }

    /// Writes it down, ends the consumers of wires that are paused, and makes those that are not there. Returns the wires whose consumers
    /// are there then.
    pub(super) async fn carry_out(self, registry: &Arc<ClusterRegistry>) -> Result<BTreeSet<String>, String> {
        let rows = self.new_rows();
        let before = self.rows.clone();
        let put = move |change: &RegistryTransaction<'_>| {
            for (name, row) in rows.iter().filter(|(name, row)| before.get(*name) != Some(row)) {
                change.put_wire(name, row, before.get(name))?;
            }
            for name in before.keys().filter(|name| !rows.contains_key(*name)) {
                let gone = change.forget_wire(name)?;
                // Who goes on with its consumer owes what it owed.
                let Some((gone, left)) = gone.and_then(|gone| gone.left.map(|left| (gone, left))) else {
                    continue;
                };
                let heir = rows
                    .iter()
                    .find(|(heir, row)| row.consumer(heir) == gone.consumer(name));
                heir.map_or(Ok(()), |(heir, _)| change.leave_wire(heir, left))?;
            }
            Ok::<_, RegistryError>(rows)
        };
        let rows = registry.commit(put).await.map_err(text)?;
        for (name, change) in &self.all {
            let (wire, sequence) = rows
                .get(name)
                .map_or(("", 0), |row| (row.description.as_str(), row.sequence));
            tracing::info!(name, wire, sequence, ?change, "changing a wire");
        }
        // A crash may have come between a note and this. What ends is forgotten the next time, when its consumer is gone.
        let ends = |name: &String, row: &WireRow| row.is_paused || self.all.get(name) == Some(&WireTransition::Ends);
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
                WireTransition::Ends if self.infos.contains_key(row.consumer(name)) => {}
                WireTransition::Ends => continue,
                WireTransition::Begins if !self.has_unknown(name) => row.sequence = next,
                WireTransition::Begins | WireTransition::Resumes | WireTransition::Pauses => {
                    row.sequence = self.next_sequence(name, (life, next));
                    row.is_paused = *change == WireTransition::Pauses;
                }
                WireTransition::TakesOver { wire, .. } => {
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
            row.to = Some(flow.to.clone());
            row.bounds = flow.bounds;
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
    fn free_consumer(&self, flow: &GuaranteedWire, rows: &BTreeMap<String, WireRow>) -> Option<String> {
        let is_in_use = |consumer: &str| {
            let has_it = |(name, row): (&String, &WireRow)| *name != flow.name && row.consumer(name) == consumer;
            rows.iter().any(has_it)
        };
        let is_taken = match self.all.get(&flow.name)? {
            WireTransition::Begins => is_in_use(&flow.name),
            WireTransition::TakesOver { .. } if rows.get(&flow.name)?.consumer.is_some() => false,
            // One that is left of another time stands elsewhere.
            WireTransition::TakesOver { wire, .. } => {
                let goes_on = self.rows.get(wire).is_some_and(|row| row.consumer(wire) == flow.name);
                is_in_use(&flow.name) || (self.infos.contains_key(&flow.name) && !goes_on)
            }
            WireTransition::Resumes | WireTransition::Pauses | WireTransition::Ends => false,
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
pub(super) async fn infos(stream: &Stream) -> Result<BTreeMap<String, Info>, String> {
    let infos: Vec<Info> = stream
        .consumers()
        .try_collect()
        .await
        .map_err(|error| format!("consumers: {error}"))?;
    let ours = infos.into_iter().filter(|info| info.name.starts_with(WIRE));
    Ok(ours.map(|info| (info.name.clone(), info)).collect())
}

/// The same, after their limits were brought in line with ours.
pub(super) async fn corrected_infos(stream: &Stream) -> Result<BTreeMap<String, Info>, String> {
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

pub(super) fn config(name: &str, row: &WireRow) -> pull::Config {
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
