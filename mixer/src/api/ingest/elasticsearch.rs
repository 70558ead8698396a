//! Elasticsearch's bulk API below `/elasticsearch/`, and what Filebeat, Logstash, Vector, Fluent Bit, Telegraf and the libraries
//! ask before they send.
//!
//! | request | answer |
//! |---|---|
//! | `POST`, `PUT` `_bulk`, `{index}/_bulk` | 200 with the status of each item: 201, or 400 with the reason; refused documents are dead letters |
//! | `GET`, `HEAD` of the root | a version that clients accept |
//! | licence, cluster, nodes, templates, pipelines, policies, data streams, indexes | constants: everything is there already, and what is put is acknowledged |
//! | refused as a whole | Elasticsearch's error, with our `code`; 503 instead of 409 and 408, which clients do not repeat |
//!
//! # Invariants
//!
//! - Every answer has the header by which clients know Elasticsearch, and the media type that they asked for.
//! - An answer is made while it is sent, some items at a time. What it is made of is counted as the memory of its request until it is
//!   sent, however slowly it is read.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use model::Table;
use protocols::elasticsearch::{BulkItems, BulkSettings};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::body;
use super::body_format::ForeignFormat;
use super::end_after_refusal;
use super::ingest_handler::{BodyFraming, IngestHandler, StoredBody};
use super::senders::{SenderAnswers, SenderProtocol, SentBody, detail_of, is_retriable, problem_of};
use crate::access::ApiCaller;
use crate::api::authorization::RequestCaller;
use crate::api::counted_status::CountedStatus;
use crate::api::problem::ApiProblem;
use crate::api::query_params::{InPath, in_path};

/// What every path begins with: the root belongs to others.
const ROOT: &str = "/elasticsearch";
/// The index of documents for which neither the path nor their action names one.
const DEFAULT_INDEX: &str = "logs";
const MAX_INDEX: usize = 255;
/// The media types of Elasticsearch 8 and 9, and of those before.
const JSON: &str = "application/json";
const JSON_8: &str = "application/vnd.elasticsearch+json;compatible-with=8";
const JSON_9: &str = "application/vnd.elasticsearch+json;compatible-with=9";
/// By what clients know that they speak to Elasticsearch.
const PRODUCT: HeaderName = HeaderName::from_static("x-elastic-product");
/// About so many bytes of an answer are made at a time.
const STEP: usize = 64 << 10;

/// A path, what makes its answer, and whether something may be put there.
type ClientQuestion = (&'static str, fn() -> Value, bool);

/// What clients ask about: the path, the answer, and whether they may put something there.
const QUESTIONS: [ClientQuestion; 14] = [
    ("/elasticsearch", root, false),
    ("/elasticsearch/", root, false),
    ("/elasticsearch/_license", license, false),
    ("/elasticsearch/_xpack", features, false),
    ("/elasticsearch/_cluster/health", health, false),
    ("/elasticsearch/_nodes/http", nodes, false),
    ("/elasticsearch/_ilm/policy/{name}", nothing, true),
    ("/elasticsearch/_index_template/{name}", nothing, true),
    ("/elasticsearch/_component_template/{name}", nothing, true),
    ("/elasticsearch/_template/{name}", nothing, true),
    ("/elasticsearch/_ingest/pipeline/{name}", nothing, true),
    ("/elasticsearch/_data_stream/{name}", nothing, true),
    ("/elasticsearch/_alias/{name}", nothing, false),
    ("/elasticsearch/{index}", nothing, true),
];

fn root() -> Value {
    json!({
        "name": "platform-mixer",
        "cluster_name": "platform",
        "cluster_uuid": "platform",
        // Beats refuse an older one than their own, Logstash one of a major version that it does not know.
        "version": {
            "number": "8.99.0", "build_flavor": "default", "build_type": "tar", "build_hash": "platform",
            "build_date": "2026-01-01T00:00:00.000Z", "build_snapshot": false, "lucene_version": "9.12.0",
            "minimum_wire_compatibility_version": "7.17.0", "minimum_index_compatibility_version": "7.0.0",
        },
        "tagline": "You Know, for Search",
    })
}

fn license() -> Value {
    json!({ "license": {
        "status": "active", "uid": "platform", "type": "basic", "issue_date": "2026-01-01T00:00:00.000Z",
        "issue_date_in_millis": 1_767_225_600_000_i64, "issued_to": "platform", "issuer": "elasticsearch", "start_date_in_millis": -1,
    } })
}

fn features() -> Value {
    json!({
        "build": { "hash": "platform", "date": "2026-01-01T00:00:00.000Z" },
        "license": { "uid": "platform", "type": "basic", "mode": "basic", "status": "active" },
        "features": { "ilm": { "available": true, "enabled": true } },
        "tagline": "You know, for X",
    })
}

fn health() -> Value {
    json!({
        "cluster_name": "platform", "status": "green", "timed_out": false, "number_of_nodes": 1, "number_of_data_nodes": 1,
        "active_primary_shards": 0, "active_shards": 0, "relocating_shards": 0, "initializing_shards": 0, "unassigned_shards": 0,
    })
}

/// No address to be asked beside the one that clients have.
fn nodes() -> Value {
    json!({ "_nodes": { "total": 0, "successful": 0, "failed": 0 }, "cluster_name": "platform", "nodes": {} })
}

fn nothing() -> Value {
    json!({})
}

/// The routes.
pub(in crate::api) fn elasticsearch_routes(door: IngestHandler, answers: SenderAnswers) -> Router {
    let protocol = SenderProtocol {
        door,
        clock: answers.clock,
        entity: answers.elasticsearch_entity,
        table: Table::Logs,
        name: "elasticsearch",
        content_type: JSON,
    };
    let any = |State(protocol): State<SenderProtocol>, RequestCaller(caller): RequestCaller, request: Request| async move {
        bulk(caller, protocol, DEFAULT_INDEX.to_owned(), request).await
    };
    let named = |State(protocol): State<SenderProtocol>,
                 RequestCaller(caller): RequestCaller,
                 index: InPath,
                 request: Request| async move { bulk(caller, protocol, index_of(index)?, request).await };
    let bulks = Router::new()
        .route("/elasticsearch/_bulk", post(any).put(any))
        .route("/elasticsearch/{index}/_bulk", post(named).put(named))
        .layer(axum::middleware::map_response(end_after_refusal))
        .with_state(protocol);
    QUESTIONS.into_iter().fold(bulks, |router, (path, answer, may_put)| {
        let asked = get(move || async move { axum::Json(answer()) });
        let acknowledged = || async { axum::Json(json!({ "acknowledged": true })) };
        router.route(path, if may_put { asked.put(acknowledged) } else { asked })
    })
}

fn index_of(found: InPath) -> Result<String, ApiProblem> {
    let index = in_path("index", found)?;
    if index.len() > MAX_INDEX {
        let reason = format!("it has {} bytes, more than {MAX_INDEX}", index.len());
        return Err(ApiProblem::parameter("index", reason));
    }
    Ok(index)
}

/// Refuses bodies that say to be something else.
fn check_type(headers: &HeaderMap) -> Result<(), ApiProblem> {
    const KNOWN: [&str; 4] = [
        JSON,
        "application/x-ndjson",
        "application/vnd.elasticsearch+json",
        "application/vnd.elasticsearch+x-ndjson",
    ];
    let kind = headers.get(CONTENT_TYPE).map_or(Ok(JSON), |value| value.to_str());
    let kind = kind.unwrap_or("?").split(';').next().unwrap_or_default().trim();
    if KNOWN.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Ok(());
    }
    let detail = format!(
        "Content-Type {kind:?} is no bulk request: known are {}",
        KNOWN.join(", ")
    );
    Err(ApiProblem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

async fn bulk(
    caller: Arc<ApiCaller>,
    protocol: SenderProtocol,
    index: String,
    request: Request,
) -> Result<Response, ApiProblem> {
    let (began, stamp) = (Instant::now(), protocol.clock.now().micros());
    let items: Arc<OnceLock<BulkItems>> = Arc::default();
    let told = Arc::clone(&items);
    let sent_body = move |headers: &HeaderMap| -> Result<SentBody, ApiProblem> {
        check_type(headers)?;
        let packing = body::packing(headers)?;
        let bulk = BulkSettings { index, items: told };
        Ok((ForeignFormat::Bulk(bulk), packing, BodyFraming::Nothing))
    };
    let stored = protocol.store(&caller, request, sent_body).await?;
    let items = items.get().cloned();
    let items = items.ok_or_else(|| ApiProblem::internal("a bulk request was stored and not read"))?;
    let took = began.elapsed().as_millis();
    let head = format!(
        r#"{{"took":{took},"errors":{},"items":["#,
        stored.rows.rejected_total > 0
    );
    let mut at = 0;
    // It has the room for what it is made of, too.
    let parts = std::iter::from_fn(move || (at < items.len()).then(|| part(&items, &stored, &mut at, stamp)));
    let whole = std::iter::once(head).chain(parts).chain(["]}".to_owned()]);
    let whole = whole.map(|text| Ok::<_, Infallible>(Bytes::from(text)));
    Ok(Body::from_stream(futures::stream::iter(whole)).into_response())
}

/// The answers to the next items.
fn part(items: &BulkItems, stored: &StoredBody, at: &mut usize, stamp: i64) -> String {
    let mut text = String::new();
    while *at < items.len() && text.len() < STEP {
        if *at > 0 {
            text.push(',');
        }
        let answer = items.answer(*at, &format!("{stamp:x}-{at}"), refusal(stored, *at));
        text.push_str(&answer.to_string());
        *at += 1;
    }
    text
}

/// Why an item was refused, if it was: the first hundred are named.
fn refusal(stored: &StoredBody, at: usize) -> Option<&str> {
    if !stored.is_refused(at) {
        return None;
    }
    let named = stored.rejected.binary_search_by_key(&(at as u64), |bad| bad.row);
    let named = named.ok().and_then(|found| stored.rejected.get(found));
    Some(named.map_or("the document was refused, as others before it", |bad| {
        bad.reason.as_str()
    }))
}

/// Whether a path is one of Elasticsearch's.
pub(super) fn is_path(path: &str) -> bool {
    path.strip_prefix(ROOT)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The media type that a client wants.
pub(super) fn answer_type(headers: &HeaderMap) -> HeaderValue {
    let accept = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let kind = match accept.contains("vnd.elasticsearch+") {
        true if accept.contains("compatible-with=9") => JSON_9,
        true if accept.contains("compatible-with=8") => JSON_8,
        _ => JSON,
    };
    HeaderValue::from_static(kind)
}

/// Makes an answer one of Elasticsearch's, whoever gave it.
pub(super) async fn in_kind(response: Response, kind: HeaderValue) -> Response {
    let (mut head, mut body) = response.into_parts();
    if head.status.is_client_error() || head.status.is_server_error() {
        let problem = problem_of(&head.headers, body).await;
        // Its clients know 429.
        if is_retriable(head.status) && head.status != StatusCode::TOO_MANY_REQUESTS {
            head.extensions.get_or_insert(CountedStatus(head.status));
            head.status = StatusCode::SERVICE_UNAVAILABLE;
            head.headers.entry(RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
        }
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(CONTENT_ENCODING);
        body = Body::from(error(head.status, &problem).to_string());
    }
    head.headers.insert(CONTENT_TYPE, kind);
    head.headers.insert(PRODUCT, HeaderValue::from_static("Elasticsearch"));
    Response::from_parts(head, body)
}

/// A refusal as Elasticsearch says it.
fn error(status: StatusCode, problem: &Value) -> Value {
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => "security_exception",
        StatusCode::NOT_FOUND => "resource_not_found_exception",
        StatusCode::PAYLOAD_TOO_LARGE => "content_too_long_exception",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "media_type_header_exception",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "es_rejected_execution_exception",
        StatusCode::INTERNAL_SERVER_ERROR => "internal_server_error",
        _ => "illegal_argument_exception",
    };
    let cause = json!({ "type": kind, "reason": detail_of(problem) });
    let mut whole = json!({ "error": cause, "status": status.as_u16(), "code": problem["code"] });
    whole["error"]["root_cause"] = json!([cause]);
    whole
}
