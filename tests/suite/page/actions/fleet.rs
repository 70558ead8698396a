//! Racks and scenarios: admission, operation, import, activation by two, rollback.

use harness::eventually;

use super::super::*;
use super::stage::{ActionStage, SOON};
use crate::dlq::{ANYTHING, LetterPlant, NUMBERS, lines};

/// How many lines its gear cannot handle.
const BAD: u32 = 7;

pub(super) fn import(stage: &mut ActionStage) -> Result<(), Failure> {
    stage.begin("fleet?view=scenarios")?;
    stage.press("Import…")?;
    stage.tab.fill_in("Text", "meta: { name: plant }\n")?;
    stage.press("Check and store")?;
    stage.tab.shows("missing field `version`")?;
    is_accessible(&mut stage.tab, "a scenario with faults")?;
    for (version, condition) in [("1", NUMBERS), ("2", ANYTHING), ("3", ANYTHING)] {
        stage.begin("fleet?view=scenarios&do=import")?;
        let yaml = LetterPlant::yaml(&stage.world.files, version, condition);
        stage.tab.fill_in("Text", &yaml)?;
        stage.press("Check and store")?;
        said(&mut stage.tab, &format!("plant:{version} "))?;
    }
    let stored = stage.data("/api/v1/scenarios")?;
    assert_eq!(stored.as_array().map(Vec::len), Some(3), "{stored}");
    Ok(())
}

pub(super) fn delete(stage: &mut ActionStage) -> Result<(), Failure> {
    stage.begin("fleet?view=scenarios&scenario=plant:3")?;
    stage.press("Delete…")?;
    stage.confirm_typed("plant:3", "Delete")?;
    said(&mut stage.tab, "plant:3 is deleted")?;
    assert_eq!(stage.api().get("/api/v1/scenarios/plant:3")?.status, 404);
    Ok(())
}

pub(super) fn approve(stage: &mut ActionStage) -> Result<(), Failure> {
    let [a, b] = stage.keys.clone();
    stage.begin("fleet")?;
    stage.press("Approve rack-a")?;
    stage.tab.fill_in("Key that the Rack prints", &b)?;
    stage.tab.shows("That is another key: do not approve it.")?;
    // Neither is it approved by a key, nor by another button.
    stage.tab.press("Enter")?;
    stage.press("command")?;
    frame(&mut stage.tab)?;
    stage.tab.shows("That is another key: do not approve it.")?;
    stage.becomes("/api/v1/racks/rack-a", "/state", &json!("pending"))?;
    stage.tab.fill_in("Key that the Rack prints", &a)?;
    stage.confirm("Approve")?;
    said(&mut stage.tab, "rack-a is admitted")?;
    let id = stage.rack_id("rack-b")?;
    stage.begin(&format!("fleet?rack={id}"))?;
    stage.press("Approve…")?;
    stage.tab.fill_in("Key that the Rack prints", &b[b.len() - 8..])?;
    stage.confirm("Approve")?;
    said(&mut stage.tab, "rack-b is admitted")?;
    for rack in ["rack-a", "rack-b"] {
        stage.becomes(&format!("/api/v1/racks/{rack}"), "/state", &json!("active"))?;
    }
    Ok(())
}

/// Asks for an activation, after the dry run.
fn ask_to_activate(stage: &mut ActionStage, reference: &str) -> Result<(), Failure> {
    stage.begin(&format!("fleet?view=scenarios&scenario={reference}"))?;
    stage.press("Activate: dry run first…")?;
    let hash = stage.hash(reference)?;
    stage.confirm(&format!("Activate {reference} {hash}"))?;
    said(
        &mut stage.tab,
        "Nothing was changed yet. A second person has to ask for the same",
    )
}

pub(super) fn withdraw(stage: &mut ActionStage) -> Result<(), Failure> {
    ask_to_activate(stage, "plant:1")?;
    let id = stage.request()?["id"].clone();
    stage.begin("fleet?view=requests")?;
    stage.press(&format!("Withdraw request {id}"))?;
    stage.confirm("Withdraw")?;
    said(&mut stage.tab, &format!("Request {id} is withdrawn"))?;
    assert_eq!(stage.data("/api/v1/requests")?, json!([]));
    Ok(())
}

pub(super) fn activate(stage: &mut ActionStage) -> Result<(), Failure> {
    const STATUS: &str = "/api/v1/scenarios/status";
    ask_to_activate(stage, "plant:1")?;
    stage.agree("/api/v1/scenarios/plant:1/activate?wait=60s")?;
    stage.becomes(STATUS, "/converged", &json!(true))?;
    stage.world.write(&lines(0..BAD, "bad"))?;
    let letters = stage.world.letters("gear=pass&limit=100", BAD as usize)?;
    let ids = letters
        .iter()
        .filter_map(|letter| Some(letter["id"].as_str()?.to_owned()));
    stage.letters = ids.collect();

    // The mended one: what it changes is shown before.
    stage.begin("fleet?view=scenarios&scenario=plant:2")?;
    stage.press("Activate: dry run first…")?;
    for line in [
        "- meta: { name: plant, version: '1' }",
        "+ meta: { name: plant, version: '2' }",
    ] {
        stage.tab.wait(&format!(
            "document.querySelector('[aria-label=\"Differences of the texts\"]')?.innerText.includes({}) === true",
            json!(line)
        ))?;
    }
    stage.tab.shows("2 of 2 Racks would change")?;
    assert_eq!(
        stage.data(STATUS)?["scenario"]["reference"],
        "plant:1",
        "it was a dry run"
    );
    ask_to_activate(stage, "plant:2")?;
    stage.agree("/api/v1/scenarios/plant:2/activate?wait=60s")?;
    stage.becomes(STATUS, "/scenario/reference", &json!("plant:2"))?;
    stage.becomes(STATUS, "/converged", &json!(true))
}

pub(super) fn roll_back(stage: &mut ActionStage) -> Result<(), Failure> {
    let hash = stage.hash("plant:1")?;
    stage.begin("fleet?view=scenarios")?;
    stage.press(&format!("Roll back to plant:1 {hash}…"))?;
    stage.confirm(&format!("Roll back to plant:1 {hash}"))?;
    said(
        &mut stage.tab,
        "Nothing was changed yet. A second person has to ask for the same",
    )?;
    stage.agree("/api/v1/scenarios/rollback?wait=60s")?;
    stage.becomes("/api/v1/scenarios/status", "/scenario/reference", &json!("plant:1"))
}

/// Opens rack-b's drawer and presses one of its buttons.
fn operate(stage: &mut ActionStage, button: &str) -> Result<String, Failure> {
    let id = stage.rack_id("rack-b")?;
    stage.begin(&format!("fleet?rack={id}"))?;
    stage.press(button)?;
    Ok(format!("/api/v1/racks/{id}"))
}

pub(super) fn label(stage: &mut ActionStage) -> Result<(), Failure> {
    let rack = operate(stage, "Labels…")?;
    stage.tab.fill_in("Add or change", "role=press")?;
    stage.confirm("Set labels")?;
    said(&mut stage.tab, "Labels of rack-b are set")?;
    stage.becomes(&rack, "/labels", &json!({ "role": "press" }))
}

pub(super) fn set_log_level(stage: &mut ActionStage) -> Result<(), Failure> {
    operate(stage, "Log level…")?;
    stage.confirm("Set")?;
    said(&mut stage.tab, "rack-b logs from level debug on")?;
    eventually("the change in the Rack's log", SOON, || {
        let log = stage.world.b.log();
        log.contains("the Mixer set the log level to debug").then_some(())
    })
}

pub(super) fn suspend(stage: &mut ActionStage) -> Result<(), Failure> {
    let rack = operate(stage, "Suspend…")?;
    stage.confirm("Suspend")?;
    said(&mut stage.tab, "rack-b is suspended")?;
    stage.becomes(&rack, "/state", &json!("suspended"))
}

pub(super) fn resume(stage: &mut ActionStage) -> Result<(), Failure> {
    let rack = operate(stage, "Resume…")?;
    stage.confirm("Resume")?;
    said(&mut stage.tab, "rack-b is resumed")?;
    stage.becomes(&rack, "/state", &json!("active"))
}

pub(super) fn remove(stage: &mut ActionStage) -> Result<(), Failure> {
    let rack = operate(stage, "Remove…")?;
    stage.confirm_typed("rack-b", "Remove")?;
    said(&mut stage.tab, "rack-b is removed")?;
    stage.becomes(&rack, "/state", &json!("removed"))
}
