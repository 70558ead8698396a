//! The page that the Mixer serves, in a real browser (Chromium): every page on real rows, by keyboard alone, for screen readers (axe-core), in
//! both themes, with hostile values, and after a restart of the Mixer.
//!
//! Everywhere: no exception, nothing on the console, no request to another origin.
//!
//! Not here: how the files are served (the Mixer's own tests), pages of attackers (`suite::browser`).

use std::path::{Path, PathBuf};

use harness::credentials::admin_token;
use harness::{Api, BrowserTab, Failure, TestMixer, tool};
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
const PHONE: (u32, u32) = (360, 740);
/// Would do something if it were taken for markup or script.
const HOSTILE: [&str; 6] = [
    "<img src=x onerror=\"window.executed=1\">",
    "\"><script>window.executed=1</script>",
    "javascript:window.executed=1",
    "</textarea><svg onload=window.executed=1>",
    "${window.executed=1}",
    "'-window.executed=1-'",
];

/// Rows of the last minutes whose every text is what is given, by turns.
fn fill(mixer: &TestMixer, texts: &[&str]) -> Result<(), Failure> {
    let now = chrono::Utc::now();
    let (mut logs, mut spans, mut points) = (String::new(), String::new(), String::new());
    for number in 0..200_u32 {
        let text = texts[number as usize % texts.len()];
        let ts = (now - chrono::TimeDelta::seconds(i64::from(number))).to_rfc3339();
        let (trace, span) = (format!("{:032x}", number / 4 + 1), format!("{:016x}", number + 1));
        let flux = format!("01a22a92-f683-734c-8760-{:012x}", number / 4);
        let level = ["info", "warn", "error"][number as usize % 3];
        let attributes = json!({ "trace_id": trace, "span_id": span, "note": text, text: number });
        let log = json!({ "ts": ts, "level": level, "message": text, "entity_name": text, "flux_id": flux, "attributes": attributes });
        let span = json!({ "ts": ts, "trace_id": trace, "span_id": span, "span_name": text, "duration_ms": number, "status": "ok",
            "entity_name": text, "flux_id": flux, "attributes": { "note": text } });
        let point = json!({ "ts": ts, "name": text, "type": "gauge", "value": number, "entity_name": text, "labels": { "note": text } });
        for (lines, row) in [(&mut logs, log), (&mut spans, span), (&mut points, point)] {
            lines.push_str(&row.to_string());
            lines.push('\n');
        }
    }
    for (table, lines) in [("logs", logs), ("traces", spans), ("metrics", points)] {
        let headers = [("Content-Type", "application/x-ndjson")];
        let answer = mixer
            .api
            .send(&format!("/api/v1/ingest/{table}"), &headers, lines.as_bytes())?;
        assert_eq!(answer.status, 200, "{table}: {}", answer.text);
    }
    Ok(())
}

/// Where a page is.
fn address(mixer: &TestMixer, page: &str) -> String {
    format!("{}/#/{page}", mixer.api.base)
}

/// Waits until a page is there and has what it asked for.
fn settle(tab: &mut BrowserTab, title: &str) -> Result<(), Failure> {
    let title = json!(format!("{title} · Platform"));
    tab.wait(&format!(
        "document.title === {title} && document.querySelector('main') !== null && document.querySelector('.waiting') === null"
    ))
}

/// Loads the page anew.
fn reload(tab: &mut BrowserTab) -> Result<(), Failure> {
    tab.eval("void (window.isOld = true)")?;
    tab.eval("location.reload()").ok();
    tab.wait("window.isOld === undefined && document.readyState === 'complete'")
}

/// What axe-core has to say against what is shown.
fn violations(tab: &mut BrowserTab, axe: &str) -> Result<Vec<Value>, Failure> {
    tab.eval(&format!("typeof axe === 'object' || void (0, eval)({})", json!(axe)))
        .ok();
    tab.eval("typeof axe === 'object' || 0")?;
    let found = tab.eval(
        "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => \
         violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, any }) => [html.slice(0, 200), any[0]?.message]).slice(0, 3) })))",
    )?;
    Ok(found.as_array().cloned().unwrap_or_default())
}

/// Where pictures go, if they are asked for: `PLATFORM_TEST_SCREENSHOTS`.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("PLATFORM_TEST_SCREENSHOTS").map(PathBuf::from)
}

fn picture(tab: &mut BrowserTab, folder: Option<&Path>, name: &str) -> Result<(), Failure> {
    match folder {
        Some(folder) => tab.screenshot(&folder.join(format!("{name}.png"))),
        None => Ok(()),
    }
}

#[test]
fn every_page_shows_real_rows_in_both_themes_and_on_a_phone_and_axe_finds_nothing() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &["order accepted", "payment refused", "mail sent"])?;
    let axe = std::fs::read_to_string(tool("axe.min.js")?)?;
    let folder = pictures();
    let mut tab = BrowserTab::open(&address(&mixer, "overview"), DESK)?;
    for theme in ["light", "dark"] {
        tab.eval(&format!("localStorage.setItem('platform.theme', '{theme}')"))?;
        reload(&mut tab)?;
        for (page, title) in PAGES {
            tab.eval(&format!("void (location.hash = '#/{page}')"))?;
            settle(&mut tab, title)?;
            picture(&mut tab, folder.as_deref(), &format!("{page}-{theme}"))?;
            assert_eq!(violations(&mut tab, &axe)?, Vec::<Value>::new(), "{page} {theme}");
            tab.resize(PHONE)?;
            let overflow = tab.eval("document.documentElement.scrollWidth > innerWidth + 1")?;
            assert_eq!(overflow, json!(false), "{page} is wider than a phone");
            tab.resize(DESK)?;
        }
    }
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn hostile_values_are_shown_as_text() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &HOSTILE)?;
    let mut tab = BrowserTab::open(&address(&mixer, "logs"), DESK)?;
    for (page, title) in PAGES {
        tab.eval(&format!("void (location.hash = '#/{page}')"))?;
        settle(&mut tab, title)?;
    }
    tab.eval("void (location.hash = '#/logs')")?;
    settle(&mut tab, "Logs")?;
    tab.shows("<img src=x onerror=")?;
    assert_eq!(tab.eval("window.executed === undefined")?, json!(true));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn the_topology_of_the_active_scenario_is_drawn() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let text = "
meta: { name: press, version: '1' }
racks: [ { name: rack-a }, { group: edge, labels: { role: edge } } ]
gears:
  - { name: store, type: log_sink, deploy: rack-a }
  - { name: numbers, type: generator, deploy: edge, config: { rate: 7 } }
  - { name: log, type: log_sink, deploy: edge }
wires:
  - { from: numbers.out, to: log.in }
  - { from: numbers.out, to: rack-a.store.in }
";
    let headers = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &headers, text.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let active = mixer
        .api
        .post("/api/v1/scenarios/press:1/activate?wait=0s", &json!({}))?;
    assert_eq!(active.status, 200, "{}", active.text);
    let mut tab = BrowserTab::open(&address(&mixer, "fleet?view=topology"), DESK)?;
    tab.wait("document.querySelectorAll('.topology .gear').length === 3")?;
    let drawn = tab.eval("[...document.querySelectorAll('.topology title')].map((title) => title.textContent)")?;
    let wires = ["numbers.out → log.in, hot", "numbers.out → rack-a.store.in, guaranteed"];
    let gears = ["numbers (generator)", "log (log_sink)", "store (log_sink)"];
    assert_eq!(drawn, json!([wires.as_slice(), gears.as_slice()].concat()));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn keys_lead_everywhere_and_a_row_opens_and_closes_by_them() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &["order accepted", "payment refused"])?;
    let mut tab = BrowserTab::open(&address(&mixer, "overview"), DESK)?;
    settle(&mut tab, "Overview")?;
    for (keys, title) in [
        ("gl", "Logs"),
        ("gt", "Traces"),
        ("gm", "Metrics"),
        ("gq", "SQL"),
        ("gf", "Fleet"),
    ] {
        tab.eval("document.activeElement.blur()")?;
        for key in keys.chars() {
            tab.press(&key.to_string())?;
        }
        settle(&mut tab, title)?;
    }
    tab.eval("history.back()")?;
    settle(&mut tab, "SQL")?;
    tab.eval("history.forward()")?;
    settle(&mut tab, "Fleet")?;
    tab.press("?")?;
    tab.shows("next and previous row")?;
    tab.press("Escape")?;
    tab.wait("document.querySelector('dialog') === null")?;
    tab.eval("void (location.hash = '#/logs')")?;
    settle(&mut tab, "Logs")?;
    tab.wait("document.querySelector('.virtual [role=row] [role=cell]') !== null")?;
    tab.press("j")?;
    tab.wait("document.querySelector('.virtual [role=row][aria-selected=true]') !== null")?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('aside.drawer:focus-within') !== null")?;
    tab.press("Escape")?;
    tab.wait("document.querySelector('aside.drawer') === null")?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

/// Presses a key without waiting for the next frame, as a quick hand does: part of a longer expression.
fn at_once(key: &str) -> String {
    let key = json!(key);
    format!(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: {key}, bubbles: true, cancelable: true }})); \
         for (let turn = 0; turn < 50; turn += 1) await null;"
    )
}

#[test]
fn keys_within_one_frame_meet_the_view_that_is_there_by_then() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut tab = BrowserTab::open(&address(&mixer, "sql?q=SELECT 1 AS one"), DESK)?;
    settle(&mut tab, "SQL")?;
    tab.wait("document.querySelector('.sql-table [data-name=one]') !== null")?;
    let states = tab.eval(&format!(
        "(async () => {{
            const seen = [];
            const look = () => seen.push([document.querySelector('aside.drawer') !== null, document.querySelector('dialog.help') !== null]);
            document.querySelector('.sql-table [data-name=one]').click();
            for (let turn = 0; turn < 50; turn += 1) await null;
            seen.push(document.activeElement.matches('aside.drawer'));
            document.activeElement.blur();
            {help} look();
            {close} look();
            {close} look();
            return seen;
        }})()",
        help = at_once("?"),
        close = at_once("Escape"),
    ))?;
    // The drawer has the focus; Esc closes what was opened last, wherever the focus is.
    assert_eq!(states, json!([true, [true, true], [true, false], [false, false]]));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn the_overview_of_a_mixer_that_is_not_ready_says_which_check_fails_and_what_to_do() -> Result<(), Failure> {
    // No disk has so much free.
    let mixer = TestMixer::with(&[("store.min_free_mb", "1073741824")], &[])?;
    let mut tab = BrowserTab::open(&address(&mixer, "overview"), DESK)?;
    settle(&mut tab, "Overview")?;
    tab.shows("the disk is almost full")?;
    tab.shows("Free the disk of store.dir")?;
    let checks = "[...document.querySelectorAll('[aria-label=Checks] .tile')].map(tile => tile.innerText.split('\\n').slice(0, 2).join(' ')).sort()";
    let expected = json!(["bus ok", "engine ok", "ingest ok", "wal not ready"]);
    assert_eq!(tab.eval(checks)?, expected);
    Ok(())
}

#[test]
fn ages_of_several_units_are_understood_where_the_page_asks_in_sql() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &["order accepted"])?;
    let question = "traces?roots=1&since=1h30m";
    let mut tab = BrowserTab::open(&address(&mixer, question), DESK)?;
    settle(&mut tab, "Traces")?;
    tab.shows("200 spans, newest first")?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn who_signs_out_leaves_no_token_no_question_and_no_statement() -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let (file, admin) = admin_token(home.path())?;
    let file = format!("{:?}", file.display().to_string());
    let mixer = TestMixer::with(&[("api.auth", "\"tokens\""), ("api.tokens_file", &file)], &[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    let made = api.post("/api/v1/tokens", &json!({ "name": "ada", "roles": ["reader"] }))?;
    let secret = made.json["data"]["token"].as_str().ok_or(made.text.clone())?;
    let mut tab = BrowserTab::open(&address(&mixer, "sql?q=SELECT $word AS one&p.word=hunter2"), DESK)?;
    tab.wait("document.querySelector('input[name=token]') !== null")?;
    tab.click("input[name=token]")?;
    tab.type_text(secret)?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('.sql-table [data-name=one]') !== null")?;
    let kept = "localStorage.getItem('platform.sql.history')";
    tab.wait(&format!("{kept} !== null"))?;
    let history = tab.eval(kept)?;
    let history = history.as_str().unwrap_or_default();
    assert!(history.contains("$word") && !history.contains("hunter2"), "{history}");
    tab.eval("void [...document.querySelectorAll('header button')].find(button => button.textContent === 'Sign out').click()")
        .ok();
    tab.wait("document.querySelector('input[name=token]') !== null && document.readyState === 'complete'")?;
    assert_eq!(
        tab.eval(&format!("[location.hash, {kept}]"))?,
        json!(["#/overview", null])
    );
    Ok(())
}

#[test]
fn a_token_is_asked_for_and_what_its_role_may_not_do_is_not_offered() -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let (file, admin) = admin_token(home.path())?;
    let file = format!("{:?}", file.display().to_string());
    let mixer = TestMixer::with(&[("api.auth", "\"tokens\""), ("api.tokens_file", &file)], &[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    let mut tab = BrowserTab::open(&address(&mixer, "logs"), DESK)?;
    let offered = "[...document.querySelectorAll('header nav a')].map(link => link.textContent)";
    for (role, pages) in [
        (
            "reader",
            json!([
                "Overview",
                "Logs",
                "Traces",
                "Metrics",
                "Signal",
                "SQL",
                "Fleet",
                "Dead letters",
                "Storage"
            ]),
        ),
        ("auditor", json!(["Overview", "Fleet", "Storage", "Security"])),
        ("monitor", json!(["Overview"])),
    ] {
        let made = api.post("/api/v1/tokens", &json!({ "name": role, "roles": [role] }))?;
        let secret = made.json["data"]["token"].as_str().ok_or(made.text.clone())?;
        reload(&mut tab)?;
        tab.wait("document.querySelector('input[name=token]') !== null")?;
        tab.click("input[name=token]")?;
        tab.type_text("plt_wrong")?;
        tab.press("Enter")?;
        tab.wait("document.querySelector('[role=alert]') !== null")?;
        tab.eval("document.querySelector('input[name=token]').value = ''")?;
        tab.click("input[name=token]")?;
        tab.type_text(secret)?;
        tab.press("Enter")?;
        tab.wait("document.querySelector('header nav') !== null")?;
        assert_eq!(tab.eval(offered)?, pages, "{role}");
        assert_eq!(
            tab.eval("document.documentElement.outerHTML.includes('plt_')")?,
            json!(false)
        );
    }
    Ok(())
}

#[test]
fn a_page_goes_on_after_a_restart_of_the_mixer() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    fill(&mixer, &["before"])?;
    let mut tab = BrowserTab::open(&address(&mixer, "logs?since=1h"), DESK)?;
    settle(&mut tab, "Logs")?;
    tab.shows("before")?;
    mixer.kill9()?;
    tab.eval("void (location.hash = '#/logs?since=2h')")?;
    tab.wait("document.querySelector('[role=alert]') !== null")?;
    mixer.restart()?;
    tab.eval("document.querySelectorAll('[role=alert] button').forEach(button => button.click())")?;
    tab.shows("before")
}
