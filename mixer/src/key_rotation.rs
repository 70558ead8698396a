//! `platform-mixer rotate-key`: gives the cluster another signing key, or the bus another certificate authority, while the Mixer is stopped and its
//! Racks go on.
//!
//! | key | how Racks follow |
//! |---|---|
//! | the cluster's | the old key signs the new one; every reply shows the links ([`model::key_succession`]), and a Rack gets a passport of the new key |
//! | the bus's authority | the old authority vouches for the new one; the answer to a heartbeat names it, and an invited Rack trusts it alone from then on |
//!
//! # Invariants
//!
//! - What is rotated is durable and whole, or as before. A Rack that was away finds the way when it comes back: over 64 keys of the cluster, and over
//!   six authorities.
//! - Invites that are open name the keys of before: they are revoked.
//! - A backup with the new keys is made at once: one of before restores a cluster that no Rack believes which has followed. Where the machine
//!   fails in between, the key is rotated although `rotate-key` has not said so: invites may be open, and the audit log may lack an authority.
//!
//! Not here: the keys themselves ([`crate::cluster`], `bus_server::certificates`); tokens, of which anybody may have two at a time.

use chassis::ExitReason;
use chassis::file_modes::require_unshared;
use std::sync::Arc;

use model::lifecycle_event::LifecycleEvent;
use model::{Clock, Entropy, KeyFingerprint, Timestamp};

use crate::backup::BackupWriter;
use crate::bootstrap::{KEYS_FOLDER, registry_file, require_registry};
use crate::bus_server::{BusError, rotate_authority};
use crate::cluster::{Cluster, ClusterError};
use crate::config::MixerConfig;
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry, RegistryError, RegistryTransaction};
use crate::start_error::StartError;

/// What may be rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RotatedKey {
    /// The signing key of the cluster, which Racks know
    Cluster,
    /// The certificate authority of the managed bus
    BusAuthority,
}

/// Rotates a key of the store of a configuration. What was done.
///
/// # Errors
/// A sentence and an exit code if a Mixer runs, or there is no such key.
pub fn rotate(
    config: &MixerConfig,
    key: RotatedKey,
    clock: &Clock,
    entropy: &Entropy,
) -> Result<String, (ExitReason, String)> {
    try_rotate(config, key, clock, entropy).map_err(|error| (error.exit_code(), error.to_string()))
}

fn try_rotate(config: &MixerConfig, key: RotatedKey, clock: &Clock, entropy: &Entropy) -> Result<String, StartError> {
    require_unshared(&config.store.dir)?;
    require_registry(config)?;
    let file = registry_file(&config.store.dir);
    if !file.exists() {
        return Err(ClusterError::NotFounded { registry: file }.into());
    }
    let registry = Arc::new(ClusterRegistry::open(&file)?);
    let path = &config.store.cluster_key_file;
    let mut cluster = Cluster::open(&registry, path, clock, entropy)?;
    let done = match key {
        RotatedKey::Cluster => {
            cluster = cluster.rotate(&registry, path, clock, entropy)?;
            let fingerprint = KeyFingerprint::of(&cluster.public_key());
            format!("the key of cluster {} is now {fingerprint}", cluster.id())
        }
        RotatedKey::BusAuthority => {
            let keys = config.store.dir.join(KEYS_FOLDER);
            if !config.snake.has_own_authority() {
                return Err(BusError::NoOwnAuthority { path: keys }.into());
            }
            let [from, to] = rotate_authority(&keys)?;
            let entry = AuditEntry::new(LifecycleEvent::BusAuthorityRotated, &AuditActor::Mixer, clock.now());
            registry.change(|change| change.record(entry.turn(Some(from), to)))?;
            format!("the bus's certificate authority is now {to}")
        }
    };
    let revoked = match registry.change(|change| revoke_invites(change, clock.now())) {
        Ok(count) => format!("{count} open invites were revoked: they name the keys of before"),
        Err(error) => format!(
            "open invites were not revoked ({error}): revoke them (platform racks invites), they name the keys of before"
        ),
    };
    let writer = BackupWriter {
        registry,
        cluster: Arc::new(cluster),
        store: config.store.dir.clone(),
        cluster_key: path.clone(),
        clock: clock.clone(),
        making: parking_lot::Mutex::default(),
    };
    let backup = match writer.write(&AuditActor::Mixer) {
        Ok(backup) => format!("{} has the new keys, earlier backups do not", backup.folder),
        Err(error) => format!(
            "no backup was made ({error}): make one (platform backup) before anything else, earlier ones lack the new keys"
        ),
    };
    Ok(format!(
        "{done}\n{backup}\n{revoked}\nStart the Mixer: Racks follow by themselves\n"
    ))
}

/// Revokes the invites that are open. How many.
fn revoke_invites(change: &RegistryTransaction<'_>, now: Timestamp) -> Result<usize, RegistryError> {
    let rows = change.invites()?;
    let open: Vec<_> = rows.iter().filter(|row| row.is_open(now)).collect();
    for row in &open {
        change.remove_invite(row)?;
        let entry = AuditEntry::new(LifecycleEvent::InviteRevoked, &AuditActor::Mixer, now);
        let why = format!("invite {}: a key that it names was rotated", row.id());
        change.record(entry.at(Some(row.name.clone()), None).because(why))?;
    }
    Ok(open.len())
}
