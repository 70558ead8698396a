//! Kills, power cuts and lost machines of a Mixer under keyed HTTP senders and senders on the bus: every row that was promised
//! is there once.
//!
//! | form | what ends the Mixer | what is promised |
//! |---|---|---|
//! | local | `kill -9`; every third time the power of its disk | what was answered with 200, what the bus sent |
//! | bucket | the same; every second time the machine is lost with its bus, and an empty one takes over | what was answered with `?durable=bucket`, what Racks keep until then |
//! | bus elsewhere | the same, the bus goes on; also with nothing uploaded of what it acknowledged | the same, and what was sent once over the bus |
//! | behind | the machine is lost with rows that were not uploaded | all but exactly as many rows as the API said |
//!
//! A sender sends its last request again until it is answered; the sender on a bus that ends sends everything again after each
//! end, as a spool does. `PLATFORM_TEST_LOSSES` ends of each form (4 without it; with it a machine without loop devices, where
//! no power can be cut, fails), `PLATFORM_TEST_SEED` repeats a run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harness::bus::KeyedBatch;
use harness::disk::Disk;
use harness::process::Process;
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, Random, TestMixer, TestS3, eventually, external_bus};
use model::{EntityId, Timestamp};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::kill9::setting;

const SOON: Duration = Duration::from_secs(60);
/// Rows of a request, and of a batch on the bus.
const ROWS: u64 = 50;

/// Where senders find the Mixer that runs now.
type Address = Arc<Mutex<Option<String>>>;

/// Sends requests one after another, each until it is answered.
fn send_requests(sender: u64, address: &Address, query: &str, over: &AtomicBool, answered: &AtomicU64) -> u64 {
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        let now = Timestamp::from(std::time::SystemTime::now());
        let line = |row| format!("{{\"ts\":\"{now}\",\"level\":\"info\",\"message\":\"http {sender} {n} {row}\"}}\n");
        let body: String = (0..ROWS).map(line).collect();
        let key = format!("{sender}-{n}");
        let headers = [
            ("Content-Type", "application/x-ndjson"),
            ("Idempotency-Key", key.as_str()),
        ];
        loop {
            let base = address.lock().ok().and_then(|address| address.clone());
            if base.is_none() && over.load(Ordering::Relaxed) {
                return n;
            }
            let path = format!("/api/v1/ingest/logs{query}");
            let sent = base.and_then(|base| harness::Api::new(&base).send(&path, &headers, body.as_bytes()).ok());
            if sent.is_some_and(|sent| sent.status == 200) {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        n += 1;
        answered.fetch_add(ROWS, Ordering::Relaxed);
    }
    n
}

/// What outlives a Mixer.
struct Places {
    server: Option<TestS3>,
    disk: Option<Disk>,
    bus: Option<(Process, String)>,
}

impl Places {
    fn new(server: Option<TestS3>, bus: Option<(Process, String)>) -> Result<Self, Failure> {
        let disk = match Disk::ext4(512) {
            Err(lacking) if std::env::var_os("PLATFORM_TEST_LOSSES").is_some() => return Err(lacking.into()),
            disk => disk.inspect_err(|lacking| eprintln!("{lacking}")).ok(),
        };
        Ok(Self { server, disk, bus })
    }

    /// A Mixer in an empty folder, its store on the disk.
    fn machine(&self) -> Result<TestMixer, Failure> {
        let folder = self.disk.as_ref();
        // What was before is lost.
        if let Some(disk) = folder {
            for entry in std::fs::read_dir(disk.path())?.flatten() {
                if entry.file_name().to_string_lossy().starts_with("machine") {
                    std::fs::remove_dir_all(entry.path())?;
                }
            }
        }
        let folder = folder.map(|disk| tempfile::Builder::new().prefix("machine").tempdir_in(disk.path()));
        let store = folder
            .transpose()?
            .map(|folder| format!("{:?}", folder.keep().join("data").display().to_string()));
        let url = format!("\"s3://{BUCKET}/losses\"");
        let bus = self.bus.as_ref().map(|(_, url)| format!("{url:?}"));
        let mut keys = vec![
            ("observability.embedded.storage.segment_size_mb", "1"),
            ("observability.embedded.storage.upload_interval", "\"1s\""),
            ("ingest.flush_interval", "\"10ms\""),
        ];
        keys.extend(store.as_ref().map(|store| ("store.dir", store.as_str())));
        if let Some(bus) = &bus {
            keys.extend([
                ("snake.server", "\"external\""),
                ("snake.url", bus.as_str()),
                ("snake.max_store_mb", "1024"),
            ]);
        }
        let mut envs = Vec::new();
        let endpoint = self.server.as_ref().map(TestS3::url).unwrap_or_default();
        if self.server.is_some() {
            keys.extend([
                ("observability.embedded.storage.url", url.as_str()),
                ("ingest.floor", "\"bucket\""),
            ]);
            envs.extend([
                ("AWS_ACCESS_KEY_ID", KEY),
                ("AWS_SECRET_ACCESS_KEY", SECRET),
                ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ]);
        }
        TestMixer::with(&keys, &envs)
    }
}

/// A Mixer that ends again and again, and what it was sent over the bus.
struct Ends {
    name: &'static str,
    places: Places,
    mixer: TestMixer,
    random: Random,
    address: Address,
    batches: Vec<KeyedBatch>,
    ends: BTreeMap<&'static str, u64>,
    away: Vec<Duration>,
}

impl Ends {
    fn start(name: &'static str, places: Places, random: Random) -> Result<Self, Failure> {
        let mixer = places.machine()?;
        let address: Address = Arc::new(Mutex::new(Some(mixer.api.base.clone())));
        Ok(Self {
            name,
            places,
            mixer,
            random,
            address,
            batches: Vec::new(),
            ends: BTreeMap::new(),
            away: Vec::new(),
        })
    }

    /// Some batches on the bus, of one run of a producer.
    fn send_batches(&mut self) -> Result<(), Failure> {
        let now = Timestamp::from(std::time::SystemTime::now());
        for _ in 0..5 {
            let seq = self.batches.len() as u64 + 1;
            let row = |row| json!({ "ts": now.to_string(), "level": "info", "message": format!("bus {seq} {row}") });
            self.batches.push(KeyedBatch {
                entity: EntityId::for_name("sender"),
                boot_epoch: 1,
                seq,
                records: (0..ROWS).map(row).collect::<Vec<Value>>().into(),
            });
        }
        self.resend(self.batches.len().saturating_sub(5))
    }

    fn resend(&self, from: usize) -> Result<(), Failure> {
        let bus = self.mixer.bus()?;
        bus.publish_keyed("logs", "sender", self.batches.get(from..).unwrap_or_default())
    }

    /// Ends the Mixer, and has it, or another one, go on.
    fn end(&mut self, round: u64) -> Result<(), Failure> {
        self.send_batches()?;
        std::thread::park_timeout(Duration::from_millis(self.random.below(700)));
        let is_cut = round % 3 == 2 && self.places.disk.is_some();
        self.tell(None);
        let began = Instant::now();
        if let Some(disk) = self.places.disk.as_ref().filter(|_| is_cut) {
            disk.cut()?;
        }
        self.mixer.kill9()?;
        *self
            .ends
            .entry(if is_cut { "power cuts" } else { "kill -9" })
            .or_default() += 1;
        let is_lost = self.places.server.is_some() && round % 2 == 1;
        if is_cut && let Some(disk) = &mut self.places.disk {
            // The bus ends with its Mixer, a moment later.
            eventually("the disk", SOON, || disk.power_on().ok())?;
        }
        if is_lost {
            *self.ends.entry("machines lost").or_default() += 1;
            self.mixer = self.places.machine()?;
        } else {
            self.mixer.restart()?;
        }
        eventually("an answer", SOON, || {
            (self.mixer.api.get("/api/v1/storage").ok()?.status == 200).then_some(())
        })?;
        if is_lost {
            self.away.push(began.elapsed());
        }
        self.tell(Some(self.mixer.api.base.clone()));
        match self.places.bus {
            Some(_) => Ok(()),
            None => self.resend(0),
        }
    }

    /// Tells the senders where to send.
    fn tell(&self, base: Option<String>) {
        if let Ok(mut address) = self.address.lock() {
            *address = base;
        }
    }

    /// The rows that the API says are not uploaded.
    fn behind(&self) -> Option<u64> {
        self.mixer.api.get("/api/v1/storage").ok()?.json["data"]["object_store"]["unuploaded_rows"].as_u64()
    }

    fn count(&self) -> Option<(u64, u64)> {
        let query = json!({ "query": "select count(*) as n, count(distinct message) as d from logs where message like 'http %' or message like 'bus %'" });
        let answer = self.mixer.api.post("/api/v1/sql", &query).ok()?;
        let row = answer.json["data"]
            .get(0)
            .or_else(|| answer.json["data"]["rows"].get(0))?
            .clone();
        let number = |name: &str, at: usize| row.get(name).or_else(|| row.get(at))?.as_u64();
        Some((number("n", 0)?, number("d", 1)?))
    }

    /// Waits for all rows, and holds them against what was sent.
    fn judge(&self, requests: u64) -> Result<(), Failure> {
        let wanted = (requests + self.batches.len() as u64) * ROWS;
        let bus = self.mixer.bus()?;
        eventually("everything on the bus is stored", SOON, || {
            bus.is_drained("flux-telemetry", "ingest").ok()?.then_some(())
        })?;
        let found = self.count().ok_or("no count")?;
        let mut away: Vec<_> = self.away.iter().map(Duration::as_millis).collect();
        away.sort_unstable();
        let median = away.get(away.len() / 2);
        eprintln!(
            "{}: {:?}; {wanted} rows promised, {} there, {} distinct; from the loss of a machine to its successor's first answer: \
             median {median:?} ms of {}",
            self.name,
            self.ends,
            found.0,
            found.1,
            away.len(),
        );
        assert_eq!(found, (wanted, wanted), "{}: (rows, distinct rows)", self.name);
        Ok(())
    }
}

fn run(name: &'static str, places: Places) -> Result<(), Failure> {
    let random = Random::for_test(name);
    let query = if places.server.is_some() { "?durable=bucket" } else { "" };
    let mut ends = Ends::start(name, places, random)?;
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let senders: Vec<_> = (0..2)
        .map(|sender| {
            let (address, over, answered) = (Arc::clone(&ends.address), Arc::clone(&over), Arc::clone(&answered));
            std::thread::spawn(move || send_requests(sender, &address, query, &over, &answered))
        })
        .collect();
    let ended: Result<(), Failure> = (0..setting("PLATFORM_TEST_LOSSES", 4)).try_for_each(|round| ends.end(round));
    over.store(true, Ordering::Relaxed);
    let mut requests = 0;
    for sender in senders {
        requests += sender.join().map_err(|_| "a sender died")?;
    }
    ended?;
    ends.judge(requests)
}

#[test]
fn no_row_is_lost_or_doubled_by_kills_and_power_cuts() -> Result<(), Failure> {
    run(
        "no_row_is_lost_or_doubled_by_kills_and_power_cuts",
        Places::new(None, None)?,
    )
}

#[test]
fn no_row_that_the_bucket_has_is_lost_or_doubled_by_lost_machines() -> Result<(), Failure> {
    let server = Runtime::new()?.block_on(TestS3::start())?;
    run(
        "no_row_that_the_bucket_has_is_lost_or_doubled_by_lost_machines",
        Places::new(Some(server), None)?,
    )
}

#[test]
fn nothing_that_was_sent_once_over_a_bus_elsewhere_is_lost_or_doubled_by_lost_machines() -> Result<(), Failure> {
    let server = Runtime::new()?.block_on(TestS3::start())?;
    let folder = tempfile::tempdir()?;
    let bus = external_bus::start(folder.path(), "4GB")?;
    run(
        "nothing_that_was_sent_once_over_a_bus_elsewhere_is_lost_or_doubled_by_lost_machines",
        Places::new(Some(server), Some(bus))?,
    )
}

#[test]
fn what_a_lost_machine_took_from_a_bus_elsewhere_and_did_not_upload_comes_again() -> Result<(), Failure> {
    let name = "what_a_lost_machine_took_from_a_bus_elsewhere_and_did_not_upload_comes_again";
    let runtime = Runtime::new()?;
    let folder = tempfile::tempdir()?;
    let server = runtime.block_on(TestS3::start())?;
    let places = Places::new(Some(server), Some(external_bus::start(folder.path(), "4GB")?))?;
    let mut ends = Ends::start(name, places, Random::for_test(name))?;
    let bus = ends.mixer.bus()?;
    let mut sent = 0;
    // Without a producer's key: only its place on the bus tells a row from another.
    let mut send = |rows: u64| -> Result<u64, Failure> {
        for _ in 0..rows {
            let ts = Timestamp::from(std::time::SystemTime::now()).to_string();
            let row = json!({ "ts": ts, "level": "info", "message": format!("bus {sent}") });
            bus.send("logs", "stranger", &json!([row]))?;
            sent += 1;
        }
        Ok(sent)
    };
    for _ in 0..2 {
        let all = send(20)?;
        eventually("all rows are there", SOON, || (ends.count()?.0 == all).then_some(()))?;
        eventually("all rows are uploaded", SOON, || (ends.behind()? == 0).then_some(()))?;
        ends.places.server.as_mut().ok_or("no object store")?.kill()?;
        let all = send(20)?;
        eventually("all rows are there", SOON, || (ends.count()?.0 == all).then_some(()))?;
        assert!(ends.behind().ok_or("no figure")? >= 20);
        ends.mixer.kill9()?;
        runtime.block_on(ends.places.server.as_mut().ok_or("no object store")?.start_again())?;
        ends.mixer = ends.places.machine()?;
        let again = eventually("all rows are there again", SOON, || {
            ends.count().filter(|count| count.0 >= all)
        });
        assert_eq!(again?, (all, all));
    }
    Ok(())
}

#[test]
fn a_lost_machine_takes_exactly_the_rows_that_the_api_called_not_uploaded() -> Result<(), Failure> {
    let name = "a_lost_machine_takes_exactly_the_rows_that_the_api_called_not_uploaded";
    let runtime = Runtime::new()?;
    let places = Places::new(Some(runtime.block_on(TestS3::start())?), None)?;
    let mut ends = Ends::start(name, places, Random::for_test(name))?;
    let mut sent = 0;
    let mut send = |ends: &mut Ends, query: &str| -> Result<u64, Failure> {
        let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let address = Arc::clone(&ends.address);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_requests(sent, &address, query, &over, &answered));
            std::thread::park_timeout(Duration::from_millis(200 + ends.random.below(400)));
            over.store(true, Ordering::Relaxed);
            sender.join().map_err(|_| "a sender died")
        })?;
        sent += 1;
        Ok(answered.into_inner())
    };
    for _ in 0..setting("PLATFORM_TEST_LOSSES", 4) {
        send(&mut ends, "")?;
        send(&mut ends, "?durable=bucket")?;
        // Nothing is on its way to the object store when that goes away: what it has is what was answered.
        eventually("everything is uploaded", SOON, || (ends.behind()? == 0).then_some(()))?;
        let server = ends.places.server.as_mut().ok_or("no object store")?;
        server.kill()?;
        let later = send(&mut ends, "")? + send(&mut ends, "")?;
        let behind = ends.behind().ok_or("no figure")?;
        let before = ends.count().ok_or("no count")?;
        ends.mixer.kill9()?;
        runtime.block_on(ends.places.server.as_mut().ok_or("no object store")?.start_again())?;
        ends.mixer = ends.places.machine()?;
        ends.tell(Some(ends.mixer.api.base.clone()));
        let after = eventually("an answer", SOON, || ends.count())?;
        eprintln!("{} rows, {behind} not uploaded, {} lost", before.0, before.0 - after.0);
        assert_eq!((behind, after), (later, (before.0 - later, before.0 - later)));
    }
    Ok(())
}
