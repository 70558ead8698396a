//! Fencing: one writer at a time. A claim raises the epoch, and whoever finds a record of another epoch stops.
//!
//! # Invariants
//!
//! - An epoch has one writer: a claim is a record, and a record is created only if its number is free.

use model::Timestamp;
use uuid::Uuid;

use super::super::retry::CreateOutcome;
use super::super::state::{RemoteRecord, WriterIdentity};
use super::CommitLog;
use crate::Error;

/// Claims that lost a race are tried again so often.
const CLAIMS: u32 = 16;

impl CommitLog {
    /// Becomes the writer: whoever was before is pushed out.
    pub(crate) fn claim(&mut self, store: Uuid, instance: Uuid, host: &str, now: Timestamp) -> Result<(), Error> {
        for _ in 0..CLAIMS {
            let before = &self.state.writer;
            let same = before.instance == instance && before.generation > 0;
            let writer = WriterIdentity {
                epoch: before.epoch + 1,
                generation: before.generation + u64::from(!same),
                instance,
                host: host.to_owned(),
                pid: std::process::id(),
            };
            let record = RemoteRecord {
                store,
                writer,
                ..RemoteRecord::default()
            };
            match self.put(record, now)? {
                CreateOutcome::New => return Ok(()),
                CreateOutcome::Taken(_) => self.read_on()?,
            }
            self.check_store(store)?;
        }
        Err(self.fenced_by(&self.state.writer.clone(), 0))
    }

    /// Finds out whether somebody, or a commit of ours whose answer never came, is behind what we know.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another writer is.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        let (ours, epoch) = (self.state.writer.instance, self.state.writer.epoch);
        while let Some((record, bytes)) = self.next()? {
            if record.writer.instance != ours || record.writer.epoch != epoch {
                return Err(self.fenced_by(&record.writer, epoch));
            }
            self.apply(record, &bytes);
        }
        Ok(())
    }

    /// That another writer has claimed the store.
    pub(super) fn fenced_by(&self, theirs: &WriterIdentity, ours: u64) -> Error {
        Error::Fenced {
            url: self.url.clone(),
            host: theirs.host.clone(),
            pid: theirs.pid,
            epoch: theirs.epoch,
            ours,
        }
    }
}
