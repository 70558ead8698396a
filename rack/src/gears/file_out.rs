//! `file_out`: appends each message to a file as a line.
//!
//! # Invariants
//!
//! - A file has whole lines only: what a failed write left of a line is cut off again.
//! - A write that fails is [`GearError::Outside`]. Its lines are kept for the next life of the gear, which writes them before it
//!   takes another message: with a full disk messages wait in the inbox, and none is lost or written twice, also where the lane
//!   gives them to the next life again.
//! - Paths are the configured one and the same with a number behind it; nothing of a message gets into a path.
//! - At most `rotate.keep` old files: `<path>.1` is the youngest.
//!
//! # Not here
//!
//! The file (`file`).

mod append_file;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use gear_spec::file_out::{FileOutConfig, LineFormat};
use model::gear_manifest;
use model::message::Message;
use model::{HumanDuration, MessageId};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::output_transaction::DeliveryGuarantee;
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use append_file::{AppendFile, AppendFileOptions};

/// About how many bytes are written at once.
const BATCH: usize = 256 * 1024;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: FileOutConfig = gear_manifest::config(config)?;
    let rules = AppendFileOptions {
        path: config.path.clone(),
        fsync: config.fsync,
        max_size: config.rotate.size,
        every: config.rotate.every.map(HumanDuration::get),
        keep: config.rotate.keep,
    };
    Ok(Gear::Passive(Box::new(FileAppender {
        format: config.format,
        rules,
        file: None,
        pending: Arc::default(),
        inherited: HashMap::new(),
    })))
}

/// Whole lines that are not written, and the messages that come again if the gear fails.
#[derive(Default)]
struct PendingLines {
    lines: Vec<u8>,
    /// Those of these lines, and those whose lines were written since the last flush.
    of: Vec<MessageId>,
}

struct FileAppender {
    format: LineFormat,
    rules: AppendFileOptions,
    /// None before the gear begins, and while a thread writes.
    file: Option<AppendFile>,
    /// It outlives this life.
    pending: Arc<Mutex<PendingLines>>,
    /// How often a life before wrote each, or left it to be written: so often it is given again.
    inherited: HashMap<MessageId, usize>,
}

impl PassiveGear for FileAppender {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let files = cx.policy().writable().clone();
            self.file = Some(AppendFile::new(self.rules.clone(), files));
            self.pending = cx.restart_state();
            for id in &self.pending.lock().of {
                *self.inherited.entry(*id).or_default() += 1;
            }
            self.write(cx).await
        }
        .boxed()
    }

    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = delivery.message;
            if let Some(times) = self.inherited.get_mut(&message.id).filter(|times| **times > 0) {
                *times -= 1;
                return Ok(());
            }
            let is_full = {
                let mut pending = self.pending.lock();
                append_line(self.format, &message, &mut pending.lines);
                if DeliveryGuarantee::current() == DeliveryGuarantee::Again {
                    pending.of.push(message.id);
                }
                pending.lines.len() >= BATCH
            };
            if is_full { self.write(cx).await } else { Ok(()) }
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            if !self.pending.lock().lines.is_empty() {
                self.write(cx).await?;
            }
            // From here on they do not come again, but for those of a life before that have not come so far.
            let rest = self
                .inherited
                .iter()
                .flat_map(|(id, times)| std::iter::repeat_n(*id, *times));
            self.pending.lock().of = rest.collect();
            Ok(())
        }
        .boxed()
    }
}

impl FileAppender {
    /// Opens the file if it is not open, and writes what is pending.
    async fn write(&mut self, cx: &GearContext) -> Result<(), GearError> {
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        let (now, pending) = (cx.recorder().now(), Arc::clone(&self.pending));
        let write = move || {
            // Nobody else has the lock for longer than a line takes; a life that was cut off may still be writing.
            let mut pending = pending.lock();
            let (written, result) = file.append(&pending.lines, now);
            pending.lines.drain(..written);
            pending.lines.shrink_to(BATCH);
            (file, result)
        };
        let (file, written) = tokio::task::spawn_blocking(write).await?;
        let what = format!("write to {}", file.path().display());
        self.file = Some(file);
        written.map_err(|reason| GearError::Outside { what, reason })
    }
}

/// Appends a message's line.
fn append_line(format: LineFormat, message: &Message, to: &mut Vec<u8>) {
    match format {
        LineFormat::Body => text(&message.body(), to),
        LineFormat::Json => to.extend_from_slice(whole(message).to_string().as_bytes()),
    }
    to.push(b'\n');
}

/// A body without the line break at its end, others within it escaped.
fn text(body: &[u8], to: &mut Vec<u8>) {
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    let body = body.strip_suffix(b"\r").unwrap_or(body);
    for byte in body {
        match byte {
            b'\n' => to.extend_from_slice(b"\\n"),
            b'\r' => to.extend_from_slice(b"\\r"),
            byte => to.push(*byte),
        }
    }
}

/// A message as JSON: the body as text where it is one.
fn whole(message: &Message) -> Value {
    let mut all = json!({
        "id": message.id.to_string(),
        "ts": message.ts.to_string(),
        "flux_id": message.flux_id.to_string(),
        "trace_id": message.trace_id.to_string(),
        "span_id": message.span_id.to_string(),
        "hops": message.hops,
        "meta": message.meta.as_map(),
    });
    if let Some(parent) = message.parent {
        all["parent"] = parent.to_string().into();
    }
    if !message.data.is_null() {
        all["data"] = message.data.clone();
    }
    match std::str::from_utf8(&message.raw) {
        Ok("") => {}
        Ok(text) => all["raw"] = text.into(),
        Err(_) => all["raw_base64"] = STANDARD.encode(&message.raw).into(),
    }
    all
}
