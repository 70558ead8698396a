//! Backups of what a cluster is: its registry and its keys, in a folder beside them that nobody else may read.
//!
//! ```text
//!  <store.dir>/backups/20261128T093000.000000Z/
//!    registry.redb   cluster.key   keys/…         copies, mode 0600
//!    manifest.json                                  format, cluster, time, SHA-256 of each copy; written last
//! ```
//!
//! # Invariants
//!
//! - A folder of this name is a whole backup, on disk: it is filled under another name and renamed.
//! - The registry's copy is of one moment between two changes; changes wait while it is made.
//! - Nothing of it is sent to who asks for it: only where it lies.
//!
//! # Not here
//!
//! Telemetry (`platform-mixer copy`), messages on the bus, files that the operator writes (configuration, tokens, certificates).

mod restore;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::lifecycle_event::LifecycleEvent;
use model::{Clock, ClusterId, Timestamp};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::bootstrap::{KEYS_FOLDER, registry_file};
use crate::bus_server::{OPERATOR_CREDENTIALS, OPERATOR_KEY, SERVER_CERTIFICATE, SERVER_KEY};
use crate::cluster::Cluster;
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry, RegistryError};

pub use restore::restore;

/// Where backups lie, below `store.dir`.
const FOLDER: &str = "backups";
const MANIFEST: &str = "manifest.json";
const REGISTRY: &str = "registry.redb";
const CLUSTER_KEY: &str = "cluster.key";
/// The version of a backup.
const FORMAT: u16 = 1;

/// Why there is no backup, or none that can be restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A file or folder cannot be written.
    #[error(transparent)]
    File(#[from] durable_fs::DurableFsError),
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The folder has no backup.
    #[error("{} is no backup: {reason}", path.display())]
    NoBackup {
        /// The folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// There is something in its place.
    #[error("{} is there already: nothing was changed. To restore the backup, move it away", path.display())]
    Occupied {
        /// What is there.
        path: PathBuf,
    },
}

/// What a backup has, as its manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BackupManifest {
    format: u16,
    cluster_id: ClusterId,
    ts: Timestamp,
    /// SHA-256 of each file.
    files: BTreeMap<String, String>,
}

/// A backup as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct BackupView {
    /// The folder, on the Mixer's machine.
    pub(crate) folder: String,
    /// Of which moment.
    pub(crate) ts: Timestamp,
    /// Its files.
    pub(crate) files: Vec<String>,
}

/// Makes backups of a running Mixer.
#[derive(Debug)]
pub struct BackupWriter {
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) store: PathBuf,
    pub(crate) cluster_key: PathBuf,
    pub(crate) clock: Clock,
    /// One at a time.
    pub(crate) making: Mutex<()>,
}

impl BackupWriter {
    /// Makes a backup; on a thread that may block.
    ///
    /// # Errors
    /// [`BackupError`]; there is no backup then.
    pub(crate) fn write(&self, by: &AuditActor) -> Result<BackupView, BackupError> {
        let _one = self.making.lock();
        let ts = self.clock.now();
        let name = ts.to_string().replace(['-', ':'], "");
        let (folder, partial) = (
            self.store.join(FOLDER).join(&name),
            self.store.join(FOLDER).join(format!(".{name}.partial")),
        );
        durable_fs::create_private_dirs(&self.store.join(FOLDER))?;
        self.sweep()?;
        durable_fs::create_private_dirs(&partial)?;
        let files = self.fill(&partial, ts)?;
        durable_fs::rename_durably(&partial, &folder)?;
        let told = AuditEntry::new(LifecycleEvent::BackupMade, by, ts).because(name);
        self.registry.change(|change| change.record(told))?;
        Ok(BackupView {
            folder: folder.display().to_string(),
            ts,
            files,
        })
    }

    /// Drops what a backup left that did not come to its end.
    fn sweep(&self) -> Result<(), BackupError> {
        let root = self.store.join(FOLDER);
        let unreadable = |source| BackupError::Unreadable {
            path: root.clone(),
            source,
        };
        for entry in std::fs::read_dir(&root).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|extension| extension == "partial") {
                std::fs::remove_dir_all(&path).map_err(unreadable)?;
            }
        }
        Ok(())
    }

    fn fill(&self, folder: &Path, ts: Timestamp) -> Result<Vec<String>, BackupError> {
        let registry = registry_file(&self.store);
        self.registry.unchanging(|| copy(&registry, &folder.join(REGISTRY)))??;
        copy(&self.cluster_key, &folder.join(CLUSTER_KEY))?;
        let mut names = vec![REGISTRY.to_owned(), CLUSTER_KEY.to_owned()];
        let keys = self.store.join(KEYS_FOLDER);
        durable_fs::create_private_dirs(&folder.join(KEYS_FOLDER))?;
        for key in file_names(&keys)?.into_iter().filter(|name| is_kept_key(name)) {
            copy(&keys.join(&key), &folder.join(KEYS_FOLDER).join(&key))?;
            names.push(format!("{KEYS_FOLDER}/{key}"));
        }
        let hashed = names.iter().map(|name| Ok((name.clone(), hash(&folder.join(name))?)));
        let manifest = BackupManifest {
            format: FORMAT,
            cluster_id: self.cluster.id(),
            ts,
            files: hashed.collect::<Result<_, BackupError>>()?,
        };
        let text = serde_json::to_vec_pretty(&manifest).map_err(|error| BackupError::NoBackup {
            path: folder.to_owned(),
            reason: error.to_string(),
        })?;
        durable_fs::write_durably(&folder.join(MANIFEST), &text)?;
        Ok(names)
    }
}

/// Whether a file among the keys belongs into a backup: not what each start makes anew, which would stand in the way of a restore into the store
/// that it came from, nor what is still being written.
fn is_kept_key(name: &str) -> bool {
    let is_made_anew = [OPERATOR_KEY, OPERATOR_CREDENTIALS, SERVER_CERTIFICATE, SERVER_KEY].contains(&name);
    !is_made_anew && !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

/// The plain files of a folder; none where there is no folder.
fn file_names(folder: &Path) -> Result<Vec<String>, BackupError> {
    let unreadable = |source| BackupError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let is_file = entry.file_type().map_err(unreadable)?.is_file();
        names.extend(entry.file_name().into_string().ok().filter(|_| is_file));
    }
    names.sort();
    Ok(names)
}

/// Copies a file durably; nobody else may read the copy.
fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::Unreadable {
        path: from.to_owned(),
        source,
    };
    let mut read = File::open(from).map_err(failed)?;
    let mut written = durable_fs::create_private(to)?;
    std::io::copy(&mut read, &mut written).map_err(failed)?;
    durable_fs::sync_file(&written, to)?;
    Ok(durable_fs::sync_dir(durable_fs::parent_of(to))?)
}

fn hash(path: &Path) -> Result<String, BackupError> {
    let failed = |source| BackupError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut sum = Sha256::new();
    let mut buffer = [0; 64 << 10];
    let mut file = File::open(path).map_err(failed)?;
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(model::hex::encode(&sum.finalize())),
            read => sum.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests;
