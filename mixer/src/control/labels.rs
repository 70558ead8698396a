//! The labels of Racks, by which groups of a scenario select them.
//!
//! # Invariants
//!
//! - New labels and that the Rack is owed its part of the scenario by them are one transaction: it gets it however often it or the
//!   Mixer is away, and counts as one that does not run the scenario until then.
//!
//! # Not here
//!
//! Which labels a request may have (`api`); what they mean for a Rack's part (`scenario`).

use std::collections::BTreeMap;

use model::control::RackState;
use model::lifecycle_event::LifecycleEvent;

use super::{ControlError, ControlPlane, RackView, rack_in, refuse};
use crate::registry::{AuditActor, AuditEntry};

/// The labels of a Rack.
pub(crate) type Labels = BTreeMap<String, String>;

/// Labels that one Rack may have.
pub(crate) const MOST_LABELS: usize = 64;

impl ControlPlane {
    /// Gives a Rack these labels in place of those that it has, and sends it what it shall run by them. The same labels again
    /// change nothing.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn set_labels(
        &self,
        id_or_name: &str,
        labels: Labels,
        by: &AuditActor,
    ) -> Result<RackView, ControlError> {
        self.relabel(id_or_name, |_| labels, by).await
    }

    /// Sets these labels of a Rack, and removes those that are `None`; others stay. Concurrent changes are all made.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::TooManyLabels`] if it would have more than it may.
    pub async fn change_labels(
        &self,
        id_or_name: &str,
        changes: BTreeMap<String, Option<String>>,
        by: &AuditActor,
    ) -> Result<RackView, ControlError> {
        let changed = |mut labels: Labels| {
            for (key, value) in changes {
                match value {
                    Some(value) => labels.insert(key, value),
                    None => labels.remove(&key),
                };
            }
            labels
        };
        self.relabel(id_or_name, changed, by).await
    }

    async fn relabel(
        &self,
        id_or_name: &str,
        changed: impl FnOnce(Labels) -> Labels + Send + 'static,
        by: &AuditActor,
    ) -> Result<RackView, ControlError> {
        let id = self.find(id_or_name)?.entity_id;
        let entry = AuditEntry::new(LifecycleEvent::RackLabels, by, self.clock.now());
        let (row, news) = self
            .registry
            .commit(move |change| {
                let mut row = rack_in(change, &id)?;
                if row.state == RackState::Removed {
                    return Err(refuse(&row, "labelled", ": its identity is revoked"));
                }
                let labels = changed(row.labels.clone());
                if row.labels == labels {
                    return Ok((row, None));
                }
                if labels.len() > MOST_LABELS {
                    return Err(ControlError::TooManyLabels(labels.len()));
                }
                let before = std::mem::replace(&mut row.labels, labels);
                let entry = entry.of(&row).turn(Some(listed(&before)), listed(&row.labels));
                row.relabelled.get_or_insert(before);
                change.put_rack(&row)?;
                Ok((row, Some(change.record(entry)?)))
            })
            .await?;
        if let Some(news) = news {
            tracing::info!(rack = %row.name, entity_id = %row.entity_id, labels = news.to, by = news.by, "rack labels changed");
            self.acl.refresh().await;
            self.events.publish(&news).await;
            if row.state == RackState::Active {
                self.rollout.deliver(row.entity_id);
            }
        }
        self.rack(&row.entity_id.to_string())
    }
}

/// As people write them.
fn listed(labels: &Labels) -> String {
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(" ")
}
