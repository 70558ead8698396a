//! The guaranteed lane of a Rack: messages that leave it wait in the outbox until the Mixer has them, messages that arrive
//! are taken once and in order.
//!
//! ```text
//! gear ─ Context::send ─▶ Whole ─▶ Outbox (a spool, synced) ─▶ sender ─▶ bus: flux.msg.<rack>.<gear>.<port>
//!                           ▲ what a message made, and that it was taken: both or neither            │
//! gear ◀─ inbox ◀─ Inlet (order, once) ◀───────────── durable consumer of the wire ◀─────────────────┘
//! ```
//!
//! # Invariants
//!
//! - Every message of a port has the next number of that port; numbers are given out in the order of the outbox and go on
//!   over restarts, under the outbox's id. Where damage may have taken numbers a new id begins (`ids`).
//! - That a message was taken is durable in the same write as what was made of it, and before the bus hears of it: after a
//!   crash it is handled again with nothing of the first time left, or not at all.
//! - What was handed to the outbox is written, unless the Rack stops; so a gear that begins anew while its outbox waits for room is
//!   not given again what the one before it has handed over.
//! - An inlet hands messages of one port on in the order of their numbers, each once.
//! - What cannot be handled leaves as a dead letter, in the same write as well.
//! - A letter that the Mixer gives back is taken once, however often it comes (`replay`).
//!
//! # Not here
//!
//! Consumers are made by the Mixer; retries of a message are the supervisor's ([`crate::gears::supervisor`]).

mod acks;
mod ids;
mod inlet;
mod letter;
mod order;
mod proof;
mod replay;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_nats::Subject;
use chassis::bus::Bus;
use model::letter::Way;
use model::{Clock, Destination, EntityId, Entropy, LetterId, Table, Token};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::identity::Identity;
use crate::spool::{self, Batch, Done, Found, Limits, SpoolError, SpoolHandle, SpoolThread};
use crate::telemetry::{Checkpoint, NotRecorded};

use ids::Ids;
pub(crate) use inlet::{Inlet, InletSpec};
pub(crate) use letter::{Letter, Sent};
pub(crate) use order::{Delivered, Place};
pub(crate) use replay::{Target, replay};

/// What a Rack's gears need for the lane.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) outbox: Arc<Outbox>,
    /// Where arriving messages come from.
    pub(crate) bus: Bus,
    /// The stream of business messages.
    pub(crate) stream: String,
}

/// Where messages go, by the gear and the port that they leave by.
pub(crate) type Destinations = BTreeMap<Token, BTreeMap<&'static str, Destination>>;

/// Where messages wait until the Mixer has them.
pub(crate) struct Outbox {
    spool: SpoolHandle,
    ids: Ids,
    identity: watch::Receiver<Option<Identity>>,
    /// The last number of each port.
    numbers: Mutex<BTreeMap<String, u64>>,
    /// The last note of each key that was handed over by this run.
    notes: Mutex<BTreeMap<String, Vec<u8>>>,
    destinations: Mutex<Destinations>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// A message that leaves a port.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) gear: Token,
    pub(crate) port: &'static str,
    /// The message as it travels.
    pub(crate) body: Vec<u8>,
}

/// That a message was taken: its source as the inlet names it, and its place there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taken {
    pub(crate) key: String,
    pub(crate) place: Place,
}

/// A message that could not be handled.
#[derive(Debug)]
pub(crate) struct Dead {
    pub(crate) gear: Token,
    pub(crate) port: String,
    pub(crate) way: Way,
    pub(crate) reason: String,
    /// How often it was tried this time.
    pub(crate) attempts: u32,
    pub(crate) past: Past,
    pub(crate) body: Vec<u8>,
}

/// What happened to a message before it came to a gear.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// The subject that it came by, if it came over the bus.
    pub(crate) from: Option<Subject>,
    /// The letter that it was.
    pub(crate) letter: Option<LetterId>,
    /// How often it was given back.
    pub(crate) replays: u32,
    /// How often it was tried before.
    pub(crate) attempts: u32,
}

/// What is written together.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) leaving: Vec<Leaving>,
    pub(crate) dead: Vec<Dead>,
    /// What else is to be known with it: that a message was taken, how far a source has been read.
    pub(crate) note: Option<Checkpoint>,
}

impl Whole {
    pub(crate) fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.dead.is_empty() && self.note.is_none()
    }
}

impl Taken {
    pub(crate) fn note(self) -> Checkpoint {
        Checkpoint {
            key: self.key,
            value: self.place.to_bytes(),
        }
    }
}

impl Outbox {
    /// Opens the outbox in a folder and starts its writer.
    pub(crate) fn open(
        dir: &Path,
        max_bytes: u64,
        (clock, entropy): (Clock, &Entropy),
        identity: watch::Receiver<Option<Identity>>,
    ) -> Result<(Arc<Self>, SpoolThread, Found), SpoolError> {
        // Messages are never dropped: who sends them waits.
        let limits = Limits::new(max_bytes, spool::WhenFull::Block);
        let (spool, thread, found) = spool::open(dir, limits, clock, spool::Lane::Messages)?;
        let outbox = Self {
            ids: Ids::open(dir, spool.boot_epoch(), entropy)?,
            spool,
            identity,
            numbers: Mutex::default(),
            notes: Mutex::default(),
            destinations: Mutex::default(),
        };
        Ok((Arc::new(outbox), thread, found))
    }

    /// The files.
    pub(crate) const fn spool(&self) -> &SpoolHandle {
        &self.spool
    }

    /// This Rack's name, once it has one.
    pub(crate) fn rack(&self) -> Option<Token> {
        self.identity.borrow().as_ref().map(|identity| identity.name.clone())
    }

    /// From now on messages go there.
    pub(crate) fn lead_to(&self, destinations: Destinations) {
        *self.destinations.lock() = destinations;
    }

    /// What the numbers count within that a run gave away.
    pub(crate) fn id(&self, epoch: u64) -> Uuid {
        self.ids.of(epoch)
    }

    /// Hands a whole to the writer, waiting for a free slot; `done` hears when it is durable. The order of calls is that of
    /// the numbers, if each is polled before the next.
    pub(crate) async fn commit(&self, whole: Whole, done: Option<Done>) -> Result<(), NotRecorded> {
        self.room().await?.commit(whole, done)
    }

    /// Waits for a free slot at the writer: what is committed to it goes without another wait.
    pub(crate) async fn room(&self) -> Result<Room<'_>, NotRecorded> {
        let owner = self.identity.borrow().as_ref().map(|identity| identity.entity_id);
        Ok(Room {
            outbox: self,
            owner: owner.ok_or(NotRecorded::Closed)?,
            slot: self.spool.room().await?,
        })
    }

    /// The last place of a source that is known to be taken.
    pub(crate) fn taken(&self, key: &str) -> Option<Place> {
        Place::from_bytes(&self.spool.checkpoint(key)?)
    }

    /// The last place of a source whose note was handed over. It may not be durable so far, and will be, unless the Rack stops.
    pub(crate) fn handed_over(&self, key: &str) -> Option<Place> {
        let handed = self.notes.lock().get(key).and_then(|note| Place::from_bytes(note));
        handed.or_else(|| self.taken(key))
    }

    /// Waits until everything that was handed over before is durable.
    pub(crate) async fn settled(&self) -> Result<(), NotRecorded> {
        let (done, durable) = oneshot::channel();
        self.commit(Whole::default(), Some(done)).await?;
        durable.await.unwrap_or(Err(NotRecorded::Closed))
    }

    fn batches(&self, owner: EntityId, whole: Whole) -> Vec<Batch> {
        let batch = |rows, payload, checkpoint| Batch {
            entity: owner,
            table: Table::Messages,
            rows,
            payload,
            checkpoint,
            is_part: false,
        };
        let mut batches = Vec::with_capacity(whole.leaving.len() + whole.dead.len() + 1);
        for leaving in whole.leaving {
            let (number, checkpoint) = self.next(&leaving);
            let destination = self.destination(&leaving);
            let letter = Letter::message(leaving, number, destination);
            batches.push(batch(1, letter.encode(), Some(checkpoint)));
        }
        for dead in whole.dead {
            batches.push(batch(1, Letter::dead(dead).encode(), None));
        }
        // A batch without rows ends a whole, so it is the last.
        if let Some(note) = whole.note {
            self.notes.lock().insert(note.key.clone(), note.value.clone());
            batches.push(batch(0, Vec::new(), Some(note)));
        }
        batches
    }

    fn destination(&self, leaving: &Leaving) -> Option<Destination> {
        let destinations = self.destinations.lock();
        destinations.get(&leaving.gear)?.get(leaving.port).cloned()
    }

    /// The next number of a port, and what makes it last.
    fn next(&self, leaving: &Leaving) -> (u64, Checkpoint) {
        let port = format!("{}.{}", leaving.gear, leaving.port);
        let key = self.ids.count(self.spool.boot_epoch(), &port);
        let mut numbers = self.numbers.lock();
        let last = numbers.entry(key.clone()).or_insert_with(|| {
            let kept = self.spool.checkpoint(&key);
            kept.and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        });
        *last += 1;
        let value = last.to_le_bytes().to_vec();
        (*last, Checkpoint { key, value })
    }
}

/// A free slot at the outbox's writer.
pub(crate) struct Room<'a> {
    outbox: &'a Outbox,
    owner: EntityId,
    slot: spool::Room<'a>,
}

impl Room<'_> {
    /// Hands a whole to the writer; `done` hears when it is durable.
    pub(crate) fn commit(self, whole: Whole, done: Option<Done>) -> Result<(), NotRecorded> {
        self.slot.submit_whole(|| self.outbox.batches(self.owner, whole), done)
    }
}
