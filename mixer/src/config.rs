//! `platform-mixer.toml`: its keys as data and, resolved, as plain structs; values that do not go together are refused here.
//!
//! # Not here
//!
//! How values are merged and checked: `chassis::config`.

use chassis::config::{ConfigErrors, ConfigSchema, LoggingConfig, RemovedKey, Settings, logging};

mod sections;
mod telemetry;
mod value_checks;

pub use sections::{
    ApiConfig, AuditConfig, BusServerConfig, BusTlsMode, EnrollmentConfig, IngestConfig, MixerBaseConfig, MixerSection,
    OtlpReceiverConfig, PostgresConfig, QueryConfig, QuotasConfig, SendersConfig, ServerMode, StoreConfig, TailConfig,
};
pub use telemetry::{
    EmbeddedConfig, IcebergConfig, MixerSwitches, ObservabilityConfig, ObservabilityTier, OtlpConfig,
    OtlpMessagesConfig, RotationConfig, StorageConfig,
};
pub use value_checks::check_start;
use value_checks::{bad_export, bad_hash, bad_hosts, bad_second_person, exposed, half_of_tls, needless_operator};

chassis::config_file! {
    /// `platform-mixer.toml`, resolved.
    pub struct MixerConfig {
        logging: LoggingConfig with &const { logging::keys("\"logs/mixer.log\"") },
        base: MixerBaseConfig,
        mixer: MixerSection,
        enrollment: EnrollmentConfig,
        audit: AuditConfig,
        ingest: IngestConfig,
        api: ApiConfig,
        postgres: PostgresConfig,
        otlp_receiver: OtlpReceiverConfig,
        senders: SendersConfig,
        store: StoreConfig,
        snake: BusServerConfig,
        query: QueryConfig,
        quotas: QuotasConfig,
        tail: TailConfig,
        observability: ObservabilityConfig,
        embedded: EmbeddedConfig,
        storage: StorageConfig,
        rotation: RotationConfig,
        iceberg: IcebergConfig,
        otlp: OtlpConfig,
        otlp_messages: OtlpMessagesConfig,
        switches: MixerSwitches,
    }
}

impl MixerConfig {
    /// The typed form of merged settings; files of the store have their folder, and the hash of the bus server is in lower case.
    ///
    /// # Errors
    /// If values do not go together or have no typed form; all of them at once.
    pub fn of(settings: &Settings) -> Result<Self, ConfigErrors> {
        let mut problems = Vec::new();
        let mut config = Self::read(settings, &mut problems);
        problems.extend(exposed(settings, &config));
        problems.extend(bad_export(settings, &config));
        problems.extend(bad_hash(settings, &config.snake));
        problems.extend(bad_hosts(settings, &config.api));
        problems.extend(bad_second_person(settings, &config));
        problems.extend(half_of_tls(settings, &config));
        problems.extend(needless_operator(settings, &config.snake));
        ConfigErrors::unless_empty(problems)?;
        let store = &mut config.store;
        for file in [
            &mut store.database_file,
            &mut store.specs_dir,
            &mut store.cluster_key_file,
        ] {
            *file = store.dir.join(&*file);
        }
        if let Some(hash) = &mut config.snake.server_sha256 {
            hash.make_ascii_lowercase();
        }
        Ok(config)
    }
}

/// The whole of `platform-mixer.toml`.
pub static SCHEMA: ConfigSchema = ConfigSchema {
    program: "platform-mixer",
    file: "platform-mixer.toml",
    sections: MixerConfig::SECTIONS,
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
