//! The Mixer's own connection to the bus: `chassis`'s, with what the Mixer knows about the server behind it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream;
use async_nats::{Client, ConnectOptions, HeaderMap, Request};
use bytes::Bytes;
use chassis::bus::{BusOptions, BusState, BusTrust, UserJwt};
use chassis::config::{SecretString, without_credentials};
use model::subject::RackCommand;
use model::{
    BadSignature, BusCredential, EntityId, KeyFingerprint, SigningContext, Timestamp, subject, telemetry_codec,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::accounts::BusUser;
use super::operator_signer::OperatorSigner;
use super::{BusCertificates, BusError, BusStatus, ProcessStatus, ProcessWatch};
use crate::cluster::Cluster;

/// How long an answer may take after a reload of the server, before a state is sent again.
const RESEND_AFTER_RELOAD: Duration = Duration::from_millis(200);

/// One question to a server that is starting.
const PROBE: Duration = Duration::from_secs(2);
/// The step between attempts to reach a server that is away; ours is back within milliseconds.
const RECONNECT: Duration = Duration::from_millis(100);

/// What does not change about the server.
#[derive(Debug)]
pub(super) struct ServerProfile {
    url: String,
    durable: Option<bool>,
    /// Whether the Mixer owns its process.
    is_managed: bool,
    process: Option<ProcessWatch>,
    /// Where it speaks TLS.
    certificates: Option<BusCertificates>,
    /// Where it is in operator mode.
    signer: Option<OperatorSigner>,
}

impl ServerProfile {
    pub(super) fn managed(url: &str, durable: bool, process: ProcessWatch) -> Self {
        Self {
            url: without_credentials(url),
            durable: Some(durable),
            is_managed: true,
            process: Some(process),
            certificates: None,
            signer: None,
        }
    }

    pub(super) fn with_certificates(self, certificates: Option<BusCertificates>) -> Self {
        Self { certificates, ..self }
    }

    pub(super) fn external(url: &str) -> Self {
        Self {
            url: without_credentials(url),
            durable: None,
            is_managed: false,
            process: None,
            certificates: None,
            signer: None,
        }
    }

    /// An external server whose accounts this signs, and whether it takes some right now.
    pub(super) fn with_operator(self, signer: OperatorSigner, process: ProcessWatch) -> Self {
        Self {
            signer: Some(signer),
            process: Some(process),
            ..self
        }
    }
}

/// What the Mixer shows to the server.
#[derive(Clone)]
pub(super) enum MixerCredentials {
    /// Nothing.
    None,
    /// The token that everybody shows.
    Token(SecretString),
    /// The seed of its own key.
    Key(String),
    /// The same, and the token that goes with it.
    Jwt {
        /// The seed.
        seed: String,
        /// The token.
        jwt: String,
    },
}

/// The oldest server with fast batches and consumer resets.
const REQUIRED: (i64, i64) = (2, 14);
const REQUIRED_TEXT: &str = "2.14.0";

/// Where Racks answer commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyRouting {
    /// In an inbox of the Mixer's.
    InAnInbox,
    /// On a subject of the Rack's own: the only ones that reach the Mixer's account.
    OnTheRacksSubject,
}

/// The connection; cheap to clone.
#[derive(Debug, Clone)]
pub struct MixerBus {
    connection: chassis::bus::BusConnection,
    reply_routing: ReplyRouting,
    profile: Arc<ServerProfile>,
}

/// Why a Rack did not answer a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// It is not connected.
    #[error("nobody listens: the Rack is not connected")]
    NotConnected,
    /// It is connected and silent.
    #[error("no answer in {} ms", .0.as_millis())]
    NoAnswer(Duration),
    /// The bus failed.
    #[error("the bus failed: {0}")]
    Bus(String),
    /// The command or its answer is not our CBOR.
    #[error(transparent)]
    Form(#[from] BadSignature),
}

impl MixerBus {
    /// Connects and makes sure of the domain; later breaks are healed for ever.
    pub(super) async fn connect(
        address: &str,
        domain: &str,
        ((credentials, reply_routing), trust): ((MixerCredentials, ReplyRouting), Option<BusTrust>),
        within: Duration,
        profile: ServerProfile,
    ) -> Result<Self, BusError> {
        let mut options = BusOptions::new(address, domain, "platform-mixer");
        match credentials {
            MixerCredentials::None => {}
            MixerCredentials::Token(token) => options.token = Some(token),
            MixerCredentials::Key(seed) => options.nkey = Some(SecretString::new(seed)),
            MixerCredentials::Jwt { seed, jwt } => {
                options.nkey = Some(SecretString::new(seed));
                options.jwt = UserJwt::from(Some(jwt));
            }
        }
        options.trust = trust;
        options.connect_timeout = within;
        options.reconnect_wait = RECONNECT;
        let connection = chassis::bus::BusConnection::connect(options).await?;
        connection.preflight().await?;
        let (major, minor) = REQUIRED;
        if !connection.client.is_server_compatible(major, minor, 0) {
            return Err(BusError::ServerTooOld {
                url: without_credentials(address),
                found: connection.client.server_info().version,
                required: REQUIRED_TEXT,
            });
        }
        Ok(Self {
            connection,
            reply_routing,
            profile: Arc::new(profile),
        })
    }

    /// The plain connection.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.connection.client
    }

    /// JetStream of our domain.
    #[must_use]
    pub const fn jetstream(&self) -> &jetstream::Context {
        &self.connection.js
    }

    /// Where Racks reach the bus, credentials removed.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.profile.url
    }

    pub(crate) fn state(&self) -> watch::Receiver<BusState> {
        self.connection.state()
    }

    /// How the bus is right now.
    #[must_use]
    pub fn status(&self) -> BusStatus {
        let connected = *self.connection.state().borrow() == BusState::Connected;
        let (managed, process) = (self.profile.is_managed, self.process());
        BusStatus {
            managed,
            url: self.profile.url.clone(),
            authority: self.authority(),
            connected,
            healthy: connected && (process.healthy || !managed),
            access_issue: process.access_issue,
            pid: process.pid,
            restarts: process.restarts,
            free_bytes: process.free_bytes,
            power_safe: self.profile.durable,
            durability: match self.profile.durable {
                Some(true) => "power-safe: synced before it is acknowledged",
                Some(false) => "not power-safe: synced every second",
                None => "unknown: set by the external server",
            },
        }
    }

    /// By what Racks know the authority of its certificate now.
    pub(crate) fn authority(&self) -> Option<KeyFingerprint> {
        self.profile.certificates.as_ref().map(BusCertificates::authority)
    }

    /// With what a server in operator mode knows a Rack that has this key for the bus; none while what it has until `expires` is good for more than
    /// half of the time, or where the server knows Racks by their keys or not at all.
    pub(crate) fn credential(&self, rack: &EntityId, key: &str, expires: Option<Timestamp>) -> Option<BusCredential> {
        let issued = self.profile.signer.as_ref()?.renewed(rack, key, expires);
        issued.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot issue a credential for the bus");
            None
        })
    }

    /// Sends a command signed by the cluster to a Rack and waits for its answer. Where nobody hears it while the server reloads its
    /// configuration, it is sent again after that; so is a state where the answer may have got lost in a reload.
    ///
    /// # Errors
    /// [`CommandError::NotConnected`] if nobody heard it, also where the time ends before the reload does;
    /// [`CommandError::NoAnswer`] if it was heard and not answered, or could not be sent, in this time.
    pub(crate) async fn command<T: Serialize>(
        &self,
        cluster: &Cluster,
        rack: &EntityId,
        command: RackCommand,
        body: &T,
        within: Duration,
    ) -> Result<Bytes, CommandError> {
        let body = Bytes::from(cluster.sign(body, SigningContext::Command)?);
        let deadline = Instant::now() + within;
        loop {
            let before = self.process();
            let answer = tokio::select! {
                biased;
                answer = timeout_at(deadline, self.request(rack, command, body.clone())) => answer,
                // A Rack answers a state that it was told before, and does nothing.
                () = self.reload_settled(&before), if command == RackCommand::State => continue,
            };
            match answer {
                Err(_) => return Err(CommandError::NoAnswer(within)),
                Ok(Err(RequestErrorKind::NoResponders)) if self.wait_for_reload(&before, deadline).await => {}
                Ok(Err(RequestErrorKind::NoResponders)) => return Err(CommandError::NotConnected),
                Ok(Err(other)) => return Err(CommandError::Bus(other.to_string())),
                Ok(Ok(answer)) => return Ok(answer),
            }
        }
    }

    async fn request(&self, rack: &EntityId, command: RackCommand, body: Bytes) -> Result<Bytes, RequestErrorKind> {
        let mut request = Request::new().payload(body).timeout(None);
        if self.reply_routing == ReplyRouting::OnTheRacksSubject {
            let inbox = self.client().new_inbox();
            let number = inbox.rsplit('.').next().unwrap_or_default();
            let inbox = format!("{}.{number}", subject::answers(rack));
            // The reply subject that the Rack sees is the server's, on which it may not publish.
            let mut headers = HeaderMap::new();
            headers.insert(telemetry_codec::ANSWER_TO, inbox.as_str());
            request = request.headers(headers).inbox(inbox);
        }
        let answer = self.client().send_request(subject::rack(rack, command), request).await;
        answer.map(|message| message.payload).map_err(|error| error.kind())
    }

    fn process(&self) -> ProcessStatus {
        let process = self.profile.process.as_ref();
        process.map(|process| process.borrow().clone()).unwrap_or_default()
    }

    /// Returns a moment after the end of a reload that went on at `before` or has begun since; never without one.
    async fn reload_settled(&self, before: &ProcessStatus) {
        let has_ended = |now: &ProcessStatus| !now.is_reloading && now.has_reloaded_since(before);
        if let Some(mut process) = self.profile.process.clone()
            && process.wait_for(has_ended).await.is_ok()
        {
            sleep(RESEND_AFTER_RELOAD).await;
        } else {
            pending().await
        }
    }

    /// Whether a reload that went on at `before`, or has begun since, ended before the deadline. Waits for its end.
    async fn wait_for_reload(&self, before: &ProcessStatus, deadline: Instant) -> bool {
        let Some(mut process) = self.profile.process.clone() else {
            return false;
        };
        let has_reloaded = process.borrow().has_reloaded_since(before);
        let ended = process.wait_for(|now| !now.is_reloading);
        has_reloaded && timeout_at(deadline, ended).await.is_ok_and(|ended| ended.is_ok())
    }

    /// One more connection of the same user, for what a test says beside the Mixer.
    #[cfg(test)]
    #[allow(clippy::unwrap_used, reason = "tests")]
    pub(crate) async fn another_connection(&self) -> Client {
        let options = BusOptions {
            url: self.profile.url.clone(),
            inbox_prefix: None,
            ..self.connection.options().clone()
        };
        chassis::bus::BusConnection::connect(options).await.unwrap().client
    }

    /// These options, and whom the Mixer's own connection trusts.
    #[cfg(test)]
    pub(crate) fn trusting(&self, options: ConnectOptions) -> ConnectOptions {
        match &self.connection.options().trust {
            Some(trust) => trust.secure(options),
            None => options,
        }
    }

    /// Sends what is buffered and closes.
    pub(super) async fn close(&self) {
        self.connection.close(Duration::from_secs(2)).await;
    }
}

/// A connection as a user of ours.
pub(super) fn user_options(user: &BusUser, trust: Option<&BusTrust>) -> ConnectOptions {
    let options = ConnectOptions::with_nkey(user.seed.clone());
    match trust {
        Some(trust) => trust.secure(options),
        None => options,
    }
}

/// Whether a server just started answers under its domain.
pub(super) async fn probe(address: &str, domain: &str, user: &BusUser, trust: Option<&BusTrust>) -> Result<(), String> {
    let options = user_options(user, trust)
        .name("platform-mixer-probe")
        .connection_timeout(PROBE);
    let probing = async {
        let client = options.connect(address).await;
        let client = client.map_err(|error| error.to_string())?;
        let account = jetstream::with_domain(client, domain).query_account().await;
        account.map(|_| ()).map_err(|error| error.to_string())
    };
    let probed = tokio::time::timeout(PROBE, probing).await;
    probed.unwrap_or_else(|_| Err("no answer in 2 s".to_owned()))
}

/// `host:port`, an IPv6 host in brackets.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
