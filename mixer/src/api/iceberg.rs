//! Iceberg's REST catalogue, as far as readers need it: one namespace with the tables of SQL, whose metadata the Mixer that writes keeps
//! current. It only reads.
//!
//! | path under `/iceberg/v1/` | answer |
//! |---|---|
//! | `config` | nothing to set, and which endpoints there are |
//! | `namespaces`, `namespaces/{namespace}` | the one |
//! | `namespaces/{namespace}/tables` | its tables, as far as the caller's scope has them |
//! | `namespaces/{namespace}/tables/{table}` | a table's metadata, and how its files are reached; 304 if the client has it |
//! | anything else | 404, with another method 405 or 406 |
//!
//! # Invariants
//!
//! - Every refusal below `/iceberg/`, whoever gives it, is Iceberg's: `{"error": {"message", "type", "code"}}`.
//! - Callers need the right to read rows, and a scope of all entities: a file has the rows of all. Tables beyond the scope are not listed.
//! - Credentials are never given: who reads from a bucket has its own.
//! - Parameters that clients send to any catalogue (`warehouse`, `pageToken`, `snapshots` …) change nothing: there is one catalogue,
//!   answers are whole, and metadata has all snapshots.
//!
//! # Not here
//!
//! What the metadata says (`iceberg`), how current it is ([`crate::iceberg_catalog`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, RawQuery, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use iceberg::{CatalogTable, LoadedTable, NAMESPACE};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::authorization::RequestCaller;
use super::ingest::{detail_of, problem_of};
use super::problem::ApiProblem;
use super::query_params::{InPath, decoded_pairs, in_path};
use super::row_response::known_tags;
use crate::access::ApiCaller;
use crate::iceberg_catalog::CatalogService;

/// What every path begins with.
const ROOT: &str = "/iceberg/";
/// Where clients of other catalogues ask for a token.
const TOKENS: &str = "/iceberg/v1/oauth/tokens";
/// What stands between the levels of a namespace.
const SEPARATOR: char = '\u{1f}';
/// The most characters of a name in a refusal.
const MAX_NAMED: usize = 100;
/// The endpoints, as Iceberg's clients know them.
const ENDPOINTS: [&str; 6] = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
];

/// The catalogue, where there is one.
type ServedCatalog = Option<Arc<CatalogService>>;

pub(super) fn routes(catalog: ServedCatalog) -> Router {
    Router::new()
        .route("/iceberg/v1/config", get(config))
        .route("/iceberg/v1/namespaces", get(namespaces))
        .route("/iceberg/v1/namespaces/{namespace}", get(namespace))
        .route("/iceberg/v1/namespaces/{namespace}/tables", get(tables))
        .route("/iceberg/v1/namespaces/{namespace}/tables/{table}", get(table))
        .with_state(catalog)
}

/// The catalogue for a caller that may read whole files.
struct CatalogReader {
    catalog: Arc<CatalogService>,
    caller: Arc<ApiCaller>,
}

impl FromRequestParts<ServedCatalog> for CatalogReader {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, catalog: &ServedCatalog) -> Result<Self, ApiProblem> {
        let RequestCaller(caller) = RequestCaller::from_request_parts(parts, catalog).await?;
        if !caller.scope.entities.is_empty() {
            let detail = "data files have the rows of all entities, and the token's scope is limited to some: ask for rows instead, \
                          by SQL or as lists";
            return Err(ApiProblem::forbidden(detail));
        }
        let catalog = catalog.clone().ok_or_else(ApiProblem::no_catalog)?;
        Ok(Self { catalog, caller })
    }
}

impl CatalogReader {
    /// Whether the caller's scope has a table.
    fn may_read(&self, table: CatalogTable) -> bool {
        self.caller.scope.has_table(table.table)
    }
}

async fn config(_: CatalogReader, RawQuery(query): RawQuery) -> Result<Json<Value>, ApiProblem> {
    decoded_pairs(query.as_deref().unwrap_or_default())?;
    Ok(Json(json!({ "defaults": {}, "overrides": {}, "endpoints": ENDPOINTS })))
}

/// The namespaces within `parent`, or those at the top.
async fn namespaces(_: CatalogReader, RawQuery(query): RawQuery) -> Result<Json<Value>, ApiProblem> {
    let params = decoded_pairs(query.as_deref().unwrap_or_default())?;
    let parent = params
        .iter()
        .find(|(name, value)| name == "parent" && !value.is_empty());
    if let Some((_, parent)) = parent {
        check_namespace(parent)?;
        return Ok(Json(json!({ "namespaces": [] })));
    }
    Ok(Json(json!({ "namespaces": [[NAMESPACE]] })))
}

async fn namespace(_: CatalogReader, method: Method, named: InPath) -> Result<Response, ApiProblem> {
    check_namespace(&in_path("namespace", named)?)?;
    Ok(unless_head(&method, || {
        Json(json!({ "namespace": [NAMESPACE], "properties": {} })).into_response()
    }))
}

async fn tables(reader: CatalogReader, named: InPath, RawQuery(query): RawQuery) -> Result<Json<Value>, ApiProblem> {
    decoded_pairs(query.as_deref().unwrap_or_default())?;
    check_namespace(&in_path("namespace", named)?)?;
    let names = reader.catalog.tables().await?;
    let is_listed = |name: &String| CatalogTable::parse(name).is_some_and(|table| reader.may_read(table));
    let listed = names.into_iter().filter(is_listed);
    let identifiers: Vec<_> = listed
        .map(|name| json!({ "namespace": [NAMESPACE], "name": name }))
        .collect();
    Ok(Json(json!({ "identifiers": identifiers })))
}

async fn table(
    reader: CatalogReader,
    method: Method,
    named: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiProblem> {
    decoded_pairs(query.as_deref().unwrap_or_default())?;
    let Path((namespace, name)) = named.map_err(|error| ApiProblem::parameter("table", error.body_text()))?;
    check_namespace(&namespace)?;
    let unknown = || ApiProblem::unknown_table(&format!("{NAMESPACE}.{}", shown(&name)));
    let table = CatalogTable::parse(&name).ok_or_else(unknown)?;
    if !reader.may_read(table) {
        let detail = format!("the token's scope does not have the table {name}: use a token whose scope has it");
        return Err(ApiProblem::forbidden(detail));
    }
    let loaded = reader.catalog.load(table).await?.ok_or_else(unknown)?;
    let tag = tag(&loaded);
    let caching = [(ETAG, tag.as_str()), (CACHE_CONTROL, "no-cache")];
    if known_tags(&headers).contains(&tag) {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    Ok(unless_head(&method, || {
        (caching, Json(TableAnswer::of(&loaded))).into_response()
    }))
}

/// What Iceberg calls a `LoadTableResult`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TableAnswer<'a> {
    metadata_location: &'a str,
    metadata: &'a RawValue,
    config: &'a BTreeMap<String, String>,
}

impl<'a> TableAnswer<'a> {
    fn of(loaded: &'a LoadedTable) -> Self {
        Self {
            metadata_location: &loaded.metadata_location,
            metadata: &loaded.metadata,
            config: &loaded.config,
        }
    }
}

/// The tag of a table's answer. Metadata that was lost and made anew may have the version of another one.
fn tag(loaded: &LoadedTable) -> String {
    format!("W/\"{}-{}\"", loaded.version, loaded.digest)
}

/// An answer; to `HEAD` only that there is one.
fn unless_head(method: &Method, answer: impl FnOnce() -> Response) -> Response {
    if method == Method::HEAD {
        return StatusCode::NO_CONTENT.into_response();
    }
    answer()
}

/// Refuses namespaces that are not the one there is.
fn check_namespace(name: &str) -> Result<(), ApiProblem> {
    if name == NAMESPACE {
        return Ok(());
    }
    Err(ApiProblem::unknown_namespace(&shown(name)))
}

/// A name in a refusal, with dots between its levels.
fn shown(name: &str) -> String {
    let readable = name.chars().map(|c| if c == SEPARATOR { '.' } else { c });
    let readable = readable.map(|c| if c.is_control() { '\u{fffd}' } else { c });
    readable.take(MAX_NAMED).collect()
}

/// Says refusals of these requests as Iceberg's clients understand them, whoever refused them.
pub(super) async fn refuse_in_kind(request: Request, next: Next) -> Response {
    if !request.uri().path().starts_with(ROOT) {
        return next.run(request).await;
    }
    let is_head = request.method() == Method::HEAD;
    let is_read = is_head || request.method() == Method::GET;
    let asks_for_token = request.uri().path() == TOKENS;
    let response = next.run(request).await;
    if !(response.status().is_client_error() || response.status().is_server_error()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let problem = problem_of(&head.headers, body).await;
    let mut message = detail_of(&problem);
    if head.status == StatusCode::NOT_FOUND && problem["code"] == "no_route" && !is_read {
        // Iceberg's status of what a catalogue does not support.
        head.status = StatusCode::NOT_ACCEPTABLE;
        message = "the catalogue only reads";
        if asks_for_token {
            message = "the Mixer gives no tokens in exchange for credentials: set the token itself, one that platform token create made";
        }
    }
    let error = json!({ "error": {
        "message": message, "type": exception(head.status, &problem), "code": head.status.as_u16(),
    } });
    let body = if is_head {
        Body::empty()
    } else {
        Body::from(error.to_string())
    };
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(CONTENT_ENCODING);
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, body)
}

/// What Iceberg calls a refusal.
fn exception(status: StatusCode, problem: &Value) -> &'static str {
    match (status, problem["code"].as_str()) {
        (_, Some("unknown_namespace")) => "NoSuchNamespaceException",
        (_, Some("unknown_table")) => "NoSuchTableException",
        (StatusCode::UNAUTHORIZED, _) => "NotAuthorizedException",
        (StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST, _) => "ForbiddenException",
        (StatusCode::NOT_FOUND, _) => "NotFoundException",
        (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_ACCEPTABLE, _) => "UnsupportedOperationException",
        (StatusCode::TOO_MANY_REQUESTS, _) => "SlowDownException",
        (StatusCode::REQUEST_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE, _) => "ServiceUnavailableException",
        (status, _) if status.is_server_error() => "InternalServerError",
        _ => "BadRequestException",
    }
}
