//! What a gear that is cut off, or fails, leaves to its next life, on a real outbox.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::gears::testing::Bench;
use crate::gears::testing::held::{deliver, outbox, spec, surroundings, taken_from};

/// Messages that are delivered: several times what is settled at once, or waits for the outbox's writer.
const MESSAGES: u8 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_cut_off_while_the_outbox_is_full_leaves_what_it_holds_to_its_next_life() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let (spec, inbox) = (spec("test_loop", &serde_json::json!({}), &["out"]), Inbox::new());
    let taken: Vec<_> = (1..=MESSAGES)
        .map(|number| deliver(&inbox, number, &[number; 400]))
        .collect();
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec.clone(), cx, Some(inbox.clone())));
    // Nobody takes anything from the outbox: once there is no room, there is none.
    while tokio::time::timeout(Duration::from_millis(100), outbox.room())
        .await
        .is_ok()
    {}
    life.abort();
    assert!(life.await.unwrap_err().is_cancelled());

    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    let bodies = tokio::time::timeout(Duration::from_secs(30), taken_from(&outbox, MESSAGES.into())).await;
    let left = bodies.map_err(|_| "something never left the outbox").unwrap();
    let bodies: Vec<u8> = left
        .iter()
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
