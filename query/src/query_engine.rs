//! The query engine: the public queries, the threads that they run on, and their limits.
//!
//! | file | what |
//! |---|---|
//! | `lists` | pages of rows, and whether a kept answer is still the answer |
//! | `aggregates` | histograms, most frequent values, metrics and their labels |
//! | `statements` | SQL |
//! | `tails` | what comes, as it comes |
//!
//! # Invariants
//!
//! - Plans run on threads of their own, so that a heavy query slows other queries and never the bus or the API.
//! - At most `max_concurrent` queries run, and not all of them are SQL statements ([`crate::admission_gate`]).
//! - However often a query begins anew because it met a damaged file, all of its beginnings share one timeout.
//! - Queries see the rows of the engine's scope only: each way to rows, [`QueryScan`] and the tables of statements, begins with it.
//! - Dropping a query's future stops its task at its next batch. The threads on which scans read are bounded by themselves.

mod aggregates;
mod lists;
mod statements;
mod tails;

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use model::filter::CellFilter;
use model::{ByteSize, Clock, Table, Timestamp, TraceId};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::admission_gate::{AdmissionGate, QueryClass, QueryPermit, QueryRuntimes};
use crate::cell_cut::cell_size;
use crate::data_scope::DataScope;
use crate::filter;
use crate::limits::{DAMAGED_FILES, QueryLimits};
use crate::live_tail::TailService;
use crate::query_caller::QueryCaller;
use crate::query_result::ListAnswer;
use crate::query_scan::{QueryScan, new_session_state, scanner};
use crate::session_pool::SessionPool;
use crate::snapshot_registry::SnapshotRegistry;
use crate::spec_tables::{SpecTable, SpecTables};
use crate::time_range::TimeRange;
use crate::{Error, sql, trace_tree};

/// How long queries that were ended have until they are gone: a batch takes them less.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers typed queries and SQL over an engine. A clone shares everything with what it is a clone of; with the last of them queries end.
#[derive(Clone)]
pub struct QueryEngine {
    // The first to be dropped: queries end before their threads do.
    _stop_on_drop: Arc<DropGuard>,
    /// The rows that its queries see.
    pub(crate) scope: Arc<DataScope>,
    /// Who asks, if that has places of its own.
    pub(crate) caller: Option<Arc<QueryCaller>>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Clock,
    pub(crate) limits: Arc<QueryLimits>,
    pub(crate) pools: SessionPools,
    postgres: Arc<Mutex<PostgresCatalogs>>,
    /// The tables of specs.
    specs: Arc<Mutex<SpecTables>>,
    pub(crate) gate: Arc<AdmissionGate>,
    pub(crate) stop: CancellationToken,
    pub(crate) threads: Arc<QueryRuntimes>,
    pub(crate) tails: Arc<TailService>,
    pub(crate) snapshots: Arc<SnapshotRegistry>,
    _watch: Arc<AbortOnDropHandle<()>>,
}

/// What statements of PostgreSQL's clients have beside them, once one came, by the tables that it may see.
#[derive(Default)]
struct PostgresCatalogs {
    /// The tables of specs that they know.
    specs: SpecTables,
    by_tables: HashMap<Option<BTreeSet<Table>>, Option<Arc<sql::PostgresCompatibility>>>,
}

/// The sessions of queries, which share their memory.
#[derive(Clone)]
pub(crate) struct SessionPools {
    /// Of typed queries.
    pub(crate) typed: Arc<SessionPool>,
    /// What the sessions of SQL statements begin as.
    pub(crate) sql: Arc<SessionPool>,
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
        let stop = CancellationToken::new();
        Ok(Self {
            _stop_on_drop: Arc::new(stop.clone().drop_guard()),
            scope: Arc::new(DataScope {
                elsewhere: limits.elsewhere.clone(),
                ..DataScope::default()
            }),
            caller: None,
            tails: Arc::new(TailService::new(&engine, &limits, &clock, &sessions, &gate, &snapshots)),
            _watch: Arc::new(threads.spawn(QueryClass::Typed, Arc::clone(&snapshots).watch(pool))?),
            snapshots,
            postgres: Arc::default(),
            specs: Arc::default(),
            pools: SessionPools {
                sql: sessions.beside(sql),
                typed: sessions,
            },
            gate,
            engine,
            clock,
            limits: Arc::new(limits),
            stop,
            threads: Arc::new(threads),
        })
    }

    /// The same engine for who sees the rows of a scope only, in place of the scope that this one has.
    #[must_use]
    pub fn with_scope(&self, scope: DataScope) -> Self {
        Self {
            scope: Arc::new(DataScope {
                elsewhere: self.limits.elsewhere.clone(),
                ..scope
            }),
            ..self.clone()
        }
    }

    /// The same engine for a caller, whose places its queries take.
    #[must_use]
    pub fn with_caller(&self, caller: Arc<QueryCaller>) -> Self {
        Self {
            caller: Some(caller),
            ..self.clone()
        }
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
        self.trace_cut(id, &CellFilter::default()).await
    }

    /// As [`QueryEngine::trace`], with long cells cut.
    ///
    /// # Errors
    /// Those of [`QueryEngine::trace`].
    pub async fn trace_cut(&self, id: TraceId, cells: &CellFilter) -> Result<ListAnswer, Error> {
        let cells = cell_size(cells.cells)?;
        self.run(|| {
            let spans = self.scan(Table::Traces, TimeRange::ALL, vec![filter::of_trace(id)]);
            async move { trace_tree::tree(spans?, id, cells).await }
        })
        .await
    }

    /// Refuses new queries, ends the running ones and waits until they are gone; not for ever for one that keeps its thread. A second
    /// call returns as soon as they are.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tails.close().await;
        // Places come back when tasks are gone; nobody else gets one, because waiters look at `stop` first.
        if tokio::time::timeout(CLOSE_TIMEOUT, self.gate.close()).await.is_err() {
            tracing::error!("a cancelled query still holds its thread; not waiting for it");
        }
        // The threads of a scan that nobody waits for end a moment after it.
        if let Some(scanner) = scanner(self.pools.typed.template()) {
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
    ) -> Result<QueryScan, Error> {
        let looked_at = (self.pools.typed.acquire_session(), self.engine.view());
        let scan = QueryScan::new(looked_at, &self.scope, table, window, conditions)?;
        Ok(scan.charged_to(self.caller.clone()))
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
                    tracing::warn!(%error, "restarting a query without a damaged file");
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
            entered = self.gate.enter(class, self.caller.as_ref()) => entered,
        }
    }
}
