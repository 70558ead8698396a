//! File stamps: whether a file is the one that was read, by what the system changes with each write, rename and change of mode.
//!
//! Not here: reading it again when it is another.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file at a moment: its place on the disk, its length, and when it and its mode changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    place: (u64, u64),
    length: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file now; `None` if it cannot be looked at.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|meta| Self::from(&meta))
    }
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> Self {
        Self {
            place: (meta.dev(), meta.ino()),
            length: meta.len(),
            written: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}
