//! Every durable row is handed to the exporter, in order, until it is settled; the log keeps it until then.

mod histories;

use std::ops::RangeInclusive;

use durable_fs::fault_injection::{FaultInjector, FsOperation};
use tokio::task::JoinHandle;

use super::*;
use crate::{ExportMode, HealthIssue, LogEntry, LogFollower};

/// So much of the log is asked for at once.
const MUCH: u64 = 1 << 20;

fn bench(mode: ExportMode) -> Bench {
    let mut bench = Bench::new();
    bench.settings.export = mode;
    bench
}

async fn open(mode: ExportMode) -> (Bench, Arc<Engine>) {
    let bench = bench(mode);
    let engine = bench.open().await;
    (bench, engine)
}

/// With a log of a mebibyte, which only rows that nobody takes can fill.
async fn open_small_log(bench: &mut Bench) -> (Arc<Engine>, OtherSignals) {
    bench.settings.wal_max = ByteSize::mib(1);
    let engine = bench.open().await;
    let others = OtherSignals::pass(&engine);
    (engine, others)
}

/// Exports only, and has batches of two rows each, whose names come with it; the first one is settled.
async fn open_with_settled_batch() -> (Bench, Arc<Engine>, Vec<String>) {
    let (bench, engine) = open(ExportMode::Only).await;
    let sent = append_batches(&bench, &engine, 1..=3, 2).await;
    // The log keeps everything for the other signals, of which nobody takes any.
    let (follower, entries) = follow(&engine).await;
    follower.settle(entries[0].behind(2)).await.unwrap();
    (bench, engine, sent)
}

/// A follower, and what it is given first.
async fn follow(engine: &Engine) -> (LogFollower, Vec<LogEntry>) {
    let mut follower = engine.follow_log(Table::Logs).unwrap();
    let entries = follower.next(MUCH).await.unwrap();
    (follower, entries)
}

/// What a follower of the other signals does, of which nothing comes.
struct OtherSignals(Vec<JoinHandle<()>>);

impl OtherSignals {
    fn pass(engine: &Engine) -> Self {
        let pass = |table| {
            let mut follower = engine.follow_log(table).unwrap();
            tokio::spawn(async move {
                // The end of it is an error of the disk.
                if let Ok(found) = follower.next(MUCH).await {
                    panic!("{found:?}");
                }
            })
        };
        Self([Table::Traces, Table::Metrics].map(pass).into())
    }

    async fn stop(self) {
        for task in self.0 {
            task.abort();
            let _ = task.await;
        }
    }
}

/// Opens after a sudden end, whose last look into the log may still be under way.
async fn try_reopen(bench: &Bench) -> Result<Arc<Engine>, Error> {
    loop {
        match bench.try_open().await {
            Err(Error::Locked { .. }) => tokio::time::sleep(Duration::from_millis(2)).await,
            opened => return opened,
        }
    }
}

async fn reopen(bench: &Bench) -> Arc<Engine> {
    try_reopen(bench).await.unwrap()
}

fn names(entry: &LogEntry) -> Vec<String> {
    let rows = entry.rows.iter();
    let names = rows.flat_map(|batch| (0..batch.num_rows()).map(|row| row_json(batch, row)["message"].clone()));
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// The next `count` rows, settled one batch after another.
async fn take(follower: &mut LogFollower, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < count {
        for entry in follower.next(MUCH).await.unwrap() {
            taken.extend(names(&entry));
            follower.settle(entry.behind(entry.row_count())).await.unwrap();
        }
    }
    taken
}

async fn append(bench: &Bench, engine: &Engine, seq: u64, rows: usize) -> Vec<String> {
    let name = format!("{seq:04}");
    let times = vec![bench.now(); rows];
    let done = engine.append(batch(&name, &times, from_producer(seq))).await.unwrap();
    assert_eq!(done, stored(rows));
    (0..rows).map(|row| format!("{name}/{row}")).collect()
}

async fn append_batches(bench: &Bench, engine: &Engine, seqs: RangeInclusive<u64>, rows: usize) -> Vec<String> {
    let mut sent = Vec::new();
    for seq in seqs {
        sent.extend(append(bench, engine, seq, rows).await);
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_exports_nothing_has_no_follower_and_messages_never_have_one() {
    let (mut bench, engine) = open(ExportMode::Off).await;
    assert!(engine.follow_log(Table::Logs).is_none());
    engine.close().await.unwrap();
    bench.settings.export = ExportMode::Copy;
    let engine = bench.open().await;
    assert!(engine.follow_log(Table::Messages).is_none());
    assert!(engine.follow_log(Table::Logs).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_in_order_while_they_are_written_over_many_segments_that_are_reused() {
    let mut bench = bench(ExportMode::Copy);
    bench.ticks_every(Duration::from_millis(10));
    let (engine, others) = open_small_log(&mut bench).await;
    let mut follower = engine.follow_log(Table::Logs).unwrap();
    let writing = append_batches(&bench, &engine, 1..=300, 100);
    let (sent, taken) = tokio::join!(writing, take(&mut follower, 30_000));
    assert_eq!(taken, sent);
    assert!(
        stats(&engine).appended_bytes > 3 << 19,
        "more than the log can hold: {:?}",
        stats(&engine)
    );
    assert_eq!(messages(&engine.view()).len(), 30_000, "they are stored too");
    others.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_any_end_the_next_row_is_the_first_that_was_not_settled() {
    let (bench, engine) = open(ExportMode::Copy).await;
    let sent = append_batches(&bench, &engine, 1..=4, 5).await;
    let (follower, entries) = follow(&engine).await;
    assert_eq!(entries.len(), 4);
    let (first, others) = entries[1].clone().split_at(2);
    assert_eq!([names(&first), names(&others)].concat(), names(&entries[1]));
    assert_eq!(
        (first.end, others.position.row, others.end),
        (others.position, 2, entries[1].end)
    );
    // Two rows of the second batch.
    follower.settle(first.end).await.unwrap();
    drop((follower, engine));
    for orderly in [true, false, false] {
        let engine = reopen(&bench).await;
        let (_follower, entries) = follow(&engine).await;
        let found: Vec<String> = entries.iter().flat_map(names).collect();
        assert_eq!(found, sent[7..]);
        assert_eq!((entries[0].position.row, entries[0].row_count()), (2, 3));
        if orderly {
            engine.close().await.unwrap();
        }
    }
    // A position is never taken back.
    let engine = reopen(&bench).await;
    let (follower, entries) = follow(&engine).await;
    follower.settle(entries[1].behind(5)).await.unwrap();
    follower.settle(entries[0].behind(3)).await.unwrap();
    drop((follower, engine));
    let engine = reopen(&bench).await;
    let (_follower, entries) = follow(&engine).await;
    assert_eq!(names(&entries[0]), sent[15..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_log_blocks_appends_until_rows_are_settled_and_nothing_is_dropped() {
    for mode in [ExportMode::Copy, ExportMode::Only] {
        let mut bench = bench(mode);
        let (engine, others) = open_small_log(&mut bench).await;
        let (mut sent, mut seq) = (Vec::new(), 0);
        let refused = loop {
            seq += 1;
            let one = batch(&format!("{seq:04}"), &[bench.now(); 200], from_producer(seq));
            match engine.append_within(one, Duration::from_millis(100)).await {
                Ok(_) => sent.extend((0..200).map(|row| format!("{seq:04}/{row}"))),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::Busy { .. }), "{refused}");
        let waiting = {
            let engine = Arc::clone(&engine);
            let one = batch("waiting", &[bench.now()], from_producer(seq + 1));
            tokio::spawn(async move { engine.append(one).await })
        };
        until("the log is full", || {
            matches!(engine.health_issue(), Some(HealthIssue::WalFull { .. }))
        })
        .await;
        if mode == ExportMode::Copy {
            // That everything is in files does not release it.
            engine.flush().await.unwrap();
            assert_eq!(stats(&engine).memtable_rows, 0);
        }
        assert!(!waiting.is_finished(), "{mode:?}");
        let mut follower = engine.follow_log(Table::Logs).unwrap();
        sent.push("waiting/0".to_owned());
        assert_eq!(take(&mut follower, sent.len()).await, sent, "{mode:?}");
        assert_eq!(waiting.await.unwrap().unwrap(), stored(1));
        until("the log is not full", || engine.health_issue().is_none()).await;
        others.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_that_is_only_exported_is_kept_nowhere_and_stored_once_for_ever() {
    let mut bench = bench(ExportMode::Only);
    let (engine, others) = open_small_log(&mut bench).await;
    let mut follower = engine.follow_log(Table::Logs).unwrap();
    for seq in 1..=120 {
        let sent = append(&bench, &engine, seq, 200).await;
        assert_eq!(take(&mut follower, 200).await, sent);
    }
    engine.flush().await.unwrap();
    let after = stats(&engine);
    assert_eq!((after.memtable_rows, after.memtable_bytes, after.files), (0, 0, 0));
    assert_eq!(messages(&engine.view()), [""; 0]);
    assert!(bench.tree().is_empty(), "{:?}", bench.tree());
    assert!(after.appended_bytes > after.wal_max_bytes, "{after:?}");
    others.stop().await;
    drop((follower, engine));
    let engine = reopen(&bench).await;
    assert_eq!(floor(&engine), 120);
    let others = OtherSignals::pass(&engine);
    for seq in [1, 60, 120] {
        let again = batch(&format!("{seq:04}"), &[bench.now(); 200], from_producer(seq));
        assert_eq!(engine.append(again).await.unwrap(), AppendOutcome::Duplicate, "{seq}");
    }
    let sent = append(&bench, &engine, 121, 3).await;
    assert_eq!(
        take(&mut engine.follow_log(Table::Logs).unwrap(), 3).await,
        sent,
        "and nothing else"
    );
    others.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_wait_for_their_export_are_stored_when_it_is_switched_off() {
    let (mut bench, engine, sent) = open_with_settled_batch().await;
    engine.close().await.unwrap();
    drop(engine);
    bench.settings.export = ExportMode::Off;
    let engine = reopen(&bench).await;
    assert_eq!(messages(&engine.view()), sent[2..]);
    engine.close().await.unwrap();
    drop(engine);
    // Switched on again it begins with what comes from then on.
    bench.settings.export = ExportMode::Copy;
    let engine = reopen(&bench).await;
    let new = append(&bench, &engine, 4, 1).await;
    assert_eq!(take(&mut engine.follow_log(Table::Logs).unwrap(), 1).await, new);
    assert_eq!(messages(&engine.view()), [&sent[2..], &new[..]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_collector_has_is_not_stored_by_any_start_after_the_switch() {
    for (mode, orderly) in [
        (ExportMode::Off, false),
        (ExportMode::Off, true),
        (ExportMode::Copy, false),
    ] {
        let (mut bench, engine, sent) = open_with_settled_batch().await;
        drop(engine);
        bench.settings.export = mode;
        for start in 0..3 {
            let engine = reopen(&bench).await;
            assert_eq!(messages(&engine.view()), sent[2..], "{mode:?}, start {start}");
            if orderly {
                engine.close().await.unwrap();
            }
        }
        // And back: what is stored stays, what comes is only exported.
        bench.settings.export = ExportMode::Only;
        let engine = reopen(&bench).await;
        append(&bench, &engine, 4, 1).await;
        drop(engine);
        assert_eq!(messages(&reopen(&bench).await.view()), sent[2..], "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_after_the_switch_that_cannot_flush_what_is_kept_fails_and_the_next_one_stores_it_once() {
    let (mut bench, engine, sent) = open_with_settled_batch().await;
    drop(engine);
    bench.settings.export = ExportMode::Off;
    let faults = FaultInjector::below(bench.dir.path());
    for part in [".twin", ".sealing"] {
        faults.fail(FsOperation::Create, part, usize::MAX / 4, libc::ENOSPC);
    }
    let refused = try_reopen(&bench).await.unwrap_err();
    assert!(refused.to_string().contains("No space left"), "{refused}");
    drop(faults);
    for start in 0..2 {
        let engine = reopen(&bench).await;
        assert_eq!(messages(&engine.view()), sent[2..], "start {start}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_rows_of_before_are_stored_when_telemetry_is_only_exported_from_now_on() {
    let (mut bench, engine) = open(ExportMode::Off).await;
    let before = append(&bench, &engine, 1, 3).await;
    drop(engine);
    bench.settings.export = ExportMode::Only;
    for _ in 0..2 {
        let engine = reopen(&bench).await;
        assert_eq!(messages(&engine.view()), before);
    }
    let engine = reopen(&bench).await;
    let new = append(&bench, &engine, 2, 1).await;
    assert_eq!(take(&mut engine.follow_log(Table::Logs).unwrap(), 1).await, new);
    engine.close().await.unwrap();
    assert_eq!(messages(&bench.open().await.view()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_of_rows_of_before_does_not_count_for_those_that_only_wait_in_the_log() {
    let (mut bench, engine) = open(ExportMode::Off).await;
    let mut sent = append(&bench, &engine, 1, 3).await;
    drop(engine);
    bench.settings.export = ExportMode::Only;
    let engine = reopen(&bench).await;
    sent.extend(append(&bench, &engine, 2, 2).await);
    engine.flush().await.unwrap();
    assert_eq!(stats(&engine).memtable_rows, 0);
    assert_eq!(messages(&engine.view()), sent[..3]);
    drop(engine);
    bench.settings.export = ExportMode::Off;
    for _ in 0..2 {
        assert_eq!(messages(&reopen(&bench).await.view()), sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_what_is_settled_until_that_is_synced() {
    let mut bench = bench(ExportMode::Only);
    let faults = FaultInjector::below(&bench.settings.store_dir);
    let (engine, others) = open_small_log(&mut bench).await;
    let mut follower = engine.follow_log(Table::Logs).unwrap();
    faults.fail(FsOperation::SyncFile, "export_cursors", usize::MAX, libc::EIO);
    let mut seq = 0;
    // What is settled while no sync succeeds frees nothing.
    loop {
        seq += 1;
        let one = batch(&format!("{seq:04}"), &[bench.now(); 200], from_producer(seq));
        if engine.append_within(one, Duration::from_millis(400)).await.is_err() {
            break;
        }
        let entries = loop {
            // A sync that fails before the wait for rows is said, too.
            if let Ok(found) = follower.next(MUCH).await {
                break found;
            }
        };
        let _ = follower.settle(entries[0].behind(200)).await;
    }
    assert!(
        follower
            .settle(crate::ArrivalPosition { lsn: 1, row: 0 })
            .await
            .is_err()
    );
    drop(faults);
    let one = batch(&format!("{seq:04}"), &[bench.now(); 200], from_producer(seq));
    let appending = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.append(one).await })
    };
    // The other signals' followers gave up at the failed syncs.
    others.stop().await;
    let others = OtherSignals::pass(&engine);
    assert_eq!(take(&mut follower, 200).await.len(), 200);
    assert_eq!(appending.await.unwrap().unwrap(), stored(200));
    others.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_cannot_be_read_is_an_error_and_never_passed_over() {
    let (bench, engine) = open(ExportMode::Only).await;
    let sent = append(&bench, &engine, 1, 2).await;
    append(&bench, &engine, 2, 2).await;
    let wal = files_below(&bench.settings.store_dir.join("wal"));
    let segment = wal
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "log"))
        .unwrap();
    let whole = std::fs::read(segment).unwrap();
    let mut damaged = whole.clone();
    // In the first frame, behind the segment's header and its own.
    damaged[4096 + 60] ^= 1;
    std::fs::write(segment, &damaged).unwrap();
    let mut follower = engine.follow_log(Table::Logs).unwrap();
    for _ in 0..2 {
        let refused = follower.next(MUCH).await.unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    }
    std::fs::write(segment, &whole).unwrap();
    assert_eq!(names(&follower.next(MUCH).await.unwrap()[0]), sent);
}
