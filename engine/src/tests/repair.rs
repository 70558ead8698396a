//! A repaired store starts without a word about what was damaged, and loses nothing else.

use super::integrity_check::store;
use super::*;
use crate::{CheckReport, FileProblem, repair_store};

fn repair(bench: &Bench, deep: bool) -> CheckReport {
    repair_store(&bench.settings, deep, |_, _| {}, |_| {}).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_missing_files_leave_the_store_after_it_was_said_and_what_the_log_has_stays() {
    let bench = store().await;
    let tree = bench.tree();
    let mut bytes = std::fs::read(&tree[0]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&tree[0], bytes).unwrap();
    std::fs::remove_file(&tree[2]).unwrap();
    let mut said: Vec<(PathBuf, bool)> = Vec::new();
    let say = |problem: &FileProblem| said.push((problem.path.clone(), problem.path.exists()));
    let report = repair_store(&bench.settings, true, |_, _| {}, say).unwrap();
    assert_eq!(said, [(tree[0].clone(), true), (tree[2].clone(), false)]);
    assert!(report.repaired && report.deep);
    let kept = report.problems[0].kept.clone().unwrap();
    assert_eq!((report.problems.len(), &report.problems[1].kept), (2, &None));
    assert_eq!(report.quarantined, [kept]);
    let again = repair(&bench, true);
    assert_eq!((again.files, again.problems), (1, vec![]));
    let engine = bench.open().await;
    assert_eq!(engine.view().partial(), None);
    // The missing one was open, and the log still has its rows; not those of the sealed one.
    assert_eq!(messages(&engine.view()), ["2/0", "3/0", "4/0"]);
    assert_eq!(floor(&engine), 4);
    let again = engine.append(batch("2", &[bench.now()], from_producer(2))).await;
    assert_eq!(again.unwrap(), AppendOutcome::Duplicate);
    let rows = batch("5", &[bench.now()], from_producer(5));
    engine.append(rows).await.unwrap();
    engine.close().await.unwrap();
    assert!(!bench.tree().contains(&tree[2]), "its number is not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_store_is_left_as_it_is_and_an_open_one_is_refused() {
    let bench = store().await;
    let before = files_below(&bench.settings.store_dir.join("meta"));
    assert_eq!(repair(&bench, true).problems, []);
    assert_eq!(files_below(&bench.settings.store_dir.join("meta")), before);
    let engine = bench.open().await;
    let refused = repair_store(&bench.settings, false, |_, _| {}, |_| {}).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_ahead_of_its_record_after_a_crash_is_no_damage() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let meta = bench.settings.store_dir.join("meta");
    let before: Vec<(PathBuf, Vec<u8>)> = files_below(&meta)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    engine
        .append(batch("b", &[bench.now()], from_producer(2)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    drop(engine);
    for (path, bytes) in before {
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(repair(&bench, true).problems, []);
    assert_eq!(messages(&bench.open().await.view()), ["a/0", "b/0"]);
}
