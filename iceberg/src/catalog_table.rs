//! A table of the catalogue: one of SQL's base tables, or the messages of one spec.
//!
//! # Invariants
//!
//! - A name that was parsed cannot leave its folder: it is a base table's, or `messages_` and a spec's name.
//! - The UUID follows from the store and the name, so that a catalogue that is made anew has the same tables.

use engine::SpecName;
use model::Table;
use uuid::Uuid;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CatalogTable {
    /// Whose rows it has.
    pub table: Table,
    /// Only those of this spec.
    pub spec: Option<SpecName>,
}

impl CatalogTable {
    /// A base table: of messages all, those of specs too.
    pub(crate) const fn base(table: Table) -> Self {
        Self { table, spec: None }
    }

    /// The messages of a spec, with the columns that it promotes.
    pub(crate) const fn of_spec(spec: SpecName) -> Self {
        Self {
            table: Table::Messages,
            spec: Some(spec),
        }
    }

    /// The table with a name, if any can have it; whether there is such a table, the catalogue knows.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Ok(table) = name.parse() {
            return Some(Self::base(table));
        }
        let (base, spec) = name.split_once('_')?;
        let spec = spec.parse().ok().filter(|_| base == Table::Messages.name())?;
        Some(Self::of_spec(spec))
    }

    /// Its name in the namespace.
    #[must_use]
    pub fn name(&self) -> String {
        match self.spec {
            None => self.table.name().to_owned(),
            Some(spec) => format!("{}_{spec}", self.table),
        }
    }

    pub(crate) fn uuid(&self, store: Uuid) -> Uuid {
        Uuid::new_v5(&store, self.name().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sql_and_nothing_else() {
        let spec = "Order-2".parse().unwrap();
        for table in Table::ALL
            .map(CatalogTable::base)
            .into_iter()
            .chain([CatalogTable::of_spec(spec)])
        {
            assert_eq!(CatalogTable::parse(&table.name()), Some(table));
        }
        assert_eq!(CatalogTable::of_spec(spec).name(), "messages_Order-2");
        for name in [
            "",
            "log",
            "messages_",
            "messages_..",
            "messages_a/b",
            "messages_a b",
            "messages_../../x",
            "messagesorders",
            "logs_order",
            "logs\u{1f}",
            "../logs",
            "Logs",
        ] {
            assert_eq!(CatalogTable::parse(name), None, "{name:?}");
        }
    }
}
