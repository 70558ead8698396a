//! States of views that are easily lost: a topology, keys of a quick hand, a Mixer that is not ready, ages and clocks, and what is left of
//! somebody who signed out.

use harness::Api;
use harness::credentials::admin_token;

use super::*;

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
    let mut tab = open(&mixer, "fleet?view=topology")?;
    tab.wait("document.querySelectorAll('.topology .gear').length === 3")?;
    let drawn = tab.eval("[...document.querySelectorAll('.topology title')].map((title) => title.textContent)")?;
    let wires = ["numbers.out → log.in, hot", "numbers.out → rack-a.store.in, guaranteed"];
    let gears = ["numbers (generator)", "log (log_sink)", "store (log_sink)"];
    assert_eq!(drawn, json!([wires.as_slice(), gears.as_slice()].concat()));
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
    let mut tab = open(&mixer, "sql?q=SELECT 1 AS one")?;
    visit(&mut tab, "sql?q=SELECT 1 AS one")?;
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
    let mut tab = open(&mixer, "overview")?;
    visit(&mut tab, "overview")?;
    tab.shows("the disk is almost full")?;
    tab.shows("Free the disk of store.dir")?;
    let checks = "[...document.querySelectorAll('[aria-label=Checks] .tile')].map(tile => tile.innerText.split('\\n').slice(0, 2).join(' ')).sort()";
    let expected = json!(["bus ok", "engine ok", "ingest ok", "wal not ready"]);
    assert_eq!(tab.eval(checks)?, expected);
    Ok(())
}

#[test]
fn a_clock_that_is_typed_is_kept_while_the_view_is_drawn_anew_and_is_the_last_one() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &["order accepted"])?;
    let question = "traces?since=2d";
    let mut tab = open(&mixer, question)?;
    visit(&mut tab, question)?;
    tab.click("input[name=until]")?;
    tab.type_text("14:10")?;
    tab.eval("void dispatchEvent(new HashChangeEvent('hashchange'))")?;
    frame(&mut tab)?;
    assert_eq!(tab.eval("document.querySelector('input[name=until]').value")?, "14:10");
    tab.press("Enter")?;
    tab.wait("location.hash.includes('until=')")?;
    let asked = "(() => {
        const until = new Date(new URLSearchParams(location.hash.split('?')[1]).get('until'));
        const age = Date.now() - until;
        return [until.getHours(), until.getMinutes(), until.getSeconds(), age >= 0, age < 25 * 3_600_000];
    })()";
    assert_eq!(tab.eval(asked)?, json!([14, 10, 0, true, true]));
    // It is shown as rows have their times.
    tab.wait("/^\\d{4}-\\d\\d-\\d\\d 14:10$/.test(document.querySelector('input[name=until]').value)")?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_press_selects_the_time_that_is_there_to_be_typed_over() -> Result<(), Failure> {
    const SELECTED: &str =
        "(({ selectionStart, selectionEnd }) => selectionEnd - selectionStart)(document.activeElement)";
    let mixer = TestMixer::start("")?;
    let mut tab = open(&mixer, "traces?since=2d")?;
    visit(&mut tab, "traces?since=2d")?;
    tab.click("input[name=since]")?;
    tab.type_text("3h")?;
    tab.press("Enter")?;
    tab.wait("location.hash === '#/traces?since=3h'")?;
    tab.click("input[name=since]")?;
    assert_eq!(tab.eval(SELECTED)?, json!(0), "another press puts the cursor");
    // As when somebody looks at another window meanwhile.
    tab.type_text("0m")?;
    tab.eval("(field => { field.blur(); field.focus(); })(document.activeElement)")?;
    assert_eq!(tab.eval(SELECTED)?, json!(0), "what is half typed stays");
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn the_time_range_goes_along_to_the_views_that_have_one_and_back() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut tab = open(&mixer, "logs?since=6h&q=order")?;
    visit(&mut tab, "logs?since=6h&q=order")?;
    let is_at = |tab: &mut BrowserTab, hash: &str| tab.wait(&format!("location.hash === {}", json!(hash)));
    for (title, hash) in [
        ("Traces", "#/traces?since=6h"),
        ("Overview", "#/overview"),
        ("Dead letters", "#/dead-letters"),
        ("Metrics", "#/metrics?since=6h"),
    ] {
        tab.click_on("link", title)?;
        is_at(&mut tab, hash)?;
    }
    // One trace is shown whenever it was, and changes nothing of it; keys lead there as well.
    visit(&mut tab, "traces?trace_id=00000000000000000000000000000001")?;
    tab.eval("document.activeElement.blur()")?;
    tab.press("g")?;
    tab.press("s")?;
    is_at(&mut tab, "#/signal?since=6h")?;
    // What the address says counts, also where somebody goes back.
    visit(&mut tab, "logs?since=2h&until=1h")?;
    tab.click_on("link", "Traces")?;
    is_at(&mut tab, "#/traces?since=2h&until=1h")?;
    for hash in ["#/logs?since=2h&until=1h", "#/signal?since=6h"] {
        tab.eval("history.back()")?;
        is_at(&mut tab, hash)?;
    }
    frame(&mut tab)?;
    tab.click_on("link", "Logs")?;
    is_at(&mut tab, "#/logs?since=6h")?;
    // Live tail has no range; one signal has a way back to it.
    visit(&mut tab, "logs?since=2h&live=1")?;
    tab.click_on("link", "Traces")?;
    is_at(&mut tab, "#/traces?since=6h")?;
    visit(
        &mut tab,
        "signal?since=6h&failed=1&flux_id=00000000-0000-0000-0000-000000000001",
    )?;
    tab.click_on("link", "← signals")?;
    is_at(&mut tab, "#/signal?since=6h&failed=1")?;
    // Who came without a range does not lose it.
    visit(&mut tab, "signal?flux_id=00000000-0000-0000-0000-000000000001")?;
    tab.click_on("link", "← signals")?;
    is_at(&mut tab, "#/signal")?;
    tab.click_on("link", "Metrics")?;
    is_at(&mut tab, "#/metrics?since=6h")?;
    assert_eq!(own_faults(&mut tab), Vec::<String>::new());
    Ok(())
}

#[test]
fn ages_of_several_units_are_understood_where_the_page_asks_in_sql() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &["order accepted"])?;
    let question = "traces?roots=1&since=1h30m";
    let mut tab = open(&mixer, question)?;
    visit(&mut tab, question)?;
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
    let mut tab = open(&mixer, "sql?q=SELECT $word AS one&p.word=hunter2")?;
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
fn what_is_typed_as_a_time_stays_while_an_answer_comes() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut tab = open(&mixer, "dead-letters")?;
    visit(&mut tab, "dead-letters")?;
    let since = "document.querySelector('input[name=since]').value";
    // The next answer comes when it is let go.
    tab.eval(
        "void (window.real = fetch, window.held = new Promise((go) => (window.release = go)), \
         window.fetch = (...asked) => held.then(() => real(...asked)))",
    )?;
    tab.eval("void (location.hash = '#/dead-letters?since=2h')")?;
    tab.wait(&format!(
        "document.querySelector('progress') !== null && {since} === '2h'"
    ))?;
    tab.fill_in("Since", "3h17m")?;
    tab.eval("void release()")?;
    tab.wait("document.querySelector('progress') === null")?;
    assert_eq!(tab.eval(since)?, json!("3h17m"));
    tab.press("Enter")?;
    tab.wait("location.hash === '#/dead-letters?since=3h17m'")?;
    visit(&mut tab, "dead-letters?since=4h")?;
    assert_eq!(tab.eval(since)?, json!("4h"), "another address has another time");
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_chart_of_sql_says_how_many_values_it_cannot_tell_apart() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut tab = open(&mixer, "sql")?;
    let said = "value had the time and name of a later row";
    for (times, expected) in [(["01", "01", "02"], true), (["01", "02", "03"], false)] {
        let rows: Vec<String> = times
            .iter()
            .map(|day| format!("(TIMESTAMP '2026-01-{day}', 7)"))
            .collect();
        let statement = format!("SELECT * FROM (VALUES {}) AS days(t, n)", rows.join(", "));
        visit(&mut tab, "overview")?;
        visit(&mut tab, &format!("sql?view=chart&q={}", statement.replace(' ', "+")))?;
        tab.wait("document.querySelector('.sql-chart canvas') !== null")?;
        let shown = tab.eval("document.querySelector('.sql-chart').innerText")?;
        let shown = shown.as_str().unwrap_or_default();
        assert_eq!(shown.contains(&format!("1 {said}")), expected, "{times:?}: {shown}");
    }
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}
