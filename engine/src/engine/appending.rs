//! Append: takes room, queues a batch for the group commit, and waits for its answer.
//!
//! # Invariants
//!
//! - A batch that waits for room can be withdrawn; one that is being written is waited for.

use std::sync::Arc;
use std::time::Duration;

use model::Table;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, oneshot};
use tokio::time::Instant;

use super::Engine;
use crate::append_queue::{AppendClaim, AppendRequest, QueuedAppend};
use crate::engine_core::{EngineCore, units};
use crate::memtable::weight;
use crate::wal::WalFrame;
use crate::{AppendBatch, AppendOutcome, Error, SpecName, frame_origin, partitioner};

/// An append that has waited so long for room has every hot row published.
const LONG_WAIT: Duration = Duration::from_secs(1);

impl Engine {
    /// Stores a batch. When this returns, its rows are durable and in every view taken from then on. Waits while the log, the
    /// disk or the memory for hot rows has no room. Dropping the future withdraws a batch that still waits for room; one that
    /// is being written is stored all the same.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`], or a batch that can never be stored. Only after [`Error::Poisoned`] may the
    /// batch be stored nevertheless: a restart tells.
    pub async fn append(&self, batch: AppendBatch) -> Result<AppendOutcome, Error> {
        self.append_to(batch, Vec::new(), None).await
    }

    /// As [`Engine::append`], but waits at most `patience` for room. A batch that is being written then is waited for: that
    /// takes as long as the disk's sync.
    ///
    /// # Errors
    /// As there; [`Error::Busy`] if there was no room: the batch is not stored, and will not be.
    pub async fn append_within(&self, batch: AppendBatch, patience: Duration) -> Result<AppendOutcome, Error> {
        self.append_to(batch, Vec::new(), Some(patience)).await
    }

    /// As [`Engine::append`], for messages with the spec of each record batch: they lie in its folder.
    ///
    /// # Errors
    /// As there; also if the batch is not of messages, if specs are not as many as its record batches, or if one of those is empty.
    pub async fn append_of_specs(
        &self,
        batch: AppendBatch,
        specs: Vec<Option<SpecName>>,
    ) -> Result<AppendOutcome, Error> {
        if batch.table != Table::Messages {
            return Err(Error::rows(batch.table, "specs are of messages".to_owned()));
        }
        self.append_to(batch, specs, None).await
    }

    async fn append_to(
        &self,
        batch: AppendBatch,
        specs: Vec<Option<SpecName>>,
        patience: Option<Duration>,
    ) -> Result<AppendOutcome, Error> {
        let shared = &self.shared;
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        if shared.remote.as_ref().is_some_and(|remote| remote.is_reader()) {
            return Err(Error::ReadOnly);
        }
        let rule = shared.rule();
        let arrived = shared.time.clock.now();
        let placed = partitioner::partition_batch(batch.table, &batch.rows, arrived, (rule, &specs))?;
        let frame = WalFrame {
            lsn: 0,
            table: batch.table.number(),
            arrived,
            origin: frame_origin::encode(&batch.origin, rule, specs),
            payload: batch.payload,
        };
        let limit = shared.admission.largest_frame;
        if frame.encoded_len() > limit {
            return Err(Error::TooLarge {
                table: batch.table,
                bytes: frame.encoded_len(),
                limit,
            });
        }
        let pieces: Vec<_> = placed
            .pieces
            .into_iter()
            .map(|(partition, rows)| {
                let weight = weight(&rows.batch);
                ((batch.table, partition), rows, weight)
            })
            .collect();
        let wanted: u64 = pieces.iter().map(|(_, _, weight)| u64::from(units(*weight))).sum();
        let busy = || self.busy(patience.unwrap_or_default());
        let room = with_deadline(deadline, self.take_room(wanted))
            .await
            .ok_or_else(busy)??;
        let (sender, answer) = oneshot::channel();
        let claim = AppendClaim::default();
        let append = AppendRequest {
            frame,
            origin: batch.origin,
            pieces: pieces
                .into_iter()
                .map(|(place, rows, weight)| (place, Arc::new(rows.owned()), weight))
                .collect(),
            rows: placed.rows,
            misdated: placed.misdated,
            room,
            answer: sender,
            claim: claim.clone(),
        };
        shared.admission.queue.push(append);
        let mut queued = QueuedAppend { claim, answer };
        let answered = match with_deadline(deadline, &mut queued.answer).await {
            None if queued.claim.claim() => return Err(busy()),
            None => (&mut queued.answer).await,
            Some(answered) => answered,
        };
        answered.unwrap_or_else(|_| Err(self.unanswered(&queued)))
    }

    /// Why an append that nobody answers is not known to be stored.
    fn unanswered(&self, queued: &QueuedAppend) -> Error {
        if queued.claim.claim() {
            return self.shared.refusal();
        }
        // Only a panic takes an append and does not answer it; the store may not be poisoned yet.
        let reason = self.shared.poisoned();
        Error::Poisoned {
            reason: reason.unwrap_or_else(|| "the thread engine-committer panicked".into()),
        }
    }

    fn busy(&self, patience: Duration) -> Error {
        let trouble = self.health_issue().map(|trouble| trouble.to_string());
        Error::Busy {
            patience,
            reason: trouble.unwrap_or_else(|| "rows come faster than it takes them".to_owned()),
        }
    }

    async fn take_room(&self, wanted: u64) -> Result<OwnedSemaphorePermit, Error> {
        let shared = &self.shared;
        let most = EngineCore::total_room(&shared.settings);
        let wanted = u32::try_from(wanted).unwrap_or(most).min(most);
        let room = match Arc::clone(&shared.admission.room).try_acquire_many_owned(wanted) {
            Err(TryAcquireError::NoPermits) => {
                shared.scheduler.request_flush();
                let room = Arc::clone(&shared.admission.room).acquire_many_owned(wanted);
                tokio::pin!(room);
                loop {
                    // What is published first may not be enough for a large batch: then everything must go.
                    match tokio::time::timeout(LONG_WAIT, &mut room).await {
                        Ok(room) => break room.ok(),
                        Err(_) => shared.scheduler.force_flush(),
                    }
                }
            }
            now => now.ok(),
        };
        room.ok_or_else(|| shared.refusal())
    }
}

/// Waits for something until a deadline, if there is one.
async fn with_deadline<T>(deadline: Option<Instant>, awaited: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, awaited).await.ok(),
        None => Some(awaited.await),
    }
}
