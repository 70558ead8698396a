//! `POST /api/v1/ingest/{logs|metrics|traces}`: telemetry over HTTP, in the encodings of the bus.
//!
//! ```text
//! body ─ read, unpack (bounded) ─ records ─ part ─▶ engine.append (durable) ─▶ next part … ─▶ answer
//!                                    └ bad ones are named
//! ```
//!
//! # Invariants
//!
//! - 200 means durable and visible: every good row of the body. With `durable=bucket` the object store has them too.
//! - Under an `Idempotency-Key` a body is stored once, over restarts too, as long as its key is among the last
//!   [`REQUESTS_KNOWN_OF_ONE`](engine::REQUESTS_KNOWN_OF_ONE) of its publisher and the last
//!   [`REQUESTS_KNOWN`](engine::REQUESTS_KNOWN) of the store. What is known of it is how many of its records are stored: a
//!   repetition goes on behind them, whatever the size of a part was then and is now.
//! - What is stored does not depend on the requester's patience: begun, it goes on; closing the API waits for it.
//! - A request whose body is not there in time ends in 408, and nothing of it is stored. One that is being stored ends in its result,
//!   or in 503 if that takes too long.
//! - What an answer calls not stored is not stored, and never will be by itself. Only after a failure of the log is that not
//!   known; the answer says so.
//! - Memory is bounded over all requests and what comes from the bus, the wait for a store at its caps too. What a request holds is
//!   counted until it is freed, also where the requester has left: the room for it is where it is.
//!
//! # Not here
//!
//! Encodings (`model::wire`); what a duplicate is (`engine`).

mod body;
mod body_reader;
mod decoder_pool;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod headers;
mod idempotency_key;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use self::fuzz::fuzz_targets;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::post;
use engine::{AppendBatch, AppendOutcome, BatchOrigin, Engine, ErrorKind, HealthIssue, RequestPart};
use http::{HeaderValue, StatusCode, header};
use model::Table;
use model::telemetry_codec::{self, BodyRecordReader, RecordRejection, WriterEntities};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::body::IngestReservation;
use self::body_reader::{BodyReader, DecodeBudget, PreparedPart};
use self::decoder_pool::DecoderPool;
use self::idempotency_key::{IdempotencyHeader, InFlightKeys};
use super::authorization::RequestCaller;
use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::QueryParams;
use crate::access::ApiCaller;
use crate::quotas::CallerUsage;

/// About the bytes of one append.
const PART: u64 = 4 << 20;
/// How long an append may wait for room in a store that is at its caps.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a body may take to arrive and to begin to be stored.
const ARRIVAL: Duration = Duration::from_secs(90);
/// How long after its beginning a request is answered at the latest: before it would be for taking too long.
const ANSWER: Duration = super::MAX_TIME.saturating_sub(Duration::from_secs(2));

/// What came in this way, for `/metrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpIngestCounters {
    rows: Counter,
    rejected: Counter,
    bytes: Counter,
    duplicates: Counter,
}

impl HttpIngestCounters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("http_ingest_rows", "Rows stored over HTTP", &self.rows),
            ("http_ingest_rejected_rows", "Rows refused over HTTP", &self.rejected),
            ("http_ingest_bytes", "Uncompressed bytes of ingest bodies", &self.bytes),
            (
                "http_ingest_duplicates",
                "Duplicate ingest requests, stored before",
                &self.duplicates,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

/// What requests go through.
#[derive(Debug, Clone)]
struct IngestHandler {
    engine: Arc<Engine>,
    /// Whether telemetry is collected at all.
    open: bool,
    storing: TaskTracker,
    in_use: InFlightKeys,
    decoders: DecoderPool,
    counters: HttpIngestCounters,
}

/// `storing` is where requests that have begun to store go on without their requester.
///
/// # Errors
/// If threads cannot be had.
pub(crate) fn routes(
    engine: Arc<Engine>,
    open: bool,
    storing: TaskTracker,
    counters: HttpIngestCounters,
) -> std::io::Result<Router> {
    let door = IngestHandler {
        engine,
        open,
        storing,
        in_use: InFlightKeys::default(),
        decoders: DecoderPool::new()?,
        counters,
    };
    let routes = Table::ALL
        .into_iter()
        .filter(|table| table.is_telemetry())
        .map(|table| {
            let ingest = move |State(door): State<IngestHandler>,
                               RequestCaller(caller): RequestCaller,
                               params: QueryParams,
                               request: Request| async move {
                ingest((table, caller), door, params.filter()?, request).await
            };
            (format!("/api/v1/ingest/{table}"), post(ingest))
        });
    let router = routes.fold(Router::new(), |router, (path, ingest)| router.route(&path, ingest));
    Ok(router.layer(map_response(end_after_refusal)).with_state(door))
}

/// A refusal may come before the whole body has: then the connection ends, and the client must know that it does, or it sends
/// the next request into it.
async fn end_after_refusal(mut response: Response) -> Response {
    if response.status().is_client_error() || response.status().is_server_error() {
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer to a request of which something was stored.
#[derive(Debug, Serialize)]
struct IngestResponse {
    /// Good rows; those of a repetition are there already.
    stored: u64,
    /// The first bad rows.
    rejected: Vec<RecordRejection>,
    /// All of them.
    rejected_total: u64,
    /// Whether everything had been stored before.
    duplicate: bool,
}

/// What an address may say.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct IngestParams {
    durable: Option<DurablePlace>,
}

/// Where rows are to be before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DurablePlace {
    Disk,
    Bucket,
}

async fn ingest(
    (table, caller): (Table, Arc<ApiCaller>),
    door: IngestHandler,
    params: IngestParams,
    request: Request,
) -> Result<ItemResponse<IngestResponse>, ApiProblem> {
    let latest = Instant::now() + ANSWER;
    let begun = door.begin((table, &caller), params, request).await?;
    door.finish(begun, latest).await
}

/// A request whose body is here and can be stored.
struct IngestRequest {
    table: Table,
    body: BodyReader,
    /// Whose day the bytes of it count for.
    counted: (Option<Arc<CallerUsage>>, u64),
    /// The key that nobody else uses meanwhile.
    held: Option<idempotency_key::KeyGuard>,
    /// The position through which it is stored.
    through: u64,
    for_bucket: bool,
}

impl IngestHandler {
    /// Takes a body in.
    async fn begin(
        &self,
        (table, caller): (Table, &Arc<ApiCaller>),
        params: IngestParams,
        request: Request,
    ) -> Result<IngestRequest, ApiProblem> {
        let (head, body) = request.into_parts();
        let scope = &caller.scope;
        self.check_open()?;
        caller.usage.as_ref().map_or(Ok(()), |usage| usage.admit_ingest())?;
        let for_bucket = params.durable == Some(DurablePlace::Bucket);
        if for_bucket && self.engine.settings().remote.is_none() {
            return Err(ApiProblem::no_object_store());
        }
        let encoding = headers::encoding(&head.headers)?;
        let packing = body::packing(&head.headers)?;
        let publisher = headers::publisher(&head.headers)?;
        let key = IdempotencyHeader::of(&head.headers, table, (&publisher, &scope.entities))?;
        let mut room = IngestReservation::of_caller(&self.engine.inbound().bodies, caller.usage.as_deref());
        let received = body::receive(packing, &head.headers, body, &mut room);
        // So that what takes too long is counted, too.
        let body = tokio::time::timeout(ARRIVAL, received).await;
        let body = body.unwrap_or_else(|_| Err(ApiProblem::slow_body()));
        // What cannot be used was received and unpacked as well.
        let bytes = body.as_ref().map_or_else(|_| room.bytes(), |body| body.len() as u64);
        self.counters.bytes.inc_by(bytes);
        if let Some(usage) = &caller.usage {
            usage.count_ingest(bytes);
        }
        let body = body?;

        let most = PART.min(self.engine.settings().wal_max.get() / 8);
        let work = DecodeBudget::of(encoding, &body, usize::try_from(most).unwrap_or(usize::MAX));
        let mut decoding = IngestReservation::new(&self.engine.inbound().decoding);
        decoding.grow(work.bytes).await?;
        let writers = (!scope.entities.is_empty()).then(|| WriterEntities::of(&scope.entities));
        let beginning = self.decoders.run(move || {
            let digest = key.map(|_| IdempotencyHeader::digest(encoding, &body));
            let records = BodyRecordReader::new(table, encoding, body, publisher)?.with_writers(writers);
            let reader = BodyReader {
                records,
                size: work.size,
                unpacked: work.unpacked,
                decoding,
                _body: room,
            };
            Ok::<_, telemetry_codec::DecodeError>((digest, reader))
        });
        let begun = beginning.await.map_err(decoding_stopped)?;
        let (digest, body) = begun.map_err(|error| ApiProblem::body(StatusCode::BAD_REQUEST, error.to_string()))?;
        let held = key.zip(digest).map(|(key, digest)| self.in_use.hold(key, digest));
        let held = held.transpose()?;
        let request = held.as_ref().map(idempotency_key::KeyGuard::part);
        let known = request.and_then(|request| self.engine.request(request.sender, request.id));
        if known.is_some_and(|known| request.is_some_and(|request| known.digest != request.digest)) {
            return Err(ApiProblem::key_of_another(idempotency_key::HEADER));
        }
        Ok(IngestRequest {
            table,
            body,
            counted: (caller.usage.clone(), bytes),
            held,
            through: known.map_or(0, |known| known.through),
            for_bucket,
        })
    }

    /// Stores it, whoever waits for that; the answer comes by `latest`.
    async fn finish(&self, begun: IngestRequest, latest: Instant) -> Result<ItemResponse<IngestResponse>, ApiProblem> {
        let door = self.clone();
        let storing = async move {
            let request = begun.held.as_ref().map(idempotency_key::KeyGuard::part);
            let mut appended = 0;
            let progress = (begun.through, &mut appended);
            let stored = door.store(begun.table, begun.body, request, progress).await;
            if let (Some(usage), bytes) = begun.counted {
                // Of a body that was cut off, or is completed now, what the log took.
                let is_whole = stored.is_ok() && begun.through == 0 && appended > 0;
                usage.count_stored(if is_whole { bytes } else { appended.min(bytes) });
            }
            let stored = stored?;
            if begun.for_bucket {
                door.wait_for_bucket(stored.stored).await?;
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
        let data = ended.map_err(|error| ApiProblem::internal(format!("storing stopped: {error}")))??;
        Ok(ItemResponse { data })
    }

    /// Whether rows that are sent now can be stored.
    fn check_open(&self) -> Result<(), ApiProblem> {
        if !self.open {
            return Err(ApiProblem::not_collected());
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

    /// Stores the good records part by part, from the position on through which they are stored. Counts the bytes that the log takes, whatever
    /// comes of the rest.
    async fn store(
        &self,
        table: Table,
        mut body: BodyReader,
        request: Option<RequestPart>,
        (through, appended_bytes): (u64, &mut u64),
    ) -> Result<IngestResponse, ApiProblem> {
        let mut stored = IngestResponse {
            stored: 0,
            rejected: Vec::new(),
            rejected_total: 0,
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
            let Some(PreparedPart { batch, last, to, rows }) = next else {
                break;
            };
            let origin = BatchOrigin {
                request: request.map(|part| RequestPart { from, to, ..part }),
                ..BatchOrigin::default()
            };
            let bytes = batch.payload.len() as u64;
            match self.append(AppendBatch { origin, ..batch }, stored.stored).await? {
                Ok(appended) => {
                    stored.stored += rows;
                    *appended_bytes += if appended == AppendOutcome::Duplicate { 0 } else { bytes };
                    stored.duplicate &= appended == AppendOutcome::Duplicate;
                    from = to;
                }
                Err(reason) => body.records.reject_rows(last, rows, &reason),
            }
        }
        stored.rejected = body.records.named().to_vec();
        stored.rejected_total = body.records.rejected();
        self.count(&stored);
        if stored.stored == 0 {
            return Err(ApiProblem::nothing_stored(stored.rejected_total, &stored.rejected));
        }
        Ok(stored)
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

    fn count(&self, stored: &IngestResponse) {
        if stored.duplicate && stored.stored > 0 {
            self.counters.duplicates.inc();
        } else {
            self.counters.rows.inc_by(stored.stored);
        }
        self.counters.rejected.inc_by(stored.rejected_total);
    }
}

fn decoding_stopped(why: String) -> ApiProblem {
    ApiProblem::internal(format!("decoding stopped: {why}"))
}

#[cfg(test)]
mod tests;
