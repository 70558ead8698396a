//! Parameters: values in the places of a statement.
//!
//! | value | becomes |
//! |---|---|
//! | text, number, boolean, null | the literal; of an interval, `CAST('…' AS INTERVAL)`, of bytes `X'…'`; of another declared type a cast where it is selected, grouped or sorted by |
//! | list | `ARRAY[…]`, and in `x = ANY($1)` what [`row_comparisons`] makes of it |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, Expr, Query, Select, Statement as Ast, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use super::parameter_types::{DeclaredTypes, cast_selected, cast_sorted, declared_everywhere, place_of};
use super::row_comparisons;
use crate::Error;
use crate::sql::SqlParameters;

/// The most items of one list.
const MOST_OF_LIST: usize = 10_000;

/// What all parameters may come to where they are used: how many values, and how many bytes of text.
const MOST_ITEMS: usize = 50_000;
const MOST_BYTES: usize = 4 << 20;

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

pub(super) fn list(name: &str, items: &[serde_json::Value]) -> Result<Expr, Box<Error>> {
    let items = items.iter().map(|item| literal(name, item));
    Ok(Expr::Array(Array {
        elem: items.collect::<Result<_, _>>()?,
        named: true,
    }))
}

/// An expression without casts and brackets.
pub(super) fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast { expr, .. } | Expr::Nested(expr) => uncast(expr),
        other => other,
    }
}

/// A comparison with `ANY` or `ALL` of another list.
pub(super) fn compared_with(mut comparison: Expr, list: Expr) -> Expr {
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
