//! Batches of a sender that can be told to come again: a full spool refuses them instead of dropping older ones for them, or waiting.
//!
//! # Invariants
//!
//! - They have room up to seven eighths of the spool's bound, whatever it does when it is full: what the Rack says of itself has more. What
//!   was admitted and is not yet on disk counts as well.
//! - What is larger than that is refused for good: it would never find room.
//! - What was handed over is written whole, whether or not somebody still waits for it.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{AdmissionClass, RecordingError, SpoolBatch, SpoolHandle, SpoolPermit, segment_log};

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
        let limit = self.0.admission.limit(AdmissionClass::Producer);
        if bytes > limit {
            return Err(RecordingError::ExceedsSpool { bytes, limit });
        }
        let admitted = tokio::time::timeout(within, self.try_acquire_permit(bytes));
        let permit = admitted.await.map_err(|_| RecordingError::Full)??;
        let (done, durable) = oneshot::channel();
        permit.submit_transaction(|| batches, vec![done])?;
        durable.await.unwrap_or(Err(RecordingError::Closed))
    }

    /// Reserves now or never, behind producers that wait, and waits for a free slot.
    async fn try_acquire_permit(&self, bytes: u64) -> Result<SpoolPermit, RecordingError> {
        let class = AdmissionClass::Producer;
        let turn = self.0.admission.queue(class).lock().await;
        let reservation = self.try_reserve(bytes, class).ok_or(RecordingError::Full)?;
        drop(turn);
        self.acquire_slot(reservation).await
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

    #[tokio::test]
    async fn requests_at_once_are_admitted_together_and_one_that_never_fits_is_refused_for_good() {
        for policy in [SpoolFullPolicy::Block, SpoolFullPolicy::DropOldest] {
            let folder = tempfile::tempdir().unwrap();
            let clock = Clock::new(|| Timestamp::from_micros(1));
            let limits = SpoolLimits::new(1 << 20, policy);
            let (spool, thread, _) = open(folder.path(), limits, clock, SpoolKind::Telemetry).unwrap();
            let submit = |bytes: usize| spool.submit_bounded(vec![batch(bytes, "key")], Duration::from_secs(5));
            let limit = (1 << 20) / 8 * 7;
            let never = submit(limit).await.unwrap_err();
            assert!(
                matches!(never, RecordingError::ExceedsSpool { .. }),
                "{policy:?}: {never}"
            );
            let results = futures::future::join_all((0..8).map(|_| submit(200_000))).await;
            let stored = results.iter().filter(|result| result.is_ok()).count();
            assert!((1..=4).contains(&stored), "{policy:?}: {results:?}");
            let refused = results.iter().filter(|result| **result == Err(RecordingError::Full));
            assert_eq!(refused.count(), 8 - stored, "{policy:?}: {results:?}");
            assert_eq!(spool.status().dropped_rows, 0, "{policy:?}");
            assert!(thread.close(Duration::from_secs(5)).await);
        }
    }
}
