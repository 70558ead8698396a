//! A followed file whose lines leave by a guaranteed wire, on a real outbox and through the gear's lives.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::message::Message;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gears::supervisor::supervise;
use crate::gears::testing::Bench;
use crate::gears::testing::held::{fill, outbox, spec, surroundings, taken_behind};
use crate::outbox::MessageOutbox;
use crate::spool::SpoolCursor;

/// A followed file.
struct Followed {
    folder: TempDir,
    path: PathBuf,
}

impl Followed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        Self { folder, path }
    }

    fn outbox(&self) -> PathBuf {
        self.folder.path().join("outbox")
    }

    fn write(&self, lines: impl IntoIterator<Item = u32>) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
    }
}

/// Lets the gear live, until it is stopped.
fn live(path: &Path, bench: &Bench, outbox: &std::sync::Arc<MessageOutbox>) -> (JoinHandle<()>, CancellationToken) {
    let spec = spec("file_tail", &json!({ "path": path, "poll_interval": "5ms" }), &["out"]);
    let (cx, stop) = surroundings(&spec, bench, outbox);
    (tokio::spawn(supervise(None, spec, cx, None)), stop)
}

/// The next lines that leave.
async fn lines(outbox: &MessageOutbox, cursor: &mut SpoolCursor, count: usize) -> Vec<u32> {
    let letters = tokio::time::timeout(Duration::from_secs(30), taken_behind(outbox, cursor, count)).await;
    let letters = letters.map_err(|_| "a line never left").unwrap();
    let line = |body: &[u8]| String::from_utf8(Message::from_cbor(body).unwrap().raw).unwrap();
    letters
        .iter()
        .map(|letter| line(letter.body()).parse().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_wait_for_room_when_the_gear_is_cut_off_leave_once() {
    let followed = Followed::new();
    let bench = Bench::open(followed.folder.path());
    let (outbox, thread) = outbox(&followed.outbox(), 8_000);
    fill(&outbox).await;
    followed.write(1..=3);
    let (life, _stop) = live(&followed.path, &bench, &outbox);
    // It reads the lines, and none of them is admitted.
    let left = tokio::time::timeout(Duration::from_millis(500), async {
        let reader = outbox.spool().reader();
        while reader.read(&mut SpoolCursor::default(), 1 << 20).unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    });
    left.await.unwrap_err();
    life.abort();
    assert!(life.await.unwrap_err().is_cancelled());

    let (life, stop) = live(&followed.path, &bench, &outbox);
    followed.write(4..=5);
    let mut cursor = SpoolCursor::default();
    let filler = taken_behind(&outbox, &mut cursor, 1).await;
    assert_eq!(filler.len(), 1, "it stands alone");
    assert_eq!(lines(&outbox, &mut cursor, 5).await, [1, 2, 3, 4, 5]);
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_leave_once_over_gear_restarts_without_telemetry() {
    let followed = Followed::new();
    let bench = Bench::open_with(followed.folder.path(), false);
    let (outbox, thread) = outbox(&followed.outbox(), 1 << 20);
    let mut cursor = SpoolCursor::default();
    for first in [1, 4, 7] {
        followed.write(first..first + 3);
        let (life, stop) = live(&followed.path, &bench, &outbox);
        assert_eq!(lines(&outbox, &mut cursor, 3).await, [first, first + 1, first + 2]);
        stop.cancel();
        life.await.unwrap();
    }
    assert_eq!(bench.rows(model::Table::Logs).len(), 0);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
