//! Access-control list of the bus: the Racks that may use it, kept in step with the registry.
//!
//! # Invariants
//!
//! - The list is made of the registry alone, so a Mixer that starts anew has it before its bus server starts: no Rack is cut
//!   off by a restart.
//! - [`BusAcl::refresh`] returns when the server follows the list, and who was removed is cut off, or after [`WITHIN`]: then a warning says
//!   that it will. A list that could not be made is made by [`BusAcl::retry_failed`], as soon as the registry can be read.
//! - A Rack may use the consumers of its wires: those of the active scenario, and those that are in force for it otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::control::RackState;
use model::{EntityId, Token, subject};
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{ScenarioCache, ScenarioIndex};
use crate::bus_server::{AclEntry, AclSnapshot};
use crate::registry::{ClusterRegistry, RackRow, RegistryError};

/// The pause before a list that could not be made is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the server may take to follow. A Rack asks again after longer.
const WITHIN: Duration = Duration::from_secs(4);

/// Keeps the list; does nothing where the users of the bus are another's.
#[derive(Debug, Clone, Default)]
pub(crate) struct BusAcl(Option<Arc<AclPublisher>>);

#[derive(Debug)]
struct AclPublisher {
    registry: Arc<ClusterRegistry>,
    scenarios: Arc<ScenarioCache>,
    /// How often a new list was asked for.
    asked: AtomicU64,
    /// How many of these were answered by the last list. Held while one is made.
    answered: Mutex<u64>,
    list: watch::Sender<AclSnapshot>,
    applied: watch::Receiver<u64>,
    /// Told when a list could not be made.
    owed: Notify,
}

impl BusAcl {
    /// Keeps the list that goes into `list`; the first one is there when this returns.
    pub(crate) fn keep(
        registry: Arc<ClusterRegistry>,
        list: watch::Sender<AclSnapshot>,
        applied: watch::Receiver<u64>,
    ) -> Result<Self, RegistryError> {
        let scenarios = Arc::new(ScenarioCache::default());
        let (entries, removed) = acl_entries(&registry, &scenarios)?;
        list.send_replace(AclSnapshot {
            version: 1,
            owners: owners(&entries),
            entries,
            removed,
        });
        Ok(Self(Some(Arc::new(AclPublisher {
            registry,
            scenarios,
            asked: AtomicU64::new(0),
            answered: Mutex::new(0),
            list,
            applied,
            owed: Notify::new(),
        }))))
    }

    /// The Rack on the list that has this name.
    pub(crate) fn owner(&self, name: &Token) -> Option<EntityId> {
        self.0.as_ref()?.list.borrow().owners.get(name).copied()
    }

    /// Whether an answer of the Mixer may go there: to the server's own word for who asked in another account, which no client can
    /// say, or to an inbox of its own account, where only those are that may do what the Mixer may. The server does not look at the
    /// subject for which a request wants its answer, so it could be anything.
    pub(crate) fn may_be_answered(to: &str) -> bool {
        to.starts_with(subject::CROSSED) || subject::inbox_user(to).is_some()
    }

    /// Whether the list of the bus's users is ours.
    pub(crate) const fn is_enforced(&self) -> bool {
        self.0.is_some()
    }

    /// Rebuilds the list, and waits until the server applies it. Concurrent callers share the next one.
    pub(crate) async fn refresh(&self) {
        self.apply().await;
    }

    /// [`Self::refresh`], and whether the server follows the list.
    pub(super) async fn apply(&self) -> bool {
        let Some(kept) = &self.0 else { return true };
        kept.asked.fetch_add(1, Ordering::AcqRel);
        match kept.remake().await {
            Ok(version) => kept.wait_applied(version).await,
            Err(error) => {
                tracing::error!(%error, "could not update the access-control list of the bus; retrying");
                kept.owed.notify_one();
                false
            }
        }
    }

    /// How often a new list was asked for.
    #[cfg(test)]
    pub(crate) fn asked(&self) -> u64 {
        self.0.as_ref().map_or(0, |kept| kept.asked.load(Ordering::Acquire))
    }

    /// Waits until the server follows the list that there is.
    pub(crate) async fn wait_applied(&self) {
        let Some(kept) = &self.0 else { return };
        let version = kept.list.borrow().version;
        kept.wait_applied(version).await;
    }
}

impl BusAcl {
    /// Makes lists that could not be made, until stopped.
    pub(crate) async fn retry_failed(self, stop: CancellationToken) {
        let Some(kept) = &self.0 else {
            return stop.cancelled().await;
        };
        let again = async {
            loop {
                kept.owed.notified().await;
                loop {
                    tokio::time::sleep(AGAIN).await;
                    match kept.remake().await {
                        Ok(_) => break,
                        Err(error) => tracing::debug!(%error, "the access-control list of the bus is not updated yet"),
                    }
                }
                tracing::info!("updated the access-control list of the bus");
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = again => {}
        }
    }
}

impl AclPublisher {
    /// Waits until the server follows this version of the list, or a later one; false if it takes too long.
    async fn wait_applied(&self, version: u64) -> bool {
        let mut applied = self.applied.clone();
        let followed = applied.wait_for(|applied| *applied >= version);
        let is_followed = tokio::time::timeout(WITHIN, followed)
            .await
            .is_ok_and(|followed| followed.is_ok());
        if !is_followed {
            tracing::warn!("the bus has not applied its new access-control list yet");
        }
        is_followed
    }

    /// Makes the list, unless one was made since this was asked for. Its version.
    async fn remake(&self) -> Result<u64, RegistryError> {
        let asked = self.asked.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        if *answered >= asked {
            return Ok(self.list.borrow().version);
        }
        let answers = self.asked.load(Ordering::Acquire);
        let (registry, scenarios) = (Arc::clone(&self.registry), Arc::clone(&self.scenarios));
        let made = tokio::task::spawn_blocking(move || acl_entries(&registry, &scenarios)).await;
        let made = made.map_err(|error| RegistryError::Interrupted(error.to_string()))?;
        let (made, removed) = made?;
        self.list.send_if_modified(|list| {
            let changed = list.entries != made || list.removed != removed;
            if changed {
                list.version += 1;
                list.owners = owners(&made);
                list.entries = made;
                list.removed = removed;
            }
            changed
        });
        *answered = answers;
        Ok(self.list.borrow().version)
    }
}

fn owners(entries: &[AclEntry]) -> BTreeMap<Token, EntityId> {
    entries
        .iter()
        .map(|entry| (entry.name.clone(), entry.entity_id))
        .collect()
}

/// The Racks that have told a key and are not removed, and those that are removed.
fn acl_entries(
    registry: &ClusterRegistry,
    scenarios: &ScenarioCache,
) -> Result<(Vec<AclEntry>, BTreeSet<EntityId>), RegistryError> {
    let mut in_force: BTreeMap<Token, Vec<String>> = BTreeMap::new();
    for (name, wire) in registry.wires()? {
        let consumer = wire.consumer(&name).to_owned();
        if let Some(rack) = wire.rack.filter(|_| !wire.is_paused) {
            in_force.entry(rack).or_default().push(consumer);
        }
    }
    let active = registry.active_scenario()?.map(|active| active.hash);
    let scenario = match &active {
        Some(hash) => scenarios.of_registry(registry, hash)?,
        None => None,
    };
    scenarios.retain(&active.into_iter().collect());
    let layout = scenario.as_deref().map(ScenarioIndex::of);
    let mut keys = BTreeSet::new();
    let (mut entries, mut removed) = (Vec::new(), BTreeSet::new());
    for row in registry.racks()? {
        if row.state == RackState::Removed {
            removed.insert(row.entity_id);
            continue;
        }
        let RackRow { bus_key: Some(key), .. } = &row else {
            continue;
        };
        // The server refuses a list in which a key is twice.
        if !keys.insert(key.clone()) {
            continue;
        }
        let adopted = row.is_adopted();
        let mut consumers = BTreeSet::new();
        if adopted {
            consumers = layout.as_ref().map(|layout| inlets(&row, layout)).unwrap_or_default();
            consumers.extend(in_force.remove(&row.name).unwrap_or_default());
        }
        entries.push(AclEntry {
            key: key.clone(),
            entity_id: row.entity_id,
            name: row.name.clone(),
            adopted,
            consumers: consumers.into_iter().collect(),
        });
    }
    Ok((entries, removed))
}

/// What a Rack may pull from. Until it runs by its new labels, it works by the old ones.
fn inlets(row: &RackRow, layout: &ScenarioIndex<'_>) -> BTreeSet<String> {
    let labels = [Some(&row.labels), row.relabelled.as_ref()];
    let labels: BTreeSet<_> = labels.into_iter().flatten().collect();
    labels
        .iter()
        .flat_map(|labels| layout.inlets(&row.name, labels))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::Timestamp;

    use super::*;
    use crate::registry::tests::{damage, row};
    use crate::registry::{ActiveScenario, ScenarioRow, WireRow};

    #[test]
    fn a_removed_rack_is_said_to_be_removed_whether_it_told_a_key_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
        let mut silent = row("a");
        (silent.bus_key, silent.state) = (None, RackState::Removed);
        registry.change(|change| change.put_rack(&silent)).unwrap();
        let (entries, removed) = acl_entries(&registry, &ScenarioCache::default()).unwrap();
        assert_eq!((entries, removed), (Vec::new(), BTreeSet::from([silent.entity_id])));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_removed_rack_leaves_the_list_as_soon_as_the_registry_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap());
        let (mut removed, mut other) = (row("a"), row("b"));
        (removed.bus_key, other.bus_key) = (Some("UA".to_owned()), Some("UB".to_owned()));
        let put = |row: &RackRow| registry.change(|change| change.put_rack(row)).unwrap();
        put(&removed);
        put(&other);
        let (list, mut seen) = watch::channel(AclSnapshot::default());
        let (_applied, applied) = watch::channel(u64::MAX);
        let acl = BusAcl::keep(Arc::clone(&registry), list, applied).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(acl.clone().retry_failed(stop.clone()));
        assert_eq!(seen.borrow_and_update().entries.len(), 2);

        removed.state = RackState::Removed;
        put(&removed);
        damage(&registry, &other);
        acl.refresh().await;
        assert_eq!(seen.borrow_and_update().entries.len(), 2, "it could not be made");
        put_anew(&registry, &other);
        let made = seen.wait_for(|list| list.entries.len() == 1);
        let made = tokio::time::timeout(Duration::from_secs(20), made).await.unwrap();
        assert_eq!(made.unwrap().entries[0].key, "UB");
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_asks_for_a_new_list_while_one_is_made_shares_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap());
        let (list, seen) = watch::channel(AclSnapshot::default());
        let (_applied, applied) = watch::channel(u64::MAX);
        let acl = BusAcl::keep(Arc::clone(&registry), list, applied).unwrap();
        let kept = acl.0.clone().unwrap();
        let being_made = kept.answered.lock().await;
        let mut racks = tokio::task::JoinSet::new();
        for number in 0..100 {
            let mut rack = row(&format!("r{number}"));
            rack.bus_key = Some(format!("U{number}"));
            registry.change(|change| change.put_rack(&rack)).unwrap();
            let acl = acl.clone();
            racks.spawn(async move { acl.refresh().await });
        }
        while kept.asked.load(Ordering::Acquire) < 100 {
            tokio::task::yield_now().await;
        }
        drop(being_made);
        racks.join_all().await;
        assert_eq!(*kept.answered.lock().await, 100);
        let list = seen.borrow();
        assert_eq!((list.version, list.entries.len()), (2, 100), "one list for all");
    }

    #[test]
    fn a_rack_keeps_its_right_to_its_wires_where_their_scenario_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap());
        let mut rack = row("rack-a");
        rack.bus_key = Some("UA".to_owned());
        let scenario = ScenarioRow {
            hash: "h".to_owned(),
            name: "demo".parse().unwrap(),
            version: "1".parse().unwrap(),
            stored: Timestamp::from_micros(1),
            text: "gears: this is of another program".to_owned(),
        };
        let start = |rack: &str| WireRow {
            rack: Some(rack.parse().unwrap()),
            ..WireRow::default()
        };
        let active = ActiveScenario {
            reference: scenario.reference(),
            hash: scenario.hash.clone(),
            activated: scenario.stored,
        };
        let put = |change: &crate::registry::RegistryTransaction<'_>| {
            change.put_rack(&rack)?;
            change.put_wire("wire-a", &start("rack-a"), None)?;
            change.put_wire("wire-b", &start("rack-b"), None)
        };
        registry.change(put).unwrap();
        let consumers = || {
            let (list, seen) = watch::channel(AclSnapshot::default());
            let (_applied, applied) = watch::channel(0);
            BusAcl::keep(Arc::clone(&registry), list, applied).unwrap();
            seen.borrow().entries[0].consumers.clone()
        };
        assert_eq!(consumers(), ["wire-a"], "it is in force");
        let activate = |change: &crate::registry::RegistryTransaction<'_>| {
            change.put_scenario(&scenario)?;
            change.activate(&active)
        };
        registry.change(activate).unwrap();
        assert_eq!(consumers(), ["wire-a"]);
        let pause = |change: &crate::registry::RegistryTransaction<'_>| {
            let paused = WireRow {
                is_paused: true,
                ..start("rack-a")
            };
            change.put_wire("wire-a", &paused, None)
        };
        registry.change(pause).unwrap();
        assert_eq!(consumers(), Vec::<String>::new());
    }

    fn put_anew(registry: &ClusterRegistry, row: &RackRow) {
        crate::registry::tests::forget(registry, row);
        registry.change(|change| change.put_rack(row)).unwrap();
    }
}
