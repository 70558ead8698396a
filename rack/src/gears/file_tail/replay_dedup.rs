//! Which records have left over the guaranteed lane although they are not stored.
//!
//! Messages go to the outbox with a note, then the records go to the spool with the position behind them. After a crash between
//! the two the records are read again, from the position before; the note says how many of them have left.
//!
//! ```text
//! note  = entry, or two
//! entry = count u64 | position len u32 | position        little endian
//! ```
//!
//! # Invariants
//!
//! - A note holds for the records behind its position only: one that is behind another position says nothing.
//! - A gear looks for its note when nothing of a life before it is on its way to the outbox any more.
//! - Records behind a position are the same whenever they are read, so that counting them is enough.

use model::message::Message;

use super::tail_position::TailPosition;
use crate::gears::GearContext;
use crate::spool::SourceCheckpoint;

/// How many of the next records have left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SentRecordCount(usize);

impl SentRecordCount {
    /// What the outbox says of the records behind a position.
    pub(super) fn load(cx: &GearContext, key: &str, stored: Option<&TailPosition>) -> Self {
        Self::of(&cx.note(key).unwrap_or_default(), stored)
    }

    fn of(mut note: &[u8], stored: Option<&TailPosition>) -> Self {
        let here = bytes(stored);
        while let Some((count, position, rest)) = entry(note) {
            if position == here {
                return Self(usize::try_from(count).unwrap_or(usize::MAX));
            }
            note = rest;
        }
        Self(0)
    }

    /// Takes out the messages that have left; the note to go with the others, if one is needed.
    pub(super) fn skip(
        &mut self,
        key: &str,
        stored: Option<&TailPosition>,
        behind: &TailPosition,
        messages: &mut Vec<Message>,
    ) -> Option<SourceCheckpoint> {
        let (all, had) = (messages.len(), self.0);
        let skipped = had.min(all);
        self.0 -= skipped;
        messages.drain(..skipped);
        if messages.is_empty() && self.0 == 0 {
            return None;
        }
        let mut value = Vec::new();
        push(&mut value, all.max(had), &bytes(stored));
        if self.0 > 0 {
            // Some of the records behind the next position have left too.
            push(&mut value, self.0, &behind.to_bytes());
        }
        Some(SourceCheckpoint {
            key: key.to_owned(),
            value,
        })
    }
}

fn bytes(position: Option<&TailPosition>) -> Vec<u8> {
    position.map(TailPosition::to_bytes).unwrap_or_default()
}

fn push(note: &mut Vec<u8>, count: usize, position: &[u8]) {
    note.extend_from_slice(&(count as u64).to_le_bytes());
    note.extend_from_slice(&u32::try_from(position.len()).unwrap_or(u32::MAX).to_le_bytes());
    note.extend_from_slice(position);
}

fn entry(note: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (count, rest) = note.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (position, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
    Some((u64::from_le_bytes(*count), position, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::gears::testing;

    fn message(n: u8) -> Message {
        testing::message(n, serde_json::Value::Null, &[n])
    }

    fn at(newest: u64) -> TailPosition {
        TailPosition {
            newest: Some(newest),
            ..TailPosition::default()
        }
    }

    /// Reads records from a position in takes of these sizes; crashes after so many notes, before the rows of the last one.
    #[test]
    fn every_record_leaves_once_however_takes_are_cut_and_whenever_the_gear_ends() {
        for crash_at in 1..6 {
            for again in [1, 2, 3, 10] {
                let (mut stored, mut note): (Option<TailPosition>, Vec<u8>) = (None, Vec::new());
                let (mut read, mut left) = (0u8, Vec::new());
                let mut notes = 0;
                for (life, size) in [3, again, 10].into_iter().enumerate() {
                    let mut sent = SentRecordCount::of(&note, stored.as_ref());
                    let mut next = read;
                    while next < 12 {
                        let end = next.saturating_add(size).min(12);
                        let mut messages: Vec<_> = (next..end).map(message).collect();
                        let behind = at(end.into());
                        let new = sent.skip("k", stored.as_ref(), &behind, &mut messages);
                        if let Some(new) = new {
                            left.extend(messages.iter().map(|message| message.raw[0]));
                            note = new.value;
                            notes += 1;
                        }
                        if life < 2 && notes >= crash_at * (life + 1) {
                            break;
                        }
                        (stored, read, next) = (Some(behind), end, end);
                    }
                }
                assert_eq!(
                    left,
                    (0..12).collect::<Vec<u8>>(),
                    "crash at {crash_at}, then takes of {again}"
                );
            }
        }
    }

    #[test]
    fn a_note_of_another_position_or_a_damaged_one_says_nothing() {
        let mut messages: Vec<_> = (0..4).map(message).collect();
        let note = SentRecordCount(0)
            .skip("k", Some(&at(5)), &at(9), &mut messages)
            .unwrap();
        assert_eq!(SentRecordCount::of(&note.value, Some(&at(5))), SentRecordCount(4));
        assert_eq!(SentRecordCount::of(&note.value, Some(&at(6))), SentRecordCount(0));
        assert_eq!(SentRecordCount::of(&note.value, None), SentRecordCount(0));
        for end in 0..note.value.len() {
            assert_eq!(
                SentRecordCount::of(&note.value[..end], Some(&at(5))),
                SentRecordCount(0)
            );
        }
    }
}
