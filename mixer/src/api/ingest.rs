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
//! - What an answer calls not stored is not stored, and never will be by itself. Only after a failure of the log is that not
//!   known; the answer says so.
//! - Memory is bounded over all requests and what comes from the bus, the wait for a store at its caps too.
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
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use self::body::Room;
use self::decoders::Decoders;
use self::key::{InUse, Key};
use super::json::One;
use super::params::Params;
use super::problem::Problem;

/// About the bytes of one append.
const PART: u64 = 4 << 20;
/// How long an append may wait for room in a store that is at its caps.
const PATIENCE: Duration = Duration::from_secs(20);
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
    let door = Door {
        engine,
        open,
        storing,
        in_use: InUse::default(),
        decoders: Decoders::new()?,
        counters,
    };
    let routes = Table::ALL
        .into_iter()
        .filter(|table| table.is_telemetry())
        .map(|table| {
            let ingest = move |State(door): State<Door>, params: Params, request: Request| async move {
                ingest(table, door, params.filter()?, request).await
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

async fn ingest(table: Table, door: Door, params: IngestParams, request: Request) -> Result<One<Stored>, Problem> {
    let (head, body) = request.into_parts();
    door.is_open()?;
    let for_bucket = params.durable == Some(DurablePlace::Bucket);
    if for_bucket && door.engine.settings().remote.is_none() {
        return Err(Problem::no_object_store());
    }
    let encoding = encoding(&head.headers)?;
    let packing = body::packing(&head.headers)?;
    let publisher = publisher(&head.headers)?;
    let key = Key::of(&head.headers, table, &publisher)?;
    let mut room = Room::new(&door.engine.inbound().bodies);
    let body = body::unpack(packing, body::read(&head.headers, body, &mut room).await?, &mut room).await?;
    door.counters.bytes.inc_by(body.len() as u64);

    let size = usize::try_from(PART.min(door.engine.settings().wal_max.get() / 8)).unwrap_or(usize::MAX);
    let mut decoding = Room::new(&door.engine.inbound().decoding);
    decoding.grow(working_room(encoding, body.len(), size)).await?;
    let beginning = door.decoders.run(move || {
        let digest = key.map(|_| Key::digest(encoding, &body));
        (digest, Records::new(table, encoding, body, publisher))
    });
    let (digest, records) = beginning.await.map_err(decoding_stopped)?;
    let records = records.map_err(|error| Problem::body(StatusCode::BAD_REQUEST, error.to_string()))?;
    let held = key.zip(digest).map(|(key, digest)| door.in_use.hold(key, digest));
    let held = held.transpose()?;
    let request = held.as_ref().map(key::Held::part);
    let known = request.and_then(|request| door.engine.request(request.sender, request.id));
    if known.is_some_and(|known| request.is_some_and(|request| known.digest != request.digest)) {
        return Err(Problem::key_of_another(key::HEADER));
    }
    let through = known.map_or(0, |known| known.through);
    let tracker = door.storing.clone();
    let storing = async move {
        let stored = door.store(table, records, request, through, size).await?;
        drop((room, decoding));
        if for_bucket {
            door.wait_for_bucket(stored.stored).await?;
        }
        drop(held);
        Ok::<_, Problem>(stored)
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

    /// Stores the good records part by part, from the position on through which they are stored.
    async fn store(
        &self,
        table: Table,
        mut records: Records,
        request: Option<RequestPart>,
        through: u64,
        size: usize,
    ) -> Result<Stored, Problem> {
        let mut stored = Stored {
            stored: 0,
            rejected: Vec::new(),
            rejected_total: 0,
            duplicate: true,
        };
        let mut from = through;
        loop {
            let next = self.decoders.run(move || {
                let skipped = records.skip_to(through, size).map_err(|error| error.to_string());
                let next = skipped.and_then(|skipped| Ok((skipped, next_batch(&mut records, table, size)?)));
                (records, next)
            });
            let (back, next) = next.await.map_err(decoding_stopped)?;
            records = back;
            let (skipped, next) = next.map_err(Problem::internal)?;
            stored.stored += skipped;
            let Some(Next { batch, last, to, rows }) = next else {
                break;
            };
            let origin = Origin {
                request: request.map(|part| RequestPart { from, to, ..part }),
                ..Origin::default()
            };
            match self.append(Batch { origin, ..batch }, stored.stored).await? {
                Ok(appended) => {
                    stored.stored += rows;
                    stored.duplicate &= appended == Appended::Duplicate;
                    from = to;
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
            (0, _) => "nothing of the request is stored".to_owned(),
            (_, Some(_)) => format!("{before} rows before are stored, the same request again completes them"),
            (_, None) => format!("{before} rows before are stored: send only what is behind them"),
        };
        match self.engine.append_within(batch, PATIENCE).await {
            Ok(appended) => Ok(Ok(appended)),
            Err(error @ engine::Error::ReadOnly) => Err(Problem::read_only(error)),
            Err(error) => match error.kind() {
                ErrorKind::Input => Ok(Err(error.to_string())),
                ErrorKind::Busy | ErrorKind::Closed => Err(Problem::busy(format_args!("{error}; {so_far}"))),
                _ => {
                    let unknown = "whether the rows behind them are stored shows after the restart";
                    Err(Problem::busy(format_args!(
                        "{error}; {before} rows are stored, {unknown}"
                    )))
                }
            },
        }
    }

    /// Waits until the object store has the rows too.
    async fn wait_for_bucket(&self, rows: u64) -> Result<(), Problem> {
        let waited = self.engine.wait_for_upload(PATIENCE).await;
        waited.map_err(|error| {
            Problem::busy(format_args!(
                "the {rows} rows are stored on this machine, and go to the object store later: {error}; under an \
                 Idempotency-Key the same request asks again"
            ))
        })
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
    /// The position behind it.
    to: u64,
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
        to: part.to,
        rows: count,
    }))
}

/// What a body needs beside itself: a part as columns while they grow, then as rows and as the log takes it; for Arrow, what its
/// compressed buffers may become.
fn working_room(encoding: Encoding, body: usize, part: usize) -> usize {
    let unpacked = match encoding {
        Encoding::Arrow => body
            .saturating_mul(8)
            .min(usize::try_from(wire::MAX_UNPACKED).unwrap_or(usize::MAX)),
        _ => 0,
    };
    2 * body.min(2 * part) + unpacked
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{Clock, Entropy, Timestamp};

    use super::*;

    async fn door(store: &std::path::Path) -> Door {
        let clock = Clock::new(|| Timestamp::from_micros(1_800_000_000_000_000));
        let opened = Engine::open(engine::Settings::new(store), clock, Entropy::new(|bytes| bytes.fill(7)));
        Door {
            engine: opened.await.unwrap(),
            open: true,
            storing: TaskTracker::new(),
            in_use: InUse::default(),
            decoders: Decoders::new().unwrap(),
            counters: Counters::default(),
        }
    }

    fn records(lines: std::ops::Range<u32>) -> Records {
        let line = |n| format!("{{\"ts\":\"2027-01-15T08:00:00Z\",\"level\":\"info\",\"message\":\"line {n}\"}}\n");
        let body: String = lines
            .map(|n| if n % 10 == 3 { "bad\n".to_owned() } else { line(n) })
            .collect();
        let publisher = Publisher {
            entity_id: EntityId::for_name(NAMELESS),
            entity_name: NAMELESS.to_owned(),
        };
        Records::new(Table::Logs, Encoding::Ndjson, body.into(), publisher).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_keyed_body_that_a_crash_cut_short_is_completed_whatever_the_size_of_a_part_was_and_is() {
        for (before, now) in [(1 << 10, 64 << 10), (64 << 10, 1 << 10)] {
            let dir = tempfile::tempdir().unwrap();
            let request = RequestPart {
                id: uuid::Uuid::from_u128(1),
                sender: 2,
                digest: 3,
                from: 0,
                to: 0,
            };
            let first = door(dir.path()).await;
            let stored = first
                .store(Table::Logs, records(0..700), Some(request), 0, before)
                .await;
            assert_eq!(stored.unwrap().stored, 630);
            drop(first);
            for round in 0..2 {
                let next = door(dir.path()).await;
                let known = next.engine.request(2, request.id).unwrap();
                let through = if round == 0 { 700 } else { 2_000 };
                assert_eq!((known.digest, known.through), (3, through));
                let records = records(0..2_000);
                let stored = next
                    .store(Table::Logs, records, Some(request), through, now)
                    .await
                    .unwrap();
                assert_eq!((stored.stored, stored.rejected_total), (1_800, 200), "{before} {now}");
                assert_eq!(stored.duplicate, round == 1);
                let appended = if round == 0 { 1_170 } else { 0 };
                assert_eq!(next.engine.stats().appended_rows, appended, "{before} {now}");
                next.engine.close().await.unwrap();
            }
        }
    }
}
