//! What every body of telemetry goes through, whatever its format: received, decoded, stored.
//!
//! # Invariants
//!
//! - As of [`super`].
//!
//! # Not here
//!
//! What a protocol asks before and says after.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use engine::{AppendBatch, AppendOutcome, BatchOrigin, Engine, ErrorKind, HealthIssue, RemoteMode, RequestPart};
use http::request::Parts;
use model::Table;
use model::telemetry_codec::{RecordRejection, RefusedRecord, WriterEntities};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::body::{self, IngestReservation, RequestCompression};
use super::body_format::BodyFormat;
use super::body_reader::{BodyReader, PreparedPart};
use super::decoder_pool::DecoderPool;
use super::grpc;
use super::idempotency_key::{self, BodyKey, InFlightKeys, KeyGuard};
use super::ingest_counters::HttpIngestCounters;
use super::refused_letters::{BodyOrigin, letters_part, refused_letters};
use crate::access::ApiCaller;
use crate::api::problem::{ApiProblem, IngestCounts};
use crate::quotas::CallerUsage;

/// About the bytes of one append.
const PART: u64 = 4 << 20;
/// How long an append may wait for room in a store that is at its caps.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a body may take to arrive and to begin to be stored.
const ARRIVAL: Duration = Duration::from_secs(90);
/// How long after its beginning a request is answered at the latest: before it would be for taking too long.
const ANSWER: Duration = crate::api::MAX_TIME.saturating_sub(Duration::from_secs(2));

/// What requests go through.
#[derive(Debug, Clone)]
pub(in crate::api) struct IngestHandler {
    engine: Arc<Engine>,
    /// Whether telemetry is collected at all.
    open: bool,
    storing: TaskTracker,
    in_use: InFlightKeys,
    decoders: DecoderPool,
    counters: HttpIngestCounters,
}

/// A request whose body is here and can be stored.
pub(super) struct IngestRequest {
    table: Table,
    body: BodyReader,
    /// What its refused records are kept as.
    origin: Option<BodyOrigin>,
    /// Whose day the bytes of it count for.
    counted: (Option<Arc<CallerUsage>>, u64),
    /// The key that nobody else uses meanwhile.
    held: Option<KeyGuard>,
    /// The position through which it is stored.
    through: u64,
    for_bucket: bool,
}

/// What became of a body.
#[derive(Debug)]
pub(super) struct StoredBody {
    pub(super) rows: IngestCounts,
    /// The first bad ones.
    pub(super) rejected: Vec<RecordRejection>,
    /// Which records are bad, a bit for each, where the format asks for that.
    pub(super) marks: Vec<u64>,
    /// The room of what the format holds beside the body: an answer may be made of it.
    _held: IngestReservation,
}

impl StoredBody {
    /// Whether the record at a position is bad, where the format asks for that.
    pub(super) fn is_refused(&self, at: usize) -> bool {
        self.marks.get(at / 64).is_some_and(|marks| marks >> (at % 64) & 1 == 1)
    }
}

/// How a body comes and what is to be done with it.
#[derive(Debug)]
pub(super) struct IngestPlan {
    pub(super) table: Table,
    pub(super) format: BodyFormat,
    pub(super) packing: RequestCompression,
    pub(super) framing: BodyFraming,
    pub(super) key: BodyKey,
    /// What its refused records are kept as, if they are.
    pub(super) origin: Option<BodyOrigin>,
    pub(super) for_bucket: bool,
}

/// What is around a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Nothing,
    /// The length and whether it is packed, as gRPC has them before a message.
    Grpc,
}

impl IngestHandler {
    /// `storing` is where requests that have begun to store go on without their requester.
    ///
    /// # Errors
    /// If threads cannot be had.
    pub(in crate::api) fn new(
        engine: Arc<Engine>,
        open: bool,
        storing: TaskTracker,
        counters: HttpIngestCounters,
    ) -> std::io::Result<Self> {
        Ok(Self {
            engine,
            open,
            storing,
            in_use: InFlightKeys::default(),
            decoders: DecoderPool::new()?,
            counters,
        })
    }

    /// Whether a caller may send now.
    pub(super) fn admit(&self, caller: &ApiCaller) -> Result<(), ApiProblem> {
        self.check_open()?;
        caller.usage.as_ref().map_or(Ok(()), |usage| Ok(usage.admit_ingest()?))
    }

    /// Whether there is an object store that could have rows.
    pub(super) fn has_bucket(&self) -> bool {
        self.engine.settings().remote.is_some()
    }

    /// Takes a body in and stores it; the answer comes at the latest when it would be for taking too long.
    pub(super) async fn ingest(
        &self,
        caller: &ApiCaller,
        plan: IngestPlan,
        (head, body): (&Parts, Body),
    ) -> Result<StoredBody, ApiProblem> {
        let latest = Instant::now() + ANSWER;
        let begun = self.begin(caller, plan, (head, body)).await?;
        self.finish(begun, latest).await
    }

    /// The body as it was meant, with the room for it.
    async fn receive(
        &self,
        caller: &ApiCaller,
        plan: &IngestPlan,
        (head, body): (&Parts, Body),
    ) -> Result<(Bytes, IngestReservation), ApiProblem> {
        let mut room = IngestReservation::of_caller(&self.engine.inbound().bodies, caller.usage.as_deref());
        let received = async {
            match plan.framing {
                BodyFraming::Nothing => body::receive(plan.packing, &head.headers, body, &mut room).await,
                BodyFraming::Grpc => {
                    let framed = body::read(&head.headers, body, &mut room).await?;
                    let (packing, message) = grpc::message(plan.packing, &framed)?;
                    body::unpack(packing, message, &mut room).await
                }
            }
        };
        // So that what takes too long is counted, too.
        let body = tokio::time::timeout(ARRIVAL, received).await;
        let body = body.unwrap_or_else(|_| Err(ApiProblem::slow_body()));
        // What cannot be used was received and unpacked as well.
        let bytes = body.as_ref().map_or_else(|_| room.bytes(), |body| body.len() as u64);
        self.counters.count_bytes(bytes);
        if let Some(usage) = &caller.usage {
            usage.count_ingest(bytes);
        }
        Ok((body?, room))
    }

    /// Takes a body in.
    async fn begin(
        &self,
        caller: &ApiCaller,
        plan: IngestPlan,
        sent: (&Parts, Body),
    ) -> Result<IngestRequest, ApiProblem> {
        let (body, room) = self.receive(caller, &plan, sent).await?;
        let bytes = body.len() as u64;
        let most = PART.min(self.engine.settings().wal_max.get() / 8);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut decoding = IngestReservation::new(&self.engine.inbound().decoding);
        let opening = plan.format.opening_bytes(&body, most);
        decoding.grow(opening).await?;
        let entities = &caller.scope.entities;
        let writers = (!entities.is_empty()).then(|| WriterEntities::of(entities));
        let IngestPlan { table, format, key, .. } = plan;
        // The room for the body is where that is, also when its sender leaves meanwhile.
        let opened = self
            .decoders
            .run(move || (format.open(table, body, (key, writers), most), room, decoding));
        let (opened, room, mut decoding) = opened.await.map_err(decoding_stopped)?;
        let opened = opened?;
        let needed = opened.budget.bytes;
        decoding.shrink_to(needed);
        decoding.grow(needed.saturating_sub(opening)).await?;
        let held = opened.request.map(|request| self.in_use.hold(request)).transpose()?;
        let request = held.as_ref().map(KeyGuard::part);
        let known = request.and_then(|request| self.engine.request(request.sender, request.id));
        if known.is_some_and(|known| request.is_some_and(|request| known.digest != request.digest)) {
            return Err(ApiProblem::key_of_another(idempotency_key::HEADER));
        }
        Ok(IngestRequest {
            table,
            body: BodyReader {
                records: opened.records,
                size: opened.budget.size,
                unpacked: opened.budget.unpacked,
                decoding,
                _body: room,
            },
            origin: plan.origin,
            counted: (caller.usage.clone(), bytes),
            held,
            through: known.map_or(0, |known| known.through),
            for_bucket: plan.for_bucket,
        })
    }

    /// Stores it, whoever waits for that; the answer comes by `latest`.
    async fn finish(&self, begun: IngestRequest, latest: Instant) -> Result<StoredBody, ApiProblem> {
        let door = self.clone();
        let storing = async move {
            let request = begun.held.as_ref().map(KeyGuard::part);
            let mut appended = 0;
            let progress = (begun.through, &mut appended);
            let stored = door
                .store((begun.table, begun.origin), begun.body, request, progress)
                .await;
            if let (Some(usage), bytes) = begun.counted {
                // Of a body that was cut off, or is completed now, the rows that the log took. Those of a small one may be many times
                // as large.
                let is_whole = stored.is_ok() && begun.through == 0 && appended > 0;
                usage.count_stored(if is_whole { bytes.max(appended) } else { appended });
            }
            let stored = stored?;
            if begun.for_bucket {
                door.wait_for_bucket(stored.rows.stored).await?;
            }
            drop(begun.held);
            Ok::<_, ApiProblem>(stored)
        };
        let ended = tokio::time::timeout_at(latest, self.storing.spawn(storing)).await;
        let ended = ended.map_err(|_| {
            ApiProblem::busy(
                "the body arrived and is still being stored, the outcome is not known yet: if the request has an \
                 Idempotency-Key, repeat it to find out",
            )
        })?;
        ended.map_err(|error| ApiProblem::internal(format!("storing stopped: {error}")))?
    }

    /// Whether rows that are sent now can be stored.
    fn check_open(&self) -> Result<(), ApiProblem> {
        if !self.open {
            let remote = self.engine.settings().remote.as_ref();
            let only_reads = remote.is_some_and(|remote| remote.mode == RemoteMode::Read);
            return Err(if only_reads {
                ApiProblem::read_only(engine::Error::ReadOnly)
            } else {
                ApiProblem::not_collected()
            });
        }
        match self.engine.health_issue() {
            Some(trouble @ HealthIssue::Poisoned(_)) => Err(ApiProblem::busy(trouble)),
            Some(trouble @ HealthIssue::DiskFull { .. }) => {
                let refused = format!(
                    "{trouble}; nothing of the request is stored, unless an earlier one with its Idempotency-Key stored it"
                );
                Err(ApiProblem::busy(refused))
            }
            _ => Ok(()),
        }
    }

    /// Stores the good records part by part, from the position on through which they are stored. Counts the bytes of the rows that the log
    /// takes, whatever comes of the rest.
    pub(super) async fn store(
        &self,
        (table, kept): (Table, Option<BodyOrigin>),
        mut body: BodyReader,
        request: Option<RequestPart>,
        (through, appended_bytes): (u64, &mut u64),
    ) -> Result<StoredBody, ApiProblem> {
        let mut stored = IngestCounts {
            stored: 0,
            rejected_total: 0,
            kept: 0,
            duplicate: true,
        };
        let mut from = through;
        loop {
            let next = self.decoders.run(move || {
                let next = body.next(table, through);
                (body, next)
            });
            let (back, next) = next.await.map_err(decoding_stopped)?;
            body = back;
            let (skipped, next) = next.map_err(ApiProblem::internal)?;
            stored.stored += skipped;
            let Some(PreparedPart { batch, positions, to }) = next else {
                break;
            };
            let origin = BatchOrigin {
                request: request.map(|part| RequestPart { from, to, ..part }),
                ..BatchOrigin::default()
            };
            let bytes = row_bytes(&batch);
            match self.append(AppendBatch { origin, ..batch }, stored.stored).await? {
                Ok(appended) => {
                    stored.stored += positions.len() as u64;
                    *appended_bytes += if appended == AppendOutcome::Duplicate { 0 } else { bytes };
                    stored.duplicate &= appended == AppendOutcome::Duplicate;
                    from = to;
                }
                Err(reason) => body.records.reject_rows(&positions, &reason),
            }
        }
        if let Some(kept) = kept {
            let refused = body.records.refused().to_vec();
            stored.kept = self
                .keep_refused(
                    (&kept, refused.as_slice()),
                    body.size / 2,
                    request,
                    (stored.stored, appended_bytes),
                )
                .await?;
        }
        stored.rejected_total = body.records.rejected();
        stored.duplicate &= stored.stored > 0;
        self.counters.count(stored);
        body.decoding.shrink_to(body.unpacked);
        Ok(StoredBody {
            rows: stored,
            rejected: body.records.named().to_vec(),
            marks: body.records.take_marks(),
            _held: body.decoding,
        })
    }

    /// Keeps refused records as dead letters, about `size` bytes at a time, behind those that are kept already; how many of them are
    /// kept: one that is larger than the log is not. Counts the bytes of the rows that the log takes.
    async fn keep_refused(
        &self,
        (origin, refused): (&BodyOrigin, &[RefusedRecord]),
        size: usize,
        request: Option<RequestPart>,
        (before, appended_bytes): (u64, &mut u64),
    ) -> Result<u64, ApiProblem> {
        let request = request.map(letters_part);
        let known = request.and_then(|part| {
            let known = self.engine.request(part.sender, part.id)?;
            (known.digest == part.digest).then_some(known.through)
        });
        let mut from = known.map_or(0, |through| usize::try_from(through).unwrap_or(usize::MAX));
        let mut kept = refused.len().min(from);
        while let Some(left) = refused.get(from..).filter(|left| !left.is_empty()) {
            let (letters, count) = refused_letters(origin, left, size).map_err(ApiProblem::internal)?;
            let part = request.map(|part| RequestPart {
                from: from as u64,
                to: (from + count) as u64,
                ..part
            });
            let origin = BatchOrigin {
                request: part,
                ..BatchOrigin::default()
            };
            let bytes = row_bytes(&letters);
            if self.append(AppendBatch { origin, ..letters }, before).await?.is_ok() {
                *appended_bytes += bytes;
                kept += count;
            }
            from += count;
        }
        Ok(kept as u64)
    }

    /// Appends a part; the inner error says why its rows can never be stored.
    async fn append(&self, batch: AppendBatch, before: u64) -> Result<Result<AppendOutcome, String>, ApiProblem> {
        let so_far = match (before, batch.origin.request) {
            (0, _) => "nothing of the request is stored".to_owned(),
            (_, Some(_)) => format!("{before} rows before are stored, repeat the request to complete them"),
            (_, None) => format!("{before} rows before are stored: send only the rows after them"),
        };
        match self.engine.append_within(batch, PATIENCE).await {
            Ok(appended) => Ok(Ok(appended)),
            Err(error @ engine::Error::ReadOnly) => Err(ApiProblem::read_only(error)),
            Err(error) => match error.kind() {
                ErrorKind::Input => Ok(Err(error.to_string())),
                ErrorKind::Busy | ErrorKind::Closed => Err(ApiProblem::busy(format_args!("{error}; {so_far}"))),
                _ => {
                    let unknown = "whether the rows after them are stored is known after the restart";
                    Err(ApiProblem::busy(format_args!(
                        "{error}; {before} rows are stored, {unknown}"
                    )))
                }
            },
        }
    }

    /// Waits until the object store has the rows too.
    async fn wait_for_bucket(&self, rows: u64) -> Result<(), ApiProblem> {
        let waited = self.engine.wait_for_upload(PATIENCE).await;
        waited.map_err(|error| {
            ApiProblem::busy(format_args!(
                "the {rows} rows are stored on this machine and uploaded to the object store later: {error}; if \
                 the request has an Idempotency-Key, repeat it to check"
            ))
        })
    }
}

/// What rows take, without what their encoding adds to few of them.
fn row_bytes(batch: &AppendBatch) -> u64 {
    let bytes: usize = batch.rows.iter().map(model::batch::slice_bytes).sum();
    bytes as u64
}

fn decoding_stopped(why: String) -> ApiProblem {
    ApiProblem::internal(format!("decoding stopped: {why}"))
}

#[cfg(test)]
mod tests;
