//! What a Rack remembers of its orders, `<base.state_dir>/scenario.cbor`: its last admission state and the last scenario
//! that ran, so that it works again after a restart without its Mixer.
//!
//! # Invariants
//!
//! - The scenario is kept as the cluster signed it and verified again when it is read.
//! - What could not be written is written as soon as it can be ([`AppliedState::retry_write`]); it is in force meanwhile.
//! - A file that does not verify is told of and then treated as absent: the Mixer pushes the scenario again.

use std::path::{Path, PathBuf};

use model::control::{RackState, ScenarioPush};
use model::{SignedPayload, SigningContext, Timestamp};
use serde::{Deserialize, Serialize};

use crate::RackIdentity;

const VERSION: u16 = 1;

/// What the file holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppliedStateRecord {
    version: u16,
    state: RackState,
    state_issued: Timestamp,
    push: Option<SignedPayload>,
}

/// The orders that a Rack follows.
#[derive(Debug)]
pub(crate) struct AppliedState {
    path: PathBuf,
    stored: AppliedStateRecord,
    push: Option<ScenarioPush>,
    /// Whether the file is older than this.
    unwritten: bool,
}

impl AppliedState {
    /// Reads what was remembered; an unreadable file is reported and counts as none.
    pub(crate) fn open(path: &Path, identity: &RackIdentity) -> Self {
        let mut memory = Self {
            path: path.to_owned(),
            stored: AppliedStateRecord {
                version: VERSION,
                state: RackState::Pending,
                state_issued: Timestamp::MIN,
                push: None,
            },
            push: None,
            unwritten: false,
        };
        match read(path, identity) {
            Ok(Some((stored, push))) => {
                memory.stored = stored;
                memory.push = push;
            }
            Ok(None) => {}
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "ignoring the saved scenario; the Mixer will push it \
                                                                again")
            }
        }
        memory
    }

    /// The last admission state.
    pub(crate) const fn state(&self) -> RackState {
        self.stored.state
    }

    /// When the last state change was sent.
    pub(crate) const fn state_issued(&self) -> Timestamp {
        self.stored.state_issued
    }

    /// The last scenario that ran.
    pub(crate) const fn push(&self) -> Option<&ScenarioPush> {
        self.push.as_ref()
    }

    /// Remembers a state.
    pub(crate) fn set_state(&mut self, state: RackState, issued: Option<Timestamp>) {
        let issued = issued.unwrap_or(self.stored.state_issued);
        if (self.stored.state, self.stored.state_issued) != (state, issued) {
            self.stored.state = state;
            self.stored.state_issued = issued;
            self.store();
        }
    }

    /// Remembers a scenario that runs.
    pub(crate) fn set_push(&mut self, signed: SignedPayload, push: ScenarioPush) {
        self.stored.push = Some(signed);
        self.push = Some(push);
        self.store();
    }

    /// Whether something is not on disk yet.
    pub(crate) const fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Writes what could not be written before.
    pub(crate) fn retry_write(&mut self) {
        if self.unwritten && self.write().is_ok() {
            self.unwritten = false;
            tracing::info!("the Rack's state and scenario are saved again");
        }
    }

    fn store(&mut self) {
        let written = self.write();
        self.unwritten = written.is_err();
        if let Err(error) = written {
            tracing::error!(
                error,
                "could not save the Rack's state and scenario: after a restart the previous ones apply until the Mixer \
                 answers; retrying"
            );
        }
    }

    fn write(&self) -> Result<(), String> {
        let bytes = model::signed::encode(&self.stored).map_err(|error| error.to_string())?;
        durable_fs::write_atomically(&self.path, &bytes, 0o600).map_err(|error| error.to_string())
    }
}

type RestoredState = (AppliedStateRecord, Option<ScenarioPush>);

fn read(path: &Path, identity: &RackIdentity) -> Result<Option<RestoredState>, String> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let stored: AppliedStateRecord = model::signed::decode_strict(&bytes).map_err(|error| error.to_string())?;
    if stored.version != VERSION {
        return Err(format!(
            "it has version {}, this program knows {VERSION}",
            stored.version
        ));
    }
    let push = stored
        .push
        .as_ref()
        .map(|signed| verify_kept(signed, identity))
        .transpose()?;
    Ok(Some((stored, push)))
}

/// A push that our cluster signed for us, with the key that it has or one that it had.
fn verify_kept(signed: &SignedPayload, identity: &RackIdentity) -> Result<ScenarioPush, String> {
    let former = identity.former_cluster_keys.iter().map(|key| RackIdentity {
        cluster_key: *key,
        ..identity.clone()
    });
    let kept = former.filter_map(|identity| verify(signed, &identity).ok()).next();
    kept.map_or_else(|| verify(signed, identity), Ok)
}

/// A push that our cluster signed for us.
pub(crate) fn verify(signed: &SignedPayload, identity: &RackIdentity) -> Result<ScenarioPush, String> {
    let push: ScenarioPush = signed
        .open(SigningContext::Command, &identity.cluster_key)
        .map_err(|error| error.to_string())?;
    if push.entity_id == identity.entity_id {
        Ok(push)
    } else {
        Err(format!(
            "it is for {}, this Rack is {}",
            push.entity_id, identity.entity_id
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use ed25519_dalek::SigningKey;
    use model::EntityId;

    use super::*;

    #[test]
    fn what_the_disk_refused_is_written_as_soon_as_it_takes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not there so far/scenario.cbor");
        let cluster = SigningKey::from_bytes(&[1; 32]);
        let identity = RackIdentity {
            entity_id: EntityId::for_name("r"),
            name: "r".parse().unwrap(),
            cluster_key: cluster.verifying_key(),
            former_cluster_keys: Vec::new(),
        };
        let push = ScenarioPush {
            entity_id: identity.entity_id,
            issued: Timestamp::from_micros(7),
            reference: "demo:2".to_owned(),
            hash: "h2".to_owned(),
            gears: Vec::new(),
            wires: Vec::new(),
            inlets: Vec::new(),
            credits: Vec::new(),
        };
        let mut memory = AppliedState::open(&path, &identity);
        memory.set_push(
            SignedPayload::new(&push, SigningContext::Command, &cluster).unwrap(),
            push,
        );
        memory.set_state(RackState::Active, None);
        memory.retry_write();
        assert!(memory.is_unwritten());
        assert_eq!(memory.push().unwrap().hash, "h2", "it is in force");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        memory.retry_write();
        assert!(!memory.is_unwritten());
        let again = AppliedState::open(&path, &identity);
        assert_eq!(
            (again.state(), again.push().unwrap().hash.as_str()),
            (RackState::Active, "h2")
        );
    }
}
