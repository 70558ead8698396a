//! Scenario graph: gears as nodes and wires as edges, without what gears are configured with.
//!
//! # Not here
//!
//! Which Racks run it (`rollout_status`), what waits for its wires (`backlog`), pictures (`platform scenario graph`, the page).

use std::collections::BTreeSet;

use model::Token;
use model::scenario::{Scenario, Wire};
use schemars::JsonSchema;
use serde::Serialize;

use super::assignment::ScenarioIndex;
use super::rollout_status::ScenarioRef;

/// A scenario as a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenarioGraph {
    /// The scenario.
    pub scenario: ScenarioRef,
    /// The nodes, in the order of the file.
    pub gears: Vec<GraphGear>,
    /// The edges, in the order of the file; each has its lane, whether the file says it or not.
    pub wires: Vec<Wire>,
}

/// A gear as a node of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GraphGear {
    /// Its name.
    pub name: Token,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The Rack or group that it runs on.
    pub deploy: Token,
    /// Whether that is a group.
    pub is_group: bool,
    /// How many gears a message has passed before it, at most; wires that close a cycle do not count.
    pub layer: usize,
}

impl ScenarioGraph {
    pub(crate) fn of(scenario: &Scenario, reference: ScenarioRef) -> Self {
        let index = ScenarioIndex::of(scenario);
        let entries = scenario.racks.iter();
        let groups: BTreeSet<&Token> = entries.filter_map(|entry| entry.group.as_ref()).collect();
        let gears = scenario.gears.iter().zip(scenario.layers());
        let gears = gears.map(|(gear, layer)| GraphGear {
            name: gear.name.clone(),
            kind: gear.kind.clone(),
            deploy: gear.deploy.clone(),
            is_group: groups.contains(&gear.deploy),
            layer,
        });
        let wires = scenario.wires.iter().map(|wire| Wire {
            lane: Some(index.lane(wire)),
            ..wire.clone()
        });
        Self {
            scenario: reference,
            gears: gears.collect(),
            wires: wires.collect(),
        }
    }
}
