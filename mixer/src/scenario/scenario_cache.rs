//! Scenario cache: each scenario is parsed once, by its content hash.
//!
//! # Invariants
//!
//! - An entry never ages: it is of a content hash. What nobody asks for any more is dropped ([`ScenarioCache::retain`]).
//! - One that this program cannot read is remembered as well; one that the registry does not have is looked for again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::scenario::{self, BadScenario, Scenario};

use crate::registry::{ClusterRegistry, RegistryError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ScenarioCache(Mutex<HashMap<String, Result<Arc<Scenario>, BadScenario>>>);

impl ScenarioCache {
    /// The scenario of a content hash; none if it is gone or this program cannot read it. May read it: not for a thread that must not
    /// block.
    pub(crate) fn of_registry(
        &self,
        registry: &ClusterRegistry,
        hash: &str,
    ) -> Result<Option<Arc<Scenario>>, RegistryError> {
        if let Some(parsed) = self.lock().get(hash) {
            return Ok(parsed.as_ref().ok().cloned());
        }
        let row = registry.scenario(hash)?;
        Ok(row.and_then(|row| self.parsed(hash, &row.text).ok()))
    }

    /// The scenario with this content and its hash.
    pub(crate) fn parsed(&self, hash: &str, text: &str) -> Result<Arc<Scenario>, BadScenario> {
        if let Some(parsed) = self.lock().get(hash) {
            return parsed.clone();
        }
        let parsed = scenario::parse(text, gear_spec::manifests()).map(Arc::new);
        self.lock().insert(hash.to_owned(), parsed.clone());
        parsed
    }

    /// Drops all others.
    pub(crate) fn retain(&self, hashes: &BTreeSet<String>) {
        self.lock().retain(|hash, _| hashes.contains(hash));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Result<Arc<Scenario>, BadScenario>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
