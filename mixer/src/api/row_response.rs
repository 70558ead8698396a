//! Rows as the body of a response, in the format that was asked for: lists, and answers of statements as they come.
//!
//! Where JSON has a place for the cursor and the stats of a list, the other formats have headers: `X-Next-Cursor`, absent after the
//! last row, and `X-Query-Stats`, an object in ASCII. In all formats `X-Partial` says why rows are missing; it is absent when none are.
//!
//! # Invariants
//!
//! - An answer that cannot be whole never looks whole: JSON says so in its end, the others end with an error or without their
//!   proper end; what is known before the first row is in a header of each. Which rows an answer has is decided by `query`.
//! - An answer that fails before its first chunk is full has the status of its failure, and nothing of it is sent.
//! - What is told by the proper end of a body alone is not sent over HTTP/1.0, where the end is that of the connection.
//! - A chunk of text or a batch of Arrow ends with the row that fills it, however many rows or bytes were found at once.
//! - A list's rows count as memory of queries until the body is dropped: at its end, or when the client has had its time (`server`).
//! - A client that leaves drops the body, and with it the statement.
//! - Who has an answer with a tag that is still the answer's is told so (304), and no query runs.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use model::filter::RowFilter;
use query::{ListAnswer, ListQuery, QueryEngine, QueryStats, RowFormat, RowWriter, SqlAnswer, SqlStats};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::content_negotiation::{accepted, content_type};
use super::problem::ApiProblem;
use super::query_params::{FORMAT, QueryParams};
use crate::self_tracing::WorkSpan;

/// So many bytes are gathered before they are sent.
const CHUNK: usize = 64 << 10;

const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");
const PARTIAL: HeaderName = HeaderName::from_static("x-partial");
const QUERY_STATS: HeaderName = HeaderName::from_static("x-query-stats");

/// A request for rows in a format.
pub(crate) struct RowRequest {
    params: QueryParams,
    format: RowFormat,
    /// Tags of answers that the client has.
    known: Vec<String>,
    version: Version,
}

impl<S: Sync> FromRequestParts<S> for RowRequest {
    type Rejection = ApiProblem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        let mut params = QueryParams::from_request_parts(parts, state).await?;
        let format = match params.take_format()? {
            Some(format) => format,
            None => accepted(&parts.headers)?,
        };
        Ok(Self {
            params,
            format,
            known: known_tags(&parts.headers),
            version: parts.version,
        })
    }
}

impl RowRequest {
    /// The filter that the parameters spell, and the rest of the request.
    pub(crate) fn filter<F: DeserializeOwned>(self) -> Result<(F, Self), ApiProblem> {
        let filter = self.params.filter()?;
        let params = QueryParams::default();
        Ok((filter, Self { params, ..self }))
    }

    /// The two filters that the parameters spell, such as which rows and how they are shown, and the rest of the request.
    pub(crate) fn filters<F: DeserializeOwned, G: DeserializeOwned>(self) -> Result<(F, G, Self), ApiProblem> {
        let (filter, rows) = self.params.filters()?;
        let params = QueryParams::default();
        Ok((filter, rows, Self { params, ..self }))
    }

    /// Refuses parameters beside the format.
    pub(crate) fn reject_other_params(&self) -> Result<(), ApiProblem> {
        self.params.reject_others(FORMAT)
    }

    /// Answers with a list.
    pub(crate) async fn list(self, querier: &QueryEngine, query: ListQuery) -> Result<Response, ApiProblem> {
        self.list_shown(querier, query, &RowFilter::default()).await
    }

    /// Answers with a list whose rows are shown in a way.
    pub(crate) async fn list_shown(
        self,
        querier: &QueryEngine,
        query: ListQuery,
        rows: &RowFilter,
    ) -> Result<Response, ApiProblem> {
        if let Some(unchanged) = self.unchanged(querier, &query, rows) {
            return Ok(unchanged);
        }
        let span = WorkSpan::of_list(collection(&query));
        let found = querier.list_rows(&query, rows).await;
        span.end_with(&found);
        self.listed(found?).await
    }

    /// That the client has the answer already, if it has.
    pub(crate) fn unchanged(&self, querier: &QueryEngine, query: &ListQuery, rows: &RowFilter) -> Option<Response> {
        if self.known.is_empty() {
            return None;
        }
        let tag = Some(self.tag(querier.tag(query, rows)?)).filter(|tag| self.known.contains(tag))?;
        Some((StatusCode::NOT_MODIFIED, caching(Some(&tag))).into_response())
    }

    /// A request for JSON by a path that has it alone.
    pub(crate) fn of_json() -> Self {
        Self {
            params: QueryParams::default(),
            format: RowFormat::Json,
            known: Vec::new(),
            version: Version::HTTP_11,
        }
    }

    /// Answers with rows.
    pub(crate) async fn listed(self, list: ListAnswer) -> Result<Response, ApiProblem> {
        let mut headers = caching(list.tag.map(|tag| self.tag(tag)).as_deref());
        add_partial(&mut headers, list.stats.partial.as_deref());
        if self.format != RowFormat::Json {
            let cursor = list.next_cursor.as_deref().map(HeaderValue::try_from);
            if let Some(Ok(cursor)) = cursor {
                headers.insert(NEXT_CURSOR, cursor);
            }
            let stats = serde_json::to_string(&list.stats).unwrap_or_default();
            if let Ok(stats) = HeaderValue::try_from(ascii(&stats)) {
                headers.insert(QUERY_STATS, stats);
            }
        }
        let writer = list.writer(self.format)?;
        let body = self
            .body(ResultSource::List(Box::new(list), ListSection::Rows), writer)
            .await?;
        Ok((headers, body).into_response())
    }

    /// Answers with the rows of a statement.
    pub(crate) async fn selected(self, answer: SqlAnswer) -> Result<Response, ApiProblem> {
        let writer = answer.writer(self.format)?;
        let mut headers = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("no-store"))]);
        add_partial(&mut headers, answer.partial());
        Ok((headers, self.body(ResultSource::Sql(Box::new(answer)), writer).await?).into_response())
    }

    /// Rows as a body: with its length where it is one piece, else piece by piece.
    async fn body(&self, rows: ResultSource, writer: RowWriter) -> Result<Response, ApiProblem> {
        let mut sending = RowBodyStream {
            rows,
            batch: None,
            writer,
            format: self.format,
            failed: None,
            ended: false,
        };
        // Before anything is sent a failure has a status of its own.
        sending.fill().await?;
        let first = Bytes::from(sending.writer.take());
        let body = if sending.ended {
            Body::from(first)
        } else if self.version < Version::HTTP_11 && self.format != RowFormat::Json {
            return Err(ApiProblem::http_version());
        } else {
            let rest = futures::stream::unfold(sending, |mut sending| async move {
                let chunk = sending.next().await?;
                Some((chunk, sending))
            });
            // Compression polls it once more after its end.
            Body::from_stream(futures::stream::iter([Ok(first)]).chain(rest).fuse())
        };
        let kind = [(CONTENT_TYPE, HeaderValue::from_static(content_type(self.format)))];
        Ok((kind, body).into_response())
    }

    /// How a tag is written: a weak one, because stats and packing differ from answer to answer.
    fn tag(&self, tag: u64) -> String {
        let format = serde_json::to_value(self.format).unwrap_or_default();
        format!("W/\"{tag:016x}-{}\"", format.as_str().unwrap_or_default())
    }
}

/// What a list is of.
const fn collection(query: &ListQuery) -> &'static str {
    match query {
        ListQuery::Logs(_) => "logs",
        ListQuery::Traces(_) => "traces",
        ListQuery::Metrics(_) => "metrics",
        ListQuery::Messages(_) => "messages",
        ListQuery::DeadLetters(_) | ListQuery::Letters(_) => "dead_letters",
        ListQuery::Flux(..) => "flux",
    }
}

/// The tags that a request names, as weak ones.
pub(super) fn known_tags(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    let tags = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let weak = tags.map(|tag| format!("W/{}", tag.trim().trim_start_matches("W/")));
    weak.collect()
}

fn caching(tag: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(VARY, HeaderValue::from(ACCEPT));
    // What is kept is asked for again each time: rows may come late.
    let keep = if tag.is_some() { "no-cache" } else { "no-store" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    if let Some(Ok(tag)) = tag.map(HeaderValue::try_from) {
        headers.insert(ETAG, tag);
    }
    headers
}

/// Says why rows are missing, if some are.
fn add_partial(headers: &mut HeaderMap, partial: Option<&str>) {
    if let Some(Ok(reason)) = partial.map(|reason| HeaderValue::try_from(ascii(reason))) {
        headers.insert(PARTIAL, reason);
    }
}

/// A text with what a header cannot hold escaped as in JSON.
fn ascii(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ b' '..=b'~') => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("\\u{unit:04x}")),
        }
    }
    escaped
}

/// Where rows come from.
enum ResultSource {
    Sql(Box<SqlAnswer>),
    /// A list, and what is to be sent of it next.
    List(Box<ListAnswer>, ListSection),
}

enum ListSection {
    Rows,
    Beside,
    End,
}

/// What JSON says after the rows of a statement.
#[derive(Serialize)]
struct StatementTrailer<'a> {
    stats: &'a SqlStats,
}

/// What JSON says after the rows of a list.
#[derive(Serialize)]
struct ListTrailer<'a> {
    next_cursor: Option<&'a str>,
    stats: &'a QueryStats,
    /// Why rows are missing; absent when none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<&'a str>,
    /// What the rows belong to.
    #[serde(flatten)]
    about: Option<BTreeMap<&'a str, &'a Value>>,
}

/// What is left of an answer to be sent.
struct RowBodyStream {
    rows: ResultSource,
    /// Rows of which so many were written.
    batch: Option<(RecordBatch, usize)>,
    writer: RowWriter,
    format: RowFormat,
    /// Why the body ends without its proper end, once what there was is sent.
    failed: Option<ApiProblem>,
    ended: bool,
}

impl RowBodyStream {
    /// The next chunk; an error where the body ends without its proper end.
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        if let Err(problem) = self.fill().await {
            problem.log();
            self.writer.fail(&problem.document());
            // What says itself that it failed has its proper end.
            self.failed = (self.format != RowFormat::Json).then_some(problem);
            self.ended = true;
        }
        let chunk = self.writer.take();
        if chunk.is_empty() {
            let failed = self.failed.take()?;
            return Some(Err(std::io::Error::other(failed.detail().to_owned())));
        }
        Some(Ok(chunk.into()))
    }

    /// Rows until there are enough for a chunk, or no more.
    async fn fill(&mut self) -> Result<(), ApiProblem> {
        while self.writer.pending() < CHUNK && !self.ended {
            self.more().await?;
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<(), ApiProblem> {
        if let Some((batch, written)) = &mut self.batch {
            *written = self.writer.write(batch, *written, CHUNK)?;
            if *written == batch.num_rows() {
                self.batch = None;
            }
            return Ok(());
        }
        match &mut self.rows {
            ResultSource::Sql(answer) => {
                if let Some(batch) = answer.next().await? {
                    self.batch = Some((batch, 0));
                    return Ok(());
                }
                if let Some(most) = answer.cut_at()
                    && self.format != RowFormat::Json
                {
                    return Err(ApiProblem::too_many_rows(most));
                }
                let stats = answer.stats().cloned().unwrap_or_default();
                self.writer.end(&StatementTrailer { stats: &stats })?;
            }
            ResultSource::List(list, next) => {
                match std::mem::replace(next, ListSection::End) {
                    ListSection::Rows => {
                        *next = ListSection::Beside;
                        self.batch = Some((list.rows().clone(), 0));
                        return Ok(());
                    }
                    ListSection::Beside => {
                        if let Some((name, beside)) = &list.beside
                            && self.format == RowFormat::Json
                        {
                            beside.write_beside(name, &mut self.writer);
                            self.batch = Some((beside.rows().clone(), 0));
                        }
                        return Ok(());
                    }
                    ListSection::End => {}
                }
                let about = list.about.as_ref();
                self.writer.end(&ListTrailer {
                    next_cursor: list.next_cursor.as_deref(),
                    stats: &list.stats,
                    partial: list.stats.partial.as_deref(),
                    about: about.map(|(name, value)| BTreeMap::from([(*name, value)])),
                })?;
            }
        }
        self.ended = true;
        Ok(())
    }
}
