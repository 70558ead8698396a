//! What everyone but the spool's writer has of it: hands batches over, reads checkpoints and floors.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use model::EntityId;
use model::control::DurableFloor;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{
    AdmissionClass, DurabilityNotifier, PendingAppend, ProducerRun, RecordingError, SourceCheckpoint, SpoolBatch,
    SpoolCore, SpoolReader, SpoolStatus, segment_log,
};

/// How often a thread that waits for the writer looks.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes that were admitted; given back unless they are handed over.
pub(super) struct ByteReservation {
    shared: Arc<SpoolCore>,
    bytes: u64,
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.release(self.bytes);
            self.shared.changed.send_modify(|version| *version += 1);
        }
    }
}

/// The spool, for everyone but its writer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SpoolHandle(pub(super) Arc<SpoolCore>);

impl SpoolHandle {
    /// Hands a batch to the writer; `done` is notified when it is durable. Waits for a free slot.
    pub(crate) async fn submit(
        &self,
        batch: SpoolBatch,
        done: Option<DurabilityNotifier>,
    ) -> Result<(), RecordingError> {
        let bytes = if batch.rows > 0 {
            segment_log::size_of_batch(&batch) as u64
        } else {
            0
        };
        let room = self.acquire_permit(bytes, AdmissionClass::Consumer).await?;
        room.push(|| vec![batch], done.into_iter().collect(), false)
    }

    /// Waits until so many bytes are admitted, and for a free slot, for batches that are written together.
    pub(crate) async fn acquire_permit(
        &self,
        bytes: u64,
        class: AdmissionClass,
    ) -> Result<SpoolPermit, RecordingError> {
        let reservation = self.reserve(bytes, class).await?;
        self.acquire_slot(reservation).await
    }

    /// The same without a wait; none if it had to wait, or nothing is taken any more.
    pub(crate) fn acquire_permit_now(&self, bytes: u64, class: AdmissionClass) -> Option<SpoolPermit> {
        let slot = Arc::clone(&self.0.slots).try_acquire_owned().ok()?;
        let reservation = self.try_reserve(bytes, class)?;
        Some(SpoolPermit { reservation, slot })
    }

    pub(super) async fn acquire_slot(&self, reservation: ByteReservation) -> Result<SpoolPermit, RecordingError> {
        let slot = Arc::clone(&self.0.slots).acquire_owned().await;
        Ok(SpoolPermit {
            reservation,
            slot: slot.map_err(|_| RecordingError::Closed)?,
        })
    }

    async fn reserve(&self, bytes: u64, class: AdmissionClass) -> Result<ByteReservation, RecordingError> {
        if !self.0.never_drops || bytes == 0 {
            let shared = Arc::clone(&self.0);
            return Ok(ByteReservation { shared, bytes: 0 });
        }
        let admission = &self.0.admission;
        let _turn = admission.queue(class).lock().await;
        let mut changed = self.changed();
        loop {
            if self.0.slots.is_closed() {
                return Err(RecordingError::Closed);
            }
            if let Some(reservation) = self.try_reserve(bytes, class) {
                admission.reset_full_warning();
                return Ok(reservation);
            }
            admission.warn_full();
            changed.changed().await.map_err(|_| RecordingError::Closed)?;
        }
    }

    pub(super) fn try_reserve(&self, bytes: u64, class: AdmissionClass) -> Option<ByteReservation> {
        let on_disk = || self.0.index.lock().waiting_bytes();
        let is_admitted = self.0.admission.try_reserve(bytes, on_disk, class);
        is_admitted.then(|| ByteReservation {
            shared: Arc::clone(&self.0),
            bytes,
        })
    }

    /// Takes floors from the Mixer.
    pub(crate) fn apply_floors(&self, floors: impl IntoIterator<Item = DurableFloor>) {
        self.0.heard.fetch_add(1, Relaxed);
        self.0.inbox.lock().floors.extend(floors);
        self.0.wake.notify_one();
    }

    /// The last value of a checkpoint.
    pub(crate) fn checkpoint(&self, key: &str) -> Option<Vec<u8>> {
        self.0.index.lock().checkpoints.get(key).cloned()
    }

    /// The keys of checkpoints that begin so, with their values.
    pub(crate) fn checkpoints(&self, prefix: &str) -> Vec<SourceCheckpoint> {
        let index = self.0.index.lock();
        let behind = index.checkpoints.range(prefix.to_owned()..);
        let of = behind.take_while(|(key, _)| key.starts_with(prefix));
        of.map(|(key, value)| SourceCheckpoint {
            key: key.clone(),
            value: value.clone(),
        })
        .collect()
    }

    /// How often the Mixer has spoken of floors, raised or not.
    pub(crate) fn floor_updates(&self) -> u64 {
        self.0.heard.load(Relaxed)
    }

    /// The last sequence of an entity in this process's run that is durable at the Mixer.
    pub(crate) fn floor(&self, entity: EntityId) -> u64 {
        let epoch = self.boot_epoch();
        self.0.index.lock().floor(ProducerRun { entity, epoch })
    }

    /// Returns when the writer has gone round since, or the spool takes nothing any more. What it is given to do is nothing, and needs no room. It
    /// blocks. A writer whose disk refuses goes round every second; one whose disk does not come back does not.
    pub(crate) fn wait_for_writer(&self) {
        let changed = self.changed();
        // Where all slots are taken the writer has something to do anyway.
        if let Ok(slot) = Arc::clone(&self.0.slots).try_acquire_owned() {
            let reservation = ByteReservation {
                shared: Arc::clone(&self.0),
                bytes: 0,
            };
            let _ = SpoolPermit { reservation, slot }.push(Vec::new, Vec::new(), false);
        }
        while !self.0.slots.is_closed() && changed.has_changed().is_ok_and(|has_changed| !has_changed) {
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the spool takes nothing any more.
    pub(crate) async fn wait_closed(&self) {
        let mut changed = self.changed();
        while !self.0.slots.is_closed() && changed.changed().await.is_ok() {}
    }

    /// This process's run.
    pub(crate) fn boot_epoch(&self) -> u64 {
        self.0.boot_epoch
    }

    /// The reading end.
    pub(crate) fn reader(&self) -> SpoolReader {
        SpoolReader::new(Arc::clone(&self.0.index))
    }

    /// Changes whenever there is something new to send, or a floor rose.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// How full it is.
    pub(crate) fn status(&self) -> SpoolStatus {
        let index = self.0.index.lock();
        SpoolStatus {
            bytes: index.bytes(),
            waiting_bytes: index.waiting_bytes(),
            waiting_since: index.waiting_since(),
            dropped_rows: index.dropped_rows,
            waiting: index.waiting(64),
        }
    }
}

/// A free slot at the writer, and bytes that were admitted.
pub(crate) struct SpoolPermit {
    reservation: ByteReservation,
    slot: OwnedSemaphorePermit,
}

impl SpoolPermit {
    fn push(
        mut self,
        make: impl FnOnce() -> Vec<SpoolBatch>,
        done: Vec<DurabilityNotifier>,
        is_bound: bool,
    ) -> Result<(), RecordingError> {
        let shared = Arc::clone(&self.reservation.shared);
        let mut inbox = shared.inbox.lock();
        if inbox.closing {
            return Err(RecordingError::Closed);
        }
        inbox.pending.push_back(PendingAppend {
            batches: make(),
            done,
            is_bound,
            bytes: std::mem::take(&mut self.reservation.bytes),
            _slot: self.slot,
        });
        shared.wake.notify_one();
        Ok(())
    }

    /// Hands batches over that are written together, whether or not somebody still waits for them then. They are made at the
    /// moment from which on their order is fixed.
    pub(crate) fn submit_transaction(
        self,
        make: impl FnOnce() -> Vec<SpoolBatch>,
        done: Vec<DurabilityNotifier>,
    ) -> Result<(), RecordingError> {
        let whole = || {
            let mut batches = make();
            let parts = batches.len().saturating_sub(1);
            batches.iter_mut().take(parts).for_each(|batch| batch.is_part = true);
            batches
        };
        self.push(whole, done, true)
    }
}
