//! Lock files: an exclusive `flock` on a file that has the holder's process id in it.
//!
//! # Invariants
//!
//! - A lock is held until it is dropped, even while a child process that is being spawned still has its handle; one for children
//!   ([`FileLock::inherited`]) until every handle on it is closed. The kernel releases it when the process ends, whatever happened.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::DurableFsError;

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("{} is locked by another process{}; stop it first or use another folder", path.display(), pid.map(|pid| format!(" ({pid})")).unwrap_or_default())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The process that wrote it last, if it can be read.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    File(#[from] DurableFsError),
}

/// A held lock.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    is_inherited: bool,
}

impl FileLock {
    /// Takes the lock without waiting, and writes our process id into its file, which is made if it is missing (mode 0600).
    ///
    /// # Errors
    /// [`LockError::Held`] if somebody has it, in this process or another.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(DurableFsError::of("open", path))?;
        match file.try_lock() {
            Ok(()) => {
                // Who holds it is for people to read; on a full disk it stays unsaid.
                let _ = file.set_len(0).and_then(|()| file.rewind());
                let _ = writeln!(file, "{}", std::process::id());
                Ok(Self {
                    file,
                    is_inherited: false,
                })
            }
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The holder may be just writing it.
                let _ = file.read_to_string(&mut pid);
                let (path, pid) = (path.to_owned(), pid.trim().parse().ok());
                Err(LockError::Held { path, pid })
            }
            Err(TryLockError::Error(source)) => Err(DurableFsError::of("lock", path)(source).into()),
        }
    }

    /// Held until every handle on it is closed, those of child processes too.
    #[must_use]
    pub const fn inherited(mut self) -> Self {
        self.is_inherited = true;
        self
    }

    /// The locked file, for handing the lock to a child process.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone would leave it to a child that has not yet executed its program.
        if !self.is_inherited {
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder_until_the_first_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.lock");
        let first = FileLock::take(&path).unwrap();
        let error = FileLock::take(&path).unwrap_err();
        assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid == std::process::id()));
        drop(first);
        FileLock::take(&path).unwrap();
    }

    #[test]
    fn a_dropped_lock_is_free_though_a_child_has_its_handle_and_an_inherited_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.lock");
        let lock = FileLock::take(&path).unwrap();
        let _of_a_child = lock.file().try_clone().unwrap();
        drop(lock);
        let lock = FileLock::take(&path).unwrap().inherited();
        let of_a_child = lock.file().try_clone().unwrap();
        drop(lock);
        assert!(matches!(FileLock::take(&path), Err(LockError::Held { .. })));
        drop(of_a_child);
        FileLock::take(&path).unwrap();
    }
}
