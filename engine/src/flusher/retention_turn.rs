//! The flusher's turn at rotation: it alone knows which files are open, and lets go of those that expired.

use super::MemtableFlusher;
use crate::flush_scheduler::RetentionResult;
use crate::open_partition::OpenPartition;

impl MemtableFlusher {
    /// Checks the rotation rules if it is time or asked for, and clears away what expired before. A disk that is too full for
    /// publishing is a reason to do it, not one to leave it.
    pub(super) fn rotate(&mut self, is_asked: bool, on_time: bool) -> Option<RetentionResult> {
        let due = on_time && self.janitor.is_due(&self.shared);
        let reads = self.shared.remote.as_ref().is_some_and(|remote| remote.is_reader());
        let wanted = !reads && self.shared.poisoned().is_none() && (due || is_asked);
        let rotated = wanted.then(|| self.check_rotation());
        self.janitor.sweep(&self.shared);
        self.janitor.release_links(&self.shared);
        rotated
    }

    fn check_rotation(&mut self) -> RetentionResult {
        let full = self.full.iter().filter(|job| !job.is_installed());
        let slots = self.open.values().chain(full.map(|job| &job.slot));
        let ours = slots.map(|slot| slot.segment.identity().segment).collect();
        let mut checked = self.janitor.check(&self.shared, &ours);
        if checked.as_ref().is_err_and(|error| !error.is_in_doubt()) && self.shared.admission.space.release_ballast() {
            checked = self.janitor.check(&self.shared, &ours);
        }
        match checked {
            Ok((run, gone)) => {
                let gone = |slot: &mut OpenPartition| {
                    let gone = gone.contains(&slot.segment.identity().segment);
                    if gone {
                        // Staging is emptied at every start: a failure costs space until then.
                        let _ = slot.segment.discard_shadow();
                    }
                    gone
                };
                self.open.retain(|_, slot| !gone(slot));
                self.full.retain_mut(|job| !gone(&mut job.slot));
                let mut history = self.shared.status.rotation.lock();
                history.last = Some(run.clone());
                if !run.removed.is_empty() {
                    history.last_removal = Some(run.clone());
                }
                Ok(run)
            }
            Err(error) => {
                if error.is_in_doubt() {
                    self.shared.poison(&error.to_string());
                }
                tracing::error!(%error, "could not remove old data; the next check tries again");
                Err(error.to_string().into())
            }
        }
    }
}
