//! `window` in a real runtime, and on a real outbox with lives that are killed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::output_transaction::collect_output;
use super::super::stall_watchdog::watch;
use super::super::supervisor::supervise;
use super::super::testing::held::{deliver_to, fill, outbox, spec, surroundings, taken_behind};
use super::super::testing::{Bench, Flow, message};
use super::*;
use crate::inbox::{GearInbox, InboxMessage};
use crate::outbox::{MessageOutbox, OutboxRecord};
use crate::spool::{RecordingError, SpoolCursor};

fn gears(config: &str) -> String {
    format!(
        "
  - {{ name: feed, type: test_feed, deploy: rack-a, config: {{ messages: [
      {{ data: {{ k: a, v: 1 }} }}, {{ data: {{ k: b, v: 2 }} }}, {{ data: {{ k: a, v: 3 }} }}, {{ data: {{ k: c, v: 4 }} }}, {{ data: {{ k: a, v: x }} }} ] }} }}
  - {{ name: window, type: window, deploy: rack-a, config: {{ key: data.k, aggregates: {{ n: {{ op: count }}, sum: {{ op: sum, of: data.v }} }}, {config} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    )
}

const WIRES: &str = "{ from: feed.out, to: window.in }, { from: window.out, to: sink.in }";

/// Key, count and sum of results.
fn sums(flow: &Flow) -> Vec<(String, i64, i64)> {
    let mut sums = BTreeMap::<String, (i64, i64)>::new();
    for text in flow.texts("sink") {
        let result: Value = serde_json::from_str(&text).unwrap();
        let sum = sums.entry(result["key"].as_str().unwrap().to_owned()).or_default();
        sum.0 += result["n"].as_i64().unwrap();
        sum.1 += result["sum"].as_i64().unwrap();
    }
    sums.into_iter().map(|(key, (n, sum))| (key, n, sum)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_open_on_hot_wires_leaves_at_the_stop_and_says_that_it_is_a_part() {
    let flow = Flow::run(&gears("every: 168h, max_keys: 2"), WIRES).await;
    assert_eq!(sums(&flow), [("a".into(), 2, 4), ("b".into(), 1, 2)]);
    let row = &flow.rows("sink")[0];
    assert_eq!(row["attributes"]["window.partial"], true);
    let result: Value = serde_json::from_str(row["message"].as_str().unwrap()).unwrap();
    let time = |key: &str| result[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("end").since(time("start")), Duration::from_secs(168 * 3600));
    // The third key is one too many, and the last value is no number.
    assert_eq!(flow.counter("window", "gear.messages.dropped"), 2.0);
    assert!(flow.says("window", "2 windows are open, and max_keys allows no more: raise it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_close_by_either_time_though_nothing_comes_any_more() {
    // Windows by arrival may be short: those of one key are summed up, and none is late.
    for (time, closed_by) in [
        ("every: 168h, idle: 2s", json!("idle")),
        ("every: 100ms, time: arrival", Value::Null),
    ] {
        let mut flow = Flow::start(&gears(time), WIRES).await;
        flow.reach("sink", 3).await;
        flow.stop().await;
        assert_eq!(
            sums(&flow),
            [("a".into(), 2, 4), ("b".into(), 1, 2), ("c".into(), 1, 4)],
            "{time}"
        );
        assert!(
            flow.rows("sink")
                .iter()
                .all(|row| row["attributes"].get("window.partial").is_none()
                    && row["attributes"]["window.closed_by"] == closed_by),
            "{time}"
        );
    }
}

type Receipt = oneshot::Receiver<Result<(), RecordingError>>;

/// A gear behind a guaranteed wire whose ports are published.
struct Life {
    inbox: GearInbox,
    stop: CancellationToken,
    task: JoinHandle<()>,
    watching: JoinHandle<()>,
}

impl Life {
    fn begin(config: &Value, bench: &Bench, outbox: &Arc<MessageOutbox>) -> Self {
        Self::begin_with(GearInbox::new(), config, bench, outbox)
    }

    /// One that goes on with what waits for the one before.
    fn begin_with(inbox: GearInbox, config: &Value, bench: &Bench, outbox: &Arc<MessageOutbox>) -> Self {
        let spec = spec("window", config, &["out", "late"]);
        let (cx, stop) = surroundings(&spec, bench, outbox);
        let watching = tokio::spawn(watch(Arc::clone(&cx), Duration::from_millis(40)));
        let task = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
        Self {
            inbox,
            stop,
            task,
            watching,
        }
    }

    fn deliver(&self, number: u64, of: (u64, &str, i64)) -> Receipt {
        deliver_to(&self.inbox, "in", number, of_second(number, of))
    }

    async fn kill(self) {
        self.task.abort();
        self.task.await.unwrap_err();
        self.watching.abort();
        self.watching.await.unwrap_err();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
        self.watching.abort();
        self.watching.await.unwrap_err();
    }
}

/// A message of a second, the first of which is that of a full minute; its key and its value.
fn of_second(number: u64, (seconds, key, value): (u64, &str, i64)) -> Message {
    let mut message = message(0, json!({"k": key, "v": value}), b"");
    message.ts = message.ts.plus(Duration::from_secs(seconds));
    let mut entropy = [0; 10];
    entropy[..8].copy_from_slice(&number.to_le_bytes());
    message.id = MessageId::at(message.ts, entropy);
    message
}

fn config(aggregates: Value) -> Value {
    json!({"every": "10s", "lateness": "2s", "key": "data.k", "aggregates": aggregates})
}

/// What left: the seconds at which a window begins, its key, its results; none of what was late.
fn results(letters: &[OutboxRecord]) -> Vec<(u64, String, Value)> {
    let begin = message(0, Value::Null, b"").ts;
    let bodies = letters
        .iter()
        .map(|letter| Message::from_cbor(letter.body()).unwrap().data);
    let results = bodies.filter(|data| data["start"].is_string()).map(|mut data| {
        let start: Timestamp = data["start"].as_str().unwrap().parse().unwrap();
        let (start, key) = (start.since(begin).as_secs(), data["key"].as_str().unwrap().to_owned());
        data.as_object_mut()
            .unwrap()
            .retain(|name, _| !["start", "end", "key"].contains(&name.as_str()));
        (start, key, data)
    });
    results.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_resumes_after_a_restart_and_messages_past_its_end_are_late() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (dir, mut cursor) = (folder.path().join("outbox"), SpoolCursor::default());
    let config = config(json!({"n": {"op": "count"}, "sum": {"op": "sum", "of": "data.v"}}));
    let (kept, thread) = outbox(&dir, 1 << 20);
    let first = Life::begin(&config, &bench, &kept);
    let given = [(1, "a", 1), (3, "b", 2), (11, "a", 10)];
    let taken = [1, 2, 3].map(|number: u64| first.deliver(number, given[number as usize - 1]));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    // Late for no window: the watermark is at 9 s. Then the Rack stops, and starts again.
    assert_eq!(first.deliver(4, (9, "a", 3)).await.unwrap(), Ok(()));
    first.stop().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
    let (kept, thread) = outbox(&dir, 1 << 20);
    let second = Life::begin(&config, &bench, &kept);
    assert_eq!(second.deliver(5, (13, "b", 20)).await.unwrap(), Ok(()));
    let left = taken_behind(&kept, &mut cursor, 2).await;
    let of = |n: i64, sum: i64| json!({"n": n, "sum": sum});
    assert_eq!(results(&left), [(0, "a".into(), of(2, 4)), (0, "b".into(), of(1, 2))]);
    second.kill().await;
    let third = Life::begin(&config, &bench, &kept);
    for (number, given) in [(6, (9, "c", 5)), (7, (40, "a", 0))] {
        assert_eq!(third.deliver(number, given).await.unwrap(), Ok(()));
    }
    let left = taken_behind(&kept, &mut cursor, 3).await;
    assert_eq!(
        results(&left),
        [(10, "a".into(), of(1, 10)), (10, "b".into(), of(1, 20))]
    );
    let late = left
        .iter()
        .filter(|letter| letter.subject(&"rack-a".parse().unwrap()).as_deref() == Some("flux.msg.rack-a.it.late"));
    assert_eq!(late.count(), 1);
    third.kill().await;
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_another_configuration_leave_as_a_part_when_the_gear_begins() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (kept, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let first = Life::begin(&config(json!({"max": {"op": "max", "of": "data.v"}})), &bench, &kept);
    // The same but for where the value comes from.
    assert_eq!(first.deliver(1, (1, "a", 7)).await.unwrap(), Ok(()));
    first.kill().await;
    // Nothing comes to the next one.
    let second = Life::begin(&config(json!({"max": {"op": "max", "of": "data.w"}})), &bench, &kept);
    let left = taken_behind(&kept, &mut SpoolCursor::default(), 1).await;
    assert_eq!(results(&left), [(0, "a".into(), json!({"max": 7}))]);
    assert_eq!(
        Message::from_cbor(left[0].body()).unwrap().meta.get("window.partial"),
        Some(&json!(true))
    );
    second.stop().await;
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_aggregated_once_however_often_the_gear_is_killed() {
    let seed = getrandom::u64().unwrap();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (kept, thread) = outbox(&folder.path().join("outbox"), 4 << 20);
    let config = config(json!({"n": {"op": "count"}, "sum": {"op": "sum", "of": "data.v"}}));
    let keys = ["a", "b", "c", "d", "e"];
    // Times go back by less than the lateness.
    let given: Vec<(u64, &str, i64)> = (0..900_u64)
        .map(|number| {
            (
                number / 8 + rng.random_range(0..2),
                keys[rng.random_range(0..5)],
                rng.random_range(-9..10),
            )
        })
        .collect();
    let mut expected = BTreeMap::<(u64, String), (i64, i64)>::new();
    for (seconds, key, value) in &given {
        let sum = expected.entry((seconds / 10 * 10, (*key).to_owned())).or_default();
        *sum = (sum.0 + 1, sum.1 + value);
    }
    let mut next = 0;
    while next < given.len() {
        let life = Life::begin(&config, &bench, &kept);
        let deliver = |number: usize| life.deliver(number as u64 + 1, given[number]);
        let mut taken: Vec<_> = (next..given.len()).map(deliver).collect();
        let most = taken.len();
        let killed = taken.swap_remove(rng.random_range(0..most.min(300)));
        assert_eq!(killed.await.unwrap(), Ok(()));
        life.kill().await;
        kept.flush().await.unwrap();
        // The bus gives again what is not noted.
        next = usize::try_from(kept.committed_offset("taken wire").unwrap().number).unwrap();
    }
    let last = Life::begin(&config, &bench, &kept);
    let end = last.deliver(given.len() as u64 + 1, (1000, "z", 0));
    assert_eq!(end.await.unwrap(), Ok(()));
    let left = results(&taken_behind(&kept, &mut SpoolCursor::default(), expected.len()).await);
    let count = left.len();
    let made: BTreeMap<_, _> = left
        .into_iter()
        .map(|(start, key, data)| {
            (
                (start, key),
                (data["n"].as_i64().unwrap(), data["sum"].as_i64().unwrap()),
            )
        })
        .collect();
    assert_eq!((count, made), (expected.len(), expected));
    last.kill().await;
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_that_is_cut_off_while_the_outbox_is_full_leaves_its_windows_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (kept, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let mut cursor = SpoolCursor::default();
    let config = config(json!({"n": {"op": "count"}}));
    fill(&kept).await;
    let first = Life::begin(&config, &bench, &kept);
    // The second one ends the window of the first, whose result has no room.
    let before = [first.deliver(1, (1, "a", 0)), first.deliver(2, (40, "a", 0))];
    bench.says("it", "it is blocked on sending").await;
    let inbox = first.inbox.clone();
    first.kill().await;
    let second = Life::begin_with(inbox, &config, &bench, &kept);
    let third = second.deliver(3, (41, "a", 0));
    assert_eq!(
        results(&taken_behind(&kept, &mut cursor, 2).await[1..]),
        [(0, "a".into(), json!({"n": 1}))]
    );
    for taken in before.into_iter().chain([third, second.deliver(4, (100, "a", 0))]) {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_behind(&kept, &mut cursor, 1).await;
    assert_eq!(results(&left), [(40, "a".into(), json!({"n": 2}))]);
    second.kill().await;
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_wait_while_the_gear_waits_for_room_come_before_silence_closes_their_window() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (kept, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let mut cursor = SpoolCursor::default();
    let mut config = config(json!({"n": {"op": "count"}}));
    config["idle"] = "1ms".into();
    fill(&kept).await;
    let inbox = GearInbox::new();
    // The result of the first one's window has no room.
    let given = [(1, "a", 0), (40, "a", 0)];
    let before =
        [1, 2].map(|number: u64| deliver_to(&inbox, "in", number, of_second(number, given[number as usize - 1])));
    let life = Life::begin_with(inbox, &config, &bench, &kept);
    bench.says("it", "it is blocked on sending").await;
    let last = life.deliver(3, (41, "a", 0));
    taken_behind(&kept, &mut cursor, 2).await;
    for taken in before.into_iter().chain([last]) {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_behind(&kept, &mut cursor, 1).await;
    assert_eq!(results(&left), [(40, "a".into(), json!({"n": 2}))]);
    let meta = Message::from_cbor(left[0].body()).unwrap().meta;
    assert_eq!(meta.get("window.closed_by"), Some(&json!("idle")));
    life.kill().await;
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_hot_and_of_guaranteed_wires_are_of_the_same_windows() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (kept, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let mut cursor = SpoolCursor::default();
    let config = config(json!({"sum": {"op": "sum", "of": "data.v"}}));
    let inbox = GearInbox::new();
    let hot = |number, given| {
        let arrival = InboxMessage {
            port: "in",
            message: Ok(of_second(number, given)),
            receipt: None,
        };
        inbox.sender().try_send(arrival).unwrap();
    };
    hot(1, (1, "a", 1));
    let second = deliver_to(&inbox, "in", 2_u64, of_second(2, (2, "a", 10)));
    hot(3, (3, "a", 100));
    // A hot one ends the window, with the word that the second was taken.
    hot(4, (40, "b", 1_000));
    let first = Life::begin_with(inbox, &config, &bench, &kept);
    assert_eq!(second.await.unwrap(), Ok(()));
    assert_eq!(
        results(&taken_behind(&kept, &mut cursor, 1).await),
        [(0, "a".into(), json!({"sum": 111}))]
    );
    first.kill().await;
    let next = Life::begin(&config, &bench, &kept);
    assert_eq!(next.deliver(5, (100, "b", 0)).await.unwrap(), Ok(()));
    assert_eq!(
        results(&taken_behind(&kept, &mut cursor, 1).await),
        [(40, "b".into(), json!({"sum": 1_000}))]
    );
    next.kill().await;
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_a_gear_that_its_scenario_has_no_more_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let dir = folder.path().join("outbox");
    let (kept, thread) = outbox(&dir, 1 << 20);
    let life = Life::begin(&config(json!({"n": {"op": "count"}})), &bench, &kept);
    assert_eq!(life.deliver(1, (1, "a", 7)).await.unwrap(), Ok(()));
    life.stop().await;
    forget_windows(&kept, |gear| gear == "it").await;
    assert_eq!(kept.spool().checkpoints("window it ").len(), 1);
    forget_windows(&kept, |_| false).await;
    kept.flush().await.unwrap();
    assert!(kept.spool().checkpoints("window ").is_empty());
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
    let (kept, thread) = outbox(&dir, 1 << 20);
    assert!(kept.spool().checkpoints("window ").is_empty());
    assert_eq!(kept.committed_offset("taken wire").unwrap().number, 1);
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn the_state_is_written_when_messages_must_be_taken_and_not_with_each_flush() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (kept, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let spec = spec("window", &config(json!({"n": {"op": "count"}})), &["out"]);
    let (cx, _stop) = surroundings(&spec, &bench, &kept);
    let Ok(Gear::Passive(mut gear)) = build(&spec.config) else {
        panic!("window is passive")
    };
    for number in [1, 2] {
        let delivery = InputMessage {
            port: "in",
            message: of_second(number, (number, "a", 0)),
        };
        collect_output(DeliveryGuarantee::Again, gear.process(&cx, delivery))
            .await
            .0
            .unwrap();
    }
    let (_, made) = collect_output(DeliveryGuarantee::Again, gear.flush(&cx)).await;
    assert!(made.transaction.is_empty() && made.later.is_empty());
    assert_eq!(gear.unfinished(), Some(of_second(1, (1, "a", 0)).id));
    assert!(gear.wake_at().is_some());
    gear.finish_all();
    let (_, made) = collect_output(DeliveryGuarantee::Again, gear.flush(&cx)).await;
    let notes: Vec<_> = made.later.iter().map(|later| later.transaction.notes.len()).collect();
    assert_eq!((notes, gear.unfinished()), (vec![1], None));
    drop(cx);
    bench.close().await;
    drop(kept);
    assert!(thread.close(Duration::from_secs(10)).await);
}
