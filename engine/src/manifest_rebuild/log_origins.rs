//! Reads where the log begins, and its lowest sequence of each producer run and bus stream.

use std::collections::BTreeMap;
use std::path::Path;

use uuid::Uuid;

use crate::dedup::{DedupWatermarks, ProducerRunKey, StreamIncarnation};
use crate::{Error, frame_origin, wal};

/// What the log says of origins. The next start marks those that it replays.
#[derive(Debug, Default)]
pub(super) struct LogOrigins {
    /// The lowest LSN that the log can hold.
    pub(super) begins: Option<u64>,
    runs: BTreeMap<ProducerRunKey, u64>,
    streams: BTreeMap<StreamIncarnation, u64>,
}

impl LogOrigins {
    /// Reads it. Batches before `low_water` are not replayed: they are marked here.
    pub(super) fn read(
        dir: &Path,
        store: Uuid,
        low_water: u64,
        watermarks: &mut DedupWatermarks,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        all.begins = wal::inspect_log(dir, store, |lsn, bytes| {
            // A batch whose origin cannot be read goes into quarantine at the next start.
            let Ok((origin, ..)) = frame_origin::decode(bytes) else {
                return;
            };
            if lsn < low_water {
                watermarks.record(&origin, lsn);
                return;
            }
            if let Some(id) = origin.producer_key() {
                lower(&mut all.runs, (id.entity, id.boot_epoch), id.seq);
            }
            if let Some(at) = origin.bus_key() {
                lower(&mut all.streams, (at.stream.clone(), at.incarnation), at.seq);
            }
        })?;
        Ok(all)
    }

    /// How far a run's range goes before the log: what the log has, it has exactly.
    pub(super) fn before_run(&self, run: &ProducerRunKey, last: u64) -> u64 {
        self.runs.get(run).map_or(last, |lowest| last.min(lowest - 1))
    }

    /// As [`LogOrigins::before_run`], of a stream.
    pub(super) fn before_stream(&self, stream: &StreamIncarnation, last: u64) -> u64 {
        self.streams.get(stream).map_or(last, |lowest| last.min(lowest - 1))
    }
}

fn lower<K: Ord>(lowest: &mut BTreeMap<K, u64>, key: K, seq: u64) {
    let at = lowest.entry(key).or_insert(seq);
    *at = seq.min(*at);
}
