//! Changes whose answer does not come, in the ways in which answers do not: they are done, and the page says that they may be.

use harness::eventually;

use super::super::*;
use super::stage::{SOON, pending};

const SCENARIO: &str = "
meta: { name: press, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1 } }
";
const UNKNOWN: &str = "No answer came, and it may be done all the same: look whether it was, before you ask again.";

/// A change that is asked for, and is done.
struct UnansweredChange<'a> {
    view: &'a str,
    /// The button that opens its dialog or drawer.
    begins: &'a str,
    /// A field there, and what is typed into it.
    field: Option<(&'a str, &'a str)>,
    /// The button that asks for it.
    confirms: String,
    /// A part of the address by which it is asked for.
    path: &'a str,
    /// What the page gets in place of the answer.
    answer: &'a str,
    /// The path, the field and the value by which the Mixer has it.
    done: (&'a str, &'a str, &'a str),
}

/// Asks for it; once the Mixer has answered, the page gets something else, once.
fn ask_in_vain(mixer: &TestMixer, tab: &mut BrowserTab, change: &UnansweredChange<'_>) -> Result<(), Failure> {
    visit(tab, "overview")?;
    visit(tab, change.view)?;
    let (asked, answer) = (json!(change.path), change.answer);
    tab.eval(&format!(
        "void (window.real ??= fetch, window.fetch = async (to, options) => {{
            const came = await real(to, options);
            if (options?.method !== 'POST' || !String(to).includes({asked})) return came;
            window.fetch = real;
            return {answer};
        }})"
    ))?;
    tab.click_on("button", change.begins)?;
    if let Some((name, text)) = change.field {
        tab.fill_in(name, text)?;
    }
    tab.click_on("button", &change.confirms)?;
    tab.shows(UNKNOWN)?;
    is_accessible(tab, change.view)?;
    let (path, field, value) = change.done;
    eventually(&format!("{path} with {field} {value}"), SOON, || {
        let answer = mixer.api.get(path).ok()?;
        (answer.json["data"].pointer(field)? == value).then_some(())
    })
}

#[test]
fn a_change_without_an_answer_may_be_done_all_the_same() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("enrollment.auto_adopt", "false")], &[])?;
    let (_rack, key) = pending("rack-a", &mixer)?;
    let headers = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &headers, SCENARIO.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let scenario = mixer.api.get("/api/v1/scenarios/press:1")?;
    let hash = scenario.json["data"]["hash"].as_str().ok_or("no hash")?;
    let mut tab = open(&mixer, "overview")?;
    let changes = [
        UnansweredChange {
            view: "fleet",
            begins: "Approve rack-a",
            field: Some(("Key that the Rack prints", key.as_str())),
            confirms: "Approve".to_owned(),
            path: "/approve",
            answer: "Promise.reject(new TypeError('the connection is gone'))",
            done: ("/api/v1/racks/rack-a", "/state", "active"),
        },
        UnansweredChange {
            view: "fleet?view=scenarios&scenario=press:1",
            begins: "Activate: dry run first…",
            field: None,
            confirms: format!("Activate press:1 {}", &hash[..8]),
            path: "/activate?wait=",
            answer: "new Response('{}', { status: 504 })",
            done: ("/api/v1/scenarios/status", "/scenario/reference", "press:1"),
        },
        UnansweredChange {
            view: "security?view=tokens",
            begins: "New token…",
            field: Some(("Name", "tom")),
            confirms: "Make the token".to_owned(),
            path: "/api/v1/tokens",
            answer: "new Response('{ \"data\": {')",
            done: ("/api/v1/tokens", "/0/name", "tom"),
        },
    ];
    for change in &changes {
        ask_in_vain(&mixer, &mut tab, change).map_err(|error| format!("{}: {error}", change.begins))?;
    }

    // A refusal is an answer.
    tab.click_on("button", "Make the token")?;
    tab.wait("document.querySelector('dialog .error') !== null && !document.querySelector('dialog .waiting')")?;
    let said = tab.eval("document.querySelector('dialog').innerText")?;
    assert!(!said.as_str().unwrap_or_default().contains(UNKNOWN), "{said}");
    assert_eq!(own_faults(&mut tab), Vec::<String>::new());
    Ok(())
}
