//! `platform-mixer found-cluster`, and the look at a store before anything in it is opened: a store whose registry is lost is no
//! new one.
//!
//! # Invariants
//!
//! - The registry is made before anything that is taken for a sign of a cluster (its key, the lock of the bus's store,
//!   DuckDB's views), so a first start that was cut off is no loss.
//! - Data files are no such sign: a store that was brought home by `platform-mixer copy` has no registry.
//! - A cluster that was founded in place of another one is marked in the same commit: its Racks wait for the scenario that was lost, and are not
//!   given `mixer.first_scenario`. Where the founding fails, or is cut off, there is neither, and no registry that was not there before.
//! - No store is made in a folder of another user, whose Mixer could not open it.
//!
//! # Not here
//!
//! A key that is lost ([`crate::cluster`]).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chassis::ExitReason;
use chassis::file_modes::require_unshared;
use model::{Clock, Entropy};
use nix::unistd::geteuid;

use crate::bus_server::STORE_LOCK;
use crate::cluster::{Cluster, ClusterError};
use crate::config::MixerConfig;
use crate::duckdb::VIEWS_FILE;
use crate::registry::{ClusterRegistry, RegistryError};
use crate::start_error::StartError;

/// The folder of keys beside the cluster's, below `store.dir`.
pub(crate) const KEYS_FOLDER: &str = "keys";

/// Where the registry of a store is.
pub(crate) fn registry_file(store: &Path) -> PathBuf {
    store.join("registry.redb")
}

/// An error if a cluster lived here and its registry is gone.
pub(crate) fn require_registry(config: &MixerConfig) -> Result<(), ClusterError> {
    let registry = registry_file(&config.store.dir);
    let signs = [
        config.store.cluster_key_file.clone(),
        config.snake.store_dir.join(STORE_LOCK),
        config.store.dir.join(VIEWS_FILE),
    ];
    let is_there = registry.try_exists().unwrap_or(true);
    match signs.into_iter().find(|sign| sign.exists()) {
        Some(sign) if !is_there => Err(ClusterError::NoRegistry { registry, sign }),
        _ => Ok(()),
    }
}

/// Refuses to make a store in a folder of another user: what root makes there, the service cannot open. One that is there passes; whose it is
/// is looked at when it is opened.
///
/// # Errors
/// A sentence and an exit code.
pub fn require_own_parent(store: &Path) -> Result<(), (ExitReason, String)> {
    if store.exists() {
        return Ok(());
    }
    let mut parent = durable_fs::parent_of(store);
    while !parent.exists() && parent != durable_fs::parent_of(parent) {
        parent = durable_fs::parent_of(parent);
    }
    let own = geteuid().as_raw();
    match std::fs::metadata(parent).map(|found| found.uid()) {
        Ok(uid) if own == 0 && uid != 0 => Err((
            ExitReason::Denied,
            format!(
                "the folder {} belongs to user {uid}, who could not open a store that root makes there: nothing was made. Run this \
                 command as that user (platform-mixer-admin does where the package is installed)",
                parent.display()
            ),
        )),
        _ => Ok(()),
    }
}

/// Founds a cluster in a store that has no registry, with the key that lies there or a new one. What was done.
///
/// # Errors
/// A sentence and an exit code if there is a cluster, a Mixer runs, or the store cannot be written.
pub fn init_cluster(config: &MixerConfig, clock: &Clock, entropy: &Entropy) -> Result<String, (ExitReason, String)> {
    let path = registry_file(&config.store.dir);
    try_init_cluster(config, &path, clock, entropy).map_err(|error| (error.exit_code(), error.to_string()))
}

fn try_init_cluster(config: &MixerConfig, path: &Path, clock: &Clock, entropy: &Entropy) -> Result<String, StartError> {
    require_unshared(&config.store.dir)?;
    durable_fs::create_dirs(&config.store.dir)?;
    let key = &config.store.cluster_key_file;
    let cluster = if path.exists() {
        let registry = ClusterRegistry::open(path)?;
        if let Some(founding) = registry.cluster_identity()? {
            return Err(StartError::Cluster(ClusterError::Founded {
                registry: path.to_owned(),
                cluster_id: founding.cluster_id,
            }));
        }
        Cluster::found_replacement(&registry, key, clock, entropy)?
    } else {
        found_with_registry(path, key, clock, entropy)?
    };
    Ok(format!(
        "founded cluster {} with the key {}: it has no Rack and no scenario yet, and starts none by itself (mixer.first_scenario)\n",
        cluster.id(),
        key.display()
    ))
}

/// Makes a registry that has its name only once a cluster is in it: with an empty one, a start would found a cluster that is not known
/// to replace one. What a founding that failed or was cut off has left of one goes; its key stays.
fn found_with_registry(path: &Path, key: &Path, clock: &Clock, entropy: &Entropy) -> Result<Cluster, StartError> {
    let staged = path.with_file_name(".registry.redb.founded");
    if staged.exists() {
        match ClusterRegistry::open(&staged) {
            Err(error @ RegistryError::InUse { .. }) => return Err(error.into()),
            // Half made, or whole: while it is locked, nobody else takes it for theirs.
            _left => durable_fs::remove_if_there(&staged)?,
        }
    }
    // It is open, and so another founding refused, until it has its name.
    let registry = ClusterRegistry::open(&staged)?;
    let cluster = Cluster::found_replacement(&registry, key, clock, entropy)?;
    durable_fs::rename_to_free(&staged, path)?;
    durable_fs::sync_dir(durable_fs::parent_of(path))?;
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn no_store_is_made_in_a_folder_of_another_user() {
        let folder = tempfile::tempdir().unwrap();
        let stores = ["data", "not/yet/there"].map(|store| folder.path().join(store));
        for store in &stores {
            assert_eq!(require_own_parent(store), Ok(()));
        }
        if !geteuid().is_root() {
            // Nobody else can give a folder away.
            return;
        }
        chown(folder.path(), Some(65_534), None).unwrap();
        for store in &stores {
            let (exit, sentence) = require_own_parent(store).unwrap_err();
            assert_eq!(exit, ExitReason::Denied);
            assert!(sentence.contains("user 65534"), "{sentence}");
            assert!(sentence.contains("platform-mixer-admin"), "{sentence}");
            assert!(sentence.contains(&folder.path().display().to_string()), "{sentence}");
        }
        std::fs::create_dir(&stores[0]).unwrap();
        assert_eq!(require_own_parent(&stores[0]), Ok(()));
    }
}
