//! Configuration: a schema as data, one layering function, and everything that can be derived from the two.
//!
//! ```text
//!              ┌ flags ────────┐
//!   Schema ──▶ │ environment   │ ──▶ load ──▶ Settings ──▶ typed sections (in the room that obeys them)
//!   (keys)     │ file          │                 ├──▶ shown, show_text   (config show [--origin])
//!              └ defaults ─────┘                 └──▶ watch              (live keys, "needs a restart")
//!          └──▶ init_text (config init)   reference_markdown (docs/configuration.md)   migrate (v0.4.4 files)
//! ```
//!
//! # Invariants
//!
//! - Precedence: flags over environment over file over defaults, key by key.
//! - Environment names are derived from the known keys; an environment name is never turned back into a key.
//! - Section names are case-insensitive, key names are not.
//! - All problems are reported at once, each with its place, the key and the fix.
//! - A secret never comes from the text of a file, only from a `${NAME}` reference there or from the environment.
//!
//! # Not here
//!
//! The keys themselves, except `[logging]`, which every process of ours has ([`logging`]).

mod config_reader;
mod load;
pub mod logging;
mod migrate;
mod reference;
mod schema;
pub mod schema_check;
mod section_macro;
mod settings;
mod show;
mod value;
mod watch;

#[cfg(test)]
mod tests;

pub use crate::config_error::{ConfigErrors, ConfigProblem, ValueOrigin};
pub use config_reader::{ConfigReader, DayCount, GibibyteCount, MebibyteCount};
pub use load::{ConfigSources, load};
pub use logging::{LogThrottleConfig, LoggingConfig};
pub use migrate::{ConfigMigration, migrate};
pub use reference::{chapter, reference_markdown, with_chapter};
pub use schema::{ConfigKey, ConfigSchema, ConfigSection, DefaultValue, RemovedKey, ValueKind};
pub use settings::Settings;
pub use show::{SettingLine, init_text, show_text, shown};
pub(crate) use value::bus_urls;
pub use value::{ConfigValue, SecretString, is_guarded_bus, is_local_bus, without_credentials};
pub use watch::{ConfigChange, ConfigWatcher, watch};
