//! A spool at its bound: it drops, or who submits waits.

use super::*;

#[test]
fn a_full_spool_drops_whole_oldest_segments_counts_their_rows_and_moves_settled() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = Spool::open(
        dir.path(),
        small(40_000, WhenFull::DropOldest),
        clock_at(1),
        Lane::Telemetry,
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
    let run = Run {
        entity: rack(),
        epoch: spool.epoch(),
    };
    assert_eq!(index.lock().settled(run), first - 1);
}

#[test]
fn rows_that_the_mixer_has_are_not_counted_as_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = Spool::open(
        dir.path(),
        small(8_000, WhenFull::DropOldest),
        clock_at(1),
        Lane::Telemetry,
    )
    .unwrap();
    let epoch = spool.epoch();
    for n in 1..=50u64 {
        spool.append(&[batch(&[0; 500], None)]).map_err(|_| "append").unwrap();
        spool.settle(&[floor(epoch, n)]);
    }
    assert_eq!(spool.index().lock().dropped_rows, 0);
    assert_eq!(sent(&spool), []);
    assert_eq!(spool.index().lock().waiting_bytes(), 0);
}

#[test]
fn a_full_spool_that_may_not_drop_refuses_until_a_floor_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = Spool::open(dir.path(), small(8_000, WhenFull::Block), clock_at(1), Lane::Telemetry).unwrap();
    let mut kept = 0;
    while spool.append(&[batch(&[0; 500], None)]).is_ok() {
        kept += 1;
    }
    assert!(matches!(
        spool.append(&[batch(&[0; 500], None)]),
        Err(NotAppended::Full)
    ));
    assert_eq!(sent(&spool).len(), kept);
    spool.settle(&[floor(spool.epoch(), kept as u64)]);
    spool.append(&[batch(&[1; 500], None)]).map_err(|_| "append").unwrap();
    assert_eq!(sent(&spool), [(spool.epoch(), kept as u64 + 1, Some(vec![1; 500]))]);
}

#[test]
fn a_batch_larger_than_the_whole_spool_is_let_in_alone() {
    for when_full in [WhenFull::Block, WhenFull::DropOldest] {
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) = Spool::open(dir.path(), small(4_000, when_full), clock_at(1), Lane::Telemetry).unwrap();
        spool.append(&[batch(&[0; 9_000], None)]).map_err(|_| "append").unwrap();
        assert_eq!(sent(&spool).len(), 1);
    }
}

#[tokio::test]
async fn a_blocked_submission_is_answered_when_a_floor_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, thread, _) = open(dir.path(), small(8_000, WhenFull::Block), clock_at(1), Lane::Telemetry).unwrap();
    let mut seq = 0;
    let blocked = loop {
        let (done, mut wait) = oneshot::channel();
        spool.submit(batch(&[0; 500], None), Some(done)).await.unwrap();
        match tokio::time::timeout(Duration::from_secs(3), &mut wait).await {
            Ok(answer) => answer.unwrap().unwrap(),
            Err(_) => break wait,
        }
        seq += 1;
    };
    assert!(seq > 3);
    spool.settle([floor(spool.boot_epoch(), seq)]);
    blocked.await.unwrap().unwrap();
    assert_eq!(spool.status().waiting, [floor(spool.boot_epoch(), seq + 1)]);
    assert!(thread.close(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn closing_a_blocked_spool_is_prompt_and_tells_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, thread, _) = open(dir.path(), small(8_000, WhenFull::Block), clock_at(1), Lane::Telemetry).unwrap();
    let mut waits = Vec::new();
    for _ in 0..30 {
        let (done, wait) = oneshot::channel();
        spool.submit(batch(&[0; 500], None), Some(done)).await.unwrap();
        waits.push(wait);
    }
    assert!(thread.close(Duration::from_secs(5)).await);
    let mut refused = 0;
    for wait in waits {
        refused += u32::from(wait.await.unwrap().is_err());
    }
    assert!(refused > 0);
    assert!(spool.submit(batch(&[0], None), None).await.is_err());
}

/// What hears when it is written.
async fn submit(spool: &SpoolHandle, payload: &[u8]) -> oneshot::Receiver<Result<(), NotRecorded>> {
    let (done, wait) = oneshot::channel();
    spool.submit(batch(payload, None), Some(done)).await.unwrap();
    wait
}

#[tokio::test]
async fn rows_of_a_source_that_gave_up_waiting_are_not_written_behind_its_back() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, thread, _) = open(dir.path(), small(8_000, WhenFull::Block), clock_at(1), Lane::Telemetry).unwrap();
    let written = async |wait: oneshot::Receiver<_>| {
        let answer = tokio::time::timeout(Duration::from_secs(30), wait).await;
        answer.is_ok_and(|answer| answer.is_ok_and(|answer: Result<(), _>| answer.is_ok()))
    };
    let (mut seq, mut bytes_of_one) = (0, u64::MAX);
    let given_up = loop {
        let before = spool.status().bytes;
        let wait = submit(&spool, &[0; 500]).await;
        if before.saturating_add(bytes_of_one) > 8_000 && seq > 0 {
            break wait;
        }
        assert!(written(wait).await);
        seq += 1;
        bytes_of_one = bytes_of_one.min(spool.status().bytes - before);
    };
    drop(given_up);
    spool.settle([floor(spool.boot_epoch(), seq)]);
    assert!(written(submit(&spool, &[9; 500]).await).await);
    let left = spool.reader().read(&mut Cursor::default(), 1 << 20).unwrap();
    assert!(matches!(&left[..], [Outgoing::Batch(kept)] if kept.payload[..] == [9; 500] && kept.seq == seq + 1));
    assert!(thread.close(Duration::from_secs(5)).await);
}

/// Hands over rows with a note behind them, as one whole.
async fn whole(spool: &SpoolHandle, bytes: usize, note: u8) -> oneshot::Receiver<Result<(), NotRecorded>> {
    let (done, wait) = oneshot::channel();
    let note = batch(&[], Some(("taken", &[note])));
    let batches = vec![batch(&vec![0; bytes], None), Batch { rows: 0, ..note }];
    spool
        .room()
        .await
        .unwrap()
        .submit_whole(|| batches, vec![done])
        .unwrap();
    wait
}

#[tokio::test]
async fn what_was_handed_over_behind_a_whole_that_was_given_up_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let limits = small(40_000, WhenFull::Block);
    let (spool, thread, _) = open(dir.path(), limits, clock_at(1), Lane::Messages).unwrap();
    whole(&spool, 10_000, 1).await.await.unwrap().unwrap();
    let large = whole(&spool, 35_000, 2).await;
    let small = whole(&spool, 10, 3).await;
    assert!(thread.close(Duration::from_secs(5)).await);
    assert!(large.await.unwrap().is_err() && small.await.unwrap().is_err());
    let (again, thread, _) = open(dir.path(), limits, clock_at(2), Lane::Messages).unwrap();
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
    let limits = small(40_000, WhenFull::Block);
    let (mut spool, _) = Spool::open(dir.path(), limits, clock_at(1), Lane::Messages).unwrap();
    for n in 0..2_000u32 {
        let note = batch(&[], Some(("taken", &n.to_le_bytes())));
        spool.append(&[Batch { rows: 0, ..note }]).map_err(|_| n).unwrap();
        assert!(spool.index().lock().bytes() <= 40_000, "after {n}");
    }
    drop(spool);
    let (spool, _) = Spool::open(dir.path(), limits, clock_at(2), Lane::Messages).unwrap();
    let kept = spool.index().lock().checkpoints.get("taken").cloned();
    assert_eq!(kept, Some(1_999u32.to_le_bytes().to_vec()));
}
