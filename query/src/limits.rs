//! The bounds of queries: memory, time, threads, rows and bytes.
//!
//! Not here: the bounds of one statement's plan ([`crate::sql`]), who may run now ([`crate::admission_gate`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::ByteSize;
use tokio::sync::Semaphore;

/// So many damaged files a query leaves behind before it gives up.
pub(crate) const DAMAGED_FILES: usize = 256;

/// The bounds of queries.
#[derive(Debug, Clone)]
pub struct QueryLimits {
    /// Memory that all queries share, with the pages, and what the engine keeps of indexes, for later ones.
    pub memory: ByteSize,
    /// Wall time of one query.
    pub timeout: Duration,
    /// Queries that run at once; SQL statements are three quarters of them at most, but one.
    pub max_concurrent: usize,
    /// Threads that run plans of typed queries, and as many those of SQL statements.
    pub threads: usize,
    /// Tails that run at once.
    pub max_followers: usize,
    /// Memory for the texts of rows that tails may still need.
    pub tail_texts: ByteSize,
    /// How long a tail may give earlier rows: until then it holds its view, and memory of queries.
    pub backlog: Duration,
    /// Rows that the answer of one SQL statement may have.
    pub max_rows: u64,
    /// Bytes of data files that one query may read, besides pages that are kept.
    pub max_scan: ByteSize,
    /// Where logs, traces and metrics are, if they are not stored here: questions about them say so.
    pub elsewhere: Option<Arc<str>>,
    /// Where sorts and aggregates put what exceeds their memory; without it they fail instead.
    pub spill_dir: Option<PathBuf>,
    #[cfg(test)]
    pub(crate) without: &'static [crate::scan::ScanShortcut],
}

impl QueryLimits {
    /// Limits with a thread per processor and no spilling.
    #[must_use]
    pub fn new(memory: ByteSize, timeout: Duration, max_concurrent: usize) -> Self {
        Self {
            memory,
            timeout,
            max_concurrent: max_concurrent.clamp(1, Semaphore::MAX_PERMITS >> 1),
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            max_followers: 200,
            tail_texts: ByteSize::mib(8),
            backlog: Duration::from_secs(600),
            max_rows: 1_000_000,
            max_scan: ByteSize::mib(1 << 20),
            elsewhere: None,
            spill_dir: None,
            #[cfg(test)]
            without: &[],
        }
    }

    /// The share of the memory of queries that belongs to what the engine keeps of indexes: [`engine::Settings::index_memory`].
    #[must_use]
    pub fn indexes_of(memory: ByteSize) -> ByteSize {
        ByteSize::bytes(memory.get() / 16)
    }

    /// Memory for pages of data files that may be asked for again: with what is kept of indexes a quarter.
    pub(crate) fn page_cache(&self) -> ByteSize {
        ByteSize::bytes(self.memory.get() / 4 - Self::indexes_of(self.memory).get())
    }

    /// Memory that all running queries share.
    pub(crate) fn running(&self) -> ByteSize {
        ByteSize::bytes(self.memory.get() - self.memory.get() / 4)
    }
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self::new(ByteSize::mib(512), Duration::from_secs(30), 8)
    }
}
