//! Scenarios that change, and those that this program refuses.

use super::*;
use crate::control::ResumePoint;

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_scenarios_is_an_event_and_what_changes_nothing_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let client = mixer.control().bus.another_connection().await;
    let mut events = client.subscribe("platform.event.>").await.unwrap();
    client.flush().await.unwrap();
    let control = mixer.control();
    let second = SCENARIO.replace("version: '1'", "version: '2'");
    for text in [SCENARIO, SCENARIO, second.as_str()] {
        control
            .import(text.to_owned(), false, &AuditActor::Mixer)
            .await
            .unwrap();
    }
    control.rehearse("demo:1", ResumePoint::Floor).await.unwrap();
    control
        .activate("demo:1", ResumePoint::Floor, &AuditActor::Mixer)
        .await
        .unwrap();
    control
        .activate("demo:2", ResumePoint::Floor, &AuditActor::Mixer)
        .await
        .unwrap();
    control
        .roll_back(None, ResumePoint::Floor, &AuditActor::Mixer)
        .await
        .unwrap();
    let active = control.delete_scenario("demo:1", &AuditActor::Mixer).await;
    assert!(
        matches!(active, Err(crate::control::ControlError::ScenarioActive(_))),
        "{active:?}"
    );
    control.delete_scenario("demo:2", &AuditActor::Mixer).await.unwrap();
    let gone = control.delete_scenario("demo:2", &AuditActor::Mixer).await;
    assert!(
        matches!(gone, Err(crate::control::ControlError::UnknownScenario { .. })),
        "{gone:?}"
    );
    for (kind, reference) in [
        ("scenario_imported", "demo:1"),
        ("scenario_imported", "demo:2"),
        ("scenario_activated", "demo:1"),
        ("scenario_activated", "demo:2"),
        ("scenario_rolled_back", "demo:1"),
        ("scenario_deleted", "demo:2"),
    ] {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next())
            .await
            .unwrap()
            .unwrap();
        let body: serde_json::Value = serde_json::from_slice(&event.payload).unwrap();
        assert_eq!(event.subject.as_str(), format!("platform.event.{kind}"));
        assert_eq!((&body["kind"], &body["reference"]), (&kind.into(), &reference.into()));
    }
    mixer.close().await;
}

/// What an older program had active: a scenario that this one refuses, then another one.
fn activate_unread(folder: &Path, last: &str) {
    let registry = crate::registry::ClusterRegistry::open(&folder.join("data/registry.redb")).unwrap();
    let row = |version: &str, text: String| crate::registry::ScenarioRow {
        hash: model::scenario::content_hash(&text),
        name: "demo".parse().unwrap(),
        version: version.parse().unwrap(),
        stored: Timestamp::from_micros(1),
        text,
    };
    let refused = row("0", SCENARIO.replace("generator", "genrator").replace("'1'", "'0'"));
    let good = row("1", SCENARIO.to_owned());
    let all = if last == "demo:0" {
        [good, refused]
    } else {
        [refused, good]
    };
    let activate = |change: &crate::registry::RegistryTransaction<'_>| {
        for row in &all {
            change.put_scenario(row)?;
            change.activate(&crate::registry::ActiveScenario {
                reference: row.reference(),
                hash: row.hash.clone(),
                activated: Timestamp::from_micros(2),
            })?;
        }
        Ok::<_, crate::registry::RegistryError>(())
    };
    registry.change(activate).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_to_a_scenario_that_this_program_refuses_says_its_faults_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), &[]).await.close().await;
    activate_unread(folder.path(), "demo:1");
    let mixer = start(folder.path(), &[]).await;
    let control = mixer.control();
    let before = (
        control.active_scenario().unwrap(),
        control.scenario_report().await.unwrap(),
    );
    let all = || crate::registry::AuditQuery {
        limit: 100,
        ..Default::default()
    };
    let entries = control.audit(all()).await.unwrap();
    let error = control
        .roll_back(None, ResumePoint::Floor, &AuditActor::Mixer)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ControlError::BadFormer { reference, .. } if reference == "demo:0"),
        "{error}"
    );
    assert!(error.to_string().contains("genrator"), "{error}");
    let after = (
        control.active_scenario().unwrap(),
        control.scenario_report().await.unwrap(),
    );
    assert_eq!(before, after, "the history too");
    assert_eq!(after.0.unwrap().reference, "demo:1");
    assert_eq!(control.audit(all()).await.unwrap(), entries);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixer_whose_active_scenario_it_refuses_starts_and_another_one_can_be_activated() {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), &[]).await.close().await;
    activate_unread(folder.path(), "demo:0");
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let control = mixer.control();
    assert_eq!(control.active_scenario().unwrap().unwrap().reference, "demo:0");
    let error = control.scenario_report().await.unwrap_err();
    assert!(error.to_string().contains("genrator"), "{error}");
    let mut rack = FakeRack::connect(&mixer, 1).await;
    rack.adopted("rack-a").await;
    let back = control
        .roll_back(None, ResumePoint::Floor, &AuditActor::Mixer)
        .await
        .unwrap();
    let back = back.done().unwrap();
    assert_eq!(back.reference, "demo:1");
    mixer.close().await;
    let named = refused(folder.path(), &[("mixer.startup_scenario", "demo:0")]).await;
    assert_eq!(
        named.exit_code(),
        ExitReason::Data,
        "what the configuration names must be right"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_changes_of_a_start_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [("mixer.startup_scenario", scenario.as_str())];
    let hash = model::scenario::content_hash(SCENARIO);
    let imports = async |mixer: &Mixer| {
        let query = crate::registry::AuditQuery {
            limit: 100,
            ..Default::default()
        };
        let all = mixer.control().audit(query).await.unwrap();
        let all = all.into_iter().filter(|entry| entry.kind == "scenario_imported");
        all.map(|entry| (entry.by, entry.hash.unwrap_or_default(), entry.from.unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    let mixer = start(folder.path(), &flags).await;
    let first = ("mixer".to_owned(), hash.clone(), String::new());
    assert_eq!(imports(&mixer).await, std::slice::from_ref(&first));
    let other = SCENARIO.replace("rate: 10", "rate: 20");
    let stored = mixer.control().import(other, true, &AuditActor::Mixer).await.unwrap();
    mixer.close().await;
    for _ in 0..2 {
        // What is active has not changed, what its reference means has.
        let mixer = start(folder.path(), &flags).await;
        let all = imports(&mixer).await;
        let again = ("mixer".to_owned(), hash.clone(), stored.hash.clone());
        assert_eq!(
            (all.len(), &all[0], &all[2]),
            (3, &again, &first),
            "the newest first, and once"
        );
        mixer.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_scenarios_are_stored_as_may_be_until_one_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), &[]).await.close().await;
    let registry = crate::registry::ClusterRegistry::open(&folder.path().join("data/registry.redb")).unwrap();
    let fill = |change: &crate::registry::RegistryTransaction<'_>| {
        for number in 0..crate::registry::MOST_SCENARIOS {
            let text = SCENARIO.replace("demo", &format!("demo-{number}"));
            change.put_scenario(&crate::registry::ScenarioRow {
                hash: model::scenario::content_hash(&text),
                name: format!("demo-{number}").parse().unwrap(),
                version: "1".parse().unwrap(),
                stored: Timestamp::from_micros(1),
                text,
            })?;
        }
        Ok::<_, crate::registry::RegistryError>(())
    };
    registry.change(fill).unwrap();
    drop(registry);
    let mixer = start(folder.path(), &[]).await;
    let (control, by) = (mixer.control(), AuditActor::Mixer);
    let import = |text: String| control.import(text, true, &by);
    let refused = import(SCENARIO.to_owned()).await.unwrap_err();
    assert_eq!(refused.code(), "too_many_scenarios");
    assert!(refused.to_string().contains("platform scenario delete"), "{refused}");
    let replaced = SCENARIO.replace("demo", "demo-7").replace("rate: 10", "rate: 20");
    assert!(
        import(replaced).await.unwrap().replaced.is_some(),
        "what takes no more room"
    );
    control.delete_scenario("demo-7:1", &by).await.unwrap();
    assert!(import(SCENARIO.to_owned()).await.unwrap().new);
    let long = format!("# {}\n", "x".repeat(4_000_000 - SCENARIO.len()));
    for number in 0..20 {
        control
            .delete_scenario(&format!("demo-{}:1", number + 100), &by)
            .await
            .unwrap();
        let text = format!("{long}{}", SCENARIO.replace("demo", &format!("long-{number}")));
        match import(text).await {
            Ok(report) => assert!(report.new),
            Err(refused) => {
                assert_eq!((refused.code(), number), ("too_many_scenarios", 16));
                mixer.close().await;
                return;
            }
        }
    }
    panic!("there is no bound of bytes");
}
