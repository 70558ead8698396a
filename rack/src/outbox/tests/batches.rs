//! Messages that leave together: one bus message of several, of which each is taken by itself.

use model::message::Message;

use super::sending::send;
use super::*;

fn message(n: u8, raw: usize) -> Message {
    crate::gears::testing::message(n, serde_json::Value::Null, &vec![n; raw])
}

/// Has these leave by a port each, together.
async fn leave_together(outbox: &MessageOutbox, messages: &[(&'static str, Message)]) {
    let leaving = messages.iter().map(|(port, message)| OutgoingMessage {
        gear: "tail".parse().unwrap(),
        port,
        body: message.to_cbor().unwrap(),
    });
    let whole = OutboxTransaction {
        leaving: leaving.collect(),
        ..OutboxTransaction::default()
    };
    outbox.commit(whole, AdmissionClass::Producer, None).await.unwrap();
}

/// The subject, the first number and the messages of everything on the stream, once there are so many bus messages.
async fn on_stream(bus: &BusConnection, count: u64) -> Vec<(String, u64, String, usize)> {
    let stream = until("all are on the stream", async || {
        let stream = bus.js.get_stream(STREAM).await.ok()?;
        (stream.cached_info().state.messages == count).then_some(stream)
    });
    let stream = stream.await;
    let mut all = Vec::new();
    for sequence in 1..=count {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let header = |name| message.headers.get(name).unwrap().as_str().to_owned();
        let number = PortSequenceNumber::parse(&header(telemetry_codec::PLACE))
            .unwrap()
            .number;
        let items = model::message::MessageSequence::new(message.payload.clone());
        assert!(items.into_iter().all(|(_, read)| read.is_ok()));
        let items = model::message::MessageSequence::new(message.payload.clone()).count();
        all.push((
            message.subject.to_string(),
            number,
            header(telemetry_codec::CONTENT_TYPE),
            items,
        ));
    }
    all
}

impl Receiver {
    /// The first byte of the next message's body.
    async fn next_message(&self) -> (u8, DeliveryReceipt) {
        let mut receiver = self.inbox.receiver.lock().await;
        let next = tokio::time::timeout(PATIENCE, receiver.recv()).await;
        let InboxMessage { message, receipt, .. } = next.unwrap().unwrap();
        (message.unwrap().raw[0], receipt.unwrap())
    }
}

#[tokio::test]
async fn messages_of_a_port_that_leave_together_are_one_bus_message_up_to_a_size() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, _counters, _thread) = send(dir.path(), &bus, &cancel);
    let small = |port, n| (port, message(n, 10));
    leave_together(
        &outbox,
        &[small("out", 1), small("err", 2), small("out", 3), small("out", 4)],
    )
    .await;
    leave_together(&outbox, &[small("out", 5)]).await;
    let large = |n| ("out", message(n, 14_000));
    leave_together(
        &outbox,
        &[
            large(6),
            large(7),
            large(8),
            ("out", message(9, 100_000)),
            small("out", 10),
        ],
    )
    .await;
    let sent = |port: &str, number, items| {
        let content_type = if items == 1 {
            "application/cbor"
        } else {
            "application/cbor-seq"
        };
        (
            format!("flux.msg.rack-a.tail.{port}"),
            number,
            content_type.to_owned(),
            items,
        )
    };
    let wanted = [
        sent("out", 1, 3),
        sent("err", 1, 1),
        sent("out", 4, 1),
        sent("out", 5, 2),
        sent("out", 7, 1),
        sent("out", 8, 1),
        sent("out", 9, 1),
    ];
    assert_eq!(on_stream(&bus, 7).await, wanted);
    cancel.cancel();
}

#[tokio::test]
async fn of_a_batch_each_message_is_taken_by_itself_and_it_is_acknowledged_when_all_are() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (from, _counters, _thread) = send(&dir.path().join("from"), &bus, &cancel);
    let all: Vec<_> = (1..=5).map(|n| ("out", message(n, 10))).collect();
    leave_together(&from, &all).await;
    let (to, thread) = outbox(&dir.path().join("to"));
    let receiver = Receiver::of((Arc::clone(&to), thread), &bus);
    for n in 1..=2 {
        let (raw, receipt) = receiver.next_message().await;
        assert_eq!((raw, receipt.taken.place.number), (n, u64::from(n)));
        receiver.take(receipt).await;
    }
    to.flush().await.unwrap();
    let floor = async || consumer.get_info().await.unwrap().ack_floor.stream_sequence;
    assert_eq!(floor().await, 0, "three of it are not taken");
    receiver.stop.cancel();
    receiver.task.await.unwrap();
    assert!(receiver._thread.close(PATIENCE).await);
    drop(to);
    let receiver = Receiver::start(&dir.path().join("to"), &bus);
    for n in 3..=5 {
        let (raw, receipt) = receiver.next_message().await;
        assert_eq!((raw, receipt.taken.place.number), (n, u64::from(n)));
        receiver.take(receipt).await;
    }
    until("it is acknowledged", async || (floor().await == 1).then_some(())).await;
    receiver.end().await;
    cancel.cancel();
}

#[tokio::test]
async fn what_follows_a_message_of_somebody_else_makes_it_unreadable() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let receiver = Receiver::start(dir.path(), &bus);
    let both = [message(1, 3), message(2, 3)]
        .map(|message| message.to_cbor().unwrap())
        .concat();
    bus.js
        .publish(SUBJECT, both.clone().into())
        .await
        .unwrap()
        .await
        .unwrap();
    let mut inbox = receiver.inbox.receiver.lock().await;
    let next = tokio::time::timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert_eq!(next.message.unwrap_err().body, both);
    drop(inbox);
    receiver.end().await;
}

#[tokio::test]
async fn a_note_of_a_wire_never_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, thread) = outbox(dir.path());
    let key: Arc<str> = format!("{TAKEN}{CONSUMER} {SUBJECT} {BOX}").into();
    for number in [7, 3] {
        let key = Arc::clone(&key);
        let place = place(number);
        let whole = OutboxTransaction {
            notes: vec![ConsumerOffset { key, place }.into_checkpoint()],
            ..OutboxTransaction::default()
        };
        let (done, durable) = oneshot::channel();
        outbox
            .commit(whole, AdmissionClass::Consumer, Some(done))
            .await
            .unwrap();
        durable.await.unwrap().unwrap();
    }
    assert_eq!(outbox.committed_offset(&key), Some(place(7)));
    assert!(thread.close(PATIENCE).await);
}
