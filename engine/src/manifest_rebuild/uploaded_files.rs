//! The uploaded files of a store whose catalogue is rebuilt.
//!
//! # Invariants
//!
//! - An object is read whole before it stands for a file that is in the tree.
//! - A file that expired does not come back.

use std::collections::HashSet;

use super::{ManifestRebuild, RebuildCandidate};
use crate::Error;
use crate::integrity_check::FileProblem;
use crate::memtable::OriginRanges;

impl ManifestRebuild<'_> {
    /// Takes over what the object store has and the tree has not, or only damaged or as an earlier version.
    pub(super) fn take_uploaded(&mut self) -> Result<(), Error> {
        let Some(bucket) = &self.bucket else {
            return Ok(());
        };
        let emptied = self.removed.iter().map(|(_, _, id, _)| id);
        let expired = self.salvage.removed.iter().chain(&self.salvage.state.gone);
        let removed: HashSet<u64> = emptied.chain(expired).copied().collect();
        let problems = &mut self.report.problems;
        for entry in bucket.files().filter(|entry| !removed.contains(&entry.id)) {
            let path = entry.path(&self.layout);
            let here = self.candidates.get(&entry.id).map(|file| file.entry.version);
            let problem = match (problems.iter().position(|problem| problem.path == path), here) {
                (Some(at), _) => Some(problems.remove(at)),
                (None, Some(version)) if version >= entry.version => continue,
                (None, Some(version)) => {
                    let what = format!("it is version {version}, the object store has {}", entry.version);
                    Some(FileProblem::new(path, what, entry.rows))
                }
                (None, None) => None,
            };
            if let Some(mut problem) = problem {
                let differs = bucket.differs(entry, true)?;
                problem.object_is_sound = differs.is_none();
                match &differs {
                    None => problem.rows = entry.rows,
                    Some(there) => problem.what = format!("{}, and {there}", problem.what),
                }
                problems.push(problem);
                if differs.is_some() {
                    continue;
                }
            }
            let candidate = RebuildCandidate {
                entry: entry.clone(),
                through: entry.last,
                origins: OriginRanges::default(),
            };
            self.candidates.insert(entry.id, candidate);
        }
        Ok(())
    }
}
