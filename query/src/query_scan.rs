//! The session all queries share, and one query's scan: a view, a table, a window and conditions.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::config::ConfigOptions;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryReservation, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::prelude::SessionConfig;
use engine::ReadView;
use model::filter::SortOrder;
use model::{ByteSize, Table};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use crate::data_scope::DataScope;
use crate::filter::in_range;
use crate::filter_pushdown;
use crate::query_caller::QueryCaller;
use crate::query_result::{AnswerMemory, JsonPage, QueryStats};
use crate::scan::{
    FullScanRequest, RollupCounts, RollupQuery, RowSink, ScanExecutor, SegmentSelection, TopKRequest, TopKRows,
};
use crate::segment_reader::ScanMeter;
use crate::session_pool::QuerySession;
use crate::time_range::TimeRange;
use crate::view_table::{RowOrder, ViewTable};
use crate::{Error, QueryLimits};

/// How many of the greatest users of memory an error names.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::MIN;

/// So many times their memory all queries put on disk together at most.
const SPILLED: u64 = 16;

/// The session: settings, the memory pool, where sorts and aggregates spill, the threads of scans.
pub(crate) fn new_session_state(limits: &QueryLimits, scans: Handle) -> Result<SessionState, Error> {
    let memory = usize::try_from(limits.running().get()).unwrap_or(usize::MAX);
    let pool = TrackConsumersPool::new(FairSpillPool::new(memory), NAMED_CONSUMERS);
    let spill = match &limits.spill_dir {
        Some(dir) => DiskManagerMode::Directories(vec![dir.clone()]),
        None => DiskManagerMode::Disabled,
    };
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(
            DiskManagerBuilder::default()
                .with_mode(spill)
                .with_max_temp_directory_size(limits.memory.get().saturating_mul(SPILLED)),
        )
        .build_arc()?;
    let config = SessionConfig::from(options(limits.running()))
        .with_target_partitions(limits.threads.max(1))
        .with_collect_statistics(false)
        .with_extension(Arc::new(ScanExecutor::new(limits, scans)));
    Ok(SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_physical_optimizer_rules(filter_pushdown::optimizer_rules())
        .build())
}

fn options(memory: ByteSize) -> ConfigOptions {
    let mut options = ConfigOptions::new();
    options.execution.parquet.pushdown_filters = true;
    // A plan reserves this much per partition before it reads; the defaults assume pools of many gigabytes.
    let share = usize::try_from(memory.get() / 64).unwrap_or(usize::MAX);
    options.execution.sort_spill_reservation_bytes = share.clamp(64 << 10, 10 << 20);
    // A sort of one batch has 20 bytes of indices per row that nobody counts, and rows of a few bits make long batches.
    options.execution.sort_in_place_threshold_bytes = (share / 4).clamp(64 << 10, 1 << 20);
    options.execution.sort_pushdown_buffer_capacity = share.clamp(64 << 10, 5 << 20);
    options
}

/// The scanner that the queries of a session share.
pub(crate) fn scanner(state: &SessionState) -> Option<Arc<ScanExecutor>> {
    state.config().get_extension()
}

/// Counts what one query of a session reads, for its caller too.
pub(crate) fn meter(state: &SessionState, caller: Option<Arc<QueryCaller>>) -> Arc<ScanMeter> {
    let most = scanner(state).map_or(ByteSize::bytes(u64::MAX), |scanner| scanner.most_bytes());
    Arc::new(ScanMeter::new(most, caller))
}

/// What one query looks at. Holds the view from the query's start to its end.
pub(crate) struct QueryScan {
    state: Arc<QuerySession>,
    view: ReadView,
    scope: Arc<DataScope>,
    table: Table,
    pub(crate) window: TimeRange,
    /// Which rows of a list come first.
    pub(crate) order: SortOrder,
    /// Whether rows of one `ts` come in the opposite order of lists.
    pub(crate) ties_reversed: bool,
    /// Those of the scope, and those of the query.
    conditions: Vec<Expr>,
    meter: Arc<ScanMeter>,
    started: Instant,
}

impl QueryScan {
    /// Sees the rows of a scope only; [`Error::Forbidden`] if it does not have the table.
    pub(crate) fn new(
        (state, view): (Arc<QuerySession>, ReadView),
        scope: &Arc<DataScope>,
        table: Table,
        window: TimeRange,
        asked: Vec<Expr>,
    ) -> Result<Self, Error> {
        let mut conditions = scope.conditions(table)?;
        conditions.extend(asked);
        Ok(Self {
            meter: meter(&state, None),
            state,
            view,
            scope: Arc::clone(scope),
            table,
            window,
            order: SortOrder::Desc,
            ties_reversed: false,
            conditions,
            started: Instant::now(),
        })
    }

    /// Another look at the same view.
    pub(crate) fn scan_table(&self, table: Table, window: TimeRange, asked: Vec<Expr>) -> Result<Self, Error> {
        let looked_at = (Arc::clone(&self.state), self.view.clone());
        let scan = Self::new(looked_at, &self.scope, table, window, asked)?;
        Ok(scan.charged_to(self.meter.caller()))
    }

    /// The same, before it has read anything, where what it reads counts for a caller.
    pub(crate) fn charged_to(self, caller: Option<Arc<QueryCaller>>) -> Self {
        Self {
            meter: meter(&self.state, caller),
            ..self
        }
    }

    /// Another look at the same table for other rows, as a part of the same query.
    pub(crate) fn scan_with(&self, asked: Vec<Expr>) -> Result<Self, Error> {
        Ok(Self {
            meter: Arc::clone(&self.meter),
            started: self.started,
            ..self.scan_table(self.table, self.window, asked)?
        })
    }

    /// The same rows in exactly the opposite order, as a part of the same query.
    pub(crate) fn reversed(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            view: self.view.clone(),
            scope: Arc::clone(&self.scope),
            table: self.table,
            window: self.window,
            order: match self.order {
                SortOrder::Desc => SortOrder::Asc,
                SortOrder::Asc => SortOrder::Desc,
            },
            ties_reversed: !self.ties_reversed,
            conditions: self.conditions.clone(),
            meter: Arc::clone(&self.meter),
            started: self.started,
        }
    }

    /// The rows within a part of the window that meet the conditions.
    pub(crate) fn frame(&self, window: TimeRange, order: RowOrder) -> Result<DataFrame, Error> {
        self.frame_of(SegmentSelection::All, window, order)
    }

    fn frame_of(&self, pieces: SegmentSelection, window: TimeRange, order: RowOrder) -> Result<DataFrame, Error> {
        let table = ViewTable {
            view: self.view.clone(),
            table: self.table,
            spec: None,
            window,
            pieces,
            order,
            meter: Arc::clone(&self.meter),
        };
        let all = LogicalPlanBuilder::scan(self.table.name(), provider_as_source(Arc::new(table)), None)?.build()?;
        let condition = self.conditions.iter().cloned().fold(in_range(window), Expr::and);
        Ok(DataFrame::new(SessionState::clone(&self.state), all).filter(condition)?)
    }

    /// The first rows, in its order, within a part of the window that meet the conditions, see [`TopKRequest`]; `None` if a plan
    /// must find them.
    pub(crate) async fn top_k(
        &self,
        window: TimeRange,
        uncounted: Option<i64>,
        skip: usize,
        wanted: usize,
    ) -> Result<Option<TopKRows>, Error> {
        let Some(scanner) = scanner(&self.state) else {
            return Ok(None);
        };
        let columns: Vec<usize> = (0..self.table.columns().len()).collect();
        let request = TopKRequest {
            view: &self.view,
            table: self.table,
            window,
            order: self.order,
            conditions: &self.conditions,
            columns: &columns,
            uncounted,
            skip,
            wanted,
            meter: &self.meter,
            started: self.started,
        };
        scanner.top_k(&self.state, request).await
    }

    /// All rows within a part of the window that meet the conditions, given to sinks by their columns; `None` if a plan must
    /// find them.
    pub(crate) async fn full_scan<S: RowSink>(
        &self,
        window: TimeRange,
        columns: &[usize],
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<Option<Vec<S>>, Error> {
        let Some(scanner) = scanner(&self.state) else {
            return Ok(None);
        };
        let wanted = FullScanRequest {
            view: &self.view,
            table: self.table,
            window,
            conditions: &self.conditions,
            columns,
            meter: &self.meter,
            started: self.started,
        };
        scanner.full_scan(&self.state, wanted, make).await
    }

    /// What counts of segments answer of a question, and the rows within its window that they leave, if there are any. Its
    /// conditions are those of the scan. `None` if more comes out than may, or if counts have rows that the scope has not.
    pub(crate) async fn count_from_rollup(
        &self,
        question: &RollupQuery,
    ) -> Result<Option<(RollupCounts, Option<DataFrame>)>, Error> {
        let Some(scanner) = scanner(&self.state).filter(|_| !self.scope.limits_entities()) else {
            return Ok(None);
        };
        let Some(counted) = scanner.count_from_rollup(question, &self.view, &self.meter).await? else {
            return Ok(None);
        };
        let mut rows: Option<DataFrame> = None;
        for (window, pieces) in &counted.left {
            let more = self.frame_of(pieces.clone(), *window, RowOrder::Any)?;
            rows = Some(match rows {
                Some(rows) => rows.union(more)?,
                None => more,
            });
        }
        Ok(Some((counted, rows)))
    }

    /// For how long its query has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Memory that is counted against what queries may use.
    pub(crate) fn memory(&self, consumer: &str) -> MemoryReservation {
        self.state.memory(consumer)
    }

    /// The session of its query.
    pub(crate) fn session(&self) -> Arc<QuerySession> {
        Arc::clone(&self.state)
    }

    /// What it looks at.
    pub(crate) const fn view(&self) -> &ReadView {
        &self.view
    }

    pub(crate) const fn table(&self) -> Table {
        self.table
    }

    /// That the store has nothing under an id; where a part of it cannot be read, that this may be why.
    pub(crate) fn not_found(&self, what: &'static str, id: String, place: String) -> Error {
        let place = match self.view.partial() {
            Some(reason) => format!("{place}; a part of the store cannot be read: {reason}"),
            None => place,
        };
        Error::NotFound { what, id, place }
    }

    /// Rows of which there are no more.
    pub(crate) fn last_page(&self, rows: Vec<Map<String, Value>>) -> JsonPage {
        JsonPage {
            stats: self.stats(rows.len()),
            rows,
            next_cursor: None,
            memory: AnswerMemory::default(),
        }
    }

    /// What the query cost so far.
    pub(crate) fn stats(&self, rows: usize) -> QueryStats {
        let files = self.view.files(self.table);
        let met = files
            .iter()
            .filter(|file| self.window.overlaps(file.min_ts, file.max_ts));
        let hot = self.view.hot(self.table).iter();
        let hot = hot.filter(|hot| self.window.overlaps(hot.min_ts, hot.max_ts));
        let stats = QueryStats {
            files_considered: files.len() as u64,
            files_pruned: (files.len() - met.count()) as u64 + self.meter.pruned(),
            hot_rows: hot.map(|hot| hot.batch.num_rows() as u64).sum(),
            ..self.meter.stats(&self.view, self.started, rows as u64)
        };
        match self.scope.limits_entities() {
            true => stats.of_scope(),
            false => stats,
        }
    }
}
