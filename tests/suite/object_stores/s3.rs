//! What only a real S3 server shows: parts, checksums, refusals, a server that is gone.
//!
//! `PLATFORM_S3_UPLOAD_MB=1024` uploads so much in files of 128 MiB and prints requests per GB and the speed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{BatchOrigin, Error, RemoteErrorKind};
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, Random, TestS3};
use model::ByteSize;
use object_store::aws::AmazonS3;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::world::{Bucket, HOUR, Machine, batch, messages, of_rows, remote, until, uploaded};

fn bucket(store: Arc<AmazonS3>, prefix: &str) -> Bucket {
    Bucket::new(Arc::clone(&store) as _, Some(store)).under(prefix)
}

/// A batch whose rows do not compress: `rows` of 64 KiB.
fn incompressible(seq: u64, at: i64, rows: usize, random: &mut Random) -> engine::AppendBatch {
    let texts: Vec<String> = (0..rows)
        .map(|_| {
            (0..4 << 10)
                .map(|_| format!("{:016x}", random.below(u64::MAX)))
                .collect()
        })
        .collect();
    let times = vec![at; rows];
    let mut batch = of_rows(seq, &times, |n| texts[n].clone());
    batch.origin = BatchOrigin::default();
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_in_parts_and_comes_back_whole() -> Result<(), Failure> {
    let server = TestS3::start().await?;
    let mut random = Random::for_test("a_large_file_goes_in_parts_and_comes_back_whole");
    let megabytes = std::env::var("PLATFORM_S3_UPLOAD_MB")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let long = megabytes.is_some();
    let megabytes = megabytes.unwrap_or(40);
    let mut machine = Machine::new(&bucket(server.client(BUCKET, KEY, SECRET)?, "large"), "one")?;
    machine.settings.flush_interval = Duration::from_millis(200);
    machine.settings.wal_max = ByteSize::mib(512);
    if !long {
        machine.remote().cache_size = ByteSize::bytes(0);
    }
    let engine = machine.open().await?;
    // Hexadecimal digits compress to half. The hour is over when all of it is there.
    for seq in 0..megabytes {
        engine
            .append(incompressible(seq, machine.now(), 32, &mut random))
            .await?;
    }
    machine.advance(HOUR);
    let begun = Instant::now();
    uploaded(&engine, 0).await?;
    let stats = remote(&engine);
    let objects = bucket(server.client(BUCKET, KEY, SECRET)?, "large")
        .objects("telemetry")
        .await?;
    let bytes: u64 = objects.iter().map(|object| object.size).sum();
    assert!(bytes > megabytes << 20, "{bytes}");
    eprintln!(
        "{} files, {bytes} bytes: {} PUTs and POSTs, {:.1} a GB; the last were there {:.1} s after the last append",
        objects.len(),
        stats.writes,
        stats.writes as f64 * 1e9 / bytes as f64,
        begun.elapsed().as_secs_f64()
    );
    let rows: usize = messages(&engine.view())?.len();
    assert_eq!(rows as u64, megabytes * 32);
    engine.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_bucket_is_said_at_the_start() -> Result<(), Failure> {
    let server = TestS3::start().await?;
    for (name, key, secret, wanted) in [
        ("no-such-bucket", KEY, SECRET, RemoteErrorKind::NoBucket),
        (BUCKET, KEY, "wrong", RemoteErrorKind::Denied),
        (BUCKET, "nobody", SECRET, RemoteErrorKind::Denied),
    ] {
        let machine = Machine::new(&bucket(server.client(name, key, secret)?, "wrong"), "one")?;
        match machine.open().await {
            Err(error @ Error::Remote { trouble, .. }) => assert_eq!(trouble, wanted, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let gone = server.client(BUCKET, KEY, SECRET)?;
    drop(server);
    let machine = Machine::new(&bucket(gone, "wrong"), "one")?;
    match machine.open().await {
        Err(error @ Error::Remote { trouble, .. }) => assert_eq!(trouble, RemoteErrorKind::Unreachable, "{error}"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_gone_rows_are_taken_and_it_gets_them_later() -> Result<(), Failure> {
    let mut server = TestS3::start().await?;
    let machine = Machine::new(&bucket(server.client(BUCKET, KEY, SECRET)?, "gone"), "one")?;
    let engine = machine.open().await?;
    server.kill()?;
    let past = machine.now() - 2 * HOUR;
    for seq in 1..=50 {
        engine.append(batch(seq, &[past])).await?;
    }
    engine.flush().await?;
    assert_eq!(messages(&engine.view())?.len(), 50);
    until("it is noticed", || remote(&engine).retries > 0).await?;
    assert!(remote(&engine).unuploaded_bytes > 0);
    server.start_again().await?;
    uploaded(&engine, 0).await?;
    engine.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_a_crash_left_is_given_up_at_the_start() -> Result<(), Failure> {
    let server = TestS3::start().await?;
    let client = server.client(BUCKET, KEY, SECRET)?;
    let machine = Machine::new(&bucket(Arc::clone(&client), "left"), "one")?;
    machine.open().await?.close().await?;
    // As the uploader leaves it when its process is killed.
    let key = "telemetry/logs/2026/11/21/10/logs_001.parquet";
    let object = Path::from(format!("left/{key}"));
    let id = client.create_multipart(&object).await?;
    client
        .put_part(&object, &id, 0, PutPayload::from(vec![7; 5 << 20]))
        .await?;
    let notes = machine.settings.store_dir.join("meta/uploads");
    std::fs::create_dir_all(&notes)?;
    std::fs::write(notes.join("1"), format!("{key}\n{id}\n"))?;
    machine.open().await?.close().await?;
    assert_eq!(std::fs::read_dir(notes)?.count(), 0);
    let part = client
        .put_part(&object, &id, 1, PutPayload::from(vec![7; 5 << 20]))
        .await;
    assert!(part.is_err(), "the server still knows the upload");
    assert!(client.head(&object).await.is_err());
    Ok(())
}
