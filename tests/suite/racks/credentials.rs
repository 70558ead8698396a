//! Real Racks on the bus, each with a key of its own.

use std::path::Path;

use harness::{TestBus, process};
use serde_json::Value;

use super::*;
use crate::lanes;

const WIRE: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a }, { name: rack-b } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 20 } }
  - { name: sink, type: log_sink, deploy: rack-b }
wires:
  - { from: numbers.out, to: sink.in }
";

/// How many messages the sink of `rack-b` has recorded.
fn sunk(mixer: &TestMixer) -> usize {
    let rows = mixer.api.rows("/api/v1/telemetry/logs?gear_id=sink&limit=10000");
    rows.map_or(0, |rows| rows.iter().filter(|row| row["flux_id"].is_string()).count())
}

#[test]
fn racks_work_as_themselves_on_an_open_bus_over_a_restart_of_the_mixer_until_one_is_removed() -> Result<(), Failure> {
    let (api, bus) = (free_port()?, free_port()?);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("flow.yaml");
    std::fs::write(&file, WIRE)?;
    let scenario = format!("{:?}", file.display().to_string());
    let mut mixer = TestMixer::with(
        &[
            ("snake.host", "\"0.0.0.0\""),
            ("snake.tls", "\"off\""),
            ("snake.allow_insecure", "true"),
            ("snake.port", &bus),
            ("api.port", &api),
            ("mixer.startup_scenario", &scenario),
        ],
        &[],
    )?;
    let conf = std::fs::read_to_string(mixer.path().join("data/js/nats.conf"))?;
    assert!(conf.contains("no_auth_user"), "{conf}");
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let first = eventually("messages at rack-b", SOON, || {
        Some(sunk(&mixer)).filter(|count| *count > 40)
    })?;
    assert!(
        TestBus::connect(&mixer.bus_url, "flux")?
            .publish("flux.telemetry.logs.rack-a", b"x".to_vec())
            .is_err(),
        "a stranger stores nothing"
    );

    mixer.kill9()?;
    mixer.restart()?;
    eventually("more messages at rack-b", SOON, || {
        (sunk(&mixer) > first + 40).then_some(())
    })?;
    for rack in [&a, &b] {
        let log = rack.log();
        assert!(!log.contains("ermissions violation"), "{}: {log}", rack.name);
        let known = mixer.api.get(&format!("/api/v1/racks/{}", rack.name))?.json;
        assert_eq!(known["data"]["state"], "active");
    }

    let removed = mixer.api.post("/api/v1/racks/rack-a/remove", &json!({}))?;
    assert_eq!(removed.status, 200, "{}", removed.text);
    // By the answer to a heartbeat or to an enrollment, whichever is sooner; the bus cuts it off in any case.
    let told = ["was removed from this cluster", "the bus rejects our credentials"];
    eventually("the removed Rack knows it", SOON, || {
        let log = a.log();
        told.iter().all(|text| log.contains(text)).then_some(())
    })?;
    let listed = std::fs::read_to_string(mixer.path().join("data/js/nats.conf"))?;
    assert!(
        !listed.contains("flux.msg.rack-a.") && listed.contains("flux.msg.rack-b."),
        "{listed}"
    );
    Ok(())
}

/// A Mixer with credentials, which is away, and rack-a with lines 50 to 149 in its outbox: those before are where they belong.
fn with_full_outbox(folder: &Path) -> Result<(TestMixer, TestRack, TestRack), Failure> {
    let (api, bus) = (free_port()?, free_port()?);
    let (lines, file) = (folder.join("app.log"), folder.join("lane.yaml"));
    std::fs::write(&file, lanes::scenario(&lines))?;
    let scenario = format!("{:?}", file.display().to_string());
    let mut mixer = TestMixer::with(
        &[
            ("snake.port", &bus),
            ("api.port", &api),
            ("mixer.startup_scenario", &scenario),
        ],
        &[],
    )?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    lanes::write(&lines, 0..50)?;
    arrive(&mixer, &a, 50)?;
    let bus = mixer.bus_pid()?;
    mixer.kill9()?;
    // It ends by itself, and would take more until then.
    let _ = process::kill9(bus);
    lanes::write(&lines, 50..150)?;
    eventually("the rest in rack-a's outbox", SOON, || {
        let segments = std::fs::read_dir(a.path().join("data/outbox")).ok()?;
        let mut segments = segments.flatten().filter_map(|entry| std::fs::read(entry.path()).ok());
        let last = b"line 000000149";
        segments
            .any(|bytes| bytes.windows(last.len()).any(|window| window == last))
            .then_some(())
    })?;
    a.kill9()?;
    Ok((mixer, a, b))
}

fn arrive(mixer: &TestMixer, a: &TestRack, count: u64) -> Result<(), Failure> {
    eventually("each message in the archive and at rack-b, once", SOON, || {
        let mut arrived = lanes::arrived(mixer).ok()?;
        arrived.sort_unstable();
        let is_there = arrived.into_iter().eq(0..count);
        (is_there && lanes::archived(mixer, "tail")? == (count, count)).then_some(())
    })
    .map_err(|error| {
        let archived = lanes::archived(mixer, "tail");
        format!(
            "{error}: {archived:?}; rack-a:\n{}\nthe Mixer:\n{}",
            a.log(),
            lanes::mixer_log(mixer)
        )
        .into()
    })
}

/// Removes rack-a, which begins anew with its folders.
fn remove(mixer: &mut TestMixer, a: &TestRack) -> Result<(), Failure> {
    mixer.restart()?;
    let removed = mixer.api.post("/api/v1/racks/rack-a/remove", &json!({}))?;
    assert_eq!(removed.status, 200, "{}", removed.text);
    Ok(std::fs::remove_file(a.path().join("data/rack.flux"))?)
}

#[test]
fn a_removed_rack_that_begins_anew_under_its_name_brings_what_waits_in_its_folders() -> Result<(), Failure> {
    let folder = harness::gear_files()?;
    let (mut mixer, mut a, _b) = with_full_outbox(folder.path())?;
    remove(&mut mixer, &a)?;
    a.start()?;
    arrive(&mixer, &a, 150)?;
    lanes::write(&folder.path().join("app.log"), 150..200)?;
    arrive(&mixer, &a, 200)?;
    let dead = mixer.api.rows("/api/v1/telemetry/dead_letters?limit=10")?;
    assert!(dead.is_empty(), "{dead:?}");
    Ok(())
}

#[test]
fn the_backlog_of_a_removed_rack_under_another_name_becomes_dead_letters_once() -> Result<(), Failure> {
    let folder = harness::gear_files()?;
    let (mut mixer, mut a, _b) = with_full_outbox(folder.path())?;
    remove(&mut mixer, &a)?;
    let config = a.path().join("platform.toml");
    std::fs::write(&config, std::fs::read_to_string(&config)?.replace("rack-a", "rack-c"))?;
    a.start()?;
    // Its telemetry is sent again and again, and is a dead letter each time only if its floor stands still.
    let letters = || mixer.api.all_rows("/api/v1/telemetry/dead_letters?since=1h");
    let is_message = |letter: &serde_json::Map<String, Value>| {
        let subject = letter["subject"].as_str();
        subject.is_some_and(|subject| subject.starts_with("flux.msg.rack-c."))
    };
    eventually("letters, and folders that are empty", Duration::from_secs(45), || {
        let rack = mixer.api.get("/api/v1/racks/rack-c").ok()?;
        let is_empty = rack.json["data"]["spool_bytes"] == 0;
        (is_empty && letters().ok()?.iter().any(is_message)).then_some(())
    })
    .map_err(|error| {
        let rack = mixer.api.get("/api/v1/racks/rack-c").map(|answer| answer.text);
        format!("{error}; {rack:?}\n{:?}\n{}", letters(), a.log())
    })?;
    let dead = letters()?;
    let mut lines: Vec<&str> = dead.iter().filter_map(|letter| letter["payload"].as_str()).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert!(all > 0 && lines.len() == all, "each once: {} of {all}", lines.len());
    Ok(())
}

#[test]
fn on_loopback_too_a_stranger_may_only_ask_for_admission_and_the_operators_key_may_all() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let stranger = TestBus::connect(&mixer.bus_url, "flux")?;
    assert!(stranger.stream("flux-msg").is_err());
    assert!(stranger.publish("flux.telemetry.logs.rack-a", b"x".to_vec()).is_err());
    assert_eq!(mixer.bus()?.messages("flux-telemetry")?, 0);
    Ok(())
}

#[test]
fn a_pending_rack_makes_no_forbidden_request_and_works_once_approved() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("enrollment.auto_adopt", "false")], &[])?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    // First as a stranger, then as itself from the start.
    for _ in 0..2 {
        rack.spawn()?;
        rack.process()?.line("pending ", SOON)?;
        let known = mixer.api.get("/api/v1/racks/rack-a")?.json;
        assert_eq!(known["data"]["state"], "pending");
        rack.kill9()?;
    }
    rack.spawn()?;
    rack.process()?.line("pending ", SOON)?;
    let approved = mixer.api.post("/api/v1/racks/rack-a/approve", &json!({}))?;
    assert_eq!(approved.status, 200, "{}", approved.text);
    rack.process()?.line("ready ", SOON)?;
    eventually("its telemetry is stored", SOON, || {
        let rows = mixer.api.rows("/api/v1/telemetry/logs?entity=rack-a").ok()?;
        (!rows.is_empty()).then_some(())
    })?;
    assert!(!rack.log().contains("ermissions violation"), "{}", rack.log());
    assert!(!rack.log().contains("not enrolled"), "{}", rack.log());
    Ok(())
}
