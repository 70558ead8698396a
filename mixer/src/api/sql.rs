//! `POST /api/v1/sql`: one statement that only reads, its rows streamed in the format that is asked for.
//!
//! | asked by | JSON | JSON lines | CSV | Arrow |
//! |---|---|---|---|---|
//! | `?format=` | `json` | `ndjson` | `csv` | `arrow` |
//! | `Accept` | `application/json` | `application/x-ndjson` | `text/csv` | `application/vnd.apache.arrow.stream` |
//!
//! The body is `{"query": …, "parameters": […] or {…}, "limit": n}`, or the text alone as `application/sql` or `text/plain`.
//!
//! # Invariants
//!
//! - An answer that cannot be whole never looks whole: JSON says so in its end, the others end with an error or without their
//!   proper end. Which rows an answer has is decided by `query`.
//! - A client that leaves drops the body, and with it the statement.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use query::{Querier, SqlAnswer, SqlFormat, SqlWriter, Statement};
use serde::Deserialize;

use super::params::Params;
use super::problem::Problem;

/// The largest body: a text with all of it escaped, and parameters.
const MAX_BODY: usize = 512 << 10;
/// So many bytes are gathered before they are sent.
const CHUNK: usize = 64 << 10;

const NDJSON: &str = "application/x-ndjson";
const ARROW: &str = "application/vnd.apache.arrow.stream";

pub(crate) fn routes(querier: Arc<Querier>) -> Router {
    Router::new()
        .route("/api/v1/sql", post(sql))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(querier)
}

/// The parameters of the path.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Json,
    Ndjson,
    Csv,
    Arrow,
}

async fn sql(
    State(querier): State<Arc<Querier>>,
    params: Params,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let wanted: Wanted = params.filter()?;
    let format = match wanted.format {
        Some(Format::Json) => SqlFormat::Json,
        Some(Format::Ndjson) => SqlFormat::Ndjson,
        Some(Format::Csv) => SqlFormat::Csv,
        Some(Format::Arrow) => SqlFormat::Arrow,
        None => accepted(&headers)?,
    };
    let statement = statement(&headers, body)?;
    let answer = querier.sql(&statement).await?;
    let writer = SqlWriter::new(format, answer.columns(), &answer.schema())?;
    let mut response = Body::from_stream(chunks(answer, writer, format)).into_response();
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(format)));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn statement(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Statement, Problem> {
    let body = body.map_err(|error| Problem::body(error.status(), error.body_text()))?;
    let bad = |reason: String| Problem::body(StatusCode::BAD_REQUEST, reason);
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    match kind.as_deref() {
        None | Some("application/json") => serde_json::from_slice(&body).map_err(|error| {
            bad(format!(
                "the body: {error}; it is {{\"query\": \"SELECT …\", \"parameters\": […], \"limit\": n}}"
            ))
        }),
        Some("application/sql" | "text/plain") => match String::from_utf8(body.into()) {
            Ok(query) => Ok(Statement {
                query,
                ..Statement::default()
            }),
            Err(error) => Err(bad(format!("the body: {error}"))),
        },
        Some(other) => {
            let detail = format!("{CONTENT_TYPE} {other:?} is none of application/json, application/sql, text/plain");
            Err(Problem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}

const fn content_type(format: SqlFormat) -> &'static str {
    match format {
        SqlFormat::Json => "application/json",
        SqlFormat::Ndjson => NDJSON,
        SqlFormat::Csv => "text/csv; charset=utf-8",
        SqlFormat::Arrow => ARROW,
    }
}

/// The format that a client likes best of those that there are; the earlier one where it likes two as much.
fn accepted(headers: &HeaderMap) -> Result<SqlFormat, Problem> {
    let mut best: Option<(SqlFormat, f32)> = None;
    let mut asked = false;
    for value in headers.get_all(ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            asked = true;
            let (kind, weight) = weighed(range);
            let Some(format) = format_of(&kind) else { continue };
            if weight > best.map_or(0.0, |(_, weight)| weight) {
                best = Some((format, weight));
            }
        }
    }
    match best {
        Some((format, _)) => Ok(format),
        None if asked => Err(Problem::not_acceptable(&[
            "application/json",
            NDJSON,
            "text/csv",
            ARROW,
        ])),
        None => Ok(SqlFormat::Json),
    }
}

/// A media range and how much it is liked, from 0 to 1.
fn weighed(range: &str) -> (String, f32) {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
    (kind, weight.unwrap_or(1.0))
}

fn format_of(kind: &str) -> Option<SqlFormat> {
    match kind {
        "application/json" | "application/*" | "*/*" => Some(SqlFormat::Json),
        NDJSON | "application/ndjson" | "application/jsonl" => Some(SqlFormat::Ndjson),
        "text/csv" | "text/*" => Some(SqlFormat::Csv),
        ARROW => Some(SqlFormat::Arrow),
        _ => None,
    }
}

/// What is left of an answer to be sent.
struct Sending {
    answer: SqlAnswer,
    writer: SqlWriter,
    format: SqlFormat,
    /// Why the body ends without its proper end, once what there was is sent.
    failed: Option<Problem>,
    ended: bool,
}

fn chunks(
    answer: SqlAnswer,
    writer: SqlWriter,
    format: SqlFormat,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    let sending = Sending {
        answer,
        writer,
        format,
        failed: None,
        ended: false,
    };
    futures::stream::unfold(sending, |mut sending| async move {
        let chunk = sending.next().await?;
        Some((chunk, sending))
    })
}

impl Sending {
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        if let Some(problem) = self.failed.take() {
            self.ended = true;
            return Some(Err(std::io::Error::other(problem.detail().to_owned())));
        }
        let mut chunk = self.writer.take();
        while chunk.len() < CHUNK && !self.ended {
            if let Err(problem) = self.more().await {
                problem.log();
                self.writer.fail(&problem.document());
                // What says itself that it failed has its proper end.
                self.failed = (self.format != SqlFormat::Json).then_some(problem);
                self.ended = true;
            }
            chunk.append(&mut self.writer.take());
        }
        (!chunk.is_empty()).then(|| Ok(chunk.into()))
    }

    async fn more(&mut self) -> Result<(), Problem> {
        if let Some(batch) = self.answer.next().await? {
            return Ok(self.writer.write(&batch)?);
        }
        if let Some(most) = self.answer.cut_at()
            && self.format != SqlFormat::Json
        {
            return Err(Problem::too_many_rows(most));
        }
        self.ended = true;
        let stats = self.answer.stats().cloned().unwrap_or_default();
        Ok(self.writer.end(&stats)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())])
    }

    #[test]
    fn the_format_is_the_one_that_the_client_likes_best() {
        for (accept, format) in [
            ("*/*", SqlFormat::Json),
            ("text/html, application/xhtml+xml, */*;q=0.8", SqlFormat::Json),
            ("text/csv", SqlFormat::Csv),
            ("application/json;q=0.5, text/csv", SqlFormat::Csv),
            ("application/x-ndjson, application/json", SqlFormat::Ndjson),
            ("application/vnd.apache.arrow.stream; q=1", SqlFormat::Arrow),
        ] {
            assert_eq!(accepted(&headers(accept)).unwrap(), format, "{accept}");
        }
        assert!(accepted(&headers("image/png")).is_err());
        assert!(accepted(&headers("text/csv;q=0")).is_err());
        assert_eq!(accepted(&HeaderMap::new()).unwrap(), SqlFormat::Json);
    }
}
