//! Being there: enrols, then sends a heartbeat at every interval; for as long as the Rack runs.
//!
//! ```text
//!            ┌────────────── pending: again at every interval, or when told of a change
//! enrol ─────┼────────────── refused, unanswered: again after a growing pause
//!   ▲        └─ adopted ─▶ heartbeat ⟲ ── answered: state, floors
//!   └──────────── refused (unknown, removed) ◀─┘
//! ```
//!
//! # Invariants
//!
//! - A removed Rack stops its gears at once and goes on asking, rarely.
//! - What it is, it hears from the Mixer of its cluster only ([`crate::signed_rpc`]).
//! - A heartbeat that was not answered is followed by the next one sooner, so that floors and states arrive soon after an
//!   outage.
//! - Each cause of failure is told of once, until it changes.
//! - A bus that does not know this Rack (so far, or any more) is asked for admission as a stranger, over a connection of its
//!   own that ends with the answer; then the Rack comes as itself. A bus in operator mode lets it in as a stranger as long as it has no
//!   credential, so a Rack that nobody ever answered asks that way first, and a later one that was not answered asks so the next time. One with an
//!   invite, whose bus cannot know it yet, does not ask as itself before.

use std::collections::HashSet;
use std::mem::discriminant;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use chassis::bus::{AttemptHold, BusConnection, BusOptions, BusState, UserJwt};
use model::control::{EnrollReply, Heartbeat, HeartbeatReply, NameClaim, RackRefusal, RackState, RefusalCode};
use model::signed_reply::ClusterKey;
use model::{BusCredential, Clock, EntityId, Entropy, KeyFingerprint, SignedPayload, SigningContext, Token, subject};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::RackIdentity;
use crate::command_listener::CommandAddress;
use crate::controller::{ControllerCommand, ControllerStatus};
use crate::enroll::{EnrollmentApplicant, HandshakeError, VerifiedEnrollReply, enroll};
use crate::message_limits::MessageLimits;
use crate::outbox::MessageOutbox;
use crate::signed_rpc::RpcClient;
use crate::spool::SpoolHandle;
use crate::state_file::StateFile;
use crate::telemetry::TelemetryRecorder;
use crate::{host, host::BusHost};

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause while no Mixer answers: asking costs one small message.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The longest wait for a heartbeat's answer.
const HEARTBEAT_WITHIN: Duration = Duration::from_secs(5);
/// The next heartbeat after one that was not answered.
const MISSED_PAUSE: Duration = Duration::from_secs(2);

/// How long the question for the primary stream may take.
const STREAM_WITHIN: Duration = Duration::from_secs(2);
/// How long the end of a stranger's connection may take.
const DOOR_CLOSES: Duration = Duration::from_millis(200);
/// How long the subscription to commands may take.
const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(2);

/// What the session works with.
pub(crate) struct MixerSession {
    pub(crate) bus: BusConnection,
    pub(crate) asker: RpcClient,
    pub(crate) state: StateFile,
    pub(crate) host: SessionHost,
    pub(crate) settings: SessionSettings,
    pub(crate) heartbeats: HeartbeatCounter,
    /// Whether a Mixer answered what this Rack asked as itself, as far as it knows.
    pub(crate) is_answered: bool,
    /// Keeps the bus from being asked as a user that it cannot know yet.
    pub(crate) held: Option<AttemptHold>,
    pub(crate) entropy: Entropy,
    pub(crate) stores: SessionStores,
    pub(crate) limits: SharedLimits,
    pub(crate) outputs: SessionOutputs,
    pub(crate) controller: ControllerLink,
    pub(crate) cancel: CancellationToken,
}

/// The heartbeats of this run, and the clock of their times.
pub(crate) struct HeartbeatCounter {
    pub(crate) sent: u64,
    pub(crate) clock: Clock,
}

/// Where the Rack runs, and the name that it asks for.
pub(crate) struct SessionHost {
    pub(crate) claim: NameClaim,
    pub(crate) ip: Option<std::net::IpAddr>,
    pub(crate) bus_host: BusHost,
    pub(crate) machine: host::HostProbe,
}

/// What the configuration says of the session.
pub(crate) struct SessionSettings {
    pub(crate) enrollment_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
    /// `snake.stream_name`.
    pub(crate) stream: Token,
}

/// What heartbeats report on, and what the Mixer's floors are for.
pub(crate) struct SessionStores {
    pub(crate) spool: SpoolHandle,
    pub(crate) outbox: Arc<MessageOutbox>,
}

/// What the Mixer's limits narrow; the gears share it.
pub(crate) struct SharedLimits {
    pub(crate) messages: MessageLimits,
    pub(crate) recorder: TelemetryRecorder,
}

/// What the session tells the rest of the agent.
pub(crate) struct SessionOutputs {
    pub(crate) identity: watch::Sender<Option<RackIdentity>>,
    pub(crate) address: watch::Sender<Option<CommandAddress>>,
    pub(crate) pending: watch::Sender<Option<EntityId>>,
}

/// The session's channels to the controller and the command listener.
pub(crate) struct ControllerLink {
    pub(crate) subscribed: watch::Receiver<bool>,
    pub(crate) report: watch::Receiver<ControllerStatus>,
    pub(crate) orders: mpsc::Sender<ControllerCommand>,
    pub(crate) changed: Arc<Notify>,
}

/// A pause that grows with each failure.
struct EnrollmentBackoff(Duration);

impl EnrollmentBackoff {
    fn next(&mut self, most: Duration) -> Duration {
        let pause = self.0.min(most);
        self.0 = (self.0 * 2).min(most.max(FIRST_PAUSE));
        pause
    }
}

/// How an agent that the bus does not know connects to it: as a stranger, who may ask for admission only.
#[must_use]
pub fn enrollment_options(ours: &BusOptions) -> BusOptions {
    BusOptions {
        name: format!("{}, asking for admission", ours.name),
        nkey: None,
        jwt: UserJwt::default(),
        user: Some(subject::ENROLL_USER.to_owned()),
        inbox_prefix: Some(subject::inbox(subject::ENROLL_USER)),
        ..ours.clone()
    }
}

impl MixerSession {
    /// Runs until cancelled.
    pub(crate) async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.enroll_and_heartbeat() => {}
        }
    }

    async fn enroll_and_heartbeat(&mut self) {
        let mut pause = EnrollmentBackoff(FIRST_PAUSE);
        let mut told = String::new();
        loop {
            let known = self.held.is_none() && self.reach_bus().await;
            match self.enrol(known).await {
                Ok(Some(identity)) => {
                    pause = EnrollmentBackoff(FIRST_PAUSE);
                    told.clear();
                    let check = check_stream(self.bus.clone(), self.settings.stream.clone());
                    let refused = {
                        let mut heartbeats = pin!(self.send_heartbeats(&identity));
                        tokio::select! {
                            refused = &mut heartbeats => refused,
                            () = check => heartbeats.await,
                        }
                    };
                    let removed = refused == RefusalCode::Removed;
                    self.wait(if removed { REFUSED_PAUSE } else { FIRST_PAUSE }).await;
                }
                Ok(None) => {
                    pause = EnrollmentBackoff(FIRST_PAUSE);
                    told.clear();
                    self.wait(self.settings.heartbeat_interval).await;
                }
                Err(error) => {
                    let reason = error.to_string();
                    if reason != told {
                        tracing::warn!(reason, "not enrolled; retrying");
                        told = reason;
                    }
                    let most = match &error {
                        HandshakeError::Refused(refusal) => {
                            self.handle_refusal(refusal).await;
                            REFUSED_PAUSE
                        }
                        HandshakeError::Bus(_) => UNANSWERED_PAUSE,
                        _ => REFUSED_PAUSE,
                    };
                    self.wait(pause.next(most)).await;
                }
            }
        }
    }

    /// Waits for the bus, for ever, and says so if it takes long. Whether it knows this Rack.
    async fn reach_bus(&self) -> bool {
        let within = self.bus.options().connect_timeout;
        if let Ok(known) = tokio::time::timeout(within, self.bus.wait_connected_or_refused()).await {
            known
        } else {
            tracing::warn!(
                bus = self.host.bus_host.host,
                port = self.host.bus_host.port,
                "cannot reach the bus yet; retrying. Start the Mixer there, or set snake.url to where it is"
            );
            self.bus.wait_connected_or_refused().await
        }
    }

    /// A connection as a stranger, who may ask for admission only.
    async fn connect_for_enrollment(&self) -> Result<BusConnection, chassis::Error> {
        BusConnection::connect(enrollment_options(self.bus.options())).await
    }

    /// One handshake, over a connection that may carry it.
    async fn run_handshake(&mut self, known: bool) -> Result<VerifiedEnrollReply, HandshakeError> {
        let ip = match self.host.ip {
            Some(ip) => ip,
            None => host::address(&self.host.bus_host).await,
        };
        let applicant = EnrollmentApplicant {
            key: self.state.key(),
            passport: self.state.passport(),
            invite: self.state.joined(),
            claim: self.host.claim.clone(),
            host: host::name(),
            ip: ip.to_string(),
            bus_key: self.state.bus_key().map(|key| key.public_key()),
            boot_epoch: self.stores.spool.boot_epoch(),
        };
        if known && !self.may_be_a_stranger() {
            // A bus that knows its users lets them ask for streams once they are adopted.
            let asks = self.bus.knows_users();
            if asks {
                self.bus.check_greeting()?;
            } else {
                self.bus.preflight().await?;
            }
            let answer = enroll(
                &self.bus,
                &self.asker,
                &applicant,
                &self.entropy,
                self.settings.enrollment_timeout,
            )
            .await;
            self.is_answered = !matches!(answer, Err(HandshakeError::Bus(_)));
            let answer = answer?;
            self.take_credential(answer.reply.bus_credential());
            if asks && matches!(answer.reply, EnrollReply::Adopted { .. }) {
                self.bus.preflight().await?;
            }
            return Ok(answer);
        }
        // Whatever comes of it: the next time it asks as itself. The bus may have no strangers, or no room for one.
        self.is_answered = true;
        // Until it is on the bus's list each attempt as itself would be refused: with TLS, for the price of a handshake.
        let hold = self.held.take().unwrap_or_else(|| self.bus.hold_attempts());
        let door = self.connect_for_enrollment().await?;
        door.check_greeting()?;
        let answer = enroll(
            &door,
            &self.asker,
            &applicant,
            &self.entropy,
            self.settings.enrollment_timeout,
        )
        .await;
        door.close(DOOR_CLOSES).await;
        let answer = answer?;
        let is_credited = self.take_credential(answer.reply.bus_credential());
        // It is on the bus's list now.
        drop(hold);
        if known {
            if is_credited {
                self.bus.show_jwt(self.settings.enrollment_timeout).await;
            }
        } else if tokio::time::timeout(self.settings.enrollment_timeout, self.bus.wait_connected())
            .await
            .is_err()
        {
            tracing::warn!("the Mixer answered, but the bus does not know this Rack yet; retrying");
        }
        Ok(answer)
    }

    /// Whether a bus in operator mode may have let this Rack in as a stranger, who would hear no answer.
    fn may_be_a_stranger(&self) -> bool {
        self.bus.knows_users() && !self.is_answered && self.state.bus_credential().is_none()
    }

    /// Shows the bus what the Mixer gave for it from the next connection on. Whether there was something.
    fn take_credential(&mut self, credential: Option<&BusCredential>) -> bool {
        let Some(credential) = credential else { return false };
        self.bus.options().jwt.replace(credential.jwt.clone());
        if let Err(error) = self.state.keep_credential(credential.clone()) {
            tracing::error!(%error, "cannot keep the credential for the bus; after a restart this Rack asks for another one");
        }
        true
    }

    /// One handshake; the identity if the Rack is adopted, none if it waits for approval.
    async fn enrol(&mut self, known: bool) -> Result<Option<RackIdentity>, HandshakeError> {
        let answer = self.run_handshake(known).await?;
        match answer.reply {
            EnrollReply::Adopted { passport, state, .. } => {
                let identity = self
                    .state
                    .accept(&passport, &answer.cluster)
                    .map_err(|error| HandshakeError::Passport(error.to_string()))?;
                tracing::info!(name = %identity.name, id = %identity.entity_id, %state, "enrolled");
                self.adopt(&identity, state).await;
                Ok(Some(identity))
            }
            EnrollReply::Pending { entity_id, .. } => {
                if *self.outputs.pending.borrow() != Some(entity_id) {
                    let key = self.state.key_fingerprint();
                    tracing::info!(
                        id = %entity_id,
                        %key,
                        "known to the Mixer and waiting for approval: platform racks approve {entity_id} --key {key}"
                    );
                }
                let address = CommandAddress {
                    entity_id,
                    cluster_key: answer.cluster.key,
                };
                self.subscribe_commands(address).await;
                self.outputs
                    .pending
                    .send_if_modified(|old| replace(old, Some(entity_id)));
                Ok(None)
            }
            EnrollReply::Refused(refusal) => Err(HandshakeError::Refused(refusal)),
        }
    }

    async fn adopt(&self, identity: &RackIdentity, state: RackState) {
        let address = CommandAddress {
            entity_id: identity.entity_id,
            cluster_key: identity.cluster_key,
        };
        self.subscribe_commands(address).await;
        self.outputs.pending.send_if_modified(|old| replace(old, None));
        self.outputs
            .identity
            .send_if_modified(|old| replace(old, Some(identity.clone())));
        self.send_state(state).await;
    }

    /// Has commands subscribed to before anyone is told who we are: an order may follow at once.
    async fn subscribe_commands(&self, address: CommandAddress) {
        self.outputs.address.send_if_modified(|old| replace(old, Some(address)));
        let mut subscribed = self.controller.subscribed.clone();
        let subscribed = subscribed.wait_for(|subscribed| *subscribed);
        if tokio::time::timeout(SUBSCRIBE_WITHIN, subscribed).await.is_err() {
            tracing::warn!("cannot subscribe to commands yet; the Mixer's commands wait for the next heartbeat");
        }
    }

    async fn send_state(&self, state: RackState) {
        let order = ControllerCommand::State {
            state,
            issued: None,
            done: None,
        };
        // A stage that has gone needs no orders: the Rack stops.
        let _ = self.controller.orders.send(order).await;
    }

    async fn handle_refusal(&self, refusal: &RackRefusal) {
        // Without an identity there is nothing to stop, and nobody who takes orders.
        if refusal.code == RefusalCode::Removed && self.outputs.identity.borrow().is_some() {
            self.send_state(RackState::Removed).await;
        }
    }

    /// Heartbeats until the Mixer does not know us any more; why.
    async fn send_heartbeats(&mut self, identity: &RackIdentity) -> RefusalCode {
        let mut missed = HashSet::new();
        loop {
            let bus = self.bus.clone();
            let beat = tokio::select! {
                beat = self.send_heartbeat(identity) => beat,
                () = bus.wait_refused() => {
                    tracing::warn!("the bus no longer knows this Rack; enrolling again");
                    return RefusalCode::Unknown;
                }
            };
            match beat {
                Ok((
                    HeartbeatReply::Ok {
                        state,
                        floors,
                        limits,
                        credits,
                        authority,
                        bus_credential,
                        ..
                    },
                    cluster,
                )) => {
                    if !std::mem::take(&mut missed).is_empty() {
                        tracing::info!("the Mixer answers heartbeats again");
                    }
                    self.stores.spool.apply_floors(floors.iter().copied());
                    self.stores.outbox.spool().apply_floors(floors);
                    if let Some(credits) = credits {
                        self.stores.outbox.set_credits(credits);
                    }
                    if let Some(limits) = limits {
                        self.limits.messages.narrow(&limits);
                        self.limits.recorder.narrow_sampling(limits.sampling_rate);
                    }
                    if self.controller.report.borrow().state != Some(state) {
                        self.send_state(state).await;
                    }
                    self.trust_authority(authority);
                    self.take_credential(bus_credential.as_ref());
                    if cluster.key != identity.cluster_key {
                        // Its commands are signed with the key that follows ours: the passport of it comes with a handshake.
                        return RefusalCode::Unknown;
                    }
                    self.wait(self.settings.heartbeat_interval).await;
                }
                Ok((HeartbeatReply::Refused(refusal), _)) => {
                    tracing::warn!(
                        reason = refusal.reason,
                        "the Mixer refuses this Rack's heartbeats; enrolling again"
                    );
                    self.handle_refusal(&refusal).await;
                    return refusal.code;
                }
                Err(error) => {
                    // Another kind of reason is news: who restores a Mixer stops it first.
                    if missed.insert(discriminant(&error)) {
                        tracing::warn!(%error, "heartbeat not answered; gears keep running, telemetry waits in the spool");
                    }
                    self.wait(self.settings.heartbeat_interval.min(MISSED_PAUSE)).await;
                }
            }
        }
    }

    /// Trusts the bus's authority that the Mixer names, if the Rack trusted another one because of its invite.
    fn trust_authority(&mut self, authority: Option<KeyFingerprint>) {
        let Some(authority) = authority else { return };
        match self.state.repin(authority) {
            Ok(false) => {}
            Ok(true) => {
                // A Rack that has a file (snake.tls_ca) trusts what is in it.
                let trust = self.bus.options().trust.as_ref();
                if trust.is_some_and(|trust| trust.repin(authority)) {
                    tracing::info!(%authority, "the bus has another certificate authority: this Rack trusts it alone from now on");
                }
            }
            Err(error) => tracing::error!(%error, "cannot keep the bus's new certificate authority; trying again"),
        }
    }

    async fn send_heartbeat(
        &mut self,
        identity: &RackIdentity,
    ) -> Result<(HeartbeatReply, ClusterKey), HandshakeError> {
        let report = self.controller.report.borrow().clone();
        self.heartbeats.sent += 1;
        let (status, outbox) = (self.stores.spool.status(), self.stores.outbox.spool().status());
        let heartbeat = Heartbeat {
            entity_id: identity.entity_id,
            ts: self.heartbeats.clock.now(),
            boot_epoch: self.stores.spool.boot_epoch(),
            interval_ms: u64::try_from(self.settings.heartbeat_interval.as_millis()).unwrap_or(u64::MAX),
            scenario: report.scenario,
            scenario_error: report.error,
            spool_bytes: status.waiting_bytes + outbox.waiting_bytes,
            waiting: [status.waiting, outbox.waiting].concat(),
            facts: self.host.machine.facts(),
            seq: Some(self.heartbeats.sent),
            stopped: report.stopped,
            credential_expires: self.state.bus_credential().map(|credential| credential.expires),
        };
        let heartbeat = SignedPayload::new(&heartbeat, SigningContext::Heartbeat, self.state.key())?.to_bytes()?;
        let within = self
            .settings
            .heartbeat_interval
            .clamp(Duration::from_secs(1), HEARTBEAT_WITHIN);
        let question = (subject::HEARTBEAT, heartbeat);
        let ours = self.state.passport().and_then(ClusterKey::of);
        let expected = ours.as_ref().map(ClusterKey::fingerprint);
        let answered = self.asker.call(&self.bus, question, expected, None, within).await;
        answered.map_err(|unanswered| HandshakeError::of(unanswered, ours.as_ref()))
    }

    /// Waits; shorter if a command brings news, or the bus comes back.
    async fn wait(&self, time: Duration) {
        let mut bus = self.bus.state();
        let back = async {
            if *bus.borrow_and_update() == BusState::Connected {
                // Gone and back: what the Mixer said meanwhile was not heard.
                let _ = bus.wait_for(|state| *state != BusState::Connected).await;
            }
            let _ = bus.wait_for(|state| *state == BusState::Connected).await;
        };
        let was_known = *self.bus.state().borrow() != BusState::Refused;
        let cut_off = async {
            if was_known {
                self.bus.wait_refused().await;
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.controller.changed.notified() => {}
            () = back => {}
            () = cut_off => {}
        }
    }
}

/// Says it if the primary stream is not on the bus: the key must be that of the Mixer.
async fn check_stream(bus: BusConnection, stream: Token) {
    let found = tokio::time::timeout(STREAM_WITHIN, bus.js.get_stream(stream.as_str())).await;
    let is_elsewhere = match found {
        Ok(Ok(_)) => false,
        Ok(Err(error)) => is_missing(&error),
        // A bus that knows its users does not answer for a stream that they may not see, and answers other questions.
        Err(_) => bus.knows_users() && bus.js.query_account().await.is_ok(),
    };
    if is_elsewhere {
        tracing::warn!(
            stream = %stream,
            "the bus has no such stream for messages between Racks: set snake.stream_name to that of the Mixer"
        );
    }
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn replace<T: PartialEq>(old: &mut T, new: T) -> bool {
    let changed = *old != new;
    *old = new;
    changed
}
