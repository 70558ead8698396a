//! The pipeline's metrics, and whether its consumer is open.

use model::metric_set;
use tokio::sync::watch;

use crate::rack_usage::{RackQuotas, RackUsageTable};
use crate::subject_traffic::SubjectTraffic;

metric_set! {
    /// The counters at one moment.
    pub struct IngestStatsSnapshot as "ingest";
    /// The counters as they are counted.
    pub(crate) struct IngestCounters;
    counted {
        /// Telemetry messages received
        Counter received_messages,
        /// Bytes of telemetry messages received
        Counter received_bytes,
        /// Rows that the engine stored durably
        Counter stored_rows,
        /// Duplicate batches, stored before
        Counter duplicate_batches,
        /// Messages that became dead letters because they could not be decoded or stored
        Counter dead_letters,
        /// Messages lost because not even a dead letter could be stored
        Counter lost_messages,
        /// Batches that waited longer than ingest.flush_interval
        Counter stalls,
        /// Times that the consumer was reopened
        Counter resubscriptions,
        /// Durable floors sent to Racks
        Counter floors_sent,
        /// Batches received and not yet durable
        Gauge in_flight_batches,
    }
    computed {
        /// 1 if the consumer is open
        Gauge consumer_open,
    }
}

/// What the pipeline counts, and whether its consumer is open.
#[derive(Debug, Default)]
pub struct IngestStats {
    pub(crate) counters: IngestCounters,
    pub(crate) pulling: watch::Sender<bool>,
    /// The traffic of business messages, by subject.
    pub volumes: SubjectTraffic,
    /// What each Rack sends.
    pub racks: RackUsageTable,
}

impl IngestStats {
    /// Where Racks have these quotas.
    pub(crate) fn new(quotas: RackQuotas) -> Self {
        Self {
            racks: RackUsageTable::new(quotas),
            ..Self::default()
        }
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> IngestStatsSnapshot {
        IngestStatsSnapshot {
            consumer_open: u64::from(self.is_open()),
            ..self.counters.read()
        }
    }

    /// Whether the consumer is open now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.pulling.borrow()
    }

    /// Returns as soon as the consumer is open.
    pub async fn wait_until_open(&self) {
        // The sender lives in `self`, so the only way that this ends is an open consumer.
        let _ = self.pulling.subscribe().wait_for(|pulling| *pulling).await;
    }
}
