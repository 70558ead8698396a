//! What of a message is shown: as much as fits.

use std::io::{self, Write};

use model::message::Message;
use model::tap::{MOST_BODY, MOST_FACTS, TapSample};
use model::{Attributes, Timestamp};
use serde_json::Value;

/// What a sample takes beside its body and its facts, about.
const OVERHEAD: usize = 128;

/// A message as it is shown. What does not fit is not copied.
pub(super) fn of(message: &Message, number: u64, ts: Timestamp) -> TapSample {
    let (meta, is_meta_cut) = facts(&message.meta);
    let (body, size) = if message.data.is_null() {
        let shown = message.raw.len().min(MOST_BODY);
        (message.raw[..shown].to_vec(), Some(message.raw.len()))
    } else {
        let (body, is_whole) = json(&message.data, MOST_BODY);
        let size = is_whole.then_some(body.len());
        (body, size)
    };
    TapSample {
        number,
        ts,
        id: message.id,
        flux_id: message.flux_id,
        meta,
        is_meta_cut,
        is_value: !message.data.is_null(),
        is_cut: size != Some(body.len()),
        size: size.and_then(|size| u64::try_from(size).ok()),
        body,
    }
}

/// What a sample takes, about.
pub(super) fn size(sample: &TapSample) -> u64 {
    let facts = sample.meta.as_map().iter();
    let facts: usize = facts.map(|(key, value)| key.len() + text_len(value)).sum();
    u64::try_from(OVERHEAD + facts + sample.body.len()).unwrap_or(u64::MAX)
}

fn text_len(value: &Value) -> usize {
    value.as_str().map_or(8, str::len)
}

/// The facts that fit, in their order, and whether some do not.
fn facts(meta: &Attributes) -> (Attributes, bool) {
    let (mut shown, mut left) = (Attributes::new(), MOST_FACTS);
    for (key, value) in meta.as_map() {
        let (text, is_whole) = json(value, left);
        match left.checked_sub(key.len() + text.len()).filter(|_| is_whole) {
            Some(rest) => left = rest,
            None => return (shown, true),
        }
        shown.set(key, value.clone());
    }
    (shown, false)
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
