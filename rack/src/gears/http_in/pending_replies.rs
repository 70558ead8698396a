//! The requests that wait for a reply, each under an id that its message carries.
//!
//! # Invariants
//!
//! - An id is never used again, not by a later life of the gear either: a reply answers the request that its message came from,
//!   or is rejected.
//! - A request is answered once. One whose caller has left, or has waited too long, is forgotten.
//! - There are no more of them than connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::http::StatusCode;
use futures::FutureExt;
use model::Timestamp;
use model::message::Message;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::gears::{GearContext, GearError, GearFuture, PassiveGear};
use crate::inbox::InputMessage;

/// The fact that names a message's request.
pub(super) const REQUEST: &str = "http.request";
/// The fact that says a reply's status.
const STATUS: &str = "http.response.status_code";

/// Who waits for replies.
pub(super) struct PendingHttpReplies {
    within: Duration,
    /// When this life began, in microseconds.
    life: AtomicI64,
    made: AtomicU64,
    open: Mutex<HashMap<String, oneshot::Sender<(StatusCode, Message)>>>,
}

impl PendingHttpReplies {
    pub(super) fn new(within: Duration) -> Self {
        Self {
            within,
            life: AtomicI64::default(),
            made: AtomicU64::default(),
            open: Mutex::default(),
        }
    }

    /// A life of the gear begins.
    pub(super) fn begin(&self, now: Timestamp) {
        self.life.store(now.micros(), Relaxed);
    }

    /// One more request.
    pub(super) fn expect(self: &Arc<Self>) -> PendingHttpReply {
        let number = self.made.fetch_add(1, Relaxed);
        let id = format!("{:x}-{number}", self.life.load(Relaxed));
        let (give, reply) = oneshot::channel();
        self.open.lock().insert(id.clone(), give);
        PendingHttpReply {
            waiting: Arc::clone(self),
            id,
            reply,
        }
    }
}

/// A request that waits; forgotten when it is dropped.
pub(super) struct PendingHttpReply {
    waiting: Arc<PendingHttpReplies>,
    id: String,
    reply: oneshot::Receiver<(StatusCode, Message)>,
}

impl PendingHttpReply {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn within(&self) -> Duration {
        self.waiting.within
    }

    /// The reply and its status; none where none came in time.
    pub(super) async fn reply(mut self) -> Option<(StatusCode, Message)> {
        let reply = tokio::time::timeout(self.waiting.within, &mut self.reply).await;
        reply.ok()?.ok()
    }
}

impl Drop for PendingHttpReply {
    fn drop(&mut self) {
        self.waiting.open.lock().remove(&self.id);
    }
}

/// The half that takes replies.
pub(super) struct HttpReplyHandler(pub(super) Option<Arc<PendingHttpReplies>>);

impl PassiveGear for HttpReplyHandler {
    fn process<'a>(&'a mut self, _: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move { self.take(delivery.message).map_err(GearError::Rejected) }.boxed()
    }
}

impl HttpReplyHandler {
    fn take(&self, reply: Message) -> Result<(), String> {
        let waiting = self.0.as_ref();
        let waiting = waiting.ok_or("nobody waits for replies: set reply_within")?;
        let id = reply.meta.get(REQUEST).and_then(Value::as_str).ok_or_else(|| {
            format!("a reply names no request: {REQUEST} must be in its meta, as in messages from port out")
        })?;
        let status = status(&reply)?;
        let nobody = || {
            format!("nobody waits for a reply to request {id}: it was answered, came too late, or its caller has left")
        };
        let give = waiting.open.lock().remove(id).ok_or_else(nobody)?;
        give.send((status, reply))
            .map_err(|(_, reply)| format!("the caller of request {:?} has left", reply.meta.get(REQUEST)))
    }
}

/// The status that a reply names, else 200.
fn status(reply: &Message) -> Result<StatusCode, String> {
    let Some(said) = reply.meta.get(STATUS) else {
        return Ok(StatusCode::OK);
    };
    let number = said.as_u64().and_then(|number| u16::try_from(number).ok());
    number
        .filter(|number| (200..600).contains(number))
        .and_then(|number| StatusCode::from_u16(number).ok())
        .ok_or_else(|| format!("{STATUS} of a reply is {said}; it must be a number from 200 to 599"))
}
