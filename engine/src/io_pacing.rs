//! I/O pacing: writes large files in pieces, and waits until each piece is on the disk before it writes the next.
//!
//! A single large write would delay the small writes of the log, for which appends wait: by some ten milliseconds for a row group, by a
//! few hundred for a sealed file.
//!
//! # Invariants
//!
//! - Pacing makes nothing durable: the writer still syncs. A piece that cannot be written back is a failed write, because the later
//!   sync may not report it again.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

/// Whether somebody waits for what is encoded and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum IoPriority {
    /// Nobody: one core is left to those who append and ask.
    No,
    /// Appends wait for room, or an opening store for its last rows.
    #[default]
    Yes,
}

impl IoPriority {
    /// The bytes of a piece: some tenths of a millisecond of a disk; in haste as many as it takes for the most throughput.
    const fn piece(self) -> usize {
        match self {
            Self::No => 64 << 10,
            Self::Yes => 4 << 20,
        }
    }
}

/// Writes bytes at a place.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], at: u64, haste: IoPriority) -> io::Result<()> {
    let mut at = at;
    for piece in bytes.chunks(haste.piece()) {
        file.write_all_at(piece, at)?;
        // What is left is for the sync.
        if piece.len() == haste.piece() {
            write_back(file, at, piece.len() as u64)?;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

/// A file that is written from its beginning to its end.
#[derive(Debug)]
pub(crate) struct PacedWriter {
    file: File,
    haste: IoPriority,
    at: u64,
    waiting: usize,
}

impl PacedWriter {
    /// The file is empty.
    pub(crate) const fn new(file: File, haste: IoPriority) -> Self {
        Self {
            file,
            haste,
            at: 0,
            waiting: 0,
        }
    }

    pub(crate) fn into_inner(self) -> File {
        self.file
    }
}

impl Write for PacedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..self.haste.piece()).unwrap_or(bytes);
        let written = self.file.write(piece)?;
        self.waiting += written;
        if self.waiting >= self.haste.piece() {
            write_back(&self.file, self.at, self.waiting as u64)?;
            self.at += self.waiting as u64;
            self.waiting = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Waits until the disk has a range of a file, its length and the disk's own cache aside.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub(crate) fn write_back(file: &File, at: u64, length: u64) -> io::Result<()> {
    let range = i64::try_from(at).ok().zip(i64::try_from(length).ok());
    let Some((at, length)) = range else {
        return Ok(());
    };
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open, the rest are numbers.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), at, length, flags) };
    match Errno::result(done) {
        // A file system or a kernel without it: the sync does everything.
        Ok(_) | Err(Errno::ENOSYS | Errno::EINVAL | Errno::ESPIPE | Errno::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_byte_is_where_it_belongs_however_it_was_cut() {
        let bytes: Vec<u8> = (0..3 * IoPriority::No.piece() + 77)
            .map(|at| (at % 251) as u8)
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        write_all_at(&File::create(&one).unwrap(), &bytes, 5, IoPriority::No).unwrap();
        assert_eq!(std::fs::read(one).unwrap().get(5..), Some(&bytes[..]));
        let mut paced = PacedWriter::new(File::create(&other).unwrap(), IoPriority::No);
        bytes.chunks(10_000).for_each(|part| paced.write_all(part).unwrap());
        assert_eq!(paced.into_inner().metadata().unwrap().len(), bytes.len() as u64);
        assert_eq!(std::fs::read(other).unwrap(), bytes);
    }
}
