//! How much of what waits for a gear an inlet holds.

use super::*;

/// Publishes a message with a body of so many bytes and some.
async fn publish_large(bus: &BusConnection, number: u64, padding: usize) {
    let mut headers = HeaderMap::new();
    headers.insert(telemetry_codec::PLACE, place(number).to_string());
    let body = format!("{number} {}", "x".repeat(padding));
    let sent = bus.js.publish_with_headers(SUBJECT, headers, body.into());
    sent.await.unwrap().await.unwrap();
}

/// Takes so many messages, which come in order and once.
async fn take_all(receiver: &Receiver, count: u64) {
    for number in 1..=count {
        let text = receiver.take_next().await;
        assert_eq!(text.split(' ').next().unwrap().parse(), Ok(number));
    }
}

#[tokio::test]
async fn what_is_at_a_slow_gear_is_bounded_in_bytes() {
    const COUNT: u64 = 60;
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make(&bus, -1).await;
    for number in 1..=COUNT {
        publish_large(&bus, number, 1_000_000).await;
    }
    let receiver = Receiver::start(dir.path(), &bus);
    let queued = || receiver.inbox.sender().max_capacity() - receiver.inbox.sender().capacity();
    until("as much is at the gear as may be", async || {
        (queued() >= 16).then_some(())
    })
    .await;
    for _ in 0..50 {
        consumer.get_info().await.unwrap();
        assert!(queued() <= 17, "{} MB", queued());
    }
    take_all(&receiver, COUNT).await;
    receiver.end().await;
}

#[tokio::test]
async fn a_message_from_when_the_bus_took_larger_ones_holds_up_no_other() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    server.restart_with("max_payload: 32MB").await;
    let bus = server.connect().await;
    make(&bus, -1).await;
    publish_large(&bus, 1, 20_000_000).await;
    server.restart_with("max_payload: 1MB").await;
    let bus = server.connect().await;
    publish_large(&bus, 2, 10).await;
    let receiver = Receiver::start(dir.path(), &bus);
    take_all(&receiver, 2).await;
    receiver.end().await;
}
