//! What leaves together: what is sent over the guaranteed lane while one message is handled.
//!
//! ```text
//! process of 1 ── send ──▶ whole of 1
//! process of 2 ── (done later)
//! flush ────────── send, for 2 ──▶ whole of 2, beside the word that 2 was taken
//! ```
//!
//! # Invariants
//!
//! - What a task sends that the work starts is not gathered: it is handed back to the gear's own task.
//!
//! # Not here
//!
//! Committing it: the supervisor's, and [`super::GearContext`]'s.

use std::future::Future;

use model::MessageId;
use parking_lot::Mutex;

use crate::outbox::OutboxTransaction;

tokio::task_local! {
    static GATHERED: (DeliveryGuarantee, Mutex<GearOutput>);
}

/// How the message came whose work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryGuarantee {
    /// By a guaranteed wire: it comes again if the gear fails.
    Again,
    /// Otherwise.
    Once,
}

impl DeliveryGuarantee {
    /// What is being handled.
    pub(super) fn current() -> Self {
        GATHERED.try_with(|(handled, _)| *handled).unwrap_or(Self::Once)
    }
}

/// What was sent.
#[derive(Debug, Default)]
pub(crate) struct GearOutput {
    pub(crate) transaction: OutboxTransaction,
    /// For messages whose handling began before.
    pub(crate) later: Vec<DeferredOutput>,
}

/// What was sent for messages whose handling began before: they are taken together with it.
#[derive(Debug)]
pub(crate) struct DeferredOutput {
    pub(crate) first: MessageId,
    pub(crate) last: MessageId,
    pub(crate) transaction: OutboxTransaction,
}

impl OutboxTransaction {
    /// Adds what another made.
    pub(super) fn append(&mut self, mut more: Self) {
        self.leaving.append(&mut more.leaving);
        self.dead.append(&mut more.dead);
        self.notes.append(&mut more.notes);
    }
}

/// Does work and gathers what it sends; that is left to the caller.
pub(crate) async fn collect_output<T>(handled: DeliveryGuarantee, work: impl Future<Output = T>) -> (T, GearOutput) {
    let gathering = async {
        let done = work.await;
        let gathered = GATHERED.with(|(_, gathered)| std::mem::take(&mut *gathered.lock()));
        (done, gathered)
    };
    GATHERED.scope((handled, Mutex::default()), gathering).await
}

/// Adds to what is gathered; false where nothing is.
pub(super) fn add_output(add: impl FnOnce(&mut GearOutput)) -> bool {
    GATHERED.try_with(|(_, gathered)| add(&mut gathered.lock())).is_ok()
}
