//! Rows in the shape of requests: batches of the log gathered, divided, encoded and packed.
//!
//! # Invariants
//!
//! - A request has at most [`MAX_ROWS`] rows, and as protobuf [`MAX_BYTES`], unless it is of one row.
//! - Rows keep the order of the log.

use std::collections::VecDeque;
use std::io::Write as _;

use arrow_array::RecordBatch;
use bytes::Bytes;
use engine::{ArrivalPosition, LogEntry};
use flate2::Compression;
use flate2::write::GzEncoder;
use model::batch::slice_bytes;
use model::{Table, Timestamp};
use protocols::otlp::export_request;

use super::ExportCompression;
use super::endpoint::CollectorProtocol;
use protocols::grpc::frame;

/// The most rows of a request.
const MAX_ROWS: usize = 8_192;
/// The most bytes of a request before it is packed: collectors take 4 MiB at least.
const MAX_BYTES: usize = 4 << 20;
/// So many bytes of columns become about as much protobuf.
const LIKELY_BYTES: usize = 3 << 20;

/// Rows that are going to be one request.
#[derive(Debug)]
pub(super) struct RequestRows(Vec<LogEntry>);

/// A request as it is sent, over and over if need be.
#[derive(Debug)]
pub(super) struct PackedRequest {
    pub(super) signal: Table,
    /// The request itself, as protobuf.
    pub(super) message: Bytes,
    /// As it travels.
    pub(super) body: Bytes,
}

impl RequestRows {
    /// Takes the next rows; `None` if there are none.
    pub(super) fn take(waiting: &mut VecDeque<LogEntry>) -> Option<Self> {
        let (mut taken, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while let Some(entry) = waiting.pop_front() {
            let room = MAX_ROWS - rows;
            let weight = |entry: &LogEntry| entry.rows.iter().map(slice_bytes).sum::<usize>();
            if entry.row_count() > room {
                let (first, others) = entry.split_at(room);
                waiting.push_front(others);
                taken.push(first);
                break;
            }
            if bytes > 0 && bytes + weight(&entry) > LIKELY_BYTES {
                waiting.push_front(entry);
                break;
            }
            rows += entry.row_count();
            bytes += weight(&entry);
            taken.push(entry);
            if rows == MAX_ROWS {
                break;
            }
        }
        (!taken.is_empty()).then_some(Self(taken))
    }

    /// How many rows it has; at least one.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(LogEntry::row_count).sum()
    }

    /// The place of its first row, and the place behind its last one.
    pub(super) fn range(&self) -> Option<(ArrivalPosition, ArrivalPosition)> {
        Some((self.0.first()?.position, self.0.last()?.end))
    }

    /// When its first row arrived.
    pub(super) fn arrived(&self) -> Option<Timestamp> {
        self.0.first().map(|entry| entry.arrived)
    }

    /// Its rows in two halves, to become two requests; gives them back if it is one row.
    pub(super) fn halve(self) -> Result<[Self; 2], Self> {
        let count = self.count();
        if count < 2 {
            return Err(self);
        }
        let (mut first, mut others, mut left) = (Vec::new(), Vec::new(), count / 2);
        for entry in self.0 {
            let rows = entry.row_count();
            if left == 0 {
                others.push(entry);
            } else if rows <= left {
                left -= rows;
                first.push(entry);
            } else {
                let (one, other) = entry.split_at(left);
                left = 0;
                first.push(one);
                others.push(other);
            }
        }
        Ok([Self(first), Self(others)])
    }

    fn batches(&self) -> Vec<RecordBatch> {
        self.0.iter().flat_map(|entry| entry.rows.iter().cloned()).collect()
    }
}

impl PackedRequest {
    /// The request of these rows, packed for the way; `None` if it must be divided.
    pub(super) fn of(
        rows: &RequestRows,
        signal: Table,
        compression: ExportCompression,
        protocol: CollectorProtocol,
    ) -> Result<Option<Self>, String> {
        let message = export_request(signal, &rows.batches()).map_err(|error| error.to_string())?;
        if message.len() > MAX_BYTES && rows.count() > 1 {
            return Ok(None);
        }
        let message = Bytes::from(message);
        let (is_packed, packed) = match compression {
            ExportCompression::None => (false, message.clone()),
            ExportCompression::Gzip => {
                let mut encoder = GzEncoder::new(Vec::with_capacity(message.len() / 4), Compression::fast());
                let packed = encoder.write_all(&message).and_then(|()| encoder.finish());
                (true, packed.map_err(|error| error.to_string())?.into())
            }
        };
        let body = match protocol {
            CollectorProtocol::Grpc => frame(is_packed, &packed),
            CollectorProtocol::Http => packed,
        };
        Ok(Some(Self { signal, message, body }))
    }
}
