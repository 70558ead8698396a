//! Clocks a day apart: the Mixer's from the Rack's, and the Mixer's from what it was before.

use super::*;
use crate::testing::Hand;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_mixer_whose_clock_was_a_day_ahead_and_a_rack_whose_clock_is_a_day_behind_work_together() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let (ahead, right) = (Hand::new(), Hand::new());
    ahead.forward(DAY);
    let mut last = Timestamp::from_micros(0);
    let mut counter = 0;
    for (hand, name) in [(&ahead, "ahead"), (&right, "set right")] {
        let mixer = Mixer::start(config(folder.path(), &flags), hand.clock(), chassis::os_entropy())
            .await
            .unwrap();
        let mut rack = FakeRack::connect(&mixer, 1).await;
        rack.counter = counter;
        let passport = rack.adopted("rack-a").await;
        counter = passport.counter;
        let mut commands = rack.commands(&passport.entity_id).await;
        let mut beat = FakeRack::beat(passport.entity_id, None);
        beat.ts = right.clock().now().minus(DAY);
        let reply = rack.heartbeat(&beat, &passport.cluster_key).await;
        assert!(matches!(reply, HeartbeatReply::Ok { .. }), "{name}: {reply:?}");
        let applied = ScenarioPushAnswer {
            running: None,
            error: None,
        };
        let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
        assert!(
            push.issued > last,
            "{name}: a Rack would refuse {} after {last}",
            push.issued
        );
        mixer.control().suspend("rack-a", &AuditActor::Mixer).await.unwrap();
        let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
        assert!(told.issued > push.issued, "{name}");
        last = told.issued;
        let seen = view(mixer.control(), "rack-a");
        assert_eq!(
            seen.last_seen,
            hand.clock().now(),
            "{name}: by the Mixer's clock, as it is"
        );
        mixer.control().resume("rack-a", &AuditActor::Mixer).await.unwrap();
        let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
        last = last.max(told.issued);
        mixer.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_whose_clock_is_a_day_off_works_and_its_offset_is_shown() {
    for (name, ahead) in [("ahead", true), ("behind", false)] {
        let folder = tempfile::tempdir().unwrap();
        let lines = folder.path().join("files/app.log");
        let scenario = write_scenario(folder.path(), &real::scenario(&lines, folder.path()));
        let flags = [
            ("mixer.startup_scenario", scenario.as_str()),
            ("enrollment.auto_adopt", "true"),
        ];
        let ours = Hand::new();
        let mixer = Mixer::start(config(folder.path(), &flags), ours.clock(), chassis::os_entropy())
            .await
            .unwrap();
        let its = ours.clock();
        let its = model::Clock::new(move || {
            let now = its.now();
            if ahead { now.plus(DAY) } else { now.minus(DAY) }
        });
        let agent = real::agent(folder.path(), &mixer, its).await;
        agent.wait_for(|status| status.scenario.is_some()).await;
        real::write(&lines, 0..50);
        eventually("every line at the last gear", || {
            std::future::ready(real::is_written(folder.path(), 50))
        })
        .await;
        eventually("every line in the archive", || real::is_archived(&mixer, 50)).await;
        let shown = view(mixer.control(), "rack-a");
        let offset = shown.facts.get("clock.offset").and_then(serde_json::Value::as_i64);
        assert_eq!(offset, Some(if ahead { 86_400 } else { -86_400 }), "{name}");
        assert_eq!(shown.last_seen, ours.clock().now(), "{name}: by the Mixer's clock");
        // Orders are followed, each after the one before.
        for _ in 0..2 {
            mixer.control().suspend("rack-a", &AuditActor::Mixer).await.unwrap();
            agent
                .wait_for(|status| status.state == Some(RackState::Suspended))
                .await;
            mixer.control().resume("rack-a", &AuditActor::Mixer).await.unwrap();
            agent.wait_for(|status| status.state == Some(RackState::Active)).await;
        }
        agent.close().await;
        mixer.close().await;
    }
}
