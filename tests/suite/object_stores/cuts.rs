//! Prefix cuts: what a lost machine had uploaded of files that were still open, and what its successor makes of it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use engine::{AckDurability, AppendOutcome, PartitionBy, RemoteMode};
use futures::stream::BoxStream;
use harness::Failure;
use model::{ByteSize, EntityId, Table};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use object_store::ObjectStoreExt;
use parquet::file::metadata::ParquetMetaDataReader;

use super::world::{Bucket, HOUR, Machine, batch, kill, messages, remote, stored, until, uploaded};

pub(super) async fn rows_of_open_files_outlive_the_machine_and_go_on_in_the_same_file(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let first = Machine::new(bucket, "machine-a")?;
    let now = first.now();
    let engine = first.open().await?;
    for seq in 1..=6 {
        engine.append(batch(seq, &[now, now + 1])).await?;
        engine.sync_remote().await?;
    }
    assert_eq!(bucket.objects("telemetry").await?.len(), 0, "no file is sealed");
    assert_eq!(bucket.objects("pieces").await?.len(), 6);
    engine.append(batch(7, &[now])).await?;
    kill(engine);
    let second = Machine::new(bucket, "machine-b")?;
    let engine = second.open().await?;
    let wanted: Vec<_> = (1..=6)
        .flat_map(|seq| [format!("{seq}/0"), format!("{seq}/1")])
        .collect();
    assert_eq!((messages(&engine.view())?, engine.view().partial()), (wanted, None));
    assert_eq!(engine.view().files(Table::Logs).len(), 1, "one file, open again");
    for seq in 1..=6 {
        assert_eq!(
            engine.append(batch(seq, &[now, now + 1])).await?,
            AppendOutcome::Duplicate,
            "{seq}"
        );
    }
    assert_eq!(engine.append(batch(7, &[now])).await?, stored(1));
    engine.sync_remote().await?;
    assert_eq!(bucket.objects("pieces").await?.len(), 7, "only what came since");
    kill(engine);
    // The hour is over: one object takes the place of the pieces.
    let third = Machine::new(bucket, "machine-c")?;
    third.advance(HOUR);
    let engine = third.open().await?;
    uploaded(&engine, 0).await?;
    assert_eq!(messages(&engine.view())?.len(), 13);
    assert_eq!(bucket.objects("telemetry").await?.len(), 1);
    third.advance(HOUR);
    engine.sync_remote().await?;
    assert_eq!(bucket.objects("pieces").await?.len(), 0, "they go after the grace");
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_machine_that_comes_back_goes_on_and_uploads_only_what_is_new(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let machine = Machine::new(bucket, "one")?;
    let now = machine.now();
    let engine = machine.open().await?;
    engine.append(batch(1, &[now])).await?;
    engine.sync_remote().await?;
    engine.append(batch(2, &[now])).await?;
    engine.flush().await?;
    kill(engine);
    let engine = machine.open().await?;
    engine.append(batch(3, &[now])).await?;
    until("a start with rows behind the last cut makes one", || {
        remote(&engine).unuploaded_rows == 0
    })
    .await?;
    engine.sync_remote().await?;
    let pieces = bucket.objects("pieces").await?;
    assert!((2..=3).contains(&pieces.len()), "{pieces:?}");
    kill(engine);
    let other = Machine::new(bucket, "two")?;
    let engine = other.open().await?;
    assert_eq!(messages(&engine.view())?, ["1/0", "2/0", "3/0"]);
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_take_over_cut_short_before_its_checkpoint_forgets_nothing(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let first = Machine::new(bucket, "machine-a")?;
    let now = first.now();
    let engine = first.open().await?;
    for seq in 1..=60 {
        engine.append(batch(seq, &[now])).await?;
    }
    uploaded(&engine, 1).await?;
    kill(engine);
    let second = Machine::new(bucket, "machine-b")?;
    kill(second.open().await?);
    // As a full disk leaves it: the catalogue's log is there, its checkpoint is not.
    let meta = second.settings.store_dir.join("meta");
    for entry in std::fs::read_dir(&meta)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("checkpoint_") || (name.starts_with("catalogue_") && !name.contains("0000000001")) {
            std::fs::remove_file(&path)?;
        } else if name.starts_with("catalogue_") {
            std::fs::File::options().write(true).open(&path)?.set_len(8)?;
        }
    }
    std::fs::write(meta.join("catalogue_0000000001.log"), b"FLUXCAT1")?;
    std::fs::remove_dir_all(&second.settings.data_dir)?;
    std::fs::remove_dir_all(second.settings.store_dir.join("wal"))?;
    for round in 0..3u64 {
        let engine = second.open().await?;
        for seq in [1, 30, 60] {
            assert_eq!(
                engine.append(batch(seq, &[now])).await?,
                AppendOutcome::Duplicate,
                "{seq} in round {round}"
            );
        }
        assert_eq!(engine.append(batch(61 + round, &[now])).await?, stored(1));
        assert_eq!(messages(&engine.view())?.len() as u64, 61 + round);
        kill(engine);
    }
    Ok(())
}

pub(super) async fn rows_that_were_dated_anew_and_other_partitions_are_known_after_a_take_over(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let first = Machine::new(bucket, "machine-a")?;
    let (past, misdated) = (first.now() - 2 * HOUR, 0);
    let engine = first.open().await?;
    engine.append(batch(1, &[past, misdated])).await?;
    uploaded(&engine, 1).await?;
    kill(engine);
    let mut second = Machine::new(bucket, "machine-b")?;
    second.settings.partition_by = engine::PartitionBy::Day;
    second.advance(HOUR);
    let engine = second.open().await?;
    assert_eq!(
        engine.append(batch(1, &[past, misdated])).await?,
        AppendOutcome::Duplicate
    );
    assert_eq!(messages(&engine.view())?, ["1/0", "1/1"]);
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_catalogue_made_anew_beside_its_bucket_has_every_row_once(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().cache_size = ByteSize::bytes(0);
    let (past, now) = (machine.now() - 2 * HOUR, machine.now());
    let engine = machine.open().await?;
    engine.append(batch(1, &[past, past + 1])).await?;
    engine.append(batch(2, &[now])).await?;
    uploaded(&engine, 1).await?;
    until("the uploaded file has left the tree", || machine.files().len() == 1).await?;
    kill(engine);
    for entry in std::fs::read_dir(machine.settings.store_dir.join("meta"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("checkpoint_") || name.starts_with("catalogue_") {
            std::fs::remove_file(&path)?;
        }
    }
    let (settings, at) = (machine.settings.clone(), model::Timestamp::from_micros(now));
    tokio::task::spawn_blocking(move || engine::rebuild_catalogue(&settings, at, |_, _| {})).await??;
    let engine = machine.open().await?;
    assert_eq!(messages(&engine.view())?, ["1/0", "1/1", "2/0"]);
    for (seq, times) in [(1, &[past, past + 1][..]), (2, &[now])] {
        assert_eq!(
            engine.append(batch(seq, times)).await?,
            AppendOutcome::Duplicate,
            "{seq}"
        );
    }
    uploaded(&engine, 1).await?;
    kill(engine);
    let other = Machine::new(bucket, "two")?;
    let engine = other.open().await?;
    assert_eq!(messages(&engine.view())?, ["1/0", "1/1", "2/0"]);
    engine.close().await?;
    Ok(())
}

pub(super) async fn producers_are_told_what_the_bucket_has_where_that_is_the_floor(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().floor = AckDurability::Bucket;
    let engine = machine.open().await?;
    let floor = |engine: &engine::Engine| engine.floor(EntityId::for_name("rack-a"), 1);
    engine.append(batch(1, &[machine.now()])).await?;
    engine.append(batch(2, &[machine.now()])).await?;
    assert_eq!(floor(&engine), 0);
    assert_eq!(engine.floor_on_disk(EntityId::for_name("rack-a"), 1), 2);
    engine.wait_for_upload(Duration::from_secs(30)).await?;
    assert_eq!(floor(&engine), 2);
    engine.append(batch(3, &[machine.now()])).await?;
    assert_eq!(floor(&engine), 2);
    kill(engine);
    let mut other = Machine::new(bucket, "two")?;
    other.remote().floor = AckDurability::Bucket;
    let engine = other.open().await?;
    assert_eq!(floor(&engine), 2);
    assert_eq!(engine.append(batch(3, &[machine.now()])).await?, stored(1));
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_reader_follows_cuts_and_sees_each_row_once_over_a_seal(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let writing = Machine::new(bucket, "writer")?;
    let now = writing.now();
    let writer = writing.open().await?;
    writer.append(batch(1, &[now])).await?;
    writer.sync_remote().await?;
    let mut reading = Machine::new(bucket, "reader")?;
    reading.remote().mode = RemoteMode::Read;
    let reader = reading.open().await?;
    assert_eq!(messages(&reader.view())?, ["1/0"]);
    writer.append(batch(2, &[now])).await?;
    writer.sync_remote().await?;
    until("the reader has the second cut", || {
        reader.view().files(Table::Logs).len() == 2
    })
    .await?;
    let before = reader.view();
    writing.advance(2 * HOUR);
    uploaded(&writer, 0).await?;
    until("the reader has the sealed file", || {
        reader.view().files(Table::Logs).iter().any(|file| file.sealed)
    })
    .await?;
    for view in [&reader.view(), &before] {
        assert_eq!(
            (messages(view)?, view.partial()),
            (vec!["1/0".to_owned(), "2/0".to_owned()], None)
        );
    }
    reader.close().await?;
    writer.close().await?;
    Ok(())
}

/// Rows that who lists the tree of data files in the bucket finds.
async fn rows_of_objects(bucket: &Bucket) -> std::result::Result<i64, Failure> {
    let mut rows = 0;
    for object in bucket.objects("telemetry").await? {
        let bytes = bucket.store.get(&object.location).await?.bytes().await?;
        rows += ParquetMetaDataReader::new()
            .parse_and_finish(&bytes)?
            .file_metadata()
            .num_rows();
    }
    Ok(rows)
}

pub(super) async fn late_rows_of_a_past_hour_come_into_a_small_object_that_is_there(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let mut machine = Machine::new(bucket, "machine-a")?;
    machine.settings.open_max = 1;
    machine.settings.flush_interval = Duration::from_secs(3_600);
    let past = machine.now() - 2 * HOUR;
    let writer = machine.open().await?;
    // The file that may be open.
    writer.append(batch(1, &[machine.now()])).await?;
    writer.sync_remote().await?;
    for seq in 2..=5 {
        writer.append(batch(seq, &[past])).await?;
        writer.sync_remote().await?;
    }
    assert_eq!(
        (bucket.objects("telemetry").await?.len(), rows_of_objects(bucket).await?),
        (4, 4)
    );
    let mut reading = Machine::new(bucket, "reader")?;
    reading.remote().mode = RemoteMode::Read;
    let reader = reading.open().await?;
    assert_eq!(messages(&reader.view())?.len(), 5);
    let before = writer.view();
    for seq in 6..=8 {
        writer.append(batch(seq, &[past])).await?;
        writer.sync_remote().await?;
        assert_eq!(writer.view().files(Table::Logs).len(), 5);
        assert_eq!(
            rows_of_objects(bucket).await?,
            4,
            "who read the object of then may go on for the grace"
        );
    }
    let wanted: Vec<String> = (1..=8).map(|seq| format!("{seq}/0")).collect();
    let reads_all = || messages(&reader.view()).is_ok_and(|found| found == wanted);
    until("the reader has the late rows", reads_all).await?;
    assert_eq!(messages(&before)?.len(), 5);
    drop(before);
    kill(writer);
    let mut other = Machine::new(bucket, "machine-b")?;
    other.settings.open_max = 1;
    other.settings.flush_interval = Duration::from_secs(3_600);
    let writer = other.open().await?;
    assert_eq!(
        (messages(&writer.view())?, writer.view().partial()),
        (wanted.clone(), None)
    );
    for seq in [2, 5, 8] {
        assert_eq!(
            writer.append(batch(seq, &[past])).await?,
            AppendOutcome::Duplicate,
            "{seq}"
        );
    }
    other.advance(HOUR / 3);
    for _ in 0..4 {
        writer.sync_remote().await?;
    }
    assert_eq!(
        (bucket.objects("telemetry").await?.len(), rows_of_objects(bucket).await?),
        (4, 7)
    );
    // Its copy is not here any more, or is: the row is stored once.
    writer.append(batch(9, &[past])).await?;
    writer.sync_remote().await?;
    let found = messages(&writer.view())?;
    assert_eq!((found.len(), found.last().map(String::as_str)), (9, Some("9/0")));
    until("the reader has the last row", || {
        messages(&reader.view()).is_ok_and(|rows| rows == found)
    })
    .await?;
    reader.close().await?;
    writer.close().await?;
    Ok(())
}

pub(super) async fn settings_that_change_between_a_kill_and_a_start_lose_and_double_nothing(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let mut machine = Machine::new(bucket, "machine-a")?;
    let (now, mut sent, mut stored_at_all) = (machine.now(), 0, 0);
    let rows = |machine: &Machine| [machine.now(), machine.now() - HOUR, 0];
    for round in 0..6 {
        let engine = machine.open().await?;
        assert_eq!(
            (messages(&engine.view())?.len(), engine.view().partial()),
            (stored_at_all, None),
            "{round}"
        );
        for seq in 1..=sent {
            assert_eq!(
                engine.append(batch(seq, &rows(&machine))).await?,
                AppendOutcome::Duplicate,
                "{seq} in round {round}"
            );
        }
        for _ in 0..3 {
            sent += 1;
            assert_eq!(engine.append(batch(sent, &rows(&machine))).await?, stored(3));
            if sent % 3 == 1 {
                engine.sync_remote().await?;
            }
        }
        stored_at_all = usize::try_from(sent)? * 3;
        kill(engine);
        let settings = &mut machine.settings;
        settings.wal_max = ByteSize::mib([16, 64, 32][round % 3]);
        settings.partition_by = [PartitionBy::Day, PartitionBy::Hour][round % 2];
        machine.remote().upload_interval = Duration::from_secs([0, 3_600][round % 2]);
    }
    // The machine is lost: what was cut is there, once.
    let mut other = Machine::new(bucket, "machine-b")?;
    other.now.store(now, Ordering::Relaxed);
    other.settings.partition_by = PartitionBy::Day;
    let engine = other.open().await?;
    let there = messages(&engine.view())?.len() / 3;
    for seq in 1..=sent {
        let wanted = if seq <= there as u64 {
            AppendOutcome::Duplicate
        } else {
            stored(3)
        };
        assert_eq!(
            engine.append(batch(seq, &rows(&other))).await?,
            wanted,
            "{seq}, {there} were there"
        );
    }
    assert_eq!(messages(&engine.view())?.len(), stored_at_all);
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_reader_that_is_an_hour_behind_says_so_and_is_right_after_its_next_look(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let writing = Machine::new(bucket, "writer")?;
    let writer = writing.open().await?;
    for seq in 1..=2 {
        writer.append(batch(seq, &[writing.now()])).await?;
        writer.sync_remote().await?;
    }
    let mut reading = Machine::new(bucket, "reader")?;
    reading.remote().mode = RemoteMode::Read;
    reading.remote().poll = Duration::from_secs(3_600);
    let reader = reading.open().await?;
    writing.advance(2 * HOUR);
    uploaded(&writer, 0).await?;
    writing.advance(HOUR);
    writer.sync_remote().await?;
    assert_eq!(bucket.objects("pieces").await?.len(), 0, "the grace is over");
    let refused = messages(&reader.view()).err().map(|error| error.to_string());
    assert!(
        refused.as_ref().is_some_and(|text| text.contains("pieces/")),
        "{refused:?}"
    );
    assert_eq!(reader.view().partial(), None, "nothing is damaged");
    reader.sync_remote().await?;
    assert_eq!(
        (messages(&reader.view())?, reader.view().partial()),
        (vec!["1/0".to_owned(), "2/0".to_owned()], None)
    );
    reader.close().await?;
    writer.close().await?;
    Ok(())
}

pub(super) async fn a_reader_that_is_cut_off_amid_its_records_misses_none_of_them(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let writing = Machine::new(bucket, "writer")?;
    let writer = writing.open().await?;
    writer.append(batch(1, &[writing.now()])).await?;
    writer.sync_remote().await?;
    let (moody, seen) = Moody::of(bucket);
    let mut reading = Machine::new(&seen, "reader")?;
    reading.remote().mode = RemoteMode::Read;
    let reader = reading.open().await?;
    for round in 0..4u64 {
        moody.left.store(0, Ordering::Relaxed);
        let first = 2 + round * 4;
        for seq in first..first + 4 {
            writer.append(batch(seq, &[writing.now()])).await?;
            writer.sync_remote().await?;
        }
        moody.left.store(round + 1, Ordering::Relaxed);
        until("the reader is cut off again", || {
            moody.left.load(Ordering::Relaxed) == 0
        })
        .await?;
        moody.left.store(u64::MAX, Ordering::Relaxed);
        let wanted = messages(&writer.view())?;
        until("the reader has every row", || {
            messages(&reader.view()).is_ok_and(|found| found == wanted)
        })
        .await?;
    }
    reader.close().await?;
    writer.close().await?;
    Ok(())
}

pub(super) async fn cuts_are_made_by_the_interval_and_an_idle_store_makes_none(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().upload_interval = Duration::from_millis(100);
    let engine = machine.open().await?;
    for seq in 1..=40 {
        engine.append(batch(seq, &[machine.now()])).await?;
        until("the row is uploaded", || remote(&engine).unuploaded_rows == 0).await?;
    }
    let objects = bucket.objects("pieces").await?.len();
    assert!((1..=40).contains(&objects), "{objects}");
    let (records, puts) = (remote(&engine).records, remote(&engine).writes);
    assert!(remote(&engine).record_bytes < 4_096, "{:?}", remote(&engine));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((remote(&engine).records, remote(&engine).writes), (records, puts));
    engine.close().await?;
    let other = Machine::new(bucket, "two")?;
    let engine = other.open().await?;
    assert_eq!(messages(&engine.view())?.len(), 40);
    engine.close().await?;
    Ok(())
}

/// A bucket that dies at a call, or in which a write comes late.
#[derive(Debug)]
struct Moody {
    inner: Arc<dyn ObjectStore>,
    /// Calls that are left until none is answered any more.
    left: AtomicU64,
    /// A write of a record that was refused and comes with the next one under its name.
    late: Mutex<Late>,
}

#[derive(Debug)]
enum Late {
    No,
    Refuse(Option<(Path, PutPayload)>),
    Land(Path, PutPayload),
}

impl fmt::Display for Moody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("moody")
    }
}

impl Moody {
    fn of(bucket: &Bucket) -> (Arc<Self>, Bucket) {
        let moody = Arc::new(Self {
            inner: Arc::clone(&bucket.store),
            left: AtomicU64::new(u64::MAX),
            late: Mutex::new(Late::No),
        });
        let bucket = Bucket::new(Arc::clone(&moody) as _, None).under(bucket.prefix.as_ref());
        (moody, bucket)
    }

    fn step(&self) -> Result<()> {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        // An answer that is not tried again.
        left.map(|_| ()).map_err(|_| Error::PermissionDenied {
            path: String::new(),
            source: "AccessDenied (injected)".into(),
        })
    }
}

#[async_trait]
impl ObjectStore for Moody {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.step()?;
        let landing = {
            let mut late = self.late.lock().expect("nobody panics");
            match &mut *late {
                Late::Refuse(first) if location.as_ref().contains("meta/log/") => {
                    first.get_or_insert_with(|| (location.clone(), payload.clone()));
                    return Err(Error::Generic {
                        store: "moody",
                        source: "503 SlowDown (injected)".into(),
                    });
                }
                Late::Land(path, bytes) if path == location => Some(bytes.clone()),
                _ => None,
            }
        };
        if let Some(first) = landing {
            *self.late.lock().expect("nobody panics") = Late::No;
            self.inner.put_opts(location, first, opts.clone()).await?;
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.step()?;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

pub(super) async fn a_take_over_that_ends_at_any_call_is_finished_by_the_next_start(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let (moody, bucket) = Moody::of(bucket);
    let machine = Machine::new(&bucket, "first")?;
    let (now, past) = (machine.now(), machine.now() - 2 * HOUR);
    let engine = machine.open().await?;
    engine.append(batch(1, &[past, now])).await?;
    engine.append(batch(2, &[now])).await?;
    uploaded(&engine, 1).await?;
    engine.append(batch(3, &[now])).await?;
    engine.sync_remote().await?;
    kill(engine);
    let mut seq = 3;
    for calls in 0.. {
        let machine = Machine::new(&bucket, &format!("machine-{calls}"))?;
        moody.left.store(calls, Ordering::Relaxed);
        let opened = machine.open().await;
        let is_done = opened.is_ok();
        drop(opened);
        moody.left.store(u64::MAX, Ordering::Relaxed);
        let engine = machine.open().await?;
        assert_eq!(messages(&engine.view())?.len() as u64, seq + 1, "after {calls} calls");
        for seq in 1..=seq {
            assert_eq!(
                engine.append(batch(seq, &[now])).await?,
                AppendOutcome::Duplicate,
                "{seq} after {calls} calls"
            );
        }
        seq += 1;
        assert_eq!(engine.append(batch(seq, &[now])).await?, stored(1));
        engine.sync_remote().await?;
        kill(engine);
        if is_done {
            assert!(calls > 8, "{calls}");
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_commit_that_comes_late_does_not_fence_its_own_writer(
    bucket: &Bucket,
) -> std::result::Result<(), Failure> {
    let (moody, bucket) = Moody::of(bucket);
    let machine = Machine::new(&bucket, "one")?;
    let engine = machine.open().await?;
    engine.append(batch(1, &[machine.now()])).await?;
    *moody.late.lock().expect("nobody panics") = Late::Refuse(None);
    engine.sync_remote().await.unwrap_err();
    let refused = std::mem::replace(&mut *moody.late.lock().expect("nobody panics"), Late::No);
    let Late::Refuse(Some((path, bytes))) = refused else {
        return Err("no record was written".into());
    };
    engine.append(batch(2, &[machine.now()])).await?;
    *moody.late.lock().expect("nobody panics") = Late::Land(path, bytes);
    while engine.sync_remote().await.is_err() {}
    assert_eq!(engine.append(batch(3, &[machine.now()])).await?, stored(1));
    engine.sync_remote().await?;
    kill(engine);
    let other = Machine::new(&bucket, "two")?;
    let engine = other.open().await?;
    assert_eq!(messages(&engine.view())?, ["1/0", "2/0", "3/0"]);
    engine.close().await?;
    Ok(())
}
