//! The state file: this Rack's key and its passport, `<base.state_dir>/<base.state_file>`.
//!
//! # Invariants
//!
//! - A file that does not verify ends the start. It is never overwritten: the operator decides.
//! - A passport is accepted only from the cluster that issued the one we have, for our key, and never an older one.
//! - The file is replaced whole, with mode 0600, and the new one is on disk before the passport is used.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use model::passport::{BadPassport, Passport, StateBundle, VERSION};
use model::{Entropy, Signed};

use crate::{Error, Identity};

/// Why a passport is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAccepted {
    #[error(transparent)]
    Bad(#[from] BadPassport),
    #[error("it was issued by another cluster than the one this Rack belongs to")]
    OtherCluster,
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
}

impl StateFile {
    /// Reads and verifies the file; makes it, with a new key, where there is none.
    pub(crate) fn open(path: &Path, entropy: &Entropy) -> Result<Self, Error> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(path, entropy),
            Err(source) => {
                return Err(Error::StateUnreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let bad = |reason: BadPassport| Error::State {
            path: path.to_owned(),
            reason,
        };
        let bundle = StateBundle::from_bytes(&bytes).map_err(|error| bad(error.into()))?;
        let passport = bundle.open().map_err(bad)?;
        let key = bundle.signing_key().map_err(bad)?;
        tighten(path);
        Ok(Self {
            path: path.to_owned(),
            bundle,
            key,
            passport,
        })
    }

    fn create(path: &Path, entropy: &Entropy) -> Result<Self, Error> {
        let secret: [u8; 32] = entropy.bytes();
        let file = Self {
            path: path.to_owned(),
            bundle: StateBundle {
                version: VERSION,
                secret_key: secret.to_vec(),
                passport: None,
            },
            key: SigningKey::from_bytes(&secret),
            passport: None,
        };
        file.store(&file.bundle)?;
        Ok(file)
    }

    /// The Rack's key pair.
    pub(crate) const fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The passport, if the Rack was ever adopted.
    pub(crate) const fn passport(&self) -> Option<&Passport> {
        self.passport.as_ref()
    }

    /// Who the passport says we are.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.passport.as_ref().and_then(|passport| identity(passport).ok())
    }

    /// Checks and stores a passport from the Mixer.
    pub(crate) fn accept(&mut self, signed: &Signed) -> Result<Identity, NotAccepted> {
        let offered = Passport::open(signed)?;
        if offered.rack_key != self.key.verifying_key().as_bytes() {
            return Err(BadPassport::NotOurs.into());
        }
        if let Some(held) = &self.passport {
            if held.cluster_key != offered.cluster_key {
                return Err(NotAccepted::OtherCluster);
            }
            if offered.counter < held.counter {
                return Err(NotAccepted::Older {
                    offered: offered.counter,
                    held: held.counter,
                });
            }
        }
        let identity = identity(&offered)?;
        if self.passport.as_ref() != Some(&offered) {
            let bundle = StateBundle {
                passport: Some(signed.clone()),
                ..self.bundle.clone()
            };
            self.store(&bundle)?;
            self.bundle = bundle;
            self.passport = Some(offered);
        }
        Ok(identity)
    }

    fn store(&self, bundle: &StateBundle) -> Result<(), Error> {
        let bytes = bundle.to_bytes().map_err(|error| Error::StateForm {
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        Ok(chassis::files::write_atomic(&self.path, &bytes, 0o600)?)
    }
}

fn identity(passport: &Passport) -> Result<Identity, BadPassport> {
    Ok(Identity {
        entity_id: passport.entity_id,
        name: passport.name.clone(),
        cluster_key: model::passport::public_key(&passport.cluster_key)?,
    })
}

/// Takes away what others may do with a file that holds a secret key.
fn tighten(path: &Path) {
    let Ok(meta) = std::fs::metadata(path) else { return };
    if meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others could read the state file; its mode is 0600 now");
        if let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
            tracing::warn!(%error, path = %path.display(), "the state file's mode could not be changed");
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

    fn passport(cluster: &SigningKey, rack: &SigningKey, counter: u64) -> Signed {
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
        let first = StateFile::open(&path, &entropy()).unwrap();
        assert!(first.passport().is_none());
        let again = StateFile::open(&path, &Entropy::new(|bytes| bytes.fill(1))).unwrap();
        assert_eq!(first.key().to_bytes(), again.key().to_bytes());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn an_accepted_passport_is_there_after_a_restart_and_no_flipped_bit_of_the_file_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.flux");
        let cluster = SigningKey::from_bytes(&[1; 32]);
        let mut state = StateFile::open(&path, &entropy()).unwrap();
        let identity = state.accept(&passport(&cluster, state.key(), 1)).unwrap();
        assert_eq!(StateFile::open(&path, &entropy()).unwrap().identity(), Some(identity));
        let good = std::fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            let error = StateFile::open(&path, &entropy()).err().unwrap();
            assert!(matches!(error.exit().code(), 65 | 77), "bit {bit}: {error}");
            assert!(error.to_string().contains("rack.flux") && error.to_string().contains("move the file away"));
            assert_eq!(std::fs::read(&path).unwrap(), bad, "the file is left as it is");
        }
    }

    #[test]
    fn passports_of_another_cluster_for_another_key_or_of_an_older_count_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let mut state = StateFile::open(&dir.path().join("s"), &entropy()).unwrap();
        let rack = state.key().clone();
        state.accept(&passport(&ours, &rack, 5)).unwrap();
        assert!(matches!(
            state.accept(&passport(&theirs, &rack, 6)),
            Err(NotAccepted::OtherCluster)
        ));
        assert!(matches!(
            state.accept(&passport(&ours, &theirs, 6)),
            Err(NotAccepted::Bad(BadPassport::NotOurs))
        ));
        assert!(matches!(
            state.accept(&passport(&ours, &rack, 4)),
            Err(NotAccepted::Older { offered: 4, held: 5 })
        ));
        state.accept(&passport(&ours, &rack, 6)).unwrap();
        assert_eq!(
            StateFile::open(&dir.path().join("s"), &entropy())
                .unwrap()
                .passport()
                .unwrap()
                .counter,
            6
        );
    }
}
