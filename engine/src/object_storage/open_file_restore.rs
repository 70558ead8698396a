//! Restores open files from the object store, so that a new machine goes on where the old one was.
//!
//! # Invariants
//!
//! - A file has its name in the tree only when it is whole and synced; cut short before, it is made again.
//! - It is an open file like any other: it takes rows, and the next cut uploads what came since its last piece.

use super::takeover::RemoteConnection;
use crate::Error;
use crate::datafile::join_pieces;
use crate::layout::StoreLayout;
use crate::manifest::FileEntry;

/// Makes an open file from its parts in the object store, if there are any.
pub(crate) fn restore_open(connected: &RemoteConnection, layout: &StoreLayout, entry: &FileEntry) -> Result<(), Error> {
    let state = connected.chain.state();
    let parts = state.parts_of(entry.id);
    if parts.is_empty() {
        return Ok(());
    }
    let cache = &connected.link.cache;
    let mut paths = Vec::with_capacity(parts.len());
    for part in &parts {
        let path = layout.piece(entry.table, part.entry.id);
        cache.put(part, false);
        let fetched = cache.fetch_to(entry.table, part.entry.id, &path);
        cache.remove(part.entry.id);
        fetched.map_err(|error| match error {
            Error::Remote { trouble, .. } if cache.is_damage(trouble) => Error::Damaged {
                path: entry.path(layout),
                reason: error.to_string(),
            },
            error => error,
        })?;
        paths.push(path);
    }
    let staged = layout.shadow_file(entry.table, entry.id);
    let identity = entry.identity(state.store);
    join_pieces(&paths, &entry.path(layout), &staged, &identity, entry.version)?;
    for path in &paths {
        durable_fs::remove_if_there(path)?;
    }
    tracing::info!(path = %entry.path(layout).display(), parts = parts.len(), "restore an open file");
    Ok(())
}
