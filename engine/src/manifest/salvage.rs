//! Salvages a damaged catalogue: every checkpoint and record whose checksum is right.
//!
//! Records carry whole entries and whole marks, so what is read behind a damaged one is as true as what is read before it.
//!
//! # Not here
//!
//! What becomes of it: [`crate::manifest_rebuild`].

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::log::{list, log_path, parse};
use super::state::{ManifestRecord, ManifestState};
use crate::Error;

/// The remains of a catalogue.
#[derive(Debug)]
pub(crate) struct ManifestSalvage {
    /// As the last readable record left it.
    pub(crate) state: ManifestState,
    /// Segments that a readable record removed.
    pub(crate) removed: HashSet<u64>,
    /// The watermarks know every batch with a lower LSN.
    pub(crate) exact_below: u64,
    /// The highest generation that any file belongs to.
    pub(crate) newest: u64,
    /// Whether anything was readable.
    pub(crate) any: bool,
    /// All files of the catalogue.
    pub(crate) files: Vec<PathBuf>,
}

impl ManifestSalvage {
    /// Reads what can be read in `dir`.
    pub(crate) fn read(dir: &Path, store: Uuid) -> Result<Self, Error> {
        let files = list(dir)?;
        let start = files.start(dir, store)?.ok();
        let any = start.is_some();
        let (first, state) = start.unwrap_or_else(|| (0, ManifestState::new(store)));
        let mut salvage = Self {
            removed: HashSet::new(),
            exact_below: state.low_water,
            newest: files.newest(),
            any,
            state,
            files: files.paths(dir).map(|(_, path)| path).collect(),
        };
        let mut whole = salvage.any;
        for number in files.logs.iter().filter(|number| **number >= first) {
            let path = log_path(dir, *number);
            let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
            let mut at = 0;
            while at < bytes.len() {
                let Some((record, taken)) = parse(&bytes[at..], store, *number) else {
                    at += 1;
                    continue;
                };
                at += taken;
                whole = salvage.take(record, whole);
            }
        }
        Ok(salvage)
    }

    /// Applies a record that is newer than the state. Whether every record up to it was there, if that was so before it.
    fn take(&mut self, record: ManifestRecord, whole: bool) -> bool {
        if record.version <= self.state.version {
            return whole;
        }
        let whole = whole && record.version == self.state.version + 1;
        self.any = true;
        self.removed.extend(&record.remove);
        self.state.apply(record);
        if whole {
            self.exact_below = self.state.low_water;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::{StoreManifest, checkpoint};
    use super::*;

    const STORE: Uuid = Uuid::from_u128(7);

    /// A catalogue of a checkpoint and three records, with low waters 10, 20, 30. Its log and the end of each record.
    fn catalogue(dir: &Path) -> (PathBuf, Vec<u64>) {
        let mut catalog = StoreManifest::read(dir, STORE).unwrap().begin().unwrap();
        let log = log_path(dir, 1);
        let mut ends = vec![fs::metadata(&log).unwrap().len()];
        for n in 1..=3 {
            let record = ManifestRecord {
                low_water: n * 10,
                remove: vec![n],
                ..ManifestRecord::default()
            };
            catalog.commit(record).unwrap();
            ends.push(fs::metadata(&log).unwrap().len());
        }
        (log, ends)
    }

    #[test]
    fn records_after_a_damaged_one_count_but_watermarks_are_complete_only_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let (log, ends) = catalogue(dir.path());
        let whole = fs::read(&log).unwrap();
        for (damaged, exact, removed) in [(0, 0, vec![2, 3]), (1, 10, vec![1, 3]), (2, 20, vec![1, 2])] {
            let mut bytes = whole.clone();
            bytes[usize::try_from(ends[damaged]).unwrap() + 12] ^= 1;
            fs::write(&log, bytes).unwrap();
            let salvage = ManifestSalvage::read(dir.path(), STORE).unwrap();
            assert_eq!(salvage.exact_below, exact);
            assert_eq!(salvage.removed, removed.into_iter().collect());
            assert_eq!(salvage.state.low_water, if damaged == 2 { 20 } else { 30 });
            assert_eq!((salvage.newest, salvage.any, salvage.files.len()), (1, true, 2));
        }
    }

    #[test]
    fn without_a_checkpoint_records_count_but_nothing_is_whole_and_without_files_there_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!ManifestSalvage::read(dir.path(), STORE).unwrap().any);
        catalogue(dir.path());
        fs::write(checkpoint::path(dir.path(), 1), "no checkpoint").unwrap();
        let salvage = ManifestSalvage::read(dir.path(), STORE).unwrap();
        assert_eq!(
            (salvage.any, salvage.exact_below, salvage.state.low_water),
            (true, 0, 30)
        );
        assert!(
            !ManifestSalvage::read(dir.path(), Uuid::nil()).unwrap().any,
            "another store's"
        );
    }
}
