//! `POST /api/v1/write`: Prometheus' remote write, 1.0 and 2.0.
//!
//! | case | status |
//! |---|---|
//! | stored | 204, with how many samples, histograms and exemplars |
//! | some records refused | 400 with the same; the others are stored, these are dead letters, and Prometheus sends none of them again |
//! | malformed, too large, an unknown message | 400, 413, 415 |
//! | no place, a quota used up, a repetition while the first one is stored | 503 with `Retry-After` |

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use model::Table;
use protocols::otlp::PROTOBUF;
use protocols::remote_write::{RecordKind, V1_MESSAGE, V2_MESSAGE, WriteSettings, WriteVersion};

use super::body;
use super::body_format::ForeignFormat;
use super::ingest_handler::{BodyFraming, IngestHandler, StoredBody};
use super::senders::{SenderAnswers, SenderProtocol, SentBody, refused_records};
use crate::access::ApiCaller;
use crate::api::problem::ApiProblem;

/// Prometheus' own path.
pub(super) const PATH: &str = "/api/v1/write";
/// How many records of each kind were written: without, a client of 2.0 takes all for lost.
const WRITTEN: [(RecordKind, &str); 3] = [
    (RecordKind::Sample, "x-prometheus-remote-write-samples-written"),
    (RecordKind::Histogram, "x-prometheus-remote-write-histograms-written"),
    (RecordKind::Exemplar, "x-prometheus-remote-write-exemplars-written"),
];

/// The route.
pub(in crate::api) fn remote_write_routes(door: IngestHandler, answers: SenderAnswers) -> Router {
    let protocol = SenderProtocol {
        door,
        clock: answers.clock,
        entity: answers.prometheus_entity,
        table: Table::Metrics,
        name: "prometheus",
        content_type: PROTOBUF,
    };
    protocol.route(PATH, write)
}

/// Which message a body is: that of version 1.0 if nothing more is said.
fn version(headers: &HeaderMap) -> Result<WriteVersion, ApiProblem> {
    let said = headers.get(CONTENT_TYPE).map_or(Ok(""), |value| value.to_str());
    let said = said.unwrap_or("?");
    let mut parts = said.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let message = parts.find_map(|part| part.strip_prefix("proto="));
    match message.map(|message| message.trim_matches('"')) {
        None | Some(V1_MESSAGE) if kind.eq_ignore_ascii_case(PROTOBUF) => Ok(WriteVersion::V1),
        Some(V2_MESSAGE) if kind.eq_ignore_ascii_case(PROTOBUF) => Ok(WriteVersion::V2),
        _ => Err(ApiProblem::body(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!(
                "Content-Type {said:?} is none of remote write: known are {PROTOBUF} with the messages {V1_MESSAGE} and {V2_MESSAGE}"
            ),
        )),
    }
}

async fn write(caller: Arc<ApiCaller>, protocol: SenderProtocol, request: Request) -> Result<Response, ApiProblem> {
    let kinds: Arc<OnceLock<Vec<RecordKind>>> = Arc::default();
    let told = Arc::clone(&kinds);
    let sent_body = move |headers: &HeaderMap| -> Result<SentBody, ApiProblem> {
        let version = version(headers)?;
        let write = WriteSettings { version, kinds: told };
        let packing = body::snappy_packing(headers)?;
        Ok((ForeignFormat::RemoteWrite(write), packing, BodyFraming::Nothing))
    };
    let stored = protocol.store(&caller, request, sent_body).await?;
    let mut response = match stored.rows.rejected_total {
        0 => StatusCode::NO_CONTENT.into_response(),
        _ => refused_records(&stored).into_response(),
    };
    let kinds = kinds.get().map(Vec::as_slice).unwrap_or_default();
    for (kind, header) in WRITTEN {
        let count = written(kinds, &stored, kind);
        response.headers_mut().insert(header, HeaderValue::from(count));
    }
    Ok(response)
}

/// How many records of a kind were not refused; what says only that there is no value counts as well.
fn written(kinds: &[RecordKind], stored: &StoredBody, kind: RecordKind) -> usize {
    let all = kinds.iter().enumerate().filter(|(_, other)| **other == kind);
    all.filter(|(at, _)| !stored.is_refused(*at)).count()
}
