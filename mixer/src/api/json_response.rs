//! Answers that are always JSON: one thing, and lists that are no rows of a table.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

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
