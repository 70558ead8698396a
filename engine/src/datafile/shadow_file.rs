//! The shadow file of an open file: where the next flush is written before it is exchanged in.
//!
//! ```text
//! Absent ──publish──> Displaced ──recorded──> Ready ──publish──> Displaced ──> …
//! ```
//!
//! # Invariants
//!
//! - A displaced inode is touched only when the publish that displaced it has been recorded: until then a crash may still
//!   need a name for it, and the folders that say otherwise may not be on the disk.
//! - It is written to only if nobody has it open, mapped or linked, and while it is, nobody can open it; else it is left to
//!   whoever has it.
//! - What is copied is checked against the known CRC, so that damage is found and not spread.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use durable_fs::{DurableFsError, FolderHandles, parent_of};
use parquet::file::reader::Length;

use super::file_prefix::{FilePrefix, compare_crc};
use crate::io_pacing::IoPriority;
use crate::{Error, io_pacing};

/// A version's bytes, known by length and CRC-32C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrefixChecksum {
    pub(super) size: u64,
    pub(super) crc: u32,
}

/// What the shadow file's name holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShadowFile {
    /// Nothing, or something that does not count.
    Absent,
    /// An earlier version; its displacement is not recorded yet.
    Displaced(PrefixChecksum),
    /// An earlier version that may be extended.
    Ready(PrefixChecksum),
}

/// Brings the shadow file to the version `want` of the file at `path`: by what it lacks if it may be extended, else anew. Returns it,
/// and the bytes that were copied.
pub(super) fn prepare(
    twin_path: &Path,
    shadow: ShadowFile,
    path: &Path,
    want: PrefixChecksum,
    haste: IoPriority,
) -> Result<(File, u64), Error> {
    let kept = match shadow {
        ShadowFile::Ready(have) => reopen(twin_path, have).map(|file| (file, have)),
        _ => None,
    };
    let (file, have) = match kept {
        Some(kept) => kept,
        None => (create(twin_path)?, PrefixChecksum { size: 0, crc: 0 }),
    };
    let bytes = copy(path, (have, want), (&file, haste), twin_path)?;
    Ok((file, bytes))
}

/// A fresh inode under the shadow file's name. Another that had the name loses it and is not written to.
pub(super) fn create(twin_path: &Path) -> Result<File, Error> {
    let folder = parent_of(twin_path);
    if !folder.is_dir() {
        durable_fs::create_private_dirs(folder)?;
    }
    durable_fs::remove_if_there(twin_path)?;
    Ok(durable_fs::create_new(twin_path)?)
}

/// The displaced inode, if it is as it was left and nobody else has it.
fn reopen(twin_path: &Path, have: PrefixChecksum) -> Option<File> {
    let file = File::options().read(true).write(true).open(twin_path).ok()?;
    let as_left = file.metadata().is_ok_and(|meta| meta.len() == have.size);
    (as_left && take_exclusive_lease(&file)).then_some(file)
}

/// Copies what `have` lacks of `want` from the file at `path`.
fn copy(
    path: &Path,
    (have, want): (PrefixChecksum, PrefixChecksum),
    (to, haste): (&File, IoPriority),
    twin_path: &Path,
) -> Result<u64, Error> {
    if want.size == have.size {
        return Ok(0);
    }
    let from = FilePrefix::open(path)?;
    let Some(wanted) = from.prefix(want.size) else {
        let reason = format!("it has {} bytes, {} were written", from.len(), want.size);
        return Err(Error::damaged(path, reason));
    };
    let mut crc = have.crc;
    let copied = wanted.for_each_chunk(have.size, |at, bytes| {
        crc = crc32c::crc32c_append(crc, bytes);
        io_pacing::write_all_at(to, bytes, at, haste)
    });
    copied.map_err(Error::io("copy to", twin_path))?;
    compare_crc(path, crc, want.crc)?;
    Ok(want.size - have.size)
}

/// How a file takes the name of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplaceMethod {
    /// The two trade names.
    Exchange,
    /// The other loses its name: for file systems that cannot exchange.
    Rename,
}

/// Puts the synced shadow file under the name of the file it replaces, by exchange where the file system can. What it did.
///
/// # Errors
/// If the file system refuses; nothing has changed then, except after [`Error::InDoubt`].
pub(super) fn swap_in(twin_path: &Path, path: &Path, by: ReplaceMethod) -> Result<ReplaceMethod, Error> {
    let twin = inode(twin_path);
    let swap = || -> Result<ReplaceMethod, DurableFsError> {
        if by == ReplaceMethod::Exchange && durable_fs::exchange(twin_path, path)? {
            return Ok(ReplaceMethod::Exchange);
        }
        durable_fs::rename(twin_path, path)?;
        Ok(ReplaceMethod::Rename)
    };
    swap().map_err(|DurableFsError { source, .. }| {
        let unchanged = twin.is_some() && inode(twin_path) == twin && inode(path).is_some_and(|now| Some(now) != twin);
        if unchanged {
            Error::io("replace", path)(source)
        } else {
            Error::in_doubt(path)(source)
        }
    })
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The folders of both names, to be synced when they have changed.
pub(super) fn folders_of(twin_path: &Path, path: &Path) -> Result<FolderHandles, DurableFsError> {
    FolderHandles::open([parent_of(path), parent_of(twin_path)])
}

/// Whether `file`, open for writing, is the only handle on its inode and the inode has one name, so that writing to it
/// disturbs nobody: no reader, no memory map, no hard-linked backup. Answers `false` wherever that cannot be proved.
///
/// It stays so until this handle is closed: whoever opens the file meanwhile waits for that, this process too.
fn take_exclusive_lease(file: &File) -> bool {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::PathBuf;

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
}
