//! Matches business messages to the active specs, and counts the messages of each spec.
//!
//! # Invariants
//!
//! - The set of specs is swapped whole: a message is matched against one set, old or new.
//! - Counts last as long as the process, even if their spec is replaced or removed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use engine::SpecName;
use model::spec::{MessageFacts, Spec, in_order};

/// Live counters of one spec.
#[derive(Debug, Default)]
pub(crate) struct SpecCounters {
    messages: AtomicU64,
    failed: AtomicU64,
}

impl SpecCounters {
    /// Counts stored messages, and those of their values that did not have the type of their field.
    fn add(&self, messages: u64, failed: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.failed.fetch_add(failed, Ordering::Relaxed);
    }
}

/// The counters of one spec at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecCounts {
    /// Messages that are stored under the spec.
    pub messages: u64,
    /// Values of these that did not have the type of their field, and were left out.
    pub failed: u64,
}

/// An active spec with its counters.
#[derive(Debug)]
pub(crate) struct ActiveSpec {
    pub(crate) spec: Spec,
    pub(crate) counters: Arc<SpecCounters>,
}

/// Counts of one bus message for a spec, to be added when the message is stored.
#[derive(Debug)]
pub(crate) struct PendingSpecCounts {
    active: Arc<ActiveSpec>,
    pub(crate) messages: u64,
    /// Values that did not have the type of their field.
    pub(crate) failed: u64,
}

impl PendingSpecCounts {
    pub(crate) const fn new(active: Arc<ActiveSpec>) -> Self {
        Self {
            active,
            messages: 0,
            failed: 0,
        }
    }

    pub(crate) fn name(&self) -> SpecName {
        self.active.spec.name
    }

    /// Adds them to the spec's counters: the message is stored.
    pub(crate) fn count(&self) {
        self.active.counters.add(self.messages, self.failed);
    }
}

/// The active specs, and the counters of all specs since the start.
#[derive(Debug, Default)]
pub struct SpecMatcher {
    active: RwLock<Arc<[Arc<ActiveSpec>]>>,
    counters: Mutex<BTreeMap<SpecName, Arc<SpecCounters>>>,
}

impl SpecMatcher {
    /// Makes these the active specs, in place of all earlier ones.
    pub fn set(&self, mut specs: Vec<Spec>) {
        in_order(&mut specs);
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let active = specs.into_iter().map(|spec| {
            let counters = Arc::clone(counters.entry(spec.name).or_default());
            Arc::new(ActiveSpec { spec, counters })
        });
        let active = active.collect();
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = active;
    }

    /// The counts of a spec since the process started.
    #[must_use]
    pub fn counts(&self, spec: &SpecName) -> SpecCounts {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters
            .get(spec)
            .map_or_else(SpecCounts::default, |counters| SpecCounts {
                messages: counters.messages.load(Ordering::Relaxed),
                failed: counters.failed.load(Ordering::Relaxed),
            })
    }

    /// The spec under which a message is stored: the first one that matches.
    pub(crate) fn match_spec(&self, facts: MessageFacts<'_>) -> Option<Arc<ActiveSpec>> {
        let active = Arc::clone(&self.active.read().unwrap_or_else(PoisonError::into_inner));
        active.iter().find(|active| active.spec.rule.takes(facts)).cloned()
    }
}
