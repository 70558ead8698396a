//! The graph of a scenario: gears in layers from left to right, wires between them.
//!
//! # Invariants
//!
//! - The same scenario gives the same picture.
//! - Names are written as text: nothing of a scenario becomes markup.

mod mermaid;
mod svg;
#[cfg(test)]
mod tests;

use model::Token;
use model::scenario::{Lane, Scenario, Wire};

pub(crate) use mermaid::mermaid;
pub(crate) use svg::svg;

/// Whether a wire goes over the bus: it says so, or it leaves its Rack.
fn is_guaranteed(scenario: &Scenario, wire: &Wire) -> bool {
    let target = |name: &Token| {
        scenario
            .gears
            .iter()
            .find(|gear| gear.name == *name)
            .map(|gear| &gear.deploy)
    };
    match wire.lane {
        Some(lane) => lane == Lane::Guaranteed,
        None => target(&wire.from.gear) != target(&wire.to.gear),
    }
}
