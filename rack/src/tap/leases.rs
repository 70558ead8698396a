//! Leases of taps, and the tasks that publish what they show.
//!
//! # Invariants
//!
//! - A tap ends with its lease, whoever has gone: the watcher, the Mixer, or the bus between.
//! - A command that was heard before, or that is older than one of an ended session, begins nothing; nor does a renewal.
//! - A tap has one batch at most in the queue of the Rack's bus connection. What it cannot publish is told as passed and not shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use model::tap::{LEASE, TapAnswer, TapBatch, TapLease, TapRequest};
use model::{Timestamp, Token, subject};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::MOST_TAPS;
use super::registry::{TapPoint, TapReceiver, TapRegistry};

/// How often it is told that messages pass and none is shown.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// The taps of a Rack. They end with it.
pub(crate) struct TapLeases {
    registry: TapRegistry,
    client: Client,
    sessions: BTreeMap<Token, TapSession>,
    /// The last command of any session that has ended.
    ended: Option<Timestamp>,
    tasks: JoinSet<()>,
}

struct TapSession {
    issued: Timestamp,
    /// Where it watches. A gear that went and came back has another.
    point: Arc<TapPoint>,
    /// When it ends; the task hears of it.
    until: watch::Sender<Instant>,
}

impl TapLeases {
    pub(crate) fn new(registry: TapRegistry, client: Client) -> Self {
        Self {
            registry,
            client,
            sessions: BTreeMap::new(),
            ended: None,
            tasks: JoinSet::new(),
        }
    }

    /// Begins, renews or ends a tap.
    pub(crate) fn take(&mut self, lease: &TapLease) -> TapAnswer {
        self.forget_ended();
        self.follow(lease).err().unwrap_or(TapAnswer::Done)
    }

    fn follow(&mut self, lease: &TapLease) -> Result<(), TapAnswer> {
        if let Some(session) = self.sessions.get_mut(&lease.session) {
            if lease.issued <= session.issued {
                return Err(TapAnswer::Late);
            }
            session.issued = lease.issued;
            let asked = match lease.request {
                TapRequest::End => Ok(Duration::ZERO),
                TapRequest::Begin | TapRequest::Renew => {
                    let is_there = self.registry.check(&lease.gear, &lease.port, &session.point);
                    is_there.map(|()| LEASE)
                }
            };
            let time = *asked.as_ref().unwrap_or(&Duration::ZERO);
            session.until.send_replace(Instant::now() + time);
            return asked.map(|_| ());
        }
        match lease.request {
            TapRequest::End => Ok(()),
            TapRequest::Renew => Err(TapAnswer::Ended),
            TapRequest::Begin => self.begin(lease),
        }
    }

    fn begin(&mut self, lease: &TapLease) -> Result<(), TapAnswer> {
        if self.ended.is_some_and(|ended| lease.issued <= ended) {
            return Err(TapAnswer::Late);
        }
        if self.sessions.len() >= MOST_TAPS {
            return Err(TapAnswer::TooMany(MOST_TAPS));
        }
        let intake = self.registry.attach(&lease.gear, &lease.port)?;
        let session = TapSession {
            issued: lease.issued,
            point: Arc::clone(&intake.point),
            until: watch::Sender::new(Instant::now() + LEASE),
        };
        let publisher = TapPublisher {
            client: self.client.clone(),
            subject: subject::tap(&lease.entity_id, &lease.session),
            until: session.until.subscribe(),
            intake,
        };
        self.tasks.spawn(publisher.run());
        self.sessions.insert(lease.session.clone(), session);
        Ok(())
    }

    fn forget_ended(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        let now = Instant::now();
        let ended = &mut self.ended;
        self.sessions.retain(|_, session| {
            let is_open = *session.until.borrow() > now;
            if !is_open {
                *ended = (*ended).max(Some(session.issued));
            }
            is_open
        });
    }
}

/// Publishes what one tap shows.
struct TapPublisher {
    client: Client,
    subject: String,
    until: watch::Receiver<Instant>,
    intake: TapReceiver,
}

impl TapPublisher {
    async fn run(mut self) {
        let mut tick = tokio::time::interval(TELL_EVERY);
        loop {
            let until = *self.until.borrow_and_update();
            let told = self.intake.told;
            let batch = tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => return,
                renewed = self.until.changed() => match renewed {
                    Ok(()) => continue,
                    // The session is over.
                    Err(_) => return,
                },
                batch = self.intake.batch() => Some(batch),
                _ = tick.tick() => self.intake.rest(),
            };
            let Some(batch) = batch else { continue };
            if let Err(reason) = self.publish(&batch, until).await {
                tracing::debug!(subject = self.subject, reason, "could not publish a batch of a tap");
                // What passed in it is told with the next one.
                self.intake.told = told;
            }
        }
    }

    /// Publishes a batch. A bus that is away for longer than the lease ends the tap.
    async fn publish(&mut self, batch: &TapBatch, until: Instant) -> Result<(), String> {
        let body = model::signed::encode(batch).map_err(|error| error.to_string())?;
        self.intake.charge(body.len());
        let published = async {
            let published = self.client.publish(self.subject.clone(), body.into()).await;
            published.map_err(|error| error.to_string())?;
            self.client.flush().await.map_err(|error| error.to_string())
        };
        let published = tokio::time::timeout_at(until, published).await;
        published.unwrap_or_else(|late| Err(late.to_string()))
    }
}
