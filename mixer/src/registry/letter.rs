//! The state of dead letters: a mark for each that an operator touched, and the turns of those that are replayed.
//!
//! # Invariants
//!
//! - A letter without a mark is open. Marks are as many as [`MAX_MARKS`] at most, and leave with the letters' rows.
//! - A number of a gear is given out once: what a Rack has taken under it is never another letter.

use model::dead_letter::LetterState;
use model::{EntityId, LetterId, Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ClusterRegistry, LETTERS, RegistryError, RegistryTransaction, TURNS, db, from_cbor, to_cbor};

/// The most marks, about 40 MiB.
pub const MAX_MARKS: u64 = 200_000;

/// What the registry keeps of a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterMark {
    /// What became of it. Open again, if the gear could not be given it.
    pub state: LetterState,
    /// Since when.
    pub at: Timestamp,
    /// Who asked for it, as they say.
    pub by: String,
    /// The subject of its row.
    pub subject: String,
    /// How often it was to go back to its gear.
    pub times: u32,
    /// While it waits, and after that: its turn.
    pub turn: Option<ReplaySequence>,
    /// Why it could not go back the last time.
    pub note: Option<String>,
}

/// The place of a letter among those that go back to one gear.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplaySequence {
    /// The Rack.
    pub rack: EntityId,
    /// The gear.
    pub gear: Token,
    /// From 1.
    pub number: u64,
}

fn id(bytes: &[u8]) -> Result<LetterId, RegistryError> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| RegistryError::Damaged {
        what: "letter id",
        reason: "not 16 bytes".to_owned(),
    })?;
    Ok(LetterId::from_bytes(bytes))
}

impl ClusterRegistry {
    /// The state of a letter; `None` if no operator touched it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn mark(&self, letter: &LetterId) -> Result<Option<LetterMark>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let letters = read.open_table(LETTERS).map_err(db)?;
        let found = letters.get(letter.as_bytes().as_slice()).map_err(db)?;
        found.map(|bytes| from_cbor("letter", bytes.value())).transpose()
    }

    /// Every mark, the oldest letter first.
    ///
    /// # Errors
    /// [`RegistryError`], or what `each` says.
    pub fn each_mark(&self, mut each: impl FnMut(LetterId, LetterMark)) -> Result<(), RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let letters = read.open_table(LETTERS).map_err(db)?;
        for entry in letters.iter().map_err(db)? {
            let (key, bytes) = entry.map_err(db)?;
            each(id(key.value())?, from_cbor("letter", bytes.value())?);
        }
        Ok(())
    }
}

impl RegistryTransaction<'_> {
    pub(super) fn create_letters(&self) -> Result<(), RegistryError> {
        self.transaction.open_table(LETTERS).map_err(db)?;
        self.transaction.open_table(TURNS).map_err(db)?;
        Ok(())
    }

    /// The state of a letter, as of this change.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn mark(&self, letter: &LetterId) -> Result<Option<LetterMark>, RegistryError> {
        let letters = self.transaction.open_table(LETTERS).map_err(db)?;
        let found = letters.get(letter.as_bytes().as_slice()).map_err(db)?;
        found.map(|bytes| from_cbor("letter", bytes.value())).transpose()
    }

    /// How many letters have a mark.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn marks(&self) -> Result<u64, RegistryError> {
        let letters = self.transaction.open_table(LETTERS).map_err(db)?;
        letters.len().map_err(db)
    }

    /// Marks a letter.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn put_mark(&self, letter: &LetterId, mark: &LetterMark) -> Result<(), RegistryError> {
        let mut letters = self.transaction.open_table(LETTERS).map_err(db)?;
        letters
            .insert(letter.as_bytes().as_slice(), to_cbor("letter", mark)?.as_slice())
            .map_err(db)?;
        Ok(())
    }

    /// Forgets the marks of all letters before a moment; how many there were.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn forget_letters(&self, before: Timestamp) -> Result<u64, RegistryError> {
        let mut letters = self.transaction.open_table(LETTERS).map_err(db)?;
        let had = letters.len().map_err(db)?;
        let end = LetterId::first(before);
        letters
            .retain_in(..end.as_bytes().as_slice(), |_, _| false)
            .map_err(db)?;
        Ok(had.saturating_sub(letters.len().map_err(db)?))
    }

    /// The next turn at a gear; never the same one twice.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn next_turn(&self, rack: EntityId, gear: &Token) -> Result<ReplaySequence, RegistryError> {
        let mut turns = self.transaction.open_table(TURNS).map_err(db)?;
        let key = format!("{rack} {gear}");
        let last = turns.get(key.as_str()).map_err(db)?.map_or(0, |n| n.value());
        let number = last.saturating_add(1);
        turns.insert(key.as_str(), number).map_err(db)?;
        Ok(ReplaySequence {
            rack,
            gear: gear.clone(),
            number,
        })
    }

    /// What turns count within: made once, so that a registry that begins anew does not count on.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn turns_of(&self, fresh: Uuid) -> Result<Uuid, RegistryError> {
        if let Some(known) = self.meta("turns")? {
            return Ok(known);
        }
        self.set_meta("turns", &fresh)?;
        Ok(fresh)
    }
}
