//! The window of messages that the broker has not acknowledged, in their order.
//!
//! ```text
//!           send             PUBACK, or written (QoS 0)
//! waiting ───────▶ published ─────────────────────────────▶ done
//!    ▲                 │ PUBREC                              ▲
//!    │ connection ended│                                     │ PUBCOMP
//!    └─────────────────┴──▶ released ────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - A message that was sent and is sent again within the same session has the same identifier and the flag DUP; a released one is
//!   only released again. In a new session either is a new message: nobody knows whether the broker passed on what it released.
//! - A message that is refused for now goes back to its place and waits for a pause that doubles; nothing is sent meanwhile.
//! - A message that is refused [`ATTEMPTS`] times is rejected, and so is one at which the broker ends the connection so often: without a
//!   word, or with one that says so, before it answered anything.
//! - About [`TURN_BYTES`] are written before the broker is heard again.
//!
//! # Not here
//!
//! The connection ([`super::publisher_session`]).

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::gears::mqtt::{
    AckPacketKind, BrokerRefusal, ConnackPacket, ConnectionEnd, MqttVersion, PublishPacket, QosLevel, acknowledge,
    publish,
};
use crate::gears::supervisor::ATTEMPTS;
use crate::gears::trace_context::TraceContext;

/// The pause after the first refusal.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after a refusal.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The bytes after which a turn ends.
const TURN_BYTES: usize = 1 << 20;

/// A message on its way.
#[derive(Debug)]
pub(super) struct OutgoingPublish {
    pub(super) packet: PublishPacket,
    pub(super) signal: TraceContext,
    /// Says what became of it, where that counts.
    pub(super) done: Option<oneshot::Sender<Result<(), PublishRejection>>>,
    /// How often the broker refused it, or ended the connection at it.
    refusals: u32,
    /// Its place and its bytes, until it has ended.
    pub(super) room: Option<[OwnedSemaphorePermit; 2]>,
}

impl OutgoingPublish {
    pub(super) const fn new(packet: PublishPacket, signal: TraceContext) -> Self {
        Self {
            packet,
            signal,
            done: None,
            refusals: 0,
            room: None,
        }
    }

    /// It tells what becomes of it.
    pub(super) fn completion(&mut self) -> oneshot::Receiver<Result<(), PublishRejection>> {
        let (done, heard) = oneshot::channel();
        self.done = Some(done);
        heard
    }
}

/// Why a message goes no further.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PublishRejection {
    pub(super) reason: String,
    pub(super) attempts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PublishStage {
    Waiting,
    Published,
    Released,
}

#[derive(Debug)]
struct PublishWindowEntry {
    outgoing: OutgoingPublish,
    stage: PublishStage,
}

/// What ended, and how.
pub(super) type EndedPublish = (OutgoingPublish, Result<(), PublishRejection>);

/// Messages that are not acknowledged.
#[derive(Debug)]
pub(super) struct PublishWindow {
    version: MqttVersion,
    entries: VecDeque<PublishWindowEntry>,
    /// How many there may be.
    most: usize,
    /// How many the broker takes at a time.
    limit: usize,
    /// The largest packet that the broker takes.
    largest: usize,
    last_id: u16,
    /// Nothing is sent before.
    hold_until: Option<Instant>,
    /// Whether a turn ended before all was sent.
    has_more: bool,
    /// Whether the broker has answered anything in this connection, or there is none.
    is_answered: bool,
    ended: Vec<EndedPublish>,
}

impl PublishWindow {
    pub(super) const fn new(version: MqttVersion, most: usize) -> Self {
        Self {
            version,
            entries: VecDeque::new(),
            most,
            limit: most,
            largest: usize::MAX,
            last_id: 0,
            hold_until: None,
            has_more: false,
            is_answered: true,
            ended: Vec::new(),
        }
    }

    /// Whether another message may come in.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.most
    }

    /// Whether the last turn left something that may be sent.
    pub(super) const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Until when nothing is sent, if anything waits.
    pub(super) fn hold_until(&self) -> Option<Instant> {
        self.hold_until
    }

    /// What has ended since this was asked last.
    pub(super) fn take_ended(&mut self) -> Vec<EndedPublish> {
        std::mem::take(&mut self.ended)
    }

    /// What has not ended.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = OutgoingPublish> {
        self.entries.drain(..).map(|entry| entry.outgoing)
    }

    pub(super) fn push(&mut self, outgoing: OutgoingPublish) {
        let stage = PublishStage::Waiting;
        self.entries.push_back(PublishWindowEntry { outgoing, stage });
    }

    /// A connection begins: writes what the broker must release, and lets wait what it must get again.
    pub(super) fn begin(&mut self, connected: &ConnackPacket, out: &mut Vec<u8>) {
        self.limit = self.most.min(connected.receive_maximum().into());
        self.largest = connected.maximum_packet_size();
        self.is_answered = false;
        for mut entry in std::mem::take(&mut self.entries) {
            match (entry.stage, connected.session_present) {
                (PublishStage::Released, true) => acknowledge(AckPacketKind::PubRel, entry.outgoing.packet.id, out),
                (_, true) => {
                    entry.outgoing.packet.dup = entry.outgoing.packet.id != 0;
                    entry.stage = PublishStage::Waiting;
                }
                (_, false) => entry.forget(),
            }
            self.entries.push_back(entry);
        }
    }

    /// A connection has ended. Where the broker answered nothing, the first message that it got may be why.
    pub(super) fn end(&mut self, why: &ConnectionEnd) {
        if std::mem::replace(&mut self.is_answered, true) || !why.blames_message() {
            return;
        }
        let first = self
            .entries
            .iter()
            .position(|entry| entry.stage == PublishStage::Published);
        if let Some(index) = first {
            let why = format!("the broker ends the connection at it: {why}");
            self.count(index, why);
        }
    }

    /// Writes what may be sent now.
    pub(super) fn send(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.has_more = false;
        if self.hold_until.is_some_and(|until| now < until) {
            return;
        }
        self.hold_until = None;
        let under_way = self
            .entries
            .iter()
            .filter(|entry| entry.stage != PublishStage::Waiting)
            .count();
        let mut room = self.limit.saturating_sub(under_way);
        let mut index = 0;
        while room > 0 && index < self.entries.len() {
            if out.len() >= TURN_BYTES {
                self.has_more = true;
                return;
            }
            if self.entries[index].stage != PublishStage::Waiting {
                index += 1;
            } else if self.write(index, out) {
                room -= 1;
                index += 1;
            }
        }
    }

    /// Writes a message that waits; false if the broker takes none that large.
    fn write(&mut self, index: usize, out: &mut Vec<u8>) -> bool {
        let packet = &self.entries[index].outgoing.packet;
        if packet.qos != QosLevel::AtMostOnce && packet.id == 0 {
            let id = self.free_id();
            self.entries[index].outgoing.packet.id = id;
        }
        let start = out.len();
        publish(self.version, &self.entries[index].outgoing.packet, out);
        let size = out.len() - start;
        if size > self.largest {
            out.truncate(start);
            let reason = format!(
                "it has {size} bytes as a packet; the broker takes at most {}",
                self.largest
            );
            self.finish(index, Err(PublishRejection { reason, attempts: 1 }));
            return false;
        }
        self.entries[index].stage = PublishStage::Published;
        true
    }

    /// What was sent has been written: that is all for QoS 0.
    pub(super) fn written(&mut self) {
        let is_done = |entry: &PublishWindowEntry| {
            entry.stage == PublishStage::Published && entry.outgoing.packet.qos == QosLevel::AtMostOnce
        };
        while let Some(index) = self.entries.iter().position(is_done) {
            self.is_answered = true;
            self.finish(index, Ok(()));
        }
    }

    /// The broker answers; in words what is wrong with that.
    pub(super) fn answered(
        &mut self,
        (kind, id): (AckPacketKind, u16),
        refusal: Option<&BrokerRefusal>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        self.is_answered = true;
        let found = self
            .entries
            .iter()
            .position(|entry| entry.outgoing.packet.id == id && id != 0);
        let stage = found.map(|index| {
            (
                index,
                self.entries[index].outgoing.packet.qos,
                self.entries[index].stage,
            )
        });
        match (kind, stage, refusal) {
            (AckPacketKind::PubAck, Some((index, QosLevel::AtLeastOnce, PublishStage::Published)), _)
            | (AckPacketKind::PubRec, Some((index, QosLevel::ExactlyOnce, PublishStage::Published)), Some(_)) => {
                self.judge(index, refusal, now);
            }
            // Also before it was sent again: some brokers say first what they have.
            (AckPacketKind::PubRec, Some((index, QosLevel::ExactlyOnce, _)), None) => {
                self.entries[index].stage = PublishStage::Released;
                acknowledge(AckPacketKind::PubRel, id, out);
            }
            // A refusal here says that the broker has forgotten the identifier, as it shall.
            (AckPacketKind::PubComp, Some((index, QosLevel::ExactlyOnce, PublishStage::Released)), _) => {
                self.finish(index, Ok(()));
            }
            // Of a life before this one, which the broker still knows.
            (AckPacketKind::PubRec, None, None) => acknowledge(AckPacketKind::PubRel, id, out),
            (AckPacketKind::PubComp | AckPacketKind::PubRec, None, _) => {}
            _ => {
                return Err(format!(
                    "the broker acknowledges message {id} in a way that does not fit"
                ));
            }
        }
        Ok(())
    }

    fn judge(&mut self, index: usize, refusal: Option<&BrokerRefusal>, now: Instant) {
        let Some(refusal) = refusal else {
            return self.finish(index, Ok(()));
        };
        let reason = format!("the broker refuses it: {refusal}");
        if !refusal.is_temporary() {
            return self.finish(index, Err(PublishRejection { reason, attempts: 1 }));
        }
        if let Some(refusals) = self.count(index, reason) {
            let pause = FIRST_PAUSE
                .saturating_mul(1 << (refusals - 1).min(16))
                .min(LONGEST_PAUSE);
            self.hold_until = self.hold_until.max(Some(now + pause));
            self.entries[index].forget();
        }
    }

    /// Counts a refusal; how many there were, unless that is too many.
    fn count(&mut self, index: usize, why: String) -> Option<u32> {
        let outgoing = &mut self.entries[index].outgoing;
        outgoing.refusals += 1;
        let attempts = outgoing.refusals;
        if attempts < ATTEMPTS {
            return Some(attempts);
        }
        self.finish(index, Err(PublishRejection { reason: why, attempts }));
        None
    }

    fn finish(&mut self, index: usize, result: Result<(), PublishRejection>) {
        if let Some(entry) = self.entries.remove(index) {
            self.ended.push((entry.outgoing, result));
        }
    }

    /// An identifier that no message has.
    fn free_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self
                .entries
                .iter()
                .any(|entry| entry.outgoing.packet.id == self.last_id)
            {
                return self.last_id;
            }
        }
    }
}

impl PublishWindowEntry {
    /// It is a new message for the broker.
    const fn forget(&mut self) {
        self.stage = PublishStage::Waiting;
        self.outgoing.packet.id = 0;
        self.outgoing.packet.dup = false;
    }
}

#[cfg(test)]
mod tests;
