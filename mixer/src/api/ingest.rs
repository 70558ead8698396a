//! `POST /api/v1/ingest/{logs|metrics|traces}`: telemetry over HTTP, in the encodings of the bus.
//!
//! ```text
//! body ─ read, unpack (bounded) ─ records ─ part ─▶ engine.append (durable) ─▶ next part … ─▶ answer
//!                                    └ bad ones are named
//! ```
//!
//! # Invariants
//!
//! - 200 means durable and visible: every good row of the body.
//! - Under an `Idempotency-Key` a body is stored once, over restarts too, as long as its key is among the last
//!   [`REQUESTS_KNOWN`](engine::REQUESTS_KNOWN) of the store; a repetition completes what a crash cut short.
//! - What is stored does not depend on the requester's patience: begun, it goes on; closing the API waits for it.
//! - Memory is bounded over all requests, the wait for a store at its caps too.
//!
//! # Not here
//!
//! Encodings (`model::wire`); what a duplicate is (`engine`).

mod body;
mod decoders;
mod key;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::post;
use engine::{Appended, Batch, Engine, ErrorKind, Origin, RequestPart, Trouble};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use model::wire::{self, Encoding, Publisher, Records, Rejected};
use model::{EntityId, Table};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::body::Room;
use self::decoders::Decoders;
use self::key::{InUse, Key};
use super::json::One;
use super::params::NoParams;
use super::problem::Problem;

/// About the bytes of one append.
const PART: u64 = 4 << 20;
/// How long an append may wait for a store that is at its caps.
const PATIENCE: Duration = Duration::from_secs(20);
/// What all requests together may hold in memory at least: the largest body, packed and unpacked.
const LEAST_TOTAL: usize = 2 * body::MAX_BODY;
/// The publisher of those that do not name themselves.
const NAMELESS: &str = "http";
/// The longest name of a publisher: it may be repeated in every row.
const MAX_NAME: usize = 255;

/// What came in this way, for `/metrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    rows: Counter,
    rejected: Counter,
    bytes: Counter,
    duplicates: Counter,
}

impl Counters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("http_ingest_rows", "Rows stored that came over HTTP", &self.rows),
            (
                "http_ingest_rejected_rows",
                "Rows refused that came over HTTP",
                &self.rejected,
            ),
            ("http_ingest_bytes", "Bytes of their bodies, unpacked", &self.bytes),
            (
                "http_ingest_duplicates",
                "Requests that had been stored before",
                &self.duplicates,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

/// What requests go through.
#[derive(Debug, Clone)]
struct Door {
    engine: Arc<Engine>,
    /// Whether telemetry is collected at all.
    open: bool,
    storing: TaskTracker,
    room: Arc<Semaphore>,
    in_use: InUse,
    decoders: Decoders,
    counters: Counters,
}

/// `storing` is where requests that have begun to store go on without their requester.
///
/// # Errors
/// If threads cannot be had.
pub(crate) fn routes(
    engine: Arc<Engine>,
    open: bool,
    storing: TaskTracker,
    counters: Counters,
) -> std::io::Result<Router> {
    // As much as hot rows may take.
    let total = usize::try_from(engine.settings().hot_max.get()).unwrap_or(usize::MAX >> 1);
    let door = Door {
        engine,
        open,
        storing,
        room: Room::of_all(total.max(LEAST_TOTAL)),
        in_use: InUse::default(),
        decoders: Decoders::new()?,
        counters,
    };
    let routes = Table::ALL
        .into_iter()
        .filter(|table| table.is_telemetry())
        .map(|table| {
            let ingest = move |State(door): State<Door>, _: NoParams, request: Request| ingest(table, door, request);
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
struct Stored {
    /// Good rows; those of a repetition are there already.
    stored: u64,
    /// The first bad rows.
    rejected: Vec<Rejected>,
    /// All of them.
    rejected_total: u64,
    /// Whether everything had been stored before.
    duplicate: bool,
}

async fn ingest(table: Table, door: Door, request: Request) -> Result<One<Stored>, Problem> {
    let (head, body) = request.into_parts();
    door.is_open()?;
    let encoding = encoding(&head.headers)?;
    let packing = body::packing(&head.headers)?;
    let publisher = publisher(&head.headers)?;
    let key = Key::of(&head.headers, table, &publisher)?;
    let mut room = Room::new(&door.room);
    let body = body::unpack(packing, body::read(&head.headers, body, &mut room).await?, &mut room).await?;
    door.counters.bytes.inc_by(body.len() as u64);

    let size = usize::try_from(PART.min(door.engine.settings().wal_max.get() / 8)).unwrap_or(usize::MAX);
    room.grow(working_room(encoding, body.len(), size)).await?;
    let beginning = door.decoders.run(move || {
        let digest = key.map(|_| Key::digest(encoding, &body));
        (digest, Records::new(table, encoding, body, publisher))
    });
    let (digest, records) = beginning.await.map_err(decoding_stopped)?;
    let records = records.map_err(|error| Problem::body(StatusCode::BAD_REQUEST, error.to_string()))?;
    let held = key.zip(digest).map(|(key, digest)| door.in_use.hold(key, digest));
    let held = held.transpose()?;
    let request = held.as_ref().map(key::Held::part);
    let known = request.and_then(|request| door.engine.request(request.id));
    if known.is_some_and(|known| request.is_some_and(|request| known.digest != request.digest)) {
        return Err(Problem::key_of_another(key::HEADER));
    }
    let tracker = door.storing.clone();
    let storing = async move {
        let stored = door.store(table, records, request, size).await;
        drop((held, room));
        stored
    };
    let ended = tracker.spawn(storing).await;
    let data = ended.map_err(|error| Problem::internal(format!("storing stopped: {error}")))??;
    Ok(One { data })
}

impl Door {
    /// Whether rows that are sent now can be stored.
    fn is_open(&self) -> Result<(), Problem> {
        if !self.open {
            return Err(Problem::not_collected());
        }
        match self.engine.trouble() {
            Some(trouble @ Trouble::Poisoned(_)) => Err(Problem::busy(trouble)),
            _ => Ok(()),
        }
    }

    /// Stores the good records part by part.
    async fn store(
        &self,
        table: Table,
        mut records: Records,
        request: Option<RequestPart>,
        size: usize,
    ) -> Result<Stored, Problem> {
        let mut stored = Stored {
            stored: 0,
            rejected: Vec::new(),
            rejected_total: 0,
            duplicate: true,
        };
        let mut origin = Origin {
            request,
            ..Origin::default()
        };
        loop {
            let next = self.decoders.run(move || {
                let part = next_batch(&mut records, table, size);
                (records, part)
            });
            let (back, next) = next.await.map_err(decoding_stopped)?;
            records = back;
            let Some(Next { batch, last, rows }) = next.map_err(Problem::internal)? else {
                break;
            };
            match self
                .append(
                    Batch {
                        origin: origin.clone(),
                        ..batch
                    },
                    stored.stored,
                )
                .await?
            {
                Ok(appended) => {
                    stored.stored += rows;
                    stored.duplicate &= appended == Appended::Duplicate;
                    if let Some(part) = &mut origin.request {
                        part.part += 1;
                    }
                }
                Err(reason) => records.reject_rows(last, rows, &reason),
            }
        }
        stored.rejected = records.named().to_vec();
        stored.rejected_total = records.rejected();
        self.count(&stored);
        if stored.stored == 0 {
            return Err(Problem::nothing_stored(stored.rejected_total, &stored.rejected));
        }
        Ok(stored)
    }

    /// Appends a part; the inner error says why its rows can never be stored.
    async fn append(&self, batch: Batch, before: u64) -> Result<Result<Appended, String>, Problem> {
        let so_far = match (before, batch.origin.request) {
            (0, _) => String::new(),
            (_, Some(_)) => format!("; {before} rows before are stored, the same request again completes them"),
            (_, None) => format!("; {before} rows before are stored: send only what is behind them"),
        };
        match tokio::time::timeout(PATIENCE, self.engine.append(batch)).await {
            Ok(Ok(appended)) => Ok(Ok(appended)),
            Ok(Err(error)) if error.kind() == ErrorKind::Input => Ok(Err(error.to_string())),
            Ok(Err(error @ engine::Error::ReadOnly)) => Err(Problem::read_only(error)),
            Ok(Err(error)) => Err(Problem::busy(format_args!("{error}{so_far}"))),
            Err(_) => {
                let why = self.engine.trouble().map(|trouble| format!(": {trouble}"));
                let why = why.unwrap_or_default();
                Err(Problem::busy(format_args!("the store is at its caps{why}{so_far}")))
            }
        }
    }

    fn count(&self, stored: &Stored) {
        if stored.duplicate && stored.stored > 0 {
            self.counters.duplicates.inc();
        } else {
            self.counters.rows.inc_by(stored.stored);
        }
        self.counters.rejected.inc_by(stored.rejected_total);
    }
}

fn decoding_stopped(why: String) -> Problem {
    Problem::internal(format!("decoding stopped: {why}"))
}

/// A part of a body, ready to be appended.
struct Next {
    batch: Batch,
    /// Where its last row was.
    last: u64,
    rows: u64,
}

fn next_batch(records: &mut Records, table: Table, size: usize) -> Result<Option<Next>, String> {
    let part = records.next_part(size).map_err(|error| error.to_string())?;
    let Some(part) = part else { return Ok(None) };
    let rows = vec![part.batch];
    let payload = wire::encode_arrow(&rows).map_err(|error| error.to_string())?.into();
    let count = rows.iter().map(|batch| batch.num_rows() as u64).sum();
    let batch = Batch {
        table,
        origin: Origin::default(),
        payload,
        rows,
    };
    Ok(Some(Next {
        batch,
        last: part.last,
        rows: count,
    }))
}

/// What a body needs beside itself: a part as columns, as the log takes it, and as hot rows; for Arrow, what its compressed
/// buffers may become.
fn working_room(encoding: Encoding, body: usize, part: usize) -> usize {
    let unpacked = match encoding {
        Encoding::Arrow => body
            .saturating_mul(8)
            .min(usize::try_from(wire::MAX_UNPACKED).unwrap_or(usize::MAX)),
        _ => 0,
    };
    3 * body.min(2 * part) + unpacked
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let value = headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()));
    value
        .transpose()
        .map_err(|_| Problem::parameter(name, "it is not UTF-8"))
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let unknown = |what: &str| {
        let known = [Encoding::Ndjson, Encoding::Json, Encoding::Cbor, Encoding::Arrow].map(Encoding::content_type);
        let detail = format!("{} {what}: known are {}", wire::CONTENT_TYPE, known.join(", "));
        Problem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    };
    let said = text(headers, wire::CONTENT_TYPE)?.ok_or_else(|| unknown("is missing"))?;
    let known = said.parse();
    known.map_err(|error: model::BadId| unknown(&format!("{:?} is none of ours", error.text)))
}

/// Who sends, for rows that do not say it themselves.
fn publisher(headers: &HeaderMap) -> Result<Publisher, Problem> {
    let name = text(headers, wire::ENTITY_NAME)?.unwrap_or(NAMELESS);
    if name.is_empty() || name.len() > MAX_NAME {
        let reason = format!("it has {} bytes, not 1 to {MAX_NAME}", name.len());
        return Err(Problem::parameter(wire::ENTITY_NAME, reason));
    }
    let id = text(headers, wire::ENTITY_ID)?.map(str::parse).transpose();
    let id = id.map_err(|error: model::BadId| Problem::parameter(wire::ENTITY_ID, error))?;
    Ok(Publisher {
        entity_id: id.unwrap_or_else(|| EntityId::for_name(name)),
        entity_name: name.to_owned(),
    })
}
