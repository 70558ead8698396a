//! The dashboards of `deploy/grafana`: every statement gives rows, with its macros and variables expanded as Grafana does.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use harness::{Failure, TestMixer, eventually};
use model::Timestamp;
use serde_json::{Value, json};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{SOON, connect, mixer, run};
use crate::readme::project;

/// Those that ask the Mixer itself; the one of Prometheus is tested with the alerts.
const DASHBOARDS: [&str; 3] = ["fleet", "logs", "services"];
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// What `$__timeGroup` becomes, by the switch `timescaledb` of the data source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeGrouping {
    Timescale,
    Epoch,
}

/// What a statement is sent with.
struct PanelContext {
    since: Timestamp,
    until: Timestamp,
    grouping: TimeGrouping,
    /// The values of variables, of which all are chosen.
    variables: BTreeMap<String, String>,
}

impl PanelContext {
    /// A macro ends at the first closing parenthesis.
    fn expanded(&self, sql: &str) -> Result<String, Failure> {
        let sql = sql.replace("$__interval", "1m");
        let (mut expanded, mut rest) = (String::new(), sql.as_str());
        while let Some((before, behind)) = rest.split_once("$__") {
            let (name, behind) = behind.split_once('(').ok_or("a macro without arguments")?;
            let (args, behind) = behind.split_once(')').ok_or("a macro without an end")?;
            let args: Vec<&str> = args.split(',').map(str::trim).collect();
            expanded.push_str(before);
            expanded.push_str(&self.macro_text(name, &args)?);
            rest = behind;
        }
        expanded.push_str(rest);
        for (name, values) in &self.variables {
            expanded = expanded.replace(&format!("${name}"), values);
        }
        assert!(!expanded.contains('$'), "{expanded} has an unknown variable");
        Ok(expanded)
    }

    fn macro_text(&self, name: &str, args: &[&str]) -> Result<String, Failure> {
        Ok(match (name, args) {
            ("timeFilter", [column]) => format!("{column} BETWEEN '{}' AND '{}'", self.since, self.until),
            ("timeGroup", [column, "1m"]) => match self.grouping {
                TimeGrouping::Timescale => format!("time_bucket('60.000s',{column})"),
                TimeGrouping::Epoch => format!("floor(extract(epoch from {column})/60)*60"),
            },
            ("timeGroupAlias", args) => format!("{} AS \"time\"", self.macro_text("timeGroup", args)?),
            _ => return Err(format!("the macro {name} of {args:?} is not known here").into()),
        })
    }

    /// A statement's columns and rows; the extended protocol gives as many.
    async fn rows(&self, client: &Client, sql: &str) -> Result<(Vec<String>, Vec<Vec<String>>), Failure> {
        let sql = self.expanded(sql)?;
        let failed = |error: tokio_postgres::Error| format!("{sql}: {error:?}");
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        for message in client.simple_query(&sql).await.map_err(failed)? {
            let SimpleQueryMessage::Row(row) = message else {
                continue;
            };
            columns = row.columns().iter().map(|column| column.name().to_owned()).collect();
            rows.push(
                (0..row.len())
                    .map(|at| row.get(at).unwrap_or("null").to_owned())
                    .collect(),
            );
        }
        let extended = client.query(sql.as_str(), &[]).await.map_err(failed)?;
        assert_eq!(extended.len(), rows.len(), "{sql}");
        Ok((columns, rows))
    }
}

fn store(mixer: &TestMixer, table: &str, rows: &[Value]) -> Result<(), Failure> {
    let body: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let headers = [("Content-Type", "application/x-ndjson")];
    eventually("rows that are stored", SOON, || {
        let answer = mixer
            .api
            .send(&format!("/api/v1/ingest/{table}"), &headers, body.as_bytes())
            .ok()?;
        (answer.status == 200).then_some(())
    })
}

/// Thirty rows of each kind over five minutes before a moment.
fn store_rows(mixer: &TestMixer, until: Timestamp) -> Result<(), Failure> {
    let ts = |number: u64| until.minus(Duration::from_secs(10 * number)).to_string();
    let log = |number: u64| {
        let level = match number % 3 {
            0 => "info",
            1 => "warn",
            _ => "error",
        };
        let message = format!("it's {}", number % 2);
        json!({ "ts": ts(number), "level": level, "message": message, "attributes": { "trace_id": TRACE } })
    };
    let span = |number: u64| {
        json!({
            "ts": ts(number), "trace_id": TRACE, "span_id": format!("{:016x}", number + 1), "span_name": "buy",
            "duration_ms": 2.5, "status": if number.is_multiple_of(3) { "error" } else { "ok" },
            "attributes": { "resource.service.name": "it's a shop" },
        })
    };
    let gauge = |number: u64| json!({ "ts": ts(number), "name": "load", "type": "gauge", "value": 4 });
    let histogram = |number: u64| {
        json!({
            "ts": ts(number), "name": "latency", "type": "histogram", "value": 30,
            "labels": { "otel.count": 4, "otel.bounds": [5, 10], "otel.buckets": [0, 4, 0] },
        })
    };
    let of_rack = |number: u64| {
        let metric = |name: &str, kind: &str, value: u64, labels: Value| {
            let ts = ts(number);
            json!({ "ts": ts, "name": name, "type": kind, "value": value, "labels": labels })
        };
        let share = |name: &str, value: f64, (key, part): (&str, &str)| {
            let ts = ts(number);
            json!({ "ts": ts, "name": name, "type": "gauge", "value": value, "labels": { key: part } })
        };
        let gear = json!({ "gear.id": "sink" });
        [
            metric("rack.spool.waiting", "gauge", 4_096, json!({})),
            metric("rack.spool.age", "gauge", 2, json!({})),
            metric(
                "rack.telemetry.dropped",
                "counter",
                100 - number,
                json!({ "place": "spool" }),
            ),
            metric("gear.messages.in", "counter", 1_000 - 10 * number, gear.clone()),
            metric("gear.messages.out", "counter", 500 - number, gear.clone()),
            metric("gear.messages.dropped", "counter", 7, gear.clone()),
            metric("gear.errors", "counter", 9, gear),
            // The panels show the share that is taken, not the average of all shares.
            share("system.cpu.utilization", 0.25, ("cpu.mode", "user")),
            share("system.cpu.utilization", 0.25, ("cpu.mode", "total")),
            share("system.cpu.utilization", 0.75, ("cpu.mode", "idle")),
            share("system.memory.utilization", 0.5, ("system.memory.state", "used")),
            share("system.memory.utilization", 0.125, ("system.memory.state", "free")),
        ]
    };
    store(mixer, "metrics", &(0..30).flat_map(of_rack).collect::<Vec<_>>())?;
    store(mixer, "logs", &(0..30).map(log).collect::<Vec<_>>())?;
    store(mixer, "traces", &(0..30).map(span).collect::<Vec<_>>())?;
    store(
        mixer,
        "metrics",
        &(0..30).map(gauge).chain((0..30).map(histogram)).collect::<Vec<_>>(),
    )
}

fn dashboard(name: &str) -> Result<Value, Failure> {
    let file = project()
        .join("deploy/grafana/dashboards")
        .join(name)
        .with_extension("json");
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The rows of a dashboard's panels by their titles.
async fn panels(
    client: &Client,
    dashboard: &Value,
    context: &mut PanelContext,
) -> Result<BTreeMap<String, Vec<Vec<String>>>, Failure> {
    for variable in list(&dashboard["templating"]["list"]) {
        let (_, rows) = context.rows(client, text(&variable["query"])).await?;
        assert!(!rows.is_empty(), "{variable}");
        let quoted = rows.iter().map(|row| format!("'{}'", row[0].replace('\'', "''")));
        let values = quoted.collect::<Vec<_>>().join(",");
        context.variables.insert(text(&variable["name"]).to_owned(), values);
    }
    let mut panels = BTreeMap::new();
    for panel in list(&dashboard["panels"]) {
        let target = &panel["targets"][0];
        let (columns, rows) = context.rows(client, text(&target["rawSql"])).await?;
        assert!(!rows.is_empty(), "{} has no rows", panel["title"]);
        if target["format"] == "time_series" {
            assert_eq!(columns, ["time", "metric", "value"], "{}", panel["title"]);
        }
        for changed in list(&panel["fieldConfig"]["overrides"]) {
            let column = text(&changed["matcher"]["options"]);
            assert!(
                columns.iter().any(|name| name == column),
                "{} has no {column}",
                panel["title"]
            );
        }
        panels.insert(text(&panel["title"]).to_owned(), rows);
    }
    Ok(panels)
}

#[test]
fn every_statement_of_the_dashboards_gives_rows_as_grafana_sends_it() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let now = Timestamp::from(SystemTime::now());
    store_rows(&mixer, now)?;
    run(async {
        let client = connect(&mixer).await?;
        for grouping in [TimeGrouping::Timescale, TimeGrouping::Epoch] {
            let mut given = BTreeMap::new();
            for name in DASHBOARDS {
                let mut context = PanelContext {
                    since: now.minus(Duration::from_secs(3_600)),
                    until: now,
                    grouping,
                    variables: BTreeMap::new(),
                };
                given.extend(panels(&client, &dashboard(name)?, &mut context).await?);
            }
            assert_eq!(given.len(), 22, "{:?}", given.keys());
            assert_eq!(
                given["Gears"][0][1..],
                ["sink", "290", "29", "0", "0"],
                "{:?}",
                given["Gears"]
            );
            // What a counter grows by between the last row of a minute and the first one of the next is in it.
            let dropped = given["Telemetry that Racks dropped"].iter();
            let dropped = dropped.map(|row| row[2].parse::<f64>());
            assert_eq!(dropped.sum::<Result<f64, _>>()?.to_string(), "29");
            assert_eq!(given["Racks"][0][2..], ["4096", "2"], "{:?}", given["Racks"]);
            for (panel, taken) in [("CPU", "0.25"), ("Memory", "0.5")] {
                let shown = &given[panel];
                assert!(shown.iter().all(|row| row[2] == taken), "{panel}: {shown:?}");
            }
            assert_eq!(given["Log records"], [["30"]]);
            assert_eq!(given["Errors"], [["10"]]);
            let service = &given["Services"][0];
            assert_eq!(service[..5], ["it's a shop", "30", "10", "2.5", "2.5"], "{service:?}");
            let spans = given["Spans"].iter().map(|row| row[2].parse::<u64>());
            assert_eq!(spans.sum::<Result<u64, _>>()?, 30);
            let quantiles = &given["95th percentile of histograms since their start, the greatest of an entity"];
            assert!(quantiles.iter().all(|row| row[2] == "9.75"), "{quantiles:?}");
            // A time as its data source's form has it.
            let is_number = given["Spans"][0][0].parse::<f64>().is_ok();
            assert_eq!(is_number, grouping == TimeGrouping::Epoch);
        }
        Ok(())
    })
}

#[test]
fn dashboards_use_the_data_sources_that_are_provisioned() -> Result<(), Failure> {
    let provisioned = project().join("deploy/grafana/provisioning/datasources/platform.yaml");
    let provisioned = std::fs::read_to_string(provisioned)?;
    let uids: Vec<&str> = provisioned
        .lines()
        .filter_map(|line| line.trim().strip_prefix("uid: "))
        .collect();
    assert_eq!(uids, ["platform", "platform-traces", "platform-prometheus"]);
    let storage = dashboard("storage")?;
    assert!(
        list(&storage["panels"])
            .iter()
            .chain(list(&storage["templating"]["list"]))
            .all(|part| part["datasource"]["uid"] == uids[2])
    );
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        let is_platform = |of: &Value| of["datasource"]["uid"] == uids[0];
        let panels = list(&dashboard["panels"]);
        assert!(
            panels
                .iter()
                .all(|panel| is_platform(panel) && is_platform(&panel["targets"][0]))
        );
        assert!(list(&dashboard["templating"]["list"]).iter().all(is_platform));
        let links = dashboard
            .to_string()
            .matches("\"datasourceUid\":\"platform-traces\"")
            .count();
        assert_eq!(links, usize::from(name != "fleet"), "{name}");
    }
    Ok(())
}
