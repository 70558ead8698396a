//! Objects that no record names: uploads of a writer that died, or was pushed out, before it could record them.
//!
//! Readers of the bucket would see their rows twice, because what was not recorded is stored again when it comes again.
//!
//! # Invariants
//!
//! - Only names that an earlier or this folder's writer gives are deleted, never those of a later one: it may be about to
//!   record them. Foreign objects are left alone.

use std::path::Path;

use model::Table;

use super::chain::Chain;
use super::format::{MESSAGES, Names, TELEMETRY};
use super::io::Io;
use crate::Error;
use crate::layout::file_number;
use crate::segment::Form;

/// Deletes what no record names. The chain's end must be known. How many.
pub(super) fn delete(io: &Io, names: &Names, chain: &Chain) -> Result<u64, Error> {
    let state = chain.state();
    let named: std::collections::HashSet<_> = state
        .files
        .values()
        .map(|file| names.object(&file.key))
        .chain(state.doomed.keys().map(|key| names.object(key)))
        .collect();
    let mut orphans = Vec::new();
    for (tree, is_messages) in [(TELEMETRY, false), (MESSAGES, true)] {
        let all = names.object(tree);
        let listed = io.list(all.clone(), all)?.into_iter().map(|object| object.location);
        let ours = |name: &str| {
            let generation = generation(name, |table| (table == Table::Messages) == is_messages);
            generation.is_some_and(|generation| generation <= state.writer.generation.max(1))
        };
        orphans.extend(listed.filter(|path| !named.contains(path) && path.filename().is_some_and(ours)));
    }
    let count = orphans.len() as u64;
    io.delete_all(orphans)?;
    Ok(count)
}

/// Of which folder's writer a name is, if it is that of a data file of these tables.
fn generation(name: &str, of: impl Fn(Table) -> bool) -> Option<u64> {
    let (stem, form) = Form::split(name)?;
    let (stem, generation) = match stem.rsplit_once("_w") {
        Some((stem, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => (stem, digits.parse().ok()?),
        _ => (stem, 1),
    };
    let plain = format!("{stem}.{}", form.ending());
    let is_ours = |table: &Table| file_number(*table, Path::new(&plain)).is_some();
    let mut tables = Table::ALL.iter().filter(|table| of(**table));
    tables.any(is_ours).then_some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is_and_foreign_ones_are_nobodys() {
        let telemetry = |name| generation(name, |table| table != Table::Messages);
        let messages = |name| generation(name, |table| table == Table::Messages);
        assert_eq!(telemetry("logs_001.parquet"), Some(1));
        assert_eq!(telemetry("dead_letters_1000_w12.json.zst"), Some(12));
        assert_eq!(messages("fluxmsg_001_w2.parquet"), Some(2));
        assert_eq!(messages("orders_001.parquet"), Some(1));
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
