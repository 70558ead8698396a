//! Many messages that wait for earlier ones, and how much of them an inlet holds.

use super::*;

/// What the Mixer gives a consumer.
const AT_ONCE: i64 = 65_536;

/// The stream, and the consumer of a wire that begins at a group of Racks.
async fn make_for_all(bus: &Bus, ack_wait: Duration) -> PullConsumer {
    make_waiting(bus, -1, ack_wait).await;
    let stream = bus.js.get_stream(STREAM).await.unwrap();
    stream.delete_consumer(CONSUMER).await.unwrap();
    let config = consumer::pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        filter_subject: "flux.msg.*.tail.out".to_owned(),
        ack_wait,
        max_ack_pending: AT_ONCE,
        ..consumer::pull::Config::default()
    };
    stream.get_or_create_consumer(CONSUMER, config).await.unwrap()
}

/// Publishes a message of one of these Racks, of which no number had landed when it was sent.
async fn publish_of(bus: &Bus, rack: usize, number: u64, padding: usize) {
    let mut headers = HeaderMap::new();
    headers.insert(wire::PLACE, Place { outbox: BOX, number }.to_string());
    headers.insert(wire::LANDED, "0");
    let body = format!("{rack} {number} {}", "x".repeat(padding));
    let subject = format!("flux.msg.rack-{rack}.tail.out");
    let sent = bus.js.publish_with_headers(subject, headers, body.into());
    sent.await.unwrap().await.unwrap();
}

/// Takes so many messages of each of these Racks, which come in order and once.
async fn take_all(receiver: &Receiver, racks: usize, each: u64) {
    let mut last = BTreeMap::new();
    for _ in 0..racks as u64 * each {
        let text = receiver.take_next().await;
        let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
        let (rack, number) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
        let last = last.entry(rack).or_insert(0);
        *last += 1;
        assert_eq!(number, *last, "of rack-{rack}");
    }
}

/// Each Rack's first message lies behind all others, which wait for it.
async fn the_first_ones_come_last(racks: usize, each: u64, padding: usize) {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make_for_all(&bus, LONG_ACK_WAIT).await;
    for rack in 0..racks {
        for number in 2..=each {
            publish_of(&bus, rack, number, padding).await;
        }
    }
    let receiver = Receiver::start(dir.path(), &bus);
    until("all were delivered", async || {
        let info = consumer.get_info().await.unwrap();
        (info.num_pending == 0).then_some(())
    })
    .await;
    for rack in 0..racks {
        publish_of(&bus, rack, 1, padding).await;
    }
    let start = tokio::time::Instant::now();
    take_all(&receiver, racks, each).await;
    assert!(
        start.elapsed() < LONG_ACK_WAIT / 2,
        "it was waited for what is not in work"
    );
    until("nothing is outstanding", async || {
        let info = consumer.get_info().await.unwrap();
        (info.num_ack_pending == 0 && info.num_pending == 0).then_some(())
    })
    .await;
    receiver.end().await;
}

#[tokio::test]
async fn messages_that_all_wait_for_earlier_ones_do_not_keep_those_away() {
    the_first_ones_come_last(20, 64, 0).await;
}

#[tokio::test]
async fn messages_that_wait_and_are_more_than_there_is_memory_for_come_when_it_is_their_turn() {
    the_first_ones_come_last(4, 64, 100_000).await;
}

#[tokio::test]
async fn what_is_at_a_slow_gear_is_bounded_in_bytes() {
    const COUNT: u64 = 60;
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make_for_all(&bus, ACK_WAIT).await;
    for number in 1..=COUNT {
        publish_of(&bus, 0, number, 1_000_000).await;
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
    take_all(&receiver, 1, COUNT).await;
    receiver.end().await;
}

#[tokio::test]
async fn a_message_from_when_the_bus_took_larger_ones_holds_up_no_other() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    server.restart_with("max_payload: 32MB").await;
    let bus = server.connect().await;
    make_for_all(&bus, ACK_WAIT).await;
    publish_of(&bus, 0, 1, 20_000_000).await;
    server.restart_with("max_payload: 1MB").await;
    let bus = server.connect().await;
    publish_of(&bus, 0, 2, 10).await;
    let receiver = Receiver::start(dir.path(), &bus);
    take_all(&receiver, 1, 2).await;
    receiver.end().await;
}
