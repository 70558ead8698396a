//! The examples hold: each is started by the command that the README says, with its outage, and what came of it is counted again
//! here, message by message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Api, Failure, Shell, binary, duckdb, eventually, process};
use model::message::Message;
use serde_json::{Value, json};

use crate::readme::{blocks, clone_folder, project, readme};

/// The examples, each a folder of `examples/`.
pub(crate) const NAMES: [&str; 3] = ["field-gateway", "order-flow", "log-pipeline"];
/// What a run may take on a busy machine.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);

/// An example that has run and whose processes still do.
struct Ran {
    shell: Shell,
    folder: tempfile::TempDir,
    api: Api,
    printed: String,
}

impl Ran {
    /// Runs an example as the README says, and leaves it running.
    fn of(name: &str) -> Result<Self, Failure> {
        let lines = blocks(&readme()?, "Examples").concat();
        let line = lines
            .iter()
            .find(|line| line.starts_with(&format!("examples/run {name}")));
        let line = line.ok_or_else(|| format!("the README does not say how to run {name}: {lines:?}"))?;
        let folder = clone_folder()?;
        let keep = [("KEEP", "1".to_owned())];
        let mut shell = Shell::start(folder.path(), &keep, &folder.path().join("errors"))?;
        let (code, printed) = shell.run(line, LONG)?;
        assert_eq!(code, 0, "{printed}\n{}", shell.errors());
        let api = printed
            .lines()
            .find_map(|line| line.strip_prefix("export PLATFORM_API_URL="));
        let api = Api::new(api.ok_or("it does not say where its API is")?);
        Ok(Self {
            shell,
            folder,
            api,
            printed,
        })
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("example-run").join(below)
    }

    /// The values of the messages that a gear has sent over the bus, in the order of their times.
    fn archived(&self, gear: &str) -> Result<Vec<Value>, Failure> {
        let path = format!("/api/v1/telemetry/messages?src_gear_id={gear}&since=1h&order=asc&raw=hex");
        let rows = self.api.all_rows(&path)?;
        let message = |row: &serde_json::Map<String, Value>| -> Result<Value, Failure> {
            let hex = row["raw_msg"].as_str().ok_or("no bytes")?;
            let bytes: Result<Vec<u8>, _> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
                .collect();
            Ok(Message::from_cbor(&bytes?)
                .map_err(|reason| format!("{gear}: {reason}"))?
                .data)
        };
        rows.iter().map(message).collect()
    }

    /// Stops it as the runner does, which leaves nothing behind.
    fn stop(mut self) -> Result<(), Failure> {
        let (code, printed) = self.shell.run("examples/run stop", SOON)?;
        assert_eq!(code, 0, "{printed}\n{}", self.shell.errors());
        assert!(!self.path("").exists());
        assert!(self.api.get("/healthz").is_err(), "its Mixer still answers");
        Ok(())
    }
}

/// The lines of a file, each a JSON value.
fn lines(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The numbers of each device's readings, in order.
fn by_device(readings: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for reading in readings {
        let device = reading["device"].as_str().unwrap_or("none").to_owned();
        all.entry(device)
            .or_default()
            .push(reading["number"].as_u64().unwrap_or(0));
    }
    all
}

#[test]
fn a_field_gateway_filters_and_loses_nothing_while_the_mixer_and_the_bus_are_dead() -> Result<(), Failure> {
    let ran = Ran::of("field-gateway")?;
    // Every tenth reading of each device was noise; all others are there once, in order.
    let of_one: Vec<u64> = (1..=600).filter(|number| number % 10 != 5).collect();
    let wanted: BTreeMap<_, _> = ["oven-1", "oven-2"]
        .map(|device| (device.to_owned(), of_one.clone()))
        .into();
    let archived = ran.archived("pace")?;
    assert_eq!(by_device(&archived), wanted, "the archive");
    assert_eq!(
        by_device(&lines(&ran.path("plant/data/files/readings.ndjson"))?),
        wanted,
        "the book"
    );
    let hot = archived.iter().filter(|reading| reading["celsius"] == 97.5).count();
    assert_eq!(hot, 12);
    let alarms = ran
        .api
        .all_rows("/api/v1/telemetry/logs?gear_id=alarms&level=warn&since=1h")?;
    assert_eq!(alarms.len(), hot);
    // Whoever reads the files themselves finds the same.
    let sql = format!(
        "select count(distinct flux_id) || ' of ' || count(*) from read_parquet('{}/generic/**/*.parquet') where src_gear_id = 'pace'",
        ran.path("mixer/data/messages").display()
    );
    eventually("the messages in DuckDB", SOON, || {
        (duckdb::scalar(&sql, ran.folder.path()).ok()? == "1080 of 1080").then_some(())
    })?;
    // The line that was no reading was told, and ended nothing.
    let told = ran
        .api
        .all_rows("/api/v1/telemetry/logs?gear_id=readings&level=error&since=1h")?;
    assert!(
        !told.is_empty()
            && told
                .iter()
                .all(|row| row["message"].as_str().is_some_and(|text| text.contains("refused")))
    );
    ran.stop()
}

#[test]
fn an_order_flow_answers_each_order_and_keeps_those_that_were_accepted() -> Result<(), Failure> {
    let ran = Ran::of("order-flow")?;
    let answer = |number: u64| -> Result<(Value, String), Failure> {
        let text = std::fs::read_to_string(ran.path(&format!("answer.{number}")))?;
        // The body, then what the runner asked of curl: status and seconds.
        let mut parts = text.rsplitn(3, ' ');
        let (_, status, body) = (parts.next(), parts.next(), parts.next());
        Ok((
            serde_json::from_str(body.unwrap_or_default())?,
            status.unwrap_or_default().to_owned(),
        ))
    };
    for (numbers, status, says) in [
        (1..=16, "200", Some("booked")),
        (17..=18, "409", Some("refused")),
        (19..=19, "202", Some("in review")),
        (20..=20, "422", None),
    ] {
        for number in numbers {
            let (body, got) = answer(number)?;
            assert_eq!(
                (got.as_str(), body["status"].as_str()),
                (status, says),
                "order {number}: {body}"
            );
            // Each caller has the answer to its own order.
            assert!(says.is_none() || body["order"] == number, "order {number}: {body}");
        }
    }
    assert_eq!(answer(21)?.1, "504");

    let wanted: BTreeMap<u64, f64> = (1u32..=16)
        .map(|number| {
            (
                number.into(),
                if number <= 12 { f64::from(number * 30) } else { 2000.0 },
            )
        })
        .collect();
    let amounts = |orders: &[Value]| -> BTreeMap<u64, f64> {
        let entry = |order: &Value| Some((order["order"].as_u64()?, order["amount"].as_f64()?));
        orders.iter().filter_map(entry).collect()
    };
    for (gear, status) in [("accepted", "accepted"), ("booked", "booked")] {
        let orders = ran.archived(gear)?;
        assert_eq!((orders.len(), amounts(&orders)), (16, wanted.clone()), "{gear}");
        assert!(orders.iter().all(|order| order["status"] == status));
    }
    // Those of the spec are in its files alone, with its columns; 13 of them are over 100.
    let statement = json!({ "query": "select count(*) as n from messages_order where amount > 100" });
    let counted = ran.api.post("/api/v1/sql", &statement)?;
    assert_eq!(counted.json["data"][0]["n"], 13, "{}", counted.text);
    let over = |folder: &str, what: &str| {
        let files = ran.path("mixer/data/messages").join(folder);
        format!(
            "select count(*) from read_parquet('{}/**/*.parquet') where {what}",
            files.display()
        )
    };
    for (sql, wanted) in [
        (over("fluxSpec/order", "amount > 100"), "13"),
        (over("fluxSpec/order", "customer = 'ada'"), "12"),
        (over("generic", "src_gear_id = 'accepted'"), "0"),
    ] {
        eventually(&sql, SOON, || {
            (duckdb::scalar(&sql, ran.folder.path()).ok()? == wanted).then_some(())
        })?;
    }
    // Its signal is named to who asked, and has what became of the order at both Racks.
    let head = std::fs::read_to_string(ran.path("heads.13"))?;
    let flux = head.lines().find_map(|line| line.strip_prefix("flux-id: "));
    let signal = ran
        .api
        .rows(&format!("/api/v1/flux/{}", flux.ok_or("no signal")?.trim()))?;
    let messages = signal.iter().filter(|row| row["kind"] == "message");
    let racks: Vec<_> = messages.map(|row| row["entity_name"].clone()).collect();
    assert_eq!(racks, [json!("shop"), json!("office")], "{signal:?}");
    let ledger = lines(&ran.path("office/data/files/orders.ndjson"))?;
    assert_eq!((ledger.len(), amounts(&ledger)), (16, wanted));
    ran.stop()
}

#[test]
fn a_log_pipeline_stores_each_line_once_though_its_collector_dies() -> Result<(), Failure> {
    let ran = Ran::of("log-pipeline")?;
    let level = |number: u64| if number % 20 == 5 { "error" } else { "info" };
    let of = |word: &str, last: u64| -> Vec<(String, String)> {
        let numbers = (1..=last).filter(|number| number % 10 != 0);
        numbers
            .map(|number| (format!("{word} {number}"), level(number).to_owned()))
            .collect()
    };
    let mut wanted = [of("counted", 150), of("plain", 150), of("datagram", 60)].concat();
    wanted.push(("hello, who am I".to_owned(), "info".to_owned()));
    wanted.sort();
    let rows = ran.api.all_rows("/api/v1/telemetry/logs?entity=site-syslog&since=1h")?;
    let mut got: Vec<(String, String)> = rows
        .iter()
        .map(|row| {
            [&row["message"], &row["level"]]
                .map(|text| text.as_str().unwrap_or_default().to_owned())
                .into()
        })
        .collect();
    got.sort();
    assert_eq!(got, wanted);
    let fact = |message: &str, key: &str| {
        let row = rows.iter().find(|row| row["message"] == message);
        row.map_or(Value::Null, |row| row["attributes"][key].clone())
    };
    assert_eq!(fact("counted 7", "host.name"), json!("press-7"));
    assert_eq!(fact("datagram 7", "service.name"), json!("dryer"));

    let mut alarms: Vec<String> = lines(&ran.path("watch/data/files/alarms.ndjson"))?
        .iter()
        .filter_map(|alarm| Some(alarm["message"].as_str()?.to_owned()))
        .collect();
    alarms.sort();
    let errors = wanted
        .iter()
        .filter(|(_, level)| level == "error")
        .map(|(message, _)| message.clone());
    assert_eq!(alarms, errors.collect::<Vec<_>>());
    ran.stop()
}

#[test]
fn the_scenario_of_every_gear_type_runs_and_reaches_what_it_leads_to() -> Result<(), Failure> {
    let ran = Ran::of("gears")?;
    let types = ran.api.rows("/api/v1/gears")?;
    assert!(types.len() >= 18, "{types:?}");
    for kind in types.iter().filter_map(|kind| kind["type"].as_str()) {
        let head = format!("gears/{kind}: ");
        let line = ran.printed.lines().find(|line| line.starts_with(&head));
        assert!(
            line.is_some_and(|line| line.ends_with(" ok")),
            "{kind}: {}",
            ran.printed
        );
        // What this machine lacks: a broker, or a journal that the gear may read.
        if line.is_some_and(|line| line.contains(": skipped, ")) {
            continue;
        }
        let path = format!("/api/v1/telemetry/logs?attr.gear.type={kind}&q=the%20gear%20runs&since=1h");
        assert!(!ran.api.rows(&path)?.is_empty(), "no {kind} has run");
    }
    ran.stop()
}

#[test]
fn the_runner_says_which_examples_there_are_and_every_one_has_a_page() -> Result<(), Failure> {
    let folder = clone_folder()?;
    let mut shell = Shell::start(folder.path(), &[], &folder.path().join("errors"))?;
    let (code, _) = shell.run("examples/run nothing", SOON)?;
    assert_eq!(code, 1);
    let told = shell.errors();
    assert!(NAMES.iter().all(|name| told.contains(name)), "{told}");
    for name in NAMES {
        assert!(
            project().join("examples").join(name).join("README.md").is_file(),
            "{name}"
        );
    }
    Ok(())
}

#[test]
fn the_reference_page_of_each_example_has_the_picture_of_its_scenario() -> Result<(), Failure> {
    for name in NAMES {
        let folder = project().join("examples").join(name);
        let scenario = folder.join("scenario.yaml").display().to_string();
        let drawn = process::run(&binary("platform")?, &["scenario", "graph", &scenario], &folder, &[])?;
        assert_eq!(drawn.code, Some(0), "{}", drawn.err);
        let path = folder.join("README.md");
        let page = std::fs::read_to_string(&path)?;
        let (before, rest) = page
            .split_once("```mermaid\n")
            .ok_or_else(|| format!("{name}: no picture"))?;
        let (_, after) = rest
            .split_once("```\n")
            .ok_or_else(|| format!("{name}: no end of the picture"))?;
        let wanted = format!("{before}```mermaid\n{}\n```\n{after}", drawn.out.trim_end());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, wanted)?;
        } else {
            assert_eq!(page, wanted, "{name}: its picture is not the scenario's: make docs");
        }
    }
    Ok(())
}
