//! What all processes share: configuration layers, log files, the bus connection, signals, exit codes.
//!
//! ```text
//! main ─ config::load ─▶ Settings ─▶ a typed section ─▶ logs::start, Bus::connect, …
//!      └ config::watch ─▶ keys that apply live ─▶ logs::Logs::apply, throttle::Throttle::apply
//! ```
//!
//! # Invariants
//!
//! - The environment is read once, by [`config::ConfigSources::of_process`]; nothing below reads it. What a service manager puts there,
//!   [`service_notifier::ServiceNotifier::of_process`] reads.
//! - Every failure names the thing, the value and the fix; [`Error::exit`] is the one place that maps to exit codes.
//!
//! # Not here
//!
//! What a key means: each binary's schema lies in the room that obeys it (`rack::config`, `mixer::config`).

pub mod bus;
pub mod child_spawner;
pub mod config;
mod config_error;
pub mod connection_activity;
mod error;
mod exit;
pub mod file_modes;
pub mod file_stamp;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod host_guard;
pub mod lingering_close;
pub mod log_rate_limiter;
pub mod logs;
pub mod retry_after;
pub mod secret_file;
pub mod service_notifier;
pub mod shutdown;
mod system_clock;
pub mod tls_server;
pub mod token_bucket;
pub mod write_timeout;

pub use error::Error;
pub use exit::ExitReason;
pub use system_clock::{os_entropy, system_clock};
