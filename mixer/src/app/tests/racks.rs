//! Racks as they come, go, are approved, stopped and removed, and what they say of themselves.

use model::KeyFingerprint;

use super::*;

/// Under this name.
fn approval(name: &str) -> RackApproval {
    RackApproval {
        name: Some(name.parse().unwrap()),
        ..RackApproval::default()
    }
}

const PLAIN: RackApproval = RackApproval {
    name: None,
    key_fingerprint: None,
};

/// What the flags of the test below allow every Rack.
const ALLOWED: model::control::RackLimits = model::control::RackLimits {
    max_hops: 7,
    max_payload_size: 65_536,
    sampling_rate: 0.5,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_rack_is_approved_and_gets_its_part_of_the_scenario_until_it_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("mixer.max_hops", "7"),
        ("mixer.max_payload_size", "65536"),
        ("observability.sampling_rate", "0.5"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    let hash = model::scenario::content_hash(SCENARIO);
    assert_eq!(control.active_scenario().unwrap().unwrap().hash, hash);

    let mut rack = FakeRack::connect(&mixer, 1).await;
    let EnrollReply::Pending { entity_id, .. } = rack.enroll("rack-a").await else {
        panic!("not pending");
    };
    assert_eq!(view(control, "rack-a").state, RackState::Pending);
    assert!(matches!(
        control.suspend("rack-a", &AuditActor::Mixer).await,
        Err(ControlError::State { .. })
    ));
    assert!(matches!(
        control.approve("nobody", PLAIN, &AuditActor::Mixer).await,
        Err(ControlError::UnknownRack(_))
    ));

    let mut commands = rack.commands(&entity_id).await;
    let approved = control
        .approve(&entity_id.to_string(), PLAIN, &AuditActor::Mixer)
        .await
        .unwrap()
        .done()
        .unwrap();
    assert_eq!(
        (approved.state, approved.host.as_str()),
        (RackState::Active, "host-of-a")
    );
    assert_eq!(
        control
            .approve("rack-a", PLAIN, &AuditActor::Mixer)
            .await
            .unwrap()
            .done()
            .unwrap()
            .state,
        RackState::Active,
        "again"
    );
    let renamed = control.approve("rack-a", approval("x"), &AuditActor::Mixer).await;
    assert!(matches!(renamed, Err(ControlError::State { .. })));
    let passport = rack.adopted("rack-a").await;
    assert_eq!(passport.entity_id, entity_id);

    let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
    assert_eq!((told.entity_id, told.state), (entity_id, RackState::Active));
    let applied = ScenarioPushAnswer {
        running: Some(hash.clone()),
        error: None,
    };
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!((push.reference.as_str(), &push.hash), ("demo:1", &hash));
    let gears: Vec<&str> = push.gears.iter().map(|gear| gear.name.as_str()).collect();
    assert_eq!(
        (gears.as_slice(), push.wires.len()),
        (&["numbers", "sink"][..], 1),
        "its own part only"
    );

    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, Some(&hash)), &passport.cluster_key)
        .await;
    let HeartbeatReply::Ok {
        state,
        scenario,
        floors,
        limits,
        credits,
        ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!((state, scenario.as_ref()), (RackState::Active, Some(&hash)));
    assert_eq!(limits, Some(ALLOWED), "what every Rack is allowed");
    let credits = credits.map(|credits| credits.ports);
    assert!(credits.is_none_or(|ports| ports.is_empty()), "no wire begins there");
    assert_eq!(
        (floors.len(), floors[0].boot_epoch, floors[0].seq),
        (1, 7, 0),
        "nothing of it is durable here"
    );
    let seen = view(control, "rack-a");
    assert_eq!(seen.scenario.wanted, seen.scenario.running);
    assert_eq!((seen.spool_bytes, seen.facts.get("cpu").is_some()), (42, true));

    rack.heartbeat(&FakeRack::beat(entity_id, Some("other")), &passport.cluster_key)
        .await;
    let again: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!(again.hash, hash, "a Rack that runs something else is sent it again");

    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_rack_has_nothing_to_run_until_it_is_resumed_and_a_removed_one_is_refused_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let (control, hash) = (mixer.control(), model::scenario::content_hash(SCENARIO));
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let entity_id = passport.entity_id;
    let mut commands = rack.commands(&entity_id).await;

    control.suspend("rack-a", &AuditActor::Mixer).await.unwrap();
    let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
    assert_eq!(told.state, RackState::Suspended);
    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, Some(&hash)), &passport.cluster_key)
        .await;
    assert!(
        matches!(
            reply,
            HeartbeatReply::Ok {
                state: RackState::Suspended,
                scenario: None,
                ..
            }
        ),
        "{reply:?}"
    );
    control.resume("rack-a", &AuditActor::Mixer).await.unwrap();
    let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
    assert_eq!(told.state, RackState::Active);

    assert_eq!(
        control.remove("rack-a", &AuditActor::Mixer).await.unwrap().state,
        RackState::Removed
    );
    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, None), &passport.cluster_key)
        .await;
    assert!(matches!(reply, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Removed));
    assert!(matches!(
        control.resume(&entity_id.to_string(), &AuditActor::Mixer).await,
        Err(ControlError::State { .. })
    ));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_is_approved_under_a_name_that_is_free_and_only_under_such_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let (mut first, mut second) = (FakeRack::connect(&mixer, 1).await, FakeRack::connect(&mixer, 2).await);
    first.enroll("node-01").await;
    second.enroll("node-02").await;
    let control = mixer.control();
    control
        .approve("node-01", approval("press-7"), &AuditActor::Mixer)
        .await
        .unwrap();
    assert_eq!(first.adopted("node-01").await.name.as_str(), "press-7");
    let taken = control
        .approve("node-02", approval("press-7"), &AuditActor::Mixer)
        .await
        .unwrap_err();
    assert!(matches!(taken, ControlError::NameTaken { .. }), "{taken}");
    let other = view(control, "press-7").id.to_string();
    let is_id = control
        .approve("node-02", approval(&other), &AuditActor::Mixer)
        .await
        .unwrap_err();
    assert!(matches!(is_id, ControlError::NameIsId(_)), "{is_id}");
    assert_eq!(view(control, "node-02").state, RackState::Pending);
    assert!(matches!(control.rack("node-01"), Err(ControlError::UnknownRack(_))));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_comes_before_the_racks_subscription_is_sent_again_without_a_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    // Longer than the push delay: the first push has found nobody. Nothing is awaited by it.
    tokio::time::sleep(Duration::from_millis(40)).await;
    let mut commands = rack.commands(&passport.entity_id).await;
    let hash = model::scenario::content_hash(SCENARIO);
    let applied = ScenarioPushAnswer {
        running: Some(hash.clone()),
        error: None,
    };
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!(push.hash, hash);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_cannot_apply_a_scenario_says_why_and_is_not_sent_it_again_at_every_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let mut beat = FakeRack::beat(passport.entity_id, None);
    beat.scenario_error = Some("port 80 is taken".to_owned());
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let mut commands = rack.commands(&passport.entity_id).await;
    let applied = ScenarioPushAnswer {
        running: None,
        error: Some("numbers: port 80 is taken".to_owned()),
    };
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let _: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    let seen = eventually("the refusal is noted", || async {
        Some(view(mixer.control(), "rack-a")).filter(|seen| seen.error == applied.error)
    })
    .await;
    assert_ne!(seen.scenario.wanted, seen.scenario.running);

    for _ in 0..5 {
        rack.heartbeat(&beat, &passport.cluster_key).await;
    }
    beat.boot_epoch += 1;
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let again: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!(
        again.hash,
        model::scenario::content_hash(SCENARIO),
        "its next run may fare better"
    );
    mixer.control().suspend("rack-a", &AuditActor::Mixer).await.unwrap();
    let mut more = 0;
    while let Some(message) = commands.next().await {
        more += usize::from(message.subject.ends_with(".scenario"));
        if message.subject.ends_with(".state") {
            break;
        }
    }
    assert_eq!(more, 0, "one push per run of the Rack");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let mut events = rack.client.subscribe("platform.event.>").await.unwrap();
    rack.client.flush().await.unwrap();
    let passport = rack.adopted("rack-a").await;
    let beat = FakeRack::beat(passport.entity_id, None);
    rack.heartbeat(&beat, &passport.cluster_key).await;
    assert_eq!(view(mixer.control(), "rack-a").state, RackState::Active);
    let control = mixer.control();
    eventually("offline", || async {
        (view(control, "rack-a").state == RackState::Offline).then_some(())
    })
    .await;
    let mut kinds = Vec::new();
    while !kinds.iter().any(|kind| kind == "platform.event.rack_offline") {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next())
            .await
            .unwrap()
            .unwrap();
        let body: serde_json::Value = serde_json::from_slice(&event.payload).unwrap();
        assert_eq!(body["rack"], "rack-a");
        kinds.push(event.subject.to_string());
    }
    assert_eq!(kinds, ["platform.event.rack_adopted", "platform.event.rack_offline"]);
    rack.heartbeat(&beat, &passport.cluster_key).await;
    assert_eq!(view(control, "rack-a").state, RackState::Active);
    let event = tokio::time::timeout(Duration::from_secs(20), events.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(event.subject.as_str(), "platform.event.rack_online");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_signed_by_another_key_copied_or_of_a_stranger_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let thief = FakeRack::connect(&mixer, 2).await;
    let forged = thief
        .heartbeat(&FakeRack::beat(passport.entity_id, Some("x")), &passport.cluster_key)
        .await;
    assert!(matches!(forged, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Signature));
    assert_eq!(view(mixer.control(), "rack-a").scenario.running, None);
    let stranger = FakeRack::beat(EntityId::for_name("stranger"), None);
    let unknown = thief.heartbeat(&stranger, &passport.cluster_key).await;
    assert!(matches!(unknown, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Unknown));

    let nonsense: HelloReply = thief.ask(subject::HELLO, b"x".to_vec()).await;
    assert!(matches!(nonsense, HelloReply::Refused(_)));
    let nonsense: EnrollReply = thief.ask(subject::ENROLL, b"x".to_vec()).await;
    assert!(matches!(nonsense, EnrollReply::Refused(_)));
    for (subject, times) in [(subject::HELLO, 2), (subject::ENROLL, 1), (subject::HEARTBEAT, 1)] {
        for _ in 0..times {
            let request = thief.client.publish_with_reply(subject, "flux.msg.a.b.c", "x".into());
            request.await.unwrap();
        }
    }
    let stats = eventually("all of them are counted", || async {
        let stats = mixer.control().stats().unwrap();
        let elsewhere = |of: &crate::rejection_counters::ReasonCounts| of["answer_elsewhere"];
        let all = (
            elsewhere(&stats.handshakes_refused),
            elsewhere(&stats.heartbeats_refused),
        );
        (all == (3, 1)).then_some(stats)
    })
    .await;
    let of = |all: &crate::rejection_counters::ReasonCounts| {
        let counted = all.iter().filter(|(_, count)| **count > 0);
        counted.map(|(code, count)| (*code, *count)).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&stats.handshakes_refused),
        [("answer_elsewhere", 3), ("malformed", 2)]
    );
    assert_eq!(
        of(&stats.heartbeats_refused),
        [("answer_elsewhere", 1), ("signature", 1), ("unknown", 1)]
    );
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_heartbeats_keep_nobody_alive_neither_after_a_handshake_nor_after_a_restart_of_the_mixer() {
    let folder = tempfile::tempdir().unwrap();
    let mut mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    // Handshakes for a run, and heartbeats: run, number, whether it counts.
    let begins = |run| (Some(run), Vec::new());
    let hears = |beats: &[(u64, u64, bool)]| (None, beats.to_vec());
    let restarts = (None, Vec::new());
    for (handshake, beats) in [
        begins(7),
        hears(&[
            (7, 1, true),
            (7, 1, false),
            (7, 2, true),
            (7, 1, false),
            (6, 9, false),
            (8, 1, false),
        ]),
        begins(8),
        hears(&[(7, 3, false), (8, 1, true), (8, 5, true)]),
        // The bus was away.
        begins(8),
        hears(&[(8, 1, false), (8, 5, false), (7, 9, false), (8, 6, true)]),
        restarts.clone(),
        hears(&[(7, 1, false), (8, 5, false), (8, 6, false), (9, 1, false), (8, 7, true)]),
        begins(9),
        restarts,
        hears(&[(8, 8, false), (9, 1, true)]),
        // It lost its spool while its clock was behind.
        begins(5),
        hears(&[(9, 2, false), (8, 9, false), (5, 1, true), (5, 1, false)]),
    ] {
        if handshake.is_none() && beats.is_empty() {
            mixer.close().await;
            mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
            rack.client = FakeRack::connect(&mixer, 1).await.client;
        }
        if handshake.is_some() {
            rack.run = handshake;
            rack.adopted("rack-a").await;
        }
        let known = view(mixer.control(), "rack-a").id;
        let cluster = mixer.control().cluster.public_key();
        for (run, number, counts) in beats {
            let mut beat = FakeRack::beat(known, None);
            (beat.boot_epoch, beat.seq) = (run, Some(number));
            let reply = rack.heartbeat(&beat, &cluster).await;
            let copied = matches!(&reply, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Nonce);
            assert_eq!(copied, !counts, "run {run}, number {number}: {reply:?}");
        }
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_state_changes_leave_the_rack_in_the_state_of_the_registry() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let control = mixer.control();
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let id = passport.entity_id;
    let mut commands = rack.commands(&id).await;
    // Somebody suspended it, and is about to tell it so; somebody else resumes it, and tells it first.
    let set = |state: RackState| {
        control.registry.commit(move |change| {
            let mut row = change.rack(&id)?.unwrap();
            row.state = state;
            change.put_rack(&row)
        })
    };
    set(RackState::Suspended).await.unwrap();
    let (resumed, told) = tokio::join!(
        control.resume("rack-a", &AuditActor::Mixer),
        next::<StateChange>(&mut commands, &rack.client, "state", &passport, &())
    );
    resumed.unwrap();
    let ((), last) = tokio::join!(
        control.tell(&id),
        next::<StateChange>(&mut commands, &rack.client, "state", &passport, &())
    );
    assert!(last.issued > told.issued);
    assert_eq!((told.state, last.state), (RackState::Active, RackState::Active));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_of_another_key_than_the_one_that_waits_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let control = mixer.control();
    let mut rack = FakeRack::connect(&mixer, 1).await;
    rack.enroll("rack-a").await;
    let key = view(control, "rack-a").key_fingerprint;
    assert_eq!(key, KeyFingerprint::of(rack.key.verifying_key().as_bytes()));
    let of = |key| RackApproval {
        key_fingerprint: Some(key),
        ..RackApproval::default()
    };
    let of_another = of(KeyFingerprint::of(b"another"));
    let refused = control.approve("rack-a", of_another, &AuditActor::Mixer).await;
    assert!(
        matches!(&refused, Err(ControlError::KeyMismatch { waiting, .. }) if *waiting == key),
        "{refused:?}"
    );
    assert_eq!(view(control, "rack-a").state, RackState::Pending);
    control.approve("rack-a", of(key), &AuditActor::Mixer).await.unwrap();
    assert_eq!(view(control, "rack-a").state, RackState::Active);
    mixer.close().await;
}
