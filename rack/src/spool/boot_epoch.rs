//! The boot epoch: the number of a run, strictly growing over all runs that share a spool.
//!
//! # Invariants
//!
//! - A new epoch is greater than the stored one and than any in a segment, whatever the clock says, and it is on disk
//!   before it is used.
//! - A Rack's two spools never have the same epoch: sequences count within (entity, epoch), and both have the same entity.
//!   Epochs of telemetry are even, those of messages odd.

use std::io;
use std::path::Path;

use model::Timestamp;

use super::{SpoolError, SpoolKind};

const FILE: &str = "epoch";

/// The next epoch; `seen` is the greatest one in the segments.
pub(super) fn next(dir: &Path, seen: u64, now: Timestamp, lane: SpoolKind) -> Result<u64, SpoolError> {
    let path = dir.join(FILE);
    let stored: u64 = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(source) => return Err(SpoolError::Io { path, source }),
    };
    let clock = u64::try_from(now.micros()).unwrap_or(0);
    let parity = match lane {
        SpoolKind::Telemetry => 0,
        SpoolKind::Messages => 1,
    };
    let least = stored.max(seen).saturating_add(1).max(clock);
    let epoch = least.saturating_add((least % 2) ^ parity);
    durable_fs::write_atomically(&path, format!("{epoch}\n").as_bytes(), 0o600)?;
    Ok(epoch)
}
