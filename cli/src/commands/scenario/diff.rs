//! Semantic diff of two scenarios: order, comments and layout do not count.

use std::collections::BTreeMap;

use model::scenario::{GearPort, Scenario};
use serde_json::{Map, Value, json};

use super::ScenarioLocator;
use crate::args::ApiArgs;
use crate::client::Row;
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &["change", "what", "key", "from", "to"];

pub(super) fn run(from: &str, to: &str, api: &ApiArgs) -> Result<(), Error> {
    let (from, to) = (
        ScenarioLocator::of(from)?.read(api)?,
        ScenarioLocator::of(to)?.read(api)?,
    );
    let rows = changes(&from.scenario, &to.scenario);
    if rows.is_empty() {
        crate::commands::note("no differences in meaning");
    }
    Ok(RowPrinter::from(api).rows(&rows, COLUMNS)?)
}

type Parts = BTreeMap<String, Map<String, Value>>;

/// The parts of a scenario by what they are called, each with its keys.
fn parts(scenario: &Scenario) -> Parts {
    let mut parts = Parts::new();
    let mut add = |what: String, keys: Value| {
        let mut flat = Map::new();
        flatten("", keys, &mut flat);
        parts.insert(what, flat);
    };
    let meta = &scenario.meta;
    add(
        "meta".to_owned(),
        json!({ "name": meta.name, "version": meta.version, "description": meta.description }),
    );
    for rack in &scenario.racks {
        let (kind, name) = match (&rack.name, &rack.group) {
            (Some(name), _) => ("rack", name.as_str()),
            (None, group) => ("group", group.as_ref().map_or("", |group| group.as_str())),
        };
        add(format!("{kind} {name}"), json!({ "labels": rack.labels }));
    }
    for gear in &scenario.gears {
        let keys = json!({ "type": gear.kind, "deploy": gear.deploy, "config": gear.config });
        add(format!("gear {}", gear.name), keys);
    }
    // A gear's name is unique: the Rack before it adds nothing.
    let end = |end: &GearPort| format!("{}.{}", end.gear, end.port);
    for wire in &scenario.wires {
        add(
            format!("wire {} -> {}", end(&wire.from), end(&wire.to)),
            json!({
                "lane": wire.lane,
                "max_bytes": wire.max_bytes,
                "max_age": wire.max_age,
                "overflow": wire.overflow,
            }),
        );
    }
    parts
}

/// Keys with dots; an empty object has none.
fn flatten(prefix: &str, value: Value, flat: &mut Map<String, Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = if prefix.is_empty() {
                    key
                } else {
                    format!("{prefix}.{key}")
                };
                flatten(&key, value, flat);
            }
        }
        Value::Null => {}
        value => {
            flat.insert(prefix.to_owned(), value);
        }
    }
}

/// A row for each part that came or went, and for each key of others that changed.
fn changes(from: &Scenario, to: &Scenario) -> Vec<Row> {
    let (from, mut to) = (parts(from), parts(to));
    let mut rows = Vec::new();
    let mut add = |change: &str, what: &str, key: &str, from: Option<&Value>, to: Option<&Value>| {
        let row = json!({ "change": change, "what": what, "key": key, "from": from, "to": to });
        rows.extend(row.as_object().cloned());
    };
    for (what, before) in &from {
        let Some(mut after) = to.remove(what) else {
            add("removed", what, "", None, None);
            continue;
        };
        for (key, value) in before {
            let now = after.remove(key);
            if now.as_ref() != Some(value) {
                add("changed", what, key, Some(value), now.as_ref());
            }
        }
        for (key, value) in &after {
            add("changed", what, key, None, Some(value));
        }
    }
    for what in to.keys() {
        add("added", what, "", None, None);
    }
    rows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ONE: &str = "
meta: { name: demo, version: '1' }
racks: [ { name: a }, { group: g, labels: { role: edge } } ]
gears:
  - { name: numbers, type: generator, deploy: a, config: { rate: 10, size: 3 } }
  - { name: sink, type: log_sink, deploy: a }
  - { name: old, type: log_sink, deploy: a }
wires:
  - { from: numbers.out, to: sink.in }
  - { from: numbers.out, to: old.in }
";

    fn between(from: &str, to: &str) -> Vec<String> {
        let read = |text| model::scenario::parse(text, gear_spec::manifests()).unwrap();
        let line = |row: &Row| {
            let cells: Vec<_> = COLUMNS
                .iter()
                .map(|column| row[*column].to_string().replace('"', ""))
                .collect();
            cells.join("|")
        };
        changes(&read(from), &read(to)).iter().map(line).collect()
    }

    #[test]
    fn what_was_added_removed_and_changed_is_told_key_by_key() {
        let two = ONE
            .replace("version: '1'", "version: '2'")
            .replace("rate: 10, size: 3", "rate: 20, seed: 4")
            .replace("name: old, type: log_sink", "name: new, type: log_sink")
            .replace("old.in", "new.in, lane: hot")
            .replace("to: sink.in", "to: a.sink.in, lane: hot")
            .replace("role: edge", "role: core");
        assert_eq!(
            between(ONE, &two),
            [
                "changed|gear numbers|config.rate|10|20",
                "changed|gear numbers|config.size|3|null",
                "changed|gear numbers|config.seed|null|4",
                "removed|gear old||null|null",
                "changed|group g|labels.role|edge|core",
                "changed|meta|version|1|2",
                "removed|wire numbers.out -> old.in||null|null",
                "changed|wire numbers.out -> sink.in|lane|null|hot",
                "added|gear new||null|null",
                "added|wire numbers.out -> new.in||null|null",
            ]
        );
    }

    #[test]
    fn order_layout_and_comments_are_no_difference() {
        let swapped = ONE.replace("rate: 10, size: 3", "size: 3, rate: 10");
        let swapped = swapped.replace("  - { name: sink, type: log_sink, deploy: a }\n", "");
        let swapped = swapped.replace(
            "gears:\n",
            "# gears\ngears:\n  - { name: sink, deploy: a, type: log_sink }\n",
        );
        assert_ne!(swapped, ONE);
        assert_eq!(between(ONE, &swapped), Vec::<String>::new());
    }
}
