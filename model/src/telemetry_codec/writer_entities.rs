//! Row-level write access: the entities whose rows a sender may store.
//!
//! # Invariants
//!
//! - A row passes only if its name is listed, and its id is listed or follows from that name: neither can be borrowed from another entity.
//! - Rows that do not pass are bad records like others: named, counted, not stored.

use std::collections::BTreeSet;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
use arrow_select::filter::filter_record_batch;

use crate::EntityId;

/// Entities by name and id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriterEntities {
    names: BTreeSet<String>,
    ids: BTreeSet<[u8; 16]>,
}

impl WriterEntities {
    /// Those that texts name, each a name or an id.
    #[must_use]
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a String>) -> Self {
        let mut entities = Self::default();
        for text in texts {
            entities.names.insert(text.clone());
            entities.ids.insert(*EntityId::for_name(text).as_bytes());
            if let Ok(id) = text.parse::<EntityId>() {
                entities.ids.insert(*id.as_bytes());
            }
        }
        entities
    }

    fn has(&self, id: &[u8], name: &str) -> bool {
        self.names.contains(name) && self.ids.iter().any(|known| known == id)
    }

    /// The rows that may be stored, and the numbers of those that may not, in order, each with the name and the id of its entity.
    ///
    /// # Errors
    /// If the batch has no entities, a defect here.
    pub(super) fn sift(&self, batch: &RecordBatch) -> Result<(RecordBatch, Vec<(usize, String)>), ArrowError> {
        let column = |name: &str| {
            let column = batch.column_by_name(name);
            column.ok_or_else(|| ArrowError::SchemaError(format!("there is no column {name}")))
        };
        let ids = column("entity_id")?.as_fixed_size_binary_opt();
        let names = column("entity_name")?.as_string_opt::<i32>();
        let of_another_type = || ArrowError::SchemaError("the entities are not ids and texts".to_owned());
        let (ids, names) = ids.zip(names).ok_or_else(of_another_type)?;
        let passes =
            |row: usize| names.is_valid(row) && ids.is_valid(row) && self.has(ids.value(row), names.value(row));
        let passing: BooleanArray = (0..batch.num_rows()).map(|row| Some(passes(row))).collect();
        let entity = |row: usize| {
            let id = <[u8; 16]>::try_from(ids.value(row)).map(EntityId::from_bytes);
            format!(
                "{:?} with the id {}",
                names.value(row),
                id.map_or_else(|_| "?".to_owned(), |id| id.to_string())
            )
        };
        let refused = (0..batch.num_rows()).filter(|row| !passing.value(*row));
        let refused = refused.map(|row| (row, entity(row))).collect();
        Ok((filter_record_batch(batch, &passing)?, refused))
    }
}
