//! Rebuilds every sidecar index of a store that is not open.
//!
//! # Invariants
//!
//! - If it is interrupted, the next start builds the missing ones: there is nothing to repair.

use std::path::PathBuf;

use serde::Serialize;

use crate::datafile::FilePrefix;
use crate::index::{IndexedFile, is_indexed, sidecar_builder, write_sidecar};
use crate::integrity_check::{FileProblem, StoreInspector};
use crate::manifest::FileEntry;
use crate::store_tree::lock_store;
use crate::{Error, Settings};

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IndexReport {
    /// Indexes that were made.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Data files that could not be indexed; queries read them.
    pub problems: Vec<FileProblem>,
}

/// Throws the indexes away and makes them from the data files that are here. `each` is called before each file, with the files
/// done and all of them.
///
/// # Errors
/// If there is no store, a Mixer has it, its catalogue is damaged, or the system refuses.
pub fn rebuild_index(settings: &Settings, mut each: impl FnMut(u64, u64)) -> Result<IndexReport, Error> {
    let store = StoreInspector::open(settings)?;
    let _locks = lock_store(&store.layout, settings)?;
    let folder = &store.layout.index;
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("remove", folder)(error)),
        _ => {}
    }
    let found = store.load()?;
    let is_wanted = |entry: &&FileEntry| entry.sealed && entry.form.is_parquet() && is_indexed(entry.table);
    let entries: Vec<&FileEntry> = found.state.files().filter(is_wanted).collect();
    let mut report = IndexReport::default();
    for (done, entry) in entries.iter().enumerate() {
        each(done as u64, entries.len() as u64);
        let path = entry.path(&store.layout);
        match make(&store, entry, &path) {
            Ok(0) => {}
            Ok(bytes) => {
                report.files += 1;
                report.bytes += bytes;
            }
            Err(error) => report
                .problems
                .push(FileProblem::new(path, error.to_string(), entry.rows)),
        }
    }
    each(entries.len() as u64, entries.len() as u64);
    Ok(report)
}

/// Makes the index of a file, of so many bytes; none if the object store has the file and this machine has not.
fn make(store: &StoreInspector, entry: &FileEntry, path: &PathBuf) -> Result<u64, Error> {
    let file = match std::fs::File::open(path) {
        Ok(file) => FilePrefix::new(file, entry.size),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && store.is_remote(entry) => return Ok(0),
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    let owner = IndexedFile {
        store: store.id,
        table: entry.table,
        segment: entry.id,
        version: entry.version,
        size: entry.size,
        crc: entry.crc,
        rows: entry.rows,
    };
    let Some(bytes) = sidecar_builder::build(&file, path, &owner, || true)? else {
        return Ok(0);
    };
    let sidecar = store.layout.sidecar(entry.table, (entry.id, entry.version));
    write_sidecar(&sidecar, &bytes)?;
    Ok(bytes.len() as u64)
}
