//! The error of a file operation: what was tried, where, and whether the disk's state is known.
//!
//! # Not here
//!
//! Exit codes and HTTP statuses: callers have errors of their own, made from this one.

use std::io;
use std::path::{Path, PathBuf};

/// The operating system refused an operation on a file or folder.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {source}{}", path.display(), if *in_doubt { "; what is on the disk is unknown" } else { "" })]
pub struct DurableFsError {
    /// What was tried, as a verb: `create`, `write`, `sync`.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
    /// Whether names have changed that may not be on the disk as they are seen. Otherwise nothing has changed that counts.
    pub in_doubt: bool,
}

impl DurableFsError {
    /// For `map_err` on system calls.
    pub(crate) fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            action,
            path,
            source,
            in_doubt: false,
        }
    }

    /// The kind of the system's error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl From<DurableFsError> for io::Error {
    /// Keeps the kind and the whole sentence; the number of the system's error is lost.
    fn from(error: DurableFsError) -> Self {
        Self::new(error.kind(), error)
    }
}
