//! The stream folder of the server: that of the account that the streams belong to.
//!
//! Where Racks are told apart the streams are in the Mixer's account, else in the one that everybody shares. A Mixer whose
//! `snake.rack_credentials` (or `snake.host`) was changed finds its streams with all that is in them: the folder gets the other name.
//!
//! # Invariants
//!
//! - Called while the store is locked and no server runs on it.
//! - The folder is renamed, never copied or merged, so that a crash leaves one or the other. Where both have streams, nothing is
//!   touched and the start is refused.
//!
//! # Not here
//!
//! The accounts (`access`), the lock (`lock`).

use std::path::{Path, PathBuf};

use super::{BusError, accounts};

/// The account of everybody, where none is configured.
const SHARED: &str = "$G";

/// Gives the streams in a store to the account that serves them.
pub(super) fn move_streams(store: &Path, told_apart: bool) -> Result<(), BusError> {
    let (now, before) = (account(store, told_apart), account(store, !told_apart));
    if streams(&before)?.is_empty() {
        return Ok(());
    }
    if !streams(&now)?.is_empty() {
        return Err(BusError::TwoHomes { now, before });
    }
    if now.exists() {
        std::fs::remove_dir_all(&now).map_err(io("remove the empty", &now))?;
    }
    durable_fs::rename_durably(&before, &now)?;
    tracing::info!(from = %before.display(), to = %now.display(), "the streams of the bus belong to another account now");
    Ok(())
}

/// The folder of the account that streams belong to.
pub(super) fn account(store: &Path, told_apart: bool) -> PathBuf {
    let name = if told_apart { accounts::MIXER } else { SHARED };
    store.join("jetstream").join(name)
}

/// The streams of an account.
fn streams(account: &Path) -> Result<Vec<PathBuf>, BusError> {
    let folder = account.join("streams");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io("read", &folder)(error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<Result<_, _>>().map_err(io("read", &folder))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BusError {
    let path = path.to_owned();
    move |source| BusError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn streams_follow_their_account_and_two_sets_of_them_are_refused() {
        let store = tempfile::tempdir().unwrap();
        let at = |name: &str| store.path().join("jetstream").join(name).join("streams");
        move_streams(store.path(), true).unwrap();
        std::fs::create_dir_all(at("$G").join("flux-msg/msgs")).unwrap();
        // The server makes an empty one.
        std::fs::create_dir_all(at("mixer")).unwrap();
        move_streams(store.path(), true).unwrap();
        assert!(at("mixer").join("flux-msg/msgs").exists() && !at("$G").exists());
        move_streams(store.path(), true).unwrap();
        move_streams(store.path(), false).unwrap();
        assert!(at("$G").join("flux-msg/msgs").exists() && !at("mixer").exists());
        std::fs::create_dir_all(at("mixer").join("flux-msg")).unwrap();
        for told_apart in [true, false] {
            let refused = move_streams(store.path(), told_apart).unwrap_err();
            assert!(matches!(refused, BusError::TwoHomes { .. }), "{refused}");
        }
        assert!(at("$G").join("flux-msg/msgs").exists());
    }
}
