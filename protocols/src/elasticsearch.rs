//! Elasticsearch's `_bulk` requests into rows of `logs`: a line that says what to do, then a line with the document.
//!
//! ```text
//! {"create":{"_index":"logs-app"}}      index │ create │ update │ delete
//! {"@timestamp":"…","message":"…"}      a document; none behind delete
//! ```
//!
//! Source: <https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk>. What a document says under the usual names:
//! [`crate::record_shape`].
//!
//! # Invariants
//!
//! - Lines of actions are read before anything is taken: one that is none refuses the request. What is wrong with a document, and
//!   actions that change or remove what is stored, refuse that item.
//! - `_id` identifies nothing: documents are appended. A request is known again by its bytes and the index of its path, and only if
//!   its first document has a time: without times the same bytes may be another request.
//! - A request has [`MAX_ITEMS`] items at most, and what is remembered of an item is some bytes.
//!
//! # Not here
//!
//! What else clients of Elasticsearch ask (`mixer`).

mod bulk_documents;
mod bulk_items;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::sender::{OpenedRequest, SenderSettings};
use bulk_documents::BulkDocuments;

pub use bulk_items::{BulkItems, MAX_ITEMS, items_bytes};

/// What a path says of a request, and where its items are told.
#[derive(Debug, Clone)]
pub struct BulkSettings {
    /// The index of documents that name none.
    pub index: String,
    /// The items of the request, once it was looked through.
    pub items: Arc<OnceLock<BulkItems>>,
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// A line that is no action.
    #[error("Malformed action/metadata line [{line}]: {reason}")]
    Action {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An action without its document.
    #[error("the action of line [{0}] has no document behind it")]
    NoDocument(u64),
    /// No line.
    #[error("request body is required")]
    Empty,
    /// More items than a request may have, or longer names and ids.
    #[error("the request has more than {MAX_ITEMS} items, or 8 MiB of names and ids: send several smaller ones")]
    TooMany,
}

/// Looks through a request.
///
/// # Errors
/// A [`BulkError`] that says what is wrong with the body.
pub fn request(body: Bytes, bulk: BulkSettings, settings: SenderSettings) -> Result<OpenedRequest, BulkError> {
    let items = BulkItems::read(&body, bulk.index)?;
    let expanded = items.expanded();
    let held = items.held();
    let items = bulk.items.get_or_init(|| items).clone();
    let sender = items.sender();
    let records = BulkDocuments::new(items, settings);
    let sender = records.has_time(&body).then_some(sender);
    Ok(OpenedRequest {
        records: Box::new(records),
        body,
        expanded,
        held,
        sender,
    })
}
