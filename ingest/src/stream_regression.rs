//! Regression detection: checks whether a stream still has the messages that were read from it.
//!
//! A bus server that writes without sync and loses power forgets the last messages of a stream, and gives their sequence numbers to
//! new ones. A new message would then pass for the stored one with its number. So the stream is compared with what is
//! known about it before anything of it is appended, and again on each new connection. It has lost its end if its last sequence is
//! lower than the highest known one, or if another message has that sequence. It then continues under the next incarnation, in
//! which no sequence is known.
//!
//! # Invariants
//!
//! - A message is appended under an incarnation that was checked against the bus on the connection that brought the message.
//! - Two messages are the same if the bus reports the same storage time for both; which one is later does not matter.
//! - Messages that the bus removed from the beginning of a stream do not count as lost.
//!
//! # Limits
//!
//! If we are not connected directly to the server that loses the only copy of a stream, the loss is noticed when a sequence comes a
//! second time as a first delivery on the same subscription, or at the next connection.

use std::sync::atomic::Ordering;

use async_nats::Client;
use async_nats::jetstream::Message;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream as BusStream};
use engine::{Engine, StreamTail};
use tracing::warn;

use crate::error::{Error, bus_error};

/// How many connections the client has made. A new connection is counted before its first message comes.
pub(crate) fn connections(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}

/// The position of a message in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPoint {
    pub(crate) seq: u64,
    /// When the bus stored it, ns; tells it from another message with the same sequence.
    pub(crate) identity: i64,
    /// Whether the bus delivers it for the first time.
    pub(crate) is_first: bool,
}

impl StreamPoint {
    pub(crate) fn of(message: &Message) -> Result<Self, async_nats::Error> {
        let info = message.info()?;
        Ok(Self {
            seq: info.stream_sequence,
            identity: nanos(info.published.unix_timestamp_nanos()),
            is_first: info.delivered <= 1,
        })
    }
}

fn nanos(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// How far a stream is known: what is stored, and what this process has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownStream {
    /// When the stream was created, µs. This is also the number of its first incarnation.
    pub(crate) created: i64,
    pub(crate) tail: StreamTail,
}

impl KnownStream {
    /// Joins what is stored and what was read of the stream that was created at `created`, in the later incarnation of the two.
    fn join(created: i64, stored: Option<StreamTail>, taken: Option<Self>) -> Self {
        let taken = taken.filter(|taken| taken.created == created).map(|taken| taken.tail);
        let both = [stored, taken].into_iter().flatten();
        let tail = both.reduce(|one, other| match one.incarnation.cmp(&other.incarnation) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => one,
            std::cmp::Ordering::Equal => StreamTail {
                incarnation: one.incarnation,
                last: one.last.max(other.last),
                newest: one.newest.max(other.newest),
            },
        });
        Self {
            created,
            tail: tail.unwrap_or_else(|| empty_tail(created)),
        }
    }

    /// Whether the stream has lost its end: `last` is its last sequence, `found` identifies the message that it has at the newest known
    /// sequence.
    fn is_lost(&self, last: u64, found: Option<i64>) -> bool {
        let is_other = self
            .tail
            .newest
            .zip(found)
            .is_some_and(|((_, known), found)| known != found);
        last < self.tail.last || is_other
    }

    /// Records that a message was read.
    pub(crate) fn advance(&mut self, point: StreamPoint) {
        self.tail.last = self.tail.last.max(point.seq);
        self.tail.newest = self.tail.newest.max(Some((point.seq, point.identity)));
    }
}

const fn empty_tail(incarnation: i64) -> StreamTail {
    StreamTail {
        incarnation,
        last: 0,
        newest: None,
    }
}

/// Checks a stream for regression, and returns what is known of it in the incarnation in which it continues.
pub(crate) async fn check_regression(
    stream: &BusStream,
    engine: &Engine,
    taken: Option<KnownStream>,
) -> Result<KnownStream, Error> {
    let name = &stream.cached_info().config.name;
    let info = stream.get_info().await.map_err(bus_error("ask for the stream", name))?;
    let created = nanos(info.created.unix_timestamp_nanos()) / 1_000;
    let mut known = KnownStream::join(created, engine.stream_tail(name, created), taken);
    let found = match known.tail.newest {
        Some((seq, _)) => match stream.get_raw_message(seq).await {
            Ok(message) => Some(nanos(message.time.unix_timestamp_nanos())),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
            Err(error) => return Err(bus_error("look for the last known message of", name)(error)),
        },
        None => None,
    };
    let last = info.state.last_sequence;
    if known.is_lost(last, found) {
        warn!(
            stream = name,
            last,
            ?known,
            "the bus lost the last messages of a stream: reused sequences are new messages"
        );
        known.tail = empty_tail(known.tail.incarnation + 1);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tail(incarnation: i64, last: u64, newest: Option<(u64, i64)>) -> StreamTail {
        StreamTail {
            incarnation,
            last,
            newest,
        }
    }

    const fn known(created: i64, tail: StreamTail) -> KnownStream {
        KnownStream { created, tail }
    }

    #[test]
    fn a_stream_has_lost_its_end_if_its_newest_known_message_is_missing_or_another() {
        let known = known(500, tail(500, 10, Some((10, 77))));
        for (last, found, is_lost) in [
            (10, Some(77), false),
            (12, Some(77), false),
            (12, None, false),
            (9, None, true),
            (0, None, true),
            (10, Some(78), true),
            (12, Some(78), true),
        ] {
            assert_eq!(known.is_lost(last, found), is_lost, "{last} {found:?}");
        }
    }

    #[test]
    fn an_unknown_stream_has_lost_nothing() {
        let unknown = KnownStream::join(500, None, None);
        assert_eq!((unknown.tail, unknown.is_lost(0, None)), (tail(500, 0, None), false));
        // After a rebuild of the catalogue only the sequence number is known.
        let rebuilt = KnownStream::join(500, Some(tail(501, 10, None)), None);
        assert_eq!(rebuilt.tail.incarnation, 501);
        assert!(rebuilt.is_lost(9, None) && !rebuilt.is_lost(10, None));
    }

    #[test]
    fn messages_that_were_read_but_not_stored_yet_are_known_too() {
        let stored = tail(500, 10, Some((10, 77)));
        let mut taken = known(500, tail(500, 10, Some((10, 77))));
        for seq in [12, 11] {
            let (identity, is_first) = (5, true);
            taken.advance(StreamPoint {
                seq,
                identity,
                is_first,
            });
        }
        assert_eq!(taken.tail, tail(500, 12, Some((12, 5))));
        assert_eq!(KnownStream::join(500, Some(stored), Some(taken)), taken);
        let floor = tail(500, 20, Some((10, 77)));
        assert_eq!(
            KnownStream::join(500, Some(floor), Some(taken)).tail,
            tail(500, 20, Some((12, 5)))
        );
        // The stream lost its end, and no later message is stored yet.
        let after = known(500, tail(501, 9, Some((9, 5))));
        assert_eq!(KnownStream::join(500, Some(stored), Some(after)), after);
        assert_eq!(
            KnownStream::join(500, Some(tail(502, 1, None)), Some(after))
                .tail
                .incarnation,
            502
        );
        // The stream was created again since.
        assert_eq!(
            KnownStream::join(900, None, Some(after)),
            known(900, tail(900, 0, None))
        );
    }
}
