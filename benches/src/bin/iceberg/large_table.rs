//! The metadata of a large table.
//!
//! Method: the engine makes `BENCH_FILES` (100,000) sealed data files of one message each, of a hundred specs in as many hours as that takes (1,000, so
//! some 42 days with 2,400 files each), in `BENCH_FOLDER`, else in memory where the system has `/dev/shm`: there syncs cost nothing. The store is opened by a
//! process of its own, which publishes its list of files: first all but the last hundred of them, then one more at a time; then by a new
//! publisher, as after a start, the same list; then without the hundred files of the oldest hour; and at last it gives up old snapshots
//! and deletes what nobody names, as three hours later. First all files count as of one table, then each spec has its own as well, as they are in
//! a Mixer. The list of files itself is made before the clock runs. Written are objects that are new or have another time; links of data files are
//! counted for themselves. Peak memory is the kernel's of that step, the open store included.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use benches::data::START;
use benches::feed::{batch, open, runtime, text, this};
use benches::{cost, forget_peak, median, quantile, resident_mib, setting};
use engine::{PINNED, PartitionBy, PublishedFile, PublishedFiles, Settings, SpecName};
use harness::Failure;
use iceberg::{CatalogPublisher, CatalogSettings};
use model::batch::{MessageRow, messages};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, EntityId, FluxId, MessageDirection, SpanStatus, Table, Timestamp, TraceId};

const SPECS: u64 = 100;
/// Publications with one more file each.
const MORE: usize = 100;
const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn measure() -> Result<(), Failure> {
    let memory = Path::new("/dev/shm");
    let root = match std::env::var_os("BENCH_FOLDER") {
        Some(folder) => PathBuf::from(folder),
        None if memory.is_dir() => memory.to_owned(),
        None => std::env::temp_dir(),
    };
    let folder = tempfile::tempdir_in(root)?;
    let store = text(folder.path());
    this(&["make", &store])?;
    for how in ["together", "by-spec"] {
        this(&["publish", how, &store])?;
        std::fs::remove_dir_all(folder.path().join("iceberg"))?;
    }
    Ok(())
}

/// What the store has in common when it is made and when it is published.
fn plain(settings: &mut Settings) {
    settings.index = false;
    settings.max_age = Duration::from_secs(10 * 365 * 86_400);
}

/// Makes the files.
pub(crate) fn make(store: &Path) -> Result<(), Failure> {
    runtime()?.block_on(make_files(store, setting("BENCH_FILES", 100_000)))
}

async fn make_files(store: &Path, files: u64) -> Result<(), Failure> {
    let (engine, now) = open(store, |settings| {
        plain(settings);
        settings.flush_interval = Duration::from_millis(1);
        settings.seal_grace = Duration::ZERO;
    })
    .await?;
    now.store(START.plus(HOUR * 2).micros(), Ordering::Relaxed);
    for spec in 0..SPECS {
        let rows: Vec<_> = (0..files / SPECS).map(|hour| message(spec, hour)).collect();
        let payload = encode_arrow(&[messages(&rows)?])?.into();
        let name: SpecName = format!("spec-{spec}").parse()?;
        engine
            .append_of_specs(batch(Table::Messages, spec + 1, &payload)?, vec![Some(name)])
            .await?;
        engine.flush().await?;
        while engine.stats().open_files > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    println!("metadata: {} files made", engine.stats().files);
    engine.close().await?;
    Ok(())
}

fn message(spec: u64, hour: u64) -> MessageRow {
    let ts = Timestamp::from_micros(START.micros() - i64::try_from(hour).unwrap_or(0) * 3_600_000_000);
    MessageRow {
        ts,
        trace_id: TraceId::from_entropy([1; 16]),
        flux_id: FluxId::at(ts, [1; 10]),
        entity_id: EntityId::for_name("edge-1"),
        entity_name: "edge-1".to_owned(),
        src_gear_id: "source".to_owned(),
        dst_gear_id: Some("sink".to_owned()),
        msg_type: format!("order {spec}"),
        direction: MessageDirection::Internal,
        status: SpanStatus::Ok,
        raw_msg: vec![1, 2, 3],
        promoted: Attributes::new(),
    }
}

/// A catalogue, and the files that it can have.
struct LargeTable {
    folder: PathBuf,
    publisher: CatalogPublisher,
    files: Vec<PublishedFile>,
    /// The number of the last list.
    number: u64,
}

/// What a step took.
struct StepCost {
    seconds: f64,
    cpu_seconds: f64,
    objects: usize,
    bytes: u64,
    /// Links of data files that there are now.
    links: usize,
}

/// Publishes the files of a store.
pub(crate) fn publish(how: &str, store: &Path) -> Result<(), Failure> {
    let runtime = runtime()?;
    let (engine, now) = runtime.block_on(open(store, plain))?;
    now.store(START.plus(HOUR * 2).micros(), Ordering::Relaxed);
    let mut files = engine.published_files().files;
    files.sort_by_key(|file| (file.partition, file.segment));
    if how == "together" {
        files.iter_mut().for_each(|file| file.spec = None);
    }
    let settings = CatalogSettings {
        snapshot_age: HOUR,
        partition_by: PartitionBy::Hour,
    };
    let new = || CatalogPublisher::new(engine.side_objects(), engine.store_id(), settings);
    let mut table = LargeTable {
        folder: store.join("iceberg"),
        publisher: new(),
        files,
        number: 0,
    };
    let all = table.files.len();
    let first = all.saturating_sub(MORE);
    let resident = resident_mib(own_pid()?);
    println!("metadata, {how}: {all} files, {resident:.0} MiB resident with the store and its list");
    let done = table.publish(0..first)?;
    done.print(&format!("first publication of {first} files"));
    table.one_more_each(first)?;
    table.print_size()?;

    table.publisher = new();
    table.publish(0..all)?.print("a new publisher that finds nothing new");
    let hour = table.files.first().map(|file| file.partition);
    let is_oldest = |file: &&PublishedFile| Some(file.partition) == hour;
    let gone = table.files.iter().take_while(is_oldest).count();
    let done = table.publish(gone..all)?;
    done.print(&format!("without the {gone} files of the oldest hour"));
    let later = Timestamp::from(SystemTime::now()).plus(3 * HOUR);
    let mut deleted = 0;
    let done = table.step(|table| {
        table.publisher.begin_collection();
        while let Some(more) = table.publisher.collect_garbage(later)? {
            deleted += more;
        }
        Ok(())
    })?;
    done.print(&format!("garbage: {deleted} objects deleted"));
    table.print_size()?;
    drop(table);
    runtime.block_on(engine.close())?;
    Ok(())
}

impl LargeTable {
    /// Publishes some of the files.
    fn publish(&mut self, which: std::ops::Range<usize>) -> Result<StepCost, Failure> {
        self.number += 1;
        let list = PublishedFiles {
            number: self.number,
            is_ordered: false,
            files: self.files.get(which).unwrap_or_default().to_vec(),
        };
        self.step(|table| {
            table.publisher.publish(list, Timestamp::from(SystemTime::now()))?;
            Ok(())
        })
    }

    /// Publishes the files behind the first ones, each with a list of its own.
    fn one_more_each(&mut self, first: usize) -> Result<(), Failure> {
        let (mut seconds, mut written, mut objects, mut cpu) = (Vec::new(), Vec::new(), 0, 0.0);
        for end in first..self.files.len() {
            let done = self.publish(0..end + 1)?;
            seconds.push(done.seconds * 1e3);
            written.push(done.bytes as f64);
            objects += done.objects;
            cpu += done.cpu_seconds;
        }
        let count = seconds.len();
        let (middle, bytes) = (median(&mut seconds), median(&mut written));
        println!(
            "  one more file, {count} times: median {middle:.0} ms, longest {:.0} ms, {cpu:.2} CPU s in all; {objects} objects written, median {bytes:.0} bytes; \
             peak {:.0} MiB",
            quantile(&seconds, 1.0),
            cost(own_pid()?).peak_mib
        );
        Ok(())
    }

    /// Does something, and says what that took.
    fn step(&mut self, what: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<StepCost, Failure> {
        let before = written_objects(&self.folder)?;
        let pid = own_pid()?;
        forget_peak(pid)?;
        let (started, spent) = (Instant::now(), cost(pid).cpu_seconds);
        what(self)?;
        let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), cost(pid).cpu_seconds - spent);
        let after = written_objects(&self.folder)?;
        let new = after.iter().filter(|(path, about)| before.get(*path) != Some(*about));
        let sizes: Vec<u64> = new.map(|(_, (_, size))| *size).collect();
        Ok(StepCost {
            seconds,
            cpu_seconds,
            objects: sizes.len(),
            bytes: sizes.iter().sum(),
            links: std::fs::read_dir(self.folder.join(PINNED)).map_or(0, Iterator::count),
        })
    }

    /// Says what is in the folder, and what a client of the table of all messages loads.
    fn print_size(&self) -> Result<(), Failure> {
        let objects = written_objects(&self.folder)?;
        let of_kind = |end: &str| {
            let found = objects.iter().filter(|(path, _)| path.to_string_lossy().ends_with(end));
            found.fold((0_usize, 0_u64), |(count, bytes), (_, (_, size))| {
                (count + 1, bytes + size)
            })
        };
        let [all, manifests, versions] = ["", "-m.avro", ".metadata.json"].map(of_kind);
        let loaded = self.publisher.catalog().load("messages")?.ok_or("no table messages")?;
        println!(
            "  the folder: {} objects of {} bytes, of them {} manifests of {} and {} versions of {}; a client loads {} bytes; {:.0} MiB resident",
            all.0,
            all.1,
            manifests.0,
            manifests.1,
            versions.0,
            versions.1,
            loaded.metadata.get().len(),
            resident_mib(own_pid()?)
        );
        Ok(())
    }
}

impl StepCost {
    fn print(&self, name: &str) {
        let peak = own_pid().map(|pid| cost(pid).peak_mib).unwrap_or_default();
        println!(
            "  {name}: {:.3} s, {:.2} CPU s; {} objects written of {} bytes; {} links; peak {peak:.0} MiB",
            self.seconds, self.cpu_seconds, self.objects, self.bytes, self.links
        );
    }
}

fn own_pid() -> Result<i32, Failure> {
    Ok(i32::try_from(std::process::id())?)
}

/// The objects below a folder, links of data files left out: when each was written, and its size.
fn written_objects(folder: &Path) -> Result<BTreeMap<PathBuf, (SystemTime, u64)>, Failure> {
    let (mut objects, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        if folder.ends_with(PINNED) || !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                folders.push(entry.path());
            } else {
                objects.insert(entry.path(), (about.modified()?, about.len()));
            }
        }
    }
    Ok(objects)
}
