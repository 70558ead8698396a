//! A checkpoint: the whole state of the catalogue, where a log begins.
//!
//! ```text
//! magic 8 │ len u64 │ crc32c u32 │ state
//! ```
//!
//! The checksum covers the store's id, the generation and the length too.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::log::{checksum, refuse_newer};
use super::state::ManifestState;
use crate::Error;

const MAGIC: &[u8; 8] = b"FLUXCHK1";
/// Length and checksum after the magic, and that.
const HEAD: usize = 20;
/// The magic without its version, one digit.
const KIND: &[u8; 7] = b"FLUXCHK";
/// The latest version known here.
const VERSION: u32 = 1;

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("checkpoint_{number:010}"))
}

/// The whole of a checkpoint.
fn bytes_of(number: u64, state: &ManifestState) -> Result<Vec<u8>, String> {
    let body = state.encode()?;
    let len = body.len() as u64;
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&checksum(state.store, number, len, &body).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Writes the checkpoint of `state` durably. Returns its size.
pub(super) fn write(dir: &Path, number: u64, state: &ManifestState) -> Result<u64, Error> {
    let path = path(dir, number);
    let bytes = bytes_of(number, state).map_err(|reason| Error::damaged(&path, reason))?;
    durable_fs::write_atomically(&path, &bytes, 0o600)?;
    Ok(bytes.len() as u64)
}

/// The state in a checkpoint.
pub(super) fn read(dir: &Path, number: u64, store: Uuid) -> Result<ManifestState, Error> {
    let path = path(dir, number);
    let bytes = std::fs::read(&path).map_err(Error::io("read", &path))?;
    let damaged = |reason: &str| Error::damaged(&path, reason);
    let short = || damaged("it is too short");
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let (len, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    let (crc, body) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (len, crc) = (u64::from_le_bytes(*len), u32::from_le_bytes(*crc));
    let whole = len == body.len() as u64 && crc == checksum(store, number, len, body);
    if magic != MAGIC {
        refuse_newer(magic, KIND, VERSION, whole, &path)?;
        return Err(damaged("it is not a checkpoint"));
    }
    if !whole {
        return Err(damaged("its checksum does not match, or it belongs to another store"));
    }
    ManifestState::decode(body).map_err(|reason| damaged(&reason))
}
