//! The rows of a signal that were read from the log and are not settled: the request that is next, parts of divided ones, and which
//! others can be tried while the first has no answer.
//!
//! # Invariants
//!
//! - Rows come in the order of the log. What was accepted ahead of its turn keeps its place, and is settled in its turn.
//!
//! # Not here
//!
//! Sending ([`super::signal_exporter`]), the shape of requests ([`super::pack`]).

use std::collections::VecDeque;

use engine::{ArrivalPosition, LogEntry};

use super::pack::RequestRows;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RowsInHand {
    /// What comes first: parts of requests.
    parts: VecDeque<RequestTurn>,
    /// What comes then.
    waiting: VecDeque<LogEntry>,
    /// So often what was one request was divided because something of it is wrong.
    pub(super) divisions: usize,
    /// Whether a part of what was one request is a dead letter.
    pub(super) has_letter: bool,
    /// So many others were tried.
    tried: usize,
}

/// What is to be done with the rows that are next.
#[derive(Debug)]
pub(super) enum RequestTurn {
    /// They are sent.
    Send(RequestRows),
    /// They were accepted, up to before this place.
    Settle(ArrivalPosition),
}

impl RowsInHand {
    /// Whether there are rows to be sent beside those that were taken.
    pub(super) fn has_others(&self) -> bool {
        !self.waiting.is_empty() || self.parts.iter().any(|part| matches!(part, RequestTurn::Send(_)))
    }

    /// More of the log.
    pub(super) fn extend(&mut self, entries: Vec<LogEntry>) {
        self.waiting.extend(entries);
    }

    /// Takes what is next.
    pub(super) fn next(&mut self) -> Option<RequestTurn> {
        if let Some(next) = self.parts.pop_front() {
            return Some(next);
        }
        (self.divisions, self.tried, self.has_letter) = (0, 0, false);
        RequestRows::take(&mut self.waiting).map(RequestTurn::Send)
    }

    /// Puts rows that were taken from a place back as two requests; gives them back if it is one row.
    pub(super) fn divide(&mut self, at: usize, rows: RequestRows) -> Result<(), RequestRows> {
        let [first, others] = rows.halve()?;
        self.put_back(at, RequestTurn::Send(others));
        self.put_back(at, RequestTurn::Send(first));
        Ok(())
    }

    /// Takes other rows than those that are next, each in turn, and where they belong; `None` if there are none.
    pub(super) fn take_other(&mut self) -> Option<(usize, RequestRows)> {
        let parts = self.parts.iter().enumerate();
        let sent = parts.filter(|(_, part)| matches!(part, RequestTurn::Send(_)));
        let mut places: Vec<usize> = sent.map(|(at, _)| at).collect();
        if self.tried >= places.len()
            && let Some(rows) = RequestRows::take(&mut self.waiting)
        {
            places.push(self.parts.len());
            self.parts.push_back(RequestTurn::Send(rows));
        }
        let at = *places.get(self.tried.checked_rem(places.len())?)?;
        self.tried += 1;
        match self.parts.remove(at)? {
            RequestTurn::Send(rows) => Some((at, rows)),
            RequestTurn::Settle(_) => None,
        }
    }

    /// Puts back what was taken from a place.
    pub(super) fn put_back(&mut self, at: usize, turn: RequestTurn) {
        self.parts.insert(at, turn);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{Attributes, EntityId, Level, LogRecord, TelemetryRecord, Timestamp};

    use super::*;

    /// A batch of so many rows under an LSN.
    fn entry(lsn: u64, rows: usize) -> LogEntry {
        let line = LogRecord {
            ts: Timestamp::default(),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: None,
            level: Level::Info,
            message: "x".into(),
            attributes: Attributes::new(),
        };
        LogEntry {
            position: ArrivalPosition { lsn, row: 0 },
            end: ArrivalPosition { lsn: lsn + 1, row: 0 },
            arrived: Timestamp::default(),
            rows: vec![LogRecord::to_batch(&vec![line; rows]).unwrap()],
        }
    }

    /// The LSN and row of the first row, and how many they are.
    fn place(rows: &RequestRows) -> (u64, usize, usize) {
        let (first, _) = rows.range().unwrap();
        (first.lsn, first.row, rows.count())
    }

    fn next(hand: &mut RowsInHand) -> RequestRows {
        match hand.next().unwrap() {
            RequestTurn::Send(rows) => rows,
            RequestTurn::Settle(end) => unreachable!("{end:?}"),
        }
    }

    #[test]
    fn others_are_tried_in_turn_and_what_was_accepted_is_settled_in_its_turn() {
        let mut hand = RowsInHand::default();
        hand.extend(vec![entry(1, 4)]);
        let all = next(&mut hand);
        hand.divide(0, all).unwrap();
        let first = next(&mut hand);
        hand.divide(0, first).unwrap();
        let first = next(&mut hand);
        assert_eq!(place(&first), (1, 0, 1));
        hand.extend(vec![entry(2, 3)]);
        let mut tried = Vec::new();
        for _ in 0..5 {
            let (at, other) = hand.take_other().unwrap();
            tried.push(place(&other));
            hand.put_back(at, RequestTurn::Send(other));
        }
        assert_eq!(tried, [(1, 1, 1), (1, 2, 2), (2, 0, 3), (1, 1, 1), (1, 2, 2)]);
        let (at, other) = hand.take_other().unwrap();
        let (_, end) = other.range().unwrap();
        hand.put_back(at, RequestTurn::Settle(end));
        assert!(hand.divide(0, first).is_err(), "one row");
        assert_eq!(place(&next(&mut hand)), (1, 1, 1));
        assert_eq!(place(&next(&mut hand)), (1, 2, 2));
        assert!(matches!(hand.next(), Some(RequestTurn::Settle(settled)) if settled == end));
        assert!(hand.next().is_none() && !hand.has_others() && hand.take_other().is_none());
    }
}
