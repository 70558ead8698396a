//! `+`, `-` and `*` of whole numbers: a result that does not fit is an error. DataFusion wraps it around.

use std::cmp::Ordering;

use arrow_array::{ArrayRef, Datum};
use arrow_schema::{ArrowError, DataType};
use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable as _, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast,
};
use datafusion::physical_expr_common::datum::apply;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
}

/// See the module.
pub(super) fn replaced(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Transformed::no(expr);
    };
    let operation = match op {
        Operator::Plus => Operation::Add,
        Operator::Minus => Operation::Subtract,
        Operator::Multiply => Operation::Multiply,
        _ => return Transformed::no(expr),
    };
    let (Ok(of_left), Ok(of_right)) = (left.get_type(schema), right.get_type(schema)) else {
        return Transformed::no(expr);
    };
    if !of_left.is_signed_integer() || !of_right.is_signed_integer() {
        return Transformed::no(expr);
    }
    let (mut left, mut right) = (left.as_ref().clone(), right.as_ref().clone());
    match of_left.primitive_width().cmp(&of_right.primitive_width()) {
        Ordering::Less => left = cast(left, of_right),
        Ordering::Greater => right = cast(right, of_left),
        Ordering::Equal => {}
    }
    Transformed::yes(operation.call(left, right))
}

impl Operation {
    fn call(self, left: Expr, right: Expr) -> Expr {
        let checked = ScalarUDF::new_from_impl(Checked {
            operation: self,
            signature: Signature::user_defined(Volatility::Immutable),
        });
        checked.call(vec![left, right])
    }
}

/// An operation on two whole numbers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "add",
            Operation::Subtract => "subtract",
            Operation::Multiply => "multiply",
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
            Operation::Add => add,
            Operation::Subtract => sub,
            Operation::Multiply => mul,
        };
        apply(left, right, kernel)
    }
}
