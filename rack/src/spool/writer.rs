//! The spool's one writer: group commit of what waits, on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use model::control::DurableFloor;

use super::segment_log::SpoolLog;
use super::{PendingAppend, RecordingError, SpoolCore, segment_log};

/// How long the writer waits before it tries a disk again that refused.
const RETRY: Duration = Duration::from_secs(1);

/// The writer's state.
pub(super) struct SpoolWriter {
    pub(super) spool: SpoolLog,
    /// About how much is written at once: enough to share a sync, little enough not to hold the first batch up.
    pub(super) group_bytes: u64,
    pub(super) shared: Arc<SpoolCore>,
    /// Whether a group was not written because the Rack stops.
    pub(super) has_given_up: bool,
}

impl SpoolWriter {
    /// Writes until the spool is closed.
    pub(super) fn run(&mut self) {
        loop {
            let (floors, group, closing) = self.next();
            self.spool.apply_floors(&floors);
            let empty = group.is_empty();
            if !empty {
                self.write(group);
            }
            self.shared.changed.send_modify(|version| *version += 1);
            if closing && empty {
                // The floors are durable with it, so the next run does not send again what the Mixer has.
                if let Err(error) = self.spool.roll() {
                    tracing::debug!(%error, "could not persist the floors");
                }
                break;
            }
        }
    }

    /// Waits for something to do.
    fn next(&self) -> (Vec<DurableFloor>, Vec<PendingAppend>, bool) {
        let mut inbox = self.shared.inbox.lock();
        while inbox.pending.is_empty() && inbox.floors.is_empty() && !inbox.closing {
            self.shared.wake.wait(&mut inbox);
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < self.group_bytes
            && let Some(pending) = inbox.pending.pop_front()
        {
            if !pending.has_waiter() {
                self.shared.release(pending.bytes);
            } else {
                let sizes = pending
                    .batches
                    .iter()
                    .map(|batch| segment_log::size_of_batch(batch) as u64);
                bytes += sizes.sum::<u64>();
                group.push(pending);
            }
        }
        (std::mem::take(&mut inbox.floors), group, inbox.closing)
    }

    /// Writes a group, however long that takes; when closing, tries once, unless one before it was given up: what is later says
    /// that what was earlier is there.
    fn write(&mut self, mut group: Vec<PendingAppend>) {
        let mut told = false;
        let result = loop {
            if self.has_given_up {
                break Err(RecordingError::Closed);
            }
            let error = match self.spool.append(group.iter().flat_map(|pending| &pending.batches)) {
                Ok(()) => break Ok(()),
                Err(error) => error,
            };
            if !std::mem::replace(&mut told, true) {
                tracing::error!(%error, "cannot write the spool; retrying every second");
            }
            self.has_given_up = self.pause();
            group.retain(|pending| {
                let is_wanted = pending.has_waiter();
                if !is_wanted {
                    self.shared.release(pending.bytes);
                }
                is_wanted
            });
        };
        for pending in group {
            self.shared.release(pending.bytes);
            for done in pending.done {
                // Who does not wait any more learns from the checkpoint.
                let _ = done.send(result.clone());
            }
        }
    }

    /// Waits a while, and takes floors; true if the Rack stops.
    fn pause(&mut self) -> bool {
        let floors = {
            let mut inbox = self.shared.inbox.lock();
            if inbox.floors.is_empty() && !inbox.closing {
                self.shared.wake.wait_for(&mut inbox, RETRY);
            }
            if inbox.closing {
                return true;
            }
            std::mem::take(&mut inbox.floors)
        };
        self.spool.apply_floors(&floors);
        self.shared.changed.send_modify(|version| *version += 1);
        false
    }
}
