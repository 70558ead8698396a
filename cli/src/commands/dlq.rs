//! `platform dlq`.

use std::io::{self, Write};

use model::HumanDuration;
use model::filter::LetterFilter;
use serde_json::{Map, Value, json};

use crate::args::{
    ApiArgs, DlqArgs, DlqDropArgs, DlqListArgs, DlqReplayArgs, DlqVerb, LetterSelectionArgs, OutputFormat,
};
use crate::client::{self, ApiClient, ResultPage, Row};
use crate::confirmation::is_confirmed;
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::key_value_view::KeyValueView;
use crate::output::{RowPrinter, plain};

const COLUMNS: &[&str] = &[
    "ts", "id", "flux_id", "state", "rack", "gear", "port", "from", "attempts", "replays", "reason",
];
/// What is said of one, before its headers and its content.
const SHOWN: &[&str] = &[
    "id",
    "state",
    "ts",
    "rack",
    "gear",
    "port",
    "way",
    "from",
    "subject",
    "reason",
    "attempts",
    "replays",
    "replay_of",
    "flux_id",
    "trace_id",
    "bytes",
    "replayable",
    "why_not",
    "changed",
    "changed_by",
    "note",
];
const REPORT: &[&str] = &[
    "matched",
    "changed",
    "already",
    "replayed",
    "waiting",
    "dropped",
    "refused_total",
];
/// Refusals that are told one by one.
const TOLD: usize = 10;

pub(crate) fn run(args: &DlqArgs) -> Result<(), Error> {
    match &args.verb {
        DlqVerb::List(args) => list(args),
        DlqVerb::Show { id, api } => show(&id.to_string(), api),
        DlqVerb::Replay(args) => replay(args),
        DlqVerb::Drop(args) => drop_letters(args),
    }
}

fn list(args: &DlqListArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let mut filter = LetterFilter {
        since,
        until,
        limit: Some(args.page.limit),
        ..args.which.filter()
    };
    let (api, wanted) = (&args.page.api, args.page.limit as usize);
    let client = ApiClient::new(api);
    let mut page = client.page_within("/api/v1/dlq", &filter, args.page.wait)?;
    // Where few of many rows are letters in the state that is asked for, a page may have less than it could.
    while page.rows.len() < wanted && page.next_cursor.is_some() {
        filter.limit = u32::try_from(wanted - page.rows.len()).ok();
        filter.cursor = page.next_cursor;
        let more = client.page("/api/v1/dlq", &filter)?;
        let mut rows = page.rows;
        rows.extend(more.rows);
        page = ResultPage {
            rows,
            partial: more.partial.or(page.partial),
            ..more
        };
    }
    RowPrinter::from(api).rows(&page.rows, COLUMNS)?;
    super::notes(
        &page,
        "no such letters; --state all shows replayed and dropped ones too",
    )
}

fn show(id: &str, api: &ApiArgs) -> Result<(), Error> {
    let answer = ApiClient::new(api).get(&format!("/api/v1/dlq/{id}"), &())?;
    let row = client::one(answer, "it is not a letter")?;
    let printer = RowPrinter::from(api);
    if printer.format != OutputFormat::Table {
        return Ok(printer.rows(&[row], COLUMNS)?);
    }
    Ok(printer.text(&page(&row, printer))?)
}

/// A letter for people.
fn page(letter: &Row, printer: RowPrinter) -> String {
    let mut lines = KeyValueView::new(printer);
    lines.add_keys(letter, SHOWN, &["ts", "changed"]);
    for (name, value) in letter.get("headers").and_then(Value::as_object).into_iter().flatten() {
        lines.add("header", &format!("{name}: {}", plain(value)));
    }
    match letter.get("message").unwrap_or(&Value::Null) {
        Value::Null => {}
        message => lines.add("message", &serde_json::to_string_pretty(message).unwrap_or_default()),
    }
    lines.add(
        "payload",
        letter.get("payload").and_then(Value::as_str).unwrap_or_default(),
    );
    lines.finish()
}

fn replay(args: &DlqReplayArgs) -> Result<(), Error> {
    let wait: HumanDuration = args.wait;
    let mut body = asked(&args.many)?;
    (body["again"], body["wait"]) = (args.again.into(), json!(wait));
    let report = send(&args.many.api, "/api/v1/dlq/replay", &body)?;
    print(&report, &args.many.api)?;
    verdict(&report)
}

fn drop_letters(args: &DlqDropArgs) -> Result<(), Error> {
    let (api, path) = (&args.many.api, "/api/v1/dlq/drop");
    let mut body = asked(&args.many)?;
    if !args.many.dry_run && !args.yes {
        body["dry_run"] = true.into();
        let rehearsed = send(api, path, &body)?;
        let count = count(&rehearsed, "changed");
        let letters = format!("{count} letter{}", if count == 1 { "" } else { "s" });
        let would = format!("{letters} would be dropped");
        let question = format!("Drop {letters}? Their rows stay until they expire.");
        if count > 0 && !is_confirmed(&would, &question)? {
            return Err(Error::Usage("nothing was dropped".to_owned()));
        }
        body["dry_run"] = false.into();
        fix_times(&mut body, &rehearsed);
    }
    let report = send(api, path, &body)?;
    print(&report, api)?;
    verdict(&report)
}

/// Means the times of what was rehearsed, by the Mixer's clock: what came since was not asked about. An end that it did not say stays.
fn fix_times(body: &mut Value, rehearsed: &Map<String, Value>) {
    let Some(filter) = body.get_mut("filter") else { return };
    for end in ["since", "until"] {
        if let Some(at) = rehearsed.get(end).filter(|at| !at.is_null()) {
            filter[end] = at.clone();
        }
    }
}

/// The request that letters are selected by.
fn asked(many: &LetterSelectionArgs) -> Result<Value, Error> {
    let filter = many.filter()?;
    let mut body = json!({ "dry_run": many.dry_run, "by": me() });
    match filter {
        Some(filter) => {
            let filter = serde_json::to_value(filter).map_err(|error| Error::Usage(error.to_string()))?;
            (body["filter"], body["all"]) = (filter, many.all.into());
        }
        None => body["ids"] = json!(many.ids),
    }
    Ok(body)
}

/// Who asks: the user and the machine.
fn me() -> String {
    let user = std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}

fn send(api: &ApiArgs, path: &str, body: &Value) -> Result<Row, Error> {
    let within = std::time::Duration::from_secs(120);
    let answer = ApiClient::within(api, within).post(path, body)?;
    client::one(answer, "it does not say what was changed")
}

fn count(report: &Row, name: &str) -> u64 {
    report.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn print(report: &Row, api: &ApiArgs) -> Result<(), Error> {
    RowPrinter::from(api).rows(std::slice::from_ref(report), REPORT)?;
    let refused = report.get("refused").and_then(Value::as_array).into_iter().flatten();
    let text = |refusal: &Value, key: &str| refusal.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for refusal in refused.take(TOLD) {
        let _ = writeln!(
            io::stderr(),
            "platform: letter {}: {}",
            escape_controls(&text(refusal, "id")),
            escape_controls(&text(refusal, "reason"))
        );
    }
    Ok(())
}

/// An error if not every letter is what was asked for.
fn verdict(report: &Row) -> Result<(), Error> {
    let (matched, refused, waiting) = (
        count(report, "matched"),
        count(report, "refused_total"),
        count(report, "waiting"),
    );
    let partial = report.get("partial").and_then(Value::as_str);
    Error::if_partial(partial.map(str::to_owned))?;
    if matched == 0 {
        return Err(Error::NotFound("no such letters".to_owned()));
    }
    if refused > 0 || waiting > 0 {
        return Err(Error::Letters {
            matched,
            refused,
            waiting,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;

    use super::*;
    use crate::args::{CliCommand, PlatformArgs};
    use crate::control_chars::is_control_or_bidi;
    use crate::test_strings::rows;

    /// What `platform dlq drop` asks for.
    fn request(args: &[&str]) -> Option<Value> {
        let line = ["platform", "dlq", "drop"].iter().chain(args).copied();
        let parsed = PlatformArgs::try_parse_from(line).ok()?;
        let Some(CliCommand::Dlq(DlqArgs {
            verb: DlqVerb::Drop(args),
        })) = parsed.command
        else {
            return None;
        };
        asked(&args.many).ok()
    }

    #[test]
    fn times_of_a_rehearsal_are_meant_and_those_that_it_does_not_say_stay() {
        let mut body = json!({ "filter": { "gear": "pass", "since": "1h", "until": null } });
        let mut rehearsed = Map::from_iter([("until".to_owned(), json!("2026-01-01T00:00:00Z"))]);
        rehearsed.insert("since".to_owned(), Value::Null);
        fix_times(&mut body, &rehearsed);
        assert_eq!(
            body["filter"],
            json!({ "gear": "pass", "since": "1h", "until": "2026-01-01T00:00:00Z" })
        );
        let mut by_ids = json!({ "ids": ["a"] });
        fix_times(&mut by_ids, &rehearsed);
        assert_eq!(by_ids, json!({ "ids": ["a"] }));
    }

    #[test]
    fn a_request_is_by_ids_or_by_a_filter_whose_ages_the_mixer_resolves() {
        let early = "2026-01-01T00:00:00.000000Z";
        for (args, since, until) in [
            (vec!["--gear", "pass"], json!(null), json!(null)),
            (vec!["--all"], json!(null), json!(null)),
            (vec!["--since", "1h"], json!("1h"), json!(null)),
            (vec!["--all", "--until", early], json!(null), json!(early)),
        ] {
            let body = request(&args).unwrap_or_default();
            let window = (&body["filter"]["since"], &body["filter"]["until"]);
            assert_eq!(window, (&since, &until), "{args:?}");
        }
        let one = "0".repeat(32);
        let body = request(&[one.as_str()]).unwrap_or_default();
        assert_eq!((&body["ids"], &body["filter"]), (&json!([one]), &json!(null)));
        for wrong in [
            vec![],
            vec!["--state", "open"],
            vec![one.as_str(), "--all"],
            vec![one.as_str(), "--state", "open"],
        ] {
            assert_eq!(request(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_letter_for_people_has_a_line_for_each_thing_that_is_known_of_it() {
        let letter = json!({
            "id": "00066a1b2c3d4e5f0011223344556677", "state": "open", "ts": "2026-11-21T10:00:00.000001Z", "rack": "rack-b",
            "gear": "pass", "port": "in", "way": "in", "from": "flux.msg.rack-a.tail.out", "subject": "flux.gear.rack-b.pass",
            "reason": "where: no such key", "attempts": 1, "replays": 0, "replay_of": null, "replayable": true, "why_not": null,
            "headers": { "Flux-Dead-Port": "in" }, "message": { "text": "line\u{1b}[31m", "hops": 1 }, "payload": "a2",
        });
        let letter = letter.as_object().cloned().unwrap_or_default();
        insta::assert_snapshot!("letter", page(&letter, RowPrinter::of(OutputFormat::Table)));
    }

    proptest! {
        #[test]
        fn nothing_that_is_stored_reaches_the_terminal_as_it_is(rows in rows(|a, b| json!({ "id": a, "reason": b, "headers": { (a): b }, "message": { "text": a } }))) {
            for row in &rows {
                let page = page(row, RowPrinter::of(OutputFormat::Table));
                prop_assert!(!page.replace('\n', "").contains(is_control_or_bidi), "{page:?}");
            }
        }
    }
}
