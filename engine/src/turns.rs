//! Whose turn it is to commit: that of a thread, or of an appender who is alone on a thread of his own.
//!
//! Handing an append to a thread and its answer back wakes somebody up twice, and each of the two waits for a core: on a busy
//! machine that takes longer than the sync. So an appender of a few rows who finds nobody at it commits himself, with what
//! came in the meantime. As soon as appends come together the thread has them: it gathers, and no appender works for others.
//!
//! Tasks of a runtime never commit: others of it would wait for the disk. Where a runtime is told (`block_in_place`) it gives
//! their work to more threads, each with a heap of its own: under ten times the load a process took half as much memory again.
//!
//! # Invariants
//!
//! - Whoever commits holds the lock from the taking of a group to its answers: groups are logged as they were taken.
//! - What is queued is taken: who finds the lock held leaves his append, and who held it looks, or has the thread look, again
//!   when he let go.
//! - An appender waits for a sync, never for room in the log or on the disk, and does not mark: he leaves that to the thread.
//! - A panic of whoever commits poisons the store.

use std::sync::Arc;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::runtime::Handle;

use crate::committer::Committer;
use crate::intake::Append;
use crate::shared::{Sentinel, Shared};

/// The most that an appender commits: more takes its time on the processor, beside which a wake-up is nothing.
const SMALL: u64 = 64 << 10;

/// The committer, for its thread and for appenders.
#[derive(Debug)]
pub(crate) struct Turns {
    shared: Arc<Shared>,
    /// Until the thread ends: with it ends what makes segments for the log, so a store that is closed may be opened again.
    committer: Mutex<Option<Committer>>,
    /// So often an appender committed.
    #[cfg(test)]
    pub(crate) led: std::sync::atomic::AtomicU64,
}

impl Turns {
    pub(crate) fn new(shared: Arc<Shared>, committer: Committer) -> Self {
        Self {
            shared,
            committer: Mutex::new(Some(committer)),
            #[cfg(test)]
            led: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The thread: commits until the intake is closed, and lets go of the log.
    pub(crate) fn run(&self) {
        let _sentinel = Sentinel(Arc::clone(&self.shared));
        self.commit_all();
        drop(self.committer.lock().take());
    }

    fn commit_all(&self) {
        let settings = &self.shared.settings;
        // A group is one write into one segment of the log: it stays small against the log.
        let bytes = settings.group_bytes.get().min(settings.wal_max.get() / 8);
        loop {
            let Some((expected, linger)) = self.committer.lock().as_ref().map(Committer::expects) else {
                return;
            };
            let is_complete = self.shared.intake.wait(bytes, expected, linger);
            let mut held = self.committer.lock();
            let Some(committer) = held.as_mut() else {
                return;
            };
            let work = self.shared.intake.take(bytes);
            let closed = work.closed;
            if !work.group.is_empty() {
                committer.learn(is_complete, linger);
            }
            committer.work(work, true);
            drop(held);
            if closed && self.shared.intake.len() == 0 {
                return;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.committer.lock().is_none()
    }

    /// Queues an append. Its answer comes when it is committed, which may have happened when this returns.
    pub(crate) fn push(&self, append: Append) {
        let is_small = append.frame.encoded_len() <= SMALL;
        self.shared.intake.push(append);
        if !is_small || Handle::try_current().is_ok() {
            self.shared.intake.wake();
            return;
        }
        // Who holds it looks again.
        let Some(committer) = self.committer.try_lock() else {
            return;
        };
        // Once the thread has ended the intake takes nothing.
        let Ok(committer) = MutexGuard::try_map(committer, Option::as_mut) else {
            return;
        };
        if self.is_quiet(&committer) {
            self.lead(committer);
        } else {
            drop(committer);
            self.shared.intake.wake();
        }
    }

    /// Whether appends come one by one, and nothing holds them up.
    fn is_quiet(&self, committer: &Committer) -> bool {
        committer.expects().0 <= 1 && !self.shared.log_is_full() && !self.shared.space.is_short()
    }

    fn lead(&self, mut committer: MappedMutexGuard<'_, Committer>) {
        let _sentinel = Sentinel(Arc::clone(&self.shared));
        #[cfg(test)]
        self.led.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        committer.work(self.shared.intake.take(SMALL), false);
        drop(committer);
        if self.shared.intake.len() > 0 {
            self.shared.intake.wake();
        }
    }
}
