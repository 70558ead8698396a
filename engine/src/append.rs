//! What goes in: batches with their origin, and what the engine answers.

use arrow_array::RecordBatch;
use bytes::Bytes;
use model::wire::BatchId;
use model::{Table, Timestamp};
use uuid::Uuid;

/// Rows to append, all of one table and one origin: stored whole or not at all.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The table.
    pub table: Table,
    /// Where the batch comes from: what makes it storable exactly once.
    pub origin: Origin,
    /// The rows as one Arrow IPC stream in the table's schema; goes to the log as it is.
    pub payload: Bytes,
    /// The same rows, decoded, under exactly the table's schema.
    pub rows: Vec<RecordBatch>,
}

/// Where a batch comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The producer's key. With one, a batch is a duplicate exactly if its key was stored.
    pub producer: Option<BatchId>,
    /// The producer says that every sequence of its run up to and with this one is settled; 0 says nothing.
    pub settled: u64,
    /// The position on the bus. Without a producer key, a batch is a duplicate exactly if its position was stored.
    pub bus: Option<BusPosition>,
    /// The request that it is a part of; goes before the others. A part is a duplicate if it was stored, as long as the
    /// request is among the last [`REQUESTS_KNOWN`].
    pub request: Option<RequestPart>,
}

/// A part of a request that its sender may send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPart {
    /// Stands for the sender and its key.
    pub id: Uuid,
    /// Stands for what the request says: tells a repetition from another request under the same key.
    pub digest: u64,
    /// Counts from 0, without gaps; a part is appended when the one before it was.
    pub part: u32,
}

/// What is known of a request of which something was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRequest {
    /// That of its first stored part.
    pub digest: u64,
    /// How many parts were stored.
    pub parts: u32,
}

/// So many requests are known, the last ones of which something was stored: the marks must not grow with every request for
/// ever.
pub const REQUESTS_KNOWN: usize = 1 << 16;

impl Origin {
    /// The producer's key. Sequences count from 1: 0 is what a publisher without one says.
    pub(crate) fn producer_key(&self) -> Option<BatchId> {
        self.producer.filter(|id| id.seq > 0)
    }

    /// The position on the bus, which counts from 1 too.
    pub(crate) fn bus_key(&self) -> Option<&BusPosition> {
        self.bus.as_ref().filter(|position| position.seq > 0)
    }
}

/// A message's position on the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusPosition {
    /// The stream's name.
    pub stream: String,
    /// When the stream was created, µs: a stream made anew counts from 1 again.
    pub incarnation: i64,
    /// The sequence within the incarnation.
    pub seq: u64,
    /// When the bus stored the message: tells a redelivery from a sequence that a bus used twice.
    pub stored: Timestamp,
}

/// What became of a batch. Either way it is durable and visible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// It was stored.
    Stored {
        /// How many rows it had.
        rows: usize,
    },
    /// It had been stored before.
    Duplicate,
}
