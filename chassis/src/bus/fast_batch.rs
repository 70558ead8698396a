//! Fast batch publishing (NATS ADR-50, `gap: fail`): messages enter a stream in the order they were sent, or not at all.
//!
//! ```text
//! <inbox>.<flow>.fail.<number>.<operation>.$FI     reply subject of a message; operation 0 starts, 1 appends, 3 commits
//! {"type":"ack","seq":7,…}                         flow acknowledgement: everything up to number 7 is stored
//! {"type":"err","seq":8,"error":{…}}               number 8 was rejected
//! {"stream":…,"seq":90,"batch":…,"count":7}        publish acknowledgement: the batch is closed with 7 stored, the last at 90
//! {"error":{…},…}                                  the first message was rejected, or the server does not know the batch
//! ```
//!
//! # Invariants
//!
//! - The stored part of a batch is a prefix of it: the server accepts nothing after a missing or rejected message. The sender may
//!   therefore pipeline without waiting, and may resend a batch of unknown outcome from its first unacknowledged message.
//! - A batch that starts with an [`ExpectedSequence`] is stored only if the stream still ends with that message. A start that the
//!   client buffered across a reconnect cannot enter a stream that has lost messages meanwhile.
//! - The server abandons a batch after ten seconds without a message; an idle sender commits it first ([`FastBatch::commit`]).
//!
//! # Not here
//!
//! The window of unacknowledged messages, retries, and what happens to a rejected message: see the Rack's sender.

use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use async_nats::{Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use serde::Deserialize;

use super::BusConnection;
use crate::Error;

/// Names the subject of which [`NATS_EXPECTED_LAST_SUBJECT_SEQUENCE`] is the last sequence.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
/// Error codes of the server that decide what becomes of a rejected message.
pub mod error_code {
    /// No stream captures the subject. Our own: the server answers without a code.
    pub const NO_STREAM: u64 = 0;
    /// The message is larger than the stream's `max_msg_size`.
    pub const MESSAGE_TOO_LARGE: u64 = 10_054;
    /// The stream does not end with the [`ExpectedSequence`](super::ExpectedSequence).
    pub const WRONG_LAST_SEQUENCE: u64 = 10_071;
    /// The batch is closed or abandoned, or never started.
    pub const UNKNOWN_BATCH: u64 = 10_208;
}

/// The last message of a subject, as a precondition of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedSequence {
    /// The subject.
    pub subject: Subject,
    /// The sequence of its last message in the stream.
    pub sequence: u64,
}

/// A message that the server did not store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRejection {
    /// Its number in the batch, from 1.
    pub number: u64,
    /// A code of [`error_code`], or any other of the server's.
    pub code: u64,
    /// The server's description.
    pub reason: String,
}

/// A reply of the server to a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchReply {
    /// Every message up to and including this number is stored.
    Stored(u64),
    /// A message was rejected, and with it all after it. [`BatchReply::Closed`] follows, unless it is number 1 or the batch is unknown.
    Rejected(BatchRejection),
    /// The batch is closed.
    Closed {
        /// How many of its messages are stored.
        count: u64,
        /// The stream sequence of the last one.
        sequence: u64,
    },
}

/// An open batch. Dropping it abandons it; what is stored of it stays stored.
pub struct FastBatch {
    bus: BusConnection,
    replies: Subscriber,
    inbox: String,
    flow: u16,
    sent: u64,
    subject: Subject,
}

impl std::fmt::Debug for FastBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastBatch")
            .field("inbox", &self.inbox)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl FastBatch {
    /// Opens a batch and subscribes to its replies. Nothing is sent yet. The server acknowledges at least every `flow` messages.
    ///
    /// # Errors
    /// If the connection was closed.
    pub async fn open(bus: &BusConnection, flow: u16) -> Result<Self, Error> {
        let inbox = bus.client.new_inbox();
        let replies = bus.client.subscribe(format!("{inbox}.>")).await;
        Ok(Self {
            bus: bus.clone(),
            replies: replies.map_err(|error| request_error(&inbox, &error))?,
            inbox,
            flow,
            sent: 0,
            subject: Subject::from_static(""),
        })
    }

    /// How many messages were sent in it.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Publishes the next message; the precondition counts for the first one only. Waits while the connection's queue is full.
    ///
    /// # Errors
    /// If the connection was closed, or the message is larger than the server's `max_payload`.
    pub async fn send(
        &mut self,
        subject: Subject,
        mut headers: HeaderMap,
        body: Bytes,
        expected: Option<&ExpectedSequence>,
    ) -> Result<(), Error> {
        if let Some(expected) = expected.filter(|_| self.sent == 0) {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.sequence.to_string());
            headers.insert(EXPECTED_SUBJECT, expected.subject.as_str());
        }
        let reply = self.reply_subject(self.sent + 1, u8::from(self.sent > 0));
        let sent = self
            .bus
            .client
            .publish_with_reply_and_headers(subject.clone(), reply, headers, body);
        sent.await.map_err(|error| request_error(&subject, &error))?;
        self.sent += 1;
        self.subject = subject;
        Ok(())
    }

    /// Asks the server to close the batch; it replies [`BatchReply::Closed`].
    ///
    /// # Errors
    /// If the connection was closed.
    pub async fn commit(&self) -> Result<(), Error> {
        let reply = self.reply_subject(self.sent + 1, 3);
        let sent = self
            .bus
            .client
            .publish_with_reply(self.subject.clone(), reply, Bytes::new());
        sent.await.map_err(|error| request_error(&self.subject, &error))
    }

    fn reply_subject(&self, number: u64, operation: u8) -> String {
        format!("{}.{}.fail.{number}.{operation}.$FI", self.inbox, self.flow)
    }

    /// The next reply; `None` once the connection is closed for good. Cancel safe.
    pub async fn next_reply(&mut self) -> Option<BatchReply> {
        loop {
            let message = self.replies.next().await?;
            if let Some(reply) = parse(&message) {
                return Some(reply);
            }
        }
    }
}

fn request_error(subject: &str, error: &impl std::fmt::Display) -> Error {
    Error::Request {
        subject: subject.to_owned(),
        reason: error.to_string(),
    }
}

/// The JSON of a reply.
#[derive(Debug, Deserialize)]
struct ReplyBody {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    seq: u64,
    count: Option<u64>,
    error: Option<ReplyError>,
}

#[derive(Debug, Deserialize)]
struct ReplyError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

fn parse(message: &Message) -> Option<BatchReply> {
    // <inbox>.<flow>.fail.<number>.<operation>.$FI
    let number = message.subject.rsplit('.').nth(2)?.parse().ok()?;
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return Some(BatchReply::Rejected(BatchRejection {
            number,
            code: error_code::NO_STREAM,
            reason: "no stream captures its subject".to_owned(),
        }));
    }
    let body: ReplyBody = serde_json::from_slice(&message.payload).ok()?;
    match (body.kind.as_deref(), body.error, body.count) {
        (Some("ack"), ..) => Some(BatchReply::Stored(body.seq)),
        (_, Some(error), _) => Some(BatchReply::Rejected(BatchRejection {
            number,
            code: error.err_code,
            reason: error.description,
        })),
        (None, None, Some(count)) => Some(BatchReply::Closed {
            count,
            sequence: body.seq,
        }),
        // A gap report: the closing reply follows.
        _ => None,
    }
}
