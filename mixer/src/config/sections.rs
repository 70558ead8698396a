//! The sections of `platform-mixer.toml`, except those about telemetry.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chassis::config::{MebibyteCount, SecretString, ValueKind};
use chassis::config_section;
use chassis::tls_server::ServerTlsFiles;
use engine::AckDurability;
use http::uri::Authority;
use model::{ByteSize, Token};

use crate::access::{AuthMode, DualControlAction};

/// Whether the managed bus server speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusTlsMode {
    /// Beyond loopback.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Who runs the bus server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerMode {
    /// The Mixer.
    Managed,
    /// Somebody else, at `snake.url`.
    External,
}

config_section! {
    /// Who this Mixer is.
    pub struct MixerBaseConfig in "base" {
        /// Name of this Mixer in its own telemetry and events.
        name: Token = "mixer-01";
    }
}

config_section! {
    /// Limits for all Racks, and scenarios.
    pub struct MixerSection in "mixer" {
        /// Routing hops after which a message is dropped as a loop, for all Racks.
        max_hops: u16 = 64, within(1, 65_535);
        /// Maximum message payload in bytes, for all Racks.
        max_payload("max_payload_size"): ByteSize = 2097152, within(1_024, 64 << 20);
        /// Scenario loaded at start: a file, name:version or name:latest; empty resumes the last active one.
        startup_scenario: Option<String> = "";
        /// Scenario file that a start activates where no scenario was ever stored and mixer.startup_scenario is empty: the first one, to be changed
        /// or replaced by others.
        first_scenario: Option<PathBuf>, unset("the Racks of a new cluster have nothing to do");
        /// Time given to the Racks to converge when a scenario is activated.
        scenario_wait_timeout: Duration = "15s";
    }
}

config_section! {
    /// How Racks are admitted.
    pub struct EnrollmentConfig in "enrollment" {
        /// Whether every new Rack is active at once; be careful in production.
        auto_adopt: bool = false;
        /// Time between a Rack's adoption and the push of its first scenario.
        push_delay: Duration = "1s", at_least_ms(0);
    }
}

config_section! {
    /// The audit log.
    pub struct AuditConfig in "audit" {
        /// How long decisions and refused calls are kept; the last 500,000 at the most.
        keep: Duration = "90d", at_least_ms(60_000);
    }
}

config_section! {
    /// From the bus into the store.
    pub struct IngestConfig in "ingest" {
        /// Longest wait of a received batch that counts as normal: batches are appended at once, a longer wait is counted as a stall.
        flush_interval: Duration = "5s";
        /// Batches held in memory between the bus and the store.
        buffer_size: usize = 1024, within(1, 1 << 20);
        /// Where rows must be before Racks forget them: on the Mixer's disk, or in the object store.
        floor: AckDurability { Disk = "disk", Bucket = "bucket" } = "disk";
    }
}

config_section! {
    /// The REST API.
    pub struct ApiConfig in "api" {
        /// Address the REST API listens on; others than loopback need api.tls_cert, or api.allow_insecure.
        host: IpAddr = "127.0.0.1";
        /// Port of the REST API; 0 takes any free one.
        port: u16 = 8090;
        /// Who needs a token. auto: everybody but the Mixer's own user and root over loopback; own: everybody but its own user over loopback;
        /// tokens: everybody; off: nobody, on loopback only.
        auth: AuthMode { Auto = "auto", Own = "own", Tokens = "tokens", Off = "off" } = "auto";
        /// Host names that the API answers for, beside localhost and addresses: name, or name:port. Others are refused (421), so that no web
        /// page reaches it by a name of its own.
        allowed_hosts: Vec<String> = [];
        /// File of API tokens (TOML, mode 0600), beside those that are made while the Mixer runs; read again when it changes.
        tokens_file: Option<PathBuf>, unset("no such tokens");
        /// Certificate chain (PEM) of the REST API and for PostgreSQL clients; read again when it changes.
        tls_cert: Option<PathBuf>, unset("no TLS");
        /// Private key (PEM) of that certificate.
        tls_key: Option<PathBuf>, unset("no TLS");
        /// Authorities (PEM) of the certificates that clients must show to connect, beside their token.
        tls_client_ca: Option<PathBuf>, unset("clients need no certificate");
        /// Allows an address other than loopback without encryption: tokens and rows travel in clear text.
        allow_insecure: bool = false;
        /// What two callers must ask for within an hour before it is done: approve (approvals and invites of Racks), activate (activations and
        /// rollbacks of scenarios).
        second_person: Vec<String> = [];
    }
}

impl ApiConfig {
    /// What needs a second person; entries that mean nothing are refused before ([`super::MixerConfig::of`]).
    #[must_use]
    pub fn dual_control(&self) -> Vec<DualControlAction> {
        self.second_person.iter().filter_map(|word| word.parse().ok()).collect()
    }

    /// The files of its TLS, if it has any.
    #[must_use]
    pub fn tls_files(&self) -> Option<ServerTlsFiles> {
        Some(ServerTlsFiles {
            certificate: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
        })
    }

    /// The hosts that it answers for beside its addresses; entries that are none are refused before ([`super::MixerConfig::of`]).
    #[must_use]
    pub fn hosts(&self) -> Vec<Authority> {
        self.allowed_hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }
}

config_section! {
    /// SQL for PostgreSQL clients.
    pub struct PostgresConfig in "postgres" {
        /// Whether PostgreSQL clients may connect and run SQL.
        enabled: bool = false;
        /// Address that PostgreSQL clients connect to; others than loopback need api.tls_cert, or postgres.allow_insecure.
        host: IpAddr = "127.0.0.1";
        /// Port that PostgreSQL clients connect to; 0 takes any free one.
        port: u16 = 5432;
        /// Allows an address other than loopback without encryption: rows travel in clear text, passwords do not.
        allow_insecure: bool = false;
    }
}

config_section! {
    /// OpenTelemetry's protocol (OTLP) at its own ports; over HTTP it is at /v1/ of the API as well.
    pub struct OtlpReceiverConfig in "otlp" {
        /// Whether OTLP is received at ports of its own.
        enabled: bool = false;
        /// Address of these ports; others than loopback need api.tls_cert, or otlp.allow_insecure.
        host: IpAddr = "127.0.0.1";
        /// Port of OTLP over gRPC; 0 takes any free one.
        grpc_port: u16 = 4317;
        /// Port of OTLP over HTTP; 0 takes any free one.
        http_port: u16 = 4318;
        /// Resource attributes that name an entity: the first one that a resource has.
        entity: Vec<String> = ["host.name", "k8s.pod.name", "service.name", "service.instance.id"];
        /// Allows an address other than loopback without encryption: tokens and telemetry travel in clear text.
        allow_insecure: bool = false;
    }
}

config_section! {
    /// What agents of others send.
    pub struct SendersConfig in "senders" {
        /// Labels and metadata that name the entity of a log entry: the first one that it has.
        loki_entity: Vec<String> = ["host", "hostname", "instance", "service_name", "job"];
        /// Fields that name the entity of a document of Elasticsearch: the first one that it has.
        elasticsearch_entity: Vec<String> = ["host.name", "host", "hostname", "service.name"];
        /// Labels that name the entity of a series of Prometheus: the first one that it has.
        prometheus_entity: Vec<String> = ["instance", "job"];
    }
}

config_section! {
    /// Where the Mixer keeps everything.
    pub struct StoreConfig in "store" {
        /// Root folder of everything the Mixer keeps.
        dir: PathBuf = "./data";
        /// Database an analyst opens, built by `platform-mixer export duckdb`; below store.dir.
        database_file: PathBuf = "platform.duckdb";
        /// Folder of the specs of business messages, a YAML file each, reloaded while the Mixer runs; below store.dir.
        specs_dir: PathBuf = "specs";
        /// Private key of the cluster, below store.dir.
        cluster_key_file: PathBuf = "cluster.key";
        /// Maximum size in MiB of the write-ahead log; at it, appends wait.
        wal_max("wal_max_size_mb"): ByteSize as MebibyteCount = 512, within(1, 1 << 24);
        /// MiB that must be free on the disks of the store; while less is, ingest is refused or waits, and queries, compaction and
        /// retention go on. 0 is a 64th of the disk, of 2 MiB to 2 GiB.
        min_free("min_free_mb"): ByteSize as MebibyteCount = 0, within(0, 1 << 30);
    }
}

config_section! {
    /// The bus: the server the Mixer runs, or an external one.
    pub struct BusServerConfig in "snake" {
        /// Whether the Mixer runs the bus server itself or uses the one at snake.url.
        server: ServerMode { Managed = "managed", External = "external" } = "managed";
        /// Address the managed server listens on.
        host: IpAddr = "127.0.0.1";
        /// Port the managed server listens on; 0 takes any free one.
        port: u16 = 4222;
        /// Address announced to Racks, and of the external server or cluster (comma separated).
        url: String = "nats://localhost:4222", kind(ValueKind::BusUrl);
        /// Domain of the persistent streams; every Rack needs the same.
        domain: Token = "flux";
        /// Folder of the bus server's persistent streams.
        store_dir: PathBuf, below("store.dir", "js"), previous_default("\"data/js\"");
        /// Primary stream, for business messages.
        stream_name: Token = "flux-msg", previous_default("\"flux\"");
        /// Subjects captured; those under platform. go to a stream of their own.
        stream_subjects: Vec<String> = ["flux.msg.>", "flux.gear.>", "platform.>"],
            retired_default("[\"flux.msg.>\", \"flux.gear.>\", \"flux.telemetry.>\"]");
        /// Time business messages are kept on the bus, by a clock that runs steadily.
        business_stream_max_age: Duration = "720h", at_least_ms(1_000);
        /// Time telemetry is kept on the bus.
        telemetry_stream_max_age: Duration = "24h", at_least_ms(1_000);
        /// Whether the bus syncs every message to disk before it acknowledges; otherwise every second.
        durable: bool = false;
        /// Maximum size in MiB of all persistent streams together.
        max_store("max_store_mb"): ByteSize as MebibyteCount = 10240, within(64, 1 << 30);
        /// The nats-server program to run, 2.15 or later: an absolute path that only root and the Mixer's user may write.
        server_binary: Option<PathBuf>, unset("looked up beside the executable, in lib/platform-mixer beside its folder, in .tools/bin of a folder above it, and on the PATH");
        /// SHA-256 in hexadecimal that the nats-server program must have.
        server_sha256: Option<String>, unset("any program is run");
        /// Whether the managed server speaks TLS, with a certificate of the Mixer's own authority: auto does so unless it listens on
        /// loopback only.
        tls: BusTlsMode { Auto = "auto", On = "on", Off = "off" } = "auto";
        /// More names and addresses by which Racks reach the managed server, for its certificate; those of snake.host and snake.url are in
        /// it.
        tls_names: Vec<String> = [];
        /// Certificate chain (PEM) of the managed server, instead of one of the Mixer's own authority; its last certificate is what invited
        /// Racks trust. Read again when it changes.
        tls_cert: Option<PathBuf>, unset("one of the Mixer's own authority");
        /// Private key (PEM) of that certificate.
        tls_key: Option<PathBuf>, unset("one of the Mixer's own authority");
        /// Allows an address other than loopback without TLS, and enrollment.auto_adopt there, which admits whoever comes.
        allow_insecure: bool = false;
        /// Token that an external server asks for.
        token: Option<SecretString>, unset("the bus asks for no token"), secret();
        /// Key with which the Mixer signs the accounts of an external server in operator mode, one for each Rack: the file of the signing key that
        /// platform-mixer bus-operator makes.
        operator_key: Option<PathBuf>, unset("an external server has the users that you give it");
        /// Time that a Rack's credential for a bus in operator mode is valid; renewed by heartbeats in the second half of it. A Rack that hears nothing
        /// of the Mixer for longer is no user of the bus until the Mixer is back; choose four heartbeats at the least (rack.heartbeat_interval).
        rack_jwt_validity: Duration = "24h", at_least_ms(10_000);
    }
}

impl BusServerConfig {
    /// Whether the managed server speaks TLS.
    #[must_use]
    pub const fn speaks_tls(&self) -> bool {
        match self.tls {
            BusTlsMode::Auto => !self.host.is_loopback(),
            BusTlsMode::On => true,
            BusTlsMode::Off => false,
        }
    }

    /// Whether the managed server's certificate is of the store's own authority.
    #[must_use]
    pub fn has_own_authority(&self) -> bool {
        self.server == ServerMode::Managed && self.speaks_tls() && self.tls_cert.is_none()
    }
}

config_section! {
    /// Bounds of queries.
    pub struct QueryConfig in "query" {
        /// Memory in MiB that all queries together may use; a quarter of it keeps pages of data files and small indexes of ids for
        /// later ones. Rows that went from memory to files while a statement or a tail's backlog ran, and that it still has, count too:
        /// where they exceed half of the rest, the one that began first is ended (503).
        memory_limit("memory_limit_mb"): ByteSize as MebibyteCount = 1024, within(16, 1 << 24);
        /// Longest time one query may run.
        timeout: Duration = "30s";
        /// Queries that run at the same time; others wait. Three quarters of them may be SQL statements, so that lists are answered
        /// beside these.
        max_concurrent: usize = 8, within(1, 10_000);
        /// Most rows that the answer of one SQL statement may have.
        max_rows: u64 = 1000000, within(1, 1 << 32);
        /// Most MiB of data files that one query may read; pages that are kept from earlier ones do not count, nor does what it takes
        /// to fetch and check a file that is opened for the first time.
        max_scan("max_scan_mb"): ByteSize as MebibyteCount = 1048576, within(1, 1 << 40);
    }
}

config_section! {
    /// What one caller may take, a token or a user of this machine; tokens may have quotas of their own. Rates hold on average: ten
    /// seconds' worth may be taken at once. Users of this machine have the quota of queries alone. Racks
    /// are told of, and not held up.
    pub struct QuotasConfig in "quotas" {
        /// Requests a second that one token may make, statements of PostgreSQL clients included; 0 is no limit.
        requests: u64 = 1000, within(0, 1 << 30);
        /// Queries that one caller may run at once; others of it wait for these, ten seconds at most. 0 is half of query.max_concurrent.
        queries: usize = 0, within(0, 10_000);
        /// MiB of data files a second that the queries of one token may read, counted when they have; 0 is no limit.
        scanned("scanned_mb"): ByteSize as MebibyteCount = 1024, within(0, 1 << 30);
        /// MiB of ingest bodies a second that one token may send, uncompressed; 0 is no limit.
        ingest("ingest_mb"): ByteSize as MebibyteCount = 64, within(0, 1 << 30);
        /// MiB of ingest bodies that one token may have stored a day, UTC, uncompressed; 0 is no limit.
        stored("stored_mb"): ByteSize as MebibyteCount = 0, within(0, 1 << 30);
        /// Messages a second that one Rack may send over the bus before the log and /metrics tell of it; they are stored all the same. 0 is no limit.
        rack_messages: u64 = 10000, within(0, 1 << 30);
        /// MiB of such messages a second; 0 is no limit.
        rack("rack_mb"): ByteSize as MebibyteCount = 64, within(0, 1 << 30);
        /// MiB of such messages a day, UTC; 0 is no limit.
        rack_stored("rack_stored_mb"): ByteSize as MebibyteCount = 0, within(0, 1 << 30);
        /// Subjects on which one Rack may send messages in a day, in the same way; 0 is no limit.
        rack_subjects: usize = 1000, within(0, 65_536);
    }
}

config_section! {
    /// Live tail of the logs.
    pub struct TailConfig in "tail" {
        /// Memory in MiB for the last rows of logs, and as much for those of messages while they are followed: how far a slow or
        /// returning reader may be behind; beside storage.memory_limit_mb.
        buffer("buffer_mb"): ByteSize as MebibyteCount = 32, within(1, 1 << 20);
        /// Readers that follow the logs at the same time; more are refused.
        max_followers: usize = 200, within(1, 10_000);
    }
}
