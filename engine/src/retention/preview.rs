//! Preview of retention, read from the catalogue on disk: beside a running Mixer or without one.
//!
//! Nothing is locked and nothing is written. Rows that are only in the log or in memory are not known here.

use std::path::Path;

use model::{Clock, Timestamp};
use serde::Serialize;

use super::clock_guard::SLACK;
use super::{PartitionRemoval, counted_log, gather, plan};
use crate::layout::StoreLayout;
use crate::manifest::{FileEntry, StoreManifest, known_store_id};
use crate::{Error, Settings};

/// How often a catalogue that changes under the reader is read again.
const TRIES: usize = 5;

/// What would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetentionPreview {
    /// The clock's time.
    pub at: Timestamp,
    /// What is over the rules; by age, a check takes at most a quarter of the partitions, the oldest first.
    pub removals: Vec<PartitionRemoval>,
    /// Data files now.
    pub files: u64,
    /// Bytes of data files, their indexes, log and catalogue.
    pub total_bytes: u64,
    /// Seconds that the clock is ahead of the store's last record, if that makes a Mixer wait before it deletes.
    pub clock_ahead_seconds: Option<u64>,
}

/// Reads what rotation would do now under these settings.
///
/// # Errors
/// If there is no store, or its catalogue cannot be read.
pub fn preview_rotation(settings: &Settings, clock: &Clock) -> Result<RetentionPreview, Error> {
    let layout = StoreLayout::new(settings);
    let store = known_store_id(&layout.meta)?.ok_or_else(|| Error::no_store(&settings.store_dir))?;
    let mut tries = 0;
    let found = loop {
        tries += 1;
        // A Mixer may begin a new generation while this one is read.
        match StoreManifest::read(&layout.meta, store) {
            Err(_) if tries < TRIES => {}
            read => break read?,
        }
    };
    let at = clock.now();
    let entries: Vec<FileEntry> = found.state.files().cloned().collect();
    let (log, meta) = (bytes_below(&layout.wal)?, bytes_below(&layout.meta)?);
    let about = |entry: &FileEntry| (false, index_bytes(&layout, entry));
    let candidates = gather(&entries, at, settings.seal_grace, about, |_| false);
    let indexes: u64 = candidates.iter().map(|candidate| candidate.index_bytes).sum();
    let ahead = found.state.relied_on().filter(|last| last.plus(SLACK) < at);
    Ok(RetentionPreview {
        at,
        files: entries.len() as u64,
        total_bytes: log + meta + indexes + entries.iter().map(|entry| entry.size).sum::<u64>(),
        clock_ahead_seconds: ahead.and_then(|last| u64::try_from((at.micros() - last.micros()) / 1_000_000).ok()),
        removals: plan(candidates, settings, at, counted_log(settings, log) + meta)
            .iter()
            .map(|(gone, reason)| gone.removal(*reason))
            .collect(),
    })
}

/// The bytes of a file's index, if it is there.
fn index_bytes(layout: &StoreLayout, entry: &FileEntry) -> u64 {
    let path = layout.sidecar(entry.table, (entry.id, entry.version));
    path.metadata().map_or(0, |meta| meta.len())
}

fn bytes_below(dir: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        // A file may go between the listing and the look.
        bytes += entry.and_then(|entry| entry.metadata()).map_or(0, |meta| meta.len());
    }
    Ok(bytes)
}
