//! Data scope: row-level security by table and by entity.
//!
//! # Invariants
//!
//! - The default scope is everything; a set that is there and empty is nothing.
//! - A table whose rows belong to no entity is outside a scope of some entities.
//!
//! # Not here
//!
//! Who has which scope (`mixer`). How typed queries and tails obey it: [`crate::query_scan`], [`crate::live_tail`]; how statements do:
//! `crate::sql::scoped_table`.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::logical_expr::Expr;
use model::Table;

use crate::{Error, filter};

/// Which rows queries see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DataScope {
    /// The tables; without, all of them. The tables of specs belong to messages.
    pub tables: Option<BTreeSet<Table>>,
    /// The entities, each by its id or by its name; without, all of them.
    pub entities: Option<BTreeSet<String>>,
    /// Where logs, traces and metrics are, if they are not stored here. The same for whoever asks.
    pub elsewhere: Option<Arc<str>>,
}

impl DataScope {
    /// Whether only the rows of some entities are in it.
    pub(crate) const fn limits_entities(&self) -> bool {
        self.entities.is_some()
    }

    pub(crate) fn includes_table(&self, table: Table) -> bool {
        let is_here = self.elsewhere.is_none() || !table.is_telemetry();
        is_here && self.tables.as_ref().is_none_or(|tables| tables.contains(&table))
    }

    /// Why a table is not in it.
    pub(crate) fn refusal(&self, table: Option<Table>, name: &str) -> Error {
        match &self.elsewhere {
            Some(place) if table.is_some_and(Table::is_telemetry) => Error::StoredElsewhere {
                table: name.to_owned(),
                place: Arc::clone(place),
            },
            _ => Error::outside_scope(name),
        }
    }

    /// What the rows of a table must meet to be in it; nothing if all are.
    ///
    /// # Errors
    /// [`Error::Forbidden`] for a table that is not in it, [`Error::StoredElsewhere`] for one that is not here.
    pub(crate) fn conditions(&self, table: Table) -> Result<Vec<Expr>, Error> {
        if !self.includes_table(table) {
            return Err(self.refusal(Some(table), table.name()));
        }
        let Some(entities) = &self.entities else {
            return Ok(Vec::new());
        };
        let belongs_to_entities = table.columns().iter().any(|column| column.name == "entity_name");
        if !belongs_to_entities {
            return Err(Error::Forbidden {
                table: table.name().to_owned(),
                reason: "its rows belong to no entity, and the token has those of some entities only: use one without that limit",
            });
        }
        Ok(vec![filter::of_entities(entities)])
    }
}
