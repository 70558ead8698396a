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
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parquet::file::reader::Length;

use super::file_prefix::{FilePrefix, compare_crc};
use crate::io_pacing::IoPriority;
use crate::{Error, durable_fs, io_pacing};

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
    let folder = durable_fs::parent_of(twin_path);
    if !folder.is_dir() {
        durable_fs::create_dirs(folder)?;
    }
    durable_fs::remove_if_there(twin_path).map_err(Error::io("remove", twin_path))?;
    durable_fs::create_new(twin_path).map_err(Error::io("create", twin_path))
}

/// The displaced inode, if it is as it was left and nobody else has it.
fn reopen(twin_path: &Path, have: PrefixChecksum) -> Option<File> {
    let file = File::options().read(true).write(true).open(twin_path).ok()?;
    let as_left = file.metadata().is_ok_and(|meta| meta.len() == have.size);
    (as_left && durable_fs::take_exclusive_lease(&file)).then_some(file)
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
    let swap = || -> std::io::Result<ReplaceMethod> {
        if by == ReplaceMethod::Exchange && durable_fs::exchange(twin_path, path)? {
            return Ok(ReplaceMethod::Exchange);
        }
        durable_fs::rename(twin_path, path)?;
        Ok(ReplaceMethod::Rename)
    };
    swap().map_err(|source| {
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
pub(super) fn folders_of(twin_path: &Path, path: &Path) -> Result<durable_fs::FolderHandles, Error> {
    durable_fs::FolderHandles::open([durable_fs::parent_of(path), durable_fs::parent_of(twin_path)])
}
