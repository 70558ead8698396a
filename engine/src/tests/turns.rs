//! Appenders who commit themselves, beside the thread that does.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// What a first look at an append comes to: done, where its appender committed.
fn looked_at(engine: &Engine, batch: Batch) -> Poll<Result<Appended, Error>> {
    pin!(engine.append(batch)).poll(&mut Context::from_waker(Waker::noop()))
}

/// The same on a thread that no runtime knows.
fn at_once(engine: &Arc<Engine>, batch: Batch) -> Poll<Result<Appended, Error>> {
    let engine = Arc::clone(engine);
    std::thread::spawn(move || looked_at(&engine, batch)).join().unwrap()
}

/// How often an appender committed.
fn led(engine: &Engine) -> u64 {
    engine.turns.led.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_alone_with_a_few_rows_has_committed_when_the_call_returns() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let now = bench.now();
    for seq in 1..=20 {
        let one = batch(&format!("{seq:02}"), &[now], from_producer(seq));
        // The thread may be at it: it marks, or lets segments of the log go.
        match at_once(&engine, one) {
            Poll::Ready(answer) => assert_eq!(answer.unwrap(), stored(1)),
            Poll::Pending => until("it is stored", || stats(&engine).appended_batches == seq).await,
        }
        assert_eq!(messages(&engine.view()).len(), seq as usize);
        let again = engine.append(batch("again", &[now], from_producer(seq))).await;
        assert_eq!(again.unwrap(), Appended::Duplicate);
    }
    assert!(led(&engine) > 5, "{}", led(&engine));
    let before = led(&engine);
    let large = batch("z", &vec![now; 2_000], from_producer(21));
    assert!(large.payload.len() > 64 << 10);
    let _ = at_once(&engine, large);
    assert_eq!(led(&engine), before, "the thread has the large ones");
    until("it is stored", || stats(&engine).appended_batches == 21).await;
    drop(engine);
    let engine = bench.open().await;
    assert_eq!((messages(&engine.view()).len(), floor(&engine)), (2_020, 21));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_an_appender_commits_is_committed_after_it() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let (one, two) = (
        batch("1", &[bench.now()], from_producer(1)),
        batch("2", &[bench.now()], from_producer(2)),
    );
    until("the thread waits", || engine.shared.intake.is_idle()).await;
    // The first one is held where it is judged.
    let marks = engine.shared.marks.lock();
    let first = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || looked_at(&engine, one))
    };
    let end = Instant::now() + Duration::from_secs(20);
    while led(&engine) == 0 || engine.shared.intake.len() > 0 {
        assert!(Instant::now() < end, "nobody commits the first one");
        std::thread::yield_now();
    }
    assert!(at_once(&engine, two).is_pending());
    drop(marks);
    assert!(first.join().unwrap().is_ready());
    until("the second one is stored", || stats(&engine).appended_batches == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_a_runtime_never_waits_for_the_disk() {
    let bench = Bench::new();
    let engine = bench.open().await;
    for seq in 1..=20 {
        let one = batch("a", &[bench.now()], from_producer(seq));
        let _ = looked_at(&engine, one);
        until("it is stored", || stats(&engine).appended_batches == seq).await;
    }
    assert_eq!(led(&engine), 0);
    assert_eq!(messages(&engine.view()).len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_appender_does_not_wait_for_room_in_the_log() {
    let mut bench = Bench::new();
    bench.settings.wal_max = ByteSize::mib(1);
    let engine = bench.open().await;
    // Nothing can be published, so the log stays full.
    let table_dir = bench.settings.data_dir.join("logs");
    std::fs::write(&table_dir, "").unwrap();
    let (mut seq, mut waits) = (0, 0);
    while waits < 3 {
        seq += 1;
        let some = batch(&format!("{seq:05}"), &vec![bench.now(); 100], from_producer(seq));
        if at_once(&engine, some).is_ready() {
            continue;
        }
        if engine.shared.log_is_full() {
            waits += 1;
        } else {
            let all = || stats(&engine).appended_batches == seq || engine.shared.log_is_full();
            until("it is stored or waits", all).await;
            waits += u64::from(stats(&engine).appended_batches < seq);
        }
        assert!(seq < 400, "the log is never full");
    }
    assert_eq!(stats(&engine).appended_batches, seq - waits);
    std::fs::remove_file(&table_dir).unwrap();
    until("what waited is stored", || stats(&engine).appended_batches == seq).await;
    assert_eq!(messages(&engine.view()).len(), 100 * seq as usize);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(
        (messages(&engine.view()).len(), floor(&engine)),
        (100 * seq as usize, seq)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_from_many_threads_and_tasks_are_stored_once_and_a_close_between_them_is_clean() {
    let bench = Bench::new();
    for round in 0..6u64 {
        let engine = bench.open().await;
        let before = messages(&engine.view()).len();
        let handle = tokio::runtime::Handle::current();
        let threads: Vec<_> = (0..6u64)
            .map(|number| {
                let (engine, handle, now) = (Arc::clone(&engine), handle.clone(), bench.now());
                std::thread::spawn(move || {
                    let mut kept = 0;
                    for at in 0..40 {
                        let seq = 1 + at + 40 * (number + 6 * round);
                        let one = batch(&format!("{seq:05}"), &[now], from_producer(seq));
                        let answer = if number < 3 {
                            handle.block_on(engine.append(one))
                        } else {
                            block_on(engine.append(one))
                        };
                        match answer {
                            Ok(answer) => assert_eq!(answer, stored(1)),
                            Err(error) => {
                                assert!(matches!(error, Error::Closed), "{error}");
                                return kept;
                            }
                        }
                        kept += 1;
                    }
                    kept
                })
            })
            .collect();
        if round % 2 == 1 {
            until("some are stored", || stats(&engine).appended_batches > 20 * (round % 3)).await;
            engine.close().await.unwrap();
        }
        let kept: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(messages(&engine.view()).len(), before + kept, "round {round}");
        assert!(kept > 0 && (round % 2 == 1 || kept == 240), "{kept}");
    }
}

/// Waits for a future on this thread, as a program without a runtime would.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_is_opened_again_while_somebody_still_holds_it() {
    let bench = Bench::new();
    let mut closed = Vec::new();
    for seq in 1..=10 {
        let engine = bench.open().await;
        let one = batch("a", &[bench.now()], from_producer(seq));
        assert_eq!(engine.append(one).await.unwrap(), stored(1));
        engine.close().await.unwrap();
        assert!(engine.turns.has_ended(), "the log has no owner any more");
        closed.push(engine);
    }
    assert_eq!(messages(&bench.open().await.view()).len(), 10);
}
