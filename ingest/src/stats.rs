//! Counters of the pipeline, read by `/metrics` and `/readyz`.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Live counters.
#[derive(Debug, Default)]
pub struct Stats {
    pub(crate) received: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) stored_rows: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) resubscribed: AtomicU64,
    pub(crate) floors_sent: AtomicU64,
    pub(crate) pulling: watch::Sender<bool>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Snapshot {
    /// Messages received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Rows handed to the engine and durable.
    pub stored_rows: u64,
    /// Batches that were stored before.
    pub duplicates: u64,
    /// Messages that could not be decoded or stored and were kept in `dead_letters`.
    pub dead_letters: u64,
    /// Messages of which not even a dead letter could be stored.
    pub given_up: u64,
    /// Batches received and not yet durable.
    pub in_flight: u64,
    /// Times that a batch waited longer than `ingest.flush_interval` for the engine.
    pub stalls: u64,
    /// Times that the consumer was opened again.
    pub resubscribed: u64,
    /// Durable floors sent to Racks.
    pub floors_sent: u64,
    /// Whether the consumer is open now.
    pub pulling: bool,
}

impl Stats {
    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            received: get(&self.received),
            received_bytes: get(&self.received_bytes),
            stored_rows: get(&self.stored_rows),
            duplicates: get(&self.duplicates),
            dead_letters: get(&self.dead_letters),
            given_up: get(&self.given_up),
            in_flight: get(&self.in_flight),
            stalls: get(&self.stalls),
            resubscribed: get(&self.resubscribed),
            floors_sent: get(&self.floors_sent),
            pulling: *self.pulling.borrow(),
        }
    }

    /// Returns as soon as the consumer is open.
    pub async fn opened(&self) {
        // The sender is `self`, so this ends by the consumer being open or not at all.
        let _ = self.pulling.subscribe().wait_for(|pulling| *pulling).await;
    }

    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
