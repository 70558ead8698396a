//! What becomes of messages that wait when another scenario is activated.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, eventually, gear_files};
use serde_json::{Value, json};

use super::{archived, arrived_at, write};
use crate::first_light::mixer_with;

const SOON: Duration = Duration::from_secs(60);

/// Lines of a file at rack-a go to these gears, each at its Rack.
fn scenario(version: u32, file: &Path, sinks: &[(&str, &str)]) -> String {
    let gear = |(name, rack): &(&str, &str)| format!("  - {{ name: {name}, type: log_sink, deploy: {rack} }}\n");
    let wire = |(name, _): &(&str, &str)| format!("  - {{ from: tail.out, to: {name}.in }}\n");
    format!(
        "meta: {{ name: lane, version: '{version}' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }}, {{ name: rack-c }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n{}wires:\n{}",
        file.display().to_string(),
        sinks.iter().map(gear).collect::<String>(),
        sinks.iter().map(wire).collect::<String>(),
    )
}

fn ask(mixer: &TestMixer, path: &str) -> Result<Value, Failure> {
    let answer = mixer.api.post(&format!("/api/v1/scenarios/{path}"), &json!({}))?;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    Ok(answer.json["data"].clone())
}

fn import(mixer: &TestMixer, yaml: &str) -> Result<(), Failure> {
    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, yaml.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    Ok(())
}

fn activate(mixer: &TestMixer, yaml: &str, reference: &str, wait: &str) -> Result<(), Failure> {
    import(mixer, yaml)?;
    ask(mixer, &format!("{reference}/activate?wait={wait}")).map(drop)
}

/// What a rehearsal says of wires: wire, change, waiting.
fn said(report: &Value) -> Vec<(String, String, Option<u64>)> {
    let wires = report["wires"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut said: Vec<_> = wires
        .map(|wire| (text(&wire["wire"]), text(&wire["change"]), wire["waiting"].as_u64()))
        .collect();
    said.sort();
    said
}

/// Waits until these lines, and no others, arrived at these gears together, each once.
fn each_once(mixer: &TestMixer, gears: &[&str], lines: impl Iterator<Item = u64>) -> Result<(), Failure> {
    let wanted: BTreeMap<u64, u64> = lines.map(|line| (line, 1)).collect();
    let seen = || {
        let mut seen = BTreeMap::new();
        for gear in gears {
            for number in arrived_at(mixer, gear)? {
                *seen.entry(number).or_default() += 1;
            }
        }
        Ok::<_, Failure>(seen)
    };
    eventually("each line where it belongs, once", SOON, || {
        (seen().ok()? == wanted).then_some(())
    })
    .map_err(|error| {
        format!(
            "{error} at {gears:?}: {:?} of {}",
            seen().map(|seen| seen.len()),
            wanted.len()
        )
        .into()
    })
}

fn in_archive(mixer: &TestMixer, count: u64) -> Result<(), Failure> {
    eventually("the messages in the archive", SOON, || {
        (archived(mixer, "tail")? == (count, count)).then_some(())
    })
}

fn is_converged(mixer: &TestMixer, name: &str) -> Option<()> {
    let report = mixer.api.get("/api/v1/scenarios/status").ok()?;
    let racks = report.json["data"]["racks"].as_array()?;
    let found = racks.iter().find(|rack| rack["name"] == name)?;
    (found["converged"] == true).then_some(())
}

fn rack(name: &str, mixer: &TestMixer) -> Result<TestRack, Failure> {
    let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
    rack.start()?;
    Ok(rack)
}

#[test]
fn a_renamed_receiver_takes_what_waits_along_and_nothing_twice() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let (mixer, _scenario) = mixer_with(&scenario(1, &file, &[("sink", "rack-b")]))?;
    let (_a, mut b) = (rack("rack-a", &mixer)?, rack("rack-b", &mixer)?);
    write(&file, 0..100)?;
    each_once(&mixer, &["sink"], 0..100)?;
    b.kill9()?;
    write(&file, 100..120)?;
    in_archive(&mixer, 120)?;
    activate(&mixer, &scenario(2, &file, &[("sink2", "rack-b")]), "lane:2", "0s")?;
    // Until it hears of the new name, it goes on under the former one.
    b.spawn()?;
    each_once(&mixer, &["sink", "sink2"], 0..120)?;
    // While messages flow.
    for batch in 0..20 {
        write(&file, 120 + 50 * batch..170 + 50 * batch)?;
        if batch == 10 {
            activate(&mixer, &scenario(3, &file, &[("sink3", "rack-b")]), "lane:3", "0s")?;
        }
    }
    let all = ["sink", "sink2", "sink3"];
    each_once(&mixer, &all, 0..1120)?;
    eventually("rack-b runs the new scenario", SOON, || is_converged(&mixer, "rack-b"))?;
    write(&file, 1120..1130)?;
    each_once(&mixer, &all, 0..1130)?;
    assert!((1120..1130).all(|line| arrived_at(&mixer, "sink3").is_ok_and(|lines| lines.contains(&line))));
    Ok(())
}

#[test]
fn a_moved_receiver_takes_what_waits_along_and_the_one_that_comes_back_gets_none_of_it() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let (mixer, _scenario) = mixer_with(&scenario(1, &file, &[("sink", "rack-b")]))?;
    let (_a, mut b, _c) = (
        rack("rack-a", &mixer)?,
        rack("rack-b", &mixer)?,
        rack("rack-c", &mixer)?,
    );
    write(&file, 0..10)?;
    each_once(&mixer, &["sink"], 0..10)?;
    // What the bus has not heard of goes to the other Rack as well.
    import(&mixer, &scenario(2, &file, &[("sink", "rack-c")]))?;
    eventually("the bus knows that all were taken", SOON, || {
        let changes = said(&ask(&mixer, "lane:2/activate?dry_run=true").ok()?);
        matches!(&changes[..], [(_, change, Some(0))] if change == "takes_over").then_some(())
    })?;
    b.kill9()?;
    write(&file, 10..30)?;
    in_archive(&mixer, 30)?;
    ask(&mixer, "lane:2/activate?wait=0s")?;
    each_once(&mixer, &["sink"], 0..30)?;
    b.spawn()?;
    eventually("rack-b runs the new scenario", SOON, || is_converged(&mixer, "rack-b"))?;
    write(&file, 30..40)?;
    each_once(&mixer, &["sink"], 0..40)
}

#[test]
fn a_wire_that_leaves_is_paused_and_resumes_where_it_was_or_now() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let both = scenario(1, &file, &[("sink", "rack-b"), ("other", "rack-c")]);
    let (mixer, _scenario) = mixer_with(&both)?;
    let (_a, mut b, _c) = (
        rack("rack-a", &mixer)?,
        rack("rack-b", &mixer)?,
        rack("rack-c", &mixer)?,
    );
    b.kill9()?;
    write(&file, 0..20)?;
    each_once(&mixer, &["other"], 0..20)?;
    import(&mixer, &scenario(2, &file, &[("other", "rack-c")]))?;
    let rehearsed = said(&ask(&mixer, "lane:2/activate?dry_run=true")?);
    let [(wire, change, Some(waiting))] = &rehearsed[..] else {
        return Err(format!("{rehearsed:?}").into());
    };
    assert_eq!(
        (wire.as_str(), change.as_str()),
        ("flux.msg.rack-a.tail.out -> rack-b.sink.in", "pauses")
    );
    assert!(*waiting > 0);
    ask(&mixer, "lane:2/activate?wait=0s")?;
    let changes = || Some(said(&ask(&mixer, "rollback?dry_run=true").ok()?));
    eventually("the wire is paused", SOON, || {
        (changes()?.first()?.1 == "resumes").then_some(())
    })?;
    write(&file, 20..25)?;
    each_once(&mixer, &["other"], 0..25)?;
    ask(&mixer, "rollback?wait=0s")?;
    b.spawn()?;
    each_once(&mixer, &["sink"], 0..25)?;

    ask(&mixer, "lane:2/activate?wait=60s")?;
    eventually("the wire is paused", SOON, || {
        (changes()?.first()?.1 == "resumes").then_some(())
    })?;
    write(&file, 25..30)?;
    each_once(&mixer, &["other"], 0..30)?;
    ask(&mixer, "rollback?wait=60s&resume_from=now")?;
    write(&file, 30..35)?;
    each_once(&mixer, &["sink"], (0..25).chain(30..35))
}
