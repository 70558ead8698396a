//! Wire format of telemetry batches: headers, content types, encodings.
//!
//! | `Content-Type` | body |
//! |---|---|
//! | `application/vnd.apache.arrow.stream` | one Arrow IPC stream in exactly the table's schema (what our Rack sends) |
//! | `application/cbor` | an array of records |
//! | `application/json` | an array of records, or one record |
//! | `application/x-ndjson` | one record a line |
//!
//! A batch is identified by (entity, boot epoch, sequence) and stored exactly once: [`BatchId`].
//!
//! # Invariants
//!
//! - Decoding never panics, and rows take no more than [`decoded_bytes`] says before. Compressed Arrow buffers say themselves how
//!   large they become: that is added up before one is unpacked. Attributes and rows may become 8 times their text.
//! - Foreign records may leave out `entity_id` and `entity_name`; the publisher's own are filled in.

mod attribute_buffer;
mod batch_builder;
mod body_cursor;
mod body_reader;
mod column_buffer;
mod fast_path;
mod flatten;
mod foreign_records;
mod record_format;
pub mod record_framing;
mod refused_records;
mod rejection_log;
#[cfg(test)]
mod tests;
mod typed_rows;
mod value_count;
mod writer_entities;

use std::fmt;
use std::str::FromStr;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::ArrowError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::batch::{SchemaViolation, conform, slice_bytes};
use crate::{BadId, EntityId, Table};

pub use attribute_buffer::AttributeBuffer;
pub use batch_builder::RecordBatchBuilder;
pub use body_reader::{BodyRecordReader, RecordChunk};
pub use record_format::{FoundRecord, RecordFormat};
pub use refused_records::{KEPT, RefusedRecord};
pub use rejection_log::{NAMED, RecordRejection};
pub use typed_rows::{LogFields, PointFields, SpanFields};
pub use value_count::{check_value_count, value_bytes};
pub use writer_entities::WriterEntities;

/// Header of a command: where its answer goes. Without it, to the reply subject.
pub const ANSWER_TO: &str = "Flux-Answer-To";
/// The part of the bus's largest message that is kept for headers, in bytes: a body has the rest.
pub const HEADER_ROOM: usize = 2048;
/// Header: the encoding of the body.
pub const CONTENT_TYPE: &str = "Content-Type";
/// The content type of several messages of a port, one behind the other (RFC 8742).
pub const CBOR_SEQUENCE: &str = "application/cbor-seq";
/// Header: the publisher's entity id.
pub const ENTITY_ID: &str = "Flux-Entity-Id";
/// Header: the publisher's entity name.
pub const ENTITY_NAME: &str = "Flux-Entity-Name";
/// Header: the publisher's boot epoch, decimal.
pub const BOOT_EPOCH: &str = "Flux-Boot-Epoch";
/// Header: the batch's sequence within the boot epoch, decimal, from 1, without gaps, over all tables.
pub const SEQUENCE: &str = "Flux-Seq";
/// Header: every sequence of this boot epoch up to and with this one is settled at the publisher: stored here, or given up
/// there and never to come. Decimal; absent means 0.
pub const SETTLED: &str = "Flux-Settled";
/// Header: where a message stands among those of its port, `<outbox>/<run>/<number>`; numbers begin at 1 in each run and have no
/// gaps. Of a sequence it is the first one's; the others follow.
pub const PLACE: &str = "Flux-Place";
/// Header of a message: `internal` if every gear that it is for is of its sender's Rack, else `outbound`, as the wires were when
/// it was sent.
pub const DIRECTION: &str = "Flux-Direction";
/// Header of a message with a direction: the gear that it is for; absent if it is for several.
pub const TO: &str = "Flux-To";
/// Header of a dead letter: why the message could not be handled.
pub const DEAD_REASON: &str = "Flux-Dead-Reason";
/// Header of a dead letter: the input port it was for.
pub const DEAD_PORT: &str = "Flux-Dead-Port";
/// Header of a dead letter: how often it was tried, decimal; what was tried before a replay is counted.
pub const DEAD_ATTEMPTS: &str = "Flux-Dead-Attempts";
/// Header of a dead letter: [`crate::dead_letter::PortSide`], whether the message was arriving at the port or leaving by it.
pub const DEAD_WAY: &str = "Flux-Dead-Way";
/// Header of a dead letter: the subject that the message came by; absent if it came by no wire over the bus.
pub const DEAD_FROM: &str = "Flux-Dead-From";
/// Header of a dead letter: the letter that was given back to the gear before; absent if none was.
pub const DEAD_LETTER: &str = "Flux-Dead-Letter";
/// Header of a dead letter: its record's position in the body that it was sent in, from 0.
pub const RECORD: &str = "record";
/// Header of a dead letter: how often the message was given back before, decimal; absent means 0.
pub const DEAD_REPLAYS: &str = "Flux-Dead-Replays";

/// The encodings of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchEncoding {
    /// An Arrow IPC stream.
    Arrow,
    /// A CBOR array of records.
    Cbor,
    /// A JSON array of records, or one.
    Json,
    /// One JSON record a line.
    Ndjson,
}

impl BatchEncoding {
    /// The content type's name.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Arrow => "application/vnd.apache.arrow.stream",
            Self::Cbor => "application/cbor",
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
        }
    }
}

impl FromStr for BatchEncoding {
    type Err = BadId;
    /// Parameters after `;` are ignored; letter case does not count.
    fn from_str(text: &str) -> Result<Self, BadId> {
        let name = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        [Self::Arrow, Self::Cbor, Self::Json, Self::Ndjson]
            .into_iter()
            .find(|encoding| encoding.content_type() == name)
            .ok_or_else(|| BadId {
                what: "a content type of ours (Arrow stream, CBOR, JSON, NDJSON)",
                text: text.chars().take(80).collect(),
            })
    }
}

/// The producer's key of a batch: what makes it storable exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId {
    /// The publisher.
    pub entity: EntityId,
    /// The publisher's run: grows with every start.
    pub boot_epoch: u64,
    /// Counts from 1 within the run, without gaps, over all tables.
    pub seq: u64,
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.entity, self.boot_epoch, self.seq)
    }
}

/// Who publishes, for records that do not say it themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherIdentity {
    /// Its id.
    pub entity_id: EntityId,
    /// Its name.
    pub entity_name: String,
}

/// The longest name of a publisher: it may be repeated in every row.
pub const MAX_ENTITY_NAME: usize = 255;
/// A body may become this many times its bytes: by compressed Arrow buffers, or by long keys over nested attributes.
const UNPACKED: u64 = 8;
/// What records may become beside that, however small they are.
const SMALL: u64 = 64 << 10;
/// Compressed Arrow buffers may become this many bytes, however large their body is.
pub const MAX_UNPACKED: u64 = 64 << 20;

/// Why a body could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not an Arrow IPC stream.
    #[error("not an Arrow IPC stream: {0}")]
    Arrow(#[from] ArrowError),
    /// An Arrow batch of another schema.
    #[error("not a batch of {table}: {source}")]
    Schema {
        /// The table it was sent to.
        table: Table,
        /// The difference.
        source: SchemaViolation,
    },
    /// Not JSON, or not a record.
    #[error("record {index} is not a record of {table}: {reason}")]
    Record {
        /// The table it was sent to.
        table: Table,
        /// The record's position, from 0.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Not the encoding that the content type names.
    #[error("the body is not {encoding}: {reason}")]
    Body {
        /// The content type.
        encoding: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// An Arrow IPC stream whose compressed buffers become too large.
    #[error(
        "the compressed buffers of the Arrow IPC stream become {unpacked} bytes, more than {MAX_UNPACKED} or {UNPACKED} times the {packed} sent: send smaller batches, or without compression"
    )]
    Unpacked {
        /// What the buffers say.
        unpacked: u64,
        /// The bytes of the body.
        packed: usize,
    },
    /// Nothing in it.
    #[error("the batch has no rows")]
    Empty,
}

/// Batches as an Arrow IPC stream in the table's schema, uncompressed.
///
/// # Errors
/// If a batch has another schema.
pub fn encode_arrow(batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let Some(first) = batches.first() else {
        return Ok(Vec::new());
    };
    let options = IpcWriteOptions::default();
    let room = batches.iter().map(stream_bytes).sum();
    let mut writer = StreamWriter::try_new_with_options(Vec::with_capacity(room), first.schema_ref(), options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

/// About how many bytes a batch takes as a stream, seldom fewer than it does. Who holds a stream has all that was allocated for
/// it: one that grew by doubling takes up to twice its length.
fn stream_bytes(batch: &RecordBatch) -> usize {
    // What a column's field, nodes and padding take.
    const COLUMN: usize = 1 << 10;
    slice_bytes(batch) + batch.num_columns() * COLUMN
}

/// An Arrow IPC stream as batches of exactly the table's schema, without copying where buffers are aligned.
///
/// # Errors
/// A [`DecodeError`] that says what is wrong.
pub fn decode_arrow(table: Table, body: &Bytes) -> Result<Vec<RecordBatch>, DecodeError> {
    let batches = arrow_batches(body)?;
    let conform = |batch: RecordBatch| conform(table, &batch).map_err(|source| DecodeError::Schema { table, source });
    batches.into_iter().map(conform).collect()
}

/// The most bytes that the rows of a body take once they are decoded: what to make room for before that. Looks only at the heads
/// of messages. Of JSON and CBOR nearly all bodies take no more than their length: give the rest back once it is known.
#[must_use]
pub fn decoded_bytes(encoding: BatchEncoding, body: &[u8]) -> u64 {
    let length = body.len() as u64;
    match encoding {
        // Rows share the body's bytes unless they are compressed. What cannot be read takes no more.
        BatchEncoding::Arrow => length + unpacked_bytes(body).unwrap_or(0).min(most_unpacked(length)),
        BatchEncoding::Cbor | BatchEncoding::Json | BatchEncoding::Ndjson => {
            length.saturating_mul(UNPACKED).saturating_add(SMALL)
        }
    }
}

/// What the compressed buffers of an Arrow stream of so many bytes may become.
fn most_unpacked(length: u64) -> u64 {
    length.saturating_mul(UNPACKED).min(MAX_UNPACKED)
}

/// The batches of an Arrow IPC stream that have rows, in whatever schema; at least one.
fn arrow_batches(body: &Bytes) -> Result<Vec<RecordBatch>, DecodeError> {
    let unpacked = unpacked_bytes(body)?;
    if unpacked > most_unpacked(body.len() as u64) {
        let packed = body.len();
        return Err(DecodeError::Unpacked { unpacked, packed });
    }
    let mut rest = Buffer::from(body.clone());
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while let Some(batch) = decoder.decode(&mut rest)? {
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
    }
    decoder.finish()?;
    if batches.is_empty() {
        Err(DecodeError::Empty)
    } else {
        Ok(batches)
    }
}

/// What the compressed buffers of the stream say that they become; refuses buffers that do not lie in their message's body,
/// which the decoder does not expect. What is cut off or follows the end of the stream is not
/// looked at: the decoder does not unpack it either.
fn unpacked_bytes(body: &[u8]) -> Result<u64, ArrowError> {
    const CONTINUATION: [u8; 4] = [0xff; 4];
    let mut total = 0u64;
    let mut rest = body;
    loop {
        rest = rest.strip_prefix(&CONTINUATION).unwrap_or(rest);
        let Some((length, behind)) = rest.split_first_chunk::<4>() else {
            return Ok(total);
        };
        let length = u32::from_le_bytes(*length) as usize;
        let Some((head, behind)) = behind.split_at_checked(length).filter(|_| length > 0) else {
            return Ok(total);
        };
        let message = arrow_ipc::root_as_message(head)
            .map_err(|error| ArrowError::ParseError(format!("the head of a message: {error}")))?;
        let rows = message
            .header_as_record_batch()
            .or_else(|| message.header_as_dictionary_batch().and_then(|batch| batch.data()));
        let length = usize::try_from(message.bodyLength()).unwrap_or(usize::MAX);
        let Some((body, behind)) = behind.split_at_checked(length) else {
            return Ok(total);
        };
        for buffer in rows.iter().flat_map(|rows| rows.buffers()).flatten() {
            let buffer = || -> Option<&[u8]> {
                let start = usize::try_from(buffer.offset()).ok()?;
                body.get(start..)?.get(..usize::try_from(buffer.length()).ok()?)
            }();
            let buffer =
                buffer.ok_or_else(|| ArrowError::ParseError("a buffer lies outside of its message".to_owned()))?;
            if rows.is_some_and(|rows| rows.compression().is_some()) {
                // -1 stands for a buffer that is not compressed.
                let said = buffer.first_chunk::<8>().map_or(0, |said| i64::from_le_bytes(*said));
                total = total.saturating_add(u64::try_from(said).unwrap_or(0));
            }
        }
        rest = behind;
    }
}

/// A body of any encoding as batches of exactly the table's schema. One bad record refuses the whole body.
///
/// # Errors
/// A [`DecodeError`] that names the record and the reason.
pub fn decode(
    table: Table,
    encoding: BatchEncoding,
    body: &Bytes,
    publisher: &PublisherIdentity,
) -> Result<Vec<RecordBatch>, DecodeError> {
    if encoding == BatchEncoding::Arrow {
        return decode_arrow(table, body);
    }
    let most = usize::try_from(decoded_bytes(encoding, body)).unwrap_or(usize::MAX);
    let mut records = BodyRecordReader::new(table, encoding, body.clone(), publisher.clone())?;
    let rows = records.next_part(most)?;
    if let Some(first) = records.named().first() {
        return Err(DecodeError::Record {
            table,
            index: usize::try_from(first.row).unwrap_or(usize::MAX),
            reason: first.reason.clone(),
        });
    }
    let rows = rows.ok_or(DecodeError::Empty)?;
    if !records.is_read() || slice_bytes(&rows.batch) > most {
        let reason = format!(
            "its rows become more than {most} bytes, {UNPACKED} times what was sent and {} KiB: send smaller batches",
            SMALL >> 10
        );
        return Err(body_error(encoding, reason));
    }
    Ok(vec![rows.batch])
}

fn body_error(encoding: BatchEncoding, reason: impl fmt::Display) -> DecodeError {
    DecodeError::Body {
        encoding: encoding.content_type(),
        reason: reason.to_string(),
    }
}
