//! Crash-safe file writes, and lock files.
//!
//! # Invariants
//!
//! - After [`write_atomic`] returned, the new content survives power loss; before, the old one does. Never a mixture.
//! - A [`LockFile`] is held until it is dropped or the process ends; the kernel releases it then, whatever happened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::Error;

fn fault(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { what, path, source }
}

/// The folder a file lies in; `.` for a bare name.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a folder with everything above it, and syncs each folder that gained an entry.
///
/// # Errors
/// If a folder cannot be made or synced.
pub fn create_dir_durable(path: &Path) -> Result<(), Error> {
    let mut missing = Vec::new();
    let mut at = path;
    while !at.as_os_str().is_empty() && !at.is_dir() {
        missing.push(at);
        at = folder(at);
    }
    for made in missing.into_iter().rev() {
        match fs::create_dir(made) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(fault("make the folder", made)(error));
            }
            _ => sync_dir(folder(made))?,
        }
    }
    Ok(())
}

/// Syncs a folder, so that a name made or changed in it survives power loss.
///
/// # Errors
/// If it cannot be opened or synced.
pub fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(fault("sync the folder", path))
}

/// Replaces a file's content as one step: written beside it, synced, renamed over it, folder synced.
///
/// # Errors
/// If any step fails; the old file is then untouched.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    let dir = folder(path);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let staged = dir.join(name);
    let written = stage(&staged, content, mode).and_then(|()| fs::rename(&staged, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&staged);
        return Err(fault("write", path)(error));
    }
    sync_dir(dir)
}

fn stage(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?;
    // A leftover of an earlier process keeps its mode on open, and the umask may have taken bits.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

/// An exclusive lock on a file, with our process id in it.
#[derive(Debug)]
pub struct LockFile {
    file: Flock<File>,
    path: PathBuf,
}

impl LockFile {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it.
    pub fn take(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fault("open the lock file", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                let pid = std::process::id().to_string();
                file.set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| file.write_all(pid.as_bytes()))
                    .map_err(fault("write the lock file", &path))?;
                Ok(Self { file, path })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                Err(Error::Locked {
                    path,
                    holder: text.trim().parse().ok(),
                })
            }
            Err((_, errno)) => Err(fault("lock", &path)(errno.into())),
        }
    }

    /// The lock file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The locked file, for handing the lock to a child process.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_written_file_has_the_content_and_mode_asked_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write_atomic(&path, b"one", 0o644).unwrap();
        write_atomic(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), b"kept").unwrap();
        let error = write_atomic(&path, b"new", 0o600).unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
        assert_eq!(fs::read(path.join("inside")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder_until_the_first_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.lock");
        let first = LockFile::take(&path).unwrap();
        let error = LockFile::take(&path).unwrap_err();
        assert!(matches!(error, Error::Locked { holder: Some(pid), .. } if pid == std::process::id()));
        drop(first);
        LockFile::take(&path).unwrap();
    }

    #[test]
    fn folders_are_made_with_everything_above_them() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        create_dir_durable(&deep).unwrap();
        create_dir_durable(&deep).unwrap();
        assert!(deep.is_dir());
    }
}
