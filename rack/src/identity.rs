//! The identity of an enrolled Rack.

use ed25519_dalek::VerifyingKey;
use model::{EntityId, Token};

/// An adopted Rack's identity, from its verified passport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RackIdentity {
    /// Its id: the owner of everything it records.
    pub entity_id: EntityId,
    /// Its name, unique in the cluster.
    pub name: Token,
    /// The key that signs what the cluster says to it.
    pub cluster_key: VerifyingKey,
    /// The keys that it followed: what they signed and this Rack kept is still good.
    pub former_cluster_keys: Vec<VerifyingKey>,
}
