//! Appends that are withdrawn while they wait for room: they are not stored, then or later.

use super::group_commit::HeldCommitter;
use super::*;

const PATIENCE: Duration = Duration::from_millis(300);

/// A full log whose rows cannot be published, until [`FullLog::allow_publishing`].
struct FullLog {
    bench: Bench,
    engine: Arc<Engine>,
    /// That were stored.
    fillers: usize,
}

impl FullLog {
    async fn new() -> Self {
        let mut bench = Bench::new();
        bench.settings.wal_max = ByteSize::mib(1);
        let engine = bench.open().await;
        std::fs::write(bench.settings.data_dir.join("logs"), "").unwrap();
        let mut fillers = 0;
        // Where there is no room for many rows there may be some for one.
        for rows in [100, 1] {
            loop {
                let free = engine.shared.admission.room.available_permits();
                if give_up(
                    &engine,
                    batch("filler", &vec![bench.now(); rows], BatchOrigin::default()),
                )
                .await
                .is_none()
                {
                    let given_back = || engine.shared.admission.room.available_permits() == free;
                    until("the memory of what was given up is given back", given_back).await;
                    break;
                }
                fillers += rows;
                assert!(fillers < 40_000, "the log is never full");
            }
        }
        let full = Self { bench, engine, fillers };
        assert_eq!(full.others(), [""; 0]);
        full
    }

    fn row(&self, name: &str, origin: BatchOrigin) -> AppendBatch {
        batch(name, &[self.bench.now()], origin)
    }

    /// Begins to append a row, which waits.
    async fn wait_in_queue(
        &self,
        name: &str,
        origin: BatchOrigin,
    ) -> tokio::task::JoinHandle<Result<AppendOutcome, Error>> {
        let (engine, one) = (Arc::clone(&self.engine), self.row(name, origin));
        let before = engine.shared.admission.room.available_permits();
        let waiting = tokio::spawn(async move { engine.append(one).await });
        until("it waits", || {
            self.engine.shared.admission.room.available_permits() < before
        })
        .await;
        waiting
    }

    fn allow_publishing(&self) {
        let _ = std::fs::remove_file(self.bench.settings.data_dir.join("logs"));
    }

    /// Makes room, and stores a row in it.
    async fn make_room(&self) {
        self.allow_publishing();
        let marker = self.row("marker", BatchOrigin::default());
        assert_eq!(self.engine.append(marker).await.unwrap(), stored(1));
    }

    /// The messages that are neither filler nor marker.
    fn others(&self) -> Vec<String> {
        let all = messages(&self.engine.view());
        let fillers = all.iter().filter(|message| message.starts_with("filler")).count();
        assert_eq!(fillers, self.fillers, "a filler that was given up is not stored");
        let others = all.into_iter();
        others
            .filter(|message| !message.starts_with("filler") && message != "marker/0")
            .collect()
    }
}

/// Appends a batch, and drops the append if it is not done soon.
async fn give_up(engine: &Engine, batch: AppendBatch) -> Option<Result<AppendOutcome, Error>> {
    tokio::time::timeout(PATIENCE, engine.append(batch)).await.ok()
}

fn is_busy(answer: &Result<AppendOutcome, Error>) -> bool {
    matches!(answer, Err(error @ Error::Busy { .. }) if error.kind() == crate::ErrorKind::Busy)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_given_up_in_a_full_log_is_not_stored_later_and_a_retry_stores_it_once() {
    let full = FullLog::new().await;
    let late = || full.row("late", BatchOrigin::default());
    assert!(give_up(&full.engine, late()).await.is_none());
    full.make_room().await;
    assert_eq!(full.others(), [""; 0]);
    assert_eq!(full.engine.append(late()).await.unwrap(), stored(1));
    assert_eq!(full.others(), ["late/0"]);
    full.engine.close().await.unwrap();
    let again = full.bench.open().await;
    assert_eq!(messages(&again.view()).len(), full.fillers + 2, "over a restart too");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_refused_by_a_full_log_leaves_no_trace() {
    let full = FullLog::new().await;
    let engine = &full.engine;
    let free = engine.shared.admission.room.available_permits();
    let committed = engine.shared.rows.state.lock().committed;
    for n in 0..5 {
        let answer = engine
            .append_within(full.row(&format!("busy {n}"), from_producer(n + 1)), PATIENCE)
            .await;
        assert!(is_busy(&answer), "{answer:?}");
        let says = answer.unwrap_err().to_string();
        assert!(says.contains("not stored"), "{says}");
    }
    let given_back = || engine.shared.admission.room.available_permits() == free;
    until("their memory is given back, in a log that is still full", given_back).await;
    until("nobody waits any more", || !engine.shared.log_is_full()).await;
    full.make_room().await;
    assert_eq!(
        engine.shared.rows.state.lock().committed,
        committed + 1,
        "the marker follows"
    );
    assert_eq!((full.others(), floor(engine)), (vec![], 0));
    let retry = engine
        .append_within(full.row("busy 0", from_producer(1)), PATIENCE)
        .await;
    assert_eq!(retry.unwrap(), stored(1));
    assert_eq!((full.others(), floor(engine)), (vec!["busy 0/0".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_of_an_append_that_was_withdrawn_is_stored_and_not_called_a_duplicate() {
    let full = FullLog::new().await;
    let original = full.wait_in_queue("original", from_producer(1)).await;
    let repetition = full.wait_in_queue("repetition", from_producer(1)).await;
    original.abort();
    assert!(original.await.unwrap_err().is_cancelled());
    full.allow_publishing();
    assert_eq!(repetition.await.unwrap().unwrap(), stored(1));
    assert_eq!(full.others(), ["repetition/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn patience_is_measured_over_the_wait_for_memory_too() {
    let mut bench = Bench::new();
    bench.settings.hot_max = ByteSize::mib(1);
    let engine = bench.open().await;
    std::fs::write(bench.settings.data_dir.join("logs"), "").unwrap();
    let mut count = 0;
    loop {
        let filler = batch("filler", &vec![bench.now(); 100], BatchOrigin::default());
        let answer = engine.append_within(filler, PATIENCE).await;
        if is_busy(&answer) {
            break;
        }
        assert_eq!(answer.unwrap(), stored(100));
        count += 100;
    }
    assert_eq!(messages(&engine.view()).len(), count);
    std::fs::remove_file(bench.settings.data_dir.join("logs")).unwrap();
    engine.flush().await.unwrap();
    engine
        .append(batch("marker", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    assert_eq!(messages(&engine.view()).len(), count + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_is_being_written_when_patience_ends_gets_its_true_answer() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let committer = HeldCommitter::of(&engine, || ());
    let appending = {
        let (engine, now) = (Arc::clone(&engine), bench.now());
        // Where the machine is slow its patience ends before the committer has taken it: then it is sent once more.
        tokio::spawn(async move {
            loop {
                let one = batch("a", &[now], BatchOrigin::default());
                let answer = engine.append_within(one, Duration::from_millis(20)).await;
                if !is_busy(&answer) {
                    return answer;
                }
            }
        })
    };
    committer.wait_until_taken();
    let queued = engine
        .append_within(batch("b", &[bench.now()], BatchOrigin::default()), PATIENCE)
        .await;
    assert!(is_busy(&queued), "{queued:?}");
    assert!(!appending.is_finished(), "its patience has long ended");
    committer.release();
    assert_eq!(appending.await.unwrap().unwrap(), stored(1));
    engine
        .append(batch("c", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    assert_eq!(messages(&engine.view()), ["a/0", "c/0"]);
}
