//! The gear runtime: makes what runs on this Rack equal to what the scenario asks.
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

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::control::{ReplayAnswer, ReplayCommand, ReplayRejection, ScenarioPush, ScenarioPushAnswer};
use model::{Entropy, Token};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::gears::patience::watch;
use crate::gears::supervisor::{panic_text, supervise};
use crate::gears::{Context, ContextParts, Ending, Gear, ProgramAllowList, forget_windows};
use crate::lane::{self, Inlet, InletSpec, Lane};
use crate::limits::Limits;
use crate::tap::TapRegistry;
use crate::telemetry::Recorder;
use crate::wires::{self, Inbox, NotApplied, Outlets, Plan, Spec};
use order::{Part, Turn, waves};

/// How long gears of a Rack may take to finish what they began when they are stopped.
pub const DRAIN_BOUND: Duration = Duration::from_secs(1);
/// How long a gear that answers waits for replies from gears that go on; then these drain.
const REPLIES_BOUND: Duration = Duration::from_millis(250);
/// How long a gear may take to get what it needs.
const INIT_BOUND: Duration = Duration::from_secs(5);
/// How long a gear may usually be at one message before that is told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the runtime is made of.
#[derive(Debug, Clone)]
pub struct RuntimeParts {
    /// Where gears record.
    pub recorder: Recorder,
    /// Where ids come from.
    pub entropy: Entropy,
    /// What messages may be.
    pub limits: Limits,
    /// What gears may run.
    pub(crate) programs: ProgramAllowList,
    /// The guaranteed lane; none in a Rack without a bus.
    pub(crate) lane: Option<Lane>,
    /// The ports that can be tapped.
    pub(crate) taps: TapRegistry,
    /// How long a gear may be at one message before that is told.
    pub(crate) patience: Duration,
    /// How long gears may take to finish what they began when they are stopped.
    pub(crate) drain: Duration,
}

/// Owns every gear of this Rack.
#[derive(Debug)]
pub struct GearRuntime {
    parts: RuntimeParts,
    plan: Option<Plan>,
    suspended: bool,
    gears: BTreeMap<Token, Slot>,
    inboxes: BTreeMap<Token, Inbox>,
    inlets: BTreeMap<String, Intake>,
}

/// An inlet that runs.
#[derive(Debug)]
struct Intake {
    spec: InletSpec,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A gear that runs.
#[derive(Debug)]
struct Slot {
    spec: Spec,
    ending: Ending,
    task: JoinHandle<()>,
    /// Looks at it from outside.
    watch: JoinHandle<()>,
}

impl Slot {
    /// Tells the gear that the gear of the plan with its name takes over its inbox, if there is one that can.
    fn leave_to(&self, plan: &Plan) {
        let next = plan.gears.get(&self.spec.name);
        if next.is_some_and(|next| next.kind.inputs() == self.spec.kind.inputs()) {
            self.ending.successor.cancel();
        }
    }

    /// Tells the gear to stop, or a part of it.
    fn begin(&self, part: Part) {
        match part {
            Part::Whole => self.ending.stop_all(),
            Part::Asking => self.ending.stop.cancel(),
            Part::Replies => self.ending.unfed.cancel(),
        }
    }

    /// Waits for its end, at most until then; `bound` is what all of them had. Whether it ended by itself.
    async fn join(mut self, deadline: Instant, bound: Duration) -> bool {
        let has_ended = tokio::time::timeout_at(deadline, &mut self.task).await.is_ok();
        if !has_ended {
            tracing::warn!(gear.id = %self.spec.name, "the gear did not stop within {bound:?} and is cut off");
            self.task.abort();
            // Only the end is awaited; how it ended is known.
            (&mut self.task).await.ok();
        }
        has_ended
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.watch.abort();
        self.task.abort();
    }
}

/// A gear that has what it needs and waits for its task.
struct Ready {
    spec: Spec,
    /// None where the gear shall try again by itself.
    gear: Option<Gear>,
    cx: Arc<Context>,
    ending: Ending,
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
            self.lead(&plan);
            self.revive(plan.gears.values()).await;
            self.open_inlets(&plan);
        }
        applied
    }

    /// Why the pushed scenario could not even be tried, if it could not. Starts nothing.
    pub(crate) fn check(&self, push: &ScenarioPush) -> Option<String> {
        self.planned(push).err().map(|error| error.to_string())
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
        Box::pin(lane::replay(Arc::clone(&lane.outbox), target, replay))
    }

    /// The gear that letters go back to.
    fn target(&self, gear: &Token) -> Result<lane::Target, ReplayRejection> {
        if self.suspended {
            return Err(ReplayRejection::Later("the Rack is suspended".to_owned()));
        }
        match (self.gears.get(gear), self.inboxes.get(gear)) {
            (Some(slot), Some(inbox)) => Ok(lane::Target {
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
            self.lead(&plan);
            self.revive(plan.gears.values()).await;
            self.open_inlets(&plan);
        }
    }

    /// Stops every gear, within the bound for it, and names those that were cut off.
    pub async fn close(mut self) -> Vec<Token> {
        self.close_inlets(|_| true).await;
        self.stop(self.gears.keys().cloned().collect()).await
    }

    fn planned(&self, push: &ScenarioPush) -> Result<Plan, NotApplied> {
        let rack = self.parts.lane.as_ref().and_then(|lane| lane.outbox.rack());
        let plan = wires::plan(push, rack.as_ref())?;
        if self.parts.lane.is_none() && plan.needs_lane() {
            return Err(NotApplied::NoLane);
        }
        Ok(plan)
    }

    /// Runs a plan whose gears may also send to these inboxes, which others take from.
    pub(crate) async fn apply_beside(&mut self, plan: Plan, beside: BTreeMap<Token, Inbox>) -> Result<(), NotApplied> {
        self.inboxes.extend(beside);
        self.change_to(plan).await
    }

    /// The inboxes of its gears.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = (Token, Inbox)> {
        self.inboxes.iter().map(|(name, inbox)| (name.clone(), inbox.clone()))
    }

    async fn change(&mut self, push: &ScenarioPush) -> Result<(), NotApplied> {
        let plan = self.planned(push)?;
        self.change_to(plan).await
    }

    async fn change_to(&mut self, plan: Plan) -> Result<(), NotApplied> {
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
        let none = BTreeMap::new();
        self.parts
            .taps
            .keep(self.plan.as_ref().map_or(&none, |plan| &plan.gears));
    }

    /// Stops what the plan changes or leaves out, starts what is new; on failure, restores what ran.
    async fn replace(&mut self, plan: &Plan) -> Result<(), NotApplied> {
        let changed: BTreeSet<Token> = self
            .gears
            .values()
            .filter(|slot| plan.gears.get(&slot.spec.name) != Some(&slot.spec))
            .map(|slot| slot.spec.name.clone())
            .collect();
        let before: Vec<Spec> = changed
            .iter()
            .filter_map(|name| Some(self.gears.get(name)?.spec.clone()))
            .collect();
        let changing = changed.iter().filter_map(|name| self.gears.get(name));
        changing.for_each(|slot| slot.leave_to(plan));
        self.stop(changed).await;
        match self.prepare(plan).await {
            Ok(ready) => {
                self.lead(plan);
                ready.into_iter().for_each(|ready| self.spawn(ready));
                self.close_inlets(|inlet| plan.inlets.get(&inlet.consumer) != Some(inlet))
                    .await;
                self.open_inlets(plan);
                Ok(())
            }
            Err(error) => {
                self.revive(before.iter()).await;
                Err(error)
            }
        }
    }

    /// Builds and initialises every gear of the plan that does not run. Nothing runs before all are ready.
    async fn prepare(&mut self, plan: &Plan) -> Result<Vec<Ready>, NotApplied> {
        self.make_inboxes(plan.gears.values());
        let mut all = Vec::new();
        for spec in plan.gears.values().filter(|spec| !self.gears.contains_key(&spec.name)) {
            let mut ready = self.ready(spec);
            let reason = match tokio::time::timeout(INIT_BOUND, AssertUnwindSafe(ready.init()).catch_unwind()).await {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(reason))) => Some(reason),
                Ok(Err(panic)) => Some(format!("it panicked: {}", panic_text(panic.as_ref()))),
                Err(_) => Some(format!("not ready within {INIT_BOUND:?}")),
            };
            if let Some(reason) = reason {
                return Err(NotApplied::Init {
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
    async fn revive(&mut self, specs: impl Iterator<Item = &Spec> + Clone) {
        self.make_inboxes(specs.clone());
        for spec in specs {
            let ready = self.ready(spec);
            self.spawn(ready);
        }
    }

    /// From now on messages that leave by the outbox are for whom the plan says.
    fn lead(&self, plan: &Plan) {
        if let Some(lane) = &self.parts.lane {
            lane.outbox.lead_to(plan.destinations.clone(), plan.consumers.clone());
            lane.outbox.begin_credits(&plan.credits);
        }
    }

    /// Deletes the windows of gears that the plan does not have; where the disk does not let it now, the next plan does.
    async fn forget_windows(&self, plan: &Plan) {
        let Some(lane) = &self.parts.lane else { return };
        let is_there = |gear: &str| {
            let mut gears = plan.gears.values();
            gears.any(|spec| spec.name.as_str() == gear && spec.kind.name() == "window")
        };
        let forget = forget_windows(&lane.outbox, is_there);
        tokio::time::timeout(self.parts.drain, forget).await.ok();
    }

    /// Starts the inlets of the plan that do not run.
    fn open_inlets(&mut self, plan: &Plan) {
        let Some(lane) = &self.parts.lane else { return };
        for spec in plan.inlets.values() {
            if self.inlets.contains_key(&spec.consumer) {
                continue;
            }
            let Some(inbox) = self.inboxes.get(&spec.gear).cloned() else {
                continue;
            };
            let stop = CancellationToken::new();
            let inlet = Inlet::new(spec.clone(), lane.clone(), inbox, stop.clone());
            let intake = Intake {
                spec: spec.clone(),
                stop,
                task: tokio::spawn(inlet.run()),
            };
            self.inlets.insert(spec.consumer.clone(), intake);
        }
    }

    /// Ends the inlets of a kind. What they gave to a gear stays with it; the bus sends the rest again.
    async fn close_inlets(&mut self, ends: impl Fn(&InletSpec) -> bool) {
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

    fn make_inboxes<'a>(&mut self, specs: impl Iterator<Item = &'a Spec>) {
        for spec in specs.filter(|spec| spec.takes_messages()) {
            self.inboxes.entry(spec.name.clone()).or_insert_with(Inbox::new);
        }
    }

    fn ready(&self, spec: &Spec) -> Ready {
        let ending = Ending::default();
        let parts = ContextParts {
            recorder: self.parts.recorder.clone(),
            entropy: self.parts.entropy.clone(),
            limits: self.parts.limits.clone(),
            programs: self.parts.programs.clone(),
            outlets: Outlets::connect(spec, &self.inboxes),
            outbox: self.parts.lane.as_ref().map(|lane| Arc::clone(&lane.outbox)),
            ending: ending.clone(),
            tap: self.parts.taps.point(spec),
        };
        Ready {
            spec: spec.clone(),
            gear: None,
            cx: Arc::new(Context::new(spec, parts)),
            ending,
        }
    }

    fn spawn(&mut self, ready: Ready) {
        let Ready { spec, gear, cx, ending } = ready;
        let inbox = spec
            .takes_messages()
            .then(|| self.inboxes.get(&spec.name).cloned())
            .flatten();
        let watch = tokio::spawn(watch(Arc::clone(&cx), self.parts.patience));
        let task = tokio::spawn(supervise(gear, spec.clone(), cx, inbox));
        let slot = Slot {
            spec,
            ending,
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
        for wave in waves(slots.map(|slot| &slot.spec)) {
            for turn in &wave {
                if let Some(slot) = self.gears.get(&turn.gear) {
                    slot.begin(turn.part);
                }
            }
            let patience = deadline.min(Instant::now() + REPLIES_BOUND);
            for Turn { gear, part } in wave {
                match (part, self.gears.get(&gear)) {
                    (Part::Asking, Some(slot)) => {
                        // What it still waits for may come when the gears between are drained.
                        tokio::time::timeout_at(patience, slot.ending.quiet.cancelled())
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

impl Ready {
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
