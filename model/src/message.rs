//! The message: what travels along wires from gear to gear.
//!
//! On the bus and in the archive it is one CBOR map in the deterministic form of RFC 8949, 4.2.1: definite lengths, the shortest
//! numbers, keys in the order of their encoded bytes. Keys whose value is nothing are left out.
//!
//! | key | what |
//! |---|---|
//! | `id` | this message, a UUIDv7, 16 bytes |
//! | `ts` | when it was made |
//! | `raw` | the body as bytes |
//! | `data` | the body as a value: what a codec found in `raw`, or what an expression made |
//! | `hops` | how many gears have sent it |
//! | `meta` | facts about it: where it came from, its content type |
//! | `parent` | the message that it was made of, if it was |
//! | `flux_id` | the business signal, a UUIDv7 |
//! | `sampled` | whether the trace is kept |
//! | `span_id`, `trace_id`, `trace_state` | W3C trace context; the last as its caller's tracing system had it, if it did |
//!
//! Other keys are passed over, within the same bounds, and not sent on: Racks and the Mixer need not have one version, and a newer one may
//! say more. What a reader must not pass over needs another form, not a key.
//!
//! On the bus several messages of one port may travel as a CBOR sequence (RFC 8742), one behind the other.
//!
//! # Invariants
//!
//! - `hops` grows by one at every gear; a message over `max_hops` goes no further.
//! - The trace context is W3C: every gear that handles a message adds a span whose parent is `span_id`.
//! - Equal messages have equal bytes.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::signed::bytes_form;
use crate::trace_context::TraceState;
use crate::{Attributes, FluxId, MessageId, SpanId, Timestamp, TraceId};

/// The deepest nesting of `data`; a JSON text may be 128 deep.
pub(crate) const DEPTH: usize = 160;

/// The way of a message, as its Rack saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageDirection {
    /// It came from somebody who is no Rack.
    Inbound,
    /// It went to another Rack, or also to another one.
    Outbound,
    /// It went to gears of the same Rack only.
    Internal,
}

impl MessageDirection {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
            Self::Internal => "internal",
        }
    }
}

/// A business message; see the module for its form.
// The fields are in the order of their encoded keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// This message.
    pub id: MessageId,
    /// When it was made.
    pub ts: Timestamp,
    /// The body as bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "bytes_form")]
    pub raw: Vec<u8>,
    /// The body as a value; null if there is none.
    #[serde(default, skip_serializing_if = "Value::is_null", serialize_with = "in_order")]
    pub data: Value,
    /// How many gears have sent it.
    pub hops: u32,
    /// Facts about the message.
    #[serde(serialize_with = "facts_in_order")]
    pub meta: Attributes,
    /// The message that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<MessageId>,
    /// The business signal.
    pub flux_id: FluxId,
    /// Whether the trace is sampled; decided once, where the trace begins.
    pub sampled: bool,
    /// The span that sent it: the parent of the next one.
    pub span_id: SpanId,
    /// The trace that all its spans share.
    pub trace_id: TraceId,
    /// What tracing systems outside say of the trace, passed on as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_state: Option<TraceState>,
}

impl Message {
    /// As it travels.
    ///
    /// # Errors
    /// Only if the encoder fails, a defect.
    pub fn to_cbor(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(self.raw.len() + 512);
        ciborium::into_writer(self, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// From what travelled; nothing may follow it.
    ///
    /// # Errors
    /// If it is not a message, in words.
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, String> {
        read(bytes)
    }

    /// The bytes that count against `max_payload_size`: all of it, as it travels.
    #[must_use]
    pub fn size(&self) -> usize {
        let mut count = ByteCounter(0);
        // Counting cannot fail; what cannot be encoded is refused when it is.
        ciborium::into_writer(self, &mut count).ok();
        count.0
    }

    /// A message made of this one: the same signal and trace, a new id.
    #[must_use]
    pub fn child(&self, id: MessageId, ts: Timestamp) -> Self {
        Self {
            id,
            ts,
            parent: Some(self.id),
            ..self.clone()
        }
    }

    /// The body as text for people: the value as JSON, else the bytes.
    #[must_use]
    pub fn body(&self) -> std::borrow::Cow<'_, [u8]> {
        if self.data.is_null() {
            (&self.raw).into()
        } else {
            self.data.to_string().into_bytes().into()
        }
    }
}

/// Reads a CBOR sequence of messages: the bytes of each and the message. What is no message, or nothing, is the last item, with all
/// bytes that are left.
#[derive(Debug)]
pub struct MessageSequence(Option<Bytes>);

impl MessageSequence {
    /// The sequence in these bytes.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl Iterator for MessageSequence {
    type Item = (Bytes, Result<Message, String>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = self.0.take()?;
        let mut rest = &bytes[..];
        let read = read_first(&mut rest);
        let behind = if read.is_ok() { rest.len() } else { 0 };
        let item = bytes.split_to(bytes.len() - behind);
        self.0 = Some(bytes).filter(|rest| !rest.is_empty());
        Some((item, read))
    }
}

/// What the maker of a message decides of it: the body and the metadata. It is read from a map like that of a message, whose other
/// keys are passed over.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MessageContent {
    /// The body as bytes.
    #[serde(deserialize_with = "bytes_form::deserialize")]
    pub raw: Vec<u8>,
    /// The body as a value; null if there is none.
    pub data: Value,
    /// The metadata, if it has any.
    pub meta: Option<Attributes>,
}

impl MessageContent {
    /// From a CBOR map, in any order; nothing may follow it.
    ///
    /// # Errors
    /// If it is not such a map, in words.
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, String> {
        read(bytes)
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut rest = bytes;
    let read = read_first(&mut rest)?;
    if rest.is_empty() {
        Ok(read)
    } else {
        Err(format!("{} bytes follow it", rest.len()))
    }
}

fn read_first<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<T, String> {
    ciborium::de::from_reader_with_recursion_limit(rest, DEPTH).map_err(|error| error.to_string())
}

/// A value in the deterministic form in which messages travel.
///
/// # Errors
/// Only if the encoder fails, a defect.
pub fn value_to_cbor(value: &Value) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    ciborium::into_writer(&CanonicalValue(value), &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Counts what is written.
struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A JSON value whose maps are written in the order of their encoded keys: shorter ones first, then by bytes.
struct CanonicalValue<'a>(&'a Value);

impl Serialize for CanonicalValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => map_in_order(map, to),
            Value::Array(list) => {
                let mut seq = to.serialize_seq(Some(list.len()))?;
                for value in list {
                    seq.serialize_element(&CanonicalValue(value))?;
                }
                seq.end()
            }
            scalar => scalar.serialize(to),
        }
    }
}

fn map_in_order<S: Serializer>(map: &Map<String, Value>, to: S) -> Result<S::Ok, S::Error> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut out = to.serialize_map(Some(entries.len()))?;
    for (key, value) in entries {
        out.serialize_entry(key, &CanonicalValue(value))?;
    }
    out.end()
}

fn in_order<S: Serializer>(value: &Value, to: S) -> Result<S::Ok, S::Error> {
    CanonicalValue(value).serialize(to)
}

fn facts_in_order<S: Serializer>(facts: &Attributes, to: S) -> Result<S::Ok, S::Error> {
    map_in_order(facts.as_map(), to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn message(data: Value, raw: &[u8]) -> Message {
        let ts = Timestamp::from_micros(1_763_728_200_000_000);
        Message {
            id: MessageId::at(ts, [1; 10]),
            ts,
            raw: raw.to_vec(),
            data,
            hops: 3,
            meta: Attributes::new().with("zz", 1).with("long.key", "x").with("a", true),
            parent: Some(MessageId::at(ts, [2; 10])),
            flux_id: FluxId::at(ts, [3; 10]),
            sampled: true,
            span_id: "b7ad6b7169203331".parse().unwrap(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
            trace_state: None,
        }
    }

    #[test]
    fn a_sequence_gives_each_message_with_its_bytes_and_what_is_none_last() {
        let sent = [message(Value::Null, b"1"), message(json!({"a": [1]}), b"")];
        let one = sent.each_ref().map(|message| Bytes::from(message.to_cbor().unwrap()));
        let read = |bytes: Vec<u8>| MessageSequence::new(bytes.into()).collect::<Vec<_>>();
        let both = [
            (one[0].clone(), Ok(sent[0].clone())),
            (one[1].clone(), Ok(sent[1].clone())),
        ];
        assert_eq!(read(one.concat()), both);
        for (tail, what) in [(vec![0, 1, 2], "no message"), (one[0][..9].to_vec(), "cut off")] {
            let items = read([one.concat(), tail.clone()].concat());
            assert_eq!((items.len(), &items[..2]), (3, &both[..]), "{what}");
            assert!(items[2].0 == tail && items[2].1.is_err(), "{what}");
        }
        assert!(matches!(&read(Vec::new())[..], [(nothing, Err(_))] if nothing.is_empty()));
    }

    /// The keys of every map, as they stand.
    fn keys(value: &ciborium::Value, all: &mut Vec<Vec<Vec<u8>>>) {
        match value {
            ciborium::Value::Map(entries) => {
                let mut own = Vec::new();
                for (key, value) in entries {
                    let mut bytes = Vec::new();
                    ciborium::into_writer(key, &mut bytes).unwrap();
                    own.push(bytes);
                    keys(value, all);
                }
                all.push(own);
            }
            ciborium::Value::Array(list) => list.iter().for_each(|value| keys(value, all)),
            _ => {}
        }
    }

    #[test]
    fn a_message_comes_back_whole_and_all_its_maps_are_in_the_order_of_their_encoded_keys() {
        let deep = json!({"b": {"bb": 1, "a": [{"long": 1.5, "z": null}]}, "aaa": -7, "c": "x".repeat(30)});
        for sent in [
            message(deep, b"\x00\xff"),
            message(Value::Null, b""),
            message(json!([1, 2.25, "x"]), b"x"),
            message(json!("x".repeat(100_000)), &[0xff; 100_000]),
            Message {
                trace_state: TraceState::parse(["congo=t61rcWkgMzE"]),
                ..message(Value::Null, b"x")
            },
        ] {
            let bytes = sent.to_cbor().unwrap();
            assert_eq!(Message::from_cbor(&bytes).unwrap(), sent);
            assert_eq!(sent.size(), bytes.len());
            let mut maps = Vec::new();
            keys(&ciborium::from_reader(bytes.as_slice()).unwrap(), &mut maps);
            for map in maps {
                assert!(map.is_sorted(), "{map:?}");
            }
            assert!(Message::from_cbor(&[bytes.clone(), vec![0]].concat()).is_err());
            assert!(Message::from_cbor(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn keys_of_newer_versions_are_passed_over_within_the_bounds_of_known_ones() {
        use ciborium::Value as Cbor;
        let sent = message(json!({"a": 1}), b"x");
        let with = |key: &str, value: Cbor| {
            let mut map = ciborium::from_reader::<Cbor, _>(&sent.to_cbor().unwrap()[..]).unwrap();
            map.as_map_mut().unwrap().insert(2, (key.into(), value));
            let mut bytes = Vec::new();
            ciborium::into_writer(&map, &mut bytes).unwrap();
            bytes
        };
        let nested = |depth| (0..depth).fold(Cbor::Null, |inner, _| Cbor::Array(vec![inner]));
        let more = [
            Cbor::Null,
            Cbor::Bytes(vec![0xff; 100_000]),
            Cbor::Map(vec![(1.into(), "x".into())]),
            nested(DEPTH / 2),
        ];
        for value in more {
            let bytes = with("priority", value);
            assert_eq!(Message::from_cbor(&bytes).as_ref(), Ok(&sent));
            let both: Vec<_> = MessageSequence::new(bytes.repeat(2).into()).collect();
            assert_eq!(both, vec![(Bytes::from(bytes), Ok(sent.clone())); 2]);
        }
        for (key, value) in [
            ("priority", nested(2 * DEPTH)),
            ("hops", 1.into()),
            ("trace_state", 1.into()),
        ] {
            assert!(Message::from_cbor(&with(key, value)).is_err(), "{key}");
        }
    }

    #[test]
    fn the_content_of_a_message_is_read_from_its_form_and_from_less() {
        let sent = message(json!({"a": 1}), b"x");
        let content = MessageContent::from_cbor(&sent.to_cbor().unwrap()).unwrap();
        assert_eq!(
            (content.raw, content.data, content.meta),
            (sent.raw, sent.data, Some(sent.meta))
        );
        assert_eq!(MessageContent::from_cbor(&[0xa0]), Ok(MessageContent::default()));
        for bad in [&b""[..], b"\xa0\x00", b"\x60", b"\xa1\x63raw\x01", b"\xa1\x64meta\x01"] {
            assert!(MessageContent::from_cbor(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn equal_metadata_has_equal_bytes_however_it_was_set() {
        let (mut one, mut other) = (message(Value::Null, b""), message(Value::Null, b""));
        one.meta = Attributes::new().with("a", 1).with("b", 2);
        other.meta = Attributes::new().with("b", 2).with("a", 1);
        assert_eq!(one.to_cbor().unwrap(), other.to_cbor().unwrap());
    }

    #[test]
    fn a_child_has_a_name_of_its_own_and_says_whose_it_is() {
        let parent = message(Value::Null, b"x");
        let child = parent.child(MessageId::at(parent.ts, [9; 10]), Timestamp::from_micros(5));
        assert_eq!((child.parent, child.flux_id), (Some(parent.id), parent.flux_id));
        assert_ne!(child.id, parent.id);
    }
}
