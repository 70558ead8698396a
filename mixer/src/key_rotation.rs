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
//! - What is rotated is durable and whole, or as before. A Rack that was away finds the way whenever it comes back.
//!
//! Not here: the keys themselves ([`crate::cluster`], `bus_server::certificates`); tokens, of which anybody may have two at a time.

use chassis::ExitReason;
use chassis::file_modes::require_unshared;
use model::{Clock, Entropy, KeyFingerprint};

use crate::bootstrap::{KEYS_FOLDER, registry_file, require_registry};
use crate::bus_server::rotate_authority;
use crate::cluster::Cluster;
use crate::config::MixerConfig;
use crate::lifecycle_event::LifecycleEvent;
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry};
use crate::start_error::StartError;

/// What may be rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RotatedKey {
    /// The key that signs what the cluster says
    Cluster,
    /// The certificate authority of the bus
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
    let registry = ClusterRegistry::open(&registry_file(&config.store.dir))?;
    let path = &config.store.cluster_key_file;
    let cluster = Cluster::open(&registry, path, clock, entropy)?;
    let done = match key {
        RotatedKey::Cluster => {
            let cluster = cluster.rotate(&registry, path, clock, entropy)?;
            let fingerprint = KeyFingerprint::of(&cluster.public_key());
            format!("the key of cluster {} is now {fingerprint}", cluster.id())
        }
        RotatedKey::BusAuthority => {
            let [from, to] = rotate_authority(&config.store.dir.join(KEYS_FOLDER))?;
            let entry = AuditEntry::new(LifecycleEvent::BusAuthorityRotated, &AuditActor::Mixer, clock.now());
            registry.change(|change| change.record(entry.turn(Some(from), to)))?;
            format!("the bus's certificate authority is now {to}")
        }
    };
    Ok(format!(
        "{done}\nStart the Mixer: Racks follow by themselves. Then make a backup (platform backup): those of before have the old key\n"
    ))
}
