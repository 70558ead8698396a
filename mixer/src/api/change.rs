//! Changes that requests ask for: who asks, what the body says, and how a change comes to its end; and reads that may block.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use super::problem::Problem;
use crate::registry::Actor;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Who asks for a change, for the audit log.
#[derive(Debug)]
pub(super) struct By(pub(super) Actor);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        Ok(Self(Actor::Api(peer.map(|Peer(ip)| ip.to_canonical()))))
    }
}

/// A room, and what changes in it go through.
#[derive(Debug)]
pub(super) struct Desk<R> {
    pub(super) room: Arc<R>,
    changes: TaskTracker,
}

impl<R> Clone for Desk<R> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.room), self.changes.clone())
    }
}

impl<R> Desk<R> {
    pub(super) const fn new(room: Arc<R>, changes: TaskTracker) -> Self {
        Self { room, changes }
    }

    /// What the room reads, on a thread that may block.
    pub(super) async fn read<T, E>(&self, read: impl FnOnce(&R) -> Result<T, E> + Send + 'static) -> Result<T, Problem>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        let room = Arc::clone(&self.room);
        let ended = tokio::task::spawn_blocking(move || read(&room)).await;
        Ok(ended.map_err(|error| Problem::internal(format!("the reading stopped: {error}")))??)
    }

    /// Carries a change to its end even if its requester leaves: what is in the registry must be told to the Rack.
    /// Closing the API waits for it.
    pub(super) async fn carry<T, E>(
        &self,
        change: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        let ended = self.changes.spawn(change).await;
        Ok(ended.map_err(|error| Problem::internal(format!("the change stopped: {error}")))??)
    }
}

pub(super) type Body = Result<Bytes, BytesRejection>;

/// A body without anything to say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Nothing {}

/// A JSON body; an empty one says nothing.
pub(super) fn body<T: Default + for<'de> Deserialize<'de>>(sent: Body) -> Result<T, Problem> {
    let bytes = whole(sent)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes).map_err(|error| Problem::body(StatusCode::BAD_REQUEST, format!("the body: {error}")))
}

/// The bytes of a body, if all of it came.
pub(super) fn whole(sent: Body) -> Result<Bytes, Problem> {
    sent.map_err(|error| Problem::body(error.status(), error.body_text()))
}
