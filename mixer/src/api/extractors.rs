//! Changes that requests ask for: who asks, what the body says, and how a change comes to its end; and reads that may block.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use super::authorization::ClientConnection;
use super::problem::ApiProblem;
use crate::access::ApiCaller;
use crate::registry::{AuditActor, CallerInterface};

/// Who asks for a change, for the audit log.
#[derive(Debug)]
pub(super) struct RequestActor(pub(super) AuditActor);

impl<S: Sync> FromRequestParts<S> for RequestActor {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let connection = parts.extensions.get::<ClientConnection>();
        let caller = parts.extensions.get::<Arc<ApiCaller>>();
        Ok(Self(AuditActor::of_caller(
            CallerInterface::Api,
            connection.map(|connection| connection.ends.peer.ip()),
            caller.map(AsRef::as_ref),
        )))
    }
}

/// A service, and what changes in it go through.
#[derive(Debug)]
pub(super) struct ServiceHandle<R> {
    pub(super) room: Arc<R>,
    changes: TaskTracker,
}

impl<R> Clone for ServiceHandle<R> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.room), self.changes.clone())
    }
}

impl<R> ServiceHandle<R> {
    pub(super) const fn new(room: Arc<R>, changes: TaskTracker) -> Self {
        Self { room, changes }
    }

    /// What the service reads, on a thread that may block.
    pub(super) async fn read<T, E>(
        &self,
        read: impl FnOnce(&R) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiProblem>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
        E: Send + 'static,
        ApiProblem: From<E>,
    {
        let room = Arc::clone(&self.room);
        let ended = tokio::task::spawn_blocking(move || read(&room)).await;
        Ok(ended.map_err(|error| ApiProblem::internal(format!("the read task failed: {error}")))??)
    }

    /// Carries a change to its end even if its requester leaves: what is in the registry must be told to the Rack.
    /// Closing the API waits for it.
    pub(super) async fn run_to_completion<T, E>(
        &self,
        change: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, ApiProblem>
    where
        T: Send + 'static,
        E: Send + 'static,
        ApiProblem: From<E>,
    {
        let ended = self.changes.spawn(change).await;
        Ok(ended.map_err(|error| ApiProblem::internal(format!("the write task failed: {error}")))??)
    }
}

pub(super) type BodyResult = Result<Bytes, BytesRejection>;

/// A body without anything to say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EmptyBody {}

/// A JSON body; an empty one says nothing.
pub(super) fn body<T: Default + for<'de> Deserialize<'de>>(sent: BodyResult) -> Result<T, ApiProblem> {
    let bytes = whole(sent)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    // Serde takes a list for an object, field by field.
    if bytes.trim_ascii_start().starts_with(b"[") {
        let detail = "the body: a list, where an object belongs";
        return Err(ApiProblem::body(StatusCode::BAD_REQUEST, detail));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| ApiProblem::body(StatusCode::BAD_REQUEST, format!("the body: {error}")))
}

/// The bytes of a body, if all of it came.
pub(super) fn whole(sent: BodyResult) -> Result<Bytes, ApiProblem> {
    sent.map_err(|error| ApiProblem::body(error.status(), error.body_text()))
}
