//! What new labels and a new name mean reaches a Rack, whatever happens between.

use std::collections::BTreeMap;

use super::*;

const PLANT: &str = "
meta: { name: plant, version: '1' }
racks: [ { group: edge, labels: { role: edge } }, { group: core, labels: { role: core } } ]
gears:
  - { name: numbers, type: generator, deploy: edge }
  - { name: others, type: generator, deploy: core }
";

fn role(role: &str) -> BTreeMap<String, String> {
    [("role".to_owned(), role.to_owned())].into()
}

fn gears(push: &ScenarioPush) -> Vec<&str> {
    push.gears.iter().map(|gear| gear.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_missed_its_labels_is_sent_its_assignment_until_it_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), PLANT);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let hash = model::scenario::content_hash(PLANT);
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let id = passport.entity_id;
    let mut commands = rack.commands(&id).await;
    let running = |error: Option<&str>| ScenarioPushAnswer {
        running: Some(hash.clone()),
        error: error.map(str::to_owned),
    };
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &running(None)).await;
    assert_eq!(gears(&push), Vec::<&str>::new());
    let beat = Heartbeat {
        interval_ms: 60_000,
        ..FakeRack::beat(id, Some(&hash))
    };
    rack.heartbeat(&beat, &passport.cluster_key).await;
    // Nobody hears of the labels, and the Mixer ends.
    drop(commands);
    rack.client.flush().await.unwrap();
    let set = mixer
        .control()
        .set_labels("rack-a", role("edge"), &AuditActor::Mixer)
        .await;
    assert_eq!(set.unwrap().labels, role("edge"));
    let report = mixer.control().scenario_report().await.unwrap();
    assert!(!report.converged, "it runs the scenario, but by its old labels");
    assert_eq!(report.groups[0].racks[0].as_str(), "rack-a");
    mixer.close().await;

    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    rack.client = control.bus.another_connection().await;
    let mut commands = rack.commands(&id).await;
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &running(Some("no"))).await;
    assert_eq!((gears(&push), &push.hash), (vec!["numbers"], &hash));
    eventually("the Rack's reason", || async {
        let report = control.scenario_report().await.unwrap();
        (report.racks[0].reason.as_deref() == Some("no")).then_some(())
    })
    .await;
    // That it could not run by those labels says nothing about others.
    control
        .set_labels("rack-a", role("core"), &AuditActor::Mixer)
        .await
        .unwrap();
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &running(None)).await;
    assert_eq!(gears(&push), ["others"]);
    eventually("the Rack runs by its labels", || async {
        control.scenario_report().await.unwrap().converged.then_some(())
    })
    .await;
    assert_eq!(control.registry.rack(&id).unwrap().unwrap().relabelled, None);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_rack_is_sent_its_assignment_until_it_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    let hash = model::scenario::content_hash(SCENARIO);
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let id = passport.entity_id;
    let mut commands = rack.commands(&id).await;
    let running = |error: Option<&str>| ScenarioPushAnswer {
        running: Some(hash.clone()),
        error: error.map(str::to_owned),
    };
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &running(None)).await;
    assert_eq!(gears(&push), ["numbers", "sink"]);
    let beat = Heartbeat {
        interval_ms: 60_000,
        ..FakeRack::beat(id, Some(&hash))
    };
    rack.heartbeat(&beat, &passport.cluster_key).await;
    // It has another name, and does not hear what that means.
    drop(commands);
    rack.client.flush().await.unwrap();
    rack.adopted("rack-b").await;
    let row = || control.registry.rack(&id).unwrap().unwrap();
    assert_eq!(
        (row().name.as_str(), row().relabelled),
        ("rack-b", Some(BTreeMap::new()))
    );
    let standing = || async {
        let report = control.scenario_report().await.unwrap();
        let mut racks = report.racks.into_iter();
        racks.find(|rack| rack.name.as_str() == "rack-b").unwrap()
    };
    assert!(!standing().await.converged, "it runs the scenario, but as rack-a");

    let mut commands = rack.commands(&id).await;
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &running(None)).await;
    assert_eq!((gears(&push), &push.hash), (vec!["other"], &hash));
    eventually("it runs as rack-b", || async {
        standing().await.converged.then_some(())
    })
    .await;
    assert_eq!(row().relabelled, None);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_with_old_labels_keeps_its_wires_until_it_runs_by_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), PLANT);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let id = passport.entity_id;
    let mut commands = rack.commands(&id).await;
    let running = ScenarioPushAnswer {
        running: Some(model::scenario::content_hash(PLANT)),
        error: None,
    };
    let _none: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &running).await;
    let relabelled = || control.registry.rack(&id).unwrap().unwrap().relabelled;
    control
        .set_labels("rack-a", role("edge"), &AuditActor::Mixer)
        .await
        .unwrap();
    // It has other ones again before it says that it runs by these.
    let push = tokio::time::timeout(Duration::from_secs(20), commands.next()).await;
    let push = push.unwrap().unwrap();
    control
        .set_labels("rack-a", role("core"), &AuditActor::Mixer)
        .await
        .unwrap();
    assert_eq!(relabelled(), Some(BTreeMap::new()));
    let answer = signed::encode(&running).unwrap();
    rack.client.publish(push.reply.unwrap(), answer.into()).await.unwrap();
    let push: ScenarioPush = next(
        &mut commands,
        &rack.client,
        "scenario",
        &passport,
        &ScenarioPushAnswer {
            error: Some("no".to_owned()),
            ..running.clone()
        },
    )
    .await;
    assert_eq!(gears(&push), ["others"]);
    eventually("it works by those of before", || async {
        (relabelled() == Some(role("edge"))).then_some(())
    })
    .await;
    mixer.close().await;
}
