//! The grain of a statement: what its expressions see of a row, and so which rows can be rolled up into one.
//!
//! # Invariants
//!
//! - Expressions say the same of all rows that have the words which they see, and whose `ts` is in the same stretch of time. Stretches
//!   are of one length and begin with 1970.

use arrow_schema::{DataType, FieldRef, Schema, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Cast, Expr, Volatility};
use engine::MINUTE;

use crate::time_bounds::{is_time_range, is_ts, narrow_range};
use crate::time_range::TimeRange;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 1_440 * MINUTE;

/// See the module.
#[derive(Debug)]
pub(super) struct RollUpGrain {
    known: &'static [&'static str],
    seen: Vec<&'static str>,
    /// Rows whose `ts` is in the same stretch of so many microseconds are the same to the expressions; without, all are.
    pub(super) stretch: Option<i64>,
}

impl RollUpGrain {
    /// Of no expressions yet, which may see these columns of words.
    pub(super) const fn new(known: &'static [&'static str]) -> Self {
        Self {
            known,
            seen: Vec::new(),
            stretch: None,
        }
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.seen.contains(&word)
    }

    /// The columns of a table that expressions see.
    pub(super) fn columns(&self, table: &Schema) -> Vec<usize> {
        let is_seen = |field: &FieldRef| match field.name().as_str() {
            "ts" => self.stretch.is_some(),
            word => self.has(word),
        };
        let fields = table.fields().iter().enumerate();
        fields.filter(|(_, field)| is_seen(field)).map(|(at, _)| at).collect()
    }

    /// Notes what an expression sees; whether it says the same of all rows that are rolled up into one.
    pub(super) fn try_add(&mut self, expr: &Expr) -> bool {
        if let Some(stretch) = stretch_of(expr) {
            self.stretch = Some(common(self.stretch.unwrap_or(0), stretch));
            return true;
        }
        match expr {
            Expr::Column(column) => match self.known.iter().find(|word| **word == column.name) {
                Some(word) => self.seen.push(word),
                None => return false,
            },
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
                    are_taken &= self.try_add(child);
                    Ok(TreeNodeRecursion::Continue)
                });
                return each.is_ok() && are_taken;
            }
            _ => return false,
        }
        true
    }
}

/// The microseconds of the stretches of time that an expression tells apart, if `ts` is all that it sees.
fn stretch_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("date_bin" | "time_bucket", [width, ts]) if is_time(ts) => width_of(width),
            (name @ ("date_trunc" | "date_part"), [part, ts]) if is_time(ts) => part_of(name, part),
            _ => None,
        },
        Expr::Cast(Cast { expr, field }) => (is_time(expr) && *field.data_type() == DataType::Date32).then_some(DAY),
        condition if is_time_range(condition) => {
            let TimeRange { since, until } = narrow_range(TimeRange::ALL, std::slice::from_ref(condition));
            let bounds = [(since, TimeRange::ALL.since), (until, TimeRange::ALL.until)].into_iter();
            let bounds = bounds.filter(|(bound, none)| bound != none);
            Some(bounds.fold(DAY, |stretch, (bound, _)| common(stretch, bound.micros())))
        }
        _ => None,
    }
}

/// Whether an expression is the column, or it as another type of times in UTC that has all of its digits.
fn is_time(expr: &Expr) -> bool {
    let is_exact = |kind: &DataType| match kind {
        DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, zone) => {
            zone.as_deref().is_none_or(|zone| zone == "UTC")
        }
        _ => false,
    };
    match expr {
        Expr::Cast(Cast { expr, field }) => is_ts(expr) && is_exact(field.data_type()),
        expr => is_ts(expr),
    }
}

/// The width of buckets that begin with 1970.
fn width_of(width: &Expr) -> Option<i64> {
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(width)), _) = width else {
        return None;
    };
    let is_whole = width.months == 0 && width.nanoseconds % 1_000 == 0;
    let micros = i64::from(width.days)
        .checked_mul(DAY)?
        .checked_add(width.nanoseconds / 1_000)?;
    // Functions count nanoseconds.
    (is_whole && micros > 0 && micros.checked_mul(1_000).is_some()).then_some(micros)
}

/// How long a part of a time stands still.
fn part_of(function: &str, part: &Expr) -> Option<i64> {
    let Expr::Literal(ScalarValue::Utf8(Some(part)), _) = part else {
        return None;
    };
    match part.to_ascii_lowercase().as_str() {
        // The other function counts what is less than a second, too.
        "second" if function == "date_trunc" => Some(SECOND),
        "minute" => Some(MINUTE),
        "hour" => Some(60 * MINUTE),
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
