//! `codec_json`: JSON texts to values and back.
//!
//! # Invariants
//!
//! - A body is one JSON text of at most 128 levels, and nothing behind it. Integers beyond 64 bits become floating; of equal keys the
//!   last one counts.

use std::sync::Arc;

use futures::FutureExt;
use gear_spec::codec::{CodecConfig, CodecDirection};
use model::gear_manifest;
use model::message::Message;
use serde_json::Value;

use super::codec::{data, decoded, encoded, raw};
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Passive(Box::new(JsonCodec(gear_manifest::config(config)?))))
}

struct JsonCodec(CodecConfig);

impl PassiveGear for JsonCodec {
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

impl JsonCodec {
    fn convert(&self, cx: &GearContext, of: &Message) -> Result<Message, GearError> {
        match self.0.direction {
            CodecDirection::Decode => {
                let read: Result<Value, _> = serde_json::from_slice(raw(of)?);
                let value = read.map_err(|error| GearError::Rejected(format!("the body is not JSON: {error}")))?;
                Ok(decoded(cx, of, value, self.0.keep_raw))
            }
            CodecDirection::Encode => {
                let bytes = data(of)?.to_string().into_bytes();
                Ok(encoded(cx, of, bytes, "application/json"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::Flow;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn texts_become_values_and_values_texts_and_what_is_none_is_refused_with_its_place() {
        let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
        let flow = Flow::run(
            &format!(
                "
  - {{ name: feed, type: test_feed, deploy: rack-a, config: {{ messages: [
      {{ raw: '{{\"b\": [1, 2.5, null], \"a\": \"ü\"}}' }}, {{ raw: \"[1,\\n 2\" }}, {{ raw: '1 2' }}, {{ raw: '{deep}' }}, {{ hex: 22ff22 }}, {{ data: 1 }}, {{ }} ] }} }}
  - {{ name: read, type: codec_json, deploy: rack-a, config: {{ direction: decode }} }}
  - {{ name: pick, type: map, deploy: rack-a, config: {{ data: '[data.a, data.b[1], text]' }} }}
  - {{ name: write, type: codec_json, deploy: rack-a, config: {{ direction: encode }} }}
  - {{ name: kept, type: codec_json, deploy: rack-a, config: {{ direction: decode, keep_raw: true }} }}
  - {{ name: both, type: filter, deploy: rack-a, config: {{ where: 'text.startsWith(\"{{\") && data.a == \"ü\"' }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}
  - {{ name: kept_sink, type: log_sink, deploy: rack-a }}"
            ),
            "{ from: feed.out, to: read.in }, { from: read.out, to: pick.in }, { from: pick.out, to: write.in }, { from: write.out, to: sink.in }, \
             { from: feed.out, to: kept.in }, { from: kept.out, to: both.in }, { from: both.out, to: kept_sink.in }",
        )
        .await;
        let row = flow.rows("sink").remove(0);
        assert_eq!(
            (row["message"].as_str(), flow.rows("sink").len()),
            (Some(r#"["ü",2.5,""]"#), 1)
        );
        assert_eq!(row["attributes"]["content_type"], "application/json");
        assert_eq!(flow.rows("kept_sink").len(), 1);
        assert!(flow.says(
            "read",
            "the body is not JSON: EOF while parsing a list at line 2 column 2"
        ));
        assert_eq!(flow.counter("read", "gear.messages.dropped"), 6.0);
    }
}
