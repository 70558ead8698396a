//! Arithmetic as PostgreSQL has it.
//!
//! | written | here | DataFusion |
//! |---|---|---|
//! | `+`, `-`, `*` of whole numbers, `-` before one | a result that does not fit is an error | wraps it around |
//! | `/` of decimals, of a `sum` of `bigint` | a double | a decimal with four more digits than the dividend |
//! | a count without a sign, such as `row_number()`, and another number | whole numbers | decimals |
//! | `percentile_cont`, `median` of whole numbers | doubles | six digits |
//! | `avg` of decimals | with twelve more digits than the decimals | with four |

use std::cmp::Ordering;
use std::collections::HashSet;

use arrow_array::{ArrayRef, Datum};
use arrow_schema::{ArrowError, DataType};
use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable as _, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast, lit,
};
use datafusion::physical_expr_common::datum::apply;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
}

/// See the module.
pub(super) fn rewrite_arithmetic(expr: Expr, schema: &DFSchema, wide_sums: &HashSet<String>) -> Transformed<Expr> {
    if let Some(negated) = negated(&expr, schema) {
        return Transformed::yes(negated);
    }
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Transformed::no(expr);
    };
    let (Ok(of_left), Ok(of_right)) = (left.get_type(schema), right.get_type(schema)) else {
        return Transformed::no(expr);
    };
    let is_exact = |kind: &DataType| kind.is_integer() || matches!(kind, DataType::Decimal128(..));
    if !is_exact(&of_left) || !is_exact(&of_right) {
        return Transformed::no(expr);
    }
    let (left, right) = (left.as_ref().clone(), right.as_ref().clone());
    let is_sum = |number: &Expr| matches!(number, Expr::Column(column) if wide_sums.contains(&column.name));
    let is_whole = of_left.is_integer() && of_right.is_integer() && !is_sum(&left) && !is_sum(&right);
    if *op == Operator::Divide && !is_whole {
        let double = |number| Box::new(cast(number, DataType::Float64));
        let divided = BinaryExpr::new(double(left), Operator::Divide, double(right));
        return Transformed::yes(Expr::BinaryExpr(divided));
    }
    let (mut left, of_left, is_left) = signed(left, of_left);
    let (mut right, of_right, is_right) = signed(right, of_right);
    let operation = match op {
        Operator::Plus => ArithmeticOperator::Add,
        Operator::Minus => ArithmeticOperator::Subtract,
        Operator::Multiply => ArithmeticOperator::Multiply,
        op if is_left || is_right => {
            let expr = BinaryExpr::new(Box::new(left), *op, Box::new(right));
            return Transformed::yes(Expr::BinaryExpr(expr));
        }
        _ => return Transformed::no(expr),
    };
    if !of_left.is_integer() || !of_right.is_integer() {
        return Transformed::no(expr);
    }
    match of_left.primitive_width().cmp(&of_right.primitive_width()) {
        Ordering::Less => left = cast(left, of_right),
        Ordering::Greater => right = cast(right, of_left),
        Ordering::Equal => {}
    }
    Transformed::yes(operation.call(left, right))
}

/// The negative of a whole number: the least one has none.
fn negated(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::Negative(number) = expr else {
        return None;
    };
    let kind = number.get_type(schema).ok().filter(DataType::is_integer)?;
    let (number, kind, _) = signed(number.as_ref().clone(), kind);
    let zero = ScalarValue::new_zero(&kind).ok()?;
    Some(ArithmeticOperator::Subtract.call(lit(zero), number))
}

/// A number with a sign, its type, and whether it had none.
fn signed(number: Expr, kind: DataType) -> (Expr, DataType, bool) {
    if kind.is_unsigned_integer() {
        (cast(number, DataType::Int64), DataType::Int64, true)
    } else {
        (number, kind, false)
    }
}

/// An average of decimals with more digits; anything else as it is.
pub(super) fn rewrite_average(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::AggregateFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let kinds = call.params.args.iter().map(|arg| arg.get_type(schema));
    match kinds.collect::<Result<Vec<_>>>().as_deref() {
        Ok([kind, ..]) if ["percentile_cont", "median"].contains(&call.func.name()) && !kind.is_floating() => {
            for number in call.params.args.iter_mut().take(1) {
                *number = cast(std::mem::take(number), DataType::Float64);
            }
            for by in &mut call.params.order_by {
                by.expr = cast(std::mem::take(&mut by.expr), DataType::Float64);
            }
            Transformed::yes(Expr::AggregateFunction(call))
        }
        Ok([DataType::Decimal128(digits, scale @ 0..=10)]) if call.func.name() == "avg" && *digits <= 22 => {
            let finer = DataType::Decimal128(34, scale + 12);
            call.params.args = call
                .params
                .args
                .into_iter()
                .map(|arg| cast(arg, finer.clone()))
                .collect();
            Transformed::yes(Expr::AggregateFunction(call))
        }
        _ => Transformed::no(Expr::AggregateFunction(call)),
    }
}

impl ArithmeticOperator {
    fn call(self, left: Expr, right: Expr) -> Expr {
        let checked = ScalarUDF::new_from_impl(CheckedArithmetic {
            operation: self,
            signature: Signature::user_defined(Volatility::Immutable),
        });
        checked.call(vec![left, right])
    }
}

/// An operation on two whole numbers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedArithmetic {
    operation: ArithmeticOperator,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedArithmetic {
    fn name(&self) -> &str {
        match self.operation {
            ArithmeticOperator::Add => "add",
            ArithmeticOperator::Subtract => "subtract",
            ArithmeticOperator::Multiply => "multiply",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [left, right] if left == right => Ok(left.clone()),
            _ => exec_err!("two whole numbers of one type were expected, and not {types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return exec_err!("two whole numbers were expected");
        };
        let kernel: fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> = match self.operation {
            ArithmeticOperator::Add => add,
            ArithmeticOperator::Subtract => sub,
            ArithmeticOperator::Multiply => mul,
        };
        apply(left, right, kernel)
    }
}
