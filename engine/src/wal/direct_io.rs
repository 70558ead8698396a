//! Direct I/O for segments: writes whole blocks from aligned blocks of memory, so that they bypass the page cache
//! ([`enable_direct_io`]), and no write ever has to read what surrounds it.
//!
//! # Invariants
//!
//! - The block that the last write ended in is kept and written again with what follows: what was written does not change.
//! - Behind the last byte, a block is filled up with zeros.
//!
//! # Not here
//!
//! Which bytes, and when they are durable: [`super::WriteAheadLog`].

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::HEADER_BLOCK;
use crate::Error;

/// What memory and place of a direct write are multiples of, at most, on the disks there are.
pub(super) const BLOCK: usize = HEADER_BLOCK;
/// Of the memory that a group was encoded in, this much is kept for the next one.
const KEPT: usize = 4 << 20;

/// Makes writes of whole blocks of so many bytes into a file pass the page cache by, if its file system says that it can. Reads
/// through this handle would have to be of whole blocks too.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub(super) fn enable_direct_io(file: &File, block: u64) {
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

/// What is to be written from one place on.
#[derive(Debug)]
pub(super) struct BlockBuffer {
    bytes: Vec<u8>,
    /// Bytes before the first one that counts, so that that is at the beginning of a block of memory.
    skip: usize,
    /// Where in the file the first one goes: a multiple of the block.
    at: u64,
}

impl BlockBuffer {
    /// Nothing yet, to be written from `at` on, a multiple of [`BLOCK`].
    pub(super) const fn new(at: u64) -> Self {
        Self {
            bytes: Vec::new(),
            skip: 0,
            at,
        }
    }

    /// Bytes to be written at `at`.
    pub(super) fn of(bytes: &[u8], at: u64) -> Self {
        let mut blocks = Self::new(at);
        blocks.room(bytes.len()).extend_from_slice(bytes);
        blocks
    }

    /// Where the next byte goes.
    pub(super) fn end(&self) -> u64 {
        self.at + self.waiting().len() as u64
    }

    /// The bytes of the next write, the filling aside.
    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.skip..).unwrap_or_default()
    }

    /// Where to add up to `more` bytes.
    pub(super) fn room(&mut self, more: usize) -> &mut Vec<u8> {
        // Behind them a mark and the filling.
        let needed = more + 2 * BLOCK;
        if self.bytes.capacity() - self.bytes.len() < needed {
            let kept = self.waiting();
            let mut bytes: Vec<u8> = Vec::with_capacity(kept.len() + needed + BLOCK);
            let skip = (BLOCK - bytes.as_ptr().addr() % BLOCK) % BLOCK;
            bytes.resize(skip, 0);
            bytes.extend_from_slice(kept);
            (self.bytes, self.skip) = (bytes, skip);
        }
        &mut self.bytes
    }

    /// Hands what there is to `write`, with its place, and keeps the block that is not full.
    pub(super) fn write(&mut self, write: impl FnOnce(&[u8], u64) -> Result<(), Error>) -> Result<(), Error> {
        let length = self.waiting().len();
        self.fill_up(write)?;
        let whole = length / BLOCK * BLOCK;
        self.bytes.copy_within(self.skip + whole..self.skip + length, self.skip);
        self.bytes.truncate(self.skip + length - whole);
        self.at += whole as u64;
        if self.bytes.capacity() > KEPT {
            *self = Self::of(self.waiting(), self.at);
        }
        Ok(())
    }

    /// The same with `mark` behind it, which is not kept: what comes next takes its place.
    pub(super) fn write_with(
        &mut self,
        mark: &[u8],
        write: impl FnOnce(&[u8], u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.room(mark.len()).extend_from_slice(mark);
        let end = self.bytes.len() - mark.len();
        let done = self.fill_up(write);
        self.bytes.truncate(end);
        done
    }

    fn fill_up(&mut self, write: impl FnOnce(&[u8], u64) -> Result<(), Error>) -> Result<(), Error> {
        let full = self.waiting().len().next_multiple_of(BLOCK);
        self.bytes.resize(self.skip + full, 0);
        write(self.waiting(), self.at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_write_is_of_whole_blocks_of_memory_and_file_and_all_of_them_are_what_was_added() {
        let mut blocks = BlockBuffer::new(BLOCK as u64);
        let (mut file, mut all) = (vec![0xee; 64 * BLOCK], Vec::new());
        for (round, more) in [8, 4080, 4096, 16, 3 * BLOCK + 24, 0, 4064, 8, KEPT, 40]
            .into_iter()
            .enumerate()
        {
            let added = vec![round as u8 + 1; more];
            let room = blocks.room(more);
            room.extend_from_slice(&added);
            all.extend_from_slice(&added);
            file.resize(file.len().max(all.len() + 4 * BLOCK), 0xee);
            let mut put = |bytes: &[u8], at: u64| {
                let at = usize::try_from(at).unwrap();
                assert_eq!(
                    (bytes.as_ptr().addr() % BLOCK, bytes.len() % BLOCK, at % BLOCK),
                    (0, 0, 0)
                );
                file[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            blocks.write(&mut put).unwrap();
            assert_eq!(blocks.end(), (BLOCK + all.len()) as u64);
            blocks.write_with(&[0xff; 16], &mut put).unwrap();
            assert_eq!(&file[BLOCK..BLOCK + all.len()], all);
            assert_eq!(&file[BLOCK + all.len()..][..16], [0xff; 16]);
        }
    }
}
