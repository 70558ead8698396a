//! Refused records of formats of others as dead letters: their senders are told how many there are, and do not send them again.
//!
//! # Invariants
//!
//! - The letters of a request are stored once, as its rows are: under a key of their own.
//! - What a caller may not write is nobody's letter.

use bytes::Bytes;
use engine::{AppendBatch, BatchOrigin, RequestPart};
use model::batch::{DeadLetter, dead_letters};
use model::telemetry_codec::{self, RefusedRecord};
use model::{Attributes, Table, Timestamp};
use uuid::Uuid;

/// Of which protocol, table and encoding a body was.
#[derive(Debug, Clone)]
pub(super) struct BodyOrigin {
    /// As its letters' subject: `otlp/logs`.
    pub(super) subject: String,
    pub(super) content_type: String,
    /// When it came.
    pub(super) at: Timestamp,
}

/// The letters of a request; none if nothing was refused.
///
/// # Errors
/// If they do not fit the table, a defect here.
pub(super) fn refused_letters(
    origin: &BodyOrigin,
    refused: &[RefusedRecord],
    request: Option<RequestPart>,
) -> Result<Option<AppendBatch>, String> {
    if refused.is_empty() {
        return Ok(None);
    }
    let letter = |record: &RefusedRecord| DeadLetter {
        ts: origin.at,
        subject: origin.subject.clone(),
        reason: record.reason.clone(),
        content_type: Some(origin.content_type.clone()),
        headers: Attributes::new().with("record", record.row),
        payload: record.record.to_vec(),
    };
    let letters: Vec<DeadLetter> = refused.iter().map(letter).collect();
    let rows = vec![dead_letters(&letters).map_err(|error| error.to_string())?];
    let payload: Bytes = telemetry_codec::encode_arrow(&rows)
        .map_err(|error| error.to_string())?
        .into();
    let request = request.map(|part| RequestPart {
        id: Uuid::new_v5(&part.id, Table::DeadLetters.name().as_bytes()),
        from: 0,
        to: 1,
        ..part
    });
    Ok(Some(AppendBatch {
        table: Table::DeadLetters,
        origin: BatchOrigin {
            request,
            ..BatchOrigin::default()
        },
        payload,
        rows,
    }))
}
