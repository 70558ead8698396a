//! What a Rack remembers of its orders, `<base.state_dir>/scenario.cbor`: its last admission state and the last scenario
//! that ran, so that it works again after a restart without its Mixer.
//!
//! # Invariants
//!
//! - The scenario is kept as the cluster signed it and verified again when it is read.
//! - A file that does not verify is told of and then treated as absent: the Mixer pushes the scenario again.

use std::path::{Path, PathBuf};

use model::control::{RackState, ScenarioPush};
use model::{Context, Signed, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Identity;

const VERSION: u16 = 1;

/// What the file holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u16,
    state: RackState,
    state_issued: Timestamp,
    push: Option<Signed>,
}

/// The orders that a Rack follows.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    stored: Stored,
    push: Option<ScenarioPush>,
}

impl Memory {
    /// Reads what was remembered; an unreadable file is reported and counts as none.
    pub(crate) fn open(path: &Path, identity: &Identity) -> Self {
        let mut memory = Self {
            path: path.to_owned(),
            stored: Stored {
                version: VERSION,
                state: RackState::Pending,
                state_issued: Timestamp::MIN,
                push: None,
            },
            push: None,
        };
        match read(path, identity) {
            Ok(Some((stored, push))) => {
                memory.stored = stored;
                memory.push = push;
            }
            Ok(None) => {}
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "the remembered scenario is not used; the Mixer will push it again")
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
    pub(crate) fn set_push(&mut self, signed: Signed, push: ScenarioPush) {
        self.stored.push = Some(signed);
        self.push = Some(push);
        self.store();
    }

    fn store(&self) {
        let written = model::signed::encode(&self.stored)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                chassis::files::write_atomic(&self.path, &bytes, 0o600).map_err(|error| error.to_string())
            });
        if let Err(error) = written {
            tracing::error!(
                error,
                "the scenario runs but is not remembered: after a restart the Rack waits for its Mixer"
            );
        }
    }
}

type Remembered = (Stored, Option<ScenarioPush>);

fn read(path: &Path, identity: &Identity) -> Result<Option<Remembered>, String> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let stored: Stored = model::signed::decode_strict(&bytes).map_err(|error| error.to_string())?;
    if stored.version != VERSION {
        return Err(format!(
            "it has version {}, this program knows {VERSION}",
            stored.version
        ));
    }
    let push = stored
        .push
        .as_ref()
        .map(|signed| verify(signed, identity))
        .transpose()?;
    Ok(Some((stored, push)))
}

/// A push that our cluster signed for us.
pub(crate) fn verify(signed: &Signed, identity: &Identity) -> Result<ScenarioPush, String> {
    let push: ScenarioPush = signed
        .open(Context::Command, &identity.cluster_key)
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
