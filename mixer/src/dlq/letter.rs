//! A row of `dead_letters` as a letter: what it was, whose it is, and whether it can go back.
//!
//! | subject | what it is |
//! |---|---|
//! | `flux.gear.<rack>.<gear>` | a message that a gear could not handle |
//! | `flux.msg.<rack>.<gear>.<port>` | bytes on a wire that are no message |
//! | `flux.telemetry.<table>.<rack>` | telemetry that cannot be decoded |
//! | `otlp-export/<signal>` | a request that a collector refused |
//!
//! # Invariants
//!
//! - Anybody on the bus can make a row: whatever is in it, reading it gives a letter.

use std::str::FromStr;

use model::dead_letter::{LetterState, PortSide};
use model::filter::LetterFilter;
use model::message::Message;
use model::{EntityId, FluxId, LetterId, Timestamp, Token, TraceId, subject, telemetry_codec};
use protocols::otlp::PROTOBUF;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::export::EXPORT_SUBJECT;
use crate::registry::LetterMark;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct DeadLetterEntry {
    pub(crate) id: LetterId,
    pub(crate) ts: Timestamp,
    pub(crate) subject: String,
    pub(crate) reason: String,
    pub(crate) content_type: Option<String>,
    pub(crate) headers: Map<String, Value>,
    pub(crate) payload: Vec<u8>,
    /// The bytes of the payload, also where it is left out.
    bytes: usize,
    pub(crate) kind: LetterKind,
    /// Its message, decoded; none where it is none.
    message: Result<CorrelationIds, String>,
}

/// What a list tells of a message.
#[derive(Debug, Clone, Copy)]
struct CorrelationIds {
    flux_id: FluxId,
    trace_id: TraceId,
}

/// What a letter was.
#[derive(Debug, Clone)]
pub(crate) enum LetterKind {
    Gear(Box<DeliveryFailure>),
    Message { rack: Token, gear: Token, port: Token },
    Telemetry { rack: Token },
    Export { signal: String },
    Unknown,
}

/// A gear that could not handle a message.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryFailure {
    pub(crate) rack: Token,
    pub(crate) entity: Option<EntityId>,
    pub(crate) gear: Token,
    pub(crate) port: Option<Token>,
    pub(crate) way: PortSide,
    pub(crate) from: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) replays: u32,
    pub(crate) before: Option<LetterId>,
    /// Its Rack's run and its number there.
    sent: (u64, u64),
}

impl DeadLetterEntry {
    /// The letter of a row, if it has the table's columns.
    pub(crate) fn of(mut row: Map<String, Value>) -> Option<Self> {
        let mut text = |name: &str| match row.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (ts, subject, reason) = (text("ts")?.parse().ok()?, text("subject")?, text("reason")?);
        let content_type = text("content_type");
        let payload = model::hex::decode(&text("payload")?)?;
        let headers = match row.remove("headers") {
            Some(Value::Object(headers)) => headers,
            _ => Map::new(),
        };
        let number = [
            telemetry_codec::ENTITY_ID,
            telemetry_codec::BOOT_EPOCH,
            telemetry_codec::SEQUENCE,
        ];
        let [entity, epoch, seq] = number.map(|name| said(&headers, name).unwrap_or_default().as_bytes());
        // Of a body several records may be the same.
        let record = headers.get(telemetry_codec::RECORD).map(Value::to_string);
        let parts = [subject.as_bytes(), reason.as_bytes(), &payload, entity, epoch, seq];
        let parts: Vec<_> = parts.into_iter().chain(record.as_ref().map(String::as_bytes)).collect();
        let id = LetterId::of(ts, &parts);
        let kind = kind(&subject, &headers);
        let message = match kind {
            LetterKind::Gear(_) | LetterKind::Message { .. } => {
                Message::from_cbor(&payload).map(|message| CorrelationIds {
                    flux_id: message.flux_id,
                    trace_id: message.trace_id,
                })
            }
            LetterKind::Telemetry { .. } | LetterKind::Export { .. } | LetterKind::Unknown => {
                Err("it is none".to_owned())
            }
        };
        Some(Self {
            id,
            ts,
            subject,
            reason,
            content_type,
            headers,
            bytes: payload.len(),
            payload,
            kind,
            message,
        })
    }

    /// Without its bytes, of which many would be too much.
    pub(crate) fn without_payload(self) -> Self {
        Self {
            headers: Map::new(),
            payload: Vec::new(),
            ..self
        }
    }

    /// What sorts the letters of a gear as they failed: letters that come together are stored side by side, in any order.
    pub(crate) fn order(&self) -> (u64, u64, LetterId) {
        let (epoch, seq) = match &self.kind {
            LetterKind::Gear(failure) => failure.sent,
            _ => (0, 0),
        };
        (epoch, seq, self.id)
    }

    pub(crate) fn rack(&self) -> Option<&Token> {
        match &self.kind {
            LetterKind::Gear(failure) => Some(&failure.rack),
            LetterKind::Message { rack, .. } | LetterKind::Telemetry { rack } => Some(rack),
            LetterKind::Export { .. } | LetterKind::Unknown => None,
        }
    }

    pub(crate) fn gear(&self) -> Option<&Token> {
        match &self.kind {
            LetterKind::Gear(failure) => Some(&failure.gear),
            LetterKind::Message { gear, .. } => Some(gear),
            LetterKind::Telemetry { .. } | LetterKind::Export { .. } | LetterKind::Unknown => None,
        }
    }

    fn from(&self) -> Option<&str> {
        match &self.kind {
            LetterKind::Gear(failure) => failure.from.as_deref(),
            _ => None,
        }
    }

    /// Whether it is what a filter asks for, its state and its time apart.
    pub(crate) fn meets(&self, filter: &LetterFilter) -> bool {
        let is =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|wanted| found == Some(wanted));
        let of_wire = |subject: &String| self.subject == *subject || self.from() == Some(subject.as_str());
        is(&filter.rack, self.rack().map(Token::as_str))
            && is(&filter.gear, self.gear().map(Token::as_str))
            && filter.subject.as_ref().is_none_or(of_wire)
    }

    /// Where it can go back to; or why it never can.
    pub(crate) fn replay_point(&self) -> Result<(&DeliveryFailure, &Token), String> {
        match &self.kind {
            LetterKind::Gear(failure) => {
                let port = failure
                    .port
                    .as_ref()
                    .ok_or("it does not say at which port of the gear it failed: only the head of it is kept")?;
                self.message
                    .as_ref()
                    .map_err(|reason| format!("its bytes are not a message: {reason}"))?;
                Ok((failure, port))
            }
            LetterKind::Message { .. } => Err("it is not a message and no gear can read it: fix its sender".to_owned()),
            LetterKind::Telemetry { .. } => Err(
                "it is telemetry that cannot be decoded, and its sequence number is used: fix the sender and have it \
                 send the rows again"
                    .to_owned(),
            ),
            LetterKind::Export { signal } => Err(format!(
                "it is a request that the collector refused: once that takes it, post the payload to its /v1/{signal} as {PROTOBUF}"
            )),
            LetterKind::Unknown => Err("its subject names no receiver".to_owned()),
        }
    }

    /// As it is listed, with its state.
    pub(crate) fn view(&self, mark: Option<LetterMark>) -> LetterView {
        let failure = match &self.kind {
            LetterKind::Gear(failure) => Some(failure),
            _ => None,
        };
        let port = match &self.kind {
            LetterKind::Message { port, .. } => Some(port.clone()),
            _ => failure.and_then(|failure| failure.port.clone()),
        };
        let known = self.message.as_ref().ok();
        let why_not = self.replay_point().err();
        let (mut state, mut changed, mut changed_by, mut note) = (LetterState::Open, None, None, None);
        if let Some(mark) = mark {
            (state, changed, changed_by, note) = (mark.state, Some(mark.at), Some(mark.by), mark.note);
        }
        LetterView {
            id: self.id,
            ts: self.ts,
            state,
            kind: match self.kind {
                LetterKind::Gear(_) => "gear",
                LetterKind::Message { .. } => "message",
                LetterKind::Telemetry { .. } => "telemetry",
                LetterKind::Export { .. } => "export",
                LetterKind::Unknown => "unknown",
            },
            rack: self.rack().cloned(),
            gear: self.gear().cloned(),
            port,
            way: failure.map(|failure| failure.way),
            from: self.from().map(str::to_owned),
            subject: self.subject.clone(),
            reason: self.reason.clone(),
            attempts: failure.map(|failure| failure.attempts),
            replays: failure.map_or(0, |failure| failure.replays),
            replay_of: failure.and_then(|failure| failure.before),
            flux_id: known.map(|known| known.flux_id),
            trace_id: known.map(|known| known.trace_id),
            bytes: self.bytes,
            replayable: why_not.is_none(),
            why_not,
            changed,
            changed_by,
            note,
        }
    }

    /// All of it.
    pub(crate) fn whole(&self, view: LetterView) -> LetterDetail {
        let message = Message::from_cbor(&self.payload).ok();
        LetterDetail {
            view,
            content_type: self.content_type.clone(),
            headers: self.headers.clone(),
            message: message.map(|message| decoded(&message)),
            payload: model::hex::encode(&self.payload),
        }
    }
}

fn kind(subject: &str, headers: &Map<String, Value>) -> LetterKind {
    if let Some((rack, gear)) = subject::parse_gear(subject) {
        return LetterKind::Gear(Box::new(DeliveryFailure {
            rack,
            gear,
            entity: read(headers, telemetry_codec::ENTITY_ID),
            port: read(headers, telemetry_codec::DEAD_PORT),
            way: match said(headers, telemetry_codec::DEAD_WAY) {
                Some(way) if way == PortSide::Out.as_str() => PortSide::Out,
                _ => PortSide::In,
            },
            from: said(headers, telemetry_codec::DEAD_FROM).map(str::to_owned),
            attempts: read(headers, telemetry_codec::DEAD_ATTEMPTS).unwrap_or(0),
            replays: read(headers, telemetry_codec::DEAD_REPLAYS).unwrap_or(0),
            before: read(headers, telemetry_codec::DEAD_LETTER),
            sent: (
                read(headers, telemetry_codec::BOOT_EPOCH).unwrap_or(0),
                read(headers, telemetry_codec::SEQUENCE).unwrap_or(0),
            ),
        }));
    }
    if let Some((rack, gear, port)) = subject::parse_message(subject) {
        return LetterKind::Message { rack, gear, port };
    }
    if let Some(signal) = subject.strip_prefix(EXPORT_SUBJECT) {
        let signal = signal.to_owned();
        return LetterKind::Export { signal };
    }
    match subject::parse_telemetry(subject) {
        Some((_, rack)) => LetterKind::Telemetry { rack },
        None => LetterKind::Unknown,
    }
}

/// What a header says.
fn said<'a>(headers: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(Value::as_str)
}

/// What a header says, if it is what it should be.
fn read<T: FromStr>(headers: &Map<String, Value>, name: &str) -> Option<T> {
    said(headers, name)?.parse().ok()
}

/// A message for people: its body as text where it is one.
fn decoded(message: &Message) -> Value {
    json!({
        "id": message.id, "ts": message.ts, "flux_id": message.flux_id, "trace_id": message.trace_id,
        "span_id": message.span_id, "parent": message.parent, "sampled": message.sampled, "hops": message.hops,
        "meta": message.meta, "data": message.data,
        "text": std::str::from_utf8(&message.raw).ok(), "raw": model::hex::encode(&message.raw),
    })
}

/// A letter in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LetterView {
    /// Its id.
    pub id: LetterId,
    /// When it was stored.
    pub ts: Timestamp,
    /// What became of it.
    pub state: LetterState,
    /// `gear`, `message`, `telemetry`, `export` or `unknown`.
    #[schemars(extend("enum" = ["gear", "message", "telemetry", "export", "unknown"]))]
    pub kind: &'static str,
    /// The Rack that it is of.
    pub rack: Option<Token>,
    /// The gear that could not handle it, or that sent it.
    pub gear: Option<Token>,
    /// The port.
    pub port: Option<Token>,
    /// Whether it arrived at the port or was to leave by it.
    pub way: Option<PortSide>,
    /// The subject of the wire that it came by.
    pub from: Option<String>,
    /// The letter's own subject.
    pub subject: String,
    /// Why it could not be handled.
    pub reason: String,
    /// How often it was tried in all.
    pub attempts: Option<u32>,
    /// How often it was given back before it failed this time.
    pub replays: u32,
    /// The letter that it was before.
    pub replay_of: Option<LetterId>,
    /// The business signal.
    pub flux_id: Option<FluxId>,
    /// The trace.
    pub trace_id: Option<TraceId>,
    /// Its bytes.
    pub bytes: usize,
    /// Whether it can go back, as far as it says itself.
    pub replayable: bool,
    /// Why it cannot.
    pub why_not: Option<String>,
    /// When its state changed.
    pub changed: Option<Timestamp>,
    /// Who wanted that, as they say.
    pub changed_by: Option<String>,
    /// Why it could not go back the last time, or what it waits for.
    pub note: Option<String>,
}

/// A letter and everything in it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LetterDetail {
    /// As it is listed.
    #[serde(flatten)]
    pub view: LetterView,
    /// What it said that it is.
    pub content_type: Option<String>,
    /// What came with it.
    pub headers: Map<String, Value>,
    /// Its message, if it is one.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub message: Option<Value>,
    /// Its bytes as they came, in hexadecimal.
    #[schemars(extend("pattern" = "^([0-9a-f]{2})*$"))]
    pub payload: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn row(subject: &str, headers: Value, payload: &str) -> Map<String, Value> {
        let row = json!({
            "ts": "2026-11-21T10:00:00.000001Z", "subject": subject, "reason": "why", "content_type": null,
            "headers": headers, "payload": payload,
        });
        row.as_object().cloned().unwrap()
    }

    #[test]
    fn what_cannot_go_back_says_why() {
        for (subject, headers, says) in [
            ("flux.gear.a.b", json!({}), "does not say at which port"),
            ("flux.gear.a.b", json!({ "Flux-Dead-Port": "in" }), "are not a message"),
            (
                "flux.gear.a.b",
                json!({ "Flux-Dead-Port": 7 }),
                "does not say at which port",
            ),
            ("flux.msg.a.b.out", json!({}), "no gear can read it"),
            ("flux.telemetry.logs.a", json!({}), "fix the sender"),
            (
                "otlp-export/logs",
                json!({ "rows": 2 }),
                "post the payload to its /v1/logs as application/x-protobuf",
            ),
            ("flux.gear.a.b.c", json!(null), "names no receiver"),
            ("", json!([]), "names no receiver"),
        ] {
            let letter = DeadLetterEntry::of(row(subject, headers, "00ff")).unwrap();
            let said = letter.replay_point().unwrap_err();
            assert!(said.contains(says), "{subject}: {said}");
            assert_eq!(letter.view(None).why_not, Some(said));
        }
    }

    #[test]
    fn a_letter_has_one_id_whatever_form_its_row_is_in_and_another_for_other_bytes() {
        let headers = json!({ "Flux-Seq": "7" });
        let id = |headers: &Value, payload| {
            DeadLetterEntry::of(row("flux.gear.a.b", headers.clone(), payload))
                .unwrap()
                .id
        };
        assert_eq!(id(&headers, "00ff"), id(&headers, "00FF"));
        assert_ne!(id(&headers, "00ff"), id(&headers, "00fe"));
        assert_ne!(id(&headers, "00ff"), id(&json!({ "Flux-Seq": "8" }), "00ff"));
    }

    #[test]
    fn untrusted_headers_are_ignored() {
        for (name, value) in [
            (telemetry_codec::DEAD_WAY, json!("sideways")),
            (telemetry_codec::DEAD_ATTEMPTS, json!("-1")),
            (telemetry_codec::DEAD_REPLAYS, json!("99999999999")),
            (telemetry_codec::DEAD_LETTER, json!("../../etc")),
            (telemetry_codec::DEAD_PORT, json!("a.b")),
            (telemetry_codec::ENTITY_ID, json!([1])),
        ] {
            let letter = DeadLetterEntry::of(row("flux.gear.a.b", json!({ (name): value }), "")).unwrap();
            let view = letter.view(None);
            assert_eq!(
                (view.way, view.attempts, view.replays),
                (Some(PortSide::In), Some(0), 0),
                "{name}"
            );
            assert_eq!(
                (view.port, view.replay_of, view.replayable),
                (None, None, false),
                "{name}"
            );
        }
        for broken in ["0", "zz", "é0"] {
            assert!(
                DeadLetterEntry::of(row("flux.gear.a.b", json!({}), broken)).is_none(),
                "{broken}"
            );
        }
    }
}
