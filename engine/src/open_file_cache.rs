//! Open-file cache: keeps handles of data files open, so that a query need not open and verify a file that an earlier query had
//! open. Sidecar indexes have a cache of their own.
//!
//! # Invariants
//!
//! - A handle reads the bytes of its version for as long as it is kept, even if the name goes to another file: it was verified by the
//!   footer's checksum, and nobody writes to an inode that is open.
//! - The handle of a version is closed when the version is gone. Until then the flusher cannot extend the inode, and a file without
//!   a name takes space.
//! - The cache keeps far fewer handles than the process may have open.

use std::fs::File;
use std::hash::Hash;
use std::sync::Arc;

use crate::WeightedCache;
use crate::layout::FileVersionKey;

/// Handles that are kept, at most.
const MOST: usize = 1024;
/// Those of a process that may open so few that a quarter of them is less.
const LEAST: usize = 64;

/// A cache of open files, each of weight 1.
pub(crate) type OpenFileCache<K = FileVersionKey> = WeightedCache<K, Arc<File>>;

/// None yet.
pub(crate) fn no_files<K: Copy + Eq + Hash>() -> OpenFileCache<K> {
    WeightedCache::new(room(&std::fs::read_to_string("/proc/self/limits").unwrap_or_default()))
}

/// A quarter of what the process may have open.
fn room(limits: &str) -> usize {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => MOST,
        soft => soft
            .and_then(|soft| soft.parse().ok())
            .map_or(LEAST, |soft: usize| (soft / 4).clamp(LEAST, MOST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_take_a_quarter_of_what_the_process_may_open() {
        let limits = |soft: &str| format!("Limit  Soft Limit  Hard Limit  Units\nMax open files {soft} 524288 files\n");
        assert_eq!(room(&limits("1024")), 256);
        assert_eq!(room(&limits("1048576")), MOST);
        assert_eq!(room(&limits("unlimited")), MOST);
        assert_eq!((room(&limits("20")), room("")), (LEAST, LEAST));
    }
}
