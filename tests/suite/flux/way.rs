//! Whom messages are for and how they went: to gears of the same Rack, to others, from somebody who is no Rack.

use std::collections::BTreeMap;

use harness::{Failure, TestMixer, TestRack, eventually};
use serde_json::json;

use super::{Row, SOON, door, word};
use crate::first_light::mixer_with;
use crate::specs::order;

fn scenario(version: u8, door_to: &str) -> String {
    format!(
        "meta: {{ name: way, version: '{version}' }}
racks: [ {{ name: rack-a }}, {{ name: rack-b }} ]
gears:
  - {{ name: door, type: http_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0' }} }}
  - {{ name: own, type: generator, deploy: rack-a, config: {{ rate: 100, count: 2 }} }}
  - {{ name: away, type: generator, deploy: rack-a, config: {{ rate: 100, count: 3 }} }}
  - {{ name: both, type: generator, deploy: rack-a, config: {{ rate: 100, count: 4 }} }}
  - {{ name: near, type: log_sink, deploy: rack-a }}
  - {{ name: beside, type: log_sink, deploy: rack-a }}
  - {{ name: far, type: log_sink, deploy: rack-b }}
wires:
  - {{ from: door.out, to: {door_to}.in, lane: guaranteed }}
  - {{ from: own.out, to: near.in, lane: guaranteed }}
  - {{ from: own.out, to: beside.in, lane: hot }}
  - {{ from: away.out, to: far.in }}
  - {{ from: away.out, to: beside.in, lane: hot }}
  - {{ from: both.out, to: near.in, lane: guaranteed }}
  - {{ from: both.out, to: far.in }}
"
    )
}

/// How many messages of each gear the command finds.
fn found(mixer: &TestMixer, args: &[&str]) -> Result<BTreeMap<String, usize>, Failure> {
    let shown = mixer.platform(&[&["messages", "--limit", "1000", "-o", "json"], args].concat())?;
    assert!(matches!(shown.code, Some(0 | 1)), "{args:?}: {}", shown.err);
    let rows: Vec<Row> = serde_json::from_str(&shown.out)?;
    let mut found = BTreeMap::new();
    for row in &rows {
        *found.entry(word(row, "src_gear_id").to_owned()).or_default() += 1;
    }
    Ok(found)
}

fn is_found(mixer: &TestMixer, args: &[&str], wanted: &[(&str, usize)]) -> Result<(), Failure> {
    let wanted: BTreeMap<String, usize> = wanted.iter().map(|(gear, n)| ((*gear).to_owned(), *n)).collect();
    assert_eq!(found(mixer, args)?, wanted, "{args:?}");
    Ok(())
}

fn are_archived(mixer: &TestMixer, count: usize) -> Result<(), Failure> {
    let all = || found(mixer, &[]).ok().map(|found| found.values().sum::<usize>());
    eventually(&format!("{count} messages in the archive"), SOON, || {
        (all()? == count).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}", found(mixer, &[])).into())
}

fn activate(mixer: &TestMixer, yaml: &str, reference: &str) -> Result<(), Failure> {
    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, yaml.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let path = format!("/api/v1/scenarios/{reference}/activate?wait=30s");
    let answer = mixer.api.post(&path, &json!({}))?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json["data"]["converged"], true, "{}", answer.text);
    Ok(())
}

#[test]
fn messages_are_found_by_whom_they_are_for_and_by_whether_they_left_their_rack() -> Result<(), Failure> {
    let (mut mixer, _scenario) = mixer_with(&scenario(1, "near"))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let door = door(&mixer, "door")?;
    // The Rack keeps it with what its wires say, until there is a Mixer.
    mixer.kill9()?;
    assert_eq!(door.send("/", &[], b"one")?.status, 202);
    mixer.restart()?;
    mixer.bus()?.publish("flux.msg.shop.intake.out", order(1, json!({})))?;
    are_archived(&mixer, 11)?;
    let internal = ["--direction", "internal"];
    let outbound = ["--direction", "outbound"];
    let (near, far) = (["--to", "near"], ["--to", "far"]);
    is_found(&mixer, &internal, &[("door", 1), ("own", 2)])?;
    is_found(&mixer, &[near, internal].concat(), &[("door", 1), ("own", 2)])?;
    is_found(&mixer, &near, &[("door", 1), ("own", 2)])?;
    is_found(&mixer, &outbound, &[("away", 3), ("both", 4)])?;
    is_found(&mixer, &[far, outbound].concat(), &[("away", 3)])?;
    is_found(&mixer, &far, &[("away", 3)])?;
    is_found(&mixer, &["--direction", "inbound"], &[("intake", 1)])?;
    is_found(&mixer, &[near, outbound].concat(), &[])?;
    is_found(&mixer, &[far, internal].concat(), &[])?;

    // The door goes on, at the same address, and sends to somebody else; what it sent before stays as it was.
    activate(&mixer, &scenario(2, "far"), "way:2")?;
    assert_eq!(door.send("/", &[], b"two")?.status, 202);
    are_archived(&mixer, 12)?;
    is_found(&mixer, &[far, outbound].concat(), &[("away", 3), ("door", 1)])?;
    is_found(&mixer, &[near, internal].concat(), &[("door", 1), ("own", 2)])?;
    Ok(())
}
