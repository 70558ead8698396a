//! SQL: one statement that only reads, over one view, its rows streamed.
//!
//! ```text
//! text, parameters ─> statement_parser ─> session: plan ─> expression_size ─> rows ─┬─> batches, one at a time
//!    statement_bounds, function_allowlist     cancellation: it ends in time           └─> stats, when they have ended
//! ```
//!
//! # Invariants
//!
//! - A statement runs on the threads, in the memory and behind the gate of all queries; its time counts until its last row is
//!   taken, and over all of its beginnings. A reader that stops reading holds one place, for that time at most.
//! - Errors come before the first row where they can. A damaged file that is met before it makes the statement begin anew.
//! - No answer has more than [`QueryLimits::max_rows`](crate::QueryLimits::max_rows) rows, and one that was cut says so.
//! - What a user writes is at worst the user's error.
//!
//! # Not here
//!
//! Who may begin a statement, and when it begins anew: `query_engine::statements`. How rows are written for a client:
//! [`crate::row_writer`]. HTTP.

mod aggregate_memory;
mod aggregate_order;
mod arithmetic;
mod base_scan;
mod bounded_functions;
mod cancellable_rules;
mod cancellation;
mod casts;
mod checked_sums;
mod column_headers;
mod comparisons;
mod date_comparisons;
mod describe;
mod distinct_ids;
mod distinct_texts;
mod error_mapping;
mod expression_rewriter;
mod expression_size;
mod function_allowlist;
mod intervals;
mod log_rollup;
mod operator_memory;
mod pattern_operators;
mod point_rollup;
mod postgres;
mod regtype;
mod rollup_grain;
mod rollups;
mod rounding;
mod row_lookup;
mod scan_fallback;
mod scoped_table;
mod session;
mod size_bounds;
mod sort_keys;
mod spill_free_operator;
mod sql_types;
mod statement;
mod statement_bounds;
mod statement_context;
mod statement_parser;
mod static_rows;
mod subquery_predicates;
mod text_output;
mod time_zones;
mod timestamps;
mod to_char;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use futures::StreamExt as _;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;
use tokio_util::task::AbortOnDropHandle;

use self::cancellation::make_cancellable;
pub(crate) use self::cancellation::{CancellationError, StatementCancellation};
use self::column_headers::ColumnHeaders;
pub use self::describe::StatementDescription;
pub(crate) use self::describe::plan_description;
pub(crate) use self::distinct_ids::DistinctLimitError;
use self::error_mapping::statement_error;
pub(crate) use self::error_mapping::task_error;
pub(crate) use self::postgres::PostgresCompatibility;
pub use self::postgres::{POSTGRES_SETTINGS, POSTGRES_VERSION, POSTGRES_VERSION_NUMBER};
pub(crate) use self::session::base;
pub use self::statement::{SqlDialect, SqlParameters, SqlStatement};
use self::statement_bounds::StatementBounds;
pub(crate) use self::statement_context::StatementContext;
pub use self::statement_parser::{StatementToken, TokenKind, split_statements, statement_tokens};
pub use self::text_output::{text_of_double, text_of_interval, text_of_real, text_of_time};
pub use crate::columns::SqlColumn;
use crate::columns::columns_of;

use crate::Error;
use crate::error::is_memory_refusal;
use crate::query_result::QueryStats;
use crate::row_writer::{RowFormat, RowWriter};

/// Batches that wait for a reader.
pub(crate) const AHEAD: usize = 2;
/// So many bytes may wait for a reader after the time of their statement.
const FEW_BYTES: usize = 64 << 10;
/// How much longer than its time an answer is waited for: its task says better what became of it.
pub(crate) const GRACE: Duration = Duration::from_millis(250);
/// A limit up to which a plan is told of it: it keeps so many rows in memory to find the first ones.
const SMALL_LIMIT: u64 = 10_000;

/// What a statement cost, and whether its answer is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SqlStats {
    /// The cost; every scan of a table counts its files.
    #[serde(flatten)]
    pub query: QueryStats,
    /// Whether there are more rows than the limit of the statement or of all answers let through.
    pub truncated: bool,
}

/// The answer of one statement, as it comes. Dropping it ends the statement.
#[derive(Debug)]
pub struct SqlAnswer {
    pub(crate) columns: Vec<SqlColumn>,
    pub(crate) schema: SchemaRef,
    pub(crate) partial: Option<String>,
    pub(crate) max_rows: Option<u64>,
    pub(crate) rows: mpsc::Receiver<HeldBatch>,
    /// The bytes of the rows that were not given yet.
    pub(crate) waiting: Arc<AtomicUsize>,
    /// The memory of the rows that were given last.
    pub(crate) held: Option<MemoryReservation>,
    pub(crate) task: AbortOnDropHandle<Result<SqlStats, Error>>,
    pub(crate) _stop: DropGuard,
    /// When its time is over, and how much it was.
    pub(crate) time: (Option<Instant>, Duration),
    pub(crate) stats: Option<SqlStats>,
}

impl SqlAnswer {
    /// What writes it in a format, the columns first.
    ///
    /// # Errors
    /// If the schema cannot be written.
    pub fn writer(&self, format: RowFormat) -> Result<RowWriter, Error> {
        let columns = serde_json::to_string(&self.columns).unwrap_or_default();
        let head = format!("\"columns\":{columns},");
        RowWriter::new(format, &self.columns, &self.schema, &head, &[])
    }

    /// Its columns.
    #[must_use]
    pub fn columns(&self) -> &[SqlColumn] {
        &self.columns
    }

    /// The types of its columns.
    #[must_use]
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Why rows are missing, if a part of the store cannot be read.
    #[must_use]
    pub fn partial(&self) -> Option<&str> {
        self.partial.as_deref()
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// What went wrong after the first rows; see [`Error`].
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        self.held = None;
        if self.stats.is_some() {
            return Ok(None);
        }
        let (end, timeout) = self.time;
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        // An operator that keeps its thread does not hear of the end; who waits does.
        let next = async {
            match self.rows.recv().await {
                Some((batch, held)) => {
                    self.waiting.fetch_sub(held.size(), Ordering::Relaxed);
                    self.held = Some(held);
                    Ok(Some(batch))
                }
                None => {
                    self.stats = Some((&mut self.task).await.map_err(task_error)??);
                    Ok(None)
                }
            }
        };
        let next = tokio::time::timeout(left, next).await;
        next.unwrap_or_else(|_| Err(Error::Timeout(timeout.into())))
    }

    /// When the rows that nobody took are to be given up: at the end of its time, unless it has ended and few bytes wait.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().map_or(0, MemoryReservation::size);
        let waiting = held.saturating_add(self.waiting.load(Ordering::Relaxed));
        self.time.0.filter(|_| waiting > FEW_BYTES || !self.task.is_finished())
    }

    /// What the answer cost; `None` before its end.
    #[must_use]
    pub const fn stats(&self) -> Option<&SqlStats> {
        self.stats.as_ref()
    }

    /// The limit of all answers, if it is why rows are missing.
    #[must_use]
    pub fn cut_at(&self) -> Option<u64> {
        let truncated = self.stats.as_ref().is_some_and(|stats| stats.truncated);
        self.max_rows.filter(|_| truncated)
    }
}

/// Rows on their way to who reads them, and their memory, which is none of the statement's operators any more.
pub(crate) type HeldBatch = (RecordBatch, MemoryReservation);

/// The bytes of the rows of a batch, which may be a part of larger arrays.
fn bytes_of(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| match column.data_type() {
        // The bytes of views are in buffers that others may have too.
        DataType::Utf8View | DataType::BinaryView => column.get_array_memory_size(),
        _ => {
            let slice = column.to_data().get_slice_memory_size();
            slice.unwrap_or_else(|_| column.get_array_memory_size())
        }
    });
    bytes.sum()
}

/// What is known before the first row.
pub(crate) struct AnswerHeader {
    pub(crate) columns: Vec<SqlColumn>,
    pub(crate) schema: SchemaRef,
    pub(crate) partial: Option<String>,
}

/// One statement, on the query threads.
pub(crate) struct StatementTask {
    pub(crate) asking: StatementContext,
    pub(crate) most_rows: u64,
    pub(crate) started: Instant,
    pub(crate) stop: Arc<StatementCancellation>,
    /// See [`SqlAnswer::deadline`].
    pub(crate) waiting: Arc<AtomicUsize>,
}

impl StatementTask {
    /// Runs the statement to its end, or until its reader leaves.
    pub(crate) async fn carry_out(
        self,
        begun: oneshot::Sender<AnswerHeader>,
        to: mpsc::Sender<HeldBatch>,
    ) -> Result<SqlStats, Error> {
        let (mut stream, headers, counts_ids) = self.begin().await?;
        let (mut columns, schema) = columns_of(&stream.schema());
        if let Some(headers) = headers {
            headers.apply(&mut columns);
        }
        // What fails fails mostly before the first rows: they are there before anybody hears of an answer.
        let mut next = stream.next().await;
        let mut rows = 0;
        let mut truncated = false;
        let head = AnswerHeader {
            columns,
            schema: Arc::clone(&schema),
            partial: self.asking.partial(),
        };
        let mut begun = Some((begun, head));
        loop {
            let batch = next.transpose().map_err(|error| match begun {
                Some(_) if counts_ids && is_memory_refusal(&error) => {
                    tracing::debug!(%error, "a statement that counts distinct ids in memory has no more of it");
                    DataFusionError::External(Box::new(DistinctLimitError)).into()
                }
                _ => statement_error(error),
            })?;
            if let Some((begun, head)) = begun.take()
                && begun.send(head).is_err()
            {
                break;
            }
            let Some(batch) = batch else { break };
            let left = self.most_rows - rows;
            truncated = batch.num_rows() as u64 > left;
            let batch = if truncated {
                batch.slice(0, usize::try_from(left).unwrap_or(usize::MAX))
            } else {
                batch
            };
            rows += batch.num_rows() as u64;
            let size = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &size)?;
            if batch.num_rows() > 0 {
                let held = self.asking.base.reserve_in_flight(bytes_of(&batch));
                self.waiting.fetch_add(held.size(), Ordering::Relaxed);
                if to.send((batch, held)).await.is_err() {
                    break;
                }
            }
            if truncated {
                break;
            }
            next = stream.next().await;
        }
        let query = QueryStats {
            partial: self.asking.partial(),
            ..self.asking.meter.stats(&self.asking.view, self.started, rows)
        };
        Ok(SqlStats {
            query: if self.asking.scope.limits_entities() {
                query.of_scope()
            } else {
                query
            },
            truncated,
        })
    }

    /// The rows; their headers if those are not the planner's; whether ids are counted in memory.
    async fn begin(&self) -> Result<(SendableRecordBatchStream, Option<ColumnHeaders>, bool), Error> {
        let StatementContext {
            statement, postgres, ..
        } = &self.asking;
        let asked = statement_parser::parse_bound(statement, postgres.as_deref())?;
        let stop = Some(&self.stop);
        let mut session = self.asking.session(&asked, stop).map_err(statement_error)?;
        let plan = session
            .statement_to_plan(asked.statement)
            .await
            .map_err(statement_error)?;
        expression_size::check(&plan, &mut session)?;
        let (plan, counts_ids) = match self.asking.ids_in_memory {
            Some(most) => {
                let counted = distinct_ids::count_ids_in_memory(plan, most).map_err(statement_error)?;
                (counted.data, counted.transformed)
            }
            None => (plan, false),
        };
        let plan = if asked.is_query && self.most_rows < SMALL_LIMIT {
            let most = usize::try_from(self.most_rows + 1).unwrap_or(usize::MAX);
            let limited = LogicalPlanBuilder::from(plan).limit(0, Some(most));
            limited.and_then(LogicalPlanBuilder::build).map_err(statement_error)?
        } else {
            plan
        };
        let plan = session.optimize(&plan).map_err(statement_error)?;
        let plan = aggregate_order::dedupe_order(plan).map_err(statement_error)?;
        let plan = distinct_texts::count_texts_in_sets(plan).map_err(statement_error)?;
        expression_size::fit_optimized(&plan, &mut session).map_err(statement_error)?;
        let plan = sort_keys::materialize_sort_keys(plan, &session).map_err(statement_error)?;
        let planned = session.query_planner().create_physical_plan(&plan, &session).await;
        let plan = planned.map_err(statement_error)?;
        let most = StatementBounds::of_batch(session.config_options());
        let plan = make_cancellable(plan, &self.stop, most, session.runtime_env()).map_err(statement_error)?;
        let rows = execute_stream(plan, session.task_ctx()).map_err(statement_error)?;
        Ok((rows, asked.headers, counts_ids))
    }
}

/// Reads a statement as a client asks it, with parameters and without values for them.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_statement(text: &str) -> bool {
    let statement = SqlStatement {
        query: text.to_owned(),
        ..SqlStatement::default()
    };
    statement_parser::parse_unbound(&statement, None).is_ok()
}
