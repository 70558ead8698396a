//! Parameters: values in the places of a statement.
//!
//! | value | becomes |
//! |---|---|
//! | text, number, boolean, null | the literal; of an interval, `CAST('…' AS INTERVAL)`, of bytes `X'…'`; of another declared type a cast where it is selected, grouped or sorted by |
//! | list | `ARRAY[…]`, and in `x = ANY($1)` what [`row_comparisons`] makes of it |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, CastKind, DataType as SqlType, Expr, GroupByExpr, LimitClause, OrderBy, OrderByKind,
    Query, Select, SelectItem, Statement as Ast, TimezoneInfo, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use super::row_comparisons;
use crate::Error;
use crate::sql::SqlParameters;

/// The most items of one list.
const MOST_OF_LIST: usize = 10_000;

/// What all parameters may come to where they are used: how many values, and how many bytes of text.
const MOST_ITEMS: usize = 50_000;
const MOST_BYTES: usize = 4 << 20;

const INTERVAL: SqlType = SqlType::Interval {
    fields: None,
    precision: None,
};

/// What parameters are declared to be, by their places from 1.
type DeclaredTypes = BTreeMap<usize, DataType>;

/// Puts the parameters into their places; gives the name of one that has no place.
pub(super) fn bind_values(
    ast: &mut Ast,
    parameters: &SqlParameters,
    declared: &DeclaredTypes,
) -> Result<Option<String>, Error> {
    let given = parameters.by_place();
    let mut places = ParameterBinder {
        given: &given,
        declared,
        used: BTreeSet::new(),
        items_left: MOST_ITEMS,
        bytes_left: MOST_BYTES,
    };
    if let ControlFlow::Break(error) = VisitMut::visit(ast, &mut places) {
        return Err(*error);
    }
    Ok(given.keys().find(|name| !places.used.contains(*name)).cloned())
}

struct ParameterBinder<'a> {
    given: &'a BTreeMap<String, serde_json::Value>,
    declared: &'a DeclaredTypes,
    used: BTreeSet<String>,
    /// A value is written out at every place where it is used.
    items_left: usize,
    bytes_left: usize,
}

impl<'a> ParameterBinder<'a> {
    /// The value of a place.
    fn value(&mut self, place: &ValueWithSpan, name: &str) -> Result<&'a serde_json::Value, Box<Error>> {
        let all: &'a BTreeMap<String, serde_json::Value> = self.given;
        let Some(given) = all.get(name) else {
            let at = place.span.start;
            return Err(Box::new(Error::Statement {
                reason: format!(
                    "the parameter {name} is not given: parameters are a list for $1, $2, … or an object for $name"
                ),
                at: Some((at.line, at.column)),
            }));
        };
        self.charge(name, given)?;
        self.used.insert(name.to_owned());
        Ok(given)
    }

    /// Takes a value from what all may come to, before it is written out.
    fn charge(&mut self, name: &str, value: &serde_json::Value) -> Result<(), Box<Error>> {
        let items = match value {
            serde_json::Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        if items.len() > MOST_OF_LIST {
            let reason = format!("the parameter {name} is a list of more than {MOST_OF_LIST} items");
            return Err(Box::new(Error::statement(reason)));
        }
        let bytes: usize = items.iter().filter_map(|item| item.as_str().map(str::len)).sum();
        let left = self
            .items_left
            .checked_sub(items.len())
            .zip(self.bytes_left.checked_sub(bytes));
        let Some((items_left, bytes_left)) = left else {
            let reason = format!(
                "its parameters come to more than {MOST_ITEMS} items, or {MOST_BYTES} bytes, where they are used: use each in fewer places"
            );
            return Err(Box::new(Error::statement(reason)));
        };
        (self.items_left, self.bytes_left) = (items_left, bytes_left);
        Ok(())
    }

    /// What takes the place of an expression, if that is a parameter or is compared with a list of parameters.
    fn bound(&mut self, expr: &Expr) -> Result<Option<Expr>, Box<Error>> {
        if let Some((name, place)) = place_of(expr) {
            let value = self.value(place, name)?;
            let mut bound = match value {
                serde_json::Value::Array(items) => list(name, items)?,
                value => literal(name, value)?,
            };
            if let Expr::Value(literal) = &mut bound {
                literal.span = place.span;
            }
            return Ok(Some(declared_everywhere(self.declared, name, bound)));
        }
        let (Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }) = expr else {
            return Ok(None);
        };
        let Some((name, place)) = place_of(uncast(right)) else {
            return Ok(None);
        };
        match self.value(place, name)? {
            serde_json::Value::Array(items) if items.is_empty() => {
                let is_all = matches!(expr, Expr::AllOp { .. });
                Ok(Some(Expr::Value(Value::Boolean(is_all).into())))
            }
            serde_json::Value::Array(items) => {
                let items = list(name, items)?;
                Ok(Some(row_comparisons::expanded(compared_with(expr.clone(), items))?))
            }
            serde_json::Value::Null => Ok(Some(Expr::Value(Value::Null.into()))),
            _ => Ok(None),
        }
    }
}

impl VisitorMut for ParameterBinder<'_> {
    type Break = Box<Error>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Box<Error>> {
        cast_selected(self.declared, select);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Box<Error>> {
        cast_sorted(self.declared, query);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Box<Error>> {
        match self.bound(expr) {
            Ok(None) => {}
            Ok(Some(bound)) => *expr = bound,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Box<Error>> {
        let Value::Placeholder(name) = value.value.clone() else {
            return ControlFlow::Continue(());
        };
        let given = self.value(value, &name).and_then(|given| literal(&name, given));
        match given {
            Ok(Expr::Value(literal)) => value.value = literal.value,
            Ok(_) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

fn literal(name: &str, value: &serde_json::Value) -> Result<Expr, Box<Error>> {
    let literal = match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Boolean(*value),
        serde_json::Value::Number(number) => Value::Number(number.to_string(), false),
        serde_json::Value::String(text) => Value::SingleQuotedString(text.clone()),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            let reason = format!(
                "the parameter {name} is an object, or a list within another: give a text, a number, true, false, null, or a list of these"
            );
            return Err(Box::new(Error::statement(reason)));
        }
    };
    Ok(Expr::Value(literal.into()))
}

fn list(name: &str, items: &[serde_json::Value]) -> Result<Expr, Box<Error>> {
    let items = items.iter().map(|item| literal(name, item));
    Ok(Expr::Array(Array {
        elem: items.collect::<Result<_, _>>()?,
        named: true,
    }))
}

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
fn declared_type<'a>(declared: &'a DeclaredTypes, name: &str) -> Option<&'a DataType> {
    let place: usize = name.strip_prefix('$')?.parse().ok()?;
    declared.get(&place)
}

/// A value of a type that is no text anywhere.
fn declared_everywhere(declared: &DeclaredTypes, name: &str, value: Expr) -> Expr {
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
fn cast_selected(declared: &DeclaredTypes, select: &mut Select) {
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
fn cast_sorted(declared: &DeclaredTypes, query: &mut Query) {
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
fn place_of(expr: &Expr) -> Option<(&str, &ValueWithSpan)> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some((name, value)),
            _ => None,
        },
        _ => None,
    }
}

/// An expression without casts and brackets.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast { expr, .. } | Expr::Nested(expr) => uncast(expr),
        other => other,
    }
}

/// A comparison with `ANY` or `ALL` of another list.
fn compared_with(mut comparison: Expr, list: Expr) -> Expr {
    if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = &mut comparison {
        **right = list;
    }
    comparison
}

/// Makes `x = ANY($1)` be `x = $1`, so that the planner finds the type of an item.
pub(super) fn compare_with_items(ast: &mut Ast) {
    struct ListItems;
    impl VisitorMut for ListItems {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::AnyOp {
                left,
                compare_op,
                right,
                ..
            }
            | Expr::AllOp {
                left,
                compare_op,
                right,
            } = expr
                && place_of(right).is_some()
            {
                *expr = Expr::BinaryOp {
                    left: left.clone(),
                    op: compare_op.clone(),
                    right: right.clone(),
                };
            }
            ControlFlow::Continue(())
        }
    }
    let _: ControlFlow<()> = VisitMut::visit(ast, &mut ListItems);
}

/// Puts nulls into the places of `$1`, `$2` and so on, and says how many there are.
///
/// With the types of those that count rows (`LIMIT $1`) or are cast (`$1::bigint`), and those that are lists (`= ANY($1)`).
pub(super) fn bind_nulls(ast: &mut Ast, declared: &DeclaredTypes) -> Result<ParameterCollector, Error> {
    let mut nulls = ParameterCollector {
        declared: declared.clone(),
        ..ParameterCollector::default()
    };
    match VisitMut::visit(ast, &mut nulls) {
        ControlFlow::Continue(()) => Ok(nulls),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The greatest number of a parameter.
pub(super) const MOST_PARAMETERS: usize = 65_535;

/// What is found of parameters that have no values.
#[derive(Debug, Default)]
pub(super) struct ParameterCollector {
    declared: DeclaredTypes,
    pub(super) greatest: usize,
    pub(super) types: BTreeMap<String, DataType>,
    /// Those whose items are compared.
    pub(super) lists: BTreeSet<String>,
}

impl ParameterCollector {
    /// Counts a parameter.
    fn count(&mut self, place: &ValueWithSpan, name: &str) -> Result<(), Box<Error>> {
        let number = name.strip_prefix('$').and_then(|place| place.parse().ok());
        let Some(number) = number.filter(|number| (1..=MOST_PARAMETERS).contains(number)) else {
            let at = place.span.start;
            return Err(Box::new(Error::Statement {
                reason: format!("{name} is not a parameter: they are $1, $2 and so on, up to ${MOST_PARAMETERS}"),
                at: Some((at.line, at.column)),
            }));
        };
        self.greatest = self.greatest.max(number);
        Ok(())
    }

    /// What takes the place of a parameter, or of a comparison with a list that is one.
    fn unknown(&mut self, expr: &Expr) -> Result<Option<Expr>, Box<Error>> {
        if let Some((name, place)) = place_of(expr) {
            self.count(place, name)?;
            let null = Expr::Value(Value::Null.into());
            let is_no_text = matches!(
                declared_type(&self.declared, name),
                Some(DataType::Interval(_) | DataType::Binary)
            );
            return Ok(is_no_text.then(|| declared_everywhere(&self.declared, name, null)));
        }
        let (Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }) = expr else {
            return Ok(None);
        };
        let Some((name, place)) = place_of(uncast(right)) else {
            return Ok(None);
        };
        self.count(place, name)?;
        match right.as_ref() {
            Expr::Cast { data_type, .. } => self
                .types
                .extend(type_of(data_type).map(|kind| (name.to_owned(), kind))),
            _ => drop(self.lists.insert(name.to_owned())),
        }
        let unknown = list(name, &[serde_json::Value::Null])?;
        Ok(Some(row_comparisons::expanded(compared_with(expr.clone(), unknown))?))
    }
}

impl VisitorMut for ParameterCollector {
    type Break = Box<Error>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Box<Error>> {
        cast_selected(&self.declared, select);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Box<Error>> {
        cast_sorted(&self.declared, query);
        let counts = match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                [limit.as_ref(), offset.as_ref().map(|offset| &offset.value)]
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => [Some(limit), Some(offset)],
            None => [None, None],
        };
        for count in counts.into_iter().flatten() {
            self.types.extend(name_of(count).map(|name| (name, DataType::Int64)));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Box<Error>> {
        if let Expr::Cast { expr, data_type, .. } = expr {
            self.types.extend(name_of(expr).zip(type_of(data_type)));
        }
        match self.unknown(expr) {
            Ok(None) => {}
            Ok(Some(unknown)) => *expr = unknown,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Box<Error>> {
        let Value::Placeholder(name) = value.value.clone() else {
            return ControlFlow::Continue(());
        };
        if let Err(error) = self.count(value, &name) {
            return ControlFlow::Break(error);
        }
        value.value = Value::Null;
        ControlFlow::Continue(())
    }
}

fn name_of(expr: &Expr) -> Option<String> {
    place_of(expr).map(|(name, _)| name.to_owned())
}

/// The type of what is cast to another, if it should come as that at once.
fn type_of(cast: &SqlType) -> Option<DataType> {
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
