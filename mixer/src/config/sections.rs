//! `platform-mixer.toml`, resolved into plain structs; values that do not go together are refused here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chassis::config::{ConfigErrors, LoggingConfig, SecretString, Settings};
use engine::{AckDurability, CompressionCodec, JsonType, PartitionBy, StorageFormat};
use model::{ByteSize, Token};

use super::value_checks::{bad_hash, credentials_of_another, exposed, host};

/// `platform-mixer.toml`, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct MixerConfig {
    /// `[logging]`.
    pub logging: LoggingConfig,
    /// `base.name`.
    pub name: Token,
    /// `[mixer]`.
    pub mixer: MixerSection,
    /// `[enrollment]`.
    pub enrollment: EnrollmentConfig,
    /// `[ingest]`.
    pub ingest: IngestConfig,
    /// `[api]`.
    pub api: ApiConfig,
    /// `[postgres]`.
    pub postgres: PostgresConfig,
    /// `[store]`.
    pub store: StoreConfig,
    /// `[snake]`.
    pub snake: BusServerConfig,
    /// `[query]`.
    pub query: QueryConfig,
    /// `[tail]`.
    pub tail: TailConfig,
    /// `[observability]`.
    pub observability: MixerObservabilityConfig,
}

/// `[mixer]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixerSection {
    /// Hops after which a message is dropped as a loop.
    pub max_hops: u16,
    /// The greatest message payload.
    pub max_payload: ByteSize,
    /// The scenario loaded at start; `None` resumes the last active one.
    pub startup_scenario: Option<String>,
    /// The time given to Racks to converge.
    pub scenario_wait_timeout: Duration,
}

/// `[enrollment]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrollmentConfig {
    /// Whether every new Rack is active at once.
    pub auto_adopt: bool,
    /// The time between adoption and the first scenario.
    pub push_delay: Duration,
}

/// `[ingest]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestConfig {
    /// The longest time a received batch waits before it is appended.
    pub flush_interval: Duration,
    /// Batches in memory between the bus and the store.
    pub buffer_size: usize,
    /// Where rows must be before Racks forget them.
    pub floor: AckDurability,
}

/// `[api]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiConfig {
    /// The address listened on.
    pub host: IpAddr,
    /// The port; 0 takes any free one.
    pub port: u16,
}

/// `[postgres]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Whether it is listened at all.
    pub enabled: bool,
    /// The address listened on.
    pub host: IpAddr,
    /// The port; 0 takes any free one.
    pub port: u16,
}

/// `[store]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The root of everything.
    pub dir: PathBuf,
    /// The analyst's database, with its folder.
    pub database_file: PathBuf,
    /// The specs of business messages.
    pub specs_dir: PathBuf,
    /// The cluster's private key, with its folder.
    pub cluster_key_file: PathBuf,
    /// The cap of the write-ahead log.
    pub wal_max: ByteSize,
}

/// Who runs the bus server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerMode {
    /// The Mixer.
    Managed,
    /// Somebody else, at `snake.url`.
    External,
}

/// `[snake]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusServerConfig {
    /// Who runs the server.
    pub server: ServerMode,
    /// The address the managed server listens on.
    pub host: IpAddr,
    /// The port of the managed server; 0 takes any free one.
    pub port: u16,
    /// The address announced to Racks, and of the external server; comma separated for a cluster.
    pub url: String,
    /// The domain of the persistent streams.
    pub domain: Token,
    /// The folder of the managed server's streams.
    pub store_dir: PathBuf,
    /// The primary stream.
    pub stream_name: Token,
    /// The subjects captured, in one list.
    pub stream_subjects: Vec<String>,
    /// How long business messages are kept.
    pub business_stream_max_age: Duration,
    /// How long telemetry is kept.
    pub telemetry_stream_max_age: Duration,
    /// Whether the server syncs before it acknowledges.
    pub durable: bool,
    /// The greatest size of all streams together.
    pub max_store: ByteSize,
    /// The program to run.
    pub server_binary: Option<PathBuf>,
    /// The hash it must have, lower-case hexadecimal.
    pub server_sha256: Option<String>,
    /// Whether each Rack is a user of the managed server, with its own key and subjects.
    pub rack_credentials: bool,
    /// The token clients present; a managed server must ask for it.
    pub token: Option<SecretString>,
}

/// `[query]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryConfig {
    /// Memory of all running queries together.
    pub memory_limit: ByteSize,
    /// The longest time one query may run.
    pub timeout: Duration,
    /// Queries that run at the same time.
    pub max_concurrent: usize,
    /// Rows that the answer of one SQL statement may have.
    pub max_rows: u64,
    /// Bytes of data files that one query may read.
    pub max_scan: ByteSize,
}

/// `[tail]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailConfig {
    /// Memory for the last rows.
    pub buffer: ByteSize,
    /// Tails that run at the same time.
    pub max_followers: usize,
}

/// Where telemetry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservabilityTier {
    /// Into our own store.
    Embedded,
    /// To a collector.
    Otlp,
}

/// `[observability]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MixerObservabilityConfig {
    /// Whether telemetry is collected and stored.
    pub enabled: bool,
    /// Whether the Mixer reports about itself; `false` under `PLATFORM_DISABLE_TELEMETRY`.
    pub self_telemetry: bool,
    /// Where telemetry goes.
    pub tier: ObservabilityTier,
    /// The share of traces that is kept, 0 to 1.
    pub sampling_rate: f64,
    /// `[observability.embedded]`.
    pub embedded: EmbeddedConfig,
    /// `[observability.otlp]`.
    pub otlp: OtlpConfig,
}

/// `[observability.embedded]` with `[.storage]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// The telemetry tree.
    pub data_dir: PathBuf,
    /// The tick on which rows are published into data files.
    pub flush_interval: Duration,
    /// The format of data files.
    pub format: StorageFormat,
    /// The length of a partition.
    pub partition_by: PartitionBy,
    /// The compression of data files.
    pub compression: CompressionCodec,
    /// The Parquet type of JSON columns.
    pub json_type: JsonType,
    /// The size at which a data file is sealed.
    pub segment_size: ByteSize,
    /// The memory for rows on their way into data files.
    pub memory_limit: ByteSize,
    /// The object store.
    pub url: Option<String>,
    /// The time between two uploads of what came.
    pub upload_interval: Duration,
    /// Local disk space for files that are in the object store too.
    pub cache_size: ByteSize,
    /// Whether this Mixer takes in nothing and answers from the object store.
    pub read_only: bool,
    /// Whether the object store may be on another machine without encryption.
    pub allow_http: bool,
    /// `[observability.embedded.rotation]`.
    pub rotation: RotationConfig,
}

/// What makes old data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationPolicy {
    /// Its age.
    Time,
    /// The total size.
    Size,
    /// Either.
    Both,
}

/// `[observability.embedded.rotation]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationConfig {
    /// What makes old data go.
    pub policy: RotationPolicy,
    /// The age after which data goes.
    pub max_age: Duration,
    /// The total size above which the oldest data goes.
    pub max_size: ByteSize,
    /// The time between checks.
    pub check_interval: Duration,
}

/// `[observability.otlp]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The collector over gRPC.
    pub endpoint: Option<String>,
    /// The collector over HTTP.
    pub endpoint_http: Option<String>,
    /// Headers, references resolved.
    pub headers: BTreeMap<String, SecretString>,
    /// Skips the verification of certificates.
    pub insecure: bool,
    /// The time one export may take.
    pub timeout: Duration,
    /// `[observability.otlp.messages]`.
    pub messages: OtlpMessagesConfig,
}

/// `[observability.otlp.messages]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpMessagesConfig {
    /// Whether messages are archived here too.
    pub enabled: bool,
    /// The archive.
    pub data_dir: PathBuf,
}

impl MixerConfig {
    /// The typed form of merged settings.
    ///
    /// # Errors
    /// If values do not go together or have no typed form; all of them at once.
    pub fn of(settings: &Settings) -> Result<Self, ConfigErrors> {
        let mut problems = Vec::new();
        let api_host = host(settings, "api.host", &mut problems);
        let postgres_host = host(settings, "postgres.host", &mut problems);
        let snake_host = host(settings, "snake.host", &mut problems);
        problems.extend(exposed(settings, api_host, postgres_host, snake_host));
        problems.extend(credentials_of_another(settings));
        problems.extend(bad_hash(settings));
        ConfigErrors::unless_empty(problems)?;
        Ok(Self {
            logging: LoggingConfig::of(settings),
            name: settings.name("base.name")?,
            mixer: MixerSection {
                max_hops: settings.port("mixer.max_hops"),
                max_payload: ByteSize::bytes(settings.int("mixer.max_payload_size")),
                startup_scenario: settings.some_text("mixer.startup_scenario").map(str::to_owned),
                scenario_wait_timeout: settings.duration("mixer.scenario_wait_timeout"),
            },
            enrollment: EnrollmentConfig {
                auto_adopt: settings.bool("enrollment.auto_adopt"),
                push_delay: settings.duration("enrollment.push_delay"),
            },
            ingest: IngestConfig {
                flush_interval: settings.duration("ingest.flush_interval"),
                buffer_size: settings.count("ingest.buffer_size"),
                floor: match settings.text("ingest.floor") {
                    "bucket" => AckDurability::Bucket,
                    _ => AckDurability::Disk,
                },
            },
            api: ApiConfig {
                host: api_host,
                port: settings.port("api.port"),
            },
            postgres: PostgresConfig {
                enabled: settings.bool("postgres.enabled"),
                host: postgres_host,
                port: settings.port("postgres.port"),
            },
            store: store(settings),
            snake: snake(settings, snake_host)?,
            query: QueryConfig {
                memory_limit: ByteSize::mib(settings.int("query.memory_limit_mb")),
                timeout: settings.duration("query.timeout"),
                max_concurrent: settings.count("query.max_concurrent"),
                max_rows: settings.int("query.max_rows"),
                max_scan: ByteSize::mib(settings.int("query.max_scan_mb")),
            },
            tail: TailConfig {
                buffer: ByteSize::mib(settings.int("tail.buffer_mb")),
                max_followers: settings.count("tail.max_followers"),
            },
            observability: observability(settings),
        })
    }
}

fn store(settings: &Settings) -> StoreConfig {
    let dir = settings.path("store.dir");
    StoreConfig {
        database_file: dir.join(settings.path("store.database_file")),
        specs_dir: dir.join(settings.path("store.specs_dir")),
        cluster_key_file: dir.join(settings.path("store.cluster_key_file")),
        wal_max: ByteSize::mib(settings.int("store.wal_max_size_mb")),
        dir,
    }
}

fn snake(settings: &Settings, host: IpAddr) -> Result<BusServerConfig, ConfigErrors> {
    Ok(BusServerConfig {
        server: match settings.text("snake.server") {
            "external" => ServerMode::External,
            _ => ServerMode::Managed,
        },
        host,
        port: settings.port("snake.port"),
        url: settings.text("snake.url").to_owned(),
        domain: settings.name("snake.domain")?,
        store_dir: settings.path("snake.store_dir"),
        stream_name: settings.name("snake.stream_name")?,
        stream_subjects: settings.list("snake.stream_subjects").to_vec(),
        business_stream_max_age: settings.duration("snake.business_stream_max_age"),
        telemetry_stream_max_age: settings.duration("snake.telemetry_stream_max_age"),
        durable: settings.bool("snake.durable"),
        max_store: ByteSize::mib(settings.int("snake.max_store_mb")),
        server_binary: settings.some_path("snake.server_binary"),
        server_sha256: settings.some_text("snake.server_sha256").map(str::to_ascii_lowercase),
        rack_credentials: match settings.text("snake.rack_credentials") {
            "on" => true,
            "off" => false,
            _ => settings.text("snake.server") != "external" && !host.is_loopback(),
        },
        token: settings.secret("snake.token"),
    })
}

fn observability(settings: &Settings) -> MixerObservabilityConfig {
    let text = |key| settings.some_text(key).map(str::to_owned);
    MixerObservabilityConfig {
        enabled: settings.bool("observability.enabled"),
        self_telemetry: !settings.bool("disable_telemetry"),
        tier: match settings.text("observability.tier") {
            "otlp" => ObservabilityTier::Otlp,
            _ => ObservabilityTier::Embedded,
        },
        sampling_rate: settings.float("observability.sampling_rate"),
        embedded: embedded(settings),
        otlp: OtlpConfig {
            endpoint: text("observability.otlp.endpoint"),
            endpoint_http: text("observability.otlp.endpoint_http"),
            headers: settings.secrets("observability.otlp.headers"),
            insecure: settings.bool("observability.otlp.insecure"),
            timeout: settings.duration("observability.otlp.timeout"),
            messages: OtlpMessagesConfig {
                enabled: settings.bool("observability.otlp.messages.enabled"),
                data_dir: settings.path("observability.otlp.messages.data_dir"),
            },
        },
    }
}

fn embedded(settings: &Settings) -> EmbeddedConfig {
    let days = settings.int("observability.embedded.rotation.max_age_days");
    EmbeddedConfig {
        data_dir: settings.path("observability.embedded.data_dir"),
        flush_interval: settings.duration("observability.embedded.flush_interval"),
        format: match settings.text("observability.embedded.storage.format") {
            "json" => StorageFormat::Json,
            _ => StorageFormat::Parquet,
        },
        partition_by: match settings.text("observability.embedded.storage.partition_by") {
            "day" => PartitionBy::Day,
            _ => PartitionBy::Hour,
        },
        compression: match settings.text("observability.embedded.storage.compression") {
            "snappy" => CompressionCodec::Snappy,
            "none" => CompressionCodec::None,
            _ => CompressionCodec::Zstd,
        },
        json_type: match settings.text("observability.embedded.storage.json_type") {
            "string" => JsonType::String,
            _ => JsonType::Json,
        },
        segment_size: ByteSize::mib(settings.int("observability.embedded.storage.segment_size_mb")),
        memory_limit: ByteSize::mib(settings.int("observability.embedded.storage.memory_limit_mb")),
        url: settings
            .some_text("observability.embedded.storage.url")
            .map(str::to_owned),
        upload_interval: settings.duration("observability.embedded.storage.upload_interval"),
        cache_size: ByteSize::mib(settings.int("observability.embedded.storage.cache_size_mb")),
        read_only: settings.bool("observability.embedded.storage.read_only"),
        allow_http: settings.bool("observability.embedded.storage.allow_http"),
        rotation: RotationConfig {
            policy: match settings.text("observability.embedded.rotation.policy") {
                "size" => RotationPolicy::Size,
                "both" => RotationPolicy::Both,
                _ => RotationPolicy::Time,
            },
            max_age: Duration::from_secs(days.saturating_mul(86_400)),
            max_size: ByteSize::mib(
                settings
                    .int("observability.embedded.rotation.max_size_gb")
                    .saturating_mul(1_024),
            ),
            check_interval: settings.duration("observability.embedded.rotation.check_interval"),
        },
    }
}
