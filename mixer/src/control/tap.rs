//! Taps: what passes an output port of a Rack, for one watcher of the API.
//!
//! ```text
//! Rack ── samples, numbered ──▶ TapKeeper ── try_send ─▶ queue (bounded) ─▶ TapStream ─▶ watcher
//!      ◀── lease, again and again ──┘           └ no room: counted by the next number
//! ```
//!
//! # Invariants
//!
//! - The keeper takes what comes at once, however slow the watcher is: what does not fit is missed, and told.
//! - A tap ends when its watcher leaves, also while the Rack is still asked: the Rack is told, and if it does not hear it, its lease runs
//!   out.
//! - A restart ends a tap: numbers of a new one say nothing about the old one. The stream of a Rack that restarts ends with that reason;
//!   one of a Mixer that restarts breaks off, and its lease runs out.
//! - A Rack is not trusted: a batch beyond [`MOST_BATCH`] is not read, and numbers may be anything.
//!
//! # Not here
//!
//! What is sampled and how much of it (`rack::tap`), what watchers are sent ([`crate::api`]).

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use futures::StreamExt as _;
use model::control::RackState;
use model::subject::{self, RackCommand};
use model::tap::{LEASE, MOST_BATCH, MOST_BODY, MOST_FACTS, TapAnswer, TapBatch, TapLease, TapRequest, TapSample};
use model::{EntityId, Token};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::{ControlError, ControlPlane, TELL, refuse};
use crate::registry::RackRow;

/// How many taps there are at most at once.
pub(crate) const MOST_TAPS: usize = 32;
/// How many samples wait for a slow watcher.
const QUEUED: usize = 256;
/// How often a lease is renewed: more than twice in its time.
const RENEW_EVERY: Duration = Duration::from_millis(1_500);
const _: () = assert!(
    RENEW_EVERY.as_millis() * 2 < LEASE.as_millis(),
    "one that is lost ends no tap"
);
/// How many renewals in a row may get no answer.
const MOST_SILENCE: u32 = 5;

/// What a watcher hears.
#[derive(Debug)]
pub(crate) enum TapEvent {
    /// A message.
    Sample(Box<TapSample>),
    /// So many messages passed and are not shown.
    Missed(u64),
    /// Nothing more comes; why.
    Ended(String),
}

/// What passes a port, for one watcher. Whoever drops it ends the tap.
#[derive(Debug)]
pub(crate) struct TapStream(mpsc::Receiver<TapEvent>);

impl TapStream {
    /// What comes next; none after the end.
    pub(crate) async fn next(&mut self) -> Option<TapEvent> {
        self.0.recv().await
    }
}

impl ControlPlane {
    /// Begins to show what passes an output port of a Rack; `tasks` has what goes on beside the watcher.
    ///
    /// # Errors
    /// [`ControlError`]: also if the Rack has no such port, or does not answer.
    pub(crate) async fn tap(
        self: Arc<Self>,
        id_or_name: &str,
        (gear, port): (Token, Token),
        tasks: TaskTracker,
    ) -> Result<TapStream, ControlError> {
        let row = self.find(id_or_name)?;
        if !row.is_adopted() {
            return Err(refuse(&row, "tapped", ""));
        }
        if row.state == RackState::Suspended {
            return Err(refuse(&row, "tapped", ": platform racks resume starts its gears"));
        }
        let place = Arc::clone(&self.limits.taps).try_acquire_owned();
        let place = place.map_err(|_| ControlError::TooManyTaps(MOST_TAPS))?;
        let client = self.bus.client();
        let inbox = client.new_inbox();
        let session = inbox.rsplit('.').next().unwrap_or_default().parse::<Token>();
        let session = session.map_err(|error| silent(&row, error))?;
        let samples = client.subscribe(subject::tap(&row.entity_id, &session)).await;
        let samples = samples.map_err(|error| silent(&row, error))?;
        let keeper = TapKeeper {
            control: Arc::clone(&self),
            row,
            session,
            gear,
            port,
            _place: place,
        };
        let (queue, news) = mpsc::channel(QUEUED);
        let (begun, has_begun) = oneshot::channel();
        let rack = keeper.row.clone();
        // Whoever waits here may leave: the keeper ends what the Rack has begun.
        tasks.spawn(keeper.run(samples, queue, begun));
        has_begun.await.map_err(|error| silent(&rack, error))??;
        Ok(TapStream(news))
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.len() > MOST_BATCH {
        return Err(format!("{} bytes came; {MOST_BATCH} are taken", bytes.len()));
    }
    ciborium::from_reader(bytes).map_err(|error| format!("what came cannot be read: {error}"))
}

fn silent(row: &RackRow, reason: impl ToString) -> ControlError {
    ControlError::Silent {
        rack: row.name.clone(),
        reason: reason.to_string(),
    }
}

/// Keeps one tap: takes its samples and renews its lease.
struct TapKeeper {
    control: Arc<ControlPlane>,
    row: RackRow,
    session: Token,
    gear: Token,
    port: Token,
    _place: OwnedSemaphorePermit,
}

impl TapKeeper {
    async fn run(
        self,
        samples: Subscriber,
        queue: mpsc::Sender<TapEvent>,
        begun: oneshot::Sender<Result<(), ControlError>>,
    ) {
        let first = self
            .lease(TapRequest::Begin)
            .await
            .and_then(|answer| self.understand(answer));
        let is_refused = first
            .as_ref()
            .is_err_and(|error| !matches!(error, ControlError::Silent { .. }));
        // A watcher who has gone needs no answer; the queue is closed then.
        begun.send(first).ok();
        if is_refused {
            return;
        }
        let reason = tokio::select! {
            biased;
            () = queue.closed() => None,
            reason = self.renew() => Some(reason),
            reason = forward(samples, &queue) => Some(reason),
        };
        if let Some(reason) = reason {
            // A watcher who has gone needs no reason.
            queue.send(TapEvent::Ended(reason)).await.ok();
        }
        if let Err(error) = self.lease(TapRequest::End).await {
            tracing::debug!(rack = %self.row.name, %error, "could not remove a tap; its lease expires");
        }
    }

    /// Renews the lease until that is refused, and why.
    async fn renew(&self) -> String {
        let mut silence = 0;
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let answer = match self.lease(TapRequest::Renew).await {
                Ok(TapAnswer::Ended) => {
                    let rack = &self.row.name;
                    return format!(
                        "Rack {rack} has ended the tap: it restarted, gear {} was not running, or no renewal arrived \
                         for {} s; start it again",
                        self.gear,
                        LEASE.as_secs()
                    );
                }
                answer => answer.and_then(|answer| self.understand(answer)),
            };
            match answer {
                Ok(()) => silence = 0,
                Err(ControlError::Silent { .. }) if silence < MOST_SILENCE => silence += 1,
                Err(error) => return error.to_string(),
            }
        }
    }

    async fn lease(&self, request: TapRequest) -> Result<TapAnswer, ControlError> {
        match self.ask(request).await? {
            // The last command of another session has overtaken it.
            TapAnswer::Late => self.ask(request).await,
            answer => Ok(answer),
        }
    }

    async fn ask(&self, request: TapRequest) -> Result<TapAnswer, ControlError> {
        let id: &EntityId = &self.row.entity_id;
        let lease = TapLease {
            entity_id: *id,
            issued: self.control.command_clock.next().await?,
            session: self.session.clone(),
            gear: self.gear.clone(),
            port: self.port.clone(),
            request,
        };
        let (bus, cluster) = (&self.control.bus, &self.control.cluster);
        let answer = bus.command(cluster, id, RackCommand::Tap, &lease, TELL).await;
        let answer = answer.map_err(|error| silent(&self.row, error))?;
        read(&answer).map_err(|error| silent(&self.row, error))
    }

    fn understand(&self, answer: TapAnswer) -> Result<(), ControlError> {
        let rack = self.row.name.clone();
        match answer {
            TapAnswer::Done => Ok(()),
            TapAnswer::NoGear(known) => Err(ControlError::UnknownPort {
                rack,
                lacks: format!("no gear {}", self.gear),
                known: listed("gears with outputs", &known),
            }),
            TapAnswer::NoPort(known) => Err(ControlError::UnknownPort {
                rack,
                lacks: format!("no output {} of gear {}", self.port, self.gear),
                known: listed("outputs of that gear", &known),
            }),
            TapAnswer::TooMany(most) => Err(ControlError::TooManyTaps(most)),
            TapAnswer::Late | TapAnswer::Ended => Err(silent(&self.row, "a later command was there before; try again")),
        }
    }
}

fn listed(what: &str, known: &[String]) -> String {
    match known {
        [] => format!("it has no {what}"),
        known => format!("{what}: {}", known.join(", ")),
    }
}

/// Gives samples to the watcher as they come, until none can come any more, and why.
async fn forward(mut batches: Subscriber, queue: &mpsc::Sender<TapEvent>) -> String {
    let mut told = WatchedNumbers::default();
    let mut again = tokio::time::interval(RENEW_EVERY);
    loop {
        tokio::select! {
            batch = batches.next() => {
                let Some(batch) = batch else {
                    return "the connection to the bus has ended".to_owned();
                };
                // Whoever may publish there may publish anything.
                match read::<TapBatch>(&batch.payload) {
                    Ok(batch) => told.give(batch, queue),
                    Err(error) => tracing::debug!(%error, "cannot decode what a tap shows"),
                }
            }
            _ = again.tick() => told.catch_up(queue),
        }
    }
}

/// How far the watcher was told what passes.
#[derive(Debug, Default)]
struct WatchedNumbers {
    /// What the Rack has told.
    passed: u64,
    /// What the watcher has.
    told: u64,
}

impl WatchedNumbers {
    fn give(&mut self, batch: TapBatch, queue: &mpsc::Sender<TapEvent>) {
        for sample in batch.samples {
            // What is larger than a sample may be is as a message that was not shown.
            let facts = serde_json::to_vec(&sample.meta).map_or(0, |facts| facts.len());
            if sample.body.len() > MOST_BODY || facts > 2 * MOST_FACTS {
                continue;
            }
            let number = sample.number;
            self.passed = self.passed.max(number);
            // What was told already is not shown again.
            let missed = self.told.checked_add(1).and_then(|next| number.checked_sub(next));
            let Some(missed) = missed else { continue };
            if missed > 0 && !self.miss(missed, queue) {
                continue;
            }
            if queue.try_send(TapEvent::Sample(Box::new(sample))).is_ok() {
                self.told = number;
            }
        }
        self.passed = self.passed.max(batch.passed);
        self.catch_up(queue);
    }

    /// Tells what was missed since.
    fn catch_up(&mut self, queue: &mpsc::Sender<TapEvent>) {
        if self.passed > self.told {
            self.miss(self.passed - self.told, queue);
        }
    }

    /// Whether the watcher could be told.
    fn miss(&mut self, count: u64, queue: &mpsc::Sender<TapEvent>) -> bool {
        let is_told = queue.try_send(TapEvent::Missed(count)).is_ok();
        if is_told {
            self.told = self.told.saturating_add(count);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{Attributes, FluxId, MessageId, Timestamp};

    use super::*;

    fn sample(number: u64) -> TapSample {
        let ts = Timestamp::from_micros(1);
        TapSample {
            number,
            ts,
            id: MessageId::at(ts, [1; 10]),
            flux_id: FluxId::at(ts, [1; 10]),
            meta: Attributes::new(),
            is_meta_cut: false,
            is_value: false,
            body: Vec::new(),
            size: Some(0),
            is_cut: false,
        }
    }

    fn batch(numbers: &[u64], passed: u64) -> TapBatch {
        TapBatch {
            samples: numbers.iter().map(|number| sample(*number)).collect(),
            passed,
        }
    }

    #[test]
    fn every_message_is_shown_or_counted_as_missed_however_full_the_queue_is() {
        let (queue, mut news) = mpsc::channel(4);
        let mut told = WatchedNumbers::default();
        let mut heard = |most: usize| -> Vec<i128> {
            let taken = std::iter::from_fn(|| news.try_recv().ok()).take(most);
            let number = |news| match news {
                TapEvent::Sample(sample) => i128::from(sample.number),
                TapEvent::Missed(count) => -i128::from(count),
                TapEvent::Ended(reason) => unreachable!("{reason}"),
            };
            taken.map(number).collect()
        };
        told.give(batch(&[1, 2, 5], 9), &queue);
        assert_eq!(heard(4), [1, 2, -2, 5], "what passed behind finds no room");
        told.catch_up(&queue);
        told.catch_up(&queue);
        assert_eq!(heard(9), [-4]);
        told.give(batch(&[10, 11, 12, 13, 14, 15], 15), &queue);
        told.give(batch(&[16], 16), &queue);
        assert_eq!(heard(1), [10]);
        told.give(batch(&[17], 17), &queue);
        assert_eq!(heard(9), [11, 12, 13, -3]);
        told.give(batch(&[18], 18), &queue);
        assert_eq!(heard(9), [-1, 18]);
        // A Rack may say anything.
        told.give(batch(&[3, 18, 0], 2), &queue);
        assert_eq!(heard(9), [0; 0], "told already");
        let mut last = WatchedNumbers {
            passed: u64::MAX,
            told: u64::MAX,
        };
        last.give(batch(&[u64::MAX, 1], u64::MAX), &queue);
        assert_eq!(heard(9), [0; 0], "no number is beyond the last one");
    }

    #[test]
    fn a_batch_beyond_its_bound_is_not_read() {
        let mut large = sample(1);
        large.body = vec![0; MOST_BATCH];
        let batch = TapBatch {
            samples: vec![large],
            passed: 1,
        };
        let bytes = model::signed::encode(&batch).unwrap();
        assert!(read::<TapBatch>(&bytes).unwrap_err().contains("are taken"));
    }
}
