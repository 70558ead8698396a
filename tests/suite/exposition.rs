//! `/metrics` as scrapers read it: the Prometheus text format 0.0.4 by a strict reader with the naming rules of
//! `promtool check metrics`, and OpenMetrics 1.0.0 where it is asked for.

use std::collections::BTreeSet;

use harness::{Failure, TestRack, eventually};

use crate::cli::SOON;
use crate::first_light::mixer_with;

/// A guaranteed wire: its backlog is labelled, like what its Rack sent.
const SCENARIO: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 50, count: 30, seed: 7 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in, lane: guaranteed }
";

/// One metric family, as its two comment lines say.
#[derive(Debug)]
struct MetricFamily<'a> {
    name: &'a str,
    kind: &'a str,
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Names that `promtool check metrics` complains of.
fn naming_fault(family: &MetricFamily<'_>) -> Option<&'static str> {
    const UNITS: [&str; 16] = [
        "ms", "us", "ns", "sec", "secs", "min", "mins", "minutes", "hours", "days", "kb", "mb", "gb", "kib", "mib",
        "percent",
    ];
    let words: BTreeSet<&str> = family.name.split('_').collect();
    let reserved = ["_total", "_sum", "_count", "_bucket", "_info", "_created"];
    if !is_name(family.name) {
        Some("no name in snake case")
    } else if family.kind == "counter" && !family.name.ends_with("_total") {
        Some("a counter without _total")
    } else if family.kind != "counter" && reserved.iter().any(|suffix| family.name.ends_with(suffix)) {
        Some("a reserved suffix")
    } else if UNITS.iter().any(|unit| words.contains(unit)) {
        Some("no base unit")
    } else if words.contains(family.kind) {
        Some("its type in its name")
    } else {
        None
    }
}

/// The labels of a sample and what stands behind them.
fn labels(text: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let Some(mut rest) = text.strip_prefix('{') else {
        return Some((Vec::new(), text));
    };
    let mut all = Vec::new();
    loop {
        let (name, quoted) = rest.split_once("=\"")?;
        let mut is_escaped = false;
        let end = quoted.find(|c: char| {
            let was_escaped = std::mem::take(&mut is_escaped);
            is_escaped = c == '\\' && !was_escaped;
            c == '"' && !was_escaped
        })?;
        all.push((name, &quoted[..end]));
        rest = &quoted[end + 1..];
        if let Some(behind) = rest.strip_prefix('}') {
            return all.iter().all(|(name, _)| is_name(name)).then_some((all, behind));
        }
        rest = rest.strip_prefix(',')?;
    }
}

/// One sample of a family: what tells it from others.
#[allow(clippy::type_complexity, reason = "a name and pairs")]
fn sample<'a>(line: &'a str, family: &MetricFamily<'_>) -> Result<(&'a str, Vec<(&'a str, &'a str)>), String> {
    let fault = |what: &str| format!("{what}: {line}");
    let at = line.find(['{', ' ']).ok_or_else(|| fault("a sample without a value"))?;
    let (name, rest) = line.split_at(at);
    let suffix = name
        .strip_prefix(family.name)
        .ok_or_else(|| fault("a sample of another family"))?;
    let is_part = if family.kind == "histogram" {
        ["_bucket", "_sum", "_count"].contains(&suffix)
    } else {
        suffix.is_empty()
    };
    let (labels, value) = labels(rest).ok_or_else(|| fault("no labels"))?;
    let value = value.strip_prefix(' ').and_then(|value| value.parse::<f64>().ok());
    match value {
        Some(value) if is_part && value >= 0.0 => Ok((name, labels)),
        _ => Err(fault("no sample of its family")),
    }
}

/// Every family of a text in the format 0.0.4; an error if one line of it is not as the format and the naming rules have it.
fn families(text: &str) -> Result<Vec<MetricFamily<'_>>, String> {
    let mut found: Vec<MetricFamily<'_>> = Vec::new();
    let mut known = BTreeSet::new();
    let mut lines = text.strip_suffix('\n').ok_or("no end of a line")?.split('\n');
    while let Some(line) = lines.next() {
        if let Some(documented) = line.strip_prefix("# HELP ") {
            let (name, help) = documented.split_once(' ').ok_or_else(|| format!("no help: {line}"))?;
            let typed = lines.next().and_then(|next| next.strip_prefix("# TYPE "));
            let (typed, kind) = typed
                .and_then(|typed| typed.split_once(' '))
                .ok_or_else(|| format!("no type of {name}"))?;
            let family = MetricFamily { name, kind };
            if typed != name || help.is_empty() || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(format!("{line} is followed by the type {kind} of {typed}"));
            }
            if found.iter().any(|other| other.name == name) {
                return Err(format!("{name} comes twice"));
            }
            if let Some(fault) = naming_fault(&family) {
                return Err(format!("{name}: {fault}"));
            }
            found.push(family);
        } else {
            let family = found.last().ok_or_else(|| format!("of no family: {line}"))?;
            if !known.insert(sample(line, family)?) {
                return Err(format!("twice: {line}"));
            }
        }
    }
    Ok(found)
}

#[test]
fn scrapers_get_the_text_format_that_they_ask_for() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(SCENARIO)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let plain = eventually("a backlog by its wire", SOON, || {
        let answer = mixer.api.get("/metrics").ok()?;
        answer
            .text
            .contains("\nplatform_wire_waiting_bytes{wire=\"")
            .then_some(answer)
    })?;
    assert_eq!(plain.content_type, "text/plain; version=0.0.4; charset=utf-8");
    let found = families(&plain.text)?;
    let of = |kind: &str| -> BTreeSet<&str> {
        let those = found.iter().filter(|family| family.kind == kind);
        those.map(|family| family.name).collect()
    };
    assert!(of("counter").contains("platform_rack_messages_total"), "{found:?}");
    assert!(of("gauge").contains("platform_wire_waiting_bytes"), "{found:?}");
    assert_eq!(
        of("histogram"),
        BTreeSet::from(["platform_http_server_request_duration_seconds"])
    );
    let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let open = mixer.api.get_as("/metrics", prometheus)?;
    assert_eq!(
        open.content_type,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(open.text.ends_with("\n# EOF\n"), "{}", open.text);
    assert!(
        open.text.contains("# TYPE platform_rack_messages counter\n"),
        "{}",
        open.text
    );
    assert!(families(&open.text).is_err(), "OpenMetrics is another format");
    let plain = mixer
        .api
        .get_as("/metrics", "application/openmetrics-text;q=0.4, text/plain;q=0.5")?;
    assert_eq!(families(&plain.text)?.len(), found.len());
    Ok(())
}

#[test]
fn the_reader_of_the_text_format_is_strict() {
    let good = "# HELP a_total A\n# TYPE a_total counter\na_total{b=\"c \\\" # \\\\\",d=\"}\"} 1\na_total 2\n# HELP e E\n# TYPE e gauge\n";
    assert_eq!(families(good).map(|found| found.len()), Ok(2));
    for (bad, why) in [
        ("# TYPE a_total counter\na_total 1\n", "of no family"),
        ("# HELP a_total A\na_total 1\n", "no type"),
        ("# HELP a_total\n# TYPE a_total counter\na_total 1\n", "no help"),
        ("# HELP a A\n# TYPE a counter\na_total 1\n", "a counter without _total"),
        ("# HELP a_count A\n# TYPE a_count gauge\n", "a reserved suffix"),
        ("# HELP aB A\n# TYPE aB gauge\n", "snake case"),
        ("# HELP a_ms A\n# TYPE a_ms gauge\n", "no base unit"),
        ("# HELP a_gauge A\n# TYPE a_gauge gauge\n", "its type"),
        ("# HELP a A\n# TYPE a gauge\nab 1\n", "no sample"),
        ("# HELP a A\n# TYPE a gauge\na 1 # {} 1\n", "no sample"),
        ("# HELP a A\n# TYPE a gauge\na{b=\"c} 1\n", "no labels"),
        ("# HELP a A\n# TYPE a gauge\na{b=\"c\"} 1\na{b=\"c\"} 2\n", "twice"),
        ("# HELP a A\n# TYPE a gauge\na 1\n# EOF\n", "another family"),
    ] {
        let said = families(bad).expect_err(bad);
        assert!(said.contains(why), "{bad}: {said}");
    }
}
