//! The Mixer and its bus are away for an hour. Nobody waits for it: both clocks are moved on by that hour, and what an hour
//! brings comes at once.
//!
//! | what an hour means | here |
//! |---|---|
//! | a message each second | 3,600 of them, sixty at each minute of the clock |
//! | heartbeats that nobody hears, attempts to reach the bus | as many as come; the pauses between them have an upper bound |
//! | somebody restarts the Rack meanwhile | after half an hour, without bus and Mixer |
//! | a Rack sends again what it does not know to be stored | all that the bus has is published once more |

use super::*;
use crate::testing::{Hand, eventually_within};
use futures::TryStreamExt as _;

const MINUTE: Duration = Duration::from_secs(60);
/// What an hour's messages may take on a busy machine.
const CATCH_UP: Duration = Duration::from_secs(120);

/// Publishes every business message that the bus has once more.
async fn double(mixer: &Mixer) -> u64 {
    let client = mixer.control().bus.another_connection().await;
    let js = async_nats::jetstream::with_domain(client, "flux");
    let stream = js.get_stream("flux-msg").await.unwrap();
    let there = stream.get_info().await.unwrap().state.messages;
    let config = async_nats::jetstream::consumer::pull::OrderedConfig::default();
    let consumer = stream.create_consumer(config).await.unwrap();
    let all = consumer.messages().await.unwrap();
    let mut all = all.take(usize::try_from(there).unwrap());
    while let Some(message) = all.try_next().await.unwrap() {
        let mut headers = async_nats::HeaderMap::new();
        for (name, values) in message.headers.iter().flat_map(async_nats::HeaderMap::iter) {
            if !name.to_string().starts_with("Nats-") {
                values
                    .iter()
                    .for_each(|value| headers.append(name.clone(), value.clone()));
            }
        }
        js.publish_with_headers(message.subject.clone(), headers, message.payload.clone())
            .await
            .unwrap()
            .await
            .unwrap();
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_works_without_its_mixer_for_an_hour_and_catches_up_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let lines = at.join("files/app.log");
    let scenario = write_scenario(at, &real::scenario(&lines, at));
    let hand = Hand::new();
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = Mixer::start(config(at, &flags), hand.clock(), chassis::os_entropy())
        .await
        .unwrap();
    let url = mixer.control().bus_status().url;
    let port = url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let mut agent = real::agent(at, &mixer, hand.clock()).await;
    agent.wait_for(|status| status.scenario.is_some()).await;
    real::write(&lines, 0..60);
    eventually("the first minute", || std::future::ready(real::is_written(at, 60))).await;
    let id = view(mixer.control(), "rack-a").id;
    mixer.close().await;

    let mut next = 60;
    for minute in 1..=60 {
        hand.forward(MINUTE);
        real::write(&lines, next..next + 60);
        next += 60;
        eventually("the Rack works on", || std::future::ready(real::is_near(at, next - 1))).await;
        if minute == 30 {
            agent.close().await;
            agent = real::agent_at(at, &url, hand.clock()).await;
            let resumed = agent.wait_for(|status| status.scenario.is_some()).await;
            assert_eq!(resumed.state, Some(RackState::Active), "by what it remembers");
        }
    }

    let flags = [flags.as_slice(), &[("snake.port", port.as_str())]].concat();
    let mixer = Mixer::start(config(at, &flags), hand.clock(), chassis::os_entropy())
        .await
        .unwrap();
    eventually_within(CATCH_UP, "every line in the archive, once", || {
        real::is_archived(&mixer, u64::from(next))
    })
    .await;
    eventually_within(CATCH_UP, "every line at the last gear, in order and once", || {
        std::future::ready(real::is_written(at, next))
    })
    .await;
    let seen = eventually("a heartbeat of this hour", || async {
        let seen = view(mixer.control(), "rack-a");
        (seen.last_seen == hand.clock().now() && seen.spool_bytes == 0).then_some(seen)
    })
    .await;
    assert_eq!((seen.id, seen.state), (id, RackState::Active), "the same Rack");

    // What the bus does not know any more comes again, and nobody takes it again: a bus message or more of each minute.
    assert!(double(&mixer).await >= 60);
    real::write(&lines, next..next + 1);
    next += 1;
    eventually_within(CATCH_UP, "one more line, and nothing else", || {
        std::future::ready(real::is_written(at, next))
    })
    .await;
    eventually_within(CATCH_UP, "one more message, and nothing else", || {
        real::is_archived(&mixer, u64::from(next))
    })
    .await;
    agent.close().await;
    mixer.close().await;
}

/// How long the bus is away: many heartbeats.
const AWAY: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_that_nobody_could_hear_do_not_come_later_so_that_none_is_taken_for_a_forged_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let hand = Hand::new();
    let flags = [("enrollment.auto_adopt", "true")];
    let mixer = Mixer::start(config(at, &flags), hand.clock(), chassis::os_entropy())
        .await
        .unwrap();
    let url = mixer.control().bus_status().url;
    let port = url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let agent = real::agent(at, &mixer, hand.clock()).await;
    agent.wait_for(|status| status.state == Some(RackState::Active)).await;
    mixer.close().await;
    // That is the outage; nothing is waited for.
    tokio::time::sleep(AWAY).await;
    let flags = [flags.as_slice(), &[("snake.port", port.as_str())]].concat();
    let mixer = Mixer::start(config(at, &flags), hand.clock(), chassis::os_entropy())
        .await
        .unwrap();
    for _ in 0..3 {
        hand.forward(MINUTE);
        eventually("a heartbeat of this minute", || async {
            (view(mixer.control(), "rack-a").last_seen == hand.clock().now()).then_some(())
        })
        .await;
    }
    let refused = mixer.control().stats().unwrap().heartbeats_refused;
    assert!(refused.values().all(|count| *count == 0), "{refused:?}");
    agent.close().await;
    mixer.close().await;
}
