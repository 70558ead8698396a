//! Faults of the long test of the lane, and that each of them passes.

use std::path::Path;
use std::time::Duration;

use harness::disk::Disk;
use harness::stepped_clock::SteppedClock;
use harness::{Failure, Link, Random, TestMixer, TestRack, eventually, process};
use serde_json::{Value, json};

/// What is done to a plant of a Mixer and two Racks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    KillMixer,
    KillBus,
    KillRack(usize),
    Partition(usize),
    /// The stream of messages takes nothing for a while.
    FullStream,
    /// Cut off until the outbox of the sender is full.
    FullOutbox,
    /// Another scenario, in which the receiver has another name.
    RenameReceiver,
    Suspend,
    /// The wall clock of the Mixer or of the sender goes to another time within a quarter of an hour, forwards or back.
    ClockStep(usize),
    /// The Mixer's machine; without a disk of its own its programs are killed.
    PowerCut,
}

pub(super) const FAULTS: [Fault; 13] = [
    Fault::KillMixer,
    Fault::ClockStep(0),
    Fault::FullStream,
    Fault::KillRack(0),
    Fault::RenameReceiver,
    Fault::KillBus,
    Fault::Partition(0),
    Fault::KillRack(1),
    Fault::FullOutbox,
    Fault::ClockStep(1),
    Fault::Partition(1),
    Fault::Suspend,
    Fault::PowerCut,
];

/// The records of the last gear, whatever its name; the source of the lines has some too.
const RECORDS: &str = "message LIKE 'line % of the lane' AND attributes->>'gear.id' LIKE 'sink%'";

/// See the module.
pub(super) struct Plant {
    pub(super) mixer: TestMixer,
    pub(super) racks: Vec<(TestRack, Link)>,
    /// Where the Mixer's store is, if the machine can have one whose power can be cut.
    pub(super) disk: Option<Disk>,
    /// The clocks of the Mixer and of the sender, if they can be stepped.
    pub(super) clocks: Vec<SteppedClock>,
    /// The scenario, to which a receiver's name is given.
    pub(super) scenario: Box<dyn Fn(&str) -> String>,
    pub(super) random: Random,
    pub(super) version: u64,
    /// The faults that this round still lacks.
    pub(super) round: Vec<Fault>,
}

impl Plant {
    /// How many different lines are at the last gear, whatever its name.
    pub(super) fn arrived(&self) -> Option<u64> {
        let query =
            "SELECT count(DISTINCT substr(message, 6, 9)) AS n FROM logs WHERE message LIKE 'line % of the lane'";
        let answer = self.mixer.api.post("/api/v1/sql", &json!({ "query": query })).ok()?;
        answer.json["data"][0]["n"].as_u64()
    }

    /// The numbers of the lines as they were recorded.
    pub(super) fn numbers(&self) -> Result<Vec<u64>, Failure> {
        let query = format!("SELECT CAST(substr(message, 6, 9) AS BIGINT) AS n FROM logs WHERE {RECORDS} ORDER BY ts");
        let asked = json!({ "query": query, "limit": 10_000_000 });
        let answer = self.mixer.api.post("/api/v1/sql", &asked)?;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let rows = answer.json["data"].as_array().ok_or("no rows")?;
        Ok(rows.iter().filter_map(|row| row["n"].as_u64()).collect())
    }

    /// The records of lines from a number to another one and of their neighbours at these, by their times: what a failure is told with.
    pub(super) fn records_of(&self, first: u64, last: u64) -> Result<String, Failure> {
        let number = "CAST(substr(message, 6, 9) AS BIGINT)";
        let near = |at: u64| format!("{number} BETWEEN {} AND {}", at.saturating_sub(1), at + 2);
        let query = format!(
            "SELECT ts, {number} AS line, attributes->>'gear.id' AS gear FROM logs WHERE {RECORDS} AND ({} OR {}) ORDER BY ts",
            near(first),
            near(last)
        );
        Ok(self.mixer.api.post("/api/v1/sql", &json!({ "query": query }))?.text)
    }

    /// Does one of the faults that this round still lacks, a random one, and waits until messages arrive again.
    pub(super) fn hurt(&mut self, number: u64) -> Result<(), Failure> {
        if self.round.is_empty() {
            self.round = FAULTS.to_vec();
        }
        let at = usize::try_from(self.random.below(self.round.len() as u64))?;
        let fault = self.round.swap_remove(at);
        eprintln!("{} {number}: {fault:?}", chrono::Utc::now().format("%T%.3f"));
        self.fault(fault)?;
        let before = eventually("an answer of the Mixer", Duration::from_secs(60), || self.arrived())?;
        eventually("messages that arrive again", Duration::from_secs(60), || {
            (self.arrived()? > before).then_some(())
        })
        .map_err(|error| format!("{error} after {number}: {fault:?}").into())
    }

    fn fault(&mut self, fault: Fault) -> Result<(), Failure> {
        let pause = |random: &mut Random, most| std::thread::sleep(Duration::from_millis(random.below(most)));
        match fault {
            Fault::KillMixer => {
                self.mixer.kill9()?;
                pause(&mut self.random, 500);
                self.mixer.restart()
            }
            Fault::KillBus => process::kill9(eventually("the bus", Duration::from_secs(30), || {
                self.mixer.bus_pid().ok()
            })?),
            Fault::KillRack(at) => {
                self.racks[at].0.kill9()?;
                pause(&mut self.random, 500);
                self.racks[at].0.spawn()
            }
            Fault::Partition(at) => {
                self.racks[at].1.cut();
                pause(&mut self.random, 2_000);
                self.racks[at].1.heal();
                Ok(())
            }
            Fault::FullStream => {
                let Ok(bus) = self.mixer.bus() else { return Ok(()) };
                let Ok(all) = bus.limit_stream("flux-msg", 1) else {
                    return Ok(());
                };
                pause(&mut self.random, 3_000);
                bus.limit_stream("flux-msg", all)?;
                Ok(())
            }
            Fault::FullOutbox => {
                let (rack, link) = &self.racks[0];
                link.cut();
                // It may have been full before.
                let full = eventually("a full outbox", Duration::from_secs(120), || {
                    let log = rack.log();
                    let last = |what: &str| log.rfind(what);
                    let empty = last("the spool has room again").max(last("the Rack starts"));
                    (last("the spool is full") > empty).then_some(())
                });
                link.heal();
                full
            }
            Fault::RenameReceiver => {
                self.version += 1;
                let name = if self.version.is_multiple_of(2) {
                    "sink"
                } else {
                    "sink2"
                };
                let yaml = (self.scenario)(name).replace("version: '1'", &format!("version: '{}'", self.version));
                let kind = [("content-type", "application/yaml")];
                let stored = self.mixer.api.send("/api/v1/scenarios", &kind, yaml.as_bytes())?;
                assert_eq!(stored.status, 200, "{}", stored.text);
                self.ask(&format!("scenarios/lane:{}/activate?wait=20s", self.version))
            }
            Fault::Suspend => {
                self.ask("racks/rack-b/suspend")?;
                pause(&mut self.random, 2_000);
                self.ask("racks/rack-b/resume")
            }
            Fault::ClockStep(at) => {
                let quarter = 15 * 60;
                let ahead = i64::try_from(self.random.below(2 * quarter))? - i64::try_from(quarter)?;
                self.clocks.get(at).map_or(Ok(()), |clock| clock.step_to(ahead))
            }
            Fault::PowerCut => {
                if let Some(disk) = &self.disk {
                    disk.cut()?;
                }
                self.mixer.kill9()?;
                if let Some(disk) = &mut self.disk {
                    eventually("the disk without users", Duration::from_secs(10), || {
                        disk.power_on().ok()
                    })?;
                }
                self.mixer.restart()
            }
        }
    }

    fn ask(&self, path: &str) -> Result<(), Failure> {
        let answer = self
            .mixer
            .api
            .post(&format!("/api/v1/{path}"), &Value::Object(Default::default()))?;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        Ok(())
    }

    /// The folder of the Mixer's data.
    pub(super) fn store(&self) -> std::path::PathBuf {
        let own = || self.mixer.path().join("data");
        self.disk.as_ref().map_or_else(own, |disk| store(disk.path()))
    }
}

/// The folder of the Mixer's data on a disk.
pub(super) fn store(disk: &Path) -> std::path::PathBuf {
    disk.join("data")
}
