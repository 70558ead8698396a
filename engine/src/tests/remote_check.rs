//! What the repair tools do to a store that has an object store.

use durable_fs::fault_injection::{FaultInjector, FsOperation};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::*;
use crate::quarantine::move_to_quarantine;
use crate::{CheckReport, RebuildReport, RemoteSettings, check_store, rebuild_catalogue, repair_store};

/// A closed store of one sealed file of 300 rows, uploaded and still in the tree, and of one open file.
struct Uploaded {
    bench: Bench,
    objects: Arc<InMemory>,
}

impl Uploaded {
    async fn new() -> Self {
        let mut bench = Bench::new();
        bench.ticks_every(Duration::from_millis(5));
        bench.settings.seal_grace = Duration::ZERO;
        let objects = Arc::new(InMemory::new());
        let remote = RemoteSettings::new("s3://test/p", Arc::clone(&objects) as _, ObjectPath::from("p"));
        bench.settings.remote = Some(RemoteSettings {
            host: "one".to_owned(),
            poll: Duration::from_millis(10),
            grace: Duration::ZERO,
            ..remote
        });
        let uploaded = Self { bench, objects };
        let engine = uploaded.bench.open().await;
        let times: Vec<i64> = (0..300).map(|row| uploaded.bench.now() - 5 * HOUR - row).collect();
        uploaded.append(&engine, "old", &times, 1).await;
        uploaded.append(&engine, "new", &[uploaded.bench.now()], 2).await;
        engine.flush().await.unwrap();
        until("the past hour is sealed", || stats(&engine).open_files == 1).await;
        engine.sync_remote().await.unwrap();
        engine.close().await.unwrap();
        uploaded
    }

    async fn append(&self, engine: &Engine, name: &str, times: &[i64], seq: u64) {
        engine.append(batch(name, times, from_producer(seq))).await.unwrap();
    }

    /// The copy of the uploaded file.
    fn copy(&self) -> PathBuf {
        self.bench.tree()[0].clone()
    }

    fn settings(&self) -> Settings {
        self.bench.settings.clone()
    }

    async fn check(&self, deep: bool) -> CheckReport {
        let settings = self.settings();
        let check = move || check_store(&settings, deep, |_, _| {}).unwrap();
        tokio::task::spawn_blocking(check).await.unwrap()
    }

    async fn repair(&self, deep: bool) -> CheckReport {
        let settings = self.settings();
        let repair = move || repair_store(&settings, deep, |_, _| {}, |_| {}).unwrap();
        tokio::task::spawn_blocking(repair).await.unwrap()
    }

    async fn rebuild(&self) -> RebuildReport {
        for path in files_below(&self.bench.settings.store_dir.join("meta")) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with("catalogue_") || name.starts_with("checkpoint_") {
                std::fs::remove_file(path).unwrap();
            }
        }
        self.rebuild_what_is_left().await
    }

    async fn rebuild_what_is_left(&self) -> RebuildReport {
        let (settings, now) = (self.settings(), Timestamp::from_micros(self.bench.now()));
        let rebuild = move || rebuild_catalogue(&settings, now, |_, _| {}).unwrap();
        tokio::task::spawn_blocking(rebuild).await.unwrap()
    }

    async fn data_objects(&self) -> Vec<ObjectPath> {
        self.objects_below("p/telemetry").await
    }

    async fn objects_below(&self, prefix: &str) -> Vec<ObjectPath> {
        use futures::TryStreamExt;
        let all = self.objects.list(Some(&ObjectPath::from(prefix)));
        let all: Vec<_> = all.try_collect().await.unwrap();
        all.into_iter().map(|object| object.location).collect()
    }

    async fn damage_object(&self) {
        let object = &self.data_objects().await[0];
        let mut bytes = self.objects.get(object).await.unwrap().bytes().await.unwrap().to_vec();
        bytes[9] ^= 1;
        self.objects.put(object, PutPayload::from(bytes)).await.unwrap();
    }

    /// Opens the store, and waits for what a removal would have done to the bucket. The rows, and the objects that are left.
    async fn rows_and_objects(&self) -> (usize, usize) {
        let engine = self.bench.open().await;
        assert_eq!(engine.view().partial(), None);
        let again = batch("old", &[self.bench.now()], from_producer(1));
        assert_eq!(engine.append(again).await.unwrap(), AppendOutcome::Duplicate);
        for _ in 0..3 {
            self.bench.advance(Duration::from_secs(60));
            engine.sync_remote().await.unwrap();
        }
        let view = engine.view();
        let rows = tokio::task::spawn_blocking(move || messages(&view).len())
            .await
            .unwrap();
        engine.close().await.unwrap();
        (rows, self.data_objects().await.len())
    }
}

type Damage = (&'static str, bool, fn(&mut Vec<u8>));

/// What may happen to a local copy, and whether only a deep check sees it.
const DAMAGES: [Damage; 4] = [
    ("a flipped bit", true, |bytes| bytes[40] ^= 1),
    ("a flipped bit in the footer", false, |bytes| {
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
    }),
    ("a cut end", false, |bytes| bytes.truncate(bytes.len() - 100)),
    ("bytes behind its end", false, |bytes| bytes.extend([0; 64])),
];

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn damage(path: &Path, how: fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    how(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_quarantines_a_damaged_copy_and_keeps_the_sound_object() {
    for (name, only_deep, how) in DAMAGES {
        let store = Uploaded::new().await;
        let copy = store.copy();
        damage(&copy, how);
        let checked = store.check(true).await;
        let problem = &checked.problems[0];
        assert_eq!((&problem.path, problem.object_is_sound), (&copy, true), "{name}");
        assert_eq!(store.check(false).await.problems.is_empty(), only_deep, "{name}");
        let repaired = store.repair(only_deep).await;
        let problem = &repaired.problems[0];
        assert!(problem.object_is_sound && problem.kept.is_some(), "{name}: {problem:?}");
        assert!(!copy.exists(), "{name}");
        assert_eq!(store.repair(true).await.problems, [], "{name}");
        assert_eq!(store.rows_and_objects().await, (301, 1), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_lets_a_file_go_only_when_copy_and_object_are_damaged() {
    let store = Uploaded::new().await;
    let copy = store.copy();
    damage(&copy, DAMAGES[0].2);
    store.damage_object().await;
    let repaired = store.repair(true).await;
    let problem = &repaired.problems[0];
    assert!(!problem.object_is_sound && problem.kept.is_some(), "{problem:?}");
    assert!(problem.what.contains("in the object store"), "{problem:?}");
    assert_eq!(store.rows_and_objects().await.0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_reads_the_object_before_it_relies_on_it_even_if_it_is_not_deep() {
    let store = Uploaded::new().await;
    let copy = store.copy();
    damage(&copy, DAMAGES[2].2);
    store.objects.delete(&store.data_objects().await[0]).await.unwrap();
    let repaired = store.repair(false).await;
    assert!(!repaired.problems[0].object_is_sound, "{:?}", repaired.problems);
    assert_eq!(store.rows_and_objects().await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_leaves_an_open_file_to_its_pieces() {
    for is_missing in [false, true] {
        let store = Uploaded::new().await;
        let open = store
            .bench
            .tree()
            .into_iter()
            .find(|path| *path != store.copy())
            .unwrap();
        if is_missing {
            std::fs::remove_file(&open).unwrap();
        } else {
            damage(&open, DAMAGES[2].2);
        }
        let repaired = store.repair(true).await;
        let problem = &repaired.problems[0];
        assert_eq!((&problem.path, problem.object_is_sound), (&open, true), "{problem:?}");
        assert_eq!(store.rows_and_objects().await, (301, 1), "missing: {is_missing}");
    }
}

/// A store whose open file was sealed since its two rows were uploaded in pieces, and the sealed file.
async fn sealed_since_its_pieces() -> (Uploaded, PathBuf) {
    let mut store = Uploaded::new().await;
    if let Some(remote) = &mut store.bench.settings.remote {
        remote.upload_interval = Duration::from_secs(3_600);
    }
    let engine = store.bench.open().await;
    store.append(&engine, "new", &[store.bench.now()], 3).await;
    engine.sync_remote().await.unwrap();
    store.bench.advance(Duration::from_secs(2 * 3_600));
    until("the open file is sealed", || stats(&engine).open_files == 0).await;
    // It ends before the sealed file is uploaded.
    drop(engine);
    let is_sealed = |path: &PathBuf| *path != store.copy();
    let sealed = store.bench.tree().into_iter().find(is_sealed).unwrap();
    (store, sealed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_puts_a_sealed_file_together_from_its_pieces() {
    for is_missing in [false, true] {
        let (store, sealed) = sealed_since_its_pieces().await;
        if is_missing {
            std::fs::remove_file(&sealed).unwrap();
        } else {
            damage(&sealed, DAMAGES[2].2);
        }
        let repaired = store.repair(true).await;
        assert_eq!(
            (repaired.problems.len(), repaired.problems[0].rows),
            (1, 0),
            "{:?}",
            repaired.problems
        );
        assert_eq!(store.rows_and_objects().await.0, 302, "missing: {is_missing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_removes_no_piece_of_a_file_of_which_one_is_damaged() {
    let (store, sealed) = sealed_since_its_pieces().await;
    damage(&sealed, DAMAGES[2].2);
    let objects = store.objects_below("p/pieces").await;
    let piece = objects.first().unwrap();
    let mut bytes = store.objects.get(piece).await.unwrap().bytes().await.unwrap().to_vec();
    bytes[9] ^= 1;
    store.objects.put(piece, PutPayload::from(bytes)).await.unwrap();
    store.repair(true).await;
    let engine = store.bench.open().await;
    for _ in 0..3 {
        store.bench.advance(Duration::from_secs(60));
        engine.sync_remote().await.unwrap();
    }
    engine.close().await.unwrap();
    let left = store.objects_below("p/pieces").await;
    assert!(
        objects.iter().all(|object| left.contains(object)),
        "{objects:?} {left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_takes_the_uploaded_version_of_a_file_that_was_damaged_since_it_was_written_anew() {
    let objects = Arc::new(InMemory::new());
    let mut bench = machine(&objects, "one");
    bench.settings.open_max = 1;
    let engine = bench.open().await;
    engine
        .append(batch("0", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    for seq in 2..=6 {
        engine
            .append(batch(&seq.to_string(), &[bench.now() - HOUR], from_producer(seq)))
            .await
            .unwrap();
        if seq < 6 {
            engine.sync_remote().await.unwrap();
        }
    }
    engine.flush().await.unwrap();
    assert_eq!(stats(&engine).rewritten_files, 1);
    let view = engine.view();
    let rewritten = view
        .files(Table::Logs)
        .iter()
        .max_by_key(|file| file.rows)
        .unwrap()
        .path
        .clone();
    // It ends before anything of it is uploaded.
    drop((view, engine));
    damage(&rewritten, DAMAGES[2].2);
    let settings = bench.settings.clone();
    let repair = move || repair_store(&settings, true, |_, _| {}, |_| {}).unwrap();
    let repaired = tokio::task::spawn_blocking(repair).await.unwrap();
    assert_eq!(
        (repaired.problems.len(), repaired.problems[0].rows),
        (1, 1),
        "{:?}",
        repaired.problems
    );
    let engine = bench.open().await;
    engine.sync_remote().await.unwrap();
    let mut found = messages(&engine.view());
    found.sort();
    assert_eq!(found, ["0/0", "2/0", "3/0", "4/0", "5/0"]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_another_store_is_not_asked_about_this_one() {
    let (store, mut other) = (Uploaded::new().await, Bench::new());
    other.advance(Duration::from_secs(60));
    other.open().await.close().await.unwrap();
    other.settings.remote = store.settings().remote;
    let refused = tokio::task::spawn_blocking(move || check_store(&other.settings, true, |_, _| {})).await;
    let refused = refused.unwrap().unwrap_err();
    assert!(matches!(refused, Error::OtherStore { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_another_prefix_nothing_is_called_missing_and_nothing_is_repaired() {
    let store = Uploaded::new().await;
    std::fs::remove_file(store.copy()).unwrap();
    let mut elsewhere = store.settings();
    elsewhere.remote.as_mut().unwrap().prefix = ObjectPath::from("q");
    let tools = tokio::task::spawn_blocking(move || {
        let now = Timestamp::from_micros(0);
        let check = check_store(&elsewhere, false, |_, _| {}).unwrap_err();
        let repair = repair_store(&elsewhere, false, |_, _| {}, |_| {}).unwrap_err();
        let meta = elsewhere.store_dir.join("meta");
        for path in files_below(&meta) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with("catalogue_") {
                let middle = std::fs::metadata(&path).unwrap().len() / 2;
                flip(&path, usize::try_from(middle).unwrap());
            }
        }
        (
            check,
            repair,
            rebuild_catalogue(&elsewhere, now, |_, _| {}).unwrap_err(),
        )
    });
    let (check, repair, rebuild) = tools.await.unwrap();
    for refused in [check, repair, rebuild] {
        let text = refused.to_string();
        assert!(text.contains("observability.embedded.storage.url"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_takes_a_damaged_copy_from_the_bucket_instead() {
    for (name, _, how) in DAMAGES {
        let store = Uploaded::new().await;
        let copy = store.copy();
        damage(&copy, how);
        let report = store.rebuild().await;
        let problem = &report.problems[0];
        assert!(problem.object_is_sound && problem.kept.is_some(), "{name}: {problem:?}");
        assert!(!copy.exists(), "{name}");
        assert_eq!((report.files, report.rows), (2, 301), "{name}");
        assert_eq!(store.rows_and_objects().await, (301, 1), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_names_what_is_in_the_bucket_only_and_no_row_is_doubled() {
    let store = Uploaded::new().await;
    std::fs::remove_file(store.copy()).unwrap();
    let report = store.rebuild().await;
    assert_eq!((report.files, report.rows, report.problems), (2, 301, vec![]));
    assert_eq!(store.rows_and_objects().await, (301, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_of_a_catalogue_that_lost_its_end_is_taken_for_the_newer_one() {
    let store = Uploaded::new().await;
    let engine = store.bench.open().await;
    store.append(&engine, "new", &[store.bench.now()], 3).await;
    engine.sync_remote().await.unwrap();
    store.append(&engine, "later", &[store.bench.now()], 4).await;
    drop(engine);
    for path in files_below(&store.bench.settings.store_dir.join("meta")) {
        if path.file_name().unwrap().to_str().unwrap().starts_with("catalogue_") {
            std::fs::remove_file(path).unwrap();
        }
    }
    store.rebuild_what_is_left().await;
    assert_eq!(store.rows_and_objects().await.0, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flip_in_an_open_file_with_many_pieces_stops_neither_publishing_nor_cuts() {
    let mut store = Uploaded::new().await;
    let engine = store.bench.open().await;
    // As many pieces as are put together with the next one.
    for seq in 3..34 {
        store.append(&engine, "new", &[store.bench.now()], seq).await;
        engine.sync_remote().await.unwrap();
    }
    store.append(&engine, "new", &[store.bench.now()], 40).await;
    engine.flush().await.unwrap();
    let view = engine.view();
    let open = view.files(Table::Logs).iter().find(|file| !file.sealed).unwrap();
    flip(&open.path, 40);
    engine.sync_remote().await.unwrap();
    for seq in 41..44 {
        store.append(&engine, "new", &[store.bench.now()], seq).await;
        engine.flush().await.unwrap();
        engine.sync_remote().await.unwrap();
    }
    drop((view, engine));
    // A machine that is lost with its damaged file.
    store.bench.settings.store_dir.push("another");
    assert_eq!(store.rows_and_objects().await.0, 336);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_prefers_the_sealed_object_to_an_older_copy() {
    let store = Uploaded::new().await;
    let copy = store.copy();
    move_to_quarantine(&crate::layout::StoreLayout::new(&store.settings()), &copy).unwrap();
    // Cut so that nothing in it says what it is.
    std::fs::write(&copy, b"PAR1").unwrap();
    let report = store.rebuild().await;
    assert!(report.problems[0].object_is_sound, "{:?}", report.problems);
    assert_eq!(store.rows_and_objects().await, (301, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetched_copy_that_is_evicted_before_it_is_opened_is_fetched_again() {
    let store = Uploaded::new().await;
    let copy = store.copy();
    std::fs::remove_file(&copy).unwrap();
    let engine = store.bench.open().await;
    let evictions = Arc::new(AtomicI64::new(2));
    let (left, evicted) = (Arc::clone(&evictions), copy.clone());
    engine.shared.remote.as_ref().unwrap().cache.after_fetch.is(move || {
        if left.fetch_sub(1, Ordering::Relaxed) > 0 {
            std::fs::remove_file(&evicted).unwrap();
        }
    });
    let view = engine.view();
    let opened = tokio::task::spawn_blocking(move || view.files(Table::Logs)[0].open().map(|_| ()));
    opened.await.unwrap().unwrap();
    assert_eq!(stats(&engine).remote.unwrap().fetched_files, 3);
    // A disk that never keeps it is an error, not a query without end.
    std::fs::remove_file(&copy).unwrap();
    evictions.store(i64::MAX, Ordering::Relaxed);
    let view = engine.view();
    let refused = tokio::task::spawn_blocking(move || view.files(Table::Logs)[0].open().map(|_| ())).await;
    let refused = refused.unwrap().unwrap_err();
    assert!(matches!(&refused, Error::Io { path, .. } if path == &copy), "{refused}");
    assert_eq!(engine.view().partial(), None, "nothing is damaged");
    engine.close().await.unwrap();
}

/// A machine of its own behind the same bucket, and what it stores.
pub(super) fn machine(objects: &Arc<InMemory>, host: &str) -> Bench {
    let mut bench = Bench::new();
    let remote = RemoteSettings::new("s3://test/p", Arc::clone(objects) as _, ObjectPath::from("p"));
    bench.settings.seal_grace = Duration::ZERO;
    bench.settings.remote = Some(RemoteSettings {
        host: host.to_owned(),
        poll: Duration::from_millis(10),
        upload_interval: Duration::from_secs(3_600),
        close_patience: Duration::ZERO,
        ..remote
    });
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_on_a_full_disk_is_made_again_and_has_every_row() {
    for (op, part) in [
        (FsOperation::Create, "piece_"),
        (FsOperation::SyncFile, ".twin"),
        (FsOperation::SyncFile, "catalogue_"),
    ] {
        let objects = Arc::new(InMemory::new());
        let first = machine(&objects, "one");
        let engine = first.open().await;
        for (seq, name) in [(1, "a"), (2, "b")] {
            engine
                .append(batch(name, &[first.now()], from_producer(seq)))
                .await
                .unwrap();
            engine.sync_remote().await.unwrap();
        }
        engine
            .append(batch("c", &[first.now()], from_producer(3)))
            .await
            .unwrap();
        let faults = FaultInjector::below(first.dir.path());
        faults.fail(op, part, 1, libc::ENOSPC);
        let refused = engine.sync_remote().await;
        assert!(refused.is_err() || faults.left() == 0, "{op:?} {part}");
        drop(faults);
        let mut tries = 0;
        while engine.sync_remote().await.is_err() {
            tries += 1;
            assert!(tries < 10, "{op:?} {part}: no cut succeeds");
        }
        drop(engine);
        let second = machine(&objects, "two");
        let engine = second.open().await;
        assert_eq!(messages(&engine.view()).len(), 3, "{op:?} {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_that_fails_at_a_local_step_is_finished_by_the_next_start() {
    let steps = [
        (FsOperation::Create, "checkpoint_"),
        (FsOperation::SyncFile, "checkpoint_"),
        (FsOperation::Rename, "checkpoint_"),
        (FsOperation::Create, "catalogue_"),
        (FsOperation::SyncFile, "catalogue_"),
        (FsOperation::Create, ".fetching"),
        (FsOperation::SyncFile, ".fetching"),
        (FsOperation::Rename, ".fetching"),
        (FsOperation::Create, ".twin"),
        (FsOperation::SyncFile, ".twin"),
        (FsOperation::Rename, ".twin"),
        (FsOperation::SyncFolder, "meta"),
        (FsOperation::SyncFolder, "logs"),
        (FsOperation::Remove, "piece_"),
    ];
    for (op, part) in steps {
        let objects = Arc::new(InMemory::new());
        let first = machine(&objects, "one");
        let engine = first.open().await;
        for (seq, name) in [(1, "a"), (2, "b")] {
            let times = [first.now(), first.now() - 3 * HOUR];
            engine.append(batch(name, &times, from_producer(seq))).await.unwrap();
            engine.sync_remote().await.unwrap();
        }
        drop(engine);
        let second = machine(&objects, "two");
        let faults = FaultInjector::below(second.dir.path());
        faults.fail(op, part, 1, libc::ENOSPC);
        let opened = second.try_open().await;
        let was_refused = opened.is_err();
        drop((opened, faults));
        let engine = second.open().await;
        let found = messages(&engine.view());
        assert_eq!(
            (found.len(), engine.view().partial()),
            (4, None),
            "{op:?} {part}, refused: {was_refused}"
        );
        for (seq, name) in [(1, "a"), (2, "b")] {
            let again = engine.append(batch(
                name,
                &[second.now(), second.now() - 3 * HOUR],
                from_producer(seq),
            ));
            assert_eq!(again.await.unwrap(), AppendOutcome::Duplicate, "{op:?} {part}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_panics_leaves_nobody_waiting_for_it() {
    let store = Uploaded::new().await;
    let copy = store.copy();
    std::fs::remove_file(&copy).unwrap();
    let engine = store.bench.open().await;
    let panics = Arc::new(AtomicI64::new(1));
    let lost = copy.clone();
    engine.shared.remote.as_ref().unwrap().cache.after_fetch.is(move || {
        if panics.fetch_sub(1, Ordering::Relaxed) > 0 {
            std::fs::remove_file(&lost).unwrap();
            panic!("what a test does");
        }
    });
    let open = || {
        let view = engine.view();
        tokio::task::spawn_blocking(move || view.files(Table::Logs)[0].open().map(|_| ()))
    };
    assert!(open().await.unwrap_err().is_panic());
    open().await.unwrap().unwrap();
    engine.close().await.unwrap();
}
