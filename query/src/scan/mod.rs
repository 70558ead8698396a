//! Our own scan for lists of rows: the newest that meet conditions, without a plan.
//!
//! ```text
//! Request ─> Search: sources by how new they are ─> blocks of the newest one ─> positions, down to the cut ─> rows
//!              │                                       │
//!              └ hot batches, row groups, lines        └ conditions' columns only; pages from the cache
//! ```
//!
//! # Invariants
//!
//! - The answer has every row that the same conditions let through in a plan, down to the `ts` of the last wanted one.
//! - What the scan is not made for it says, and a plan answers: another layout than newest first, columns of another version, tens
//!   of thousands of rows with one `ts`.
//!
//! # Not here
//!
//! The order of rows of one `ts`, pages and cursors: [`crate::rows`]. Aggregates, SQL, trees of traces: plans.

mod cache;
mod conditions;
mod newest;
mod pages;
mod prune;
mod read;
mod source;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::Expr;
use engine::{ReadView, Segment};
use model::Table;

use self::cache::PageCache;
pub(crate) use self::conditions::Conditions;
use self::newest::{Halt, Means, Search};
pub(crate) use self::read::times_of;
use self::workers::{Patience, Workers};
use crate::reader::Meter;
use crate::window::Window;
use crate::{Error, Limits};

/// How long a scan reads on one thread before it is given others that are free.
const ALONE: Duration = Duration::from_millis(2);
/// How long a scan reads before others get its threads.
const SLICE: Duration = Duration::from_millis(10);

/// What to look for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) table: Table,
    pub(crate) window: Window,
    pub(crate) conditions: &'a [Expr],
    /// Rows of this `ts`, the last of the window, are all given and not counted.
    pub(crate) uncounted: Option<i64>,
    /// How many of the newest rows need not be given.
    pub(crate) skip: usize,
    /// How many rows to find, those to skip included.
    pub(crate) wanted: usize,
    pub(crate) meter: &'a Arc<Meter>,
    /// When the query began.
    pub(crate) started: Instant,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The rows, in no order; of the earliest `ts` all that there are.
    pub(crate) batches: Vec<RecordBatch>,
    /// So many newer rows were not given.
    pub(crate) skipped: usize,
    /// The memory of the rows, for as long as they are held.
    pub(crate) memory: MemoryReservation,
}

/// What all scans share.
#[derive(Debug)]
pub(crate) struct Scanner {
    cache: Arc<PageCache>,
    workers: Workers,
    timeout: Duration,
}

impl Scanner {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            cache: Arc::new(PageCache::new(limits.page_cache)),
            workers: Workers::new(limits.threads),
            timeout: limits.timeout,
        }
    }

    /// Waits until no scan reads any more.
    pub(crate) async fn close(&self) {
        self.workers.close().await;
    }

    /// The newest rows; `None` if a plan must answer.
    pub(crate) async fn newest(&self, state: &SessionState, request: Request<'_>) -> Result<Option<Found>, Error> {
        // Files of metrics lie by series: a plan finds their newest points. So it does in any file that lies otherwise.
        if request.table == Table::Metrics {
            return Ok(None);
        }
        let (patience, waiting) = Patience::new(request.started, self.timeout);
        let pool = &state.runtime_env().memory_pool;
        let means = Means {
            conditions: Conditions::new(state, request.table, request.conditions)?,
            needs: prune::needs(request.table, request.conditions),
            cache: Arc::clone(&self.cache),
            memory: MemoryConsumer::new("scan").register(pool),
            patience,
        };
        let search = Arc::new(Search::new(&request, means));
        let found = self.run(&search).await;
        drop(waiting);
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Halt::NotHere) => Ok(None),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    async fn run(&self, search: &Arc<Search>) -> Result<Found, Halt> {
        let mut slice = ALONE;
        let mut helpers = Vec::new();
        loop {
            let place = self.workers.enter().await.map_err(Halt::Failed)?;
            let lead = {
                let search = Arc::clone(search);
                workers::run(place, move || {
                    search.work(Instant::now() + slice)?;
                    search.is_done().then(|| search.gather()).transpose()
                })
            };
            if slice == SLICE {
                helpers.extend(self.workers.spare().into_iter().map(|place| {
                    let search = Arc::clone(search);
                    workers::run(place, move || search.work(Instant::now() + slice))
                }));
            }
            let mut found = joined(lead.await);
            for helper in helpers.drain(..) {
                if let Err(error) = joined(helper.await) {
                    found = found.and(Err(error));
                }
            }
            if let Some(found) = found? {
                return Ok(found);
            }
            for segment in search.away() {
                fetched(segment).await?;
            }
            slice = SLICE;
        }
    }
}

/// Has a segment here, by a thread that is none of those that read.
async fn fetched(segment: Arc<Segment>) -> Result<(), Halt> {
    let opened = tokio::task::spawn_blocking(move || segment.open().map(drop).map_err(Halt::from));
    joined(opened.await)
}

fn joined<T>(ended: Result<Result<T, Halt>, tokio::task::JoinError>) -> Result<T, Halt> {
    ended.unwrap_or_else(|stopped| Err(Halt::Failed(Error::Aborted(stopped.to_string()))))
}
