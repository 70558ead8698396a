//! Origin ranges for the footers of data files: what a rebuild without a catalogue knows of duplicates.
//!
//! # Invariants
//!
//! - A footer's ranges cover every origin of its file's rows, and may cover more.

use std::collections::BTreeMap;

use model::EntityId;

use crate::BatchOrigin;

/// The first and last sequence of each producer run and bus stream among some rows, for the footers of data files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OriginRanges {
    pub(crate) producers: BTreeMap<(EntityId, u64), (u64, u64)>,
    pub(crate) streams: BTreeMap<(String, i64), (u64, u64)>,
}

impl OriginRanges {
    pub(crate) fn add(&mut self, origin: &BatchOrigin) {
        if let Some(id) = origin.producer {
            widen(&mut self.producers, (id.entity, id.boot_epoch), (id.seq, id.seq));
        }
        if let Some(at) = &origin.bus {
            widen(&mut self.streams, (at.stream.clone(), at.incarnation), (at.seq, at.seq));
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (run, range) in &other.producers {
            widen(&mut self.producers, *run, *range);
        }
        for (stream, range) in &other.streams {
            widen(&mut self.streams, stream.clone(), *range);
        }
    }
}

type RangeLists = (Vec<(EntityId, u64, u64, u64)>, Vec<(String, i64, u64, u64)>);

impl OriginRanges {
    /// As it stands in footers: JSON, `[[entity, boot epoch, first, last], …]` and `[[stream, incarnation, first, last], …]`.
    pub(crate) fn to_text(&self) -> String {
        let producers = self
            .producers
            .iter()
            .map(|((entity, epoch), (first, last))| (*entity, *epoch, *first, *last));
        let streams = self
            .streams
            .iter()
            .map(|((name, made), (first, last))| (name.clone(), *made, *first, *last));
        let ranges: RangeLists = (producers.collect(), streams.collect());
        serde_json::to_string(&ranges).unwrap_or_default()
    }

    /// From a footer; what cannot be read is left out, nothing depends on it but a rebuild.
    pub(crate) fn from_text(text: &str) -> Self {
        let (producers, streams): RangeLists = serde_json::from_str(text).unwrap_or_default();
        Self {
            producers: producers
                .into_iter()
                .map(|(entity, epoch, first, last)| ((entity, epoch), (first, last)))
                .collect(),
            streams: streams
                .into_iter()
                .map(|(name, made, first, last)| ((name, made), (first, last)))
                .collect(),
        }
    }
}

fn widen<K: Ord>(ranges: &mut BTreeMap<K, (u64, u64)>, key: K, (first, last): (u64, u64)) {
    let range = ranges.entry(key).or_insert((first, last));
    *range = (range.0.min(first), range.1.max(last));
}
