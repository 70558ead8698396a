//! Replays the log: frames become rows in memory, and data files where they are more than memory is for.
//!
//! ```text
//! here            read a segment ─> check ─> write it anew, sync ─> decode ─> place ─> hot rows
//! engine-relief   hot rows ─> data files, from a row group's worth on, until every frame is hot
//! ```
//!
//! # Invariants
//!
//! - A frame becomes hot when it is durable in a segment that this recovery wrote.
//! - Hot rows keep their cap: at it, reading waits. Beside them one segment of the log is held. Rows that cannot be published may pass it, better than no start.
//! - A frame counts as read when its rows are hot, in files, or kept aside durably: what is published meanwhile lets go of
//!   the log up to there.
//! - Whichever of the two ends early, by an error or a panic, the other ends too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{Builder, scope};

use bytes::Bytes;
use model::Table;
use model::telemetry_codec::{DecodeError, decode_arrow};
use parking_lot::{Condvar, Mutex};

use super::file_reconciliation::RecoveryFindings;
use super::join_thread;
use crate::engine_core::EngineCore;
use crate::export_cursors::ExportPositions;
use crate::flusher::MemtableFlusher;
use crate::layout::{StoreLayout, TimePartition};
use crate::memtable::{PartitionKey, weight};
use crate::wal::{FrameSink, WalFrame, WalRecovery, WriteAheadLog};
use crate::{BatchOrigin, Error, ExportMode, HotBatch, frame_origin, partitioner};
use model::catch_panic;

/// Makes what `open_log` hands out hot, and publishes beside it. Returns the log when all of it was read.
pub(super) fn run(
    shared: &EngineCore,
    publisher: &mut MemtableFlusher,
    findings: &mut RecoveryFindings,
    exported: Option<ExportPositions>,
    open_log: impl FnOnce(FrameSink<'_>) -> Result<(WriteAheadLog, WalRecovery), Error>,
) -> Result<(WriteAheadLog, WalRecovery), Error> {
    let relief = ReplayFlusher::new(shared);
    // Publishing meanwhile takes only what was inserted here.
    let lacking = {
        let catalog = shared.store.catalog.lock();
        ReplayFilter {
            through: catalog.state().all_through(),
            low_water: catalog.state().low_water,
            damaged: catalog.state().replay().clone(),
            exported,
            mode: shared.settings.export,
        }
    };
    scope(|threads| {
        let relieving = Builder::new().name("engine-relief".to_owned());
        let relieving = relieving
            .spawn_scoped(threads, || relief.run(publisher))
            .map_err(Error::io("start a thread for", &shared.settings.store_dir))?;
        let all_read = ReplayFlushGuard(&relief);
        let read = open_log(&mut |frames| insert(shared, &lacking, frames, &relief, findings));
        drop(all_read);
        join_thread(relieving)?;
        read
    })
}

/// What of the log is in no file.
struct ReplayFilter {
    through: BTreeMap<PartitionKey, u64>,
    low_water: u64,
    /// What was in damaged files.
    damaged: BTreeMap<PartitionKey, (u64, u64)>,
    /// How far telemetry was exported, if it was.
    exported: Option<ExportPositions>,
    mode: ExportMode,
}

impl ReplayFilter {
    fn was_damaged(&self, place: PartitionKey, lsn: u64) -> bool {
        let range = self.damaged.get(&place);
        range.is_some_and(|(from, end)| (*from..=*end).contains(&lsn))
    }

    /// Whether rows of a frame can be in no file.
    fn may_have(&self, frame: &WalFrame) -> bool {
        frame.lsn >= self.low_water || self.was_any_damaged(frame)
    }

    fn was_any_damaged(&self, frame: &WalFrame) -> bool {
        let mut damaged = self.damaged.keys().filter(|(table, _)| table.number() == frame.table);
        damaged.any(|place| self.was_damaged(*place, frame.lsn))
    }

    /// Whether a frame's rows are telemetry that is not kept beyond the log.
    fn is_unstored(&self, frame: &WalFrame) -> bool {
        let table = Table::from_number(frame.table);
        let exported = table.zip(self.exported);
        exported.is_some_and(|(table, exported)| exported.is_unstored(table, frame.lsn, self.mode))
            && !self.was_any_damaged(frame)
    }

    fn has(&self, place: PartitionKey, lsn: u64) -> bool {
        let is_beyond = || self.through.get(&place).is_none_or(|through| *through < lsn);
        self.was_damaged(place, lsn) || (lsn >= self.low_water && is_beyond())
    }
}

/// Makes frames hot, waiting for room.
fn insert(
    shared: &EngineCore,
    lacking: &ReplayFilter,
    frames: Vec<WalFrame>,
    relief: &ReplayFlusher<'_>,
    findings: &mut RecoveryFindings,
) -> Result<(), Error> {
    for frame in frames {
        if !lacking.may_have(&frame) {
            replay_to_followers(shared, &frame);
            continue;
        }
        let inserted = if lacking.is_unstored(&frame) {
            if lacking.mode != ExportMode::Only
                && let Ok((table, _, pieces)) = partition_frame(&frame)
            {
                findings
                    .exported
                    .extend(pieces.iter().map(|(partition, _)| (table, *partition)));
            }
            pass_frame(shared, &frame)
        } else {
            insert_frame(shared, lacking, &frame, &mut findings.replayed)
        };
        match inserted {
            Ok(rows) => shared.counters.replayed_rows.add(rows),
            Err(reason) => {
                keep_frame(&shared.store.layout, &frame, &reason, findings)?;
                let mut state = shared.rows.state.lock();
                state.committed = state.committed.max(frame.lsn);
            }
        }
        drop(frame);
        relief.wait()?;
    }
    Ok(())
}

/// Publishes hot rows while others come.
struct ReplayFlusher<'a> {
    shared: &'a EngineCore,
    levels: Mutex<ReplayThresholds>,
    changed: Condvar,
    cap: u64,
    start: u64,
}

/// Weights of hot rows, and whether it is over.
struct ReplayThresholds {
    /// From here on some are published.
    start: u64,
    /// From here on the next ones wait.
    limit: u64,
    /// No more come, or nobody publishes any more.
    over: bool,
}

/// Ends the relief when it goes, in whatever way.
struct ReplayFlushGuard<'a>(&'a ReplayFlusher<'a>);

impl Drop for ReplayFlushGuard<'_> {
    fn drop(&mut self) {
        self.0.levels.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl<'a> ReplayFlusher<'a> {
    fn new(shared: &'a EngineCore) -> Self {
        let cap = shared.settings.hot_max.get();
        let start = (cap / 2).min(shared.settings.group_max.get());
        Self {
            shared,
            levels: Mutex::new(ReplayThresholds {
                start,
                limit: cap,
                over: false,
            }),
            changed: Condvar::new(),
            cap,
            start,
        }
    }

    fn weight(&self) -> u64 {
        self.shared.rows.state.lock().hot.weight()
    }

    /// Waits while hot rows are at their limit. An error if nobody publishes any more, who says why.
    fn wait(&self) -> Result<(), Error> {
        let mut weight = self.weight();
        if weight < self.start {
            return Ok(());
        }
        let mut levels = self.levels.lock();
        self.changed.notify_all();
        while weight >= levels.limit && !levels.over {
            self.changed.wait(&mut levels);
            weight = self.weight();
        }
        if levels.over { Err(Error::Closed) } else { Ok(()) }
    }

    /// Publishes round by round until it is over.
    fn run(&self, publisher: &mut MemtableFlusher) -> Result<(), Error> {
        let _ending = ReplayFlushGuard(self);
        loop {
            let mut levels = self.levels.lock();
            while !levels.over && self.weight() < levels.start {
                self.changed.wait(&mut levels);
            }
            if levels.over {
                return Ok(());
            }
            drop(levels);
            let relieved = publisher.flush_round();
            let mut levels = self.levels.lock();
            (levels.start, levels.limit) = match relieved {
                Ok(()) => (self.start, self.cap),
                Err(error) if error.is_in_doubt() => return Err(error),
                // It is tried again a quarter of the cap later.
                Err(_) => {
                    let later = self.weight().max(self.cap).saturating_add(self.cap / 4);
                    (later, later)
                }
            };
            self.changed.notify_all();
        }
    }
}

/// Rows of one table by partition.
type PartitionPieces = Vec<(TimePartition, HotBatch)>;

/// A frame's rows where they belong.
fn partition_frame(frame: &WalFrame) -> Result<(Table, BatchOrigin, PartitionPieces), String> {
    let table = Table::from_number(frame.table).ok_or_else(|| format!("it names table {}", frame.table))?;
    let (origin, rule, specs) = frame_origin::decode(&frame.origin)?;
    let placed = catch_panic(|| {
        // Memory of its own, aligned: rows share it, and must not keep a whole segment of the log.
        let rows = match decode_arrow(table, &Bytes::copy_from_slice(&frame.payload)) {
            Ok(rows) => rows,
            Err(DecodeError::Empty) => Vec::new(),
            Err(error) => return Err(error.to_string()),
        };
        partitioner::partition_batch(table, &rows, frame.arrived, (rule, &specs)).map_err(|error| error.to_string())
    })?;
    Ok((table, origin, placed.pieces))
}

fn shared_pieces(table: Table, pieces: PartitionPieces) -> Vec<(PartitionKey, Arc<HotBatch>, u64)> {
    let pieces = pieces.into_iter().map(|(partition, rows)| {
        let weight = weight(&rows.batch);
        ((table, partition), Arc::new(rows.owned()), weight)
    });
    pieces.collect()
}

/// Shows followers a frame whose rows are all in files. One that cannot be read ends what they can resume at.
fn replay_to_followers(shared: &EngineCore, frame: &WalFrame) {
    let table = Table::from_number(frame.table);
    if let Some(table) = table.filter(|table| !shared.rows.tails.keeps(*table)) {
        shared.rows.tails.replay(table, frame.lsn, &[]);
    } else if let Ok((table, _, pieces)) = partition_frame(frame) {
        shared
            .rows
            .tails
            .replay(table, frame.lsn, &shared_pieces(table, pieces));
    }
}

/// Remembers where a frame came from whose rows are not kept beyond the log.
fn pass_frame(shared: &EngineCore, frame: &WalFrame) -> Result<u64, String> {
    let (origin, ..) = frame_origin::decode(&frame.origin)?;
    shared.watermarks.lock().record(&origin, frame.lsn);
    let mut state = shared.rows.state.lock();
    state.committed = state.committed.max(frame.lsn);
    Ok(0)
}

/// Makes hot what of a frame is in no file. Returns the rows; after an error nothing was inserted.
fn insert_frame(
    shared: &EngineCore,
    lacking: &ReplayFilter,
    frame: &WalFrame,
    replayed: &mut BTreeMap<PartitionKey, u64>,
) -> Result<u64, String> {
    let (table, origin, pieces) = partition_frame(frame)?;
    // What is below is marked.
    if frame.lsn >= lacking.low_water {
        shared.watermarks.lock().record(&origin, frame.lsn);
    }
    let mut pieces = shared_pieces(table, pieces);
    shared.rows.tails.replay(table, frame.lsn, &pieces);
    pieces.retain(|(place, _, _)| lacking.has(*place, frame.lsn));
    for (place, rows, _) in &pieces {
        if lacking.was_damaged(*place, frame.lsn) {
            *replayed.entry(*place).or_default() += rows.batch.num_rows() as u64;
        }
    }
    let rows = pieces.iter().map(|(_, rows, _)| rows.batch.num_rows() as u64).sum();
    let places: Vec<PartitionKey> = pieces.iter().map(|(place, _, _)| *place).collect();
    let mut state = shared.rows.state.lock();
    EngineCore::insert(&mut state, table, pieces, frame.lsn, &origin, 0);
    places.into_iter().for_each(|place| state.hot.join(place));
    Ok(rows)
}

/// Keeps a frame that cannot be understood, durably: its rows count as stored, so the log is going to let go of it.
fn keep_frame(
    layout: &StoreLayout,
    frame: &WalFrame,
    reason: &str,
    findings: &mut RecoveryFindings,
) -> Result<(), Error> {
    let path = layout.quarantine.join(format!("batch_{:020}", frame.lsn));
    durable_fs::write_durably(&path, &frame.payload)?;
    findings.quarantined += 1;
    let lsn = frame.lsn;
    findings.report(format!(
        "batch {lsn} of the log cannot be read: {reason}; it was put into {}",
        path.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_decoder_that_panics_is_a_batch_that_cannot_be_read() {
        let batch: &[u8] = &[];
        let beyond = batch.len();
        let died = catch_panic(|| Ok(batch[beyond])).unwrap_err();
        assert!(died.contains("panicked") && died.contains("index"), "{died}");
        assert_eq!(catch_panic(|| Ok(7)), Ok(7));
    }
}
