//! Row-level write access: the entities whose rows a sender may store.
//!
//! # Invariants
//!
//! - A row passes only if its name is listed, and its id is listed or follows from that name: neither can be borrowed from another entity.
//! - Rows that do not pass are bad records like others: named, counted, not stored.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use arrow_select::filter::filter_record_batch;

use crate::EntityId;

/// Entities by name and id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriterEntities {
    /// With the ids that follow from them.
    names: BTreeMap<String, EntityId>,
    ids: BTreeSet<EntityId>,
}

impl WriterEntities {
    /// Those that texts name, each a name or an id.
    #[must_use]
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a String>) -> Self {
        let mut entities = Self::default();
        for text in texts {
            entities.names.insert(text.clone(), EntityId::for_name(text));
            entities.ids.extend(text.parse::<EntityId>());
        }
        entities
    }

    fn has(&self, id: &[u8], name: &str) -> bool {
        let id = <[u8; 16]>::try_from(id).map(EntityId::from_bytes);
        let (Some(own), Ok(id)) = (self.names.get(name), id) else {
            return false;
        };
        *own == id || self.ids.contains(&id)
    }

    /// The rows that may be stored, and the numbers of those that may not, in order.
    ///
    /// # Errors
    /// If the batch has no entities, a defect here.
    pub(super) fn sift(&self, batch: &RecordBatch) -> Result<(RecordBatch, Vec<usize>), ArrowError> {
        let (ids, names) = entities(batch)?;
        let passes =
            |row: usize| names.is_valid(row) && ids.is_valid(row) && self.has(ids.value(row), names.value(row));
        let passing: BooleanArray = (0..batch.num_rows()).map(|row| Some(passes(row))).collect();
        let refused = (0..batch.num_rows()).filter(|row| !passing.value(*row)).collect();
        Ok((filter_record_batch(batch, &passing)?, refused))
    }
}

/// Whose a row is, for people.
///
/// # Errors
/// As of [`WriterEntities::sift`].
pub(super) fn entity_of(batch: &RecordBatch, row: usize) -> Result<String, ArrowError> {
    let (ids, names) = entities(batch)?;
    let id = <[u8; 16]>::try_from(ids.value(row)).map(EntityId::from_bytes);
    let id = id.map_err(|_| ArrowError::SchemaError("an entity's id has 16 bytes".to_owned()))?;
    Ok(format!("{:?} with the id {id}", names.value(row)))
}

/// The ids and the names of a batch's entities.
fn entities(batch: &RecordBatch) -> Result<(&FixedSizeBinaryArray, &StringArray), ArrowError> {
    let column = |name: &str| {
        let column = batch.column_by_name(name);
        column.ok_or_else(|| ArrowError::SchemaError(format!("there is no column {name}")))
    };
    let ids = column("entity_id")?.as_fixed_size_binary_opt();
    let names = column("entity_name")?.as_string_opt::<i32>();
    let of_another_type = || ArrowError::SchemaError("the entities are not ids and texts".to_owned());
    ids.zip(names).ok_or_else(of_another_type)
}
