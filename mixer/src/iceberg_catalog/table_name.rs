//! Names of the catalogue's tables: those of SQL.

use model::{SpecName, Table};

/// A table of the catalogue: one of the store's, or the messages of a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CatalogTable {
    /// Whose rows it has.
    pub(crate) table: Table,
    /// Only those of this spec.
    pub(crate) spec: Option<SpecName>,
}

impl CatalogTable {
    /// What a name can mean; whether there is such a table, the catalogue knows.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        if let Some(table) = Table::ALL.into_iter().find(|table| table.name() == name) {
            return Some(Self { table, spec: None });
        }
        let spec = name.strip_prefix(Table::Messages.name())?.strip_prefix('_')?;
        Some(Self {
            table: Table::Messages,
            spec: Some(spec.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sql_and_nothing_else_is_one() {
        let named = |name: &str| CatalogTable::of_name(name).map(|found| (found.table, found.spec));
        for table in Table::ALL {
            assert_eq!(named(table.name()), Some((table, None)));
        }
        let orders = "orders".parse::<SpecName>().ok();
        assert!(orders.is_some());
        assert_eq!(named("messages_orders"), Some((Table::Messages, orders)));
        for name in [
            "",
            "Logs",
            "logs_orders",
            "messages_",
            "messages_../../x",
            "messages_a b",
            "messagesorders",
            "logs\u{1f}",
        ] {
            assert_eq!(named(name), None, "{name:?}");
        }
    }
}
