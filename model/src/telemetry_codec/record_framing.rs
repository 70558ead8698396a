//! Record framing: where the records of a body begin and end.

use std::ops::Range;

use serde::de::DeserializeOwned;

/// The largest JSON or CBOR record: values become many times their text while they are read.
pub(super) const LARGEST: usize = 8 << 20;
/// The deepest nesting of a CBOR record.
const CBOR_DEPTH: usize = 16;

/// Why a record of so many bytes is not read.
pub(super) fn too_large(bytes: usize) -> String {
    format!("the record has {bytes} bytes, more than {LARGEST}")
}

/// The next line that is not blank, and where the one behind it begins.
#[must_use]
pub fn line(body: &[u8], mut start: usize) -> Option<(Range<usize>, usize)> {
    loop {
        let rest = body.get(start..).filter(|rest| !rest.is_empty())?;
        let end = memchr::memchr(b'\n', rest).map_or(body.len(), |at| start + at + 1);
        let line = start..end;
        start = end;
        if !body.get(line.clone())?.trim_ascii_start().is_empty() {
            return Some((line, start));
        }
    }
}

/// Where the element that begins at `start` ends: at a comma, at the closing bracket, or at the end of the body.
#[must_use]
pub fn element(body: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0usize);
    while let Some(byte) = body.get(at) {
        match byte {
            b'"' => at = text_end(body, at + 1),
            b'{' | b'[' => depth += 1,
            b',' | b']' if depth == 0 => return at,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    body.len()
}

/// Where the quote is that ends a text, or the end of the body.
fn text_end(body: &[u8], mut at: usize) -> usize {
    while let Some(next) = memchr::memchr2(b'"', b'\\', body.get(at..).unwrap_or_default()) {
        at += next;
        if body.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    body.len()
}

/// What is first in some CBOR, and its bytes.
pub(super) fn cbor<T: DeserializeOwned>(from: &[u8]) -> Result<(T, usize), String> {
    let mut behind = from;
    let read = ciborium::de::from_reader_with_recursion_limit(&mut behind, CBOR_DEPTH);
    let value = read.map_err(|error| error.to_string())?;
    Ok((value, from.len() - behind.len()))
}
