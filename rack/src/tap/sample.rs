//! A sample of a message: as much of it as fits.

use std::io::{self, Write};

use model::message::Message;
use model::tap::{MOST_BODY, MOST_FACTS, TapSample};
use model::{Attributes, Timestamp};
use serde_json::Value;

/// What a sample takes beside its body and its facts, about.
const OVERHEAD: usize = 128;

/// A sample, and about how many bytes it takes.
#[derive(Debug)]
pub(super) struct SizedSample {
    pub(super) sample: TapSample,
    pub(super) bytes: u64,
}

/// A message as it is shown. What does not fit is not copied.
pub(super) fn of(message: &Message, number: u64, ts: Timestamp) -> SizedSample {
    let (meta, facts_len) = facts(&message.meta);
    let (body, size) = if message.data.is_null() {
        let shown = message.raw.get(..MOST_BODY).unwrap_or(&message.raw);
        (shown.to_vec(), Some(message.raw.len()))
    } else {
        let (body, is_whole) = json(&message.data, MOST_BODY);
        let size = is_whole.then_some(body.len());
        (body, size)
    };
    let bytes = u64::try_from(OVERHEAD + facts_len + body.len()).unwrap_or(u64::MAX);
    let sample = TapSample {
        number,
        ts,
        id: message.id,
        flux_id: message.flux_id,
        is_meta_cut: meta.as_map().len() < message.meta.as_map().len(),
        meta,
        is_value: !message.data.is_null(),
        is_cut: size != Some(body.len()),
        size: size.and_then(|size| u64::try_from(size).ok()),
        body,
    };
    SizedSample { sample, bytes }
}

/// The facts that fit, in their order, and the bytes they take.
fn facts(meta: &Attributes) -> (Attributes, usize) {
    let (mut shown, mut taken) = (Attributes::new(), 0);
    for (key, value) in meta.as_map() {
        let (text, is_whole) = json(value, MOST_FACTS - taken);
        let with_it = taken + key.len() + text.len();
        if !is_whole || with_it > MOST_FACTS {
            break;
        }
        taken = with_it;
        shown.set(key, value.clone());
    }
    (shown, taken)
}

/// A value as JSON up to so many bytes, and whether that is all of it.
fn json(value: &Value, most: usize) -> (Vec<u8>, bool) {
    let mut out = BoundedText { text: Vec::new(), most };
    let is_whole = serde_json::to_writer(&mut out, value).is_ok();
    (out.text, is_whole)
}

/// Takes so many bytes and then fails.
struct BoundedText {
    text: Vec<u8>,
    most: usize,
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.most - self.text.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.text.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
