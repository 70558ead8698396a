//! Links of published files: the same bytes whatever becomes of the tree, and what is done where there can be none.

use std::collections::BTreeSet;

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::published_files::{append, path_of, rows_by_footer, two_sealed_and_one_open};
use super::retention::{DAY, pass};
use super::*;
use crate::{PublishedFile, PublishedFiles};

#[tokio::test(flavor = "multi_thread")]
async fn a_link_has_the_same_bytes_whatever_becomes_of_the_file_and_holds_nothing_back() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.open_max = 1;
    bench.settings.seal_grace = Duration::ZERO;
    bench.settings.rotation.check_interval = Duration::from_millis(1);
    let engine = bench.open().await;
    append(&engine, "0", &[bench.now()], 1).await;
    for seq in 2..=5 {
        append(&engine, &seq.to_string(), &[bench.now() - HOUR], seq).await;
        engine.flush().await.unwrap();
    }
    until("small files are sealed", || engine.published_files().files.len() == 4).await;
    let in_tree = engine.published_files();
    let paths: Vec<_> = in_tree.files.iter().map(path_of).collect();
    let contents: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let linked = in_tree.pinned(&engine.side_objects()).unwrap().list;
    append(&engine, "6", &[bench.now() - HOUR], 6).await;
    engine.flush().await.unwrap();
    until("one was rewritten", || stats(&engine).rewritten_files == 1).await;
    let now: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(
        now.iter().zip(&contents).filter(|(now, before)| now != before).count(),
        1,
        "the tree has late rows in one of them"
    );
    let read = |linked: &PublishedFiles| -> Vec<Vec<u8>> {
        let files = linked.files.iter();
        files.map(|file| std::fs::read(path_of(file)).unwrap()).collect()
    };
    assert_eq!(read(&linked), contents);
    let later = engine.published_files().pinned(&engine.side_objects()).unwrap().list;
    assert_eq!(later.files.len(), 4);
    let is_shared = |file: &&PublishedFile| linked.files.iter().any(|other| other.uri == file.uri);
    assert_eq!(later.files.iter().filter(is_shared).count(), 3);
    for file in &later.files {
        let name = format!("iceberg/files/{:016}_{}_", file.segment, file.version);
        assert!(file.uri.contains(&name), "{}", file.uri);
        assert_eq!(rows_by_footer(file).await, i64::try_from(file.rows).ok());
    }
    // Neither the partition nor a restart waits for them, or takes them away.
    pass(&bench, &engine, 40 * DAY);
    until("all went", || bench.tree().is_empty()).await;
    assert_eq!(read(&linked), contents);
    engine.close().await.unwrap();
    let engine = bench.open().await;
    assert_eq!((read(&linked), engine.published_files().files.len()), (contents, 0));
    // Nobody publishes them any more.
    let folder = bench.settings.store_dir.join("iceberg/files");
    assert!(folder.is_dir());
    engine.unpin_all().unwrap();
    assert!(!folder.exists());
    engine.unpin_all().unwrap();
    engine.close().await.unwrap();
}

/// A store with one sealed file, of a row of that name.
async fn one_sealed(bench: &mut Bench, name: &str) -> Arc<Engine> {
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.seal_grace = Duration::ZERO;
    bench.settings.rotation.check_interval = Duration::from_millis(1);
    let engine = bench.open().await;
    append(&engine, name, &[bench.now() - 5 * HOUR], 1).await;
    engine.flush().await.unwrap();
    until("it is sealed", || engine.published_files().files.len() == 1).await;
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_linked_is_left_out_and_one_without_links_keeps_its_name() {
    let mut bench = Bench::new();
    let engine = two_sealed_and_one_open(&mut bench).await;
    let objects = engine.side_objects();
    let links = bench.settings.store_dir.join("iceberg/files");
    let uris = |list: &PublishedFiles| -> BTreeSet<String> { list.files.iter().map(|file| file.uri.clone()).collect() };
    let in_tree = uris(&engine.published_files());
    let faults = FaultInjector::below(&bench.settings.store_dir);
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS, libc::EXDEV] {
        // One refusal speaks for all files of the table.
        faults.fail(FsOperation::Link, "iceberg", 1, errno);
        let pinned = engine.published_files().pinned(&objects).unwrap();
        assert_eq!(
            (uris(&pinned.list), pinned.left_out.len()),
            (in_tree.clone(), 0),
            "{errno}"
        );
        assert!(pinned.refusal.is_some(), "{errno}");
    }
    faults.fail(FsOperation::Link, "iceberg", 1, libc::EMLINK);
    let pinned = engine.published_files().pinned(&objects).unwrap();
    assert_eq!(uris(&pinned.list).intersection(&in_tree).count(), 1);
    assert!(pinned.refusal.is_none() && pinned.left_out.is_empty());
    std::fs::remove_dir_all(&links).unwrap();

    faults.fail(FsOperation::Link, "iceberg", 1, libc::EIO);
    let pinned = engine.published_files().pinned(&objects).unwrap();
    assert_eq!((pinned.list.files.len(), pinned.left_out.len()), (1, 1));
    assert!(pinned.list.files[0].is_pinned());
    assert_eq!(faults.left(), 0);
    let pinned = engine.published_files().pinned(&objects).unwrap();
    assert_eq!((pinned.list.files.len(), pinned.left_out.len()), (2, 0));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_there_is_not_taken_for_another_file_with_the_same_numbers() {
    let (mut bench, mut other) = (Bench::new(), Bench::new());
    let engine = one_sealed(&mut bench, "before").await;
    let objects = engine.side_objects();
    let before = engine.published_files().pinned(&objects).unwrap().list;
    // As a store that was restored from a copy of an earlier time has it, beside the links of the later one.
    let restored = one_sealed(&mut other, "after").await;
    let in_tree = restored.published_files();
    let after = restored.published_files().pinned(&objects).unwrap().list;
    let numbers = |published: &PublishedFiles| (published.files[0].segment, published.files[0].version);
    assert_eq!(numbers(&before), numbers(&after));
    let content = |published: &PublishedFiles| std::fs::read(path_of(&published.files[0])).unwrap();
    assert_eq!(content(&after), content(&in_tree));
    assert_ne!(content(&after), content(&before));
    engine.close().await.unwrap();
    restored.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_disk_is_full_links_of_files_that_left_the_store_go_at_once_and_no_others() {
    let mut bench = Bench::new();
    let engine = two_sealed_and_one_open(&mut bench).await;
    let newer_in_tree = {
        let in_tree = engine.published_files().files;
        path_of(in_tree.iter().find(|file| file.rows == 1).unwrap())
    };
    let linked = engine.published_files().pinned(&engine.side_objects()).unwrap().list;
    let [old, newer] = [2, 1].map(|rows| {
        let file = linked.files.iter().find(|file| file.rows == rows);
        path_of(file.unwrap())
    });
    // The hour of the older one has ended thirty days before that, and the other's has not.
    pass(&bench, &engine, 30 * DAY - 4 * 3_600);
    let is_in_tree = |file: &PublishedFile| engine.published_files().files.iter().any(|f| f.segment == file.segment);
    until("the older one expired", || {
        linked.files.iter().filter(|file| is_in_tree(file)).count() == 1
    })
    .await;
    until("it left the tree", || bench.tree().len() == 2).await;
    engine.rotate().await.unwrap();
    assert!(old.exists() && newer.exists(), "there is room");
    // Somebody removes the other one's name in the tree: its link is all there is.
    std::fs::remove_file(newer_in_tree).unwrap();
    let space = &engine.shared.admission.space;
    space.set_needed(u64::MAX / 4);
    assert!(space.look());
    until("its link went", || !old.exists()).await;
    engine.rotate().await.unwrap();
    assert!(newer.exists());
    space.set_needed(0);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_durable_when_the_list_is_given_back_whoever_made_them() {
    let mut bench = Bench::new();
    let engine = one_sealed(&mut bench, "a").await;
    let objects = engine.side_objects();
    let faults = FaultInjector::below(&bench.settings.store_dir);
    faults.fail(FsOperation::SyncFolder, "iceberg/files", 1, libc::EIO);
    assert!(engine.published_files().pinned(&objects).is_err());
    let syncs = || {
        let done = faults.done("iceberg/files");
        done.iter().filter(|op| **op == FsOperation::SyncFolder).count()
    };
    let before = syncs();
    let pinned = engine.published_files().pinned(&objects).unwrap();
    assert!(pinned.list.files[0].is_pinned());
    assert_eq!((syncs() - before, faults.left()), (1, 0));
    engine.close().await.unwrap();
}
