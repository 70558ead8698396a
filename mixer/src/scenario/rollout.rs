//! Rollout: pushes to each Rack its assignment of the active scenario.
//!
//! ```text
//!  deliver(rack) ─▶ due in push_delay ─▶ push, at most 16 at once ─▶ Applied ─▶ liveness
//!                                              └─ could not apply: the same again only after a back-off
//! ```
//!
//! # Invariants
//!
//! - The consumers of all wires of the scenario are there before the first Rack is told of it.
//! - What is pushed is read from the registry at that moment: a late push never brings an old scenario.
//! - What a Rack is given is its part by the name and the labels that it has at that moment; that it runs by them is written down when
//!   it says so.
//! - One push per Rack at a time. A Rack that nobody hears for [`LISTENS_SOON`] asks again by its next heartbeat.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use model::control::{ConsumerBinding, RackState, ScenarioPush, ScenarioPushAnswer};
use model::scenario::Scenario;
use model::subject::RackCommand;
use model::{EntityId, Timestamp, Token, signed};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::BusAcl;
use super::assignment::{self, GuaranteedWire, RackAssignment};
use super::flow_control::FlowControl;
use super::scenario_cache::ScenarioCache;
use super::wire_consumers::{EffectiveWires, WireChange, WireConsumerManager};
use crate::bus_server::{CommandError, MixerBus};
use crate::cluster::Cluster;
use crate::command_clock::CommandClock;
use crate::liveness::LivenessTracker;
use crate::registry::{ActiveScenario, ClusterRegistry, RackRow, RegistryError, WireRow};

/// How long a Rack may take to apply a push.
const APPLY: Duration = Duration::from_secs(15);
/// The waits before a push that nobody listened to is sent again: a Rack that was just answered may have its
/// subscription on the way to the server still.
const LISTENS_SOON: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(150),
    Duration::from_millis(450),
    Duration::from_millis(1350),
];
/// Pushes at once. One whose Rack does not listen yet waits beside them.
const AT_ONCE: usize = 16;
/// Pushes that are under way or wait so.
const UNDER_WAY: usize = 1024;
const FIRST_RETRY: Duration = Duration::from_secs(15);
const LAST_RETRY: Duration = Duration::from_secs(600);
/// Wishes that may wait; a lost one is wished again by the Rack's next heartbeat.
const WISHES: usize = 4096;

/// Counts of pushes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RolloutStats {
    pub(crate) applied: u64,
    pub(crate) failed: u64,
}

#[derive(Debug, Default)]
struct RolloutCounters {
    applied: AtomicU64,
    failed: AtomicU64,
}

/// Where deliveries are asked for; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioRollout {
    wishes: mpsc::Sender<EntityId>,
    counters: Arc<RolloutCounters>,
    parts: Arc<RolloutParts>,
}

/// What the rollout works with.
#[derive(Debug)]
pub(crate) struct RolloutParts {
    pub(crate) bus: MixerBus,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) command_clock: Arc<CommandClock>,
    pub(crate) consumers: WireConsumerManager,
    pub(crate) flow_control: Arc<FlowControl>,
    pub(crate) scenarios: ScenarioCache,
    pub(crate) acl: BusAcl,
}

impl ScenarioRollout {
    /// The handle, and the deliveries for a task to run.
    pub(crate) fn new(parts: Arc<RolloutParts>, push_delay: Duration) -> (Self, RolloutWorker) {
        let (wishes, wished) = mpsc::channel(WISHES);
        let counters = Arc::new(RolloutCounters::default());
        let rollout = Self {
            wishes,
            counters: Arc::clone(&counters),
            parts: Arc::clone(&parts),
        };
        let deliveries = RolloutWorker {
            parts,
            push_delay,
            wished,
            counters,
            due: HashMap::new(),
            under_way: HashSet::new(),
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            refused: HashMap::new(),
        };
        (rollout, deliveries)
    }

    /// Lets a Rack have its part of the active scenario, after the push delay.
    pub(crate) fn deliver(&self, rack: EntityId) {
        let _ = self.wishes.try_send(rack);
    }

    /// Another scenario is active, or a Rack is offline or back: wires may no longer be in force.
    pub(crate) fn rewire(&self) {
        self.parts.consumers.request_reconcile();
    }

    /// What activating a scenario would do to wires; why that is not known, if it is not.
    pub(crate) async fn rehearse(&self, scenario: &Scenario, resumes: bool) -> Result<Vec<WireChange>, String> {
        let flows = self.parts.all_flows(scenario).map_err(|error| error.to_string())?;
        self.parts.consumers.rehearse(&self.parts.bus, &flows, resumes).await
    }

    /// The names of a scenario's wires.
    pub(crate) fn wires_of(&self, scenario: &Scenario) -> Result<Vec<String>, RegistryError> {
        let flows = self.parts.all_flows(scenario)?;
        Ok(flows.into_iter().map(|flow| flow.name).collect())
    }

    pub(crate) fn stats(&self) -> RolloutStats {
        RolloutStats {
            applied: self.counters.applied.load(Ordering::Relaxed),
            failed: self.counters.failed.load(Ordering::Relaxed),
        }
    }
}

/// The deliveries that are due and under way.
#[derive(Debug)]
pub(crate) struct RolloutWorker {
    parts: Arc<RolloutParts>,
    push_delay: Duration,
    wished: mpsc::Receiver<EntityId>,
    counters: Arc<RolloutCounters>,
    due: HashMap<EntityId, Instant>,
    under_way: HashSet<EntityId>,
    slots: Arc<Semaphore>,
    refused: HashMap<EntityId, PushBackoff>,
}

/// What decides which part a Rack is given: the scenario's content, and the Rack's name and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AssignmentKey {
    hash: String,
    name: Option<Token>,
    labels: BTreeMap<String, String>,
}

/// What a run of a Rack could not apply.
#[derive(Debug)]
struct PushBackoff {
    given: AssignmentKey,
    boot_epoch: u64,
    wait: Duration,
    again: Instant,
}

/// What became of one push.
#[derive(Debug)]
struct PushOutcome {
    rack: EntityId,
    given: AssignmentKey,
    result: Result<PushReply, PushError>,
}

impl PushOutcome {
    /// Whose push panicked: its Rack must not wait for ever.
    fn cut_off(rack: EntityId) -> Self {
        Self {
            rack,
            given: AssignmentKey::default(),
            result: Err(PushError::CutOff),
        }
    }
}

#[derive(Debug)]
enum PushReply {
    /// The Rack answered.
    Answered(ScenarioPushAnswer),
    /// There is nothing to push: not active, or nothing wanted and nothing running.
    Nothing,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PushError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the stored scenario cannot be read: {0}")]
    Stored(#[from] model::scenario::BadScenario),
    #[error("its wires have no consumers yet: {0}")]
    Consumers(String),
    #[error("the push panicked, a defect")]
    CutOff,
    #[error("its answer is not what it should be: {0}")]
    Answer(#[from] model::BadSignature),
}

impl RolloutWorker {
    /// Delivers until stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut pushes: JoinSet<PushOutcome> = JoinSet::new();
        loop {
            let room = pushes.len() < UNDER_WAY;
            let next = self.next_due();
            tokio::select! {
                () = stop.cancelled() => break,
                wish = self.wished.recv() => match wish {
                    Some(rack) => self.wish(rack),
                    None => break,
                },
                Some(done) = pushes.join_next() => match done {
                    Ok(outcome) => self.settle(outcome),
                    Err(error) => tracing::error!(%error, "a scenario push was aborted"),
                },
                () = sleep_until(next.map_or_else(Instant::now, |(at, _)| at)), if room && next.is_some() => {
                    if let Some((_, rack)) = next {
                        self.due.remove(&rack);
                        self.under_way.insert(rack);
                        let (parts, slots) = (Arc::clone(&self.parts), Arc::clone(&self.slots));
                        let push = async move { AssertUnwindSafe(parts.push(rack, &slots)).catch_unwind().await };
                        pushes.spawn(push.map(move |done| done.unwrap_or_else(|_| PushOutcome::cut_off(rack))));
                    }
                }
            }
        }
        pushes.shutdown().await;
    }

    fn next_due(&self) -> Option<(Instant, EntityId)> {
        let free = self.due.iter().filter(|(rack, _)| !self.under_way.contains(*rack));
        free.map(|(rack, at)| (*at, *rack)).min()
    }

    fn wish(&mut self, rack: EntityId) {
        let at = Instant::now() + self.push_delay;
        if let Some(refused) = self.refused.get(&rack) {
            let same = self.parts.given(&rack) == refused.given;
            let boot = self.parts.liveness.of(&rack).map_or(0, |seen| seen.boot_epoch);
            if same && boot == refused.boot_epoch && Instant::now() < refused.again {
                return;
            }
        }
        self.due.entry(rack).or_insert(at);
    }

    fn settle(&mut self, outcome: PushOutcome) {
        let PushOutcome { rack, given, result } = outcome;
        let hash = given.hash.clone();
        self.under_way.remove(&rack);
        let answered = matches!(result, Ok(PushReply::Answered(_)));
        if answered {
            self.parts.consumers.request_reconcile();
        }
        if answered && self.parts.given(&rack) == given {
            // Wished for while it was on its way, and still the same: it has it.
            self.due.remove(&rack);
        }
        match result {
            Ok(PushReply::Nothing) => {}
            Ok(PushReply::Answered(ScenarioPushAnswer { running, error: None })) => {
                tracing::info!(entity_id = %rack, %hash, "rack runs the scenario");
                self.counters.applied.fetch_add(1, Ordering::Relaxed);
                self.refused.remove(&rack);
                self.parts.liveness.record_push_reply(&rack, &hash, running, None);
            }
            Ok(PushReply::Answered(ScenarioPushAnswer {
                running,
                error: Some(error),
            })) => {
                tracing::warn!(entity_id = %rack, %hash, %error, "rack cannot run the scenario; it keeps its last good one");
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                self.parts
                    .liveness
                    .record_push_reply(&rack, &hash, running, Some(error));
                self.refuse(rack, given);
            }
            Err(error @ (PushError::Command(_) | PushError::Consumers(_))) => {
                tracing::debug!(entity_id = %rack, %error, "the scenario was not delivered; the next heartbeat asks again");
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::error!(entity_id = %rack, %error, "the scenario cannot be delivered");
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                self.refuse(rack, given);
            }
        }
    }

    fn refuse(&mut self, rack: EntityId, given: AssignmentKey) {
        let before = self.refused.get(&rack).filter(|before| before.given == given);
        let wait = before.map_or(FIRST_RETRY, |before| (before.wait * 2).min(LAST_RETRY));
        let boot_epoch = self.parts.liveness.of(&rack).map_or(0, |seen| seen.boot_epoch);
        let again = Instant::now() + wait;
        self.refused.insert(
            rack,
            PushBackoff {
                given,
                boot_epoch,
                wait,
                again,
            },
        );
    }
}

/// What is pushed, the consumers that must be there, whether these are all of the scenario, and what decided that.
type PreparedPush = (ScenarioPush, (Vec<GuaranteedWire>, bool), AssignmentKey);

impl RolloutParts {
    async fn push(&self, rack: EntityId, slots: &Semaphore) -> PushOutcome {
        // It is never closed.
        let slot = slots.acquire().await.ok();
        let issued = self.command_clock.next().await.map_err(PushError::from);
        let (given, result) = match issued.and_then(|issued| self.compose(rack, issued)) {
            Ok(None) => (AssignmentKey::default(), Ok(PushReply::Nothing)),
            Ok(Some((push, flows, given))) => {
                let result = self
                    .push_with(push, flows, (slots, slot))
                    .await
                    .map(PushReply::Answered);
                if let Ok(PushReply::Answered(ScenarioPushAnswer { error: None, .. })) = &result {
                    self.settle_labels(rack, &given).await;
                }
                (given, result)
            }
            Err(error) => (self.given(&rack), Err(error)),
        };
        PushOutcome { rack, given, result }
    }

    /// Pushes once the consumers are there, and the Rack may pull from them.
    async fn push_with(
        &self,
        mut push: ScenarioPush,
        (flows, is_all): (Vec<GuaranteedWire>, bool),
        slot: (&Semaphore, Option<SemaphorePermit<'_>>),
    ) -> Result<ScenarioPushAnswer, PushError> {
        let ready = self.consumers.ensure(&self.bus, &push.hash, &flows, is_all).await;
        ready.map_err(PushError::Consumers)?;
        if let Some(row) = self.registry.rack(&push.entity_id)? {
            let credits = self.flow_control.first_credits(&row.name).await;
            push.credits = credits.map_err(PushError::Consumers)?;
        }
        let mut has_others = false;
        for inlet in &mut push.inlets {
            if let Some(consumer) = self.registry.wire(&inlet.consumer)?.and_then(|row| row.consumer) {
                has_others = true;
                inlet.consumer = consumer;
            }
        }
        // Those of the active scenario by their own names are on the list already; whoever made these may not have renewed it so far.
        if has_others {
            self.acl.refresh().await;
        }
        self.send(&push, slot).await
    }

    /// What a Rack would be given now.
    fn given(&self, rack: &EntityId) -> AssignmentKey {
        let active = self.registry.active_scenario().ok().flatten();
        let row = self.registry.rack(rack).ok().flatten();
        AssignmentKey {
            hash: active.map(|active| active.hash).unwrap_or_default(),
            name: row.as_ref().map(|row| row.name.clone()),
            labels: row.map(|row| row.labels).unwrap_or_default(),
        }
    }

    /// The Rack runs by this name and these labels: it is owed nothing, unless it has others by now. Then these are what it works by.
    async fn settle_labels(&self, rack: EntityId, given: &AssignmentKey) {
        let is_owed = |row: &RackRow| row.relabelled.is_some();
        let row = self.registry.rack(&rack);
        if !row.is_ok_and(|row| row.as_ref().is_some_and(is_owed)) {
            return;
        }
        let given = given.clone();
        let settled = self.registry.commit(move |change| {
            let Some(mut row) = change.rack(&rack)?.filter(is_owed) else {
                return Ok(false);
            };
            let is_so = (Some(&row.name), &row.labels) == (given.name.as_ref(), &given.labels);
            let before = std::mem::replace(&mut row.relabelled, (!is_so).then_some(given.labels));
            let is_new = before != row.relabelled;
            if is_new {
                change.put_rack(&row)?;
            }
            Ok::<_, RegistryError>(is_new)
        });
        match settled.await {
            Ok(true) => self.acl.refresh().await,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(entity_id = %rack, %error, "could not record what the Rack runs; its assignment is \
                                                            sent again");
            }
        }
    }

    /// What to push, the consumers that must be there before anybody is told of the scenario, and what decided that.
    fn compose(&self, rack: EntityId, issued: Timestamp) -> Result<Option<PreparedPush>, PushError> {
        let Some(row) = self.registry.rack(&rack)?.filter(|row| row.state == RackState::Active) else {
            return Ok(None);
        };
        let empty = ScenarioPush {
            entity_id: rack,
            issued,
            reference: String::new(),
            hash: String::new(),
            gears: Vec::new(),
            wires: Vec::new(),
            inlets: Vec::new(),
            credits: Vec::new(),
        };
        let Some((active, scenario)) = self.active()? else {
            let runs = self.liveness.of(&rack).is_some_and(|seen| seen.running.is_some());
            let given = AssignmentKey {
                hash: String::new(),
                name: Some(row.name),
                labels: row.labels,
            };
            return Ok(runs.then_some((empty, (Vec::new(), false), given)));
        };
        let RackAssignment {
            gears,
            wires,
            flows: own,
        } = assignment::part(&scenario, &row.name, &row.labels);
        let flows = if self.consumers.are_complete(&active.hash) {
            (own.clone(), false)
        } else {
            (self.all_flows(&scenario)?, true)
        };
        let inlet = |flow: GuaranteedWire| ConsumerBinding {
            from: flow.from,
            to: flow.to,
            consumer: flow.name,
        };
        let push = ScenarioPush {
            reference: active.reference,
            hash: active.hash,
            gears,
            wires,
            inlets: own.into_iter().map(inlet).collect(),
            ..empty
        };
        let given = AssignmentKey {
            hash: push.hash.clone(),
            name: Some(row.name),
            labels: row.labels,
        };
        Ok(Some((push, flows, given)))
    }

    /// What is in force. Not for a thread that must not block.
    pub(super) fn wires_in_force(&self) -> Result<EffectiveWires, PushError> {
        let mut wires = EffectiveWires::default();
        let active = match self.active() {
            Ok(Some((active, scenario))) => {
                wires.active = Some(self.all_flows(&scenario)?);
                active.hash
            }
            Ok(None) => {
                wires.active = Some(Vec::new());
                String::new()
            }
            Err(PushError::Stored(_)) => return Ok(wires),
            Err(error) => return Err(error),
        };
        let mut run = BTreeSet::new();
        for row in self.registry.racks()? {
            let seen = self.liveness.of(&row.entity_id).filter(|seen| !seen.is_late());
            let Some((seen, running)) = seen.and_then(|seen| Some((seen.clone(), seen.runs(row.state)?.clone())))
            else {
                continue;
            };
            if row.state == RackState::Removed || (running == active && row.relabelled.is_none()) {
                continue;
            }
            run.insert(running.clone());
            let Some(scenario) = self.scenarios.of_registry(&self.registry, &running)? else {
                wires.unreadable.insert(row.name);
                continue;
            };
            // Until it runs by its new labels, it works by the former ones.
            let labels = row.relabelled.as_ref().unwrap_or(&row.labels);
            let flows = assignment::part(&scenario, &row.name, labels).flows;
            if seen.error.is_some() && seen.answered.as_ref() == Some(&active) {
                wires.refused.extend(flows);
            } else {
                wires.unsettled.extend(flows.into_iter().map(|flow| flow.name));
            }
        }
        run.insert(active);
        self.scenarios.retain(&run);
        Ok(wires)
    }

    /// The wires that Racks have left, and when they did; none before the server follows the list without these Racks' rights.
    pub(super) async fn left_wires(&self) -> Result<Option<BTreeMap<String, Timestamp>>, String> {
        let wires = self.registry.read(ClusterRegistry::wires).await;
        let wires = wires.map_err(|error: RegistryError| error.to_string())?;
        // The consumers of others could not be made again: they end soon, or are an older program's.
        let can_renew = |row: &WireRow| self.acl.is_enforced() && !row.ends && !row.filter.is_empty();
        let left = wires.into_iter().filter(|(_, row)| can_renew(row));
        let left: BTreeMap<_, _> = left.filter_map(|(name, row)| Some((name, row.left?))).collect();
        let is_followed = left.is_empty() || self.acl.apply().await && self.bus.status().access_issue.is_none();
        Ok(is_followed.then_some(left))
    }

    /// The active scenario, and its content.
    fn active(&self) -> Result<Option<(ActiveScenario, Arc<Scenario>)>, PushError> {
        let Some((active, stored)) = self.registry.active_content()? else {
            return Ok(None);
        };
        self.consumers.follow(&active.hash);
        let scenario = self.scenarios.parsed(&active.hash, &stored.text)?;
        Ok(Some((active, scenario)))
    }

    /// The flows of every Rack that the scenario names or the registry knows.
    fn all_flows(&self, scenario: &Scenario) -> Result<Vec<GuaranteedWire>, RegistryError> {
        let racks = self.registry.racks()?;
        let known = racks.iter().filter(|row| row.state != RackState::Removed);
        Ok(assignment::flows(scenario, known.map(|row| (&row.name, &row.labels))))
    }

    async fn send<'s>(
        &self,
        push: &ScenarioPush,
        (slots, mut slot): (&'s Semaphore, Option<SemaphorePermit<'s>>),
    ) -> Result<ScenarioPushAnswer, PushError> {
        let mut waits = LISTENS_SOON.iter();
        loop {
            let command = RackCommand::Scenario;
            let sent = self
                .bus
                .command(&self.cluster, &push.entity_id, command, push, APPLY)
                .await;
            match (sent, waits.next()) {
                (Err(CommandError::NotConnected), Some(wait)) => {
                    drop(slot);
                    sleep(*wait).await;
                    slot = slots.acquire().await.ok();
                }
                (sent, _) => return Ok(signed::decode_strict(&sent?)?),
            }
        }
    }
}
