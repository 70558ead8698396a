//! The notes of the outbox that keep open windows: `window <gear> <page>`.

use std::collections::BTreeMap;

use super::state_page;
use crate::outbox::{MessageOutbox, OutboxTransaction};
use crate::spool::AdmissionClass;

/// What the names of the notes begin with.
const KEPT: &str = "window ";

/// The name of a page among the notes.
pub(super) fn note_key(gear: &str, page: u8) -> String {
    format!("{KEPT}{gear} {page}")
}

/// Deletes what gears have left that are not there any more, and says how many windows are lost with them.
pub(crate) async fn forget_windows(outbox: &MessageOutbox, is_there: impl Fn(&str) -> bool) {
    // What their last lives have handed over is there then.
    if outbox.flush().await.is_err() {
        return;
    }
    let mut notes = outbox.spool().checkpoints(KEPT);
    let mut lost = BTreeMap::<String, usize>::new();
    notes.retain_mut(|note| {
        let Some(gear) = note.key.split(' ').nth(1).filter(|gear| !is_there(gear)) else {
            return false;
        };
        *lost.entry(gear.to_owned()).or_default() += state_page::count(&note.value);
        note.value.clear();
        true
    });
    for (gear, windows) in lost {
        tracing::warn!(
            gear.id = gear,
            windows,
            "the scenario has no such window gear any more: the windows that it left open are deleted"
        );
    }
    if !notes.is_empty() {
        let whole = OutboxTransaction {
            notes,
            ..OutboxTransaction::default()
        };
        // Where the Rack stops before, the next scenario deletes them.
        outbox.commit(whole, AdmissionClass::Consumer, None).await.ok();
    }
}
