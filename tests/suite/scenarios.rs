//! Scenarios on a real Mixer and real Racks: stored by content, activated with an answer for each Rack, taken back.

mod command;
mod rest;
mod scenario_test;

use std::net::TcpListener;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, eventually};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

/// A scenario of one generator on `rack-a` that makes so many messages a second.
fn demo(version: &str, rate: u32) -> String {
    format!(
        "meta: {{ name: demo, version: '{version}' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: {rate} }} }}\n"
    )
}

/// A scenario that needs a port of `rack-a` which somebody has.
fn impossible(taken: &TcpListener) -> Result<String, Failure> {
    let address = taken.local_addr()?;
    Ok(format!(
        "meta: {{ name: demo, version: bad }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: hook, type: http_in, deploy: rack-a, config: {{ listen: '{address}', path: /in }} }}\n"
    ))
}

/// A Mixer, and a Rack that it has adopted.
fn pair() -> Result<(TestMixer, TestRack), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    Ok((mixer, rack))
}

/// Whether the Rack runs the scenario, by the Mixer's account.
fn runs(mixer: &TestMixer, reference: &str) -> Result<(), Failure> {
    eventually(&format!("rack-a runs {reference}"), SOON, || {
        let rack = mixer.api.get("/api/v1/racks/rack-a").ok()?.json;
        (rack["data"]["scenario"]["running"]["reference"] == reference).then_some(())
    })
}

/// The Rack of this name in a report.
fn rack<'r>(report: &'r Value, name: &str) -> &'r Value {
    let racks = report["data"]["racks"].as_array().into_iter().flatten();
    racks
        .into_iter()
        .find(|rack| rack["name"] == name)
        .unwrap_or(&Value::Null)
}
