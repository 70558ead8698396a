//! Our own scan for lists of rows: the newest, or the oldest, that meet conditions, without a plan.
//!
//! ```text
//! Request ─> Search: sources by rank ─> blocks of the first one ─> positions, down to the cut ─> rows
//!              │                           │
//!              └ hot batches, row groups, lines        └ conditions' columns only; pages from the cache
//! ```
//!
//! A time's [`rank`] is the greater the sooner the order comes to it: all that decides what is read next, and what no more, goes by
//! ranks, so that both orders are one search.
//!
//! # Invariants
//!
//! - The answer has every row that the same conditions let through in a plan, down to the `ts` of the last wanted one.
//! - What the scan is not made for it says, and a plan answers: another layout than newest first, columns of another version, tens
//!   of thousands of rows with one `ts`.
//!
//! [`ScanExecutor::full_scan`] reads the same pieces in no order, for sums of metric points. [`ScanExecutor::prune_files`] tells plans which files they
//! need not open, [`ScanExecutor::count_from_rollup`] what need not be read to be counted.
//!
//! # Not here
//!
//! The order of rows of one `ts`, pages and cursors: [`crate::keyset_pagination`]. Other aggregates, SQL, trees of traces: plans.

mod from_rollup;
mod full_scan;
mod index_pruning;
mod ngram_predicate;
mod page_cache;
mod prune;
mod row_group;
mod row_group_scan;
mod row_source;
mod scan_filter;
mod scan_workers;
mod top_k;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::Expr;
use engine::{DataFileHandle, ReadView};
use model::filter::SortOrder;
use model::{ByteSize, Table};
use tokio::runtime::Handle;

pub(crate) use self::from_rollup::{RollupCounts, RollupGrouping, RollupQuery};
use self::full_scan::FullScan;
pub(crate) use self::full_scan::{FullScanRequest, RowSink};
pub(crate) use self::index_pruning::{CandidateFiles, SegmentSelection};
use self::page_cache::PageCache;
pub(crate) use self::prune::asks_for_ids;
use self::prune::{PruningConditions, needs};
pub(crate) use self::row_group_scan::times_of;
pub(crate) use self::scan_filter::{ScanFilter, row_slices};
use self::scan_workers::{ScanDeadline, ScanWorkers, TimeSlicedPermit};
use self::top_k::{ScanError, TopKScan};
use crate::segment_reader::ScanMeter;
use crate::time_range::TimeRange;
use crate::{Error, QueryLimits};

/// How long a scan reads on one thread before it is given others that are free.
const ALONE: Duration = Duration::from_millis(2);
/// How long a scan reads before others get its threads.
const SLICE: Duration = Duration::from_millis(10);

/// How soon an order comes to a time: of two, the greater comes first. Its own inverse.
pub(crate) const fn rank(order: SortOrder, ts: i64) -> i64 {
    match order {
        SortOrder::Desc => ts,
        SortOrder::Asc => !ts,
    }
}

/// Reading that several threads do together, a slice of time after another.
trait ScanTask: Send + Sync + 'static {
    /// What comes out.
    type Found: Send + 'static;
    /// Reads until it is done, nothing is left to take, or it is time.
    fn work(&self, until: Instant) -> Result<(), ScanError>;
    fn is_done(&self) -> bool;
    /// What must be opened before it goes on, by somebody who may wait for a network.
    fn take_remote(&self) -> Vec<Arc<DataFileHandle>>;
    /// What was found, once; it is gone from the task.
    fn take_result(&self) -> Result<Self::Found, ScanError>;
}

/// What to look for.
#[derive(Debug)]
pub(crate) struct TopKRequest<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) table: Table,
    pub(crate) window: TimeRange,
    pub(crate) order: SortOrder,
    pub(crate) conditions: &'a [Expr],
    /// Those to give, in the table's order.
    pub(crate) columns: &'a [usize],
    /// Rows of this `ts`, the first that the order comes to, are all given and not counted.
    pub(crate) uncounted: Option<i64>,
    /// How many of the first rows need not be given.
    pub(crate) skip: usize,
    /// How many rows to find, those to skip included.
    pub(crate) wanted: usize,
    pub(crate) meter: &'a Arc<ScanMeter>,
    /// When the query began.
    pub(crate) started: Instant,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct TopKRows {
    /// The rows, in no order; of the last `ts` all that there are.
    pub(crate) batches: Vec<RecordBatch>,
    /// So many rows before them were not given.
    pub(crate) skipped: usize,
    /// The memory of the rows, for as long as they are held.
    pub(crate) memory: MemoryReservation,
}

/// Ways to an answer that read less than all: tests take each away and compare answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanShortcut {
    /// Lists and sums of points without a plan.
    OwnScan,
    /// Rows that are counted already.
    Counts,
    /// What footers and indexes say of values.
    Pruning,
}

/// What all scans share.
#[derive(Debug)]
pub(crate) struct ScanExecutor {
    cache: Arc<PageCache>,
    workers: ScanWorkers,
    timeout: Duration,
    most_bytes: ByteSize,
    without: &'static [ScanShortcut],
}

impl ScanExecutor {
    pub(crate) fn new(limits: &QueryLimits, threads: Handle) -> Self {
        Self {
            cache: Arc::new(PageCache::new(limits.page_cache())),
            workers: ScanWorkers::new(limits.threads, threads),
            timeout: limits.timeout,
            most_bytes: limits.max_scan,
            #[cfg(test)]
            without: limits.without,
            #[cfg(not(test))]
            without: &[],
        }
    }

    /// Whether a shortcut is taken: always, but in tests.
    fn is_enabled(&self, shortcut: ScanShortcut) -> bool {
        !self.without.contains(&shortcut)
    }

    /// What footers and indexes can be asked.
    fn needs(&self, table: Table, conditions: &[Expr]) -> PruningConditions {
        let asked = self.is_enabled(ScanShortcut::Pruning);
        needs(table, if asked { conditions } else { &[] })
    }

    /// As much as one query may read.
    pub(crate) const fn most_bytes(&self) -> ByteSize {
        self.most_bytes
    }

    /// Waits until no scan reads any more.
    pub(crate) async fn close(&self) {
        self.workers.close().await;
    }

    /// The first rows; `None` if a plan must answer.
    pub(crate) async fn top_k(
        &self,
        state: &SessionState,
        request: TopKRequest<'_>,
    ) -> Result<Option<TopKRows>, Error> {
        // Files of metrics lie by series: a plan finds their first points. So it does in any file that lies otherwise.
        if request.table == Table::Metrics || !self.is_enabled(ScanShortcut::OwnScan) {
            return Ok(None);
        }
        let (patience, _waiting) = ScanDeadline::new(request.started, self.timeout);
        let needs = self.needs(request.table, request.conditions);
        let search = TopKScan::new(state, &request, needs, &self.cache, patience)?;
        self.run(search).await
    }

    /// All rows that meet conditions, in no order, given to sinks that `make` makes, one for each thread that reads; `None`
    /// if a plan must answer.
    pub(crate) async fn full_scan<S: RowSink>(
        &self,
        state: &SessionState,
        wanted: FullScanRequest<'_>,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<Option<Vec<S>>, Error> {
        if !self.is_enabled(ScanShortcut::OwnScan) {
            return Ok(None);
        }
        let (patience, _waiting) = ScanDeadline::new(wanted.started, self.timeout);
        let needs = self.needs(wanted.table, wanted.conditions);
        match FullScan::new(state, &wanted, needs, &self.cache, patience, Box::new(make))? {
            Some(sweep) => self.run(sweep).await,
            None => Ok(None),
        }
    }

    /// What a look at files finds, on a thread that scans read on; between two files others may have it.
    async fn run_lookup<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut TimeSlicedPermit) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (patience, _waiting) = ScanDeadline::new(Instant::now(), self.timeout);
        let mut turns = self.workers.time_sliced_permit(patience).await?;
        let looking = self.workers.run(move || look(&mut turns));
        looking
            .await
            .unwrap_or_else(|stopped| Err(Error::Aborted(stopped.to_string())))
    }

    async fn run<T: ScanTask>(&self, task: T) -> Result<Option<T::Found>, Error> {
        match self.read(&Arc::new(task)).await {
            Ok(found) => Ok(Some(found)),
            Err(ScanError::NotHere) => Ok(None),
            Err(ScanError::Failed(error)) => Err(error),
        }
    }

    async fn read<T: ScanTask>(&self, task: &Arc<T>) -> Result<T::Found, ScanError> {
        let mut slice = ALONE;
        let mut helpers = Vec::new();
        loop {
            let place = self.workers.enter().await?;
            let lead = {
                let task = Arc::clone(task);
                self.workers.run(move || {
                    let _place = place;
                    task.work(Instant::now() + slice)?;
                    task.is_done().then(|| task.take_result()).transpose()
                })
            };
            if slice == SLICE {
                helpers.extend(self.workers.take_spare().into_iter().map(|place| {
                    let task = Arc::clone(task);
                    self.workers.run(move || {
                        let _place = place;
                        task.work(Instant::now() + slice)
                    })
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
            for segment in task.take_remote() {
                self.fetch_segment(segment).await?;
            }
            slice = SLICE;
        }
    }

    /// Has a segment here, by a thread that is none of those that read.
    async fn fetch_segment(&self, segment: Arc<DataFileHandle>) -> Result<(), ScanError> {
        joined(
            self.workers
                .run(move || segment.open().map(drop).map_err(ScanError::from))
                .await,
        )
    }
}

fn joined<T>(ended: Result<Result<T, ScanError>, tokio::task::JoinError>) -> Result<T, ScanError> {
    ended.unwrap_or_else(|stopped| Err(Error::Aborted(stopped.to_string()).into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_long_look_at_files_gives_its_thread_to_others_in_between() {
        let limits = QueryLimits {
            threads: 1,
            ..QueryLimits::default()
        };
        let scanner = ScanExecutor::new(&limits, Handle::current());
        let endless = scanner.run_lookup(|turns| -> Result<(), Error> {
            loop {
                turns.yield_if_due()?;
            }
        });
        let other = tokio::time::timeout(Duration::from_secs(20), scanner.workers.enter());
        tokio::select! {
            biased;
            ended = endless => panic!("{ended:?}"),
            entered = other => drop(entered.unwrap().unwrap()),
        }
        scanner.close().await;
    }
}
