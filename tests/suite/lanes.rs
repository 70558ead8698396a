//! The guaranteed lane: business messages between Racks, stored once, in order, through `kill -9` of any process.
//!
//! `make lanes-long` runs the long form (`PLATFORM_TEST_LANE_KILLS`, `PLATFORM_TEST_LANE_ROWS`); the suite's figures are short.

mod consumers;
mod faults;
mod isolation;
mod power;
mod rewired;
mod standstill;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use harness::disk::Disk;
use harness::stepped_clock::SteppedClock;
use harness::{Failure, Link, Random, TestMixer, TestRack, duckdb, eventually, gear_files, process};

use self::faults::Plant;
use crate::first_light::mixer_with;
use crate::kill9::setting;
use crate::racks::free_port;

/// Lines of a file on rack-a become messages; rack-b makes a message of each, which it writes as a record. Both wires are guaranteed.
pub(crate) fn scenario(file: &Path) -> String {
    scenario_where(file, "size(text) > 3")
}

/// The same with another condition for what passes at rack-b.
fn scenario_where(file: &Path, condition: &str) -> String {
    format!(
        "meta: {{ name: lane, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n  \
         - {{ name: pass, type: filter, deploy: rack-b, config: {{ where: {condition:?} }} }}\n  \
         - {{ name: sink, type: log_sink, deploy: rack-b }}\nwires:\n  - {{ from: tail.out, to: pass.in }}\n  \
         - {{ from: pass.out, to: sink.in, lane: guaranteed }}\n",
        file.display().to_string()
    )
}

pub(crate) fn mixer_log(mixer: &TestMixer) -> String {
    std::fs::read_to_string(mixer.path().join("logs/mixer.log")).unwrap_or_default()
}

/// Messages of a gear in the archive: all, and different ones.
pub(crate) fn archived(mixer: &TestMixer, gear: &str) -> Option<(u64, u64)> {
    archived_in(&mixer.path().join("data"), gear, mixer.path())
}

fn archived_in(store: &Path, gear: &str, folder: &Path) -> Option<(u64, u64)> {
    let sql = format!(
        "select count(*) || ' ' || count(distinct raw_msg) from read_parquet('{}/messages/generic/**/fluxmsg_*.parquet') where src_gear_id = '{gear}'",
        store.display()
    );
    let found = duckdb::scalar(&sql, folder).ok()?;
    let (all, distinct) = found.split_once(' ')?;
    Some((all.parse().ok()?, distinct.parse().ok()?))
}

/// The numbers of the lines that the last gear has written as records, in the order of their times.
pub(crate) fn arrived(mixer: &TestMixer) -> Result<Vec<u64>, Failure> {
    arrived_at(mixer, "sink")
}

/// Those that a gear has written as records, in the order of their times.
fn arrived_at(mixer: &TestMixer, gear: &str) -> Result<Vec<u64>, Failure> {
    let path = format!("/api/v1/telemetry/logs?gear_id={gear}&q=of%20the%20lane&since=1h&order=asc");
    let mut numbers = Vec::new();
    for row in mixer.api.all_rows(&path)? {
        let text = row["message"].as_str().unwrap_or_default();
        numbers.push(text.split_whitespace().nth(1).ok_or("no number")?.parse()?);
    }
    Ok(numbers)
}

/// The numbers, and how often each arrived.
fn sunk(mixer: &TestMixer) -> Result<BTreeMap<u64, u64>, Failure> {
    let mut seen = BTreeMap::new();
    for number in arrived(mixer)? {
        *seen.entry(number).or_default() += 1;
    }
    Ok(seen)
}

/// Writes numbered lines in bursts until `rows` are written and `over` says so; how many there are.
fn load(file: PathBuf, rows: u64, over: Arc<AtomicBool>) -> JoinHandle<Result<u64, Failure>> {
    load_every(Duration::from_millis(20), 120, file, rows, over)
}

/// The same, a burst of fifty lines each time, each of them with so many characters of padding.
fn load_every(
    pause: Duration,
    padding: usize,
    file: PathBuf,
    rows: u64,
    over: Arc<AtomicBool>,
) -> JoinHandle<Result<u64, Failure>> {
    let padding = format!("{} ", "x".repeat(padding));
    std::thread::spawn(move || {
        let mut next = 0;
        while next < rows || !over.load(Ordering::Relaxed) {
            write_with(&file, &padding, next..next + 50)?;
            next += 50;
            std::thread::park_timeout(pause);
        }
        Ok(next)
    })
}

pub(crate) fn write(file: &Path, numbers: std::ops::Range<u64>) -> Result<(), Failure> {
    write_with(file, "", numbers)
}

fn write_with(file: &Path, padding: &str, numbers: std::ops::Range<u64>) -> Result<(), Failure> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    let lines: String = numbers.map(|n| format!("line {n:09} {padding}of the lane\n")).collect();
    Ok(file.write_all(lines.as_bytes())?)
}

#[test]
fn messages_cross_racks_and_wait_for_one_that_is_offline() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let (mixer, _scenario) = mixer_with(&scenario(&file))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    // The receiver was never seen so far: its messages wait.
    write(&file, 0..200)?;
    eventually("the first messages in the archive", Duration::from_secs(30), || {
        (archived(&mixer, "tail")? == (200, 200)).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}; rack-a:\n{}", archived(&mixer, "tail"), a.log()))?;
    b.start()?;
    let all = |count: u64| {
        eventually("the messages at the other Rack", Duration::from_secs(60), || {
            let seen = sunk(&mixer).ok()?;
            (seen.len() as u64 == count && seen.values().all(|times| *times == 1)).then_some(())
        })
        .map_err(|error| format!("{error}; rack-b:\n{}", b.log()))
    };
    all(200)?;
    b.kill9()?;
    write(&file, 200..400)?;
    b.spawn()?;
    eventually("all messages at the other Rack", Duration::from_secs(90), || {
        let seen = sunk(&mixer).ok()?;
        (seen.len() == 400).then_some(())
    })
    .map_err(|error| format!("{error}; rack-b:\n{}", b.log()))?;
    eventually("all messages in the archive, once", Duration::from_secs(30), || {
        (archived(&mixer, "tail")? == (400, 400)).then_some(())
    })
}

#[test]
fn a_bus_that_lost_its_store_gets_its_consumers_anew_and_messages_go_on() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let (mut mixer, _scenario) = mixer_with(&scenario(&file))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let there = |mixer: &TestMixer, count: usize| {
        eventually("the messages at the other Rack", Duration::from_secs(60), || {
            (sunk(mixer).ok()?.len() == count).then_some(())
        })
    };
    write(&file, 0..100)?;
    there(&mixer, 100)?;
    std::fs::remove_dir_all(mixer.path().join("data/js/jetstream"))?;
    process::kill9(mixer.bus_pid()?)?;
    eventually("the wires of the scenario once more", Duration::from_secs(60), || {
        let bus = mixer.bus().ok()?;
        (bus.consumers("flux-msg").ok()? >= 3).then_some(())
    })
    .map_err(|error| format!("{error}; the Mixer:\n{}", mixer_log(&mixer)))?;
    write(&file, 100..200)?;
    there(&mixer, 200).map_err(|error| format!("{error}; rack-a:\n{}\nrack-b:\n{}", a.log(), b.log()).into())
}

/// The scenario of the long test, in which the last gear has this name.
fn scenario_with(file: &Path, sink: &str) -> String {
    let named = format!("name: {sink},");
    scenario(file)
        .replace("name: sink,", &named)
        .replace("sink.in", &format!("{sink}.in"))
}

#[test]
fn no_message_is_lost_or_archived_twice_and_order_is_kept_through_faults() -> Result<(), Failure> {
    nothing_is_lost(Random::for_test("no_message_is_lost_or_archived_twice"))
}

/// A Mixer on a disk of its own, if that can be had, and two Racks behind links. The sender's outbox is small.
fn plant(folder: &Path, random: Random) -> Result<Plant, Failure> {
    let disk = Disk::ext4(4_096)
        .map_err(|lacking| eprintln!("power cuts: {lacking}"))
        .ok();
    let (file, flow) = (folder.join("app.log"), folder.join("flow.yaml"));
    std::fs::write(&flow, scenario(&file))?;
    let text = |path: &Path| format!("{:?}", path.display().to_string());
    // Racks and the API are to find them again after a kill.
    let (api, bus, flow) = (free_port()?, free_port()?, text(&flow));
    let store = disk.as_ref().map(|disk| text(&faults::store(disk.path())));
    let mut keys = vec![
        ("snake.port", bus.as_str()),
        ("api.port", api.as_str()),
        ("mixer.startup_scenario", flow.as_str()),
        ("snake.max_store_mb", "1024"),
    ];
    keys.extend(store.as_ref().map(|store| ("store.dir", store.as_str())));
    let clocks = ["mixer", "rack-a"].map(|name| SteppedClock::new(folder, name));
    let clocks: Result<Vec<SteppedClock>, _> = clocks.into_iter().collect();
    let clocks = clocks.unwrap_or_else(|lacking| {
        eprintln!("clock steps: {lacking}");
        Vec::new()
    });
    let envs = |at: usize| clocks.get(at).map_or_else(Vec::new, |clock| clock.envs().to_vec());
    let mixer = TestMixer::with(&keys, &envs(0))?;
    let mut racks = Vec::new();
    for (name, spool, clock) in [("rack-a", "2", 1), ("rack-b", "64", usize::MAX)] {
        let link = Link::to(&mixer.bus_url)?;
        let spool = [("spool.max_size_mb", spool)];
        let mut rack = TestRack::with(name, &link.bus_url(), &spool, &envs(clock))?;
        rack.start()?;
        racks.push((rack, link));
    }
    Ok(Plant {
        mixer,
        racks,
        disk,
        clocks,
        scenario: Box::new(move |sink| scenario_with(&file, sink)),
        random,
        version: 2,
        round: Vec::new(),
    })
}

/// Hurts everything in turn while lines become messages, each once in the short form, and looks for each of them afterwards.
fn nothing_is_lost(random: Random) -> Result<(), Failure> {
    let shortest = faults::FAULTS.len() as u64;
    let (hurts, rows) = (
        setting("PLATFORM_TEST_LANE_KILLS", shortest),
        setting("PLATFORM_TEST_LANE_ROWS", 5_000),
    );
    let folder = gear_files()?;
    let mut plant = plant(folder.path(), random)?;
    let over = Arc::new(AtomicBool::new(false));
    // So much that an outbox of two megabytes is full after some seconds; in the short form in few lines, which a debug build keeps up with.
    let (pause, padding) = if hurts > shortest { (60, 120) } else { (250, 1_000) };
    let (file, pause) = (folder.path().join("app.log"), Duration::from_millis(pause));
    let writing = load_every(pause, padding, file, rows, Arc::clone(&over));
    let hurt = (0..hurts).try_for_each(|number| {
        std::thread::sleep(Duration::from_millis(300 + plant.random.below(1_500)));
        plant.hurt(number)
    });
    over.store(true, Ordering::Relaxed);
    let written = writing.join().map_err(|_| "the writer died")??;
    let told = |error: Failure, plant: &Plant| -> Failure {
        let logs: String = plant
            .racks
            .iter()
            .map(|(rack, _)| format!("{}:\n{}\n", rack.name, rack.log()))
            .collect();
        let archived = archived_in(&plant.store(), "tail", plant.mixer.path());
        format!("{error}; {written} written, archived {archived:?}\n{logs}").into()
    };
    hurt.map_err(|error| told(error, &plant))?;
    eventually("every message in the archive once", Duration::from_secs(120), || {
        let (all, distinct) = archived_in(&plant.store(), "tail", plant.mixer.path())?;
        assert!(
            all <= written,
            "{all} messages of {written} lines, {distinct} different"
        );
        (all == written && distinct == written).then_some(())
    })
    .map_err(|error| told(error, &plant))?;
    eventually("every message at the other Rack", Duration::from_secs(180), || {
        (plant.arrived()? == written).then_some(())
    })
    .map_err(|error| told(error, &plant))?;
    // A record may be written again after a crash; then those behind it are too, and none comes before its time.
    let mut newest = 0;
    let numbers = plant.numbers()?;
    for number in &numbers {
        if *number > newest + 1 {
            let records = plant.records_of(newest, *number)?;
            let error = format!("{number} came after {newest}: {records}\n{}", mixer_log(&plant.mixer));
            return Err(told(error.into(), &plant));
        }
        newest = newest.max(*number);
    }
    eprintln!("{written} messages, {} records", numbers.len());
    Ok(())
}

#[test]
fn what_a_gear_cannot_handle_becomes_a_dead_letter_and_the_next_message_goes_on() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    // The second word of a line is to be a number.
    let (mixer, _scenario) = mixer_with(&scenario_where(&file, "int(text.split(' ')[1]) >= 0"))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    std::fs::write(
        &file,
        "line 000000000 of the lane\nline bad of the lane\nline 000000002 of the lane\n",
    )?;
    eventually("the good ones", Duration::from_secs(60), || {
        (arrived(&mixer).ok()? == [0, 2]).then_some(())
    })
    .map_err(|error| format!("{error}; rack-b:\n{}", b.log()))?;
    let letter = eventually("the bad one", Duration::from_secs(30), || {
        let page = mixer.api.get("/api/v1/telemetry/dead_letters?since=1h").ok()?;
        page.json["data"].as_array()?.first().cloned()
    })?;
    assert_eq!(letter["subject"], "flux.gear.rack-b.pass", "{letter}");
    assert!(
        letter["reason"].as_str().is_some_and(|reason| reason.contains("where")),
        "{letter}"
    );
    assert_eq!(letter["headers"]["Flux-Dead-Port"], "in", "{letter}");
    Ok(())
}
