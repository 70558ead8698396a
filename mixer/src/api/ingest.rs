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
mod body_format;
mod body_reader;
mod decoder_pool;
mod elasticsearch;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod grpc;
mod headers;
mod idempotency_key;
mod ingest_counters;
mod ingest_handler;
mod loki;
mod otlp;
mod refused_letters;
mod remote_write;
mod senders;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use self::fuzz::fuzz_targets;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, map_response};
use axum::response::Response;
use axum::routing::post;
use http::{HeaderMap, HeaderValue, header};
use model::Table;
use model::telemetry_codec::RecordRejection;
use serde::{Deserialize, Serialize};

use self::body_format::BodyFormat;
pub(super) use self::elasticsearch::elasticsearch_routes;
use self::idempotency_key::{BodyKey, IdempotencyHeader};
pub(super) use self::ingest_counters::HttpIngestCounters;
pub(super) use self::ingest_handler::IngestHandler;
use self::ingest_handler::{BodyFraming, IngestPlan};
pub(super) use self::loki::loki_routes;
pub(crate) use self::otlp::OtlpAnswers;
pub(super) use self::otlp::{grpc_paths, otlp_routes, refuse_in_kind};
pub(super) use self::remote_write::remote_write_routes;
pub(crate) use self::senders::SenderAnswers;
use super::authorization::RequestCaller;
use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::QueryParams;
use crate::access::ApiCaller;

/// The routes for records of ours.
pub(super) fn routes(door: IngestHandler) -> Router {
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
    router.layer(map_response(end_after_refusal)).with_state(door)
}

/// Says refusals of these requests as their clients understand them, whoever refused them.
pub(super) async fn refuse_senders_in_kind(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if elasticsearch::is_path(path) {
        let kind = elasticsearch::answer_type(request.headers());
        return elasticsearch::in_kind(next.run(request).await, kind).await;
    }
    let is_retried = path == loki::PATH || path == remote_write::PATH;
    let response = next.run(request).await;
    if is_retried {
        senders::retriable(response).await
    } else {
        response
    }
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

/// How records of ours come, as the headers say it.
fn records_plan(table: Table, caller: &ApiCaller, headers: &HeaderMap) -> Result<IngestPlan, ApiProblem> {
    let encoding = headers::encoding(headers)?;
    let packing = body::packing(headers)?;
    let publisher = headers::publisher(headers)?;
    let key = IdempotencyHeader::of(headers, table, (&publisher, &caller.scope.entities))?;
    Ok(IngestPlan {
        table,
        format: BodyFormat::Records(encoding, publisher),
        packing,
        framing: BodyFraming::Nothing,
        key: BodyKey::Header(key),
        origin: None,
        for_bucket: false,
    })
}

async fn ingest(
    (table, caller): (Table, Arc<ApiCaller>),
    door: IngestHandler,
    params: IngestParams,
    request: Request,
) -> Result<ItemResponse<IngestResponse>, ApiProblem> {
    door.admit(&caller)?;
    let for_bucket = params.durable == Some(DurablePlace::Bucket);
    if for_bucket && !door.has_bucket() {
        return Err(ApiProblem::no_object_store());
    }
    let (head, body) = request.into_parts();
    let plan = IngestPlan {
        for_bucket,
        ..records_plan(table, &caller, &head.headers)?
    };
    let stored = door.ingest(&caller, plan, (&head, body)).await?;
    if stored.stored == 0 {
        return Err(ApiProblem::nothing_stored(stored.rejected_total, &stored.rejected));
    }
    Ok(ItemResponse {
        data: IngestResponse {
            stored: stored.stored,
            rejected: stored.rejected,
            rejected_total: stored.rejected_total,
            duplicate: stored.duplicate,
        },
    })
}
