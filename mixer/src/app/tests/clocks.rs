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
        let applied = Applied {
            running: None,
            error: None,
        };
        let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
        assert!(
            push.issued > last,
            "{name}: a Rack would refuse {} after {last}",
            push.issued
        );
        mixer.control().suspend("rack-a", &Actor::Mixer).await.unwrap();
        let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
        assert!(told.issued > push.issued, "{name}");
        last = told.issued;
        let seen = view(mixer.control(), "rack-a");
        assert_eq!(
            seen.last_seen,
            hand.clock().now(),
            "{name}: by the Mixer's clock, as it is"
        );
        mixer.control().resume("rack-a", &Actor::Mixer).await.unwrap();
        let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
        last = last.max(told.issued);
        mixer.close().await;
    }
}
