//! The consumers of wires, and room for messages: what the stream of messages keeps for whom.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, eventually, gear_files};

use super::{archived, mixer_log, scenario, sunk, write};
use crate::first_light::mixer_with;

#[test]
fn what_is_archived_and_taken_makes_room_in_a_full_stream_and_what_waits_for_a_rack_stays() -> Result<(), Failure> {
    const LINES: u64 = 2_000;
    let logs = gear_files()?;
    let (file, early) = (logs.path().join("app.log"), logs.path().join("early.log"));
    let tail = |name: &str, file: &Path| {
        format!(
            "\n  - {{ name: {name}, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}",
            file.display().to_string()
        )
    };
    let scenario = format!(
        "meta: {{ name: room, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }}, {{ name: rack-c }} ]\ngears:{}{}\n  \
         - {{ name: ends, type: filter, deploy: rack-b, config: {{ where: 'false' }} }}\n  \
         - {{ name: sink, type: log_sink, deploy: rack-c }}\nwires:\n  - {{ from: tail.out, to: ends.in }}\n  \
         - {{ from: early.out, to: sink.in }}\n",
        tail("tail", &file),
        tail("early", &early),
    );
    // 70 % of it is the stream of messages: less than the lines below.
    let path = logs.path().join("scenario.yaml");
    std::fs::write(&path, scenario)?;
    let startup = format!("{:?}", path.display().to_string());
    let keys = [
        ("mixer.startup_scenario", startup.as_str()),
        ("snake.max_store_mb", "64"),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let mut racks = Vec::new();
    for name in ["rack-a", "rack-b"] {
        let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
        rack.start()?;
        racks.push(rack);
    }
    // The Rack that these are for is away: they stay in the stream, before all others.
    write(&early, 0..10)?;
    eventually("the first messages in the archive", Duration::from_secs(30), || {
        (archived(&mixer, "early")? == (10, 10)).then_some(())
    })?;
    let mut lines = std::fs::File::create(&file)?;
    let padding = "x".repeat(32 << 10);
    for number in 0..LINES {
        writeln!(lines, "line {number:09} of the lane {padding}")?;
    }
    eventually("every message in the archive, once", Duration::from_secs(120), || {
        (archived(&mixer, "tail")? == (LINES, LINES)).then_some(())
    })
    .map_err(|error| {
        format!(
            "{error}: {:?}; the Mixer:\n{}",
            archived(&mixer, "tail"),
            mixer_log(&mixer)
        )
    })?;
    let mut late = TestRack::new("rack-c", &mixer.bus_url, "")?;
    late.start()?;
    eventually(
        "the messages at the Rack that was away",
        Duration::from_secs(60),
        || {
            let seen = sunk(&mixer).ok()?;
            (seen.len() == 10 && seen.values().all(|times| *times == 1)).then_some(())
        },
    )
    .map_err(|error| format!("{error}; rack-c:\n{}", late.log()).into())
}

#[test]
fn a_wire_begins_where_it_began_though_its_consumer_was_lost_while_the_mixer_was_away() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let (mut mixer, _scenario) = mixer_with(&scenario(&file))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let there = |mixer: &TestMixer, count: usize| {
        eventually("each message at the other Rack, once", Duration::from_secs(60), || {
            let seen = sunk(mixer).ok()?;
            (seen.len() == count && seen.values().all(|times| *times == 1)).then_some(())
        })
    };
    write(&file, 0..100)?;
    there(&mixer, 100)?;
    // The receiver is away when the wires' consumers go, and more is sent before they are back.
    b.kill9()?;
    mixer.bus()?.delete_consumers("flux-msg", "wire-")?;
    write(&file, 100..200)?;
    eventually("more messages in the archive", Duration::from_secs(30), || {
        (archived(&mixer, "tail")? == (200, 200)).then_some(())
    })?;
    mixer.kill9()?;
    mixer.restart()?;
    b.spawn()?;
    there(&mixer, 200).map_err(|error| format!("{error}; rack-b:\n{}", b.log()).into())
}
