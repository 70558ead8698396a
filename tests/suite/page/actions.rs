//! Every action of the page, on a live Mixer with two Racks, by the role that may do it; and that a reader is offered none, and refused all.
//!
//! By their convention, buttons that ask before they do something end with `…`. Their names are read from the page's source, so that one
//! without a test here fails; and what the page asked for meanwhile is asked for again by a reader.

mod fleet;
mod letters;
mod stage;
mod unanswered;

use std::collections::BTreeSet;
use std::path::Path;

use harness::Api;
use harness::browser_tab::SentChange;
use harness::store::files_below;

use self::stage::{ActionStage, PageUser};
use super::*;

/// Does it, and looks at what came of it.
type ActionTest = fn(&mut ActionStage) -> Result<(), Failure>;

/// Who does what, in this order: the button, and the test.
const ACTIONS: [(PageUser, &str, ActionTest); 18] = [
    (PageUser::Author, "Import", fleet::import),
    (PageUser::Author, "Delete", fleet::delete),
    (PageUser::Operator, "Approve", fleet::approve),
    (PageUser::Operator, "Withdraw", fleet::withdraw),
    (PageUser::Operator, "Activate: dry run first", fleet::activate),
    (PageUser::Operator, "Replay", letters::replay),
    (PageUser::Operator, "Replay again", letters::replay_again),
    (PageUser::Operator, "Drop", letters::drop_some),
    (PageUser::Operator, "Replay all", letters::replay_all),
    (PageUser::Operator, "Drop all", letters::drop_all),
    (PageUser::Operator, "Roll back to", fleet::roll_back),
    (PageUser::Operator, "Labels", fleet::label),
    (PageUser::Operator, "Log level", fleet::set_log_level),
    (PageUser::Operator, "Suspend", fleet::suspend),
    (PageUser::Operator, "Resume", fleet::resume),
    (PageUser::Admin, "New token", stage::make_token),
    (PageUser::Admin, "Revoke", stage::revoke_token),
    (PageUser::Admin, "Remove", fleet::remove),
];
/// The last part of the paths by which the page changes something.
const CHANGES: [&str; 15] = [
    "activate",
    "approve",
    "delete",
    "drop",
    "labels",
    "log-level",
    "remove",
    "replay",
    "resume",
    "revoke",
    "rollback",
    "scenarios",
    "suspend",
    "tokens",
    "withdraw",
];

/// The names of the buttons that ask first, as the page's source has them.
fn buttons_of_the_source() -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for path in files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/app"))? {
        let text = std::fs::read_to_string(&path)?;
        for (end, dots) in text.match_indices('…') {
            let (before, after) = (&text[..end], &text[end + dots.len()..]);
            if !after.starts_with("</button>") && !after.starts_with('"') {
                continue;
            }
            let begin = before.rfind(['>', '"', '`']).map_or(0, |at| at + 1);
            let name = before[begin..].split("${").next().unwrap_or_default().trim();
            if name.starts_with(|first: char| first.is_ascii_uppercase()) && !name.ends_with(':') {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(names)
}

/// The path without parameters, and its last part.
fn verb_of(change: &SentChange) -> &str {
    let path = change.path.split('?').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

/// What the page asked to be changed; statements of SQL only read.
fn changes(tab: &mut BrowserTab) -> Vec<SentChange> {
    let is_change = |change: &&SentChange| verb_of(change) != "sql";
    tab.changes().iter().filter(is_change).cloned().collect()
}

/// A reader is offered nothing that changes anything, wherever it is offered to others.
fn offers_nothing(stage: &mut ActionStage) -> Result<(), Failure> {
    let before = changes(&mut stage.tab).len();
    let (rack, letter) = (stage.rack_id("rack-a")?, stage.letters[0].clone());
    for view in [
        format!("fleet?rack={rack}"),
        "fleet?view=scenarios&scenario=plant:2".to_owned(),
        "fleet?view=scenarios&scenario=plant:2&do=activate".to_owned(),
        "fleet?view=scenarios&do=rollback".to_owned(),
        "fleet?view=scenarios&do=import".to_owned(),
        "fleet?view=topology".to_owned(),
        "fleet?view=requests".to_owned(),
        format!("dead-letters?state=all&letter={letter}"),
        "security?view=tokens".to_owned(),
        "storage".to_owned(),
    ] {
        visit(&mut stage.tab, &view)?;
        let buttons = stage.tab.names("button")?;
        assert!(!buttons.is_empty(), "{view}");
        let mut names = ACTIONS.iter().map(|(_, name, _)| name);
        let offered = names.find(|name| buttons.iter().any(|button| button.starts_with(*name)));
        assert_eq!(offered, None, "{view}: {buttons:?}");
        let boxes = stage.tab.names("checkbox")?;
        assert!(boxes.is_empty(), "{view}: letters can be marked: {boxes:?}");
    }
    assert_eq!(changes(&mut stage.tab).len(), before);
    Ok(())
}

/// Asks for the same as the page did.
fn ask_again(api: &Api, change: &SentChange) -> Result<u16, Failure> {
    let kind = if change.body.starts_with('{') || change.body.is_empty() {
        "application/json"
    } else {
        "application/yaml"
    };
    let answer = match change.method.as_str() {
        "PATCH" => api.patch(&change.path, &serde_json::from_str(&change.body)?)?,
        _ => api.send(&change.path, &[("content-type", kind)], change.body.as_bytes())?,
    };
    Ok(answer.status)
}

#[test]
fn every_action_works_for_the_role_that_may_and_a_reader_is_offered_none_and_refused_all() -> Result<(), Failure> {
    let tested: BTreeSet<String> = ACTIONS.iter().map(|(_, name, _)| (*name).to_owned()).collect();
    assert_eq!(
        buttons_of_the_source()?,
        tested,
        "actions of the page, and those with a test"
    );
    let mut stage = ActionStage::start()?;
    let mut user = None;
    for (who, name, step) in ACTIONS {
        if user != Some(who) {
            stage.sign_in(who)?;
            user = Some(who);
        }
        step(&mut stage).map_err(|error| format!("{name}: {error}"))?;
    }
    let sent = changes(&mut stage.tab);
    let verbs: BTreeSet<&str> = sent.iter().map(verb_of).collect();
    assert_eq!(verbs, BTreeSet::from(CHANGES));

    stage.sign_in(PageUser::Reader)?;
    offers_nothing(&mut stage)?;
    let reader = stage.api_of(PageUser::Reader)?;
    for change in &sent {
        assert_eq!(ask_again(&reader, change)?, 403, "{change:?}");
    }
    assert_eq!(own_faults(&mut stage.tab), Vec::<String>::new());
    Ok(())
}
