//! A full disk: of a Rack, of the bus.

use harness::disk::Disk;

use super::*;
use crate::first_light::mixer_with;
use crate::lanes;

/// Two versions that differ in a gear beside the way of the messages.
fn version(version: &str) -> String {
    let mut gears = vec![door(), gear("sink", "log_sink", "")];
    if version != "1" {
        gears.push(gear("host", "host_metrics", ""));
    }
    scenario(
        "plant",
        version,
        &gears,
        &["from: door.out, to: sink.in, lane: guaranteed"],
    )
}

/// Fills the disk until the door acknowledges nothing any more.
fn fill(disk: &Disk, door: &mut Door) -> Result<(), Failure> {
    let large = "x".repeat(9_000);
    for _ in 0..500 {
        disk.fill()?;
        match door.post(&large, Duration::from_secs(5))? {
            Some(202) => {}
            None => return Ok(()),
            other => return Err(format!("the door answers {other:?}").into()),
        }
    }
    Err("the door acknowledges on a full disk".into())
}

#[test]
fn a_rack_on_a_full_disk_acknowledges_nothing_that_it_does_not_keep_says_so_and_goes_on_by_itself()
-> Result<(), Failure> {
    let disk = match Disk::tmpfs(24) {
        Ok(disk) => disk,
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let (mixer, _scenario) = mixer_with(&version("1"))?;
    let folder = format!("{:?}", disk.path().join("state").display().to_string());
    let keys = [
        ("base.state_dir", folder.as_str()),
        ("spool.max_size_mb", "4"),
        ("rack.heartbeat_interval", "\"200ms\""),
    ];
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &keys, &[])?;
    rack.start()?;
    let mut door = Door::of(&rack, 1)?;
    for number in 0..20 {
        door.accepts(&format!("message {number}"))?;
    }
    fill(&disk, &mut door)?;

    // Seen: in the log of the Rack, and in what heartbeats say of its disk, which go on.
    eventually("the word about the disk", SOON, || {
        rack.log().contains("cannot write the spool").then_some(())
    })
    .map_err(|error| format!("{error}:\n{}", rack.log()))?;
    eventually("the Mixer knows that the disk is full", SOON, || {
        let shown = shown(&mixer, "rack-a")?;
        (shown["facts"]["disk.free"].as_u64()? < 64 << 10 && shown["state"] == "active").then_some(())
    })
    .map_err(|error| format!("{error}: {:?}", shown(&mixer, "rack-a")))?;

    // Another scenario runs all the same, and is remembered once that is possible.
    import(&mixer, &version("2"))?;
    assert!(activate(&mixer, "plant:2", "50s")?, "{}", rack.log());
    assert!(
        rack.log().contains("could not save the Rack's state and scenario"),
        "{}",
        rack.log()
    );
    assert_eq!(door.post("no room", Duration::from_secs(1))?, None);

    disk.make_room()?;
    door.accepts("room again")?;
    eventually("the scenario is remembered", SOON, || {
        rack.log().contains("saved again").then_some(())
    })?;
    door.is_archived(&mixer)?;
    door.is_sunk(&mixer, "sink")?;

    // Killed there, it does not begin, says why and leaves all as it is.
    fill(&disk, &mut door)?;
    rack.kill9()?;
    rack.spawn()?;
    let ended = rack.process()?.wait(SOON)?;
    let said = rack.process()?.log_tail();
    assert!(!ended.success(), "{said}");
    assert!(
        said.contains(&disk.path().join("state").display().to_string()) && said.contains("No space left"),
        "{said}"
    );
    disk.make_room()?;
    rack.start()?;
    let mut again = Door::of(&rack, 2)?;
    again.accepts("after the restart")?;
    again.acknowledged.append(&mut door.acknowledged);
    again.is_archived(&mixer)?;
    again.is_sunk(&mixer, "sink")
}

#[test]
fn a_bus_on_a_full_disk_says_so_and_takes_messages_again_once_there_is_room() -> Result<(), Failure> {
    let disk = match Disk::tmpfs(96) {
        Ok(disk) => disk,
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let folder = format!("{:?}", disk.path().join("js").display().to_string());
    let mixer = TestMixer::with(
        &[
            ("snake.store_dir", folder.as_str()),
            ("snake.max_store_mb", "64"),
            ("ingest.flush_interval", "\"100ms\""),
        ],
        &[],
    )?;
    let bus = mixer.bus()?;
    let publish = || bus.publish("flux.msg.script.gear.out", vec![b'x'; 60_000]);
    publish()?;
    disk.fill()?;
    eventually("a message that is not acknowledged", SOON, || publish().err())?;
    eventually("the word about the disk", SOON, || {
        let log = lanes::mixer_log(&mixer);
        log.contains("the bus cannot write: the disk of its store is full")
            .then_some(())
    })
    .map_err(|error| format!("{error}:\n{}", lanes::mixer_log(&mixer)))?;
    assert_eq!(mixer.api.metric("platform_bus_healthy"), Some(0.0));
    disk.make_room()?;
    eventually("an acknowledged message", SOON, || publish().ok())
        .map_err(|error| format!("{error}:\n{}", lanes::mixer_log(&mixer)))?;
    eventually("a healthy bus", SOON, || {
        (mixer.api.metric("platform_bus_healthy")? >= 1.0).then_some(())
    })?;
    assert_eq!(mixer.api.metric("platform_bus_restarts_total"), Some(1.0));
    Ok(())
}
