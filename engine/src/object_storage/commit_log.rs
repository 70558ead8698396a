//! The commit log in the object store: reading it, appending to it, being fenced off from it.
//!
//! Each record is an object created only if absent under the next number. Whoever creates number *n* decides what follows
//! *n − 1*; everybody else finds the name taken, reads who it was, and stops if it was another writer.
//!
//! ```text
//! writer A (epoch 1)   … 17 ─ 18 ─┐            commits 19: taken, by epoch 2 ─> stops, says whose it is
//! writer B (epoch 2)              └ 19 claim ─ 20 ─ 21 …
//! ```
//!
//! # Invariants
//!
//! - A record that was committed is read by every later opening; a record is committed at most once.
//! - A checkpoint is created after its last record. The records since the checkpoint before are kept, should it be damaged.
//! - A writer that was pushed out commits nothing more, whatever it tries (`fencing`).

mod fencing;

use bytes::Bytes;
use model::Timestamp;
use object_store::path::Path;
use uuid::Uuid;

use super::object_format::{self, ObjectNames};
use super::retry::{BlockingStore, CreateOutcome};
use super::state::{RemoteRecord, RemoteState};
use crate::Error;
use crate::error::{RemoteErrorKind, damaged_object};

/// A checkpoint is due after so many records …
const MOST_RECORDS: u64 = 512;
/// … or after so many, if they take as many bytes as it would.
const SOME_RECORDS: u64 = 32;
/// The catalogue in the object store.
#[derive(Debug)]
pub(crate) struct CommitLog {
    io: BlockingStore,
    names: ObjectNames,
    url: String,
    state: RemoteState,
    /// The last checkpoint and the one before.
    checkpoints: (u64, u64),
    checkpoint_bytes: u64,
    bytes_since: u64,
}

impl CommitLog {
    /// Reads what is there; an empty state if nothing is.
    pub(crate) fn read(io: BlockingStore, names: ObjectNames, url: &str) -> Result<Self, Error> {
        let mut chain = Self {
            io,
            names,
            url: url.to_owned(),
            state: RemoteState::default(),
            checkpoints: (0, 0),
            checkpoint_bytes: 0,
            bytes_since: 0,
        };
        chain.load()?;
        Ok(chain)
    }

    pub(crate) const fn state(&self) -> &RemoteState {
        &self.state
    }

    /// Whether anybody ever wrote.
    pub(crate) const fn is_new(&self) -> bool {
        self.state.number == 0
    }

    /// Refuses an object store that holds another store.
    pub(crate) fn check_store(&self, ours: Uuid) -> Result<(), Error> {
        let theirs = self.state.store;
        if self.is_new() || theirs == ours {
            return Ok(());
        }
        Err(Error::OtherStore {
            url: self.url.clone(),
            theirs,
            ours,
        })
    }

    fn load(&mut self) -> Result<(), Error> {
        let found = self.numbers(self.names.checkpoints(), self.names.checkpoint(0))?;
        let mut unreadable = None;
        let mut start = None;
        for number in found.iter().rev() {
            let path = self.names.checkpoint(*number);
            let Some(bytes) = self.io.get(path.clone())? else {
                continue;
            };
            match object_format::decode_checkpoint(*number, &bytes) {
                Ok(state) => {
                    start = Some((*number, state, bytes.len() as u64));
                    break;
                }
                Err(reason) => unreadable = unreadable.or(Some(damaged_object(&self.url, path.as_ref(), &reason))),
            }
        }
        match (start, unreadable) {
            (Some((number, state, bytes)), _) => {
                let before = found.iter().rev().find(|other| **other < number).copied().unwrap_or(0);
                self.state = state;
                self.checkpoints = (number, before);
                self.checkpoint_bytes = bytes;
                self.bytes_since = 0;
            }
            (None, Some(error)) => return Err(error),
            (None, None) => {}
        }
        self.read_on()
    }

    /// The numbers of the catalogue's objects below a name that come after `offset`.
    fn numbers(&self, below: Path, offset: Path) -> Result<Vec<u64>, Error> {
        let listed = self.io.list(below, offset)?;
        let mut numbers: Vec<u64> = (listed.iter())
            .filter_map(|meta| object_format::number_of(&meta.location))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Applies the records behind our state.
    fn read_on(&mut self) -> Result<(), Error> {
        let numbers = self.numbers(self.names.logs(), self.names.log(self.state.number))?;
        if let Some(gap) = (self.state.number + 1..)
            .zip(&numbers)
            .find(|(wanted, found)| wanted != *found)
        {
            let path = self.names.log(gap.0);
            return Err(damaged_object(
                &self.url,
                path.as_ref(),
                "it is missing before later records",
            ));
        }
        let paths = numbers.iter().map(|number| self.names.log(*number)).collect();
        for (number, bytes) in numbers.into_iter().zip(self.io.get_all(paths)?) {
            let Some(bytes) = bytes else {
                break;
            };
            self.apply(self.decode(number, &bytes)?, &bytes);
        }
        // A listing may be older than the last record.
        while let Some((record, bytes)) = self.next()? {
            self.apply(record, &bytes);
        }
        Ok(())
    }

    fn decode(&self, number: u64, bytes: &[u8]) -> Result<RemoteRecord, Error> {
        object_format::decode_record(number, bytes)
            .map_err(|reason| damaged_object(&self.url, self.names.log(number).as_ref(), &reason))
    }

    /// The record behind our state, if there is one, and its bytes.
    fn next(&self) -> Result<Option<(RemoteRecord, Bytes)>, Error> {
        let number = self.state.number + 1;
        let bytes = self.io.get(self.names.log(number))?;
        bytes.map(|bytes| Ok((self.decode(number, &bytes)?, bytes))).transpose()
    }

    fn apply(&mut self, record: RemoteRecord, bytes: &[u8]) {
        self.bytes_since += bytes.len() as u64;
        self.state.apply(record);
    }

    /// What was committed since it was read last. `None`: so much that the state was reread.
    pub(crate) fn follow(&mut self, look_at_checkpoints: bool) -> Result<Option<Vec<RemoteRecord>>, Error> {
        let mut all = Vec::new();
        loop {
            match self.next() {
                Ok(Some((record, bytes))) => {
                    self.apply(record.clone(), &bytes);
                    all.push(record);
                }
                // What was applied is shown; the error comes back at the next look.
                Err(error) if all.is_empty() => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        if all.is_empty() && look_at_checkpoints {
            let later = self
                .io
                .list(self.names.checkpoints(), self.names.checkpoint(self.state.number))?;
            if !later.is_empty() {
                let before = std::mem::take(&mut self.state);
                let loaded = self.load();
                if loaded.is_err() {
                    self.state = before;
                }
                return loaded.map(|()| None);
            }
        }
        Ok(Some(all))
    }

    /// Commits a record as the writer that claimed last. Its bytes.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another one claimed since. After any other error it is unknown whether the record counts, or an
    /// earlier one of ours turned up late: [`CommitLog::settle`] finds out.
    pub(crate) fn commit(&mut self, mut record: RemoteRecord, now: Timestamp) -> Result<u64, Error> {
        record.store = self.state.store;
        record.writer = self.state.writer.clone();
        let number = self.state.number + 1;
        let before = self.bytes_since;
        match self.put(record, now)? {
            CreateOutcome::New => {
                let bytes = self.bytes_since - before;
                self.checkpoint_if_due();
                Ok(bytes)
            }
            CreateOutcome::Taken(bytes) => {
                let theirs = self.decode(number, &bytes)?;
                if theirs.writer == self.state.writer {
                    let path = self.names.log(number);
                    return Err(refused_late(&self.url, path.as_ref()));
                }
                Err(self.fenced_by(&theirs.writer, self.state.writer.epoch))
            }
        }
    }

    fn put(&mut self, mut record: RemoteRecord, now: Timestamp) -> Result<CreateOutcome, Error> {
        record.number = self.state.number + 1;
        record.nonce = self.io.nonce();
        record.at = now.micros();
        let path = self.names.log(record.number);
        let bytes = object_format::encode_record(&record)
            .map_err(|reason| damaged_object(&self.url, path.as_ref(), &reason))?;
        let bytes = Bytes::from(bytes);
        let created = self.io.create(path, bytes.clone())?;
        if created == CreateOutcome::New {
            self.apply(record, &bytes);
        }
        Ok(created)
    }

    /// Writes a checkpoint when opening would read many records; a failure costs the next opening some time.
    fn checkpoint_if_due(&mut self) {
        let records = self.state.number - self.checkpoints.0;
        let due = records >= MOST_RECORDS || (records >= SOME_RECORDS && self.bytes_since >= self.checkpoint_bytes);
        if due && let Err(error) = self.checkpoint() {
            tracing::warn!(%error, "could not write a checkpoint to the object store; the next record tries again");
        }
    }

    /// Writes a checkpoint and deletes what only earlier ones needed.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Error> {
        let number = self.state.number;
        let path = self.names.checkpoint(number);
        let bytes = object_format::encode_checkpoint(&self.state)
            .map_err(|reason| damaged_object(&self.url, path.as_ref(), &reason))?;
        let len = bytes.len() as u64;
        self.io.create(path, bytes.into())?;
        let (last, before) = self.checkpoints;
        self.checkpoints = (number, last);
        self.checkpoint_bytes = len;
        self.bytes_since = 0;
        let mut old: Vec<_> = (before + 1..=last).map(|number| self.names.log(number)).collect();
        if before > 0 {
            old.push(self.names.checkpoint(before));
        }
        self.io.delete_all(old)
    }
}

/// Our own attempt of before, given up by then, has the number: what was to be said must be found out anew.
fn refused_late(url: &str, object: &str) -> Error {
    Error::Remote {
        action: "create",
        object: format!("{object} of {url}"),
        trouble: RemoteErrorKind::Exists,
        reason: "an earlier attempt of this writer, whose answer never came, has made it".to_owned(),
    }
}
