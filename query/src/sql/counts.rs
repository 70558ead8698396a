//! Log records that statements count, taken from the counts of segments, however the statement is worded.
//!
//! ```text
//! Aggregate: count(*) by level, hour of ts        Projection: what the first one's columns are called
//!   Filter: entity_name = 'db-03', ts >= …   ─>     Aggregate: sum(rows) by level, hour of ts
//!     logs                                            Filter: entity_name = 'db-03'
//!                                                       [`CountedRows`]: ts, level, entity_name, rows
//! ```
//!
//! # Invariants
//!
//! - Rows are counted together only if every expression of the statement says the same of them: it sees `level` and `entity_name`, and
//!   of `ts` only in which of equal stretches of whole minutes it lies. Conditions that are a window of `ts` are met exactly.
//! - Rows that no counts tell of are read, and each counts once: those in memory, in open files, in minutes that a window cuts.
//! - Only aggregates are replaced to which it is all one whether they see a value once with its number or so many times.
//!
//! # Not here
//!
//! Which segments' counts are believed, and what of a window they leave: [`crate::scan`]. Histograms of the API: [`crate::summary`].

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Aggregate, Cast, Expr, ExprSchemable as _, Filter, LogicalPlan, Projection, TableProviderFilterPushDown, TableScan,
    TableScanBuilder, TableType, Volatility, cast, lit, when,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, Literal};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use engine::MINUTE;
use model::Table;

use super::base_scan::{BaseScan, base_scan};
use super::static_rows::StaticRows;
use crate::scan::{Counted, Pieces, Question, Scanner, Split};
use crate::table::{Order, ViewTable};
use crate::times::{is_a_window, is_ts, narrowed};
use crate::window::Window;

/// The column that says how many rows one stands for.
const ROWS: &str = "rows_counted";
/// Minutes of a day.
const DAY: i64 = 1_440;
/// Bytes of a counted row beside its names: its time, its number and where its names begin.
const BYTES_BESIDE_NAMES: usize = 24;
/// More groups and stretches of time than these are not counted together: rows are read.
const MOST: usize = 1 << 18;

/// The rule; see the module.
#[derive(Debug)]
pub(super) struct CountRows;

impl OptimizerRule for CountRows {
    fn name(&self) -> &str {
        "count_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let counted = match &plan {
            LogicalPlan::Aggregate(aggregate) => counted(aggregate)?,
            _ => None,
        };
        Ok(match counted {
            Some(counted) => Transformed::yes(counted),
            None => Transformed::no(plan),
        })
    }
}

fn counted(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
    let Some(BaseScan {
        scan,
        exprs,
        conditions,
    }) = base_scan(&aggregate.input, exprs.cloned().collect())?
    else {
        return Ok(None);
    };
    let Ok(provider) = source_as_provider(&scan.source) else {
        return Ok(None);
    };
    let Some(of) = provider.downcast_ref::<ViewTable>() else {
        return Ok(None);
    };
    if of.table != Table::Logs {
        return Ok(None);
    }
    let conditions = conditions.into_iter().flat_map(split_conjunction_owned);
    let (windows, conditions): (Vec<_>, Vec<_>) = conditions.partition(is_a_window);
    let (groups, aggregates) = exprs.split_at(aggregate.group_expr.len());
    let mut seen = Seen::default();
    let are_alike = |group: &Expr| groups.iter().filter(|other| *other == group).count() > 1;
    if !conditions.iter().chain(groups).all(|expr| seen.takes(expr)) || groups.iter().any(are_alike) {
        return Ok(None);
    }
    let mut sums: Vec<Sum> = Vec::new();
    for expr in aggregates {
        match Sum::of(expr, &scan, &mut seen)? {
            Some(sum) => sums.push(sum),
            None => return Ok(None),
        }
    }
    let rows = CountedRows::new(of, narrowed(of.window, &windows), &seen)?;
    let rows = TableScanBuilder::new(scan.table_name, provider_as_source(Arc::new(rows))).build()?;
    let mut plan = LogicalPlan::TableScan(rows);
    if let Some(condition) = conditions.into_iter().reduce(Expr::and) {
        plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?);
    }
    named(plan, groups, &sums, aggregate).map(Some)
}

/// Sums of counted rows under the names that an aggregate's columns have.
fn named(rows: LogicalPlan, groups: &[Expr], sums: &[Sum], aggregate: &Aggregate) -> Result<LogicalPlan> {
    let mut different: Vec<&Expr> = Vec::new();
    for sum in sums {
        if !different.contains(&&sum.expr) {
            different.push(&sum.expr);
        }
    }
    let summed = different.iter().map(|expr| (*expr).clone()).collect();
    let plan = Aggregate::try_new(Arc::new(rows), groups.to_vec(), summed)?;
    let column = |at: usize| Expr::Column(Column::from(plan.schema.qualified_field(at)));
    let of_sum = |sum: &Sum| {
        let at = different.iter().position(|expr| **expr == sum.expr).unwrap_or_default();
        let value = column(groups.len() + at);
        // No rows are counted as none.
        if sum.is_count {
            coalesce(vec![value, lit(0_i64)])
        } else {
            value
        }
    };
    let values = (0..groups.len()).map(column).chain(sums.iter().map(of_sum));
    let names = aggregate.schema.iter();
    let values: Vec<Expr> = values
        .zip(names)
        .map(|(value, (table, field))| {
            // A sum of products has more digits.
            cast(value, field.data_type().clone()).alias_qualified(table.cloned(), field.name())
        })
        .collect();
    let projection = Projection::try_new(values, Arc::new(LogicalPlan::Aggregate(plan)))?;
    Ok(LogicalPlan::Projection(projection))
}

/// An aggregate of rows, made one of counted rows.
struct Sum {
    expr: Expr,
    is_count: bool,
}

impl Sum {
    /// `None` if it is of another kind, or sees more than counts tell.
    fn of(expr: &Expr, scan: &TableScan, seen: &mut Seen) -> Result<Option<Self>> {
        let Expr::AggregateFunction(AggregateFunction { func, mut params }) = expr.clone().unalias() else {
            return Ok(None);
        };
        let [arg] = params.args.as_slice() else {
            return Ok(None);
        };
        let is_plain = params.order_by.is_empty() && params.null_treatment.is_none();
        if !is_plain || params.filter.as_ref().is_some_and(|filter| !seen.takes(filter)) {
            return Ok(None);
        }
        let rows = Expr::Column(Column::new(Some(scan.table_name.clone()), ROWS));
        let schema = &scan.projected_schema;
        let is_there = matches!(arg, Expr::Column(_) | Expr::Literal(..)) && !arg.nullable(schema.as_ref())?;
        let (func, arg, is_count) = match func.name() {
            "count" if !params.distinct && is_there => (sum_udaf(), rows, true),
            _ if !seen.takes(arg) => return Ok(None),
            "count" if !params.distinct => (sum_udaf(), when(arg.clone().is_not_null(), rows).end()?, true),
            // Sums of whole numbers are ones of decimals by now.
            "sum" if !params.distinct && matches!(arg.get_type(schema.as_ref())?, DataType::Decimal128(_, 0)) => {
                (func, arg.clone() * cast(rows, DataType::Decimal128(19, 0)), false)
            }
            "count" | "sum" if params.distinct => (func, arg.clone(), false),
            "min" | "max" => (func, arg.clone(), false),
            _ => return Ok(None),
        };
        params.args = vec![arg];
        let expr = Expr::AggregateFunction(AggregateFunction { func, params });
        Ok(Some(Self { expr, is_count }))
    }
}

/// What expressions see of a row.
#[derive(Debug, Default)]
struct Seen {
    split: Split,
    /// Rows whose `ts` is in the same stretch of so many minutes are the same to them; without, all are.
    stretch: Option<i64>,
}

impl Seen {
    /// Notes what an expression sees; whether it says the same of all rows that are counted together.
    fn takes(&mut self, expr: &Expr) -> bool {
        if let Some(minutes) = stretch_of(expr) {
            self.stretch = Some(common(self.stretch.unwrap_or(0), minutes));
            return true;
        }
        match expr {
            Expr::Column(column) if column.name == "level" => self.split.level = true,
            Expr::Column(column) if column.name == "entity_name" => self.split.entity = true,
            Expr::ScalarFunction(function) if function.func.signature().volatility == Volatility::Volatile => {
                return false;
            }
            Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::Not(_)
            | Expr::IsNotNull(_)
            | Expr::IsNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::ScalarFunction(_)
            | Expr::InList(_) => {
                let mut are_taken = true;
                let each = expr.apply_children(|child| {
                    are_taken &= self.takes(child);
                    Ok(TreeNodeRecursion::Continue)
                });
                return each.is_ok() && are_taken;
            }
            _ => return false,
        }
        true
    }
}

/// The minutes of the stretches of time that an expression tells apart, if `ts` is all that it sees and whole minutes are.
fn stretch_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("date_bin" | "time_bucket", [width, ts]) if is_ts(ts) => width_of(width),
            ("date_trunc" | "date_part", [part, ts]) if is_ts(ts) => part_of(part),
            _ => None,
        },
        Expr::Cast(Cast { expr, field }) => (is_ts(expr) && *field.data_type() == DataType::Date32).then_some(DAY),
        condition if is_a_window(condition) => {
            let Window { since, until } = narrowed(Window::ALL, std::slice::from_ref(condition));
            let bounds = [(since, Window::ALL.since), (until, Window::ALL.until)].into_iter();
            let mut bounds = bounds
                .filter(|(bound, none)| bound != none)
                .map(|(bound, _)| bound.micros());
            bounds.try_fold(DAY, |minutes, bound| {
                (bound % MINUTE == 0).then(|| common(minutes, bound / MINUTE))
            })
        }
        _ => None,
    }
}

/// The minutes of a width of buckets that begin with 1970.
fn width_of(width: &Expr) -> Option<i64> {
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(width)), _) = width else {
        return None;
    };
    let minute = MINUTE.checked_mul(1_000)?;
    let is_whole = width.months == 0 && width.nanoseconds % minute == 0;
    let minutes = i64::from(width.days)
        .checked_mul(DAY)?
        .checked_add(width.nanoseconds / minute)?;
    (is_whole && minutes > 0).then_some(minutes)
}

/// The minutes that a part of a time stands still for.
fn part_of(part: &Expr) -> Option<i64> {
    let Expr::Literal(ScalarValue::Utf8(Some(part)), _) = part else {
        return None;
    };
    match part.to_ascii_lowercase().as_str() {
        "minute" => Some(1),
        "hour" => Some(60),
        "day" | "dow" | "isodow" | "doy" | "week" | "month" | "quarter" | "year" => Some(DAY),
        _ => None,
    }
}

/// The greatest common divisor.
const fn common(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}

/// Log records, many of them in one row.
#[derive(Debug)]
struct CountedRows {
    logs: ViewTable,
    question: Question,
    /// Columns of log records.
    columns: Vec<usize>,
    /// These columns, and [`ROWS`].
    schema: SchemaRef,
}

impl CountedRows {
    fn new(of: &ViewTable, window: Window, seen: &Seen) -> Result<Self> {
        let all = of.schema();
        let is_wanted = |(_, field): &(usize, &FieldRef)| match field.name().as_str() {
            "ts" => seen.stretch.is_some(),
            "level" => seen.split.level,
            "entity_name" => seen.split.entity,
            _ => false,
        };
        let columns = all.fields().iter().enumerate().filter(is_wanted).map(|(at, _)| at);
        let columns: Vec<_> = columns.collect();
        let mut fields: Vec<FieldRef> = all.project(&columns)?.fields().to_vec();
        fields.push(Arc::new(Field::new(ROWS, DataType::Int64, false)));
        Ok(Self {
            logs: ViewTable {
                window,
                order: Order::Any,
                ..of.clone()
            },
            question: Question {
                window,
                bucket: seen.stretch,
                split: seen.split,
                levels: None,
                entities: Vec::new(),
                most: MOST,
            },
            columns,
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// What was counted, as batches of at most so many rows that are counted as memory of the query.
    fn rows(&self, counted: Counted, most: usize, pool: &Arc<dyn MemoryPool>) -> Result<StaticRows> {
        let groups: Vec<_> = counted.groups().collect();
        let sizes = groups
            .iter()
            .map(|(level, entity, buckets)| buckets.len() * (level.len() + entity.len() + BYTES_BESIDE_NAMES));
        let memory = MemoryConsumer::new("counted rows").register(pool);
        memory.try_grow(sizes.sum())?;
        let (mut ts, mut rows) = (Vec::new(), Vec::new());
        let (mut levels, mut entities) = (StringBuilder::new(), StringBuilder::new());
        for (level, entity, buckets) in groups {
            for (start, count) in buckets {
                ts.push(start);
                levels.append_value(&level);
                entities.append_value(&entity);
                rows.push(count);
            }
        }
        let mut all: HashMap<&str, ArrayRef> = HashMap::from([
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from(ts).with_timezone("UTC")) as ArrayRef,
            ),
            ("level", Arc::new(levels.finish())),
            ("entity_name", Arc::new(entities.finish())),
            (ROWS, Arc::new(Int64Array::from(rows))),
        ]);
        let columns = self
            .schema
            .fields()
            .iter()
            .filter_map(|field| all.remove(field.name().as_str()));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())?;
        let starts = (0..rows.num_rows()).step_by(most);
        let batches = starts.map(|start| rows.slice(start, most.min(rows.num_rows() - start)));
        Ok(StaticRows::new(batches.collect(), Arc::clone(&self.schema), memory))
    }

    /// Rows that each stand for themselves.
    fn each_once(&self, rows: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = self.schema.fields().iter().enumerate().map(|(at, field)| {
            let value: Arc<dyn PhysicalExpr> = if field.name() == ROWS {
                Arc::new(Literal::new(ScalarValue::Int64(Some(1))))
            } else {
                Arc::new(PhysicalColumn::new(field.name(), at))
            };
            ProjectionExpr::new(value, field.name().clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns, rows)?))
    }
}

#[async_trait]
impl TableProvider for CountedRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let logs = &self.logs;
        let counted = match state.config().get_extension::<Scanner>() {
            Some(scanner) => scanner.counted(&self.question, &logs.view, &logs.meter).await,
            None => Ok(None),
        };
        let counted = counted.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (left, mut inputs) = match counted {
            Some(mut counted) => {
                let left = std::mem::take(&mut counted.left);
                let rows = self.rows(counted, state.config().batch_size(), &state.runtime_env().memory_pool)?;
                (left, vec![rows.plan()?])
            }
            None => (vec![(logs.window, Pieces::All)], Vec::new()),
        };
        if left.is_empty() {
            let files = logs.view.files(logs.table).len();
            let hot = logs.hot(logs.window).into_iter();
            let hot_rows = hot.map(|hot| hot.batch.num_rows()).sum();
            logs.meter.planned(files, files, hot_rows);
        }
        for (window, pieces) in left {
            let rows = ViewTable {
                window,
                pieces,
                ..logs.clone()
            };
            let rows = rows.scan(state, Some(&self.columns), filters, None).await?;
            inputs.push(self.each_once(rows)?);
        }
        let all = UnionExec::try_new(inputs)?;
        let Some(projection) = projection else {
            return Ok(all);
        };
        let columns = projection.iter().map(|at| {
            let name = self.schema.field(*at).name();
            ProjectionExpr::new(Arc::new(PhysicalColumn::new(name, *at)), name.clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns, all)?))
    }
}
