//! From the bytes of a request to rows in the Rack's spool.
//!
//! # Invariants
//!
//! - All rows of a request and its digest are one write: after a crash all are there, or none.
//! - All rows are the Rack's own: the Mixer refuses those of anybody else from it.
//! - What was begun goes on when its client leaves, and ends with the gear.
//! - Refused records become dead letters after the rows of their request are on disk: a crash between the two leaves them out. No answer waits
//!   for room for them: without it they are only counted.

use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use model::dead_letter::PortSide;
use model::telemetry_codec::{self, BodyRecordReader, PublisherIdentity, RefusedRecord};
use model::{Attributes, EntityId, Table};
use protocols::SenderSettings;
use protocols::otlp::{self, OtlpEncoding};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::super::GearContext;
use super::export_refusal::ExportRefusal;
use super::request_body::{BodyPacking, unpack};
use super::request_room::RequestRoom;
use super::request_window::{RequestDigest, RequestTurn, RequestWindow};
use crate::spool::{RecordingError, SourceCheckpoint};
use crate::telemetry::{BATCH_BYTES, DURABLE_BYTES, EncodedBatch};

/// So many requests are decoded at once.
const DECODERS: usize = 4;
/// So many refused records are named.
const NAMED: usize = 5;

/// A request whose body is here.
pub(super) struct ReceivedRequest {
    pub(super) table: Table,
    pub(super) encoding: OtlpEncoding,
    pub(super) packing: BodyPacking,
    pub(super) body: Bytes,
    pub(super) room: RequestRoom,
}

/// What became of a request that is stored.
#[derive(Debug)]
pub(super) struct StoredExport {
    pub(super) refused: u64,
    /// Why, the first records by name.
    pub(super) reason: String,
}

/// See the module.
pub(super) struct ExportStore {
    cx: Arc<GearContext>,
    window: Arc<RequestWindow>,
    decoders: Semaphore,
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// A request as rows.
struct DecodedExport {
    batches: Vec<EncodedBatch>,
    /// Whether equal bytes are the same request, as the Mixer has it: the first record has a time of its own.
    has_time: bool,
    /// The refused records that are kept.
    refused: Vec<RefusedRecord>,
    stored: StoredExport,
}

impl ExportStore {
    pub(super) fn new(cx: &Arc<GearContext>) -> Self {
        Self {
            cx: Arc::clone(cx),
            window: Arc::new(RequestWindow::restore(cx.name(), cx.recorder())),
            decoders: Semaphore::new(DECODERS),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Stores a request, unless it is stored; returns when it is on disk.
    pub(super) async fn store(self: Arc<Self>, request: ReceivedRequest) -> Result<StoredExport, ExportRefusal> {
        let (store, ended) = (Arc::clone(&self), self.ended.clone());
        let work = async move { ended.run_until_cancelled_owned(store.work(request)).await };
        let stopping = || ExportRefusal::busy("the gear is stopping; nothing of the request is stored");
        match self.tasks.spawn(work).await {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(_) => Err(stopping()),
        }
    }

    async fn work(self: Arc<Self>, request: ReceivedRequest) -> Result<StoredExport, ExportRefusal> {
        let ReceivedRequest {
            table,
            encoding,
            packing,
            body,
            mut room,
        } = request;
        let no_owner = || ExportRefusal::full("the Rack is not adopted by its cluster yet");
        let owner = self.cx.recorder().owner().ok_or_else(no_owner)?;
        let settings = SenderSettings {
            entity: Arc::from([]),
            fallback: PublisherIdentity {
                entity_id: owner.entity_id,
                entity_name: owner.name.as_str().to_owned(),
            },
            now: self.cx.recorder().now(),
        };
        let Ok(turn) = self.decoders.acquire().await else {
            return Err(ExportRefusal::busy("the gear is stopping"));
        };
        let window = Arc::clone(&self.window);
        let decoding = tokio::task::spawn_blocking(move || {
            let body = unpack(packing, body, &mut room)?;
            let guard = match window.begin(RequestDigest::of(table, &body)) {
                RequestTurn::New(guard) => guard,
                RequestTurn::Stored(refused) => return Ok((None, known(refused), room)),
                RequestTurn::UnderWay => {
                    return Err(ExportRefusal::busy(
                        "the same request is being stored: come again to hear of it",
                    ));
                }
            };
            let decoded = decode((table, encoding), body, settings, &mut room)?;
            let rows = (guard, decoded.batches, decoded.has_time, decoded.refused);
            Ok((Some(rows), decoded.stored, room))
        });
        let (rows, stored, _room) = decoding.await.map_err(|error| decoding_stopped(&error))??;
        drop(turn);
        if let Some((guard, batches, has_time, refused)) = rows {
            if !batches.is_empty() && has_time {
                let (number, note) = guard.note(stored.refused);
                self.record(owner.entity_id, batches, Some(note)).await?;
                guard.end(number, stored.refused);
            } else if !batches.is_empty() {
                self.record(owner.entity_id, batches, None).await?;
            }
            if stored.refused > 0 {
                let kept = if self.keep_refused(table, refused).await {
                    ""
                } else {
                    " (not kept as dead letters: there is no room for them)"
                };
                self.cx.count_lost(stored.refused, &format!("{}{kept}", stored.reason));
            }
        }
        Ok(stored)
    }

    async fn record(
        &self,
        owner: EntityId,
        batches: Vec<EncodedBatch>,
        note: Option<SourceCheckpoint>,
    ) -> Result<(), ExportRefusal> {
        let recorded = self.cx.recorder().record_encoded(owner, batches, note).await;
        recorded.map_err(|error| match error {
            RecordingError::Full => ExportRefusal::full(error.to_string()),
            RecordingError::ExceedsSpool { .. } => ExportRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            other => ExportRefusal::busy(other.to_string()),
        })
    }

    /// Makes dead letters of refused records, which leave together; false if there is no room for them now.
    async fn keep_refused(&self, table: Table, refused: Vec<RefusedRecord>) -> bool {
        let is_any = !refused.is_empty();
        let letters = async {
            for RefusedRecord { row, reason, record } in refused {
                let meta = Attributes::new().with(telemetry_codec::RECORD, row);
                let message = self.cx.make(None, meta, record.to_vec());
                let port = (table.name(), PortSide::In);
                self.cx.dead_letter(port, &message, (reason, 1)).await;
            }
        };
        is_any && self.cx.keep_sender_letters(letters).await
    }

    /// Ends what is under way when it is dropped.
    pub(super) fn end_with(&self) -> DropGuard {
        self.ended.clone().drop_guard()
    }

    /// Ends what is under way.
    pub(super) async fn close(&self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What is said of a request that was stored before.
fn known(refused: u64) -> StoredExport {
    StoredExport {
        refused,
        reason: "the request was stored when it came first".to_owned(),
    }
}

/// The rows of a request.
fn decode(
    (table, encoding): (Table, OtlpEncoding),
    body: Bytes,
    settings: SenderSettings,
    room: &mut RequestRoom,
) -> Result<DecodedExport, ExportRefusal> {
    if encoding == OtlpEncoding::Json {
        room.grow(usize::try_from(otlp::json_bytes(&body)).unwrap_or(usize::MAX))?;
    }
    let publisher = settings.fallback.clone();
    let opened = otlp::request(table, encoding, body, settings);
    let opened = opened.map_err(|error| ExportRefusal::malformed(error.to_string()))?;
    let mut records = BodyRecordReader::of_format(table, opened.records, opened.body, publisher).keeping_refused();
    let (mut batches, has_time) = (Vec::new(), opened.sender.is_some());
    // A part grows as columns and is then written.
    room.grow(2 * BATCH_BYTES)?;
    while let Some(part) = records.next_part(BATCH_BYTES).map_err(|error| defect(&error))? {
        let rows = part.batch.num_rows();
        let payload = telemetry_codec::encode_arrow(&[part.batch]).map_err(|error| defect(&error))?;
        if payload.len() > DURABLE_BYTES {
            let reason = format!(
                "the row has {} bytes, more than {DURABLE_BYTES} that the bus takes",
                payload.len()
            );
            records.reject_rows(&part.positions, &reason);
            continue;
        }
        room.grow(payload.len())?;
        batches.push(EncodedBatch {
            table,
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            payload,
        });
    }
    // Each becomes a message, and that a letter; without room for them they are only counted.
    let kept: usize = records.refused().iter().map(|bad| 2 * bad.record.len()).sum();
    let refused = match room.grow(kept) {
        Ok(()) => records.refused().to_vec(),
        Err(_) => Vec::new(),
    };
    let named = records.named().iter().take(NAMED);
    let named: Vec<_> = named.map(|bad| format!("record {}: {}", bad.row, bad.reason)).collect();
    Ok(DecodedExport {
        batches,
        has_time,
        refused,
        stored: StoredExport {
            refused: records.rejected(),
            reason: named.join("; "),
        },
    })
}

fn defect(error: &dyn std::fmt::Display) -> ExportRefusal {
    ExportRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn decoding_stopped(error: &tokio::task::JoinError) -> ExportRefusal {
    ExportRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("decoding stopped: {error}"))
}
