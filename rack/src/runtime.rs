//! The gear runtime: reconciles what runs on this Rack with the scenario.
//!
//! # Invariants
//!
//! - Gears that a new scenario leaves as they are (name, type, configuration, wires from them) keep running: the same task, the
//!   same socket. What feeds a gear that is replaced keeps its wire; messages wait in the inbox meanwhile, and those that waited
//!   when it was asked to stop are its successor's: it ends with the message in hand.
//! - A scenario runs whole or not at all: when a gear of it cannot start, what ran before runs again.
//! - Gears stop in the order of the wires, senders first, so that receivers drain what was sent; all of it within a bound
//!   ([`DRAIN_BOUND`]), after which the rest is cut off. A gear that takes requests stops asking first, and takes replies until the gears
//!   between have stopped. Gears in a circle stop together, before those behind it.
//! - A suspended Rack runs no gear and holds no socket.
//!
//! # Not here
//!
//! Receiving and storing scenarios (the agent), what gears do (`gears`).

mod shutdown_order;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::control::{ReplayAnswer, ReplayCommand, ReplayRejection, ScenarioPush, ScenarioPushAnswer};
use model::panic_text;
use model::{Entropy, Token};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::gears::stall_watchdog::watch;
use crate::gears::supervisor::supervise;
use crate::gears::{
    ContextParts, Gear, GearContext, GearShutdown, OutputWires, ProgramAllowList, WiredGear, forget_windows,
};
use crate::inbox::GearInbox;
use crate::message_limits::MessageLimits;
use crate::outbox::GuaranteedLane;
use crate::policy::RackPolicy;
use crate::rack_plan::{self, RackPlan, ScenarioApplyError};
use crate::replay::{self, ReplayTarget};
use crate::tap::TapRegistry;
use crate::telemetry::TelemetryRecorder;
use crate::wire_consumer::{WireConsumer, WireConsumerSpec};
use shutdown_order::{ShutdownPhase, ShutdownStep, shutdown_waves};

/// How long gears of a Rack may take to finish what they began when they are stopped.
pub const DRAIN_BOUND: Duration = Duration::from_secs(1);
/// How long a gear that answers waits for replies from gears that go on; then these drain.
const REPLIES_BOUND: Duration = Duration::from_millis(250);
/// How long a gear may take to get what it needs.
const INIT_BOUND: Duration = Duration::from_secs(5);
/// How long a gear may usually be at one message before that is logged.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the runtime is made of.
#[derive(Debug, Clone)]
pub struct RuntimeParts {
    /// Where gears record.
    pub recorder: TelemetryRecorder,
    /// Where ids come from.
    pub entropy: Entropy,
    /// What messages may be.
    pub limits: MessageLimits,
    /// What gears may run.
    pub(crate) programs: ProgramAllowList,
    /// What gears may ask of this Rack.
    pub(crate) policy: RackPolicy,
    /// The guaranteed lane; none in a Rack without a bus.
    pub(crate) lane: Option<GuaranteedLane>,
    /// The ports that can be tapped.
    pub(crate) taps: TapRegistry,
    /// How long a gear may be at one message before that is logged.
    pub(crate) patience: Duration,
    /// How long gears may take to finish what they began when they are stopped.
    pub(crate) drain: Duration,
}

/// Owns every gear of this Rack.
#[derive(Debug)]
pub struct GearRuntime {
    parts: RuntimeParts,
    plan: Option<RackPlan>,
    suspended: bool,
    gears: BTreeMap<Token, GearTask>,
    inboxes: BTreeMap<Token, GearInbox>,
    inlets: BTreeMap<String, WireConsumerTask>,
}

/// An inlet that runs.
#[derive(Debug)]
struct WireConsumerTask {
    spec: WireConsumerSpec,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for WireConsumerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A gear that runs.
#[derive(Debug)]
struct GearTask {
    spec: WiredGear,
    shutdown: GearShutdown,
    task: JoinHandle<()>,
    /// Looks at it from outside.
    watch: JoinHandle<()>,
}

impl GearTask {
    /// Tells the gear that the gear of the plan with its name takes over its inbox, if there is one that can.
    fn hand_over_inbox(&self, plan: &RackPlan) {
        let next = plan.gears.get(&self.spec.name);
        if next.is_some_and(|next| next.kind.inputs() == self.spec.kind.inputs()) {
            self.shutdown.successor.cancel();
        }
    }

    /// Tells the gear to stop, or a part of it.
    fn begin_shutdown(&self, part: ShutdownPhase) {
        match part {
            ShutdownPhase::Whole => self.shutdown.stop_all(),
            ShutdownPhase::Asking => self.shutdown.stop.cancel(),
            ShutdownPhase::Replies => self.shutdown.unfed.cancel(),
        }
    }

    /// Waits for its end, at most until then; `bound` is what all of them had. Whether it ended by itself.
    async fn join(mut self, deadline: Instant, bound: Duration) -> bool {
        let has_ended = tokio::time::timeout_at(deadline, &mut self.task).await.is_ok();
        if !has_ended {
            tracing::warn!(gear.id = %self.spec.name, "the gear did not stop within {bound:?}; aborting it");
            self.task.abort();
            // Only the end is awaited; how it ended is known.
            (&mut self.task).await.ok();
        }
        has_ended
    }
}

impl Drop for GearTask {
    fn drop(&mut self) {
        self.watch.abort();
        self.task.abort();
    }
}

/// A gear that has what it needs and waits for its task.
struct PreparedGear {
    spec: WiredGear,
    /// None where the gear shall try again by itself.
    gear: Option<Gear>,
    cx: Arc<GearContext>,
    shutdown: GearShutdown,
}

impl GearRuntime {
    /// A runtime without gears.
    #[must_use]
    pub fn start(parts: RuntimeParts) -> Self {
        Self {
            parts,
            plan: None,
            suspended: false,
            gears: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            inlets: BTreeMap::new(),
        }
    }

    /// Makes the pushed scenario the one that runs; a push without gears stops all. If it cannot run, the one before goes on
    /// and the answer says why. While suspended, the scenario is checked and kept for later.
    pub async fn apply(&mut self, push: &ScenarioPush) -> ScenarioPushAnswer {
        let error = self.change(push).await.err().map(|error| error.to_string());
        ScenarioPushAnswer {
            running: self.hash().map(str::to_owned),
            error,
        }
    }

    /// Resumes with the pushed scenario in place of the one in force. If it cannot run, the one in force does, and the answer says
    /// why.
    pub(crate) async fn resume_with(&mut self, push: &ScenarioPush) -> ScenarioPushAnswer {
        let was_suspended = std::mem::take(&mut self.suspended);
        let applied = self.apply(push).await;
        if was_suspended
            && applied.error.is_some()
            && let Some(plan) = self.plan.clone()
        {
            self.apply_destinations(&plan);
            self.restart_gears(plan.gears.values()).await;
            self.open_inlets(&plan);
        }
        applied
    }

    /// Why the pushed scenario could not even be tried, if it could not. Starts nothing.
    pub(crate) fn check(&self, push: &ScenarioPush) -> Option<String> {
        self.plan_push(push).err().map(|error| error.to_string())
    }

    /// Whether no gear runs now, whatever scenario is in force.
    pub(crate) const fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// The content hash of the scenario in force.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.plan.as_ref().map(|plan| plan.hash.as_str())
    }

    /// The `name:version` of the scenario in force.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.plan.as_ref().map(|plan| plan.reference.as_str())
    }

    /// How many gears have a task.
    #[must_use]
    pub fn running_gears(&self) -> usize {
        self.gears.values().filter(|slot| !slot.task.is_finished()).count()
    }

    /// Gives letters of the dead-letter queue back to a gear. The answer comes when the gear has taken them.
    pub(crate) fn replay(&self, replay: ReplayCommand) -> BoxFuture<'static, ReplayAnswer> {
        let Some(lane) = &self.parts.lane else {
            let not_taken = Some(ReplayRejection::Later("this Rack has no outbox".to_owned()));
            return Box::pin(async { ReplayAnswer { taken: 0, not_taken } });
        };
        let target = self.target(&replay.gear);
        Box::pin(replay::replay(Arc::clone(&lane.outbox), target, replay))
    }

    /// The gear that letters go back to.
    fn target(&self, gear: &Token) -> Result<ReplayTarget, ReplayRejection> {
        if self.suspended {
            return Err(ReplayRejection::Later("the Rack is suspended".to_owned()));
        }
        match (self.gears.get(gear), self.inboxes.get(gear)) {
            (Some(slot), Some(inbox)) => Ok(ReplayTarget {
                inbox: inbox.clone(),
                inputs: slot.spec.kind.inputs(),
                outputs: slot.spec.kind.outputs(),
            }),
            _ => Err(ReplayRejection::Never {
                number: 0,
                reason: format!("no gear {gear} that takes messages runs on the Rack"),
            }),
        }
    }

    /// Suspends (false) or resumes (true): stops every gear and gives back what it held, or starts them all again.
    pub async fn set_running(&mut self, running: bool) {
        if running != self.suspended {
            return;
        }
        self.suspended = !running;
        if self.suspended {
            self.close_inlets(|_| true).await;
            self.stop(self.gears.keys().cloned().collect()).await;
        } else if let Some(plan) = self.plan.clone() {
            self.apply_destinations(&plan);
            self.restart_gears(plan.gears.values()).await;
            self.open_inlets(&plan);
        }
    }

    /// Stops every gear, within the bound for it, and names those that were cut off.
    pub async fn close(mut self) -> Vec<Token> {
        self.close_inlets(|_| true).await;
        self.stop(self.gears.keys().cloned().collect()).await
    }

    fn plan_push(&self, push: &ScenarioPush) -> Result<RackPlan, ScenarioApplyError> {
        let rack = self.parts.lane.as_ref().and_then(|lane| lane.outbox.rack());
        let plan = rack_plan::plan(push, rack.as_ref())?;
        plan.check_policy(&self.parts.policy)?;
        if self.parts.lane.is_none() && plan.needs_lane() {
            return Err(ScenarioApplyError::NoLane);
        }
        Ok(plan)
    }

    /// Runs a plan whose gears may also send to these inboxes, which others take from.
    pub(crate) async fn apply_beside(
        &mut self,
        plan: RackPlan,
        beside: BTreeMap<Token, GearInbox>,
    ) -> Result<(), ScenarioApplyError> {
        self.inboxes.extend(beside);
        self.change_to(plan).await
    }

    /// The inboxes of its gears.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = (Token, GearInbox)> {
        self.inboxes.iter().map(|(name, inbox)| (name.clone(), inbox.clone()))
    }

    async fn change(&mut self, push: &ScenarioPush) -> Result<(), ScenarioApplyError> {
        let plan = self.plan_push(push)?;
        self.change_to(plan).await
    }

    async fn change_to(&mut self, plan: RackPlan) -> Result<(), ScenarioApplyError> {
        if !self.suspended {
            let replaced = self.replace(&plan).await;
            if replaced.is_err() {
                self.keep_taps();
            }
            replaced?;
        }
        self.close_inlets(|inlet| !plan.gears.contains_key(&inlet.gear)).await;
        self.inboxes.retain(|name, _| plan.gears.contains_key(name));
        self.forget_windows(&plan).await;
        self.plan = Some(plan);
        self.keep_taps();
        Ok(())
    }

    /// Makes the gears of the scenario in force the ones that can be tapped.
    fn keep_taps(&self) {
        let gears = self.plan.iter().flat_map(|plan| plan.gears.values());
        let outputs = gears.map(|spec| (spec.name.clone(), spec.kind.outputs()));
        self.parts.taps.keep(&outputs.collect());
    }

    /// Stops what the plan changes or leaves out, starts what is new; on failure, restores what ran.
    async fn replace(&mut self, plan: &RackPlan) -> Result<(), ScenarioApplyError> {
        let changed: BTreeSet<Token> = self
            .gears
            .values()
            .filter(|slot| plan.gears.get(&slot.spec.name) != Some(&slot.spec))
            .map(|slot| slot.spec.name.clone())
            .collect();
        let before: Vec<WiredGear> = changed
            .iter()
            .filter_map(|name| Some(self.gears.get(name)?.spec.clone()))
            .collect();
        let changing = changed.iter().filter_map(|name| self.gears.get(name));
        changing.for_each(|slot| slot.hand_over_inbox(plan));
        self.stop(changed).await;
        match self.prepare(plan).await {
            Ok(ready) => {
                self.apply_destinations(plan);
                ready.into_iter().for_each(|ready| self.spawn(ready));
                self.close_inlets(|inlet| plan.inlets.get(&inlet.consumer) != Some(inlet))
                    .await;
                self.open_inlets(plan);
                Ok(())
            }
            Err(error) => {
                self.restart_gears(before.iter()).await;
                Err(error)
            }
        }
    }

    /// Builds and initialises every gear of the plan that does not run. Nothing runs before all are ready.
    async fn prepare(&mut self, plan: &RackPlan) -> Result<Vec<PreparedGear>, ScenarioApplyError> {
        self.make_inboxes(plan.gears.values());
        let mut all = Vec::new();
        for spec in plan.gears.values().filter(|spec| !self.gears.contains_key(&spec.name)) {
            let mut ready = self.prepare_gear(spec);
            let reason = match tokio::time::timeout(INIT_BOUND, AssertUnwindSafe(ready.init()).catch_unwind()).await {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(reason))) => Some(reason),
                Ok(Err(panic)) => Some(format!("it panicked: {}", panic_text(panic.as_ref()))),
                Err(_) => Some(format!("not ready within {INIT_BOUND:?}")),
            };
            if let Some(reason) = reason {
                return Err(ScenarioApplyError::Init {
                    gear: spec.name.clone(),
                    kind: spec.kind.name(),
                    reason,
                });
            }
            all.push(ready);
        }
        Ok(all)
    }

    /// Starts gears that ran before: one that fails now tries again by itself.
    async fn restart_gears(&mut self, specs: impl Iterator<Item = &WiredGear> + Clone) {
        self.make_inboxes(specs.clone());
        for spec in specs {
            let ready = self.prepare_gear(spec);
            self.spawn(ready);
        }
    }

    /// From now on messages that leave by the outbox are for whom the plan says.
    fn apply_destinations(&self, plan: &RackPlan) {
        if let Some(lane) = &self.parts.lane {
            lane.outbox
                .set_destinations(plan.destinations.clone(), plan.consumers.clone());
            lane.outbox.set_initial_credits(&plan.credits);
        }
    }

    /// Deletes the windows of gears that the plan does not have; where the disk does not let it now, the next plan does.
    async fn forget_windows(&self, plan: &RackPlan) {
        let Some(lane) = &self.parts.lane else { return };
        let is_there = |gear: &str| {
            let mut gears = plan.gears.values();
            gears.any(|spec| spec.name.as_str() == gear && spec.kind.name() == "window")
        };
        let forget = forget_windows(&lane.outbox, is_there);
        tokio::time::timeout(self.parts.drain, forget).await.ok();
    }

    /// Starts the inlets of the plan that do not run.
    fn open_inlets(&mut self, plan: &RackPlan) {
        let Some(lane) = &self.parts.lane else { return };
        for spec in plan.inlets.values() {
            if self.inlets.contains_key(&spec.consumer) {
                continue;
            }
            let Some(inbox) = self.inboxes.get(&spec.gear).cloned() else {
                continue;
            };
            let stop = CancellationToken::new();
            let inlet = WireConsumer::new(spec.clone(), lane.clone(), inbox, stop.clone());
            let intake = WireConsumerTask {
                spec: spec.clone(),
                stop,
                task: tokio::spawn(inlet.run()),
            };
            self.inlets.insert(spec.consumer.clone(), intake);
        }
    }

    /// Ends the inlets of a kind. What they gave to a gear stays with it; the bus sends the rest again.
    async fn close_inlets(&mut self, ends: impl Fn(&WireConsumerSpec) -> bool) {
        let names: Vec<String> = self
            .inlets
            .values()
            .filter(|intake| ends(&intake.spec))
            .map(|intake| intake.spec.consumer.clone())
            .collect();
        for mut intake in names
            .iter()
            .filter_map(|name| self.inlets.remove(name))
            .collect::<Vec<_>>()
        {
            intake.stop.cancel();
            // Only its end is awaited.
            (&mut intake.task).await.ok();
        }
    }

    fn make_inboxes<'a>(&mut self, specs: impl Iterator<Item = &'a WiredGear>) {
        for spec in specs.filter(|spec| spec.takes_messages()) {
            self.inboxes.entry(spec.name.clone()).or_insert_with(GearInbox::new);
        }
    }

    fn prepare_gear(&self, spec: &WiredGear) -> PreparedGear {
        let shutdown = GearShutdown::default();
        let parts = ContextParts {
            recorder: self.parts.recorder.clone(),
            entropy: self.parts.entropy.clone(),
            limits: self.parts.limits.clone(),
            programs: self.parts.programs.clone(),
            policy: self.parts.policy.clone(),
            outlets: OutputWires::connect(spec, &self.inboxes),
            outbox: self.parts.lane.as_ref().map(|lane| Arc::clone(&lane.outbox)),
            shutdown: shutdown.clone(),
            tap: self.parts.taps.point(&spec.name, spec.kind.outputs()),
        };
        PreparedGear {
            spec: spec.clone(),
            gear: None,
            cx: Arc::new(GearContext::new(spec, parts)),
            shutdown,
        }
    }

    fn spawn(&mut self, ready: PreparedGear) {
        let PreparedGear {
            spec,
            gear,
            cx,
            shutdown,
        } = ready;
        let inbox = spec
            .takes_messages()
            .then(|| self.inboxes.get(&spec.name).cloned())
            .flatten();
        let watch = tokio::spawn(watch(Arc::clone(&cx), self.parts.patience));
        let task = tokio::spawn(supervise(gear, spec.clone(), cx, inbox));
        let slot = GearTask {
            spec,
            shutdown,
            task,
            watch,
        };
        self.gears.insert(slot.spec.name.clone(), slot);
    }

    /// Stops gears, senders before receivers, all within the bound for it, and names those that were cut off.
    async fn stop(&mut self, names: BTreeSet<Token>) -> Vec<Token> {
        let mut cut_off = Vec::new();
        let deadline = Instant::now() + self.parts.drain;
        let slots = names.iter().filter_map(|name| self.gears.get(name));
        for wave in shutdown_waves(slots.map(|slot| &slot.spec)) {
            for turn in &wave {
                if let Some(slot) = self.gears.get(&turn.gear) {
                    slot.begin_shutdown(turn.part);
                }
            }
            let patience = deadline.min(Instant::now() + REPLIES_BOUND);
            for ShutdownStep { gear, part } in wave {
                match (part, self.gears.get(&gear)) {
                    (ShutdownPhase::Asking, Some(slot)) => {
                        // What it still waits for may come when the gears between are drained.
                        tokio::time::timeout_at(patience, slot.shutdown.quiet.cancelled())
                            .await
                            .ok();
                    }
                    _ => {
                        if let Some(slot) = self.gears.remove(&gear)
                            && !slot.join(deadline, self.parts.drain).await
                        {
                            cut_off.push(gear);
                        }
                    }
                }
            }
        }
        cut_off
    }
}

impl PreparedGear {
    async fn init(&mut self) -> Result<(), String> {
        let mut gear = self
            .spec
            .kind
            .build(&self.spec.config)
            .map_err(|fault| fault.to_string())?;
        gear.init(&self.cx).await.map_err(|fault| fault.to_string())?;
        self.gear = Some(gear);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
