//! File operations of the log's folder, each one call, each with an error that names the file.
//!
//! # Invariants
//!
//! - Nothing is retried here: a failed sync stays failed.
//! - In tests every call first asks the fault plan, so "the n-th call fails" and "the power goes here" can be tried for
//!   every n. Other builds carry no trace of it.
//!
//! # Not here
//!
//! What the files mean.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};

use super::BLOCK;
use super::direct_io::{BlockBuffer, enable_direct_io};
use super::preallocate::{self, FillPace};
use crate::Error;

/// The log's folder.
#[derive(Debug)]
pub(super) struct WalDirectory {
    dir: PathBuf,
    handle: File,
    #[cfg(test)]
    pub(super) faults: super::fault_injection::DiskFaultInjector,
}

/// A call that a test may make fail.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum DiskOperation {
    Create,
    Allocate,
    Write,
    SyncFile,
    Rename,
    Unlink,
    SyncDir,
}

/// Asks the fault plan in tests; nothing elsewhere.
macro_rules! fault {
    ($disk:ident, $op:ident, $action:literal, $path:expr) => {
        #[cfg(test)]
        $disk
            .faults
            .before(DiskOperation::$op)
            .map_err(Error::io($action, $path))?;
    };
    ($disk:ident, $op:ident, $action:literal, $path:expr, $file:expr) => {
        #[cfg(test)]
        if let Err(source) = $disk.faults.before(DiskOperation::$op) {
            $disk.faults.sync_failed($file);
            return Err(Error::io($action, $path)(source));
        }
    };
}

/// Tells a test's model of the disk what has just been done; nothing elsewhere.
macro_rules! done {
    ($disk:ident, $method:ident ( $($arg:expr),* )) => {
        #[cfg(test)]
        $disk.faults.$method($($arg),*);
    };
}

impl WalDirectory {
    /// Opens the folder, which exists.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let handle = File::open(dir).map_err(Error::io("open", dir))?;
        Ok(Self {
            dir: dir.to_owned(),
            handle,
            #[cfg(test)]
            faults: super::fault_injection::DiskFaultInjector::default(),
        })
    }

    /// The same folder for another thread.
    pub(super) fn share(&self) -> io::Result<Self> {
        Ok(Self {
            dir: self.dir.clone(),
            handle: self.handle.try_clone()?,
            #[cfg(test)]
            faults: self.faults.clone(),
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The names in the folder that are UTF-8.
    pub(super) fn list(&self) -> Result<Vec<String>, Error> {
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&self.dir)? {
                names.extend(entry?.file_name().into_string().ok());
            }
            Ok(names)
        };
        list().map_err(Error::io("list", &self.dir))
    }

    /// Creates a file of `len` bytes of zeros, synced: later writes into it allocate nothing. As far as `pace` lets it they are written.
    ///
    /// On failure nothing of it is left.
    pub(super) fn create(&self, name: &str, len: u64, pace: &FillPace) -> Result<File, Error> {
        let path = self.path(name);
        fault!(self, Create, "create", &path);
        let file = durable_fs::create_private(&path)?;
        done!(self, created(name, &path));
        enable_direct_io(&file, BLOCK);
        let filled = self.fill(&file, &path, len, pace);
        if filled.is_err() {
            // The first error is the one to report; a leftover is cleared at the next start.
            let _ = self.unlink(name);
        }
        filled.map(|()| file)
    }

    /// Reserves and writes the zeros. Unwritten extents cost a journal commit at every later sync.
    fn fill(&self, file: &File, path: &Path, len: u64, pace: &FillPace) -> Result<(), Error> {
        fault!(self, Allocate, "allocate", path);
        let is_reserved = match fallocate(file, FallocateFlags::empty(), 0, i64::try_from(len).unwrap_or(i64::MAX)) {
            Ok(()) => true,
            // A file system without reservations: writing the zeros reserves just as well.
            Err(nix::errno::Errno::EOPNOTSUPP) => false,
            Err(errno) => return Err(Error::io("allocate", path)(errno.into())),
        };
        let zeros = BlockBuffer::of(&vec![0; usize::try_from(len.min(preallocate::PIECE)).unwrap_or(0)], 0);
        let mut at = 0;
        while at < len {
            let piece = match pace.piece() {
                0 if is_reserved => break,
                0 => preallocate::PIECE,
                piece => piece,
            };
            let piece = piece.min(len - at);
            let zeros = zeros.waiting().get(..usize::try_from(piece).unwrap_or(0));
            self.write_at(file, path, zeros.unwrap_or_default(), at)?;
            pace.rest(file, at, piece).map_err(Error::io("fill", path))?;
            at += piece;
        }
        fault!(self, SyncFile, "sync", path, file);
        file.sync_all().map_err(Error::io("sync", path))?;
        done!(self, synced(file));
        Ok(())
    }

    /// Opens an existing file for reading and writing.
    pub(super) fn open_file(&self, name: &str) -> Result<File, Error> {
        let path = self.path(name);
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(Error::io("open", &path))
    }

    /// Opens an existing file for writes of whole blocks.
    pub(super) fn open_to_write(&self, name: &str) -> Result<File, Error> {
        let file = self.open_file(name)?;
        enable_direct_io(&file, BLOCK);
        Ok(file)
    }

    /// Has the system fetch a file that is going to be read.
    pub(super) fn prefetch(&self, name: &str) {
        if let Ok(file) = self.open_file(name) {
            // Without it, the reading takes longer.
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
        }
    }

    /// As many bytes of a file as `bytes` has.
    pub(super) fn read_into(&self, name: &str, bytes: &mut [u8]) -> Result<(), Error> {
        let path = self.path(name);
        self.open_file(name)?
            .read_exact_at(bytes, 0)
            .map_err(Error::io("read", &path))
    }

    /// The same, into zeros: pieces of zeros are left untouched.
    pub(super) fn read_sparsely(&self, name: &str, zeros: &mut [u8]) -> Result<(), Error> {
        let path = self.path(name);
        let file = self.open_file(name)?;
        let mut piece = vec![0; 256 << 10];
        let mut at = 0;
        for place in zeros.chunks_mut(piece.len()) {
            let found = piece.get_mut(..place.len()).unwrap_or_default();
            file.read_exact_at(found, at).map_err(Error::io("read", &path))?;
            if found.iter().any(|byte| *byte != 0) {
                place.copy_from_slice(found);
            }
            at += place.len() as u64;
        }
        Ok(())
    }

    /// The first bytes of a file, at most `len`.
    pub(super) fn read_start(&self, name: &str, len: usize) -> Result<Vec<u8>, Error> {
        let path = self.path(name);
        let mut bytes = Vec::new();
        self.open_file(name)?
            .take(len as u64)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &path))?;
        Ok(bytes)
    }

    /// Writes whole blocks at a multiple of a block.
    pub(super) fn write_at(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), Error> {
        #[cfg(test)]
        if let Err(source) = self.faults.before(DiskOperation::Write) {
            // A failed write may have written a part.
            let _ = file.write_all_at(bytes.get(..bytes.len() / 1024 * 512).unwrap_or_default(), at);
            return Err(Error::io("write", path)(source));
        }
        file.write_all_at(bytes, at).map_err(Error::io("write", path))?;
        done!(self, wrote(file, at, bytes.len()));
        Ok(())
    }

    /// Makes a file's content durable.
    pub(super) fn sync(&self, file: &File, path: &Path) -> Result<(), Error> {
        fault!(self, SyncFile, "sync", path, file);
        file.sync_data().map_err(Error::io("sync", path))?;
        done!(self, synced(file));
        Ok(())
    }

    /// Renames within the folder.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let path = self.path(from);
        fault!(self, Rename, "rename", &path);
        durable_fs::rename(&path, &self.path(to))?;
        done!(self, renamed(from, to));
        Ok(())
    }

    /// Removes a file.
    pub(super) fn unlink(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fault!(self, Unlink, "remove", &path);
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        done!(self, unlinked(name));
        Ok(())
    }

    /// Makes the folder's names durable.
    pub(super) fn sync_dir(&self) -> Result<(), Error> {
        fault!(self, SyncDir, "sync", &self.dir);
        self.handle.sync_all().map_err(Error::io("sync", &self.dir))?;
        done!(self, synced_dir());
        Ok(())
    }

    /// Moves a file out of the folder into `quarantine`, under a name that is free there; both folders are synced.
    pub(super) fn quarantine(&self, name: &str, quarantine: &Path) -> Result<PathBuf, Error> {
        durable_fs::create_private_dirs(quarantine)?;
        let target = durable_fs::free_name(quarantine.join(name));
        let path = self.path(name);
        let folder = durable_fs::FolderHandles::open([quarantine])?;
        fault!(self, Rename, "quarantine", &path);
        durable_fs::rename(&path, &target).map_err(|error| Error::io("quarantine", &path)(error.source))?;
        done!(self, unlinked(name));
        folder.sync()?;
        self.sync_dir()?;
        Ok(target)
    }
}

/// Whether the error says that the disk, or a quota on it, is full.
pub(super) fn is_no_space(source: &io::Error) -> bool {
    matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
