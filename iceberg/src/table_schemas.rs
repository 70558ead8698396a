//! The schemas of a table: those of its files, and the one that has the columns of all of them.
//!
//! # Invariants
//!
//! - A schema that was there before has its number again; a number never means another schema.
//! - A manifest has files of one schema, their own. So the columns of a table follow from its manifests alone, and no file is
//!   read again to know what is left when others are gone.
//! - A base table has its own columns. What a spec promotes is only in that spec's table, which keeps its columns while it has no
//!   files: statements that name them work.
//! - A release may add own columns behind those of the one before: schemas with the first of them are of an earlier release, and its
//!   manifests stay.
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
use crate::schema::{IcebergColumn, IcebergSchema, merged};

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
            let is_possible = (0..MOST_SCHEMAS).contains(&id) && self.is_published(&schema);
            if !is_possible || known.insert(id, schema).is_some() {
                return None;
            }
        }
        Some(Self { known, ..self })
    }

    /// Whether a publisher writes such a schema, or one of an earlier release did.
    fn is_published(&self, schema: &IcebergSchema) -> bool {
        let pairs = self.own.columns.iter().zip(&schema.columns);
        let (own, later) = self
            .own
            .columns
            .split_at(pairs.take_while(|(own, column)| own == column).count());
        let is_later = |column: &IcebergColumn| later.iter().any(|own| own.id == column.id);
        let before = IcebergSchema { columns: own.to_vec() };
        !own.is_empty() && !schema.columns.iter().any(is_later) && merged(&before, [schema]).schema == *schema
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

    /// The schema of a table whose manifests have these; where it has none, with the columns of its `last` one.
    pub(crate) fn current(&mut self, manifests: &BTreeSet<i32>, last: Option<i32>) -> CurrentSchema {
        let last = last.filter(|_| manifests.is_empty());
        let of_files = manifests.iter().chain(&last).filter_map(|id| self.known.get(id));
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
    use crate::schema::IcebergType;

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
        assert_eq!(again.current(&BTreeSet::from([0]), Some(1)).id, 0);
        assert_eq!(again.current(&BTreeSet::new(), Some(1)).id, 1, "without files");
        assert_eq!(again.current(&BTreeSet::new(), None).id, 0);
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
    fn schemas_of_an_earlier_release_have_the_first_of_the_own_columns() {
        let new = || TableSchemas::new(CatalogTable::base(Table::Logs)).unwrap();
        let known = |change: &dyn Fn(&mut Vec<IcebergColumn>)| {
            let mut schema = new().own;
            change(&mut schema.columns);
            new().with_known(&[schema.to_json(0)])
        };
        let promoted = IcebergColumn {
            id: 1_000,
            name: "city".to_owned(),
            required: false,
            kind: IcebergType::String,
        };
        let mut earlier = known(&|columns| columns.truncate(5)).unwrap();
        assert_eq!(
            earlier.current(&BTreeSet::from([0]), None).id,
            1,
            "the table has all columns"
        );
        assert_eq!(earlier.get(1), Some(&new().own));
        let with_promoted = known(&|columns| {
            columns.truncate(5);
            columns.push(promoted.clone());
        });
        let mut with_promoted = with_promoted.unwrap();
        assert_eq!(with_promoted.current(&BTreeSet::from([0]), None).id, 1);
        let mut names = with_promoted
            .get(1)
            .unwrap()
            .columns
            .iter()
            .map(|column| column.name.as_str());
        assert_eq!(names.next_back(), Some("city"));
        // A column is missing in the middle, is another one, or is none of a release.
        assert!(known(&|columns| drop(columns.remove(2))).is_none());
        assert!(known(&|columns| columns[6].kind = IcebergType::Long).is_none());
        assert!(known(&|columns| columns[0].name = "time".to_owned()).is_none());
        assert!(known(&|columns| columns.clear()).is_none());
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
