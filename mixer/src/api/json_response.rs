//! Answers that are always JSON: one thing, and lists that are no rows of a table.

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use query::AnswerMemory;
use serde::Serialize;
use serde_json::{Map, Value};

/// A text that is counted as memory of queries until it has been sent.
struct CountedBody {
    json: Vec<u8>,
    _memory: AnswerMemory,
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

/// An answer that holds memory of queries until it has been sent.
pub(super) fn counted<T: Serialize>(answer: &T, memory: AnswerMemory) -> Response {
    let Ok(json) = serde_json::to_vec(answer) else {
        // Which says what cannot be written.
        return Json(answer).into_response();
    };
    let body = CountedBody { json, _memory: memory };
    let mut response = Body::from(Bytes::from_owner(body)).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// One thing.
#[derive(Debug, Serialize)]
pub(super) struct ItemResponse<T> {
    pub(super) data: T,
}

impl<T: Serialize> IntoResponse for ItemResponse<T> {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

/// What every list answers.
#[derive(Debug, Serialize)]
pub(super) struct ListResponse<T> {
    pub(super) data: Vec<T>,
    pub(super) next_cursor: Option<String>,
    pub(super) stats: Map<String, Value>,
    /// Why some are missing; absent when none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial: Option<String>,
}

impl<T> ListResponse<T> {
    /// A list that is always whole.
    pub(super) fn whole(data: Vec<T>) -> Self {
        let stats = Map::from_iter([("rows".to_owned(), data.len().into())]);
        Self {
            data,
            next_cursor: None,
            stats,
            partial: None,
        }
    }
}

impl<T: Serialize> IntoResponse for ListResponse<T> {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}
