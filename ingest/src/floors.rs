//! Tells Racks how far their batches are durable, so that they trim their spools.
//!
//! # Invariants
//!
//! - A floor is sent only after the engine says so; a lost one is made good by the next, or by a heartbeat's answer.
//! - However fast batches arrive, a producer run gets at most one floor per [`EVERY`].
//! - What was a message of a wire is durable on the bus too before its Rack hears of it: after a power cut the Rack still has what the
//!   bus lost and the receivers did not get.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::Engine;
use model::control::DurableFloor;
use model::wire::BatchId;
use model::{EntityId, subject};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use crate::stats::Stats;

/// Signs a floor for the wire; `None` if it cannot be signed.
pub type SignFloor = Arc<dyn Fn(DurableFloor) -> Option<Bytes> + Send + Sync>;
/// Has what the bus took of business messages on its disk.
pub type SyncBus = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The shortest time between two floors of one producer run.
const EVERY: Duration = Duration::from_millis(50);
/// The shortest time between two syncs of the bus.
const SYNC_EVERY: Duration = Duration::from_millis(500);
/// Producer runs remembered at most; forgetting one only costs a repeated floor.
const REMEMBERED: usize = 10_000;

/// A producer and its run.
type Run = (EntityId, u64);

/// How far producers are durable.
pub struct DurableFloors {
    engine: Arc<Engine>,
    /// None where the bus syncs before it acknowledges, or is not ours.
    sync: Option<SyncBus>,
    synced: Mutex<Synced>,
}

#[derive(Debug, Default)]
struct Synced {
    floors: HashMap<Run, u64>,
    /// Runs that the engine has more of.
    waiting: BTreeSet<Run>,
}

impl std::fmt::Debug for DurableFloors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableFloors").finish_non_exhaustive()
    }
}

impl DurableFloors {
    /// Those of an engine; `sync` is asked before the floor of messages rises.
    #[must_use]
    pub fn new(engine: Arc<Engine>, sync: Option<SyncBus>) -> Self {
        Self {
            engine,
            sync,
            synced: Mutex::default(),
        }
    }

    /// How far a producer's run is durable, and how far it is on this machine's disk.
    #[must_use]
    pub fn of(&self, entity_id: EntityId, boot_epoch: u64) -> DurableFloor {
        let seq = self.engine.floor(entity_id, boot_epoch);
        let mut floor = DurableFloor {
            entity_id,
            boot_epoch,
            seq,
            on_disk: self.engine.floor_on_disk(entity_id, boot_epoch),
        };
        if self.sync.is_some() && is_of_messages(boot_epoch) {
            let mut synced = self.synced.lock();
            floor.seq = synced
                .floors
                .get(&(entity_id, boot_epoch))
                .map_or(0, |synced| seq.min(*synced));
            if floor.seq < seq {
                floor.on_disk = floor.on_disk.max(seq);
                synced.waiting.insert((entity_id, boot_epoch));
            }
        }
        floor
    }

    fn is_waiting(&self) -> bool {
        !self.synced.lock().waiting.is_empty()
    }

    /// Syncs the bus; the floors that rise by it.
    async fn sync(self: Arc<Self>) -> Vec<DurableFloor> {
        let runs = std::mem::take(&mut self.synced.lock().waiting);
        // The bus had all of this before the engine had it.
        let reached = runs.iter().map(|run| (*run, self.engine.floor(run.0, run.1)));
        let reached: Vec<(Run, u64)> = reached.collect();
        let this = Arc::clone(&self);
        let synced = tokio::task::spawn_blocking(move || this.sync.as_ref().map_or(Ok(()), |sync| sync())).await;
        if let Err(error) = synced.unwrap_or_else(|error| Err(io::Error::other(error))) {
            warn!(%error, "the bus's files cannot be synced: Racks keep their messages until they are");
            self.synced.lock().waiting.extend(runs);
            return Vec::new();
        }
        let mut synced = self.synced.lock();
        if synced.floors.len() > REMEMBERED {
            synced.floors.clear();
        }
        synced.floors.extend(reached);
        drop(synced);
        runs.into_iter().map(|run| self.of(run.0, run.1)).collect()
    }
}

/// Whether a run is of the messages of a Rack: those of its telemetry are even.
const fn is_of_messages(boot_epoch: u64) -> bool {
    boot_epoch % 2 == 1
}

pub(crate) struct Floors {
    pub(crate) floors: Arc<DurableFloors>,
    pub(crate) client: async_nats::Client,
    pub(crate) sign: SignFloor,
    pub(crate) stats: Arc<Stats>,
}

impl Floors {
    /// Sends floors for the producers that come over `durable`, until it closes.
    pub(crate) async fn run(self, mut durable: mpsc::Receiver<BatchId>) {
        let mut sent: HashMap<Run, u64> = HashMap::new();
        let (mut ids, mut next_sync) = (Vec::new(), Instant::now());
        loop {
            let risen = tokio::select! {
                count = durable.recv_many(&mut ids, 4096) => {
                    if count == 0 {
                        return;
                    }
                    let runs: BTreeSet<Run> = ids.drain(..).map(|id| (id.entity, id.boot_epoch)).collect();
                    runs.into_iter().map(|run| self.floors.of(run.0, run.1)).collect()
                }
                () = sleep_until(next_sync), if self.floors.is_waiting() => {
                    let risen = Arc::clone(&self.floors).sync().await;
                    next_sync = Instant::now() + SYNC_EVERY;
                    risen
                }
            };
            for floor in risen {
                let run = (floor.entity_id, floor.boot_epoch);
                // How far the disk has them heartbeats tell in time.
                if sent.get(&run) != Some(&floor.seq) {
                    self.send(floor).await;
                    sent.insert(run, floor.seq);
                }
            }
            if sent.len() > REMEMBERED {
                sent.clear();
            }
            sleep(EVERY).await;
        }
    }

    async fn send(&self, floor: DurableFloor) {
        let Some(body) = (self.sign)(floor) else { return };
        let entity_id = floor.entity_id;
        let subject = subject::rack(&entity_id, subject::RackCommand::Floor);
        match self.client.publish(subject, body).await {
            Ok(()) => Stats::add(&self.stats.floors_sent, 1),
            Err(error) => debug!(%entity_id, %error, "a durable floor was not sent; the next heartbeat carries it"),
        }
    }
}
