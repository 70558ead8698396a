//! Durable floors: tells Racks up to which sequence number their batches are durable, so that they trim their spools and outboxes.
//!
//! # Invariants
//!
//! - A floor is sent only after the engine reports it as durable. If one is lost, the next one, or the answer to a heartbeat, makes up for it.
//! - However fast batches arrive, each producer run gets at most one floor per [`FLOOR_INTERVAL`].
//! - The floor of an outbox rises only to what the bus has on its disk: messages that came from the bus since the Mixer started, without a
//!   gap above what the Rack calls settled, and that were synced since. The bus may have lost to a power cut what the archive has from
//!   before. The Rack sends that again because its floor stands still.
//! - A sync that failed may have lost the data that it was for: after that no floor of an outbox rises until the next start.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::Engine;
use model::control::DurableFloor;
use model::telemetry_codec::BatchId;
use model::{EntityId, subject};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use tracing::{debug, error};

use crate::stats::IngestStats;

/// Signs a floor as it goes over the bus; `None` if it cannot be signed.
pub type SignFloor = Arc<dyn Fn(DurableFloor) -> Option<Bytes> + Send + Sync>;
/// Syncs the business messages that the bus has accepted to its disk.
pub type SyncBus = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The shortest time between two floors of one producer run.
const FLOOR_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between two syncs of the bus.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// The most producer runs that are remembered. Forgetting one costs a repeated floor, or messages that are sent again.
const MAX_RUNS: usize = 10_000;

/// The most messages of a run that are remembered above a gap.
const MAX_AHEAD: usize = 1 << 16;

/// A producer's entity and its boot epoch.
type RunKey = (EntityId, u64);

/// Tracks up to which sequence number each producer run is durable.
pub struct DurableFloorTracker {
    engine: Arc<Engine>,
    /// None if the bus syncs before it acknowledges, if the Mixer does not run the bus, or if nothing is archived.
    sync: Option<SyncBus>,
    runs: Mutex<MessageRuns>,
    /// Notified when a run waits for a sync.
    sync_requested: Notify,
}

/// The outbox runs whose messages came from the present stream.
#[derive(Debug, Default)]
struct MessageRuns {
    /// Counts the resets: a sync that began before one says nothing about the runs since.
    generation: u64,
    by_key: HashMap<RunKey, MessageRun>,
}

/// How far the messages of one outbox run came from the bus, and how far they are synced.
#[derive(Debug, Default)]
struct MessageRun {
    /// The highest sequence up to which every message came from the bus or was settled.
    through: u64,
    /// Sequences that came above a gap.
    ahead: BTreeSet<u64>,
    synced: u64,
    is_waiting: bool,
}

impl MessageRun {
    fn add(&mut self, seq: u64, settled: u64) {
        self.through = self.through.max(settled);
        // The sequence that closes the gap always has room.
        if seq <= self.through.saturating_add(1) || self.ahead.len() < MAX_AHEAD {
            self.ahead.insert(seq);
        }
        let is_next = |next: &u64, through: u64| *next <= through.saturating_add(1);
        while let Some(next) = self.ahead.first().copied().filter(|next| is_next(next, self.through)) {
            self.ahead.remove(&next);
            self.through = self.through.max(next);
        }
    }
}

impl std::fmt::Debug for DurableFloorTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableFloorTracker").finish_non_exhaustive()
    }
}

impl DurableFloorTracker {
    /// A tracker over the engine's floors. If there is a `sync`, it runs before the floor of an outbox rises.
    #[must_use]
    pub fn new(engine: Arc<Engine>, sync: Option<SyncBus>) -> Self {
        Self {
            engine,
            sync,
            runs: Mutex::default(),
            sync_requested: Notify::new(),
        }
    }

    /// Records that a message came from the bus and is archived. Up to `settled` its Rack has nothing left to send.
    pub(crate) fn record_received(&self, id: BatchId, settled: u64) {
        if self.sync.is_some() && is_outbox_run(id.boot_epoch) {
            let mut runs = self.runs.lock();
            if runs.by_key.len() > MAX_RUNS {
                // The messages of a forgotten run that are above its floor are sent again.
                let is_pending = |run: &MessageRun| !run.ahead.is_empty() || run.synced < run.through;
                runs.by_key.retain(|_, run| is_pending(run));
            }
            let run = runs.by_key.entry((id.entity, id.boot_epoch)).or_default();
            run.add(id.seq, settled);
        }
    }

    /// Forgets all runs: the bus may have another stream now, without the messages that came.
    pub(crate) fn reset(&self) {
        let mut runs = self.runs.lock();
        runs.generation += 1;
        runs.by_key.clear();
    }

    /// How far a producer's run is durable, and how far it is on this machine's disk.
    #[must_use]
    pub fn durable_floor(&self, entity_id: EntityId, boot_epoch: u64) -> DurableFloor {
        let seq = self.engine.floor(entity_id, boot_epoch);
        let mut floor = DurableFloor {
            entity_id,
            boot_epoch,
            seq,
            on_disk: self.engine.floor_on_disk(entity_id, boot_epoch),
        };
        if self.sync.is_some() && is_outbox_run(boot_epoch) {
            let mut runs = self.runs.lock();
            let Some(run) = runs.by_key.get_mut(&(entity_id, boot_epoch)) else {
                (floor.seq, floor.on_disk) = (0, 0);
                return floor;
            };
            floor.seq = seq.min(run.synced);
            floor.on_disk = floor.on_disk.min(run.through);
            if seq.min(run.through) > run.synced && !std::mem::replace(&mut run.is_waiting, true) {
                self.sync_requested.notify_one();
            }
        }
        floor
    }

    /// The runs that wait for a sync, how far a sync makes each of them durable, and the generation that they are of.
    fn take_waiting_runs(&self) -> (Vec<(RunKey, u64)>, u64) {
        let mut runs = self.runs.lock();
        let generation = runs.generation;
        let take = |(run, of_run): (&RunKey, &mut MessageRun)| {
            let through = of_run.through.min(self.engine.floor(run.0, run.1));
            std::mem::take(&mut of_run.is_waiting).then_some((*run, through))
        };
        (runs.by_key.iter_mut().filter_map(take).collect(), generation)
    }

    /// Syncs the bus, and returns the floors that rose.
    async fn sync(self: Arc<Self>) -> io::Result<Vec<DurableFloor>> {
        let (reached, generation) = self.take_waiting_runs();
        let this = Arc::clone(&self);
        let synced = tokio::task::spawn_blocking(move || this.sync.as_ref().map_or(Ok(()), |sync| sync())).await;
        let synced = synced.unwrap_or_else(|error| Err(io::Error::other(error)));
        let mut runs = self.runs.lock();
        if runs.generation != generation {
            // The bus may have another stream by now.
            return Ok(Vec::new());
        }
        for (run, seq) in &reached {
            if let Some(of_run) = runs.by_key.get_mut(run) {
                of_run.is_waiting = synced.is_err();
                if synced.is_ok() {
                    of_run.synced = of_run.synced.max(*seq);
                }
            }
        }
        drop(runs);
        synced?;
        Ok(reached
            .into_iter()
            .map(|(run, _)| self.durable_floor(run.0, run.1))
            .collect())
    }
}

/// Whether a boot epoch is that of a Rack's outbox (odd) and not of its spool (even).
const fn is_outbox_run(boot_epoch: u64) -> bool {
    boot_epoch % 2 == 1
}

pub(crate) struct DurableFloorSender {
    pub(crate) floors: Arc<DurableFloorTracker>,
    pub(crate) client: async_nats::Client,
    pub(crate) sign: SignFloor,
    pub(crate) stats: Arc<IngestStats>,
}

impl DurableFloorSender {
    /// Sends a floor to each producer whose batch comes over `durable`, until that channel closes.
    pub(crate) async fn run(self, durable: mpsc::Receiver<BatchId>) {
        tokio::select! {
            () = self.send_floors(durable) => {}
            () = self.send_synced_floors() => {}
        }
    }

    async fn send_floors(&self, mut durable: mpsc::Receiver<BatchId>) {
        let mut sent: HashMap<RunKey, (u64, u64)> = HashMap::new();
        let mut ids = Vec::new();
        while durable.recv_many(&mut ids, 4096).await > 0 {
            let runs: BTreeSet<RunKey> = ids.drain(..).map(|id| (id.entity, id.boot_epoch)).collect();
            for run in runs {
                let floor = self.floors.durable_floor(run.0, run.1);
                // `on_disk` counts too: it keeps the Rack from sending again what the archive has, even if the bus may still lose it.
                let current = (floor.seq, floor.on_disk);
                if sent.get(&run) != Some(&current) {
                    self.send(floor).await;
                    sent.insert(run, current);
                }
            }
            if sent.len() > MAX_RUNS {
                sent.clear();
            }
            sleep(FLOOR_INTERVAL).await;
        }
    }

    /// Syncs the bus whenever a run waits for it, and sends the floors that rose. Never returns.
    async fn send_synced_floors(&self) {
        let mut is_reported = false;
        loop {
            self.floors.sync_requested.notified().await;
            match Arc::clone(&self.floors).sync().await {
                Ok(risen) => {
                    is_reported = false;
                    for floor in risen {
                        self.send(floor).await;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_reported, true) {
                        error!(%error, "cannot sync the bus's files: Racks keep their messages; if this persists, \
                                        restart the Mixer");
                    }
                    self.floors.sync_requested.notify_one();
                }
            }
            sleep(SYNC_INTERVAL).await;
        }
    }

    async fn send(&self, floor: DurableFloor) {
        let Some(body) = (self.sign)(floor) else { return };
        let entity_id = floor.entity_id;
        let subject = subject::rack(&entity_id, subject::RackCommand::Floor);
        match self.client.publish(subject, body).await {
            Ok(()) => self.stats.counters.floors_sent.add(1),
            Err(error) => debug!(%entity_id, %error, "could not send a durable floor; the next heartbeat carries it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_messages_that_came_without_a_gap_above_the_settled_ones() {
        let mut run = MessageRun::default();
        let mut through = |seq, settled| {
            run.add(seq, settled);
            run.through
        };
        assert_eq!([through(7, 0), through(8, 0)], [0, 0], "what was before may be lost");
        assert_eq!(through(5, 4), 5);
        assert_eq!(through(6, 4), 8, "sent again, without a gap now");
        assert_eq!([through(6, 4), through(10, 9), through(3, 2)], [8, 10, 10]);
    }
}
