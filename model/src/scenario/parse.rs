//! Parses a scenario file's sections, entry by entry.
//!
//! # Invariants
//!
//! - An entry that is wrong does not hide what is wrong with others.
//! - Outside `config`, and `max_bytes` of a wire, every scalar is a text as it is written.
//!
//! # Not here
//!
//! YAML itself ([`crate::yaml`]); what entries mean together (`check`).

use std::collections::BTreeSet;

use super::{Gear, RackEntry, Scenario, ScenarioMeta, ValidationLevel, Wire};
use crate::yaml::{SourceDiagnostic, YamlEntry, YamlNode, YamlValue, at, get, read_entries, read_entry};

/// What could be read of a file.
#[derive(Debug, Default)]
pub(super) struct ScenarioDraft<'n> {
    meta: Option<ScenarioMeta>,
    pub(super) racks: Vec<YamlEntry<'n, RackEntry>>,
    pub(super) gears: Vec<YamlEntry<'n, Gear>>,
    pub(super) wires: Vec<YamlEntry<'n, Wire>>,
    /// The names of entries that could not be read; `None` where even a name is missing.
    pub(super) unread_racks: BTreeSet<Option<String>>,
    pub(super) unread_gears: BTreeSet<Option<String>>,
}

impl ScenarioDraft<'_> {
    /// The scenario, if all of it could be read.
    pub(super) fn finish(&self) -> Option<Scenario> {
        Some(Scenario {
            meta: self.meta.clone()?,
            racks: self.racks.iter().map(|rack| rack.value.clone()).collect(),
            gears: self.gears.iter().map(|gear| gear.value.clone()).collect(),
            wires: self.wires.iter().map(|wire| wire.value.clone()).collect(),
        })
    }
}

/// The version that no scenario has: `name:latest` is the one that was stored last.
const LATEST: &str = "latest";

const SECTIONS: [&str; 4] = ["meta", "racks", "gears", "wires"];

/// Reads each entry of the file.
pub(super) fn draft<'n>(
    root: &'n YamlNode,
    yaml: &str,
    asked: ValidationLevel,
    faults: &mut Vec<SourceDiagnostic>,
) -> ScenarioDraft<'n> {
    let mut draft = ScenarioDraft::default();
    let YamlValue::Map(sections) = &root.value else {
        faults.push(at(
            root,
            "a scenario is a mapping with the keys meta, racks, gears and wires",
        ));
        return draft;
    };
    for (key, _) in sections
        .iter()
        .filter(|(key, _)| !SECTIONS.contains(&key.value.as_str()))
    {
        let text = format!("unknown key {}; a scenario has {}", key.value, SECTIONS.join(", "));
        faults.push(at(key, text));
    }
    match get(root, "meta") {
        Some(node) => {
            draft.meta = read_entry(node, "meta", &[], yaml, faults);
            let is_latest = draft.meta.as_ref().is_some_and(|meta| meta.version.as_str() == LATEST);
            if is_latest && asked != ValidationLevel::Runs {
                let text =
                    format!("meta: version: {LATEST} is the word for the version that was stored last: choose another");
                faults.push(at(get(node, "version").unwrap_or(node), text));
            }
        }
        None => faults.push(at(root, "meta is missing: meta: { name: …, version: … }")),
    }
    if get(root, "gears").is_none() {
        faults.push(at(root, "gears is missing: the list of what runs"));
        draft.unread_gears.insert(None);
    }
    (draft.racks, draft.unread_racks) = read_entries(root, "racks", &[], yaml, faults);
    let (gears, unread) = read_entries(root, "gears", &["config"], yaml, faults);
    draft.gears = gears;
    draft.unread_gears.extend(unread);
    (draft.wires, _) = read_entries(root, "wires", &["max_bytes"], yaml, faults);
    draft
}
