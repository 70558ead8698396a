//! A checkpoint: the whole state of the catalogue, where a log begins.
//!
//! ```text
//! magic 8 │ len u64 │ crc32c u32 │ state: CBOR, and its files packed ([`super::packed`])
//! ```
//!
//! The checksum begins with the version, then covers the store's id, the generation and the state. Checkpoints of version 1
//! have everything in CBOR, and a checksum as records have.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::log::{checksum, refuse_newer};
use super::state::State;
use super::write_whole;
use crate::Error;

/// A checkpoint with packed files.
const MAGIC: &[u8; 8] = b"FLUXCHK2";
/// One with everything in CBOR, of an earlier version.
const MAGIC_UNPACKED: &[u8; 8] = b"FLUXCHK1";
/// Length and checksum after the magic, and that.
const HEAD: usize = 20;
/// The magic without its version, one digit.
const KIND: &[u8; 7] = b"FLUXCHK";
/// The latest version known here.
const VERSION: u32 = 2;

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("checkpoint_{number:010}"))
}

/// The checksum of a checkpoint: its version comes first.
fn own_checksum(store: Uuid, number: u64, body: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, store.as_bytes());
    let crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
    crc32c::crc32c_append(crc, body)
}

/// The whole of a checkpoint.
fn bytes_of(number: u64, state: &State) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; HEAD];
    state.encode(&mut bytes)?;
    let (head, body) = bytes.split_at_mut(HEAD);
    let crc = own_checksum(state.store, number, body);
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&(body.len() as u64).to_le_bytes());
    head[16..].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// Writes the checkpoint of `state` durably. Returns its size.
pub(super) fn write(dir: &Path, number: u64, state: &State) -> Result<u64, Error> {
    let path = path(dir, number);
    let bytes = bytes_of(number, state).map_err(|reason| Error::Damaged {
        path: path.clone(),
        reason,
    })?;
    write_whole(&path, &bytes)?;
    Ok(bytes.len() as u64)
}

/// The state in a checkpoint.
pub(super) fn read(dir: &Path, number: u64, store: Uuid) -> Result<State, Error> {
    let path = path(dir, number);
    let bytes = std::fs::read(&path).map_err(Error::io("read", &path))?;
    let damaged = |reason: &str| Error::Damaged {
        path: path.clone(),
        reason: reason.to_owned(),
    };
    let (magic, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or_else(|| damaged("it is too short"))?;
    let (len, rest) = rest
        .split_first_chunk::<8>()
        .ok_or_else(|| damaged("it is too short"))?;
    let (crc, body) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| damaged("it is too short"))?;
    let (len, crc) = (u64::from_le_bytes(*len), u32::from_le_bytes(*crc));
    let of_len = |found: u32| len == body.len() as u64 && found == crc;
    let whole = || of_len(own_checksum(store, number, body));
    let whole_unpacked = || of_len(checksum(store, number, len, body));
    let state = match magic {
        MAGIC => whole().then(|| State::decode(body)),
        MAGIC_UNPACKED => whole_unpacked().then(|| State::decode_unpacked(body)),
        _ => {
            let ours = whole() || whole_unpacked();
            refuse_newer(magic, KIND, VERSION, ours, &path)?;
            return Err(damaged("it is not a checkpoint"));
        }
    };
    let state = state.ok_or_else(|| damaged("its checksum does not match, or it belongs to another store"))?;
    state.map_err(|reason| damaged(&reason))
}
