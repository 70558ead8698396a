//! Parameters: values in the places of a statement.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use arrow_schema::DataType;
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, LimitClause, Query, Statement as Ast, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use crate::Error;
use crate::sql::SqlParameters;

/// Puts the parameters into their places.
pub(super) fn bind_values(ast: &mut Ast, parameters: &SqlParameters) -> Result<(), Error> {
    let given = parameters.by_place();
    let mut places = ParameterBinder {
        given: &given,
        used: BTreeSet::new(),
    };
    if let ControlFlow::Break(error) = VisitMut::visit(ast, &mut places) {
        return Err(*error);
    }
    match given.keys().find(|name| !places.used.contains(*name)) {
        Some(name) => Err(Error::statement(format!(
            "the parameter {name} is given but is not used in the text"
        ))),
        None => Ok(()),
    }
}

struct ParameterBinder<'a> {
    given: &'a BTreeMap<String, serde_json::Value>,
    used: BTreeSet<String>,
}

impl VisitorMut for ParameterBinder<'_> {
    type Break = Box<Error>;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Box<Error>> {
        let Value::Placeholder(name) = &value.value else {
            return ControlFlow::Continue(());
        };
        let Some(given) = self.given.get(name) else {
            let at = value.span.start;
            return ControlFlow::Break(Box::new(Error::Statement {
                reason: format!(
                    "the parameter {name} is not given: parameters are a list for $1, $2, … or an object for $name"
                ),
                at: Some((at.line, at.column)),
            }));
        };
        let literal = match given {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Boolean(*value),
            serde_json::Value::Number(number) => Value::Number(number.to_string(), false),
            serde_json::Value::String(text) => Value::SingleQuotedString(text.clone()),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                let reason =
                    format!("the parameter {name} is a list or an object: give a text, a number, true, false or null");
                return ControlFlow::Break(Box::new(Error::statement(reason)));
            }
        };
        self.used.insert(name.clone());
        value.value = literal;
        ControlFlow::Continue(())
    }
}

/// Puts nulls into the places of `$1`, `$2` and so on, and says how many there are.
///
/// With the types of those that count rows (`LIMIT $1`) or are cast (`$1::bigint`).
pub(super) fn bind_nulls(ast: &mut Ast) -> Result<(usize, BTreeMap<String, DataType>), Error> {
    let mut nulls = ParameterCollector::default();
    match VisitMut::visit(ast, &mut nulls) {
        ControlFlow::Continue(()) => Ok((nulls.greatest, nulls.types)),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The greatest number of a parameter.
const MOST_PARAMETERS: usize = 65_535;

#[derive(Default)]
struct ParameterCollector {
    greatest: usize,
    types: BTreeMap<String, DataType>,
}

impl VisitorMut for ParameterCollector {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Box<Error>> {
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
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Box<Error>> {
        let Value::Placeholder(name) = &value.value else {
            return ControlFlow::Continue(());
        };
        let place = name.strip_prefix('$').and_then(|place| place.parse().ok());
        let Some(place) = place.filter(|place| (1..=MOST_PARAMETERS).contains(place)) else {
            let at = value.span.start;
            return ControlFlow::Break(Box::new(Error::Statement {
                reason: format!("{name} is not a parameter: they are $1, $2 and so on, up to ${MOST_PARAMETERS}"),
                at: Some((at.line, at.column)),
            }));
        };
        self.greatest = self.greatest.max(place);
        value.value = Value::Null;
        ControlFlow::Continue(())
    }
}

fn name_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Placeholder(name),
            ..
        }) => Some(name.clone()),
        _ => None,
    }
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
        _ => return None,
    })
}
