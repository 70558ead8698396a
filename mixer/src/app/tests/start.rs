//! Starts that go on where the one before ended, and starts that are refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use model::Clock;

use super::*;
use crate::bootstrap::init_cluster;

#[tokio::test(flavor = "multi_thread")]
async fn racks_and_the_active_scenario_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let adopt = ("enrollment.auto_adopt", "true");
    let mixer = start(folder.path(), &[adopt, ("mixer.startup_scenario", &scenario)]).await;
    let cluster = mixer.control().cluster_id();
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    rack.heartbeat(&FakeRack::beat(passport.entity_id, Some("abc")), &passport.cluster_key)
        .await;
    let before = view(mixer.control(), "rack-a");
    mixer.close().await;

    for reference in ["", "demo:1", "demo:latest"] {
        let mixer = start(folder.path(), &[adopt, ("mixer.startup_scenario", reference)]).await;
        let control = mixer.control();
        assert_eq!(control.cluster_id(), cluster);
        assert_eq!(
            control.active_scenario().unwrap().unwrap().reference,
            "demo:1",
            "{reference:?}"
        );
        let after = view(control, "rack-a");
        assert_eq!(
            (after.id, after.last_seen),
            (before.id, before.last_seen),
            "the last sighting was written"
        );
        assert_eq!(
            after.scenario.running.map(|running| running.hash).as_deref(),
            Some("abc")
        );
        mixer.close().await;
    }
    for reference in ["demo:9", "demo:9.1"] {
        let unknown = refused(folder.path(), &[("mixer.startup_scenario", reference)]).await;
        assert_eq!(unknown.exit_code(), ExitReason::Config);
        assert!(unknown.to_string().contains("demo:1"), "{unknown}");
    }

    std::fs::remove_file(folder.path().join("data/cluster.key")).unwrap();
    let keyless = refused(folder.path(), &[]).await;
    assert_eq!(keyless.exit_code(), ExitReason::Config);
    assert!(keyless.to_string().contains("cluster.key"), "{keyless}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_scenario_is_for_a_mixer_that_never_had_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_scenario(folder.path(), SCENARIO);
    let flags = [("mixer.first_scenario", first.as_str())];
    let missing = refused(folder.path(), &[("mixer.first_scenario", "./nowhere.yaml")]).await;
    assert_eq!(missing.exit_code(), ExitReason::Config);
    let text = missing.to_string();
    assert!(
        text.contains("mixer.first_scenario: cannot read ./nowhere.yaml"),
        "{text}"
    );

    let mixer = start(folder.path(), &flags).await;
    assert_eq!(mixer.control().active_scenario().unwrap().unwrap().reference, "demo:1");
    let other = SCENARIO.replace("version: '1'", "version: '2'");
    mixer.control().import(other, true, &AuditActor::Mixer).await.unwrap();
    mixer.close().await;

    let mixer = start(folder.path(), &[("mixer.startup_scenario", "demo:2")]).await;
    mixer.close().await;
    let mixer = start(folder.path(), &flags).await;
    assert_eq!(
        mixer.control().active_scenario().unwrap().unwrap().reference,
        "demo:2",
        "what was active last goes on"
    );
    mixer.close().await;

    // What is stored was imported by somebody who will say when it is to run.
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let imported = SCENARIO.to_owned();
    mixer
        .control()
        .import(imported, false, &AuditActor::Mixer)
        .await
        .unwrap();
    mixer.close().await;
    let mixer = start(folder.path(), &flags).await;
    assert!(mixer.control().active_scenario().unwrap().is_none());
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_replaces_a_lost_one_waits_for_its_scenario_and_is_not_given_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_scenario(folder.path(), SCENARIO);
    let flags = [("mixer.first_scenario", first.as_str())];
    let mixer = start(folder.path(), &flags).await;
    assert_eq!(mixer.control().active_scenario().unwrap().unwrap().reference, "demo:1");
    mixer.close().await;

    let registry = folder.path().join("data/registry.redb");
    std::fs::remove_file(&registry).unwrap();
    let found = |key_mode: u32| {
        let key = folder.path().join("data/cluster.key");
        std::fs::set_permissions(key, Permissions::from_mode(key_mode)).unwrap();
        let config = config(folder.path(), &flags);
        init_cluster(&config, &chassis::system_clock(), &chassis::os_entropy())
    };
    // A founding that failed leaves no registry, with which the start would found a first cluster.
    let (_, exposed) = found(0o644).unwrap_err();
    assert!(exposed.contains("chmod 600"), "{exposed}");
    assert!(!registry.exists());
    let refused = refused(folder.path(), &flags).await;
    assert!(refused.to_string().contains("found-cluster"), "{refused}");
    assert!(found(0o600).unwrap().contains("mixer.first_scenario"));
    for _ in 0..2 {
        let mixer = start(folder.path(), &flags).await;
        assert!(mixer.control().active_scenario().unwrap().is_none());
        mixer.close().await;
    }
    // What is asked for by name is run.
    let mixer = start(folder.path(), &[("mixer.startup_scenario", first.as_str())]).await;
    assert_eq!(mixer.control().active_scenario().unwrap().unwrap().reference, "demo:1");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founding_that_was_cut_off_leaves_no_registry_and_does_not_stand_in_the_way_of_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_scenario(folder.path(), SCENARIO);
    let flags = [("mixer.first_scenario", first.as_str())];
    start(folder.path(), &flags).await.close().await;
    let registry = folder.path().join("data/registry.redb");
    std::fs::remove_file(&registry).unwrap();
    let config = config(folder.path(), &flags);
    let found = |clock: &Clock| init_cluster(&config, clock, &chassis::os_entropy());
    // The clock is asked when the registry is made and has no cluster yet.
    let broken = Clock::new(|| panic!("of a test"));
    assert!(catch_unwind(AssertUnwindSafe(|| found(&broken))).is_err());
    assert!(!registry.exists());
    let refused = refused(folder.path(), &flags).await;
    assert!(refused.to_string().contains("found-cluster"), "{refused}");
    let staged = folder.path().join("data/.registry.redb.founded");
    let other = crate::registry::ClusterRegistry::open(&staged).unwrap();
    assert_eq!(
        found(&chassis::system_clock()).unwrap_err().0,
        chassis::ExitReason::Unavailable,
        "another founding is at it"
    );
    drop(other);
    // A kill leaves it without a cluster, half made, or with all but its name.
    found(&chassis::system_clock()).unwrap();
    std::fs::remove_file(&registry).unwrap();
    std::fs::write(&staged, [0_u8; 4096]).unwrap();
    found(&chassis::system_clock()).unwrap();
    std::fs::rename(&registry, &staged).unwrap();
    std::fs::remove_file(folder.path().join("data/cluster.key")).unwrap();
    found(&chassis::system_clock()).unwrap();
    let names = std::fs::read_dir(folder.path().join("data")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().display().to_string());
    assert!(!names.any(|name| name.ends_with(".founded")));
    let mixer = start(folder.path(), &flags).await;
    assert!(mixer.control().active_scenario().unwrap().is_none());
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_startup_scenario_stops_the_start_with_the_file_and_the_fault_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, says) in [
        ("generator", "genrator", "genrator"),
        ("sink.in", "sink.inn", "no input inn"),
        ("wires:", "wirez:", "wirez"),
    ] {
        let scenario = write_scenario(folder.path(), &SCENARIO.replace(from, to));
        let error = refused(folder.path(), &[("mixer.startup_scenario", &scenario)]).await;
        assert_eq!(error.exit_code(), ExitReason::Data);
        let text = error.to_string();
        assert!(text.contains("demo.yaml") && text.contains(says), "{text}");
    }
    let missing = refused(folder.path(), &[("mixer.startup_scenario", "./nowhere.yaml")]).await;
    assert_eq!(missing.exit_code(), ExitReason::Config);
    assert!(missing.to_string().contains("nowhere.yaml"), "{missing}");
    // Nothing of the refused starts holds the store.
    start(folder.path(), &[]).await.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_mixer_on_one_store_and_a_taken_api_port_are_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let second = refused(folder.path(), &[]).await;
    assert_eq!(second.exit_code(), ExitReason::Unavailable);
    assert!(second.to_string().contains("data"), "{second}");

    let other = tempfile::tempdir().unwrap();
    let port = mixer.api_addr().port().to_string();
    let taken = refused(other.path(), &[("api.port", &port)]).await;
    assert_eq!(taken.exit_code(), ExitReason::Config);
    let text = taken.to_string();
    assert!(text.contains("api.port") && text.contains(&port), "{text}");
    mixer.close().await;
}
