//! `codec_cbor`: CBOR to values and back, by the rules of RFC 8949, 6.1 and 4.2.1.
//!
//! | CBOR | value |
//! |---|---|
//! | byte string | its base64url text, without padding |
//! | integer keys of a map | their decimal text |
//! | what a tag holds | itself; the tag is left out |
//! | infinite, not a number, undefined, other simple values | null |
//! | integers beyond 64 bits, other keys | refused |
//!
//! # Invariants
//!
//! - A body is one item of at most 128 levels, and nothing behind it.
//! - Equal values are encoded as equal bytes.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ciborium::Value as Item;
use ciborium::de::Error;
use futures::FutureExt;
use gear_spec::codec::{CodecConfig, CodecDirection};
use model::gear_manifest;
use model::message::{Message, value_to_cbor};
use serde_json::{Map, Number, Value};

use super::codec::{MAX_DEPTH, data, decoded, encoded, raw};
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Passive(Box::new(CborCodec(gear_manifest::config(config)?))))
}

struct CborCodec(CodecConfig);

impl PassiveGear for CborCodec {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = self.convert(cx, &delivery.message)?;
            // A refusal has been counted and reported.
            cx.send("out", message).await.ok();
            Ok(())
        }
        .boxed()
    }
}

impl CborCodec {
    fn convert(&self, cx: &GearContext, of: &Message) -> Result<Message, GearError> {
        let refused = |reason| GearError::Rejected(format!("the body is not CBOR that a value can hold: {reason}"));
        match self.0.direction {
            CodecDirection::Decode => {
                let value = read(raw(of)?).map_err(refused)?;
                Ok(decoded(cx, of, value, self.0.keep_raw))
            }
            CodecDirection::Encode => {
                let bytes = value_to_cbor(data(of)?).map_err(GearError::Rejected)?;
                Ok(encoded(cx, of, bytes, "application/cbor"))
            }
        }
    }
}

/// The value of a body.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    let mut rest = bytes;
    let item: Item =
        ciborium::de::from_reader_with_recursion_limit(&mut rest, MAX_DEPTH).map_err(|error| match error {
            Error::Io(_) => format!("it ends after {} bytes within an item", bytes.len()),
            Error::Syntax(at) => format!("no item begins like that, at byte {at}"),
            Error::Semantic(Some(at), why) => format!("{why}, at byte {at}"),
            Error::Semantic(None, why) => why,
            Error::RecursionLimitExceeded => format!("it is nested more than {MAX_DEPTH} deep"),
        })?;
    if rest.is_empty() {
        value(item)
    } else {
        Err(format!(
            "{} bytes follow the item, from byte {} on",
            rest.len(),
            bytes.len() - rest.len()
        ))
    }
}

fn value(item: Item) -> Result<Value, String> {
    Ok(match item {
        Item::Bool(value) => value.into(),
        Item::Integer(integer) => integer_value(integer)?.into(),
        Item::Float(float) => Number::from_f64(float).map_or(Value::Null, Value::Number),
        Item::Text(text) => text.into(),
        Item::Bytes(bytes) => URL_SAFE_NO_PAD.encode(bytes).into(),
        Item::Tag(_, inner) => value(*inner)?,
        Item::Array(items) => items.into_iter().map(value).collect::<Result<_, _>>()?,
        Item::Map(entries) => {
            let entries = entries
                .into_iter()
                .map(|(key, item)| Ok((key_text(key)?, value(item)?)));
            Value::Object(entries.collect::<Result<Map<_, _>, String>>()?)
        }
        _ => Value::Null,
    })
}

fn integer_value(integer: ciborium::value::Integer) -> Result<Number, String> {
    let wide = i128::from(integer);
    if let Ok(signed) = i64::try_from(wide) {
        Ok(signed.into())
    } else if let Ok(unsigned) = u64::try_from(wide) {
        Ok(unsigned.into())
    } else {
        Err(format!("the integer {wide} has more than 64 bits"))
    }
}

fn key_text(key: Item) -> Result<String, String> {
    match key {
        Item::Text(text) => Ok(text),
        Item::Integer(integer) => Ok(integer_value(integer)?.to_string()),
        _ => Err("a key of a map is neither text nor an integer".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use serde_json::json;

    use super::super::testing::Flow;
    use super::*;

    #[test]
    fn items_become_the_values_that_the_rfc_names() {
        for (bytes, wanted) in [
            (&b"\x18\x2a"[..], json!(42)),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", json!(u64::MAX)),
            (b"\x20", json!(-1)),
            (b"\xf9\x3e\x00", json!(1.5)),
            (b"\xf9\x7e\x00", json!(null)),
            (b"\xf7", json!(null)),
            (b"\x43\x01\x02\xff", json!("AQL_")),
            (b"\xc1\x1a\x51\x4b\x67\xb0", json!(1_363_896_240)),
            (b"\xa2\x01\x02\x61a\x9f\x01\xff", json!({"1": 2, "a": [1]})),
            (b"\x7f\x61a\x61b\xff", json!("ab")),
        ] {
            assert_eq!(read(bytes), Ok(wanted), "{bytes:x?}");
        }
        for (bytes, says) in [
            (&b"\x18"[..], "it ends after 1 bytes"),
            (b"\x01\x02", "1 bytes follow the item, from byte 1 on"),
            (b"\x82\x01\x1c", "at byte 2"),
            (
                b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff",
                "-18446744073709551616 has more than 64 bits",
            ),
            (b"\xa1\x80\x01", "neither text nor an integer"),
            (b"\x62\xff\xff", "at byte"),
            (&[0x81; 200], "nested more than 128 deep"),
            (b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "it ends"),
            (b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", "it ends"),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(error.contains(says), "{bytes:x?}: {error}");
        }
    }

    #[test]
    fn random_bytes_are_read_or_refused_and_what_is_read_comes_back() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut read_at_all = 0;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.random_range(1..24)).map(|_| rng.random()).collect();
            if let Ok(value) = read(&bytes) {
                read_at_all += 1;
                assert_eq!(read(&value_to_cbor(&value).unwrap()), Ok(value));
            }
        }
        assert!(read_at_all > 100, "{read_at_all}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn items_become_values_and_values_items() {
        let flow = Flow::run(
            "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [ { hex: a2616201616102 }, { hex: a2616102616201 }, { hex: a261 } ] } }
  - { name: read, type: codec_cbor, deploy: rack-a, config: { direction: decode } }
  - { name: write, type: codec_cbor, deploy: rack-a, config: { direction: encode } }
  - { name: again, type: codec_cbor, deploy: rack-a, config: { direction: decode } }
  - { name: sink, type: log_sink, deploy: rack-a }",
            "{ from: feed.out, to: read.in }, { from: read.out, to: write.in }, { from: write.out, to: again.in }, { from: again.out, to: sink.in }",
        )
        .await;
        assert_eq!(flow.texts("sink"), [r#"{"a":2,"b":1}"#, r#"{"a":2,"b":1}"#]);
        assert_eq!(flow.rows("sink")[0]["attributes"]["content_type"], "application/cbor");
        assert!(flow.says("read", "it ends after 2 bytes within an item"));
    }
}
