//! Reads a body part by part, and accounts for its memory.
//!
//! # Invariants
//!
//! - The room for a body and for what is decoded of it is where they are, and given back after them.

use bytes::Bytes;
use engine::{AppendBatch, BatchOrigin};
use model::Table;
use model::telemetry_codec::{self, BatchEncoding, BodyRecordReader};

use super::body::IngestReservation;

/// A body as it is read part by part, with the room for all of it.
#[derive(Debug)]
pub(super) struct BodyReader {
    pub(super) records: BodyRecordReader,
    /// The most bytes of a part's rows.
    pub(super) size: usize,
    /// What an Arrow stream has become: its compressed buffers, or its good rows where bad ones were among them.
    pub(super) unpacked: usize,
    pub(super) decoding: IngestReservation,
    pub(super) _body: IngestReservation,
}

/// A part of a body, ready to be appended.
pub(super) struct PreparedPart {
    pub(super) batch: AppendBatch,
    /// Where its rows were.
    pub(super) positions: Vec<u64>,
    /// The position behind it.
    pub(super) to: u64,
}

impl BodyReader {
    /// The next part behind a position, and how many good records were passed over up to there.
    pub(super) fn next(&mut self, table: Table, through: u64) -> Result<(u64, Option<PreparedPart>), String> {
        let records = &mut self.records;
        let skipped = records.skip_to(through, self.size).map_err(|error| error.to_string())?;
        let part = records.next_part(self.size).map_err(|error| error.to_string())?;
        let Some(part) = part else { return Ok((skipped, None)) };
        let rows = vec![part.batch];
        let payload: Bytes = telemetry_codec::encode_arrow(&rows)
            .map_err(|error| error.to_string())?
            .into();
        // What was refused becomes letters in the same room.
        if records.is_read() && records.refused().is_empty() {
            let taken: usize = rows.iter().map(model::batch::slice_bytes).sum();
            self.decoding.shrink_to(self.unpacked + payload.len() + taken);
        }
        let batch = AppendBatch {
            table,
            origin: BatchOrigin::default(),
            payload,
            rows,
        };
        let next = PreparedPart {
            batch,
            positions: part.positions,
            to: part.to,
        };
        Ok((skipped, Some(next)))
    }
}

/// What a body needs beside itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeBudget {
    /// The most bytes of a part's rows.
    pub(super) size: usize,
    /// What an Arrow stream becomes.
    pub(super) unpacked: usize,
    /// All of it.
    pub(super) bytes: usize,
}

impl DecodeBudget {
    /// With so many bytes more that are held as long as the body is.
    pub(super) const fn hold(&mut self, bytes: usize) {
        self.unpacked += bytes;
        self.bytes += bytes;
    }

    /// The same of a format of others, whose records have so many bytes with what they share, and of which `converted` bytes are
    /// held beside what was sent.
    pub(super) fn of_expanded(expanded: u64, converted: usize, largest: usize) -> Self {
        // A byte of text becomes six if it is a control character, a number of one byte in a list two or three.
        let decoded = expanded.saturating_mul(8).saturating_add(64 << 10);
        let size = usize::try_from(decoded).unwrap_or(usize::MAX).min(largest);
        // One record may be all of a part that is twice as large.
        let part = usize::try_from(decoded).unwrap_or(usize::MAX).min(2 * largest);
        Self {
            size,
            unpacked: converted,
            bytes: converted + 2 * part,
        }
    }

    /// A part as columns while they grow, then as rows and as the log takes it; of a body that is larger than the largest part, one
    /// record may be all of a part that is twice as large.
    pub(super) fn of(encoding: BatchEncoding, body: &[u8], largest: usize) -> Self {
        let decoded = usize::try_from(telemetry_codec::decoded_bytes(encoding, body)).unwrap_or(usize::MAX);
        let unpacked = if encoding == BatchEncoding::Arrow { decoded } else { 0 };
        let size = decoded.min(largest);
        let part = size.max(body.len().min(2 * largest));
        Self {
            size,
            unpacked,
            bytes: unpacked + 2 * part,
        }
    }
}
