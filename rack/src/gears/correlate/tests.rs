//! `correlate` in a real runtime: replies find their requests, and those without one expire.

#![allow(clippy::unwrap_used, reason = "tests")]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::super::testing::{self, Flow};
use super::*;

fn message(number: u64) -> Message {
    testing::message(1, number.into(), &[b'x'; 100])
}

fn parked(max_parked: u32, max_parked_bytes: u64) -> ParkedRequests {
    let config = json!({"request_key": "data", "reply_key": "data", "ttl": "10s", "max_parked": max_parked, "max_parked_bytes": max_parked_bytes});
    ParkedRequests::new(&serde_json::from_value(config).unwrap())
}

#[test]
fn the_oldest_requests_make_room_by_number_and_by_bytes() {
    let now = Instant::now();
    let numbers = |out: Vec<(Message, &'static str)>| out.into_iter().map(|(m, why)| (m.data, why)).collect::<Vec<_>>();
    let mut two = parked(2, 1 << 20);
    for number in 0..2 {
        assert_eq!(numbers(two.park(number.to_string(), message(number), now).unwrap()), []);
    }
    assert_eq!(
        numbers(two.park("2".into(), message(2), now).unwrap()),
        [(json!(0), "full")]
    );
    assert_eq!(
        numbers(two.park("2".into(), message(3), now).unwrap()),
        [(json!(2), "replaced")]
    );
    assert!(two.take("1").is_some() && two.take("1").is_none());
    assert_eq!(
        (two.take("2").unwrap().data, two.bytes, two.next()),
        (json!(3), 0, None)
    );
    let size = message(1).size() as u64 + 2;
    let mut small = parked(100, 4096);
    let fit = 4096 / size;
    for number in 0..fit {
        assert_eq!(
            numbers(
                small
                    .park((number % 10).to_string(), message(1), now)
                    .unwrap()
                    .split_off(0)
            )
            .len(),
            usize::from(number >= 10)
        );
    }
    let large = Message {
        raw: vec![0; 4096],
        ..message(1)
    };
    assert!(
        small
            .park("x".into(), large, now)
            .unwrap_err()
            .to_string()
            .contains("max_parked_bytes allows 4096")
    );
}

#[test]
fn whatever_comes_what_is_parked_stays_within_bounds_and_expires_in_order() {
    let mut rng = SmallRng::seed_from_u64(3);
    let start = Instant::now();
    let mut parked = parked(50, 10_000);
    let mut model: Vec<(String, Instant)> = Vec::new();
    for step in 0..20_000_u64 {
        let now = start + Duration::from_millis(step * 20);
        let key = rng.random_range(0..200).to_string();
        if rng.random() {
            let gone = parked.park(key.clone(), message(step), now).unwrap().len();
            let replaced = model.iter().position(|(old, _)| *old == key);
            replaced.map(|at| model.remove(at));
            model.drain(..gone - usize::from(replaced.is_some()));
            model.push((key, now + Duration::from_secs(10)));
        } else {
            let at = model.iter().position(|(old, _)| *old == key);
            assert_eq!(parked.take(&key).is_some(), at.map(|at| model.remove(at)).is_some());
        }
        while parked.due(now).is_some() {
            assert!(model.remove(0).1 <= now);
        }
        assert_eq!(parked.next(), model.first().map(|(_, until)| *until));
        assert_eq!(parked.waiting.len(), model.len());
        assert!(parked.bytes <= 10_000 && parked.waiting.len() <= 50);
    }
}

const GEARS: &str = "
  - { name: asks, type: test_feed, deploy: rack-a, config: { messages: [ { data: { id: 7 }, meta: { who: ann } }, { data: { id: 8 } }, { data: { no: 1 } } ] } }
  - { name: correlate, type: correlate, deploy: rack-a, config: { request_key: data.id, reply_key: data.re, ttl: 5s } }
  - { name: answer, type: map, deploy: rack-a, config: { data: '{\"re\": data.id == 7 ? 7 : 70, \"answer\": \"yes\"}', meta: { who: '\"bob\"', correlate.key: 'null' } } }
  - { name: sent, type: log_sink, deploy: rack-a }
  - { name: matched, type: log_sink, deploy: rack-a }
  - { name: expired, type: log_sink, deploy: rack-a }
  - { name: unmatched, type: log_sink, deploy: rack-a }";
const WIRES: &str = "{ from: asks.out, to: correlate.request }, { from: correlate.out, to: answer.in }, { from: correlate.out, to: sent.in }, \
                     { from: answer.out, to: correlate.reply }, { from: correlate.matched, to: matched.in }, \
                     { from: correlate.expired, to: expired.in }, { from: correlate.unmatched, to: unmatched.in }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_gets_the_context_of_its_request_and_who_has_none_leaves_elsewhere() {
    let mut flow = Flow::start(GEARS, WIRES).await;
    flow.reach("matched", 1).await;
    flow.reach("unmatched", 1).await;
    // Nothing arrives any more: only the timer can wake the gear.
    flow.reach("expired", 1).await;
    flow.stop().await;
    assert_eq!(flow.texts("sent"), [r#"{"id":7}"#, r#"{"id":8}"#]);
    assert_eq!(flow.texts("matched"), [r#"{"answer":"yes","re":7}"#]);
    assert_eq!(flow.texts("unmatched"), [r#"{"answer":"yes","re":70}"#]);
    assert_eq!(flow.texts("expired"), [r#"{"id":8}"#]);
    assert_eq!(flow.rows("expired")[0]["attributes"]["correlate.expired"], "ttl");
    let facts = &flow.rows("matched")[0]["attributes"];
    assert_eq!(
        (&facts["who"], &facts["request.who"], &facts["request.correlate.key"]),
        (&json!("bob"), &json!("ann"), &json!("7"))
    );
    assert!(flow.says("correlate", "a message was refused: request_key: No such key: id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_of_another_signal_goes_on_in_the_signal_and_trace_of_its_request() {
    let mut flow = Flow::start(
        "
  - { name: ask, type: generator, deploy: rack-a, config: { count: 1, rate: 1000 } }
  - { name: answer, type: generator, deploy: rack-a, config: { rate: 100, seed: 9 } }
  - { name: correlate, type: correlate, deploy: rack-a, config: { request_key: '1', reply_key: '\"1\"' } }
  - { name: matched, type: log_sink, deploy: rack-a }",
        "{ from: ask.out, to: correlate.request }, { from: answer.out, to: correlate.reply }, { from: correlate.matched, to: matched.in }",
    )
    .await;
    flow.reach("matched", 1).await;
    flow.stop().await;
    let row = flow.rows("matched").remove(0);
    assert_eq!(
        flow.spans(row["flux_id"].as_str().unwrap()),
        ["generator ask", "correlate correlate", "log_sink matched"]
    );
    assert_eq!(flow.rows("matched").len(), 1);
    assert!(
        flow.counter("correlate", "gear.messages.dropped") >= 1.0,
        "the request, since out is not wired"
    );
}
