//! What goes on while somebody looks: rows as they come, a Mixer that is killed and comes back, a question that is cancelled.

use std::time::Duration;

use harness::eventually;

use super::*;

const SOON: Duration = Duration::from_secs(60);
/// Would take for ever over 200 rows.
const ENDLESS: &str =
    "SELECT count(*) FROM logs a, logs b, logs c, logs d WHERE a.message || b.message < c.message || d.message";
/// The messages that the list has, the newest first.
const SHOWN: &str = "[...document.querySelectorAll('[role=table] [role=row]')].flatMap((row) => row.textContent.match(/message-\\d/) || [])";

fn publish(mixer: &TestMixer, message: &str) -> Result<(), Failure> {
    let ts = chrono::Utc::now().to_rfc3339();
    let row = json!({ "ts": ts, "level": "info", "message": message, "entity_name": "tail" });
    ingest(mixer, "logs", &[row])
}

/// Waits until the list has these messages, the newest first, and each once.
fn shows(tab: &mut BrowserTab, messages: &[&str]) -> Result<(), Failure> {
    tab.wait(&format!(
        "JSON.stringify({SHOWN}) === JSON.stringify({})",
        json!(messages)
    ))
}

/// Waits until so many requests are at the Mixer, the one that asks for their number among them.
fn runs(mixer: &TestMixer, requests: f64) -> Result<(), Failure> {
    eventually(&format!("{requests} requests at the Mixer"), SOON, || {
        (mixer.api.metric("platform_http_server_active_requests")? == requests).then_some(())
    })
}

/// A statement that is cancelled, and one whose view is left, end at the server.
fn cancels(mixer: &TestMixer, tab: &mut BrowserTab) -> Result<(), Failure> {
    visit(tab, "sql")?;
    runs(mixer, 1.0)?;
    let asked = json!(format!("#/sql?q={}", ENDLESS.replace(' ', "+").replace("||", "%7C%7C")));
    tab.eval(&format!("void (location.hash = {asked})"))?;
    runs(mixer, 2.0)?;
    tab.click_on("button", "Cancel")?;
    tab.shows("Cancelled")?;
    runs(mixer, 1.0)?;
    tab.click_on("button", "Run it again")?;
    runs(mixer, 2.0)?;
    visit(tab, "dead-letters")?;
    runs(mixer, 1.0)
}

/// Rows come while the list is open, and wait while it is paused.
fn follows(mixer: &TestMixer, tab: &mut BrowserTab) -> Result<(), Failure> {
    visit(tab, "logs?live=1&entity=tail&side=off")?;
    said(tab, "Following")?;
    tab.shows("platform logs --entity tail --follow")?;
    publish(mixer, "message-1")?;
    publish(mixer, "message-2")?;
    shows(tab, &["message-2", "message-1"])?;
    tab.click_on("button", "Pause")?;
    said(tab, "Following, paused")?;
    publish(mixer, "message-3")?;
    tab.wait("[...document.querySelectorAll('button')].some((one) => one.textContent.startsWith('Resume (1 '))")?;
    shows(tab, &["message-2", "message-1"])?;
    let resume = tab.names("button")?;
    let resume = resume
        .iter()
        .find(|name| name.starts_with("Resume"))
        .ok_or("no Resume")?;
    tab.click_on("button", resume)?;
    shows(tab, &["message-3", "message-2", "message-1"])
}

#[test]
fn live_tail_and_pages_go_on_after_a_restart_of_the_mixer_and_a_cancelled_question_stops() -> Result<(), Failure> {
    // No statement ends by its time within that of the test.
    let mut mixer = TestMixer::start("[query]\ntimeout = \"10m\"\n")?;
    fill(&mixer, &["before"])?;
    let mut tab = open(&mixer, "sql")?;
    cancels(&mixer, &mut tab)?;
    follows(&mixer, &mut tab)?;
    assert_eq!(tab.faults(), Vec::<String>::new());

    mixer.kill9()?;
    said(&mut tab, "Trying again in")?;
    tab.shows("The Mixer cannot be reached.")?;
    mixer.restart()?;
    publish(&mixer, "message-4")?;
    shows(&mut tab, &["message-4", "message-3", "message-2", "message-1"])?;
    said(&mut tab, "Following")?;
    publish(&mixer, "message-5")?;
    shows(
        &mut tab,
        &["message-5", "message-4", "message-3", "message-2", "message-1"],
    )?;

    // A view that asks by itself goes on by itself; a list where somebody asks again.
    visit(&mut tab, "overview")?;
    mixer.kill9()?;
    tab.wait("document.querySelector('[role=alert]') !== null")?;
    tab.shows("the Mixer cannot be reached: is it running?")?;
    mixer.restart()?;
    tab.wait("document.querySelector('[role=alert]') === null && document.body.innerText.includes('All files')")?;
    visit(&mut tab, "logs?since=1h&side=off")?;
    mixer.kill9()?;
    visit(&mut tab, "logs?since=2h&side=off")?;
    tab.shows("the Mixer cannot be reached: is it running?")?;
    mixer.restart()?;
    tab.eval("document.querySelectorAll('[role=alert] button').forEach((button) => button.click())")?;
    tab.shows("message-5")?;
    assert_eq!(own_faults(&mut tab), Vec::<String>::new());
    Ok(())
}
