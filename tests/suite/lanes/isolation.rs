//! A receiver that is away costs its own wires only: the others of the same Rack, and of others, go on.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::process::run;
use harness::{Failure, TestMixer, TestRack, binary, eventually, gear_files};
use serde_json::Value;

use super::{archived, mixer_log};

/// Lines of 32 KiB for a Rack that was never enrolled: twice what the stream of 45 MiB has room for.
const LOST: u64 = 3_000;
/// For one that is there.
const LINES: u64 = 500;

fn scenario(folder: &Path) -> String {
    let tail_of = |name: &str, file: &Path| {
        format!(
            "  - {{ name: {name}, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n",
            file.display().to_string()
        )
    };
    format!(
        "meta: {{ name: isolation, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }}, {{ name: rack-z }} ]\ngears:\n{}{}  \
         - {{ name: sink, type: file_out, deploy: rack-b, config: {{ path: {:?} }} }}\n  \
         - {{ name: late, type: file_out, deploy: rack-z, config: {{ path: {:?} }} }}\nwires:\n  \
         - {{ from: lost.out, to: late.in }}\n  - {{ from: tail.out, to: sink.in }}\n",
        tail_of("lost", &folder.join("lost.log")),
        tail_of("tail", &folder.join("tail.log")),
        folder.join("sink.txt").display().to_string(),
        folder.join("late.txt").display().to_string(),
    )
}

fn write(file: &Path, lines: u64) -> Result<(), Failure> {
    let mut file = std::fs::File::create(file)?;
    let padding = "x".repeat(32 << 10);
    for number in 0..lines {
        writeln!(file, "line {number:09} of the lane {padding}")?;
    }
    Ok(())
}

/// Waits until no more of a gear's messages are archived, and returns how many are.
fn stands(mixer: &TestMixer, gear: &str) -> Result<u64, Failure> {
    let mut still = (0, Instant::now());
    eventually("a gear that may send no more", Duration::from_secs(120), || {
        let stored = archived(mixer, gear)?.0;
        if stored != still.0 {
            still = (stored, Instant::now());
        }
        (stored > 0 && still.1.elapsed() > Duration::from_secs(5)).then_some(stored)
    })
}

/// The numbers of the lines that a gear has written to a file.
pub(super) fn numbers(file: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let number = |line: &str| line.get(5..14)?.parse().ok();
    text.lines().filter_map(number).collect()
}

fn all_arrive(mixer: &TestMixer, file: &Path, lines: u64, racks: &[&TestRack]) -> Result<(), Failure> {
    eventually("every line", Duration::from_secs(60), || {
        (numbers(file).len() as u64 >= lines).then_some(())
    })
    .map_err(|error| {
        let (logs, seen): (String, _) = (racks.iter().map(|rack| rack.log()).collect(), numbers(file).len());
        format!(
            "{error} in {}: {seen} of {lines}; {logs}\n{}",
            file.display(),
            mixer_log(mixer)
        )
    })?;
    assert_eq!(numbers(file), (0..lines).collect::<Vec<_>>(), "in order, each once");
    Ok(())
}

/// The wire that ends at a gear, as the API shows it.
fn wire(mixer: &TestMixer, gear: &str) -> Result<Value, Failure> {
    let answer = mixer.api.get("/api/v1/wires")?;
    let wires = answer.json["data"].as_array().ok_or("no wires")?;
    let ends = |wire: &&Value| {
        wire["wire"]
            .as_str()
            .is_some_and(|text| text.ends_with(&format!(".{gear}.in")))
    };
    Ok(wires.iter().find(ends).ok_or("no such wire")?.clone())
}

/// The messages of a gear on rack-z that are dead letters: all, and different ones.
fn letters(mixer: &TestMixer, gear: &str) -> Option<(u64, u64)> {
    let rows = mixer.api.all_rows("/api/v1/telemetry/dead_letters?since=1h").ok()?;
    let subject = format!("flux.gear.rack-z.{gear}");
    let of_gear = || rows.iter().filter(|row| row["subject"] == subject.as_str());
    let different: BTreeSet<String> = of_gear().map(|row| row["payload"].to_string()).collect();
    Some((of_gear().count() as u64, different.len() as u64))
}

#[test]
fn a_wire_that_drops_its_oldest_holds_nobody_up_and_makes_dead_letters_of_them() -> Result<(), Failure> {
    let folder = gear_files()?;
    let path = folder.path().join("scenario.yaml");
    let wires = "  - { from: lost.out, to: late.in, max_bytes: 1048576, overflow: drop_oldest_to_dlq }\n  \
                 - { from: lost.out, to: sink.in }\n  - { from: tail.out, to: late.in, max_age: 2s }\n";
    let text = scenario(folder.path());
    let (above, _) = text.split_once("wires:\n").ok_or("no wires")?;
    std::fs::write(&path, format!("{above}wires:\n{wires}"))?;
    let startup = format!("{:?}", path.display().to_string());
    let mixer = TestMixer::with(&[("mixer.startup_scenario", startup.as_str())], &[])?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    write(&folder.path().join("lost.log"), LINES)?;
    // Sixteen times what may wait for the Rack that is not there.
    all_arrive(&mixer, &folder.path().join("sink.txt"), LINES, &[&a, &b])?;
    let late = folder.path().join("late.txt");
    eventually("a wire within its bound", Duration::from_secs(60), || {
        let wire = wire(&mixer, "late").ok()?;
        let waits = wire["waiting_bytes"]
            .as_u64()
            .filter(|bytes| *bytes > 0 && *bytes <= 1 << 20);
        (waits.is_some() && wire["is_held"] == false && wire["dropped_messages"].as_u64()? > LINES / 2).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}\n{}", wire(&mixer, "late"), mixer_log(&mixer)))?;
    let mut z = TestRack::new("rack-z", &mixer.bus_url, "")?;
    z.start()?;
    eventually("the newest line", Duration::from_secs(60), || {
        (numbers(&late).last() == Some(&(LINES - 1))).then_some(())
    })?;
    let kept = numbers(&late);
    let dropped = LINES - kept.len() as u64;
    assert_eq!(
        kept,
        (dropped..LINES).collect::<Vec<_>>(),
        "the newest, in order, each once"
    );
    eventually("a letter of each that was dropped", Duration::from_secs(30), || {
        (letters(&mixer, "late")? == (dropped, dropped)).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}, {dropped} dropped", letters(&mixer, "late")))?;
    // Nobody is there when these come, and nobody comes before they are too old.
    z.kill9()?;
    write(&folder.path().join("tail.log"), 20)?;
    eventually("letters of those that waited too long", Duration::from_secs(60), || {
        (letters(&mixer, "late")? == (dropped + 20, dropped + 20)).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}, {dropped} dropped before", letters(&mixer, "late")).into())
}

/// The numbers of the lines in the dead letters of a gear on rack-z, each as often as there is one.
fn numbers_of_letters(mixer: &TestMixer, gear: &str) -> Option<Vec<u64>> {
    let rows = mixer.api.all_rows("/api/v1/telemetry/dead_letters?since=1h").ok()?;
    let subject = format!("flux.gear.rack-z.{gear}");
    let of_gear = rows.iter().filter(|row| row["subject"] == subject.as_str());
    let number = |row: &serde_json::Map<String, Value>| {
        // "line " and nine digits, in hexadecimal digits.
        let (_, rest) = row["payload"].as_str()?.split_once("6c696e6520")?;
        let digits: String = rest.get(..18)?.chars().skip(1).step_by(2).collect();
        digits.parse().ok()
    };
    of_gear.map(number).collect()
}

#[test]
fn of_a_wire_that_drops_each_message_is_at_a_slow_receiver_or_a_dead_letter() -> Result<(), Failure> {
    let folder = gear_files()?;
    let path = folder.path().join("scenario.yaml");
    let text = scenario(folder.path());
    let (above, _) = text.split_once("wires:\n").ok_or("no wires")?;
    let slow = "  - { name: slow, type: throttle, deploy: rack-z, config: { rate: 20, burst: 1 } }\n";
    let wires = "  - { from: lost.out, to: slow.in, max_bytes: 1048576, overflow: drop_oldest_to_dlq }\n  \
                 - { from: slow.out, to: late.in }\n  - { from: tail.out, to: sink.in }\n";
    std::fs::write(&path, format!("{above}{slow}wires:\n{wires}"))?;
    let startup = format!("{:?}", path.display().to_string());
    let mixer = TestMixer::with(&[("mixer.startup_scenario", startup.as_str())], &[])?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut z = TestRack::new("rack-z", &mixer.bus_url, "")?;
    a.start()?;
    z.start()?;
    // Four times what an inlet has in hand.
    let lines = 4 * LINES;
    write(&folder.path().join("lost.log"), lines)?;
    let late = folder.path().join("late.txt");
    let told = |error: Failure| format!("{error}: {:?}\n{}", wire(&mixer, "slow"), z.log());
    eventually(
        "a receiver that has what was not dropped",
        Duration::from_secs(120),
        || {
            let dropped = wire(&mixer, "slow").ok()?["dropped_messages"].as_u64()?;
            (numbers(&late).last() == Some(&(lines - 1)) && dropped > 0).then_some(())
        },
    )
    .map_err(told)?;
    eventually(
        "each line at its receiver or as a letter",
        Duration::from_secs(60),
        || {
            let mut all: BTreeSet<u64> = numbers(&late).into_iter().collect();
            all.extend(numbers_of_letters(&mixer, "slow")?);
            (all.len() as u64 == lines).then_some(())
        },
    )
    .map_err(told)?;
    let (at_receiver, letters) = (numbers(&late), numbers_of_letters(&mixer, "slow").ok_or("no letters")?);
    assert!(at_receiver.is_sorted(), "in order");
    let different: BTreeSet<&u64> = letters.iter().collect();
    let is_letter_only = |number: &u64| different.contains(number) && !at_receiver.contains(number);
    assert!(!at_receiver.is_empty() && (0..lines).any(|number| is_letter_only(&number)));
    assert_eq!(different.len(), letters.len(), "one letter of each");
    Ok(())
}

#[test]
fn a_rack_that_was_never_enrolled_holds_up_its_own_wire_only() -> Result<(), Failure> {
    let folder = gear_files()?;
    let path = folder.path().join("scenario.yaml");
    std::fs::write(&path, scenario(folder.path()))?;
    let startup = format!("{:?}", path.display().to_string());
    let keys = [
        ("mixer.startup_scenario", startup.as_str()),
        ("snake.max_store_mb", "64"),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    write(&folder.path().join("lost.log"), LOST)?;
    let stored = stands(&mixer, "lost")?;
    assert!(stored < LOST, "the stream has no room for all: {stored}");
    write(&folder.path().join("tail.log"), LINES)?;
    all_arrive(&mixer, &folder.path().join("sink.txt"), LINES, &[&a, &b])?;
    let held = wire(&mixer, "late")?;
    assert!(
        held["waiting_bytes"].as_u64().is_some_and(|bytes| bytes > 5 << 20),
        "{held}"
    );
    assert_eq!(held["is_held"], true, "{held}");
    assert_eq!(wire(&mixer, "sink")?["is_held"], false);
    let args = ["wires", "--api-url", &mixer.api.base, "-o", "csv"];
    let shown = run(&binary("platform")?, &args, a.path(), &[])?;
    let first = shown.out.lines().nth(1).unwrap_or_default();
    assert!(
        first.contains("rack-z.late.in") && first.contains("true"),
        "the largest first: {shown:?}"
    );
    // All of it waits for who comes late, as far as it was sent, and the rest follows.
    let mut z = TestRack::new("rack-z", &mixer.bus_url, "")?;
    z.start()?;
    all_arrive(&mixer, &folder.path().join("late.txt"), LOST, &[&a, &z])
}
