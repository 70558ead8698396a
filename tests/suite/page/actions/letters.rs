//! Dead letters: given back and dropped, one, some that are marked, and all that the filters mean.

use super::super::*;
use super::stage::ActionStage;

/// Waits until letters are in a state.
fn are(stage: &ActionStage, letters: &[usize], state: &str) -> Result<(), Failure> {
    for letter in letters {
        let path = format!("/api/v1/dlq/{}", stage.letters[*letter]);
        stage.becomes(&path, "/state", &json!(state))?;
    }
    Ok(())
}

/// Opens a letter's drawer and presses one of its buttons.
fn open_letter(stage: &mut ActionStage, letter: usize, button: &str) -> Result<(), Failure> {
    let view = format!("dead-letters?state=all&letter={}", stage.letters[letter]);
    stage.begin(&view)?;
    stage.press(button)
}

/// Marks letters in the list.
fn mark(stage: &mut ActionStage, letters: &[usize]) -> Result<(), Failure> {
    stage.begin("dead-letters")?;
    for letter in letters {
        let name = format!("Mark {}", stage.letters[*letter]);
        stage.tab.click_on("checkbox", &name)?;
    }
    Ok(())
}

pub(super) fn replay(stage: &mut ActionStage) -> Result<(), Failure> {
    open_letter(stage, 0, "Replay…")?;
    stage.tab.shows("1 meant, 1 would change")?;
    stage.confirm("Replay 1")?;
    said(&mut stage.tab, "1 taken by their gear")?;
    are(stage, &[0], "replayed")?;
    mark(stage, &[1, 2])?;
    stage.press("Replay 2…")?;
    stage.confirm("Replay 2")?;
    said(&mut stage.tab, "2 taken by their gear")?;
    are(stage, &[1, 2], "replayed")
}

pub(super) fn replay_again(stage: &mut ActionStage) -> Result<(), Failure> {
    open_letter(stage, 0, "Replay again…")?;
    stage.confirm("Replay 1")?;
    said(&mut stage.tab, "1 taken by their gear")?;
    // Three letters were taken, one of them twice.
    stage.world.sinks("bad", 4).map(drop)
}

pub(super) fn drop_some(stage: &mut ActionStage) -> Result<(), Failure> {
    open_letter(stage, 3, "Drop…")?;
    stage.confirm("Drop 1")?;
    said(&mut stage.tab, "1 dropped")?;
    mark(stage, &[4])?;
    stage.press("Drop 1…")?;
    stage.confirm("Drop 1")?;
    said(&mut stage.tab, "1 dropped")?;
    are(stage, &[3, 4], "dropped")
}

pub(super) fn replay_all(stage: &mut ActionStage) -> Result<(), Failure> {
    stage.begin("dead-letters?gear=pass")?;
    stage.press("Replay all…")?;
    stage.confirm("Replay 2")?;
    said(&mut stage.tab, "2 taken by their gear")?;
    are(stage, &[5, 6], "replayed")?;
    are(stage, &[3, 4], "dropped")
}

pub(super) fn drop_all(stage: &mut ActionStage) -> Result<(), Failure> {
    let bad = json!({ "ts": "never", "message": "broken" }).to_string();
    let headers = [("Content-Type", "application/x-ndjson")];
    let kept = stage
        .api()
        .send("/api/v1/ingest/logs?rejected=keep", &headers, bad.as_bytes())?;
    assert_eq!(kept.json["kept"], 1, "{}", kept.text);
    stage.begin("dead-letters")?;
    stage.press("Drop all…")?;
    stage.confirm_typed("1", "Drop 1")?;
    said(&mut stage.tab, "1 dropped")?;
    assert_eq!(stage.data("/api/v1/dlq")?, json!([]));
    Ok(())
}
