//! Queries of the audit log.

use std::sync::Arc;

use super::{ControlError, ControlPlane};
use crate::registry::{AuditEntry, AuditQuery, ClusterRegistry, KeyHistory, SignedCheckpoint};

/// So many look through the audit log at once; others wait.
pub(super) const AUDIT_SCANS: usize = 4;

impl ControlPlane {
    /// The entries of the audit log that a query wants, the newest first.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>, ControlError> {
        // A look through all of it takes a thread for a while, whoever still waits for it.
        let place = Arc::clone(&self.limits.audit_scans).acquire_owned().await;
        let scan = move |registry: &ClusterRegistry| {
            let _place = place;
            registry.audit(&query)
        };
        Ok(self.registry.read(scan).await?)
    }

    /// The checkpoints of its hash chain below a number, the newest first.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub(crate) async fn audit_checkpoints(
        &self,
        below: u64,
        limit: usize,
    ) -> Result<Vec<SignedCheckpoint>, ControlError> {
        let found = self
            .registry
            .read(move |registry| registry.audit_checkpoints(below, limit));
        Ok(found.await?)
    }

    /// The keys that may have signed them.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub(crate) async fn key_history(&self) -> Result<KeyHistory, ControlError> {
        Ok(self.registry.read(ClusterRegistry::key_history).await?)
    }

    /// Records and publishes events that are not changes of the registry itself.
    pub(super) async fn record(&self, entry: AuditEntry) -> Result<(), ControlError> {
        let written = self.registry.commit(move |change| change.record(entry)).await?;
        self.events.publish(&written).await;
        Ok(())
    }

    /// The Mixer's time.
    #[must_use]
    pub fn now(&self) -> model::Timestamp {
        self.clock.now()
    }
}
