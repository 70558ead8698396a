//! Whose word a message may be: where the bus knows each Rack by its key, the subject says who published, and nothing in the
//! message may say otherwise.
//!
//! # Invariants
//!
//! - A message that speaks for another entity becomes a dead letter and moves no watermark: the durable floor of a Rack is
//!   moved by that Rack alone.
//!
//! # Not here
//!
//! Who may publish on which subject (the bus); what a Rack is (`mixer`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use async_nats::HeaderMap;
use model::{EntityId, Token, subject};

use crate::decode::entity;

/// The entity that the Rack of this name is; none where anybody may speak for it.
pub type Vouch = Arc<dyn Fn(&Token) -> Option<EntityId> + Send + Sync>;

/// The entity that a message on this subject must be of; none if it may be of any.
pub(crate) fn owner(vouch: Option<&Vouch>, on: &str) -> Option<EntityId> {
    let vouch = vouch?;
    let rack = subject::parse_telemetry(on).map(|(_, rack)| rack);
    let rack = rack.or_else(|| subject::parse_message(on).map(|(rack, ..)| rack));
    let rack = rack.or_else(|| subject::parse_gear(on).map(|(rack, _)| rack))?;
    vouch(&rack)
}

/// Why the headers are not the owner's word, if they are not.
pub(crate) fn foreign_headers(headers: &HeaderMap, owner: EntityId) -> Option<String> {
    let said = entity(headers).ok().flatten()?;
    (said != owner).then(|| format!("the message says that it is of entity {said}, its subject belongs to {owner}"))
}

/// Why the rows are not the owner's, if they are not.
pub(crate) fn foreign_rows(rows: &[RecordBatch], owner: EntityId) -> Option<String> {
    let is_foreign = |batch: &RecordBatch| {
        let ids = batch.column_by_name("entity_id")?.as_fixed_size_binary_opt()?;
        ids.iter()
            .flatten()
            .find(|id| *id != owner.as_bytes().as_slice())
            .map(drop)
    };
    rows.iter()
        .find_map(is_foreign)
        .map(|()| format!("a row says that it is of another entity than {owner}, to whom its subject belongs"))
}
