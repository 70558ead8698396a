//! Flush scheduler: queues requests to the flusher and the sealer, and wakes them.
//!
//! # Invariants
//!
//! - Every requested flush is answered, also when the threads stop.

mod prefix_cut;
mod seal_job;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::memtable::PartitionKey;
use crate::{Error, RetentionRun};
pub(crate) use prefix_cut::PrefixCut;
pub(crate) use seal_job::{InstalledFile, SealJob};

/// A flush's answer: why it failed, if it did.
pub(crate) type FlushResult = Result<(), Arc<str>>;

/// A rotation's report: why it failed, if it did.
pub(crate) type RetentionResult = Result<RetentionRun, Arc<str>>;

/// A prefix cut, or why there is none.
pub(crate) type CutResult = Result<PrefixCut, Arc<str>>;

/// Seals that may wait at once; the flusher keeps the others.
const SEALS: usize = 16;

/// Orders for the flusher and the sealer.
#[derive(Debug, Default)]
pub(crate) struct FlushScheduler {
    orders: Mutex<SchedulerQueues>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SchedulerQueues {
    /// For the flusher's next turn.
    tick: FlushRequests,
    stopped: bool,
    seals: VecDeque<SealJob>,
    /// The sealer has one in hand.
    sealing: bool,
    no_more_seals: bool,
}

/// Somebody asks for a prefix cut.
#[derive(Debug)]
pub(crate) struct CutRequest {
    /// The LSN that the last cut ended with.
    pub(crate) after: u64,
    pub(crate) answer: oneshot::Sender<CutResult>,
}

/// How to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownMode {
    /// Publish everything first.
    Orderly,
    /// Now, as if the process had ended.
    AtOnce,
}

/// What the flusher is to do now.
#[derive(Debug, Default)]
pub(crate) struct FlushRequests {
    pub(crate) flushes: Vec<oneshot::Sender<FlushResult>>,
    pub(crate) rotations: Vec<oneshot::Sender<RetentionResult>>,
    pub(crate) cuts: Vec<CutRequest>,
    /// Make room, do not wait for the next tick.
    pub(crate) urgent: bool,
    /// Flush everything: an append has waited long for memory.
    pub(crate) pressed: bool,
    pub(crate) stop: Option<ShutdownMode>,
    /// Seals that failed and are to be tried again.
    pub(crate) returned: Vec<SealJob>,
    /// Files that have left the view and are to leave the tree.
    pub(crate) damaged: Vec<DamagedFile>,
}

/// A file that a query found damaged.
#[derive(Debug)]
pub(crate) struct DamagedFile {
    pub(crate) place: PartitionKey,
    pub(crate) number: u32,
    pub(crate) sealed: bool,
    pub(crate) path: PathBuf,
    pub(crate) rows: u64,
    pub(crate) what: String,
}

impl FlushRequests {
    fn is_idle(&self) -> bool {
        self.flushes.is_empty()
            && self.rotations.is_empty()
            && self.cuts.is_empty()
            && self.damaged.is_empty()
            && !self.urgent
            && self.stop.is_none()
    }
}

impl FlushScheduler {
    /// Asks for a publish of everything; `None` if the flusher has stopped.
    pub(crate) fn flush(&self) -> Option<oneshot::Receiver<FlushResult>> {
        self.ask(|tick, answer| tick.flushes.push(answer))
    }

    /// Asks for a check of the rotation rules; `None` if the flusher has stopped.
    pub(crate) fn rotate(&self) -> Option<oneshot::Receiver<RetentionResult>> {
        self.ask(|tick, answer| tick.rotations.push(answer))
    }

    /// Asks for a prefix cut; `None` if the flusher has stopped.
    pub(crate) fn cut(&self, after: u64) -> Option<oneshot::Receiver<CutResult>> {
        self.ask(|tick, answer| tick.cuts.push(CutRequest { after, answer }))
    }

    fn ask<T>(&self, order: impl FnOnce(&mut FlushRequests, oneshot::Sender<T>)) -> Option<oneshot::Receiver<T>> {
        let (answer, receiver) = oneshot::channel();
        let mut orders = self.orders.lock();
        if orders.stopped {
            return None;
        }
        order(&mut orders.tick, answer);
        drop(orders);
        self.changed.notify_all();
        Some(receiver)
    }

    /// Asks for a damaged file to be quarantined.
    pub(crate) fn report_damaged(&self, damaged: DamagedFile) {
        self.orders.lock().tick.damaged.push(damaged);
        self.changed.notify_all();
    }

    /// Asks for a publish of everything without waiting for it.
    pub(crate) fn force_flush(&self) {
        self.orders.lock().tick.pressed = true;
        self.request_flush();
    }

    /// Asks for room, without waiting for it.
    pub(crate) fn request_flush(&self) {
        let mut orders = self.orders.lock();
        if !std::mem::replace(&mut orders.tick.urgent, true) {
            self.changed.notify_all();
        }
    }

    pub(crate) fn stop(&self, how: ShutdownMode) {
        let mut orders = self.orders.lock();
        if orders.tick.stop != Some(ShutdownMode::AtOnce) {
            orders.tick.stop = Some(how);
        }
        drop(orders);
        self.changed.notify_all();
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// The flusher is gone: flushes are refused from now on.
    pub(crate) fn mark_stopped(&self) {
        let mut orders = self.orders.lock();
        orders.stopped = true;
        orders.tick.flushes.clear();
        orders.tick.rotations.clear();
        orders.tick.cuts.clear();
    }

    /// Waits until `next` or an order.
    pub(crate) fn wait(&self, next: Instant) -> FlushRequests {
        let mut orders = self.orders.lock();
        while orders.tick.is_idle() && !self.changed.wait_until(&mut orders, next).timed_out() {}
        let tick = std::mem::take(&mut orders.tick);
        orders.tick.stop = tick.stop;
        tick
    }

    /// Waits `patience`, or until the threads are to stop.
    pub(crate) fn wait_for_stop(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut orders = self.orders.lock();
        while orders.tick.stop.is_none() && !self.changed.wait_until(&mut orders, end).timed_out() {}
    }

    /// Whether the threads are to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.orders.lock().tick.stop.is_some()
    }

    /// Hands a segment to the sealer; gives it back if too many wait already.
    pub(crate) fn seal(&self, job: SealJob) -> Option<SealJob> {
        let mut orders = self.orders.lock();
        if orders.seals.len() >= SEALS || orders.no_more_seals {
            return Some(job);
        }
        orders.seals.push_back(job);
        drop(orders);
        self.changed.notify_all();
        None
    }

    /// The next segment to seal; `None` when there will be no more. Segments that wait when the threads stop stay open:
    /// the next start takes them up.
    pub(crate) fn next_seal(&self) -> Option<SealJob> {
        let mut orders = self.orders.lock();
        orders.sealing = false;
        loop {
            if orders.no_more_seals || orders.tick.stop == Some(ShutdownMode::AtOnce) {
                return None;
            }
            if let Some(job) = orders.seals.pop_front() {
                orders.sealing = true;
                return Some(job);
            }
            self.changed.wait(&mut orders);
        }
    }

    /// Whether the sealer has time for nothing else: many files wait, or the threads are to stop.
    pub(crate) fn is_sealer_pressed(&self) -> bool {
        let orders = self.orders.lock();
        orders.seals.len() >= SEALS / 2 || orders.tick.stop.is_some()
    }

    /// Segments here and with the sealer.
    pub(crate) fn seals(&self) -> usize {
        let orders = self.orders.lock();
        orders.seals.len() + orders.tick.returned.len() + usize::from(orders.sealing)
    }

    /// A seal failed: the publisher offers it again.
    pub(crate) fn return_seal(&self, job: SealJob) {
        self.orders.lock().tick.returned.push(job);
    }

    pub(crate) fn close_seals(&self) {
        self.orders.lock().no_more_seals = true;
        self.changed.notify_all();
    }
}

impl From<Arc<str>> for Error {
    fn from(reason: Arc<str>) -> Self {
        Self::Publishing { reason }
    }
}
