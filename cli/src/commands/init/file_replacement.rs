//! Replacement of files that can be undone: each new one is written atomically, and the one of before is kept under another name.
//!
//! # Invariants
//!
//! - What is kept is the file of before itself, a hard link, so it comes back with its owner, mode and content. Where the system refuses hard
//!   links it is a copy with its mode and content, which belongs to whoever runs this.
//! - Whatever was changed is noted before it can fail to be undone; a file that somebody else made is never removed.
//! - No link is followed.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use durable_fs::DurableFsError;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::error::Error;

/// No file that is replaced is as large.
const LARGEST: u64 = 1 << 20;

/// A file that is to be there.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) mode: u32,
}

/// A file that was written, and how to have it as it was.
#[derive(Debug)]
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    /// The name that the file of before has now.
    pub(super) kept: Option<PathBuf>,
    is_new: bool,
}

impl NewFile {
    /// Writes it as one step, and notes in `written` how to undo that, also where it fails. What has its name is an error, or is replaced and kept
    /// beside it; a file that is the same stays.
    pub(super) fn write(&self, replaces: bool, written: &mut Vec<WrittenFile>) -> Result<(), Error> {
        let (path, bytes) = (&self.path, self.text.as_bytes());
        let existing = if replaces { read_existing(path)? } else { None };
        let note = |kept, is_new| WrittenFile {
            path: path.clone(),
            kept,
            is_new,
        };
        if existing
            .as_ref()
            .is_some_and(|file| file.bytes == bytes && file.mode == self.mode)
        {
            written.push(note(None, false));
            return Ok(());
        }
        let kept = existing.map(|file| keep_beside(path, &file)).transpose()?;
        let is_new = kept.is_none();
        let done = match is_new {
            true => durable_fs::create_atomically(path, bytes, self.mode),
            false => durable_fs::write_atomically(path, bytes, self.mode).map(|()| true),
        };
        // One that somebody else made in the meantime is not ours to undo.
        let is_ours = done
            .as_ref()
            .map_or_else(|error| !is_new || error.in_doubt, |is_ours| *is_ours);
        if is_ours {
            written.push(note(kept, is_new));
        }
        match done.map_err(write_error)? {
            true => Ok(()),
            false => Err(refuse_existing(&path.display().to_string())),
        }
    }
}

/// Gives a file the second name that it is kept under when another one takes its place.
fn keep_beside(path: &Path, file: &ExistingFile) -> Result<PathBuf, Error> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".before");
    let beside = durable_fs::free_name(beside.into());
    match durable_fs::link(path, &beside) {
        Err(error) if refuses_links(&error.source) => copy_beside(file, &beside)?,
        linked => linked.map_err(write_error)?,
    }
    Ok(beside)
}

/// Whether the file system has no hard links, the file no room for another, or the system allows none to a file of somebody else.
fn refuses_links(error: &io::Error) -> bool {
    let reasons = [Errno::EPERM, Errno::EOPNOTSUPP, Errno::EMLINK];
    reasons
        .iter()
        .any(|reason| error.raw_os_error() == Some(*reason as i32))
}

fn copy_beside(file: &ExistingFile, beside: &Path) -> Result<(), Error> {
    if durable_fs::create_atomically(beside, &file.bytes, file.mode).map_err(write_error)? {
        Ok(())
    } else {
        Err(refuse_existing(&beside.display().to_string()))
    }
}

impl WrittenFile {
    /// Makes it what it was before.
    pub(super) fn undo(&self) -> Result<(), Error> {
        match &self.kept {
            // Where nothing took its place both names are of one file, and a rename leaves both.
            Some(kept) => durable_fs::rename_durably(kept, &self.path).and_then(|()| durable_fs::remove_if_there(kept)),
            None if self.is_new => durable_fs::remove_if_there(&self.path),
            None => Ok(()),
        }
        .map_err(write_error)
    }
}

/// Says which names are not free.
pub(super) fn refuse_existing(names: &str) -> Error {
    Error::Usage(format!(
        "{names} would be replaced, and nothing was written: --force replaces, --dir names another folder"
    ))
}

fn write_error(error: DurableFsError) -> Error {
    Error::WriteFile {
        path: error.path,
        source: error.source,
    }
}

/// What a file has that is to be replaced.
#[derive(Debug)]
pub(super) struct ExistingFile {
    pub(super) bytes: Vec<u8>,
    mode: u32,
}

/// The file with this name, if there is one. A link is none of ours: what it leads to may be anybody's.
pub(super) fn read_existing(path: &Path) -> Result<Option<ExistingFile>, Error> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let read = || -> io::Result<ExistingFile> {
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || found.len() > LARGEST {
            let reason = format!("it is no file of at most {LARGEST} bytes: move it away");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(ExistingFile {
            bytes,
            mode: found.mode() & 0o777,
        })
    };
    match read() {
        Ok(existing) => Ok(Some(existing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let is_link = error.raw_os_error() == Some(Errno::ELOOP as i32);
            let source = if is_link {
                io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link: remove it")
            } else {
                error
            };
            Err(Error::WriteFile {
                path: path.to_owned(),
                source,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn new_file(path: &Path, text: &str, mode: u32) -> NewFile {
        NewFile {
            path: path.to_owned(),
            text: text.to_owned(),
            mode,
        }
    }

    fn written(path: &Path, text: &str, mode: u32, replaces: bool) -> Result<WrittenFile, Error> {
        let mut written = Vec::new();
        new_file(path, text, mode).write(replaces, &mut written)?;
        Ok(written.remove(0))
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_replaced_is_kept_as_it_was_and_a_secret_is_for_its_owner_alone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("platform.env");
        let first = written(&path, "A=1\n", 0o644, false).unwrap();
        assert!(first.is_new && mode(&path) == 0o644);
        assert!(matches!(written(&path, "A=2\n", 0o600, false), Err(Error::Usage(_))));
        let second = written(&path, "A=2\n", 0o600, true).unwrap();
        let before = folder.path().join("platform.env.before");
        assert_eq!(second.kept.as_deref(), Some(before.as_path()));
        assert_eq!(std::fs::read_to_string(&before).unwrap(), "A=1\n");
        assert_eq!((mode(&path), mode(&before)), (0o600, 0o644));
        let third = written(&path, "A=2\n", 0o600, true).unwrap();
        assert!(third.kept.is_none() && !third.is_new, "it has not changed");
        let fourth = written(&path, "A=3\n", 0o600, true).unwrap();
        assert_eq!(fourth.kept, Some(folder.path().join("platform.env.before.1")));
        fourth.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "A=2\n");
        second.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "A=1\n");
        first.undo().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_undone_file_is_the_one_of_before_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("platform.toml");
        std::fs::write(&path, "same").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let identity = || {
            let found = std::fs::metadata(&path).unwrap();
            (found.ino(), found.mode(), found.uid(), found.gid())
        };
        let before = identity();
        for text in ["new", "same"] {
            let replaced = written(&path, text, 0o644, true).unwrap();
            assert_eq!(mode(&path), 0o644, "{text}");
            replaced.undo().unwrap();
            assert_eq!(identity(), before, "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "same");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_write_that_fails_is_noted_and_leaves_nothing_once_it_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        // It leaves room for `.before`, and none for the name of a file that is being written.
        let path = folder.path().join("x".repeat(248));
        std::fs::write(&path, "old").unwrap();
        let mut written = Vec::new();
        new_file(&path, "new", 0o640).write(true, &mut written).unwrap_err();
        assert_eq!(written.len(), 1);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            2,
            "the file and what it is kept as"
        );
        written[0].undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        new_file(&folder.path().join("x".repeat(249)), "new", 0o640)
            .write(true, &mut written)
            .unwrap_err();
        assert_eq!(written.len(), 1, "nothing has changed for one that was not there");
    }

    #[test]
    fn a_file_that_can_have_no_second_name_is_kept_as_a_copy_and_undone_from_it() {
        for (errno, is_copied) in [
            (Errno::EPERM, true),
            (Errno::EOPNOTSUPP, true),
            (Errno::EMLINK, true),
            (Errno::ENOSPC, false),
            (Errno::EACCES, false),
        ] {
            assert_eq!(refuses_links(&errno.into()), is_copied, "{errno}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (path, kept) = (folder.path().join("platform.env"), folder.path().join("kept"));
        std::fs::write(&path, "A=1\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let file = read_existing(&path).unwrap().unwrap();
        copy_beside(&file, &kept).unwrap();
        assert_eq!(
            (std::fs::read_to_string(&kept).unwrap().as_str(), mode(&kept)),
            ("A=1\n", 0o640)
        );
        assert!(
            matches!(copy_beside(&file, &kept), Err(Error::Usage(_))),
            "what somebody made stays"
        );
        std::fs::write(&path, "A=2\n").unwrap();
        let written = WrittenFile {
            path: path.clone(),
            kept: Some(kept),
            is_new: false,
        };
        written.undo().unwrap();
        assert_eq!(
            (std::fs::read_to_string(&path).unwrap().as_str(), mode(&path)),
            ("A=1\n", 0o640)
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (of_another, path) = (folder.path().join("shadow"), folder.path().join("platform.toml"));
        std::fs::write(&of_another, "root").unwrap();
        std::os::unix::fs::symlink(&of_another, &path).unwrap();
        for replaces in [false, true] {
            written(&path, "new", 0o640, replaces).unwrap_err();
        }
        assert_eq!(std::fs::read_to_string(&of_another).unwrap(), "root");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
