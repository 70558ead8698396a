//! What a statement will give and which parameters it has, told without carrying it out.

use arrow_schema::{DataType, SchemaRef};
use datafusion::execution::SessionState;

use super::columns::columns_of;
use super::failure::of_statement;
use super::text::Open;
use super::{Asking, SqlColumn, growth, text};
use crate::gate::Class;
use crate::{Error, Querier};

/// What is known of a statement before it is carried out.
#[derive(Debug, Clone)]
pub struct Described {
    /// The types of `$1` and those after it, where the text says them.
    pub parameters: Vec<Option<DataType>>,
    /// The columns of the answer.
    pub columns: Vec<SqlColumn>,
    /// Their types.
    pub schema: SchemaRef,
}

impl Querier {
    /// What a statement will give; its parameters are `$1`, `$2` and so on, and need no values. [`Statement::limit`] and
    /// [`Statement::parameters`] are not looked at. It is planned in a place of a statement: a text may take long to plan.
    ///
    /// [`Statement::limit`]: super::Statement::limit
    /// [`Statement::parameters`]: super::Statement::parameters
    ///
    /// # Errors
    /// As [`Querier::sql`] has them before the first row.
    pub async fn describe(&self, statement: &super::Statement) -> Result<Described, Error> {
        self.run_as(Class::Statement, || {
            let asking = self.asking(statement);
            async move { described(&asking).await }
        })
        .await
    }
}

async fn described(asking: &Asking) -> Result<Described, Error> {
    let open = text::open(&asking.statement.query, asking.postgres.as_deref())?;
    let mut session = asking.session(None).map_err(of_statement)?;
    let parameters = match open.parameters {
        0 => Vec::new(),
        count => types(&session, &open, count).await,
    };
    let plan = session.statement_to_plan(open.asked.statement).await;
    let plan = plan.map_err(of_statement)?;
    growth::check(&plan, &mut session)?;
    let plan = session.optimize(&plan).map_err(of_statement)?;
    let (columns, schema) = columns_of(plan.schema().as_arrow());
    Ok(Described {
        parameters,
        columns,
        schema,
    })
}

/// The types of parameters as far as the planner finds them.
async fn types(session: &SessionState, open: &Open, count: usize) -> Vec<Option<DataType>> {
    let plan = session.statement_to_plan(open.with_places.clone()).await;
    let found = plan.and_then(|plan| plan.get_parameter_types()).unwrap_or_default();
    let places = (1..=count).map(|place| format!("${place}"));
    let places = places.map(|place| match found.get(&place).cloned().flatten() {
        None => open.types.get(&place).cloned(),
        found => found,
    });
    places.collect()
}
