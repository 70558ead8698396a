//! Jaeger's query API, version 1, over the stored spans: what Jaeger's page and Grafana's data source for Jaeger ask for. It only reads.
//!
//! | path under `/jaeger/api/` | answer |
//! |---|---|
//! | `services` | names of services seen within two days, as far back as Jaeger's page looks |
//! | `services/{service}/operations`, `operations` | operations of one, seen within two days; the second with their kinds |
//! | `traces` | the newest traces with a span that meets a search, whole; or those of `traceID` |
//! | `traces/{trace_id}` | one trace |
//! | `dependencies` | how often services called one another |
//!
//! # Invariants
//!
//! - Rights, scopes, quotas and bounds are those of lists of spans. What bounds cut off is told in the `warnings` of traces.
//! - A problem has what problems of the whole API have, and in `errors` the `code` and `msg` that Jaeger's clients show.
//!
//! # Not here
//!
//! How spans are found (`query`), what parameters mean ([`search_params`]), how a trace looks ([`trace_view`]).

mod search_params;
mod trace_view;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use model::filter::TraceFilter;
use query::{AnswerMemory, JsonPage, QueryEngine};
use serde::Serialize;
use serde_json::{Value, json};

use self::search_params::{JaegerParams, TraceRequest};
use self::trace_view::TraceView;
use super::authorization::CallerQuerier;
use super::json_response;
use super::problem::ApiProblem;
use super::query_params::{InPath, in_path};

pub(crate) fn routes(querier: Arc<QueryEngine>) -> Router {
    Router::new()
        .route("/jaeger/api/services", get(services))
        .route("/jaeger/api/services/{service}/operations", get(operations_of))
        .route("/jaeger/api/operations", get(operations))
        .route("/jaeger/api/traces", get(traces))
        .route("/jaeger/api/traces/{trace_id}", get(trace))
        .route("/jaeger/api/dependencies", get(dependencies))
        .with_state(querier)
}

/// What every answer is within.
#[derive(Debug, Serialize)]
struct JaegerResponse<T> {
    data: Vec<T>,
    total: usize,
    limit: u32,
    offset: u32,
    errors: Option<Vec<Value>>,
    #[serde(skip)]
    memory: AnswerMemory,
}

impl<T> From<Vec<T>> for JaegerResponse<T> {
    fn from(data: Vec<T>) -> Self {
        Self {
            total: data.len(),
            data,
            limit: 0,
            offset: 0,
            errors: None,
            memory: AnswerMemory::default(),
        }
    }
}

impl JaegerResponse<TraceView> {
    /// The traces of spans.
    fn of_spans(mut page: JsonPage) -> Self {
        let memory = std::mem::take(&mut page.memory);
        Self {
            memory,
            ..trace_view::traces(page).into()
        }
    }
}

impl<T: Serialize> IntoResponse for JaegerResponse<T> {
    fn into_response(mut self) -> Response {
        let memory = std::mem::take(&mut self.memory);
        json_response::counted(&self, memory)
    }
}

/// A problem that says what it is to Jaeger's clients too.
#[derive(Debug)]
struct JaegerProblem(ApiProblem);

impl From<ApiProblem> for JaegerProblem {
    fn from(problem: ApiProblem) -> Self {
        Self(problem)
    }
}

impl From<query::Error> for JaegerProblem {
    fn from(error: query::Error) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for JaegerProblem {
    fn into_response(self) -> Response {
        let mut document = self.0.document();
        let mut response = self.0.into_response();
        let (status, detail) = (response.status().as_u16(), document["detail"].clone());
        let mut errors = match document["errors"].take() {
            Value::Array(errors) => errors,
            _ => vec![json!({})],
        };
        for error in &mut errors {
            error["code"] = status.into();
            error["msg"] = detail.clone();
        }
        document["errors"] = errors.into();
        document["data"] = Value::Null;
        *response.body_mut() = Body::from(document.to_string());
        response
    }
}

/// An answer of one kind of things.
type JaegerResult<T> = Result<JaegerResponse<T>, JaegerProblem>;

async fn services(CallerQuerier(querier): CallerQuerier, RawQuery(query): RawQuery) -> JaegerResult<Value> {
    JaegerParams::parse(query.as_deref(), &[])?;
    let page = querier.service_names(&search_params::recent()).await?;
    Ok(values(page, "service").into())
}

async fn operations_of(
    CallerQuerier(querier): CallerQuerier,
    service: InPath,
    RawQuery(query): RawQuery,
) -> JaegerResult<Value> {
    JaegerParams::parse(query.as_deref(), &[])?;
    let filter = TraceFilter {
        service: Some(in_path("service", service)?),
        ..search_params::recent()
    };
    let mut names = values(querier.operations(&filter).await?, "span_name");
    // They are sorted; a name is there for each of its kinds.
    names.dedup();
    Ok(names.into())
}

async fn operations(CallerQuerier(querier): CallerQuerier, RawQuery(query): RawQuery) -> JaegerResult<Value> {
    let params = JaegerParams::parse(query.as_deref(), &["service", "spanKind"])?;
    let page = querier.operations(&params.operations()?).await?;
    let named = page.rows.into_iter().map(|row| {
        let kind = row.get("span_kind").and_then(Value::as_str).unwrap_or_default();
        json!({ "name": row.get("span_name"), "spanKind": kind })
    });
    Ok(named.collect::<Vec<_>>().into())
}

async fn traces(CallerQuerier(querier): CallerQuerier, RawQuery(query): RawQuery) -> JaegerResult<TraceView> {
    let page = match TraceRequest::parse(query.as_deref())? {
        TraceRequest::Ids(ids) => querier.spans_of_traces(&ids).await?,
        TraceRequest::Search(search) => querier.whole_traces(&search).await?,
    };
    Ok(JaegerResponse::of_spans(page))
}

async fn trace(
    CallerQuerier(querier): CallerQuerier,
    id: InPath,
    RawQuery(query): RawQuery,
) -> JaegerResult<TraceView> {
    // Hints of newer pages, and how Jaeger's server would write the answer.
    JaegerParams::parse(query.as_deref(), &["start", "end", "raw", "prettyPrint"])?;
    let id = search_params::trace_id("trace_id", &in_path("trace_id", id)?)?;
    Ok(JaegerResponse::of_spans(querier.spans_of_traces(&[id]).await?))
}

async fn dependencies(CallerQuerier(querier): CallerQuerier, RawQuery(query): RawQuery) -> JaegerResult<Value> {
    let params = JaegerParams::parse(query.as_deref(), &["endTs", "lookback"])?;
    let page = querier.dependencies(&params.dependencies()?).await?;
    let links = page
        .rows
        .into_iter()
        .map(|row| json!({ "parent": row.get("caller"), "child": row.get("callee"), "callCount": row.get("calls") }));
    Ok(links.collect::<Vec<_>>().into())
}

/// The values of one column.
fn values(page: JsonPage, column: &str) -> Vec<Value> {
    let rows = page.rows.into_iter();
    rows.filter_map(|mut row| row.remove(column)).collect()
}
