//! One task for each gear: runs it, counts for it, and starts it again when it fails.
//!
//! # Invariants
//!
//! - A panic or an error of a gear ends only its own life; the next one begins after a pause that doubles from
//!   [`FIRST_PAUSE`] to [`LONGEST_PAUSE`] and starts over when a life was calm.
//! - Messages wait in the inbox while the gear is away.
//! - A message of lane guaranteed is taken when the gear has handled and flushed it; that, and what it made, go to the outbox
//!   together. Until then it is held, also where the gear is cut off, and a gear that begins anew is given what is held first, in
//!   order; what was flushed is not handled again. A gear that holds nothing back is flushed after each message: what it did outside
//!   for one is done once, whatever becomes of the next. A message that a gear fails at again and again becomes a dead letter; an attempt
//!   that was cut off, or failed while the gear was asked to stop, counts for nothing.
//! - Messages of which a gear made one thing ([`GearContext::group_commit`]) are taken in one whole with it, and with all that came between
//!   them, or not at all. Where [`HELD_MOST`] messages or [`HELD_BYTES`] are held, rejected and unreadable ones among them, the gear is told
//!   to finish. What a life before has flushed is committed before the next one handles anything.
//! - Asked to stop, a passive gear or half handles what waited in its inbox (at most what fits there), flushes and ends. One that has
//!   a successor leaves that to it. The half that takes replies has none, and begins with that when the other half has ended.
//! - A passive gear that wants to be woken is, also while messages keep coming; one that does not costs no timer.
//!
//! # Not here
//!
//! What is committed together, and dead letters ([`message_commits`]).

mod message_commits;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use model::Level;
use model::dead_letter::PortSide;
use model::message::Message;
use model::panic_text;
use tokio::sync::MutexGuard;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{Instant, MissedTickBehavior};

use super::output_transaction::{DeliveryGuarantee, GearOutput, collect_output};
use super::stall_watchdog::run_watched;
use super::trace_context::TraceContext;
use super::{Gear, GearContext, GearError, PassiveGear};
use crate::deadline::sleep_until_deadline;
use crate::gears::WiredGear;
use crate::inbox::{GearInbox, INBOX_CAPACITY, InboxMessage, InputMessage, UncommittedMessage};

/// How often a gear's counters are reported.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before the first restart.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Held messages that make the gear flush.
const SETTLE_AT: usize = 512;
/// The most that are held by a gear that finishes them later.
pub(super) const HELD_MOST: usize = INBOX_CAPACITY;
/// The most bytes of these, about: half of what an inlet has on the way to a gear.
pub(super) const HELD_BYTES: usize = 8 << 20;
/// How long one is held, and what it made with it, while more come.
const SETTLE_AFTER: Duration = Duration::from_millis(100);
/// How often a message is tried that a gear fails at: some minutes, with the pauses between the lives of a gear.
pub(super) const ATTEMPTS: u32 = 16;
/// How often a message is tried that a gear panics at.
const PANICS: u32 = 3;
/// A life this long makes the next pause short again.
const CALM: Duration = Duration::from_secs(60);

/// Runs a gear until it is asked to stop or has nothing left to do. `gear` is the one that was initialised, if any.
pub(crate) async fn supervise(mut gear: Option<Gear>, spec: WiredGear, cx: Arc<GearContext>, inbox: Option<GearInbox>) {
    let _quiet = QuietGuard(Arc::clone(&cx));
    let mut tick = tokio::time::interval_at(Instant::now() + REPORT_INTERVAL, REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pause = FIRST_PAUSE;
    cx.log(Level::Info, "the gear runs");
    loop {
        let born = Instant::now();
        let ended = {
            let life = AssertUnwindSafe(run_life(gear.take(), &spec, &cx, inbox.as_ref())).catch_unwind();
            tokio::pin!(life);
            loop {
                tokio::select! {
                    ended = &mut life => break ended,
                    _ = tick.tick() => cx.report(),
                }
            }
        };
        let reason = match ended {
            Ok(Ok(())) => break,
            Ok(Err(fault)) => format!("the gear failed: {fault}"),
            Err(panic) => format!("the gear panicked: {}", panic_text(panic.as_ref())),
        };
        if cx.is_stopping() {
            cx.error(reason);
            break;
        }
        if born.elapsed() >= CALM {
            pause = FIRST_PAUSE;
        }
        cx.error(format!("{reason}; it starts again in {} ms", pause.as_millis()));
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = cx.stopping() => break,
        }
    }
    cx.log(
        Level::Info,
        if cx.is_stopping() {
            "the gear stopped"
        } else {
            "the gear has finished"
        },
    );
    cx.report();
}

/// Says that a gear sends nothing any more, also where it is cut off.
struct QuietGuard(Arc<GearContext>);

impl Drop for QuietGuard {
    fn drop(&mut self) {
        self.0.mark_quiet();
    }
}

async fn run_life(
    gear: Option<Gear>,
    spec: &WiredGear,
    cx: &Arc<GearContext>,
    inbox: Option<&GearInbox>,
) -> Result<(), GearError> {
    let mut gear = match gear {
        Some(gear) => gear,
        None => {
            let mut gear = spec.kind.build(&spec.config)?;
            gear.init(cx).await?;
            gear
        }
    };
    match (&mut gear, inbox) {
        (Gear::Active(gear), _) | (Gear::Duplex(gear, _), None) => gear.run(cx).await,
        (Gear::Duplex(active, passive), Some(inbox)) => {
            let run = async {
                active.run(cx).await?;
                cx.mark_quiet();
                Ok(())
            };
            tokio::try_join!(run, consume(passive.as_mut(), cx, inbox)).map(drop)
        }
        (Gear::Passive(gear), Some(inbox)) => consume(gear.as_mut(), cx, inbox).await,
        (Gear::Passive(_), None) => {
            cx.stopping().await;
            Ok(())
        }
    }
}

async fn consume(gear: &mut dyn PassiveGear, cx: &Arc<GearContext>, inbox: &GearInbox) -> Result<(), GearError> {
    let mut consumer = InboxConsumer {
        gear,
        cx,
        held: inbox.held.lock().await,
    };
    consumer.run(&mut *inbox.receiver.lock().await).await
}

/// A passive gear at work.
struct InboxConsumer<'a> {
    gear: &'a mut dyn PassiveGear,
    cx: &'a Arc<GearContext>,
    held: MutexGuard<'a, VecDeque<UncommittedMessage>>,
}

impl InboxConsumer<'_> {
    async fn run(&mut self, inbox: &mut mpsc::Receiver<InboxMessage>) -> Result<(), GearError> {
        self.commit_flushed().await;
        self.resume().await?;
        let mut after_stop = 0;
        while after_stop < INBOX_CAPACITY {
            if self.gear.wake_at().is_some_and(|at| at <= Instant::now()) {
                run_watched(self.cx, None, self.gear.wake(self.cx)).await?;
            }
            let oldest = self.held.front().map(|held| held.since);
            if oldest.is_some_and(|since| since.elapsed() >= SETTLE_AFTER) {
                self.settle().await?;
            }
            // Asked before the inbox is: who is asked to stop during the flush looks once more.
            let is_last = self.cx.is_draining();
            if is_last && self.cx.has_successor() {
                break;
            }
            if self.is_full() {
                self.settle().await?;
            }
            if self.is_full() && self.gear.unfinished().is_some() {
                // What the gear rejected is held as well: it cannot know by itself that no more comes.
                self.gear.finish_all();
                self.settle().await?;
            }
            if self.held.len() >= HELD_MOST && !is_last {
                tokio::select! {
                    () = sleep_until_deadline(self.gear.wake_at()) => {}
                    () = self.cx.draining() => {}
                }
                continue;
            }
            let arrival = match inbox.try_recv() {
                Ok(arrival) => arrival,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.settle().await?;
                    if is_last {
                        return Ok(());
                    }
                    let next = tokio::select! {
                        // Who is woken for silence is not while a message waits.
                        biased;
                        arrival = inbox.recv() => arrival,
                        () = sleep_until_deadline(self.gear.wake_at()) => None,
                        () = self.cx.draining() => None,
                    };
                    let Some(arrival) = next else { continue };
                    arrival
                }
            };
            after_stop += usize::from(self.cx.is_draining());
            self.take(arrival).await?;
            tokio::task::coop::consume_budget().await;
        }
        self.settle().await
    }

    /// Whether as much is held as may be.
    fn is_full(&self) -> bool {
        let bytes = || self.held.iter().map(|held| held.bytes).sum::<usize>();
        self.held.len() >= HELD_MOST || bytes() >= self.cx.most_held(HELD_BYTES)
    }

    /// Handles again what an earlier life did not finish.
    async fn resume(&mut self) -> Result<(), GearError> {
        let unfinished = self.held.iter_mut().filter(|held| !held.is_flushed);
        unfinished.for_each(|held| {
            held.transaction = None;
            held.commits_with_next = false;
        });
        while let Some(index) = self.held.iter().position(|held| held.transaction.is_none()) {
            self.begin(index).await?;
            self.settle_in_time().await?;
        }
        Ok(())
    }

    async fn take(&mut self, arrival: InboxMessage) -> Result<(), GearError> {
        if arrival.receipt.is_some() {
            let bytes = match &arrival.message {
                Ok(message) => message.size(),
                Err(unreadable) => unreadable.body.len(),
            };
            self.held.push_back(UncommittedMessage {
                arrival,
                bytes,
                since: Instant::now(),
                transaction: None,
                is_flushed: false,
                commits_with_next: false,
                attempts: 0,
                panics: 0,
                reason: String::new(),
            });
            self.begin(self.held.len() - 1).await?;
            return self.settle_in_time().await;
        }
        let Ok(message) = arrival.message else { return Ok(()) };
        let delivery = InputMessage {
            port: arrival.port,
            message,
        };
        let handled = handle(self.gear, self.cx, delivery, (DeliveryGuarantee::Once, None)).await;
        if handled.is_err() && !self.gear.holds_back() {
            // It does not come again.
            self.cx.count_dropped();
        }
        let transaction = handled?.0.transaction;
        if !transaction.is_empty() {
            run_watched(self.cx, None, self.cx.commit(transaction, None)).await;
        }
        Ok(())
    }

    /// Handles a held message, as often as it may be tried.
    async fn begin(&mut self, index: usize) -> Result<(), GearError> {
        let Some(held) = self.held.get_mut(index) else {
            return Ok(());
        };
        let message = match &held.arrival.message {
            Ok(message) if held.attempts < ATTEMPTS && held.panics < PANICS => message.clone(),
            Ok(_) => {
                // It keeps its count: begun again beside another that fails, it is not tried anew.
                held.dead_letter(self.cx, held.reason.clone(), held.attempts + held.panics);
                return Ok(());
            }
            Err(unreadable) => {
                let reason = unreadable.reason.clone();
                held.dead_letter(self.cx, reason, 1);
                return Ok(());
            }
        };
        if let Some(reason) = exceeded_limit(&message, held.bytes, self.cx) {
            held.dead_letter(self.cx, reason, 1);
            return Ok(());
        }
        if let Some(past) = held.past().filter(|past| past.letter.is_some()) {
            self.cx.track_replay(message.id, past);
        }
        let port = held.arrival.port;
        let from = held.past().and_then(|past| past.from.clone());
        let way = held.way();
        let trying = async {
            match way {
                PortSide::In => {
                    handle(
                        self.gear,
                        self.cx,
                        InputMessage { port, message },
                        (DeliveryGuarantee::Again, from.as_deref()),
                    )
                    .await
                }
                PortSide::Out => Ok(send_on(self.cx, port, message).await),
            }
        };
        // Cut off here, it was not tried.
        match AssertUnwindSafe(trying).catch_unwind().await {
            Ok(Ok((_, Some(reason)))) => held.dead_letter(self.cx, reason, 1),
            Ok(Ok((made, None))) => held.transaction = Some(made.transaction),
            Ok(Err(fault)) => {
                if !self.cx.is_stopping() {
                    held.attempts += 1;
                    held.reason = fault.to_string();
                }
                return Err(fault);
            }
            Err(panic) => {
                held.panics += 1;
                "the gear panicked".clone_into(&mut held.reason);
                resume_unwind(panic);
            }
        }
        Ok(())
    }

    /// Settles where that is not better done for many messages at once.
    async fn settle_in_time(&mut self) -> Result<(), GearError> {
        let begun = self.held.iter().take_while(|held| held.transaction.is_some()).count();
        if begun >= SETTLE_AT || !self.gear.holds_back() {
            self.settle().await?;
        }
        Ok(())
    }
}

/// Which limit a message is beyond that came over the bus: its sender's may be wider.
fn exceeded_limit(message: &Message, size: usize, cx: &GearContext) -> Option<String> {
    let (hops, limits) = (message.hops, cx.limits());
    if hops > limits.max_hops() {
        return Some(format!("it has passed {hops} gears, more than max_hops allows here"));
    }
    let most = limits.max_payload_size();
    (size > most).then(|| format!("it has {size} bytes; max_payload_size allows {most} here"))
}

/// What comes of sending a message by the port where it was refused before; and why it is refused again, unless that made a
/// dead letter already.
async fn send_on(cx: &Arc<GearContext>, port: &'static str, message: Message) -> (GearOutput, Option<String>) {
    let (sent, made) = collect_output(DeliveryGuarantee::Again, cx.send(port, message)).await;
    let again = sent.err().filter(|_| made.transaction.dead.is_empty());
    (made, again.map(|refused| refused.to_string()))
}

/// What a message made that came by a subject, if over the bus; and why the gear rejected it, if it did.
async fn handle(
    gear: &mut dyn PassiveGear,
    cx: &Arc<GearContext>,
    mut delivery: InputMessage,
    (handled, from): (DeliveryGuarantee, Option<&str>),
) -> Result<(GearOutput, Option<String>), GearError> {
    let span = cx.arrive(&mut delivery.message, from);
    let signal = TraceContext::of(&delivery.message);
    let work = signal.scope(collect_output(handled, gear.process(cx, delivery)));
    let (done, made) = run_watched(cx, Some(signal), span.scope(work)).await;
    span.set_outcome(&done);
    match done {
        Ok(()) => Ok((made, None)),
        Err(GearError::Rejected(reason)) => {
            signal.in_scope(|| cx.reject(&reason));
            Ok((GearOutput::default(), Some(reason)))
        }
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests;
