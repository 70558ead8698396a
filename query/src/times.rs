//! What conditions say about `ts`: the stretch of time outside which no row can meet them.
//!
//! # Invariants
//!
//! - A condition of a form that is not known here narrows nothing.
//! - A bound that lies between two microseconds is rounded outwards.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use model::Timestamp;

use crate::window::Window;

/// The part of a window in which rows can be that meet all the conditions.
pub(crate) fn narrowed(window: Window, conditions: &[Expr]) -> Window {
    conditions.iter().map(of).fold(window, both)
}

fn of(condition: &Expr) -> Window {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => both(of(left), of(right)),
            Operator::Or => either(of(left), of(right)),
            _ => match (is_ts(left), bound(right), bound(left), is_ts(right)) {
                (true, Some(at), _, _) => compared(*op, at),
                (_, _, Some(at), true) => op.swap().map_or(Window::ALL, |op| compared(op, at)),
                _ => Window::ALL,
            },
        },
        Expr::Between(between) if !between.negated && is_ts(&between.expr) => {
            let low = bound(&between.low).map_or(Window::ALL, |at| compared(Operator::GtEq, at));
            let high = bound(&between.high).map_or(Window::ALL, |at| compared(Operator::LtEq, at));
            both(low, high)
        }
        _ => Window::ALL,
    }
}

/// Whether a condition says that `ts` is within what it is [`narrowed`] to, and nothing else.
pub(crate) fn is_a_window(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let at = match (bound(left), bound(right)) {
                (None, Some(at)) if is_ts(left) => at,
                (Some(at), None) if is_ts(right) => at,
                _ => return *op == Operator::And && is_a_window(left) && is_a_window(right),
            };
            at.is_told(*op)
        }
        Expr::Between(between) if !between.negated && is_ts(&between.expr) => {
            let is_told = |at: &Expr, op| bound(at).is_some_and(|at| at.is_told(op));
            is_told(&between.low, Operator::GtEq) && is_told(&between.high, Operator::LtEq)
        }
        _ => false,
    }
}

/// Whether an expression is the column.
pub(crate) fn is_ts(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name == "ts")
}

/// The microseconds at or before, and at or after, a moment.
#[derive(Debug, Clone, Copy)]
struct Bound {
    floor: i64,
    ceiling: i64,
}

impl Bound {
    /// Whether a window can tell the rows whose `ts` compares so with it.
    const fn is_told(self, op: Operator) -> bool {
        match op {
            Operator::GtEq | Operator::Lt => true,
            // The microsecond after it begins or ends the window.
            Operator::Gt | Operator::LtEq => self.floor < i64::MAX,
            Operator::Eq => self.floor < i64::MAX && self.floor == self.ceiling,
            _ => false,
        }
    }
}

fn bound(expr: &Expr) -> Option<Bound> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    // A time without a zone is in UTC, as everywhere in a session.
    let at = match value {
        ScalarValue::TimestampSecond(Some(at), _) => at.checked_mul(1_000_000)?,
        ScalarValue::TimestampMillisecond(Some(at), _) => at.checked_mul(1_000)?,
        ScalarValue::TimestampMicrosecond(Some(at), _) => *at,
        ScalarValue::TimestampNanosecond(Some(at), _) => {
            return Some(Bound {
                floor: at.div_euclid(1_000),
                ceiling: at.div_euclid(1_000) + i64::from(at.rem_euclid(1_000) != 0),
            });
        }
        _ => return None,
    };
    Some(Bound { floor: at, ceiling: at })
}

/// The rows whose `ts` compares so with a moment.
fn compared(op: Operator, at: Bound) -> Window {
    let mut window = Window::ALL;
    let moment = Timestamp::from_micros;
    match op {
        Operator::Eq => {
            window.since = moment(at.floor);
            window.until = moment(at.ceiling.saturating_add(1));
        }
        Operator::Gt => window.since = moment(at.floor.saturating_add(1)),
        Operator::GtEq => window.since = moment(at.ceiling),
        Operator::Lt => window.until = moment(at.ceiling),
        Operator::LtEq => window.until = moment(at.floor.saturating_add(1)),
        _ => {}
    }
    window
}

fn both(a: Window, b: Window) -> Window {
    Window {
        since: a.since.max(b.since),
        until: a.until.min(b.until),
    }
}

fn either(a: Window, b: Window) -> Window {
    Window {
        since: a.since.min(b.since),
        until: a.until.max(b.until),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{ident, lit};

    use super::*;
    use crate::filter::moment;

    fn at(micros: i64) -> Expr {
        moment(Timestamp::from_micros(micros))
    }

    fn found(condition: Expr) -> (i64, i64) {
        let window = narrowed(Window::ALL, &[condition]);
        (window.since.micros(), window.until.micros())
    }

    #[test]
    fn comparisons_with_ts_narrow_from_either_side_and_nothing_else_does() {
        let ts = || ident("ts");
        assert_eq!(found(ts().gt_eq(at(5)).and(ts().lt(at(9)))), (5, 9));
        assert_eq!(found(at(5).lt(ts()).and(at(9).gt_eq(ts()))), (6, 10));
        assert_eq!(found(ts().between(at(5), at(9))), (5, 10));
        assert_eq!(found(ts().eq(at(5)).or(ts().eq(at(9)))), (5, 10));
        let all = (i64::MIN, i64::MAX);
        assert_eq!(found(ts().not_between(at(5), at(9))), all);
        assert_eq!(found(ts().eq(at(5)).or(ident("level").eq(lit("error")))), all);
        assert_eq!(found(ts().not_eq(at(5))), all);
        assert_eq!(found(ident("other").eq(at(5))), all);
    }

    #[test]
    fn only_what_compares_ts_with_moments_is_a_window() {
        let ts = || ident("ts");
        let nanos = |at| lit(ScalarValue::TimestampNanosecond(Some(at), None));
        for window in [
            ts().gt_eq(at(5)).and(ts().lt(at(9))),
            at(5).lt(ts()),
            ts().between(at(5), at(9)),
            ts().eq(at(5)),
            ts().gt(nanos(1_500)),
        ] {
            assert!(is_a_window(&window), "{window}");
        }
        for other in [
            ts().not_eq(at(5)),
            ts().not_between(at(5), at(9)),
            ts().gt(at(5)).or(ts().lt(at(9))),
            ts().gt(at(5)).and(ident("level").eq(lit("error"))),
            ts().eq(nanos(1_500)),
            ts().lt_eq(at(i64::MAX)),
            ts().gt(ident("other")),
            ident("other").gt(at(5)),
            at(4).lt(at(5)),
            ts().gt(lit(ScalarValue::TimestampMicrosecond(None, None))),
        ] {
            assert!(!is_a_window(&other), "{other}");
        }
    }

    #[test]
    fn a_bound_between_two_microseconds_leaves_out_neither() {
        let nanos = |at| lit(ScalarValue::TimestampNanosecond(Some(at), Some("UTC".into())));
        assert_eq!(found(ident("ts").gt_eq(nanos(1_500))).0, 2);
        assert_eq!(found(ident("ts").gt(nanos(1_500))).0, 2);
        assert_eq!(found(ident("ts").lt(nanos(1_500))).1, 2);
        assert_eq!(found(ident("ts").lt_eq(nanos(1_500))).1, 2);
        assert_eq!(found(ident("ts").gt(nanos(-1_500))).0, -1);
        assert_eq!(found(ident("ts").lt(nanos(2_000))).1, 2);
    }
}
