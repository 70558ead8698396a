//! Taps: samples of the messages that leave an output port, for somebody who watches.
//!
//! ```text
//! Mixer ── TapLease (signed) ── flux.agent.rack.<id>.tap ──▶ Rack
//!       ◀── TapAnswer ──────────────────────────────────────
//!       ◀── TapBatch, TapBatch, … ── flux.agent.answer.<id>.<session>
//! ```
//!
//! # Invariants
//!
//! - A tap ends by itself: the Rack takes it away [`LEASE`] after the last command that renewed it.
//! - A tap that has ended is never continued: its numbers would begin again. A Rack that has restarted, or whose gear was away, answers
//!   a renewal with [`TapAnswer::Ended`].
//! - Samples are numbered by what has passed the port since the tap began: a number that is left out is a message that was not
//!   shown, wherever it was dropped.
//! - A sample has a bounded size ([`MOST_BODY`], [`MOST_FACTS`]), and so has a batch ([`MOST_BATCH`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::signed::bytes_form;
use crate::{Attributes, EntityId, FluxId, MessageId, Timestamp, Token};

/// How long a tap lasts that nobody renews.
pub const LEASE: Duration = Duration::from_secs(5);
/// The most bytes of a body in a sample.
pub const MOST_BODY: usize = 4 << 10;
/// The most bytes of metadata in a sample, as JSON.
pub const MOST_FACTS: usize = 4 << 10;
/// The most bytes of a batch on the bus.
pub const MOST_BATCH: usize = 128 << 10;

/// The Mixer has a Rack show what leaves a port, signed by the cluster (context `command`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapLease {
    /// For whom.
    pub entity_id: EntityId,
    /// When it was sent; one that is not after the last one of the session is refused.
    pub issued: Timestamp,
    /// Who watches: the last token of the subject of the samples.
    pub session: Token,
    /// The gear.
    pub gear: Token,
    /// Its output.
    pub port: Token,
    /// What it asks.
    pub request: TapRequest,
}

/// What a [`TapLease`] asks of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapRequest {
    /// To begin; to go on, if it has begun.
    Begin,
    /// To go on.
    Renew,
    /// To end: the watcher has gone.
    End,
}

/// A Rack's answer to a [`TapLease`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapAnswer {
    /// What passes is shown, or nobody watches any more, as was asked.
    Done,
    /// No such gear runs; these do.
    NoGear(Vec<String>),
    /// The gear has no such output; it has these.
    NoPort(Vec<String>),
    /// As many watch as may.
    TooMany(usize),
    /// A later command of the session came before.
    Late,
    /// There is nothing to renew: the Rack has restarted, the gear was away, or the lease ran out.
    Ended,
}

/// What has passed a port since the last batch, or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapBatch {
    /// In the order of their numbers.
    pub samples: Vec<TapSample>,
    /// How many messages have passed since the tap began, up to the end of this batch.
    pub passed: u64,
}

/// A message that has passed a port, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapSample {
    /// Its number, from 1.
    pub number: u64,
    /// When it passed.
    pub ts: Timestamp,
    /// The message.
    pub id: MessageId,
    /// The business signal.
    pub flux_id: FluxId,
    /// Its metadata, or the first entries.
    pub meta: Attributes,
    /// Whether metadata entries are left out.
    pub is_meta_cut: bool,
    /// Whether `body` is the message's value as JSON, and not its bytes.
    pub is_value: bool,
    /// The body, or its beginning.
    #[serde(with = "bytes_form")]
    pub body: Vec<u8>,
    /// The bytes of the whole body; of a value that is cut they are not counted.
    pub size: Option<u64>,
    /// Whether the end of the body is left out.
    pub is_cut: bool,
}
