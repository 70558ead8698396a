//! Sweeps orphaned objects: uploads of a writer that died, or was fenced off, before it could record them.
//!
//! Readers of the bucket would see their rows twice, because what was not recorded is stored again when it comes again.
//!
//! # Invariants
//!
//! - Only the trees of data files and of pieces are looked through: what lies beside them has no record and is not swept.
//! - Only names that an earlier or this folder's writer gives are deleted, never those of a later one: it may be about to
//!   record them.
//! - In the tree only a data file of this store is deleted, by its own footer, and only one whose segment no record names: a
//!   copy that somebody made under a name like ours stays as long as the file that it was made of is recorded.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use model::Table;
use object_store::path::Path as ObjectPath;

use super::commit_log::CommitLog;
use super::object_format::{MESSAGES, PIECES, TELEMETRY};
use super::takeover::RemoteLink;
use crate::Error;
use crate::datafile::{FileFormat, inspect};
use crate::layout::{StoreLayout, file_number};

/// A data file of ours is smaller.
const LARGEST: u64 = 1 << 30;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(3_600);

/// The search for orphans, now and then.
#[derive(Debug, Default)]
pub(crate) struct OrphanSweep {
    swept: Option<Instant>,
    /// Objects with names like ours that are not: looked into once.
    foreign: HashSet<ObjectPath>,
}

impl OrphanSweep {
    /// Deletes what no record names, if it is time. The chain's end must be known; `made` are objects of this writer that it
    /// is about to record.
    pub(crate) fn run(
        &mut self,
        link: &RemoteLink,
        chain: &CommitLog,
        layout: &StoreLayout,
        made: &HashMap<String, (u64, u32)>,
    ) -> Result<(), Error> {
        if self.swept.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        // One that fails is not tried again at once: cuts wait for it.
        self.swept = Some(Instant::now());
        let state = chain.state();
        let replaced = state.files.values().filter_map(|file| file.replaces.as_ref());
        let keys = state.files.values().map(|file| &file.key).chain(state.doomed.keys());
        let keys = keys.chain(replaced.map(|old| &old.key)).chain(made.keys());
        let named: HashSet<ObjectPath> = keys.map(|key| link.names.object(key)).collect();
        let numbered: HashSet<_> = named.iter().map(without_writer).collect();
        let mut orphans = Vec::new();
        for tree in [TELEMETRY, MESSAGES, PIECES] {
            let all = link.names.object(tree);
            for object in link.io.list(all.clone(), all)? {
                let path = object.location;
                let of = path.filename().and_then(|name| writer_of(name, tree));
                let newest = if tree == PIECES {
                    state.writer.epoch
                } else {
                    state.writer.generation.max(1)
                };
                let is_ours = of.is_some_and(|writer| writer <= newest) && object.size < LARGEST;
                if named.contains(&path) || !is_ours || self.foreign.contains(&path) {
                    continue;
                }
                // Of an earlier writer, under the number of a file that a later one recorded.
                let is_older = numbered.contains(&without_writer(&path));
                if tree == PIECES || is_orphan(link, chain, layout, (&path, is_older))? {
                    orphans.push(path);
                } else {
                    self.foreign.insert(path);
                }
            }
        }
        let deleted = orphans.len();
        link.io.delete_all(orphans)?;
        if deleted > 0 {
            tracing::info!(deleted, "deleted orphaned objects");
        }
        Ok(())
    }
}

/// An object's name without its ending and its writer.
fn without_writer(path: &ObjectPath) -> (&str, &str) {
    let (folder, name) = path.as_ref().rsplit_once('/').unwrap_or(("", path.as_ref()));
    let stem = FileFormat::split(name).map_or(name, |(stem, _)| stem);
    match stem.rsplit_once("_w") {
        Some((stem, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => (folder, stem),
        _ => (folder, stem),
    }
}

/// Whether an object is a data file of this store, of a segment that no record names or under a number that is taken.
fn is_orphan(
    link: &RemoteLink,
    chain: &CommitLog,
    layout: &StoreLayout,
    (path, is_older): (&ObjectPath, bool),
) -> Result<bool, Error> {
    let Some(bytes) = link.io.get(path.clone())? else {
        return Ok(false);
    };
    let staged = layout.piece(Table::Logs, link.io.nonce());
    std::fs::write(&staged, &bytes).map_err(Error::io("write", &staged))?;
    let found = inspect(&staged);
    durable_fs::remove_if_there(&staged)?;
    let state = chain.state();
    Ok(found.is_ok_and(|about| {
        let segment = about.identity.segment;
        about.identity.store == state.store && (is_older || state.parts_of(segment).is_empty())
    }))
}

/// Which writer a name is of, if it is that of a data file (by generations) or of a piece (by epochs), in this tree.
fn writer_of(name: &str, tree: &str) -> Option<u64> {
    let (stem, form) = FileFormat::split(name)?;
    let (stem, generation) = match stem.rsplit_once("_w") {
        Some((stem, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => (stem, digits.parse().ok()?),
        _ => (stem, 1),
    };
    if tree == PIECES {
        let is_id = stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit());
        return is_id.then_some(generation);
    }
    let plain = format!("{stem}.{}", form.ending());
    let is_ours = |table: &Table| file_number(*table, Path::new(&plain)).is_some();
    let is_here = |table: &&Table| (**table == Table::Messages) == (tree == MESSAGES);
    Table::ALL.iter().filter(is_here).any(is_ours).then_some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is_and_foreign_ones_are_nobodys() {
        let telemetry = |name| writer_of(name, TELEMETRY);
        let messages = |name| writer_of(name, MESSAGES);
        assert_eq!(telemetry("logs_001.parquet"), Some(1));
        assert_eq!(telemetry("dead_letters_1000_w12.json.zst"), Some(12));
        assert_eq!(messages("fluxmsg_001_w2.parquet"), Some(2));
        assert_eq!(messages("orders_001.parquet"), Some(1));
        assert_eq!(writer_of("00000000000000000007_w3.parquet", PIECES), Some(3));
        for foreign in [
            "notes.parquet",
            "notes_001.parquet",
            "logs_1.parquet",
            "logs_abc.parquet",
            "logs_001.csv",
            "logs_001_wx.parquet",
        ] {
            assert_eq!(telemetry(foreign), None, "{foreign}");
        }
    }
}
