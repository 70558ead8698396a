//! `platform.toml`: the keys of the Rack agent and of the command line, as data and as plain structs.
//!
//! # Not here
//!
//! How values are merged and checked: `chassis::config`.

use std::path::PathBuf;
use std::time::Duration;

use chassis::config::{
    ConfigErrors, ConfigKey, ConfigProblem, ConfigSchema, ConfigSection, LogThrottleConfig, LoggingConfig, RemovedKey,
    SecretString, Settings, ValueKind, logging,
};
use model::{ByteSize, Token};

static LOGGING: [ConfigKey; 7] = logging::keys("\"logs/platform.log\"");
static THROTTLING: [ConfigKey; 3] = logging::throttling_keys();

static BASE: [ConfigKey; 5] = [
    ConfigKey::new(
        "base.name",
        ValueKind::Name { empty: true },
        "\"node-01\"",
        "Unique name of this Rack; empty takes rack.name_prefix and a part of its identity",
    ),
    ConfigKey::new(
        "base.state_dir",
        ValueKind::Path,
        "\"./data\"",
        "Folder of the Rack's state and spool",
    ),
    ConfigKey::new(
        "base.state_file",
        ValueKind::Path,
        "\"rack.flux\"",
        "Signed state bundle (CBOR) with identity and secrets, below base.state_dir",
    ),
    ConfigKey::optional(
        "base.state_key",
        ValueKind::Text,
        "base.state_key_file, or else the state file is not encrypted",
        "Key that the state file is encrypted with: 64 hexadecimal digits, as `openssl rand -hex 32` makes them",
    )
    .secret(),
    ConfigKey::optional(
        "base.state_key_file",
        ValueKind::Path,
        "no such file",
        "File that holds this key, for where no secret may be in the environment; its mode is 0600",
    ),
];

static RACK: [ConfigKey; 6] = [
    ConfigKey::new(
        "rack.name_prefix",
        ValueKind::Name { empty: false },
        "\"node-\"",
        "Prefix of the name when base.name is empty",
    ),
    ConfigKey::new(
        "rack.ip",
        ValueKind::Text,
        "\"\"",
        "IP address announced to the Mixer; empty takes the primary local one",
    ),
    ConfigKey::new(
        "rack.max_hops",
        ValueKind::Int { min: 1, max: 65_535 },
        "64",
        "Routing hops after which a message is dropped as a loop",
    ),
    ConfigKey::new(
        "rack.max_payload_size",
        ValueKind::Int {
            min: 1_024,
            max: 64 << 20,
        },
        "2097152",
        "Maximum message payload in bytes",
    ),
    ConfigKey::new(
        "rack.enrollment_timeout",
        ValueKind::span(1),
        "\"15s\"",
        "Time one enrolment handshake may take",
    )
    .previous_default("\"2s\""),
    ConfigKey::new(
        "rack.heartbeat_interval",
        ValueKind::span(10),
        "\"30s\"",
        "Time between heartbeats to the Registry",
    ),
];

static GEARS_EXEC: [ConfigKey; 1] = [ConfigKey::new(
    "gears.exec.allow",
    ValueKind::TextList,
    "[]",
    "Programs that gears of type exec may run, each by its absolute path; the Rack's user must not be able to write it or a folder \
     above it. A scenario chooses the arguments, the working folder and the content of every file that the Rack can write, so allow none that \
     is dangerous with any of them, such as a shell",
)];

static STORE: [ConfigKey; 1] = [ConfigKey::new(
    "store.dir",
    ValueKind::Path,
    "\"./data\"",
    "Root folder of data storage",
)];

static SNAKE: [ConfigKey; 7] = [
    ConfigKey::new(
        "snake.url",
        ValueKind::BusUrl,
        "\"nats://localhost:4222\"",
        "Address of the bus; more than one, comma separated, for a cluster",
    ),
    ConfigKey::new(
        "snake.domain",
        ValueKind::Name { empty: false },
        "\"flux\"",
        "Domain of the persistent streams; must be the Mixer's snake.domain",
    ),
    ConfigKey::new(
        "snake.stream_name",
        ValueKind::Name { empty: false },
        "\"flux-msg\"",
        "Primary stream",
    )
    .previous_default("\"flux\""),
    ConfigKey::new(
        "snake.connect_timeout",
        ValueKind::span(1),
        "\"10s\"",
        "Time one attempt to connect may take",
    ),
    ConfigKey::new(
        "snake.reconnect_wait",
        ValueKind::span(1),
        "\"1s\"",
        "Time between attempts to reconnect",
    ),
    ConfigKey::new(
        "snake.convergence_delay",
        ValueKind::span(0),
        "\"100ms\"",
        "Time given to new consumers to converge before gears start",
    ),
    ConfigKey::optional(
        "snake.token",
        ValueKind::Text,
        "no token is sent",
        "Token sent to the bus",
    )
    .secret(),
];

static SPOOL: [ConfigKey; 2] = [
    ConfigKey::new(
        "spool.max_size_mb",
        ValueKind::Int { min: 1, max: 1 << 24 },
        "256",
        "Size in MiB that telemetry waiting for the Mixer may take on disk, and as much again messages of lane guaranteed, which are never dropped: their senders wait",
    ),
    ConfigKey::new(
        "spool.policy",
        ValueKind::Word(&["drop_oldest", "block"]),
        "\"drop_oldest\"",
        "What a full spool does: drop the oldest telemetry (counted) or make the gears wait",
    ),
];

static OBSERVABILITY: [ConfigKey; 3] = [
    ConfigKey::new(
        "observability.enabled",
        ValueKind::Bool,
        "true",
        "Whether logs, metrics and traces of the Rack and its gears are collected",
    ),
    ConfigKey::new(
        "observability.sampling_rate",
        ValueKind::Float { min: 0.0, max: 1.0 },
        "1.0",
        "Share of traces that is kept",
    ),
    ConfigKey::new(
        "disable_telemetry",
        ValueKind::Bool,
        "false",
        "Stops all reporting about the process itself, whatever observability.enabled says",
    )
    .env_only(),
];

/// The whole of `platform.toml`.
pub static SCHEMA: ConfigSchema = ConfigSchema {
    program: "platform",
    file: "platform.toml",
    sections: &[
        ConfigSection {
            doc: logging::DOC,
            keys: &LOGGING,
        },
        ConfigSection {
            doc: logging::THROTTLING_DOC,
            keys: &THROTTLING,
        },
        ConfigSection {
            doc: "Who this Rack is and where it keeps its state.",
            keys: &BASE,
        },
        ConfigSection {
            doc: "The agent: limits, enrolment, heartbeat.",
            keys: &RACK,
        },
        ConfigSection {
            doc: "What a scenario may have gears of this Rack do.",
            keys: &GEARS_EXEC,
        },
        ConfigSection {
            doc: "Data storage of the Rack.",
            keys: &STORE,
        },
        ConfigSection {
            doc: "The connection to the bus.",
            keys: &SNAKE,
        },
        ConfigSection {
            doc: "Telemetry that waits on disk until the Mixer has stored it.",
            keys: &SPOOL,
        },
        ConfigSection {
            doc: "Telemetry of this Rack. The Mixer decides where it is stored.",
            keys: &OBSERVABILITY,
        },
    ],
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

/// `platform.toml`, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct RackConfig {
    /// `[logging]`.
    pub logging: LoggingConfig,
    /// Rate limit for the log lines of gears.
    pub throttling: LogThrottleConfig,
    /// `[base]`.
    pub base: BaseConfig,
    /// `[rack]`.
    pub rack: AgentConfig,
    /// `gears.exec.allow`: programs that gears may run.
    pub exec_allow: Vec<PathBuf>,
    /// `store.dir`: root of data storage.
    pub store_dir: PathBuf,
    /// `[snake]`.
    pub snake: SnakeConfig,
    /// `[spool]`.
    pub spool: SpoolConfig,
    /// `[observability]`.
    pub observability: ObservabilityConfig,
}

/// `[base]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BaseConfig {
    /// The Rack's name; `None` asks for one made of `rack.name_prefix` and a part of its identity.
    pub name: Option<Token>,
    /// The folder of state and spool.
    pub state_dir: PathBuf,
    /// The state bundle, with its folder.
    pub state_file: PathBuf,
    /// What the state bundle is encrypted with, in hex.
    pub state_key: Option<SecretString>,
    /// The file that holds it, where it is not given itself.
    pub state_key_file: Option<PathBuf>,
}

/// `[rack]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// The prefix of the name when none is given.
    pub name_prefix: String,
    /// The IP address announced to the Mixer; `None` takes the primary local one.
    pub ip: Option<std::net::IpAddr>,
    /// Hops after which a message is dropped as a loop.
    pub max_hops: u16,
    /// The greatest message payload.
    pub max_payload: ByteSize,
    /// The time one enrolment handshake may take.
    pub enrollment_timeout: Duration,
    /// The time between heartbeats.
    pub heartbeat_interval: Duration,
}

/// `[snake]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SnakeConfig {
    /// The bus; more than one address, comma separated, for a cluster.
    pub url: String,
    /// The domain of the persistent streams.
    pub domain: Token,
    /// The primary stream.
    pub stream_name: Token,
    /// The time one attempt to connect may take.
    pub connect_timeout: Duration,
    /// The time between attempts to reconnect.
    pub reconnect_wait: Duration,
    /// The time given to new consumers before gears start.
    pub convergence_delay: Duration,
    /// The token sent to the bus.
    pub token: Option<SecretString>,
}

/// `[spool]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolConfig {
    /// The size it may take on disk.
    pub max_size: ByteSize,
    /// What it does when it is full.
    pub policy: SpoolPolicy,
}

/// What a full spool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolPolicy {
    /// Loses the oldest telemetry, counted.
    DropOldest,
    /// Makes the gears wait.
    Block,
}

/// `[observability]` as far as a Rack obeys it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservabilityConfig {
    /// Whether telemetry is collected; `false` under `PLATFORM_DISABLE_TELEMETRY` too.
    pub enabled: bool,
    /// The share of traces that is kept, 0 to 1.
    pub sampling_rate: f64,
}

impl RackConfig {
    /// The typed form of merged settings.
    ///
    /// # Errors
    /// If values do not go together or have no typed form.
    pub fn of(settings: &Settings) -> Result<Self, ConfigErrors> {
        let base_dir = settings.path("base.state_dir");
        Ok(Self {
            logging: LoggingConfig::of(settings),
            throttling: LogThrottleConfig::of(settings),
            base: BaseConfig {
                name: settings
                    .some_text("base.name")
                    .map(|_| settings.name("base.name"))
                    .transpose()?,
                state_file: base_dir.join(settings.path("base.state_file")),
                state_key: settings.secret("base.state_key"),
                state_key_file: settings.some_path("base.state_key_file"),
                state_dir: base_dir,
            },
            rack: AgentConfig {
                name_prefix: settings.text("rack.name_prefix").to_owned(),
                ip: ip(settings)?,
                max_hops: settings.port("rack.max_hops"),
                max_payload: ByteSize::bytes(settings.int("rack.max_payload_size")),
                enrollment_timeout: settings.duration("rack.enrollment_timeout"),
                heartbeat_interval: settings.duration("rack.heartbeat_interval"),
            },
            exec_allow: exec_allow(settings)?,
            store_dir: settings.path("store.dir"),
            snake: SnakeConfig {
                url: settings.text("snake.url").to_owned(),
                domain: settings.name("snake.domain")?,
                stream_name: settings.name("snake.stream_name")?,
                connect_timeout: settings.duration("snake.connect_timeout"),
                reconnect_wait: settings.duration("snake.reconnect_wait"),
                convergence_delay: settings.duration("snake.convergence_delay"),
                token: settings.secret("snake.token"),
            },
            spool: SpoolConfig {
                max_size: ByteSize::mib(settings.int("spool.max_size_mb")),
                policy: match settings.text("spool.policy") {
                    "block" => SpoolPolicy::Block,
                    _ => SpoolPolicy::DropOldest,
                },
            },
            observability: ObservabilityConfig {
                enabled: settings.bool("observability.enabled") && !settings.bool("disable_telemetry"),
                sampling_rate: settings.float("observability.sampling_rate"),
            },
        })
    }
}

fn exec_allow(settings: &Settings) -> Result<Vec<PathBuf>, ConfigErrors> {
    let key = "gears.exec.allow";
    let programs: Vec<PathBuf> = settings.list(key).iter().map(PathBuf::from).collect();
    match programs.iter().find(|program| !program.is_absolute()) {
        None => Ok(programs),
        Some(program) => Err(ConfigProblem::BadValue {
            place: settings.place(key),
            key,
            value: format!("{program:?}"),
            wanted: "absolute paths such as \"/usr/bin/uptime\"".to_owned(),
        }
        .into()),
    }
}

fn ip(settings: &Settings) -> Result<Option<std::net::IpAddr>, ConfigErrors> {
    let Some(text) = settings.some_text("rack.ip") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(ip) => Ok(Some(ip)),
        Err(_) => Err(ConfigProblem::BadValue {
            place: settings.place("rack.ip"),
            key: "rack.ip",
            value: format!("{text:?}"),
            wanted: "an IP address such as 192.0.2.7, or empty".to_owned(),
        }
        .into()),
    }
}

#[cfg(test)]
mod tests;
