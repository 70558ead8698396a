//! What happens to Racks and scenarios, in the audit log, in the counters and on the command line.

use std::collections::BTreeSet;

use super::*;

const SCENARIO: &str = "meta: { name: demo, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                        - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1 } }\n";

fn post(mixer: &TestMixer, path: &str) -> Result<(), Failure> {
    let answer = mixer.api.post(path, &json!({}))?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!("POST {path}: {status} {}", answer.text).into()),
    }
}

/// What the log has, the oldest first: kind, from, to.
fn told(mixer: &TestMixer, query: &str) -> Result<Vec<(String, String, String)>, Failure> {
    let mut rows = mixer.api.rows(&format!("/api/v1/audit?limit=1000{query}"))?;
    rows.reverse();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Ok(rows
        .iter()
        .map(|row| (text(&row["kind"]), text(&row["from"]), text(&row["to"])))
        .collect())
}

fn has(mixer: &TestMixer, kind: &str) -> Result<(), Failure> {
    eventually(&format!("{kind} in the audit log"), SOON, || {
        let rows = mixer.api.rows(&format!("/api/v1/audit?kind={kind}")).ok()?;
        (!rows.is_empty()).then_some(())
    })
}

#[test]
fn every_transition_of_a_rack_is_in_the_audit_log_with_who_did_it_and_counted_and_survives_a_kill()
-> Result<(), Failure> {
    let mut mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.spawn()?;
    has(&mixer, "rack_pending")?;
    post(&mixer, "/api/v1/racks/rack-a/approve")?;
    has(&mixer, "rack_adopted")?;
    post(&mixer, "/api/v1/racks/rack-a/suspend")?;
    post(&mixer, "/api/v1/racks/rack-a/suspend")?;
    post(&mixer, "/api/v1/racks/rack-a/resume")?;
    rack.kill9()?;
    has(&mixer, "rack_offline")?;
    rack.spawn()?;
    has(&mixer, "rack_online")?;
    post(&mixer, "/api/v1/racks/rack-a/remove")?;
    let expected = [
        ("rack_pending", "", "pending"),
        ("rack_approved", "pending", "active"),
        ("rack_adopted", "", ""),
        ("rack_suspended", "active", "suspended"),
        ("rack_resumed", "suspended", "active"),
        ("rack_offline", "active", "offline"),
        ("rack_online", "offline", "active"),
        ("rack_removed", "active", "removed"),
    ];
    let expected = expected.map(|(kind, from, to)| (kind.to_owned(), from.to_owned(), to.to_owned()));
    assert_eq!(
        told(&mixer, "&rack=rack-a")?,
        expected,
        "what changes nothing is not told"
    );

    let rows = mixer.api.rows("/api/v1/audit")?;
    let by = |kind: &str| rows.iter().find(|row| row["kind"] == kind).map(|row| row["by"].clone());
    assert_eq!(by("rack_removed"), Some(json!(harness::local_caller())));
    assert_eq!(by("rack_pending"), Some(json!("rack rack-a")));
    assert_eq!(by("rack_offline"), Some(json!("mixer")));
    let metrics = mixer.api.get("/metrics")?.text;
    for (from, to, count) in [
        ("new", "pending", 1),
        ("pending", "active", 1),
        ("active", "suspended", 1),
        ("active", "offline", 1),
        ("offline", "active", 1),
        ("active", "removed", 1),
        ("suspended", "removed", 0),
    ] {
        let line = format!("platform_rack_transitions_total{{from=\"{from}\",to=\"{to}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    assert!(metrics.contains("platform_racks{state=\"removed\"} 1\n"), "{metrics}");

    mixer.kill9()?;
    mixer.restart()?;
    assert_eq!(told(&mixer, "&rack=rack-a")?, expected, "it is on disk");
    Ok(())
}

#[test]
fn scenarios_and_log_levels_are_in_the_audit_log_and_the_command_shows_it_page_by_page() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let yaml = [("content-type", "application/yaml")];
    for version in ["'1'", "'2'"] {
        let text = SCENARIO.replace("'1'", version);
        let stored = mixer.api.send("/api/v1/scenarios", &yaml, text.as_bytes())?;
        assert_eq!(stored.status, 200, "{}", stored.text);
    }
    for path in ["demo:1/activate?wait=0s", "demo:2/activate?wait=0s", "rollback?wait=0s"] {
        post(&mixer, &format!("/api/v1/scenarios/{path}"))?;
    }
    let level = mixer
        .api
        .post("/api/v1/racks/rack-a/log-level", &json!({ "level": "debug" }))?;
    assert_eq!(level.status, 200, "{}", level.text);

    let platform = |args: &[&str]| {
        let args = [&["audit", "--api-url", &mixer.api.base], args].concat();
        run(&binary("platform")?, &args, rack.path(), &[])
    };
    let shown = platform(&["-o", "json"])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&shown.out)?;
    let kinds: Vec<_> = rows.iter().rev().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "rack_adopted",
            "scenario_imported",
            "scenario_imported",
            "scenario_activated",
            "scenario_activated",
            "scenario_rolled_back",
            "rack_log_level"
        ]
    );
    assert_eq!((&rows[0]["rack"], &rows[0]["to"]), (&json!("rack-a"), &json!("debug")));
    assert_eq!((&rows[1]["from"], &rows[1]["to"]), (&json!("demo:2"), &json!("demo:1")));
    assert_eq!(rows[1]["by"], harness::local_caller());

    let some = platform(&["--kind", "scenario_activated", "--limit", "1", "-o", "json"])?;
    let one: Vec<serde_json::Value> = serde_json::from_str(&some.out)?;
    assert_eq!((one.len(), &one[0]["to"]), (1, &json!("demo:2")));
    assert!(some.err.contains("more rows"), "{}", some.err);
    let none = platform(&["--until", "2001-01-01T00:00:00Z"])?;
    assert!(none.err.contains("no such events"), "{}", none.err);

    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let (page, next) = mixer.api.page(&format!("/api/v1/audit?limit=2{cursor}"))?;
        ids.extend(page.iter().map(|row| row["id"].as_u64().unwrap()));
        match next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len());
    assert_eq!(ids, [7, 6, 5, 4, 3, 2, 1]);
    for (query, parameter) in [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("cursor=x", "cursor"),
        ("since=soon", "since"),
        ("since=1h&until=2h", "until"),
        ("who=me", "who"),
    ] {
        let bad = mixer.api.get(&format!("/api/v1/audit?{query}"))?;
        assert_eq!(bad.status, 400, "{query}");
        assert!(bad.text.contains(parameter), "{query}: {}", bad.text);
    }
    Ok(())
}
