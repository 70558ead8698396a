//! Parameters: values in the places of a statement.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Statement as Ast, Value, ValueWithSpan, VisitMut, VisitorMut};

use crate::Error;
use crate::sql::Parameters;

/// Puts the parameters into their places.
pub(super) fn fill(ast: &mut Ast, parameters: &Parameters) -> Result<(), Error> {
    let given = parameters.by_place();
    let mut places = Places {
        given: &given,
        used: BTreeSet::new(),
    };
    if let ControlFlow::Break(error) = VisitMut::visit(ast, &mut places) {
        return Err(*error);
    }
    match given.keys().find(|name| !places.used.contains(*name)) {
        Some(name) => Err(Error::statement(format!(
            "the parameter {name} is given and stands nowhere in the text"
        ))),
        None => Ok(()),
    }
}

struct Places<'a> {
    given: &'a BTreeMap<String, serde_json::Value>,
    used: BTreeSet<String>,
}

impl VisitorMut for Places<'_> {
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
