//! Group commit by the committer's thread.

use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

use super::*;

/// Holds the committer where it has taken a group and not written it yet; the first group only.
pub(super) struct HeldCommitter {
    taken: Arc<Barrier>,
    released: Arc<Barrier>,
}

impl HeldCommitter {
    /// `then` happens to the first group when it is let go.
    pub(super) fn of(engine: &Engine, then: fn()) -> Self {
        let barrier = || Arc::new(Barrier::new(2));
        let held = Self {
            taken: barrier(),
            released: barrier(),
        };
        let (taken, released) = (Arc::clone(&held.taken), Arc::clone(&held.released));
        let is_first = AtomicBool::new(true);
        engine.shared.hooks.before_write.is(move || {
            if is_first.swap(false, Ordering::Relaxed) {
                taken.wait();
                released.wait();
                then();
            }
        });
        held
    }

    pub(super) fn wait_until_taken(&self) {
        tokio::task::block_in_place(|| self.taken.wait());
    }

    pub(super) fn release(&self) {
        tokio::task::block_in_place(|| self.released.wait());
    }
}

/// Appends of one row each, each in a task of its own.
fn send(bench: &Bench, engine: &Arc<Engine>, seq: u64) -> tokio::task::JoinHandle<Result<AppendOutcome, Error>> {
    let (engine, one) = (Arc::clone(engine), batch("a", &[bench.now()], from_producer(seq)));
    tokio::spawn(async move { engine.append(one).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_that_come_while_a_group_is_written_share_the_next_sync() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let committer = HeldCommitter::of(&engine, || ());
    let mut sent = vec![send(&bench, &engine, 1)];
    committer.wait_until_taken();
    sent.extend((2..=41).map(|seq| send(&bench, &engine, seq)));
    until("40 appends are queued", || engine.shared.admission.queue.len() == 40).await;
    committer.release();
    for appended in sent {
        assert_eq!(appended.await.unwrap().unwrap(), stored(1));
    }
    let stats = stats(&engine);
    assert_eq!((stats.fsyncs, stats.appended_batches), (2, 41));
}

#[tokio::test(flavor = "multi_thread")]
async fn watermarks_agree_with_rows_that_are_read_after_them() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let looking = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || {
            loop {
                let marks = engine.shared.watermarks.lock();
                let marked = marks.floor(EntityId::for_name("rack-a"), 1);
                let committed = engine.shared.rows.state.lock().committed;
                drop(marks);
                assert_eq!(marked, committed);
                if committed == 300 {
                    return;
                }
            }
        })
    };
    // The sequence of each is its LSN too.
    for seq in 1..=300 {
        assert_eq!(send(&bench, &engine, seq).await.unwrap().unwrap(), stored(1));
    }
    tokio::task::block_in_place(|| looking.join()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_committer_poisons_the_store_and_every_append_is_answered() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let committer = HeldCommitter::of(&engine, || panic!("a defect"));
    let mut sent = vec![send(&bench, &engine, 1)];
    committer.wait_until_taken();
    sent.extend((2..=9).map(|seq| send(&bench, &engine, seq)));
    until("8 appends are queued", || engine.shared.admission.queue.len() == 8).await;
    committer.release();
    for answer in sent {
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Err(Error::Poisoned { .. })), "{answer:?}");
    }
    assert!(engine.poisoned().await.contains("panic"));
    assert!(matches!(
        send(&bench, &engine, 10).await.unwrap(),
        Err(Error::Poisoned { .. })
    ));
    assert!(matches!(engine.close().await, Err(Error::Poisoned { .. })));
    assert!(messages(&bench.open().await.view()).is_empty());
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
        closed.push(engine);
    }
    assert_eq!(messages(&bench.open().await.view()).len(), 10);
}
