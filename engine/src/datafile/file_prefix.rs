//! Reads a version of a file: its first `size` bytes, by position, from an inode that stays the same.
//!
//! # Invariants
//!
//! - Reads never move a shared offset, so one handle serves many readers at once.
//! - Nothing beyond `size` is seen: a file that has grown meanwhile reads as the version that was asked for.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::Error;

/// Bytes moved at once when a file is copied or checked.
pub(super) const CHUNK: usize = 1 << 20;
/// Bytes read ahead by sequential readers.
const READ_AHEAD: usize = 64 << 10;

/// The first `size` bytes of an open file.
#[derive(Debug, Clone)]
pub(crate) struct FilePrefix {
    file: Arc<File>,
    size: u64,
}

impl FilePrefix {
    pub(crate) fn new(file: File, size: u64) -> Self {
        Self {
            file: Arc::new(file),
            size,
        }
    }

    /// The whole of a file, as long as it is now.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let size = file.metadata().map_err(Error::io("read", path))?.len();
        Ok(Self::new(file, size))
    }

    /// As [`FilePrefix::new`], of a handle that others have too.
    pub(crate) const fn shared(file: Arc<File>, size: u64) -> Self {
        Self { file, size }
    }

    /// The same file up to `size`; `None` where it is shorter.
    pub(super) fn prefix(&self, size: u64) -> Option<Self> {
        (size <= self.size).then(|| Self {
            file: Arc::clone(&self.file),
            size,
        })
    }

    /// Fills `buffer` from position `at`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if !self.has(at, buffer.len() as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(buffer, at)
    }

    /// So many bytes from position `at`: a damaged length takes no memory.
    pub(crate) fn read(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        if !self.has(at, length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn has(&self, at: u64, length: u64) -> bool {
        at.checked_add(length).is_some_and(|end| end <= self.size)
    }

    /// Hands the bytes from `from` to the end to `each`, in order, in chunks.
    pub(crate) fn for_each_chunk(
        &self,
        from: u64,
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK.min(usize::try_from(self.size.saturating_sub(from)).unwrap_or(CHUNK))];
        let mut at = from;
        while at < self.size {
            let take = buffer.len().min(usize::try_from(self.size - at).unwrap_or(CHUNK));
            self.read_exact_at(&mut buffer[..take], at)?;
            each(at, &buffer[..take])?;
            at += take as u64;
        }
        Ok(())
    }
}

/// The CRC-32C of a version's bytes from `from` on, continuing `crc`.
pub(crate) fn file_crc(file: &FilePrefix, from: u64, crc: u32) -> io::Result<u32> {
    let mut crc = crc;
    file.for_each_chunk(from, |_, bytes| {
        crc = crc32c::crc32c_append(crc, bytes);
        Ok(())
    })?;
    Ok(crc)
}

/// Refuses bytes whose CRC-32C is not that of what was written.
pub(crate) fn compare_crc(path: &Path, found: u32, written: u32) -> Result<(), Error> {
    if found == written {
        return Ok(());
    }
    let reason = format!("its checksum is {found:08x}, {written:08x} was written");
    Err(Error::damaged(path, reason))
}

/// The CRC-32C of a version's bytes; `None` if `go_on`, which is asked after each chunk of so many bytes, ends the reading.
pub(crate) fn file_crc_while(file: &FilePrefix, mut go_on: impl FnMut(u64) -> bool) -> io::Result<Option<u32>> {
    let (mut crc, mut is_wanted) = (0, true);
    let read = file.for_each_chunk(0, |_, bytes| {
        crc = crc32c::crc32c_append(crc, bytes);
        is_wanted = go_on(bytes.len() as u64);
        // Ends the reading; it is dropped below.
        is_wanted.then_some(()).ok_or_else(|| io::ErrorKind::Interrupted.into())
    });
    if is_wanted { read.map(|()| Some(crc)) } else { Ok(None) }
}

impl Length for FilePrefix {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for FilePrefix {
    type T = BufReader<PrefixReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let from = PrefixReader {
            source: self.clone(),
            at: start,
        };
        Ok(BufReader::with_capacity(READ_AHEAD, from))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if !self.has(start, length as u64) {
            let size = self.size;
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} reach beyond the end, {size}"
            )));
        }
        Ok(self.read(start, length as u64)?.into())
    }
}

/// Reads onwards from a position of its own.
#[derive(Debug)]
pub(crate) struct PrefixReader {
    source: FilePrefix,
    at: u64,
}

impl Read for PrefixReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.source.size.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let take = buffer.len().min(left);
        let read = self.source.file.read_at(&mut buffer[..take], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
