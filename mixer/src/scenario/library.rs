//! The active scenario and those before it, each read once.
//!
//! # Invariants
//!
//! - What is kept is of a content hash, so it never ages; what is neither active nor remembered as active is dropped.
//! - One that this program cannot read is not passed over: who asks knows that it is there, for Racks may run it still.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::scenario::{self, Scenario};

use crate::registry::{Registry, RegistryError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Library(Mutex<HashMap<String, Option<Arc<Scenario>>>>);

/// The scenarios that Racks may run.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Those that this program can read.
    pub(crate) scenarios: Vec<Arc<Scenario>>,
    /// Whether these are all.
    pub(crate) is_whole: bool,
}

impl Library {
    /// The active scenario and those before it. Reads those that it has not read so far: not for a thread that must not block.
    pub(crate) fn shelf(&self, registry: &Registry) -> Result<Shelf, RegistryError> {
        let active = registry.active_scenario()?;
        let former = registry.former_scenarios()?;
        let hashes: Vec<String> = active.into_iter().chain(former).map(|one| one.hash).collect();
        self.lock().retain(|hash, _| hashes.contains(hash));
        let mut shelf = Shelf {
            scenarios: Vec::new(),
            is_whole: true,
        };
        for hash in hashes {
            let scenario = self.scenario(registry, &hash)?;
            shelf.is_whole &= scenario.is_some();
            shelf.scenarios.extend(scenario);
        }
        Ok(shelf)
    }

    /// The scenario of a content hash; none if it is gone or this program cannot read it. May read it: not for a thread that must not
    /// block.
    pub(crate) fn scenario(&self, registry: &Registry, hash: &str) -> Result<Option<Arc<Scenario>>, RegistryError> {
        if let Some(scenario) = self.lock().get(hash) {
            return Ok(scenario.clone());
        }
        let row = registry.scenario(hash)?;
        let read = row.and_then(|row| scenario::parse(&row.text, rack::manifests()).ok());
        Ok(self.lock().entry(hash.to_owned()).or_insert(read.map(Arc::new)).clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<Arc<Scenario>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
