//! The dead-letter queue on a real Mixer and real Racks: what a gear cannot handle is listed, shown, given back once, dropped.

mod audit;
mod command;
mod loops;
mod otlp_in;
mod replay;
mod rest;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use harness::api::Answer;
use harness::{Failure, TestMixer, TestRack, duckdb, eventually, gear_files};
use serde_json::{Map, Value, json};

use crate::first_light::mixer_with;

const SOON: Duration = Duration::from_secs(60);
/// Lets no line through whose second word is no number: it cannot be handled.
pub(crate) const NUMBERS: &str = "int(text.split(' ')[1]) >= 0";
/// The mended form.
pub(crate) const ANYTHING: &str = "size(text) > 3";

type Letter = Map<String, Value>;

/// Lines of a file on rack-a, of which a gear on rack-b cannot handle some.
pub(crate) struct LetterPlant {
    pub(crate) mixer: TestMixer,
    pub(crate) a: TestRack,
    pub(crate) b: TestRack,
    pub(crate) files: tempfile::TempDir,
    pub(crate) scenario: tempfile::TempDir,
}

impl LetterPlant {
    pub(crate) fn start() -> Result<Self, Failure> {
        let files = gear_files()?;
        let (mixer, scenario) = mixer_with(&Self::yaml(&files, "1", NUMBERS))?;
        let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
        let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
        a.start()?;
        b.start()?;
        Ok(Self {
            mixer,
            a,
            b,
            files,
            scenario,
        })
    }

    pub(crate) fn yaml(files: &tempfile::TempDir, version: &str, condition: &str) -> String {
        let file = files.path().join("app.log").display().to_string();
        format!(
            "meta: {{ name: plant, version: '{version}' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
             - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {file:?}, poll_interval: 50ms }} }}\n  \
             - {{ name: pass, type: filter, deploy: rack-b, config: {{ where: {condition:?} }} }}\n  \
             - {{ name: sink, type: log_sink, deploy: rack-b }}\nwires:\n  - {{ from: tail.out, to: pass.in }}\n  \
             - {{ from: pass.out, to: sink.in, lane: guaranteed }}\n"
        )
    }

    fn file(&self) -> PathBuf {
        self.files.path().join("app.log")
    }

    pub(crate) fn write(&self, lines: &[String]) -> Result<(), Failure> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.file());
        Ok(file?.write_all(lines.concat().as_bytes())?)
    }

    /// Stores a scenario and activates it, waiting so long for the Racks.
    fn activate(&self, yaml: &str, wait: &str) -> Result<Answer, Failure> {
        // A Mixer that starts again activates its file.
        std::fs::write(self.scenario.path().join("scenario.yaml"), yaml)?;
        let kind = [("content-type", "application/yaml")];
        let stored = self.mixer.api.send("/api/v1/scenarios", &kind, yaml.as_bytes())?;
        assert_eq!(stored.status, 200, "{}", stored.text);
        let reference = stored.json["data"]["reference"].as_str().ok_or("no reference")?;
        let path = format!("/api/v1/scenarios/{reference}/activate?wait={wait}");
        let done = self.mixer.api.post(&path, &json!({}))?;
        assert_eq!(done.status, 200, "{}", done.text);
        Ok(done)
    }

    /// The mended scenario, run by both Racks.
    fn mend(&self, version: &str) -> Result<(), Failure> {
        let done = self.activate(&Self::yaml(&self.files, version, ANYTHING), "60s")?;
        assert_eq!(done.json["data"]["converged"], true, "{}", done.text);
        Ok(())
    }

    /// The letters that a query asks for, once there are so many.
    pub(crate) fn letters(&self, query: &str, count: usize) -> Result<Vec<Letter>, Failure> {
        letters(&self.mixer, query, count).map_err(|error| format!("{error}; rack-b:\n{}", self.b.log()).into())
    }

    /// What the last gear has written of messages with a word, the oldest first.
    fn sunk(&self, word: &str) -> Result<Vec<String>, Failure> {
        let path = format!("/api/v1/telemetry/logs?gear_id=sink&q={word}&since=1h&order=asc");
        let rows = self.mixer.api.all_rows(&path)?;
        Ok(rows
            .iter()
            .filter(|row| row["flux_id"].is_string())
            .filter_map(|row| row["message"].as_str().map(str::to_owned))
            .collect())
    }

    /// Waits until the last gear has written so many messages with a word.
    pub(crate) fn sinks(&self, word: &str, count: usize) -> Result<Vec<String>, Failure> {
        let found = eventually(&format!("{count} messages with {word}"), SOON, || {
            self.sunk(word).ok().filter(|rows| rows.len() == count)
        });
        found.map_err(|error| format!("{error}: {:?}; rack-b:\n{}", self.sunk(word), self.b.log()).into())
    }

    /// A line that comes through all gears: what was on its way before it has arrived then.
    fn flush(&self, number: u32) -> Result<(), Failure> {
        self.write(&[format!("line {number} flush\n")])?;
        eventually("a line through all gears", SOON, || {
            let rows = self.sunk("flush").ok()?;
            rows.iter()
                .any(|row| row.contains(&format!("line {number} ")))
                .then_some(())
        })
    }

    /// Messages of a gear in the archive: all, and how many of them differ.
    fn archived(&self, gear: &str) -> Option<(u64, u64)> {
        let sql = format!(
            "select count(*) || ' ' || count(distinct raw_msg) from read_parquet('{}/generic/**/fluxmsg_*.parquet') \
             where src_gear_id = '{gear}'",
            self.mixer.path().join("data/messages").display()
        );
        let found = duckdb::scalar(&sql, self.mixer.path()).ok()?;
        let (all, distinct) = found.split_once(' ')?;
        Some((all.parse().ok()?, distinct.parse().ok()?))
    }

    /// Waits until the archive has so many messages of each gear that sends, none of them twice.
    fn archives(&self, count: u64) -> Result<(), Failure> {
        eventually("each message in the archive once", SOON, || {
            let is_whole = |gear| self.archived(gear) == Some((count, count));
            (is_whole("tail") && is_whole("pass")).then_some(())
        })
        .map_err(|error| format!("{error}: {:?} {:?}", self.archived("tail"), self.archived("pass")).into())
    }

    fn change(&self, id: &str, verb: &str, body: &Value) -> Result<Answer, Failure> {
        self.mixer.api.post(&format!("/api/v1/dlq/{id}/{verb}"), body)
    }
}

/// The letters that a query asks for, once there are so many.
fn letters(mixer: &TestMixer, query: &str, count: usize) -> Result<Vec<Letter>, Failure> {
    let found = eventually(&format!("{count} letters of {query:?}"), SOON, || {
        let rows = mixer.api.rows(&format!("/api/v1/dlq?{query}")).ok()?;
        (rows.len() == count).then_some(rows)
    });
    found.map_err(|error| {
        let there = mixer.api.get("/api/v1/dlq?state=all").map(|answer| answer.text);
        format!("{error}; there are {there:?}").into()
    })
}

/// A letter's id.
pub(crate) fn id(letter: &Letter) -> &str {
    letter["id"].as_str().unwrap_or_default()
}

pub(crate) fn lines(numbers: std::ops::Range<u32>, word: &str) -> Vec<String> {
    numbers.map(|n| format!("line {word}{n:03} of the plant\n")).collect()
}
