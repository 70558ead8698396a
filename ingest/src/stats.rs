//! Counters of the pipeline, read by `/metrics` and `/readyz`.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::subject_traffic::SubjectTraffic;

/// Declares the live counters and the struct of their values at one moment, with the same field names.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Live counters.
        #[derive(Debug, Default)]
        pub struct IngestStats {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) pulling: watch::Sender<bool>,
            /// The traffic of business messages, by subject.
            pub volumes: SubjectTraffic,
        }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
        pub struct IngestStatsSnapshot {
            $($(#[$about])* pub $name: u64,)*
            /// Whether the consumer is open now.
            pub pulling: bool,
        }

        impl IngestStats {
            /// The counters now.
            #[must_use]
            pub fn snapshot(&self) -> IngestStatsSnapshot {
                IngestStatsSnapshot {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    pulling: *self.pulling.borrow(),
                }
            }
        }
    };
}

counters! {
    /// Messages received.
    received,
    /// Their bytes.
    received_bytes,
    /// Rows handed to the engine and durable.
    stored_rows,
    /// Batches that had been stored before.
    duplicates,
    /// Messages that could not be decoded or stored and were kept in `dead_letters`.
    dead_letters,
    /// Messages for which not even a dead letter could be stored.
    given_up,
    /// Batches received and not yet durable.
    in_flight,
    /// Times that a batch waited longer than `ingest.flush_interval` for the engine.
    stalls,
    /// Times that the consumer was opened again.
    resubscribed,
    /// Durable floors sent to Racks.
    floors_sent,
}

impl IngestStats {
    /// Returns as soon as the consumer is open.
    pub async fn wait_until_open(&self) {
        // The sender lives in `self`, so the only way that this ends is an open consumer.
        let _ = self.pulling.subscribe().wait_for(|pulling| *pulling).await;
    }

    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
