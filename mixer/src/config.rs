//! `platform-mixer.toml`: the keys of the Mixer, as data.
//!
//! # Not here
//!
//! How values are merged and checked: `chassis::config`. The plain structs: `sections`.

use chassis::config::{ConfigKey, ConfigSchema, ConfigSection, RemovedKey, ValueKind, logging};

mod sections;
mod value_checks;

pub use sections::{
    ApiConfig, BusServerConfig, EmbeddedConfig, EnrollmentConfig, IngestConfig, MixerConfig, MixerObservabilityConfig,
    MixerSection, ObservabilityTier, OtlpConfig, OtlpMessagesConfig, PostgresConfig, QueryConfig, RotationConfig,
    RotationPolicy, ServerMode, StoreConfig, TailConfig,
};
pub use value_checks::check_start;

static LOGGING: [ConfigKey; 7] = logging::keys("\"logs/mixer.log\"");

static BASE: [ConfigKey; 1] = [ConfigKey::new(
    "base.name",
    ValueKind::Name { empty: false },
    "\"mixer-01\"",
    "Name of this Mixer in its own telemetry and events",
)];

static MIXER: [ConfigKey; 4] = [
    ConfigKey::new(
        "mixer.max_hops",
        ValueKind::Int { min: 1, max: 65_535 },
        "64",
        "Routing hops after which a message is dropped as a loop, for all Racks",
    ),
    ConfigKey::new(
        "mixer.max_payload_size",
        ValueKind::Int {
            min: 1_024,
            max: 64 << 20,
        },
        "2097152",
        "Maximum message payload in bytes, for all Racks",
    ),
    ConfigKey::new(
        "mixer.startup_scenario",
        ValueKind::Text,
        "\"\"",
        "Scenario loaded at start: a file, name:version or name:latest; empty resumes the last active one",
    ),
    ConfigKey::new(
        "mixer.scenario_wait_timeout",
        ValueKind::span(1),
        "\"15s\"",
        "Time given to the Racks to converge when a scenario is activated",
    ),
];

static ENROLLMENT: [ConfigKey; 2] = [
    ConfigKey::new(
        "enrollment.auto_adopt",
        ValueKind::Bool,
        "false",
        "Whether every new Rack is active at once; be careful in production",
    ),
    ConfigKey::new(
        "enrollment.push_delay",
        ValueKind::span(0),
        "\"1s\"",
        "Time between a Rack's adoption and the push of its first scenario",
    ),
];

static INGEST: [ConfigKey; 3] = [
    ConfigKey::new(
        "ingest.flush_interval",
        ValueKind::span(1),
        "\"5s\"",
        "Longest wait of a received batch that counts as normal: batches are appended at once, a longer wait is counted as a stall",
    ),
    ConfigKey::new(
        "ingest.buffer_size",
        ValueKind::Int { min: 1, max: 1 << 20 },
        "1024",
        "Batches held in memory between the bus and the store",
    ),
    ConfigKey::new(
        "ingest.floor",
        ValueKind::Word(&["disk", "bucket"]),
        "\"disk\"",
        "Where rows must be before Racks forget them: on the Mixer's disk, or in the object store",
    ),
];

static API: [ConfigKey; 6] = [
    ConfigKey::new(
        "api.host",
        ValueKind::Text,
        "\"127.0.0.1\"",
        "Address the REST API listens on; others than loopback need api.allow_insecure",
    ),
    ConfigKey::new(
        "api.port",
        ValueKind::Int { min: 0, max: 65_535 },
        "8090",
        "Port of the REST API; 0 takes any free one",
    ),
    ConfigKey::optional(
        "api.tokens_file",
        ValueKind::Path,
        "no authentication",
        "File of bearer tokens with their roles; not in this version: refused",
    ),
    ConfigKey::optional(
        "api.tls_cert",
        ValueKind::Path,
        "plain HTTP",
        "Certificate chain (PEM) of the REST API; not in this version: refused",
    ),
    ConfigKey::optional(
        "api.tls_key",
        ValueKind::Path,
        "plain HTTP",
        "Private key (PEM) of the REST API; not in this version: refused",
    ),
    ConfigKey::new(
        "api.allow_insecure",
        ValueKind::Bool,
        "false",
        "Allows an address other than loopback without authentication",
    ),
];

static POSTGRES: [ConfigKey; 4] = [
    ConfigKey::new(
        "postgres.enabled",
        ValueKind::Bool,
        "false",
        "Whether PostgreSQL clients may connect and run SQL",
    ),
    ConfigKey::new(
        "postgres.host",
        ValueKind::Text,
        "\"127.0.0.1\"",
        "Address that PostgreSQL clients connect to; others than loopback need postgres.allow_insecure",
    ),
    ConfigKey::new(
        "postgres.port",
        ValueKind::Int { min: 0, max: 65_535 },
        "5432",
        "Port that PostgreSQL clients connect to; 0 takes any free one",
    ),
    ConfigKey::new(
        "postgres.allow_insecure",
        ValueKind::Bool,
        "false",
        "Allows an address other than loopback, without authentication and encryption",
    ),
];

static STORE: [ConfigKey; 5] = [
    ConfigKey::new(
        "store.dir",
        ValueKind::Path,
        "\"./data\"",
        "Root folder of everything the Mixer keeps",
    ),
    ConfigKey::new(
        "store.database_file",
        ValueKind::Path,
        "\"platform.duckdb\"",
        "Database an analyst opens, built by `platform-mixer export duckdb`; below store.dir",
    ),
    ConfigKey::new(
        "store.specs_dir",
        ValueKind::Path,
        "\"specs\"",
        "Folder of the specs of business messages, a YAML file each, reloaded while the Mixer runs; below store.dir",
    ),
    ConfigKey::new(
        "store.cluster_key_file",
        ValueKind::Path,
        "\"cluster.key\"",
        "Private key of the cluster, below store.dir",
    ),
    ConfigKey::new(
        "store.wal_max_size_mb",
        ValueKind::Int { min: 1, max: 1 << 24 },
        "512",
        "Maximum size in MiB of the write-ahead log; at it, appends wait",
    ),
];

static SNAKE: [ConfigKey; 17] = [
    ConfigKey::new(
        "snake.server",
        ValueKind::Word(&["managed", "external"]),
        "\"managed\"",
        "Whether the Mixer runs the bus server itself or uses the one at snake.url",
    ),
    ConfigKey::new(
        "snake.host",
        ValueKind::Text,
        "\"127.0.0.1\"",
        "Address the managed server listens on; others than loopback need a token or snake.allow_insecure",
    ),
    ConfigKey::new(
        "snake.port",
        ValueKind::Int { min: 0, max: 65_535 },
        "4222",
        "Port the managed server listens on; 0 takes any free one",
    ),
    ConfigKey::new(
        "snake.url",
        ValueKind::BusUrl,
        "\"nats://localhost:4222\"",
        "Address announced to Racks, and of the external server or cluster (comma separated)",
    ),
    ConfigKey::new(
        "snake.domain",
        ValueKind::Name { empty: false },
        "\"flux\"",
        "Domain of the persistent streams; every Rack needs the same",
    ),
    ConfigKey::below(
        "snake.store_dir",
        "store.dir",
        "js",
        "Folder of the bus server's persistent streams",
    )
    .previous_default("\"data/js\""),
    ConfigKey::new(
        "snake.stream_name",
        ValueKind::Name { empty: false },
        "\"flux-msg\"",
        "Primary stream, for business messages",
    )
    .previous_default("\"flux\""),
    ConfigKey::new(
        "snake.stream_subjects",
        ValueKind::TextList,
        "[\"flux.msg.>\", \"flux.gear.>\", \"platform.>\"]",
        "Subjects captured; those under platform. go to a stream of their own",
    )
    .retired_default("[\"flux.msg.>\", \"flux.gear.>\", \"flux.telemetry.>\"]"),
    ConfigKey::new(
        "snake.business_stream_max_age",
        ValueKind::span(1_000),
        "\"720h\"",
        "Time business messages are kept on the bus, by a clock that runs steadily",
    ),
    ConfigKey::new(
        "snake.telemetry_stream_max_age",
        ValueKind::span(1_000),
        "\"24h\"",
        "Time telemetry is kept on the bus",
    ),
    ConfigKey::new(
        "snake.durable",
        ValueKind::Bool,
        "false",
        "Whether the bus syncs every message to disk before it acknowledges; otherwise every second",
    ),
    ConfigKey::new(
        "snake.max_store_mb",
        ValueKind::Int { min: 64, max: 1 << 30 },
        "10240",
        "Maximum size in MiB of all persistent streams together",
    ),
    ConfigKey::optional(
        "snake.server_binary",
        ValueKind::Path,
        "looked up beside the executable, in .tools/bin and on the PATH",
        "The nats-server program to run, 2.15 or later",
    ),
    ConfigKey::optional(
        "snake.server_sha256",
        ValueKind::Text,
        "any program is run",
        "SHA-256 in hexadecimal that the nats-server program must have",
    ),
    ConfigKey::new(
        "snake.allow_insecure",
        ValueKind::Bool,
        "false",
        "Allows an address other than loopback without authentication",
    ),
    ConfigKey::new(
        "snake.rack_credentials",
        ValueKind::Word(&["auto", "on", "off"]),
        "\"auto\"",
        "Whether each Rack has its own credentials for the managed server and may publish only as itself; auto: where \
         snake.host is not loopback. Clients that are not admitted Racks may then only enrol",
    ),
    ConfigKey::optional(
        "snake.token",
        ValueKind::Text,
        "the bus asks for no token",
        "Token that Racks and the Mixer present to the bus",
    )
    .secret(),
];

static QUERY: [ConfigKey; 5] = [
    ConfigKey::new(
        "query.memory_limit_mb",
        ValueKind::Int { min: 16, max: 1 << 24 },
        "1024",
        "Memory in MiB that all queries together may use; a quarter of it keeps pages of data files and small indexes of ids for later ones. Rows that went from memory to files while a statement or a tail's backlog ran, and that it still has, count too: where they exceed half of the rest, the one that began first is ended (503)",
    ),
    ConfigKey::new(
        "query.timeout",
        ValueKind::span(1),
        "\"30s\"",
        "Longest time one query may run",
    ),
    ConfigKey::new(
        "query.max_concurrent",
        ValueKind::Int { min: 1, max: 10_000 },
        "8",
        "Queries that run at the same time; others wait. Three quarters of them may be SQL statements, so that lists are answered beside these",
    ),
    ConfigKey::new(
        "query.max_rows",
        ValueKind::Int { min: 1, max: 1 << 32 },
        "1000000",
        "Most rows that the answer of one SQL statement may have",
    ),
    ConfigKey::new(
        "query.max_scan_mb",
        ValueKind::Int { min: 1, max: 1 << 40 },
        "1048576",
        "Most MiB of data files that one query may read; pages that are kept from earlier ones do not count, nor does what it takes to fetch and check a file that is opened for the first time",
    ),
];

static TAIL: [ConfigKey; 2] = [
    ConfigKey::new(
        "tail.buffer_mb",
        ValueKind::Int { min: 1, max: 1 << 20 },
        "32",
        "Memory in MiB for the last rows of logs, and as much for those of messages while they are followed: how far a slow or returning reader may be behind; beside storage.memory_limit_mb",
    ),
    ConfigKey::new(
        "tail.max_followers",
        ValueKind::Int { min: 1, max: 10_000 },
        "200",
        "Readers that follow the logs at the same time; more are refused",
    ),
];

static OBSERVABILITY: [ConfigKey; 3] = [
    ConfigKey::new(
        "observability.enabled",
        ValueKind::Bool,
        "true",
        "Whether telemetry is collected and stored",
    ),
    ConfigKey::new(
        "observability.tier",
        ValueKind::Word(&["embedded", "otlp"]),
        "\"embedded\"",
        "Whether telemetry is stored here or forwarded to a collector; otlp is not in this version: refused",
    ),
    ConfigKey::new(
        "observability.sampling_rate",
        ValueKind::Float { min: 0.0, max: 1.0 },
        "1.0",
        "Share of traces that is kept, for all Racks; the share of a single Rack may be smaller",
    ),
];

static EMBEDDED: [ConfigKey; 2] = [
    ConfigKey::below(
        "observability.embedded.data_dir",
        "store.dir",
        "telemetry",
        "Folder of the telemetry tree",
    ),
    ConfigKey::new(
        "observability.embedded.flush_interval",
        ValueKind::span(10),
        "\"5s\"",
        "Interval at which appended rows are flushed to data files",
    ),
];

static STORAGE: [ConfigKey; 11] = [
    ConfigKey::new(
        "observability.embedded.storage.format",
        ValueKind::Word(&["parquet", "json"]),
        "\"parquet\"",
        "Format of new data files: Parquet, or one JSON object per line (.json, .json.zst, .json.sz by compression)",
    ),
    ConfigKey::new(
        "observability.embedded.storage.partition_by",
        ValueKind::Word(&["hour", "day"]),
        "\"hour\"",
        "Length of a partition of event time, UTC",
    ),
    ConfigKey::new(
        "observability.embedded.storage.compression",
        ValueKind::Word(&["zstd", "snappy", "none"]),
        "\"zstd\"",
        "Compression of data files",
    ),
    ConfigKey::new(
        "observability.embedded.storage.json_type",
        ValueKind::Word(&["json", "string"]),
        "\"json\"",
        "Parquet type of JSON columns; string is for readers that do not know JSON",
    ),
    ConfigKey::new(
        "observability.embedded.storage.segment_size_mb",
        ValueKind::Int { min: 1, max: 1 << 16 },
        "128",
        "Size in MiB at which a data file is sealed",
    ),
    ConfigKey::new(
        "observability.embedded.storage.memory_limit_mb",
        ValueKind::Int { min: 16, max: 1 << 20 },
        "512",
        "MiB of memory for rows: on their way in from HTTP and the bus, not yet in files, being encoded, sealed or replayed; at the limit ingest waits",
    ),
    ConfigKey::optional(
        "observability.embedded.storage.url",
        ValueKind::Text,
        "local disk, in data_dir",
        "Object store for sealed files, such as s3://bucket/prefix; credentials come from AWS_ACCESS_KEY_ID and the like",
    ),
    ConfigKey::new(
        "observability.embedded.storage.upload_interval",
        ValueKind::span(0),
        "\"60s\"",
        "Time between two uploads of new rows to the object store: what a lost machine loses at most; 0s uploads when a file is sealed",
    ),
    ConfigKey::new(
        "observability.embedded.storage.cache_size_mb",
        ValueKind::Int { min: 0, max: 1 << 30 },
        "10240",
        "Local disk space in MiB for files that are in the object store too; the least recently used are evicted first",
    ),
    ConfigKey::new(
        "observability.embedded.storage.read_only",
        ValueKind::Bool,
        "false",
        "Ingest nothing and answer from what another Mixer uploads to the object store",
    ),
    ConfigKey::new(
        "observability.embedded.storage.allow_http",
        ValueKind::Bool,
        "false",
        "Allow an object store on another machine without encryption",
    ),
];

static ROTATION: [ConfigKey; 4] = [
    ConfigKey::new(
        "observability.embedded.rotation.policy",
        ValueKind::Word(&["time", "size", "both"]),
        "\"time\"",
        "What removes old partitions: age, total size, or both",
    ),
    ConfigKey::new(
        "observability.embedded.rotation.max_age_days",
        ValueKind::Int { min: 1, max: 36_500 },
        "30",
        "Days after which data is deleted",
    ),
    ConfigKey::new(
        "observability.embedded.rotation.max_size_gb",
        ValueKind::Int { min: 1, max: 1 << 20 },
        "10",
        "Total size in GiB above which the oldest data is deleted",
    ),
    ConfigKey::new(
        "observability.embedded.rotation.check_interval",
        ValueKind::span(100),
        "\"1h\"",
        "Time between checks of the retention rules",
    ),
];

static OTLP: [ConfigKey; 5] = [
    ConfigKey::new(
        "observability.otlp.endpoint",
        ValueKind::Text,
        "\"\"",
        "Collector over gRPC, host:port",
    ),
    ConfigKey::new(
        "observability.otlp.endpoint_http",
        ValueKind::Text,
        "\"\"",
        "Collector over HTTP, in place of gRPC",
    ),
    ConfigKey::new(
        "observability.otlp.headers",
        ValueKind::TextMap,
        "{}",
        "Headers sent to the collector; values refer to the environment as ${NAME}",
    )
    .secret(),
    ConfigKey::new(
        "observability.otlp.insecure",
        ValueKind::Bool,
        "false",
        "Skips the verification of the collector's certificate",
    ),
    ConfigKey::new(
        "observability.otlp.timeout",
        ValueKind::span(1),
        "\"30s\"",
        "Time one export may take",
    ),
];

static OTLP_MESSAGES: [ConfigKey; 2] = [
    ConfigKey::new(
        "observability.otlp.messages.enabled",
        ValueKind::Bool,
        "false",
        "Whether business messages are also archived locally while telemetry goes to a collector",
    ),
    ConfigKey::below(
        "observability.otlp.messages.data_dir",
        "store.dir",
        "messages",
        "Folder of that archive",
    ),
];

static SWITCHES: [ConfigKey; 1] = [ConfigKey::new(
    "disable_telemetry",
    ValueKind::Bool,
    "false",
    "Stops all reporting about the process itself; /metrics is disabled",
)
.env_only()];

/// The whole of `platform-mixer.toml`.
pub static SCHEMA: ConfigSchema = ConfigSchema {
    program: "platform-mixer",
    file: "platform-mixer.toml",
    sections: &[
        ConfigSection {
            doc: logging::DOC,
            keys: &LOGGING,
        },
        ConfigSection {
            doc: "Who this Mixer is.",
            keys: &BASE,
        },
        ConfigSection {
            doc: "Limits for all Racks, and scenarios.",
            keys: &MIXER,
        },
        ConfigSection {
            doc: "How Racks are admitted.",
            keys: &ENROLLMENT,
        },
        ConfigSection {
            doc: "From the bus into the store.",
            keys: &INGEST,
        },
        ConfigSection {
            doc: "The REST API.",
            keys: &API,
        },
        ConfigSection {
            doc: "SQL for PostgreSQL clients.",
            keys: &POSTGRES,
        },
        ConfigSection {
            doc: "Where the Mixer keeps everything.",
            keys: &STORE,
        },
        ConfigSection {
            doc: "The bus: the server the Mixer runs, or an external one.",
            keys: &SNAKE,
        },
        ConfigSection {
            doc: "Bounds of queries.",
            keys: &QUERY,
        },
        ConfigSection {
            doc: "Live tail of the logs.",
            keys: &TAIL,
        },
        ConfigSection {
            doc: "Where telemetry goes.",
            keys: &OBSERVABILITY,
        },
        ConfigSection {
            doc: "The embedded store.",
            keys: &EMBEDDED,
        },
        ConfigSection {
            doc: "The form of data files.",
            keys: &STORAGE,
        },
        ConfigSection {
            doc: "When old data is removed.",
            keys: &ROTATION,
        },
        ConfigSection {
            doc: "The OpenTelemetry collector of the tier otlp.",
            keys: &OTLP,
        },
        ConfigSection {
            doc: "Messages kept here while telemetry goes to a collector.",
            keys: &OTLP_MESSAGES,
        },
        ConfigSection {
            doc: "Switches of the environment.",
            keys: &SWITCHES,
        },
    ],
    removed: &[
        RemovedKey::moved("mixer.mixer_name", "base.name", "the Mixer's name is base.name"),
        RemovedKey::moved("mixer.name", "base.name", "the Mixer's name is base.name"),
        RemovedKey::gone(
            "mixer.machine_id",
            "identities are UUIDs now; the Mixer makes its own on first start; remove the line",
        ),
        RemovedKey::moved(
            "snake.cluster_name",
            "snake.domain",
            "the domain of the streams is snake.domain",
        ),
        RemovedKey::moved(
            "cluster_name",
            "snake.domain",
            "the domain of the streams is snake.domain",
        ),
        RemovedKey::gone(
            "logging.max_age",
            "log files are kept by number: use logging.max_backups",
        ),
        RemovedKey::gone("logging.dir", "the folder of the log file is that of logging.filename"),
    ],
};

#[cfg(test)]
mod tests;
