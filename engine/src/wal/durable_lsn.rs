//! Durable LSN of a failed log: up to which frame it was synced, recorded before it stops.
//!
//! A disk that promises more room than there is (a thin volume, an image on a full host) may take writes and syncs, lose what
//! they brought, and then fail. Such a log looks shorter and whole afterwards: nothing behind its end is left to prove that there
//! was more. So whoever meets the failure says how far it was, in a block that the disk has had since the log was made.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `PLATFEND` |
//! | 8 | 4 | CRC-32C over the other fields |
//! | 12 | 4 | zero |
//! | 16 | 16 | store id |
//! | 32 | 8 | frames up to this LSN had been synced |
//!
//! # Invariants
//!
//! - Nothing waits for it, and nothing fails because of it: without it damage that reaches to the end is cut in silence.
//! - It only grows, and stays: what it says holds for as long as the log has nothing newer.
//!
//! # Not here
//!
//! What is made of it: [`super::recovery`].

use std::fs::File;
use std::path::PathBuf;

use uuid::Uuid;

use super::BLOCK;
use super::direct_io::BlockBuffer;
use super::directory::WalDirectory;
use super::preallocate::FillPace;

const NAME: &str = "last_word";
const MAGIC: &[u8; 8] = b"PLATFEND";
/// Bytes of the block that carry something.
const WORD: usize = 40;

/// See the module.
#[derive(Debug)]
pub(super) struct DurableLsn {
    store: Uuid,
    /// None where it could not be made.
    file: Option<(File, PathBuf)>,
    said: u64,
}

impl DurableLsn {
    /// Reads what was said, and makes ready to say more.
    pub(super) fn open(disk: &WalDirectory, store: Uuid) -> Self {
        let found = disk.read_start(NAME, BLOCK as usize).unwrap_or_default();
        let file = if found.len() as u64 == BLOCK {
            disk.open_to_write(NAME)
        } else {
            // What is there instead is of no use: it is made anew.
            let _ = disk.unlink(NAME);
            disk.create(NAME, BLOCK, &FillPace::at_once())
        };
        Self {
            store,
            file: file.ok().map(|file| (file, disk.path(NAME))),
            said: decode(&found, store).unwrap_or(0),
        }
    }

    /// Frames up to this LSN had been synced when a log gave up here; 0 if none ever did.
    pub(super) const fn persisted(&self) -> u64 {
        self.said
    }

    /// Says that frames up to `durable` are synced.
    pub(super) fn persist(&mut self, disk: &WalDirectory, durable: u64) {
        if durable <= self.said {
            return;
        }
        let Some((file, path)) = &self.file else { return };
        let block = BlockBuffer::of(&encode(self.store, durable), 0);
        let written = disk.write_at(file, path, block.waiting(), 0);
        if written.and_then(|()| disk.sync(file, path)).is_ok() {
            self.said = durable;
        }
    }
}

fn encode(store: Uuid, durable: u64) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK as usize);
    block.extend_from_slice(MAGIC);
    block.extend_from_slice(&[0; 8]);
    block.extend_from_slice(store.as_bytes());
    block.extend_from_slice(&durable.to_le_bytes());
    let crc = checksum(&block);
    block[8..12].copy_from_slice(&crc.to_le_bytes());
    block.resize(BLOCK as usize, 0);
    block
}

fn decode(block: &[u8], store: Uuid) -> Option<u64> {
    let word = block.get(..WORD)?;
    let crc = u32::from_le_bytes(word.get(8..12)?.try_into().ok()?);
    let is_ours = word.starts_with(MAGIC) && crc == checksum(word) && word.get(16..32)? == store.as_bytes();
    let durable = word.get(32..WORD)?.try_into().ok()?;
    is_ours.then_some(u64::from_le_bytes(durable))
}

fn checksum(word: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&word[..8]), &word[12..WORD])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_durable_lsn_reads_back_and_any_flipped_bit_invalidates_it() {
        let store = Uuid::from_u128(7);
        let block = encode(store, 11);
        assert_eq!(block.len() as u64, BLOCK);
        assert_eq!(decode(&block, store), Some(11));
        assert_eq!(decode(&block, Uuid::from_u128(8)), None);
        assert_eq!(decode(&block[..WORD - 1], store), None);
        assert_eq!(decode(&[0; 4096], store), None);
        for bit in 0..WORD * 8 {
            let mut block = block.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            // Four bytes of it say nothing.
            let wanted = (12..16).contains(&(bit / 8)).then_some(11);
            assert!([None, wanted].contains(&decode(&block, store)), "bit {bit}");
        }
    }

    #[test]
    fn the_durable_lsn_survives_a_restart_and_never_decreases() {
        let dir = tempfile::tempdir().unwrap();
        let disk = WalDirectory::open(dir.path()).unwrap();
        let store = Uuid::from_u128(7);
        let mut word = DurableLsn::open(&disk, store);
        assert_eq!(word.persisted(), 0);
        word.persist(&disk, 5);
        word.persist(&disk, 3);
        assert_eq!(DurableLsn::open(&disk, store).persisted(), 5);
        assert_eq!(
            DurableLsn::open(&disk, Uuid::from_u128(8)).persisted(),
            0,
            "another store's"
        );
    }
}
