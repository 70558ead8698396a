//! What begins anew: a gear whose outbox waits for room, a bus that lost what it accepted last.

use tempfile::TempDir;

use super::sending::{landed, landed_through, leave, once, send, wait_for_acks};
use super::*;

impl BusServer {
    /// Restarts it; what it has on the disk then.
    async fn restart(&mut self) -> TempDir {
        self.end("TERM");
        let copy = tempfile::tempdir().unwrap();
        copy_folder(&self.store(), &copy.path().join("jetstream"));
        (self.child, _) = Self::spawn(self.dir.path(), i32::from(self.port), "").await;
        copy
    }

    /// Kills it; what it has then is what it once had, and a message that somebody else has sent for each that it lost.
    async fn go_back_to(&mut self, copy: &TempDir, lost: usize) {
        self.end("KILL");
        std::fs::remove_dir_all(self.store()).unwrap();
        copy_folder(&copy.path().join("jetstream"), &self.store());
        let port = self.port;
        (self.child, self.port) = Self::spawn(self.dir.path(), -1, "").await;
        let bus = self.connect().await;
        for _ in 0..lost {
            let sent = bus.js.publish("flux.msg.other.gear.out", "other".into());
            sent.await.unwrap().await.unwrap();
        }
        self.end("TERM");
        self.port = port;
        (self.child, _) = Self::spawn(self.dir.path(), i32::from(self.port), "").await;
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("jetstream")
    }

    fn end(&mut self, signal: &str) {
        let mut kill = Command::new("kill");
        let kill = kill.arg("-s").arg(signal).arg(self.child.id().to_string());
        assert!(kill.status().unwrap().success());
        self.child.wait().unwrap();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

impl Receiver {
    /// Its gear is left out of the scenario, and comes back with another inbox.
    async fn begins_anew(self, bus: &BusConnection) -> Self {
        self.stop.cancel();
        self.task.await.unwrap();
        Self::of((self.outbox, self._thread), bus)
    }
}

#[tokio::test]
async fn an_acknowledgement_is_durable_on_a_full_outbox_and_not_redelivered_after_a_restart() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make(&bus, -1).await;
    let receiver = Receiver::of(outbox_of(dir.path(), 8_000), &bus);
    leave(&receiver.outbox, 7_900).await;
    receiver.outbox.flush().await.unwrap();
    let full = receiver.outbox.spool().status().waiting_bytes;
    assert!(full > 7_900);
    publish(&bus, Some(1), "one").await;
    let (text, receipt) = receiver.next().await;
    assert_eq!(text, "one");
    receiver.take(receipt).await;
    let receiver = receiver.begins_anew(&bus).await;
    publish(&bus, Some(2), "two").await;
    assert_eq!(receiver.take_next().await, "two");
    until("the bus hears of both", async || {
        let info = consumer.get_info().await.unwrap();
        (info.num_ack_pending == 0 && info.num_pending == 0).then_some(())
    })
    .await;
    assert!(
        receiver.outbox.spool().status().waiting_bytes >= full,
        "nothing left it"
    );
    receiver.end().await;
}

#[tokio::test]
async fn a_bus_that_lost_what_it_accepted_last_gets_it_again_before_anything_new() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for _ in 1..=2 {
        leave(&outbox, 10).await;
    }
    landed(&bus, 2).await;
    let copy = server.restart().await;
    for _ in 3..=5 {
        leave(&outbox, 10).await;
    }
    landed(&bus, 5).await;
    wait_for_acks(&counters, 5).await;
    server.go_back_to(&copy, 3).await;
    leave(&outbox, 10).await;
    let all = landed_through(&bus, 6).await;
    assert_eq!(once(&all), [1, 2, 3, 4, 5, 6], "{all:?}");
    cancel.cancel();
}
