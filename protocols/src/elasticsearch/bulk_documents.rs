//! Documents of a bulk request as rows.
//!
//! # Invariants
//!
//! - A document is read as a whole, after its values were counted.

use model::Level;
use model::telemetry_codec::{
    AttributeBuffer, FoundRecord, LogFields, PublisherIdentity, RecordBatchBuilder, RecordFormat, check_value_count,
};
use serde_json::{Map, Value};

use super::BulkItems;
use crate::record_shape::{self, ShapedRecord};
use crate::sender::{EntityField, SenderSettings};

/// The attributes of what an action says.
const INDEX: &str = "_index";
const ID: &str = "_id";

/// The documents of a request.
#[derive(Debug)]
pub(super) struct BulkDocuments {
    items: BulkItems,
    settings: SenderSettings,
    /// How many were found.
    found: usize,
    attributes: AttributeBuffer,
    entity: PublisherIdentity,
    field: EntityField,
}

impl BulkDocuments {
    pub(super) fn new(items: BulkItems, settings: SenderSettings) -> Self {
        Self {
            items,
            entity: settings.fallback.clone(),
            settings,
            found: 0,
            attributes: AttributeBuffer::default(),
            field: EntityField::default(),
        }
    }

    /// Whether the first document that may be stored has a time.
    pub(super) fn has_time(&self, body: &[u8]) -> bool {
        let mut items = (0..).map_while(|at| self.items.item(at));
        let first = items.find(|(action, _)| action.fault().is_none());
        let document = first.and_then(|(_, range)| body.get(range));
        let shaped = document.map(|document| shaped(document, &self.settings));
        shaped.is_some_and(|shaped| shaped.is_ok_and(|shaped| shaped.ts.is_some()))
    }
}

/// What a document says.
fn shaped(document: &[u8], settings: &SenderSettings) -> Result<ShapedRecord, String> {
    check_value_count(document)?;
    let fields = serde_json::from_slice::<Map<String, Value>>(document);
    let fields = fields.map_err(|error| format!("failed to parse: {error}"))?;
    ShapedRecord::of(fields, &settings.entity)
}

impl RecordFormat for BulkDocuments {
    fn find(&mut self, _: &[u8]) -> Option<FoundRecord> {
        let (_, range) = self.items.item(self.found)?;
        self.found += 1;
        Some(FoundRecord { range, part: 0 })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        let at = self.found.saturating_sub(1);
        let action = self.items.item(at).map(|(action, _)| action);
        if let Some(fault) = action.and_then(super::bulk_items::BulkAction::fault) {
            return Err(fault.to_owned());
        }
        let document = body.get(record.range.clone()).unwrap_or_default();
        let shaped = shaped(document, &self.settings)?;
        self.attributes.clear();
        shaped.set_attributes(&mut self.attributes, document.len())?;
        let (index, id) = self.items.target(at);
        self.attributes.set("", INDEX, index);
        if let Some(id) = id {
            self.attributes.set("", ID, id);
        }
        self.field.clear();
        if let Some((name, first)) = shaped.entity_name.as_deref().zip(self.settings.entity.first()) {
            // Which of the fields it is was found already.
            self.field.offer(&self.settings, first, name);
        }
        self.field.resolve(&self.settings, &mut self.entity)?;
        let message = shaped.message.as_deref().unwrap_or_default();
        let level = shaped.level.or_else(|| record_shape::level_of_line(message));
        let row = LogFields {
            ts: shaped.ts.unwrap_or(self.settings.now),
            entity: &self.entity,
            flux_id: shaped.flux_id,
            level: level.unwrap_or(Level::Info),
            message,
        };
        rows.push_log(row, &mut self.attributes)?;
        Ok(true)
    }
}
