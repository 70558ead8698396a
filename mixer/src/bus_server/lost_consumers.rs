//! Consumers whose configuration a power cut destroyed: what is left of them goes before the server starts.
//!
//! nats-server (2.15.1) writes a consumer's configuration (`obs/<name>/meta.inf` and `meta.sum`) once and does not sync it, while it syncs
//! the consumer's state (`o.dat`). After a power cut the configuration may be empty. The server does not know such a consumer, never writes
//! its configuration again, and gives the state to whoever makes a consumer of that name. That state may be ahead of the end of a stream
//! which lost messages: those that come next are passed over, and the order of a wire is broken.
//!
//! # Invariants
//!
//! - Called while no server runs on the store.
//! - A consumer with a configuration stays as it is. One that goes is made anew by the Mixer, from where its wire began; its receiver knows
//!   what it has.
//!
//! # Not here
//!
//! Making consumers ([`crate::scenario`]); a consumer that is ahead of its stream and has its configuration: the server corrects that.

use std::io;
use std::path::{Path, PathBuf};

use super::BusError;

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
            if !has_configuration(&consumer) {
                std::fs::remove_dir_all(&consumer).map_err(io(&consumer))?;
                tracing::warn!(path = %consumer.display(), "a consumer lost its configuration in a power cut: it is made anew");
            }
        }
    }
    Ok(())
}

fn has_configuration(consumer: &Path) -> bool {
    let read = |name| std::fs::read(consumer.join(name)).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&read("meta.inf")).is_ok() && !read("meta.sum").is_empty()
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
