//! Tells Racks how far their batches are durable, so that they trim their spools.
//!
//! # Invariants
//!
//! - A floor is sent only after the engine says so; a lost one is made good by the next, or by a heartbeat's answer.
//! - However fast batches arrive, a producer run gets at most one floor per [`EVERY`].
//! - The floor of messages rises to what the bus has: what came from it in this life of the Mixer, without a gap above what the Rack
//!   says is settled, and was synced since. What the archive has from before may be what the bus lost with its power: its Rack sends it
//!   again, as its floor stands still.
//! - A sync that failed may have lost what it was for: from then on no floor of messages rises before the next start.

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

/// Signs a floor for the wire; `None` if it cannot be signed.
pub type SignFloor = Arc<dyn Fn(DurableFloor) -> Option<Bytes> + Send + Sync>;
/// Has what the bus took of business messages on its disk.
pub type SyncBus = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The shortest time between two floors of one producer run.
const EVERY: Duration = Duration::from_millis(50);
/// The shortest time between two syncs of the bus.
const SYNC_EVERY: Duration = Duration::from_millis(500);
/// Producer runs remembered at most; forgetting one costs a repeated floor, or of messages that they are sent again.
const REMEMBERED: usize = 10_000;

/// The most messages of a run that are remembered behind a gap.
const MOST_AHEAD: usize = 1 << 16;

/// A producer and its run.
type RunKey = (EntityId, u64);

/// How far producers are durable.
pub struct DurableFloorTracker {
    engine: Arc<Engine>,
    /// None where the bus syncs before it acknowledges, or is not ours, or nothing is archived.
    sync: Option<SyncBus>,
    runs: Mutex<MessageRuns>,
    /// Told when something is to be synced.
    waits: Notify,
}

/// Of one life of the stream.
#[derive(Debug, Default)]
struct MessageRuns {
    life: u64,
    all: HashMap<RunKey, MessageRun>,
}

/// What is known of the messages of a run.
#[derive(Debug, Default)]
struct MessageRun {
    /// The last sequence without a gap that came from the bus, or was settled.
    through: u64,
    /// What came behind a gap.
    ahead: BTreeSet<u64>,
    synced: u64,
    is_waiting: bool,
}

impl MessageRun {
    fn add(&mut self, seq: u64, settled: u64) {
        self.through = self.through.max(settled);
        // What closes the gap has room always.
        if seq <= self.through.saturating_add(1) || self.ahead.len() < MOST_AHEAD {
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
    /// Those of an engine; `sync` is asked before the floor of messages rises.
    #[must_use]
    pub fn new(engine: Arc<Engine>, sync: Option<SyncBus>) -> Self {
        Self {
            engine,
            sync,
            runs: Mutex::default(),
            waits: Notify::new(),
        }
    }

    /// A message came from the bus, and is archived; up to `settled` its Rack has nothing any more.
    pub(crate) fn record_received(&self, id: BatchId, settled: u64) {
        if self.sync.is_some() && is_of_messages(id.boot_epoch) {
            let mut runs = self.runs.lock();
            if runs.all.len() > REMEMBERED {
                // Of one that is forgotten what is above the floor is sent again.
                let is_wanted = |run: &MessageRun| !run.ahead.is_empty() || run.synced < run.through;
                runs.all.retain(|_, run| is_wanted(run));
            }
            let run = runs.all.entry((id.entity, id.boot_epoch)).or_default();
            run.add(id.seq, settled);
        }
    }

    /// The bus may have another stream, which has nothing of what came.
    pub(crate) fn reset(&self) {
        let mut runs = self.runs.lock();
        runs.life += 1;
        runs.all.clear();
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
        if self.sync.is_some() && is_of_messages(boot_epoch) {
            let mut runs = self.runs.lock();
            let Some(run) = runs.all.get_mut(&(entity_id, boot_epoch)) else {
                (floor.seq, floor.on_disk) = (0, 0);
                return floor;
            };
            floor.seq = seq.min(run.synced);
            floor.on_disk = floor.on_disk.min(run.through);
            if seq.min(run.through) > run.synced && !std::mem::replace(&mut run.is_waiting, true) {
                self.waits.notify_one();
            }
        }
        floor
    }

    /// How far the runs are that wait for a sync, and the life of the stream.
    fn take_waiting_runs(&self) -> (Vec<(RunKey, u64)>, u64) {
        let mut runs = self.runs.lock();
        let life = runs.life;
        let take = |(run, of_run): (&RunKey, &mut MessageRun)| {
            let through = of_run.through.min(self.engine.floor(run.0, run.1));
            std::mem::take(&mut of_run.is_waiting).then_some((*run, through))
        };
        (runs.all.iter_mut().filter_map(take).collect(), life)
    }

    /// Syncs the bus; the floors that rise by it.
    async fn sync(self: Arc<Self>) -> io::Result<Vec<DurableFloor>> {
        let (reached, life) = self.take_waiting_runs();
        let this = Arc::clone(&self);
        let synced = tokio::task::spawn_blocking(move || this.sync.as_ref().map_or(Ok(()), |sync| sync())).await;
        let synced = synced.unwrap_or_else(|error| Err(io::Error::other(error)));
        let mut runs = self.runs.lock();
        if runs.life != life {
            // Of a stream that may be another one by now.
            return Ok(Vec::new());
        }
        for (run, seq) in &reached {
            if let Some(of_run) = runs.all.get_mut(run) {
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

/// Whether a run is of the messages of a Rack: those of its telemetry are even.
const fn is_of_messages(boot_epoch: u64) -> bool {
    boot_epoch % 2 == 1
}

pub(crate) struct DurableFloorSender {
    pub(crate) floors: Arc<DurableFloorTracker>,
    pub(crate) client: async_nats::Client,
    pub(crate) sign: SignFloor,
    pub(crate) stats: Arc<IngestStats>,
}

impl DurableFloorSender {
    /// Sends floors for the producers that come over `durable`, until it closes.
    pub(crate) async fn run(self, durable: mpsc::Receiver<BatchId>) {
        tokio::select! {
            () = self.send_floors(durable) => {}
            () = self.sync() => {}
        }
    }

    async fn send_floors(&self, mut durable: mpsc::Receiver<BatchId>) {
        let mut sent: HashMap<RunKey, (u64, u64)> = HashMap::new();
        let mut ids = Vec::new();
        while durable.recv_many(&mut ids, 4096).await > 0 {
            let runs: BTreeSet<RunKey> = ids.drain(..).map(|id| (id.entity, id.boot_epoch)).collect();
            for run in runs {
                let floor = self.floors.durable_floor(run.0, run.1);
                // That the archive has more is reason not to send it again, though the bus may lose it still.
                let news = (floor.seq, floor.on_disk);
                if sent.get(&run) != Some(&news) {
                    self.send(floor).await;
                    sent.insert(run, news);
                }
            }
            if sent.len() > REMEMBERED {
                sent.clear();
            }
            sleep(EVERY).await;
        }
    }

    /// Sends the floors of messages that rise by a sync of the bus, for ever.
    async fn sync(&self) {
        let mut is_told = false;
        loop {
            self.floors.waits.notified().await;
            match Arc::clone(&self.floors).sync().await {
                Ok(risen) => {
                    is_told = false;
                    for floor in risen {
                        self.send(floor).await;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        error!(%error, "cannot sync the bus's files: Racks keep their messages; if this persists, \
                                        restart the Mixer");
                    }
                    self.floors.waits.notify_one();
                }
            }
            sleep(SYNC_EVERY).await;
        }
    }

    async fn send(&self, floor: DurableFloor) {
        let Some(body) = (self.sign)(floor) else { return };
        let entity_id = floor.entity_id;
        let subject = subject::rack(&entity_id, subject::RackCommand::Floor);
        match self.client.publish(subject, body).await {
            Ok(()) => IngestStats::add(&self.stats.floors_sent, 1),
            Err(error) => debug!(%entity_id, %error, "could not send a durable floor; the next heartbeat carries it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_counts_without_a_gap_above_what_is_settled() {
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
