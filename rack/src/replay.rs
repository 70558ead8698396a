//! Replay of letters of the dead-letter queue to their gear.
//!
//! ```text
//! Mixer ─ Replay{queue, gear, letters 7, 8, 9} ─▶ inbox of the gear ─▶ taken 9, durable ─▶ ReplayAnswer{taken: 9}
//! ```
//!
//! # Invariants
//!
//! - The letters of a gear are given to it in the order of their numbers. That one was taken is noted in the write that has what
//!   the gear made of it, as for messages of a wire; a number up to the noted one is never given out again.
//! - What is with the gear, or was handled and waits for room in the outbox, is not given to it a second time.
//! - *Never* is said only of a letter that is not with the gear and of which nothing was kept.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use model::control::{ReplayAnswer, ReplayCommand, ReplayLetter, ReplayRejection};
use model::dead_letter::PortSide;
use model::message::Message;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::inbox::{DeliveryReceipt, GearInbox, InboxMessage};
use crate::outbox::{ConsumerOffset, DeliveryHistory, MessageOutbox, OutboxTransaction, PortSequenceNumber};
use crate::spool::AdmissionClass;

/// How long an answer waits for the gear.
const WITHIN: Duration = Duration::from_secs(10);

/// The gear that letters go back to.
#[derive(Debug)]
pub(crate) struct ReplayTarget {
    pub(crate) inbox: GearInbox,
    pub(crate) inputs: &'static [&'static str],
    pub(crate) outputs: &'static [&'static str],
}

/// Gives letters to a gear, and answers when it has taken them.
pub(crate) async fn replay(
    outbox: Arc<MessageOutbox>,
    target: Result<ReplayTarget, ReplayRejection>,
    replay: ReplayCommand,
) -> ReplayAnswer {
    let desk = GearReplayer {
        key: format!("replayed {}", replay.gear).into(),
        queue: replay.queue,
        outbox,
    };
    let mut not_taken = None;
    let mut with_gear = Vec::new();
    for letter in replay.letters {
        if letter.number <= desk.committed_number() {
            continue;
        }
        match desk
            .deliver_letter(target.as_ref().map_err(ReplayRejection::clone), letter)
            .await
        {
            Ok(ReplayHandover::Now(durable)) => with_gear.push(durable),
            Ok(ReplayHandover::Before) => {}
            Err(reason) => {
                not_taken = Some(reason);
                break;
            }
        }
    }
    if timeout(WITHIN, join_all(with_gear)).await.is_err() {
        not_taken = Some(ReplayRejection::Later("the gear is processing it".to_owned()));
    }
    ReplayAnswer {
        taken: desk.committed_number(),
        not_taken,
    }
}

/// The letters of one gear.
struct GearReplayer {
    key: Arc<str>,
    queue: uuid::Uuid,
    outbox: Arc<MessageOutbox>,
}

enum ReplayHandover {
    /// It is with the gear; hears when that is done.
    Now(oneshot::Receiver<Result<(), crate::spool::RecordingError>>),
    /// It was taken meanwhile.
    Before,
}

impl GearReplayer {
    /// The last number that is known to be taken.
    fn committed_number(&self) -> u64 {
        let taken = self.outbox.committed_offset(&self.key);
        taken
            .filter(|taken| taken.outbox == self.queue)
            .map_or(0, |taken| taken.number)
    }

    async fn deliver_letter(
        &self,
        target: Result<&ReplayTarget, ReplayRejection>,
        letter: ReplayLetter,
    ) -> Result<ReplayHandover, ReplayRejection> {
        let (target, number) = match target {
            Ok(target) => (target, letter.number),
            Err(ReplayRejection::Later(reason)) => return Err(ReplayRejection::Later(reason)),
            Err(ReplayRejection::Never { reason, .. }) => return self.reject_letter(letter.number, reason).await,
        };
        let ports = match letter.way {
            PortSide::In => target.inputs,
            PortSide::Out => target.outputs,
        };
        let Some(port) = ports.iter().copied().find(|port| *port == letter.port.as_str()) else {
            return self
                .reject_letter(number, format!("the gear has no port {}", letter.port))
                .await;
        };
        let mut message = match Message::from_cbor(&letter.message) {
            Ok(message) => message,
            Err(reason) => {
                return self
                    .reject_letter(number, format!("it is not a message: {reason}"))
                    .await;
            }
        };
        // A journey of its own: one that was too long would never go on.
        message.hops = 0;
        let place = PortSequenceNumber {
            outbox: self.queue,
            run: 0,
            number,
        };
        let Ok(Ok(room)) = timeout(WITHIN, target.inbox.sender().reserve()).await else {
            return Err(ReplayRejection::Later("too many messages wait for the gear".to_owned()));
        };
        {
            let mut delivered = target.inbox.delivered().0.lock();
            let is_there = |last: PortSequenceNumber| last.outbox == self.queue && last.number >= number;
            let with_one_before = self.outbox.submitted_offset(&self.key);
            if delivered
                .get(&self.key)
                .copied()
                .or(with_one_before)
                .is_some_and(is_there)
            {
                return Err(ReplayRejection::Later("the gear is processing it".to_owned()));
            }
            delivered.insert(Arc::clone(&self.key), place);
        }
        let (done, durable) = oneshot::channel();
        let past = DeliveryHistory {
            from: letter.from.map(Into::into),
            letter: Some(letter.letter),
            replays: letter.replays,
            attempts: letter.attempts,
        };
        let taken = ConsumerOffset {
            key: Arc::clone(&self.key),
            place,
        };
        room.send(InboxMessage {
            port,
            message: Ok(message),
            receipt: Some(DeliveryReceipt {
                taken,
                done,
                way: letter.way,
                past,
            }),
        });
        Ok(ReplayHandover::Now(durable))
    }

    /// Says that a letter will never be taken, unless it was: a note on its way to the disk is waited for, behind one of ours.
    async fn reject_letter(&self, number: u64, reason: String) -> Result<ReplayHandover, ReplayRejection> {
        let note = crate::spool::SourceCheckpoint {
            key: format!("asked {}", self.key),
            value: number.to_le_bytes().to_vec(),
        };
        let whole = OutboxTransaction {
            notes: vec![note],
            ..OutboxTransaction::default()
        };
        let (done, durable) = oneshot::channel();
        let kept = self
            .outbox
            .commit(whole, AdmissionClass::Consumer, Some(done))
            .await
            .is_ok()
            && matches!(durable.await, Ok(Ok(())));
        if !kept {
            return Err(ReplayRejection::Later("the Rack is stopping".to_owned()));
        }
        if number <= self.committed_number() {
            return Ok(ReplayHandover::Before);
        }
        Err(ReplayRejection::Never { number, reason })
    }
}
