//! Scenarios by their content, each read once.
//!
//! # Invariants
//!
//! - What is kept is of a content hash, so it never ages; what nobody asks for any more is dropped ([`Library::keep`]).
//! - One that this program cannot read is remembered as well; one that the registry does not have is looked for again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::scenario::{self, Scenario};

use crate::registry::{Registry, RegistryError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Library(Mutex<HashMap<String, Option<Arc<Scenario>>>>);

impl Library {
    /// The scenario of a content hash; none if it is gone or this program cannot read it. May read it: not for a thread that must not
    /// block.
    pub(crate) fn scenario(&self, registry: &Registry, hash: &str) -> Result<Option<Arc<Scenario>>, RegistryError> {
        if let Some(scenario) = self.lock().get(hash) {
            return Ok(scenario.clone());
        }
        let Some(row) = registry.scenario(hash)? else {
            return Ok(None);
        };
        let read = scenario::parse(&row.text, rack::manifests()).ok().map(Arc::new);
        self.lock().insert(hash.to_owned(), read.clone());
        Ok(read)
    }

    /// Drops all others.
    pub(crate) fn keep(&self, hashes: &BTreeSet<String>) {
        self.lock().retain(|hash, _| hashes.contains(hash));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<Arc<Scenario>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
