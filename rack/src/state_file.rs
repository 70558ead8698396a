//! The state file: this Rack's key and its passport, `<base.state_dir>/<base.state_file>`.
//!
//! # Invariants
//!
//! - A file that does not verify ends the start. It is never overwritten: the operator decides.
//! - A passport is accepted only from the cluster that issued the one we have, by the key that signed the answer with it, for our key, and never an older
//!   one.
//! - The file is replaced whole, with mode 0600, and the new one is on disk before the passport is used.
//! - With a key (`base.state_key`) it is encrypted (`seal`): a plain one is replaced at the first start after it was verified,
//!   and an encrypted one is never replaced by a plain one.

pub(crate) mod encryption;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use encryption::fuzz_sealed;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use model::passport::{BadPassport, Passport, StateBundle, VERSION};
use model::signed_reply::ClusterKey;
use model::{BusCredential, Entropy, KeyFingerprint, RackInvite, SignedPayload};
use nkeys::{KeyPair, KeyPairType};
use sha2::{Digest as _, Sha256};

use self::encryption::StateKey;
use crate::config::BaseConfig;
use crate::seal_error::SealError;
use crate::{Error, RackIdentity};

/// Why a passport is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassportRejection {
    #[error(transparent)]
    Bad(#[from] BadPassport),
    #[error("it was issued by another cluster than the one this Rack belongs to")]
    OtherCluster,
    #[error("it was issued by another key than the one that answered")]
    OtherKey,
    #[error("it has counter {offered}, and this Rack holds one with {held}")]
    Older { offered: u64, held: u64 },
    #[error(transparent)]
    NotStored(#[from] Error),
}

/// The opened state file.
pub(crate) struct StateFile {
    path: PathBuf,
    bundle: StateBundle,
    key: SigningKey,
    passport: Option<Passport>,
    /// What it is encrypted with, and where nonces come from.
    seal: Option<(StateKey, Entropy)>,
}

impl StateFile {
    /// The one that the configuration names, with the key that it gives.
    pub(crate) fn of(base: &BaseConfig, entropy: &Entropy) -> Result<Self, Error> {
        Self::open(&base.state_file, StateKey::of(base)?, entropy)
    }

    /// The same without making or changing anything; none where there is no file.
    pub(crate) fn look(base: &BaseConfig, entropy: &Entropy) -> Result<Option<Self>, Error> {
        let seal = StateKey::of(base)?.map(|key| (key, entropy.clone()));
        let bytes = bytes_of(&base.state_file)?;
        bytes
            .map(|bytes| Self::verified(&base.state_file, seal, bytes))
            .transpose()
    }

    /// Reads and verifies the file; makes it, with a new key, where there is none.
    fn open(path: &Path, key: Option<StateKey>, entropy: &Entropy) -> Result<Self, Error> {
        let seal = key.map(|key| (key, entropy.clone()));
        let Some(bytes) = bytes_of(path)? else {
            return Self::create(path, seal, entropy);
        };
        let is_sealed = encryption::is_sealed(&bytes);
        let file = Self::verified(path, seal, bytes)?;
        tighten(path);
        if !is_sealed && file.seal.is_some() {
            file.store(&file.bundle)?;
            tracing::info!(path = %path.display(), "the state file is now encrypted; its backups are still plain");
        }
        Ok(file)
    }

    fn verified(path: &Path, seal: Option<(StateKey, Entropy)>, bytes: Vec<u8>) -> Result<Self, Error> {
        let bad = |reason: BadPassport| {
            let path = path.to_owned();
            match reason {
                BadPassport::Version { found } => Error::StateVersion { path, found },
                reason => Error::State { path, reason },
            }
        };
        let bytes = match (encryption::is_sealed(&bytes), &seal) {
            (false, _) => Ok(bytes),
            (true, None) => Err(SealError::NoKey),
            (true, Some((key, _))) => key.open(&bytes),
        };
        let bytes = bytes.map_err(|reason| sealed(path, reason))?;
        let bundle = StateBundle::from_bytes(&bytes).map_err(|error| bad(error.into()))?;
        let passport = bundle.open().map_err(bad)?;
        let key = bundle.signing_key().map_err(bad)?;
        Ok(Self {
            path: path.to_owned(),
            bundle,
            key,
            passport,
            seal,
        })
    }

    fn create(path: &Path, seal: Option<(StateKey, Entropy)>, entropy: &Entropy) -> Result<Self, Error> {
        let secret: [u8; 32] = entropy.bytes();
        let file = Self {
            path: path.to_owned(),
            bundle: StateBundle {
                version: VERSION,
                secret_key: secret.to_vec(),
                passport: None,
                joined: None,
                configured_invite: Vec::new(),
                former_cluster_keys: Vec::new(),
                bus_credential: None,
            },
            key: SigningKey::from_bytes(&secret),
            passport: None,
            seal,
        };
        file.store(&file.bundle)?;
        Ok(file)
    }

    /// The Rack's key pair.
    pub(crate) const fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The key with which the bus knows this Rack. Another one than that with which it signs what it says: a bus server
    /// has its clients sign whatever it sends them.
    pub(crate) fn bus_key(&self) -> Option<KeyPair> {
        // Any 32 bytes are a key.
        KeyPair::new_from_raw(KeyPairType::User, self.secret_for(b"platform/bus/1\0")).ok()
    }

    /// A secret for one purpose, always the same.
    pub(crate) fn secret_for(&self, purpose: &[u8]) -> [u8; 32] {
        Sha256::new()
            .chain_update(purpose)
            .chain_update(self.key.to_bytes())
            .finalize()
            .into()
    }

    /// The passport, if the Rack was ever adopted.
    pub(crate) const fn passport(&self) -> Option<&Passport> {
        self.passport.as_ref()
    }

    /// Who the passport says we are.
    pub(crate) fn identity(&self) -> Option<RackIdentity> {
        let passport = self.passport.as_ref()?;
        let former = self.bundle.former_cluster_keys.iter();
        Some(RackIdentity {
            entity_id: passport.entity_id,
            name: passport.name.clone(),
            cluster_key: model::passport::public_key(&passport.cluster_key).ok()?,
            former_cluster_keys: former.filter_map(|key| model::passport::public_key(key).ok()).collect(),
        })
    }

    /// Checks and stores a passport that came with an answer of this cluster: one with the key that we know, or with one that follows it.
    pub(crate) fn accept(
        &mut self,
        signed: &SignedPayload,
        cluster: &ClusterKey,
    ) -> Result<RackIdentity, PassportRejection> {
        let offered = Passport::open(signed)?;
        if offered.cluster_key != cluster.key.as_bytes() {
            return Err(PassportRejection::OtherKey);
        }
        if offered.rack_key != self.key.verifying_key().as_bytes() {
            return Err(BadPassport::NotOurs.into());
        }
        if let Some(held) = &self.passport {
            if held.cluster_id != offered.cluster_id {
                return Err(PassportRejection::OtherCluster);
            }
            if offered.counter < held.counter {
                return Err(PassportRejection::Older {
                    offered: offered.counter,
                    held: held.counter,
                });
            }
        }
        if self.passport.as_ref() != Some(&offered) {
            let mut bundle = StateBundle {
                passport: Some(signed.clone()),
                ..self.bundle.clone()
            };
            let held = self.passport.as_ref().and_then(ClusterKey::of);
            if let Some(held) = held.filter(|held| held.key != cluster.key) {
                tracing::info!(before = %held.fingerprint(), now = %cluster.fingerprint(), "the cluster has another key, which its old one signed");
                bundle.former_cluster_keys.push(held.key.to_bytes());
            }
            self.keep(bundle)?;
            self.passport = Some(offered);
        }
        Ok(self.identity().ok_or(BadPassport::Key)?)
    }

    /// With what the bus knows this Rack beside its key.
    pub(crate) const fn bus_credential(&self) -> Option<&BusCredential> {
        self.bundle.bus_credential.as_ref()
    }

    /// Keeps what the bus knows this Rack with from now on.
    pub(crate) fn keep_credential(&mut self, credential: BusCredential) -> Result<(), Error> {
        self.keep(StateBundle {
            bus_credential: Some(credential),
            ..self.bundle.clone()
        })
    }

    /// Trusts another authority of the bus from now on, where the Rack joined by an invite that names one. Whether that is new.
    pub(crate) fn repin(&mut self, authority: KeyFingerprint) -> Result<bool, Error> {
        let mut bundle = self.bundle.clone();
        let pinned = bundle.joined.as_mut().and_then(|joined| joined.authority.as_mut());
        let Some(pinned) = pinned.filter(|pinned| **pinned != authority) else {
            return Ok(false);
        };
        *pinned = authority;
        self.keep(bundle)?;
        Ok(true)
    }

    /// The fingerprint of its public key, by which an operator knows the Rack.
    pub(crate) fn key_fingerprint(&self) -> KeyFingerprint {
        KeyFingerprint::of(self.key.verifying_key().as_bytes())
    }

    /// The invite that the Rack joined with.
    pub(crate) const fn joined(&self) -> Option<&RackInvite> {
        self.bundle.joined.as_ref()
    }

    /// Keeps an invite: from now on the Rack finds the bus by it, and believes the cluster that it names until it has a passport.
    pub(crate) fn join(&mut self, invite: RackInvite) -> Result<(), Error> {
        self.keep(StateBundle {
            joined: Some(invite),
            ..self.bundle.clone()
        })
    }

    /// The key of the cluster that the Rack belongs to.
    pub(crate) fn cluster_key(&self) -> Option<KeyFingerprint> {
        let passport = self.passport.as_ref()?;
        Some(KeyFingerprint::of(&passport.cluster_key))
    }

    /// The same for the invite of the configuration, once: what is told to the Rack later counts more.
    pub(crate) fn take_configured_invite(&mut self, invite: RackInvite) -> Result<(), Error> {
        let key = invite.public_key().map(|key| key.to_bytes()).unwrap_or_default();
        if self.bundle.configured_invite == key {
            return Ok(());
        }
        self.keep(StateBundle {
            configured_invite: key.to_vec(),
            joined: Some(invite),
            ..self.bundle.clone()
        })
    }

    /// Has a content of the file on disk before it is used.
    fn keep(&mut self, bundle: StateBundle) -> Result<(), Error> {
        if self.bundle != bundle {
            self.store(&bundle)?;
            self.bundle = bundle;
        }
        Ok(())
    }

    fn store(&self, bundle: &StateBundle) -> Result<(), Error> {
        let bytes = bundle.to_bytes().map_err(|error| Error::StateForm {
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        let bytes = match &self.seal {
            Some((key, entropy)) => key.seal(bytes, entropy).map_err(|reason| sealed(&self.path, reason))?,
            None => bytes,
        };
        Ok(durable_fs::write_atomically(&self.path, &bytes, 0o600)?)
    }
}

fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::StateUnreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

fn sealed(path: &Path, reason: SealError) -> Error {
    Error::Sealed {
        path: path.to_owned(),
        reason,
    }
}

/// Takes away what others may do with a file that holds a secret key.
fn tighten(path: &Path) {
    let Ok(meta) = std::fs::metadata(path) else { return };
    if meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others could read the state file; its mode is now 0600");
        if let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
            tracing::warn!(%error, path = %path.display(), "could not change the mode of the state file");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{ClusterId, EntityId, Timestamp};

    use super::*;

    fn entropy() -> Entropy {
        Entropy::new(|bytes| bytes.fill(9))
    }

    fn passport(cluster: &SigningKey, rack: &SigningKey, counter: u64) -> SignedPayload {
        let passport = Passport {
            version: VERSION,
            cluster_id: ClusterId::at(Timestamp::from_micros(0), [0; 10]),
            cluster_key: cluster.verifying_key().as_bytes().to_vec(),
            entity_id: EntityId::for_name("r"),
            name: "r".parse().unwrap(),
            rack_key: rack.verifying_key().as_bytes().to_vec(),
            issued: Timestamp::from_micros(5),
            counter,
        };
        passport.sign(cluster).unwrap()
    }

    #[test]
    fn a_first_start_makes_a_key_that_the_next_start_finds_in_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.flux");
        let first = StateFile::open(&path, None, &entropy()).unwrap();
        assert!(first.passport().is_none());
        let again = StateFile::open(&path, None, &Entropy::new(|bytes| bytes.fill(1))).unwrap();
        assert_eq!(first.key().to_bytes(), again.key().to_bytes());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn an_accepted_passport_is_there_after_a_restart_and_no_flipped_bit_of_the_file_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.flux");
        let cluster = SigningKey::from_bytes(&[1; 32]);
        let mut state = StateFile::open(&path, None, &entropy()).unwrap();
        let identity = state
            .accept(&passport(&cluster, state.key(), 1), &signer(&cluster))
            .unwrap();
        assert_eq!(
            StateFile::open(&path, None, &entropy()).unwrap().identity(),
            Some(identity)
        );
        let good = std::fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            let error = StateFile::open(&path, None, &entropy()).err().unwrap();
            assert!(matches!(error.exit().code(), 65 | 77), "bit {bit}: {error}");
            assert!(error.to_string().contains("rack.flux") && error.to_string().contains("move the file away"));
            assert_eq!(std::fs::read(&path).unwrap(), bad, "the file is left as it is");
        }
    }

    #[test]
    fn passports_of_another_cluster_for_another_key_or_of_an_older_count_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let mut state = StateFile::open(&dir.path().join("s"), None, &entropy()).unwrap();
        let rack = state.key().clone();
        state.accept(&passport(&ours, &rack, 5), &signer(&ours)).unwrap();
        assert!(matches!(
            state.accept(&passport(&theirs, &rack, 6), &signer(&ours)),
            Err(PassportRejection::OtherKey)
        ));
        assert!(matches!(
            state.accept(&passport(&ours, &theirs, 6), &signer(&ours)),
            Err(PassportRejection::Bad(BadPassport::NotOurs))
        ));
        assert!(matches!(
            state.accept(&passport(&ours, &rack, 4), &signer(&ours)),
            Err(PassportRejection::Older { offered: 4, held: 5 })
        ));
        state.accept(&passport(&ours, &rack, 6), &signer(&ours)).unwrap();
        assert_eq!(
            StateFile::open(&dir.path().join("s"), None, &entropy())
                .unwrap()
                .passport()
                .unwrap()
                .counter,
            6
        );
    }

    fn signer(key: &SigningKey) -> ClusterKey {
        ClusterKey {
            id: ClusterId::at(Timestamp::from_micros(0), [0; 10]),
            key: key.verifying_key(),
        }
    }

    #[test]
    fn a_key_that_follows_is_taken_with_its_passport_and_the_one_of_before_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (old, new) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let mut state = StateFile::open(&path, None, &entropy()).unwrap();
        let rack = state.key().clone();
        state.accept(&passport(&old, &rack, 1), &signer(&old)).unwrap();
        let identity = state.accept(&passport(&new, &rack, 2), &signer(&new)).unwrap();
        assert_eq!(identity.cluster_key, new.verifying_key());
        assert_eq!(identity.former_cluster_keys, [old.verifying_key()]);
        assert_eq!(
            StateFile::open(&path, None, &entropy()).unwrap().identity(),
            Some(identity)
        );
    }

    #[test]
    fn an_invite_of_the_configuration_is_taken_once_and_a_later_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let invite = |secret: u8, authority: &[u8]| {
            let authority = Some(KeyFingerprint::of(authority));
            let cluster = KeyFingerprint::of(b"cluster");
            RackInvite::new(
                "r".parse().unwrap(),
                "tls://bus".to_owned(),
                authority,
                cluster,
                [secret; 32],
            )
        };
        let (configured, later) = (invite(1, b"first"), invite(2, b"second"));
        StateFile::open(&path, None, &entropy())
            .unwrap()
            .take_configured_invite(configured.clone())
            .unwrap();
        StateFile::open(&path, None, &entropy())
            .unwrap()
            .join(later.clone())
            .unwrap();
        let mut state = StateFile::open(&path, None, &entropy()).unwrap();
        state.take_configured_invite(configured).unwrap();
        assert_eq!(state.joined(), Some(&later));
        assert!(state.repin(KeyFingerprint::of(b"third")).unwrap());
        assert!(!state.repin(KeyFingerprint::of(b"third")).unwrap());
        let state = StateFile::open(&path, None, &entropy()).unwrap();
        assert_eq!(state.joined().unwrap().authority, Some(KeyFingerprint::of(b"third")));
    }

    fn state_key(byte: u8) -> Option<StateKey> {
        Some(StateKey::new(&[byte; 32]).unwrap())
    }

    #[test]
    fn with_a_key_a_plain_file_becomes_an_encrypted_one_that_only_this_key_opens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.flux");
        let cluster = SigningKey::from_bytes(&[1; 32]);
        let mut state = StateFile::open(&path, None, &entropy()).unwrap();
        let secret = state.key().to_bytes();
        let identity = state
            .accept(&passport(&cluster, state.key(), 1), &signer(&cluster))
            .unwrap();
        let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        let plain = std::fs::read(&path).unwrap();
        assert!(holds(&plain, &secret) && holds(&plain, &identity.cluster_key.to_bytes()));

        let sealed = StateFile::open(&path, state_key(7), &entropy()).unwrap();
        assert_eq!(sealed.identity().as_ref(), Some(&identity));
        let bytes = std::fs::read(&path).unwrap();
        assert!(!holds(&bytes, &secret) && !holds(&bytes, &identity.cluster_key.to_bytes()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        for (key, says) in [(None, "PLATFORM_BASE_STATE_KEY"), (state_key(8), "does not open it")] {
            let error = StateFile::open(&path, key, &entropy()).err().unwrap();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.exit().code(), 77);
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file is left as it is");
        }
        let mut again = StateFile::open(&path, state_key(7), &entropy()).unwrap();
        again
            .accept(&passport(&cluster, &again.key().clone(), 2), &signer(&cluster))
            .unwrap();
        assert!(
            encryption::is_sealed(&std::fs::read(&path).unwrap()),
            "it stays encrypted"
        );
        assert_eq!(again.key().to_bytes(), secret);
    }

    #[test]
    fn no_flipped_bit_of_an_encrypted_file_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.flux");
        StateFile::open(&path, state_key(7), &entropy()).unwrap();
        let good = std::fs::read(&path).unwrap();
        assert!(encryption::is_sealed(&good), "a new file is encrypted at once");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            assert!(StateFile::open(&path, state_key(7), &entropy()).is_err(), "bit {bit}");
            assert_eq!(std::fs::read(&path).unwrap(), bad, "the file is left as it is");
        }
    }
}
