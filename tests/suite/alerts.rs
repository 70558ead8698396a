//! The alerts of `deploy/prometheus` and the panels of Prometheus in `deploy/grafana`: every metric that they name exists, and every alert has its
//! part of `docs/operate/alerts.md`. What their expressions find is tested by `promtool` (`scripts/rules-test.sh`).

use std::collections::BTreeSet;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, eventually, free_address};
use serde_json::{Value, json};

use crate::readme::{page, project};

const SOON: Duration = Duration::from_secs(60);

/// An alert, as its lines have it.
#[derive(Debug, Default)]
struct AlertRule {
    name: String,
    expr: String,
    runbook: String,
}

/// The alerts of `deploy/prometheus/rules.yml`, of which each line has one value.
fn alerts() -> Result<Vec<AlertRule>, Failure> {
    let text = std::fs::read_to_string(project().join("deploy/prometheus/rules.yml"))?;
    let mut alerts: Vec<AlertRule> = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push(AlertRule {
                name: name.to_owned(),
                ..AlertRule::default()
            });
        }
        let Some(alert) = alerts.last_mut() else {
            continue;
        };
        if let Some(expr) = line.strip_prefix("expr: ") {
            expr.trim_matches('\'').clone_into(&mut alert.expr);
        } else if let Some(runbook) = line.strip_prefix("runbook: ") {
            runbook.clone_into(&mut alert.runbook);
        }
    }
    Ok(alerts)
}

/// The expressions of the panels of Prometheus, and of its variables.
fn expressions_of_panels() -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(project().join("deploy/grafana/dashboards"))? {
        let dashboard: Value = serde_json::from_slice(&std::fs::read(entry?.path())?)?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let targets = list(&dashboard["panels"])
            .into_iter()
            .flat_map(|panel| list(&panel["targets"]));
        let of_panels = targets.filter_map(|target| Some(target["expr"].as_str()?.to_owned()));
        let variables = list(&dashboard["templating"]["list"]);
        let of_variables = variables
            .iter()
            .filter(|variable| variable["datasource"]["type"] == "prometheus")
            .filter_map(|variable| Some(variable["query"].as_str()?.to_owned()));
        found.extend(of_panels.chain(of_variables));
    }
    Ok(found)
}

/// The metrics of ours that an expression names.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c: char| !is_of_name(c));
    words.filter(|word| word.starts_with("platform_")).collect()
}

/// The samples that the families of an exposition have, by their types.
fn samples_of(exposition: &str) -> BTreeSet<String> {
    let families = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let samples = families
        .filter_map(|family| family.split_once(' '))
        .flat_map(|(name, kind)| {
            let suffixes: &[&str] = if kind == "histogram" {
                &["_bucket", "_sum", "_count"]
            } else {
                &[""]
            };
            suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
        });
    samples.collect()
}

/// The metrics of a set that only some Mixers have, as its declaration says.
fn declared(file: &str, prefix: &str) -> Result<BTreeSet<String>, Failure> {
    let text = std::fs::read_to_string(project().join(file))?;
    let begin = format!("as \"{prefix}\";");
    let (_, set) = text
        .split_once(&begin)
        .ok_or_else(|| format!("{file} declares no {prefix}"))?;
    let set = set.split("metric_set!").next().unwrap_or_default();
    let metrics = set.lines().map(str::trim).filter_map(|line| {
        let (kind, name) = line.strip_suffix(',')?.split_once(' ')?;
        match kind {
            "Counter" => Some(format!("platform_{prefix}_{name}_total")),
            "Gauge" => Some(format!("platform_{prefix}_{name}")),
            _ => None,
        }
    });
    Ok(metrics.collect())
}

/// Those of these expressions that nobody exposes.
fn missing<'e>(known: &BTreeSet<String>, expressions: impl IntoIterator<Item = &'e str>) -> BTreeSet<&'e str> {
    let named = expressions.into_iter().flat_map(metrics_in);
    named.filter(|name| !known.contains(*name)).collect()
}

#[test]
fn every_metric_of_alerts_and_dashboards_is_one_of_a_mixer() -> Result<(), Failure> {
    // A Mixer that exports has the metrics of the export; nobody answers there.
    let collector = format!("\"http://{}\"", free_address()?);
    let keys = [
        ("observability.otlp.forward", "true"),
        ("observability.otlp.endpoint_http", collector.as_str()),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let brief = json!({ "name": "brief", "roles": ["monitor"], "expires_in": "1h" });
    let long = json!({ "name": "long", "roles": ["monitor"], "expires_in": "30d" });
    for token in [&brief, &long, &json!({ "name": "endless", "roles": ["monitor"] })] {
        let made = mixer.api.post("/api/v1/tokens", token)?;
        assert!((200..300).contains(&made.status), "{}", made.text);
    }
    let text = eventually("the spool of the Rack", SOON, || {
        let text = mixer.api.get("/metrics").ok()?.text;
        text.contains("\nplatform_rack_spool_bytes{rack=\"rack-a\"} ")
            .then_some(text)
    })?;
    for line in [
        "platform_ready{check=\"bus\"} 1",
        "platform_ready{check=\"wal\"} 1",
        "platform_tokens_expiring 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }

    let mut known = samples_of(&text);
    known.extend(declared("engine/src/stats.rs", "object_store")?);
    // Only a Mixer with a certificate has it.
    known.insert("platform_api_certificate_expires_seconds".to_owned());
    let (alerts, panels) = (alerts()?, expressions_of_panels()?);
    let expressions: Vec<&str> = alerts
        .iter()
        .map(|alert| alert.expr.as_str())
        .chain(panels.iter().map(String::as_str))
        .collect();
    assert!(
        alerts.len() > 30 && panels.len() > 30,
        "{} {}",
        alerts.len(),
        panels.len()
    );
    assert_eq!(missing(&known, expressions.iter().copied()), BTreeSet::new());
    // The control: a metric that nobody has is found.
    let wrong = "rate(platform_engine_rows_total[5m]) / platform_ready";
    assert_eq!(missing(&known, [wrong]), BTreeSet::from(["platform_engine_rows_total"]));
    assert!(known.contains("platform_object_store_failures_total"), "{known:?}");
    Ok(())
}

#[test]
fn every_alert_says_where_its_runbook_is_and_every_runbook_has_an_alert() -> Result<(), Failure> {
    let alerts = alerts()?;
    let page = page("operate/alerts.md")?;
    let headings: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names.len(), alerts.len(), "two alerts have one name");
    assert_eq!(headings, names);
    for alert in &alerts {
        assert!(!alert.expr.is_empty(), "{alert:?}");
        let runbook = format!("docs/operate/alerts.md#{}", alert.name.to_lowercase());
        assert_eq!(alert.runbook, runbook);
    }
    Ok(())
}

/// The alternatives of the pattern behind the beginning of a matcher.
fn alternatives<'e>(alerts: &'e [AlertRule], alert: &str, matcher: &str) -> Result<Vec<&'e str>, Failure> {
    let found = alerts
        .iter()
        .find(|one| one.name == alert)
        .ok_or("there is no such alert")?;
    let (_, pattern) = found.expr.split_once(matcher).ok_or("it has no such matcher")?;
    let (pattern, _) = pattern.split_once('"').ok_or("the pattern has no end")?;
    Ok(pattern.split('|').collect())
}

/// Whether an alternative, a text or its beginning with `.*` behind it, is one for this text.
fn fits(alternative: &str, text: &str) -> bool {
    match alternative.strip_suffix(".*") {
        Some(begin) => text.starts_with(begin),
        None => alternative == text,
    }
}

#[test]
fn the_alert_of_refused_rows_asks_for_all_routes_that_take_rows_and_for_no_other() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let document = mixer.api.get("/api/v1/openapi.json")?.json;
    let (mut taking, mut others) = (BTreeSet::new(), BTreeSet::new());
    for (path, operations) in document["paths"].as_object().ok_or("no paths")? {
        let operations = operations.as_object().ok_or("no operations")?.values();
        let of_senders = operations.filter(|operation| {
            let roles = operation["x-roles"].as_array();
            roles.is_some_and(|roles| roles.contains(&json!("ingester")))
        });
        let of_senders: Vec<&Value> = of_senders.collect();
        // What senders only ask for may be among them or not.
        if of_senders.iter().any(|operation| operation["requestBody"].is_object()) {
            taking.insert(path.as_str());
        } else if of_senders.is_empty() {
            others.insert(path.as_str());
        }
    }
    assert!(
        taking.contains("/v1/logs") && others.contains("/api/v1/sql"),
        "{taking:?} {others:?}"
    );

    let alerts = alerts()?;
    let routes = alternatives(&alerts, "PlatformIngestRefusing", "http_route=~\"")?;
    let is_asked = |path: &&str| routes.iter().any(|route| fits(route, path));
    let missed: Vec<&str> = taking.iter().copied().filter(|path| !is_asked(path)).collect();
    let foreign: Vec<&str> = others.iter().copied().filter(is_asked).collect();
    let idle = routes
        .iter()
        .filter(|route| !taking.iter().any(|path| fits(route, path)));
    let idle: Vec<&&str> = idle.collect();
    assert!(
        missed.is_empty() && foreign.is_empty() && idle.is_empty(),
        "missed {missed:?}, foreign {foreign:?}, of no route {idle:?}"
    );
    // The control: a route of another name is none of them.
    assert!(!is_asked(&"/v2/logs"));
    Ok(())
}

#[test]
fn the_alert_of_restarts_names_the_containers_of_the_chart() -> Result<(), Failure> {
    let mut chart = String::new();
    for entry in std::fs::read_dir(project().join("deploy/helm/platform/templates"))? {
        chart.push_str(&std::fs::read_to_string(entry?.path())?);
    }
    let alerts = alerts()?;
    let containers = alternatives(&alerts, "PlatformWatchdogRestarts", "container=~\"")?;
    assert_eq!(containers.len(), 2, "{containers:?}");
    for container in containers {
        let lines = chart.lines().map(|line| line.trim_start().trim_start_matches("- "));
        let named = lines.filter(|line| *line == format!("name: {container}")).count();
        assert_eq!(named, 1, "{container}");
    }
    Ok(())
}
