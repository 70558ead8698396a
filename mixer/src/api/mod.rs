//! The REST API: parses requests, calls the services, shapes answers.
//!
//! | path | answers from |
//! |---|---|
//! | `GET /api/v1/telemetry/{logs,traces,traces/{id},metrics,metrics/{name},messages,messages/{flux_id},dead_letters}` | [`query::QueryEngine`] |
//! | `GET /api/v1/{messages,messages/{flux_id},flux/{flux_id}}` | the same |
//! | `GET /api/v1/telemetry/{logs/histogram,logs/top,logs/fields,traces/top,traces/fields,services,dependencies,metrics/names,metrics/{name}/exemplars,metrics/{name}/labels,metrics/{name}/labels/{key}}` | the same |
//! | `GET /api/v1/telemetry/logs/tail` | the same, as events while they come |
//! | `GET /api/v1/messages/tail` | business messages, as events while they come |
//! | `GET /api/v1/{logs,traces,traces/{id},metrics,metrics/{name}}` | the same, with a `Deprecation` header (v0.4.4) |
//! | `GET /jaeger/api/{services,services/{service}/operations,operations,traces,traces/{trace_id},dependencies}` | the same, in Jaeger's form |
//! | `GET /iceberg/v1/{config,namespaces,namespaces/{namespace},namespaces/{namespace}/tables,namespaces/{namespace}/tables/{table}}`, `GET /api/v1/catalog` | `iceberg_catalog` |
//! | `POST /api/v1/sql` | [`query::QueryEngine::sql`], streamed |
//! | `POST /api/v1/ingest/{logs,metrics,traces}`, `POST /v1/{logs,metrics,traces}`, `POST /loki/api/v1/push`, `/elasticsearch/…`, `POST /api/v1/write` | [`engine::Engine`], when it is durable |
//! | `GET /api/v1/racks`, `GET /api/v1/racks/{id}`, `POST /api/v1/racks/{id}/{approve,suspend,resume,remove,log-level}` | [`crate::control::ControlPlane`] |
//! | `PUT`, `PATCH /api/v1/racks/{id}/labels` | the same |
//! | `GET /api/v1/racks/{id}/tap` | the same: messages as they leave a port |
//! | `GET`, `POST /api/v1/scenarios`, `GET /api/v1/scenarios/{reference}`, `…/{reference}/graph`, `POST /api/v1/scenarios/{reference}/activate` | the same |
//! | `GET /api/v1/scenarios/status`, `POST /api/v1/scenarios/rollback` | the same |
//! | `GET /api/v1/requests`, `POST /api/v1/requests/{request}/withdraw` | the same: what waits for a second person |
//! | `GET /api/v1/audit`, `GET /api/v1/audit/checkpoints`, `GET /api/v1/wires` | the same |
//! | `GET /api/v1/dlq`, `GET /api/v1/dlq/{letter_id}`, `POST /api/v1/dlq/{replay,drop}`, `POST /api/v1/dlq/{letter_id}/{replay,drop}` | [`crate::dlq::DeadLetterQueue`] |
//! | `GET /api/v1/gears`, `GET /api/v1/gears/{type}` | [`gear_spec::manifests`] |
//! | `GET /api/v1/specs` | [`SpecRegistry`] |
//! | `GET`, `POST /api/v1/invites`, `POST /api/v1/invites/{invite}/revoke` | [`crate::control::ControlPlane`] |
//! | `GET`, `POST /api/v1/tokens`, `POST /api/v1/tokens/{token}/revoke`, `GET /api/v1/whoami` | [`crate::authentication`] |
//! | `GET /`, `GET /web/{digest}/{file}` | the program: the page (`page`) |
//! | `GET /api/v1/openapi.json` | tables of all this (`openapi`) |
//! | `GET /api/v1/storage`, `/healthz`, `/readyz`, `/metrics`, `/version` | all of them |
//!
//! # Invariants
//!
//! - Answers are `{"data": …, "next_cursor": …, "stats": …}`, lists and those of SQL in other formats too (`answer`); errors are RFC 9457 problems with a stable `code`, also where
//!   no route matches and where a handler panics.
//! - Unknown or unusable parameters are 400 and named, but where the page or Iceberg's catalogue is asked for. No request makes a 5xx that is not our fault.
//! - Connections, header time, body size and the time of an answer are bounded. A client that leaves ends its query.
//!
//! # Not here
//!
//! Who calls and what it may do ([`crate::authentication`], [`crate::access`]); what a Rack is (`control`); how rows are found (`query`).

mod audit;
mod authorization;
mod backup;
mod catalog;
mod change_requests;
mod compression;
mod content_negotiation;
mod counted_status;
mod dlq;
mod exposition;
mod extractors;
mod gears;
mod iceberg;
mod ingest;
mod invites;
mod jaeger;
mod json_response;
mod openapi;
mod ops;
mod page;
mod problem;
mod query_params;
mod racks;
mod request_spans;
mod rotation;
mod row_response;
mod scenarios;
mod self_probe;
mod server;
mod specs;
mod sql;
mod tail;
mod taps;
mod telemetry;
#[cfg(test)]
mod tests;
mod tokens;
mod wires;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use chassis::host_guard::{HostGuard, protect_answer};
use chassis::tls_server::ServerTls;
use http::StatusCode;
use http::uri::Authority;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use tower_http::catch_panic::CatchPanicLayer;

use crate::authentication::ApiAuthenticator;
use crate::backup::BackupWriter;
use crate::control::ControlPlane;
use crate::dlq::DeadLetterQueue;
use crate::duckdb::ViewFileStats;
use crate::export::ExportStatus;
use crate::iceberg_catalog::CatalogService;
use crate::security_report::SecurityFinding;
use crate::self_tracing::SpanRecorder;
use crate::specs::SpecRegistry;
use counted_status::CountedStatus;
use exposition::MetricsExposition;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use ingest::fuzz_targets;
use problem::ApiProblem;

pub(crate) use ingest::SenderAnswers;
pub use server::ApiServer;
use server::{HttpVersion, SlowClientLimits};
pub(crate) use server::{MAX_CONNECTIONS, next_connection};

/// The largest body of a request, telemetry apart.
const MAX_BODY: usize = 64 << 10;
/// The longest that a request may take, its body included; queries have a shorter limit of their own.
const MAX_TIME: Duration = Duration::from_secs(120);

/// The services that the API calls.
#[derive(Debug, Clone)]
pub struct ApiParts {
    /// Telemetry.
    pub querier: Arc<query::QueryEngine>,
    /// Racks and scenarios.
    pub control: Arc<ControlPlane>,
    /// The dead-letter queue.
    pub dlq: Arc<DeadLetterQueue>,
    /// The store's state.
    pub engine: Arc<engine::Engine>,
    /// The ingest pipeline's counters; none where collection is switched off.
    pub ingest: Option<Arc<::ingest::IngestStats>>,
    /// The counters of the file of views for outside readers.
    pub views: Arc<ViewFileStats>,
    /// The specs of business messages.
    pub specs: Arc<SpecRegistry>,
    /// Who may call.
    pub(crate) authenticator: Arc<ApiAuthenticator>,
    /// What makes backups.
    pub(crate) backups: Arc<BackupWriter>,
    /// What the configuration says of the Mixer's security.
    pub(crate) security: Arc<[SecurityFinding]>,
    /// The state of the export to a collector; none if nothing is exported.
    pub(crate) export: Option<Arc<ExportStatus>>,
    /// The Iceberg catalogue; none where it is switched off.
    pub(crate) catalog: Option<Arc<CatalogService>>,
    /// What the API is served encrypted with, if it is.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// How requests of OTLP and of other senders become rows.
    pub(crate) senders: SenderAnswers,
    /// What makes spans of requests.
    pub(crate) spans: SpanRecorder,
    /// Whether the process reports about itself at `/metrics`.
    pub reports_itself: bool,
}

/// Where the API listens: all of it, and OTLP alone at its own ports.
#[derive(Debug)]
pub struct ApiListeners {
    /// Everything, over HTTP/1.1.
    pub api: TcpListener,
    /// OTLP over HTTP/1.1.
    pub otlp_http: Option<TcpListener>,
    /// OTLP over gRPC, which is HTTP/2.
    pub otlp_grpc: Option<TcpListener>,
}

/// Serves the API on bound listeners, for these hosts beside their own addresses and over TLS if there is any, until [`ApiServer::close`].
///
/// # Errors
/// If a listener has no address, or threads cannot be had.
pub fn serve(
    parts: ApiParts,
    listeners: ApiListeners,
    (allowed_hosts, tls): (Vec<Authority>, Option<Arc<ServerTls>>),
) -> std::io::Result<ApiServer> {
    let changes = TaskTracker::new();
    let (door, exposition) = ingest_door(&parts, &changes)?;
    let guards = RouteGuards {
        exposition: Arc::clone(&exposition),
        authenticator: Arc::clone(&parts.authenticator),
        hosts: allowed_hosts,
        spans: (parts.spans.clone(), if tls.is_some() { "https" } else { "http" }),
    };
    let mut others = Vec::new();
    let otlp = || ingest::otlp_routes(door.clone(), parts.senders.clone());
    if let Some(listener) = listeners.otlp_http {
        others.push((guards.guard(otlp(), &listener)?, listener, HttpVersion::Http1));
    }
    if let Some(listener) = listeners.otlp_grpc {
        let router = ingest::grpc_paths(guards.guard(otlp(), &listener)?);
        others.push((router, listener, HttpVersion::Http2));
    }
    let router = guards.guard(all_routes(parts, &changes, (door, exposition)), &listeners.api)?;
    server::start(
        (router, listeners.api),
        others,
        (changes, tls),
        SlowClientLimits::default(),
    )
}

/// What telemetry comes in by, and the metrics that count it.
fn ingest_door(
    parts: &ApiParts,
    changes: &TaskTracker,
) -> std::io::Result<(ingest::IngestHandler, Arc<MetricsExposition>)> {
    let counters = ingest::HttpIngestCounters::default();
    let exposition = Arc::new(MetricsExposition::new(parts.clone(), &counters));
    let (engine, collects) = (Arc::clone(&parts.engine), parts.ingest.is_some());
    let door = ingest::IngestHandler::new(engine, collects, changes.clone(), counters)?;
    Ok((door, exposition))
}

/// What holds for every route of every listener.
struct RouteGuards {
    exposition: Arc<MetricsExposition>,
    authenticator: Arc<ApiAuthenticator>,
    hosts: Vec<Authority>,
    /// What makes spans, and the scheme of requests.
    spans: (SpanRecorder, &'static str),
}

impl RouteGuards {
    /// The routes of a listener behind them.
    fn guard(&self, router: Router, listener: &TcpListener) -> std::io::Result<Router> {
        let hosts = Arc::new(HostGuard::new(listener.local_addr()?, self.hosts.clone()));
        let authenticator = Arc::clone(&self.authenticator);
        let guarded = guarded(router, Arc::clone(&self.exposition), (authenticator, hosts));
        let spans = middleware::from_fn_with_state(self.spans.clone(), request_spans::record);
        Ok(guarded.layer(spans))
    }
}

/// Every route, which anybody could call.
fn all_routes(
    parts: ApiParts,
    changes: &TaskTracker,
    (door, exposition): (ingest::IngestHandler, Arc<MetricsExposition>),
) -> Router {
    let senders = parts.senders.clone();
    telemetry::routes(Arc::clone(&parts.querier))
        .merge(jaeger::routes(Arc::clone(&parts.querier)))
        .merge(iceberg::routes(parts.catalog.clone()))
        .merge(catalog::routes(parts.catalog.clone()))
        .merge(tail::routes(Arc::clone(&parts.querier)))
        .merge(sql::routes(Arc::clone(&parts.querier)))
        .merge(ingest::routes(door.clone(), senders.clone()))
        .merge(ingest::loki_routes(door.clone(), senders.clone()))
        .merge(ingest::elasticsearch_routes(door.clone(), senders.clone()))
        .merge(ingest::remote_write_routes(door.clone(), senders.clone()))
        .merge(ingest::otlp_routes(door, senders))
        .merge(racks::routes(Arc::clone(&parts.control), changes.clone()))
        .merge(invites::routes(Arc::clone(&parts.control), changes.clone()))
        .merge(change_requests::routes(Arc::clone(&parts.control), changes.clone()))
        .merge(taps::routes(Arc::clone(&parts.control), changes.clone()))
        .merge(scenarios::routes(Arc::clone(&parts.control), changes.clone()))
        .merge(audit::routes(Arc::clone(&parts.control)))
        .merge(wires::routes(Arc::clone(&parts.control)))
        .merge(backup::routes(Arc::clone(&parts.backups), changes.clone()))
        .merge(dlq::routes(Arc::clone(&parts.dlq), changes.clone()))
        .merge(gears::routes())
        .merge(specs::routes(Arc::clone(&parts.specs)))
        .merge(openapi::routes())
        .merge(page::routes())
        .merge(tokens::routes(
            Arc::clone(parts.authenticator.tokens()),
            changes.clone(),
        ))
        .merge(ops::routes(parts, exposition))
}

/// Every route behind its guards, as for an address.
#[cfg(test)]
fn routes(parts: ApiParts, hosts: HostGuard, changes: &TaskTracker) -> std::io::Result<Router> {
    let (door, exposition) = ingest_door(&parts, changes)?;
    let authenticator = Arc::clone(&parts.authenticator);
    let router = all_routes(parts, changes, (door, Arc::clone(&exposition)));
    Ok(guarded(router, exposition, (authenticator, Arc::new(hosts))))
}

/// Every route, unguarded.
#[cfg(test)]
fn all_routes_of(parts: ApiParts) -> std::io::Result<Router> {
    let changes = TaskTracker::new();
    let (door, exposition) = ingest_door(&parts, &changes)?;
    Ok(all_routes(parts, &changes, (door, exposition)))
}

/// What holds for every route: bounds, problems for what no route answers, counting.
fn guarded(
    router: Router,
    exposition: Arc<MetricsExposition>,
    (authenticator, hosts): (Arc<ApiAuthenticator>, Arc<HostGuard>),
) -> Router {
    router
        .fallback(|request: Request| async move { ApiProblem::no_route(request.uri().path()) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(compression::compression_layer())
        .layer(middleware::map_response(compression::vary))
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&authenticator),
            authorization::authorize,
        ))
        .layer(middleware::from_fn_with_state(hosts, own_host))
        .layer(middleware::from_fn_with_state(
            authenticator,
            authorization::report_refusals,
        ))
        .layer(CatchPanicLayer::custom(|_| {
            let mut answer = ApiProblem::internal("a request made the program panic").into_response();
            protect_answer(answer.headers_mut());
            answer
        }))
        .layer(middleware::from_fn(ingest::refuse_in_kind))
        .layer(middleware::from_fn(ingest::refuse_senders_in_kind))
        .layer(middleware::from_fn(iceberg::refuse_in_kind))
        .layer(middleware::from_fn_with_state(exposition, exposition::count))
}

/// Ends a request that takes too long. It counts as the Mixer's fault: a body of rows that comes too slowly is refused before this
/// ([`ingest`]), and other bodies are small.
async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(MAX_TIME, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let mut response = ApiProblem::slow_request().into_response();
            response
                .extensions_mut()
                .insert(CountedStatus(StatusCode::GATEWAY_TIMEOUT));
            response
        }
    }
}

/// Refuses what a browser sends for a page of another site.
async fn own_host(State(hosts): State<Arc<HostGuard>>, request: Request, next: Next) -> Response {
    let checked = hosts.check(request.method(), request.uri(), request.headers(), "api.allowed_hosts");
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(foreign) => ApiProblem::foreign(&foreign).into_response(),
    };
    protect_answer(response.headers_mut());
    response
}
