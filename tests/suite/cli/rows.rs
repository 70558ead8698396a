//! What the query commands print, in each format, and what their filters choose.

use std::time::Duration;

use harness::{Failure, TestMixer, eventually};
use model::Timestamp;
use serde_json::{Value, json};

use super::{Desk, SOON, TRACE, json_rows, publish};

const FLUX: &str = "0198c0de-0000-7000-8000-000000000001";

fn three_logs(desk: &Desk) -> Value {
    json!([
        { "ts": desk.ago(7200), "level": "debug", "message": "two hours old" },
        { "ts": desk.ago(600), "level": "warn", "flux_id": FLUX, "message": "disk, \"almost\" full", "attributes": { "disk": "sda", "free": 7 } },
        { "ts": desk.ago(60), "level": "error", "message": "disk full" },
    ])
}

#[test]
fn logs_are_a_line_per_row_for_people_and_the_rows_of_the_api_for_programs() -> Result<(), Failure> {
    let desk = Desk::open()?;
    desk.seed("logs", "press", &three_logs(&desk))?;
    let mut api = desk.mixer.api.rows("/api/v1/telemetry/logs?entity=press&since=1h")?;
    api.reverse();
    let api = Value::from(api);
    let id = api[0]["entity_id"].as_str().unwrap().to_owned();
    let (early, late) = (desk.ago(600), desk.ago(60));
    let with = |format: &str| desk.answer(&["logs", "--entity", "press", "--since", "1h", "--output", format]);

    assert_eq!(
        with("table")?,
        format!(
            "{early} warn  press disk, \"almost\" full flux_id={FLUX} disk=sda free=7\n{late} error press disk full \n"
        ),
        "oldest first, as people read logs"
    );
    assert_eq!(
        with("csv")?,
        format!(
            "ts,entity_id,entity_name,flux_id,level,message,attributes\n\
             {early},{id},press,{FLUX},warn,\"disk, \"\"almost\"\" full\",\"{{\"\"disk\"\":\"\"sda\"\",\"\"free\"\":7}}\"\n\
             {late},{id},press,,error,disk full,{}\n",
            match &api[1]["attributes"] {
                Value::Null => String::new(),
                other => other.to_string(),
            }
        ),
        "the same order in every format"
    );
    let lines = with("ndjson")?;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(Value::from(lines), api);
    assert_eq!(Value::from(json_rows(&with("json")?)?), api);
    Ok(())
}

#[test]
fn every_row_of_a_window_is_printed_page_by_page_the_oldest_first() -> Result<(), Failure> {
    const ALL: u64 = 11_000;
    let desk = Desk::open()?;
    for first in (0..ALL).step_by(1_000) {
        let row =
            |n: u64| json!({ "ts": desk.ago(20_000 - n), "level": "info", "message": n.to_string(), "attributes": {} });
        let rows: Vec<Value> = (first..first + 1_000).map(row).collect();
        desk.seed("logs", &format!("press-{first}"), &rows.into())?;
    }
    let lines = desk.answer(&["logs", "--all", "-o", "ndjson"])?;
    let rows = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>()?;
    let numbers: Vec<u64> = rows
        .iter()
        .filter_map(|row| row["message"].as_str()?.parse().ok())
        .collect();
    assert_eq!(numbers, (0..ALL).collect::<Vec<_>>());
    let csv = desk.answer(&["logs", "--all", "--since", "1d", "-q", "99", "-o", "csv"])?;
    let wanted = (0..ALL).filter(|n| n.to_string().contains("99")).count();
    assert_eq!(csv.lines().count(), wanted + 1, "and a header");
    Ok(())
}

#[test]
fn every_row_is_printed_by_shorter_pages_where_a_full_one_does_not_fit_the_memory_of_queries() -> Result<(), Failure> {
    const ALL: u64 = 4_000;
    let desk = Desk {
        mixer: TestMixer::with(&[("query.memory_limit_mb", "16")], &[])?,
        now: Timestamp::from(std::time::SystemTime::now()),
    };
    let long = "x".repeat(8_000);
    for first in (0..ALL).step_by(100) {
        let row = |n: u64| json!({ "ts": desk.ago(20_000 - n), "level": "info", "message": format!("{n} {long}") });
        let rows: Vec<Value> = (first..first + 100).map(row).collect();
        desk.seed("logs", &format!("press-{first}"), &rows.into())?;
    }
    let full = desk.mixer.api.get("/api/v1/telemetry/logs?limit=10000")?;
    assert_eq!(full.status, 422, "{:.300}", full.text);
    let lines = desk.answer(&["logs", "--all", "-o", "ndjson"])?;
    let number = |line: &str| -> Option<u64> {
        let row: Value = serde_json::from_str(line).ok()?;
        row["message"].as_str()?.split(' ').next()?.parse().ok()
    };
    let numbers: Vec<u64> = lines.lines().filter_map(number).collect();
    assert_eq!(numbers, (0..ALL).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn filters_of_the_command_choose_what_they_say() -> Result<(), Failure> {
    let desk = Desk::open()?;
    desk.seed("logs", "press", &three_logs(&desk))?;
    let other = json!([{ "ts": desk.ago(30), "level": "info", "message": "of another" }]);
    desk.seed("logs", "lathe", &other)?;
    let since = desk.ago(900);
    let until = desk.ago(300);
    for (args, messages) in [
        (
            vec![],
            vec!["two hours old", "disk, \"almost\" full", "disk full", "of another"],
        ),
        (
            vec!["--since", "1h"],
            vec!["disk, \"almost\" full", "disk full", "of another"],
        ),
        (
            vec!["--since", &since, "--until", &until],
            vec!["disk, \"almost\" full"],
        ),
        (vec!["--min-level", "warn"], vec!["disk, \"almost\" full", "disk full"]),
        (vec!["--level", "debug"], vec!["two hours old"]),
        (vec!["--entity", "lathe"], vec!["of another"]),
        (vec!["-q", "DISK", "--limit", "1"], vec!["disk full"]),
        (vec!["--entity", "nobody"], vec![]),
    ] {
        let all: Vec<&str> = ["logs", "-o", "json"].into_iter().chain(args.iter().copied()).collect();
        let done = desk.ask(&all)?;
        assert_eq!(done.code, Some(0), "{all:?}: {}", done.err);
        let rows = json_rows(&done.out)?;
        let found: Vec<&str> = rows.iter().filter_map(|row| row["message"].as_str()).collect();
        assert_eq!(found, messages, "{all:?}");
        assert_eq!(
            done.err.contains("there are more rows"),
            all.contains(&"--limit"),
            "{}",
            done.err
        );
        assert_eq!(
            done.err.contains("no rows in this window"),
            messages.is_empty(),
            "{}",
            done.err
        );
    }
    Ok(())
}

#[test]
fn metrics_are_points_or_buckets() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let ts = desk.ago(600);
    let point = |name: &str, value: f64| json!({ "ts": ts, "name": name, "type": "gauge", "value": value, "labels": { "zone": "a" } });
    let used =
        json!({ "ts": ts, "name": "used", "type": "gauge", "value": 4_971_347_968.0, "labels": { "otel.unit": "By" } });
    let points = json!([point("temp", 20.5), point("temp", 21.5), point("load", 1.0), used]);
    desk.seed("metrics", "press", &points)?;
    assert_eq!(
        desk.answer(&["metrics", "--name", "load", "--entity", "press"])?,
        format!(
            "TS                           NAME  ENTITY_NAME  TYPE   VALUE  LABELS\n{ts}  load  press        gauge  1.0    zone=a\n"
        )
    );
    let minute = desk.now.minus(Duration::from_secs(600)).to_string();
    let minute = format!("{}:00.000000Z", &minute[..16]);
    let buckets = desk.answer(&["metrics", "--name", "temp", "--interval", "1m", "--group-by", "zone"])?;
    let cells: Vec<Vec<&str>> = buckets.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        cells[0],
        ["TS", "NAME", "LABELS", "TYPE", "SAMPLES", "VALUE"],
        "{buckets}"
    );
    assert_eq!(
        cells[1..],
        [[minute.as_str(), "temp", "zone=a", "gauge", "2", "21.0"]],
        "{buckets}"
    );
    let slip = desk.ask(&["metrics", "--name", "temp", "--interval", "1m", "--group-by", "zoe"])?;
    assert!(slip.err.contains("no point here has the label zoe"), "{}", slip.err);
    for (format, shown) in [("table", "4.6 GiB"), ("csv", "4971347968.0")] {
        let buckets = desk.answer(&["metrics", "--name", "used", "--interval", "1m", "-o", format])?;
        let row = buckets.lines().nth(1).unwrap_or_default();
        assert!(row.ends_with(shown), "{buckets}");
    }
    Ok(())
}

#[test]
fn names_and_labels_of_metrics_and_top_values_of_logs_are_listed_and_a_slip_is_told_the_name() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let point = |name: &str, zone: &str| json!({ "ts": desk.ago(60), "name": name, "type": "gauge", "value": 1.0, "labels": { "zone": zone } });
    let points = json!([point("temp", "a"), point("temp", "b"), point("load", "a")]);
    desk.seed("metrics", "press", &points)?;
    let log = |level: &str| json!({ "ts": desk.ago(60), "level": level, "message": "x" });
    desk.seed("logs", "press", &json!([log("warn"), log("info"), log("warn")]))?;
    for (args, csv) in [
        (
            vec!["metrics", "names", "--entity", "press"],
            "name,type,count\nload,gauge,1\ntemp,gauge,2\n",
        ),
        (
            vec!["metrics", "names", "--label", "zone=b"],
            "name,type,count\ntemp,gauge,1\n",
        ),
        (vec!["metrics", "labels", "temp"], "key,values,count\nzone,2,2\n"),
        (vec!["metrics", "labels", "temp", "zone"], "value,count\na,1\nb,1\n"),
        (
            vec!["logs", "top", "level", "--entity", "press"],
            "value,count\nwarn,2\ninfo,1\n",
        ),
        (
            vec!["logs", "top", "entity_name", "--level", "info"],
            "value,count\npress,1\n",
        ),
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "csv"]).collect();
        assert_eq!(desk.answer(&args)?, csv, "{args:?}");
    }
    let slip = desk.ask(&["metrics", "--name", "tem"])?;
    assert_eq!(slip.code, Some(0), "{}", slip.err);
    assert!(slip.err.contains("did you mean temp?"), "{}", slip.err);
    let filtered = desk.ask(&["metrics", "--name", "temp", "--label", "zone=c"])?;
    assert!(
        filtered.err.contains("no rows in this window") && !filtered.err.contains("did you mean"),
        "{}",
        filtered.err
    );
    let field = desk.ask(&["logs", "top", "levle"])?;
    assert_eq!(field.code, Some(64), "{}", field.err);
    Ok(())
}

fn spans(desk: &Desk) -> Value {
    let span = |id: &str, parent: Option<&str>, name: &str, seconds: u64, ms: f64, status: &str| {
        json!({
            "ts": desk.ago(seconds), "trace_id": TRACE, "span_id": id, "parent_span_id": parent,
            "span_name": name, "duration_ms": ms, "status": status,
        })
    };
    json!([
        span("00000000000000a1", None, "order", 100, 12.5, "ok"),
        span("00000000000000b1", Some("00000000000000a1"), "check", 99, 2.0, "ok"),
        span("00000000000000c1", Some("00000000000000b1"), "stock", 98, 1.0, "error"),
        span("00000000000000b2", Some("00000000000000a1"), "ship", 97, 3.25, "ok"),
        span(
            "00000000000000d1",
            Some("00000000000000ff"),
            "parent lost",
            96,
            0.5,
            "ok"
        ),
    ])
}

#[test]
fn a_trace_is_a_tree_for_people_and_its_spans_for_programs() -> Result<(), Failure> {
    let desk = Desk::open()?;
    desk.seed("traces", "press", &spans(&desk))?;
    let at = |seconds| desk.ago(seconds);
    let tree = desk.answer(&["trace", TRACE])?;
    let (head, lines) = tree.split_once('\n').ok_or("one line only")?;
    assert!(
        head.starts_with(&format!("trace {TRACE} ")) && head.ends_with(" 5 spans"),
        "{head}"
    );
    assert_eq!(
        lines,
        format!(
            "  order 12.500 ms ok press {}\n    check 2.000 ms ok press {}\n      stock 1.000 ms error press {}\n    \
             ship 3.250 ms ok press {}\n  parent lost 0.500 ms ok press {}\n",
            at(100),
            at(99),
            at(98),
            at(97),
            at(96)
        )
    );
    let rows = json_rows(&desk.answer(&["trace", TRACE, "-o", "json"])?)?;
    let names: Vec<&str> = rows.iter().filter_map(|row| row["span_name"].as_str()).collect();
    assert_eq!(names, ["order", "check", "stock", "ship", "parent lost"]);
    let slow = json_rows(&desk.answer(&["traces", "--min-duration-ms", "3", "-o", "json"])?)?;
    assert_eq!(slow.len(), 2, "{slow:?}");
    let failed = desk.answer(&["traces", "--status", "error", "-o", "csv"])?;
    assert!(failed.lines().count() == 2 && failed.contains(",stock,"), "{failed}");
    Ok(())
}

#[test]
fn services_are_listed_with_their_numbers_and_their_calls() -> Result<(), Failure> {
    let desk = Desk::open()?;
    desk.seed("traces", "press", &spans(&desk))?;
    let called = json!([{
        "ts": desk.ago(95), "trace_id": TRACE, "span_id": "00000000000000e1", "parent_span_id": "00000000000000a1",
        "span_name": "book", "duration_ms": 1.0, "status": "error", "attributes": { "resource.service.name": "books" },
    }]);
    desk.seed("traces", "lathe", &called)?;
    let services = json_rows(&desk.answer(&["services", "-o", "json"])?)?;
    let numbers: Vec<_> = services
        .iter()
        .map(|row| ["service", "spans", "errors", "p50_ms"].map(|key| row[key].clone()))
        .collect();
    assert_eq!(
        json!(numbers),
        json!([["books", 1, 1, 1.0], ["press", 5, 1, 2.0]]),
        "{services:?}"
    );
    let calls = desk.answer(&["dependencies"])?;
    let cells: Vec<Vec<&str>> = calls.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        cells,
        [["CALLER", "CALLEE", "CALLS", "ERRORS"], ["press", "books", "1", "1"]],
        "{calls}"
    );
    let spans = json_rows(&desk.answer(&["traces", "--service", "books", "-o", "json"])?)?;
    assert_eq!((spans.len(), &spans[0]["span_name"]), (1, &json!("book")));
    let log = |message: &str, attributes: Value| json!({ "ts": desk.ago(9), "level": "info", "message": message, "attributes": attributes });
    let logs = json!([
        log("of books", json!({ "resource.service.name": "books" })),
        log("of nobody", json!({}))
    ]);
    desk.seed("logs", "lathe", &logs)?;
    for (service, message) in [("books", "of books"), ("lathe", "of nobody")] {
        let logs = json_rows(&desk.answer(&["logs", "--service", service, "-o", "json"])?)?;
        assert_eq!((logs.len(), &logs[0]["message"]), (1, &json!(message)), "{service}");
    }
    let by_attribute = json_rows(&desk.answer(&["logs", "--attr", "resource.service.name=books", "-o", "json"])?)?;
    assert_eq!(by_attribute.len(), 1, "{by_attribute:?}");
    let point = |value: f64, labels: Value| json!({ "ts": desk.ago(9), "name": "load", "type": "gauge", "value": value, "labels": labels });
    let points = json!([
        point(1.0, json!({ "resource.service.name": "books" })),
        point(2.0, json!({}))
    ]);
    desk.seed("metrics", "lathe", &points)?;
    let points = json_rows(&desk.answer(&["metrics", "--name", "load", "--service", "books", "-o", "json"])?)?;
    assert_eq!((points.len(), &points[0]["value"]), (1, &json!(1.0)));
    Ok(())
}

#[test]
fn exemplars_of_a_metric_are_listed_and_lead_to_traces() -> Result<(), Failure> {
    let desk = Desk::open()?;
    desk.seed("traces", "press", &spans(&desk))?;
    let exemplars = json!([{ "value": 7, "trace_id": TRACE, "span_id": "00000000000000a1" }]);
    let point = |name: &str, labels: Value| json!({ "ts": desk.ago(9), "name": name, "type": "counter", "value": 1, "labels": labels });
    let points = json!([
        point(
            "orders/all of 100%",
            json!({ "zone": "a", "otel.exemplars": exemplars })
        ),
        point("orders/all of 100%", json!({ "zone": "b" })),
        point("other", json!({ "otel.exemplars": exemplars })),
    ]);
    desk.seed("metrics", "press", &points)?;
    let exemplars = |more: &[&str]| {
        let named = ["metrics", "--name", "orders/all of 100%", "--exemplars"];
        desk.answer(&[named.as_slice(), more].concat())
    };
    let rows = json_rows(&exemplars(&["-o", "json"])?)?;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = &rows[0];
    assert_eq!(
        (&row["ts"], &row["value"], &row["labels"]),
        (&json!(desk.ago(9)), &json!(7), &json!({ "zone": "a" })),
    );
    let trace = desk.answer(&["trace", row["trace_id"].as_str().unwrap()])?;
    assert!(trace.contains("order") && trace.contains("ship"), "{trace}");
    assert_eq!(exemplars(&["--label", "zone=a", "-o", "csv"])?.lines().count(), 2);
    assert_eq!(json_rows(&exemplars(&["--label", "zone=b", "-o", "json"])?)?.len(), 0);
    let nameless = desk.ask(&["metrics", "--exemplars"])?;
    assert!(
        nameless.code != Some(0) && nameless.err.contains("--name"),
        "{}",
        nameless.err
    );
    Ok(())
}

#[test]
fn dead_letters_are_listed_with_their_reason() -> Result<(), Failure> {
    let desk = Desk::open()?;
    publish(
        &desk.mixer,
        "flux.telemetry.logs.press",
        "application/json",
        "{ not json".to_owned(),
    )?;
    let table = eventually("the dead letter", SOON, || {
        desk.answer(&["dead-letters"])
            .ok()
            .filter(|out| out.lines().count() == 2)
    })?;
    assert!(table.starts_with("TS ") && table.contains("REASON"), "{table}");
    let row = &json_rows(&desk.answer(&["dead-letters", "-o", "json"])?)?[0];
    assert_eq!(
        (&row["subject"], &row["content_type"]),
        (&json!("flux.telemetry.logs.press"), &json!("application/json"))
    );
    let reason = row["reason"].as_str().unwrap();
    assert!(!reason.is_empty() && table.contains(reason), "{table}");
    Ok(())
}
