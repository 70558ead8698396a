//! The schemas of a table: those of its files, and the one that has the columns of all of them.
//!
//! # Invariants
//!
//! - A schema that was there before has its number again; a number never means another schema.
//! - A manifest has files of one schema, their own. So the columns of a table follow from its manifests alone, and no file is
//!   read again to know what is left when others are gone.
//! - A base table has its own columns. What a spec promotes is only in that spec's table.
//! - No column of any file has a greater number than the last one of the table, whether the table has the column or not: readers that meet
//!   such a column call the file damaged.
//!
//! # Not here
//!
//! Columns that files disagree on: [`crate::schema::merged`] leaves them out.

use std::collections::{BTreeMap, BTreeSet};

use model::Table;
use parquet::file::metadata::ParquetMetaData;
use serde_json::Value;

use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::schema::{IcebergSchema, merged};

/// The property of a table that names the columns it does not have because its files disagree on their types, as a JSON array.
pub(crate) const LEFT_OUT: &str = "platform.columns-left-out";
/// No table has so many.
const MOST_SCHEMAS: i32 = 1 << 20;
/// The greatest number that a promoted column may have.
const LAST_PROMOTED: i32 = i32::MAX - 1;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct TableSchemas {
    own: IcebergSchema,
    has_promoted: bool,
    /// Files of messages have the columns of their specs, in the table of all messages too.
    least_last_id: i32,
    known: BTreeMap<i32, IcebergSchema>,
}

/// The columns of a table now.
#[derive(Debug)]
pub(crate) struct CurrentSchema {
    pub(crate) id: i32,
    pub(crate) left_out: BTreeSet<String>,
}

impl TableSchemas {
    /// Those of a table that has only its own columns so far.
    pub(crate) fn new(table: CatalogTable) -> Result<Self, IcebergError> {
        let own = IcebergSchema::of(&table.table.schema())?;
        Ok(Self {
            known: BTreeMap::from([(0, own.clone())]),
            own,
            has_promoted: table.spec.is_some(),
            least_last_id: if table.table == Table::Messages {
                LAST_PROMOTED
            } else {
                0
            },
        })
    }

    /// The same with those that its metadata has; `None` if it has something else.
    pub(crate) fn with_known(self, schemas: &[Value]) -> Option<Self> {
        let mut known = BTreeMap::new();
        for schema in schemas {
            let id = i32::try_from(schema.get("schema-id")?.as_i64()?).ok()?;
            let schema = IcebergSchema::from_json(schema)?;
            let is_possible = (0..MOST_SCHEMAS).contains(&id) && merged(&self.own, [&schema]).schema == schema;
            if !is_possible || known.insert(id, schema).is_some() {
                return None;
            }
        }
        Some(Self { known, ..self })
    }

    pub(crate) fn get(&self, id: i32) -> Option<&IcebergSchema> {
        self.known.get(&id)
    }

    /// The number of a schema, which it gets if it has none yet.
    pub(crate) fn id_of(&mut self, schema: IcebergSchema) -> i32 {
        if let Some((id, _)) = self.known.iter().find(|(_, known)| **known == schema) {
            return *id;
        }
        let id = self.known.last_key_value().map_or(0, |(last, _)| last + 1);
        self.known.insert(id, schema);
        id
    }

    /// The schema of a file. A piece of no spec, whose footer is not known, counts as one with the table's own columns alone.
    pub(crate) fn of_file(&self, footer: Option<&ParquetMetaData>) -> Result<IcebergSchema, IcebergError> {
        Ok(match footer.filter(|_| self.has_promoted) {
            Some(footer) => merged(&self.own, [&IcebergSchema::of_footer(footer)?]).schema,
            None => self.own.clone(),
        })
    }

    /// The schema of a table whose manifests have these.
    pub(crate) fn current(&mut self, manifests: &BTreeSet<i32>) -> CurrentSchema {
        let of_files = manifests.iter().filter_map(|id| self.known.get(id));
        let all = merged(&self.own, of_files);
        CurrentSchema {
            id: self.id_of(all.schema),
            left_out: all.left_out,
        }
    }

    /// Drops those that are not `used`, but not the table's own, nor the last one, whose number would be given again.
    pub(crate) fn retain(&mut self, used: &BTreeSet<i32>) {
        let last = self.known.last_key_value().map(|(last, _)| *last);
        let own = &self.own;
        self.known
            .retain(|id, schema| used.contains(id) || Some(*id) == last || *schema == *own);
    }

    /// As they stand in metadata.
    pub(crate) fn to_json(&self) -> Vec<Value> {
        self.known.iter().map(|(id, schema)| schema.to_json(*id)).collect()
    }

    /// The greatest number of a column, in any of them or in a file.
    pub(crate) fn last_column_id(&self) -> i32 {
        let of_schemas = self.known.values().map(IcebergSchema::last_column_id).max();
        of_schemas.unwrap_or_default().max(self.least_last_id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{IcebergColumn, IcebergType};

    #[test]
    fn a_schema_keeps_its_number_over_json_and_a_new_one_gets_the_next() {
        let logs = CatalogTable::base(Table::Logs);
        let mut schemas = TableSchemas::new(logs).unwrap();
        let of_piece = schemas.of_file(None).unwrap();
        assert_eq!(schemas.id_of(of_piece.clone()), 0);
        let mut other = schemas.own.clone();
        other.columns.push(IcebergColumn {
            id: 1_000,
            name: "city".to_owned(),
            required: false,
            kind: IcebergType::String,
        });
        assert_eq!(schemas.id_of(other.clone()), 1);
        let mut again = TableSchemas::new(logs).unwrap().with_known(&schemas.to_json()).unwrap();
        assert_eq!((again.id_of(other), again.id_of(of_piece)), (1, 0));
        assert_eq!(again.current(&BTreeSet::from([0])).id, 0);
        assert_eq!(again.last_column_id(), 1_000);
        let messages = TableSchemas::new(CatalogTable::base(Table::Messages)).unwrap();
        assert_eq!(
            messages.last_column_id(),
            i32::MAX - 1,
            "that of a spec's column may be as great"
        );
    }

    #[test]
    fn schemas_that_nothing_has_are_dropped_and_their_numbers_are_not_given_again() {
        let mut schemas = TableSchemas::new(CatalogTable::base(Table::Logs)).unwrap();
        let own = schemas.own.clone();
        let with = |id: i32| {
            let mut schema = own.clone();
            schema.columns.push(IcebergColumn {
                id,
                name: format!("c{id}"),
                required: false,
                kind: IcebergType::String,
            });
            schema
        };
        assert_eq!([1_000, 1_001, 1_002].map(|id| schemas.id_of(with(id))), [1, 2, 3]);
        schemas.retain(&BTreeSet::from([2]));
        assert_eq!(schemas.known.keys().copied().collect::<Vec<_>>(), [0, 2, 3]);
        schemas.retain(&BTreeSet::from([0]));
        assert_eq!(schemas.known.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!((schemas.id_of(with(1_002)), schemas.id_of(with(1_000))), (3, 4));
    }

    #[test]
    fn schemas_that_were_never_written_are_refused() {
        let known = |schemas: &[Value]| {
            TableSchemas::new(CatalogTable::base(Table::Logs))
                .unwrap()
                .with_known(schemas)
        };
        let own = TableSchemas::new(CatalogTable::base(Table::Logs)).unwrap().to_json();
        assert!(known(&own).is_some());
        for bad in [
            json!({}),
            json!({"schema-id": 1, "fields": 7}),
            json!({"schema-id": -1, "fields": []}),
        ] {
            assert!(known(&[own[0].clone(), bad.clone()]).is_none(), "{bad}");
        }
        assert!(known(&[own[0].clone(), own[0].clone()]).is_none());
    }
}
