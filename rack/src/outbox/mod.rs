//! The guaranteed lane of a Rack: messages that leave it wait in the outbox until the Mixer has them, messages that arrive
//! are taken once and in order.
//!
//! ```text
//! gear ─ GearContext::send ─▶ OutboxTransaction ─▶ MessageOutbox (a spool, synced) ─▶ SpoolPublisher ─▶ bus: flux.msg.<rack>.<gear>.<port>
//!                               ▲ what a message made, and that it was taken: both or neither                  │
//! gear ◀─ inbox ◀─ WireConsumer (order, once) ◀───────────── durable consumer of the wire ◀────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - Every message of a port has the next number of that port; numbers are given out in the order of the outbox and begin at 1
//!   with every run of the Rack (`port_sequence`). The stream has them in that order, or not at all ([`crate::telemetry`], the publisher of the spool), and
//!   hands them on in it ([`crate::wire_consumer`]).
//! - Messages of a port that are committed together travel together, as one entry of the outbox, one bus message and one batch of the
//!   archive, up to a size; each keeps its own number, and is taken, refused and replayed by itself.
//! - That a message was taken is durable in the same write as what was made of it, and before the bus hears of it: after a
//!   crash it is handled again with nothing of the first time left, or not at all.
//! - What was handed to the outbox is written, unless the Rack stops; so a gear that begins anew while its outbox waits for room is
//!   not given again what the one before it has handed over.
//! - A wire consumer hands messages of one port on in the order of their numbers, each once.
//! - What cannot be handled leaves as a dead letter, in the same write as well.
//! - A letter that the Mixer gives back is taken once, however often it comes ([`crate::replay`]).
//!
//! # Not here
//!
//! Consumers are made by the Mixer; retries of a message are the supervisor's ([`crate::gears::supervisor`]).

mod credit;
mod outbox_record;
mod port_sequence;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_nats::Subject;
use chassis::bus::BusConnection;
use model::control::{PortCredit, PortCredits};
use model::dead_letter::PortSide;
use model::{Clock, EntityId, Entropy, LetterId, MessageDestination, Table, Token};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::identity::RackIdentity;
use crate::spool::{
    self, AdmissionClass, DurabilityNotifier, RecordingError, SourceCheckpoint, SpoolBatch, SpoolError, SpoolHandle,
    SpoolLimits, SpoolRecoveryReport, SpoolThread,
};

pub(crate) use credit::CreditDemand;
use credit::{CreditFlowControl, CreditReservation};
use outbox_record::MessageBatch;
pub(crate) use outbox_record::OutboxRecord;
pub(crate) use port_sequence::{DeliveredOffsets, PortSequenceNumber};

/// What a Rack's gears need for the lane.
#[derive(Debug, Clone)]
pub(crate) struct GuaranteedLane {
    pub(crate) outbox: Arc<MessageOutbox>,
    /// Where arriving messages come from.
    pub(crate) bus: BusConnection,
    /// The stream of business messages.
    pub(crate) stream: String,
}

/// What a message takes in the outbox beside its body, about.
const LETTER_OVERHEAD: usize = 256;

/// What the keys of wires' notes begin with.
pub(crate) const TAKEN: &str = "taken ";

/// Where messages go, by the gear and the port that they leave by.
pub(crate) type PortDestinations = BTreeMap<Token, BTreeMap<&'static str, MessageDestination>>;

/// Where messages wait until the Mixer has them.
pub(crate) struct MessageOutbox {
    spool: SpoolHandle,
    max_bytes: u64,
    /// What its places are told apart by from those of any other outbox.
    id: Uuid,
    identity: watch::Receiver<Option<RackIdentity>>,
    /// The last number of each port that this run gave away.
    numbers: Mutex<BTreeMap<(Token, &'static str), u64>>,
    /// The last note of each wire that was handed over by this run.
    notes: Mutex<BTreeMap<String, Vec<u8>>>,
    destinations: Mutex<PortDestinations>,
    /// The gears whose messages have the share that is for consumers.
    consumers: Mutex<BTreeSet<Token>>,
    credits: CreditFlowControl,
    /// How many entries this run has handed over, as whom: the sequence of the last one.
    entries: Mutex<(Option<EntityId>, u64)>,
}

impl std::fmt::Debug for MessageOutbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageOutbox")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A message that leaves a port.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) gear: Token,
    pub(crate) port: &'static str,
    /// The message as it travels.
    pub(crate) body: Vec<u8>,
}

/// That a message was taken: its source as the inlet names it, and its place there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConsumerOffset {
    pub(crate) key: Arc<str>,
    pub(crate) place: PortSequenceNumber,
}

/// A message that could not be handled.
#[derive(Debug)]
pub(crate) struct OutboxDeadLetter {
    pub(crate) gear: Token,
    pub(crate) port: String,
    pub(crate) way: PortSide,
    pub(crate) reason: String,
    /// How often it was tried this time.
    pub(crate) attempts: u32,
    pub(crate) past: DeliveryHistory,
    pub(crate) body: Vec<u8>,
}

/// What happened to a message before it came to a gear.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeliveryHistory {
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
pub(crate) struct OutboxTransaction {
    pub(crate) leaving: Vec<OutgoingMessage>,
    pub(crate) dead: Vec<OutboxDeadLetter>,
    /// What else is to be known with it: that messages were taken, how far a source has been read.
    pub(crate) notes: Vec<SourceCheckpoint>,
}

impl OutboxTransaction {
    /// The bytes of its messages in the outbox, about; notes do not count.
    pub(crate) fn demand(&self) -> CreditDemand {
        let mut demand = CreditDemand::default();
        let size = |body: &[u8]| (body.len() + LETTER_OVERHEAD) as u64;
        for leaving in &self.leaving {
            demand.add((&leaving.gear, leaving.port), size(&leaving.body));
        }
        demand.bytes += self.dead.iter().map(|dead| size(&dead.body)).sum::<u64>();
        demand
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.dead.is_empty() && self.notes.is_empty()
    }
}

impl ConsumerOffset {
    pub(crate) fn into_checkpoint(self) -> SourceCheckpoint {
        SourceCheckpoint {
            key: self.key.to_string(),
            value: self.place.to_bytes(),
        }
    }
}

impl MessageOutbox {
    /// Opens the outbox in a folder and starts its writer.
    pub(crate) fn open(
        dir: &Path,
        max_bytes: u64,
        (clock, entropy): (Clock, &Entropy),
        identity: watch::Receiver<Option<RackIdentity>>,
    ) -> Result<(Arc<Self>, SpoolThread, SpoolRecoveryReport), SpoolError> {
        // Messages are never dropped: who sends them waits.
        let limits = SpoolLimits::new(max_bytes, spool::SpoolFullPolicy::Block);
        let (spool, thread, found) = spool::open(dir, limits, clock, spool::SpoolKind::Messages)?;
        let outbox = Self {
            id: load_or_create_id(dir, entropy)?,
            spool,
            max_bytes,
            identity,
            numbers: Mutex::default(),
            notes: Mutex::default(),
            destinations: Mutex::default(),
            consumers: Mutex::default(),
            credits: CreditFlowControl::new(),
            entries: Mutex::default(),
        };
        Ok((Arc::new(outbox), thread, found))
    }

    /// The files.
    pub(crate) const fn spool(&self) -> &SpoolHandle {
        &self.spool
    }

    /// How many bytes may be written as one and be admitted though sources fill their share: half of what is the consumers' alone, since
    /// what is made of messages may be larger than they are.
    pub(crate) fn max_transaction_bytes(&self) -> usize {
        usize::try_from(self.max_bytes / 16).unwrap_or(usize::MAX)
    }

    /// This Rack's name, once it has one.
    pub(crate) fn rack(&self) -> Option<Token> {
        self.identity.borrow().as_ref().map(|identity| identity.name.clone())
    }

    /// From now on messages go there, and these gears are consumers.
    pub(crate) fn set_destinations(&self, destinations: PortDestinations, consumers: BTreeSet<Token>) {
        *self.destinations.lock() = destinations;
        *self.consumers.lock() = consumers;
    }

    /// By which share the messages of a gear leave.
    pub(crate) fn admission_class(&self, gear: &Token) -> AdmissionClass {
        if self.consumers.lock().contains(gear) {
            AdmissionClass::Consumer
        } else {
            AdmissionClass::Producer
        }
    }

    /// The place of a number that a run gave away.
    pub(crate) const fn place(&self, run: u64, number: u64) -> PortSequenceNumber {
        PortSequenceNumber {
            outbox: self.id,
            run,
            number,
        }
    }

    /// Hands an atomic group to the writer, waiting for a free slot; `done` is notified when it is durable. The order of calls is that of
    /// the numbers, if each is polled before the next.
    pub(crate) async fn commit(
        &self,
        transaction: OutboxTransaction,
        class: AdmissionClass,
        done: impl IntoIterator<Item = DurabilityNotifier>,
    ) -> Result<(), RecordingError> {
        self.acquire_permit(transaction.demand(), class)
            .await?
            .commit(transaction, done)
    }

    /// Waits until a whole of this [demand](OutboxTransaction::demand) is admitted: then it goes without another wait.
    pub(crate) async fn acquire_permit(
        &self,
        demand: CreditDemand,
        class: AdmissionClass,
    ) -> Result<OutboxPermit<'_>, RecordingError> {
        let owner = self.identity.borrow().as_ref().map(|identity| identity.entity_id);
        let (owner, bytes) = (owner.ok_or(RecordingError::Closed)?, demand.bytes);
        // Credit first: who waits for a receiver is in nobody's way.
        let credit = tokio::select! {
            credit = self.credits.reserve(demand) => credit?,
            () = self.spool.wait_closed() => return Err(RecordingError::Closed),
        };
        Ok(OutboxPermit {
            outbox: self,
            owner,
            room: self.spool.acquire_permit(bytes, class).await?,
            credit,
        })
    }

    /// The same without a wait; none if it had to wait.
    pub(crate) fn acquire_permit_now(&self, demand: CreditDemand, class: AdmissionClass) -> Option<OutboxPermit<'_>> {
        let owner = self.identity.borrow().as_ref().map(|identity| identity.entity_id)?;
        Some(OutboxPermit {
            outbox: self,
            owner,
            room: self.spool.acquire_permit_now(demand.bytes, class)?,
            credit: self.credits.reserve_now(demand)?,
        })
    }

    /// The credit of ports that the Mixer has not sent any for yet.
    pub(crate) fn set_initial_credits(&self, credits: &[PortCredit]) {
        self.credits.set_initial(credits);
    }

    /// Takes what the Mixer says of ports.
    pub(crate) fn set_credits(&self, credits: PortCredits) {
        self.credits.set(credits, self.floor());
    }

    /// The last sequence of this run that is settled.
    fn floor(&self) -> u64 {
        let owner = self.entries.lock().0;
        owner.map_or(0, |owner| self.spool.floor(owner))
    }

    /// The last place of a source that is known to be taken.
    pub(crate) fn committed_offset(&self, key: &str) -> Option<PortSequenceNumber> {
        PortSequenceNumber::from_bytes(&self.spool.checkpoint(key)?)
    }

    /// The last place of a source whose note was handed over. It may not be durable so far, and will be, unless the Rack stops.
    pub(crate) fn submitted_offset(&self, key: &str) -> Option<PortSequenceNumber> {
        let handed = self
            .notes
            .lock()
            .get(key)
            .and_then(|note| PortSequenceNumber::from_bytes(note));
        handed.or_else(|| self.committed_offset(key))
    }

    /// Waits until everything that was handed over before is durable.
    pub(crate) async fn flush(&self) -> Result<(), RecordingError> {
        let (done, durable) = oneshot::channel();
        self.commit(OutboxTransaction::default(), AdmissionClass::Consumer, Some(done))
            .await?;
        durable.await.unwrap_or(Err(RecordingError::Closed))
    }

    fn batches(&self, owner: EntityId, transaction: OutboxTransaction) -> Vec<SpoolBatch> {
        let batch = |rows, payload, checkpoints| SpoolBatch {
            entity: owner,
            table: Table::Messages,
            rows,
            payload,
            checkpoints,
            is_part: false,
        };
        let mut batches = Vec::new();
        let (mut sequence, floor) = (self.last_entry(owner), self.spool.floor(owner));
        for messages in self.message_batches(transaction.leaving) {
            let (destination, port) = (self.destination(&messages), (messages.gear().clone(), messages.port()));
            let letter = OutboxRecord::messages(messages, destination);
            let payload = letter.encode();
            sequence += 1;
            self.credits.record_entry(port, payload.len() as u64, (sequence, floor));
            batches.push(batch(letter.count(), payload, Vec::new()));
        }
        for dead in transaction.dead {
            sequence += 1;
            batches.push(batch(1, OutboxRecord::dead(dead).encode(), Vec::new()));
        }
        *self.entries.lock() = (Some(owner), sequence);
        // A batch without rows ends a whole, so it is the last.
        let mut kept = transaction.notes;
        let mut notes = self.notes.lock();
        kept.retain(|note| !is_behind(note, notes.get(&note.key)));
        let taken = kept.iter().filter(|note| note.key.starts_with(TAKEN));
        notes.extend(taken.map(|note| (note.key.clone(), note.value.clone())));
        drop(notes);
        if !kept.is_empty() {
            batches.push(batch(0, Vec::new(), kept));
        }
        batches
    }

    /// The last sequence that the writer gives to what was handed over as an owner so far: it counts from 1 for each.
    fn last_entry(&self, owner: EntityId) -> u64 {
        let entries = self.entries.lock();
        if entries.0 == Some(owner) {
            return entries.1;
        }
        self.credits.forget_entries();
        0
    }

    /// Numbers messages, and puts those of a port together.
    fn message_batches(&self, all: Vec<OutgoingMessage>) -> Vec<MessageBatch> {
        let mut numbers = self.numbers.lock();
        let (mut full, mut open) = (Vec::new(), Vec::<MessageBatch>::new());
        for leaving in all {
            let last = numbers.entry((leaving.gear.clone(), leaving.port)).or_default();
            *last += 1;
            match open.iter_mut().find(|batch| batch.is_of(&leaving)) {
                Some(batch) => {
                    if let Some(leaving) = batch.add(leaving) {
                        full.push(std::mem::replace(batch, MessageBatch::new(leaving, *last)));
                    }
                }
                None => open.push(MessageBatch::new(leaving, *last)),
            }
        }
        full.append(&mut open);
        full
    }

    fn destination(&self, messages: &MessageBatch) -> Option<MessageDestination> {
        let destinations = self.destinations.lock();
        destinations.get(messages.gear())?.get(messages.port()).cloned()
    }
}

/// Whether a note of a wire says less than the last one: two gears note the same wire where one goes on with the other's consumer.
fn is_behind(note: &SourceCheckpoint, last: Option<&Vec<u8>>) -> bool {
    let place = |value: &[u8]| PortSequenceNumber::from_bytes(value).filter(|_| note.key.starts_with(TAKEN));
    let (Some(place), Some(last)) = (place(&note.value), last.and_then(|last| place(last))) else {
        return false;
    };
    place.is_behind(last)
}

/// The id of an outbox, made with it.
fn load_or_create_id(dir: &Path, entropy: &Entropy) -> Result<Uuid, SpoolError> {
    let path = dir.join("id");
    let at = |source| SpoolError::Io {
        path: path.clone(),
        source,
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Uuid::try_parse(text.lines().next().unwrap_or_default()).map_err(|_| {
            let reason = "not the id of an outbox: remove it together with the folder's segments";
            at(io::Error::new(io::ErrorKind::InvalidData, reason))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = uuid::Builder::from_random_bytes(entropy.bytes()).into_uuid();
            durable_fs::write_atomically(&path, format!("{id}\n").as_bytes(), 0o600)?;
            Ok(id)
        }
        Err(error) => Err(at(error)),
    }
}

/// Room for a whole at the outbox.
pub(crate) struct OutboxPermit<'a> {
    outbox: &'a MessageOutbox,
    owner: EntityId,
    room: spool::SpoolPermit,
    /// Given back once its messages are counted as entries.
    credit: CreditReservation<'a>,
}

impl OutboxPermit<'_> {
    /// Hands an atomic group to the writer; `done` is notified when it is durable.
    pub(crate) fn commit(
        self,
        transaction: OutboxTransaction,
        done: impl IntoIterator<Item = DurabilityNotifier>,
    ) -> Result<(), RecordingError> {
        if let Some(note) = transaction.notes.iter().find(|note| !spool::fits_checkpoint(note)) {
            let (key, bytes) = (note.key.clone(), note.value.len());
            tracing::error!(
                key,
                bytes,
                "a note is too large for the outbox; its group is not written"
            );
            return Err(RecordingError::Checkpoint { key, bytes });
        }
        let done = done.into_iter().collect();
        let handed_over = self
            .room
            .submit_transaction(|| self.outbox.batches(self.owner, transaction), done);
        drop(self.credit);
        handed_over
    }
}
