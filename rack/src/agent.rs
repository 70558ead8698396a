//! The Rack agent as a whole: starts its parts, and stops them in order.
//!
//! # Invariants
//!
//! - [`RackAgent::start`] fails only for what an operator must repair (a state file that was tampered with, a folder that
//!   cannot be written, another Rack on it). A bus or a Mixer that is away is waited for.
//! - [`RackAgent::close`] takes less than two seconds: gears first, then what they recorded goes to disk.

mod agent_status;
mod bus_access;
mod mixer_tasks;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chassis::bus::BusConnection;
use chassis::file_modes::require_unshared;
use chassis::log_rate_limiter::LogRateLimiter;
use chassis::logs::LogLevelHandle;
use chassis::service_notifier::ServiceNotifier;
use durable_fs::FileLock;
use model::{Clock, Entropy, KeyFingerprint, RackInvite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::config::RackConfig;
use crate::controller::{self, ControllerParts, ORDERS};
use crate::gears::ProgramAllowList;
use crate::message_limits::MessageLimits;
use crate::outbox::{GuaranteedLane, MessageOutbox};
use crate::policy::RackPolicy;
use crate::runtime::{DRAIN_BOUND, PATIENCE, RuntimeParts};
use crate::spool::{self, SpoolLimits, SpoolRecoveryReport, SpoolThread};
use crate::state_file::StateFile;
use crate::tap::TapRegistry;
use crate::telemetry::{RecorderParts, RowBatcher, TelemetryCounters, TelemetryLayer, TelemetryRecorder};

pub use agent_status::AgentStatus;
use agent_status::{AgentChannels, StatusWatch};
pub use bus_access::{bus_options, is_admitted, kept_invite};
use bus_access::{claim, connect, options_of, require_trust};
use mixer_tasks::MixerTasks;

/// The floor stands still this long before everything above it is sent again.
const FLOOR_STALL: Duration = Duration::from_secs(30);
/// What gears may take to stop; they keep to a second themselves.
const GEARS_WITHIN: Duration = Duration::from_millis(1_200);
/// What the last rows may take to the spool.
const BATCHES_WITHIN: Duration = Duration::from_millis(300);
/// What the spool's last write may take.
const SPOOL_WITHIN: Duration = Duration::from_millis(300);
/// What the connection to the bus may take to close.
const BUS_WITHIN: Duration = Duration::from_millis(100);
const _: () = assert!(
    DRAIN_BOUND.as_millis() < GEARS_WITHIN.as_millis()
        && GEARS_WITHIN.as_millis() + BATCHES_WITHIN.as_millis() + SPOOL_WITHIN.as_millis() + BUS_WITHIN.as_millis()
            <= 2_000,
    "a Rack stops within two seconds"
);

/// What an agent is made of.
#[derive(Debug, Clone)]
pub struct AgentParts {
    /// `platform.toml`.
    pub config: RackConfig,
    /// The time.
    pub clock: Clock,
    /// Randomness for keys, nonces and ids.
    pub entropy: Entropy,
    /// Limits the log lines of each gear.
    pub throttle: Arc<LogRateLimiter>,
    /// The tracing layer that turns the process's own log lines into records.
    pub layer: TelemetryLayer,
    /// The level of the process's log, if the Mixer may change it.
    pub level: Option<LogLevelHandle>,
    /// What the service manager is told; nothing where there is none.
    pub notifier: ServiceNotifier,
    /// How long the durable floor may stand still before everything above it is sent again.
    pub floor_stall: Duration,
}

impl AgentParts {
    /// The usual parts; the throttle and the layer are the process's own.
    #[must_use]
    pub fn new(
        config: RackConfig,
        clock: Clock,
        entropy: Entropy,
        throttle: Arc<LogRateLimiter>,
        layer: TelemetryLayer,
    ) -> Self {
        Self {
            config,
            clock,
            entropy,
            throttle,
            layer,
            level: None,
            notifier: ServiceNotifier::default(),
            floor_stall: FLOOR_STALL,
        }
    }
}

/// A running Rack.
#[derive(Debug)]
pub struct RackAgent {
    bus: BusConnection,
    layer: TelemetryLayer,
    recorder: TelemetryRecorder,
    /// What talks to the Mixer.
    mixer_tasks: StoppableTasks<Vec<JoinHandle<()>>>,
    /// The controller.
    controller: StoppableTasks<JoinHandle<()>>,
    batcher: StoppableTasks<JoinHandle<()>>,
    spool: SpoolThread,
    outbox: SpoolThread,
    status: StatusWatch,
    key: KeyFingerprint,
    _lock: FileLock,
}

/// Tasks, and the token that stops them.
#[derive(Debug)]
struct StoppableTasks<T> {
    stop: CancellationToken,
    tasks: T,
}

impl<T> StoppableTasks<T> {
    const fn new(stop: CancellationToken, tasks: T) -> Self {
        Self { stop, tasks }
    }
}

/// Makes the state folder for us alone. An existing one keeps its mode: a Mixer on this machine may have its store there.
pub(crate) fn create_state_dir(dir: &Path) -> Result<(), Error> {
    require_unshared(dir)?;
    let make = if dir.is_dir() {
        durable_fs::create_dirs
    } else {
        durable_fs::create_private_dirs
    };
    Ok(make(dir)?)
}

impl RackAgent {
    /// Opens the state and the spool and starts every task.
    ///
    /// # Errors
    /// If the state file, the spool or a configured name cannot be used, or another Rack runs on the same folder.
    pub async fn start(parts: AgentParts) -> Result<Self, Error> {
        let config = &parts.config;
        let lock = lock_state_dir(config)?;
        let policy = RackPolicy::of(&config.policy, &config.places())?;
        let mut state = StateFile::of(&config.base, &parts.entropy)?;
        if let Some(invite) = &config.rack.invite {
            state.take_configured_invite(invite.expose().parse()?)?;
        }
        let (claim, key) = (claim(config, state.joined()), state.key_fingerprint());
        let options = options_of(config, Some(&state))?;
        require_trust(config, &options, &state)?;
        let (spool, spool_thread, found) = spool::open(
            &config.base.state_dir.join("spool"),
            limits(config),
            parts.clock.clone(),
            spool::SpoolKind::Telemetry,
        )?;
        let channels = AgentChannels::new(state.identity());
        let (outbox, outbox_thread, left) = MessageOutbox::open(
            &config.base.state_dir.join("outbox"),
            config.spool.max_size.get(),
            (parts.clock.clone(), &parts.entropy),
            channels.identity.subscribe(),
        )?;
        log_start(config, spool.boot_epoch(), &state);
        log_recovery("telemetry", &found);
        log_recovery("messages", &left);
        let (bus, hold) = connect(options, &state).await?;
        let counters = Arc::new(TelemetryCounters::default());
        let (recorder, receiver) = TelemetryRecorder::new(RecorderParts {
            enabled: config.observability.enabled,
            sampling_rate: config.observability.sampling_rate,
            clock: parts.clock.clone(),
            throttle: Arc::clone(&parts.throttle),
            spool: spool.clone(),
            identity: channels.identity.subscribe(),
            counters: Arc::clone(&counters),
        });
        parts.layer.attach(recorder.clone());
        let [talk, acting, recording] = std::array::from_fn(|_| CancellationToken::new());
        let batcher = RowBatcher {
            receiver,
            spool: spool.clone(),
            identity: channels.identity.subscribe(),
            counters: Arc::clone(&counters),
            cancel: recording.clone(),
        };
        let (orders, incoming) = mpsc::channel(ORDERS);
        let (message_limits, taps) = (MessageLimits::of(&config.rack), TapRegistry::default());
        let stage = controller::run(ControllerParts {
            memory: config.base.state_dir.join("scenario.cbor"),
            identity: channels.identity.subscribe(),
            runtime: RuntimeParts {
                recorder: recorder.clone(),
                entropy: parts.entropy.clone(),
                limits: message_limits.clone(),
                programs: ProgramAllowList::new(&config.gears_exec.allow).with_journal(config.gears_journald.allow),
                policy,
                lane: Some(GuaranteedLane {
                    outbox: Arc::clone(&outbox),
                    bus: bus.clone(),
                    stream: config.snake.stream_name.to_string(),
                }),
                taps: taps.clone(),
                patience: PATIENCE,
                drain: DRAIN_BOUND,
            },
            convergence: config.snake.convergence_delay,
            subscribed: channels.subscribed.subscribe(),
            orders: incoming,
            report: channels.report.clone(),
            cancel: acting.clone(),
        });
        let status = channels.watched();
        let talkers = MixerTasks {
            parts: &parts,
            bus: &bus,
            spool: &spool,
            outbox: &outbox,
            recorder: &recorder,
            counters: &counters,
            limits: message_limits,
            taps,
            cancel: &talk,
        };
        let talkers = talkers.start((state, hold), claim, orders, channels);
        Ok(Self {
            bus,
            layer: parts.layer,
            recorder,
            mixer_tasks: StoppableTasks::new(talk, talkers),
            controller: StoppableTasks::new(acting, tokio::spawn(stage)),
            batcher: StoppableTasks::new(recording, tokio::spawn(batcher.run())),
            spool: spool_thread,
            outbox: outbox_thread,
            status,
            key,
            _lock: lock,
        })
    }

    /// The recorder that the Rack's gears use.
    #[must_use]
    pub fn recorder(&self) -> TelemetryRecorder {
        self.recorder.clone()
    }

    /// Asks what every gear that records needs, the spool and its writer. It comes back as long as they do not hang, whatever waits for room. A disk that
    /// takes no write and refuses none for all of the watchdog's time is a standstill too. It does not see gears that stand still: they are
    /// watched by the Rack itself.
    pub fn liveness_probe(&self) -> impl Fn() + Clone + Send + use<> {
        let recorder = self.recorder.clone();
        move || recorder.wait_for_writer()
    }

    /// The fingerprint of the Rack's key.
    #[must_use]
    pub const fn key_fingerprint(&self) -> KeyFingerprint {
        self.key
    }

    /// What the Rack is now.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.status.now()
    }

    /// Waits until the status is one that `wanted` accepts.
    pub async fn wait_for(&self, wanted: impl Fn(&AgentStatus) -> bool) -> AgentStatus {
        self.status.clone().wait_for(wanted).await
    }

    /// Stops: no more commands, gears end, the last rows go to the spool.
    pub async fn close(self) {
        self.mixer_tasks.stop.cancel();
        self.controller.stop.cancel();
        let mut stage = self.controller.tasks;
        if tokio::time::timeout(GEARS_WITHIN, &mut stage).await.is_err() {
            tracing::warn!("gears did not stop in time; aborting them");
            stage.abort();
        }
        for talker in self.mixer_tasks.tasks {
            talker.abort();
            // Cancelled or aborted: how it ended is known.
            let _ = talker.await;
        }
        self.layer.detach();
        self.batcher.stop.cancel();
        let mut batcher = self.batcher.tasks;
        if tokio::time::timeout(BATCHES_WITHIN, &mut batcher).await.is_err() {
            tracing::warn!("could not write the last rows in time");
            batcher.abort();
        }
        let (spool, outbox) = tokio::join!(self.spool.close(SPOOL_WITHIN), self.outbox.close(SPOOL_WITHIN));
        if !(spool && outbox) {
            tracing::warn!("could not close the spool in time; the next run sends what is on disk");
        }
        self.bus.close(BUS_WITHIN).await;
    }
}

/// Makes the state folder, for this process alone.
fn lock_state_dir(config: &RackConfig) -> Result<FileLock, Error> {
    create_state_dir(&config.base.state_dir)?;
    Ok(FileLock::take(&config.base.state_dir.join("rack.lock"))?)
}

/// What becomes of an invite that a Rack keeps.
#[derive(Debug, Clone, Copy)]
pub struct KeptInvite {
    /// The fingerprint of the Rack's key.
    pub rack_key: KeyFingerprint,
    /// The key of the cluster that the Rack belongs to, where that is not the invite's: the invite's has to follow it.
    pub other_cluster_key: Option<KeyFingerprint>,
}

/// Keeps an invite in the state file of the Rack with this configuration, which must not run: it joins with it at its next start.
///
/// # Errors
/// If the state file cannot be used, or the Rack runs.
pub fn join(config: &RackConfig, invite: RackInvite, entropy: &Entropy) -> Result<KeptInvite, Error> {
    let _lock = lock_state_dir(config)?;
    let mut state = StateFile::of(&config.base, entropy)?;
    let other_cluster_key = state.cluster_key().filter(|ours| *ours != invite.cluster);
    state.join(invite)?;
    Ok(KeptInvite {
        rack_key: state.key_fingerprint(),
        other_cluster_key,
    })
}

fn limits(config: &RackConfig) -> SpoolLimits {
    SpoolLimits::new(config.spool.max_size.get(), config.spool.policy)
}

fn log_start(config: &RackConfig, boot_epoch: u64, state: &StateFile) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        state_dir = %config.base.state_dir.display(),
        boot_epoch,
        known = state.passport().is_some(),
        key = %state.key_fingerprint(),
        "the Rack starts"
    );
}

fn log_recovery(what: &str, found: &SpoolRecoveryReport) {
    if found.batches > 0 {
        tracing::info!(
            batches = found.batches,
            "the spool holds {what} of an earlier run; it is sent first"
        );
    }
    if found.torn_bytes > 0 {
        tracing::info!(
            bytes = found.torn_bytes,
            "the spool ended in a torn write, which was cut off"
        );
    }
    for path in &found.damaged {
        tracing::error!(kept = %path.display(), "a spool segment is damaged; what follows the damage is lost");
    }
}
