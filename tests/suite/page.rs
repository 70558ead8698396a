//! The page that the Mixer serves, in a real browser (Chromium): every view on real rows, every action, by role and by keyboard, with hostile
//! values, and while the Mixer is away.
//!
//! Everywhere: no exception, nothing on the console, no dialog, no request to another origin.
//!
//! Not here: how the files are served (the Mixer's own tests), pages of attackers (`suite::browser`).

mod actions;
mod drawings;
mod hostile;
mod hostile_text;
mod live;
mod places;
mod roles;
mod states;
mod views;

use harness::{BrowserTab, Failure, TestMixer, tool};
use serde_json::{Value, json};

/// Name in the address, title.
const PAGES: [(&str, &str); 10] = [
    ("overview", "Overview"),
    ("logs", "Logs"),
    ("traces", "Traces"),
    ("metrics", "Metrics"),
    ("signal", "Signal"),
    ("sql", "SQL"),
    ("fleet", "Fleet"),
    ("dead-letters", "Dead letters"),
    ("storage", "Storage"),
    ("security", "Security"),
];
const DESK: (u32, u32) = (1_280, 800);
/// Goes to a view, and waits until it has what it asks for: several frames in which nothing is awaited.
const VISIT: &str = "(async (view) => {
    location.hash = `#/${view}`;
    for (let still = 0; still < 5;) {
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        still = document.querySelector('main') && !document.querySelector('progress') ? still + 1 : 0;
    }
})";

/// Stores rows, one JSON object a line.
fn ingest(mixer: &TestMixer, table: &str, rows: &[Value]) -> Result<(), Failure> {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let headers = [("Content-Type", "application/x-ndjson")];
    let answer = mixer.api.send(
        &format!("/api/v1/ingest/{table}"),
        &headers,
        lines.join("\n").as_bytes(),
    )?;
    assert_eq!(answer.status, 200, "{table}: {}", answer.text);
    Ok(())
}

/// Rows of the last minutes whose every text is what is given, by turns.
fn fill(mixer: &TestMixer, texts: &[&str]) -> Result<(), Failure> {
    let now = chrono::Utc::now();
    let (mut logs, mut spans, mut points) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..200_u32 {
        let text = texts[number as usize % texts.len()];
        let ts = (now - chrono::TimeDelta::seconds(i64::from(number))).to_rfc3339();
        let (trace, span) = (format!("{:032x}", number / 4 + 1), format!("{:016x}", number + 1));
        let flux = format!("01a22a92-f683-734c-8760-{:012x}", number / 4);
        let level = ["info", "warn", "error"][number as usize % 3];
        let attributes = json!({ "trace_id": trace, "span_id": span, "note": text, text: number });
        logs.push(json!({ "ts": ts, "level": level, "message": text, "entity_name": text, "flux_id": flux, "attributes": attributes }));
        spans.push(json!({ "ts": ts, "trace_id": trace, "span_id": span, "span_name": text, "duration_ms": number, "status": "ok",
            "entity_name": text, "flux_id": flux, "attributes": { "note": text } }));
        points.push(json!({ "ts": ts, "name": text, "type": "gauge", "value": number, "entity_name": text, "labels": { "note": text } }));
    }
    for (table, rows) in [("logs", logs), ("traces", spans), ("metrics", points)] {
        ingest(mixer, table, &rows)?;
    }
    Ok(())
}

/// Opens the page in a browser of its own, at a view.
fn open(mixer: &TestMixer, view: &str) -> Result<BrowserTab, Failure> {
    BrowserTab::open(&format!("{}/#/{view}", mixer.api.base), DESK)
}

/// Goes to a view and waits until it has what it asks for.
fn visit(tab: &mut BrowserTab, view: &str) -> Result<(), Failure> {
    tab.eval(&format!("{VISIT}({})", json!(view))).map(drop)
}

/// Waits until what was pressed is drawn.
fn frame(tab: &mut BrowserTab) -> Result<(), Failure> {
    let drawn = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))";
    tab.eval(drawn).map(drop)
}

/// Loads the page anew.
fn reload(tab: &mut BrowserTab) -> Result<(), Failure> {
    tab.eval("void (window.isOld = true)")?;
    tab.eval("location.reload()").ok();
    tab.wait("window.isOld === undefined && document.readyState === 'complete'")
}

/// Loads the page anew and shows a token.
fn sign_in(tab: &mut BrowserTab, token: &str) -> Result<(), Failure> {
    reload(tab)?;
    tab.fill_in("Token", token)?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('header nav') !== null")
}

/// Waits until the page says something to those who do not see it, too.
fn said(tab: &mut BrowserTab, text: &str) -> Result<(), Failure> {
    tab.wait(&format!(
        "[...document.querySelectorAll('[role=status]')].some((one) => one.textContent.includes({}))",
        json!(text)
    ))
}

/// What went wrong, but for answers that the browser tells as errors: the Mixer refuses what it is to refuse, or is away.
fn own_faults(tab: &mut BrowserTab) -> Vec<String> {
    let of_network = |fault: &&String| fault.contains("\"source\":\"network\"");
    tab.faults()
        .iter()
        .filter(|fault| !of_network(fault))
        .cloned()
        .collect()
}

/// That axe-core has nothing to say against what is shown.
fn is_accessible(tab: &mut BrowserTab, what: &str) -> Result<(), Failure> {
    if tab.eval("typeof axe === 'object'")? != json!(true) {
        tab.run(&std::fs::read_to_string(tool("axe.min.js")?)?)?;
    }
    let found = tab.eval(
        "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => \
         violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, any }) => [html.slice(0, 200), any[0]?.message]).slice(0, 3) })))",
    )?;
    assert_eq!(found, json!([]), "{what}");
    Ok(())
}
