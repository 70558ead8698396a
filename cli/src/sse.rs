//! Parser of server-sent events.
//!
//! # Invariants
//!
//! - An event is given when its last line has come; one that breaks off is none, and its `id` does not count.
//!
//! # Not here
//!
//! Connections, and what events mean (`commands::tail`).

use std::io::{self, BufRead, BufReader, Read};

/// The longest line, in bytes.
const LONGEST: u64 = 64 << 20;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Empty for that of a row, and for one that only carries an id.
    pub(crate) name: String,
    /// Where to go on after it.
    pub(crate) id: Option<String>,
    /// Empty for one that only carries an id.
    pub(crate) data: String,
}

/// The events of a stream.
pub(crate) struct SseReader<R> {
    reader: BufReader<R>,
}

impl<R: Read> SseReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
        }
    }

    /// The next event, comments apart; `None` at the stream's end.
    pub(crate) fn next(&mut self) -> io::Result<Option<SseEvent>> {
        let mut event = SseEvent::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            (&mut self.reader).take(LONGEST).read_until(b'\n', &mut line)?;
            if line.pop() != Some(b'\n') {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line);
            match text.split_once(':') {
                None if text.is_empty() => return Ok(Some(event)),
                Some(("event", value)) => value.trim_start().clone_into(&mut event.name),
                Some(("id", value)) => event.id = Some(value.trim_start().to_owned()),
                Some(("data", value)) => event.data.push_str(value.strip_prefix(' ').unwrap_or(value)),
                _ => {}
            }
        }
    }

    /// Whether something of the next event has come already.
    pub(crate) fn has_more(&self) -> bool {
        !self.reader.buffer().is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn events_come_whole_with_their_ids_and_a_broken_one_does_not() {
        let stream = "retry: 1000\nid: a-1\n: following\n\nid: a-2\ndata: {\"b\": \"c: d\"}\n\nevent: lagged\nid: a-3\ndata: {}\n\nid: a-4\ndata: {\n";
        let mut events = SseReader::new(stream.as_bytes());
        let event = |name: &str, id: &str, data: &str| SseEvent {
            name: name.to_owned(),
            id: Some(id.to_owned()),
            data: data.to_owned(),
        };
        for wanted in [
            event("", "a-1", ""),
            event("", "a-2", "{\"b\": \"c: d\"}"),
            event("lagged", "a-3", "{}"),
        ] {
            assert_eq!(events.next().unwrap(), Some(wanted));
        }
        assert!(events.has_more());
        assert_eq!(events.next().unwrap(), None);
    }
}
