//! Time bounds of conditions on `ts`, outside which no row can meet them.
//!
//! # Invariants
//!
//! - A condition of a form that is not known here narrows nothing.
//! - A bound that lies between two microseconds is rounded outwards.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use model::Timestamp;

use crate::time_range::TimeRange;

/// The part of a window in which rows can be that meet all the conditions.
pub(crate) fn narrow_range(window: TimeRange, conditions: &[Expr]) -> TimeRange {
    let stretches = conditions.iter().map(|condition| of(condition).0);
    stretches.fold(window, both)
}

/// Whether a condition says that `ts` is within the range of [`narrow_range`], and nothing else.
pub(crate) fn is_time_range(condition: &Expr) -> bool {
    of(condition).1
}

/// The stretch outside which no row meets a condition, and whether every row within it does.
fn of(condition: &Expr) -> (TimeRange, bool) {
    const NOTHING: (TimeRange, bool) = (TimeRange::ALL, false);
    let all = |(a, is_a): (TimeRange, bool), (b, is_b): (TimeRange, bool)| (both(a, b), is_a && is_b);
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => all(of(left), of(right)),
            Operator::Or => (either(of(left).0, of(right).0), false),
            _ if is_ts(left) => compared(Some(*op), right),
            _ if is_ts(right) => compared(op.swap(), left),
            _ => NOTHING,
        },
        Expr::Between(between) if !between.negated && is_ts(&between.expr) => all(
            compared(Some(Operator::GtEq), &between.low),
            compared(Some(Operator::LtEq), &between.high),
        ),
        _ => NOTHING,
    }
}

/// Whether an expression is the column.
pub(crate) fn is_ts(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name == "ts")
}

/// The microseconds at or before, and at or after, a moment.
#[derive(Debug, Clone, Copy)]
struct MicrosBound {
    floor: i64,
    ceiling: i64,
}

fn bound(expr: &Expr) -> Option<MicrosBound> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    // A time without a zone is in UTC, as everywhere in a session.
    let at = match value {
        ScalarValue::TimestampSecond(Some(at), _) => at.checked_mul(1_000_000)?,
        ScalarValue::TimestampMillisecond(Some(at), _) => at.checked_mul(1_000)?,
        ScalarValue::TimestampMicrosecond(Some(at), _) => *at,
        ScalarValue::TimestampNanosecond(Some(at), _) => {
            return Some(MicrosBound {
                floor: at.div_euclid(1_000),
                ceiling: at.div_euclid(1_000) + i64::from(at.rem_euclid(1_000) != 0),
            });
        }
        _ => return None,
    };
    Some(MicrosBound { floor: at, ceiling: at })
}

/// The stretch of the rows whose `ts` compares so with a moment, and whether it has no others.
fn compared(op: Option<Operator>, moment: &Expr) -> (TimeRange, bool) {
    let all = TimeRange::ALL;
    let (Some(op), Some(MicrosBound { floor, ceiling })) = (op, bound(moment)) else {
        return (all, false);
    };
    let [at, from, after] = [floor, ceiling, floor.saturating_add(1)].map(Timestamp::from_micros);
    // No window tells what is after the last microsecond.
    let has_next = floor < i64::MAX;
    let (since, until, is_told) = match op {
        Operator::Eq if floor == ceiling => (at, after, has_next),
        Operator::Eq => (at, Timestamp::from_micros(ceiling.saturating_add(1)), false),
        Operator::Gt => (after, all.until, has_next),
        Operator::GtEq => (from, all.until, true),
        Operator::Lt => (all.since, from, true),
        Operator::LtEq => (all.since, after, has_next),
        _ => (all.since, all.until, false),
    };
    (TimeRange { since, until }, is_told)
}

fn both(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange {
        since: a.since.max(b.since),
        until: a.until.min(b.until),
    }
}

fn either(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange {
        since: a.since.min(b.since),
        until: a.until.max(b.until),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{ident, lit};

    use super::*;
    use crate::filter::timestamp_literal;

    fn at(micros: i64) -> Expr {
        timestamp_literal(Timestamp::from_micros(micros))
    }

    fn found(condition: Expr) -> (i64, i64) {
        let window = narrow_range(TimeRange::ALL, &[condition]);
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
            assert!(is_time_range(&window), "{window}");
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
            assert!(!is_time_range(&other), "{other}");
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
