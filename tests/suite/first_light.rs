//! A log line on a Rack becomes a row in a query, end to end.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, duckdb, eventually, gear_files, process};

const SOON: Duration = Duration::from_secs(30);

/// A scenario that tails a file on `rack-a`.
pub(crate) fn tail_scenario(file: &Path) -> String {
    format!(
        "meta: {{ name: tail, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n",
        file.display().to_string()
    )
}

/// A Mixer with a startup scenario.
pub(crate) fn mixer_with(scenario: &str) -> Result<(TestMixer, tempfile::TempDir), Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    std::fs::write(&file, scenario)?;
    let mixer = TestMixer::start(&format!(
        "[mixer]\nstartup_scenario = {:?}\n",
        file.display().to_string()
    ))?;
    Ok((mixer, folder))
}

#[test]
fn a_log_line_on_a_rack_becomes_a_row_in_rest_and_in_duckdb() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    let (mixer, _scenario) = mixer_with(&tail_scenario(&file))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;

    let mut app = process::append_to(&file)?;
    writeln!(app, "WARN disk almost full")?;

    let row = eventually("the line in REST", SOON, || {
        mixer
            .api
            .rows("/api/v1/telemetry/logs?gear_id=tail&q=ALMOST")
            .ok()?
            .into_iter()
            .next()
    })?;
    assert_eq!(row["message"], "WARN disk almost full");
    assert_eq!(row["level"], "warn");
    assert_eq!(row["entity_name"], "rack-a");
    assert_eq!(row["attributes"]["gear.id"], "tail");
    assert_eq!(row["attributes"]["gear.type"], "file_tail");

    eventually("the line in DuckDB", SOON, || {
        let count = duckdb::count(&mixer.telemetry(), "logs", "message = 'WARN disk almost full'").ok()?;
        (count == 1).then_some(())
    })?;
    Ok(())
}

#[test]
fn a_scenario_that_asks_a_rack_for_more_than_it_allows_is_refused_there() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(&tail_scenario(Path::new("/etc/shadow")))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let says = "gear tail (file_tail): reading /etc/shadow is not allowed on this Rack: its operator adds it to policy.read_roots";
    eventually("the refusal at the Mixer", SOON, || {
        let rows = mixer.api.rows("/api/v1/racks").ok()?;
        serde_json::to_string(&rows).ok()?.contains(says).then_some(())
    })?;
    Ok(())
}

#[test]
fn a_generated_message_crosses_two_gears_as_one_trace() -> Result<(), Failure> {
    let scenario = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 20, count: 40, seed: 7 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in }
";
    let (mixer, _scenario) = mixer_with(scenario)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;

    let logs = eventually("40 rows of the sink", SOON, || {
        let rows = mixer.api.rows("/api/v1/telemetry/logs?gear_id=sink&limit=1000").ok()?;
        let sunk: Vec<_> = rows.into_iter().filter(|row| row["flux_id"].is_string()).collect();
        (sunk.len() >= 40).then_some(sunk)
    })?;
    assert_eq!(logs.len(), 40, "one row per message");
    let flux = logs[0]["flux_id"].as_str().unwrap();
    let spans = eventually("both spans of one message", SOON, || {
        let spans = mixer
            .api
            .rows(&format!("/api/v1/telemetry/traces?flux_id={flux}"))
            .ok()?;
        (spans.len() == 2).then_some(spans)
    })?;
    assert_eq!(spans[0]["trace_id"], spans[1]["trace_id"]);
    let root = spans
        .iter()
        .find(|span| span["parent_span_id"].is_null())
        .expect("a root span");
    let child = spans
        .iter()
        .find(|span| !span["parent_span_id"].is_null())
        .expect("a child span");
    assert_eq!(child["parent_span_id"], root["span_id"]);

    let trace = mixer.api.get(&format!(
        "/api/v1/telemetry/traces/{}",
        root["trace_id"].as_str().unwrap()
    ))?;
    assert_eq!(trace.status, 200, "{}", trace.text);
    Ok(())
}

#[test]
fn host_metrics_come_in_buckets_of_a_minute() -> Result<(), Failure> {
    let scenario = "
meta: { name: host, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: host, type: host_metrics, deploy: rack-a, config: { interval: 200ms } }
";
    let (mixer, _scenario) = mixer_with(scenario)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let point = eventually("memory usage", SOON, || {
        mixer
            .api
            .rows("/api/v1/telemetry/metrics?name=system.memory.usage")
            .ok()?
            .into_iter()
            .next()
    })?;
    assert_eq!(point["type"], "gauge");
    assert_eq!(point["labels"]["otel.unit"], "By");
    let bucket = eventually("a bucket", SOON, || {
        let path = "/api/v1/telemetry/metrics/system.memory.usage?interval=1m&group_by=entity_name";
        mixer.api.rows(path).ok()?.into_iter().next()
    })?;
    assert_eq!(bucket["entity_name"], "rack-a");
    assert!(bucket["ts"].as_str().unwrap().ends_with(":00.000000Z"), "{bucket:?}");
    Ok(())
}

#[test]
fn a_rack_waits_for_approval_and_then_runs_its_gears() -> Result<(), Failure> {
    let logs = gear_files()?;
    let file = logs.path().join("app.log");
    std::fs::write(&file, "one line\n")?;
    let scenario = logs.path().join("scenario.yaml");
    std::fs::write(&scenario, tail_scenario(&file))?;
    let mut mixer = TestMixer::start(&format!(
        "[mixer]\nstartup_scenario = {:?}\n[enrollment]\nauto_adopt = false\npush_delay = \"50ms\"\n",
        scenario.display().to_string()
    ))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.spawn()?;
    let waits = rack.process()?.line("pending ", SOON)?;
    let (_, key) = waits.split_once("key=").ok_or("it prints no key")?;
    let racks = mixer.api.rows("/api/v1/racks")?;
    assert_eq!(racks[0]["state"], "pending", "{racks:?}");
    assert_eq!(mixer.api.rows("/api/v1/telemetry/logs?gear_id=tail")?.len(), 0);

    let approve = process::run(
        &harness::binary("platform")?,
        &["racks", "approve", "rack-a", "--key", key, "--api-url", &mixer.api.base],
        rack.path(),
        &[],
    )?;
    assert_eq!(approve.code, Some(0), "{}", approve.err);
    rack.process()?.line("ready ", SOON)?;
    eventually("the line in REST", SOON, || {
        (mixer.api.rows("/api/v1/telemetry/logs?gear_id=tail&q=one").ok()?.len() == 1).then_some(())
    })?;
    assert!(rack.process()?.terminate(SOON)?.success());
    assert!(mixer.process()?.terminate(SOON)?.success());
    Ok(())
}
