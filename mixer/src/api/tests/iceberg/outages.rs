//! The catalogue while its storage hangs, while one of its tables fails, and while new files are rarely looked for.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio_util::sync::CancellationToken;

use super::*;

/// The version of a table that a client loads.
async fn version(router: &Router, table: &str) -> Option<u64> {
    let (status, _, json) = ask(router, Method::GET, &format!("{LISTED}/{table}")).await;
    let (_, object) = json["metadata-location"].as_str()?.rsplit_once("/v")?;
    let number = object.strip_suffix(".metadata.json")?.parse().ok()?;
    (status == StatusCode::OK).then_some(number)
}

const LISTED: &str = "/iceberg/v1/namespaces/telemetry/tables";

impl CatalogBench {
    /// Where the metadata of all tables lies.
    fn folder(&self) -> PathBuf {
        self.engine.settings().store_dir.join("iceberg/telemetry")
    }

    /// Puts a pipe in the place of a table's hint: a look for a newer version hangs there.
    fn hold_looks(&self, table: &str) -> PathBuf {
        let hint = self.folder().join(table).join("metadata/version-hint.text");
        std::fs::remove_file(&hint).unwrap();
        mkfifo(&hint, Mode::S_IRWXU).unwrap();
        hint
    }
}

/// The other end of a pipe, if somebody reads there. The reader goes on once it is closed.
fn other_end(pipe: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    options.open(pipe).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_looks_hang_in_all_places_known_tables_are_served_and_requests_end() {
    let mut bench = CatalogBench::new().await;
    assert!(bench.publish());
    let service = CatalogService::of_impatient_reader(&bench.engine, Duration::from_millis(500));
    let router = router(&bench.bench, Some(service));
    for table in TABLES {
        eventually("its first version", || async {
            (version(&router, table).await == Some(1)).then_some(())
        })
        .await;
    }
    let [hanging @ .., free] = TABLES;
    let mut held = Vec::new();
    for table in hanging {
        let pipe = bench.hold_looks(table);
        // Once it is time for a look, the request that makes it ends although the look does not.
        let end = eventually("a look that hangs", || async {
            assert_eq!(version(&router, table).await, Some(1), "{table}");
            other_end(&pipe)
        })
        .await;
        held.push((pipe, end));
    }
    // No place is left, neither for tables that are being looked for nor for the others.
    for table in hanging.into_iter().chain([free]) {
        assert_eq!(version(&router, table).await, Some(1), "{table}");
    }
    let listed = get(&router, LISTED).await;
    assert_eq!(listed["identifiers"].as_array().map(Vec::len), Some(TABLES.len()));
    let described = get(&router, "/api/v1/catalog").await;
    assert_eq!(
        described["data"]["tables"].as_array().map(Vec::len),
        Some(TABLES.len()),
        "{described}"
    );
    for (pipe, _) in &held {
        std::fs::remove_file(pipe).unwrap();
    }
    drop(held);
    bench.seal_log().await;
    assert!(bench.publish());
    eventually("the second version", || async {
        (version(&router, "logs").await == Some(2)).then_some(())
    })
    .await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_fails_hides_neither_the_others_nor_their_figures() {
    let mut bench = CatalogBench::new().await;
    let router = bench.router.clone();
    // A file is in the place of the table's folder.
    let in_the_way = bench.folder().join("traces");
    std::fs::create_dir_all(bench.folder()).unwrap();
    std::fs::write(&in_the_way, "").unwrap();
    for round in 1..=2 {
        assert!(!bench.publish(), "traces fail");
        let (failures, tables) = bench.service.publication().unwrap();
        let logs = tables.iter().find(|table| table.table == "logs").unwrap();
        assert_eq!(
            (failures, tables.len(), logs.version, logs.lag_seconds),
            (round, 4, round, 0)
        );
        bench.seal_log().await;
    }
    assert_eq!(version(&router, "logs").await, Some(2));
    for (table, status) in [("traces", 503), ("messages_orders", 404)] {
        let (found, _, says) = refusal(&router, Method::GET, &format!("{LISTED}/{table}")).await;
        assert_eq!(found, status, "{table}: {says}");
    }
    let described = get(&router, "/api/v1/catalog").await;
    assert_eq!(described["data"]["tables"].as_array().map(Vec::len), Some(4));
    let trouble = described["data"]["trouble"].as_str().unwrap();
    assert!(trouble.contains("traces"), "{trouble}");
    std::fs::remove_file(&in_the_way).unwrap();
    assert!(bench.publish());
    let (failures, tables) = bench.service.publication().unwrap();
    assert_eq!((failures, tables.len()), (2, 5));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_catalogue_that_is_not_published_yet_is_told_when_to_ask_again() {
    let bench = CatalogBench::new().await;
    let reading = router(&bench.bench, Some(CatalogService::of_reader(&bench.engine)));
    for path in [LISTED, LOGS, &format!("{LISTED}/messages_orders")] {
        let (status, headers, body) = ask(&reading, Method::GET, path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {body}");
        assert_eq!(headers[header::RETRY_AFTER], "1", "{path}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_that_became_too_old_go_although_new_files_are_rarely_looked_for() {
    let bench = CatalogBench::new().await;
    let (hand, calls) = (bench.clock.clock(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    let clock = Clock::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        hand.now()
    });
    let kept = CatalogSettings {
        snapshot_age: Duration::from_secs(1),
        partition_by: PartitionBy::Hour,
    };
    let rarely = Duration::from_secs(3_600);
    let (mut thread, service) = PublisherThread::new(&bench.engine, kept, (clock, rarely));
    for _ in 0..2 {
        bench.seal_log().await;
        assert!(tokio::task::block_in_place(|| thread.publish()).is_some());
    }
    let router = router(&bench.bench, Some(service));
    let snapshots = async || {
        let loaded = get(&router, LOGS).await;
        loaded["metadata"]["snapshots"].as_array().map(Vec::len)
    };
    assert_eq!(snapshots().await, Some(2));
    let before = calls.load(Ordering::SeqCst);
    let stop = CancellationToken::new();
    let running = tokio::spawn(thread.run(stop.clone()));
    // Its first look asks for the time to publish and to collect garbage. The second one is in an hour.
    eventually("the first look", || async {
        (calls.load(Ordering::SeqCst) >= before + 2).then_some(())
    })
    .await;
    assert_eq!(snapshots().await, Some(2));
    bench.clock.forward(Duration::from_secs(10));
    eventually("the end of the first snapshot", || async {
        (snapshots().await == Some(1)).then_some(())
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    bench.close().await;
}
