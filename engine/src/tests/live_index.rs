//! Indexes of open files: they come with each publish, all versions share them, and they take no more memory than they may.

use super::index::segments;
use super::*;
use crate::{BlockSelection, IndexLookup, NgramQuery, RollupDimension};

const NAMES: [&str; 4] = ["matin", "midday", "söir", "nightfall"];

/// Rows of the present hour, in a row group of their own, which is indexed if there is room.
async fn publish(bench: &Bench, engine: &Engine, name: &str) {
    let times: Vec<i64> = (0..100).map(|n| bench.now() + n).collect();
    engine
        .append(batch(name, &times, BatchOrigin::default()))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    engine.index_all().await.unwrap();
}

fn only(engine: &Engine) -> Arc<DataFileHandle> {
    let segments = segments(engine);
    assert_eq!(segments.len(), 1);
    Arc::clone(&segments[0])
}

fn found(segment: &DataFileHandle, text: &str) -> BlockSelection {
    let IndexLookup { blocks, bytes } = segment.text(&NgramQuery::of(text).unwrap());
    assert_eq!(bytes, 0, "it is in memory");
    blocks
}

fn open_bytes(engine: &Engine) -> u64 {
    stats(engine).live_index_bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_group_of_an_open_file_is_indexed_once_published_and_after_a_restart() {
    let mut bench = Bench::new();
    bench.settings.index = true;
    let engine = bench.open().await;
    let mut versions = Vec::new();
    for name in NAMES {
        publish(&bench, &engine, name).await;
        versions.push(only(&engine));
    }
    for (last, version) in versions.iter().enumerate() {
        assert!(!version.sealed);
        for (group, name) in (0u32..).zip(NAMES) {
            let wanted = match group as usize <= last {
                true if last == 0 => BlockSelection::All,
                true => BlockSelection::Some(vec![group]),
                false => BlockSelection::NONE,
            };
            assert_eq!(found(version, name), wanted, "{name} in version {last}");
        }
        assert_eq!(found(version, "nowhere"), BlockSelection::NONE);
    }
    drop(versions);
    engine.close().await.unwrap();
    drop(engine);
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    let segment = only(&engine);
    assert_eq!(found(&segment, "MIDDAY"), BlockSelection::Some(vec![1]));
    assert_eq!(found(&segment, "nowhere"), BlockSelection::NONE);
    assert_eq!(stats(&engine).index_failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_of_open_files_take_no_more_memory_than_they_may_and_give_it_back() {
    let mut bench = Bench::new();
    bench.settings.index = true;
    let engine = bench.open().await;
    publish(&bench, &engine, NAMES[0]).await;
    let each = open_bytes(&engine);
    assert!(each > 0);
    engine.close().await.unwrap();
    drop(engine);
    // Half of it is for sidecars.
    let most = each * 5 / 2;
    bench.settings.index_memory = ByteSize::bytes(2 * most);
    bench.settings.seal_grace = Duration::ZERO;
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    for name in &NAMES[1..] {
        publish(&bench, &engine, name).await;
        assert!((each..=most).contains(&open_bytes(&engine)));
    }
    let segment = only(&engine);
    assert_eq!(found(&segment, NAMES[0]), BlockSelection::Some(vec![0, 2, 3]));
    assert_eq!(
        found(&segment, "nowhere"),
        BlockSelection::Some(vec![2, 3]),
        "what has no index is read"
    );
    drop(segment);
    bench.advance(Duration::from_secs(7_200));
    until("the file is sealed", || only(&engine).sealed).await;
    engine.index_all().await.unwrap();
    until("nobody holds what was open", || open_bytes(&engine) == 0).await;
    assert_eq!(
        only(&engine).text(&NgramQuery::of("nowhere").unwrap()).blocks,
        BlockSelection::NONE
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_file_that_has_no_sidecar_yet_has_what_was_made_of_the_open_one() {
    let mut bench = Bench::new();
    bench.settings.index = true;
    bench.settings.seal_grace = Duration::ZERO;
    bench.ticks_every(Duration::from_millis(5));
    // Nothing can be written there.
    let folder = bench.settings.store_dir.join("index");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("logs"), b"").unwrap();
    let engine = bench.open().await;
    for name in NAMES {
        publish(&bench, &engine, name).await;
    }
    bench.advance(Duration::from_secs(7_200));
    until("the file is sealed", || only(&engine).sealed).await;
    engine.index_all().await.unwrap();
    let segment = only(&engine);
    assert!(segment.index().is_none() && stats(&engine).index_waiting == 1);
    assert_eq!(found(&segment, "nowhere"), BlockSelection::NONE);
    assert_eq!(found(&segment, NAMES[2]), BlockSelection::All, "a seal moves rows");
    let (counts, bytes) = segment.counts(RollupDimension::LevelAndEntity).unwrap();
    let rows: u64 = counts
        .iter()
        .flat_map(|counts| counts.groups().map(|group| group.rows))
        .sum();
    assert_eq!((rows, bytes), (segment.rows, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_row_group_of_an_open_file_is_never_indexed() {
    let mut bench = Bench::new();
    bench.settings.index = true;
    let engine = bench.open().await;
    publish(&bench, &engine, NAMES[0]).await;
    engine.close().await.unwrap();
    drop(engine);
    let victim = bench.tree()[0].clone();
    let mut bytes = std::fs::read(&victim).unwrap();
    bytes[100] ^= 4;
    std::fs::write(&victim, bytes).unwrap();
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    assert_eq!(open_bytes(&engine), 0);
    for segment in segments(&engine) {
        assert_eq!(found(&segment, "nowhere"), BlockSelection::All);
        assert!(
            matches!(segment.open(), Err(Error::Damaged { .. })),
            "whoever opens it is told"
        );
    }
}
