//! What a gear that is cut off, or fails, leaves to its next life, on a real outbox.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use model::telemetry_codec;
use serde_json::json;

use super::*;
use crate::gears::stall_watchdog::watch;
use crate::gears::testing::Bench;
use crate::gears::testing::held::{deliver, fill, outbox, spec, surroundings, surroundings_with, taken_from};
use crate::message_limits::MessageLimits;

/// Messages that are delivered: several times what is settled at once, or waits for the outbox's writer.
const MESSAGES: u8 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_aborted_on_a_full_outbox_leaves_its_messages_to_its_restart() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let (spec, inbox) = (spec("test_loop", &json!({}), &["out"]), GearInbox::new());
    let taken: Vec<_> = (1..=MESSAGES)
        .map(|number| deliver(&inbox, number, &[number; 400]))
        .collect();
    fill(&outbox).await;
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let watching = tokio::spawn(watch(Arc::clone(&cx), Duration::from_millis(40)));
    let life = tokio::spawn(supervise(None, spec.clone(), cx, Some(inbox.clone())));
    bench.says("it", "it is blocked on sending").await;
    watching.abort();
    life.abort();
    assert!(life.await.unwrap_err().is_cancelled());

    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    let bodies = tokio::time::timeout(Duration::from_secs(30), taken_from(&outbox, 1 + usize::from(MESSAGES))).await;
    let left = bodies.map_err(|_| "something never left the outbox").unwrap();
    let bodies: Vec<u8> = left
        .iter()
        .skip(1)
        .map(|letter| Message::from_cbor(letter.body()).unwrap().raw[0])
        .collect();
    assert_eq!(bodies, (1..=MESSAGES).collect::<Vec<_>>(), "each once, in order");
    for taken in taken {
        assert_eq!(taken.await.map_err(|_| "it was forgotten"), Ok(Ok(())));
    }
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_that_waits_for_the_outbox_is_said_to_do_so() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let (spec, inbox) = (spec("test_loop", &json!({}), &["out"]), GearInbox::new());
    let taken: Vec<_> = (1..=MESSAGES)
        .map(|number| deliver(&inbox, number, &[number; 400]))
        .collect();
    fill(&outbox).await;
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let watching = tokio::spawn(watch(Arc::clone(&cx), Duration::from_millis(40)));
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    bench.says("it", "it is blocked on sending").await;
    taken_from(&outbox, 1 + usize::from(MESSAGES)).await;
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    stop.cancel();
    life.await.unwrap();
    watching.abort();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_of_one_half_of_a_gear_is_not_reported_for_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let spec = spec("test_duplex", &json!({}), &["out"]);
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let emit = || {
        let message = cx.make(None, model::Attributes::new(), vec![b'x'; 400]);
        cx.emit("out", message, None, std::time::Instant::now())
    };
    while tokio::time::timeout(Duration::from_secs(3), emit()).await.is_ok() {}
    tokio::select! {
        biased;
        () = run_watched(&cx, None, std::future::pending()) => {}
        _ = emit() => panic!("there is no room"),
        () = watch(Arc::clone(&cx), Duration::from_millis(40)) => {}
        said = bench.says("it", "the gear has been finishing") => assert!(said.contains("aborts it"), "{said}"),
    }
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

/// What a letter says of itself.
fn said(letter: &crate::outbox::OutboxRecord, name: &str) -> String {
    let mut headers = async_nats::HeaderMap::new();
    letter.write_headers(None, &mut headers);
    headers.get(name).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_outgrows_the_limit_at_a_gear_or_comes_beyond_it_is_a_dead_letter() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let twice = json!({ "set": { "twice": "text + text" } });
    let (spec, inbox) = (spec("map", &twice, &["out"]), GearInbox::new());
    let taken = [1200, 3000, 10].map(|size| {
        let number = u8::try_from(size % 251).unwrap();
        deliver(&inbox, number, &vec![b'x'; size])
    });
    let (cx, stop) = surroundings_with(&spec, &bench, &outbox, MessageLimits::new(64, 2000));
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_from(&outbox, 3).await;
    for (letter, (port, way, says)) in left.iter().zip([
        ("out", "out", "max_payload_size allows 2000"),
        ("in", "in", "2000 here"),
    ]) {
        assert_eq!(
            (
                said(letter, telemetry_codec::DEAD_PORT),
                said(letter, telemetry_codec::DEAD_WAY)
            ),
            (port.to_owned(), way.to_owned())
        );
        assert!(said(letter, telemetry_codec::DEAD_REASON).contains(says), "{letter:?}");
        assert!(Message::from_cbor(letter.body()).unwrap().size() > 2000);
    }
    assert_eq!(
        Message::from_cbor(left[2].body()).unwrap().data["twice"],
        "x".repeat(20)
    );
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_cut_off_counts_for_nothing_and_the_corrected_gear_gets_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    // It is connected to by the system, and nobody ever answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let to = |address| json!({ "url": format!("http://{address}"), "retry": { "count": 0 }, "timeout": "1h" });
    let inbox = GearInbox::new();
    let taken = deliver(&inbox, 1, b"one");
    let held = |inbox: &GearInbox| Arc::clone(&inbox.held);
    // Two attempts fail; the next ones are cut off, as by a scenario that replaces the gear.
    let refused = spec("http_out", &to(closed), &[]);
    let (cx, _stop) = surroundings(&refused, &bench, &outbox);
    let life = tokio::spawn(supervise(None, refused, cx, Some(inbox.clone())));
    bench.says("it", "it starts again in 200 ms").await;
    life.abort();
    life.await.unwrap_err();
    let failed = held(&inbox).lock().await[0].attempts;
    assert!(failed >= 2, "{failed}");
    let hangs = spec("http_out", &to(silent.local_addr().unwrap()), &[]);
    for _ in 0..PANICS {
        let (cx, _stop) = surroundings(&hangs, &bench, &outbox);
        let life = tokio::spawn(supervise(None, hangs.clone(), cx, Some(inbox.clone())));
        let (_begun, _) = silent.accept().await.unwrap();
        life.abort();
        life.await.unwrap_err();
    }
    assert_eq!(held(&inbox).lock().await[0].attempts, failed);
    let works = spec("test_loop", &json!({}), &["out"]);
    let (cx, stop) = surroundings(&works, &bench, &outbox);
    let life = tokio::spawn(supervise(None, works, cx, Some(inbox)));
    assert_eq!(taken.await.unwrap(), Ok(()));
    let left = taken_from(&outbox, 1).await;
    assert_eq!(
        left[0].subject(&"rack-a".parse().unwrap()).as_deref(),
        Some("flux.msg.rack-a.it.out")
    );
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_the_gear_panics_at_is_a_dead_letter_after_three_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let (spec, inbox) = (spec("test_panics", &json!({}), &[]), GearInbox::new());
    let taken = [&b"bad"[..], b"zero"].map(|body| deliver(&inbox, body[0], body));
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_from(&outbox, 1).await;
    assert_eq!(said(&left[0], telemetry_codec::DEAD_ATTEMPTS), "3");
    assert_eq!(said(&left[0], telemetry_codec::DEAD_REASON), "the gear panicked");
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_slow_gear_makes_leaves_when_it_is_made_and_not_in_bursts() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let (spec, inbox) = (
        spec("throttle", &json!({ "rate": 3, "burst": 1 }), &["out"]),
        GearInbox::new(),
    );
    let mut taken = (1..=30)
        .map(|number| deliver(&inbox, number, b"x"))
        .collect::<Vec<_>>()
        .into_iter();
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    assert_eq!(taken.next().unwrap().await.unwrap(), Ok(()));
    // All thirty take ten seconds.
    let early = taken_from(&outbox, 1).await.len();
    assert!(early < 30, "{early}");
    assert_eq!(taken.next_back().unwrap().await.unwrap(), Ok(()));
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_became_one_output_are_acknowledged_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 4 << 20);
    let config = json!({ "format": "concatenated", "max_messages": 2, "max_bytes": 1 << 20, "max_age": "24h", "key": "text.substring(0, 1)" });
    let (spec, inbox) = (spec("batch", &config, &["out"]), GearInbox::new());
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let Ok(Gear::Passive(mut gear)) = spec.kind.build(&spec.config) else {
        panic!("batch is passive")
    };
    let mut consumer = InboxConsumer {
        gear: gear.as_mut(),
        cx: &cx,
        held: inbox.held.lock().await,
    };
    let mut receiver = inbox.receiver.lock().await;
    let body = |key: &str| key.repeat(200 << 10).into_bytes();
    let mut taken = Vec::new();
    // The batch of b is full while the one of a, in its midst, is open.
    for (number, key) in (1..).zip(["b", "a", "b"]) {
        taken.push(deliver(&inbox, number, &body(key)));
        consumer.take(receiver.try_recv().unwrap()).await.unwrap();
    }
    consumer.settle().await.unwrap();
    assert_eq!((consumer.held.len(), outbox.submitted_offset("taken wire")), (3, None));
    taken.push(deliver(&inbox, 4, &body("a")));
    consumer.take(receiver.try_recv().unwrap()).await.unwrap();
    let flush = collect_output(DeliveryGuarantee::Again, consumer.gear.flush(&cx)).await;
    flush.0.unwrap();
    consumer.leave_flushed(flush.1).await;
    consumer.held.iter_mut().for_each(|held| held.is_flushed = true);
    assert_eq!(consumer.flushed().0, 4);
    consumer.commit_flushed().await;
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_from(&outbox, 2).await;
    let keys: Vec<u8> = left
        .iter()
        .map(|letter| Message::from_cbor(letter.body()).unwrap().raw[0])
        .collect();
    assert_eq!(keys, b"ba");
    drop((consumer, receiver));
    drop(cx);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
