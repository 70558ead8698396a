//! `platform-mixer.toml`: the keys of the Mixer, as data.
//!
//! # Not here
//!
//! How values are merged and checked: `chassis::config`. The plain structs: `sections`.

use chassis::config::{Key, Kind, Removed, Schema, Section, logging};

mod sections;

pub use sections::{
    ApiConfig, EmbeddedConfig, EnrollmentConfig, IngestConfig, MixerConfig, MixerSection, ObservabilityConfig,
    OtlpConfig, OtlpMessagesConfig, PostgresConfig, QueryConfig, RotationConfig, RotationPolicy, ServerMode,
    SnakeConfig, StoreConfig, TailConfig, Tier,
};

static LOGGING: [Key; 7] = logging::keys("\"logs/mixer.log\"");

static BASE: [Key; 1] = [Key::new(
    "base.name",
    Kind::Name { empty: false },
    "\"mixer-01\"",
    "Name of this Mixer in its own telemetry and events",
)];

static MIXER: [Key; 4] = [
    Key::new(
        "mixer.max_hops",
        Kind::Int { min: 1, max: 65_535 },
        "64",
        "Routing hops after which a message is dropped as a loop, for all Racks",
    ),
    Key::new(
        "mixer.max_payload_size",
        Kind::Int {
            min: 1_024,
            max: 64 << 20,
        },
        "2097152",
        "Greatest message payload in bytes, for all Racks",
    ),
    Key::new(
        "mixer.startup_scenario",
        Kind::Text,
        "\"\"",
        "Scenario loaded at start: a file, name:version or name:latest; empty resumes the last active one",
    ),
    Key::new(
        "mixer.scenario_wait_timeout",
        Kind::span(1),
        "\"15s\"",
        "Time given to the Racks to converge when a scenario is activated",
    ),
];

static ENROLLMENT: [Key; 2] = [
    Key::new(
        "enrollment.auto_adopt",
        Kind::Bool,
        "false",
        "Whether every new Rack is active at once; be careful in production",
    ),
    Key::new(
        "enrollment.push_delay",
        Kind::span(0),
        "\"1s\"",
        "Time between a Rack's adoption and the push of its first scenario",
    ),
];

static INGEST: [Key; 3] = [
    Key::new(
        "ingest.flush_interval",
        Kind::span(1),
        "\"5s\"",
        "Longest time a received batch waits before it is appended and durable",
    ),
    Key::new(
        "ingest.buffer_size",
        Kind::Int { min: 1, max: 1 << 20 },
        "1024",
        "Batches held in memory between the bus and the store",
    ),
    Key::new(
        "ingest.floor",
        Kind::Word(&["disk", "bucket"]),
        "\"disk\"",
        "Where rows must be before Racks forget them: on the Mixer's disk, or in the object store",
    ),
];

static API: [Key; 6] = [
    Key::new(
        "api.host",
        Kind::Text,
        "\"127.0.0.1\"",
        "Address the REST API listens on; others than loopback need api.tokens_file or api.allow_insecure",
    ),
    Key::new(
        "api.port",
        Kind::Int { min: 0, max: 65_535 },
        "8090",
        "Port of the REST API; 0 takes any free one",
    ),
    Key::optional(
        "api.tokens_file",
        Kind::Path,
        "no authentication",
        "File of bearer tokens with their roles",
    ),
    Key::optional(
        "api.tls_cert",
        Kind::Path,
        "plain HTTP",
        "Certificate chain (PEM) of the REST API",
    ),
    Key::optional(
        "api.tls_key",
        Kind::Path,
        "plain HTTP",
        "Private key (PEM) of the REST API",
    ),
    Key::new(
        "api.allow_insecure",
        Kind::Bool,
        "false",
        "Allows an address other than loopback without authentication",
    ),
];

static POSTGRES: [Key; 4] = [
    Key::new(
        "postgres.enabled",
        Kind::Bool,
        "false",
        "Whether PostgreSQL clients may connect, to ask SQL",
    ),
    Key::new(
        "postgres.host",
        Kind::Text,
        "\"127.0.0.1\"",
        "Address that PostgreSQL clients connect to; others than loopback need postgres.allow_insecure",
    ),
    Key::new(
        "postgres.port",
        Kind::Int { min: 0, max: 65_535 },
        "5432",
        "Port that PostgreSQL clients connect to; 0 takes any free one",
    ),
    Key::new(
        "postgres.allow_insecure",
        Kind::Bool,
        "false",
        "Allows an address other than loopback, without authentication and encryption",
    ),
];

static STORE: [Key; 5] = [
    Key::new(
        "store.dir",
        Kind::Path,
        "\"./data\"",
        "Root folder of everything the Mixer keeps",
    ),
    Key::new(
        "store.database_file",
        Kind::Path,
        "\"platform.duckdb\"",
        "Database an analyst opens, built by `platform-mixer export duckdb`; below store.dir",
    ),
    Key::new(
        "store.specs_dir",
        Kind::Path,
        "\"specs\"",
        "Folder of the specs of business messages, a YAML file each, taken while the Mixer runs; below store.dir",
    ),
    Key::new(
        "store.cluster_key_file",
        Kind::Path,
        "\"cluster.key\"",
        "Private key of the cluster, below store.dir",
    ),
    Key::new(
        "store.wal_max_size_mb",
        Kind::Int { min: 1, max: 1 << 24 },
        "512",
        "Greatest size in MiB of the write-ahead log; at it, appends wait",
    ),
];

static SNAKE: [Key; 17] = [
    Key::new(
        "snake.server",
        Kind::Word(&["managed", "external"]),
        "\"managed\"",
        "Whether the Mixer runs the bus server itself or uses the one at snake.url",
    ),
    Key::new(
        "snake.host",
        Kind::Text,
        "\"127.0.0.1\"",
        "Address the managed server listens on; others than loopback need a token or snake.allow_insecure",
    ),
    Key::new(
        "snake.port",
        Kind::Int { min: 0, max: 65_535 },
        "4222",
        "Port the managed server listens on; 0 takes any free one",
    ),
    Key::new(
        "snake.url",
        Kind::BusUrl,
        "\"nats://localhost:4222\"",
        "Address told to Racks, and of the external server or cluster (comma separated)",
    ),
    Key::new(
        "snake.domain",
        Kind::Name { empty: false },
        "\"flux\"",
        "Domain of the persistent streams; every Rack needs the same",
    ),
    Key::below(
        "snake.store_dir",
        "store.dir",
        "js",
        "Folder of the bus server's persistent streams",
    )
    .was("\"data/js\""),
    Key::new(
        "snake.stream_name",
        Kind::Name { empty: false },
        "\"flux-msg\"",
        "Primary stream, for business messages",
    )
    .was("\"flux\""),
    Key::new(
        "snake.stream_subjects",
        Kind::TextList,
        "[\"flux.msg.>\", \"flux.gear.>\", \"platform.>\"]",
        "Subjects captured; those under platform. go to a stream of their own",
    )
    .was("[\"flux.msg.>\", \"flux.gear.>\", \"flux.telemetry.>\"]"),
    Key::new(
        "snake.business_stream_max_age",
        Kind::span(1_000),
        "\"720h\"",
        "Time business messages are kept on the bus, by a clock that has run evenly",
    ),
    Key::new(
        "snake.telemetry_stream_max_age",
        Kind::span(1_000),
        "\"24h\"",
        "Time telemetry is kept on the bus",
    ),
    Key::new(
        "snake.durable",
        Kind::Bool,
        "false",
        "Whether the bus syncs every message to disk before it acknowledges; otherwise every second",
    ),
    Key::new(
        "snake.max_store_mb",
        Kind::Int { min: 64, max: 1 << 30 },
        "10240",
        "Greatest size in MiB of all persistent streams together",
    ),
    Key::optional(
        "snake.server_binary",
        Kind::Path,
        "looked up beside the executable, in .tools/bin and on the PATH",
        "The nats-server program to run, 2.15 or later",
    ),
    Key::optional(
        "snake.server_sha256",
        Kind::Text,
        "any program is run",
        "SHA-256 in hexadecimal that the nats-server program must have",
    ),
    Key::new(
        "snake.allow_insecure",
        Kind::Bool,
        "false",
        "Allows an address other than loopback without authentication",
    ),
    Key::new(
        "snake.rack_credentials",
        Kind::Word(&["auto", "on", "off"]),
        "\"auto\"",
        "Whether the managed server knows each Rack by its own key and lets it publish only as itself; auto: where snake.host is not loopback. Who is not an admitted Rack may then only ask for admission",
    ),
    Key::optional(
        "snake.token",
        Kind::Text,
        "the bus asks for no token",
        "Token that Racks and the Mixer present to the bus",
    )
    .secret(),
];

static QUERY: [Key; 5] = [
    Key::new(
        "query.memory_limit_mb",
        Kind::Int { min: 16, max: 1 << 24 },
        "1024",
        "Memory in MiB that all queries together may use; a quarter of it keeps pages of data files and small indexes of ids for later ones. Rows that went from memory to files while a statement or a tail's backlog ran, and that it still has, count too: where they exceed half of the rest, the one that began first is ended (503)",
    ),
    Key::new(
        "query.timeout",
        Kind::span(1),
        "\"30s\"",
        "Longest time one query may run",
    ),
    Key::new(
        "query.max_concurrent",
        Kind::Int { min: 1, max: 10_000 },
        "8",
        "Queries that run at the same time; others wait. Three quarters of them may be SQL statements, so that lists are answered beside these",
    ),
    Key::new(
        "query.max_rows",
        Kind::Int { min: 1, max: 1 << 32 },
        "1000000",
        "Most rows that the answer of one SQL statement may have",
    ),
    Key::new(
        "query.max_scan_mb",
        Kind::Int { min: 1, max: 1 << 40 },
        "1048576",
        "Most MiB of data files that one query may read; pages that are kept from earlier ones do not count, nor does what it takes to fetch and check a file that is opened for the first time",
    ),
];

static TAIL: [Key; 2] = [
    Key::new(
        "tail.buffer_mb",
        Kind::Int { min: 1, max: 1 << 20 },
        "32",
        "Memory in MiB for the last rows of logs, and as much for those of messages while they are followed: how far a slow or returning reader may be behind; beside storage.memory_limit_mb",
    ),
    Key::new(
        "tail.max_followers",
        Kind::Int { min: 1, max: 10_000 },
        "200",
        "Readers that follow the logs at the same time; more are refused",
    ),
];

static OBSERVABILITY: [Key; 3] = [
    Key::new(
        "observability.enabled",
        Kind::Bool,
        "true",
        "Whether telemetry is collected and stored",
    ),
    Key::new(
        "observability.tier",
        Kind::Word(&["embedded", "otlp"]),
        "\"embedded\"",
        "Whether telemetry is stored here or forwarded to a collector",
    ),
    Key::new(
        "observability.sampling_rate",
        Kind::Float { min: 0.0, max: 1.0 },
        "1.0",
        "Share of traces that is kept, for all Racks; the share of a single Rack may be smaller",
    ),
];

static EMBEDDED: [Key; 2] = [
    Key::below(
        "observability.embedded.data_dir",
        "store.dir",
        "telemetry",
        "Folder of the telemetry tree",
    ),
    Key::new(
        "observability.embedded.flush_interval",
        Kind::span(10),
        "\"5s\"",
        "Tick on which appended rows are published into data files",
    ),
];

static STORAGE: [Key; 11] = [
    Key::new(
        "observability.embedded.storage.format",
        Kind::Word(&["parquet", "json"]),
        "\"parquet\"",
        "Format of new data files: Parquet, or one JSON object per line (.json, .json.zst, .json.sz by compression)",
    ),
    Key::new(
        "observability.embedded.storage.partition_by",
        Kind::Word(&["hour", "day"]),
        "\"hour\"",
        "Length of a partition of event time, UTC",
    ),
    Key::new(
        "observability.embedded.storage.compression",
        Kind::Word(&["zstd", "snappy", "none"]),
        "\"zstd\"",
        "Compression of data files",
    ),
    Key::new(
        "observability.embedded.storage.json_type",
        Kind::Word(&["json", "string"]),
        "\"json\"",
        "Parquet type of JSON columns; string is for readers that do not know JSON",
    ),
    Key::new(
        "observability.embedded.storage.segment_size_mb",
        Kind::Int { min: 1, max: 1 << 16 },
        "128",
        "Size in MiB at which a data file is sealed",
    ),
    Key::new(
        "observability.embedded.storage.memory_limit_mb",
        Kind::Int { min: 16, max: 1 << 20 },
        "512",
        "MiB of memory for rows: on their way in from HTTP and the bus, not yet in files, being encoded, sealed or replayed; at the limit ingest waits",
    ),
    Key::optional(
        "observability.embedded.storage.url",
        Kind::Text,
        "local disk, in data_dir",
        "Object store for sealed files, such as s3://bucket/prefix; credentials come from AWS_ACCESS_KEY_ID and the like",
    ),
    Key::new(
        "observability.embedded.storage.upload_interval",
        Kind::span(0),
        "\"60s\"",
        "Time between two uploads of new rows to the object store: what a lost machine loses at most; 0s uploads when a file is sealed",
    ),
    Key::new(
        "observability.embedded.storage.cache_size_mb",
        Kind::Int { min: 0, max: 1 << 30 },
        "10240",
        "Local disk space in MiB for files that are in the object store too; the least recently used go first",
    ),
    Key::new(
        "observability.embedded.storage.read_only",
        Kind::Bool,
        "false",
        "Take in nothing and answer from what another Mixer puts into the object store",
    ),
    Key::new(
        "observability.embedded.storage.allow_http",
        Kind::Bool,
        "false",
        "Allow an object store on another machine without encryption",
    ),
];

static ROTATION: [Key; 4] = [
    Key::new(
        "observability.embedded.rotation.policy",
        Kind::Word(&["time", "size", "both"]),
        "\"time\"",
        "What makes old partitions go: age, total size, or both",
    ),
    Key::new(
        "observability.embedded.rotation.max_age_days",
        Kind::Int { min: 1, max: 36_500 },
        "30",
        "Days after which data is deleted",
    ),
    Key::new(
        "observability.embedded.rotation.max_size_gb",
        Kind::Int { min: 1, max: 1 << 20 },
        "10",
        "Total size in GiB above which the oldest data is deleted",
    ),
    Key::new(
        "observability.embedded.rotation.check_interval",
        Kind::span(100),
        "\"1h\"",
        "Time between checks of the rotation rules",
    ),
];

static OTLP: [Key; 5] = [
    Key::new(
        "observability.otlp.endpoint",
        Kind::Text,
        "\"\"",
        "Collector over gRPC, host:port",
    ),
    Key::new(
        "observability.otlp.endpoint_http",
        Kind::Text,
        "\"\"",
        "Collector over HTTP, in place of gRPC",
    ),
    Key::new(
        "observability.otlp.headers",
        Kind::TextMap,
        "{}",
        "Headers sent to the collector; values refer to the environment as ${NAME}",
    )
    .secret(),
    Key::new(
        "observability.otlp.insecure",
        Kind::Bool,
        "false",
        "Skips the verification of the collector's certificate",
    ),
    Key::new(
        "observability.otlp.timeout",
        Kind::span(1),
        "\"30s\"",
        "Time one export may take",
    ),
];

static OTLP_MESSAGES: [Key; 2] = [
    Key::new(
        "observability.otlp.messages.enabled",
        Kind::Bool,
        "false",
        "Whether business messages are also archived locally while telemetry goes to a collector",
    ),
    Key::below(
        "observability.otlp.messages.data_dir",
        "store.dir",
        "messages",
        "Folder of that archive",
    ),
];

static SWITCHES: [Key; 1] = [Key::new(
    "disable_telemetry",
    Kind::Bool,
    "false",
    "Stops all reporting about the process itself; /metrics is not there",
)
.env_only()];

/// The whole of `platform-mixer.toml`.
pub static SCHEMA: Schema = Schema {
    program: "platform-mixer",
    file: "platform-mixer.toml",
    sections: &[
        Section {
            doc: logging::DOC,
            keys: &LOGGING,
        },
        Section {
            doc: "Who this Mixer is.",
            keys: &BASE,
        },
        Section {
            doc: "Limits for all Racks, and scenarios.",
            keys: &MIXER,
        },
        Section {
            doc: "How Racks are admitted.",
            keys: &ENROLLMENT,
        },
        Section {
            doc: "From the bus into the store.",
            keys: &INGEST,
        },
        Section {
            doc: "The REST API.",
            keys: &API,
        },
        Section {
            doc: "SQL for PostgreSQL clients.",
            keys: &POSTGRES,
        },
        Section {
            doc: "Where the Mixer keeps everything.",
            keys: &STORE,
        },
        Section {
            doc: "The bus: the server the Mixer runs, or an external one.",
            keys: &SNAKE,
        },
        Section {
            doc: "Bounds of queries.",
            keys: &QUERY,
        },
        Section {
            doc: "Live tail of the logs.",
            keys: &TAIL,
        },
        Section {
            doc: "What happens with telemetry.",
            keys: &OBSERVABILITY,
        },
        Section {
            doc: "The embedded store.",
            keys: &EMBEDDED,
        },
        Section {
            doc: "The form of data files.",
            keys: &STORAGE,
        },
        Section {
            doc: "When old data goes.",
            keys: &ROTATION,
        },
        Section {
            doc: "The OpenTelemetry collector of the tier otlp.",
            keys: &OTLP,
        },
        Section {
            doc: "Messages kept here while telemetry goes to a collector.",
            keys: &OTLP_MESSAGES,
        },
        Section {
            doc: "Switches of the environment.",
            keys: &SWITCHES,
        },
    ],
    removed: &[
        Removed::moved("mixer.mixer_name", "base.name", "the Mixer's name is base.name"),
        Removed::moved("mixer.name", "base.name", "the Mixer's name is base.name"),
        Removed::gone(
            "mixer.machine_id",
            "identities are UUIDs now; the Mixer makes its own on first start; remove the line",
        ),
        Removed::moved(
            "snake.cluster_name",
            "snake.domain",
            "the domain of the streams is snake.domain",
        ),
        Removed::moved(
            "cluster_name",
            "snake.domain",
            "the domain of the streams is snake.domain",
        ),
        Removed::gone(
            "logging.max_age",
            "log files are kept by number: use logging.max_backups",
        ),
        Removed::gone("logging.dir", "the folder of the log file is that of logging.filename"),
    ],
};

#[cfg(test)]
mod tests;
