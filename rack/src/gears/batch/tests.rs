//! `batch` in a real runtime, and on a real outbox.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use gear_spec::batch::BatchFormat;
use serde_json::json;
use tokio::sync::oneshot;

use super::super::output_transaction::collect_output;
use super::super::supervisor::{HELD_BYTES, HELD_MOST, supervise};
use super::super::testing::held::{deliver_to, deliver_what_came, outbox, spec, surroundings, taken_from};
use super::super::testing::{Bench, Flow, message};
use super::*;
use crate::inbox::{GearInbox, UndecodableMessage};
use crate::outbox::OutboxRecord;
use crate::spool::RecordingError;

#[test]
fn every_format_writes_values_texts_and_bytes_as_it_says() {
    let messages = [
        message(1, json!({"a": [1, "x\n"]}), b"left out"),
        message(2, Value::Null, b"say \"hi\"\n"),
        message(3, Value::Null, b""),
    ];
    for (format, separator, expected) in [
        (
            BatchFormat::Ndjson,
            "",
            "{\"a\":[1,\"x\\n\"]}\n\"say \\\"hi\\\"\\n\"\n\"\"\n",
        ),
        (
            BatchFormat::JsonArray,
            "",
            "[{\"a\":[1,\"x\\n\"]},\"say \\\"hi\\\"\\n\",\"\"]",
        ),
        (BatchFormat::Concatenated, "", "{\"a\":[1,\"x\\n\"]}say \"hi\"\n"),
        (BatchFormat::Concatenated, "--", "{\"a\":[1,\"x\\n\"]}--say \"hi\"\n--"),
    ] {
        let mut body = BatchBody::new(format, separator);
        for message in &messages {
            let part = part_of(format, message).unwrap();
            let with = body.len_with(&part);
            body.add(&part);
            assert!(body.len() <= with, "{format:?}");
        }
        let len = body.len();
        let bytes = body.into_bytes();
        assert_eq!(
            (String::from_utf8(bytes.clone()).unwrap().as_str(), bytes.len()),
            (expected, len)
        );
    }
    let bytes = message(1, Value::Null, b"\xff");
    assert_eq!(part_of(BatchFormat::Concatenated, &bytes).unwrap(), b"\xff");
    assert!(
        part_of(BatchFormat::Ndjson, &bytes)
            .unwrap_err()
            .to_string()
            .contains("put a codec before")
    );
}

fn gears(messages: &str, batch: &str) -> String {
    format!(
        "
  - {{ name: feed, type: test_feed, deploy: rack-a, config: {{ messages: [ {messages} ] }} }}
  - {{ name: batch, type: batch, deploy: rack-a, config: {{ max_age: 24h, {batch} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    )
}

const WIRES: &str = "{ from: feed.out, to: batch.in }, { from: batch.out, to: sink.in }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_leaves_when_it_is_full_and_what_is_open_leaves_at_the_stop() {
    let messages = "{ data: 1, meta: { who: ann } }, { data: 2 }, { hex: ff }, { raw: x }, { data: 4 }, { data: 5 }";
    let flow = Flow::run(&gears(messages, "max_messages: 2"), WIRES).await;
    let rows = flow.rows("sink");
    let texts: Vec<_> = rows.iter().map(|row| row["message"].as_str().unwrap()).collect();
    assert_eq!(texts, ["1\n2\n", "\"x\"\n4\n", "5\n"]);
    let facts = &rows[0]["attributes"];
    assert_eq!(
        (&facts["who"], &facts["content_type"], &facts["batch.messages"]),
        (&json!("ann"), &json!("application/x-ndjson"), &json!(2))
    );
    assert!(facts["batch.first_ts"].as_str() <= facts["batch.last_ts"].as_str() && facts["batch.first_ts"].is_string());
    let spans = flow.spans(rows[0]["flux_id"].as_str().unwrap());
    assert_eq!(spans, ["test_feed feed", "batch batch", "log_sink sink"]);
    assert!(flow.says("batch", "the body is neither a value nor UTF-8 text"));
    assert_eq!(flow.counter("batch", "gear.messages.dropped"), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_larger_than_a_batch_leaves_alone_and_in_its_place() {
    let long = "y".repeat(20);
    let messages = format!("{{ raw: a }}, {{ raw: b }}, {{ raw: {long} }}, {{ raw: c }}, {{ raw: d }}, {{ raw: e }}");
    let batch = "format: concatenated, separator: '-', max_bytes: 5";
    let flow = Flow::run(&gears(&messages, batch), WIRES).await;
    let rows = flow.rows("sink");
    let texts: Vec<_> = rows.iter().map(|row| row["message"].as_str().unwrap()).collect();
    assert_eq!(texts, ["a-b", long.as_str(), "c-d-e"]);
    assert_eq!(rows[0]["attributes"].get("content_type"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waits_long_enough_leaves_though_nothing_comes() {
    let gears = gears("{ data: 1 }, { data: 2 }", "format: json_array").replace("24h", "20ms");
    let mut flow = Flow::start(&gears, WIRES).await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    let all: Vec<i64> = flow
        .texts("sink")
        .iter()
        .flat_map(|text| serde_json::from_str::<Vec<i64>>(text).unwrap())
        .collect();
    assert_eq!(all, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_has_a_batch_and_the_oldest_makes_room() {
    let messages = "{ data: { k: a, n: 1 } }, { data: { k: b, n: 2 } }, { data: { k: a, n: 3 } }, { data: { k: c, n: 4 } }, { data: { n: 5 } }";
    let flow = Flow::run(&gears(messages, "format: json_array, key: data.k, max_keys: 2"), WIRES).await;
    let rows = flow.rows("sink");
    let batches: Vec<_> = rows
        .iter()
        .map(|row| (row["attributes"]["batch.key"].as_str().unwrap(), &row["message"]))
        .collect();
    assert_eq!(
        batches,
        [
            ("a", &json!(r#"[{"k":"a","n":1},{"k":"a","n":3}]"#)),
            ("b", &json!(r#"[{"k":"b","n":2}]"#)),
            ("c", &json!(r#"[{"k":"c","n":4}]"#)),
        ]
    );
    assert!(flow.says("batch", "a message was refused: key: No such key: k"));
}

type Receipt = oneshot::Receiver<Result<(), RecordingError>>;

fn deliver(inbox: &GearInbox, numbers: std::ops::Range<u64>) -> Vec<Receipt> {
    let of = |number| deliver_to(inbox, "in", number, numbered(number));
    numbers.map(of).collect()
}

fn numbered(number: u64) -> Message {
    let mut message = message(0, number.into(), b"");
    message.id = MessageId::at(message.ts.plus(Duration::from_millis(number)), [0; 10]);
    message
}

fn numbers(letters: &[OutboxRecord]) -> Vec<Vec<u64>> {
    let body = |letter: &OutboxRecord| serde_json::from_slice(&Message::from_cbor(letter.body()).unwrap().raw).unwrap();
    letters.iter().map(body).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_batch_that_never_left_come_again_and_those_of_one_that_did_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let config = json!({"format": "json_array", "max_messages": 2, "max_age": "24h"});
    let (spec, inbox) = (spec("batch", &config, &["out"]), GearInbox::new());
    let mut taken = deliver(&inbox, 1..4);
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec.clone(), cx, Some(inbox)));
    let open = taken.pop().unwrap();
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    // Killed: what its inbox had is gone with it.
    life.abort();
    life.await.unwrap_err();
    assert!(open.await.is_err(), "the third message was not taken");
    assert_eq!(outbox.committed_offset("taken wire").unwrap().number, 2);

    let inbox = GearInbox::new();
    let taken = deliver(&inbox, 3..6);
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken.into_iter().take(2) {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    stop.cancel();
    life.await.unwrap();
    let left = taken_from(&outbox, 3).await;
    assert_eq!(numbers(&left), [vec![1, 2], vec![3, 4], vec![5]]);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_larger_than_a_gear_may_hold_leaves_before_it_is_full_and_nothing_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8 << 20);
    let config = json!({"format": "json_array", "max_messages": 100_000, "max_age": "24h", "key": "data % 3", "max_bytes": 100_000});
    let (spec, inbox) = (spec("batch", &config, &["out"]), GearInbox::new());
    let most = HELD_MOST as u64;
    let taken = deliver(&inbox, 0..most);
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let taken = deliver(&inbox, most..most + 10);
    stop.cancel();
    life.await.unwrap();
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let batches = numbers(&taken_from(&outbox, 6).await);
    let expected = |range: std::ops::Range<u64>, key| range.filter(|number| number % 3 == key).collect::<Vec<_>>();
    for (at, batch) in batches.iter().enumerate() {
        let range = if at < 3 { 0..most } else { most..most + 10 };
        assert_eq!(*batch, expected(range, batch[0] % 3), "{at}");
    }
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_batches_leave_when_as_many_bytes_are_held_as_may_be_also_of_what_a_batch_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 16 * HELD_BYTES as u64);
    let config = json!({"format": "concatenated", "max_age": "24h", "key": "flux_id", "max_bytes": 2 << 20});
    let (spec, inbox) = (spec("batch", &config, &["out"]), GearInbox::new());
    let body = vec![b'x'; HELD_BYTES / 8];
    let taken = (1..=8_u8).map(|number| deliver_to(&inbox, "in", number, message(number, number.into(), &body)));
    let taken: Vec<_> = taken.collect();
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    assert_eq!(taken_from(&outbox, 8).await.len(), 8);
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

/// Runs a gear over what is in its inbox until all of that is taken; says what left.
async fn left_of(config: &Value, inbox: GearInbox, taken: Vec<Receipt>, count: usize) -> Vec<OutboxRecord> {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8 << 20);
    let spec = spec("batch", config, &["out"]);
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_from(&outbox, count).await;
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_batch_leaves_when_what_is_behind_it_is_rejected_or_unreadable_and_no_more_may_be_held() {
    let inbox = GearInbox::new();
    let mut taken = deliver(&inbox, 1..2);
    for number in 2..=HELD_MOST as u64 {
        let came = if number % 2 == 0 {
            Ok(message(0, Value::Null, b"\xff"))
        } else {
            Err(UndecodableMessage {
                reason: "it is not a message".into(),
                body: "x".into(),
            })
        };
        taken.push(deliver_what_came(&inbox, "in", number, came));
    }
    let config = json!({"format": "json_array", "max_age": "24h"});
    let left = left_of(&config, inbox, taken, HELD_MOST).await;
    assert_eq!(numbers(&left[..1]), [[1]]);
    assert!(left[1..].iter().all(|letter| letter.number().is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_left_counts_for_nothing_and_batches_are_full() {
    let inbox = GearInbox::new();
    let taken = deliver(&inbox, 0..1000);
    let config = json!({"format": "json_array", "max_messages": 500, "max_age": "24h"});
    let batches = numbers(&left_of(&config, inbox, taken, 2).await);
    assert_eq!(batches, [(0..500).collect::<Vec<u64>>(), (500..1000).collect()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_a_hop_left_is_a_dead_letter_and_its_batch_leaves_without_it() {
    let inbox = GearInbox::new();
    let mut spent = numbered(2);
    spent.hops = 64;
    let taken = vec![
        deliver_to(&inbox, "in", 1_u64, numbered(1)),
        deliver_to(&inbox, "in", 2_u64, spent),
        deliver_to(&inbox, "in", 3_u64, numbered(3)),
    ];
    let config = json!({"format": "json_array", "max_messages": 2, "max_age": "24h"});
    let (dead, left): (Vec<_>, Vec<_>) = left_of(&config, inbox, taken, 2)
        .await
        .into_iter()
        .partition(|letter| letter.number().is_none());
    assert_eq!((dead.len(), numbers(&left)), (1, vec![vec![1, 3]]));
}

#[tokio::test]
async fn a_batch_leaves_for_all_its_messages_and_those_of_open_ones_are_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let config = json!({"max_messages": 2, "key": "data % 2", "max_age": "24h"});
    let spec = spec("batch", &config, &["out"]);
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let Ok(Gear::Passive(mut gear)) = build(&spec.config) else {
        panic!("batch is passive")
    };
    for number in [2, 1, 3] {
        let delivery = InputMessage {
            port: "in",
            message: numbered(number),
        };
        let (done, made) = collect_output(DeliveryGuarantee::Again, gear.process(&cx, delivery)).await;
        assert!(done.is_ok() && made.transaction.is_empty());
    }
    let (flushed, made) = collect_output(DeliveryGuarantee::Again, gear.flush(&cx)).await;
    assert!(flushed.is_ok() && made.transaction.is_empty());
    let of: Vec<_> = made
        .later
        .iter()
        .map(|later| (later.first, later.last, later.transaction.leaving.len()))
        .collect();
    assert_eq!(of, [(numbered(1).id, numbered(3).id, 1)]);
    assert_eq!(gear.unfinished(), Some(numbered(2).id));
    drop(cx);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
