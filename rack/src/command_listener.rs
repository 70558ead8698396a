//! Listens for the Mixer's commands to this Rack: `flux.agent.rack.<id>.*`.
//!
//! # Invariants
//!
//! - A command is obeyed only if our cluster signed it for us; anything else is told of and answered with nothing.
//! - A scenario that takes long to apply holds no floor back: answers are awaited beside the subscription.

use async_nats::{Client, Message, Subject};
use bytes::Bytes;
use chassis::logs::LogLevelHandle;
use ed25519_dalek::VerifyingKey;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use model::control::{
    DurableFloor, LevelChange, PortCredits, ReplayAnswer, ReplayCommand, ReplayRejection, ScenarioPushAnswer,
    StateChange,
};
use model::subject::{self, RackCommand};
use model::tap::TapLease;
use model::{BadSignature, EntityId, SignedPayload, SigningContext, Timestamp, telemetry_codec};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::controller::ControllerCommand;
use crate::outbox::MessageOutbox;
use crate::spool::SpoolHandle;
use crate::tap::TapLeases;
use crate::{RackIdentity, applied_state};

/// How often it is said at most that commands are not obeyed.
const PASSED_OVER_EVERY: Duration = Duration::from_secs(1);

/// Where commands for this Rack come, and whose they must be. Known before adoption, so that an approval is heard at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandAddress {
    pub(crate) entity_id: EntityId,
    pub(crate) cluster_key: VerifyingKey,
}

/// The task.
pub(crate) struct CommandListener {
    pub(crate) client: Client,
    pub(crate) address: watch::Receiver<Option<CommandAddress>>,
    pub(crate) identity: watch::Receiver<Option<RackIdentity>>,
    pub(crate) subscribed: watch::Sender<bool>,
    pub(crate) orders: mpsc::Sender<ControllerCommand>,
    pub(crate) spool: SpoolHandle,
    pub(crate) outbox: Arc<MessageOutbox>,
    /// Woken when a Rack that waits for approval hears of a change, or the cluster may have another key.
    pub(crate) changed: Arc<Notify>,
    /// When it was told last that a command is not obeyed.
    pub(crate) passed_over: Option<Instant>,
    pub(crate) level: LogLevelControl,
    pub(crate) taps: TapLeases,
    pub(crate) cancel: CancellationToken,
}

/// Where the level of the process's log is changed.
#[derive(Debug)]
pub(crate) struct LogLevelControl {
    level: Option<LogLevelHandle>,
    /// When the last change was sent.
    last: Option<Timestamp>,
}

impl LogLevelControl {
    pub(crate) const fn new(level: Option<LogLevelHandle>) -> Self {
        Self { level, last: None }
    }

    fn take(&mut self, change: &LevelChange) -> Result<(), String> {
        let level = self.level.as_ref().ok_or("this process has no log of its own")?;
        if self.last.is_some_and(|last| change.issued <= last) {
            return Err("it is older than the last change of the level".to_owned());
        }
        self.last = Some(change.issued);
        level.set(change.level);
        tracing::info!("the Mixer set the log level to {}", change.level);
        Ok(())
    }
}

type CommandReply = (Option<Subject>, Bytes);

impl CommandListener {
    /// Runs until cancelled.
    pub(crate) async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.serve() => {}
        }
    }

    async fn serve(&mut self) {
        loop {
            let address = match self.address.wait_for(Option::is_some).await {
                Ok(address) => address.clone(),
                Err(_) => return,
            };
            let Some(address) = address else { return };
            self.subscribed.send_replace(false);
            match self.client.subscribe(subject::rack_all(&address.entity_id)).await {
                Ok(commands) => {
                    // Only when it is on its way to the server may anyone be told that this Rack listens.
                    if self.client.flush().await.is_ok() {
                        self.subscribed.send_replace(true);
                    }
                    self.listen(&address, commands).await;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot subscribe to commands");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Until the address changes or the subscription ends.
    async fn listen(&mut self, address: &CommandAddress, mut commands: async_nats::Subscriber) {
        let mut answers: FuturesUnordered<BoxFuture<'static, CommandReply>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                changed = self.address.changed() => {
                    if changed.is_err() || self.address.borrow().as_ref() != Some(address) {
                        return;
                    }
                }
                Some((to, body)) = answers.next(), if !answers.is_empty() => self.reply(to, body).await,
                command = commands.next() => {
                    let Some(command) = command else { return };
                    match self.take(address, &command) {
                        Ok(Some(answer)) => answers.push(answer),
                        Ok(None) => {}
                        Err(reason) => self.pass_over(&command.subject, &reason),
                    }
                }
            }
        }
    }

    /// Tells of a command that is not obeyed, and asks the Mixer sooner: a heartbeat's answer says whether the cluster has another key.
    fn pass_over(&mut self, subject: &Subject, reason: &str) {
        let now = Instant::now();
        if self.passed_over.is_none_or(|last| now >= last + PASSED_OVER_EVERY) {
            self.passed_over = Some(now);
            tracing::warn!(%subject, reason, "ignoring a command");
            self.changed.notify_one();
        }
    }

    async fn reply(&self, to: Option<Subject>, body: Bytes) {
        if let Some(to) = to
            && let Err(error) = self.client.publish(to, body).await
        {
            tracing::warn!(%error, "could not answer a command");
        }
    }

    fn take(
        &mut self,
        address: &CommandAddress,
        command: &Message,
    ) -> Result<Option<BoxFuture<'static, CommandReply>>, String> {
        let text = |error: BadSignature| error.to_string();
        let kind = RackCommand::of_subject(&command.subject).ok_or("it is not known here")?;
        let signed = SignedPayload::from_bytes(&command.payload).map_err(text)?;
        let key = &address.cluster_key;
        let to = answer_to(command, &address.entity_id);
        match kind {
            RackCommand::Floor => {
                let floor: DurableFloor = signed.open(SigningContext::Command, key).map_err(text)?;
                verify_recipient(floor.entity_id, address)?;
                self.spool.apply_floors([floor]);
                self.outbox.spool().apply_floors([floor]);
                Ok(None)
            }
            RackCommand::Credits => {
                let credits: PortCredits = signed.open(SigningContext::Command, key).map_err(text)?;
                verify_recipient(credits.entity_id, address)?;
                self.outbox.set_credits(credits);
                Ok(None)
            }
            RackCommand::State => {
                let change: StateChange = signed.open(SigningContext::Command, key).map_err(text)?;
                verify_recipient(change.entity_id, address)?;
                Ok(Some(self.state(&change, to)))
            }
            RackCommand::LogLevel => {
                let change: LevelChange = signed.open(SigningContext::Command, key).map_err(text)?;
                verify_recipient(change.entity_id, address)?;
                self.level.take(&change)?;
                Ok(Some(Box::pin(async { (to, Bytes::new()) })))
            }
            RackCommand::Scenario => Ok(Some(self.scenario(signed, to)?)),
            RackCommand::Replay => {
                let replay: ReplayCommand = signed.open(SigningContext::Command, key).map_err(text)?;
                verify_recipient(replay.entity_id, address)?;
                Ok(Some(self.replay(replay, to)))
            }
            RackCommand::Tap => {
                let lease: TapLease = signed.open(SigningContext::Command, key).map_err(text)?;
                verify_recipient(lease.entity_id, address)?;
                let body = model::signed::encode(&self.taps.take(&lease)).map_err(text)?;
                Ok(Some(Box::pin(async { (to, body.into()) })))
            }
        }
    }

    fn state(&self, change: &StateChange, to: Option<Subject>) -> BoxFuture<'static, CommandReply> {
        if self.identity.borrow().is_none() {
            // Not adopted so far: ask again, the passport comes with the answer.
            self.changed.notify_one();
            return Box::pin(async { (to, Bytes::new()) });
        }
        let (done, wait) = oneshot::channel();
        let order = ControllerCommand::State {
            state: change.state,
            issued: Some(change.issued),
            done: Some(done),
        };
        let orders = self.orders.clone();
        Box::pin(async move {
            if orders.send(order).await.is_ok() {
                // A stage that stops drops the order; the Mixer hears nothing more than that it arrived.
                let _ = wait.await;
            }
            (to, Bytes::new())
        })
    }

    fn scenario(&self, signed: SignedPayload, to: Option<Subject>) -> Result<BoxFuture<'static, CommandReply>, String> {
        let identity = self.identity.borrow().clone();
        let identity = identity.ok_or("a scenario came before this Rack was adopted")?;
        let push = Box::new(applied_state::verify(&signed, &identity)?);
        let (done, wait) = oneshot::channel();
        let order = ControllerCommand::Scenario { signed, push, done };
        let orders = self.orders.clone();
        Ok(Box::pin(async move {
            let applied = if orders.send(order).await.is_ok() {
                wait.await.ok()
            } else {
                None
            };
            let applied = applied.unwrap_or_else(|| ScenarioPushAnswer {
                running: None,
                error: Some("the Rack is stopping".to_owned()),
            });
            let body = model::signed::encode(&applied).unwrap_or_default();
            (to, body.into())
        }))
    }
}

impl CommandListener {
    fn replay(&self, replay: ReplayCommand, to: Option<Subject>) -> BoxFuture<'static, CommandReply> {
        let orders = self.orders.clone();
        Box::pin(async move {
            let (under_way, begun) = oneshot::channel();
            let replay = Box::new(replay);
            let answer = match orders.send(ControllerCommand::Replay { replay, under_way }).await {
                Ok(()) => match begun.await {
                    Ok(answer) => Some(answer.await),
                    Err(_) => None,
                },
                Err(_) => None,
            };
            let answer = answer.unwrap_or_else(|| ReplayAnswer {
                taken: 0,
                not_taken: Some(ReplayRejection::Later("the Rack is stopping".to_owned())),
            });
            let body = model::signed::encode(&answer).unwrap_or_default();
            (to, body.into())
        })
    }
}

/// Where the answer to a command goes: a header may name a subject for answers of this Rack. Nobody signs it.
fn answer_to(command: &Message, entity: &EntityId) -> Option<Subject> {
    let headers = command.headers.as_ref();
    let named = headers.and_then(|headers| headers.get(telemetry_codec::ANSWER_TO));
    let is_own = |to: &&async_nats::HeaderValue| {
        let number = to.as_str().strip_prefix(&subject::answers(entity));
        number.is_some_and(|number| number.starts_with('.'))
    };
    let named = named.filter(is_own).map(|to| to.as_str().into());
    named.or_else(|| command.reply.clone())
}

fn verify_recipient(entity: EntityId, address: &CommandAddress) -> Result<(), String> {
    if entity == address.entity_id {
        Ok(())
    } else {
        Err(format!("it is for {entity}, this Rack is {}", address.entity_id))
    }
}
