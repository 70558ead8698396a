//! The savepoints of a transaction: what `ROLLBACK TO SAVEPOINT` goes back to.
//!
//! # Invariants
//!
//! - A transaction has [`MOST_SAVEPOINTS`] of them. Drivers that make one of the same name before each statement, and release none, lose
//!   the oldest; one of another name more is refused.

use super::pg_error::PgError;
use super::session_settings::SettingsSnapshot;

const MOST_SAVEPOINTS: usize = 128;

/// What a session was like when a savepoint was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavepointState {
    pub(super) settings: SettingsSnapshot,
    /// How many portals the session had made.
    pub(super) portals: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SavepointStack {
    /// The newest last.
    made: Vec<(String, SavepointState)>,
}

impl SavepointStack {
    /// Makes a savepoint.
    pub(super) fn push(&mut self, name: &str, state: SavepointState) -> Result<(), PgError> {
        PgError::check_name(name)?;
        if self.made.len() >= MOST_SAVEPOINTS {
            let Some(oldest) = self.made.iter().position(|(known, _)| known == name) else {
                let message = format!("the transaction has {MOST_SAVEPOINTS} savepoints already: release some of them");
                return Err(PgError::error("54000", message));
            };
            self.made.remove(oldest);
        }
        self.made.push((name.to_owned(), state));
        Ok(())
    }

    /// Forgets the newest savepoint of a name, and those after it.
    pub(super) fn release(&mut self, name: &str) -> Result<(), PgError> {
        let at = self.find(name)?;
        self.made.truncate(at);
        Ok(())
    }

    /// What the newest savepoint of a name goes back to; it stays, and those after it go.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<SavepointState, PgError> {
        let at = self.find(name)?;
        self.made.truncate(at + 1);
        let last = self.made.last().map(|(_, state)| state.clone());
        last.ok_or_else(|| missing(name))
    }

    /// The transaction ends.
    pub(super) fn clear(&mut self) {
        self.made.clear();
    }

    fn find(&self, name: &str) -> Result<usize, PgError> {
        let newest = self.made.iter().rposition(|(known, _)| known == name);
        newest.ok_or_else(|| missing(name))
    }
}

fn missing(name: &str) -> PgError {
    PgError::error("3B001", format!("savepoint \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn state(portals: u64) -> SavepointState {
        SavepointState {
            settings: SettingsSnapshot::default(),
            portals,
        }
    }

    fn code<T>(done: Result<T, PgError>) -> Result<T, &'static str> {
        done.map_err(|fault| fault.code)
    }

    #[test]
    fn the_newest_savepoint_of_a_name_is_gone_back_to_until_it_is_released() {
        let mut stack = SavepointStack::default();
        for (name, portals) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            stack.push(name, state(portals)).unwrap();
        }
        assert_eq!(code(stack.roll_back_to("a")), Ok(state(3)));
        assert_eq!(code(stack.roll_back_to("a")), Ok(state(3)));
        assert_eq!(code(stack.roll_back_to("c")), Err("3B001"));
        assert_eq!(code(stack.release("a")), Ok(()));
        assert_eq!(code(stack.roll_back_to("a")), Ok(state(1)));
        assert_eq!(code(stack.release("b")), Err("3B001"));
        stack.clear();
        assert_eq!(code(stack.release("a")), Err("3B001"));
    }

    #[test]
    fn savepoints_are_bounded_and_many_of_one_name_lose_the_oldest() {
        let mut stack = SavepointStack::default();
        stack.push("first", state(0)).unwrap();
        for portals in 1..1_000 {
            stack.push("same", state(portals)).unwrap();
        }
        assert_eq!(stack.made.len(), MOST_SAVEPOINTS);
        assert_eq!(code(stack.push("other", state(1_000))), Err("54000"));
        assert_eq!(code(stack.roll_back_to("same")), Ok(state(999)));
        assert_eq!(code(stack.roll_back_to("first")), Ok(state(0)));
    }

    #[test]
    fn a_savepoint_with_a_name_longer_than_that_of_postgresql_is_refused() {
        let mut stack = SavepointStack::default();
        stack.push(&"n".repeat(63), state(0)).unwrap();
        assert_eq!(code(stack.push(&"n".repeat(64), state(0))), Err("42622"));
        assert_eq!(stack.made.len(), 1);
    }
}
