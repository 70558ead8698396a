//! Removes the files of consumers that a power cut destroyed, before the server starts.
//!
//! nats-server (2.15.1) syncs neither a consumer's configuration (`obs/<name>/meta.inf`, `meta.sum`), which it writes once, nor each write of
//! its state (`o.dat`). After a power cut a file may be empty, or zeros.
//!
//! | file | what the server makes of it |
//! |---|---|
//! | configuration | it does not know the consumer, never writes its configuration again, and gives the state to whoever makes a consumer of that name. The state may be ahead of the end of a stream which lost messages: those that come next are passed over |
//! | state | no consumer of that name can be made any more |
//!
//! # Invariants
//!
//! - Called while no server runs on the store.
//! - A consumer whose files can be read stays as it is. One that goes is made anew by the Mixer, from where its wire began or what was read
//!   from the stream is stored; who reads it knows what it has.
//!
//! # Not here
//!
//! Making consumers ([`crate::scenario`], [`ingest`]); a sound consumer that is ahead of its stream: the server corrects that.

use std::io;
use std::path::{Path, PathBuf};

use super::BusError;

/// What the server's files of state begin with, before the version.
const MAGIC: u8 = 22;

/// Removes what is left of them in the folder of an account.
pub(super) fn remove(account: &Path) -> Result<(), BusError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| BusError::Io {
            action: "look through",
            path,
            source,
        }
    };
    let streams = account.join("streams");
    for stream in folders(&streams).map_err(io(&streams))? {
        let consumers = stream.join("obs");
        for consumer in folders(&consumers).map_err(io(&consumers))? {
            let is_sound = has_configuration(&consumer).and_then(|has| Ok(has && has_state(&consumer)?));
            if !is_sound.map_err(io(&consumer))? {
                std::fs::remove_dir_all(&consumer).map_err(io(&consumer))?;
                tracing::warn!(path = %consumer.display(), "the files of a consumer are damaged, as by a power cut; recreating it");
            }
        }
    }
    Ok(())
}

fn has_configuration(consumer: &Path) -> io::Result<bool> {
    let configuration = read(&consumer.join("meta.inf"))?.unwrap_or_default();
    let sum = read(&consumer.join("meta.sum"))?.unwrap_or_default();
    Ok(serde_json::from_slice::<serde_json::Value>(&configuration).is_ok() && !sum.is_empty())
}

/// Whether the server can read the state: one that has not begun has none.
fn has_state(consumer: &Path) -> io::Result<bool> {
    let state = read(&consumer.join("o.dat"))?;
    Ok(state.is_none_or(|state| matches!(state[..], [MAGIC, 1 | 2, ..])))
}

/// A file; none where it is not there. One that cannot be read just now is not damaged.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

/// The folders in one; none where that is not there.
fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths
        .filter(|path| path.as_ref().map_or(true, |path| path.is_dir()))
        .collect()
}
