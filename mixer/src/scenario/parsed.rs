//! The active scenario as it was read last, so that five hundred pushes of it read it once.
//!
//! # Invariants
//!
//! - What is kept is of the content hash that is asked for: another scenario is read anew.
//! - That the consumers of every Rack's wires are there is known of this content only. A Rack that comes later brings its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::scenario::{self, BadScenario, Scenario};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ParsedScenario {
    last: Mutex<Option<Parsed>>,
}

/// A scenario, and what was done for it.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    hash: String,
    pub(super) scenario: Arc<Scenario>,
    /// Whether the consumers of all Racks that were known at its first push are there.
    pub(super) has_consumers: bool,
}

impl ParsedScenario {
    /// The scenario with this content.
    pub(super) fn of(&self, hash: &str, text: &str) -> Result<Parsed, BadScenario> {
        let mut last = self.lock();
        if let Some(parsed) = last.as_ref().filter(|parsed| parsed.hash == hash) {
            return Ok(parsed.clone());
        }
        let parsed = Parsed {
            hash: hash.to_owned(),
            scenario: Arc::new(scenario::parse(text, rack::manifests())?),
            has_consumers: false,
        };
        Ok(last.insert(parsed).clone())
    }

    /// Its consumers are there.
    pub(super) fn has_consumers(&self, hash: &str) {
        if let Some(parsed) = self.lock().as_mut().filter(|parsed| parsed.hash == hash) {
            parsed.has_consumers = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parsed>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
