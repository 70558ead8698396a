//! One open file that is being followed.
//!
//! # Invariants
//!
//! - The file is held open: its inode number cannot be given to another file meanwhile, and its rest can be read after it was
//!   renamed or deleted.
//! - `head` holds the file's first bytes as they were read; a file that no longer begins with them was written anew.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Instant, UNIX_EPOCH};

use super::record_assembler::RecordAssembler;
use super::tail_position::{FINGERPRINT, FileFingerprint, FileProgress};
use crate::policy::FileRoots;

/// How much is read at once.
const BLOCK: usize = 256 * 1024;

/// A file on disk, recognisable while somebody holds it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// A file and where we are in it.
#[derive(Debug)]
pub(super) struct TailedFile {
    file: File,
    pub(super) id: FileId,
    pub(super) born: u64,
    head: Vec<u8>,
    pub(super) lines: RecordAssembler,
    /// Size and modification time when it was last looked at.
    seen: (u64, i64, i64),
    /// When it last gave bytes, or was found to be renamed.
    pub(super) active: Instant,
}

/// Opens a regular file without ever waiting for one, as opening a pipe would.
pub(super) fn open(files: &FileRoots, path: &Path) -> io::Result<(File, Metadata)> {
    let file = files.open_to_read(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// When a file was born, in nanoseconds; when it was last written where the file system does not say.
pub(super) fn born(metadata: &Metadata) -> u64 {
    let at = metadata.created().or_else(|_| metadata.modified()).ok();
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The first bytes of a file, at most `count`.
pub(super) fn head_of(file: &File, count: usize) -> io::Result<Vec<u8>> {
    let mut head = vec![0; count.min(FINGERPRINT)];
    let mut length = 0;
    while length < head.len() {
        match file.read_at(&mut head[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(length);
    Ok(head)
}

impl TailedFile {
    /// Follows a file from `offset` on.
    pub(super) fn new(file: File, metadata: &Metadata, offset: u64, skipping: bool, now: Instant) -> io::Result<Self> {
        let head = head_of(&file, usize::try_from(offset).unwrap_or(FINGERPRINT))?;
        Ok(Self {
            file,
            id: FileId::of(metadata),
            born: born(metadata),
            head,
            lines: RecordAssembler::new(offset, skipping),
            seen: (0, 0, 0),
            active: now,
        })
    }

    /// What to store about it.
    pub(super) fn mark(&self) -> FileProgress {
        let (offset, skipping) = self.lines.resume_at();
        let covered = self.head.len().min(usize::try_from(offset).unwrap_or(FINGERPRINT));
        FileProgress {
            known: FileFingerprint::new(self.id.inode, &self.head[..covered]),
            born: self.born,
            offset,
            skipping,
        }
    }

    /// What it was, once it has been read.
    pub(super) fn known(&self) -> FileFingerprint {
        FileFingerprint::new(self.id.inode, &self.head)
    }

    /// Whether the file is shorter than what was read of it, or begins otherwise than it did.
    pub(super) fn detect_rewrite(&mut self) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        if metadata.size() < self.lines.fed_to() {
            return Ok(true);
        }
        let seen = (metadata.size(), metadata.mtime(), metadata.mtime_nsec());
        if seen == self.seen {
            return Ok(false);
        }
        let same = head_of(&self.file, self.head.len())? == self.head;
        if same {
            self.seen = seen;
        }
        Ok(!same)
    }

    /// Whether no name leads to the file any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// Begins again at the first byte; gives back what was read and not given out.
    pub(super) fn restart(&mut self) -> RecordAssembler {
        self.head.clear();
        self.seen = (0, 0, 0);
        std::mem::replace(&mut self.lines, RecordAssembler::new(0, false))
    }

    /// Reads one block; zero at the end of the file.
    pub(super) fn read(&mut self, now: Instant) -> io::Result<usize> {
        let offset = self.lines.fed_to();
        let room = self.lines.room(BLOCK);
        let outcome = loop {
            match self.file.read_at(room, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        let count = *outcome.as_ref().unwrap_or(&0);
        if count > 0 {
            self.active = now;
            if self.head.len() < FINGERPRINT && offset == self.head.len() as u64 {
                let wanted = FINGERPRINT - self.head.len();
                self.head.extend_from_slice(&room[..count.min(wanted)]);
            }
        }
        self.lines.fed(count);
        outcome
    }
}
