//! The durable consumers of a scenario's wires.
//!
//! # Invariants
//!
//! - A consumer is there before any Rack is told of its wire, so no message is sent before somebody is known to wait for it.
//! - A wire is in force if the active scenario has it, or what a Rack runs that refused the active one. It stays in force as long as a
//!   Rack that is there runs a scenario with it, however long others are away.
//! - A wire that is in force no more is paused: where it goes on is written down before its consumer goes. What becomes of wires is
//!   said in [`super::wire_transition`], and done in [`super::reconcile`]. One that takes over from another one of its Rack goes on with that
//!   one's consumer, so the Rack's notes of what it has taken hold.
//! - A consumer that exists is left as it is but for its limits, and unless a Rack has left the name that its wire is for
//!   ([`super::consumer_renewal`]): it knows what its Rack has.
//! - One that was lost is made anew from where its wire began (the registry knows): its Rack passes over what it has taken by the
//!   numbers of the messages. Until then nothing that it wants leaves the stream ([`super::stream_trimmer`]).
//! - Who changes wires holds the lock from before the active scenario is read: an older one never comes after a newer one.
//! - At the start, after every reconnect, when a Rack has another scenario or goes or comes back, and every [`LOOK`] they are looked for
//!   again: the bus may have lost its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use chassis::bus::BusState;
use model::Token;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::assignment::GuaranteedWire;
use super::reconcile::{ConsumerReconciliation, corrected_infos, infos};
use super::rollout::RolloutParts;
use super::text;
use super::wire_transition::{WireTransition, rewirings};
use crate::bus_server::{MixerBus, ReconnectWatcher};
use crate::registry::{ClusterRegistry, WireRow};

/// How often all are looked for.
const LOOK: Duration = Duration::from_secs(60);
/// After an answer of a Rack they are looked for so much later: others answer, too.
const SETTLING: Duration = Duration::from_secs(1);
/// The pause before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct WireConsumerManager {
    stream: String,
    pub(super) registry: Arc<ClusterRegistry>,
    /// The wires whose consumers are there.
    made: Mutex<BTreeSet<String>>,
    complete: CompleteScenario,
    changed: Notify,
}

/// The hash of the scenario whose consumers, of all Racks that were known at its first push, are there. A Rack that comes later brings
/// its own. Once another scenario is active the wires change: the former one begins anew, and takes over, when it is active again.
#[derive(Debug, Default)]
struct CompleteScenario(std::sync::Mutex<String>);

impl CompleteScenario {
    fn follow(&self, active: &str) {
        let mut complete = self.lock();
        if *complete != active {
            complete.clear();
        }
    }

    fn is(&self, hash: &str) -> bool {
        *self.lock() == hash
    }

    fn set(&self, hash: &str) {
        hash.clone_into(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is in force.
#[derive(Debug, Default)]
pub(super) struct EffectiveWires {
    /// Of the active scenario; none if that cannot be read, and then all stay as they are.
    pub(super) active: Option<Vec<GuaranteedWire>>,
    /// Of Racks that refused the active scenario: what they run.
    pub(super) refused: Vec<GuaranteedWire>,
    /// Of Racks that have not answered so far: as they are, while they are.
    pub(super) unsettled: BTreeSet<String>,
    /// Racks that run what cannot be read: their wires are as they are.
    pub(super) unreadable: BTreeSet<Token>,
}

impl EffectiveWires {
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
    fn flows(&self, rows: &BTreeMap<String, WireRow>) -> Vec<GuaranteedWire> {
        let with_consumer = |flow: &GuaranteedWire| {
            let renamed = rows
                .iter()
                .find(|(name, row)| **name != flow.name && row.consumer(name) == flow.name);
            GuaranteedWire {
                name: renamed.map_or(&flow.name, |(name, _)| name).clone(),
                ..flow.clone()
            }
        };
        let refused = self.refused.iter().map(with_consumer);
        self.active.iter().flatten().cloned().chain(refused).collect()
    }
}

/// What becomes of a wire when another scenario is activated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WireChange {
    /// The wire, from its subject to its gear.
    pub wire: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub change: WireTransition,
    /// The bus messages, each of one message or more, that wait for it, or for the one that it takes over from. Of one that resumes,
    /// not known.
    pub waiting: Option<u64>,
}

impl WireConsumerManager {
    /// Those on the stream of business messages.
    pub(crate) fn new(stream: String, registry: Arc<ClusterRegistry>) -> Self {
        Self {
            stream,
            registry,
            made: Mutex::default(),
            complete: CompleteScenario::default(),
            changed: Notify::new(),
        }
    }

    /// A Rack has answered, or another scenario is active: wires may be in force no more.
    pub(super) fn request_reconcile(&self) {
        self.changed.notify_one();
    }

    /// What activating a scenario with these wires would do to wires; those that are paused go on where they were, or begin anew.
    pub(super) async fn rehearse(
        &self,
        bus: &MixerBus,
        flows: &[GuaranteedWire],
        resumes: bool,
    ) -> Result<Vec<WireChange>, String> {
        let infos = infos(&self.stream(bus).await?).await?;
        let mut rows = self.registry.wires().map_err(text)?;
        rows.retain(|_, row| resumes || !row.is_paused);
        let names: BTreeMap<&String, &String> = flows.iter().map(|flow| (&flow.name, &flow.description)).collect();
        let waiting = |name: &String| {
            let info = infos.get(rows.get(name)?.consumer(name))?;
            Some(info.num_pending + info.num_ack_pending as u64)
        };
        let change = |(name, change): (String, WireTransition)| {
            let of_row = || rows.get(&name).map(|row| &row.description);
            WireChange {
                wire: names.get(&name).copied().or_else(of_row).cloned().unwrap_or_default(),
                waiting: match &change {
                    WireTransition::Begins => Some(0),
                    WireTransition::Resumes => None,
                    WireTransition::TakesOver { wire, .. } => waiting(wire),
                    WireTransition::Pauses | WireTransition::Ends => waiting(&name),
                },
                change,
            }
        };
        let changes = rewirings(flows, &rows).into_iter();
        Ok(changes
            .filter(|(_, change)| *change != WireTransition::Ends)
            .map(change)
            .collect())
    }

    /// A scenario was found to be active.
    pub(super) fn follow(&self, hash: &str) {
        self.complete.follow(hash);
    }

    /// Whether those of all wires of a scenario are there.
    pub(super) fn are_complete(&self, hash: &str) -> bool {
        self.complete.is(hash)
    }

    /// Makes those that are not there, unless another scenario than that of this hash is active; of all wires of a scenario, they take
    /// over from those that leave.
    pub(super) async fn ensure(
        &self,
        bus: &MixerBus,
        hash: &str,
        flows: &[GuaranteedWire],
        is_all: bool,
    ) -> Result<(), String> {
        self.make_missing(bus, hash, flows, is_all).await?;
        if is_all {
            self.complete.set(hash);
        }
        Ok(())
    }

    async fn make_missing(
        &self,
        bus: &MixerBus,
        hash: &str,
        flows: &[GuaranteedWire],
        is_all: bool,
    ) -> Result<(), String> {
        let mut made = self.made.lock().await;
        if flows.iter().all(|flow| made.contains(&flow.name)) {
            return Ok(());
        }
        let active = self.registry.active_scenario().map_err(text)?;
        if active.is_none_or(|active| active.hash != hash) {
            return Err("another scenario is active by now".to_owned());
        }
        made.clear();
        let mut change = self.reconciliation(bus, flows).await?;
        for change_of in change.all.values_mut() {
            if !is_all && matches!(change_of, WireTransition::TakesOver { .. }) {
                *change_of = WireTransition::Begins;
            }
        }
        // What is in force no more is found out by looking.
        change.keep(|_, _| true);
        *made = change.carry_out(&self.registry).await?;
        Ok(())
    }

    /// Looks which are there, makes those that are not, and pauses the wires that are in force no more. Returns whether wires
    /// changed.
    async fn reconcile(
        &self,
        bus: &MixerBus,
        made: &mut BTreeSet<String>,
        wires: &EffectiveWires,
    ) -> Result<bool, String> {
        made.clear();
        let rows = self.registry.wires().map_err(text)?;
        let flows = wires.flows(&rows);
        let mut change = self.reconciliation(bus, &flows).await?;
        change.ends_unknown = wires.active.is_some() && wires.unsettled.is_empty() && wires.unreadable.is_empty();
        change.keep(|name, row| wires.keeps(name, row));
        let is_changed = !change.all.is_empty();
        *made = change.carry_out(&self.registry).await?;
        Ok(is_changed)
    }

    async fn reconciliation<'a>(
        &self,
        bus: &MixerBus,
        flows: &'a [GuaranteedWire],
    ) -> Result<ConsumerReconciliation<'a>, String> {
        let stream = self.stream(bus).await?;
        let rows = self.registry.wires().map_err(text)?;
        Ok(ConsumerReconciliation {
            infos: corrected_infos(&stream).await?,
            all: rewirings(flows, &rows),
            stream,
            flows,
            rows,
            ends_unknown: false,
        })
    }

    pub(super) async fn stream(&self, bus: &MixerBus) -> Result<Stream, String> {
        let stream = bus.jetstream().get_stream(&self.stream).await;
        stream.map_err(|error| format!("stream {}: {error}", self.stream))
    }
}

/// Looks after the wires in force until stopped.
pub(crate) async fn keep(parts: Arc<RolloutParts>, stop: CancellationToken) {
    let mut reconnects = ReconnectWatcher::unsettled(&parts.bus);
    let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_owed = false;
    loop {
        let is_connected = || *parts.bus.state().borrow() == BusState::Connected;
        let settled = async {
            parts.consumers.changed.notified().await;
            tokio::time::sleep(SETTLING).await;
        };
        let again = async {
            match is_owed {
                true => tokio::time::sleep(AGAIN).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            goes_on = reconnects.next(&stop) => if !goes_on {
                return;
            },
            () = again => if !is_connected() {
                continue;
            },
            () = settled => if !is_connected() {
                continue;
            },
            _ = look.tick() => if !is_connected() {
                continue;
            },
        }
        let done = reconcile_wires(&parts).await;
        is_owed = done != Ok(true);
        match done {
            Ok(_) => reconnects.settle(),
            Err(reason) => tracing::warn!(%reason, "the wires of the scenario have no consumers yet; retrying"),
        }
    }
}

/// False if a consumer is to be made anew still.
async fn reconcile_wires(parts: &Arc<RolloutParts>) -> Result<bool, String> {
    let left = parts.left_wires().await?;
    let mut made = parts.consumers.made.lock().await;
    let parts_of = Arc::clone(parts);
    let read = tokio::task::spawn_blocking(move || parts_of.wires_in_force()).await;
    let wires = read.map_err(text)?.map_err(text)?;
    let is_changed = parts.consumers.reconcile(&parts.bus, &mut made, &wires).await?;
    let renewed = match left {
        Some(left) => parts.consumers.renew(&parts.bus, left).await,
        None => Ok(false),
    };
    if renewed != Ok(true) {
        // One may be gone and not there again.
        made.clear();
    }
    drop(made);
    if is_changed {
        // Rights follow what is in force.
        parts.acl.refresh().await;
    }
    renewed
}

#[cfg(test)]
mod tests;
