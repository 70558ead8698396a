//! `platform racks`.

use std::io::{self, BufRead, IsTerminal, Write};

use model::{HumanDuration, KeyFingerprint, Token};
use serde_json::{Map, Value, json};

use crate::args::{ApiArgs, LabelChange, OutputFormat, RackTargetArgs, RacksArgs, RacksVerb};
use crate::client::{self, ApiClient, Row};
use crate::confirmation::is_confirmed;
use crate::error::Error;
use crate::key_value_view::KeyValueView;
use crate::output::{RowPrinter, plain};

const COLUMNS: &[&str] = &[
    "name",
    "id",
    "state",
    "last_seen",
    "host",
    "ip",
    "software",
    "key_fingerprint",
];
/// What is said of one that was changed.
const ONE: &[&str] = &["name", "id", "state", "last_seen", "host", "ip", "software", "labels"];
/// What is said of an invite.
const INVITE: &[&str] = &["name", "id", "state", "expires", "created_by", "used", "used_by"];
/// What is said of one that was made: its text, this once.
const MADE_INVITE: &[&str] = &["name", "id", "expires", "invite"];
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
    "key_fingerprint",
    "labels",
];

pub(crate) fn run(args: &RacksArgs) -> Result<(), Error> {
    match &args.verb {
        RacksVerb::List(api) => {
            let page = ApiClient::new(api).page("/api/v1/racks", &())?;
            RowPrinter::from(api).rows(&page.rows, COLUMNS)?;
            super::notes(
                &page,
                "no Racks yet: run `platform` on their machines; `platform racks invite NAME` admits one that is to come",
            )
        }
        RacksVerb::Show(one) => {
            let rack = ApiClient::new(&one.api).get(&path(&one.rack, "")?, &())?;
            show(rack, &one.api)
        }
        RacksVerb::Approve { name, key, rack } => approve(name.as_ref(), *key, rack),
        RacksVerb::Invite { name, expires_in, api } => invite(name, *expires_in, api),
        RacksVerb::Invites(api) => {
            let page = ApiClient::new(api).page("/api/v1/invites", &())?;
            RowPrinter::from(api).rows(&page.rows, INVITE)?;
            super::notes(&page, "no invites; `platform racks invite NAME` makes one")
        }
        RacksVerb::RevokeInvite { invite, api } => {
            let gone = ApiClient::new(api).post(&format!("/api/v1/invites/{invite}/revoke"), &json!({}))?;
            Ok(RowPrinter::from(api).rows(&[client::one(gone, "it is not an invite")?], INVITE)?)
        }
        RacksVerb::Suspend(rack) => change(rack, "/suspend", &json!({})),
        RacksVerb::Resume(rack) => change(rack, "/resume", &json!({})),
        RacksVerb::Remove { rack, yes } => remove(rack, *yes),
        RacksVerb::LogLevel { rack, level } => act(rack, "/log-level", &json!({ "level": level })),
        RacksVerb::Label { rack, changes } => label(rack, changes),
    }
}

/// Adopts the Rack that has this key. On a terminal the key that waits is shown, and who is there says whether it is the Rack's.
fn approve(name: Option<&Token>, key: Option<KeyFingerprint>, one: &RackTargetArgs) -> Result<(), Error> {
    let key = match key {
        Some(key) => key.to_string(),
        None => confirmed_key(one)?,
    };
    let mut body = json!({ "key_fingerprint": key });
    if let Some(name) = name {
        body["name"] = name.as_str().into();
    }
    change(one, "/approve", &body)
}

fn confirmed_key(one: &RackTargetArgs) -> Result<String, Error> {
    let rack = client::one(
        ApiClient::new(&one.api).get(&path(&one.rack, "")?, &())?,
        "it is not a Rack",
    )?;
    let fact = |key: &str| rack.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = fact("key_fingerprint");
    if !io::stdin().is_terminal() {
        let reason = format!(
            "{} waits with the key {key}: compare it with what the Rack prints at its start, and give it with --key",
            one.rack
        );
        return Err(Error::Usage(reason));
    }
    let (name, host) = (plain(&fact("name").into()), plain(&fact("host").into()));
    write!(
        io::stderr(),
        "{name} on {host} has the key {key}\nIs it what the Rack prints at its start? [y/N] "
    )?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(key),
        _ => Err(Error::Usage(format!("{name} was not approved"))),
    }
}

/// Makes an invite: its text goes to standard output, what is said about it to standard error.
fn invite(name: &Token, lifetime: Option<HumanDuration>, api: &ApiArgs) -> Result<(), Error> {
    let mut body = json!({ "name": name });
    if let Some(lifetime) = lifetime {
        body["expires_in"] = lifetime.to_string().into();
    }
    let made = ApiClient::new(api).post("/api/v1/invites", &body)?;
    let made = client::one(made, "it is not an invite")?;
    if api.output != OutputFormat::Table {
        return Ok(RowPrinter::from(api).rows(&[made], MADE_INVITE)?);
    }
    let fact = |key: &str| made.get(key).and_then(Value::as_str);
    let text = fact("invite").ok_or_else(|| Error::Answer("it has no invite".to_owned()))?;
    writeln!(io::stdout(), "{text}")?;
    let expires = fact("expires").unwrap_or_default();
    writeln!(
        io::stderr(),
        "platform: on the Rack's machine: platform join INVITE; it admits {name} once, until {expires}, and is not shown again"
    )?;
    Ok(())
}

/// Changes labels of the Rack, and leaves the others to whoever changes them; without any change only shows it.
fn label(one: &RackTargetArgs, changes: &[LabelChange]) -> Result<(), Error> {
    let client = ApiClient::new(&one.api);
    let before = client.get(&path(&one.rack, "")?, &());
    if changes.is_empty() {
        return print(before?, &one.api);
    }
    let changes: Map<String, Value> = changes
        .iter()
        .map(|change| match change {
            LabelChange::Set(key, value) => (key.to_string(), value.as_str().into()),
            LabelChange::Remove(key) => (key.to_string(), Value::Null),
        })
        .collect();
    let rack = client.patch(&path(&one.rack, "/labels")?, &Value::Object(changes))?;
    // Whoever may change it need not be able to see it.
    let is_same = before.is_ok_and(|before| rack["data"]["labels"] == before["data"]["labels"]);
    let name = plain(&rack["data"]["name"]);
    print(rack, &one.api)?;
    if is_same {
        super::note(&format!("{name} has these labels already: nothing changed"));
    }
    Ok(())
}

/// Removes a Rack that somebody is sure about.
fn remove(one: &RackTargetArgs, is_sure: bool) -> Result<(), Error> {
    if !is_sure {
        let rack = client::one(
            ApiClient::new(&one.api).get(&path(&one.rack, "")?, &())?,
            "it is not a Rack",
        )?;
        let fact = |key: &str| plain(rack.get(key).unwrap_or(&Value::Null));
        let (name, id, state) = (fact("name"), fact("id"), fact("state"));
        let would = format!("{name} ({state}) would be removed for ever");
        let question = format!("Remove {name} ({state}, {id}) for ever? Its key is never admitted again.");
        if !is_confirmed(&would, &question)? {
            return Err(Error::Usage(format!("{name} was not removed")));
        }
        // Another one may have the name by now.
        let shown = RackTargetArgs {
            rack: id,
            api: one.api.clone(),
        };
        return change(&shown, "/remove", &json!({}));
    }
    change(one, "/remove", &json!({}))
}

/// Changes the state of a Rack, and says so if it was that before.
fn change(one: &RackTargetArgs, verb: &str, body: &Value) -> Result<(), Error> {
    let client = ApiClient::new(&one.api);
    let before = client.get(&path(&one.rack, "")?, &()).ok();
    let after = client.post(&path(&one.rack, verb)?, body)?;
    let fact = |rack: &Value, key: &str| rack["data"][key].as_str().map(str::to_owned);
    let was = |key: &str| before.as_ref().and_then(|rack| fact(rack, key));
    let (name, state) = (fact(&after, "name"), fact(&after, "state"));
    // One that is offline does not show what it is to do once it is back.
    let is_same = was("state") == state && was("name") == name && state.as_deref() != Some("offline");
    print(after, &one.api)?;
    if let (true, Some(name), Some(state)) = (is_same, name, state) {
        super::note(&format!("{name} was {state} already: nothing changed"));
    }
    Ok(())
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
        lines.add(name, &printer.value(name, value));
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
