//! Bounded functions: they know how large their values will be, and refuse those that are too large.
//!
//! ```text
//! replace(text, 'a', 'bbb')  ─>  bound of each row  ─ one too large ──> refused
//!                                    │ pieces of rows that fit
//!                                    ▼
//!                                 made one after the other, added up, counted until nobody has them any more
//! ```
//!
//! | at most | bytes |
//! |---|---|
//! | a value of constants, which is made while a statement is planned | [`MOST_FOLDED`], or the largest of them |
//! | a value | [`MOST_OF_A_VALUE`], or what a batch may have |
//! | the values of a batch | an eighth of the memory of queries |
//! | all texts of functions that a statement has | the memory of queries |
//!
//! # How
//!
//! An analyzer rule puts each call of such a function into a [`BoundedFunction`], and makes one of `||`: functions that planners
//! put into a plan are met there too. It refuses the functions and windows that are not supported ([`super::function_allowlist`]).

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::compute::kernels::cmp::distinct;
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, WindowFrame, WindowFrameBound, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;

use super::expression_rewriter::rewrite_expressions;
use super::function_allowlist::{is_offered_over_windows, is_refused};
use super::size_bounds::{ArgumentRow, SizeBound, SizedArgument, size_bound};
use super::statement_bounds::{StatementBounds, exhausted};

/// The most bytes of a value of constants alone, which planning keeps.
const MOST_FOLDED: u64 = 64 << 10;
/// The most bytes of a value.
const MOST_OF_A_VALUE: u64 = 16 << 20;

/// The most bytes or elements that values of a fixed size have: nulls have them too.
const MOST_OF_FIXED_SIZE: u64 = 100;

/// Puts functions that make large values into their bounds, see the module.
#[derive(Debug)]
pub(super) struct BoundedFunctions;

impl AnalyzerRule for BoundedFunctions {
    fn name(&self) -> &str {
        "bounded_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| rewrite_expressions(plan, bounded))?;
        Ok(plan.data)
    }
}

fn bounded(expr: Expr) -> Result<Transformed<Expr>> {
    static CONCATENATION: LazyLock<Option<Arc<ScalarUDF>>> =
        LazyLock::new(|| BoundedFunction::of(&Arc::new(ScalarUDF::from(ConcatOperator::new()))));
    let called = |func: Arc<ScalarUDF>, args| Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }));
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::StringConcat,
            right,
        }) => match CONCATENATION.as_ref() {
            Some(func) => called(Arc::clone(func), vec![*left, *right]),
            None => return plan_err!("|| is not supported"),
        },
        Expr::ScalarFunction(ScalarFunction { func, .. }) if is_refused(func.name()) => {
            return plan_err!("Invalid function '{}'", func.name());
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if func.name() == "arrow_cast" && is_of_wide_type(&args) =>
        {
            return plan_err!("arrow_cast to values of a fixed size is for {MOST_OF_FIXED_SIZE} of them at most");
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => match BoundedFunction::of(&func) {
            Some(func) => called(func, args),
            None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
        },
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) if !is_offered_over_windows(function.name()) => {
                return plan_err!(
                    "{} is not supported with OVER: ask for it in a query with GROUP BY and join that",
                    function.name()
                );
            }
            _ if is_absurd(&call.params.window_frame) => {
                return plan_err!("the frame of a window has more rows than there can be: write UNBOUNDED");
            }
            _ => Transformed::no(Expr::WindowFunction(call)),
        },
        other => Transformed::no(other),
    })
}

/// Whether a type of Arrow, the second argument, has room in each value for more than [`MOST_OF_FIXED_SIZE`] bytes or elements.
fn is_of_wide_type(args: &[Expr]) -> bool {
    let Some(Expr::Literal(ScalarValue::Utf8(Some(kind)), _)) = args.get(1) else {
        return false;
    };
    let mut numbers = kind.split(|letter: char| !letter.is_ascii_digit());
    kind.matches("FixedSize").count() > 1
        || kind.contains("FixedSize")
            && numbers
                .any(|number| number.len() > 3 || number.parse().is_ok_and(|number: u64| number > MOST_OF_FIXED_SIZE))
}

/// Whether a frame ends so far away that the number of its last row does not fit.
fn is_absurd(frame: &WindowFrame) -> bool {
    [&frame.start_bound, &frame.end_bound]
        .into_iter()
        .any(|bound| match bound {
            WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows)))
            | WindowFrameBound::Following(ScalarValue::UInt64(Some(rows))) => *rows > i64::MAX.cast_unsigned(),
            _ => false,
        })
}

/// A function within the bounds of its statement.
#[derive(Debug)]
struct BoundedFunction {
    function: Arc<ScalarUDF>,
    size: SizeBound,
}

impl BoundedFunction {
    /// The function within its bounds; `None` if it needs none, or has them.
    fn of(function: &Arc<ScalarUDF>) -> Option<Arc<ScalarUDF>> {
        let size = size_bound(function.name()).filter(|_| !function.inner().is::<Self>())?;
        let function = Arc::clone(function);
        Some(Arc::new(ScalarUDF::new_from_impl(Self { function, size })))
    }

    /// The bounds of the statement, which has not ended.
    fn bounds<'a>(&self, options: &'a ConfigOptions) -> Result<&'a StatementBounds> {
        let Some(bounds) = options.extensions.get::<StatementBounds>() else {
            return exec_err!("{} is asked for outside of a statement", self.function.name());
        };
        bounds.check()?;
        Ok(bounds)
    }

    /// The values of all rows, counted.
    fn counted(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let options = Arc::clone(&args.config_options);
        let bounds = self.bounds(&options)?;
        Ok(match self.function.invoke_with_args(args)? {
            ColumnarValue::Array(array) => ColumnarValue::Array(bounds.counted(array)?),
            scalar @ ColumnarValue::Scalar(_) => scalar,
        })
    }

    /// Refuses patterns that differ from row to row: each is compiled, and kept.
    fn check_pattern(&self, args: &ScalarFunctionArgs) -> Result<()> {
        let is_pattern = self.function.name().starts_with("regexp_");
        let Some(ColumnarValue::Array(patterns)) = args.args.get(1).filter(|_| is_pattern) else {
            return Ok(());
        };
        if patterns.len() > 1
            && distinct(
                &patterns.slice(1, patterns.len() - 1),
                &patterns.slice(0, patterns.len() - 1),
            )?
            .has_true()
        {
            return exec_err!(
                "the pattern of {} must be the same in all rows: match with ~",
                self.function.name()
            );
        }
        Ok(())
    }

    /// The rows in pieces whose values have so many bytes at most: where each ends.
    fn pieces(
        &self,
        size: fn(&ArgumentRow<'_>) -> u64,
        arguments: &[SizedArgument<'_>],
        rows: usize,
        most: u64,
    ) -> Result<Vec<usize>> {
        let (mut ends, mut sum) = (Vec::new(), 0_u64);
        for row in 0..rows {
            let size = size(&ArgumentRow { arguments, row });
            if size > MOST_OF_A_VALUE.min(most) {
                return exec_err!(
                    "{} would make a value of up to {size} bytes, more than {}",
                    self.function.name(),
                    MOST_OF_A_VALUE.min(most)
                );
            }
            sum = sum.saturating_add(size);
            if sum > most {
                ends.push(row);
                sum = size;
            }
        }
        ends.push(rows);
        Ok(ends)
    }

    /// The values of some rows.
    fn evaluate_rows(&self, args: &ScalarFunctionArgs, from: usize, to: usize) -> Result<ArrayRef> {
        let slice = |arg: &ColumnarValue| match arg {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, to - from)),
            ColumnarValue::Scalar(scalar) => ColumnarValue::Scalar(scalar.clone()),
        };
        let args = ScalarFunctionArgs {
            args: args.args.iter().map(slice).collect(),
            number_rows: to - from,
            ..args.clone()
        };
        self.function.invoke_with_args(args)?.into_array(to - from)
    }
}

impl PartialEq for BoundedFunction {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for BoundedFunction {}

impl Hash for BoundedFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

impl ScalarUDFImpl for BoundedFunction {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.function.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.function.is_strict()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(types)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.function.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.function.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.function.preserves_lex_ordering(inputs)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let size = match self.size {
            SizeBound::Copy if is_constant => return self.function.invoke_with_args(args),
            SizeBound::Copy => return self.counted(args),
            SizeBound::UpTo(size) => size,
        };
        let arguments: Vec<_> = args.args.iter().map(SizedArgument::of).collect::<Result<_>>()?;
        let rows = args.number_rows;
        if is_constant {
            let row = ArgumentRow {
                arguments: &arguments,
                row: 0,
            };
            let (size, most) = (size(&row), MOST_FOLDED.max(row.largest()));
            if size > most {
                return exec_err!(
                    "{} would make a value of up to {size} bytes of constants, more than {most}",
                    self.name()
                );
            }
            drop(arguments);
            return self.function.invoke_with_args(args);
        }
        let options = Arc::clone(&args.config_options);
        let bounds = self.bounds(&options)?;
        self.check_pattern(&args)?;
        let ends = self.pieces(size, &arguments, rows, bounds.batch() as u64)?;
        drop(arguments);
        if ends.len() == 1 {
            return self.counted(args);
        }
        // The bound is far above what comes out, or what comes out is too much.
        let (mut made, mut bytes, mut from) = (Vec::with_capacity(ends.len()), 0, 0);
        for to in ends {
            bounds.check()?;
            let array = self.evaluate_rows(&args, from, to)?;
            bytes += array.get_array_memory_size();
            if bytes > bounds.batch() {
                return Err(exhausted(bounds.batch()));
            }
            made.push(array);
            from = to;
        }
        let made: Vec<_> = made.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(bounds.counted(concat(&made)?)?))
    }
}

/// `||` of texts or bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ConcatOperator {
    signature: Signature,
}

impl ConcatOperator {
    fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ConcatOperator {
    fn name(&self) -> &str {
        "||"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => Ok(format!("{} || {}", left.schema_name(), right.schema_name())),
            _ => plan_err!("|| is for two texts"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        // Both are of one type by now.
        match types {
            [left, right] if left == right => Ok(left.clone()),
            _ => plan_err!("|| is for two texts, and not for {types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let [left, right] = args.args.as_slice() else {
            return exec_err!("|| is for two texts");
        };
        let made = concat_elements_dyn(&left.to_array(rows)?, &right.to_array(rows)?)?;
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?)
        } else {
            ColumnarValue::Array(made)
        })
    }
}
