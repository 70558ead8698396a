//! The registry over a reopen, a refused change, and a second process; the cluster's key.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;

use model::control::RackState;
use model::dead_letter::LetterState;
use model::{EntityId, LetterId, Timestamp};

use super::{ActiveScenario, ClusterRegistry, LetterMark, RackRow, RegistryError, ScenarioRow};
use crate::cluster::{Cluster, ClusterError};
use crate::testing::{Hand, entropy};

pub(crate) fn row(name: &str) -> RackRow {
    RackRow {
        entity_id: EntityId::for_name(name),
        name: name.parse().unwrap(),
        claimed: name.to_owned(),
        rack_key: name.as_bytes().to_vec(),
        state: RackState::Active,
        counter: 3,
        confirmed: 2,
        first_seen: Timestamp::from_micros(1),
        last_seen: Timestamp::from_micros(2),
        interval_ms: 1000,
        host: "h".to_owned(),
        ip: "10.0.0.1".to_owned(),
        software: "1.0".to_owned(),
        labels: [("site".to_owned(), "lab".to_owned())].into(),
        relabelled: None,
        scenario: Some("ab".to_owned()),
        offline: false,
        bus_key: None,
        heard: None,
    }
}

/// Has the row of a Rack be one that cannot be read.
pub(crate) fn damage(registry: &ClusterRegistry, rack: &RackRow) {
    let id = rack.entity_id.as_bytes().as_slice();
    let put = registry.change(|change| {
        let mut racks = change.transaction.open_table(super::RACKS).unwrap();
        racks.insert(id, [0xff].as_slice()).unwrap();
        Ok::<_, RegistryError>(())
    });
    put.unwrap();
}

/// Takes the row of a Rack away, readable or not.
pub(crate) fn forget(registry: &ClusterRegistry, rack: &RackRow) {
    let id = rack.entity_id.as_bytes().as_slice();
    let taken = registry.change(|change| {
        let mut racks = change.transaction.open_table(super::RACKS).unwrap();
        racks.remove(id).unwrap();
        Ok::<_, RegistryError>(())
    });
    taken.unwrap();
}

pub(crate) fn scenario(name: &str, version: &str, text: &str, stored: i64) -> ScenarioRow {
    ScenarioRow {
        hash: model::scenario::content_hash(text),
        name: name.parse().unwrap(),
        version: version.parse().unwrap(),
        stored: Timestamp::from_micros(stored),
        text: text.to_owned(),
    }
}

#[test]
fn what_is_stored_last_is_the_latest_though_the_clock_was_a_day_ahead_before() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let day = 86_400_000_000;
    let demo = "demo".parse().unwrap();
    for (version, stored) in [("1", day), ("2", 5), ("10", 7), ("2b", day / 2)] {
        let row = scenario("demo", version, version, stored);
        let other = scenario("demo2", "9", "other", 9 * day);
        registry
            .change(|change| {
                change.put_scenario(&other)?;
                change.put_scenario(&row)
            })
            .unwrap();
        let latest = registry.scenario_named(&demo, None).unwrap().unwrap();
        assert_eq!(latest.version, row.version);
        assert!(latest.stored.micros() <= day + 3, "another name's time does not count");
    }
}

#[test]
fn racks_scenarios_and_the_active_one_survive_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    let first = scenario("demo", "1", "one", 1);
    let second = scenario("demo", "2", "two", 2);
    let active = ActiveScenario {
        reference: first.reference(),
        hash: first.hash.clone(),
        activated: Timestamp::from_micros(9),
    };
    let registry = ClusterRegistry::open(&path).unwrap();
    registry
        .change(|change| {
            change.put_rack(&row("a"))?;
            change.put_rack(&row("b"))?;
            assert_eq!(change.put_scenario(&first)?, None);
            assert_eq!(change.put_scenario(&second)?, None);
            change.activate(&active)
        })
        .unwrap();
    drop(registry);

    let registry = ClusterRegistry::open(&path).unwrap();
    assert_eq!(registry.rack(&EntityId::for_name("a")).unwrap(), Some(row("a")));
    assert_eq!(registry.rack_named(&"b".parse().unwrap()).unwrap(), Some(row("b")));
    assert_eq!(registry.racks().unwrap().len(), 2);
    assert_eq!(registry.active_scenario().unwrap(), Some(active));
    let demo = "demo".parse().unwrap();
    assert_eq!(registry.scenario_named(&demo, None).unwrap(), Some(second), "latest");
    let one = "1".parse().unwrap();
    assert_eq!(registry.scenario_named(&demo, Some(&one)).unwrap(), Some(first));
}

fn activation(scenario: &ScenarioRow) -> ActiveScenario {
    ActiveScenario {
        reference: scenario.reference(),
        hash: scenario.hash.clone(),
        activated: Timestamp::from_micros(9),
    }
}

#[test]
fn a_reference_may_mean_another_content_while_the_active_one_stays_under_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let (old, new) = (scenario("demo", "1", "old", 1), scenario("demo", "1", "new", 2));
    registry.change(|change| change.put_scenario(&old)).unwrap();
    registry.change(|change| change.activate(&activation(&old))).unwrap();
    let replaced = registry.change(|change| change.put_scenario(&new)).unwrap();
    assert_eq!(replaced.as_ref(), Some(&old.hash));
    assert_eq!(registry.reference_of(&old.hash).unwrap().as_deref(), Some("demo:1"));
    assert_eq!(registry.scenario(&old.hash).unwrap(), Some(old));
    let known: Vec<_> = registry
        .scenarios()
        .unwrap()
        .into_iter()
        .map(|head| head.hash)
        .collect();
    assert_eq!(
        (known, registry.references().unwrap()),
        (vec![new.hash], vec!["demo:1".to_owned()])
    );
}

#[test]
fn scenarios_are_listed_and_the_newest_is_found_without_reading_their_texts() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let (one, two) = (scenario("demo", "1", "one", 5), scenario("demo", "2", "two", 1));
    let unread = |change: &super::RegistryTransaction<'_>, row: &ScenarioRow| {
        change.put_scenario(row)?;
        let mut scenarios = change.transaction.open_table(super::SCENARIOS).unwrap();
        scenarios.insert(row.hash.as_str(), [0xff].as_slice()).unwrap();
        Ok::<_, RegistryError>(())
    };
    registry.change(|change| unread(change, &one)).unwrap();
    registry.change(|change| unread(change, &two)).unwrap();
    let stored: Vec<_> = registry.scenarios().unwrap();
    let stored: Vec<_> = stored
        .iter()
        .map(|head| (head.reference(), head.stored.micros()))
        .collect();
    assert_eq!(stored, [("demo:1".to_owned(), 5), ("demo:2".to_owned(), 6)]);
    assert_eq!(registry.reference_of(&two.hash).unwrap().as_deref(), Some("demo:2"));
}

#[test]
fn a_content_is_dropped_with_the_last_that_refers_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let put = |row: &ScenarioRow| registry.change(|change| change.put_scenario(row)).unwrap();
    let activate = |row: &ScenarioRow| registry.change(|change| change.activate(&activation(row))).unwrap();
    let is_there = |row: &ScenarioRow| {
        let head = registry.reference_of(&row.hash).unwrap();
        let content = registry.scenario(&row.hash).unwrap();
        assert_eq!(head.is_some(), content.is_some());
        content.is_some()
    };
    let version = |text: &str| scenario("demo", "1", text, 1);
    let (never, first, second) = (version("never"), version("first"), version("second"));
    // A reference that means another one.
    put(&never);
    put(&first);
    assert!(!is_there(&never) && is_there(&first));
    // A rollback from what no reference means.
    let base = scenario("base", "1", "base", 1);
    put(&base);
    activate(&base);
    activate(&first);
    put(&second);
    assert!(is_there(&first), "it is active");
    let back = registry.change(|change| change.roll_back(Timestamp::from_micros(10)));
    assert_eq!(back.unwrap().unwrap().hash, base.hash);
    assert!(is_there(&first), "Racks still run it");
    assert!(is_there(&base) && is_there(&second));
    // The end of what is remembered.
    activate(&second);
    assert!(!is_there(&first) && is_there(&base) && is_there(&second));
    put(&version("third"));
    let others: Vec<_> = (0..17)
        .map(|n| scenario("other", &n.to_string(), &n.to_string(), 1))
        .collect();
    for (number, other) in others.iter().enumerate() {
        put(other);
        activate(other);
        assert_eq!(is_there(&second), number < 16, "{number}");
    }
    assert!(is_there(&base), "its reference means it");
    assert_eq!(registry.scenarios().unwrap().len(), 19);
}

#[test]
fn rolling_back_goes_further_back_each_time_until_nothing_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let active = |text: &str| ActiveScenario {
        reference: format!("demo:{text}"),
        hash: model::scenario::content_hash(text),
        activated: Timestamp::from_micros(1),
    };
    let now = Timestamp::from_micros(5);
    for text in ["1", "2", "2", "3"] {
        registry.change(|change| change.activate(&active(text))).unwrap();
    }
    assert_eq!(registry.former_scenarios().unwrap(), [active("2"), active("1")]);
    for text in ["2", "1"] {
        let back = registry.change(|change| change.roll_back(now)).unwrap().unwrap();
        assert_eq!((back.reference, back.activated), (active(text).reference, now));
        assert_eq!(registry.active_scenario().unwrap().unwrap().hash, active(text).hash);
    }
    assert_eq!(registry.change(|change| change.roll_back(now)).unwrap(), None);
    for number in 0..100 {
        registry
            .change(|change| change.activate(&active(&number.to_string())))
            .unwrap();
    }
    assert_eq!(registry.former_scenarios().unwrap().len(), 16, "history is short");
}

#[test]
fn a_scenario_is_found_by_the_beginning_of_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let all: Vec<_> = (0..40)
        .map(|n| scenario("demo", &n.to_string(), &n.to_string(), n))
        .collect();
    for row in &all {
        registry.change(|change| change.put_scenario(row)).unwrap();
        assert_eq!(
            registry.scenarios_hashed(&row.hash[..12]).unwrap(),
            std::slice::from_ref(row)
        );
    }
    assert_eq!(registry.scenarios_hashed("").unwrap().len(), 2, "not one only");
    assert_eq!(registry.scenarios_hashed("x").unwrap(), []);
}

#[test]
fn a_change_that_is_refused_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let refused: Result<(), RegistryError> = registry.change(|change| {
        change.put_rack(&row("a"))?;
        Err(RegistryError::Interrupted("on purpose".to_owned()))
    });
    assert!(refused.is_err());
    assert!(registry.racks().unwrap().is_empty());
    assert!(registry.rack_named(&"a".parse().unwrap()).unwrap().is_none());
}

#[test]
fn a_removed_rack_gives_its_name_back_and_keeps_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let mut gone = row("a");
    registry.change(|change| change.put_rack(&gone)).unwrap();
    gone.state = RackState::Removed;
    registry.change(|change| change.put_rack(&gone)).unwrap();
    assert_eq!(registry.rack_named(&gone.name).unwrap(), None);
    let by_key = registry.change(|change| change.rack_with_key(&gone.rack_key)).unwrap();
    assert_eq!(by_key, Some(gone.clone()));
    let mut heir = row("b");
    heir.name = gone.name.clone();
    registry.change(|change| change.put_rack(&heir)).unwrap();
    registry.change(|change| change.put_rack(&gone)).unwrap();
    assert_eq!(
        registry.rack_named(&gone.name).unwrap(),
        Some(heir),
        "writing the removed one again takes nothing"
    );
}

#[test]
fn marks_of_letters_survive_a_reopen_and_leave_with_the_letters_and_turns_are_given_out_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    let registry = ClusterRegistry::open(&path).unwrap();
    let at = |micros| LetterId::of(Timestamp::from_micros(micros), &[b"x"]);
    let (rack, gear) = (EntityId::for_name("a"), "pass".parse().unwrap());
    let fresh = uuid::Uuid::from_bytes([1; 16]);
    let mut marks = Vec::new();
    registry
        .change(|change| {
            assert_eq!(change.turns_of(fresh)?, fresh);
            for micros in 1..=5 {
                let mark = LetterMark {
                    state: LetterState::Waiting,
                    at: Timestamp::from_micros(9),
                    by: "ada".to_owned(),
                    subject: "flux.gear.a.pass".to_owned(),
                    times: 1,
                    turn: Some(change.next_turn(rack, &gear)?),
                    note: None,
                };
                change.put_mark(&at(micros), &mark)?;
                marks.push((at(micros), mark));
            }
            Ok::<_, RegistryError>(())
        })
        .unwrap();
    let undone = registry.dry_run(|change| Ok::<_, RegistryError>(change.next_turn(rack, &gear)?.number));
    assert_eq!(undone.unwrap(), 6);
    drop(registry);

    let registry = ClusterRegistry::open(&path).unwrap();
    let all = || {
        let mut all = Vec::new();
        registry.each_mark(|id, mark| all.push((id, mark))).unwrap();
        all
    };
    assert_eq!(all(), marks);
    let forget = |micros| registry.change(|change| change.forget_letters(Timestamp::from_micros(micros)));
    assert_eq!((forget(1).unwrap(), forget(3).unwrap()), (0, 2));
    assert_eq!(all(), marks[2..]);
    assert_eq!(registry.mark(&at(1)).unwrap(), None);
    let (next, turns) = registry
        .change(|change| {
            let other = change.turns_of(uuid::Uuid::from_bytes([2; 16]))?;
            Ok::<_, RegistryError>((change.next_turn(rack, &gear)?.number, other))
        })
        .unwrap();
    assert_eq!(
        (next, turns),
        (6, fresh),
        "numbers of letters that are gone are not given out again"
    );
}

#[test]
fn a_registry_in_use_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.redb");
    let _first = ClusterRegistry::open(&path).unwrap();
    let error = ClusterRegistry::open(&path).map(|_| ()).unwrap_err();
    assert!(matches!(error, RegistryError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("registry.redb"), "{error}");
}

#[test]
fn a_cluster_keeps_its_identity_and_refuses_to_start_without_its_key_or_with_another() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("cluster.key");
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let (clock, entropy) = (Hand::new().clock(), entropy());
    let open = || Cluster::open(&registry, &key, &clock, &entropy);
    let founded = open().unwrap();
    assert_eq!(founded.id().uuid().get_version_num(), 7);
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let again = open().unwrap();
    assert_eq!((again.id(), again.public_key()), (founded.id(), founded.public_key()));

    let content = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let missing = open().map(|_| ()).unwrap_err();
    assert!(matches!(missing, ClusterError::Missing { .. }));
    let text = missing.to_string();
    assert!(text.contains("cluster.key") && text.contains("backup"), "{text}");
    assert!(!key.exists(), "no new key is made in its place");

    let write = |text: &str, mode: u32| {
        std::fs::write(&key, text).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write(&format!("platform-cluster-key/1 {}\n", "07".repeat(32)), 0o600);
    assert!(matches!(open().map(|_| ()).unwrap_err(), ClusterError::Foreign { .. }));
    write("platform-cluster-key/1 07\n", 0o600);
    assert!(matches!(
        open().map(|_| ()).unwrap_err(),
        ClusterError::Malformed { .. }
    ));
    write(&String::from_utf8(content).unwrap(), 0o644);
    assert!(matches!(
        open().map(|_| ()).unwrap_err(),
        ClusterError::Exposed { mode: 0o644, .. }
    ));
}

#[test]
fn a_message_id_of_the_cluster_is_the_same_again_and_another_cluster_has_another() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, entropy) = (Hand::new().clock(), entropy());
    let id = |cluster: &str, number: u64| {
        let registry = ClusterRegistry::open(&folder.path().join(format!("{cluster}.redb"))).unwrap();
        let opened = Cluster::open(&registry, &folder.path().join(cluster), &clock, &entropy).unwrap();
        opened.message_id(&("wire-a", number)).unwrap()
    };
    assert_eq!(id("one", 7), id("one", 7));
    assert_ne!(id("one", 7), id("one", 8));
    assert_ne!(id("one", 7), id("other", 7));
}

#[test]
fn a_file_of_another_format_is_refused_and_not_written_to() {
    for format in [0, 2, u16::MAX] {
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
            ClusterRegistry {
                database,
                audit_keep: std::time::Duration::ZERO
            }
            .meta::<u16>("format")
            .unwrap(),
            Some(format)
        );
    }
}
