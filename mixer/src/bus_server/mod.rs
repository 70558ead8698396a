//! The bus: a `nats-server` process that the Mixer owns, or one that somebody else runs.
//!
//! ```text
//! BusServer::start ── Managed ── find and verify the binary ─ lock the store ─ write nats.conf ─ spawn ─ ready ─┐
//!                  └─ External ─────────────────────────────────────────────────────────────────────────────────┤
//!                                               connect ─ check the JetStream domain ─ ensure the streams ◀─────┘
//! supervisor task:  exit → back-off → spawn again        every 5 s: is it well? wedged and disk free → restart
//! stream task:      every reconnect → ensure the streams again
//! ```
//!
//! # Invariants
//!
//! - One store, one server: the lock on the store is inherited by the child, so that not even an orphan shares a store.
//! - The child does not outlive the Mixer: `PR_SET_PDEATHSIG`, on a thread that lives as long as the Mixer ([`chassis::child_spawner`]).
//! - Every stream has an explicit byte limit and file storage (`streams`).
//! - Who connects with TLS verifies the server by the store's own authority (`certificates`).
//! - Each Rack is a user with its own key and subjects, in an account of its own (`account_plan`): by a list that a managed server reads
//!   (`accounts`), by JWTs that an external one in operator mode takes (`claims_publisher`).
//!
//! # Not here
//!
//! Consumers (`ingest`, `scenario`), what leaves the streams before its age and what is said over the bus (`scenario`, `agent_rpc`).

mod access_list;
mod account_claims;
mod account_limits;
mod account_plan;
mod accounts;
mod binary;
mod certificates;
mod claims_publisher;
mod client;
mod damaged_consumers;
mod error;
mod health;
mod jwt;
mod nats_conf;
mod operator_key;
mod operator_signer;
mod reload;
mod store_lock;
mod stream_files;
mod streams;
mod supervisor;
mod system_connection;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chassis::bus::BusTrust;
use chassis::config::SecretString;
use model::{ByteSize, KeyFingerprint};
use tokio::sync::watch;

use crate::tasks::{FailureReporter, SupervisedTask};

pub(crate) use access_list::{AclEntry, AclSnapshot};
use account_plan::StreamNames;
pub(crate) use accounts::BusAuthorization;
pub(crate) use binary::places;
pub(crate) use certificates::own_authority::rotate_authority;
pub(crate) use certificates::{BusCertificates, SERVER_CERTIFICATE, SERVER_KEY};
pub use claims_publisher::BusOperator;
use claims_publisher::ClaimsPublisher;
pub use client::{CommandError, MixerBus};
pub use error::BusError;
pub(crate) use operator_key::{OPERATOR_CREDENTIALS, OPERATOR_KEY};
pub(crate) use operator_signer::{OperatorSigner, found_operator};
pub(crate) use store_lock::STORE_LOCK;
use stream_files::StreamFiles;
pub(crate) use streams::{ReconnectWatcher, check_stream_subjects};
use supervisor::ServerSupervisor;

/// What the bus is to be.
#[derive(Debug, Clone)]
pub struct BusSettings {
    /// Ours or another's.
    pub server: ServerDeployment,
    /// The JetStream domain.
    pub domain: String,
    /// How long to try to reach an external server.
    pub connect_timeout: Duration,
    /// The streams.
    pub streams: StreamSettings,
}

/// Who runs the server.
#[derive(Debug, Clone)]
pub enum ServerDeployment {
    /// The Mixer.
    Managed(Box<ManagedServer>),
    /// Somebody else.
    External {
        /// Where it is; may carry credentials.
        url: String,
        /// The token that it asks for.
        token: Option<SecretString>,
        /// Who signs its accounts, where it is in operator mode.
        operator: Option<Box<BusOperator>>,
    },
}

impl ServerDeployment {
    /// What the Mixer's connections trust.
    fn trust(&self) -> Result<Option<BusTrust>, BusError> {
        match self {
            Self::Managed(managed) => managed.trust(),
            Self::External { .. } => Ok(None),
        }
    }
}

impl ManagedServer {
    fn trust(&self) -> Result<Option<BusTrust>, BusError> {
        self.certificates.as_ref().map(BusCertificates::trust).transpose()
    }
}

/// The server process that the Mixer owns.
#[derive(Debug, Clone)]
pub struct ManagedServer {
    /// Its name in logs.
    pub name: String,
    /// The address it binds.
    pub host: String,
    /// The port it listens on; 0 for any free one.
    pub port: u16,
    /// The URL announced to Racks; none for host and port as bound.
    pub advertised: Option<String>,
    /// Where its streams are.
    pub store_dir: PathBuf,
    /// Whether it syncs before it acknowledges; otherwise every second.
    pub durable: bool,
    /// The largest payload, headers not counted.
    pub max_payload: ByteSize,
    /// The executable; none to look for it.
    pub binary: Option<PathBuf>,
    /// The executable's SHA-256, hex; none to trust any.
    pub sha256: Option<String>,
    /// The certificates of TLS; none to speak in clear text.
    pub(crate) certificates: Option<BusCertificates>,
    /// Who may do what.
    pub(crate) users: BusAuthorization,
    /// The file with the operator's seed.
    pub(crate) operator_key: PathBuf,
}

/// The streams and their limits.
#[derive(Debug, Clone)]
pub struct StreamSettings {
    /// The primary stream's name.
    pub name: String,
    /// `snake.stream_subjects`: business subjects and what is under `platform.`.
    pub subjects: Vec<String>,
    /// The age of telemetry and lifecycle events.
    pub telemetry_max_age: Duration,
    /// The bytes of all streams together.
    pub max_store: ByteSize,
    /// The largest payload, headers not counted.
    pub max_payload: ByteSize,
}

/// Room for headers and protocol above the largest payload.
const HEADROOM: u64 = 64 << 10;

/// What of the list of Racks the server does not follow, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub enum BusAccessIssue {
    /// None of its last change.
    Whole(String),
    /// The accounts of some Racks, which cannot speak; nobody is let in who was removed.
    InPart(String),
}

/// How the bus is right now.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BusStatus {
    /// Whether the Mixer owns the server process.
    pub managed: bool,
    /// Where Racks reach it, credentials removed.
    pub url: String,
    /// By what Racks know the authority of its certificate; none without TLS of the Mixer's own.
    pub authority: Option<KeyFingerprint>,
    /// Whether the Mixer's own connection stands.
    pub connected: bool,
    /// Whether the server says that it is well; for an external one, whether it is connected.
    pub healthy: bool,
    /// Why the server does not follow the list of who may use it; none while it does.
    pub access_issue: Option<BusAccessIssue>,
    /// The process, while it runs.
    pub pid: Option<u32>,
    /// How often the process was started again.
    pub restarts: u64,
    /// Free bytes on the file system of its store.
    pub free_bytes: Option<u64>,
    /// Whether an acknowledged message survives a power cut; unknown for an external server.
    pub power_safe: Option<bool>,
    /// The same for people.
    pub durability: &'static str,
}

/// The running bus.
#[derive(Debug)]
pub struct BusServer {
    bus: MixerBus,
    supervisor: Option<ServerSupervisor>,
    /// Where the server writes business messages, and syncs them later.
    unsynced: Option<PathBuf>,
    tasks: Vec<SupervisedTask>,
}

impl BusServer {
    /// Starts or finds the server, connects, and makes sure of the streams.
    ///
    /// # Errors
    /// [`BusError`] with the way out.
    pub(crate) async fn start(settings: BusSettings, fatal: &FailureReporter) -> Result<Self, BusError> {
        let plan = streams::plan(&settings.streams)?;
        let unsynced = unsynced(&settings);
        let (supervisor, address, facts) = match &settings.server {
            ServerDeployment::Managed(managed) => {
                let supervisor = ServerSupervisor::start(managed.as_ref().clone(), &settings, fatal).await?;
                let facts =
                    client::ServerProfile::managed(supervisor.advertised(), managed.durable, supervisor.watch());
                let facts = facts.with_certificates(managed.certificates.clone());
                let address = supervisor.address().to_owned();
                (Some(supervisor), address, facts)
            }
            ServerDeployment::External { url, .. } => (None, url.clone(), client::ServerProfile::external(url)),
        };
        let publisher = Self::publish_accounts(&settings).await?;
        let facts = match (&settings.server, &publisher) {
            (
                ServerDeployment::External {
                    operator: Some(operator),
                    ..
                },
                Some(publisher),
            ) => facts.with_operator(operator.signer.clone(), publisher.status()),
            _ => facts,
        };
        match Self::connect(&address, settings, facts, plan, fatal).await {
            Ok((bus, mut tasks)) => {
                let publication = publisher
                    .map(|publisher| SupervisedTask::spawn("bus accounts", fatal, |stop| publisher.keep(stop)));
                tasks.extend(publication);
                Ok(Self {
                    bus,
                    supervisor,
                    unsynced,
                    tasks,
                })
            }
            Err(error) => {
                if let Some(supervisor) = supervisor {
                    supervisor.close().await;
                }
                Err(error)
            }
        }
    }

    /// Has an external server in operator mode take every account.
    async fn publish_accounts(settings: &BusSettings) -> Result<Option<ClaimsPublisher>, BusError> {
        let ServerDeployment::External {
            url,
            operator: Some(operator),
            ..
        } = &settings.server
        else {
            return Ok(None);
        };
        let streams = StreamNames {
            domain: settings.domain.clone(),
            business: settings.streams.name.clone(),
        };
        let publisher = ClaimsPublisher::start(url, operator, streams, settings.connect_timeout);
        publisher.await.map(Some)
    }

    async fn connect(
        address: &str,
        settings: BusSettings,
        profile: client::ServerProfile,
        plan: Vec<async_nats::jetstream::stream::Config>,
        fatal: &FailureReporter,
    ) -> Result<(MixerBus, Vec<SupervisedTask>), BusError> {
        let trust = settings.server.trust()?;
        let access = match settings.server {
            ServerDeployment::Managed(managed) => (
                client::MixerCredentials::Key(managed.users.mixer.seed),
                client::ReplyRouting::OnTheRacksSubject,
            ),
            ServerDeployment::External {
                operator: Some(operator),
                ..
            } => (
                client::MixerCredentials::Jwt {
                    jwt: operator.mixer_jwt()?,
                    seed: operator.users.mixer.seed,
                },
                client::ReplyRouting::OnTheRacksSubject,
            ),
            ServerDeployment::External { token, .. } => (
                token.map_or(client::MixerCredentials::None, client::MixerCredentials::Token),
                client::ReplyRouting::InAnInbox,
            ),
        };
        let bus = MixerBus::connect(
            address,
            &settings.domain,
            (access, trust),
            settings.connect_timeout,
            profile,
        )
        .await?;
        streams::ensure(bus.jetstream(), &plan).await?;
        let watched = bus.clone();
        let streams = SupervisedTask::spawn("bus streams", fatal, |stop| streams::keep(watched, plan, stop));
        Ok((bus, vec![streams]))
    }

    /// Has what the stream of business messages took on the disk; none where the server does so before it acknowledges, or is not ours.
    pub(crate) fn sync_messages(&self) -> Option<ingest::SyncBus> {
        let files = StreamFiles::new(self.unsynced.clone()?);
        let files = Mutex::new(files);
        Some(Arc::new(move || {
            files.lock().unwrap_or_else(PoisonError::into_inner).sync()
        }))
    }

    /// The connection.
    #[must_use]
    pub const fn bus(&self) -> &MixerBus {
        &self.bus
    }

    /// Closes the connection after its last bytes are out, then stops the server.
    pub async fn close(self) {
        for task in self.tasks {
            task.close().await;
        }
        self.bus.close().await;
        if let Some(supervisor) = self.supervisor {
            supervisor.close().await;
        }
    }
}

/// The folder of the stream of business messages, where the server is ours and acknowledges them before it syncs them.
fn unsynced(settings: &BusSettings) -> Option<PathBuf> {
    let ServerDeployment::Managed(managed) = &settings.server else {
        return None;
    };
    let account = nats_conf::BusStorePaths::account(&managed.store_dir);
    (!managed.durable).then(|| account.join("streams").join(&settings.streams.name))
}

/// What the supervisor says of its process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ProcessStatus {
    pid: Option<u32>,
    restarts: u64,
    healthy: bool,
    free_bytes: Option<u64>,
    /// Whether it reloads its configuration: meanwhile it may not know who hears commands.
    is_reloading: bool,
    /// How often a reload began.
    reloads: u64,
    /// Why the server does not follow the list of Racks.
    access_issue: Option<BusAccessIssue>,
}

impl ProcessStatus {
    fn begin_reload(&mut self) {
        self.is_reloading = true;
        self.reloads += 1;
    }

    fn end_reload(&mut self) {
        self.is_reloading = false;
    }

    /// Whether an answer is late because the server read its configuration meanwhile; how long that may take has a bound of its own.
    fn explains(&self, before: &Self, health: &health::ServerHealth) -> bool {
        matches!(health, health::ServerHealth::Silent(_)) && self.has_reloaded_since(before)
    }

    /// Whether a reload went on at `before`, goes on, or came between.
    fn has_reloaded_since(&self, before: &Self) -> bool {
        before.is_reloading || self.is_reloading || self.reloads != before.reloads
    }
}

type ProcessWatch = watch::Receiver<ProcessStatus>;
