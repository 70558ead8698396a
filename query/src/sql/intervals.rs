//! Intervals as PostgreSQL compares and adds them: a month has 30 days, a day 24 hours.
//!
//! | written | planned as |
//! |---|---|
//! | `b - a > INTERVAL '1 day'`, `=`, `BETWEEN`, `IN`, `ORDER BY` of intervals | a comparison of microseconds |
//! | `extract(epoch FROM INTERVAL '1 year')` | years of 365.25 days, months that are left of 30 |
//! | `date + INTERVAL '1 hour'` | a time: the date would lose the hour |
//! | `GROUP BY`, `DISTINCT`, `min`, `max` of intervals that are no differences of times, a `UNION` of these with differences | refused |
//!
//! DataFusion compares months first, then days, then the rest.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{DurationMicrosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{Array as _, ArrayRef, Decimal128Array, Float64Array};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::arrow::compute::cast as converted;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable as _, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast, create_udf,
};

use super::comparisons::rewrite_comparison;
use super::timestamps::DAY;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

static INTERVAL_MICROS: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(IntervalMicros {
        signature: Signature::any(1, Volatility::Immutable),
    })
});

static INTERVAL_EPOCH: LazyLock<ScalarUDF> = LazyLock::new(|| {
    create_udf(
        "interval_epoch",
        vec![INTERVAL],
        DataType::Float64,
        Volatility::Immutable,
        Arc::new(make_scalar_function(interval_epoch, Vec::new())),
    )
});

/// The seconds of an interval.
pub(super) fn epoch(interval: Expr) -> Expr {
    INTERVAL_EPOCH.call(vec![cast(interval, INTERVAL)])
}

/// A date, to which an interval is added, as a time.
pub(super) fn widen_date(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> (Expr, Expr) {
    let (Ok(of_left), Ok(of_right)) = (left.get_type(schema), right.get_type(schema)) else {
        return (left, right);
    };
    let is_span = |kind: &DataType| matches!(kind, DataType::Interval(_) | DataType::Duration(_));
    let is_date = |kind: &DataType| matches!(kind, DataType::Date32 | DataType::Date64);
    let time = |date| cast(date, DataType::Timestamp(TimeUnit::Microsecond, None));
    match op {
        Operator::Plus | Operator::Minus if is_date(&of_left) && is_span(&of_right) => (time(left), right),
        Operator::Plus if is_span(&of_left) && is_date(&of_right) => (left, time(right)),
        _ => (left, right),
    }
}

/// See the module.
pub(super) fn rewrite_interval(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::AggregateFunction(call)
            if ["min", "max"].contains(&call.func.name())
                && call.params.args.iter().any(|arg| is_interval(arg, schema)) =>
        {
            plan_err!(
                "{} of intervals is not supported: take that of extract(epoch FROM …)",
                call.func.name()
            )
        }
        other => rewrite_comparison(
            other,
            |sides| concerns(sides, schema),
            |side| Ok(in_micros(side, schema)),
        ),
    }
}

/// Orders by intervals; refuses groups of them, and unions of differences of times and other intervals.
pub(super) fn rewrite_interval_order(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Union(union) = &plan
        && is_mixed(&union.inputs)
    {
        return plan_err!(
            "a UNION of differences of times and other intervals is not supported: write extract(epoch FROM …) in each of its queries"
        );
    }
    let grouped = match &plan {
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            aggregate.group_expr.iter().any(|by| is_interval(by, schema))
        }
        LogicalPlan::Distinct(distinct) => {
            let fields = distinct.input().schema().fields();
            fields.iter().any(|field| *field.data_type() == INTERVAL)
        }
        _ => false,
    };
    if grouped {
        return plan_err!("groups of intervals are not supported: group by extract(epoch FROM …)");
    }
    let LogicalPlan::Sort(mut sort) = plan else {
        return Ok(Transformed::no(plan));
    };
    let schema = Arc::clone(sort.input.schema());
    for by in &mut sort.expr {
        if is_interval(&by.expr, &schema) {
            by.expr = INTERVAL_MICROS.call(vec![by.expr.clone()]);
        }
    }
    Ok(Transformed::yes(LogicalPlan::Sort(sort)))
}

/// Whether a column is of differences of times in one query of a union and of other intervals in another.
fn is_mixed(queries: &[Arc<LogicalPlan>]) -> bool {
    let columns = queries.first().map_or(0, |query| query.schema().fields().len());
    let has = |column: usize, is_it: fn(&DataType) -> bool| {
        queries.iter().any(|query| {
            let field = query.schema().fields().get(column);
            field.is_some_and(|field| is_it(field.data_type()))
        })
    };
    let is_difference = |kind: &DataType| matches!(kind, DataType::Duration(_));
    (0..columns).any(|column| has(column, is_difference) && has(column, |kind| *kind == INTERVAL))
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind == INTERVAL)
}

/// Whether one of what is compared is an interval and all are spans of time or texts.
fn concerns(sides: &[&Expr], schema: &DFSchema) -> bool {
    sides.iter().any(|side| is_interval(side, schema))
        && sides.iter().all(|side| match side.get_type(schema) {
            Ok(kind) => {
                matches!(kind, DataType::Interval(_) | DataType::Duration(_) | DataType::Null) || kind.is_string()
            }
            Err(_) => false,
        })
}

fn in_micros(expr: Expr, schema: &DFSchema) -> Expr {
    let expr = match expr.get_type(schema) {
        Ok(DataType::Duration(_)) => expr,
        _ => cast(expr, INTERVAL),
    };
    INTERVAL_MICROS.call(vec![expr])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalMicros {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalMicros {
    fn name(&self) -> &str {
        "interval_micros"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(interval_micros, Vec::new())(&args.args)
    }
}

fn interval_epoch(args: &[ArrayRef]) -> Result<ArrayRef> {
    let Some(intervals) = args
        .first()
        .and_then(|values| values.as_primitive_opt::<IntervalMonthDayNanoType>())
    else {
        return exec_err!("intervals were expected");
    };
    let seconds: Float64Array = intervals.unary(|interval| {
        let (years, months) = (interval.months / 12, interval.months % 12);
        let days = f64::from(years) * 365.25 + f64::from(months) * 30.0 + f64::from(interval.days);
        #[allow(clippy::cast_precision_loss, reason = "a double has no more digits")]
        let micros = (interval.nanoseconds / 1_000) as f64;
        days * 86_400.0 + micros / 1e6
    });
    Ok(Arc::new(seconds))
}

fn interval_micros(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [values] = args else {
        return exec_err!("an interval was expected");
    };
    let of_interval = |value: IntervalMonthDayNano| {
        let days = i128::from(value.months) * 30 + i128::from(value.days);
        days * i128::from(DAY) + i128::from(value.nanoseconds / 1_000)
    };
    let micros: Decimal128Array = if matches!(values.data_type(), DataType::Duration(_)) {
        let values = converted(values, &DataType::Duration(TimeUnit::Microsecond))?;
        let values = values.as_primitive::<DurationMicrosecondType>().iter();
        values.map(|micros| micros.map(i128::from)).collect()
    } else {
        let values = converted(values, &INTERVAL)?;
        let values = values.as_primitive::<IntervalMonthDayNanoType>().iter();
        values.map(|value| value.map(of_interval)).collect()
    };
    Ok(Arc::new(micros.with_precision_and_scale(38, 0)?))
}
