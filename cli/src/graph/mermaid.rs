//! Mermaid text: <https://mermaid.js.org/syntax/flowchart.html>.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::Token;
use model::scenario::{Gear, Scenario};

use super::is_guaranteed;

/// The scenario as a flow chart, with a box around the gears of each deploy target.
pub(crate) fn mermaid(scenario: &Scenario) -> String {
    let numbers: BTreeMap<&Token, usize> = scenario
        .gears
        .iter()
        .enumerate()
        .map(|(n, gear)| (&gear.name, n))
        .collect();
    let mut targets: BTreeMap<&Token, Vec<&Gear>> = BTreeMap::new();
    for gear in &scenario.gears {
        targets.entry(&gear.deploy).or_default().push(gear);
    }
    let mut text = format!("%% {}:{}\nflowchart LR\n", scenario.meta.name, scenario.meta.version);
    for (number, (target, gears)) in targets.into_iter().enumerate() {
        let _ = writeln!(text, "  subgraph t{number}[\"{}\"]", quoted(target.as_str()));
        for gear in gears {
            let at = numbers.get(&gear.name).copied().unwrap_or_default();
            let (name, kind) = (quoted(gear.name.as_str()), quoted(&gear.kind));
            let _ = writeln!(text, "    g{at}[\"{name}<br/>{kind}\"]");
        }
        text.push_str("  end\n");
    }
    for wire in &scenario.wires {
        let (Some(from), Some(to)) = (numbers.get(&wire.from.gear), numbers.get(&wire.to.gear)) else {
            continue;
        };
        let arrow = if is_guaranteed(scenario, wire) { "-.->" } else { "-->" };
        let label = format!(
            "{} to {}",
            quoted(wire.from.port.as_str()),
            quoted(wire.to.port.as_str())
        );
        let _ = writeln!(text, "  g{from} {arrow}|\"{label}\"| g{to}");
    }
    text
}

/// A text inside quotes: what is not plain becomes a character reference.
fn quoted(text: &str) -> String {
    let one = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | ' ' => c.to_string(),
        c => format!("#{};", u32::from(c)),
    };
    text.chars().map(one).collect()
}
