//! JSON scanner: cuts a line into the texts of its values, without building them.
//!
//! # Invariants
//!
//! - Reads what [`super::row_writer`] wrote, whatever the order of the keys; anything else is an error, never a panic. Values are
//!   checked by whoever parses them.

/// Hands each key, as it stands between its quotes, and the text of its value to `each`.
pub(super) fn members<'a>(line: &'a [u8], mut each: impl FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    let mut rest = blank(line).strip_prefix(b"{")?;
    rest = blank(rest);
    if let Some(behind) = rest.strip_prefix(b"}") {
        return blank(behind).is_empty().then_some(());
    }
    loop {
        let key = value(blank(rest))?;
        let inner = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        rest = blank(blank(rest).get(key.len()..)?).strip_prefix(b":")?;
        rest = blank(rest);
        let text = value(rest)?;
        each(inner, text);
        rest = blank(rest.get(text.len()..)?);
        match rest.split_first()? {
            (b',', behind) => rest = behind,
            (b'}', behind) => return blank(behind).is_empty().then_some(()),
            _ => return None,
        }
    }
}

fn blank(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

/// The text of the value that `text` begins with.
pub(super) fn value(text: &[u8]) -> Option<&[u8]> {
    let end = match text.first()? {
        b'"' => string(text)?,
        b'{' | b'[' => nested(text)?,
        _ => text
            .iter()
            .position(|b| matches!(b, b',' | b'}' | b']') || b.is_ascii_whitespace())
            .unwrap_or(text.len()),
    };
    (end > 0).then(|| &text[..end])
}

/// The length of the string that `text` begins with, quotes included.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn nested(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0usize, 0usize);
    loop {
        match text.get(at)? {
            b'"' => at += string(&text[at..])?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

/// Whether the text is one object, and stands on one line, so that it may stand in a line as it is.
pub(super) fn is_object(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = bytes.first() == Some(&b'{') && bytes.iter().all(|b| *b >= b' ');
    plain && value(bytes).is_some_and(|value| value.len() == bytes.len()) && {
        serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    }
}
