//! The tables of specs: `messages_<spec>`, the columns of `messages` and behind them what the spec promotes.
//!
//! # Not here
//!
//! Which specs there are: the owner of the [`crate::Querier`] says it. How their rows are read: [`crate::table`].

use std::sync::Arc;

use arrow_schema::SchemaRef;
use engine::SpecName;
use model::Table;
use model::spec::SpecColumn;
use model::spec::columns::schema;

/// The table of one spec.
#[derive(Debug, PartialEq, Eq)]
pub struct SpecTable {
    pub(crate) spec: SpecName,
    pub(crate) columns: Vec<SpecColumn>,
    pub(crate) schema: SchemaRef,
    name: String,
}

/// All of them; swapped whole.
pub(crate) type SpecTables = Arc<[Arc<SpecTable>]>;

impl SpecTable {
    /// The table of a spec that promotes these.
    #[must_use]
    pub fn new(spec: SpecName, columns: Vec<SpecColumn>) -> Self {
        Self {
            name: model::spec::table_name(&spec),
            schema: schema(&columns),
            spec,
            columns,
        }
    }

    /// Its name in statements.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The promoted columns among some of its columns; among all without a word.
    pub(crate) fn promoted_of(&self, columns: Option<&Vec<usize>>) -> Vec<SpecColumn> {
        let base = Table::Messages.columns().len();
        let is_asked = |at: usize| columns.is_none_or(|columns| columns.contains(&at));
        let asked = self.columns.iter().zip(base..).filter(|(_, at)| is_asked(*at));
        asked.map(|(column, _)| column.clone()).collect()
    }
}
