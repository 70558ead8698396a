//! `POST /api/v1/ingest/{logs|metrics|traces}`: telemetry over HTTP, in the encodings of the bus.
//!
//! ```text
//! body ─ read, unpack (bounded) ─ records ─ part ─▶ engine.append (durable) ─▶ next part … ─▶ answer
//!                                    └ bad ones are named
//! ```
//!
//! # Invariants
//!
//! - 200 means durable and visible: every row of the body. With `durable=bucket` the object store has them too.
//! - A body of which only some rows are stored is a problem (207) that names the others, so that nobody takes it for stored, unless
//!   the sender accepts that (`partial=accept`).
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
use model::telemetry_codec::{BatchEncoding, RecordRejection};
use protocols::SenderSettings;
use protocols::json_records::JsonFraming;
use serde::{Deserialize, Serialize};

use self::body_format::BodyFormat;
pub(super) use self::elasticsearch::elasticsearch_routes;
use self::idempotency_key::{BodyKey, IdempotencyHeader};
pub(super) use self::ingest_counters::HttpIngestCounters;
pub(super) use self::ingest_handler::IngestHandler;
use self::ingest_handler::{BodyFraming, IngestPlan, StoredBody};
pub(super) use self::loki::loki_routes;
pub(super) use self::otlp::{grpc_paths, otlp_routes, refuse_in_kind};
use self::refused_letters::BodyOrigin;
pub(super) use self::remote_write::remote_write_routes;
pub(crate) use self::senders::SenderAnswers;
pub(super) use self::senders::{detail_of, problem_of};
use super::authorization::RequestCaller;
use super::json_response::ItemResponse;
use super::problem::{ApiProblem, IngestCounts};
use super::query_params::QueryParams;
use crate::access::ApiCaller;

/// The routes for records, of ours and of any shape.
pub(super) fn routes(door: IngestHandler, answers: SenderAnswers) -> Router {
    let routes = Table::ALL
        .into_iter()
        .filter(|table| table.is_telemetry())
        .map(|table| {
            let ingest = move |State(parts): State<IngestParts>,
                               RequestCaller(caller): RequestCaller,
                               params: QueryParams,
                               request: Request| async move {
                ingest((table, caller), parts, params.filter()?, request).await
            };
            (format!("/api/v1/ingest/{table}"), post(ingest))
        });
    let router = routes.fold(Router::new(), |router, (path, ingest)| router.route(&path, ingest));
    router
        .layer(map_response(end_after_refusal))
        .with_state((door, answers))
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
    #[serde(flatten)]
    rows: IngestCounts,
    /// The first bad rows.
    rejected: Vec<RecordRejection>,
}

/// What an address may say.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct IngestParams {
    durable: DurablePlace,
    partial: PartialAnswer,
    rejected: RejectedRows,
    shape: RecordShape,
}

/// Where rows are to be before the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DurablePlace {
    #[default]
    Disk,
    Bucket,
}

/// What a body is answered with of which only some rows are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartialAnswer {
    #[default]
    Problem,
    Accept,
}

/// What becomes of bad rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RejectedRows {
    #[default]
    Drop,
    /// They are dead letters.
    Keep,
}

/// Which fields records have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RecordShape {
    /// The table's columns.
    #[default]
    Platform,
    /// Any: what they mean is found out.
    Auto,
}

/// What requests need beside the handler to become rows of any shape: as those of other senders do.
type IngestParts = (IngestHandler, SenderAnswers);

/// How records come, as address and headers say it.
fn records_plan(
    (table, caller): (Table, &ApiCaller),
    params: IngestParams,
    headers: &HeaderMap,
    answers: &SenderAnswers,
) -> Result<IngestPlan, ApiProblem> {
    let encoding = headers::encoding(headers)?;
    let packing = body::packing(headers)?;
    let publisher = headers::publisher(headers)?;
    let key = IdempotencyHeader::of(headers, table, (&publisher, &caller.scope.entities))?;
    let (keeps_refused, now) = (params.rejected == RejectedRows::Keep, answers.clock.now());
    let origin = keeps_refused.then(|| BodyOrigin {
        subject: format!("http/{table}"),
        // Rows of Arrow become JSON, too.
        content_type: match encoding {
            BatchEncoding::Cbor => BatchEncoding::Cbor,
            BatchEncoding::Arrow | BatchEncoding::Json | BatchEncoding::Ndjson => BatchEncoding::Json,
        }
        .content_type()
        .to_owned(),
        at: now,
    });
    let shaped = |framing, publisher| BodyFormat::Shaped {
        framing,
        settings: SenderSettings {
            entity: Arc::clone(&answers.otlp_entity),
            fallback: publisher,
            now,
        },
        keeps_refused,
    };
    let format = match (params.shape, encoding) {
        (RecordShape::Platform, _) => BodyFormat::Records {
            encoding,
            publisher,
            keeps_refused,
        },
        (RecordShape::Auto, BatchEncoding::Ndjson) => shaped(JsonFraming::Lines, publisher),
        (RecordShape::Auto, BatchEncoding::Json) => shaped(JsonFraming::Document, publisher),
        (RecordShape::Auto, BatchEncoding::Cbor | BatchEncoding::Arrow) => {
            let reason = format!("auto is for JSON and NDJSON, not for {}", encoding.content_type());
            return Err(ApiProblem::parameter("shape", reason));
        }
    };
    Ok(IngestPlan {
        table,
        format,
        packing,
        framing: BodyFraming::Nothing,
        key: BodyKey::Header(key),
        origin,
        for_bucket: params.durable == DurablePlace::Bucket,
    })
}

async fn ingest(
    (table, caller): (Table, Arc<ApiCaller>),
    (door, answers): IngestParts,
    params: IngestParams,
    request: Request,
) -> Result<ItemResponse<IngestResponse>, ApiProblem> {
    door.admit(&caller)?;
    if params.durable == DurablePlace::Bucket && !door.has_bucket() {
        return Err(ApiProblem::no_object_store());
    }
    let (head, body) = request.into_parts();
    let plan = records_plan((table, caller.as_ref()), params, &head.headers, &answers)?;
    let StoredBody { rows, rejected, .. } = door.ingest(&caller, plan, (&head, body)).await?;
    if rows.stored == 0 {
        return Err(ApiProblem::nothing_stored(rows, &rejected));
    }
    if rows.rejected_total > 0 && params.partial == PartialAnswer::Problem {
        return Err(ApiProblem::partly_stored(rows, &rejected));
    }
    Ok(ItemResponse {
        data: IngestResponse { rows, rejected },
    })
}
