//! Refused records as dead letters: those of formats of others, whose senders are told how many there are and do not send them
//! again, and those of senders who ask for it.
//!
//! # Invariants
//!
//! - The letters of a request are stored once, as its rows are: under a key of their own.
//! - What a caller may not write is nobody's letter.
//! - Letters are made for one append at a time: what they take is a part of the room for the body's rows.

use bytes::Bytes;
use engine::{AppendBatch, BatchOrigin, RequestPart};
use model::batch::{DeadLetter, dead_letters};
use model::telemetry_codec::{self, RefusedRecord};
use model::{Attributes, Table, Timestamp};
use uuid::Uuid;

/// What a letter takes beside its record and its reason.
const LETTER: usize = 256;

/// Of which protocol, table and encoding a body was.
#[derive(Debug, Clone)]
pub(super) struct BodyOrigin {
    /// As its letters' subject: `otlp/logs`.
    pub(super) subject: String,
    /// Of one record.
    pub(super) content_type: String,
    /// When it came.
    pub(super) at: Timestamp,
}

/// The part of a request that its letters are; they are counted from 0.
pub(super) fn letters_part(request: RequestPart) -> RequestPart {
    RequestPart {
        id: Uuid::new_v5(&request.id, Table::DeadLetters.name().as_bytes()),
        ..request
    }
}

/// The first of some refused records as letters of about `size` bytes, at least one, and how many they are.
///
/// # Errors
/// If they do not fit the table, a defect here.
pub(super) fn refused_letters(
    origin: &BodyOrigin,
    refused: &[RefusedRecord],
    size: usize,
) -> Result<(AppendBatch, usize), String> {
    let letter = |record: &RefusedRecord| DeadLetter {
        ts: origin.at,
        subject: origin.subject.clone(),
        reason: record.reason.clone(),
        content_type: Some(origin.content_type.clone()),
        headers: Attributes::new().with(telemetry_codec::RECORD, record.row),
        payload: record.record.to_vec(),
    };
    let mut left = size;
    let fitting = refused.iter().enumerate().take_while(|(number, record)| {
        let bytes = record.record.len() + record.reason.len() + LETTER;
        let fits = *number == 0 || bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    });
    let letters: Vec<DeadLetter> = fitting.map(|(_, record)| letter(record)).collect();
    let rows = vec![dead_letters(&letters).map_err(|error| error.to_string())?];
    let payload: Bytes = telemetry_codec::encode_arrow(&rows)
        .map_err(|error| error.to_string())?
        .into();
    let batch = AppendBatch {
        table: Table::DeadLetters,
        origin: BatchOrigin::default(),
        payload,
        rows,
    };
    Ok((batch, letters.len()))
}
