//! Telemetry queries, under their current and their v0.4.4 paths, and those of business signals. Lists of rows come in the format
//! that is asked for ([`super::row_response`]), the rest as JSON.
//!
//! Messages have two paths, `/api/v1/messages` and `/api/v1/telemetry/messages`: both are current, and answer the same.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderName, HeaderValue, header};
use model::filter::{CellFilter, MessageFilter, MetricFilter, RowFilter, SortOrder, TimePoint};
use model::{FluxId, TraceId};
use query::{AnswerMemory, JsonPage, ListQuery, QueryEngine, QueryStats};
use serde::Serialize;
use serde_json::{Map, Value};

use super::authorization::CallerQuerier;
use super::json_response;
use super::problem::ApiProblem;
use super::query_params::{InPath, QueryParams, in_path};
use super::row_response::RowRequest;

/// When the v0.4.4 paths were deprecated, as RFC 9745 writes it.
const DEPRECATED: &str = "@1763683200";

pub(crate) fn routes(querier: Arc<QueryEngine>) -> Router {
    let current = Router::new()
        .route("/api/v1/telemetry/logs", get(logs))
        .route("/api/v1/telemetry/logs/histogram", get(logs_histogram))
        .route("/api/v1/telemetry/logs/top", get(logs_top))
        .route("/api/v1/telemetry/logs/fields", get(log_fields))
        .route("/api/v1/telemetry/traces", get(traces))
        .route("/api/v1/telemetry/traces/fields", get(trace_fields))
        .route("/api/v1/telemetry/traces/top", get(traces_top))
        .route("/api/v1/telemetry/traces/{trace_id}", get(trace))
        .route("/api/v1/telemetry/services", get(services))
        .route("/api/v1/telemetry/dependencies", get(dependencies))
        .route("/api/v1/telemetry/metrics", get(metrics))
        .route("/api/v1/telemetry/metrics/names", get(metric_names))
        .route("/api/v1/telemetry/metrics/{metric_name}", get(metric))
        .route("/api/v1/telemetry/metrics/{metric_name}/labels", get(metric_labels))
        .route(
            "/api/v1/telemetry/metrics/{metric_name}/exemplars",
            get(metric_exemplars),
        )
        .route(
            "/api/v1/telemetry/metrics/{metric_name}/labels/{label_key}",
            get(metric_label_values),
        )
        .route("/api/v1/messages", get(messages))
        .route("/api/v1/messages/{flux_id}", get(messages_of))
        .route("/api/v1/flux/{flux_id}", get(flux))
        .route("/api/v1/telemetry/messages", get(messages))
        .route("/api/v1/telemetry/messages/{flux_id}", get(messages_of))
        .route("/api/v1/telemetry/dead_letters", get(dead_letters));
    let former = Router::new()
        .route("/api/v1/logs", get(logs))
        .route("/api/v1/traces", get(traces))
        .route("/api/v1/traces/{trace_id}", get(trace))
        .route("/api/v1/metrics", get(metrics))
        .route("/api/v1/metrics/{metric_name}", get(metric))
        .layer(middleware::from_fn(deprecated));
    current.merge(former).with_state(querier)
}

/// Names the successor of a v0.4.4 path.
async fn deprecated(request: Request, next: Next) -> Response {
    let path = request.uri().path().strip_prefix("/api/v1").unwrap_or_default();
    let successor = HeaderValue::try_from(format!("</api/v1/telemetry{path}>; rel=\"successor-version\""));
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        HeaderName::from_static("deprecation"),
        HeaderValue::from_static(DEPRECATED),
    );
    if let Ok(successor) = successor {
        headers.insert(header::LINK, successor);
    }
    response
}

/// Rows and what they cost.
#[derive(Serialize)]
struct PageResponse {
    data: Vec<Map<String, Value>>,
    next_cursor: Option<String>,
    stats: QueryStats,
    /// Why rows are missing; absent when none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<String>,
    /// What the buckets of a histogram are.
    #[serde(skip_serializing_if = "Option::is_none")]
    histogram: Option<Value>,
    #[serde(skip)]
    memory: AnswerMemory,
}

impl From<JsonPage> for PageResponse {
    fn from(page: JsonPage) -> Self {
        Self {
            data: page.rows,
            next_cursor: page.next_cursor,
            partial: page.stats.partial.clone(),
            stats: page.stats,
            histogram: None,
            memory: page.memory,
        }
    }
}

impl IntoResponse for PageResponse {
    fn into_response(mut self) -> Response {
        let memory = std::mem::take(&mut self.memory);
        json_response::counted(&self, memory)
    }
}

async fn logs(CallerQuerier(querier): CallerQuerier, asked: RowRequest) -> Result<Response, ApiProblem> {
    let (filter, rows, asked) = asked.filters()?;
    asked.list_shown(&querier, ListQuery::Logs(filter), &rows).await
}

async fn logs_histogram(
    CallerQuerier(querier): CallerQuerier,
    params: QueryParams,
) -> Result<PageResponse, ApiProblem> {
    let (filter, shape) = params.filters()?;
    let found = querier.logs_histogram(&filter, &shape).await?;
    Ok(PageResponse {
        histogram: Some(serde_json::json!({ "interval": found.interval })),
        ..PageResponse::from(found.page)
    })
}

async fn logs_top(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    let (filter, top) = params.filters()?;
    Ok(querier.logs_top(&filter, &top).await?.into())
}

async fn traces_top(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    let (filter, top) = params.filters()?;
    Ok(querier.traces_top(&filter, &top).await?.into())
}

async fn log_fields(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    Ok(querier.log_fields(&params.filter()?).await?.into())
}

async fn trace_fields(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    Ok(querier.trace_fields(&params.filter()?).await?.into())
}

async fn traces(CallerQuerier(querier): CallerQuerier, asked: RowRequest) -> Result<Response, ApiProblem> {
    let (filter, rows, asked) = asked.filters()?;
    asked.list_shown(&querier, ListQuery::Traces(filter), &rows).await
}

async fn services(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    Ok(querier.services(&params.filter()?).await?.into())
}

async fn dependencies(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    Ok(querier.dependencies(&params.filter()?).await?.into())
}

async fn metrics(CallerQuerier(querier): CallerQuerier, asked: RowRequest) -> Result<Response, ApiProblem> {
    let (filter, asked) = asked.filter()?;
    asked.list(&querier, ListQuery::Metrics(filter)).await
}

async fn metric_names(CallerQuerier(querier): CallerQuerier, params: QueryParams) -> Result<PageResponse, ApiProblem> {
    Ok(querier.metric_names(&params.filter()?).await?.into())
}

async fn metric_labels(
    CallerQuerier(querier): CallerQuerier,
    name: InPath,
    params: QueryParams,
) -> Result<PageResponse, ApiProblem> {
    let name = in_path("metric_name", name)?;
    Ok(querier.metric_labels(&name, &params.filter()?).await?.into())
}

async fn metric_exemplars(
    CallerQuerier(querier): CallerQuerier,
    name: InPath,
    params: QueryParams,
) -> Result<PageResponse, ApiProblem> {
    let name = in_path("metric_name", name)?;
    Ok(querier.metric_exemplars(&name, &params.filter()?).await?.into())
}

async fn metric_label_values(
    CallerQuerier(querier): CallerQuerier,
    names: Result<Path<(String, String)>, PathRejection>,
    params: QueryParams,
) -> Result<PageResponse, ApiProblem> {
    let Path((name, key)) = names.map_err(|error| ApiProblem::parameter("label_key", error.body_text()))?;
    Ok(querier
        .metric_label_values(&name, &key, &params.filter()?)
        .await?
        .into())
}

async fn messages(CallerQuerier(querier): CallerQuerier, asked: RowRequest) -> Result<Response, ApiProblem> {
    let (filter, rows, asked) = asked.filters()?;
    asked.list_shown(&querier, ListQuery::Messages(filter), &rows).await
}

fn flux_id(id: InPath) -> Result<FluxId, ApiProblem> {
    let id = in_path("flux_id", id)?;
    id.parse().map_err(|error| ApiProblem::parameter("flux_id", error))
}

/// The messages of one business signal, of all times and the oldest first unless they are asked for otherwise.
async fn messages_of(
    CallerQuerier(querier): CallerQuerier,
    id: InPath,
    asked: RowRequest,
) -> Result<Response, ApiProblem> {
    let id = flux_id(id)?;
    let (mut filter, rows, asked) = asked.filters::<MessageFilter, RowFilter>()?;
    if filter.flux_id.is_some_and(|given| given != id) {
        return Err(ApiProblem::parameter(
            "flux_id",
            format!("the path already names the flux {id}"),
        ));
    }
    filter.flux_id = Some(id);
    filter.order = filter.order.or(Some(SortOrder::Asc));
    // An index says where an id is: no clock has to be trusted.
    filter.since = filter.since.or(Some(TimePoint::EVER));
    asked.list_shown(&querier, ListQuery::Messages(filter), &rows).await
}

/// One business signal: its messages, spans and log records.
async fn flux(CallerQuerier(querier): CallerQuerier, id: InPath, asked: RowRequest) -> Result<Response, ApiProblem> {
    let id = flux_id(id)?;
    let (filter, CellFilter { cells }, asked) = asked.filters()?;
    let rows = RowFilter {
        cells,
        ..RowFilter::default()
    };
    asked.list_shown(&querier, ListQuery::Flux(id, filter), &rows).await
}

async fn dead_letters(CallerQuerier(querier): CallerQuerier, asked: RowRequest) -> Result<Response, ApiProblem> {
    let (filter, rows, asked) = asked.filters()?;
    asked.list_shown(&querier, ListQuery::DeadLetters(filter), &rows).await
}

async fn trace(CallerQuerier(querier): CallerQuerier, id: InPath, params: QueryParams) -> Result<Response, ApiProblem> {
    let id = in_path("trace_id", id)?;
    let id: TraceId = id.parse().map_err(|error| ApiProblem::parameter("trace_id", error))?;
    let found = querier.trace_cut(id, &params.filter()?).await?;
    RowRequest::of_json().listed(found).await
}

async fn metric(
    CallerQuerier(querier): CallerQuerier,
    name: InPath,
    asked: RowRequest,
) -> Result<Response, ApiProblem> {
    let name = in_path("metric_name", name)?;
    let (filter, asked) = asked.filter::<MetricFilter>()?;
    let named = MetricFilter {
        name: Some(name.clone()),
        ..filter.clone()
    };
    if filter.name.as_ref().is_none_or(|given| *given == name)
        && let Some(unchanged) = asked.unchanged(&querier, &ListQuery::Metrics(named), &RowFilter::default())
    {
        return Ok(unchanged);
    }
    let found = querier.metric(&name, &filter).await?;
    let metric = serde_json::json!({
        "name": found.name, "type": found.metric_type, "unit": found.unit, "label_keys": found.label_keys,
    });
    asked.listed(found.list.about("metric", metric)).await
}
