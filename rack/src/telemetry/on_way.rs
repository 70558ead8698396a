//! What of the outbox is on its way to the bus, by port.
//!
//! # Invariants
//!
//! - A port's messages leave in the order of their numbers, so all before the first that is on its way have been accepted, or
//!   will never be sent.
//!
//! # Not here
//!
//! What its receiver makes of that (`crate::lane`, order).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chassis::bus::{Bus, BusState};
use tokio::sync::watch;

use crate::lane::{Lane, Letter, Outbox, Sent};
use crate::spool::Kept;

/// See the module.
pub(super) struct OnWay {
    outbox: Option<Arc<Outbox>>,
    ports: BTreeMap<String, BTreeSet<u64>>,
}

impl OnWay {
    /// Nothing; for telemetry, which has no order, it stays like that.
    pub(super) const fn new(outbox: Option<Arc<Outbox>>) -> Self {
        Self {
            outbox,
            ports: BTreeMap::new(),
        }
    }

    /// A batch was sent.
    pub(super) fn left(&mut self, kept: &Kept) {
        if let Some((port, number)) = self.numbered(kept) {
            self.ports.entry(port).or_default().insert(number);
        }
    }

    /// The bus has answered, or never will.
    pub(super) fn arrived(&mut self, kept: &Kept) {
        if let Some((port, number)) = self.numbered(kept)
            && let Some(numbers) = self.ports.get_mut(&port)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Whether it is the last one of its port so far, and others are on their way.
    pub(super) fn must_wait(&self, kept: &Kept, behind: &VecDeque<Kept>) -> bool {
        let Some((port, _)) = self.numbered(kept).filter(|(port, _)| self.ports.contains_key(port)) else {
            return false;
        };
        let is_same = |other: &Kept| self.numbered(other).is_some_and(|(other, _)| other == port);
        !behind.iter().any(is_same)
    }

    /// What a letter says of its place when it is sent now.
    pub(super) fn place(&self, kept: &Kept, letter: &Letter) -> Sent {
        let outbox = self.outbox.as_ref().map(|outbox| outbox.id(kept.run.epoch));
        let numbers = letter
            .numbered()
            .and_then(|(port, _)| self.ports.get(&self.name(kept, &port)));
        Sent {
            outbox: outbox.unwrap_or_default(),
            first_on_way: numbers.and_then(BTreeSet::first).copied(),
        }
    }

    fn numbered(&self, kept: &Kept) -> Option<(String, u64)> {
        self.outbox.as_ref()?;
        let (port, number) = Letter::decode(&kept.payload)?.numbered()?;
        Some((self.name(kept, &port), number))
    }

    /// A port, within what its numbers count.
    fn name(&self, kept: &Kept, port: &str) -> String {
        let outbox = self.outbox.as_ref().map(|outbox| outbox.id(kept.run.epoch));
        format!("{} {port}", outbox.unwrap_or_default())
    }
}

/// The stream that has what was sent of the outbox, or had it: a bus that began anew may have lost what it accepted last, and
/// others may have filled its place by the time that we look.
pub(super) struct KnownStream {
    connection: watch::Receiver<BusState>,
    /// Whether it may be another one since it was looked at.
    pub(super) is_in_doubt: bool,
    known: Option<Known>,
    /// The last number of the stream that it gave to one of ours.
    accepted: u64,
}

/// What a stream was when it was looked at.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    created: i128,
    /// The life of the server that we are connected to.
    server: String,
}

impl KnownStream {
    pub(super) fn new(bus: &Bus) -> Self {
        Self {
            connection: bus.state(),
            is_in_doubt: true,
            known: None,
            accepted: 0,
        }
    }

    /// A message was accepted, at a number of the stream.
    pub(super) fn accepted(&mut self, sequence: u64) {
        self.accepted = self.accepted.max(sequence);
    }

    /// Whether it may be another one: the connection was away, or something was refused.
    pub(super) fn may_be_another(&mut self) -> bool {
        if self.connection.has_changed().unwrap_or(true) {
            self.connection.mark_unchanged();
            self.is_in_doubt = true;
        }
        self.is_in_doubt
    }

    /// Looks whether it is another one, or may have lost some of what it accepted.
    pub(super) async fn is_another(&mut self, lane: &Lane) -> Result<bool, String> {
        let stream = lane.bus.js.get_stream(&lane.stream).await;
        let stream = stream.map_err(|error| error.to_string())?;
        self.is_in_doubt = false;
        let info = stream.cached_info();
        let now = Known {
            created: info.created.unix_timestamp_nanos(),
            // Asked behind an answer of that server.
            server: lane.bus.client.server_info().server_id,
        };
        let went_back = info.state.last_sequence < self.accepted;
        let is_another = self.known.as_ref().is_some_and(|known| *known != now || went_back);
        self.known = Some(now);
        if is_another {
            self.accepted = info.state.last_sequence;
        }
        Ok(is_another)
    }
}
