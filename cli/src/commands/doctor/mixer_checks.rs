//! Health checks of the Mixer, by its API: storage, Racks, their scenario, wires, dead letters.
//!
//! Invariant: what a token may not ask is a check that was skipped, never one that is well.

use chassis::ExitReason;
use model::{ByteSize, Clock};
use serde_json::Value;

use super::{CheckOutcome, DoctorCheck, service_checks};
use crate::client::ApiClient;
use crate::error::Error;
use crate::output::plain;

/// So many names are told.
const TOLD: usize = 5;
/// From this share of its greatest size on the write-ahead log is too large, in percent.
const FULL: u64 = 80;

/// A check: its name, what is asked, and what the answer's data comes to.
type ApiCheck = (&'static str, &'static str, fn(&Value) -> DoctorCheck);

const CHECKS: [ApiCheck; 5] = [
    ("storage", "/api/v1/storage", storage),
    ("racks", "/api/v1/racks", racks),
    ("scenario", "/api/v1/racks", scenario),
    ("wires", "/api/v1/wires", wires),
    ("letters", "/api/v1/dlq?limit=1", letters),
];

/// The API itself, and then what it says.
pub(super) fn checks(client: &ApiClient, clock: &Clock) -> Vec<DoctorCheck> {
    let service = service_checks::mixer(client, clock);
    let is_there = !matches!(service[0].state, CheckOutcome::Fail(_));
    let asked = CHECKS.into_iter().map(|(name, path, judge)| {
        if is_there {
            ask(client, name, path, judge)
        } else {
            DoctorCheck::skipped(name, "the API does not answer")
        }
    });
    service.into_iter().chain(asked).collect()
}

fn ask(client: &ApiClient, name: &'static str, path: &str, judge: fn(&Value) -> DoctorCheck) -> DoctorCheck {
    match client.get(path, &()) {
        Ok(answer) => judge(&answer["data"]),
        Err(Error::Refused { status: 401 | 403, .. }) => DoctorCheck::skipped(name, "the API denies it to this caller"),
        Err(error) => DoctorCheck::failed(name, ExitReason::Unavailable, &error.to_string()),
    }
}

fn storage(figures: &Value) -> DoctorCheck {
    let number = |key: &str| figures[key].as_u64().unwrap_or(0);
    let size = |key: &str| ByteSize::bytes(number(key));
    if !figures["trouble"].is_null() {
        return DoctorCheck::warn("storage", plain(&figures["trouble"]), "look into the Mixer's log");
    }
    if number("quarantined_files") > 0 {
        let found = format!("damaged files in quarantine: {}", number("quarantined_files"));
        return DoctorCheck::warn("storage", found, "`platform-mixer check` says what is wrong with them");
    }
    let (log, most) = (number("wal_bytes"), number("wal_max_bytes"));
    if most > 0 && log / most.div_ceil(100) >= FULL {
        let found = format!(
            "the write-ahead log has {} of {}",
            size("wal_bytes"),
            size("wal_max_bytes")
        );
        let fix = "look into the Mixer's log for why rows are not flushed";
        return DoctorCheck::warn("storage", found, fix);
    }
    let (rows, files) = (number("rows"), number("files"));
    DoctorCheck::ok("storage", format!("{rows} rows, {files} files of {}", size("bytes")))
}

fn racks(racks: &Value) -> DoctorCheck {
    let offline = named(racks, "name", |rack| rack["state"] == "offline");
    if let Some(names) = offline {
        let fix = "look at their machines, or `platform racks remove` those that are gone";
        return DoctorCheck::warn("racks", format!("offline: {names}"), fix);
    }
    if let Some(names) = named(racks, "name", |rack| rack["state"] == "pending") {
        return DoctorCheck::warn(
            "racks",
            format!("waiting for approval: {names}"),
            "`platform racks approve`",
        );
    }
    let count = racks.as_array().map_or(0, Vec::len);
    DoctorCheck::ok("racks", format!("Racks: {count}, none offline, none pending"))
}

fn scenario(racks: &Value) -> DoctorCheck {
    let is_behind = |rack: &Value| {
        let scenario = &rack["scenario"];
        rack["state"] == "active"
            && (scenario["wanted"]["hash"] != scenario["running"]["hash"] || !rack["error"].is_null())
    };
    match named(racks, "name", is_behind) {
        Some(names) => {
            let fix = "`platform scenario status` says why";
            DoctorCheck::warn("scenario", format!("not running what they should: {names}"), fix)
        }
        None => DoctorCheck::ok("scenario", "every active Rack runs what it should"),
    }
}

fn wires(wires: &Value) -> DoctorCheck {
    match named(wires, "wire", |wire| wire["is_held"] == true) {
        Some(names) => {
            let fix = "`platform wires` shows what waits; see why the receivers are behind";
            DoctorCheck::warn("wires", format!("holding up their senders: {names}"), fix)
        }
        None => DoctorCheck::ok("wires", "no wire holds up its sender"),
    }
}

fn letters(letters: &Value) -> DoctorCheck {
    if letters.as_array().is_some_and(|letters| !letters.is_empty()) {
        let fix = "`platform dlq list` shows them, `platform dlq replay` tries again";
        return DoctorCheck::warn("letters", "dead letters are open or waiting", fix);
    }
    DoctorCheck::ok("letters", "no dead letter is open or waiting")
}

/// The names of the entries that are meant, if there are any.
fn named(list: &Value, key: &str, is_meant: impl Fn(&Value) -> bool) -> Option<String> {
    let entries = list.as_array().into_iter().flatten();
    let names: Vec<String> = entries
        .filter(|entry| is_meant(entry))
        .map(|entry| plain(&entry[key]))
        .collect();
    match names.len() {
        0 => None,
        count @ 1..=TOLD => Some(names[..count].join(", ")),
        count => Some(format!("{} and {} more", names[..TOLD].join(", "), count - TOLD)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_off_is_a_warning_that_names_it() {
        let found = |check: DoctorCheck| (check.state, check.found);
        let warn = |text: &str| (CheckOutcome::Warn, text.to_owned());
        let ok = |text: &str| (CheckOutcome::Ok, text.to_owned());

        let figures =
            json!({ "rows": 7, "files": 2, "bytes": 2048, "wal_bytes": 79, "wal_max_bytes": 100, "trouble": null });
        assert_eq!(found(storage(&figures)), ok("7 rows, 2 files of 2.0 KiB"));
        let full = json!({ "wal_bytes": 80, "wal_max_bytes": 100 });
        assert_eq!(found(storage(&full)), warn("the write-ahead log has 80 B of 100 B"));
        assert_eq!(
            found(storage(&json!({ "quarantined_files": 1 }))),
            warn("damaged files in quarantine: 1")
        );
        assert_eq!(found(storage(&json!({ "trouble": "disk full" }))), warn("disk full"));

        let rack = |name: &str, state: &str, wanted: &str, running: &str| {
            json!({ "name": name, "state": state, "error": null,
                    "scenario": { "wanted": { "hash": wanted }, "running": { "hash": running } } })
        };
        let well = json!([rack("a", "active", "1", "1"), rack("b", "suspended", "1", "0")]);
        assert_eq!(found(racks(&well)), ok("Racks: 2, none offline, none pending"));
        assert_eq!(found(scenario(&well)), ok("every active Rack runs what it should"));
        let ill = json!([rack("a", "offline", "1", "0"), rack("b", "active", "1", "0")]);
        assert_eq!(found(racks(&ill)), warn("offline: a"));
        assert_eq!(found(scenario(&ill)), warn("not running what they should: b"));
        let many: Vec<Value> = (0..7).map(|n| rack(&n.to_string(), "pending", "1", "1")).collect();
        assert_eq!(
            found(racks(&json!(many))),
            warn("waiting for approval: 0, 1, 2, 3, 4 and 2 more")
        );

        let held = json!([{ "wire": "a.out", "is_held": true }, { "wire": "b.out", "is_held": false }]);
        assert_eq!(found(wires(&held)), warn("holding up their senders: a.out"));
        assert_eq!(found(wires(&json!([]))).0, CheckOutcome::Ok);
        assert_eq!(found(letters(&json!([{}]))).0, CheckOutcome::Warn);
        assert_eq!(found(letters(&json!([]))).0, CheckOutcome::Ok);
    }
}
