//! The tables of specs: `messages_<spec>`, the columns of `messages` and behind them what the spec promotes.
//!
//! # Not here
//!
//! Which specs there are: the owner of the [`crate::QueryEngine`] says it. How their files are read: [`crate::view_table`].

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use engine::SpecName;
use model::Table;
use model::spec::SpecColumn;
use model::spec::columns::{schema, widened};

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

    /// Messages as rows of the table, with those of its columns that are asked for; with all without a word.
    pub(crate) fn rows(&self, messages: &RecordBatch, asked: Option<&[usize]>) -> Result<RecordBatch, ArrowError> {
        let base = Table::Messages.columns().len();
        let is_made = |at: &usize| *at < base || asked.is_none_or(|asked| asked.contains(at));
        let made: Vec<usize> = (0..self.schema.fields().len()).filter(is_made).collect();
        let promoted = made.iter().filter_map(|at| self.columns.get(at.checked_sub(base)?));
        let promoted: Vec<SpecColumn> = promoted.cloned().collect();
        let rows = widened(messages, &promoted, &Arc::new(self.schema.project(&made)?))?;
        match asked {
            None => Ok(rows),
            Some(asked) => {
                let places = asked.iter().filter_map(|at| made.binary_search(at).ok());
                rows.project(&places.collect::<Vec<_>>())
            }
        }
    }
}
