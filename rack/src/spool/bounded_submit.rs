//! Batches of a sender that can be told to come again: a full spool refuses them instead of dropping older ones for them, or waiting.
//!
//! # Invariants
//!
//! - They have room up to seven eighths of the spool's bound, whatever it does when it is full: what the Rack says of itself has more.
//! - What was handed over is written whole, whether or not somebody still waits for it.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{AdmissionClass, RecordingError, SpoolBatch, SpoolHandle, segment_log};

impl SpoolHandle {
    /// Writes batches together, with their checkpoints; returns when they are durable.
    pub(crate) async fn submit_bounded(
        &self,
        batches: Vec<SpoolBatch>,
        within: Duration,
    ) -> Result<(), RecordingError> {
        let bytes: u64 = batches
            .iter()
            .map(|batch| segment_log::size_of_batch(batch) as u64)
            .sum();
        if !self.has_room_for(bytes) {
            return Err(RecordingError::Full);
        }
        let admitted = tokio::time::timeout(within, self.acquire_permit(bytes, AdmissionClass::Producer));
        let permit = admitted.await.map_err(|_| RecordingError::Full)??;
        let (done, durable) = oneshot::channel();
        permit.submit_transaction(|| batches, vec![done])?;
        durable.await.unwrap_or(Err(RecordingError::Closed))
    }

    fn has_room_for(&self, bytes: u64) -> bool {
        let waiting = self.0.index.lock().waiting_bytes();
        waiting == 0 || waiting.saturating_add(bytes) <= self.0.max_bytes / 8 * 7
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{Clock, EntityId, Table, Timestamp};

    use super::super::{SourceCheckpoint, SpoolFullPolicy, SpoolKind, SpoolLimits, open};
    use super::*;

    fn batch(bytes: usize, key: &str) -> SpoolBatch {
        SpoolBatch {
            entity: EntityId::for_name("rack-a"),
            table: Table::Logs,
            rows: 1,
            payload: vec![7; bytes],
            checkpoints: vec![SourceCheckpoint {
                key: key.to_owned(),
                value: vec![1],
            }],
            is_part: false,
        }
    }

    #[tokio::test]
    async fn a_full_spool_refuses_a_sender_that_can_come_again_whatever_it_does_with_others() {
        for policy in [SpoolFullPolicy::Block, SpoolFullPolicy::DropOldest] {
            let folder = tempfile::tempdir().unwrap();
            let clock = Clock::new(|| Timestamp::from_micros(1));
            let limits = SpoolLimits::new(1 << 20, policy);
            let (spool, thread, _) = open(folder.path(), limits, clock, SpoolKind::Telemetry).unwrap();
            let submit = |sizes: &[usize], key: &str| {
                let batches = sizes.iter().map(|bytes| batch(*bytes, key)).collect();
                let spool = spool.clone();
                async move { spool.submit_bounded(batches, Duration::from_secs(5)).await }
            };
            assert_eq!(submit(&[300_000, 300_000], "first").await, Ok(()), "{policy:?}");
            assert_eq!(
                submit(&[400_000], "second").await,
                Err(RecordingError::Full),
                "{policy:?}"
            );
            assert_eq!(submit(&[200_000], "third").await, Ok(()), "{policy:?}");
            assert_eq!(spool.status().dropped_rows, 0, "{policy:?}");
            let known = ["first", "second", "third"].map(|key| spool.checkpoint(key).is_some());
            assert_eq!(known, [true, false, true], "{policy:?}");
            assert!(thread.close(Duration::from_secs(5)).await);
        }
    }
}
