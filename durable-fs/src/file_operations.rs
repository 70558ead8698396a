//! File operations: create, write and sync files; rename, exchange, link and remove names.
//!
//! # Invariants
//!
//! - A name that changed is durable when its folders are synced ([`FolderHandles`]); only functions that say so do that themselves.
//! - An atomic write is staged beside its file, as `.<name>.<process id>.<number>.tmp`: two writers, in one process or in two, never
//!   share a staged file, and none waits for another. What a process that was killed left there stays until somebody sweeps it.
//! - A staged file has its mode before it has content.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, RenameFlags, renameat2};
use nix::unistd::linkat;

use crate::{DurableFsError, FolderHandles, parent_of};

/// Creates a file, which must not exist, for reading and writing; its mode is what the umask leaves.
pub fn create_new(path: &Path) -> Result<File, DurableFsError> {
    create_with(path, 0o666)
}

/// The same, for a file that nobody else may read: mode 0600.
pub fn create_private(path: &Path) -> Result<File, DurableFsError> {
    create_with(path, 0o600)
}

fn create_with(path: &Path, mode: u32) -> Result<File, DurableFsError> {
    fault!(Create, "create", path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(mode);
    options.open(path).map_err(DurableFsError::of("create", path))
}

/// Opens a file that may be missing.
pub fn open_if_there(path: &Path) -> Result<Option<File>, DurableFsError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DurableFsError::of("open", path)(error)),
    }
}

/// Makes a file's content and length durable.
///
/// # Errors
/// If they may not be: the file must not be counted on, nor synced again.
pub fn sync_file(file: &File, path: &Path) -> Result<(), DurableFsError> {
    fault!(SyncFile, "sync", path);
    file.sync_all().map_err(DurableFsError::of("sync", path))
}

/// Writes a file that does not count yet and that nobody else may read, with its name, durably. What had the name loses it.
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), DurableFsError> {
    write_synced(path, bytes, 0o600)?;
    FolderHandles::open([parent_of(path)])?.sync()
}

/// How many files this process has staged.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// Replaces a small file's content as one step: written beside it, synced, renamed over it, folder synced. Its mode is exactly `mode`,
/// whatever the umask says.
///
/// # Errors
/// If any step fails; the old file is then untouched and nothing is left beside it, unless it is in doubt.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DurableFsError> {
    write_staged(path, bytes, mode, rename)
}

/// As [`write_atomically`], of a file that must not exist: `false` if it does, which stays as it is.
pub fn create_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<bool, DurableFsError> {
    match write_staged(path, bytes, mode, rename_to_free) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && error.path == path => Ok(false),
        written => written.map(|()| true),
    }
}

fn write_staged(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    give_name: impl FnOnce(&Path, &Path) -> Result<(), DurableFsError>,
) -> Result<(), DurableFsError> {
    let mut staged = OsString::from(".");
    staged.push(path.file_name().unwrap_or_default());
    let number = STAGED.fetch_add(1, Ordering::Relaxed);
    staged.push(format!(".{}.{number}.tmp", std::process::id()));
    let staged = path.with_file_name(staged);
    let folder = FolderHandles::open([parent_of(path)])?;
    let written = write_synced(&staged, bytes, mode).and_then(|()| give_name(&staged, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = remove_if_there(&staged);
    }
    written?;
    folder.sync()
}

fn write_synced(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DurableFsError> {
    remove_if_there(path)?;
    let mut file = create_with(path, mode)?;
    // The umask may have taken bits.
    let given = file.set_permissions(Permissions::from_mode(mode));
    let written = given.and_then(|()| file.write_all(bytes));
    written.map_err(DurableFsError::of("write", path))?;
    sync_file(&file, path)
}

/// Gives the file at `from` the name `to`, whoever has it.
pub fn rename(from: &Path, to: &Path) -> Result<(), DurableFsError> {
    fault!(Rename, "rename", from);
    fs::rename(from, to).map_err(DurableFsError::of("rename", from))
}

/// Gives the file at `from`, whose content is durable, the name `to`, whoever has it, and syncs the folders of both.
///
/// # Errors
/// If the system refuses: nothing has changed, unless it is in doubt.
pub fn rename_durably(from: &Path, to: &Path) -> Result<(), DurableFsError> {
    let folders = FolderHandles::open([parent_of(to), parent_of(from)])?;
    rename(from, to)?;
    folders.sync()
}

/// Gives the file at `from` the name `to`, which must be free.
pub fn rename_to_free(from: &Path, to: &Path) -> Result<(), DurableFsError> {
    if rename_with(from, to, RenameFlags::RENAME_NOREPLACE, ("create", to))? {
        return Ok(());
    }
    // A second name fails on a taken one, as the flag does. The new name counts; an old one that stays costs its entry.
    fs::hard_link(from, to).map_err(DurableFsError::of("create", to))?;
    let _ = fs::remove_file(from);
    Ok(())
}

/// Lets two names on one file system trade their files in one step. `false`: this file system cannot, nothing happened.
pub fn exchange(one: &Path, other: &Path) -> Result<bool, DurableFsError> {
    rename_with(one, other, RenameFlags::RENAME_EXCHANGE, ("exchange", one))
}

fn rename_with(
    from: &Path,
    to: &Path,
    flags: RenameFlags,
    (action, path): (&'static str, &Path),
) -> Result<bool, DurableFsError> {
    fault!(Rename, action, from);
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) {
        Ok(()) => Ok(true),
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(false),
        Err(errno) => Err(DurableFsError::of(action, path)(errno.into())),
    }
}

/// Gives the file at `path` a second name.
pub fn link(path: &Path, second: &Path) -> Result<(), DurableFsError> {
    fault!(Link, "link", second);
    fs::hard_link(path, second).map_err(DurableFsError::of("link", second))
}

/// Where the system has names for the open files of a process.
const OPEN_FILES: &str = "/proc/self/fd";

/// Gives an open file a second name, whatever the name it was opened by means by now.
///
/// # Errors
/// Of the kind [`io::ErrorKind::Unsupported`] where `/proc` is not mounted: no other way is without privileges.
pub fn link_open(file: &File, second: &Path) -> Result<(), DurableFsError> {
    fault!(Link, "link", second);
    let open = format!("{OPEN_FILES}/{}", file.as_raw_fd());
    let linked = linkat(AT_FDCWD, open.as_str(), AT_FDCWD, second, AtFlags::AT_SYMLINK_FOLLOW);
    linked.map_err(|errno| DurableFsError::of("link", second)(link_error(errno, Path::new(OPEN_FILES))))
}

/// What a missing name means: the new one's folder is missing, the file has lost its last name, or open files have none.
fn link_error(errno: Errno, open_files: &Path) -> io::Error {
    if errno == Errno::ENOENT && !open_files.exists() {
        return io::Error::new(io::ErrorKind::Unsupported, "/proc is not mounted");
    }
    errno.into()
}

/// Removes a file that may be missing.
pub fn remove_if_there(path: &Path) -> Result<(), DurableFsError> {
    fault!(Remove, "remove", path);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DurableFsError::of("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The name, or the name with the first number that makes it free.
#[must_use]
pub fn free_name(name: PathBuf) -> PathBuf {
    let mut free = name.clone();
    let mut copy = 1u32;
    while free.symlink_metadata().is_ok() {
        let mut numbered = name.clone().into_os_string();
        numbered.push(format!(".{copy}"));
        free = numbered.into();
        copy += 1;
    }
    free
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn file(dir: &Path, name: &str, content: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn exchanged_names_trade_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (file(dir.path(), "a", "1"), file(dir.path(), "b", "2"));
        assert!(exchange(&a, &b).unwrap());
        assert_eq!(fs::read_to_string(&a).unwrap(), "2");
        assert_eq!(fs::read_to_string(&b).unwrap(), "1");
        let missing = exchange(&a, &dir.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_taken_name_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (file(dir.path(), "a", "1"), file(dir.path(), "b", "2"));
        let taken = rename_to_free(&a, &b).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&b).unwrap(), "2");
        rename_to_free(&a, &dir.path().join("c")).unwrap();
        assert!(!a.exists());
    }

    #[test]
    fn an_open_file_is_linked_whatever_has_its_name_and_where_proc_is_missing_the_error_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let (path, second) = (file(dir.path(), "a", "1"), dir.path().join("b"));
        let open = File::open(&path).unwrap();
        rename(&file(dir.path(), "c", "2"), &path).unwrap();
        // It has no name any more.
        let gone = link_open(&open, &second).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        let open = File::open(&path).unwrap();
        fs::rename(&path, dir.path().join("d")).unwrap();
        link_open(&open, &second).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "2");
        let of = |errno, open_files: &Path| link_error(errno, open_files).kind();
        let missing = dir.path().join("proc/self/fd");
        assert_eq!(of(Errno::ENOENT, &missing), io::ErrorKind::Unsupported);
        assert_eq!(of(Errno::ENOENT, dir.path()), io::ErrorKind::NotFound);
        assert_eq!(of(Errno::EACCES, &missing), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_written_file_has_the_content_and_mode_asked_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write_atomically(&path, b"one", 0o644).unwrap();
        write_atomically(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_two_that_create_a_file_the_first_one_does_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert!(create_atomically(&path, b"one", 0o640).unwrap());
        assert!(!create_atomically(&path, b"two", 0o600).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let missing = create_atomically(&dir.path().join("none/state"), b"one", 0o640).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), b"kept").unwrap();
        let error = write_atomically(&path, b"new", 0o600).unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
        assert_eq!(fs::read(path.join("inside")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn writers_of_one_file_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::thread::scope(|threads| {
            for letter in [b'a', b'b'] {
                let path = &path;
                threads.spawn(move || (0..50).for_each(|_| write_atomically(path, &[letter; 4096], 0o600).unwrap()));
            }
        });
        let last = fs::read(&path).unwrap();
        assert!(last == [b'a'; 4096] || last == [b'b'; 4096]);
    }
}
