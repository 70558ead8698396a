//! The operator's key: a file with the seed of an nkey, for scripts and people on the Mixer's machine.
//!
//! Its user is in the Mixer's account and may do what the Mixer may. Whoever can read the file can read the registry and the cluster key,
//! too. The key is another one after each start, so a copy that left the machine is worth nothing then.
//!
//! # Invariants
//!
//! - The file has mode 0600 before it has content, its folder 0700.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::BusError;
use super::accounts::BusUser;

/// Writes the seed as `nats --nkey` reads it.
pub(super) fn write(path: &Path, operator: &BusUser) -> Result<(), BusError> {
    let folder = durable_fs::parent_of(path);
    durable_fs::create_dirs(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(|source| BusError::Io {
        action: "close to others",
        path: folder.to_owned(),
        source,
    })?;
    let seed = format!("{}\n", operator.seed);
    Ok(durable_fs::write_atomically(path, seed.as_bytes(), 0o600)?)
}
