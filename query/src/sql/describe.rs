//! Describes a statement without running it: its columns and parameters.

use std::sync::Arc;

use arrow_schema::{DataType, Field, SchemaRef};
use datafusion::execution::SessionState;

use super::error_mapping::statement_error;
use super::statement_parser::UnboundStatement;
use super::{SqlColumn, StatementContext, expression_size, statement_parser};
use crate::Error;
use crate::columns::columns_of;

/// What is known of a statement before it is carried out.
#[derive(Debug, Clone)]
pub struct StatementDescription {
    /// The types of `$1` and those after it, where the text says them.
    pub parameters: Vec<Option<DataType>>,
    /// The columns of the answer.
    pub columns: Vec<SqlColumn>,
    /// Their types.
    pub schema: SchemaRef,
}

pub(crate) async fn plan_description(asking: &StatementContext) -> Result<StatementDescription, Error> {
    let open = statement_parser::parse_unbound(&asking.statement, asking.postgres.as_deref())?;
    let mut session = asking.session(&open.asked, None).map_err(statement_error)?;
    let parameters = match open.parameters {
        0 => Vec::new(),
        count => types(&session, &open, count).await,
    };
    let headers = open.asked.headers;
    let plan = session.statement_to_plan(open.asked.statement).await;
    let plan = plan.map_err(statement_error)?;
    expression_size::check(&plan, &mut session)?;
    let plan = session.optimize(&plan).map_err(statement_error)?;
    let (mut columns, schema) = columns_of(plan.schema().as_arrow());
    if let Some(headers) = headers {
        headers.apply(&mut columns);
    }
    Ok(StatementDescription {
        parameters,
        columns,
        schema,
    })
}

/// The types of parameters as far as the planner finds them.
async fn types(session: &SessionState, open: &UnboundStatement, count: usize) -> Vec<Option<DataType>> {
    let plan = session.statement_to_plan(open.with_places.clone()).await;
    let found = plan.and_then(|plan| plan.get_parameter_types()).unwrap_or_default();
    let places = (1..=count).map(|place| format!("${place}"));
    let places = places.map(|place| {
        let found = match found.get(&place).cloned().flatten() {
            None => open.types.get(&place).cloned(),
            found => found,
        };
        if open.lists.contains(&place) {
            let item = found.unwrap_or(DataType::Utf8);
            return Some(DataType::List(Arc::new(Field::new_list_field(item, true))));
        }
        found
    });
    places.collect()
}
