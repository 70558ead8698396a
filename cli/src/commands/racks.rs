//! `platform racks`.

use serde_json::{Map, Value, json};

use crate::args::{ApiArgs, LabelChange, OutputFormat, RackTargetArgs, RacksArgs, RacksVerb};
use crate::client::{self, ApiClient, Row};
use crate::error::Error;
use crate::key_value_view::KeyValueView;
use crate::output::{RowPrinter, plain};

const COLUMNS: &[&str] = &["name", "id", "state", "last_seen", "host", "ip", "software"];
/// What is said of one that was changed.
const ONE: &[&str] = &["name", "id", "state", "last_seen", "host", "ip", "software", "labels"];
/// What is known of one, before its last heartbeat.
const SHOWN: &[&str] = &[
    "id",
    "name",
    "state",
    "first_seen",
    "last_seen",
    "host",
    "ip",
    "software",
    "labels",
];

pub(crate) fn run(args: &RacksArgs) -> Result<(), Error> {
    match &args.verb {
        RacksVerb::List(api) => {
            let page = ApiClient::new(api).page("/api/v1/racks", &())?;
            Ok(RowPrinter::from(api).rows(&page.rows, COLUMNS)?)
        }
        RacksVerb::Show(one) => {
            let rack = ApiClient::new(&one.api).get(&path(&one.rack, "")?, &())?;
            show(rack, &one.api)
        }
        RacksVerb::Approve { name, rack } => {
            let body = name.as_ref().map_or_else(|| json!({}), |name| json!({ "name": name }));
            act(rack, "/approve", &body)
        }
        RacksVerb::Suspend(rack) => act(rack, "/suspend", &json!({})),
        RacksVerb::Resume(rack) => act(rack, "/resume", &json!({})),
        RacksVerb::Remove(rack) => act(rack, "/remove", &json!({})),
        RacksVerb::LogLevel { rack, level } => act(rack, "/log-level", &json!({ "level": level })),
        RacksVerb::Label { rack, changes } => label(rack, changes),
    }
}

/// Changes labels of the Rack, and leaves the others to whoever changes them; without any change only shows it.
fn label(one: &RackTargetArgs, changes: &[LabelChange]) -> Result<(), Error> {
    let client = ApiClient::new(&one.api);
    if changes.is_empty() {
        return print(client.get(&path(&one.rack, "")?, &())?, &one.api);
    }
    let changes: Map<String, Value> = changes
        .iter()
        .map(|change| match change {
            LabelChange::Set(key, value) => (key.to_string(), value.as_str().into()),
            LabelChange::Remove(key) => (key.to_string(), Value::Null),
        })
        .collect();
    let rack = client.patch(&path(&one.rack, "/labels")?, &Value::Object(changes))?;
    print(rack, &one.api)
}

fn act(one: &RackTargetArgs, verb: &str, body: &Value) -> Result<(), Error> {
    let rack = ApiClient::new(&one.api).post(&path(&one.rack, verb)?, body)?;
    print(rack, &one.api)
}

/// A Rack's path: ids and names are both tokens, so nothing needs escaping and nothing else is sent.
fn path(rack: &str, verb: &str) -> Result<String, Error> {
    let rack: model::Token = rack
        .parse()
        .map_err(|error: model::BadToken| Error::Usage(error.to_string()))?;
    Ok(format!("/api/v1/racks/{rack}{verb}"))
}

fn print(answer: Value, api: &ApiArgs) -> Result<(), Error> {
    let row = client::one(answer, "it is not a Rack")?;
    Ok(RowPrinter::from(api).rows(&[row], ONE)?)
}

/// One Rack: all that is known of it for people.
fn show(answer: Value, api: &ApiArgs) -> Result<(), Error> {
    let printer = RowPrinter::from(api);
    if printer.format != OutputFormat::Table {
        return print(answer, api);
    }
    let rack = client::one(answer, "it is not a Rack")?;
    Ok(printer.text(&page(&rack, printer))?)
}

fn page(rack: &Row, printer: RowPrinter) -> String {
    let mut lines = KeyValueView::new(printer);
    lines.add_keys(rack, SHOWN, &["first_seen", "last_seen"]);
    for key in ["wanted", "running"] {
        let scenario = rack.get("scenario").map(|scenario| &scenario[key]);
        let word = scenario.and_then(super::scenario::word);
        lines.add(key, word.as_deref().unwrap_or("none"));
    }
    lines.add_keys(rack, &["error", "spool_bytes"], &[]);
    for (name, value) in rack.get("facts").and_then(Value::as_object).into_iter().flatten() {
        lines.add(name, &plain(value));
    }
    lines.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control_chars::is_control_or_bidi;
    use crate::test_strings::rows;

    #[test]
    fn a_rack_for_people_has_its_last_heartbeat_and_what_it_should_run() {
        let rack = json!({
            "id": "0198c0de-0000-7000-8000-000000000001", "name": "press-7", "state": "active",
            "first_seen": "2026-11-20T10:00:00Z", "last_seen": "2026-11-21T10:00:00Z", "host": "press", "ip": "10.0.0.7",
            "software": "0.1.0", "labels": { "role": "edge" }, "error": "gear a cannot start\u{1b}[31m", "spool_bytes": 42,
            "scenario": { "wanted": { "reference": "demo:2", "hash": "ab" }, "running": null },
            "facts": { "clock.offset": 86_400, "cpu.usage": 0.25, "disk.free": 1024 },
        });
        let rack = rack.as_object().cloned().unwrap_or_default();
        insta::assert_snapshot!("rack", page(&rack, RowPrinter::of(OutputFormat::Table)));
    }

    proptest! {
        #[test]
        fn nothing_that_a_rack_says_reaches_the_terminal_as_it_is(rows in rows(|a, b| json!({ "name": a, "error": b, "facts": { (a): b } }))) {
            for row in &rows {
                let page = page(row, RowPrinter::of(OutputFormat::Table));
                prop_assert!(!page.replace('\n', "").contains(is_control_or_bidi), "{page:?}");
            }
        }
    }
}
