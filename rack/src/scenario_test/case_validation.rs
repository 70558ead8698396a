//! Whether a case fits its scenario: gears and ports that there are, on the side that can be given to or watched.

use model::scenario::Scenario;
use model::scenario_test::{ScenarioTestCase, ScenarioTestPort};

use super::{MessageCondition, is_started};
use crate::gears;

/// Everything that a case says of gears and ports and that does not fit the scenario.
#[must_use]
pub fn validate_case(scenario: &Scenario, case: &ScenarioTestCase) -> Vec<String> {
    let given = case.given.iter().map(|given| (&given.port, true));
    let expected = case.expect.iter().map(|expected| (&expected.port, false));
    let misfits = given
        .chain(expected)
        .filter_map(|(port, is_given)| validate_port(scenario, port, is_given).err());
    let conditions = case.expect.iter().filter_map(|expected| expected.condition.as_deref());
    let unread = conditions.filter_map(|text| MessageCondition::compile(text).err());
    misfits.chain(unread).collect()
}

/// Whether a port can be given messages, or watched.
fn validate_port(scenario: &Scenario, port: &ScenarioTestPort, is_given: bool) -> Result<(), String> {
    let gear = scenario.gears.iter().find(|gear| gear.name == port.gear);
    let gear = gear.ok_or_else(|| {
        let names: Vec<_> = scenario.gears.iter().map(|gear| gear.name.as_str()).collect();
        format!("there is no gear {}; there are {}", port.gear, names.join(", "))
    })?;
    let (name, kind) = (&gear.name, gear.kind.as_str());
    let found = gears::find(kind).ok_or_else(|| format!("gear {name} has the unknown type {kind}"))?;
    let (ports, side) = match port.is_input {
        true => (found.inputs(), "input"),
        false => (found.outputs(), "output"),
    };
    if !ports.contains(&port.port.as_str()) {
        let has = if ports.is_empty() {
            "none".to_owned()
        } else {
            ports.join(", ")
        };
        return Err(format!("{name} ({kind}) has no {side} {}; it has {has}", port.port));
    }
    match (is_given, port.is_input, is_started(kind)) {
        (true, true, false) => Err(format!(
            "{name} ({kind}) reaches outside and is not started: expect what it is sent, or give what it sends (from: {name}.…)"
        )),
        (true, false, false) if !has_wire(scenario, port) => Err(format!(
            "{port} has no wire: what {name} ({kind}) sends there goes nowhere"
        )),
        (true, false, true) => Err(format!(
            "{name} ({kind}) is started and sends by itself: give it messages (to: {name}.…)"
        )),
        (false, true, true) => Err(format!(
            "{name} ({kind}) is started: expect what it sends, or what is sent to it (from: …)"
        )),
        (false, false, false) => Err(format!(
            "{name} ({kind}) reaches outside and is not started: it sends what is given only"
        )),
        _ => Ok(()),
    }
}

fn has_wire(scenario: &Scenario, port: &ScenarioTestPort) -> bool {
    let mut ends = scenario.wires.iter().map(|wire| &wire.from);
    ends.any(|from| from.gear == port.gear && from.port == port.port)
}
