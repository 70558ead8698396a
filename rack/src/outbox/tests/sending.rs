//! In which order a Rack's messages are on the stream, through rejections, kills and losses of the bus.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::message_limits::MessageLimits;
use crate::telemetry::{SpoolPublisher, SpoolPublisherParts, TelemetryCounters};

/// A sending Rack.
pub(super) fn send(
    dir: &Path,
    bus: &BusConnection,
    cancel: &CancellationToken,
) -> (Arc<MessageOutbox>, Arc<TelemetryCounters>, SpoolThread) {
    let (outbox, thread) = outbox(dir);
    let counters = Arc::new(TelemetryCounters::default());
    let (_, identity) = watch::channel(outbox.identity.borrow().clone());
    let sender = SpoolPublisher::new(SpoolPublisherParts {
        spool: outbox.spool().clone(),
        bus: bus.clone(),
        identity,
        counters: Arc::clone(&counters),
        clock: Clock::new(|| chrono::Utc::now().into()),
        lane: Some((
            GuaranteedLane {
                outbox: Arc::clone(&outbox),
                bus: bus.clone(),
                stream: STREAM.to_owned(),
            },
            MessageLimits::new(64, 2 << 20),
        )),
        stall: Duration::from_secs(600),
        cancel: cancel.clone(),
    });
    tokio::spawn(sender.run());
    (outbox, counters, thread)
}

/// Has a message of so many bytes leave.
pub(super) async fn leave(outbox: &MessageOutbox, bytes: usize) {
    let leaving = OutgoingMessage {
        gear: "tail".parse().unwrap(),
        port: "out",
        body: vec![0; bytes],
    };
    let whole = OutboxTransaction {
        leaving: vec![leaving],
        ..OutboxTransaction::default()
    };
    outbox.commit(whole, AdmissionClass::Producer, None).await.unwrap();
}

/// The numbers on the stream in its order.
pub(super) async fn landed(bus: &BusConnection, count: usize) -> Vec<u64> {
    let stream = until("all are on the stream", async || {
        let stream = bus.js.get_stream(STREAM).await.ok()?;
        let state = stream.cached_info().state.clone();
        (state.messages >= count as u64).then_some(stream)
    })
    .await;
    let state = stream.cached_info().state.clone();
    let mut all = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        let Ok(message) = stream.get_raw_message(sequence).await else {
            continue;
        };
        if let Some(place) = message.headers.get(telemetry_codec::PLACE) {
            all.push(PortSequenceNumber::parse(place.as_str()).unwrap().number);
        }
    }
    all
}

/// The numbers on the stream once the last one is there.
pub(super) async fn landed_through(bus: &BusConnection, last: u64) -> Vec<u64> {
    until("the last one is on the stream", async || {
        let all = landed(bus, 0).await;
        all.contains(&last).then_some(all)
    })
    .await
}

/// What a receiver gives out of these: each once.
pub(super) fn once(numbers: &[u64]) -> Vec<u64> {
    let mut given = Vec::new();
    for number in numbers {
        if given.last().is_none_or(|last| number > last) {
            given.push(*number);
        }
    }
    given
}

/// Waits until the bus takes nothing of what is sent.
async fn only_tries(counters: &TelemetryCounters) {
    let read = || (counters.sent.load(Relaxed), counters.acked.load(Relaxed));
    until("the bus takes nothing", async || {
        let (sent, acked) = read();
        until("it was tried again", async || (read().0 >= sent + 3).then_some(())).await;
        (read().1 == acked).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_follows_a_refused_message_waits_for_it() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, 1_000_000).await;
    let fill = bus.js.publish("flux.msg.other.gear.out", vec![0u8; 700_000].into());
    fill.await.unwrap().await.unwrap();
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    leave(&outbox, 1_000).await;
    assert_eq!(landed(&bus, 2).await, [1]);
    // There is room for all but the second.
    leave(&outbox, 500_000).await;
    for _ in 3..=40 {
        leave(&outbox, 1_000).await;
    }
    only_tries(&counters).await;
    assert_eq!(landed(&bus, 2).await, [1], "nothing passes the refused one");
    let stream = bus.js.get_stream(STREAM).await.unwrap();
    stream.purge().filter("flux.msg.other.>").await.unwrap();
    assert_eq!(landed(&bus, 40).await, (1..=40).collect::<Vec<_>>());
    cancel.cancel();
}

#[tokio::test]
async fn what_the_stream_never_takes_leaves_as_a_dead_letter_and_holds_up_nothing() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    // The bus takes more than the stream.
    let config = stream::Config {
        subjects: vec!["flux.msg.>".to_owned(), "flux.gear.>".to_owned()],
        max_message_size: 10_000,
        ..bus.js.get_stream(STREAM).await.unwrap().cached_info().config.clone()
    };
    bus.js.update_stream(config).await.unwrap();
    let cancel = CancellationToken::new();
    let (outbox, _, _thread) = send(dir.path(), &bus, &cancel);
    for bytes in [50_000, 100, 100, 50_000, 100, 50_000] {
        leave(&outbox, bytes).await;
    }
    assert_eq!(landed(&bus, 6).await, [2, 3, 5]);
    let stream = bus.js.get_stream(STREAM).await.unwrap();
    let letter = stream
        .get_last_raw_message_by_subject("flux.gear.rack-a.tail")
        .await
        .unwrap();
    let reason = letter.headers.get(telemetry_codec::DEAD_REASON).unwrap().as_str();
    assert!(reason.starts_with("it is too large for the bus"), "{reason}");
    assert!(letter.payload.len() > 5_000, "{}", letter.payload.len());
    cancel.cancel();
}

#[tokio::test]
async fn a_stream_that_is_another_one_gets_all_that_the_mixer_does_not_have_before_anything_new() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for _ in 1..=3 {
        leave(&outbox, 10).await;
    }
    landed(&bus, 3).await;
    wait_for_acks(&counters, 3).await;
    server.lose_store().await;
    leave(&outbox, 10).await;
    until("the bus is back", async || bus.js.query_account().await.ok()).await;
    make(&bus, -1).await;
    assert_eq!(landed(&bus, 4).await, [1, 2, 3, 4]);
    cancel.cancel();
}

/// Waits until the sender has heard that so many are stored.
pub(super) async fn wait_for_acks(counters: &TelemetryCounters, count: u64) {
    until("the bus has acknowledged", async || {
        (counters.acked.load(Relaxed) >= count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bus_that_is_killed_while_much_is_on_its_way_has_all_of_it_in_order() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for round in 1..=5 {
        for _ in 0..2_000 {
            leave(&outbox, 200).await;
        }
        wait_for_acks(&counters, (round - 1) * 2_000 + 500).await;
        server.restart_with("").await;
    }
    let all = landed_through(&bus, 10_000).await;
    assert_eq!(once(&all), (1..=10_000).collect::<Vec<_>>());
    cancel.cancel();
}

#[tokio::test]
async fn a_damaged_entry_of_the_outbox_becomes_a_log_record_and_holds_up_nothing() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let telemetry = stream::Config {
        name: "flux-telemetry".to_owned(),
        subjects: vec!["flux.telemetry.>".to_owned()],
        allow_batch_publish: true,
        ..stream::Config::default()
    };
    let telemetry = bus.js.create_stream(telemetry).await.unwrap();
    // Segments of 64 KiB.
    let (before, thread) = outbox_of(dir.path(), 256 << 10);
    for _ in 1..=10 {
        leave(&before, 20_000).await;
        before.flush().await.unwrap();
    }
    assert!(thread.close(PATIENCE).await);
    drop(before);
    let segments = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = segments
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    segments.sort();
    assert!(segments.len() > 2, "{segments:?}");
    let mut bytes = std::fs::read(&segments[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&segments[1], bytes).unwrap();
    let cancel = CancellationToken::new();
    let (outbox, _, _thread) = send(dir.path(), &bus, &cancel);
    leave(&outbox, 10).await;
    let all = until("the new run's message", async || {
        let all = landed(&bus, 0).await;
        (all.len() > 1 && all.last() == Some(&1)).then_some(all)
    })
    .await;
    assert!(all.contains(&10) && all.len() < 11, "{all:?}");
    let records = telemetry.get_info().await.unwrap().state.messages;
    assert_eq!(records as usize, 11 - all.len(), "one for each that is lost");
    cancel.cancel();
}

#[tokio::test]
async fn few_large_messages_behind_a_small_one_wait_for_no_acknowledgement_that_never_comes() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    server.restart_with("max_payload: 8MB").await;
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for _ in 0..3 {
        leave(&outbox, 10).await;
        for _ in 0..6 {
            leave(&outbox, 1_500_000).await;
        }
    }
    wait_for_acks(&counters, 21).await;
    assert_eq!(landed(&bus, 21).await, (1..=21).collect::<Vec<_>>());
    assert_eq!(counters.sent.load(Relaxed), 21, "each was sent once");
    cancel.cancel();
}

#[tokio::test]
async fn the_places_of_an_outbox_grow_with_every_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let mut last = None;
    for _ in 0..3 {
        let (outbox, thread) = outbox(&path);
        for _ in 0..2 {
            let leaving = OutgoingMessage {
                gear: "tail".parse().unwrap(),
                port: "out",
                body: Vec::new(),
            };
            let batch = outbox.message_batches(vec![leaving]).pop().unwrap();
            let number = OutboxRecord::messages(batch, None).number().unwrap();
            let next = outbox.place(outbox.spool().boot_epoch(), number);
            assert!(
                last.is_none_or(|last| PortSequenceNumber::is_behind(last, next) && !next.is_behind(last)),
                "{next}"
            );
            last = Some(next);
        }
        assert!(thread.close(PATIENCE).await);
    }
    assert_eq!(last.map(|last| last.number), Some(2));
}
