//! Commits: what a gear sends leaves the Rack in one transaction of the outbox, with the offset of the message that it handled.
//!
//! # Invariants
//!
//! - What a gear sends while it handles a message is committed together with the word that the message was taken, or not at all.

use std::future::Future;

use model::MessageId;
use model::dead_letter::PortSide;
use model::message::Message;
use tokio::sync::oneshot;

use super::GearContext;
use crate::gears::output_transaction::{DeferredOutput, DeliveryGuarantee, GearOutput, add_output, collect_output};
use crate::gears::stall_watchdog::BackpressureSource;
use crate::outbox::{CreditDemand, DeliveryHistory, OutboxDeadLetter, OutboxPermit, OutboxTransaction};
use crate::spool::{AdmissionClass, DurabilityNotifier, SourceCheckpoint};

impl GearContext {
    /// A message was a letter before: if it becomes one again until it [has been handled](Self::untrack_replay), that one knows.
    pub(crate) fn track_replay(&self, message: MessageId, past: &DeliveryHistory) {
        self.letters.lock().insert(message, past.clone());
    }

    /// The end of [`track_replay`](Self::track_replay).
    pub(crate) fn untrack_replay(&self, message: MessageId) {
        self.letters.lock().remove(&message);
    }

    /// Keeps a message that goes no further, where somebody can find it: why, and after how many attempts.
    pub(crate) async fn dead_letter(
        &self,
        (port, way): (&str, PortSide),
        message: &Message,
        (reason, attempts): (String, u32),
    ) {
        let past = self.letters.lock().get(&message.id).cloned();
        let dead = OutboxDeadLetter {
            gear: self.name.clone(),
            port: port.to_owned(),
            way,
            reason,
            attempts,
            past: past.unwrap_or_default(),
            body: message.to_cbor().unwrap_or_default(),
        };
        let mut dead = vec![dead];
        if add_output(|gathered| gathered.transaction.dead.append(&mut dead)) {
            return;
        }
        let transaction = OutboxTransaction {
            dead,
            ..OutboxTransaction::default()
        };
        self.commit(transaction, None).await;
    }

    /// Does work whose messages leave together, with a note; true once they are durable, or if there is nothing to keep.
    pub(crate) async fn commit_together(&self, note: Option<SourceCheckpoint>, work: impl Future<Output = ()>) -> bool {
        let ((), gathered) = collect_output(DeliveryGuarantee::Once, work).await;
        let transaction = OutboxTransaction {
            notes: note.into_iter().collect(),
            ..gathered.transaction
        };
        if transaction.is_empty() {
            return true;
        }
        let (done, durable) = oneshot::channel();
        self.commit_by(self.source_class(), transaction, Some(done)).await && matches!(durable.await, Ok(Ok(())))
    }

    /// Does work that makes letters about what a sender of telemetry gave. They are kept together if there is room at once in the share that
    /// is theirs; false if they are not kept.
    pub(crate) async fn keep_sender_letters(&self, work: impl Future<Output = ()>) -> bool {
        let ((), GearOutput { transaction, .. }) = collect_output(DeliveryGuarantee::Once, work).await;
        let Some(outbox) = &self.parts.outbox else {
            return false;
        };
        let Some(room) = outbox.acquire_permit_now(transaction.demand(), AdmissionClass::SenderLetters) else {
            return false;
        };
        let (done, durable) = oneshot::channel();
        room.commit(transaction, Some(done)).is_ok() && matches!(durable.await, Ok(Ok(())))
    }

    /// Does work that sends by a port what one read has brought, with a note: with one sync. If the port has hot wires too, each message
    /// is durable before it goes there, and the note after them. True once all is durable, or if there is nothing to keep.
    pub(crate) async fn commit_received(
        &self,
        port: &str,
        note: Option<SourceCheckpoint>,
        work: impl Future<Output = ()>,
    ) -> bool {
        if self.parts.outlets.is_hot(port) {
            work.await;
            self.commit_together(note, std::future::ready(())).await
        } else {
            self.commit_together(note, work).await
        }
    }

    /// Does work for a message of a guaranteed wire whose handling began before, while the gear flushes: what is sent leaves
    /// together with the word that the message was taken.
    pub(crate) async fn commit_for(&self, of: MessageId, work: impl Future<Output = ()>) {
        self.group_commit((of, of), work).await;
    }

    /// The same for several messages of which the gear makes one thing: all from the first to the last one are taken together.
    pub(crate) async fn group_commit(&self, (first, last): (MessageId, MessageId), work: impl Future<Output = ()>) {
        let ((), GearOutput { transaction, .. }) = collect_output(DeliveryGuarantee::Again, work).await;
        let mut later = vec![DeferredOutput {
            first,
            last,
            transaction,
        }];
        if !add_output(|gathered| gathered.later.append(&mut later)) {
            for DeferredOutput { transaction, .. } in later {
                self.commit(transaction, None).await;
            }
        }
    }

    /// Keeps notes together with what the work sends in which it is called.
    pub(crate) fn add_notes(&self, mut notes: Vec<SourceCheckpoint>) {
        let is_gathered = add_output(|gathered| gathered.transaction.notes.append(&mut notes));
        debug_assert!(is_gathered, "notes belong to what is gathered");
    }

    /// Does work for a message that does not come again, beside the one that is being handled: what is sent leaves at once.
    pub(crate) async fn commit_immediately(&self, work: impl Future<Output = ()>) {
        let ((), made) = collect_output(DeliveryGuarantee::Once, work).await;
        if !made.transaction.is_empty() {
            self.commit(made.transaction, None).await;
        }
    }

    /// Room at the outbox for what a whole asks for; none if the Rack is stopping, or has no outbox.
    pub(crate) async fn room(&self, demand: CreditDemand) -> Option<OutboxPermit<'_>> {
        self.room_by(self.class(), demand).await
    }

    pub(super) async fn room_by(&self, class: AdmissionClass, demand: CreditDemand) -> Option<OutboxPermit<'_>> {
        let _waiting = self.begin_wait(BackpressureSource::Outbox);
        self.parts.outbox.as_ref()?.acquire_permit(demand, class).await.ok()
    }

    /// Hands a whole to the outbox; false if the Rack is stopping, or has none.
    pub(crate) async fn commit(
        &self,
        transaction: OutboxTransaction,
        done: impl IntoIterator<Item = DurabilityNotifier>,
    ) -> bool {
        self.commit_by(self.class(), transaction, done).await
    }

    pub(super) async fn commit_by(
        &self,
        class: AdmissionClass,
        transaction: OutboxTransaction,
        done: impl IntoIterator<Item = DurabilityNotifier>,
    ) -> bool {
        let room = self.room_by(class, transaction.demand()).await;
        room.is_some_and(|room| room.commit(transaction, done).is_ok())
    }

    /// By which share of the outbox the gear's messages leave.
    pub(super) fn class(&self) -> AdmissionClass {
        let outbox = self.parts.outbox.as_ref();
        outbox.map_or(AdmissionClass::Producer, |outbox| outbox.admission_class(&self.name))
    }

    /// The same of what it sends by itself: of a gear that takes replies, that is what others ask.
    pub(super) fn source_class(&self) -> AdmissionClass {
        if self.answers {
            AdmissionClass::Producer
        } else {
            self.class()
        }
    }
}
