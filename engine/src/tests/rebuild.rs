//! A catalogue that is made anew serves the same rows, and what comes again is still a duplicate.

mod history;

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::integrity_check::store;
use super::restarts::catalogue_log;
use super::retention::{DAY, pass};
use super::*;
use crate::manifest_rebuild::MISSING;
use crate::{RebuildReport, rebuild_catalogue};

fn meta(bench: &Bench) -> PathBuf {
    bench.settings.store_dir.join("meta")
}

fn try_rebuild(bench: &Bench) -> Result<RebuildReport, Error> {
    rebuild_catalogue(&bench.settings, Timestamp::from_micros(bench.now()), |_, _| {})
}

fn rebuild(bench: &Bench) -> RebuildReport {
    try_rebuild(bench).unwrap()
}

/// Removes the catalogue; the store's id too if it is said.
fn lose_catalogue(bench: &Bench, id_too: bool) {
    for path in files_below(&meta(bench)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("catalogue_") || name.starts_with("checkpoint_") || (id_too && name == "store.id") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Flips a bit in the middle of every checkpoint and log.
fn damage_catalogue(bench: &Bench) {
    for path in files_below(&meta(bench)) {
        if path.file_name().unwrap() != "store.id" && path.file_name().unwrap() != "LOCK" {
            let mut bytes = std::fs::read(&path).unwrap();
            let at = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalogue_refuses_the_start_and_a_rebuilt_one_has_every_row_and_watermark() {
    for id_too in [false, true] {
        let bench = store().await;
        let engine = bench.open().await;
        engine
            .append(batch("5", &[bench.now()], from_producer(5)))
            .await
            .unwrap();
        let before = messages(&engine.view());
        drop(engine);
        lose_catalogue(&bench, id_too);
        let refused = bench.try_open().await.unwrap_err().to_string();
        assert!(refused.contains("platform-mixer check --rebuild"), "{refused}");
        if !id_too {
            let refused = crate::check_store(&bench.settings, false, |_, _| {}).unwrap_err();
            assert!(matches!(refused, Error::Catalogue { .. }), "{refused}");
        }
        let report = rebuild(&bench);
        assert_eq!((report.files, report.problems.len()), (3, 0));
        // The last one may have been published by a tick.
        assert!((303..=304).contains(&report.rows), "{}", report.rows);
        assert_eq!(report.kept, None);
        assert!(report.unknown.iter().any(|unknown| unknown.contains("checksum")));
        let engine = bench.open().await;
        let view = engine.view();
        assert_eq!((messages(&view), view.partial()), (before.clone(), None));
        assert_eq!(floor(&engine), 5);
        for seq in 1..=5 {
            let again = engine.append(batch("again", &[bench.now()], from_producer(seq))).await;
            assert_eq!(again.unwrap(), AppendOutcome::Duplicate, "{seq}");
        }
        let rows = batch("6", &[bench.now()], from_producer(6));
        assert_eq!(engine.append(rows).await.unwrap(), stored(1));
        engine.close().await.unwrap();
        drop((engine, view));
        assert_eq!(messages(&bench.open().await.view()).len(), before.len() + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_catalogue_is_kept_under_a_name_that_says_when_and_what_it_still_says_counts() {
    let bench = store().await;
    // An orderly start and end: one generation, whose log has one record.
    let engine = bench.open().await;
    for (seq, hours) in [(5, 0), (6, 1)] {
        let times = [bench.now() - hours * HOUR];
        let rows = batch(&seq.to_string(), &times, from_producer(seq));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    let before = messages(&engine.view());
    drop(engine);
    damage_catalogue(&bench);
    let report = rebuild(&bench);
    let kept = report.kept.unwrap();
    assert!(
        kept.to_str().unwrap().contains("quarantine/catalogue_20261121T"),
        "{kept:?}"
    );
    assert!(files_below(&kept).len() >= 3);
    let engine = bench.open().await;
    assert_eq!((messages(&engine.view()), floor(&engine)), (before, 6));
    assert_eq!(engine.view().partial(), None);
    engine.close().await.unwrap();
    drop(engine);
    let whole = try_rebuild(&bench).unwrap_err();
    assert!(matches!(whole, Error::CatalogueWhole { .. }), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_overtaken_in_the_log_is_not_taken_for_stored() {
    let bench = Bench::new();
    let engine = bench.open().await;
    for seq in [1, 2, 4] {
        let rows = batch(&seq.to_string(), &[bench.now()], from_producer(seq));
        engine.append(rows).await.unwrap();
        let rows = batch(&format!("bus {seq}"), &[bench.now()], from_bus(seq));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    let request = BatchOrigin {
        request: Some(crate::RequestPart {
            id: uuid::Uuid::from_u128(1),
            sender: 1,
            digest: 2,
            from: 0,
            to: 1,
        }),
        ..BatchOrigin::default()
    };
    let part = batch("request", &[bench.now()], request);
    assert_eq!(engine.append(part.clone()).await.unwrap(), stored(1));
    engine.flush().await.unwrap();
    drop(engine);
    lose_catalogue(&bench, false);
    let report = rebuild(&bench);
    assert!(
        !report.unknown.iter().any(|unknown| unknown.contains("requests")),
        "{:?}",
        report.unknown
    );
    let engine = bench.open().await;
    assert_eq!(engine.append(part).await.unwrap(), AppendOutcome::Duplicate);
    let origins: [&dyn Fn(u64) -> BatchOrigin; 2] = [&from_producer, &from_bus];
    for origin in origins {
        for seq in [1, 2, 4] {
            let again = engine.append(batch("again", &[bench.now()], origin(seq))).await;
            assert_eq!(again.unwrap(), AppendOutcome::Duplicate, "{seq}");
        }
        let late = engine.append(batch("late", &[bench.now()], origin(3))).await;
        assert_eq!(late.unwrap(), stored(1));
    }
    assert_eq!(messages(&engine.view()).len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_stream_is_stored_is_known_after_the_rebuild() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine.append(batch("a", &[bench.now()], from_bus(9))).await.unwrap();
    engine.close().await.unwrap();
    // The log lets go of what is published.
    bench.open().await.close().await.unwrap();
    lose_catalogue(&bench, false);
    rebuild(&bench);
    let engine = bench.open().await;
    let again = engine.append(batch("a", &[bench.now()], from_bus(9))).await;
    assert_eq!(again.unwrap(), AppendOutcome::Duplicate);
    let tail = engine.stream_tail("flux-telemetry", 1).unwrap();
    assert_eq!((tail.incarnation, tail.last, tail.newest), (1, 9, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_contradicts_the_old_catalogue_is_quarantined_and_a_missing_one_named() {
    let bench = store().await;
    let tree = bench.tree();
    // One more generation: its log is damaged, its checkpoint says what the files were.
    let engine = bench.open().await;
    engine
        .append(batch("5", &[bench.now()], from_producer(5)))
        .await
        .unwrap();
    engine.close().await.unwrap();
    let logs = files_below(&meta(&bench));
    let log = logs
        .iter()
        .rfind(|path| path.extension().is_some_and(|end| end == "log"));
    let mut bytes = std::fs::read(log.unwrap()).unwrap();
    bytes[20] ^= 1;
    std::fs::write(log.unwrap(), bytes).unwrap();
    let mut bytes = std::fs::read(&tree[0]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&tree[0], bytes).unwrap();
    std::fs::remove_file(&tree[1]).unwrap();
    let report = rebuild(&bench);
    let named: Vec<_> = report.problems.iter().map(|problem| &problem.path).collect();
    assert_eq!(named, [&tree[0], &tree[1]]);
    assert!(report.problems[0].kept.as_ref().unwrap().exists());
    assert_eq!(report.problems[1].what, MISSING);
    let engine = bench.open().await;
    assert_eq!(engine.view().partial(), None);
    assert_eq!(floor(&engine), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_removal_is_the_damaged_record_is_named_as_missing_or_removed() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("1", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let old = bench.tree();
    pass(&bench, &engine, 40 * DAY);
    let (_, before) = catalogue_log(&bench);
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 1);
    drop(engine);
    let (log, after) = catalogue_log(&bench);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[usize::midpoint(before, after)] ^= 1;
    std::fs::write(log, bytes).unwrap();
    let report = rebuild(&bench);
    let named = report.problems.iter().map(|problem| (&problem.path, &*problem.what));
    assert_eq!(named.collect::<Vec<_>>(), [(&old[0], MISSING)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_others_are_left_alone_and_a_folder_without_a_store_is_refused() {
    let empty = Bench::new();
    let none = try_rebuild(&empty).unwrap_err();
    assert!(none.to_string().contains("store.dir"), "{none}");
    let bench = store().await;
    let stranger = bench.tree()[0].with_file_name("notes.txt");
    let copy = bench.tree()[0].with_file_name("logs_050.parquet");
    std::fs::write(&stranger, "somebody else's").unwrap();
    std::fs::copy(&bench.tree()[0], &copy).unwrap();
    lose_catalogue(&bench, false);
    let report = rebuild(&bench);
    assert_eq!((report.files, report.problems.len()), (3, 0));
    assert_eq!(report.strangers.len(), 2);
    assert!(stranger.exists() && copy.exists());
    let engine = bench.open().await;
    let refused = try_rebuild(&bench).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    assert_eq!(messages(&engine.view()).len(), 303);
}

/// The store of `bench` as it lies there, in a folder of its own.
fn copy_of(bench: &Bench) -> Bench {
    let mut copy = Bench::new();
    copy.now = Arc::clone(&bench.now);
    copy_tree(&bench.settings.store_dir, &copy.settings.store_dir);
    copy
}

/// A store with sealed and open files and rows in the log, its end without warning, and its rows.
async fn busy() -> (Bench, Vec<String>) {
    let bench = store().await;
    let engine = bench.open().await;
    for (seq, hours) in [(5, 0), (6, 2), (7, 0)] {
        let times = [bench.now() - hours * HOUR];
        let rows = batch(&seq.to_string(), &times, from_producer(seq));
        engine.append(rows).await.unwrap();
        if seq < 7 {
            engine.flush().await.unwrap();
        }
    }
    let rows = messages(&engine.view());
    drop(engine);
    (bench, rows)
}

async fn has_all(bench: &Bench, wanted: &[String], what: &str) {
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), wanted, "{what}");
    assert_eq!((engine.view().partial(), floor(&engine)), (None, 7), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flip_anywhere_in_the_catalogue_is_harmless_or_healed_by_a_rebuild() {
    let (bench, wanted) = busy().await;
    let mut rebuilt = 0;
    let files: Vec<PathBuf> = files_below(&meta(&bench))
        .into_iter()
        .filter(|path| path.file_name().unwrap() != "LOCK")
        .collect();
    for path in files {
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len().div_ceil(9)) {
            let copy = copy_of(&bench);
            let mut bytes = whole.clone();
            // In the store's id this makes another one.
            bytes[at] ^= 1;
            let name = path.file_name().unwrap();
            std::fs::write(meta(&copy).join(name), bytes).unwrap();
            match copy.try_open().await {
                Ok(engine) => drop(engine),
                Err(error) => {
                    assert!(matches!(error, Error::Catalogue { .. }), "{name:?} at {at}: {error}");
                    assert_eq!(rebuild(&copy).problems, [], "{name:?} at {at}");
                    rebuilt += 1;
                }
            }
            has_all(&copy, &wanted, &format!("{name:?} at {at}")).await;
        }
    }
    assert!(rebuilt >= 5, "{rebuilt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_was_interrupted_is_done_again_or_was_done() {
    let (bench, wanted) = busy().await;
    damage_catalogue(&bench);
    for (op, part) in [
        (FsOperation::Create, "quarantine"),
        (FsOperation::SyncFile, "quarantine"),
        (FsOperation::Rename, ".store.id."),
        (FsOperation::Create, "meta/catalogue_"),
        (FsOperation::SyncFile, "meta/catalogue_"),
        (FsOperation::Rename, "meta/.checkpoint_"),
        (FsOperation::SyncFolder, "meta"),
        (FsOperation::Remove, "meta/checkpoint_"),
    ] {
        let copy = copy_of(&bench);
        let faults = FaultInjector::below(copy.dir.path());
        faults.fail(op, part, 1, libc::EIO);
        let failed = try_rebuild(&copy).unwrap_err();
        assert_eq!(faults.left(), 0, "{op:?} {part}");
        assert!(
            matches!(failed, Error::Io { .. } | Error::InDoubt { .. }),
            "{op:?} {part}: {failed}"
        );
        match try_rebuild(&copy) {
            Ok(report) => assert_eq!(report.problems, [], "{op:?} {part}"),
            Err(error) => assert!(matches!(error, Error::CatalogueWhole { .. }), "{op:?} {part}: {error}"),
        }
        has_all(&copy, &wanted, &format!("{op:?} {part}")).await;
    }
}
