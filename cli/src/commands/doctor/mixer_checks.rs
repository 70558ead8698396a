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
    ("scenario", "/api/v1/scenarios/status", scenario),
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
    let offline = named(racks, |rack| if_meant(rack, "name", rack["state"] == "offline"));
    if let Some(names) = offline {
        let fix = "look at their machines, or `platform racks remove` those that are gone";
        return DoctorCheck::warn("racks", format!("offline: {names}"), fix);
    }
    if let Some(names) = named(racks, |rack| if_meant(rack, "name", rack["state"] == "pending")) {
        return DoctorCheck::warn(
            "racks",
            format!("waiting for approval: {names}"),
            "`platform racks approve`",
        );
    }
    let count = racks.as_array().map_or(0, Vec::len);
    DoctorCheck::ok("racks", format!("Racks: {count}, none offline, none pending"))
}

fn scenario(report: &Value) -> DoctorCheck {
    if report["scenario"].is_null() {
        return DoctorCheck::ok("scenario", "none is active");
    }
    // A Rack that was never there says nothing of itself; one that is suspended or offline does so elsewhere.
    let behind = named(&report["racks"], |rack| {
        if ["suspended", "offline"].iter().any(|state| rack["state"] == *state) {
            return None;
        }
        let reason = rack["reason"]
            .as_str()
            .map(|_| format!(" ({})", plain(&rack["reason"])));
        (rack["converged"] != true).then(|| plain(&rack["name"]) + &reason.unwrap_or_default())
    });
    match behind {
        Some(names) => {
            let fix = "`platform scenario status` shows their progress";
            DoctorCheck::warn("scenario", format!("not running what they should: {names}"), fix)
        }
        None if report["racks"].as_array().is_none_or(Vec::is_empty) && report["converged"] != true => {
            DoctorCheck::warn(
                "scenario",
                "no Rack runs it",
                "`platform scenario status` says whom it means",
            )
        }
        None => DoctorCheck::ok("scenario", "every Rack that it means runs it"),
    }
}

fn wires(wires: &Value) -> DoctorCheck {
    match named(wires, |wire| if_meant(wire, "wire", wire["is_held"] == true)) {
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

/// What an entry is called, if it is meant.
fn if_meant(entry: &Value, key: &str, is_meant: bool) -> Option<String> {
    is_meant.then(|| plain(&entry[key]))
}

/// The names of the entries that have one, if there are any.
fn named(list: &Value, name: impl Fn(&Value) -> Option<String>) -> Option<String> {
    let names: Vec<String> = list.as_array().into_iter().flatten().filter_map(name).collect();
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

        let rack = |name: &str, state: &str| json!({ "name": name, "state": state });
        let well = json!([rack("a", "active"), rack("b", "suspended")]);
        assert_eq!(found(racks(&well)), ok("Racks: 2, none offline, none pending"));
        let ill = json!([rack("a", "offline"), rack("b", "active")]);
        assert_eq!(found(racks(&ill)), warn("offline: a"));
        let report = |is_converged: bool, racks: Value| {
            scenario(&json!({ "scenario": { "reference": "demo:1" }, "converged": is_converged, "racks": racks }))
        };
        let runs = json!({ "name": "a", "converged": true, "reason": null });
        let absent = json!({ "name": "b", "converged": false, "reason": "it has never been here" });
        assert_eq!(found(scenario(&json!({ "scenario": null }))), ok("none is active"));
        assert_eq!(
            found(report(true, json!([runs]))),
            ok("every Rack that it means runs it")
        );
        assert_eq!(
            found(report(false, json!([runs, absent]))),
            warn("not running what they should: b (it has never been here)")
        );
        let waits = json!({ "name": "c", "state": "suspended", "converged": false, "reason": "it is suspended" });
        assert_eq!(
            found(report(false, json!([runs, waits]))),
            ok("every Rack that it means runs it")
        );
        assert_eq!(found(report(false, json!([]))), warn("no Rack runs it"));
        let many: Vec<Value> = (0..7).map(|n| rack(&n.to_string(), "pending")).collect();
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
