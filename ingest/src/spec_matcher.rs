//! Matches messages to the specs in force, and counts them.
//!
//! # Invariants
//!
//! - Specs are swapped whole: a message meets all of one set or all of the next.
//! - What a spec took counts as long as the process lives, over its changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use engine::SpecName;
use model::spec::{MessageFacts, Spec, in_order};

/// What one spec took.
#[derive(Debug, Default)]
pub(crate) struct SpecCounters {
    messages: AtomicU64,
    failed: AtomicU64,
}

impl SpecCounters {
    /// Counts messages that are stored, and how many of their values were not of their fields' types.
    fn add(&self, messages: u64, failed: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.failed.fetch_add(failed, Ordering::Relaxed);
    }
}

/// What one spec took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecCounts {
    /// Messages that are stored as the spec's.
    pub messages: u64,
    /// Values of them that were not of their field's type, and are missing.
    pub failed: u64,
}

/// A spec in force.
#[derive(Debug)]
pub(crate) struct ActiveSpec {
    pub(crate) spec: Spec,
    pub(crate) taken: Arc<SpecCounters>,
}

/// What a spec took of one bus message, not counted yet.
#[derive(Debug)]
pub(crate) struct PendingSpecCounts {
    of: Arc<ActiveSpec>,
    pub(crate) messages: u64,
    /// Values that were not of their fields' types.
    pub(crate) failed: u64,
}

impl PendingSpecCounts {
    pub(crate) const fn new(of: Arc<ActiveSpec>) -> Self {
        Self {
            of,
            messages: 0,
            failed: 0,
        }
    }

    pub(crate) fn name(&self) -> SpecName {
        self.of.spec.name
    }

    /// They are stored.
    pub(crate) fn count(&self) {
        self.of.taken.add(self.messages, self.failed);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct SpecMatcher {
    in_force: RwLock<Arc<[Arc<ActiveSpec>]>>,
    taken: Mutex<BTreeMap<SpecName, Arc<SpecCounters>>>,
}

impl SpecMatcher {
    /// Puts these in force, and no others.
    pub fn set(&self, mut specs: Vec<Spec>) {
        in_order(&mut specs);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = specs.into_iter().map(|spec| {
            let taken = Arc::clone(taken.entry(spec.name).or_default());
            Arc::new(ActiveSpec { spec, taken })
        });
        let in_force = in_force.collect();
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = in_force;
    }

    /// What a spec took since the process began.
    #[must_use]
    pub fn counts(&self, spec: &SpecName) -> SpecCounts {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get(spec).map_or_else(SpecCounts::default, |taken| SpecCounts {
            messages: taken.messages.load(Ordering::Relaxed),
            failed: taken.failed.load(Ordering::Relaxed),
        })
    }

    /// The spec that takes a message.
    pub(crate) fn match_spec(&self, facts: MessageFacts<'_>) -> Option<Arc<ActiveSpec>> {
        let in_force = Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner));
        in_force.iter().find(|of| of.spec.rule.takes(facts)).cloned()
    }
}
