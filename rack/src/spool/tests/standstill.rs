//! A writer that stands still is seen, and one that works or has nothing to do is not taken for one.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_goes_round_answers_and_one_that_stands_still_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (handle, thread, _) = open(folder.path(), roomy(), clock_at(0), SpoolKind::Telemetry).unwrap();
    // It has nothing to do.
    handle.wait_for_writer();
    let before = segments(folder.path()).len();

    let goes_on = Arc::new(AtomicBool::new(false));
    let index = Arc::clone(&handle.0.index);
    let asking = tokio::task::block_in_place(|| {
        let held = index.lock();
        // It is taken from the queue, and then the index is needed.
        tokio::runtime::Handle::current().block_on(async { handle.submit(batch(b"x", None), None).await.unwrap() });
        while !handle.0.inbox.lock().pending.is_empty() {
            std::thread::yield_now();
        }
        let (asks, known) = (handle.clone(), Arc::clone(&goes_on));
        let asking = std::thread::spawn(move || {
            asks.wait_for_writer();
            known.load(Ordering::SeqCst)
        });
        while handle.0.inbox.lock().pending.is_empty() && !asking.is_finished() {
            std::thread::yield_now();
        }
        goes_on.store(true, Ordering::SeqCst);
        drop(held);
        asking
    });
    assert!(asking.join().unwrap(), "it came back while the writer stood still");
    assert_eq!(segments(folder.path()).len(), before, "nothing is written for it");
    assert!(thread.close(Duration::from_secs(10)).await);
    handle.wait_for_writer();
}
