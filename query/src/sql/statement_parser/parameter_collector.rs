//! Finds the parameters of a statement before they have values: how many there are, and of which types.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use arrow_schema::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, LimitClause, Query, Select, Statement as Ast, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use super::parameter_types::{
    DeclaredTypes, cast_selected, cast_sorted, declared_everywhere, declared_type, place_of, type_of,
};
use super::placeholders::{compared_with, list, uncast};
use super::row_comparisons;
use crate::Error;

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
