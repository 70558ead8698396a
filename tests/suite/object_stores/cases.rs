//! One machine and its bucket.

use std::sync::Arc;
use std::time::Duration;

use engine::{AppendOutcome, RemoteMode, RetentionPolicy, RetentionSettings};
use harness::Failure;
use model::{ByteSize, Table};
use object_store::{ObjectStoreExt, PutPayload};

use super::world::{Bucket, HOUR, Machine, batch, messages, remote, stored, until, uploaded};

pub(super) async fn sealed_files_become_objects_under_plain_names_and_come_back_when_they_are_read(
    bucket: &Bucket,
) -> Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().cache_size = ByteSize::bytes(0);
    let engine = machine.open().await?;
    let past = machine.now() - 2 * HOUR;
    engine.append(batch(1, &[past, past + 1])).await?;
    engine.append(batch(2, &[past + HOUR, machine.now()])).await?;
    uploaded(&engine, 1).await?;
    let objects = bucket.objects("telemetry").await?;
    let names: Vec<_> = objects.iter().map(|object| object.location.to_string()).collect();
    let below = format!("{}/telemetry/logs/2026/11/21", bucket.prefix);
    assert_eq!(
        names,
        [
            format!("{below}/10/logs_001.parquet"),
            format!("{below}/11/logs_001.parquet")
        ]
    );
    until("the uploaded files have left the tree", || machine.files().len() == 1).await?;
    assert_eq!(messages(&engine.view())?, ["1/0", "1/1", "2/0", "2/1"]);
    let stats = remote(&engine);
    assert!(stats.fetched_files >= 2 && stats.evicted_files >= 2, "{stats:?}");
    assert_eq!((stats.unuploaded_bytes, stats.unuploaded_rows), (0, 0), "{stats:?}");
    engine.close().await?;
    Ok(())
}

pub(super) async fn many_readers_of_one_file_wait_for_one_download(bucket: &Bucket) -> Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().cache_size = ByteSize::bytes(0);
    let engine = machine.open().await?;
    engine.append(batch(1, &[machine.now() - 2 * HOUR])).await?;
    uploaded(&engine, 0).await?;
    until("the tree is empty", || machine.files().is_empty()).await?;
    let segment = Arc::clone(&engine.view().files(Table::Logs)[0]);
    let before = remote(&engine).fetched_files;
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let segment = Arc::clone(&segment);
            tokio::task::spawn_blocking(move || segment.open().map(|_| ()))
        })
        .collect();
    for reader in readers {
        reader.await??;
    }
    // Whoever names the segment keeps its copy.
    assert_eq!(remote(&engine).fetched_files, before + 1);
    assert_eq!(machine.files().len(), 1);
    drop(segment);
    until("the copy goes with its last reader", || machine.files().is_empty()).await?;
    engine.close().await?;
    Ok(())
}

pub(super) async fn the_same_folder_goes_on_where_it_was(bucket: &Bucket) -> Result<(), Failure> {
    let machine = Machine::new(bucket, "one")?;
    let past = machine.now() - 2 * HOUR;
    let mut wanted = Vec::new();
    for round in 0..4u64 {
        let engine = machine.open().await?;
        assert_eq!(messages(&engine.view())?, wanted);
        for seq in 1..=round {
            assert_eq!(engine.append(batch(seq, &[past])).await?, AppendOutcome::Duplicate);
        }
        assert_eq!(
            engine.append(batch(round + 1, &[past, machine.now()])).await?,
            stored(2)
        );
        wanted.extend([format!("{}/0", round + 1), format!("{}/1", round + 1)]);
        if round % 2 == 0 {
            uploaded(&engine, 1).await?;
            engine.close().await?;
        }
    }
    let engine = machine.open().await?;
    uploaded(&engine, 1).await?;
    assert_eq!((messages(&engine.view())?, engine.view().partial()), (wanted, None));
    engine.close().await?;
    Ok(())
}

pub(super) async fn an_expired_object_is_deleted_after_its_record_and_a_grace(bucket: &Bucket) -> Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.settings.rotation = RetentionSettings {
        policy: RetentionPolicy::Size,
        max_size: ByteSize::mib(1 << 20),
        ..RetentionSettings::default()
    };
    let engine = machine.open().await?;
    engine.append(batch(1, &[machine.now() - 2 * HOUR])).await?;
    uploaded(&engine, 0).await?;
    engine.close().await?;
    machine.settings.rotation.max_size = ByteSize::bytes(1);
    // The rules are checked when it is asked for, not before the view is taken.
    machine.settings.flush_interval = Duration::from_secs(3_600);
    let engine = machine.open().await?;
    let view = engine.view();
    engine.append(batch(2, &[machine.now()])).await?;
    assert_eq!(engine.rotate().await?.removed.len(), 1);
    engine.sync_remote().await?;
    machine.advance(HOUR);
    engine.sync_remote().await?;
    assert_eq!(bucket.objects("telemetry").await?.len(), 1, "a view holds it");
    assert_eq!(messages(&view)?, ["1/0"]);
    drop(view);
    until("the object is deleted", || remote(&engine).deleted_files == 1).await?;
    engine.sync_remote().await?;
    // The clock has moved on: the second batch's hour is closed and may be there by now.
    let left = bucket.objects("telemetry").await?;
    assert!(
        left.iter().all(|object| !object.location.as_ref().contains("/10/")),
        "{left:?}"
    );
    engine.close().await?;
    drop(engine);
    let other = Machine::new(bucket, "two")?;
    let engine = other.open().await?;
    assert_eq!(
        engine.append(batch(1, &[machine.now()])).await?,
        AppendOutcome::Duplicate
    );
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_damaged_object_makes_answers_partial_and_never_wrong(bucket: &Bucket) -> Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().cache_size = ByteSize::bytes(0);
    let engine = machine.open().await?;
    let past = machine.now() - 2 * HOUR;
    engine.append(batch(1, &[past])).await?;
    engine.append(batch(2, &[past + HOUR])).await?;
    uploaded(&engine, 0).await?;
    until("the tree is empty", || machine.files().is_empty()).await?;
    let objects = bucket.objects("telemetry").await?;
    let damaged = &objects[0].location;
    let mut bytes = bucket.store.get(damaged).await?.bytes().await?.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bucket.store.put(damaged, PutPayload::from(bytes)).await?;
    let refused = messages(&engine.view()).map_err(|error| error.to_string());
    assert!(
        refused.as_ref().is_err_and(|error| error.contains("damaged")),
        "{refused:?}"
    );
    until("the damage is known", || engine.view().partial().is_some()).await?;
    assert_eq!(messages(&engine.view())?, ["2/0"]);
    // One that is missing is no different.
    bucket.store.delete(&objects[1].location).await?;
    until("the tree is empty again", || machine.files().is_empty()).await?;
    assert!(messages(&engine.view()).is_err());
    until("both are known", || engine.view().files(Table::Logs).is_empty()).await?;
    engine.close().await?;
    Ok(())
}

pub(super) async fn one_that_only_reads_follows_and_takes_no_rows(bucket: &Bucket) -> Result<(), Failure> {
    let mut reading = Machine::new(bucket, "reader")?;
    reading.remote().mode = RemoteMode::Read;
    let refused = reading.open().await.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("no store in it"), "{refused}");
    let writing = Machine::new(bucket, "writer")?;
    let writer = writing.open().await?;
    let past = writing.now() - 2 * HOUR;
    writer.append(batch(1, &[past])).await?;
    uploaded(&writer, 0).await?;
    let reader = reading.open().await?;
    assert_eq!(messages(&reader.view())?, ["1/0"]);
    writer.append(batch(2, &[past + HOUR])).await?;
    uploaded(&writer, 0).await?;
    until("the reader has the news", || {
        reader.view().files(Table::Logs).len() == 2
    })
    .await?;
    assert_eq!(messages(&reader.view())?, ["1/0", "2/0"]);
    let refused = reader.append(batch(3, &[past])).await.unwrap_err();
    assert!(matches!(refused, engine::Error::ReadOnly), "{refused}");
    let other = reading.open().await.map(|_| ()).unwrap_err();
    assert!(matches!(other, engine::Error::Locked { .. }), "{other}");
    reader.close().await?;
    drop(reader);
    // What it had is a cache: a later run finds its files, and the writer was never disturbed.
    let reader = reading.open().await?;
    assert_eq!(messages(&reader.view())?, ["1/0", "2/0"]);
    assert_eq!(remote(&reader).fetched_files, 0);
    assert_eq!(writer.append(batch(3, &[past])).await?, stored(1));
    uploaded(&writer, 0).await?;
    reader.close().await?;
    writer.close().await?;
    Ok(())
}

pub(super) async fn opening_reads_a_checkpoint_and_few_records(bucket: &Bucket) -> Result<(), Failure> {
    let machine = Machine::new(bucket, "one")?;
    let engine = machine.open().await?;
    let mut wanted = Vec::new();
    for hour in 1..=70u64 {
        engine
            .append(batch(hour, &[machine.now() - i64::try_from(hour)? * HOUR]))
            .await?;
        wanted.push(format!("{hour}/0"));
        uploaded(&engine, 0).await?;
    }
    wanted.sort();
    let records = bucket.objects("meta/log").await?.len();
    assert!(records < 70, "{records}");
    assert!(!bucket.objects("meta/checkpoint").await?.is_empty());
    engine.close().await?;
    drop(engine);
    let other = Machine::new(bucket, "two")?;
    let engine = other.open().await?;
    assert_eq!(messages(&engine.view())?, wanted);
    engine.close().await?;
    Ok(())
}
