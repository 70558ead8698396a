//! The page of logs in a real browser: large cells, what came before and after a row, values that are left out, questions that are
//! cancelled, and live tail over restarts of the Mixer.
//!
//! Not here: what all pages have in common (`suite::page`).

use harness::{BrowserTab, Failure, TestMixer};
use serde_json::{Value, json};

const DESK: (u32, u32) = (1_280, 800);
/// The messages of the list, as it shows them.
const MESSAGES: &str =
    "[...document.querySelectorAll('.virtual [role=row] .rest')].map(cell => cell.firstChild.textContent.trim())";
/// The messages before and after the row that is open.
const NEAR: &str = "[...document.querySelectorAll('.near tbody tr')].map(row => row.lastElementChild.textContent)";

/// Stores records of one entity, a second between them, the first one the newest.
fn store(mixer: &TestMixer, messages: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let now = chrono::Utc::now();
    let mut lines = String::new();
    for (number, message) in (0_u32..).zip(messages) {
        let ts = (now - chrono::TimeDelta::seconds(i64::from(number))).to_rfc3339();
        let level = ["info", "warn", "error"][number as usize % 3];
        let record = json!({ "ts": ts, "level": level, "message": message, "entity_name": "shop", "attributes": { "number": number } });
        lines.push_str(&record.to_string());
        lines.push('\n');
    }
    let headers = [("Content-Type", "application/x-ndjson")];
    let answer = mixer.api.send("/api/v1/ingest/logs", &headers, lines.as_bytes())?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    Ok(())
}

fn open(mixer: &TestMixer, query: &str) -> Result<BrowserTab, Failure> {
    BrowserTab::open(&format!("{}/#/logs?{query}", mixer.api.base), DESK)
}

/// Presses the button that says something.
fn press(tab: &mut BrowserTab, words: &str) -> Result<(), Failure> {
    let found = format!(
        "[...document.querySelectorAll('main button, aside button')].find(one => (one.ariaLabel || one.textContent).startsWith({}) && !one.disabled)",
        json!(words)
    );
    tab.wait(&format!("{found} !== undefined"))?;
    tab.eval(&format!("void {found}.click()"))?;
    Ok(())
}

/// The files that were loaded without a link or an element that names them, and how often it was asked who this is.
const CHAINED: &str = "(() => {
    const asked = performance.getEntriesByType('resource').map(({ name }) => name);
    const named = [...document.querySelectorAll('link, script')].map((one) => one.href || one.src);
    const files = asked.filter((name) => name.includes('/web/') && !named.includes(name));
    return [files, asked.filter((name) => name.endsWith('/whoami')).length, asked.some((name) => name.endsWith('/log_list.js'))];
})()";

#[test]
fn the_files_of_the_addressed_view_do_not_wait_for_those_that_import_them() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut tab = open(&mixer, "")?;
    tab.wait("document.querySelector('[role=search]') !== null")?;
    assert_eq!(tab.eval(CHAINED)?, json!([[], 1, true]));
    // Those of the next view neither.
    tab.eval("void (location.hash = '#/sql')")?;
    tab.wait("document.querySelector('textarea') !== null")?;
    assert_eq!(tab.eval(CHAINED)?, json!([[], 1, true]));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn large_cells_are_cut_by_the_mixer_and_shown_whole_on_demand() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let large: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    let size = large.len();
    store(&mixer, [large])?;
    let mut tab = open(&mixer, "")?;
    tab.wait("document.querySelector('.virtual [role=row] [role=cell]') !== null")?;
    tab.press("j")?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('.near tr[aria-current]') !== null")?;
    let loaded = "Math.max(...performance.getEntriesByType('resource').filter(({ name }) => name.includes('/telemetry/logs')).map(({ decodedBodySize }) => decodedBodySize))";
    let at_first = tab.eval(loaded)?.as_u64().ok_or("nothing was loaded")?;
    assert!(at_first < 20_000, "{at_first} bytes were loaded for a list");
    press(&mut tab, "Show all")?;
    let shown = "[...document.querySelectorAll('.drawer .piece')].reduce((sum, { textContent }) => sum + textContent.length, 0)";
    tab.wait(&format!("{shown} === {size}"))?;
    press(&mut tab, "Show less")?;
    tab.wait("document.querySelector('.drawer .piece') === null")?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_row_shows_what_came_before_and_after_it_and_more_of_it_on_demand() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, (0..200).map(|number| format!("row {number:03}")))?;
    let found = mixer
        .api
        .rows("/api/v1/telemetry/logs?attr.number=100&positions=true")?;
    let position = found.first().and_then(|row| row["position"].as_str()).ok_or("no row")?;
    // One that the filters of the view do not let through.
    let mut tab = open(&mixer, &format!("q=001&row={position}"))?;
    let ends = |tab: &mut BrowserTab| tab.eval(&format!("[{NEAR}.length, {NEAR}.at(0), {NEAR}.at(-1)]"));
    tab.wait("document.querySelector('.near tr[aria-current]') !== null")?;
    assert_eq!(ends(&mut tab)?, json!([41, "row 120", "row 080"]));
    press(&mut tab, "Earlier")?;
    tab.wait(&format!("{NEAR}.length === 91"))?;
    press(&mut tab, "Later")?;
    tab.wait(&format!("{NEAR}.length === 141"))?;
    assert_eq!(ends(&mut tab)?, json!([141, "row 170", "row 030"]));
    let own = tab
        .eval("[...document.querySelectorAll('.near [aria-current]')].map(row => row.lastElementChild.textContent)")?;
    assert_eq!(own, json!(["row 100"]));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_value_is_left_out_by_a_press_and_let_in_by_another() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, ["paid", "late", "lost"].map(str::to_owned))?;
    let mut tab = open(&mixer, "")?;
    tab.wait(&format!("{MESSAGES}.length === 3"))?;
    press(&mut tab, "Leave out warn")?;
    tab.wait(&format!("{MESSAGES}.join() === 'paid,lost'"))?;
    assert_eq!(tab.eval("location.hash")?, json!("#/logs?not.level=warn"));
    press(&mut tab, "Leave out warn")?;
    tab.wait(&format!("{MESSAGES}.join() === 'paid,late,lost'"))?;
    assert_eq!(tab.eval("location.hash")?, json!("#/logs"));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_chip_is_turned_round_by_a_press() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, ["paid", "late", "lost"].map(str::to_owned))?;
    let mut tab = open(&mixer, "level=warn")?;
    tab.wait(&format!("{MESSAGES}.join() === 'late'"))?;
    press(&mut tab, "All others")?;
    tab.wait(&format!("{MESSAGES}.join() === 'paid,lost'"))?;
    assert_eq!(tab.eval("location.hash")?, json!("#/logs?not.level=warn"));
    press(&mut tab, "Only these")?;
    tab.wait(&format!("{MESSAGES}.join() === 'late'"))?;
    assert_eq!(tab.eval("location.hash")?, json!("#/logs?level=warn"));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn records_are_counted_by_an_attribute_over_an_age_of_several_units() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, ["paid", "late", "lost"].map(str::to_owned))?;
    let mut tab = open(&mixer, "since=1h30m&by=attr.number")?;
    tab.wait("document.querySelector('.histogram')?.textContent.includes('3 records')")?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn the_file_of_an_export_has_the_table_and_the_range_in_its_name() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, ["paid", "late", "lost"].map(str::to_owned))?;
    let now = chrono::Utc::now();
    let [since, until] = [-3_600, 60].map(|later| {
        let time = now + chrono::TimeDelta::seconds(later);
        time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    });
    let mut tab = open(&mixer, &format!("since={since}&until={until}"))?;
    tab.wait(&format!("{MESSAGES}.length === 3"))?;
    // The name that the browser is given, in place of a download.
    tab.eval("void (HTMLAnchorElement.prototype.click = function () { window.saved = this.download; })")?;
    tab.eval("void [...document.querySelectorAll('summary')].find(one => one.textContent === 'Export').click()")?;
    press(&mut tab, "CSV")?;
    tab.shows("3 rows saved.")?;
    let name = format!("logs_{since}_{until}.csv").replace(':', "-");
    assert_eq!(tab.eval("saved")?, json!(name));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn rows_of_a_question_do_not_stay_below_another_one_that_is_cancelled() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, (0..300).map(|number| format!("row {number:03}")))?;
    let mut tab = open(&mixer, "")?;
    tab.wait(&format!("{MESSAGES}.length > 0"))?;
    // The next question is not answered.
    tab.eval(
        "void (window.real = fetch, window.fetch = (to, options) => String(to).includes('level=error') ? new Promise((_, refuse) => \
         options.signal.addEventListener('abort', () => refuse(new DOMException('', 'AbortError')))) : real(to, options))",
    )?;
    tab.eval("void (location.hash = '#/logs?level=error')")?;
    // Others ask as well, for a moment.
    let cancel = "[...document.querySelectorAll('main button')].find(one => one.textContent === 'Cancel' && one.parentElement.textContent.includes('Asking for rows'))";
    tab.wait(&format!("Boolean({cancel})"))?;
    tab.eval(&format!("void {cancel}.click()"))?;
    tab.shows("stopped")?;
    assert_eq!(tab.eval(MESSAGES)?, json!([]));
    tab.eval("void (window.fetch = real)")?;
    press(&mut tab, "Ask again")?;
    tab.wait(&format!("{MESSAGES}[0] === 'row 002'"))?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn live_tail_goes_on_after_a_restart_and_no_row_comes_twice() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    store(&mixer, ["first".to_owned()])?;
    let mut tab = open(&mixer, "live=1")?;
    tab.wait(&format!("{MESSAGES}.join() === 'first'"))?;
    let restart = |mixer: &mut TestMixer, tab: &mut BrowserTab, message: &str| -> Result<Value, Failure> {
        mixer.kill9()?;
        tab.shows("Trying again")?;
        mixer.restart()?;
        tab.shows("Following")?;
        store(mixer, [message.to_owned()])?;
        tab.wait(&format!("{MESSAGES}[0] === {}", json!(message)))?;
        tab.eval(MESSAGES)
    };
    assert_eq!(restart(&mut mixer, &mut tab, "second")?, json!(["second", "first"]));
    // A place that is not one any more: the list begins anew, and says so.
    tab.eval(
        "void (window.real = fetch, window.fetch = (to, options) => String(to).includes('cursor=') ? \
         Promise.resolve(new Response('{}', { status: 400 })) : real(to, options))",
    )?;
    assert_eq!(
        restart(&mut mixer, &mut tab, "third")?,
        json!(["third", "second", "first"])
    );
    tab.shows("began anew")
}

#[test]
fn a_live_tail_that_falls_silent_begins_anew_where_it_was_and_says_so() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, ["first".to_owned()])?;
    let mut tab = open(&mixer, "")?;
    tab.wait(&format!("{MESSAGES}.join() === 'first'"))?;
    // A sign of life comes every 15 s: by this clock it is always too late.
    tab.eval(
        "void (window.later = setTimeout, window.setTimeout = (run, wait, ...more) => later(run, wait === 45000 ? 500 : wait, ...more))",
    )?;
    press(&mut tab, "Live")?;
    tab.shows("silent for too long")?;
    tab.eval("void (window.setTimeout = later)")?;
    store(&mixer, ["second".to_owned()])?;
    tab.wait(&format!("{MESSAGES}[0] === 'second'"))?;
    assert_eq!(tab.eval(MESSAGES)?, json!(["second", "first"]));
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn whole_numbers_keep_their_digits_in_the_list_and_in_the_details() -> Result<(), Failure> {
    // No floating-point number is this one.
    const LARGE: u64 = 9_007_199_254_740_993;
    let mixer = TestMixer::start("")?;
    let ts = chrono::Utc::now().to_rfc3339();
    let record = json!({ "ts": ts, "level": "info", "message": "large", "entity_name": "shop", "attributes": { "order": LARGE } });
    let headers = [("Content-Type", "application/x-ndjson")];
    let answer = mixer
        .api
        .send("/api/v1/ingest/logs", &headers, record.to_string().as_bytes())?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut tab = open(&mixer, "")?;
    let listed =
        format!("document.querySelector('.virtual [role=row] .rest')?.textContent.includes('order={LARGE}') === true");
    tab.wait(&listed)?;
    tab.press("j")?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('.near tr[aria-current]') !== null")?;
    let order = tab.eval(
        "[...document.querySelectorAll('.record tbody tr')].filter(row => row.cells[0].textContent === 'order').map(row => row.cells[1].textContent)",
    )?;
    assert_eq!(order, json!([LARGE.to_string()]));
    // As they come live, too.
    press(&mut tab, "Live")?;
    tab.shows("Following")?;
    tab.wait(&listed)?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_live_tail_is_resumed_while_a_row_is_open() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    store(&mixer, (0..100).map(|number| format!("row {number:03}")))?;
    let mut tab = open(&mixer, "live=1&side=off")?;
    tab.wait(&format!("{MESSAGES}[0] === 'row 000'"))?;
    // One that is far below the newest.
    tab.press("End")?;
    tab.wait(&format!("{MESSAGES}.at(-1) === 'row 099'"))?;
    tab.shows("Following, paused")?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('.drawer .record') !== null")?;
    press(&mut tab, "Resume")?;
    tab.wait(&format!("{MESSAGES}[0] === 'row 000'"))?;
    store(&mixer, ["fresh".to_owned()])?;
    tab.wait(&format!("{MESSAGES}[0] === 'fresh'"))?;
    let state = tab.eval("document.querySelector('.main [role=status]').textContent")?;
    assert_eq!(state, json!("Following"));
    assert_eq!(
        tab.eval("document.querySelector('.drawer .record') !== null")?,
        json!(true)
    );
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}
