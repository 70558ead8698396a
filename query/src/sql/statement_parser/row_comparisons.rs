//! Comparisons of rows of values and with lists, as comparisons of their parts: what is compared with null is unknown.
//!
//! | written | meant |
//! |---|---|
//! | `(a, b) = (c, d)`, `<>` | `a = c AND b = d`, `a <> c OR b <> d` |
//! | `(a, b) < (c, d)`, `<=`, `>`, `>=` | `a < c OR a = c AND b < d` |
//! | `(a, b) IN ((c, d), …)` | `a = c AND b = d OR …` |
//! | `(a, b) IS NULL`, `IS NOT NULL` | `a IS NULL AND b IS NULL`, `a IS NOT NULL AND b IS NOT NULL` |
//! | `a = ANY(ARRAY[b, c])`, `a <> ALL(ARRAY[b, c])` | `a IN (b, c)`, `a NOT IN (b, c)` |
//! | `a > ANY(ARRAY[b, c])`, `a > ALL(ARRAY[b, c])` | `a > b OR a > c`, `a > b AND a > c` |

use datafusion::sql::sqlparser::ast::{Array, BinaryOperator, Expr, UnaryOperator, Value};

use crate::Error;

/// How many bytes the sides of comparisons may have that are written more than once; beyond them the planner sees what is written.
const MOST: usize = 256 << 10;

/// How many bytes a row may have that is compared by order, and is written twice for it: one within another doubles each time.
const MOST_OF_A_ROW: usize = 4 << 10;

/// See the module; anything else as it is.
pub(super) fn expanded(expr: Expr) -> Result<Expr, Error> {
    Ok(match expr {
        Expr::BinaryOp { left, op, right } => match (*left, *right) {
            (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => rows(left, &op, right)?,
            (left, right) => Expr::BinaryOp {
                left: Box::new(left),
                op,
                right: Box::new(right),
            },
        },
        Expr::InList { expr, list, negated } => match *expr {
            Expr::Tuple(row) if is_of_rows(&list, row.len()) && fits(&row, list.len()) => {
                let equal = list.into_iter().filter_map(|item| match item {
                    Expr::Tuple(item) => Some(rows(row.clone(), &BinaryOperator::Eq, item)),
                    _ => None,
                });
                let found = joined(&BinaryOperator::Or, equal.collect::<Result<_, _>>()?);
                if negated { not(found) } else { found }
            }
            expr => Expr::InList {
                expr: Box::new(expr),
                list,
                negated,
            },
        },
        Expr::IsNull(of) => each_value(*of, Expr::IsNull),
        Expr::IsNotNull(of) => each_value(*of, Expr::IsNotNull),
        Expr::AnyOp {
            left,
            compare_op,
            right,
            is_some,
        } => match listed(*right, &left) {
            Ok(list) => of_list(*left, compare_op, list, false),
            Err(right) => Expr::AnyOp {
                left,
                compare_op,
                right,
                is_some,
            },
        },
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => match listed(*right, &left) {
            Ok(list) => of_list(*left, compare_op, list, true),
            Err(right) => Expr::AllOp {
                left,
                compare_op,
                right,
            },
        },
        other => other,
    })
}

/// A test of each value of a row, or of what is none.
fn each_value(of: Expr, test: fn(Box<Expr>) -> Expr) -> Expr {
    match of {
        Expr::Tuple(values) => {
            let tests = values
                .into_iter()
                .map(|value| test(Box::new(Expr::Nested(Box::new(value)))));
            joined(&BinaryOperator::And, tests.collect())
        }
        other => test(Box::new(other)),
    }
}

/// Whether expressions may be written so many times.
fn fits(exprs: &[Expr], times: usize) -> bool {
    bytes_of(exprs).saturating_mul(times) <= MOST
}

fn bytes_of(exprs: &[Expr]) -> usize {
    exprs.iter().map(|expr| expr.to_string().len()).sum()
}

/// Whether all are rows of so many values.
fn is_of_rows(list: &[Expr], values: usize) -> bool {
    list.iter()
        .all(|item| matches!(item, Expr::Tuple(item) if item.len() == values))
}

/// The values of an array that is written out.
fn listed(array: Expr, compared: &Expr) -> Result<Vec<Expr>, Box<Expr>> {
    match array {
        Expr::Array(Array { elem, .. }) if !elem.is_empty() && fits(std::slice::from_ref(compared), elem.len()) => {
            Ok(elem)
        }
        Expr::Nested(inner) => listed(*inner, compared).map_err(|inner| Box::new(Expr::Nested(inner))),
        other => Err(Box::new(other)),
    }
}

fn of_list(left: Expr, op: BinaryOperator, list: Vec<Expr>, is_all: bool) -> Expr {
    match (&op, is_all) {
        (BinaryOperator::Eq, false) | (BinaryOperator::NotEq, true) => Expr::Nested(Box::new(Expr::InList {
            expr: Box::new(left),
            list,
            negated: is_all,
        })),
        _ => {
            let compared = list.into_iter().map(|item| compare(left.clone(), &op, item)).collect();
            let join = if is_all {
                BinaryOperator::And
            } else {
                BinaryOperator::Or
            };
            joined(&join, compared)
        }
    }
}

fn rows(left: Vec<Expr>, op: &BinaryOperator, right: Vec<Expr>) -> Result<Expr, Error> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let strict = match op {
        Lt | LtEq => Lt,
        Gt | GtEq => Gt,
        Eq | NotEq => {
            let join = if *op == Eq { And } else { Or };
            let each = left
                .into_iter()
                .zip(right)
                .map(|(left, right)| compare(left, op, right));
            return Ok(joined(&join, each.collect()));
        }
        _ => return Ok(as_written(left, op, right)),
    };
    if bytes_of(&left) + bytes_of(&right) > MOST_OF_A_ROW {
        return Err(Error::statement(format!(
            "the rows that are compared by {op} have more than {MOST_OF_A_ROW} bytes: take what is long in them into a WITH"
        )));
    }
    // From the last: what decides where all before are equal.
    let mut pairs = left.into_iter().zip(right).rev();
    let Some((left, right)) = pairs.next() else {
        return Ok(Expr::Value(Value::Null.into()));
    };
    Ok(pairs.fold(compare(left, op, right), |rest, (left, right)| {
        let equal = joined(&And, vec![compare(left.clone(), &Eq, right.clone()), rest]);
        joined(&Or, vec![compare(left, &strict, right), equal])
    }))
}

fn as_written(left: Vec<Expr>, op: &BinaryOperator, right: Vec<Expr>) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Tuple(left)),
        op: op.clone(),
        right: Box::new(Expr::Tuple(right)),
    }
}

fn compare(left: Expr, op: &BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(left))),
        op: op.clone(),
        right: Box::new(Expr::Nested(Box::new(right))),
    }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    }
}

/// Conditions joined in brackets, as flat as can be: planning recurses.
fn joined(op: &BinaryOperator, mut conditions: Vec<Expr>) -> Expr {
    let more = conditions.split_off(conditions.len().div_ceil(2));
    match (conditions.pop(), more.is_empty()) {
        (None, _) => Expr::Value(Value::Null.into()),
        (Some(one), true) => Expr::Nested(Box::new(one)),
        (Some(last), false) => {
            conditions.push(last);
            Expr::Nested(Box::new(Expr::BinaryOp {
                left: Box::new(joined(op, conditions)),
                op: op.clone(),
                right: Box::new(joined(op, more)),
            }))
        }
    }
}
