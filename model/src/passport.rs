//! The passport: what a Rack is, signed by its cluster, kept in the Rack's state file.
//!
//! The file is a [`StateBundle`]: the passport as [`SignedPayload`] bytes by the cluster's key, and the Rack's own secret key.
//! On load the signature is checked with the cluster key inside, and the Rack's public key with its secret one.
//!
//! # Not here
//!
//! Reading and writing the file with mode 0600 (`rack`), issuing (`mixer`).

use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::signed::{BadSignature, SignedPayload, SigningContext, bytes_form};
use crate::{BusCredential, ClusterId, EntityId, RackInvite, Timestamp, Token};

/// The version of the passport's form.
pub const VERSION: u16 = 1;

/// What the cluster certifies of a Rack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passport {
    /// [`VERSION`].
    pub version: u16,
    /// The cluster that issued it.
    pub cluster_id: ClusterId,
    /// The cluster's public key (32 bytes).
    #[serde(with = "bytes_form")]
    pub cluster_key: Vec<u8>,
    /// The Rack's identity.
    pub entity_id: EntityId,
    /// The Rack's name, unique in the cluster.
    pub name: Token,
    /// The Rack's public key (32 bytes).
    #[serde(with = "bytes_form")]
    pub rack_key: Vec<u8>,
    /// When it was issued.
    pub issued: Timestamp,
    /// Grows with every passport issued to this Rack; an older one is refused.
    pub counter: u64,
}

/// The Rack's state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateBundle {
    /// [`VERSION`].
    pub version: u16,
    /// The Rack's secret key (32 bytes).
    #[serde(with = "bytes_form")]
    pub secret_key: Vec<u8>,
    /// The signed passport; none before adoption.
    pub passport: Option<SignedPayload>,
    /// The invite that it joined with: where its bus is, and whom it trusts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<RackInvite>,
    /// The secret's public half of the last `rack.invite` that was taken from the configuration (32 bytes): it is taken once.
    #[serde(default, with = "bytes_form", skip_serializing_if = "Vec::is_empty")]
    pub configured_invite: Vec<u8>,
    /// Keys that the cluster had before (32 bytes each): what they signed and this Rack kept is still good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_cluster_keys: Vec<[u8; 32]>,
    /// With what the bus knows this Rack, where its key alone is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_credential: Option<BusCredential>,
}

/// Why a passport is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPassport {
    /// The bytes or the signature are wrong.
    #[error(transparent)]
    Signature(#[from] BadSignature),
    /// A form of another version.
    #[error("the passport has version {found}, this program knows {VERSION}")]
    Version {
        /// The version found.
        found: u16,
    },
    /// A key that is not one.
    #[error("the passport holds an unusable key")]
    Key,
    /// The passport is for another Rack's key.
    #[error("the passport was issued to another key than this state file holds")]
    NotOurs,
}

/// The 32 bytes of a public key as a key.
///
/// # Errors
/// [`BadPassport::Key`] if they are no point of the curve.
pub fn public_key(bytes: &[u8]) -> Result<VerifyingKey, BadPassport> {
    let bytes: [u8; 32] = bytes.try_into().map_err(|_| BadPassport::Key)?;
    VerifyingKey::from_bytes(&bytes).map_err(|_| BadPassport::Key)
}

impl Passport {
    /// Signs it with the cluster's key.
    ///
    /// # Errors
    /// Never in practice: every passport encodes.
    pub fn sign(&self, cluster: &SigningKey) -> Result<SignedPayload, BadSignature> {
        SignedPayload::new(self, SigningContext::Passport, cluster)
    }

    /// Reads a signed passport and checks it against the cluster key it names.
    ///
    /// # Errors
    /// [`BadPassport`] with the reason.
    pub fn open(signed: &SignedPayload) -> Result<Self, BadPassport> {
        let claimed: Self = signed.peek()?;
        let key = public_key(&claimed.cluster_key)?;
        let passport: Self = signed.open(SigningContext::Passport, &key)?;
        if passport.version == VERSION {
            Ok(passport)
        } else {
            Err(BadPassport::Version {
                found: passport.version,
            })
        }
    }
}

impl StateBundle {
    /// The Rack's key pair.
    ///
    /// # Errors
    /// [`BadPassport::Key`] if it is not 32 bytes.
    pub fn signing_key(&self) -> Result<SigningKey, BadPassport> {
        let bytes: [u8; 32] = self.secret_key.as_slice().try_into().map_err(|_| BadPassport::Key)?;
        Ok(SigningKey::from_bytes(&bytes))
    }

    /// The checked passport, if there is one: signed by the cluster it names, and issued to our key.
    ///
    /// # Errors
    /// [`BadPassport`] with the reason.
    pub fn open(&self) -> Result<Option<Passport>, BadPassport> {
        if self.version != VERSION {
            return Err(BadPassport::Version { found: self.version });
        }
        let ours = self.signing_key()?.verifying_key();
        let Some(signed) = &self.passport else { return Ok(None) };
        let passport = Passport::open(signed)?;
        if passport.rack_key == ours.as_bytes() {
            Ok(Some(passport))
        } else {
            Err(BadPassport::NotOurs)
        }
    }

    /// The file's bytes: deterministic CBOR.
    ///
    /// # Errors
    /// Never in practice.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BadSignature> {
        crate::signed::encode(self)
    }

    /// From the file's bytes; anything but the one deterministic form is refused.
    ///
    /// # Errors
    /// [`BadSignature::Form`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSignature> {
        crate::signed::decode_strict(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_state_file_opens_and_no_flipped_bit_in_it_passes_for_the_same_rack() {
        let (cluster, rack) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let passport = Passport {
            version: VERSION,
            cluster_id: ClusterId::at(Timestamp::from_micros(0), [0; 10]),
            cluster_key: cluster.verifying_key().as_bytes().to_vec(),
            entity_id: EntityId::for_name("r"),
            name: "r".parse().unwrap(),
            rack_key: rack.verifying_key().as_bytes().to_vec(),
            issued: Timestamp::from_micros(5),
            counter: 1,
        };
        let bundle = StateBundle {
            version: VERSION,
            secret_key: rack.to_bytes().to_vec(),
            passport: Some(passport.sign(&cluster).unwrap()),
            joined: None,
            configured_invite: Vec::new(),
            former_cluster_keys: Vec::new(),
            bus_credential: None,
        };
        let bytes = bundle.to_bytes().unwrap();
        let open = |bytes: &[u8]| {
            StateBundle::from_bytes(bytes)
                .ok()
                .and_then(|b| b.open().ok().flatten())
        };
        assert_eq!(open(&bytes), Some(passport));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&bad), None, "bit {bit}");
        }
    }
}
