//! `platform-mixer restore`: puts the registry and the keys of a backup into a store that has none.
//!
//! # Invariants
//!
//! - Every file is compared with the manifest before anything is written, and nothing that is there is replaced.
//! - The registry comes last: a restore that was cut off leaves a store that does not start, and can be done again.
//!
//! # Not here
//!
//! What happened between the backup and now: tokens that were revoked since are valid again, Racks that were removed since belong to the
//! cluster, those that were admitted since ask again.

use std::path::{Path, PathBuf};

use chassis::ExitReason;
use chassis::file_modes::require_unshared;
use model::Clock;
use model::lifecycle_event::LifecycleEvent;

use super::{BackupError, BackupManifest, CLUSTER_KEY, FORMAT, MANIFEST, REGISTRY, copy, hash, is_kept_key};
use crate::bootstrap::{KEYS_FOLDER, registry_file};
use crate::config::MixerConfig;
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry};

/// So many numbers of the audit log are passed over: more than what a Mixer keeps.
const SKIPPED: u64 = 1_000_000;

/// Restores a backup into the store of a configuration. What was done.
///
/// # Errors
/// A sentence and an exit code if it is no backup, was changed, or something is in its place.
pub fn restore(config: &MixerConfig, folder: &Path, clock: &Clock) -> Result<String, (ExitReason, String)> {
    let coded = |error: BackupError| {
        let exit = match &error {
            BackupError::NoBackup { .. } => ExitReason::Data,
            BackupError::Occupied { .. } => ExitReason::Config,
            BackupError::Registry(_) | BackupError::File(_) | BackupError::Unreadable { .. } => ExitReason::Io,
        };
        (exit, error.to_string())
    };
    require_unshared(&config.store.dir).map_err(|error| (ExitReason::Config, error.to_string()))?;
    try_restore(config, folder, clock).map_err(coded)
}

fn try_restore(config: &MixerConfig, folder: &Path, clock: &Clock) -> Result<String, BackupError> {
    let manifest = manifest(folder)?;
    let registry = registry_file(&config.store.dir);
    let mut targets = Vec::new();
    for (name, sum) in &manifest.files {
        let target = target(config, name).ok_or_else(|| no_backup(folder, format!("its manifest names {name:?}")))?;
        if hash(&folder.join(name))? != *sum {
            return Err(no_backup(
                folder,
                format!("{name} is not as the manifest says: it was changed or cut off"),
            ));
        }
        // A restore that was cut off has written the same keys.
        if target.exists() && (target == registry || hash(&target)? != *sum) {
            return Err(BackupError::Occupied { path: target });
        }
        targets.push((name, target));
    }
    if ![REGISTRY, CLUSTER_KEY]
        .iter()
        .all(|name| manifest.files.contains_key(*name))
    {
        return Err(no_backup(
            folder,
            "it lacks the registry or the cluster's key".to_owned(),
        ));
    }
    durable_fs::create_dirs(&config.store.dir)?;
    targets.sort_by_key(|(_, target)| *target == registry);
    for (name, target) in &targets {
        if name.starts_with(KEYS_FOLDER) {
            durable_fs::create_private_dirs(durable_fs::parent_of(target))?;
        }
        let staged = staged(target);
        durable_fs::remove_if_there(&staged)?;
        copy(&folder.join(name), &staged)?;
        if *target == registry {
            record(&staged, clock, &manifest)?;
        }
        durable_fs::rename_durably(&staged, target)?;
    }
    Ok(format!(
        "restored cluster {} of {} into {}\nWhere its key was rotated since (platform-mixer rotate-key), restore the backup that the rotation made \
         instead: Racks that have followed believe no other\nTokens revoked since then are valid again, Racks removed since then belong to the cluster again, used \
         invites are open again: look at `platform token list`, `platform racks list` and `platform racks invites`\n",
        manifest.cluster_id,
        manifest.ts,
        config.store.dir.display()
    ))
}

/// Where a file is until it is whole.
fn staged(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().display();
    target.with_file_name(format!(".{name}.restored"))
}

/// Says in a registry that it was restored; what was given a number since the backup keeps it for itself.
fn record(registry: &Path, clock: &Clock, manifest: &BackupManifest) -> Result<(), BackupError> {
    let told = AuditEntry::new(LifecycleEvent::BackupRestored, &AuditActor::Mixer, clock.now());
    let told = told.because(format!("of {}", manifest.ts));
    let registry = ClusterRegistry::open(registry)?;
    registry.change(|change| {
        change.skip_audit_numbers(SKIPPED)?;
        change.record(told)
    })?;
    Ok(())
}

fn manifest(folder: &Path) -> Result<BackupManifest, BackupError> {
    let path = folder.join(MANIFEST);
    let bytes = std::fs::read(&path).map_err(|error| no_backup(folder, format!("{}: {error}", path.display())))?;
    let manifest: BackupManifest =
        serde_json::from_slice(&bytes).map_err(|error| no_backup(folder, format!("{}: {error}", path.display())))?;
    match manifest.format {
        FORMAT => Ok(manifest),
        found => Err(no_backup(
            folder,
            format!("it has format {found}, this program knows {FORMAT}"),
        )),
    }
}

/// Where a file of a backup belongs; none for a name that no backup has.
fn target(config: &MixerConfig, name: &str) -> Option<PathBuf> {
    match name.split_once('/') {
        None if name == REGISTRY => Some(registry_file(&config.store.dir)),
        None if name == CLUSTER_KEY => Some(config.store.cluster_key_file.clone()),
        Some((KEYS_FOLDER, key)) => is_kept_key(key).then(|| config.store.dir.join(KEYS_FOLDER).join(key)),
        _ => None,
    }
}

fn no_backup(folder: &Path, reason: String) -> BackupError {
    BackupError::NoBackup {
        path: folder.to_owned(),
        reason,
    }
}
