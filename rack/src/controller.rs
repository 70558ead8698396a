//! The controller: the one owner of what runs; takes commands, applies them to the gear runtime, saves them.
//!
//! # Invariants
//!
//! - Orders are followed one after the other. An order older than the last one of its kind is refused.
//! - Gears run only while the Rack is active, and first start `convergence_delay` after the commands are subscribed to (or
//!   after [`SUBSCRIBE_WITHIN`] without a bus), so that the first messages find everyone listening.
//! - What ran last runs again after a restart, Mixer or not. A scenario that comes while gears may not run is tried when they may,
//!   answered then, and remembered only if it runs: until then the last one that ran is in force.
//!
//! # Not here
//!
//! Checking who gave an order ([`crate::command_listener`]), what gears do ([`crate::runtime`]).

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use model::control::{RackState, ReplayAnswer, ReplayCommand, ScenarioPush, ScenarioPushAnswer};
use model::{SignedPayload, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::RackIdentity;
use crate::applied_state::AppliedState;
use crate::runtime::{GearRuntime, RuntimeParts};

/// How long gears wait for the subscription of a bus that may be away.
const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(3);
/// How long after a disk refused what is to be remembered it is asked again.
const REMEMBER_AGAIN: Duration = Duration::from_secs(1);
/// How many orders may wait.
pub(crate) const ORDERS: usize = 16;

/// Commands to the controller.
pub(crate) enum ControllerCommand {
    /// Run this scenario.
    Scenario {
        signed: SignedPayload,
        push: Box<ScenarioPush>,
        done: oneshot::Sender<ScenarioPushAnswer>,
    },
    /// Be in this state. A state from a heartbeat or an enrolment has no time: it is the Mixer's current word.
    State {
        state: RackState,
        issued: Option<Timestamp>,
        done: Option<oneshot::Sender<()>>,
    },
    /// Replay letters to a gear; `under_way` gets the result.
    Replay {
        replay: Box<ReplayCommand>,
        under_way: oneshot::Sender<BoxFuture<'static, ReplayAnswer>>,
    },
}

/// What runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ControllerStatus {
    /// The admission state that is followed; none before the first.
    pub(crate) state: Option<RackState>,
    /// The scenario's content hash.
    pub(crate) scenario: Option<String>,
    /// Why the last pushed scenario does not run.
    pub(crate) error: Option<String>,
    /// Whether no gear runs.
    pub(crate) stopped: bool,
}

/// What the stage works with.
pub(crate) struct ControllerParts {
    pub(crate) memory: PathBuf,
    pub(crate) identity: watch::Receiver<Option<RackIdentity>>,
    pub(crate) runtime: RuntimeParts,
    pub(crate) convergence: Duration,
    pub(crate) subscribed: watch::Receiver<bool>,
    pub(crate) orders: mpsc::Receiver<ControllerCommand>,
    pub(crate) report: watch::Sender<ControllerStatus>,
    pub(crate) cancel: CancellationToken,
}

/// The task.
pub(crate) struct RackController {
    memory: AppliedState,
    runtime: GearRuntime,
    report: watch::Sender<ControllerStatus>,
    open: bool,
    error: Option<String>,
    waiting: Option<PendingScenario>,
}

/// A scenario that was not tried so far.
struct PendingScenario {
    signed: SignedPayload,
    push: ScenarioPush,
    done: oneshot::Sender<ScenarioPushAnswer>,
}

/// Runs the stage until cancelled, and stops the gears.
pub(crate) async fn run(mut parts: ControllerParts) {
    let identity = tokio::select! {
        () = parts.cancel.cancelled() => return,
        known = parts.identity.wait_for(Option::is_some) => known.ok().and_then(|known| known.clone()),
    };
    let Some(identity) = identity else { return };
    let mut stage = RackController {
        memory: AppliedState::open(&parts.memory, &identity),
        runtime: GearRuntime::start(parts.runtime),
        report: parts.report,
        open: false,
        error: None,
        waiting: None,
    };
    tokio::select! {
        () = parts.cancel.cancelled() => {}
        () = stage.process_commands(&mut parts.orders, parts.subscribed, parts.convergence) => {}
    }
    stage.runtime.close().await;
}

impl RackController {
    async fn process_commands(
        &mut self,
        orders: &mut mpsc::Receiver<ControllerCommand>,
        mut subscribed: watch::Receiver<bool>,
        convergence: Duration,
    ) {
        self.runtime.set_running(false).await;
        if let Some(push) = self.memory.push() {
            self.error = self.runtime.apply(push).await.error;
        }
        self.publish_status();
        let gate = async {
            let subscribed = subscribed.wait_for(|subscribed| *subscribed);
            // Without a bus the gears start all the same.
            drop(tokio::time::timeout(SUBSCRIBE_WITHIN, subscribed).await);
            tokio::time::sleep(convergence).await;
        };
        tokio::pin!(gate);
        loop {
            tokio::select! {
                () = &mut gate, if !self.open => {
                    self.open = true;
                    self.set_running().await;
                }
                order = orders.recv() => match order {
                    Some(order) => self.handle_command(order).await,
                    None => return,
                },
                () = tokio::time::sleep(REMEMBER_AGAIN), if self.memory.is_unwritten() => self.memory.retry_write(),
            }
        }
    }

    async fn handle_command(&mut self, order: ControllerCommand) {
        match order {
            ControllerCommand::Scenario { signed, push, done } => {
                let push = *push;
                self.accept_push(PendingScenario { signed, push, done }).await;
                self.publish_status();
            }
            ControllerCommand::State { state, issued, done } => {
                self.change_state(state, issued).await;
                self.publish_status();
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
            ControllerCommand::Replay { replay, under_way } => {
                let _ = under_way.send(self.runtime.replay(*replay));
            }
        }
    }

    /// A push: refused if it is late, tried now if gears may run, kept for then otherwise.
    async fn accept_push(&mut self, new: PendingScenario) {
        let push = &new.push;
        let waiting = self.waiting.as_ref().map(|waiting| &waiting.push);
        if let Some(last) = waiting.or(self.memory.push())
            && push.issued <= last.issued
        {
            let reason = format!(
                "the push of {} was issued at {}, not after the last one at {}",
                push.reference, push.issued, last.issued
            );
            return answer(new.done, self.not_applied(reason));
        }
        if let Some(older) = self.waiting.take() {
            let reason = format!(
                "a later push, of {}, came before the gears were started",
                push.reference
            );
            answer(older.done, self.not_applied(reason));
        }
        if !self.runtime.is_suspended() || self.is_last_applied(push) {
            return self.apply(new).await;
        }
        if let Some(reason) = self.runtime.check(push) {
            tracing::error!(
                scenario = push.reference,
                reason,
                "cannot apply the scenario; the previous one stays in force"
            );
            self.error = Some(reason.clone());
            return answer(new.done, self.not_applied(reason));
        }
        tracing::info!(
            scenario = push.reference,
            "the scenario is applied as soon as gears may run"
        );
        self.waiting = Some(new);
    }

    /// Whether it is what ran last.
    fn is_last_applied(&self, push: &ScenarioPush) -> bool {
        self.memory.push().is_some_and(|last| {
            let last = ScenarioPush {
                issued: push.issued,
                ..last.clone()
            };
            last == *push
        })
    }

    fn not_applied(&self, reason: String) -> ScenarioPushAnswer {
        ScenarioPushAnswer {
            running: self.runtime.hash().map(str::to_owned),
            error: Some(reason),
        }
    }

    async fn apply(&mut self, new: PendingScenario) {
        let PendingScenario { signed, push, done } = new;
        let applied = match self.may_run() {
            true => self.runtime.resume_with(&push).await,
            false => self.runtime.apply(&push).await,
        };
        match &applied.error {
            None => {
                tracing::info!(scenario = push.reference, gears = push.gears.len(), "scenario applied");
                self.memory.set_push(signed, push);
            }
            Some(reason) => tracing::error!(
                scenario = push.reference,
                reason,
                "could not apply the scenario; the previous one keeps running"
            ),
        }
        self.error.clone_from(&applied.error);
        answer(done, applied);
    }

    async fn change_state(&mut self, state: RackState, issued: Option<Timestamp>) {
        let late = issued.is_some_and(|issued| issued <= self.memory.state_issued());
        // Offline is what a Mixer sees of a Rack that it does not hear, never an order.
        if late || state == RackState::Offline {
            return;
        }
        if self.memory.state() != state {
            tracing::info!(from = %self.memory.state(), to = %state, "the Rack's state changed");
        }
        self.memory.set_state(state, issued);
        self.set_running().await;
    }

    fn may_run(&self) -> bool {
        self.open && self.memory.state() == RackState::Active
    }

    async fn set_running(&mut self) {
        let may_run = self.may_run();
        match self.waiting.take_if(|_| may_run) {
            Some(waiting) => self.apply(waiting).await,
            None => self.runtime.set_running(may_run).await,
        }
        self.publish_status();
    }

    fn publish_status(&self) {
        let report = ControllerStatus {
            state: Some(self.memory.state()),
            scenario: self.runtime.hash().map(str::to_owned),
            error: self.error.clone(),
            stopped: self.runtime.is_suspended(),
        };
        self.report.send_if_modified(|old| {
            let changed = *old != report;
            *old = report;
            changed
        });
    }
}

/// Whoever asked may be gone; the next heartbeat says what runs.
fn answer(done: oneshot::Sender<ScenarioPushAnswer>, applied: ScenarioPushAnswer) {
    let _ = done.send(applied);
}
