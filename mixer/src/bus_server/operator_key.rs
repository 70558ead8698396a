//! The operator's key: a file with the seed of an nkey, for scripts and people on the Mixer's machine.
//!
//! Its user is in the Mixer's account and may do what the Mixer may. Whoever can read the file can read the registry and the cluster key,
//! too. The key is another one after each start, so a copy that left the machine is worth nothing then.
//!
//! # Invariants
//!
//! - The file has mode 0600 before it has content, its folder 0700.

use std::path::Path;

use super::BusError;
use super::accounts::BusUser;

/// Its name, among the keys of the store.
pub(crate) const OPERATOR_KEY: &str = "bus-operator.nk";
/// The same for a server in operator mode, where a JWT goes with the seed.
pub(crate) const OPERATOR_CREDENTIALS: &str = "bus-operator.creds";

/// Writes the seed as `nats --nkey` reads it.
pub(super) fn write(path: &Path, operator: &BusUser) -> Result<(), BusError> {
    durable_fs::create_private_dirs(durable_fs::parent_of(path))?;
    let seed = format!("{}\n", operator.seed);
    Ok(durable_fs::write_atomically(path, seed.as_bytes(), 0o600)?)
}
