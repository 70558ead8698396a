//! The cluster's identity: a UUIDv7 in the registry and an Ed25519 key in `<store.dir>/<cluster_key_file>`, made together
//! on first boot.
//!
//! ```text
//! platform-cluster-key/1 <64 hex digits>\n        mode 0600
//! ```
//!
//! # Invariants
//!
//! - The key file is durable before the registry names its public key; a crash between the two is finished on the next boot.
//! - Every passport of the cluster hangs on this key. When the registry remembers one that is not in the file, the start
//!   is refused: a new key would silently lock out every Rack.
//! - A key that follows another one (`Cluster::rotate`) is durable in `<cluster_key_file>.next` before the registry names it, and takes its place
//!   after; a crash between the two is finished on the next boot, and a key that the registry does not name is dropped there. The old key has
//!   signed the new one: Racks follow, also one that was away for [`MOST_LINKS`] of them.
//! - Message ids (`Cluster::message_id`) do not depend on which key it is: what is sent again after a rotation is still known as the same.

use std::io;
use std::path::{Path, PathBuf};

use chassis::secret_file::{SecretFileError, read_secret};
use ed25519_dalek::SigningKey;
use model::key_succession::{KeySuccession, MOST_LINKS};
use model::lifecycle_event::LifecycleEvent;
use model::signed_reply::SignedReply;
use model::{BadSignature, Clock, ClusterId, Entropy, KeyFingerprint, SignedPayload, SigningContext};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::registry::{AuditActor, AuditEntry, ClusterIdentity, ClusterRegistry, RegistryError, RegistryTransaction};

const HEAD: &str = "platform-cluster-key/1 ";
/// The largest key file.
const LARGEST: u64 = 4096;

/// What runs a command as the user of the service.
const PACKAGED: &str = "where the package is installed: `platform-mixer-admin found-cluster`";

/// Why the cluster's identity cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The registry knows the cluster, the key is gone.
    #[error(
        "the cluster key {} is missing, but the registry beside it belongs to cluster {cluster_id}: put the key back from \
         a backup (its Racks trust no other). To found a new cluster instead, move registry.redb away and run \
         `platform-mixer found-cluster` ({PACKAGED}); every Rack must then be enrolled again, stored telemetry stays",
        path.display()
    )]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// The cluster it belongs to.
        cluster_id: ClusterId,
    },
    /// The registry is gone, and something is there that only a Mixer with a registry made.
    #[error(
        "the registry {} is missing, but {} is of a cluster that lived here: put the registry back from a backup (it knows \
         the Racks and the scenarios). To found a new cluster instead, run `platform-mixer found-cluster` ({PACKAGED}); every Rack \
         must then be enrolled again, stored telemetry stays",
        registry.display(),
        sign.display()
    )]
    NoRegistry {
        /// Where it should be.
        registry: PathBuf,
        /// What is there.
        sign: PathBuf,
    },
    /// There is a cluster where one was to be founded.
    #[error(
        "the registry {} is of cluster {cluster_id}: nothing was changed. To found another cluster in its place, move the \
         registry away",
        registry.display()
    )]
    Founded {
        /// The registry.
        registry: PathBuf,
        /// Its cluster.
        cluster_id: ClusterId,
    },
    /// The key is another one than the registry knows.
    #[error(
        "the cluster key {} is not the key of cluster {cluster_id} that the registry knows: put the right key back from a \
         backup, or name it in store.cluster_key_file",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The cluster.
        cluster_id: ClusterId,
    },
    /// The file is not a key file.
    #[error("{} is not a cluster key file: expected one line `{HEAD}<64 hex digits>`", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// Others may read the key.
    #[error("the cluster key {} has mode {mode:03o}, others may read it: run `chmod 600` on it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be read.
    #[error("cannot read the cluster key {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no cluster whose key could be rotated.
    #[error("there is no registry {}: nothing was changed. Name the configuration of the cluster's Mixer (--config)", registry.display())]
    NotFounded {
        /// Where it should be.
        registry: PathBuf,
    },
    /// The key is kept somewhere else.
    #[error(
        "the cluster key {} is a link, which a rotation would replace by a file: name what it leads to in store.cluster_key_file",
        path.display()
    )]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// The succession cannot be signed.
    #[error("the new key cannot be signed: {0}")]
    Succession(#[from] BadSignature),
    /// The file cannot be written.
    #[error(transparent)]
    Unwritable(#[from] durable_fs::DurableFsError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// The cluster: its id and the key that signs for it.
pub struct Cluster {
    id: ClusterId,
    key: SigningKey,
    successions: Vec<SignedPayload>,
    message_secret: Vec<u8>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Opens the cluster of a registry, or founds it.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn open(
        registry: &ClusterRegistry,
        path: &Path,
        clock: &Clock,
        entropy: &Entropy,
    ) -> Result<Self, ClusterError> {
        Self::open_or_found(registry, path, (clock, entropy), |_| Ok(()))
    }

    /// Founds a cluster in the place of a lost one, in a registry that has none.
    ///
    /// # Errors
    /// [`ClusterError`]; then there is no cluster, and no mark of one.
    pub(crate) fn found_replacement(
        registry: &ClusterRegistry,
        path: &Path,
        clock: &Clock,
        entropy: &Entropy,
    ) -> Result<Self, ClusterError> {
        Self::open_or_found(registry, path, (clock, entropy), |change| change.mark_replacement())
    }

    /// `mark` is committed with a founding.
    fn open_or_found(
        registry: &ClusterRegistry,
        path: &Path,
        (clock, entropy): (&Clock, &Entropy),
        mark: impl Fn(&RegistryTransaction<'_>) -> Result<(), RegistryError>,
    ) -> Result<Self, ClusterError> {
        let founding = registry.cluster_identity()?;
        let is_known = |key: &SigningKey| {
            let known = founding.as_ref().map(|founding| founding.public_key.as_slice());
            known.is_none_or(|known| known == key.verifying_key().as_bytes())
        };
        let mut found = read_key(path)?;
        if !found.as_ref().is_some_and(is_known)
            && let Some(next) = read_key(&next_path(path))?.filter(is_known)
            && founding.is_some()
        {
            durable_fs::rename_durably(&next_path(path), path)?;
            found = Some(next);
        }
        let key = match (found, &founding) {
            (Some(key), _) => key,
            (None, None) => create_key(path, entropy)?,
            (None, Some(founding)) => {
                return Err(ClusterError::Missing {
                    path: path.to_owned(),
                    cluster_id: founding.cluster_id,
                });
            }
        };
        let public_key = key.verifying_key().as_bytes().to_vec();
        let identity = match founding {
            Some(founding) if founding.public_key == public_key => founding,
            Some(founding) => {
                return Err(ClusterError::Foreign {
                    path: path.to_owned(),
                    cluster_id: founding.cluster_id,
                });
            }
            None => {
                let cluster_id = ClusterId::at(clock.now(), entropy.bytes());
                let identity = ClusterIdentity {
                    cluster_id,
                    public_key,
                    successions: Vec::new(),
                    message_secret: entropy.bytes::<32>().to_vec(),
                };
                registry.change(|change| {
                    change.put_cluster_identity(&identity)?;
                    mark(change)
                })?;
                tracing::info!(%cluster_id, "founded a new cluster");
                identity
            }
        };
        // Of a rotation that came to nothing.
        durable_fs::remove_if_there(&next_path(path))?;
        Ok(Self {
            id: identity.cluster_id,
            key,
            successions: identity.successions,
            message_secret: identity.message_secret,
        })
    }

    /// Gives the cluster another key, which its old one signs. No Mixer may run: this one signs with the old key until it ends.
    ///
    /// # Errors
    /// [`ClusterError`]; then the cluster has its old key, unless only the last step failed, which the next start does again.
    pub(crate) fn rotate(
        self,
        registry: &ClusterRegistry,
        path: &Path,
        clock: &Clock,
        entropy: &Entropy,
    ) -> Result<Self, ClusterError> {
        if path.is_symlink() {
            return Err(ClusterError::Linked { path: path.to_owned() });
        }
        let (now, next) = (clock.now(), create_key(&next_path(path), entropy)?);
        let link = KeySuccession::sign(self.id, &self.key, &next.verifying_key(), now)?;
        let [from, to] = [&self.key, &next].map(|key| KeyFingerprint::of(key.verifying_key().as_bytes()));
        let mut successions = self.successions;
        successions.push(link);
        successions.drain(..successions.len().saturating_sub(MOST_LINKS));
        let identity = ClusterIdentity {
            cluster_id: self.id,
            public_key: next.verifying_key().as_bytes().to_vec(),
            successions,
            message_secret: self.message_secret,
        };
        let entry = AuditEntry::new(LifecycleEvent::ClusterKeyRotated, &AuditActor::Mixer, now);
        let entry = entry.turn(Some(from), to);
        registry.change(|change| {
            change.put_cluster_identity(&identity)?;
            change.record(entry).map(drop)
        })?;
        durable_fs::rename_durably(&next_path(path), path)?;
        Ok(Self {
            id: self.id,
            key: next,
            successions: identity.successions,
            message_secret: identity.message_secret,
        })
    }

    /// The cluster's identity.
    #[must_use]
    pub const fn id(&self) -> ClusterId {
        self.id
    }

    /// The signing key, for passports.
    #[must_use]
    pub const fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The public key, 32 bytes.
    #[must_use]
    pub fn public_key(&self) -> Vec<u8> {
        self.key.verifying_key().as_bytes().to_vec()
    }

    /// Signs the answer to a Rack's question, in its wire form.
    ///
    /// # Errors
    /// Never in practice: our messages encode.
    pub fn answer<T: Serialize + DeserializeOwned>(&self, question: &[u8], reply: T) -> Result<Vec<u8>, BadSignature> {
        SignedReply::sign(question, reply, (self.id, &self.key), &self.successions)
    }

    /// Signs a value for a context, in its wire form.
    ///
    /// # Errors
    /// Never in practice: our messages encode.
    pub fn sign<T: Serialize>(&self, value: &T, context: SigningContext) -> Result<Vec<u8>, BadSignature> {
        SignedPayload::new(value, context, &self.key)?.to_bytes()
    }

    /// The bus's message id of what a value names: the same each time, and nobody without the registry can say it before.
    ///
    /// # Errors
    /// Never in practice: our messages encode.
    pub(crate) fn message_id<T: Serialize>(&self, of: &T) -> Result<String, BadSignature> {
        let id = Sha256::new()
            .chain_update(&self.message_secret)
            .chain_update(model::signed::encode(of)?);
        Ok(model::hex::encode(&id.finalize()))
    }
}

/// Where the key that follows is until it takes its place.
fn next_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

fn read_key(path: &Path) -> Result<Option<SigningKey>, ClusterError> {
    let path_of = || path.to_owned();
    let text = match read_secret(path, LARGEST) {
        Ok(text) => text,
        Err(SecretFileError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(SecretFileError::Unreadable(error)) if error.kind() != io::ErrorKind::InvalidData => {
            return Err(ClusterError::Unreadable {
                path: path_of(),
                source: error,
            });
        }
        Err(SecretFileError::Exposed(mode)) => return Err(ClusterError::Exposed { path: path_of(), mode }),
        Err(SecretFileError::Unreadable(_) | SecretFileError::TooLarge(_)) => {
            return Err(ClusterError::Malformed { path: path_of() });
        }
    };
    let hex = text.trim_end().strip_prefix(HEAD).and_then(model::hex::decode);
    let bytes = hex.and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.ok_or_else(|| ClusterError::Malformed { path: path_of() })?;
    Ok(Some(SigningKey::from_bytes(&bytes)))
}

/// Makes a key and writes it durably, whole or not at all.
fn create_key(path: &Path, entropy: &Entropy) -> Result<SigningKey, ClusterError> {
    let key = SigningKey::from_bytes(&entropy.bytes());
    let text = format!("{HEAD}{}\n", model::hex::encode(&key.to_bytes()));
    durable_fs::write_atomically(path, text.as_bytes(), 0o600)?;
    Ok(key)
}

#[cfg(test)]
mod tests;
