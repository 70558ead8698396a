//! A file as the program of format 1 left it, and files of formats to come.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::path::Path;

use model::control::RackState;

use crate::lifecycle_event::LifecycleEvent;
use crate::registry::tests::{row, scenario};
use crate::registry::{
    AuditActor, AuditEntry, AuditQuery, ClusterRegistry, HEADS, RegistryError, SCENARIOS, migrate, to_cbor,
};

/// Racks `a` and `b`, one that waits, one that was removed, two scenarios of which the second is active, the first number of
/// the prefix `node-`, and a cluster.
const FORMAT_1: &[u8] = include_bytes!("../fixtures/registry-1.redb.gz");

fn unpack(path: &Path) {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(FORMAT_1).read_to_end(&mut bytes).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_of_format_1_is_brought_to_this_format_with_all_that_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    unpack(&path);
    for _ in 0..2 {
        let registry = ClusterRegistry::open(&path).unwrap();
        let mut names: Vec<(String, RackState)> = Vec::new();
        for rack in registry.racks().unwrap() {
            assert!(!rack.offline && rack.bus_key.is_none() && rack.heard.is_none());
            names.push((rack.name.to_string(), rack.state));
        }
        names.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("a", RackState::Active),
            ("b", RackState::Active),
            ("gone", RackState::Removed),
            ("waits", RackState::Pending),
        ];
        assert_eq!(names, expected.map(|(name, state)| (name.to_owned(), state)));
        assert_eq!(registry.rack_named(&"b".parse().unwrap()).unwrap(), Some(row("b")));
        assert_eq!(registry.active_scenario().unwrap().unwrap().reference, "demo:2");
        assert_eq!(registry.former_scenarios().unwrap()[0].reference, "demo:1");
        assert_eq!(registry.scenarios().unwrap().len(), 2);
        assert!(registry.cluster_identity().unwrap().is_some());
        assert_eq!(registry.meta::<u16>("format").unwrap(), Some(3));
    }
    let registry = ClusterRegistry::open(&path).unwrap();
    let number = registry.change(|change| change.last_number(&"node-".parse().unwrap()));
    assert_eq!(number.unwrap(), 1, "numbers go on");
    let entry = AuditEntry::new(
        LifecycleEvent::RackRemoved,
        &AuditActor::Mixer,
        model::Timestamp::from_micros(1),
    );
    assert_eq!(registry.change(|change| change.record(entry)).unwrap().id, 1);
    let query = AuditQuery {
        limit: 10,
        ..AuditQuery::default()
    };
    assert_eq!(registry.audit(&query).unwrap().len(), 1);
}

#[test]
fn a_file_of_format_2_gets_the_heads_of_its_scenarios_and_keeps_no_content_that_nothing_refers_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    let (old, new) = (scenario("demo", "1", "old", 1), scenario("demo", "1", "new", 2));
    let registry = ClusterRegistry::open(&path).unwrap();
    let as_format_2 = registry.change(|change| {
        change.put_scenario(&new)?;
        let mut scenarios = change.transaction.open_table(SCENARIOS).unwrap();
        let content = to_cbor("scenario", &old)?;
        scenarios.insert(old.hash.as_str(), content.as_slice()).unwrap();
        change.transaction.delete_table(HEADS).unwrap();
        change.set_meta("format", &2_u16)
    });
    as_format_2.unwrap();
    drop(registry);
    for _ in 0..2 {
        let registry = ClusterRegistry::open(&path).unwrap();
        assert_eq!(registry.scenarios().unwrap(), [new.head()]);
        assert_eq!(registry.scenario(&new.hash).unwrap(), Some(new.clone()));
        assert_eq!(registry.scenario(&old.hash).unwrap(), None);
    }
}

#[test]
fn a_migration_that_is_cut_off_leaves_the_file_at_its_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    unpack(&path);
    let registry = ClusterRegistry {
        database: redb::Database::open(&path).unwrap(),
    };
    let cut: Result<(), RegistryError> = registry.change(|change| {
        assert_eq!(migrate::run(change, &path)?, Some(1));
        assert_eq!(change.meta::<u16>("format")?, Some(3));
        Err(RegistryError::Interrupted("on purpose".to_owned()))
    });
    assert!(cut.is_err());
    assert_eq!(registry.meta::<u16>("format").unwrap(), Some(1));
    drop(registry);
    assert_eq!(ClusterRegistry::open(&path).unwrap().racks().unwrap().len(), 4);
}

#[test]
fn a_file_of_a_newer_format_or_of_none_that_ever_was_is_refused_and_not_written_to() {
    for format in [0, 4, u16::MAX] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.redb");
        let registry = ClusterRegistry::open(&path).unwrap();
        registry.change(|change| change.set_meta("format", &format)).unwrap();
        drop(registry);
        let error = ClusterRegistry::open(&path).map(|_| ()).unwrap_err();
        assert!(matches!(error, RegistryError::Format { found, .. } if found == format));
        let text = error.to_string();
        assert!(text.contains("registry.redb") && text.contains("backup"), "{text}");
        let database = redb::Database::open(&path).unwrap();
        assert_eq!(
            ClusterRegistry { database }.meta::<u16>("format").unwrap(),
            Some(format)
        );
    }
}
