//! Regression detection: whether a stream still has the messages that were taken from it.
//!
//! A server that writes without sync and loses power forgets the last messages of a stream and gives their sequences to new
//! ones. A message that is known by its sequence would then be taken for one that is stored. So before anything of a stream is
//! appended, and again after each change of connection, the stream is compared with what is known of it: it has lost its end
//! if its last sequence is lower than the highest known one, or another message has that one's place. It goes on under the
//! next incarnation then, in which no sequence is known.
//!
//! # Invariants
//!
//! - A message is appended under an incarnation that was compared with the bus on the connection that brought it.
//! - Two messages are compared by the time at which the bus says that it stored them, for equality only.
//! - Nothing is taken for lost because the bus removed it at the stream's beginning.
//!
//! # Limits
//!
//! A server that we are not connected to directly, and that loses the only copy of a stream, is noticed by the first message
//! whose number came before on the same subscription, or at the next connection.

use std::sync::atomic::Ordering;

use async_nats::Client;
use async_nats::jetstream::Message;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream as BusStream};
use engine::{Engine, StreamTail};
use tracing::warn;

use crate::error::{Error, bus_error};

/// How many connections there have been. A message of a new one comes after it was counted.
pub(crate) fn connections(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}

/// Where a message is in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPoint {
    pub(crate) seq: u64,
    /// When the bus stored it, ns.
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

/// How far a stream is known: stored, or taken by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownStream {
    /// When it was created, µs: its first incarnation.
    pub(crate) created: i64,
    pub(crate) tail: StreamTail,
}

impl KnownStream {
    /// What is stored and what was taken of a stream that was created then, in the last incarnation of both.
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
            tail: tail.unwrap_or_else(|| nothing_of(created)),
        }
    }

    /// Whether the stream lost what is known, if its last sequence and its message in the newest one's place are these.
    fn is_lost(&self, last: u64, found: Option<i64>) -> bool {
        let is_other = self
            .tail
            .newest
            .zip(found)
            .is_some_and(|((_, known), found)| known != found);
        last < self.tail.last || is_other
    }

    /// Counts a message as taken.
    pub(crate) fn advance(&mut self, point: StreamPoint) {
        self.tail.last = self.tail.last.max(point.seq);
        self.tail.newest = self.tail.newest.max(Some((point.seq, point.identity)));
    }
}

const fn nothing_of(incarnation: i64) -> StreamTail {
    StreamTail {
        incarnation,
        last: 0,
        newest: None,
    }
}

/// Compares a stream with what is known of it; says what is known in the incarnation in which it goes on.
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
        known.tail = nothing_of(known.tail.incarnation + 1);
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
    fn a_stream_lost_its_end_if_the_known_message_is_not_there_or_is_another() {
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
    fn of_a_stream_of_which_nothing_is_known_nothing_is_lost() {
        let unknown = KnownStream::join(500, None, None);
        assert_eq!((unknown.tail, unknown.is_lost(0, None)), (tail(500, 0, None), false));
        // After a rebuild only the number is known.
        let rebuilt = KnownStream::join(500, Some(tail(501, 10, None)), None);
        assert_eq!(rebuilt.tail.incarnation, 501);
        assert!(rebuilt.is_lost(9, None) && !rebuilt.is_lost(10, None));
    }

    #[test]
    fn what_was_taken_and_is_not_stored_yet_counts_too() {
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
        // The stream lost its end, and nothing of what came since is stored yet.
        let after = known(500, tail(501, 9, Some((9, 5))));
        assert_eq!(KnownStream::join(500, Some(stored), Some(after)), after);
        assert_eq!(
            KnownStream::join(500, Some(tail(502, 1, None)), Some(after))
                .tail
                .incarnation,
            502
        );
        // It was made anew since.
        assert_eq!(
            KnownStream::join(900, None, Some(after)),
            known(900, tail(900, 0, None))
        );
    }
}
