//! Scans while rows come, files are sealed and partitions removed, and one Mixer takes over from another: each sees one snapshot.
//!
//! A row says to which stream it belongs and which number it has there, from 0. The rows of a stream are in one partition and stored one after the
//! other, so that those of a snapshot have the numbers from 0 to some last one: one that is missing or there twice is seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::{Api, Failure, Random, TestMixer, TestS3, eventually};
use model::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::catalog_reader::{CatalogAccess, CatalogReader};
use super::stored_rows::{SMALL, hours_ago};
use super::{BucketKeys, SCANS, SOON, current_snapshot, engines};
use crate::kill9::setting;

/// Those who send rows, each one request after the other.
const PRODUCERS: u64 = 3;
/// Rows of a request, for each of its streams.
const ROWS: u64 = 20;
/// Requests of a producer between two scans, at most.
const PACE: u64 = 1;
const DAY: Duration = Duration::from_secs(86_400);
const OFTEN: (&str, &str) = ("observability.embedded.iceberg.interval", "\"300ms\"");
const CHECKS: (&str, &str) = ("observability.embedded.rotation.check_interval", "\"100ms\"");

fn kept(days: &str) -> (&'static str, &str) {
    ("observability.embedded.rotation.max_age_days", days)
}

/// What is sent to whichever Mixer stores rows at the time.
struct NumberedIngest {
    /// Nobody while one takes over from another: what listens at the old port by then may be another test's.
    writer: Mutex<Option<Api>>,
    query: &'static str,
    /// The streams of a producer: the ends of their names, and the time of their rows.
    streams: [(&'static str, Timestamp); 3],
    /// Requests that a producer may have sent by now.
    allowed: AtomicU64,
    /// The first request without old rows: those are removed by the rules of the next Mixer.
    first_without_old: AtomicU64,
    is_over: AtomicBool,
    /// Rows of each stream that were sent, and that were acknowledged.
    counts: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl NumberedIngest {
    fn new(writer: &TestMixer, query: &'static str) -> Self {
        let now = Timestamp::from(std::time::SystemTime::now());
        Self {
            writer: Mutex::new(Some(writer.api.clone())),
            query,
            streams: [("old", now.minus(DAY * 40)), ("past", hours_ago(3)), ("now", now)],
            allowed: AtomicU64::new(1),
            first_without_old: AtomicU64::new(u64::MAX),
            is_over: AtomicBool::new(false),
            counts: Mutex::default(),
        }
    }

    /// Sends until it is over. A request that was not acknowledged is sent again, under the same key.
    fn produce(&self, producer: u64, mut random: Random) -> Result<(), Failure> {
        for request in 0.. {
            let is_over = || self.is_over.load(Ordering::Acquire);
            eventually("leave to send", SOON * 10, || {
                (is_over() || request < self.allowed.load(Ordering::Acquire)).then_some(())
            })?;
            if is_over() {
                break;
            }
            let (lines, names) = self.request(producer, request, &mut random);
            let add = |is_acknowledged: bool| {
                let mut counts = self.counts.lock().unwrap();
                for name in &names {
                    let (sent, acknowledged) = counts.entry(name.clone()).or_default();
                    let count = if is_acknowledged { acknowledged } else { sent };
                    *count += ROWS;
                }
            };
            add(false);
            let key = format!("{producer}-{request}");
            let headers = [
                ("Content-Type", "application/x-ndjson"),
                ("Idempotency-Key", key.as_str()),
            ];
            let path = format!("/api/v1/ingest/logs{}", self.query);
            eventually("an acknowledgement", SOON, || {
                let writer = self.writer.lock().unwrap().clone()?;
                let answer = writer.send(&path, &headers, lines.as_bytes()).ok()?;
                assert!(matches!(answer.status, 200 | 409 | 429 | 500..), "{}", answer.text);
                (answer.status == 200).then_some(())
            })?;
            add(true);
        }
        Ok(())
    }

    fn request(&self, producer: u64, request: u64, random: &mut Random) -> (String, Vec<String>) {
        let streams = if request < self.first_without_old.load(Ordering::Acquire) {
            &self.streams[..]
        } else {
            &self.streams[1..]
        };
        let mut lines = String::new();
        for row in 0..ROWS {
            for (end, ts) in streams {
                let noise: String = (0..128).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
                let (name, number) = (format!("p{producer}-{end}"), request * ROWS + row);
                let line = json!({
                    "ts": ts.plus(Duration::from_micros(number)).to_string(), "level": "info", "entity_name": name,
                    "message": format!("{name} {number} {noise}"), "attributes": { "noise": noise },
                });
                lines.push_str(&format!("{line}\n"));
            }
        }
        let names = streams.iter().map(|(end, _)| format!("p{producer}-{end}")).collect();
        (lines, names)
    }

    /// Allows one more request if all that were allowed are acknowledged.
    fn go_on(&self) {
        let allowed = self.allowed.load(Ordering::Acquire);
        let is_idle = (0..PRODUCERS).all(|producer| self.counts_of(&format!("p{producer}-now")).1 == allowed * ROWS);
        if is_idle {
            self.allowed.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn set_writer(&self, writer: Option<Api>) {
        *self.writer.lock().unwrap() = writer;
    }

    fn counts_of(&self, stream: &str) -> (u64, u64) {
        self.counts.lock().unwrap().get(stream).copied().unwrap_or_default()
    }
}

/// The rows of each stream that an answer has, if none is missing, doubled or torn.
fn whole(what: &str, answer: &Value, ingest: &NumberedIngest) -> BTreeMap<String, u64> {
    assert_eq!(answer["torn"], 0, "{what}: {answer}");
    let streams = answer["streams"].as_object().unwrap();
    let whole = streams.iter().map(|(stream, numbers)| {
        let [rows, different, first, last] = [0_usize, 1, 2, 3].map(|place| numbers[place].as_u64().unwrap());
        assert!(
            rows == different && first == 0 && last + 1 == rows,
            "{what}: {stream} has {rows} rows of {different} numbers from {first} to {last}"
        );
        let (sent, _) = ingest.counts_of(stream);
        assert!(
            rows <= sent,
            "{what}: {stream} has {rows} rows of {sent} that were sent"
        );
        (stream.clone(), rows)
    });
    whole.collect()
}

/// Scans by engines in turn.
struct SnapshotScans {
    readers: Vec<CatalogReader>,
    /// The most rows of each stream so far.
    before: BTreeMap<String, u64>,
    snapshots: Vec<i64>,
    scans: u64,
    /// Streams that ended, with the number of scans before it was seen.
    removed: BTreeMap<String, u64>,
}

impl SnapshotScans {
    fn open(names: &[String], catalog: &TestMixer, endpoint: Option<String>, folder: &Path) -> Result<Self, Failure> {
        let access = CatalogAccess { endpoint, token: None };
        let open = |name: &String| CatalogReader::open(name, catalog, &access, folder);
        Ok(Self {
            readers: names.iter().map(open).collect::<Result<_, _>>()?,
            before: BTreeMap::new(),
            snapshots: Vec::new(),
            scans: 0,
            removed: BTreeMap::new(),
        })
    }

    /// Lets the producers send until the catalogue has old rows of every one of them: which requests fill a file that is sealed, nobody knows.
    fn sees_old_rows(&mut self, ingest: &NumberedIngest) -> Result<(), Failure> {
        let reader = &mut self.readers[0];
        let old: Vec<String> = (0..PRODUCERS).map(|producer| format!("p{producer}-old")).collect();
        eventually("the old rows", SOON, || {
            ingest.go_on();
            let found = reader.ask(&json!({ "do": "streams" })).ok()?;
            old.iter()
                .all(|stream| found["streams"].get(stream).is_some())
                .then_some(())
        })?;
        let allowed = ingest.allowed.load(Ordering::Acquire);
        ingest.first_without_old.store(allowed, Ordering::Release);
        eventually("an end of the old rows", SOON, || {
            old.iter()
                .all(|stream| ingest.counts_of(stream).1 == allowed * ROWS)
                .then_some(())
        })
    }

    /// One engine scans what is current, and twice the snapshot that was it just before.
    fn scan(&mut self, catalog: &TestMixer, ingest: &NumberedIngest) -> Result<(), Failure> {
        // Every third scan is of another snapshot for certain.
        let last = self.snapshots.last().copied().filter(|_| self.scans.is_multiple_of(3));
        let (id, rows) = eventually("a snapshot", SOON, || {
            let found = current_snapshot(catalog, "logs").filter(|(id, _)| Some(*id) != last);
            if found.is_none() {
                ingest.go_on();
            }
            found
        })?;
        let turn = usize::try_from(self.scans)? % self.readers.len();
        let reader = &mut self.readers[turn];
        let what = format!("scan {} by {}", self.scans, reader.name);
        let at = json!({ "do": "streams", "snapshot": id });
        let (now, first, again) = (
            reader.ask(&json!({ "do": "streams" }))?,
            reader.ask(&at)?,
            reader.ask(&at)?,
        );
        assert_eq!(first, again, "{what}: snapshot {id} asked twice");
        assert_eq!(first["rows"], rows, "{what}: snapshot {id}");
        let (now, first) = (whole(&what, &now, ingest), whole(&what, &first, ingest));
        for (stream, seen) in &self.before {
            let (then, now) = (first.get(stream).copied(), now.get(stream).copied());
            if stream.ends_with("-old") && now.is_none() {
                self.removed.entry(stream.clone()).or_insert(self.scans);
                continue;
            }
            assert!(
                then >= Some(*seen) && now >= then,
                "{what}: {stream}: {seen} rows, then {then:?}, then {now:?}"
            );
        }
        let is_removed = |stream: &String| self.removed.contains_key(stream);
        assert!(!now.keys().any(is_removed), "{what}: rows came back");
        self.before.extend(now);
        self.before.retain(|stream, _| !self.removed.contains_key(stream));
        self.snapshots.push(id);
        self.scans += 1;
        ingest.allowed.fetch_add(PACE, Ordering::AcqRel);
        Ok(())
    }

    /// Goes on with scans until they have seen that the old rows of every producer are gone.
    fn sees_removal(&mut self, catalog: &TestMixer, ingest: &NumberedIngest) -> Result<(), Failure> {
        let end = Instant::now() + SOON;
        while self.removed.len() as u64 != PRODUCERS {
            if Instant::now() > end {
                return Err(format!("waited in vain for the removal of old rows: {:?}", self.removed).into());
            }
            self.scan(catalog, ingest)?;
        }
        Ok(())
    }

    /// Waits until each engine has every acknowledged row of these streams.
    fn has_all(&mut self, ingest: &NumberedIngest, ends: &[&str]) -> Result<(), Failure> {
        for reader in &mut self.readers {
            let mut last = None;
            eventually("every acknowledged row", SOON, || {
                let found = reader.ask(&json!({ "do": "streams" }));
                let is_all = found.as_ref().is_ok_and(|found| {
                    let streams = whole(&reader.name, found, ingest);
                    let mut wanted =
                        (0..PRODUCERS).flat_map(|producer| ends.iter().map(move |end| format!("p{producer}-{end}")));
                    wanted.all(|stream| streams.get(&stream).copied() == Some(ingest.counts_of(&stream).1))
                });
                last = Some(found);
                is_all.then_some(())
            })
            .map_err(|error| format!("{}: {error}: {last:?}", reader.name))?;
        }
        Ok(())
    }

    fn tell(&mut self, ingest: &NumberedIngest) {
        self.snapshots.sort_unstable();
        self.snapshots.dedup();
        let names: Vec<&str> = self.readers.iter().map(|reader| reader.name.as_str()).collect();
        let rows: u64 = ingest
            .counts
            .lock()
            .unwrap()
            .values()
            .map(|(_, acknowledged)| acknowledged)
            .sum();
        println!(
            "{} scans by {}, each three times: {} snapshots, {rows} rows acknowledged, 0 missing, 0 doubled, 0 torn, 0 errors; removed: {:?}",
            self.scans,
            names.join(", "),
            self.snapshots.len(),
            self.removed
        );
    }
}

/// Runs scans beside the producers.
fn scan_beside_producers(
    ingest: &NumberedIngest,
    test: &str,
    scans: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let start = |producer| {
            let random = Random::for_test(&format!("{test} {producer}"));
            scope.spawn(move || ingest.produce(producer, random))
        };
        let producers: Vec<_> = (0..PRODUCERS).map(start).collect();
        // A failed expectation must end the producers too, or nobody sees it.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scans));
        ingest.is_over.store(true, Ordering::Release);
        let ends: Vec<_> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ends.into_iter().collect()
    })
}

#[test]
fn each_scan_is_of_one_snapshot_while_files_are_sealed_and_removed() -> Result<(), Failure> {
    let Some(engines) = engines() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let rules = "[observability.embedded]\nflush_interval = \"100ms\"\n[observability.embedded.storage]\nsegment_size_mb = 1\n\
                 [observability.embedded.iceberg]\ninterval = \"300ms\"\n\
                 [observability.embedded.rotation]\nmax_age_days = 60\ncheck_interval = \"100ms\"\n";
    let mut mixer = TestMixer::start(rules)?;
    let ingest = NumberedIngest::new(&mixer, "");
    let mut scans = SnapshotScans::open(&engines, &mixer, None, folder.path())?;
    let test = "each_scan_is_of_one_snapshot_while_files_are_sealed_and_removed";
    let wanted = setting(SCANS.0, SCANS.1);
    scan_beside_producers(&ingest, test, || {
        scans.sees_old_rows(&ingest)?;
        for scan in 0..wanted {
            // The catalogue goes on where a Mixer that is killed left it, and the old rows go.
            if scan == wanted / 2 {
                let file = mixer.path().join("platform-mixer.toml");
                let toml = std::fs::read_to_string(&file)?.replace("max_age_days = 60", "max_age_days = 30");
                std::fs::write(&file, toml)?;
                ingest.set_writer(None);
                mixer.kill9()?;
                mixer.restart()?;
                ingest.set_writer(Some(mixer.api.clone()));
            }
            scans.scan(&mixer, &ingest)?;
        }
        scans.sees_removal(&mixer, &ingest)
    })?;
    scans.tell(&ingest);
    println!(
        "{:?} seals since the restart",
        mixer.api.metric("platform_engine_seals_total")
    );
    Ok(())
}

/// Takes over from the Mixer that stores rows: the first one is killed, the second fenced off while it runs.
fn take_over(keys: &BucketKeys, ingest: &NumberedIngest, writer: &mut TestMixer, number: u64) -> Result<(), Failure> {
    if number == 1 {
        ingest.set_writer(None);
        writer.kill9()?;
    }
    let next = keys.mixer(&[OFTEN, SMALL, CHECKS, kept("30")])?;
    ingest.set_writer(Some(next.api.clone()));
    let mut before = std::mem::replace(writer, next);
    if number > 1 {
        eventually("the end of the Mixer that is fenced off", SOON, || {
            (!before.process().ok()?.is_running()).then_some(())
        })?;
    }
    Ok(())
}

#[test]
fn each_scan_is_of_one_snapshot_while_mixers_take_over() -> Result<(), Failure> {
    let Some(engines) = engines() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let server = Runtime::new()?.block_on(TestS3::start())?;
    let keys = BucketKeys::new(server.url());
    let mut writer = keys.mixer(&[OFTEN, SMALL, CHECKS, kept("60")])?;
    let catalog = keys.mixer(&[("observability.embedded.storage.read_only", "true")])?;
    let ingest = NumberedIngest::new(&writer, "?durable=bucket");
    let mut scans = SnapshotScans::open(&engines, &catalog, Some(server.url()), folder.path())?;
    let wanted = setting(SCANS.0, SCANS.1);
    let test = "each_scan_is_of_one_snapshot_while_mixers_take_over";
    scan_beside_producers(&ingest, test, || {
        scans.sees_old_rows(&ingest)?;
        let mut left = wanted;
        let scans = &mut scans;
        for take_overs in 0..3 {
            let part = left / (3 - take_overs);
            left -= part;
            let (keys, ingest, writer) = (&keys, &ingest, &mut writer);
            std::thread::scope(|scope| -> Result<(), Failure> {
                let taking = match take_overs {
                    0 => None,
                    _ => Some(scope.spawn(move || take_over(keys, ingest, writer, take_overs))),
                };
                for _ in 0..part {
                    scans.scan(&catalog, ingest)?;
                }
                taking.map_or(Ok(()), |taking| taking.join().unwrap())
            })?;
        }
        scans.sees_removal(&catalog, &ingest)
    })?;
    scans.has_all(&ingest, &["past", "now"])?;
    scans.tell(&ingest);
    Ok(())
}
