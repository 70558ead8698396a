//! A scenario in a real runtime, from its first message to its last, and the gear type that feeds it.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use model::{Attributes, Table};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::super::{ActiveGear, Gear, GearContext, GearFuture, ProgramAllowList, RawConfig};
use super::{Bench, push};
use crate::runtime::GearRuntime;

/// What gears of a scenario did.
pub(crate) struct Flow {
    _folder: TempDir,
    bench: Bench,
    runtime: Option<GearRuntime>,
    gears: Vec<String>,
    feeds: Vec<String>,
}

impl Flow {
    /// Starts a scenario on a Rack of its own.
    pub(crate) async fn start(gears: &str, wires: &str) -> Self {
        Self::start_allowing(&[], gears, wires).await
    }

    /// The same on a Rack that allows programs.
    pub(crate) async fn start_allowing(programs: &[&str], gears: &str, wires: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(folder.path());
        let programs: Vec<_> = programs.iter().map(Into::into).collect();
        bench.programs = ProgramAllowList::new(&programs);
        let mut runtime = bench.runtime();
        let push = push("h", gears, wires);
        assert_eq!(runtime.apply(&push).await.error, None);
        let names = |kinds: &[&str]| {
            let of_kind = push
                .gears
                .iter()
                .filter(|gear| kinds.is_empty() || kinds.contains(&gear.kind.as_str()));
            of_kind.map(|gear| gear.name.to_string()).collect()
        };
        Self {
            _folder: folder,
            bench,
            runtime: Some(runtime),
            gears: names(&[]),
            feeds: names(&["test_feed", "generator"]),
        }
    }

    /// Runs a scenario file until every sink of it has written a message.
    pub(crate) async fn reaches_every_sink(yaml: &str) {
        let scenario = model::scenario::parse(yaml, gear_spec::manifests()).unwrap();
        let sinks = scenario.gears.iter().filter(|gear| gear.kind == "log_sink");
        let sinks: Vec<String> = sinks.map(|gear| gear.name.to_string()).collect();
        let [gears, wires] = [json!(scenario.gears), json!(scenario.wires)].map(|part| part.to_string());
        let mut flow = Self::start(&gears, wires.trim_matches(['[', ']'])).await;
        for sink in &sinks {
            flow.reach(sink, 1).await;
        }
        flow.stop().await;
    }

    /// Runs a scenario until its feeds have sent what they have and everything is handled.
    pub(crate) async fn run(gears: &str, wires: &str) -> Self {
        let mut flow = Self::start(gears, wires).await;
        for feed in &flow.feeds {
            flow.bench.says(feed, "the gear has finished").await;
        }
        flow.stop().await;
        flow
    }

    /// Waits until a sink has written so many messages.
    pub(crate) async fn reach(&self, sink: &str, count: usize) {
        let reached = |_: &Bench| (self.rows(sink).len() >= count).then_some(());
        self.bench.wait(&format!("{count} messages at {sink}"), reached).await;
    }

    /// Stops the gears in their order; what they say and count is durable then.
    pub(crate) async fn stop(&mut self) {
        self.runtime.take().unwrap().close().await;
        for gear in &self.gears {
            let counted = |bench: &Bench| {
                let logs = bench.rows(Table::Logs);
                let ended = |text: &Value| text == "the gear stopped" || text == "the gear has finished";
                let end = logs
                    .iter()
                    .rfind(|row| row["attributes"]["gear.id"] == *gear && ended(&row["message"]))?;
                let metrics = bench.rows(Table::Metrics);
                let last = metrics
                    .iter()
                    .rfind(|row| row["labels"]["gear.id"] == *gear && row["name"] == "gear.errors")?;
                (last["ts"].as_str() >= end["ts"].as_str()).then_some(())
            };
            self.bench.wait(&format!("the last counters of {gear}"), counted).await;
        }
    }

    /// The log records that a sink made of messages, in order.
    pub(crate) fn rows(&self, sink: &str) -> Vec<Map<String, Value>> {
        let rows = self.bench.rows(Table::Logs).into_iter();
        rows.filter(|row| row["attributes"]["gear.id"] == sink && row["attributes"]["span_id"].is_string())
            .collect()
    }

    /// The bodies that a sink got, sorted.
    pub(crate) fn texts(&self, sink: &str) -> Vec<String> {
        let rows = self.rows(sink).into_iter();
        let mut texts: Vec<_> = rows.map(|row| row["message"].as_str().unwrap().to_owned()).collect();
        texts.sort_unstable();
        texts
    }

    /// Waits until a gear says a text.
    pub(crate) async fn hears(&self, gear: &str, text: &str) {
        self.bench.says(gear, text).await;
    }

    /// Whether a gear has said a text.
    pub(crate) fn says(&self, gear: &str, text: &str) -> bool {
        self.bench.logs(gear).iter().any(|log| log.contains(text))
    }

    /// All that a gear has said.
    pub(crate) fn logs(&self, gear: &str) -> Vec<String> {
        self.bench.logs(gear)
    }

    /// The last value of a gear's counter.
    pub(crate) fn counter(&self, gear: &str, name: &str) -> f64 {
        let rows = self.bench.rows(Table::Metrics);
        let of_gear = |row: &&Map<String, Value>| row["name"] == name && row["labels"]["gear.id"] == gear;
        rows.iter().rfind(of_gear).unwrap()["value"].as_f64().unwrap()
    }

    /// The spans of a signal, each the parent of the next.
    pub(crate) fn spans(&self, flux_id: &str) -> Vec<String> {
        let rows = self.bench.rows(Table::Traces);
        let (mut names, mut parent) = (Vec::new(), Value::Null);
        let next = |parent: &Value| {
            rows.iter()
                .find(|row| row["flux_id"] == flux_id && row["parent_span_id"] == *parent)
        };
        while let Some(span) = next(&parent) {
            names.push(span["span_name"].as_str().unwrap().to_owned());
            parent = span["span_id"].clone();
        }
        names
    }
}

/// Sends the messages of its configuration and ends.
#[derive(Deserialize)]
pub(super) struct Feed {
    messages: Vec<Given>,
}

#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    data: Value,
    #[serde(default)]
    raw: String,
    /// Bytes in hexadecimal, instead of `raw`.
    #[serde(default)]
    hex: String,
    #[serde(default)]
    meta: Map<String, Value>,
}

pub(super) fn feed(config: &RawConfig) -> Result<Gear, String> {
    let feed: Feed = serde_json::from_value(Value::Object(config.clone())).map_err(|error| error.to_string())?;
    Ok(Gear::Active(Box::new(feed)))
}

impl ActiveGear for Feed {
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            for given in &self.messages {
                let hex = given.hex.as_bytes().chunks(2);
                let bytes = hex.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
                let raw = if given.hex.is_empty() {
                    given.raw.clone().into_bytes()
                } else {
                    bytes.collect()
                };
                let mut message = cx.make(None, Attributes::from(given.meta.clone()), raw);
                message.data = given.data.clone();
                cx.emit("out", message, None, Instant::now()).await.ok();
            }
            Ok(())
        }
        .boxed()
    }
}
