//! `platform.toml`: the keys of the Rack agent and of the command line, as data and as plain structs.
//!
//! # Not here
//!
//! How values are merged and checked: `chassis::config`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chassis::config::{
    ConfigErrors, ConfigProblem, ConfigSchema, LogThrottleConfig, LoggingConfig, MebibyteCount, RemovedKey,
    SecretString, Settings, ValueKind,
};
use chassis::{config_file, config_section};
use model::{ByteSize, Token};

use crate::policy::RackPlaces;

pub use crate::policy::{PolicyConfig, SandboxMode};
pub use crate::spool::SpoolFullPolicy;

config_section! {
    /// Who this Rack is and where it keeps its state.
    pub struct BaseConfig in "base" {
        /// Unique name of this Rack; empty takes rack.name_prefix and a part of its identity.
        name: Option<Token> = "node-01";
        /// Folder of the Rack's state and spool.
        state_dir: PathBuf = "./data";
        /// Signed state bundle (CBOR) with identity and secrets, below base.state_dir.
        state_file: PathBuf = "rack.flux";
        /// Key that the state file is encrypted with: 64 hexadecimal digits, as `openssl rand -hex 32` makes them.
        state_key: Option<SecretString>,
            unset("base.state_key_file, or else the state file is not encrypted"), secret();
        /// File that holds this key, for where no secret may be in the environment; its mode is 0600.
        state_key_file: Option<PathBuf>, unset("no such file");
    }
}

config_section! {
    /// The agent: limits, enrolment, heartbeat.
    pub struct AgentConfig in "rack" {
        /// Prefix of the name when base.name is empty.
        name_prefix: Token = "node-";
        /// Invite that the Rack joins its cluster with, as `platform racks invite` prints it; `platform join` does the same once.
        invite: Option<SecretString>, unset("the Rack waits for approval"), secret();
        /// IP address announced to the Mixer; empty takes the primary local one.
        ip: Option<IpAddr> = "";
        /// Routing hops after which a message is dropped as a loop.
        max_hops: u16 = 64, within(1, 65_535);
        /// Maximum message payload in bytes.
        max_payload("max_payload_size"): ByteSize = 2097152, within(1_024, 64 << 20);
        /// Time one enrolment handshake may take.
        enrollment_timeout: Duration = "15s", previous_default("\"2s\"");
        /// Time between heartbeats to the Registry.
        heartbeat_interval: Duration = "30s", at_least_ms(10);
    }
}

config_section! {
    /// What a scenario may have gears of this Rack do.
    pub struct GearExecConfig in "gears.exec" {
        /// Programs that gears of type exec may run, each by its absolute path; the Rack's user must not be able to write it or a
        /// folder above it. A scenario chooses the arguments, the working folder and the content of every file that the Rack can write,
        /// so allow none that is dangerous with any of them, such as a shell.
        allow: Vec<PathBuf> = [];
    }
}

config_section! {
    /// What a scenario may have journald_in read.
    pub struct GearJournaldConfig in "gears.journald" {
        /// Whether gears of type journald_in may read the journal of this machine, by /usr/bin/journalctl, which the Rack's user must not be
        /// able to write; that user must be in the group systemd-journal.
        allow: bool = false;
    }
}

config_section! {
    /// Data storage of the Rack.
    pub struct RackStoreConfig in "store" {
        /// Folder of what gears keep. Its folder files, made at the start, is the one that gears may use unless policy.read_roots and
        /// policy.write_roots say otherwise.
        dir: PathBuf = "./data";
    }
}

config_section! {
    /// The connection to the bus.
    pub struct SnakeConfig in "snake" {
        /// Address of the bus; more than one, comma separated, for a cluster.
        url: String = "nats://localhost:4222", kind(ValueKind::BusUrl);
        /// Domain of the persistent streams; must be the Mixer's snake.domain.
        domain: Token = "flux";
        /// Primary stream.
        stream_name: Token = "flux-msg", previous_default("\"flux\"");
        /// Time one attempt to connect may take.
        connect_timeout: Duration = "10s";
        /// Time between attempts to reconnect.
        reconnect_wait: Duration = "1s";
        /// Time given to new consumers to converge before gears start.
        convergence_delay: Duration = "100ms", at_least_ms(0);
        /// PEM file with the authorities that the bus's certificate is verified by; the connection is then made with TLS or not at all.
        tls_ca: Option<PathBuf>, unset("TLS is asked for by an invite or a tls:// address");
        /// Allows a bus on another machine to be believed without TLS and without an invite.
        allow_insecure: bool = false;
        /// Token sent to the bus.
        token: Option<SecretString>, unset("no token is sent"), secret();
    }
}

config_section! {
    /// Telemetry that waits on disk until the Mixer has stored it.
    pub struct SpoolConfig in "spool" {
        /// Size in MiB that telemetry waiting for the Mixer may take on disk, and as much again messages of lane guaranteed, which are
        /// never dropped: their senders wait.
        max_size("max_size_mb"): ByteSize as MebibyteCount = 256, within(1, 1 << 24);
        /// What a full spool does: drop the oldest telemetry (counted) or make the gears wait.
        policy: SpoolFullPolicy { DropOldest = "drop_oldest", Block = "block" } = "drop_oldest";
    }
}

config_section! {
    /// Telemetry of this Rack. The Mixer decides where it is stored.
    pub struct ObservabilityConfig in "observability" {
        /// Whether logs, metrics and traces of the Rack and its gears are collected.
        enabled: bool = true;
        /// Share of traces that is kept.
        sampling_rate: f64 = 1.0, between(0.0, 1.0);
    }
}

config_section! {
    /// Switches of the environment.
    pub struct RackSwitches in "" {
        /// Stops all reporting about the process itself, whatever observability.enabled says.
        disable_telemetry: bool = false, env_only();
    }
}

config_file! {
    /// `platform.toml`, resolved.
    pub struct RackConfig {
        logging: LoggingConfig,
        throttling: LogThrottleConfig,
        base: BaseConfig,
        rack: AgentConfig,
        gears_exec: GearExecConfig,
        gears_journald: GearJournaldConfig,
        policy: PolicyConfig,
        store: RackStoreConfig,
        snake: SnakeConfig,
        spool: SpoolConfig,
        observability: ObservabilityConfig,
        switches: RackSwitches,
    }
}

impl RackConfig {
    /// The typed form of merged settings; the state file has its folder, and telemetry is off where the environment says so.
    ///
    /// # Errors
    /// If values do not go together or have no typed form.
    pub fn of(settings: &Settings) -> Result<Self, ConfigErrors> {
        let mut problems = Vec::new();
        let mut config = Self::read(settings, &mut problems);
        problems.extend(relative_program(settings, &config.gears_exec.allow));
        problems.extend(invalid_policy(settings, &config.policy));
        ConfigErrors::unless_empty(problems)?;
        config.base.state_file = config.base.state_dir.join(config.base.state_file);
        config.observability.enabled &= !config.switches.disable_telemetry;
        Ok(config)
    }

    /// Where the Rack keeps what is its own.
    pub(crate) fn places(&self) -> RackPlaces<'_> {
        RackPlaces {
            state_dir: &self.base.state_dir,
            state_file: &self.base.state_file,
            store_dir: &self.store.dir,
        }
    }
}

fn relative_program(settings: &Settings, programs: &[PathBuf]) -> Option<ConfigProblem> {
    let key = "gears.exec.allow";
    let program = programs.iter().find(|program| !program.is_absolute())?;
    Some(ConfigProblem::BadValue {
        place: settings.place(key),
        key,
        value: format!("{program:?}"),
        wanted: "absolute paths such as \"/usr/bin/uptime\"".to_owned(),
    })
}

fn invalid_policy(settings: &Settings, policy: &PolicyConfig) -> Option<ConfigProblem> {
    let (key, value, wanted) = crate::policy::invalid_value(policy).or_else(|| own_file(settings, policy))?;
    Some(ConfigProblem::BadValue {
        place: settings.place(key),
        key,
        value: format!("{value:?}"),
        wanted,
    })
}

/// A folder that holds the very file that bounds gears, or the key of the Rack's state.
fn own_file<'a>(settings: &Settings, policy: &'a PolicyConfig) -> Option<(&'static str, &'a str, String)> {
    let file = settings.file().map(|file| (file, "in which this policy stands"));
    let key_file = settings.some_text("base.state_key_file");
    let key_file = key_file.map(|file| (Path::new(file), "the key of the Rack's state"));
    for (key, roots) in [
        ("policy.read_roots", &policy.read_roots),
        ("policy.write_roots", &policy.write_roots),
    ] {
        for root in roots {
            let mut held = file.iter().chain(&key_file).filter(|(file, _)| is_beneath(file, root));
            if let Some((file, what)) = held.next() {
                let wanted = format!("folders that do not hold {}, {what}", file.display());
                return Some((key, root.to_str()?, wanted));
            }
        }
    }
    None
}

/// Whether a file lies beneath a folder, as they are written or behind their links.
fn is_beneath(file: &Path, folder: &Path) -> bool {
    let spellings = |path: &Path| [std::path::absolute(path).ok(), path.canonicalize().ok()];
    let files: Vec<PathBuf> = spellings(file).into_iter().flatten().collect();
    let folders = spellings(folder);
    let mut folders = folders.iter().flatten();
    folders.any(|folder| files.iter().any(|file| file.starts_with(folder)))
}

/// The name that every Rack has which was given none: where an invite gives one, it counts.
pub(crate) const DEFAULT_NAME: &str = "node-01";
/// The address of a bus of which nobody said where it is.
pub(crate) const DEFAULT_URL: &str = "nats://localhost:4222";

/// The whole of `platform.toml`.
pub static SCHEMA: ConfigSchema = ConfigSchema {
    program: "platform",
    file: "platform.toml",
    sections: RackConfig::SECTIONS,
    removed: &[
        RemovedKey::moved("rack.name", "base.name", "the Rack's name is base.name"),
        RemovedKey::moved(
            "rack.state_file",
            "base.state_file",
            "the state bundle is base.state_file, below base.state_dir",
        ),
        RemovedKey::gone(
            "rack.machine_id",
            "identities are UUIDs now, given by the Mixer when the Rack enrols; remove the line",
        ),
        RemovedKey::moved(
            "rack.bus.url",
            "snake.url",
            "bus settings are in [snake]: use snake.url",
        ),
        RemovedKey::moved(
            "rack.bus.domain",
            "snake.domain",
            "bus settings are in [snake]: use snake.domain",
        ),
        RemovedKey::moved(
            "rack.bus.stream_name",
            "snake.stream_name",
            "bus settings are in [snake]: use snake.stream_name",
        ),
        RemovedKey::moved(
            "rack.bus.connect_timeout",
            "snake.connect_timeout",
            "bus settings are in [snake]: use snake.connect_timeout",
        ),
        RemovedKey::moved(
            "rack.bus.reconnect_wait",
            "snake.reconnect_wait",
            "bus settings are in [snake]: use snake.reconnect_wait",
        ),
        RemovedKey::moved(
            "rack.bus.convergence_delay",
            "snake.convergence_delay",
            "bus settings are in [snake]: use snake.convergence_delay",
        ),
        RemovedKey::gone("rack.bus", "the section [rack.bus] is [snake] now"),
        RemovedKey::gone(
            "logging.max_age",
            "log files are kept by number: use logging.max_backups",
        ),
        RemovedKey::gone("logging.dir", "the folder of the log files is that of logging.filename"),
    ],
};

#[cfg(test)]
mod tests;
