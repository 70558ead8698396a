//! `log_sink`: writes each message as a log record.
//!
//! # Invariants
//!
//! - Records are durable before more than one batch of messages has been taken from the inbox: a slow disk slows the
//!   senders, nothing is dropped.
//! - The body becomes text: invalid UTF-8 is replaced, more than [`MAX_TEXT`] bytes are cut; both are marked.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::ready;
use gear_spec::log_sink::LogSinkConfig;
use model::{Attributes, Level, gear_manifest};

use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use crate::telemetry::{BATCH_BYTES, BATCH_ROWS, LogRow};

/// The most bytes of a body that become a record's text.
pub(crate) const MAX_TEXT: usize = 64 * 1024;
/// The most bytes of facts of a message that become attributes.
const MAX_FACTS: usize = 64 * 1024;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: LogSinkConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(LogRecordSink {
        level: config.level,
        rows: Vec::new(),
        bytes: 0,
    })))
}

struct LogRecordSink {
    level: Level,
    rows: Vec<LogRow>,
    bytes: usize,
}

impl PassiveGear for LogRecordSink {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        let reason = "this Rack collects no telemetry (observability.enabled, PLATFORM_DISABLE_TELEMETRY), so its records would be lost";
        ready(if cx.recorder().is_enabled() {
            Ok(())
        } else {
            Err(GearError::Config(reason.to_owned()))
        })
        .boxed()
    }

    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = delivery.message;
            let (text, attributes) = text_of(&message.body());
            let mut attributes = facts(message.meta, attributes);
            attributes.set("trace_id", message.trace_id.to_string());
            attributes.set("span_id", message.span_id.to_string());
            let row = LogRow {
                ts: cx.recorder().now(),
                level: self.level,
                message: text,
                attributes,
                flux_id: Some(message.flux_id),
            };
            self.bytes += row.size();
            self.rows.push(row);
            if self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES {
                self.flush(cx).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            if self.rows.is_empty() {
                return Ok(());
            }
            let rows = std::mem::take(&mut self.rows);
            self.bytes = 0;
            Ok(cx.recorder().log_durably(rows, None).await?)
        }
        .boxed()
    }
}

/// The body as text, with marks for what was lost.
fn text_of(body: &[u8]) -> (String, Attributes) {
    let mut marks = Attributes::new();
    let head = body.get(..MAX_TEXT).unwrap_or(body);
    let mut text = match std::str::from_utf8(head) {
        Ok(text) => text.to_owned(),
        // A character that the cut went through is not invalid.
        Err(error) if error.error_len().is_none() && head.len() < body.len() => {
            String::from_utf8_lossy(&head[..error.valid_up_to()]).into_owned()
        }
        Err(_) => {
            marks.set("invalid_utf8", true);
            String::from_utf8_lossy(head).into_owned()
        }
    };
    if head.len() < body.len() || text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        marks.set("truncated", true);
    }
    (text, marks)
}

/// The message's facts with the marks, or only the marks where the facts are too many.
fn facts(meta: Attributes, marks: Attributes) -> Attributes {
    let size: usize = meta
        .as_map()
        .iter()
        .map(|(key, value)| key.len() + value.to_string().len())
        .sum();
    let mut all = if size > MAX_FACTS {
        Attributes::new().with("meta_dropped", true)
    } else {
        meta
    };
    for (key, value) in marks.as_map() {
        all.set(key, value.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::gears::testing::{Bench, push};

    #[tokio::test]
    async fn a_rack_that_collects_no_telemetry_refuses_it() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open_with(folder.path(), false);
        let mut runtime = bench.runtime();
        let gears =
            "[ { name: numbers, type: generator, deploy: rack-a }, { name: sink, type: log_sink, deploy: rack-a } ]";
        let applied = runtime
            .apply(&push("h", gears, "{ from: numbers.out, to: sink.in }"))
            .await;
        assert!(applied.error.unwrap().contains("PLATFORM_DISABLE_TELEMETRY"));
        runtime.close().await;
        bench.close().await;
    }

    #[test]
    fn a_body_becomes_text_and_every_loss_is_marked() {
        assert_eq!(text_of("grüße".as_bytes()), ("grüße".to_owned(), Attributes::new()));
        let (text, marks) = text_of(b"a\xffb");
        assert_eq!(
            (text.as_str(), marks.to_json().as_str()),
            ("a\u{fffd}b", r#"{"invalid_utf8":true}"#)
        );
        let (text, marks) = text_of("é".repeat(MAX_TEXT).as_bytes());
        assert_eq!(
            (text.len(), marks.to_json().as_str()),
            (MAX_TEXT, r#"{"truncated":true}"#)
        );
        let (text, marks) = text_of(format!("x{}", "é".repeat(MAX_TEXT)).as_bytes());
        assert_eq!(
            (text.len(), marks.to_json().as_str()),
            (MAX_TEXT - 1, r#"{"truncated":true}"#)
        );
    }
}
