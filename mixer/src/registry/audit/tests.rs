//! What the audit log keeps, gives and forgets.
#![allow(clippy::unwrap_used, reason = "tests")]

use model::Timestamp;

use super::{AuditActor, AuditEntry, AuditQuery, SIGHTINGS};
use crate::access::CallerIdentity;
use crate::lifecycle_event::LifecycleEvent;
use crate::registry::tests::row;
use crate::registry::{ClusterRegistry, RegistryError};

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn all() -> AuditQuery {
    AuditQuery {
        limit: usize::MAX,
        ..AuditQuery::default()
    }
}

fn numbers(registry: &ClusterRegistry, query: AuditQuery) -> Vec<u64> {
    let found = registry.audit(&query).unwrap();
    found.into_iter().map(|entry| entry.id).collect()
}

/// An approval, an absence and a return of `a`, a removal of `b`, and an activation.
fn filled(path: &std::path::Path) -> ClusterRegistry {
    let registry = ClusterRegistry::open(path).unwrap();
    let api = AuditActor::Api {
        address: Some([192, 0, 2, 7].into()),
        identity: CallerIdentity::Everybody,
    };
    let entries = [
        AuditEntry::new(LifecycleEvent::RackApproved, &api, at(10))
            .of(&row("a"))
            .turn(Some("pending"), "active"),
        AuditEntry::new(LifecycleEvent::RackOffline, &AuditActor::Mixer, at(20))
            .of(&row("a"))
            .turn(Some("active"), "offline"),
        AuditEntry::new(
            LifecycleEvent::RackOnline,
            &AuditActor::Rack("a".parse().unwrap()),
            at(30),
        )
        .of(&row("a"))
        .turn(Some("offline"), "active"),
        AuditEntry::new(LifecycleEvent::RackRemoved, &api, at(40))
            .of(&row("b"))
            .turn(Some("active"), "removed"),
        AuditEntry::new(LifecycleEvent::ScenarioActivated, &AuditActor::Mixer, at(50))
            .scenario("demo:1", "ab")
            .turn(None::<String>, "demo:1")
            .because("mixer.startup_scenario"),
    ];
    for entry in entries {
        registry.change(|change| change.record(entry)).unwrap();
    }
    registry
}

#[test]
fn entries_survive_a_reopen_newest_first_with_who_did_it_and_are_found_by_rack_kind_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    drop(filled(&path));
    let registry = ClusterRegistry::open(&path).unwrap();
    assert_eq!(numbers(&registry, all()), [5, 4, 3, 2, 1], "both tables in one order");
    let of = |change: fn(&mut AuditQuery)| {
        let mut query = all();
        change(&mut query);
        numbers(&registry, query)
    };
    assert_eq!(of(|query| query.rack = Some("a".to_owned())), [3, 2, 1]);
    assert_eq!(of(|query| query.rack = Some(row("b").entity_id.to_string())), [4]);
    assert_eq!(of(|query| query.kind = Some("rack_offline".to_owned())), [2]);
    assert_eq!(of(|query| query.since = Some(at(30))), [5, 4, 3]);
    assert_eq!(of(|query| query.until = Some(at(30))), [2, 1]);
    assert_eq!(of(|query| query.limit = 2), [5, 4]);
    assert_eq!(of(|query| query.before = Some(4)), [3, 2, 1]);
    let who: Vec<String> = registry
        .audit(&all())
        .unwrap()
        .into_iter()
        .map(|entry| entry.by)
        .collect();
    assert_eq!(who, ["mixer", "api 192.0.2.7", "rack a", "mixer", "api 192.0.2.7"]);
}

#[test]
fn a_change_that_is_refused_leaves_no_entry_and_uses_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let registry = filled(&folder.path().join("registry.redb"));
    let refused: Result<(), RegistryError> = registry.change(|change| {
        change.record(AuditEntry::new(LifecycleEvent::RackRemoved, &AuditActor::Mixer, at(60)))?;
        Err(RegistryError::Interrupted("on purpose".to_owned()))
    });
    assert!(refused.is_err());
    assert_eq!(numbers(&registry, all()), [5, 4, 3, 2, 1]);
    let next = registry
        .change(|change| change.record(AuditEntry::new(LifecycleEvent::RackRemoved, &AuditActor::Mixer, at(60))));
    assert_eq!(next.unwrap().id, 6);
}

#[test]
fn a_rack_that_comes_and_goes_for_ever_pushes_out_sightings_and_never_a_decision() {
    let folder = tempfile::tempdir().unwrap();
    let registry = filled(&folder.path().join("registry.redb"));
    registry
        .change(|change| {
            for n in 0..SIGHTINGS {
                let entry = AuditEntry::new(LifecycleEvent::RackOffline, &AuditActor::Mixer, at(100));
                change.record(entry.because(n.to_string()))?;
            }
            Ok::<_, RegistryError>(())
        })
        .unwrap();
    let kept = registry.audit(&all()).unwrap();
    let sightings = kept
        .iter()
        .filter(|entry| LifecycleEvent::is_sighting(&entry.kind))
        .count();
    assert_eq!(u64::try_from(sightings).unwrap(), SIGHTINGS);
    let decisions = kept.iter().filter(|entry| !LifecycleEvent::is_sighting(&entry.kind));
    assert_eq!(decisions.map(|entry| entry.id).collect::<Vec<_>>(), [5, 4, 1]);
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let entry = AuditEntry::new(LifecycleEvent::RackRemoved, &AuditActor::Mixer, at(1)).because("é".repeat(500));
    let kept = registry.change(|change| change.record(entry)).unwrap();
    assert_eq!(kept.why, Some("é".repeat(128)));
}
