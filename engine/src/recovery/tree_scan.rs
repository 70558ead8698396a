//! Scans the trees of data files once at a start, on several threads, folder by folder.
//!
//! A name that the layout makes is kept as what it means, not as a path: of 100,000 files a few megabytes. Sizes are looked
//! up beside the names, where that costs least.
//!
//! # Not here
//!
//! What becomes of files that the catalogue does not know: [`super::file_reconciliation`].

use std::collections::HashSet;
use std::path::PathBuf;
use std::thread::{Builder, scope};
use std::vec::IntoIter;

use model::Table;
use parking_lot::Mutex;

use super::join_thread;
use crate::Error;
use crate::layout::{DataFileName, StoreLayout, parse_name};
use crate::manifest::{FileEntry, ManifestState};
use crate::memtable::PartitionKey;

/// Threads that look, at most.
const THREADS: usize = 4;

/// A file under a name that the layout makes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScannedFile {
    place: PartitionKey,
    named: DataFileName,
    size: u64,
}

/// The files of all trees.
#[derive(Debug, Default)]
pub(super) struct TreeScan {
    /// In order.
    ours: Vec<ScannedFile>,
    others: Vec<(Table, PathBuf)>,
}

/// A folder to look into.
#[derive(Debug)]
struct PendingFolder {
    path: PathBuf,
    table: Table,
    /// How far below the table's folder.
    depth: usize,
}

impl TreeScan {
    /// Looks into every tree.
    pub(super) fn survey(layout: &StoreLayout) -> Result<Self, Error> {
        let mut tree = Self::default();
        let mut deep = Vec::new();
        let mut near: Vec<PendingFolder> = Table::ALL.map(|table| PendingFolder::root(layout, table)).into();
        while let Some(folder) = near.pop() {
            if folder.is_deep() {
                deep.push(folder);
            } else {
                tree.list(layout, &folder, &mut near)?;
            }
        }
        tree.take_all(layout, deep)?;
        tree.ours.sort_unstable();
        Ok(tree)
    }

    fn take_all(&mut self, layout: &StoreLayout, folders: Vec<PendingFolder>) -> Result<(), Error> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        // A thread for a handful of folders costs more than it saves.
        let threads = threads.min(THREADS).min(folders.len() / 4);
        let folders = Mutex::new(folders.into_iter());
        let parts = scope(|scope| {
            let start = |_| {
                let thread = Builder::new().name("engine-survey".to_owned());
                thread.spawn_scoped(scope, || Self::of(layout, &folders)).ok()
            };
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let own = Self::of(layout, &folders);
            let mut parts: Vec<_> = others.into_iter().map(join_thread).collect();
            parts.push(own);
            parts
        });
        for part in parts {
            let part = part?;
            self.ours.extend(part.ours);
            self.others.extend(part.others);
        }
        Ok(())
    }

    /// What is in the folders that are left, and below them.
    fn of(layout: &StoreLayout, folders: &Mutex<IntoIter<PendingFolder>>) -> Result<Self, Error> {
        let mut tree = Self::default();
        let mut below = Vec::new();
        loop {
            let next = below.pop().or_else(|| folders.lock().next());
            let Some(folder) = next else {
                return Ok(tree);
            };
            tree.list(layout, &folder, &mut below)?;
        }
    }

    fn list(
        &mut self,
        layout: &StoreLayout,
        folder: &PendingFolder,
        below: &mut Vec<PendingFolder>,
    ) -> Result<(), Error> {
        let path = &folder.path;
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io("list", path)(error)),
        };
        let table = folder.table;
        let partition = layout.partition_of(table, path);
        for entry in entries {
            let entry = entry.map_err(Error::io("list", path))?;
            let kind = entry.file_type().map_err(Error::io("read", path))?;
            if kind.is_dir() {
                below.push(PendingFolder {
                    path: entry.path(),
                    table,
                    depth: folder.depth + 1,
                });
                continue;
            }
            let name = entry.file_name();
            let ours = partition.filter(|_| kind.is_file()).and_then(|partition| {
                let named = parse_name(table, partition.parts().2, name.to_str()?)?;
                Some(((table, partition), named))
            });
            match ours {
                Some((place, named)) => {
                    let size = entry.metadata().map_err(Error::io("read", path))?.len();
                    self.ours.push(ScannedFile { place, named, size });
                }
                None => self.others.push((table, entry.path())),
            }
        }
        Ok(())
    }

    /// The size of an entry's file; `None` if it was not found as a file of its own.
    pub(super) fn size_of(&self, entry: &FileEntry) -> Option<u64> {
        let key = (entry.place(), entry.named());
        let key_of = |seen: &ScannedFile| (seen.place, seen.named);
        let at = self.ours.binary_search_by_key(&key, key_of).ok()?;
        self.ours.get(at).map(|seen| seen.size)
    }

    /// The files that no entry names, by table and path.
    pub(super) fn unknown(&self, state: &ManifestState, layout: &StoreLayout) -> Vec<(Table, PathBuf)> {
        let named = |seen: &&ScannedFile| {
            let entry = state.file_at(seen.place, seen.named.number);
            entry.is_some_and(|entry| entry.named() == seen.named)
        };
        let ours = self.ours.iter().filter(|seen| !named(seen)).map(|seen| {
            let (table, partition) = seen.place;
            (table, layout.file(table, partition, seen.named))
        });
        // A link to a file stands for it.
        let live: HashSet<PathBuf> = match self.others[..] {
            [] => HashSet::new(),
            _ => state.files().map(|entry| entry.path(layout)).collect(),
        };
        let others = self.others.iter().filter(|(_, path)| !live.contains(path)).cloned();
        let mut unknown: Vec<_> = ours.chain(others).collect();
        unknown.sort();
        unknown
    }
}

impl PendingFolder {
    fn root(layout: &StoreLayout, table: Table) -> Self {
        Self {
            path: layout.folder(table),
            table,
            depth: 0,
        }
    }

    /// Whether it is worth a thread's while: a month or a day, or whatever lies as deep.
    const fn is_deep(&self) -> bool {
        let before_dates = if matches!(self.table, Table::Messages) { 2 } else { 0 };
        self.depth >= before_dates + 2
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Settings;
    use crate::layout::{file_number, parse_path};

    #[test]
    fn names_that_the_layout_makes_are_known_and_every_other_file_is_somebody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StoreLayout::new(&Settings::new(dir.path()));
        let ours = [
            "telemetry/logs/2026/03/02/10/logs_001.parquet",
            "telemetry/logs/2026/03/02/10/logs_1000.json",
            "telemetry/metrics/2026/03/02/metrics_012.json.zst",
            "telemetry/dead_letters/0001/01/01/00/dead_letters_001.json.sz",
            "messages/generic/2026/03/02/10/fluxmsg_001.parquet",
            "messages/fluxSpec/order_paid/2026/03/02/10/order_paid_001.parquet",
            "messages/fluxSpec/order_paid/2026/03/02/10/paid_002.parquet",
        ];
        let others = [
            "telemetry/logs/2026/03/02/10/logs_01.parquet",
            "telemetry/logs/2026/03/02/10/logs_0001.parquet",
            "telemetry/logs/2026/03/02/10/traces_001.parquet",
            "telemetry/logs/2026/03/02/10/.logs_001.parquet",
            "telemetry/logs/2026/03/02/24/logs_001.parquet",
            "telemetry/logs/2026/02/30/10/logs_001.parquet",
            "telemetry/logs/0000/01/01/10/logs_001.parquet",
            "telemetry/logs/2026/3/02/10/logs_001.parquet",
            "telemetry/logs/2026/03/02/10/11/logs_001.parquet",
            "telemetry/logs/2026/03/logs_001.parquet",
            "telemetry/logs/readme.txt",
            "messages/generic/2026/03/02/10/order_paid_001.parquet",
            "messages/fluxSpec/order_paid/2026/03/02/10/paid order_001.parquet",
            "messages/fluxSpec/no spec/2026/03/02/10/fluxmsg_001.parquet",
            "messages/elsewhere/2026/03/02/10/fluxmsg_001.parquet",
        ];
        for path in ours.iter().chain(&others) {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, path.to_str().unwrap()).unwrap();
        }
        let tree = TreeScan::survey(&layout).unwrap();
        let sorted = |paths: &[&str]| {
            let mut paths: Vec<_> = paths.iter().map(|path| dir.path().join(path)).collect();
            paths.sort();
            paths
        };
        let path_of = |seen: &ScannedFile| layout.file(seen.place.0, seen.place.1, seen.named);
        let mut found: Vec<_> = tree.ours.iter().map(path_of).collect();
        found.sort();
        assert_eq!(found, sorted(&ours));
        for (seen, path) in tree.ours.iter().map(|seen| (seen, path_of(seen))) {
            assert_eq!(seen.size, path.to_str().unwrap().len() as u64);
            assert_eq!(file_number(seen.place.0, &path), Some(seen.named.number));
            let place = (seen.place.1, seen.named);
            assert_eq!(
                parse_path(&layout, seen.place.0, &path, seen.place.1.start()),
                Some(place)
            );
        }
        let mut found: Vec<_> = tree.others.iter().map(|(_, path)| path.clone()).collect();
        found.sort();
        assert_eq!(found, sorted(&others));
        assert_eq!(
            tree.unknown(&ManifestState::default(), &layout).len(),
            ours.len() + others.len()
        );
    }

    #[test]
    fn many_folders_are_all_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StoreLayout::new(&Settings::new(dir.path()));
        for (year, month) in (2001..2011).flat_map(|year| (1..=12).map(move |month| (year, month))) {
            let folder = layout.data.join(format!("logs/{year}/{month:02}/01"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("logs_001.parquet"), "").unwrap();
        }
        assert_eq!(TreeScan::survey(&layout).unwrap().ours.len(), 120);
    }
}
