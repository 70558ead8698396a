//! What begins anew: a gear whose outbox waits for room.

use model::control::DurableFloor;

use super::*;

impl Receiver {
    /// Its gear is left out of the scenario, and comes back with another inbox.
    async fn begins_anew(self, bus: &Bus) -> Self {
        self.stop.cancel();
        self.task.await.unwrap();
        Self::of((self.outbox, self._thread), bus)
    }
}

#[tokio::test]
async fn what_was_handled_and_waits_for_room_in_the_outbox_is_not_given_to_a_gear_that_begins_anew() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make(&bus, -1).await;
    let receiver = Receiver::of(outbox_of(dir.path(), 8_000), &bus);
    publish(&bus, Some(1), "one").await;
    let (text, receipt) = receiver.next().await;
    assert_eq!(text, "one");
    // The first has a place, the second waits for one, and behind it waits that the message was taken.
    leave(&receiver.outbox, 7_000).await;
    receiver.outbox.settled().await.unwrap();
    leave(&receiver.outbox, 7_000).await;
    receiver.take(receipt).await;
    let key = receiver.outbox.notes.lock().keys().next().cloned().unwrap();
    assert_eq!(receiver.outbox.taken(&key), None, "nothing is durable");
    let receiver = receiver.begins_anew(&bus).await;
    publish(&bus, Some(2), "two").await;
    let (text, receipt) = receiver.next().await;
    assert_eq!(text, "two");
    receiver.take(receipt).await;
    let outbox = &receiver.outbox;
    outbox.spool().settle([DurableFloor {
        entity_id: EntityId::for_name("rack-a"),
        boot_epoch: outbox.spool().boot_epoch(),
        seq: 1,
    }]);
    until("the bus hears of both", async || {
        let info = consumer.get_info().await.unwrap();
        (info.num_ack_pending == 0 && info.num_pending == 0).then_some(())
    })
    .await;
    assert_eq!(outbox.taken(&key).map(|place| place.number), Some(2));
    receiver.end().await;
}
