//! Derives the settings of each service from the configuration.

use std::sync::Arc;
use std::time::Duration;

use async_nats::ServerAddr;
use chassis::tls_server::ServerTlsFiles;
use model::subject::{GEARS_ALL, MESSAGES_ALL};
use model::{ByteSize, Clock, Entropy};
use tokio::sync::watch;

use crate::api;
use crate::bootstrap::KEYS_FOLDER;
use crate::bucket::{self, BucketError};
use crate::bus_server::{
    AclSnapshot, BusAuthorization, BusCertificates, BusError, BusOperator, BusSettings, ManagedServer,
    OPERATOR_CREDENTIALS, OPERATOR_KEY, OperatorSigner, ServerDeployment, StreamSettings,
};
use crate::config::{BusServerConfig, IcebergConfig, MixerConfig, ObservabilityTier, ServerMode};
use crate::control::MOST_TAPS;
use crate::export::{CollectorTarget, ExportSettings, header_map};
use crate::postgres;
use crate::quotas::{CallerPlaces, CallerQuotas, QuotaPolicy};
use crate::registry::ClusterRegistry;
use crate::scenario::BusAcl;
use crate::start_error::StartError;

/// The URL that the configuration has when nobody set one.
const DEFAULT_URL: &str = "nats://localhost:4222";
const DEFAULT_PORT: u16 = 4222;
/// How long queries of one caller wait for each other.
const OWN_QUERIES_PATIENCE: Duration = Duration::from_secs(10);
/// The first wait before a request to the collector is sent again.
const FIRST_EXPORT_PAUSE: Duration = Duration::from_secs(1);
/// How long to try to reach the bus.
const CONNECT: Duration = Duration::from_secs(10);

/// What becomes of telemetry beside being made durable.
fn export_mode(config: &MixerConfig) -> engine::ExportMode {
    match config.observability.tier {
        ObservabilityTier::Otlp => engine::ExportMode::Only,
        ObservabilityTier::Embedded if config.otlp.forward => engine::ExportMode::Copy,
        ObservabilityTier::Embedded => engine::ExportMode::Off,
    }
}

/// Whether business messages are archived here.
fn archives_messages(config: &MixerConfig) -> bool {
    config.observability.tier == ObservabilityTier::Embedded || config.otlp_messages.enabled
}

/// How requests of OTLP and of other senders become rows.
pub(crate) fn senders(config: &MixerConfig, clock: Clock) -> api::SenderAnswers {
    api::SenderAnswers {
        clock,
        otlp_entity: config.otlp_receiver.entity.clone().into(),
        loki_entity: config.senders.loki_entity.clone().into(),
        elasticsearch_entity: config.senders.elasticsearch_entity.clone().into(),
        prometheus_entity: config.senders.prometheus_entity.clone().into(),
    }
}

pub(crate) fn engine(config: &MixerConfig) -> engine::Settings {
    let (storage, rotation) = (&config.storage, &config.rotation);
    let export = export_mode(config);
    engine::Settings {
        data_dir: config.embedded.data_dir.clone(),
        flush_interval: config.embedded.flush_interval,
        format: storage.format,
        compression: storage.compression,
        messages_dir: config.otlp_messages.data_dir.clone(),
        partition_by: storage.partition_by,
        json_type: storage.json_type,
        segment_size: storage.segment_size,
        wal_max: if export == engine::ExportMode::Off {
            config.store.wal_max
        } else {
            config.otlp.queue_max
        },
        export,
        min_free: Some(config.store.min_free).filter(|free| free.get() > 0),
        max_age: rotation.max_age,
        rotation: engine::RetentionSettings {
            policy: rotation.policy,
            max_size: rotation.max_size,
            check_interval: rotation.check_interval,
        },
        tail_max: share(config.tail.buffer, 3),
        index_memory: query::QueryLimits::indexes_of(config.query.memory_limit),
        ..engine::Settings::new(&config.store.dir).with_memory(storage.memory_limit)
    }
}

/// The same with its object store, whose credentials are among the process's variables.
pub(crate) fn engine_and_bucket(config: &MixerConfig) -> Result<engine::Settings, BucketError> {
    let remote = bucket::remote(
        &config.storage,
        (config.ingest.floor, config.snake.telemetry_stream_max_age),
        std::env::vars(),
    )?;
    let remote = remote.map(|remote| engine::RemoteSettings {
        grace: object_grace(&config.iceberg, remote.grace),
        ..remote
    });
    Ok(engine::Settings {
        remote,
        ..engine(config)
    })
}

/// How long objects stay in the bucket after their removal.
fn object_grace(iceberg: &IcebergConfig, usual: Duration) -> Duration {
    if iceberg.enabled {
        usual.max(iceberg.snapshot_age.saturating_add(iceberg::MARGIN))
    } else {
        usual
    }
}

/// What the Iceberg catalogue keeps, and how it is partitioned.
pub(crate) const fn catalog(config: &MixerConfig) -> iceberg::CatalogSettings {
    iceberg::CatalogSettings {
        snapshot_age: config.iceberg.snapshot_age,
        partition_by: config.storage.partition_by,
    }
}

/// The collector that telemetry is sent to, if there is one.
pub(super) fn export(config: &MixerConfig) -> Result<Option<ExportSettings>, StartError> {
    if export_mode(config) == engine::ExportMode::Off {
        return Ok(None);
    }
    let otlp = &config.otlp;
    let target = match (&otlp.endpoint, &otlp.endpoint_http) {
        (Some(endpoint), _) => CollectorTarget::grpc(endpoint, otlp.insecure),
        (None, Some(endpoint)) => CollectorTarget::http(endpoint, otlp.insecure),
        // Refused with the configuration.
        (None, None) => return Ok(None),
    };
    let headers = otlp.headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
    Ok(Some(ExportSettings {
        target: target.map_err(StartError::Export)?,
        headers: header_map(headers).map_err(StartError::Export)?,
        compression: otlp.compression,
        timeout: otlp.timeout,
        first_pause: FIRST_EXPORT_PAUSE,
    }))
}

/// The bus, and what keeps the list of its users where it is ours.
pub(super) fn bus(
    config: &MixerConfig,
    registry: &Arc<ClusterRegistry>,
    clock: &Clock,
    entropy: &Entropy,
) -> Result<(BusSettings, BusAcl), StartError> {
    let snake = &config.snake;
    let external = |operator| {
        let (url, token) = (snake.url.clone(), snake.token.clone());
        bus_at(config, ServerDeployment::External { url, token, operator })
    };
    if snake.server == ServerMode::External && snake.operator_key.is_none() {
        return Ok((external(None), BusAcl::default()));
    }
    let (list, access) = watch::channel(AclSnapshot::default());
    let (applied, follows) = watch::channel(0);
    let acl = BusAcl::keep(Arc::clone(registry), list, follows)?;
    let users = BusAuthorization::new(entropy, access, applied)
        .map_err(|error| StartError::AgentRpc(format!("no key for the bus can be made: {error}")))?;
    let keys = config.store.dir.join(KEYS_FOLDER);
    if let Some(key) = &snake.operator_key {
        let operator = BusOperator {
            signer: OperatorSigner::read(key, clock.clone(), snake.rack_jwt_validity)?,
            users,
            credentials: keys.join(OPERATOR_CREDENTIALS),
        };
        return Ok((external(Some(Box::new(operator))), acl));
    }
    let server = ManagedServer {
        name: config.base.name.to_string(),
        host: snake.host.to_string(),
        port: snake.port,
        advertised: advertised(&snake.url, snake.port),
        store_dir: snake.store_dir.clone(),
        durable: snake.durable,
        max_payload: config.mixer.max_payload,
        binary: snake.server_binary.clone(),
        sha256: snake.server_sha256.clone(),
        certificates: certificates(config, clock)?,
        users,
        operator_key: keys.join(OPERATOR_KEY),
    };
    Ok((bus_at(config, ServerDeployment::Managed(Box::new(server))), acl))
}

/// The certificates of the managed server, where it speaks TLS.
fn certificates(config: &MixerConfig, clock: &Clock) -> Result<Option<BusCertificates>, BusError> {
    let snake = &config.snake;
    if let (true, Some(certificate), Some(key)) = (snake.speaks_tls(), &snake.tls_cert, &snake.tls_key) {
        let files = ServerTlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: None,
        };
        return Ok(Some(BusCertificates::provided(
            files,
            config.store.dir.join(KEYS_FOLDER),
        )?));
    }
    if snake.speaks_tls() {
        if !snake.host.is_loopback() && snake.url == DEFAULT_URL {
            tracing::warn!(
                url = snake.url,
                "invites name this address, which other machines do not reach: set snake.url to where they find the bus"
            );
        }
        let certificates = BusCertificates::open(config.store.dir.join(KEYS_FOLDER), tls_names(snake), clock.clone())?;
        return Ok(Some(certificates));
    }
    if !snake.host.is_loopback() {
        tracing::warn!(
            host = %snake.host,
            "the bus is open to other machines without TLS: who is on the way reads and changes what Racks send; set snake.tls = \"auto\""
        );
    }
    Ok(None)
}

/// Every name and address that the managed server is known by.
fn tls_names(snake: &BusServerConfig) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if !snake.host.is_unspecified() {
        names.push(snake.host.to_string());
    }
    let urls = snake
        .url
        .split(',')
        .filter_map(|url| url.trim().parse::<ServerAddr>().ok());
    names.extend(urls.map(|url| url.host().to_owned()));
    names.extend(snake.tls_names.iter().cloned());
    names.sort_unstable();
    names.dedup();
    names
}

fn bus_at(config: &MixerConfig, server: ServerDeployment) -> BusSettings {
    let snake = &config.snake;
    BusSettings {
        server,
        domain: snake.domain.to_string(),
        connect_timeout: CONNECT,
        streams: StreamSettings {
            name: snake.stream_name.to_string(),
            subjects: snake.stream_subjects.clone(),
            telemetry_max_age: snake.telemetry_stream_max_age,
            max_store: snake.max_store,
            max_payload: config.mixer.max_payload,
        },
    }
}

/// What Racks are told, unless it follows from host and port: the default URL says nothing about another port.
fn advertised(url: &str, port: u16) -> Option<String> {
    let follows = port == 0 || (url == DEFAULT_URL && port != DEFAULT_PORT);
    (!follows).then(|| url.to_owned())
}

/// The limits announced to every Rack.
pub(super) fn rack_limits(config: &MixerConfig) -> model::control::RackLimits {
    model::control::RackLimits {
        max_hops: config.mixer.max_hops.into(),
        max_payload_size: config.mixer.max_payload.get(),
        sampling_rate: config.observability.sampling_rate,
    }
}

pub(super) fn ingest(config: &MixerConfig) -> ingest::IngestSettings {
    ingest::IngestSettings {
        flush_interval: config.ingest.flush_interval,
        buffer_size: u32::try_from(config.ingest.buffer_size).unwrap_or(u32::MAX),
        max_payload: usize::try_from(config.mixer.max_payload.get()).unwrap_or(usize::MAX),
        messages: Some(ingest::ArchiveSource {
            stream: config.snake.stream_name.to_string(),
            subjects: [MESSAGES_ALL, GEARS_ALL].map(str::to_owned).into(),
            keeps_messages: archives_messages(config),
        }),
        racks: ingest::RackQuotas {
            messages: config.quotas.rack_messages,
            bytes: config.quotas.rack,
            stored: config.quotas.rack_stored,
            subjects: config.quotas.rack_subjects,
        },
    }
}

/// So many quarters of what is for tails: rows as they are stored take three, as texts one.
fn share(buffer: ByteSize, quarters: u64) -> ByteSize {
    ByteSize::bytes(buffer.get() / 4 * quarters)
}

pub(super) fn limits(config: &MixerConfig) -> query::QueryLimits {
    let query = &config.query;
    query::QueryLimits {
        spill_dir: Some(config.store.dir.join("spill")),
        max_followers: config.tail.max_followers,
        tail_texts: share(config.tail.buffer, 1),
        max_rows: query.max_rows,
        max_scan: query.max_scan,
        elsewhere: elsewhere(config),
        ..query::QueryLimits::new(query.memory_limit, query.timeout, query.max_concurrent)
    }
}

/// Where logs, traces and metrics are, if they are not stored here.
fn elsewhere(config: &MixerConfig) -> Option<Arc<str>> {
    let is_elsewhere = config.observability.tier == ObservabilityTier::Otlp;
    let export = export(config).ok().flatten().filter(|_| is_elsewhere)?;
    Some(export.target.to_string().into())
}

/// What callers may take: of places one has half at most, unless the configuration says something else of queries.
pub(super) fn quotas(config: &MixerConfig, clock: &Clock) -> Arc<QuotaPolicy> {
    let (quotas, limits) = (&config.quotas, limits(config));
    let defaults = CallerQuotas {
        requests: quotas.requests,
        queries: if quotas.queries == 0 {
            limits.max_concurrent / 2
        } else {
            quotas.queries
        },
        scanned: quotas.scanned,
        ingest: quotas.ingest,
        stored: quotas.stored,
    };
    let places = CallerPlaces {
        followers: limits.max_followers / 2,
        taps: MOST_TAPS / 2,
        sessions: postgres::MAX_CONNECTIONS / 2,
        connections: api::MAX_CONNECTIONS / 2,
        patience: OWN_QUERIES_PATIENCE.min(limits.timeout),
    };
    QuotaPolicy::new(defaults, places, clock.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use chassis::config::{ConfigSources, load};

    use super::*;
    use crate::config::SCHEMA;

    #[test]
    fn the_bus_certificate_has_the_names_of_its_url_its_host_and_tls_names() {
        let names = |flags: &[(&str, &str)]| {
            let flags = flags
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let sources = ConfigSources {
                flags: flags.collect(),
                ..ConfigSources::default()
            };
            tls_names(&MixerConfig::of(&load(&SCHEMA, &sources).unwrap()).unwrap().snake)
        };
        let here = ["127.0.0.1", "::1", "localhost"];
        assert_eq!(names(&[]), here);
        assert_eq!(names(&[("snake.host", "0.0.0.0")]), here);
        let more = [
            ("snake.host", "10.0.0.5"),
            ("snake.url", "nats://mixer.example:4222, nats://[2001:db8::1]:4222"),
            ("snake.tls_names", "bus.example,10.0.0.6"),
        ];
        let mut wanted = [
            &here[..],
            &["10.0.0.5", "mixer.example", "2001:db8::1", "bus.example", "10.0.0.6"],
        ]
        .concat();
        wanted.sort_unstable();
        assert_eq!(names(&more), wanted);
    }

    #[test]
    fn business_messages_are_in_the_same_folder_whatever_the_tier() {
        let folder = |flags: &[(&str, &str)]| {
            let flags = [("observability.otlp.endpoint", "c:4317"), ("store.dir", "/s")]
                .iter()
                .chain(flags)
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let sources = ConfigSources {
                flags: flags.collect(),
                ..ConfigSources::default()
            };
            engine(&MixerConfig::of(&load(&SCHEMA, &sources).unwrap()).unwrap()).messages_dir
        };
        let kept = ("observability.otlp.messages.data_dir", "/kept");
        for tier in ["embedded", "otlp"] {
            for enabled in ["true", "false"] {
                let keys = [
                    ("observability.tier", tier),
                    ("observability.otlp.messages.enabled", enabled),
                ];
                assert_eq!(folder(&keys), std::path::Path::new("/s/messages"), "{keys:?}");
                let keys = [keys[0], keys[1], kept];
                assert_eq!(folder(&keys), std::path::Path::new("/kept"), "{keys:?}");
            }
        }
    }

    #[test]
    fn objects_outlive_every_snapshot_of_the_catalogue_that_names_them() {
        let iceberg = |enabled, seconds| IcebergConfig {
            enabled,
            interval: Duration::from_secs(10),
            snapshot_age: Duration::from_secs(seconds),
        };
        let usual = Duration::from_secs(600);
        for (enabled, age, seconds) in [
            (true, 3_600, 4_200),
            (true, 1, 601),
            (true, u64::MAX, u64::MAX),
            (false, 3_600, 600),
        ] {
            let grace = object_grace(&iceberg(enabled, age), usual);
            assert_eq!(grace.as_secs(), seconds, "{enabled} {age}");
        }
    }

    #[test]
    fn the_quotas_of_racks_are_those_of_the_keys() -> Result<(), chassis::config::ConfigErrors> {
        let keys = ["rack_messages", "rack_mb", "rack_stored_mb", "rack_subjects"];
        let flags = (3_u32..)
            .zip(keys)
            .map(|(value, key)| (format!("quotas.{key}"), value.to_string()));
        let sources = chassis::config::ConfigSources {
            flags: flags.collect(),
            ..chassis::config::ConfigSources::default()
        };
        let config = MixerConfig::of(&chassis::config::load(&crate::config::SCHEMA, &sources)?)?;
        let wanted = ::ingest::RackQuotas {
            messages: 3,
            bytes: ByteSize::mib(4),
            stored: ByteSize::mib(5),
            subjects: 6,
        };
        assert_eq!(ingest(&config).racks, wanted);
        Ok(())
    }

    #[test]
    fn racks_get_the_configured_url_unless_it_is_unusable() {
        assert_eq!(
            advertised("nats://plant:4222", 4222).as_deref(),
            Some("nats://plant:4222")
        );
        assert_eq!(
            advertised("nats://plant:5222", 4222).as_deref(),
            Some("nats://plant:5222")
        );
        assert_eq!(advertised(DEFAULT_URL, 4222).as_deref(), Some(DEFAULT_URL));
        assert_eq!(advertised(DEFAULT_URL, 5222), None);
        assert_eq!(advertised("nats://plant:4222", 0), None);
    }
}
