//! The status that an answer is counted with in the metrics, where its own says nothing or is for the client alone.

use axum::response::Response;
use http::StatusCode;

/// In the extensions of an answer. Whoever knows best says it first: those that only write an answer in another form keep it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedStatus(pub(super) StatusCode);

impl CountedStatus {
    /// That of an answer.
    pub(super) fn of(answer: &Response) -> StatusCode {
        let counted = answer.extensions().get::<Self>();
        counted.map_or_else(|| answer.status(), |counted| counted.0)
    }
}
