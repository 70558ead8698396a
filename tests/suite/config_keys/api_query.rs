//! `[query]` and the switches of what is collected and reported.

use std::sync::atomic::{AtomicBool, Ordering};

use harness::process::memory_of;
use harness::{Api, Failure, Random, TestMixer, TestRack, eventually};
use model::Timestamp;
use serde_json::{Value, json};

use super::{SOON, scenario, text_of};

/// Some batches of long log lines, 1.6 MB each, stored.
fn fill(mixer: &TestMixer, batches: u64) -> Result<(), Failure> {
    fill_with(mixer, batches, || "x".repeat(8_000))
}

fn fill_with(mixer: &TestMixer, batches: u64, mut text: impl FnMut() -> String) -> Result<(), Failure> {
    let bus = mixer.bus()?;
    let now = Timestamp::from(std::time::SystemTime::now()).to_string();
    for batch in 0..batches {
        let mut line = |row| json!({ "ts": now, "level": "info", "message": format!("{batch} {row} {}", text()) });
        let lines: Vec<Value> = (0..200).map(&mut line).collect();
        bus.send("logs", "script", &Value::from(lines))?;
    }
    eventually("every row", SOON, || {
        let rows = mixer.api.metric("platform_engine_appended_rows_total")?;
        (rows >= (batches * 200) as f64).then_some(())
    })
}

#[test]
fn a_query_ends_at_its_timeout() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("query.timeout", "\"1ms\"")], &[])?;
    fill(&mixer, 2)?;
    let answer = eventually("a query that is ended", SOON, || {
        let answer = mixer.api.get("/api/v1/telemetry/logs?q=nowhere").ok()?;
        (answer.status == 504).then_some(answer)
    })?;
    assert_eq!(answer.json["code"], "query_timeout", "{}", answer.text);
    Ok(())
}

/// Reads every row, again and again, until somebody's answer is that others run; that answer if it is ours.
fn ask_until_busy(api: &Api, over: &AtomicBool) -> Option<Value> {
    (0..20)
        .find_map(|_| {
            let answer = api.get("/api/v1/telemetry/logs?q=nowhere").ok()?;
            let is_busy = answer.status == 503;
            (over.fetch_or(is_busy, Ordering::Relaxed) || is_busy).then_some(answer)
        })
        .filter(|answer| answer.status == 503)
        .map(|answer| answer.json)
}

#[test]
fn queries_keep_to_their_memory_and_their_number() -> Result<(), Failure> {
    let mixer = TestMixer::with(
        &[("query.memory_limit_mb", "16"), ("query.max_concurrent", "1")],
        &[("PLATFORM_QUERY_TIMEOUT", "25s")],
    )?;
    fill(&mixer, 32)?;
    let refused = mixer.api.get("/api/v1/telemetry/logs?limit=10000")?;
    assert_eq!(refused.status, 422, "50 MB of rows in 16 MB: {:.300}", refused.text);
    assert!(refused.text.contains("query.memory_limit_mb"), "{}", refused.text);
    // Eight at once are what the default lets run, so that nobody is turned away; here one runs, and the others wait for
    // it no longer than a second.
    let (api, over) = (&mixer.api, &AtomicBool::new(false));
    let busy = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..8).map(|_| scope.spawn(move || ask_until_busy(api, over))).collect();
        let answers: Vec<_> = askers
            .into_iter()
            .filter_map(|asker| asker.join().ok().flatten())
            .collect();
        answers.into_iter().next()
    });
    let busy = busy.ok_or("eight queries ran at once")?;
    assert_eq!(busy["code"], "busy", "{busy}");
    Ok(())
}

#[test]
fn statements_that_would_make_terabytes_of_a_few_kilobytes_are_refused_within_the_memory() -> Result<(), Failure> {
    let mut mixer = TestMixer::with(&[("query.memory_limit_mb", "64")], &[])?;
    let ask = |mixer: &TestMixer, query: &str| mixer.api.post("/api/v1/sql", &json!({ "query": query }));
    assert_eq!(ask(&mixer, "SELECT length(replace('aa', 'a', 'bb'))")?.status, 200);
    let pid = mixer.process()?.pid();
    let before = memory_of(pid, "VmHWM")?;
    let (a, b, c) = ("a".repeat(20_000), "b".repeat(20_000), "c".repeat(20_000));
    for query in [
        format!("SELECT length(replace(replace('{a}', 'a', '{b}'), 'b', '{c}'))"),
        format!("SELECT length(regexp_replace('{a}', 'a', '{b}', 'g'))"),
        format!("SELECT length(array_to_string(string_to_array('{a}', NULL), '{b}'))"),
    ] {
        let refused = ask(&mixer, &query)?;
        assert_eq!(refused.status, 400, "{query:.60}: {:.300}", refused.text);
    }
    let grown = memory_of(pid, "VmHWM")? - before;
    assert!(grown < 64 << 20, "{} MiB", grown >> 20);
    assert_eq!(ask(&mixer, "SELECT 1")?.status, 200);
    Ok(())
}

#[test]
fn no_answer_of_a_statement_has_more_rows_than_allowed() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("query.max_rows", "3")], &[])?;
    let ask = |format: &str, rows: u32| {
        let values: Vec<_> = (0..rows).map(|row| format!("({row})")).collect();
        let query = json!({ "query": format!("VALUES {}", values.join(",")) });
        mixer.api.post(&format!("/api/v1/sql?format={format}"), &query)
    };
    let whole = ask("json", 3)?;
    assert_eq!(whole.json["stats"]["truncated"], false, "{}", whole.text);
    let cut = ask("json", 4)?;
    assert_eq!(cut.json["stats"]["truncated"], true, "{}", cut.text);
    assert_eq!(cut.json["data"].as_array().map(Vec::len), Some(3), "{}", cut.text);
    assert_eq!(ask("csv", 3)?.text.lines().count(), 4);
    let refused = ask("csv", 4)?;
    assert_eq!(refused.status, 422, "a file that was cut looks whole: {}", refused.text);
    assert_eq!(refused.json["code"], "query_too_large", "{}", refused.text);
    // Each row is more than is sent at once: nothing is left to be sent when the cut is seen.
    let wide = json!({ "query": "SELECT repeat('x', 70000 + n) AS t FROM (VALUES (0), (1), (2), (3)) v(n)" });
    let cut = mixer.api.post("/api/v1/sql?format=csv", &wide);
    assert!(cut.is_err(), "a file of wide rows that was cut looks whole");
    Ok(())
}

#[test]
fn a_query_reads_no_more_of_files_than_it_may() -> Result<(), Failure> {
    let mixer = TestMixer::with(
        &[
            ("query.max_scan_mb", "1"),
            ("observability.embedded.flush_interval", "\"50ms\""),
        ],
        &[],
    )?;
    let mut random = Random::for_test("a_query_reads_no_more_of_files_than_it_may");
    fill_with(&mixer, 2, || {
        (0..500).map(|_| format!("{:016x}", random.below(u64::MAX))).collect()
    })?;
    // Rows in memory are not read from files, and pages that an earlier query read do not count: it is asked once.
    eventually("every row in a file", SOON, || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(())
    })?;
    // No index knows of texts as short as that.
    let refused = mixer.api.get("/api/v1/telemetry/logs?q=zz")?;
    assert_eq!(refused.status, 422, "{:.300}", refused.text);
    assert_eq!(refused.json["code"], "query_too_large", "{}", refused.text);
    assert!(refused.text.contains("query.max_scan_mb"), "{}", refused.text);
    assert_eq!(mixer.api.get("/api/v1/telemetry/logs?limit=1")?.status, 200);
    Ok(())
}

#[test]
fn a_mixer_that_shall_not_collect_or_report_does_neither_and_pushes_late() -> Result<(), Failure> {
    let text = "meta: { name: late, version: '1' }\nracks: [ { name: rack-a }, { name: nobody } ]\ngears:\n  \
                - { name: host, type: host_metrics, deploy: rack-a }\n";
    let (startup, _folder) = scenario(text)?;
    let mixer = TestMixer::with(
        &[
            ("logging.trace", "true"),
            ("observability.enabled", "false"),
            ("enrollment.push_delay", "\"1h\""),
            ("mixer.startup_scenario", &startup),
            ("mixer.scenario_wait_timeout", "\"300ms\""),
        ],
        &[("PLATFORM_DISABLE_TELEMETRY", "true")],
    )?;
    let log = mixer.path().join("logs/mixer.log");
    // With the default of 15 s it says so later than this waits.
    let early = std::time::Duration::from_secs(13);
    eventually("the end of scenario_wait_timeout", early, || {
        text_of(&log).contains("does not run everywhere yet").then_some(())
    })?;
    assert!(text_of(&log).contains(" TRACE "), "logging.trace");

    // Forty heartbeats take two seconds; the default push_delay is one.
    let mut rack = TestRack::with(
        "rack-a",
        &mixer.bus_url,
        &[("rack.heartbeat_interval", "\"50ms\"")],
        &[],
    )?;
    rack.start()?;
    let mut beats = std::collections::BTreeSet::new();
    let seen = eventually("forty heartbeats", SOON, || {
        let rack = mixer.api.rows("/api/v1/racks").ok()?.into_iter().next()?;
        beats.insert(rack["last_seen"].to_string());
        (beats.len() >= 40).then_some(rack)
    })?;
    assert!(
        seen["scenario"]["wanted"].is_object() && seen["scenario"]["running"].is_null(),
        "{seen:?}"
    );

    let metrics = mixer.api.get("/metrics")?;
    assert_eq!(
        (metrics.status, &metrics.json["code"]),
        (404, &json!("telemetry_disabled"))
    );
    let bus = mixer.bus()?;
    assert!(bus.stream("flux-telemetry").is_ok());
    assert!(
        bus.consumer("flux-telemetry", "ingest").is_err(),
        "nobody reads telemetry"
    );
    assert!(mixer.api.rows("/api/v1/telemetry/logs")?.is_empty());
    Ok(())
}
