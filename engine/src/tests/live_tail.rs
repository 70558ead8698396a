//! Who follows a table gets each row once, in the order of arrival, over restarts; what is gone is counted.

use super::*;
use crate::{ArrivalPosition, LINGER, TailFollower};

async fn append(bench: &Bench, engine: &Engine, name: &str, rows: usize) {
    // Two hours: a batch of two pieces.
    let times: Vec<i64> = (0..rows).map(|row| bench.now() - HOUR * (row as i64 % 2)).collect();
    engine
        .append(batch(name, &times, BatchOrigin::default()))
        .await
        .unwrap();
}

/// Everything that is there, by name; and what is lost before it.
fn drain(follow: &mut TailFollower) -> (u64, Vec<String>) {
    let (mut lost, mut names) = (0, Vec::new());
    loop {
        let taken = follow.take(3);
        lost += taken.lost;
        if taken.arrivals.is_empty() {
            return (lost, names);
        }
        for arrival in taken.arrivals {
            let from = follow.position();
            let skip = if from.lsn == arrival.lsn { from.row } else { 0 };
            let rows = arrival.pieces.iter().flat_map(|piece| {
                let batch = &piece.batch;
                (0..batch.num_rows()).map(|row| row_json(batch, row)["message"].as_str().unwrap().to_owned())
            });
            names.extend(rows.skip(skip));
            follow.pass(&arrival, arrival.rows);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_and_what_follows_it_have_each_row_once_while_rows_come() {
    let bench = Arc::new(Bench::new());
    let engine = bench.open().await;
    let writing = {
        let (bench, engine) = (Arc::clone(&bench), Arc::clone(&engine));
        tokio::spawn(async move {
            for n in 0..300 {
                append(&bench, &engine, &format!("{n:03}"), 4).await;
                if n % 50 == 49 {
                    engine.flush().await.unwrap();
                }
            }
        })
    };
    let mut taken = Vec::new();
    while !writing.is_finished() {
        taken.push(engine.follow(Table::Logs).unwrap());
        tokio::task::yield_now().await;
        if taken.len() > 200 {
            break;
        }
    }
    writing.await.unwrap();
    let all = messages(&engine.view());
    for (view, mut follow) in taken {
        let (lost, mut rows) = drain(&mut follow);
        rows.extend(messages(&view));
        rows.sort();
        assert_eq!((lost, rows), (0, all.clone()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_is_gone_on_from_after_a_kill_and_after_an_orderly_end() {
    let bench = Bench::new();
    let mut wanted = Vec::new();
    let mut position = None;
    for round in 0..4 {
        let engine = bench.open().await;
        let (_, mut follow) = engine.follow(Table::Logs).unwrap();
        if let Some(position) = position {
            assert!(follow.seek(position), "round {round}: {position:?}");
            assert_eq!(drain(&mut follow), (0, std::mem::take(&mut wanted)), "round {round}");
        }
        append(&bench, &engine, &format!("{round}a"), 4).await;
        let taken = follow.take(1);
        // In the middle of a batch.
        follow.pass(&taken.arrivals[0], 3);
        position = Some(follow.position());
        wanted.push(format!("{round}a/2"));
        // The even rows are of the later hour, whose piece comes second.
        engine.flush().await.unwrap();
        append(&bench, &engine, &format!("{round}b"), 2).await;
        wanted.extend([format!("{round}b/1"), format!("{round}b/0")]);
        if round % 2 == 0 {
            drop((follow, engine));
        } else {
            engine.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_keeps_its_bound_and_says_how_many_rows_are_gone() {
    let mut bench = Bench::new();
    bench.settings.tail_max = ByteSize::bytes(64 << 10);
    let engine = bench.open().await;
    let (_, mut follow) = engine.follow(Table::Logs).unwrap();
    let start = follow.position();
    for n in 0..100 {
        append(&bench, &engine, &format!("{n:03}"), 3).await;
    }
    assert!(stats(&engine).tail.bytes <= 64 << 10, "{}", stats(&engine).tail.bytes);
    let (lost, rows) = drain(&mut follow);
    assert!(lost > 0 && !rows.is_empty());
    assert_eq!(lost + rows.len() as u64, 300);
    assert!(rows.last().unwrap().starts_with("099/"));
    assert!(!follow.seek(start), "not everything from there on is kept");
    let ahead = ArrivalPosition {
        lsn: follow.position().lsn + 1,
        row: 0,
    };
    assert!(!follow.seek(ahead), "nothing is there yet");
    let oldest = follow.seek_oldest().unwrap();
    assert_eq!(
        follow.position(),
        ArrivalPosition {
            lsn: oldest.lsn,
            row: 0
        }
    );
    assert_eq!(drain(&mut follow), (0, rows));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_when_nobody_has_followed_for_long_and_the_end_is_still_known() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let (_, follow) = engine.follow(Table::Logs).unwrap();
    append(&bench, &engine, "a", 2).await;
    assert_eq!(
        (stats(&engine).tail.followers, stats(&engine).tail.bytes > 0),
        (1, true)
    );
    drop(follow);
    engine
        .shared
        .time
        .skew
        .store(LINGER.as_secs() + 1, std::sync::atomic::Ordering::Relaxed);
    append(&bench, &engine, "b", 2).await;
    append(&bench, &engine, "c", 2).await;
    assert_eq!((stats(&engine).tail.followers, stats(&engine).tail.bytes), (0, 0));
    let (_, mut follow) = engine.follow(Table::Logs).unwrap();
    let end = follow.position();
    assert!(follow.seek(end));
    assert!(!follow.seek(ArrivalPosition {
        lsn: end.lsn - 1,
        row: 0
    }));
    append(&bench, &engine, "d", 2).await;
    assert_eq!(drain(&mut follow), (0, vec!["d/1".to_owned(), "d/0".to_owned()]));
}
