//! Records of the outbox: messages until they are on the bus.
//!
//! ```text
//! letter = kind u8 | number u64 | count u32 | gear | port | reason of a death, or destination | past of a dead letter | body
//! past   = way u8 | replays u32 | from | letter
//! text   = len u16 | UTF-8
//! ```
//!
//! Numbers are little endian. Kind 1 is a batch of messages of one port: the number of the first, how many, and a CBOR sequence of
//! them. Kind 3 is a dead letter, with how often it was tried as its count. A destination is the text of [`model::MessageDestination`], or
//! empty.
//!
//! # Invariants
//!
//! - A message is for whom it was for when it was handed to the outbox, whatever the wires are when it is sent.
//! - Reading never panics; what is no letter is `None`.

use std::borrow::Cow;

use async_nats::HeaderMap;
use bytes::Bytes;
use model::dead_letter::PortSide;
use model::{LetterId, MessageDestination, Token, subject, telemetry_codec};

use super::port_sequence::PortSequenceNumber;
use super::{DeliveryHistory, OutboxDeadLetter, OutgoingMessage};

/// The most bytes of a batch of several messages. What the Mixer lets every bus message have beyond `max_payload_size` is more, so
/// its bus takes a batch whatever that is.
const MAX_BATCH: usize = 32 << 10;

/// The longest reason that is sent along.
const MAX_REASON: usize = 1024;
/// The most of a dead letter's body: what the outbox takes, with its head.
const MAX_BODY: usize = 60 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
enum OutboxRecordKind {
    Messages {
        /// Of the first one.
        number: u64,
        count: u32,
        destination: Option<MessageDestination>,
    },
    Dead(Box<DeadLetterCause>),
}

/// How a message came to be a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeadLetterCause {
    reason: String,
    way: PortSide,
    attempts: u32,
    replays: u32,
    from: String,
    letter: String,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutboxRecord {
    kind: OutboxRecordKind,
    gear: String,
    port: String,
    body: Bytes,
}

/// Messages of one port that leave together.
#[derive(Debug)]
pub(super) struct MessageBatch {
    gear: Token,
    port: &'static str,
    /// Of the first one.
    number: u64,
    count: u32,
    body: Vec<u8>,
}

impl MessageBatch {
    /// A batch of one.
    pub(super) fn new(leaving: OutgoingMessage, number: u64) -> Self {
        Self {
            gear: leaving.gear,
            port: leaving.port,
            number,
            count: 1,
            body: leaving.body,
        }
    }

    pub(super) const fn gear(&self) -> &Token {
        &self.gear
    }

    pub(super) const fn port(&self) -> &'static str {
        self.port
    }

    pub(super) fn is_of(&self, leaving: &OutgoingMessage) -> bool {
        self.port == leaving.port && self.gear == leaving.gear
    }

    /// Adds the port's next message; gives it back if there is no room.
    pub(super) fn add(&mut self, leaving: OutgoingMessage) -> Option<OutgoingMessage> {
        if self.body.len() + leaving.body.len() > MAX_BATCH {
            return Some(leaving);
        }
        self.body.extend_from_slice(&leaving.body);
        self.count += 1;
        None
    }
}

impl OutboxRecord {
    pub(super) fn messages(batch: MessageBatch, destination: Option<MessageDestination>) -> Self {
        Self {
            kind: OutboxRecordKind::Messages {
                number: batch.number,
                count: batch.count,
                destination,
            },
            gear: batch.gear.to_string(),
            port: batch.port.to_owned(),
            body: batch.body.into(),
        }
    }

    pub(super) fn dead(dead: OutboxDeadLetter) -> Self {
        let DeliveryHistory {
            from,
            letter,
            replays,
            attempts,
        } = dead.past;
        let death = DeadLetterCause {
            reason: one_line(&dead.reason, ""),
            way: dead.way,
            attempts: dead.attempts.saturating_add(attempts),
            replays,
            from: from.map(|from| from.to_string()).unwrap_or_default(),
            letter: letter.as_ref().map(LetterId::to_string).unwrap_or_default(),
        };
        let letter = Self {
            kind: OutboxRecordKind::Dead(Box::new(death)),
            gear: dead.gear.to_string(),
            port: dead.port,
            body: dead.body.into(),
        };
        letter.truncate(MAX_BODY)
    }

    /// A letter whose body has at most so many bytes. What is cut is a dead letter and says so: nothing can be made of it again.
    pub(crate) fn truncate(self, most: usize) -> Self {
        let bytes = self.body.len();
        if bytes <= most {
            return self;
        }
        let mut death = match self.kind {
            OutboxRecordKind::Dead(death) => death,
            OutboxRecordKind::Messages { .. } => Box::new(DeadLetterCause {
                reason: "it is too large for the bus".to_owned(),
                way: PortSide::Out,
                attempts: 1,
                replays: 0,
                from: String::new(),
                letter: String::new(),
            }),
        };
        let note = format!("; it has {bytes} bytes, and of them only the first {most} could be kept");
        death.reason = one_line(&death.reason, &note);
        Self {
            kind: OutboxRecordKind::Dead(death),
            body: self.body.slice(..most),
            ..self
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.body.len());
        let (kind, number, count, said) = match &self.kind {
            OutboxRecordKind::Messages {
                number,
                count,
                destination,
            } => {
                let destination = destination.as_ref().map(MessageDestination::to_string);
                (1, *number, *count, Cow::Owned(destination.unwrap_or_default()))
            }
            OutboxRecordKind::Dead(death) => (3, 0, death.attempts, Cow::Borrowed(death.reason.as_str())),
        };
        out.push(kind);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&u32::to_le_bytes(count));
        for text in [self.gear.as_str(), &self.port, &said] {
            put(&mut out, text);
        }
        if let OutboxRecordKind::Dead(death) = &self.kind {
            out.push(u8::from(death.way == PortSide::Out));
            out.extend_from_slice(&death.replays.to_le_bytes());
            put(&mut out, &death.from);
            put(&mut out, &death.letter);
        }
        out.extend_from_slice(&self.body);
        out
    }

    /// What was encoded.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut rest = bytes.clone();
        let kind = *take(&mut rest, 1)?.first()?;
        let number = u64::from_le_bytes(take(&mut rest, 8)?.as_ref().try_into().ok()?);
        let count = u32::from_le_bytes(take(&mut rest, 4)?.as_ref().try_into().ok()?);
        let (gear, port, said) = (text(&mut rest)?, text(&mut rest)?, text(&mut rest)?);
        let kind = match kind {
            1 => OutboxRecordKind::Messages {
                number,
                count,
                destination: said.parse().ok(),
            },
            3 => OutboxRecordKind::Dead(Box::new(DeadLetterCause {
                reason: said,
                attempts: count,
                way: match *take(&mut rest, 1)?.first()? {
                    0 => PortSide::In,
                    _ => PortSide::Out,
                },
                replays: u32::from_le_bytes(take(&mut rest, 4)?.as_ref().try_into().ok()?),
                from: text(&mut rest)?,
                letter: text(&mut rest)?,
            })),
            _ => return None,
        };
        Some(Self {
            kind,
            gear,
            port,
            body: rest,
        })
    }

    /// The subject it goes to, from a Rack; none if a name in it is no token.
    pub(crate) fn subject(&self, rack: &Token) -> Option<String> {
        let gear: Token = self.gear.parse().ok()?;
        match self.kind {
            OutboxRecordKind::Messages { .. } => Some(subject::message(rack, &gear, &self.port.parse().ok()?)),
            OutboxRecordKind::Dead(_) => Some(subject::gear(rack, &gear)),
        }
    }

    /// How many messages it has; one for a dead letter.
    pub(crate) const fn count(&self) -> u32 {
        match self.kind {
            OutboxRecordKind::Messages { count, .. } => count,
            OutboxRecordKind::Dead(_) => 1,
        }
    }

    /// The number of its first message among those of its port and run; none for a dead letter.
    pub(crate) const fn number(&self) -> Option<u64> {
        match self.kind {
            OutboxRecordKind::Messages { number, .. } => Some(number),
            OutboxRecordKind::Dead(_) => None,
        }
    }

    /// Adds what its receiver must know.
    pub(crate) fn write_headers(&self, place: Option<PortSequenceNumber>, headers: &mut HeaderMap) {
        match &self.kind {
            OutboxRecordKind::Messages { destination, .. } => {
                if let Some(place) = place {
                    headers.insert(telemetry_codec::PLACE, place.to_string());
                }
                if let Some(destination) = destination {
                    headers.insert(telemetry_codec::DIRECTION, destination.direction().as_str());
                    if let Some(to) = destination.to() {
                        headers.insert(telemetry_codec::TO, to.as_str());
                    }
                }
            }
            OutboxRecordKind::Dead(death) => {
                headers.insert(telemetry_codec::DEAD_REASON, death.reason.as_str());
                headers.insert(telemetry_codec::DEAD_PORT, self.port.as_str());
                headers.insert(telemetry_codec::DEAD_WAY, death.way.as_str());
                headers.insert(telemetry_codec::DEAD_ATTEMPTS, death.attempts.to_string());
                for (name, text) in [
                    (telemetry_codec::DEAD_FROM, &death.from),
                    (telemetry_codec::DEAD_LETTER, &death.letter),
                ] {
                    if !text.is_empty() {
                        headers.insert(name, text.as_str());
                    }
                }
                if death.replays > 0 {
                    headers.insert(telemetry_codec::DEAD_REPLAYS, death.replays.to_string());
                }
            }
        }
    }

    /// A letter of each message.
    #[cfg(test)]
    pub(crate) fn split(self) -> Vec<Self> {
        let OutboxRecordKind::Messages {
            number, destination, ..
        } = &self.kind
        else {
            return vec![self];
        };
        let items = model::message::MessageSequence::new(self.body.clone()).zip(*number..);
        let of = |number| OutboxRecordKind::Messages {
            number,
            count: 1,
            destination: destination.clone(),
        };
        let letter = |((body, _), number)| Self {
            kind: of(number),
            body,
            ..self.clone()
        };
        items.map(letter).collect()
    }

    /// The message, or messages, as they travel.
    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }
}

/// A reason as a header: one line that is not too long, and a note behind it.
fn one_line(reason: &str, note: &str) -> String {
    let chars = reason.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut line: String = chars.take((MAX_REASON - note.len().min(MAX_REASON)) / 4).collect();
    line.push_str(note);
    line
}

fn put(out: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).unwrap_or(0);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes().get(..len.into()).unwrap_or_default());
}

fn take(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= rest.len()).then(|| rest.split_to(len))
}

fn text(rest: &mut Bytes) -> Option<String> {
    let len = u16::from_le_bytes(take(rest, 2)?.as_ref().try_into().ok()?);
    String::from_utf8(take(rest, len.into())?.to_vec()).ok()
}

#[cfg(test)]
mod tests;
