//! Endpoints that summarise what lists give, against those lists.

use harness::{Failure, TestMixer, TestRack, eventually};
use model::Timestamp;
use serde_json::{Map, Value, json};

use crate::cli::{Desk, SOON};
use crate::first_light::mixer_with;

/// Messages of a generator to a sink, over the bus and so through the archive.
const SCENARIO: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 50, count: 30, seed: 7 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in, lane: guaranteed }
";

fn sum(rows: &[Map<String, Value>]) -> u64 {
    rows.iter().filter_map(|row| row["count"].as_u64()).sum()
}

/// What `key` has the value `value` in a list of counts.
fn counted(rows: &[Map<String, Value>], key: &str, value: &str) -> Option<u64> {
    rows.iter().find(|row| row[key] == value)?["count"].as_u64()
}

#[test]
fn counts_names_and_values_are_those_of_the_rows() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let log = |level: &str, number: u64| json!({ "ts": desk.ago(number), "level": level, "message": "x" });
    let logs: Vec<Value> = (1..=5)
        .map(|n| log("warn", n))
        .chain((6..=8).map(|n| log("error", n)))
        .collect();
    desk.seed("logs", "press", &json!(logs))?;
    let point = |zone: &str| json!({ "ts": desk.ago(9), "name": "temp", "type": "gauge", "value": 1.5, "labels": { "zone": zone } });
    desk.seed("metrics", "press", &json!([point("a"), point("a"), point("b")]))?;
    let span = |id: u64, name: &str| {
        json!({ "ts": desk.ago(9), "trace_id": crate::cli::TRACE, "span_id": format!("{id:016x}"), "span_name": name,
                "duration_ms": 1.5, "status": "ok" })
    };
    desk.seed(
        "traces",
        "press",
        &json!([span(1, "cut"), span(2, "cut"), span(3, "drill")]),
    )?;

    let api = &desk.mixer.api;
    let of = |path: &str| api.rows(&format!("/api/v1/telemetry/{path}"));
    assert_eq!(sum(&of("logs/histogram?entity=press&interval=1m")?), 8);
    let levels = of("logs/histogram?entity=press&interval=1h&by=level")?;
    let of_level = |level: &str| {
        let rows = levels.iter().filter(|row| row["level"] == level).cloned();
        sum(&rows.collect::<Vec<_>>())
    };
    assert_eq!((of_level("warn"), of_level("error")), (5, 3), "{levels:?}");
    let top = of("logs/top?entity=press&field=level")?;
    assert_eq!(
        (counted(&top, "value", "warn"), counted(&top, "value", "error")),
        (Some(5), Some(3))
    );
    let top = of("traces/top?entity=press&field=span_name")?;
    assert_eq!(
        (counted(&top, "value", "cut"), counted(&top, "value", "drill")),
        (Some(2), Some(1))
    );
    let fields = of("logs/fields?entity=press")?;
    assert_eq!(
        (counted(&fields, "field", "level"), counted(&fields, "field", "flux_id")),
        (Some(8), Some(0)),
        "{fields:?}"
    );
    let fields = of("traces/fields?entity=press")?;
    assert_eq!(counted(&fields, "field", "span_name"), Some(3), "{fields:?}");
    let services = of("services?entity=press")?;
    assert_eq!(
        (&services[0]["service"], &services[0]["spans"], &services[0]["p99_ms"]),
        (&json!("press"), &json!(3), &json!(1.5)),
        "{services:?}"
    );
    assert!(of("dependencies?entity=press")?.is_empty(), "no span has a parent");
    let names = of("metrics/names?entity=press")?;
    assert_eq!(counted(&names, "name", "temp"), Some(3), "{names:?}");
    let keys = of("metrics/temp/labels?entity=press")?;
    assert_eq!(
        (&keys[0]["key"], &keys[0]["values"]),
        (&json!("zone"), &json!(2)),
        "{keys:?}"
    );
    let values = of("metrics/temp/labels/zone?entity=press")?;
    assert_eq!(
        (counted(&values, "value", "a"), counted(&values, "value", "b")),
        (Some(2), Some(1))
    );

    let document = api.get("/api/v1/openapi.json")?.json;
    assert_eq!(document["openapi"].as_str().map(|version| &version[..4]), Some("3.1."));
    Ok(())
}

/// The messages of the generator, once all are archived.
fn archived(mixer: &TestMixer) -> Result<Vec<Map<String, Value>>, Failure> {
    eventually("the messages in the archive", SOON, || {
        let path = "/api/v1/telemetry/messages?src_gear_id=numbers&limit=1000&order=asc";
        let rows = mixer.api.rows(path).ok()?;
        (rows.len() == 30).then_some(rows)
    })
}

#[test]
fn messages_are_listed_and_found_by_their_signal_over_http_and_by_the_command() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(SCENARIO)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let all = archived(&mixer)?;
    let flux = all[7]["flux_id"].as_str().ok_or("no signal")?;
    let one = mixer.api.rows(&format!("/api/v1/telemetry/messages/{flux}"))?;
    assert_eq!(one, [all[7].clone()]);
    let unknown = "01a2055c-93cf-7e3b-91a2-4045f85d9bbf";
    assert!(
        mixer
            .api
            .rows(&format!("/api/v1/telemetry/messages/{unknown}"))?
            .is_empty()
    );

    let now = Timestamp::from(std::time::SystemTime::now());
    let desk = Desk { mixer, now };
    let printed = desk.answer(&["messages", "--from", "numbers", "--limit", "1000", "--output", "ndjson"])?;
    assert_eq!(printed.lines().count(), 30);
    for (flag, id, window) in [
        ("--flux-id", unknown, &[][..]),
        ("--trace-id", "0af7651916cd43dd8448eb211c80319c", &[][..]),
        ("--flux-id", flux, &["--until", "2001-01-01T00:00:00Z"][..]),
    ] {
        let none = desk.ask(&[&["messages", flag, id, "--output", "json"], window].concat())?;
        assert_eq!((none.code, none.out.trim()), (Some(1), "[]"), "{flag}: {}", none.err);
        assert!(none.err.contains(id), "{}", none.err);
    }
    let none = desk.ask(&["messages", "--from", "nobody"])?;
    assert_eq!(none.code, Some(0), "nothing was asked for by id: {}", none.err);
    let printed = desk.answer(&["messages", "--flux-id", flux, "--output", "json"])?;
    let rows = crate::cli::json_rows(&printed)?;
    assert_eq!(
        (rows.len(), rows[0]["src_gear_id"].as_str()),
        (1, Some("numbers")),
        "{printed}"
    );
    // The same rows by SQL.
    let printed = desk.answer(&[
        "sql",
        "--output",
        "csv",
        "select count(*) from messages where msg_type = 'out'",
    ])?;
    assert_eq!(printed.lines().last(), Some("30"));
    Ok(())
}
