//! Gears that make more than anybody takes.

use harness::process::memory_of;

use super::*;
use crate::first_light::mixer_with;

/// The bytes of all files below a folder.
fn size(folder: &std::path::Path) -> Result<u64, Failure> {
    let mut all = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // A segment may go meanwhile.
        let Ok(meta) = entry.metadata() else { continue };
        all += if meta.is_dir() {
            size(&entry.path())?
        } else {
            meta.len()
        };
    }
    Ok(all)
}

fn floods(version: &str, flooding: bool) -> String {
    let mut gears = vec![door(), gear("kept", "log_sink", "")];
    let mut wires = vec!["from: door.out, to: kept.in, lane: guaranteed"];
    if flooding {
        gears.extend([
            gear("quick", "generator", "rate: 1000000, size: 200"),
            gear("noted", "log_sink", ""),
            gear("many", "generator", "rate: 1000000, size: 1000"),
            gear("far", "log_sink", ""),
        ]);
        wires.extend([
            "from: quick.out, to: noted.in",
            "from: many.out, to: far.in, lane: guaranteed",
        ]);
    }
    scenario("floods", version, &gears, &wires)
}

#[test]
fn gears_that_flood_both_lanes_keep_within_the_racks_memory_and_disk_and_others_go_on() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(&floods("1", true))?;
    let keys = [("spool.max_size_mb", "4"), ("rack.heartbeat_interval", "\"3s\"")];
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &keys, &[])?;
    rack.start()?;
    let mut door = Door::of(&rack, 1)?;
    let mut heard = BTreeSet::new();
    for number in 0..10 {
        door.accepts(&format!("among the flood {number}"))?;
        let shown = shown(&mixer, "rack-a").ok_or("the Rack is not shown")?;
        assert_eq!(shown["state"], "active", "{shown}");
        heard.insert(shown["last_seen"].to_string());
    }
    eventually("more heartbeats, and messages of the flood", SOON, || {
        heard.insert(shown(&mixer, "rack-a")?["last_seen"].to_string());
        let many = number(&mixer, "SELECT count(*) AS n FROM messages WHERE src_gear_id = 'many'")?;
        (heard.len() > 5 && many > 1_000).then_some(())
    })
    .map_err(|error| format!("{error}:\n{}", rack.log()))?;
    eventually("the word that telemetry was dropped", SOON, || {
        let log = rack.log();
        let said = log.contains("telemetry came faster than it could be written") || log.contains("the spool is full");
        said.then_some(())
    })
    .map_err(|error| format!("{error}:\n{}", rack.log()))?;
    // Two bounded spools, and what a segment may be over its bound.
    let memory = memory_of(rack.process()?.pid(), "VmHWM")?;
    let disk = size(&rack.path().join("data"))?;
    assert!(memory < 512 << 20, "{memory} bytes of memory");
    assert!(disk < 24 << 20, "{disk} bytes of disk");

    import(&mixer, &floods("2", false))?;
    assert!(activate(&mixer, "floods:2", "50s")?, "{}", rack.log());
    door.accepts("after the flood")?;
    door.is_archived(&mixer)?;
    door.is_sunk(&mixer, "kept")
}
