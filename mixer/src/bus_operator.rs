//! `platform-mixer bus-operator`: founds the operator of an external bus server, and prints what that server's configuration needs.
//!
//! # Invariants
//!
//! - Keys are made once. The output may be printed again, also while a Mixer runs, and where the operator's identity lies elsewhere by now.
//!
//! Not here: the keys (`bus_server::operator_signer`), the accounts that the Mixer has the server take (`bus_server::claims_publisher`).

use chassis::ExitReason;
use chassis::file_modes::require_unshared;
use model::{Clock, Entropy};

use crate::bootstrap::KEYS_FOLDER;
use crate::bus_server::found_operator;
use crate::config::MixerConfig;
use crate::start_error::StartError;

/// The operator of the bus of a configuration: lines for nats-server.
///
/// # Errors
/// A sentence and an exit code if the keys cannot be made or read.
pub fn found(config: &MixerConfig, clock: &Clock, entropy: &Entropy) -> Result<String, (ExitReason, String)> {
    try_found(config, clock, entropy).map_err(|error| (error.exit_code(), error.to_string()))
}

fn try_found(config: &MixerConfig, clock: &Clock, entropy: &Entropy) -> Result<String, StartError> {
    require_unshared(&config.store.dir)?;
    durable_fs::create_dirs(&config.store.dir)?;
    let (key, lines) = found_operator(&config.store.dir.join(KEYS_FOLDER), clock, entropy)?;
    Ok(format!(
        "# For nats-server, beside `jetstream {{ domain: {} }}`. The Mixer: snake.server = \"external\", snake.operator_key = {:?}\n{lines}",
        config.snake.domain,
        key.display().to_string()
    ))
}
