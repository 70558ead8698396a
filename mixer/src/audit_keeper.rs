//! Keeps what the audit log has beside changes: refused calls, summed, and an hourly checkpoint of its hash chain.
//!
//! ```text
//!  API, PostgreSQL ── refused ─▶ channel ─▶ the first of its kind: an entry at once ── the hour is over ─▶ how many more there were
//!  head of the chain ── the hour is over ─▶ signed: registry, log file, platform.event.audit_checkpoint
//! ```
//!
//! # Invariants
//!
//! - A flood of refused calls is [`LISTED`] entries of each [`RefusalClass`] at once and as many sums at the end of the hour, and one for all
//!   others, in the log file too: it never waits for the registry, and pushes no decision out.
//! - Strangers, and callers that ask too much, take no place of others; no text of a stranger makes a refusal another one.
//! - What was refused is told of before the Mixer has stopped.
//!
//! # Not here
//!
//! The entries and the chain (`registry::audit`); handshakes of Racks that are refused ([`crate::rejection_counters`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use model::Clock;
use model::lifecycle_event::LifecycleEvent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::events::EventPublisher;
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry, RegistryError};

/// How long refusals are summed, and how often the head of the chain is signed.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// So many different refusals of each class have entries of their own in an interval.
const LISTED: usize = 32;
/// So many refusals wait to be told of; of more only the number is known.
const WAITING: usize = 1024;

/// What a refusal is of; each class has places of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RefusalClass {
    /// Nobody knows who called.
    Stranger,
    /// A caller lacks a right.
    Known,
    /// A caller asks too much.
    Quota,
}

impl RefusalClass {
    /// That of what a caller has no right to.
    pub(crate) const fn of(by: &AuditActor) -> Self {
        if by.is_known() { Self::Known } else { Self::Stranger }
    }
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallRefusal {
    by: String,
    why: String,
    class: RefusalClass,
}

/// Where refused calls are told.
#[derive(Debug, Clone)]
pub(crate) struct RefusalReporter {
    sender: mpsc::Sender<CallRefusal>,
    missed: Arc<AtomicU64>,
}

/// Where they arrive.
#[derive(Debug)]
pub(crate) struct RefusalReceiver {
    receiver: mpsc::Receiver<CallRefusal>,
    missed: Arc<AtomicU64>,
}

/// A pair of ends.
pub(crate) fn refusal_channel() -> (RefusalReporter, RefusalReceiver) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let missed = Arc::new(AtomicU64::new(0));
    let reporter = RefusalReporter {
        sender,
        missed: Arc::clone(&missed),
    };
    (reporter, RefusalReceiver { receiver, missed })
}

impl RefusalReporter {
    /// Tells that somebody was refused something; never waits.
    pub(crate) fn report(&self, by: &AuditActor, class: RefusalClass, why: String) {
        let by = by.to_string();
        let refused = CallRefusal { by, why, class };
        if self.sender.try_send(refused).is_err() {
            self.missed.fetch_add(1, Relaxed);
        }
    }
}

/// Writes refusals and checkpoints.
pub(crate) struct AuditKeeper {
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) events: EventPublisher,
    pub(crate) clock: Clock,
    pub(crate) refusals: RefusalReceiver,
}

impl AuditKeeper {
    /// Works until the stop.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut sums = RefusalSums::default();
        let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + INTERVAL, INTERVAL);
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => break,
                _ = interval.tick() => self.end_interval(&mut sums).await,
                refused = self.refusals.receiver.recv() => match refused {
                    Some(refused) => self.write(sums.add(refused)).await,
                    None => break,
                },
            };
            if let Err(error) = told {
                tracing::error!(%error, "the audit log could not be written");
            }
        }
        while let Ok(refused) = self.refusals.receiver.try_recv() {
            sums.add(refused);
        }
        if let Err(error) = self.end_interval(&mut sums).await {
            tracing::error!(%error, "the last entries of the audit log could not be written");
        }
    }

    async fn end_interval(&self, sums: &mut RefusalSums) -> Result<(), RegistryError> {
        sums.others += self.refusals.missed.swap(0, Relaxed);
        self.write(sums.take()).await?;
        self.sign_head().await
    }

    async fn write(&self, refusals: impl IntoIterator<Item = CallRefusal>) -> Result<(), RegistryError> {
        let now = self.clock.now();
        let entries = refusals.into_iter().map(|CallRefusal { by, why, .. }| {
            tracing::info!(by, why, "calls were refused");
            AuditEntry {
                by,
                ..AuditEntry::new(LifecycleEvent::CallRefused, &AuditActor::Mixer, now).because(why)
            }
        });
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return Ok(());
        }
        let written = self
            .registry
            .commit(move |change| entries.into_iter().try_for_each(|entry| change.record(entry).map(drop)));
        written.await
    }

    /// Signs the head of the chain and tells it wherever it may leave the machine.
    async fn sign_head(&self) -> Result<(), RegistryError> {
        let (cluster, now) = (Arc::clone(&self.cluster), self.clock.now());
        let signed = self
            .registry
            .commit(move |change| change.checkpoint((cluster.id(), now), cluster.key()));
        if let Some(checkpoint) = signed.await? {
            let (id, chain) = (checkpoint.id, &checkpoint.chain);
            let (signed, signed_by) = (&checkpoint.signed, &checkpoint.signed_by);
            tracing::info!(id, chain, signed, signed_by, "checkpoint of the audit log");
            self.events.checkpoint(&checkpoint).await;
        }
        Ok(())
    }
}

/// The refusals of an interval.
#[derive(Debug, Default)]
struct RefusalSums {
    /// Those with an entry, and how often they came again.
    listed: HashMap<CallRefusal, u64>,
    /// How many others there were.
    others: u64,
}

impl RefusalSums {
    /// Counts a refusal; it is given back if it is to have an entry at once.
    fn add(&mut self, refused: CallRefusal) -> Option<CallRefusal> {
        if let Some(again) = self.listed.get_mut(&refused) {
            *again += 1;
            return None;
        }
        let alike = self.listed.keys().filter(|listed| listed.class == refused.class);
        if alike.count() >= LISTED {
            self.others += 1;
            return None;
        }
        self.listed.insert(refused.clone(), 0);
        Some(refused)
    }

    /// What the interval's entries at its end are; the next one begins.
    fn take(&mut self) -> Vec<CallRefusal> {
        let Self { listed, others } = std::mem::take(self);
        let again = listed.into_iter().filter(|(_, again)| *again > 0);
        let mut sums: Vec<_> = again
            .map(|(refused, again)| CallRefusal {
                why: format!("{again} more times within the hour: {}", refused.why),
                ..refused
            })
            .collect();
        sums.sort_by(|a, b| (&a.by, &a.why).cmp(&(&b.by, &b.why)));
        if others > 0 {
            sums.push(CallRefusal {
                by: AuditActor::Mixer.to_string(),
                why: format!("{others} more calls of others were refused within the hour"),
                class: RefusalClass::Known,
            });
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(by: usize, why: &str) -> CallRefusal {
        CallRefusal {
            by: format!("api 192.0.2.{by}"),
            why: why.to_owned(),
            class: RefusalClass::Stranger,
        }
    }

    #[test]
    fn a_flood_of_refusals_is_few_entries() {
        let mut sums = RefusalSums::default();
        let at_once: Vec<_> = (0..10_000)
            .filter_map(|n| sums.add(refusal(n % 100, "GET /x")))
            .collect();
        assert_eq!(at_once.len(), LISTED);
        // Nor does a class hide another one.
        for class in [RefusalClass::Quota, RefusalClass::Known] {
            let of_class = |by| CallRefusal {
                class,
                ..refusal(by, "GET /api/v1/tokens")
            };
            let at_once: Vec<_> = (0..LISTED).filter_map(|by| sums.add(of_class(by))).collect();
            assert_eq!(at_once.len(), LISTED, "{class:?}");
        }
        let told = sums.take();
        assert_eq!(told.len(), LISTED + 1);
        assert_eq!(told[0], refusal(0, "99 more times within the hour: GET /x"));
        let others = told.last().map(|last| (last.by.as_str(), last.why.as_str()));
        assert_eq!(
            others,
            Some(("mixer", "6800 more calls of others were refused within the hour"))
        );
    }

    #[test]
    fn what_was_refused_once_is_not_told_twice_and_each_interval_begins_anew() {
        let mut sums = RefusalSums::default();
        assert_eq!(sums.add(refusal(1, "GET /x")), Some(refusal(1, "GET /x")));
        assert_eq!(sums.take(), []);
        assert_eq!(sums.add(refusal(1, "GET /x")), Some(refusal(1, "GET /x")));
    }
}
