//! The types of an append: a batch with its origin, and the engine's answer.

use arrow_array::RecordBatch;
use bytes::Bytes;
use model::Table;
use model::telemetry_codec::BatchId;
use uuid::Uuid;

/// Rows to append, all of one table and one origin: stored whole or not at all.
#[derive(Debug, Clone)]
pub struct AppendBatch {
    /// The table.
    pub table: Table,
    /// Where the batch comes from: what makes it storable exactly once.
    pub origin: BatchOrigin,
    /// The rows as one Arrow IPC stream in the table's schema; goes to the log as it is.
    pub payload: Bytes,
    /// The same rows, decoded, under exactly the table's schema.
    pub rows: Vec<RecordBatch>,
}

/// Where a batch comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchOrigin {
    /// The producer's key. With one, a batch is a duplicate exactly if its key was stored, as long as its run is known.
    pub producer: Option<BatchId>,
    /// The producer says that every sequence of its run up to and with this one is settled; 0 says nothing.
    pub settled: u64,
    /// The position on the bus. Without a producer key, a batch is a duplicate exactly if its position was stored.
    pub bus: Option<BusPosition>,
    /// The request that it is a part of; goes before the others. A part is a duplicate if all of it was stored, as long as
    /// the request is among the last [`REQUESTS_KNOWN_OF_ONE`] of its sender and the last [`REQUESTS_KNOWN`] of all.
    pub request: Option<RequestPart>,
}

/// A part of a request that its sender may send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPart {
    /// Stands for the sender and its key.
    pub id: Uuid,
    /// Stands for the sender, whose keys are counted together.
    pub sender: u64,
    /// Stands for what the request says: distinguishes a repetition from another request under the same key.
    pub digest: u64,
    /// The position of its first record in the request, from 0; a part is appended when what is before it was, or was refused
    /// for good.
    pub from: u64,
    /// The position behind its last record.
    pub to: u64,
}

/// What is known of a request of which something was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRequest {
    /// That of its first stored part.
    pub digest: u64,
    /// Every record before this position was stored, or was refused for good.
    pub through: u64,
}

/// So many requests are known, the last ones of which something was stored: the watermarks must not grow with every request for
/// ever.
pub const REQUESTS_KNOWN: usize = 1 << 16;
/// So many of one sender: it must not push out those of others.
pub const REQUESTS_KNOWN_OF_ONE: usize = 1 << 12;

impl BatchOrigin {
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
    /// Which counting of the stream: when it was created, µs, for a recreated stream counts from 1 again; one more each time
    /// that the stream was seen to have lost its end, for a bus gives lost sequences to new messages.
    pub incarnation: i64,
    /// The sequence within the incarnation.
    pub seq: u64,
    /// Tells this message from another that has its sequence. Compared for equality, nothing else.
    pub identity: i64,
}

/// How far a stream is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTail {
    /// Its last incarnation of which something was stored.
    pub incarnation: i64,
    /// The highest sequence that counts as stored.
    pub last: u64,
    /// The highest sequence of which a message was stored, and that message's identity.
    pub newest: Option<(u64, i64)>,
}

/// What became of a batch. Either way it is durable and visible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It was stored.
    Stored {
        /// How many rows it had.
        rows: usize,
    },
    /// It had been stored before.
    Duplicate,
}
