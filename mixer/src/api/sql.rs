//! `POST /api/v1/sql`: one statement that only reads, its rows streamed in the format that is asked for ([`super::content_negotiation`],
//! [`super::row_response`]).
//!
//! The body is `{"query": …, "parameters": […] or {…}, "limit": n}`, or the text alone as `application/sql` or `text/plain`.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use query::{QueryEngine, SqlStatement};

use super::authorization::CallerQuerier;
use super::problem::ApiProblem;
use super::row_response::RowRequest;
use crate::self_tracing::WorkSpan;

/// The largest body: a text with all of it escaped, and parameters.
const MAX_BODY: usize = 512 << 10;

pub(crate) fn routes(querier: Arc<QueryEngine>) -> Router {
    Router::new()
        .route("/api/v1/sql", post(sql))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(querier)
}

async fn sql(
    CallerQuerier(querier): CallerQuerier,
    asked: RowRequest,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    asked.reject_other_params()?;
    let statement = statement(&headers, body)?;
    let span = WorkSpan::of_statement(&statement.query);
    let answer = querier.sql(&statement).await;
    span.end_with(&answer);
    asked.selected(answer?).await
}

fn statement(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<SqlStatement, ApiProblem> {
    let body = body.map_err(|error| ApiProblem::body(error.status(), error.body_text()))?;
    let bad = |reason: String| ApiProblem::body(StatusCode::BAD_REQUEST, reason);
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    match kind.as_deref() {
        None | Some("application/json") => serde_json::from_slice(&body).map_err(|error| {
            bad(format!(
                "the body: {error}; it is {{\"query\": \"SELECT …\", \"parameters\": […], \"limit\": n}}"
            ))
        }),
        Some("application/sql" | "text/plain") => match String::from_utf8(body.into()) {
            Ok(query) => Ok(SqlStatement {
                query,
                ..SqlStatement::default()
            }),
            Err(error) => Err(bad(format!("the body: {error}"))),
        },
        Some(other) => {
            let detail = format!("{CONTENT_TYPE} {other:?} is none of application/json, application/sql, text/plain");
            Err(ApiProblem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}
