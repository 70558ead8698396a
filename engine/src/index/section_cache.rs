//! Section cache: small sections of sidecars are cached whole, by bytes; of large ones the handle. And memory
//! for the indexes of open files, which are in memory only.
//!
//! A store has either few large sections or many small ones. What is in no file is looked up in all of them: with the
//! small ones in memory that opens and reads nothing.
//!
//! # Invariants
//!
//! - What is kept is of one opening of a sidecar: one that is made anew meanwhile may have sections of another form under the
//!   same kinds, and shares nothing with the one before.
//! - All sections together have at most the bytes that they were given, what keeping them costs included; so have the indexes of open
//!   files.
//! - A lookup walks over all files, so of more than fit, each would go before it is asked again. While there is no room, most
//!   are read in pieces instead, and only some come in, for those whose turn it is to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::sidecar_format::SectionKind;
use crate::WeightedCache;
use crate::open_file_cache::{OpenFileCache, no_files};

/// A larger section is read in pieces: to read it whole would take longer than many lookups in it.
const LARGEST: usize = 64 << 10;
/// What it costs to keep a section, beside its bytes.
const EACH: usize = 128;
/// What it costs to keep the index of a row group, beside its bytes.
const EACH_GROUP: usize = 512;
/// Of so many sections that find no room, one comes in for others.
const ONE_IN: usize = 16;

/// One opening of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OpeningId(u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct SectionCache {
    most: usize,
    opened: AtomicU64,
    sections: WeightedCache<(OpeningId, SectionKind), Arc<[u8]>>,
    refused: AtomicUsize,
    /// Bytes of indexes of open files.
    open: AtomicUsize,
    /// Handles of sidecars.
    pub(super) files: OpenFileCache<OpeningId>,
}

impl SectionCache {
    /// Nothing yet; sections may take so many bytes, and indexes of open files as many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            opened: AtomicU64::new(0),
            sections: WeightedCache::new(most),
            refused: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            files: no_files(),
        }
    }

    /// A sidecar is opened.
    pub(super) fn begin(&self) -> OpeningId {
        OpeningId(self.opened.fetch_add(1, Ordering::Relaxed))
    }

    /// A section, if it is kept.
    pub(super) fn section(&self, key: OpeningId, kind: SectionKind) -> Option<Arc<[u8]>> {
        self.sections.get((key, kind))
    }

    /// Whether a section of so many bytes, which is not kept, is to be read whole and kept.
    pub(super) fn wants(&self, length: u64) -> bool {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LARGEST || length + EACH > self.most {
            return false;
        }
        self.sections.has_room(length + EACH) || self.refused.fetch_add(1, Ordering::Relaxed) % ONE_IN == ONE_IN - 1
    }

    pub(super) fn keep(&self, key: OpeningId, kind: SectionKind, section: Arc<[u8]>) {
        let weight = section.len() + EACH;
        self.sections.put((key, kind), section, weight);
    }

    /// Whether there is room for the index of a row group of so many bytes.
    pub(super) fn has_room_for_open(&self, bytes: usize) -> bool {
        self.open_bytes() + bytes + EACH_GROUP <= self.most
    }

    /// Takes the room. Whether it was there; one thread takes it.
    pub(super) fn take_room_for_open(&self, bytes: usize) -> bool {
        let has_room = self.has_room_for_open(bytes);
        if has_room {
            self.open.fetch_add(bytes + EACH_GROUP, Ordering::Relaxed);
        }
        has_room
    }

    pub(super) fn give_room_back(&self, bytes: usize) {
        self.open.fetch_sub(bytes + EACH_GROUP, Ordering::Relaxed);
    }

    /// What the indexes of open files take.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Nobody has it open any more.
    pub(super) fn forget(&self, key: OpeningId) {
        for kind in SectionKind::KEPT {
            self.sections.forget((key, kind));
        }
        self.files.forget(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: SectionKind = SectionKind::TraceIds;

    fn section(bytes: usize) -> Arc<[u8]> {
        vec![0; bytes].into()
    }

    #[test]
    fn of_more_sections_than_fit_most_stay_over_walks_through_all() {
        let each = 1_000 + EACH;
        let memory = SectionCache::new(50 * each);
        let (mut found, mut read) = (0, 0);
        for round in 0..20 {
            for id in (0..60).map(OpeningId) {
                if memory.section(id, KIND).is_some() {
                    found += u64::from(round > 0);
                } else if memory.wants(1_000) {
                    read += u64::from(round > 0);
                    memory.keep(id, KIND, section(1_000));
                }
            }
        }
        assert!(found > 19 * 40, "{found}");
        assert!((1..100).contains(&read), "{read}: others get a turn, few at once");
    }

    #[test]
    fn what_is_large_or_beyond_the_bound_is_not_kept_and_what_is_forgotten_is_gone() {
        let memory = SectionCache::new(LARGEST + EACH);
        assert!(memory.wants(LARGEST as u64) && !memory.wants(LARGEST as u64 + 1) && !memory.wants(u64::MAX));
        assert!(!SectionCache::new(0).wants(0) && !SectionCache::new(1_000).wants(1_000));
        let (gone, other) = (memory.begin(), memory.begin());
        memory.keep(gone, KIND, section(9));
        memory.keep(other, KIND, section(9));
        memory.forget(gone);
        assert!(memory.section(gone, KIND).is_none() && memory.section(other, KIND).is_some());
    }
}
