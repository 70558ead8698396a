//! Damage is found and named, and nothing else is.

use std::collections::BTreeSet;

use super::*;
use crate::{CheckReport, check_store};

/// A closed store with a sealed file, an open one of several row groups, and one of another hour.
pub(super) async fn store() -> Bench {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    let times: Vec<i64> = (0..300).map(|row| bench.now() - 5 * HOUR - row).collect();
    engine.append(batch("old", &times, from_producer(1))).await.unwrap();
    engine.flush().await.unwrap();
    bench.advance(Duration::from_secs(600));
    until("it is sealed", || stats(&engine).seals == 1).await;
    for (seq, hours) in [(2, 0), (3, 0), (4, 1)] {
        let times = [bench.now() - hours * HOUR];
        engine
            .append(batch(&seq.to_string(), &times, from_producer(seq)))
            .await
            .unwrap();
        engine.flush().await.unwrap();
    }
    engine.close().await.unwrap();
    bench
}

fn check(bench: &Bench, deep: bool) -> CheckReport {
    check_store(&bench.settings, deep, |_, _| {}).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_store_has_no_problems_open_or_closed() {
    let bench = store().await;
    let mut calls = Vec::new();
    let report = check_store(&bench.settings, true, |done, all| calls.push((done, all))).unwrap();
    assert_eq!((report.files, report.rows, report.problems.len()), (3, 303, 0));
    assert_eq!(
        report.bytes,
        bench
            .tree()
            .iter()
            .map(|path| path.metadata().unwrap().len())
            .sum::<u64>()
    );
    assert_eq!((report.strangers.len(), report.quarantined.len()), (0, 0));
    assert_eq!(calls, [(0, 3), (1, 3), (2, 3), (3, 3)]);
    let _engine = bench.open().await;
    assert_eq!(check(&bench, true), report);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_bit_of_a_data_file_is_found_by_a_deep_check_and_the_file_is_named() {
    let bench = store().await;
    for path in bench.tree() {
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 97) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, bytes).unwrap();
            let report = check(&bench, true);
            let named: Vec<_> = report.problems.iter().map(|problem| &problem.path).collect();
            assert_eq!(named, [&path], "byte {at}");
        }
        std::fs::write(&path, whole).unwrap();
    }
    assert_eq!(check(&bench, true).problems, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_cut_files_and_strangers_are_found_by_any_check() {
    let bench = store().await;
    let tree = bench.tree();
    std::fs::remove_file(&tree[0]).unwrap();
    let whole = std::fs::read(&tree[1]).unwrap();
    std::fs::write(&tree[1], &whole[..whole.len() - 1]).unwrap();
    let mut footer = std::fs::read(&tree[2]).unwrap();
    let last = footer.len() - 20;
    footer[last] ^= 1;
    std::fs::write(&tree[2], footer).unwrap();
    let stranger = tree[2].with_file_name("logs_077.parquet");
    std::fs::write(&stranger, "somebody else's").unwrap();
    for deep in [false, true] {
        let report = check(&bench, deep);
        let found: Vec<_> = report
            .problems
            .iter()
            .map(|problem| (&problem.path, problem.what.as_str()))
            .collect();
        assert_eq!(found[0], (&tree[0], "it is missing"));
        assert!(
            found[1].1.contains("instead of") && found[2].1.contains("footer"),
            "{found:?}"
        );
        assert_eq!((found.len(), &report.strangers), (3, &vec![stranger.clone()]));
        assert_eq!(report.problems[0].rows, 300);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_without_a_store_and_a_damaged_catalogue_are_errors_that_name_it() {
    let empty = Bench::new();
    let none = check_store(&empty.settings, true, |_, _| {}).unwrap_err();
    assert!(none.to_string().contains("store.dir"), "{none}");
    let bench = store().await;
    let meta = files_below(&bench.settings.store_dir.join("meta"));
    let damaged: BTreeSet<_> = meta
        .iter()
        .filter(|path| path.to_string_lossy().contains("checkpoint_"))
        .collect();
    for path in damaged {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[25] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let refused = check_store(&bench.settings, true, |_, _| {}).unwrap_err();
    assert!(matches!(&refused, Error::Catalogue { path, .. } if path.to_string_lossy().contains("checkpoint_")));
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_writer_that_publishes_seals_and_rotates_nothing_is_reported() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(2));
    bench.settings.seal_grace = Duration::ZERO;
    bench.settings.rotation.policy = crate::RetentionPolicy::Size;
    bench.settings.rotation.max_size = ByteSize::bytes(3 << 20);
    bench.settings.rotation.check_interval = Duration::from_millis(20);
    let engine = bench.open().await;
    let settings = bench.settings.clone();
    let checks = std::thread::spawn(move || {
        let (begun, mut checks) = (Instant::now(), 0);
        let goes_on = |checks: u32| match begun.elapsed().as_secs() {
            0..3 => true,
            3..60 => checks < 4,
            _ => false,
        };
        while goes_on(checks) {
            let report = check_store(&settings, true, |_, _| {}).unwrap();
            assert_eq!((report.problems, report.strangers), (vec![], vec![]));
            checks += 1;
        }
        checks
    });
    let mut seq = 0;
    while !checks.is_finished() {
        seq += 1;
        let times: Vec<i64> = (0..50).map(|row| bench.now() - row * HOUR / 25).collect();
        engine
            .append(batch(&seq.to_string(), &times, from_producer(seq)))
            .await
            .unwrap();
        if seq % 10 == 0 {
            bench.advance(Duration::from_secs(1_200));
        }
    }
    assert!(checks.join().unwrap() > 3);
    assert!(stats(&engine).seals > 0 && stats(&engine).flushes > 10);
}
