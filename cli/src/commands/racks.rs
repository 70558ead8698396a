//! `platform racks`.

use serde_json::{Map, Value, json};

use crate::args::{ApiArgs, LabelChange, OneRack, RacksArgs, RacksVerb};
use crate::client::{self, Client};
use crate::error::Error;
use crate::output::Printer;

const COLUMNS: &[&str] = &["name", "id", "state", "last_seen", "host", "ip", "software"];
/// What there is to say of one.
const ONE: &[&str] = &["name", "id", "state", "last_seen", "host", "ip", "software", "labels"];

pub(crate) fn run(args: &RacksArgs) -> Result<(), Error> {
    match &args.verb {
        RacksVerb::List(api) => {
            let page = Client::new(api).page("/api/v1/racks", &())?;
            Ok(Printer::from(api).rows(&page.rows, COLUMNS)?)
        }
        RacksVerb::Show(one) => {
            let rack = Client::new(&one.api).get(&path(&one.rack, "")?, &())?;
            print(rack, &one.api)
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
fn label(one: &OneRack, changes: &[LabelChange]) -> Result<(), Error> {
    let client = Client::new(&one.api);
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

fn act(one: &OneRack, verb: &str, body: &Value) -> Result<(), Error> {
    let rack = Client::new(&one.api).post(&path(&one.rack, verb)?, body)?;
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
    Ok(Printer::from(api).rows(&[row], ONE)?)
}
