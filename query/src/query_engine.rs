//! The front of the room: typed queries and their limits.
//!
//! # Invariants
//!
//! - Plans run on threads of their own, so that a heavy query slows other queries and never the bus or the API.
//! - At most `max_concurrent` queries run, and not all of them are SQL statements (`gate`).
//! - However often a query begins anew because it met a damaged file, all of its beginnings share one timeout.
//! - Dropping a query's future stops its task at its next batch. The threads on which scans read are bounded by themselves.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use model::filter::{RawForm, SortOrder, TimePoint};
use model::{ByteSize, Clock, FluxId, Table, Timestamp, TraceId};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::admission_gate::{AdmissionGate, QueryClass, QueryPermit, QueryRuntimes};
use crate::filter::{self, PageBounds};
use crate::live_tail::TailService;
use crate::query_result::ListAnswer;
use crate::query_scan::{QueryScan, new_session_state, scanner};
use crate::session_pool::SessionPool;
use crate::snapshot_registry::SnapshotRegistry;
use crate::spec_tables::{SpecTable, SpecTables};
use crate::time_range::TimeRange;
use crate::{Error, sql, trace_tree};

/// So many damaged files a query leaves behind before it gives up.
pub(crate) const DAMAGED_FILES: usize = 256;

/// How long queries that were ended have until they are gone: a batch takes them less.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Answers typed queries and SQL over an engine.
pub struct QueryEngine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Clock,
    pub(crate) limits: QueryLimits,
    /// The sessions of typed queries.
    pub(crate) sessions: Arc<SessionPool>,
    /// What the sessions of SQL statements begin as.
    pub(crate) sql: Arc<SessionPool>,
    /// What statements of PostgreSQL's clients have beside it, once one came, and the tables of specs that it knows.
    pub(crate) postgres: Mutex<Option<(SpecTables, Option<Arc<sql::PostgresCompatibility>>)>>,
    /// The tables of specs.
    specs: Mutex<SpecTables>,
    pub(crate) gate: Arc<AdmissionGate>,
    pub(crate) stop: CancellationToken,
    pub(crate) threads: QueryRuntimes,
    pub(crate) tails: Arc<TailService>,
    pub(crate) snapshots: Arc<SnapshotRegistry>,
    _watch: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryEngine")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl QueryEngine {
    /// Starts the threads.
    ///
    /// # Errors
    /// If threads or the folder for spilling cannot be made.
    pub fn new(engine: Arc<Engine>, limits: QueryLimits, clock: Clock) -> Result<Self, Error> {
        if let Some(dir) = &limits.spill_dir {
            std::fs::create_dir_all(dir)?;
        }
        let gate = Arc::new(AdmissionGate::new(limits.max_concurrent, limits.timeout));
        let threads = QueryRuntimes::new(limits.threads)?;
        let state = new_session_state(&limits, threads.of_typed()?)?;
        let (most, sql) = (limits.max_concurrent, sql::base(&state));
        let sessions = SessionPool::new(state, most);
        let pool = Arc::clone(&sessions.template().runtime_env().memory_pool);
        let snapshots = SnapshotRegistry::new(&engine, ByteSize::bytes(limits.running().get() / 2));
        Ok(Self {
            tails: Arc::new(TailService::new(&engine, &limits, &clock, &sessions, &gate, &snapshots)),
            _watch: threads.spawn(QueryClass::Typed, Arc::clone(&snapshots).watch(pool))?,
            snapshots,
            sql: sessions.beside(sql),
            postgres: Mutex::default(),
            specs: Mutex::default(),
            sessions,
            gate,
            engine,
            clock,
            limits,
            stop: CancellationToken::new(),
            threads,
        })
    }

    /// Says which specs have a table from now on.
    pub fn set_specs(&self, specs: Vec<SpecTable>) {
        *self.specs.lock() = specs.into_iter().map(Arc::new).collect();
    }

    /// The tables of specs now.
    pub(crate) fn specs(&self) -> SpecTables {
        Arc::clone(&self.specs.lock())
    }

    /// One trace: its spans in tree order, each directly before its children, with its `depth` (0 for a root and for a span whose parent
    /// is not in the store); beside them what was logged under its id from an hour before its first span to an hour after its
    /// last one, the earliest first. What [`ListAnswer::about`] says is whether there are more spans, and more logs, whose newest are here.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the store has no span of it; see [`Error`].
    pub async fn trace(&self, id: TraceId) -> Result<ListAnswer, Error> {
        let of_trace = || self.scan(Table::Traces, TimeRange::ALL, vec![filter::of_trace(id)]);
        self.run(|| trace_tree::tree(of_trace(), id)).await
    }

    /// Refuses new queries, ends the running ones and waits until they are gone; not for ever for one that keeps its thread. A second
    /// call returns as soon as they are.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tails.close().await;
        // Places come back when tasks are gone; nobody else gets one, because waiters look at `stop` first.
        if tokio::time::timeout(CLOSE_TIMEOUT, self.gate.close()).await.is_err() {
            tracing::error!("a query that was ended still keeps its thread: its end is not waited for");
        }
        // The threads of a scan that nobody waits for end a moment after it.
        if let Some(scanner) = scanner(self.sessions.template()) {
            scanner.close().await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn scan(
        &self,
        table: Table,
        window: TimeRange,
        conditions: Vec<datafusion::logical_expr::Expr>,
    ) -> QueryScan {
        QueryScan::new(
            self.sessions.acquire_session(),
            self.engine.view(),
            table,
            window,
            conditions,
        )
    }

    /// Runs a typed query, again if it met a damaged file: that one has left the view, and the answer says so.
    pub(crate) async fn run<T, W>(&self, query: impl Fn() -> W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.run_as(QueryClass::Typed, query).await
    }

    /// As [`QueryEngine::run`], in the places and on the threads of a class.
    pub(crate) async fn run_as<T, W>(&self, class: QueryClass, query: impl Fn() -> W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (mut started, mut damaged) = (None, 0);
        loop {
            let place = self.enter(class).await?;
            let left = self.time_left(*started.get_or_insert_with(Instant::now));
            match self.run_once((class, place), left, query()).await {
                Err(error) if error.is_caused_by_damage() && damaged < DAMAGED_FILES => {
                    damaged += 1;
                    tracing::warn!(%error, "a query begins anew without a damaged file");
                }
                answered => return answered,
            }
        }
    }

    /// What is left of the time of a query that began then.
    pub(crate) fn time_left(&self, started: Instant) -> Duration {
        self.limits.timeout.saturating_sub(started.elapsed())
    }

    /// Runs a query's work on the threads of its class, within the limits.
    async fn run_once<T: Send + 'static>(
        &self,
        (class, place): (QueryClass, QueryPermit),
        left: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let task = self.threads.spawn(class, async move {
            let answer = work.await;
            drop(place);
            answer
        })?;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Error::Closed),
            ended = tokio::time::timeout(left, task) => match ended {
                Ok(Ok(answer)) => answer.map_err(|error| error.classify_limits(&self.limits)),
                Ok(Err(stopped)) => Err(Error::Aborted(stopped.to_string())),
                Err(_) => Err(Error::Timeout(self.limits.timeout.into())),
            }
        }
    }

    /// A place behind the gate.
    pub(crate) async fn enter(&self, class: QueryClass) -> Result<QueryPermit, Error> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Error::Closed),
            entered = self.gate.enter(class) => entered,
        }
    }
}

impl Drop for QueryEngine {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What the lists of all tables have in common.
pub(crate) struct RowQuery {
    pub(crate) table: Table,
    /// Other tables whose rows are in the answer.
    pub(crate) also: &'static [Table],
    pub(crate) fingerprint: u64,
    pub(crate) since: Option<TimePoint>,
    pub(crate) until: Option<TimePoint>,
    pub(crate) limit: Option<u32>,
    pub(crate) offset: Option<u32>,
    pub(crate) cursor: Option<String>,
    pub(crate) order: Option<SortOrder>,
    pub(crate) flux_id: Option<FluxId>,
    /// How the bytes of messages are shown.
    pub(crate) raw: RawForm,
}

impl RowQuery {
    /// The rows of a table, by the fingerprint of a filter, its bounds of time, and its limit, offset and cursor.
    pub(crate) fn new(
        (table, fingerprint): (Table, u64),
        (since, until): (Option<TimePoint>, Option<TimePoint>),
        (limit, offset, cursor): (Option<u32>, Option<u32>, &Option<String>),
    ) -> Self {
        Self {
            table,
            also: &[],
            fingerprint,
            since,
            until,
            limit,
            offset,
            cursor: cursor.clone(),
            order: None,
            flux_id: None,
            raw: RawForm::default(),
        }
    }

    pub(crate) fn paging(&self) -> Result<PageBounds, Error> {
        PageBounds::check(self.limit, self.offset, self.cursor.as_deref())
    }
}
