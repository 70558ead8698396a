//! `platform racks`.

use serde_json::{Value, json};

use crate::args::{ApiArgs, OneRack, RacksArgs, RacksVerb};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output::Printer;

const COLUMNS: &[&str] = &["name", "id", "state", "last_seen", "host", "ip", "software"];

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
    }
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

fn print(mut rack: Value, api: &ApiArgs) -> Result<(), Error> {
    let rack = rack.get_mut("data").map(Value::take).unwrap_or(rack);
    let row: Row = rack
        .as_object()
        .cloned()
        .ok_or_else(|| Error::Answer("it is not a Rack".to_owned()))?;
    Ok(Printer::from(api).rows(&[row], COLUMNS)?)
}
