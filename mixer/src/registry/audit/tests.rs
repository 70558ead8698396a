//! What the audit log keeps, gives and forgets.
#![allow(clippy::unwrap_used, reason = "tests")]

use model::Timestamp;
use model::audit_chain::{AUDIT_CHAIN_START, AuditCheckpoint, audit_link};
use model::lifecycle_event::LifecycleEvent;

use super::{AuditActor, AuditEntry, AuditQuery, CallerInterface, DEFAULT_KEEP, MAX_SIGHTINGS};
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
    let api = AuditActor::of_caller(CallerInterface::Api, Some([192, 0, 2, 7].into()), None);
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
            for n in 0..MAX_SIGHTINGS {
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
    assert_eq!(u64::try_from(sightings).unwrap(), MAX_SIGHTINGS);
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

#[test]
fn decisions_are_kept_by_time_however_many_there_are_and_a_leap_of_the_clock_takes_two_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let labels = |micros| AuditEntry::new(LifecycleEvent::RackLabels, &AuditActor::Mixer, at(micros));
    let count: i64 = 60_000;
    registry
        .change(|change| (1..=count).try_for_each(|n| change.record(labels(n)).map(drop)))
        .unwrap();
    assert_eq!(numbers(&registry, all()).len(), 60_000);
    let keep = i64::try_from(DEFAULT_KEEP.as_micros()).unwrap();
    registry.change(|change| change.record(labels(keep + 3))).unwrap();
    let kept = numbers(&registry, all());
    assert_eq!(kept.last(), Some(&3), "what is exactly as old as it may be stays");
    registry.change(|change| change.record(labels(keep * 2))).unwrap();
    assert_eq!(numbers(&registry, all()).last(), Some(&5));
}

#[test]
fn decisions_are_a_chain_that_a_checkpoint_signs_once() {
    let folder = tempfile::tempdir().unwrap();
    let registry = filled(&folder.path().join("registry.redb"));
    let mut entries = registry.audit(&all()).unwrap();
    entries.reverse();
    let mut previous = AUDIT_CHAIN_START.to_owned();
    for entry in &entries {
        let Some(chain) = &entry.chain else {
            assert!(LifecycleEvent::is_sighting(&entry.kind));
            continue;
        };
        let fields = serde_json::to_value(entry).unwrap();
        previous = audit_link(&previous, fields.as_object().unwrap());
        assert_eq!(*chain, previous, "{entry:?}");
    }
    let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let cluster = model::ClusterId::at(at(1), [1; 10]);
    let sign = || registry.change(|change| change.checkpoint((cluster, at(99)), &key));
    let signed = sign().unwrap().unwrap();
    assert_eq!((signed.id, &signed.chain), (5, &previous));
    let opened = AuditCheckpoint::open(
        &model::hex::decode(&signed.signed).unwrap(),
        key.verifying_key().as_bytes(),
    );
    let opened = opened.unwrap();
    assert_eq!((opened.id, opened.ts, opened.chain), (5, at(99), previous));
    assert_eq!(sign().unwrap(), None, "nothing has come since");
    assert_eq!(registry.audit_checkpoints(u64::MAX, 10).unwrap(), [signed]);
}
