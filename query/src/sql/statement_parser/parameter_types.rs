//! Types of parameters: what they are declared to be, and what a statement casts them to.
//!
//! A value of a type that is no text anywhere is cast at every place, any other one where nothing else tells its type.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CastKind, DataType as SqlType, Expr, GroupByExpr, OrderBy, OrderByKind, Query, Select,
    SelectItem, TimezoneInfo, Value, ValueWithSpan,
};

const INTERVAL: SqlType = SqlType::Interval {
    fields: None,
    precision: None,
};

/// What parameters are declared to be, by their places from 1.
pub(super) type DeclaredTypes = BTreeMap<usize, DataType>;

fn cast(expr: Expr, data_type: SqlType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

/// What `$n` is declared to be.
pub(super) fn declared_type<'a>(declared: &'a DeclaredTypes, name: &str) -> Option<&'a DataType> {
    let place: usize = name.strip_prefix('$')?.parse().ok()?;
    declared.get(&place)
}

/// A value of a type that is no text anywhere.
pub(super) fn declared_everywhere(declared: &DeclaredTypes, name: &str, value: Expr) -> Expr {
    match declared_type(declared, name) {
        Some(DataType::Interval(_)) => cast(value, INTERVAL),
        Some(DataType::Binary) => match value {
            Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(digits),
                ..
            }) => Expr::Value(Value::HexStringLiteral(digits).into()),
            other => cast(other, SqlType::Bytea),
        },
        _ => value,
    }
}

/// Casts parameters that are columns of an answer, or that it is grouped by, to what they are declared to be: nothing else tells their
/// type, and a number alone would be the place of a column.
pub(super) fn cast_selected(declared: &DeclaredTypes, select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            cast_declared(declared, expr);
        }
    }
    if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        groups.iter_mut().for_each(|group| cast_declared(declared, group));
    }
}

/// As [`cast_selected`], of what an answer is sorted by.
pub(super) fn cast_sorted(declared: &DeclaredTypes, query: &mut Query) {
    if let Some(OrderBy {
        kind: OrderByKind::Expressions(sorted),
        ..
    }) = &mut query.order_by
    {
        sorted.iter_mut().for_each(|by| cast_declared(declared, &mut by.expr));
    }
}

/// Casts an expression that is a parameter.
fn cast_declared(declared: &DeclaredTypes, expr: &mut Expr) {
    let kind = place_of(expr).and_then(|(name, _)| declared_type(declared, name));
    let kind = kind.filter(|kind| !matches!(kind, DataType::Interval(_) | DataType::Binary));
    if let Some(kind) = kind.and_then(sql_type) {
        let place = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        *expr = cast(place, kind);
    }
}

/// What a declared type is called in a statement.
fn sql_type(kind: &DataType) -> Option<SqlType> {
    Some(match kind {
        DataType::Boolean => SqlType::Boolean,
        DataType::Int16 => SqlType::SmallInt(None),
        DataType::Int32 => SqlType::Integer(None),
        DataType::Int64 => SqlType::BigInt(None),
        DataType::Float32 => SqlType::Real,
        DataType::Float64 => SqlType::DoublePrecision,
        DataType::Utf8 => SqlType::Text,
        DataType::FixedSizeBinary(16) => SqlType::Uuid,
        DataType::Date32 => SqlType::Date,
        DataType::Time64(_) => SqlType::Time(None, TimezoneInfo::None),
        DataType::Timestamp(_, None) => SqlType::Timestamp(None, TimezoneInfo::None),
        DataType::Timestamp(_, Some(_)) => SqlType::Timestamp(None, TimezoneInfo::WithTimeZone),
        DataType::Interval(_) => INTERVAL,
        DataType::List(item) => {
            let item = sql_type(item.data_type())?;
            SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None))
        }
        _ => return None,
    })
}

/// The parameter that an expression is.
pub(super) fn place_of(expr: &Expr) -> Option<(&str, &ValueWithSpan)> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some((name, value)),
            _ => None,
        },
        _ => None,
    }
}

/// The type of what is cast to another, if it should come as that at once.
pub(super) fn type_of(cast: &SqlType) -> Option<DataType> {
    Some(match cast {
        SqlType::SmallInt(_)
        | SqlType::Int2(_)
        | SqlType::Int(_)
        | SqlType::Integer(_)
        | SqlType::Int4(_)
        | SqlType::BigInt(_)
        | SqlType::Int8(_) => DataType::Int64,
        SqlType::Real
        | SqlType::Float(_)
        | SqlType::Float4
        | SqlType::Float8
        | SqlType::Double(_)
        | SqlType::DoublePrecision => DataType::Float64,
        SqlType::Bool | SqlType::Boolean => DataType::Boolean,
        SqlType::Uuid => DataType::FixedSizeBinary(16),
        SqlType::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Date => DataType::Date32,
        SqlType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => DataType::Time64(TimeUnit::Microsecond),
        SqlType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        SqlType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => {
            let item = type_of(item).unwrap_or(DataType::Utf8);
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        _ => return None,
    })
}
