//! Faults made on purpose, on real programs: each is contained, an operator sees it, and nothing that was acknowledged is lost.
//!
//! What an operator sees of the single faults is a table of `docs/faults.md`.

mod activation;
mod disk;
mod flood;
mod garbage;
mod memory;
mod names;
mod slow;

use std::collections::BTreeSet;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, duckdb, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);
/// How long an answer may take that is expected.
const ANSWER: Duration = Duration::from_secs(30);

/// An `http_in` gear named `door` as its callers see it.
struct Door {
    url: String,
    /// The signals of what it has acknowledged.
    acknowledged: BTreeSet<String>,
}

impl Door {
    /// The address that the Rack said at its start number `start`, from 1.
    fn of(rack: &TestRack, start: usize) -> Result<Self, Failure> {
        let url = eventually("the door is open", SOON, || {
            let log = rack.log();
            let mut said = log.split("listening on http://").skip(start);
            let address = said.next()?.split(['/', '"', ' ', '\n']).next()?;
            Some(format!("http://{address}/"))
        });
        Ok(Self {
            url: url.map_err(|error| format!("{error}:\n{}", rack.log()))?,
            acknowledged: BTreeSet::new(),
        })
    }

    /// Posts a body; the status, none where no answer came in time. What is answered by 202 is acknowledged.
    fn post(&mut self, body: &str, within: Duration) -> Result<Option<u16>, Failure> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(within))
            .http_status_as_error(false)
            .build();
        let Ok(mut answer) = ureq::Agent::from(config).post(&self.url).send(body) else {
            return Ok(None);
        };
        let status = answer.status().as_u16();
        if status == 202 {
            let said: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
            let flux = said["flux_id"].as_str().ok_or("an answer without a signal")?;
            assert!(self.acknowledged.insert(flux.to_owned()), "{flux} twice");
        }
        Ok(Some(status))
    }

    /// Posts a body that must be acknowledged.
    fn accepts(&mut self, body: &str) -> Result<(), Failure> {
        match self.post(body, ANSWER)? {
            Some(202) => Ok(()),
            other => Err(format!("{body}: the door answers {other:?}").into()),
        }
    }

    /// Waits until all that was acknowledged is in the archive, each once.
    fn is_archived(&self, mixer: &TestMixer) -> Result<(), Failure> {
        eventually("all that was acknowledged in the archive", SOON, || {
            let found = archived(mixer)?;
            let missing = self
                .acknowledged
                .iter()
                .filter(|flux| !found.contains(&((*flux).clone(), 1)));
            (missing.count() == 0).then_some(())
        })
        .map_err(|error| {
            let found = archived(mixer);
            format!(
                "{error}: {} acknowledged, archived {:?}",
                self.acknowledged.len(),
                found.map(|found| found.len())
            )
            .into()
        })
    }

    /// Waits until a `log_sink` has written all that was acknowledged.
    fn is_sunk(&self, mixer: &TestMixer, sink: &str) -> Result<(), Failure> {
        eventually(&format!("all that was acknowledged at {sink}"), SOON, || {
            let path = format!("/api/v1/telemetry/logs?gear_id={sink}&since=1h");
            let rows = mixer.api.all_rows(&path).ok()?;
            let found = rows.iter().filter_map(|row| row["flux_id"].as_str().map(str::to_owned));
            self.acknowledged.is_subset(&found.collect()).then_some(())
        })
    }
}

/// The signals that the archive has of the door, and how often.
fn archived(mixer: &TestMixer) -> Option<BTreeSet<(String, u64)>> {
    let query = "SELECT flux_id, count(*) AS n FROM messages WHERE src_gear_id = 'door' GROUP BY flux_id LIMIT 10000";
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query })).ok()?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let rows = answer.json["data"].as_array()?.clone();
    let pair = |row: &Value| Some((row["flux_id"].as_str()?.to_owned(), row["n"].as_u64()?));
    rows.iter().map(pair).collect()
}

/// A number that a statement gives.
fn number(mixer: &TestMixer, query: &str) -> Option<u64> {
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query })).ok()?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json["data"][0]["n"].as_u64()
}

/// How many dead letters a condition selects.
fn letters(mixer: &TestMixer, condition: &str) -> Option<u64> {
    duckdb::count(&mixer.telemetry(), "dead_letters", condition).ok()
}

/// A Rack as the Mixer shows it.
fn shown(mixer: &TestMixer, rack: &str) -> Option<Value> {
    let answer = mixer.api.get(&format!("/api/v1/racks/{rack}")).ok()?;
    Some(answer.json["data"].clone())
}

/// Stores a scenario.
fn import(mixer: &TestMixer, text: &str) -> Result<(), Failure> {
    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, text.as_bytes())?;
    if stored.status == 200 {
        Ok(())
    } else {
        Err(format!("{}: {text}", stored.text).into())
    }
}

/// Activates a stored scenario; whether all Racks run it within the wait.
fn activate(mixer: &TestMixer, reference: &str, wait: &str) -> Result<bool, Failure> {
    let path = format!("/api/v1/scenarios/{reference}/activate?wait={wait}");
    let done = mixer.api.post(&path, &json!({}))?;
    assert_eq!(done.status, 200, "{}", done.text);
    Ok(done.json["data"]["converged"] == true)
}

/// A line of a scenario file for a gear on `rack-a`.
fn gear(name: &str, kind: &str, config: &str) -> String {
    format!("  - {{ name: {name}, type: {kind}, deploy: rack-a, config: {{ {config} }} }}\n")
}

/// A scenario file for `rack-a`.
fn scenario(name: &str, version: &str, gears: &[String], wires: &[&str]) -> String {
    let wires: String = wires.iter().map(|wire| format!("  - {{ {wire} }}\n")).collect();
    format!(
        "meta: {{ name: {name}, version: '{version}' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n{}wires:\n{wires}",
        gears.concat()
    )
}

/// The gear that [`Door`] speaks to.
fn door() -> String {
    gear("door", "http_in", "listen: '127.0.0.1:0'")
}
