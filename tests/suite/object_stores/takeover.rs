//! Two machines, one bucket, one after the other or at once.

use engine::{AppendOutcome::Duplicate, Error};
use harness::Failure;
use model::{ByteSize, Timestamp};
use object_store::{ObjectStoreExt, PutPayload};

use super::world::{Bucket, HOUR, Machine, batch, entropy, messages, stored, until, uploaded};

pub(super) async fn a_new_machine_serves_what_was_uploaded_and_stores_the_rest_once(
    bucket: &Bucket,
) -> Result<(), Failure> {
    let first = Machine::new(bucket, "machine-a")?;
    let (past, now) = (first.now() - 2 * HOUR, first.now());
    let sent = [
        (1, vec![past, past + 1]),
        (2, vec![past, now]),
        (3, vec![now]),
        (4, vec![past + HOUR, past]),
    ];
    let engine = first.open().await?;
    for (seq, times) in &sent[..3] {
        engine.append(batch(*seq, times)).await?;
    }
    uploaded(&engine, 1).await?;
    // The machine is lost here, with a batch that was not uploaded: nothing of its folder is used. It had uploaded a file that
    // it never recorded.
    engine.append(batch(4, &sent[3].1)).await?;
    let all = messages(&engine.view())?;
    engine.flush().await?;
    drop(engine);
    let object = |name: &str| bucket.prefix.clone().join("telemetry").join("logs").join(name);
    let late = first
        .files()
        .into_iter()
        .find(|path| path.ends_with("11/logs_001.parquet"));
    let late = std::fs::read(late.ok_or("no file of the hour in between")?)?;
    let copied = std::fs::read(first.files().first().ok_or("no file")?)?;
    for (name, bytes) in [
        ("logs_009.parquet", late.clone()),
        ("logs_008.parquet", copied),
        ("logs_007.parquet", b"x".to_vec()),
        ("logs_009_w9.parquet", late),
        ("notes.parquet", b"x".to_vec()),
    ] {
        bucket.store.put(&object(name), bytes.into()).await?;
    }
    let second = Machine::new(bucket, "machine-b")?;
    let engine = second.open().await?;
    assert_eq!(messages(&engine.view())?, ["1/0", "1/1", "2/0", "2/1", "3/0"]);
    engine.sync_remote().await?;
    for (name, left) in [
        ("logs_009.parquet", false),
        ("logs_008.parquet", true),
        ("logs_007.parquet", true),
        ("logs_009_w9.parquet", true),
        ("notes.parquet", true),
    ] {
        assert_eq!(bucket.store.head(&object(name)).await.is_ok(), left, "{name}");
        if left {
            bucket.store.delete(&object(name)).await?;
        }
    }
    let mut answers = Vec::new();
    for (seq, times) in &sent {
        answers.push(engine.append(batch(*seq, times)).await?);
    }
    assert_eq!(answers, [Duplicate, Duplicate, Duplicate, stored(2)]);
    assert_eq!(messages(&engine.view())?, all);
    drop(engine);
    let engine = second.open().await?;
    assert_eq!(messages(&engine.view())?, all, "after a replay of the log");
    for (seq, times) in &sent {
        assert_eq!(engine.append(batch(*seq, times)).await?, Duplicate, "{seq}");
    }
    // Names of the two machines' files do not meet.
    assert_eq!(engine.append(batch(5, &[past])).await?, stored(1));
    second.advance(HOUR);
    uploaded(&engine, 0).await?;
    let objects = bucket.objects("telemetry").await?;
    let of_second = objects
        .iter()
        .filter(|object| object.location.as_ref().ends_with("_w2.parquet"));
    assert!(of_second.count() >= 2, "{objects:?}");
    engine.close().await?;
    drop(engine);
    let third = Machine::new(bucket, "machine-c")?;
    let engine = third.open().await?;
    for (seq, times) in &sent {
        assert_eq!(engine.append(batch(*seq, times)).await?, Duplicate, "{seq}");
    }
    assert_eq!(messages(&engine.view())?.len(), all.len() + 1);
    engine.close().await?;
    drop(engine);
    // The first machine turns up again: what it never uploaded was stored by others since.
    let refused = first.open().await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::Superseded { .. }), "{refused}");
    assert!(refused.to_string().contains("machine-c"), "{refused}");
    Ok(())
}

pub(super) async fn a_second_writer_pushes_the_first_out_by_name(bucket: &Bucket) -> Result<(), Failure> {
    let first = Machine::new(bucket, "machine-a")?;
    let engine = first.open().await?;
    engine.append(batch(1, &[first.now() - 2 * HOUR])).await?;
    uploaded(&engine, 0).await?;
    let second = Machine::new(bucket, "machine-b")?;
    let other = second.open().await?;
    let reason = tokio::time::timeout(std::time::Duration::from_secs(30), engine.poisoned()).await?;
    assert!(reason.contains("machine-b") && reason.contains("epoch 2"), "{reason}");
    let refused = engine.append(batch(2, &[first.now()])).await.unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
    other.append(batch(2, &[first.now() - 3 * HOUR])).await?;
    uploaded(&other, 0).await?;
    assert_eq!(messages(&other.view())?, ["1/0", "2/0"]);
    other.close().await?;
    Ok(())
}

pub(super) async fn a_store_that_was_local_knows_its_batches_once_they_are_uploaded(
    bucket: &Bucket,
) -> Result<(), Failure> {
    let mut first = Machine::without_bucket()?;
    let past = first.now() - 2 * HOUR;
    let engine = first.open().await?;
    engine.append(batch(1, &[past])).await?;
    engine.append(batch(2, &[past + HOUR, first.now()])).await?;
    engine.flush().await?;
    until("the closed hours are sealed", || engine.stats().open_files == 1).await?;
    // Not an orderly end: the last batch is in the log only.
    engine.append(batch(3, &[first.now()])).await?;
    drop(engine);
    first.attach(bucket, "machine-a");
    let engine = first.open().await?;
    engine.append(batch(4, &[past])).await?;
    first.advance(HOUR);
    uploaded(&engine, 0).await?;
    engine.sync_remote().await?;
    let all = messages(&engine.view())?;
    engine.close().await?;
    drop(engine);
    let second = Machine::new(bucket, "machine-b")?;
    let engine = second.open().await?;
    assert_eq!(messages(&engine.view())?, all);
    for seq in 1..=4 {
        assert_eq!(engine.append(batch(seq, &[past])).await?, Duplicate, "{seq}");
    }
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_folder_of_another_store_is_refused(bucket: &Bucket) -> Result<(), Failure> {
    let first = Machine::new(bucket, "machine-a")?;
    first.open().await?.close().await?;
    let mut second = Machine::without_bucket()?;
    let engine = second.open().await?;
    engine.append(batch(1, &[second.now()])).await?;
    engine.close().await?;
    drop(engine);
    second.attach(bucket, "machine-b");
    let refused = second.open().await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::OtherStore { .. }), "{refused}");
    Ok(())
}

pub(super) async fn a_copy_serves_the_same_rows_and_knows_the_same_batches(bucket: &Bucket) -> Result<(), Failure> {
    let first = Machine::without_bucket()?;
    let past = first.now() - 2 * HOUR;
    let engine = first.open().await?;
    engine.append(batch(1, &[past])).await?;
    engine.append(batch(2, &[past + HOUR, first.now()])).await?;
    engine.flush().await?;
    until("the closed hours are sealed", || engine.stats().open_files == 1).await?;
    let all = messages(&engine.view())?;
    let (now, entropy) = (Timestamp::from_micros(first.now()), entropy());
    let to = Machine::new(bucket, "copy")?.settings.remote.ok_or("no bucket")?;
    let copy_out = |dir: engine::Settings, to: engine::RemoteSettings| {
        let entropy = entropy.clone();
        tokio::task::spawn_blocking(move || engine::copy_to_remote(&dir, &to, now, &entropy, |_, _| {}))
    };
    let refused = copy_out(first.settings.clone(), to.clone()).await?.unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    engine.close().await?;
    drop(engine);
    let report = copy_out(first.settings.clone(), to.clone()).await??;
    assert_eq!((report.files, report.rows, report.sealed), (3, 3, 1));
    let refused = copy_out(first.settings.clone(), to.clone())
        .await?
        .unwrap_err()
        .to_string();
    assert!(refused.contains("another prefix"), "{refused}");

    let back = Machine::without_bucket()?;
    let dir = back.settings.clone();
    let report =
        tokio::task::spawn_blocking(move || engine::copy_from_remote(&to, &dir, &entropy, |_, _| {})).await??;
    assert_eq!((report.files, report.rows, report.there_before), (3, 3, 0));
    let in_bucket = Machine::new(bucket, "machine-b")?;
    for machine in [&first, &back, &in_bucket] {
        let engine = machine.open().await?;
        assert_eq!(
            (messages(&engine.view())?, engine.view().partial()),
            (all.clone(), None)
        );
        for seq in 1..=2 {
            assert_eq!(engine.append(batch(seq, &[past])).await?, Duplicate, "{seq}");
        }
        assert_eq!(engine.append(batch(3, &[machine.now()])).await?, stored(1));
        engine.close().await?;
    }
    let report = engine::check_store(&back.settings, true, |_, _| {})?;
    assert_eq!((report.problems, report.strangers), (vec![], vec![]));
    Ok(())
}

pub(super) async fn a_store_that_sent_to_a_collector_is_copied_once_it_no_longer_does(
    bucket: &Bucket,
) -> Result<(), Failure> {
    let mut machine = Machine::without_bucket()?;
    machine.settings.export = engine::ExportMode::Copy;
    let engine = machine.open().await?;
    engine.append(batch(1, &[machine.now()])).await?;
    engine.close().await?;
    drop(engine);
    let to = Machine::new(bucket, "copy")?.settings.remote.ok_or("no bucket")?;
    let now = Timestamp::from_micros(machine.now());
    let copy_out = |dir: engine::Settings, to: engine::RemoteSettings| {
        tokio::task::spawn_blocking(move || engine::copy_to_remote(&dir, &to, now, &entropy(), |_, _| {}))
    };
    let refused = copy_out(machine.settings.clone(), to.clone()).await?.unwrap_err();
    assert!(
        refused.to_string().contains("without observability.otlp.forward"),
        "{refused}"
    );
    // What it says is enough.
    machine.settings.export = engine::ExportMode::Off;
    machine.open().await?.close().await?;
    let report = copy_out(machine.settings.clone(), to).await??;
    assert_eq!((report.files, report.rows), (1, 1));
    Ok(())
}

pub(super) async fn a_repair_of_a_damaged_copy_loses_no_row_and_no_object(bucket: &Bucket) -> Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().grace = std::time::Duration::ZERO;
    let engine = machine.open().await?;
    let past = machine.now() - 2 * HOUR;
    engine.append(batch(1, &[past, past + 1])).await?;
    engine.append(batch(2, &[past + HOUR])).await?;
    uploaded(&engine, 0).await?;
    engine.close().await?;
    drop(engine);
    let copies = machine.files();
    assert_eq!(copies.len(), 2);
    let mut bytes = std::fs::read(&copies[0])?;
    bytes[40] ^= 1;
    std::fs::write(&copies[0], &bytes)?;
    let bytes = std::fs::read(&copies[1])?;
    std::fs::write(&copies[1], &bytes[..bytes.len() - 50])?;
    let settings = machine.settings.clone();
    let repair = move || engine::repair_store(&settings, true, |_, _| {}, |_| {});
    let report = tokio::task::spawn_blocking(repair).await??;
    let sound = report.problems.iter().filter(|problem| problem.object_is_sound);
    assert_eq!((report.problems.len(), sound.count()), (2, 2), "{:?}", report.problems);
    let engine = machine.open().await?;
    for _ in 0..3 {
        machine.advance(HOUR);
        engine.sync_remote().await?;
    }
    assert_eq!(messages(&engine.view())?, ["1/0", "1/1", "2/0"]);
    assert_eq!(engine.view().partial(), None);
    assert_eq!(bucket.objects("telemetry").await?.len(), 2);
    engine.close().await?;
    Ok(())
}

pub(super) async fn a_check_finds_what_is_in_the_bucket_only_and_what_is_nowhere(
    bucket: &Bucket,
) -> Result<(), Failure> {
    let mut machine = Machine::new(bucket, "one")?;
    machine.remote().cache_size = ByteSize::bytes(0);
    let engine = machine.open().await?;
    let past = machine.now() - 2 * HOUR;
    engine.append(batch(1, &[past])).await?;
    engine.append(batch(2, &[past + HOUR])).await?;
    uploaded(&engine, 0).await?;
    until("the tree is empty", || machine.files().is_empty()).await?;
    engine.close().await?;
    drop(engine);
    let check = |settings: engine::Settings| {
        tokio::task::spawn_blocking(move || engine::check_store(&settings, true, |_, _| {}))
    };
    let report = check(machine.settings.clone()).await??;
    assert_eq!((report.files, report.problems), (2, vec![]));
    let objects = bucket.objects("telemetry").await?;
    bucket.store.delete(&objects[0].location).await?;
    let mut bytes = bucket.store.get(&objects[1].location).await?.bytes().await?.to_vec();
    bytes[7] ^= 1;
    bucket.store.put(&objects[1].location, PutPayload::from(bytes)).await?;
    let report = check(machine.settings.clone()).await??;
    let said: Vec<_> = report.problems.iter().map(|problem| problem.what.as_str()).collect();
    assert!(
        said[0].contains("is missing in the object store") && said[1].contains("checksum"),
        "{said:?}"
    );
    // Without the bucket nobody may call them missing.
    machine.settings.remote = None;
    for refused in [
        check(machine.settings.clone()).await?.map(|_| ()),
        machine.open().await.map(|_| ()),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("observability.embedded.storage.url"), "{refused}");
    }
    Ok(())
}
