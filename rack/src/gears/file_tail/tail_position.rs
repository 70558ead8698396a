//! How far a file has been recorded, in the form that is stored with the rows.
//!
//! # Invariants
//!
//! - A position is read back as it was written, or not at all: a damaged one is an error, never a guess.
//! - A file is known again by its inode and by its first bytes, so neither a reused inode number nor a copy passes for it.

use serde::{Deserialize, Serialize};

/// How many of a file's first bytes its fingerprint covers at most.
pub(super) const FINGERPRINT: usize = 256;

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct TailPosition {
    /// Files with more to read, oldest first; the last one was at the path.
    #[serde(rename = "f")]
    pub(super) files: Vec<FileProgress>,
    /// The birth of the newest file that was followed, for when it is gone.
    #[serde(rename = "b")]
    pub(super) newest: Option<u64>,
    /// Files that were read to their end lately, so that none is taken for new.
    #[serde(rename = "d")]
    pub(super) done: Vec<FileFingerprint>,
}

/// What makes a file recognisable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFingerprint {
    #[serde(rename = "i")]
    pub(super) inode: u64,
    /// How many first bytes `crc` covers.
    #[serde(rename = "n")]
    pub(super) length: u16,
    /// CRC-32C of them.
    #[serde(rename = "c")]
    pub(super) crc: u32,
}

/// A file and how far it has been recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileProgress {
    #[serde(rename = "k")]
    pub(super) known: FileFingerprint,
    /// When the file was born, in nanoseconds since 1970; orders rotated files.
    #[serde(rename = "b")]
    pub(super) born: u64,
    /// The first byte that is not recorded.
    #[serde(rename = "o")]
    pub(super) offset: u64,
    /// Whether the bytes up to the next line end belong to a line that was cut.
    #[serde(rename = "s")]
    pub(super) skipping: bool,
}

impl FileFingerprint {
    /// A file by its inode and the bytes it begins with.
    #[allow(clippy::cast_possible_truncation, reason = "at most FINGERPRINT bytes")]
    pub(super) fn new(inode: u64, head: &[u8]) -> Self {
        let head = &head[..head.len().min(FINGERPRINT)];
        Self {
            inode,
            length: head.len() as u16,
            crc: crc32c::crc32c(head),
        }
    }

    /// Whether a file that begins with `head` can be this one, whatever its inode.
    pub(super) fn begins(&self, head: &[u8]) -> bool {
        head.get(..usize::from(self.length))
            .is_some_and(|head| crc32c::crc32c(head) == self.crc)
    }
}

impl TailPosition {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        ciborium::into_writer(self, &mut bytes).ok();
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        ciborium::from_reader(bytes).map_err(|error| error.to_string())
    }
}

/// The target: a position that a checkpoint has.
#[cfg(any(test, feature = "fuzz"))]
pub(in crate::gears) fn fuzz_position() -> model::fuzz::FuzzTarget {
    let known = FileFingerprint::new(u64::MAX, b"first line\n");
    let progress = FileProgress {
        known,
        born: 1,
        offset: u64::MAX,
        skipping: true,
    };
    let position = TailPosition {
        files: vec![progress],
        newest: Some(5),
        done: vec![known],
    };
    model::fuzz::FuzzTarget::new("disk.tail_position", vec![position.to_bytes()], |bytes| {
        TailPosition::from_bytes(bytes).is_ok_and(|position| {
            let again = TailPosition::from_bytes(&position.to_bytes());
            assert_eq!(again, Ok(position), "it is written as it is read");
            true
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::file_tailer::{MAX_DONE, MAX_MARKS};
    use super::*;

    #[test]
    fn the_largest_position_fits_a_checkpoint_and_comes_back_as_it_was() {
        let known = FileFingerprint {
            inode: u64::MAX,
            length: 256,
            crc: u32::MAX,
        };
        let mark = FileProgress {
            known,
            born: u64::MAX,
            offset: u64::MAX,
            skipping: true,
        };
        let position = TailPosition {
            files: vec![mark; MAX_MARKS],
            newest: Some(u64::MAX),
            done: vec![known; MAX_DONE],
        };
        let bytes = position.to_bytes();
        assert!(bytes.len() < 3000, "{}", bytes.len());
        assert_eq!(TailPosition::from_bytes(&bytes).unwrap(), position);
        assert!(TailPosition::from_bytes(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_file_is_known_by_its_first_bytes_even_after_it_grew() {
        let known = FileFingerprint::new(1, b"first line\n");
        assert!(known.begins(b"first line\nsecond"));
        assert!(!known.begins(b"first lin"));
        assert!(!known.begins(b"other line\nsecond"));
    }
}
