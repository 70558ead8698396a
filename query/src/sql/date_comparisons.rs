//! `ts::date` where it is compared: DataFusion takes a cast to be undone without loss, and rows of one day to have one time, which
//! needs no order.
//!
//! ```text
//! ts::date = DATE '2026-01-31'   ─>   day_of(ts) = DATE '2026-01-31'   ─>   ts >= '2026-01-31' AND ts < '2026-02-01'
//! ```

use std::sync::LazyLock;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, TimeUnit};
use datafusion::arrow::compute;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable as _, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::comparisons::rewrite_comparison;
use super::timestamps::DAY;

static DAY_OF: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(DayFunction {
        signature: Signature::any(1, Volatility::Immutable),
    })
});

/// See the module.
pub(super) fn rewrite_date_comparison(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let are_days = |sides: &[&Expr]| sides.iter().any(|side| day_of(side, schema).is_some());
    rewrite_comparison(expr, are_days, |side| Ok(day_of(&side, schema).unwrap_or(side)))
}

fn day_of(side: &Expr, schema: &DFSchema) -> Option<Expr> {
    match side {
        Expr::Cast(Cast { expr, field }) if *field.data_type() == DataType::Date32 => {
            let is_time = matches!(expr.get_type(schema), Ok(DataType::Timestamp(..)));
            is_time.then(|| DAY_OF.call(vec![expr.as_ref().clone()]))
        }
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DayFunction {
    signature: Signature,
}

impl ScalarUDFImpl for DayFunction {
    fn name(&self) -> &str {
        "day_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Date32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let days = |args: &[ArrayRef]| -> Result<ArrayRef> {
            match args {
                [times] => Ok(compute::cast(times, &DataType::Date32)?),
                _ => exec_err!("a time was expected"),
            }
        };
        make_scalar_function(days, Vec::new())(&args.args)
    }

    fn preimage(&self, args: &[Expr], day: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        let ([time], Some(ScalarValue::Date32(Some(day)))) = (args, day.as_literal()) else {
            return Ok(PreimageResult::None);
        };
        let DataType::Timestamp(TimeUnit::Microsecond, zone) = info.get_data_type(time)? else {
            return Ok(PreimageResult::None);
        };
        // Days of other zones do not begin with those of UTC.
        if !matches!(zone.as_deref(), None | Some("UTC" | "+00:00")) {
            return Ok(PreimageResult::None);
        }
        let begin = |day: i64| day.checked_mul(DAY);
        let day = i64::from(*day);
        let (Some(first), Some(next)) = (begin(day), begin(day + 1)) else {
            return Ok(PreimageResult::None);
        };
        let moment = |at| ScalarValue::TimestampMicrosecond(Some(at), zone.clone());
        Ok(PreimageResult::Range {
            expr: time.clone(),
            interval: Box::new(Interval::try_new(moment(first), moment(next))?),
        })
    }
}
