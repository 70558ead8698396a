//! `platform-mixer found-cluster`, and the look at a store before anything in it is opened: a store whose registry is lost is no
//! new one.
//!
//! # Invariants
//!
//! - The registry is made before anything that is taken for a sign of a cluster (its key, the lock of the bus's store,
//!   DuckDB's views), so a first start that was cut off is no loss.
//! - Data files are no such sign: a store that was brought home by `platform-mixer copy` has no registry.
//! - A cluster that was founded in place of another one is marked before it is there: its Racks wait for the scenario that was lost, and are not
//!   given `mixer.first_scenario`.
//!
//! # Not here
//!
//! A key that is lost ([`crate::cluster`]).

use std::path::{Path, PathBuf};

use chassis::ExitReason;
use chassis::file_modes::require_unshared;
use model::{Clock, Entropy};

use crate::bus_server::STORE_LOCK;
use crate::cluster::{Cluster, ClusterError};
use crate::config::MixerConfig;
use crate::duckdb::VIEWS_FILE;
use crate::registry::ClusterRegistry;
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
    let registry = ClusterRegistry::open(path)?;
    if let Some(founding) = registry.cluster_identity()? {
        return Err(StartError::Cluster(ClusterError::Founded {
            registry: path.to_owned(),
            cluster_id: founding.cluster_id,
        }));
    }
    registry.change(|change| change.mark_replacement())?;
    let key = &config.store.cluster_key_file;
    let cluster = Cluster::open(&registry, key, clock, entropy)?;
    Ok(format!(
        "founded cluster {} with the key {}: it has no Rack and no scenario yet, and starts none by itself (mixer.first_scenario)\n",
        cluster.id(),
        key.display()
    ))
}
