//! A spool at its bound: it drops, or who submits waits.

use super::*;

#[test]
fn a_full_spool_drops_whole_oldest_segments_counts_their_rows_and_moves_settled() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(
        dir.path(),
        small(40_000, SpoolFullPolicy::DropOldest),
        clock_at(1),
        SpoolKind::Telemetry,
    )
    .unwrap();
    for n in 1..=200u64 {
        spool.append(&[batch(&[0; 1_000], None)]).map_err(|_| "append").unwrap();
        assert!(spool.index().lock().bytes() <= 40_000, "after {n}");
    }
    let all = sent(&spool);
    let first = all[0].1;
    assert!(first > 100 && first < 190, "{first}");
    assert_eq!(
        all.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>(),
        (first..=200).collect::<Vec<_>>()
    );
    let index = spool.index();
    assert_eq!(index.lock().dropped_rows, (first - 1) * 10);
    let run = ProducerRun {
        entity: rack(),
        epoch: spool.epoch(),
    };
    assert_eq!(index.lock().settled(run), first - 1);
}

#[test]
fn rows_that_the_mixer_has_are_not_counted_as_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(
        dir.path(),
        small(8_000, SpoolFullPolicy::DropOldest),
        clock_at(1),
        SpoolKind::Telemetry,
    )
    .unwrap();
    let epoch = spool.epoch();
    for n in 1..=50u64 {
        spool.append(&[batch(&[0; 500], None)]).map_err(|_| "append").unwrap();
        spool.apply_floors(&[floor(epoch, n)]);
    }
    assert_eq!(spool.index().lock().dropped_rows, 0);
    assert_eq!(sent(&spool), []);
    assert_eq!(spool.index().lock().waiting_bytes(), 0);
}

#[test]
fn a_batch_larger_than_the_whole_spool_is_let_in_alone() {
    for when_full in [SpoolFullPolicy::Block, SpoolFullPolicy::DropOldest] {
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) =
            SpoolLog::open(dir.path(), small(4_000, when_full), clock_at(1), SpoolKind::Telemetry).unwrap();
        spool.append(&[batch(&[0; 9_000], None)]).map_err(|_| "append").unwrap();
        assert_eq!(sent(&spool).len(), 1);
    }
}

/// Hands a batch over; hears when it is written.
async fn submit(spool: &SpoolHandle, payload: &[u8]) -> oneshot::Receiver<Result<(), RecordingError>> {
    let (done, wait) = oneshot::channel();
    spool.submit(batch(payload, None), Some(done)).await.unwrap();
    wait
}

/// Fills a spool that never drops; how many batches it has.
async fn fill(spool: &SpoolHandle) -> u64 {
    let mut seq = 0;
    while let Ok(wait) = tokio::time::timeout(Duration::from_secs(1), submit(spool, &[0; 500])).await {
        wait.await.unwrap().unwrap();
        seq += 1;
    }
    assert!(seq > 3);
    seq
}

#[tokio::test]
async fn a_batch_is_admitted_when_a_floor_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, thread, _) = open(
        dir.path(),
        small(8_000, SpoolFullPolicy::Block),
        clock_at(1),
        SpoolKind::Telemetry,
    )
    .unwrap();
    let seq = fill(&spool).await;
    let blocked = tokio::spawn({
        let spool = spool.clone();
        async move { submit(&spool, &[1; 500]).await.await }
    });
    spool.apply_floors([floor(spool.boot_epoch(), seq)]);
    blocked.await.unwrap().unwrap().unwrap();
    assert_eq!(spool.status().waiting, [floor(spool.boot_epoch(), seq + 1)]);
    assert!(thread.close(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn closing_a_full_spool_is_prompt_and_tells_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, thread, _) = open(
        dir.path(),
        small(8_000, SpoolFullPolicy::Block),
        clock_at(1),
        SpoolKind::Telemetry,
    )
    .unwrap();
    fill(&spool).await;
    let waits = (0..30).map(|_| {
        let spool = spool.clone();
        tokio::spawn(async move { spool.submit(batch(&[0; 500], None), None).await })
    });
    let waits: Vec<_> = waits.collect();
    tokio::task::yield_now().await;
    assert!(thread.close(Duration::from_secs(5)).await);
    for wait in waits {
        assert!(wait.await.unwrap().is_err());
    }
    assert!(spool.submit(batch(&[0], None), None).await.is_err());
}

#[tokio::test]
async fn rows_of_a_source_that_gave_up_waiting_are_not_written_behind_its_back() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, thread, _) = open(
        dir.path(),
        small(8_000, SpoolFullPolicy::Block),
        clock_at(1),
        SpoolKind::Telemetry,
    )
    .unwrap();
    // The last one that it tries is given up.
    let seq = fill(&spool).await;
    spool.apply_floors([floor(spool.boot_epoch(), seq)]);
    submit(&spool, &[9; 500]).await.await.unwrap().unwrap();
    let left = spool.reader().read(&mut SpoolCursor::default(), 1 << 20).unwrap();
    assert!(matches!(&left[..], [SpoolItem::Batch(kept)] if kept.payload[..] == [9; 500] && kept.seq == seq + 1));
    assert!(thread.close(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_full_spool_takes_checkpoints_and_what_consumers_make_in_their_share() {
    let dir = tempfile::tempdir().unwrap();
    let limits = small(40_000, SpoolFullPolicy::Block);
    let (spool, thread, _) = open(dir.path(), limits, clock_at(1), SpoolKind::Messages).unwrap();
    let hand_over = async |bytes: usize, note: u8, class: AdmissionClass| {
        let (done, wait) = oneshot::channel();
        let note = batch(&[], Some(("taken", &[note])));
        let mut batches = vec![SpoolBatch { rows: 0, ..note }];
        if bytes > 0 {
            batches.insert(0, batch(&vec![0; bytes], None));
        }
        let room = tokio::time::timeout(Duration::from_secs(1), spool.acquire_permit(bytes as u64, class));
        let Ok(room) = room.await else { return false };
        room.unwrap().submit_transaction(|| batches, vec![done]).unwrap();
        wait.await.unwrap().is_ok()
    };
    assert!(hand_over(33_000, 1, AdmissionClass::Producer).await);
    assert!(
        !hand_over(3_000, 2, AdmissionClass::Producer).await,
        "the share of consumers"
    );
    assert!(hand_over(3_000, 3, AdmissionClass::Consumer).await);
    assert!(!hand_over(5_000, 4, AdmissionClass::Consumer).await, "there is no more");
    for note in 5..100 {
        assert!(hand_over(0, note, AdmissionClass::Consumer).await, "{note}");
    }
    assert_eq!(spool.checkpoint("taken"), Some(vec![99]));
    assert!(thread.close(Duration::from_secs(5)).await);
}

/// Hands over rows with a note behind them, as one whole.
async fn whole(spool: &SpoolHandle, bytes: usize, note: u8) -> oneshot::Receiver<Result<(), RecordingError>> {
    let (done, wait) = oneshot::channel();
    let note = batch(&[], Some(("taken", &[note])));
    let batches = vec![batch(&vec![0; bytes], None), SpoolBatch { rows: 0, ..note }];
    let room = spool.acquire_permit(bytes as u64, AdmissionClass::Producer).await;
    room.unwrap().submit_transaction(|| batches, vec![done]).unwrap();
    wait
}

#[tokio::test]
async fn what_was_handed_over_behind_a_whole_that_was_given_up_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let limits = small(40_000, SpoolFullPolicy::Block);
    let (spool, thread, _) = open(dir.path(), limits, clock_at(1), SpoolKind::Messages).unwrap();
    whole(&spool, 20_000, 1).await.await.unwrap().unwrap();
    // No other segment can be begun for now.
    let aside = dir.path().with_extension("aside");
    fs::rename(dir.path(), &aside).unwrap();
    let large = whole(&spool, 10_000, 2).await;
    let small = whole(&spool, 10, 3).await;
    assert!(thread.close(Duration::from_secs(5)).await);
    assert!(large.await.unwrap().is_err() && small.await.unwrap().is_err());
    fs::rename(&aside, dir.path()).unwrap();
    let (again, thread, _) = open(dir.path(), limits, clock_at(2), SpoolKind::Messages).unwrap();
    assert_eq!(
        again.checkpoint("taken"),
        Some(vec![1]),
        "as if neither had been handed over"
    );
    assert!(thread.close(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_spool_that_only_learns_notes_never_waits_for_the_mixer_however_many() {
    let dir = tempfile::tempdir().unwrap();
    let limits = small(40_000, SpoolFullPolicy::Block);
    let (mut spool, _) = SpoolLog::open(dir.path(), limits, clock_at(1), SpoolKind::Messages).unwrap();
    for n in 0..2_000u32 {
        let note = batch(&[], Some(("taken", &n.to_le_bytes())));
        spool.append(&[SpoolBatch { rows: 0, ..note }]).map_err(|_| n).unwrap();
        assert!(spool.index().lock().bytes() <= 40_000, "after {n}");
    }
    drop(spool);
    let (spool, _) = SpoolLog::open(dir.path(), limits, clock_at(2), SpoolKind::Messages).unwrap();
    let kept = spool.index().lock().checkpoints.get("taken").cloned();
    assert_eq!(kept, Some(1_999u32.to_le_bytes().to_vec()));
}
