//! A gear as the scenario wants it on this Rack: type, configuration, and where its wires lead.

use std::collections::BTreeSet;

use model::Token;

use super::GearDefinition;

/// A gear of this Rack as the scenario wants it. Two equal specs are the same running gear.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WiredGear {
    pub(crate) name: Token,
    pub(crate) kind: &'static GearDefinition,
    pub(crate) config: serde_json::Map<String, serde_json::Value>,
    /// The wires from its outputs, sorted.
    pub(crate) targets: Vec<WireTarget>,
    /// The outputs that leave by the outbox.
    pub(crate) published: BTreeSet<&'static str>,
}

impl WiredGear {
    /// Whether messages can be sent to it.
    pub(crate) fn takes_messages(&self) -> bool {
        !self.kind.inputs().is_empty()
    }
}

/// Where a wire leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireTarget {
    pub(crate) from: &'static str,
    pub(crate) gear: Token,
    pub(crate) to: &'static str,
}
