//! The sections of `platform-mixer.toml` about telemetry.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chassis::config::{DayCount, GibibyteCount, MebibyteCount, SecretString};
use chassis::config_section;
use engine::{CompressionCodec, JsonType, PartitionBy, RetentionPolicy, StorageFormat};
use model::ByteSize;

use crate::export::ExportCompression;

/// Where telemetry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservabilityTier {
    /// Into our own store.
    Embedded,
    /// To a collector.
    Otlp,
}

config_section! {
    /// Where telemetry goes.
    pub struct ObservabilityConfig in "observability" {
        /// Whether telemetry is collected and stored.
        enabled: bool = true;
        /// Whether telemetry is stored here (embedded) or sent to a collector in place of that (otlp).
        tier: ObservabilityTier { Embedded = "embedded", Otlp = "otlp" } = "embedded";
        /// Share of traces that is kept, for all Racks; the share of a single Rack may be smaller.
        sampling_rate: f64 = 1.0, between(0.0, 1.0);
        /// Whether the Mixer stores spans of the requests that it answers, ingest apart; sampling_rate is their share too.
        self_tracing: bool = true;
    }
}

config_section! {
    /// The embedded store.
    pub struct EmbeddedConfig in "observability.embedded" {
        /// Folder of the telemetry tree.
        data_dir: PathBuf, below("store.dir", "telemetry");
        /// Interval at which appended rows are flushed to data files.
        flush_interval: Duration = "5s", at_least_ms(10);
    }
}

config_section! {
    /// The form of data files.
    pub struct StorageConfig in "observability.embedded.storage" {
        /// Format of new data files: Parquet, or one JSON object per line (.json, .json.zst, .json.sz by compression).
        format: StorageFormat { Parquet = "parquet", Json = "json" } = "parquet";
        /// Length of a partition of event time, UTC.
        partition_by: PartitionBy { Hour = "hour", Day = "day" } = "hour";
        /// Compression of data files.
        compression: CompressionCodec { Zstd = "zstd", Snappy = "snappy", None = "none" } = "zstd";
        /// Parquet type of JSON columns; string is for readers that do not know JSON.
        json_type: JsonType { Json = "json", String = "string" } = "json";
        /// Size in MiB at which a data file is sealed.
        segment_size("segment_size_mb"): ByteSize as MebibyteCount = 128, within(1, 1 << 16);
        /// MiB of memory for rows: on their way in from HTTP and the bus, not yet in files, being encoded, sealed or replayed; at the
        /// limit ingest waits.
        memory_limit("memory_limit_mb"): ByteSize as MebibyteCount = 512, within(16, 1 << 20);
        /// Object store for sealed files, such as s3://bucket/prefix; credentials come from AWS_ACCESS_KEY_ID and the like.
        url: Option<String>, unset("local disk, in data_dir");
        /// Time between two uploads of new rows to the object store: what a lost machine loses at most; 0s uploads when a file is
        /// sealed.
        upload_interval: Duration = "60s", at_least_ms(0);
        /// Local disk space in MiB for files that are in the object store too; the least recently used are evicted first.
        cache_size("cache_size_mb"): ByteSize as MebibyteCount = 10240, within(0, 1 << 30);
        /// Ingest nothing and answer from what another Mixer uploads to the object store.
        read_only: bool = false;
        /// Allow an object store on another machine without encryption.
        allow_http: bool = false;
    }
}

config_section! {
    /// When old data is removed.
    pub struct RotationConfig in "observability.embedded.rotation" {
        /// What removes old partitions: age, total size, or both.
        policy: RetentionPolicy { Time = "time", Size = "size", Both = "both" } = "time";
        /// Days after which data is deleted.
        max_age("max_age_days"): Duration as DayCount = 30, within(1, 36_500);
        /// Total size in GiB above which the oldest data is deleted.
        max_size("max_size_gb"): ByteSize as GibibyteCount = 10, within(1, 1 << 20);
        /// Time between checks of the retention rules.
        check_interval: Duration = "1h", at_least_ms(100);
    }
}

config_section! {
    /// The Iceberg catalogue of the data files, at /iceberg/v1/ of the API.
    pub struct IcebergConfig in "observability.embedded.iceberg" {
        /// Whether the Mixer keeps the metadata of Iceberg's tables current, and serves it.
        enabled: bool = true;
        /// Time between two looks for data files that came or went.
        interval: Duration = "10s", within_ms(10, 300_000);
        /// Time for which snapshots, and the files that they name, are kept for readers after newer ones came: the longest that an outside
        /// query may take. 100 snapshots at most.
        snapshot_age: Duration = "1h", at_least_ms(1_000);
    }
}

config_section! {
    /// The OpenTelemetry collector that telemetry is sent to, with the tier otlp or beside the store.
    pub struct OtlpConfig in "observability.otlp" {
        /// Whether telemetry is sent to the collector as well, with the tier embedded.
        forward: bool = false;
        /// Collector over gRPC, host:port.
        endpoint: Option<String> = "";
        /// Collector over HTTP, in place of gRPC; signals have their paths below it, such as /v1/logs.
        endpoint_http: Option<String> = "";
        /// Headers sent to the collector; values refer to the environment as ${NAME}.
        headers: BTreeMap<String, SecretString> = {}, secret();
        /// For an endpoint without a scheme: no TLS. For https://: the collector's certificate is not verified.
        insecure: bool = false;
        /// Time one export may take.
        timeout: Duration = "30s", at_least_ms(10);
        /// How requests are packed.
        compression: ExportCompression { Gzip = "gzip", None = "none" } = "gzip";
        /// Maximum size in MiB of the write-ahead log while telemetry is sent to a collector, in place of store.wal_max_size_mb: what
        /// the collector does not take waits there; at it, appends wait.
        queue_max("queue_max_size_mb"): ByteSize as MebibyteCount = 10240, within(1, 1 << 24);
    }
}

config_section! {
    /// Messages kept here while telemetry goes to a collector.
    pub struct OtlpMessagesConfig in "observability.otlp.messages" {
        /// Whether business messages are also archived locally while telemetry goes to a collector.
        enabled: bool = false;
        /// Folder of the archive of business messages, with any tier: they stay where they are when it changes.
        data_dir: PathBuf, below("store.dir", "messages");
    }
}

config_section! {
    /// Switches of the environment.
    pub struct MixerSwitches in "" {
        /// Stops all reporting about the process itself; /metrics is disabled.
        disable_telemetry: bool = false, env_only();
    }
}
