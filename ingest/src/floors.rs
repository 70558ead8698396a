//! Tells Racks how far their batches are durable, so that they trim their spools.
//!
//! # Invariants
//!
//! - A floor is sent only after the engine says so; a lost one is made good by the next, or by a heartbeat's answer.
//! - However fast batches arrive, a producer run gets at most one floor per [`EVERY`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::Engine;
use model::control::DurableFloor;
use model::wire::BatchId;
use model::{EntityId, subject};
use tokio::sync::mpsc;
use tracing::debug;

use crate::stats::Stats;

/// Signs a floor for the wire; `None` if it cannot be signed.
pub type SignFloor = Arc<dyn Fn(DurableFloor) -> Option<Bytes> + Send + Sync>;

/// The shortest time between two floors of one producer run.
const EVERY: Duration = Duration::from_millis(50);
/// Producer runs remembered at most; forgetting one only costs a repeated floor.
const REMEMBERED: usize = 10_000;

/// How far a producer's run is durable, and how far it is on this machine's disk.
#[must_use]
pub fn durable_floor(engine: &Engine, entity_id: EntityId, boot_epoch: u64) -> DurableFloor {
    DurableFloor {
        entity_id,
        boot_epoch,
        seq: engine.floor(entity_id, boot_epoch),
        on_disk: engine.floor_on_disk(entity_id, boot_epoch),
    }
}

pub(crate) struct Floors {
    pub(crate) engine: Arc<Engine>,
    pub(crate) client: async_nats::Client,
    pub(crate) sign: SignFloor,
    pub(crate) stats: Arc<Stats>,
}

impl Floors {
    /// Sends floors for the producers that come over `durable`, until it closes.
    pub(crate) async fn run(self, mut durable: mpsc::Receiver<BatchId>) {
        let mut sent: HashMap<(EntityId, u64), u64> = HashMap::new();
        let mut ids = Vec::new();
        while durable.recv_many(&mut ids, 4096).await > 0 {
            let mut runs: Vec<_> = ids.drain(..).map(|id| (id.entity, id.boot_epoch)).collect();
            runs.sort_unstable();
            runs.dedup();
            for run in runs {
                let floor = durable_floor(&self.engine, run.0, run.1);
                // How far the disk has them heartbeats tell in time.
                if sent.get(&run) != Some(&floor.seq) {
                    self.send(floor).await;
                    sent.insert(run, floor.seq);
                }
            }
            if sent.len() > REMEMBERED {
                sent.clear();
            }
            tokio::time::sleep(EVERY).await;
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
