//! System calls that the standard library lacks, and durable file names.
//!
//! A file's name is durable once its folder is synced, a folder's name once *its* folder is. Whoever creates, renames or
//! exchanges names here syncs every folder that holds one of them before counting on it.
//!
//! # Invariants
//!
//! - A sync that failed is never tried again on the same file or folder, because the second one would report success. So everything
//!   that can fail without harm, such as opening the folders, is done before names change; see [`FolderHandles`].
//! - In tests every call first asks the fault plan. Other builds do not contain it.
//!
//! # Not here
//!
//! Which names are exchanged, and when: [`crate::datafile`] and the log.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, RenameFlags, fcntl, renameat2};

use crate::Error;

/// Asks the fault plan in tests; nothing elsewhere.
macro_rules! fault {
    ($op:ident, $path:expr) => {
        #[cfg(test)]
        crate::fault_injection::before(crate::fault_injection::FsOperation::$op, $path)?;
    };
}

/// How far a thread stands back where the processors are busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadNiceness {
    /// Work that takes long and that nobody looks at: a third of the weight of what somebody waits for.
    Background = 5,
    /// Work of any length for one who asked: a fifth of the weight of that in the background, so that what comes in is still stored.
    Bulk = 12,
}

/// Lets other threads go before this one and those it starts, for good. Where it is refused nothing changes.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub fn lower_thread_priority(by: ThreadNiceness) {
    /// The nicest that a thread can be.
    const NICEST: libc::c_int = 19;
    // SAFETY: it takes numbers; zero stands for the calling thread. Where it fails it says -1, and the thread is one less nice.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let nice = own.saturating_add(by as libc::c_int).min(NICEST);
    // SAFETY: it takes three numbers; zero stands for the calling thread. A refusal changes nothing.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    set_time_slice(Duration::from_millis(100), nice);
}

/// Lets this thread run as soon as it can: others wait for it, and it soon waits again itself.
pub(crate) fn raise_thread_priority() {
    set_time_slice(Duration::from_micros(100), 0);
}

/// Asks for turns of a length. Who wakes up interrupts a thread of longer turns at once, one of turns like its own only when the
/// turn is over, which may be two ticks of the clock later, though another core has nothing to do. Kernels before Linux 6.12
/// take no notice.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
fn set_time_slice(turn: Duration, nice: libc::c_int) {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: all of it are numbers.
    let mut wanted: libc::sched_attr = unsafe { std::mem::zeroed() };
    wanted.size = u32::try_from(size).unwrap_or(0);
    wanted.sched_nice = nice;
    wanted.sched_runtime = u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: zero stands for the calling thread, the structure has the size it says and is only read. A refusal changes nothing.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&wanted), 0) };
}

/// Makes writes of whole blocks of so many bytes into a file pass the page cache by, if its file system says that it can. Reads
/// through this handle would have to be of whole blocks too.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub(crate) fn enable_direct_io(file: &File, block: u64) {
    // SAFETY: all of it are numbers.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path an empty string, and the answer's memory is ours.
    let asked = unsafe {
        let flags = libc::AT_EMPTY_PATH;
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_DIOALIGN,
            &raw mut found,
        )
    };
    let fits = |align: u32| align > 0 && block.is_multiple_of(align.into());
    let can = asked == 0
        && found.stx_mask & libc::STATX_DIOALIGN != 0
        && fits(found.stx_dio_mem_align)
        && fits(found.stx_dio_offset_align);
    if can && let Ok(flags) = fcntl(file, FcntlArg::F_GETFL) {
        // A refusal leaves a file that is written as any other.
        let _ = fcntl(
            file,
            FcntlArg::F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_DIRECT),
        );
    }
}

/// Lets two names on one file system trade their files in one step. `false`: this file system cannot, nothing happened.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    rename_with(one, other, RenameFlags::RENAME_EXCHANGE)
}

/// Gives the file at `from` the name `to`, which must be free.
pub(crate) fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    if rename_with(from, to, RenameFlags::RENAME_NOREPLACE)? {
        return Ok(());
    }
    // A second name fails on a taken one, as the flag does. The new name counts; an old one that stays costs its entry.
    fs::hard_link(from, to)?;
    let _ = fs::remove_file(from);
    Ok(())
}

/// Gives the file at `from` the name `to`, whoever has it.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault!(Rename, from);
    fs::rename(from, to)
}

/// Gives the file at `path` a second name.
pub(crate) fn link(path: &Path, second: &Path) -> io::Result<()> {
    fault!(Link, second);
    fs::hard_link(path, second)
}

/// Creates a file, which must not exist, for reading and writing.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    fault!(Create, path);
    File::options().read(true).write(true).create_new(true).open(path)
}

/// Makes a file's content and length durable.
pub(crate) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    let _ = path;
    fault!(SyncFile, path);
    file.sync_all()
}

/// Writes a file that does not count yet, with its name, durably. What had the name loses it.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_synced(path, bytes)?;
    FolderHandles::open([parent_of(path)])?.sync()
}

/// Writes a small file durably: complete under its name, or not there.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let staged = path.with_extension("tmp");
    let dir = FolderHandles::open([parent_of(path)])?;
    write_synced(&staged, bytes)?;
    rename(&staged, path).map_err(Error::io("rename", &staged))?;
    dir.sync()
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    remove_if_there(path).map_err(Error::io("remove", path))?;
    let mut file = create_new(path).map_err(Error::io("create", path))?;
    io::Write::write_all(&mut file, bytes).map_err(Error::io("write", path))?;
    sync_file(&file, path).map_err(Error::io("sync", path))
}

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<bool> {
    fault!(Rename, from);
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) {
        Ok(()) => Ok(true),
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether `file`, open for writing, is the only handle on its inode and the inode has one name, so that writing to it
/// disturbs nobody: no reader, no memory map, no hard-linked backup. Answers `false` wherever that cannot be proved.
///
/// It stays so until this handle is closed: whoever opens the file meanwhile waits for that, this process too.
pub(crate) fn take_exclusive_lease(file: &File) -> bool {
    take_write_lease(file) && file.metadata().is_ok_and(|meta| meta.nlink() == 1)
}

/// `fcntl`'s "which signal", the same on every architecture of Linux; `libc` names it only for some.
const F_SETSIG: libc::c_int = 10;

/// A write lease is granted only on an inode that nobody else has open; closing the handle gives it back.
///
/// The signal for "somebody opens it" is set to one that is ignored by default, because the kernel's choice, `SIGIO`, ends
/// a process that does not handle it.
#[allow(unsafe_code, reason = "no safe wrapper knows leases")]
fn take_write_lease(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: plain integers go in, and `fd` is open for as long as `file` is borrowed.
    unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0 && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}

/// Folders whose names are going to change, opened before they do.
#[derive(Debug)]
pub(crate) struct FolderHandles(Vec<(PathBuf, File)>);

impl FolderHandles {
    /// Opens each folder once. An error harms nothing.
    pub(crate) fn open<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Result<Self, Error> {
        let mut open: Vec<(PathBuf, File)> = Vec::new();
        for folder in folders {
            if open.iter().all(|(other, _)| other != folder) {
                let handle = open_folder(folder).map_err(Error::io("open", folder))?;
                open.push((folder.to_owned(), handle));
            }
        }
        Ok(Self(open))
    }

    /// Makes the names in them durable.
    ///
    /// # Errors
    /// [`Error::InDoubt`]: what is on the disk is unknown.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        for (path, folder) in &self.0 {
            sync_folder(folder, path).map_err(Error::in_doubt(path))?;
        }
        Ok(())
    }
}

fn open_folder(path: &Path) -> io::Result<File> {
    fault!(OpenFolder, path);
    File::open(path)
}

fn sync_folder(folder: &File, path: &Path) -> io::Result<()> {
    let _ = path;
    fault!(SyncFolder, path);
    folder.sync_all()
}

/// Makes the names in a folder durable.
///
/// # Errors
/// [`Error::InDoubt`] if they may not be.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    FolderHandles::open([dir])?.sync()
}

/// Creates a folder with its missing ancestors, durably: the folder of each new name is synced.
///
/// A process that was killed here left at most one name unsynced, that of the deepest folder: it is synced too.
pub(crate) fn create_dirs(dir: &Path) -> Result<(), Error> {
    let mut missing: Vec<&Path> = Vec::new();
    let mut at = dir;
    while !at.as_os_str().is_empty() && !at.is_dir() {
        missing.push(at);
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    sync_dir(parent_of(at))?;
    for dir in missing.iter().rev() {
        let folder = FolderHandles::open([parent_of(dir)])?;
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Error::io("create", dir)(error)),
            _ => folder.sync()?,
        }
    }
    Ok(())
}

/// The folder that holds a name; the working folder for a bare one.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The name, or the name with the first number that makes it free.
pub(crate) fn free_name(name: PathBuf) -> PathBuf {
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

/// Opens a file that may be missing.
pub(crate) fn open_if_there(path: &Path) -> Result<Option<File>, Error> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("open", path)(error)),
    }
}

/// Removes a file that may be missing.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    fault!(Remove, path);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn file(dir: &Path, name: &str, content: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn for_writing(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
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
    #[allow(unsafe_code, reason = "no safe wrapper for memory maps here")]
    fn a_file_is_ours_alone_only_without_readers_maps_and_second_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "a", "1");
        assert!(take_exclusive_lease(&for_writing(&path)));
        let reader = File::open(&path).unwrap();
        assert!(!take_exclusive_lease(&for_writing(&path)));
        drop(reader);
        assert!(take_exclusive_lease(&for_writing(&path)));
        let mapped = for_writing(&path);
        // SAFETY: a new mapping at a place of the kernel's choice, never read, unmapped below.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                1,
                libc::PROT_READ,
                libc::MAP_SHARED,
                mapped.as_raw_fd(),
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        drop(mapped);
        assert!(!take_exclusive_lease(&for_writing(&path)));
        // SAFETY: the mapping made above.
        assert_eq!(unsafe { libc::munmap(map, 1) }, 0);
        fs::hard_link(&path, dir.path().join("backup")).unwrap();
        assert!(!take_exclusive_lease(&for_writing(&path)));
    }

    #[test]
    fn whoever_opens_a_file_that_is_ours_alone_waits_until_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "a", "1");
        let mut ours = for_writing(&path);
        assert!(take_exclusive_lease(&ours));
        let at_once = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(at_once.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let reader = std::thread::spawn(move || fs::read_to_string(path).unwrap());
        io::Write::write_all(&mut ours, b"22").unwrap();
        drop(ours);
        assert_eq!(reader.join().unwrap(), "22");
    }

    #[test]
    fn missing_ancestors_are_created_and_existing_ones_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("2026/11/21/10");
        create_dirs(&deep).unwrap();
        create_dirs(&deep).unwrap();
        assert!(deep.is_dir());
        let under_a_file = file(dir.path(), "f", "").join("x");
        assert!(create_dirs(&under_a_file).is_err());
    }
}
