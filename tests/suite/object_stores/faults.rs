//! An object store of which three calls in ten fail, under a machine that is restarted, killed and lost all the time.
//!
//! `PLATFORM_S3_FAULT_SECONDS=300` makes it a long run; it prints its figures.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{AppendOutcome, Engine, RemoteStats};
use harness::faulty::Faulty;
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, Random, TestS3};
use model::ByteSize;
use object_store::aws::AmazonS3;

use super::world::{Bucket, HOUR, Machine, batch, messages, remote, uploaded};

const PERCENT: u64 = 30;

/// What a bus would send again.
struct Load {
    random: Random,
    sent: Vec<Vec<i64>>,
    wanted: BTreeSet<String>,
    uploaded: RemoteStats,
    restarts: u64,
    losses: u64,
}

impl Load {
    /// The times of the next batch: mostly one hour, sometimes two.
    fn next(&mut self, now: i64) -> u64 {
        let hour = i64::try_from(self.random.below(4)).unwrap_or(0);
        let rows = 1 + self.random.below(20);
        let late = self.random.below(10) == 0;
        let times = (0..rows).map(|n| {
            let other = i64::from(late && n % 2 == 0);
            now - (hour + other) * HOUR + i64::try_from(n).unwrap_or(0)
        });
        self.sent.push(times.collect());
        let seq = self.sent.len() as u64;
        self.wanted.extend((0..rows).map(|n| format!("{seq}/{n}")));
        seq
    }

    fn batch(&self, seq: u64) -> engine::AppendBatch {
        let times = usize::try_from(seq - 1).ok().and_then(|at| self.sent.get(at));
        batch(seq, times.map_or(&[], Vec::as_slice))
    }

    fn count(&mut self, engine: &Engine) {
        let stats = remote(engine);
        self.uploaded.uploaded_files += stats.uploaded_files;
        self.uploaded.uploaded_bytes += stats.uploaded_bytes;
        self.uploaded.writes += stats.writes;
        self.uploaded.reads += stats.reads;
        self.uploaded.retries += stats.retries;
        self.uploaded.records += stats.records;
        self.uploaded.failures += stats.failures;
        self.uploaded.fetched_files += stats.fetched_files;
    }
}

/// Opening makes many calls; one that fails for good is tried again, as a supervisor would.
async fn opened(machine: &Machine) -> Result<Arc<Engine>, Failure> {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match machine.open().await {
            Ok(engine) => return Ok(engine),
            Err(error @ engine::Error::Remote { .. }) if Instant::now() < end => {
                eprintln!("opened again after: {error}");
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn machine(bucket: &Bucket, losses: u64) -> Result<Machine, Failure> {
    let mut machine = Machine::new(bucket, &format!("machine-{losses}"))?;
    machine.remote().cache_size = ByteSize::bytes(64 << 10);
    machine.remote().upload_interval = Duration::from_millis(300);
    Ok(machine)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_three_faults_in_ten_calls_no_row_is_lost_and_none_is_doubled() -> Result<(), Failure> {
    let seconds = std::env::var("PLATFORM_S3_FAULT_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seconds = Duration::from_secs(seconds.unwrap_or(10));
    let server = TestS3::start().await?;
    let random = Random::for_test("with_three_faults_in_ten_calls_no_row_is_lost_and_none_is_doubled");
    let store: Arc<Faulty<AmazonS3>> = Arc::new(Faulty::new(server.client(BUCKET, KEY, SECRET)?, random.seed, PERCENT));
    let bucket = Bucket::new(Arc::clone(&store) as _, Some(Arc::clone(&store) as _)).under("faults");
    let mut load = Load {
        random,
        sent: Vec::new(),
        wanted: BTreeSet::new(),
        uploaded: RemoteStats::default(),
        restarts: 0,
        losses: 0,
    };
    let mut here = machine(&bucket, 0)?;
    let mut engine = opened(&here).await?;
    let end = Instant::now() + seconds;
    while Instant::now() < end {
        for _ in 0..20 {
            let seq = load.next(here.now());
            let rows = load.batch(seq);
            assert_eq!(
                engine.append(rows.clone()).await?,
                AppendOutcome::Stored {
                    rows: rows.rows[0].num_rows()
                }
            );
            let again = 1 + load.random.below(seq);
            assert_eq!(
                engine.append(load.batch(again)).await?,
                AppendOutcome::Duplicate,
                "{again}"
            );
        }
        tokio::time::sleep(Duration::from_millis(load.random.below(300))).await;
        match load.random.below(20) {
            0 => {
                load.count(&engine);
                load.losses += 1;
                drop(engine);
                here = machine(&bucket, load.losses)?;
                engine = opened(&here).await?;
                // Nothing that was uploaded is stored again, everything else is.
                for seq in 1..=load.sent.len() as u64 {
                    engine.append(load.batch(seq)).await?;
                }
            }
            1 | 2 => {
                load.count(&engine);
                load.restarts += 1;
                drop(engine);
                engine = opened(&here).await?;
            }
            3 => {
                load.count(&engine);
                load.restarts += 1;
                engine.close().await?;
                drop(engine);
                engine = opened(&here).await?;
            }
            4 => {
                let found = messages(&engine.view())?;
                assert!(
                    found.iter().eq(&load.wanted),
                    "{} rows instead of {}",
                    found.len(),
                    load.wanted.len()
                );
            }
            _ => {}
        }
    }
    here.advance(HOUR);
    uploaded(&engine, 0).await?;
    engine.sync_remote().await?;
    load.count(&engine);
    engine.close().await?;
    drop(engine);
    let last = machine(&bucket, load.losses + 1)?;
    let engine = opened(&last).await?;
    let found = messages(&engine.view())?;
    let distinct: BTreeSet<&String> = found.iter().collect();
    let lost = load.wanted.iter().filter(|message| !distinct.contains(message)).count();
    let doubled = found.len() - distinct.len();
    report(&load, &store, seconds, (found.len(), lost, doubled));
    assert_eq!((lost, doubled, found.len()), (0, 0, load.wanted.len()));
    assert_eq!(engine.view().partial(), None);
    engine.close().await?;
    Ok(())
}

fn report(load: &Load, store: &Faulty<AmazonS3>, seconds: Duration, (rows, lost, doubled): (usize, usize, usize)) {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let all = &load.uploaded;
    eprintln!(
        "{} s: {} batches, {rows} rows, {lost} lost, {doubled} doubled; {} restarts, {} machines lost; {} calls: {} refused, \
         {} done without an answer, {} broken off; {} files, {} bytes in {} PUTs, {} GETs, {} made again, {} records, \
         {} rows of steps failed, {} files fetched",
        seconds.as_secs(),
        load.sent.len(),
        load.restarts,
        load.losses,
        read(&store.calls),
        read(&store.refused),
        read(&store.lost),
        read(&store.broken),
        all.uploaded_files,
        all.uploaded_bytes,
        all.writes,
        all.reads,
        all.retries,
        all.records,
        all.failures,
        all.fetched_files,
    );
}
