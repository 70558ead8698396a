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
//! [`Scanner::sweep`] reads the same pieces in no order, for sums of metric points. [`Scanner::left`] tells plans which files they
//! need not open, [`Scanner::counted`] what need not be read to be counted.
//!
//! # Not here
//!
//! The order of rows of one `ts`, pages and cursors: [`crate::rows`]. Other aggregates, SQL, trees of traces: plans.

mod cache;
mod conditions;
mod counted;
mod files;
mod first;
mod pages;
mod prune;
mod read;
mod source;
mod sweep;
mod texts;
mod workers;

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

use self::cache::PageCache;
pub(crate) use self::conditions::Conditions;
pub(crate) use self::counted::{Counted, Question, Split};
pub(crate) use self::files::{Left, Pieces};
use self::first::{Halt, Search};
pub(crate) use self::prune::asks_for_ids;
use self::prune::{Needs, needs};
pub(crate) use self::read::times_of;
use self::sweep::Sweep;
pub(crate) use self::sweep::{Sink, Wanted};
use self::workers::{Patience, Turns, Workers};
use crate::reader::Meter;
use crate::window::Window;
use crate::{Error, Limits};

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
trait Task: Send + Sync + 'static {
    /// What comes out.
    type Found: Send + 'static;
    /// Reads until it is done, nothing is left to take, or it is time.
    fn work(&self, until: Instant) -> Result<(), Halt>;
    fn is_done(&self) -> bool;
    /// What must be opened before it goes on, by somebody who may wait for a network.
    fn away(&self) -> Vec<Arc<DataFileHandle>>;
    /// What was found, once; it is gone from the task.
    fn gather(&self) -> Result<Self::Found, Halt>;
}

/// What to look for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) table: Table,
    pub(crate) window: Window,
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
    pub(crate) meter: &'a Arc<Meter>,
    /// When the query began.
    pub(crate) started: Instant,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The rows, in no order; of the last `ts` all that there are.
    pub(crate) batches: Vec<RecordBatch>,
    /// So many rows before them were not given.
    pub(crate) skipped: usize,
    /// The memory of the rows, for as long as they are held.
    pub(crate) memory: MemoryReservation,
}

/// Ways to an answer that read less than all: tests take each away and compare answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcut {
    /// Lists and sums of points without a plan.
    OwnScan,
    /// Rows that are counted already.
    Counts,
    /// What footers and indexes say of values.
    Pruning,
}

/// What all scans share.
#[derive(Debug)]
pub(crate) struct Scanner {
    cache: Arc<PageCache>,
    workers: Workers,
    timeout: Duration,
    most_bytes: ByteSize,
    without: &'static [Shortcut],
}

impl Scanner {
    pub(crate) fn new(limits: &Limits, threads: Handle) -> Self {
        Self {
            cache: Arc::new(PageCache::new(limits.page_cache())),
            workers: Workers::new(limits.threads, threads),
            timeout: limits.timeout,
            most_bytes: limits.max_scan,
            #[cfg(test)]
            without: limits.without,
            #[cfg(not(test))]
            without: &[],
        }
    }

    /// Whether a shortcut is taken: always, but in tests.
    fn takes(&self, shortcut: Shortcut) -> bool {
        !self.without.contains(&shortcut)
    }

    /// What footers and indexes can be asked.
    fn needs(&self, table: Table, conditions: &[Expr]) -> Needs {
        let asked = self.takes(Shortcut::Pruning);
        needs(table, if asked { conditions } else { &[] })
    }

    /// Counts what one query reads, as much as one may.
    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::new(Meter::new(self.most_bytes))
    }

    /// Waits until no scan reads any more.
    pub(crate) async fn close(&self) {
        self.workers.close().await;
    }

    /// The first rows; `None` if a plan must answer.
    pub(crate) async fn first(&self, state: &SessionState, request: Request<'_>) -> Result<Option<Found>, Error> {
        // Files of metrics lie by series: a plan finds their first points. So it does in any file that lies otherwise.
        if request.table == Table::Metrics || !self.takes(Shortcut::OwnScan) {
            return Ok(None);
        }
        let (patience, _waiting) = Patience::new(request.started, self.timeout);
        let needs = self.needs(request.table, request.conditions);
        let search = Search::new(state, &request, needs, &self.cache, patience)?;
        self.run(search).await
    }

    /// All rows that meet conditions, in no order, given to sinks that `make` makes, one for each thread that reads; `None`
    /// if a plan must answer.
    pub(crate) async fn sweep<S: Sink>(
        &self,
        state: &SessionState,
        wanted: Wanted<'_>,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<Option<Vec<S>>, Error> {
        if !self.takes(Shortcut::OwnScan) {
            return Ok(None);
        }
        let (patience, _waiting) = Patience::new(wanted.started, self.timeout);
        let needs = self.needs(wanted.table, wanted.conditions);
        match Sweep::new(state, &wanted, needs, &self.cache, patience, Box::new(make))? {
            Some(sweep) => self.run(sweep).await,
            None => Ok(None),
        }
    }

    /// What a look at files finds, on a thread that scans read on; between two files others may have it.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Turns) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (patience, _waiting) = Patience::new(Instant::now(), self.timeout);
        let mut turns = self.workers.turns(patience).await?;
        let looking = self.workers.run(move || look(&mut turns));
        looking
            .await
            .unwrap_or_else(|stopped| Err(Error::Aborted(stopped.to_string())))
    }

    async fn run<T: Task>(&self, task: T) -> Result<Option<T::Found>, Error> {
        match self.read(&Arc::new(task)).await {
            Ok(found) => Ok(Some(found)),
            Err(Halt::NotHere) => Ok(None),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    async fn read<T: Task>(&self, task: &Arc<T>) -> Result<T::Found, Halt> {
        let mut slice = ALONE;
        let mut helpers = Vec::new();
        loop {
            let place = self.workers.enter().await?;
            let lead = {
                let task = Arc::clone(task);
                self.workers.run(move || {
                    let _place = place;
                    task.work(Instant::now() + slice)?;
                    task.is_done().then(|| task.gather()).transpose()
                })
            };
            if slice == SLICE {
                helpers.extend(self.workers.spare().into_iter().map(|place| {
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
            for segment in task.away() {
                self.fetched(segment).await?;
            }
            slice = SLICE;
        }
    }

    /// Has a segment here, by a thread that is none of those that read.
    async fn fetched(&self, segment: Arc<DataFileHandle>) -> Result<(), Halt> {
        joined(
            self.workers
                .run(move || segment.open().map(drop).map_err(Halt::from))
                .await,
        )
    }
}

fn joined<T>(ended: Result<Result<T, Halt>, tokio::task::JoinError>) -> Result<T, Halt> {
    ended.unwrap_or_else(|stopped| Err(Error::Aborted(stopped.to_string()).into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_long_look_at_files_gives_its_thread_to_others_in_between() {
        let limits = Limits {
            threads: 1,
            ..Limits::default()
        };
        let scanner = Scanner::new(&limits, Handle::current());
        let endless = scanner.look(|turns| -> Result<(), Error> {
            loop {
                turns.check()?;
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
