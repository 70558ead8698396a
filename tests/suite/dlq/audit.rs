//! Who replayed or dropped letters, in the audit log.

use std::collections::BTreeSet;

use harness::binary;
use harness::process::run;

use super::*;
use crate::racks::states::events;

#[test]
fn a_request_that_changes_letters_is_one_entry_of_the_audit_log_and_one_event_and_others_are_none()
-> Result<(), Failure> {
    let world = LetterPlant::start()?;
    let told = events(&world.mixer)?;
    world.write(&lines(0..5, "bad"))?;
    let all = world.letters("gear=pass", 5)?;
    let api = &world.mixer.api;
    let drop = |body: Value| -> Result<(), Failure> {
        let done = api.post("/api/v1/dlq/drop", &body)?;
        assert_eq!(done.status, 200, "{}", done.text);
        Ok(())
    };
    let first = id(&all[0]);
    drop(json!({ "ids": [first], "by": "tester", "dry_run": true }))?;
    drop(json!({ "ids": [first], "by": "tester" }))?;
    drop(json!({ "ids": [first], "by": "somebody else" }))?;
    world.mend("2")?;
    let wish = json!({ "filter": { "gear": "pass" }, "wait": "60s" });
    let done = api.post("/api/v1/dlq/replay", &wish)?;
    assert_eq!(done.json["data"]["replayed"], 4, "{}", done.text);

    let dropped = api.rows("/api/v1/audit?kind=letters_dropped&rack=rack-b")?;
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert_eq!(dropped[0]["by"], harness::local_caller());
    assert_eq!(dropped[0]["why"], format!("1 letter, tester: {first}"));

    let args = [
        "audit",
        "--kind",
        "letters_replayed",
        "-o",
        "json",
        "--api-url",
        &api.base,
    ];
    let shown = run(&binary("platform")?, &args, world.files.path(), &[])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let replayed: Vec<Letter> = serde_json::from_str(&shown.out)?;
    assert_eq!(replayed.len(), 1, "{replayed:?}");
    let rack = api.get("/api/v1/racks/rack-b")?.json;
    assert_eq!(replayed[0]["entity_id"], rack["data"]["id"]);
    // In the order in which they failed, which is not that of the list for those of one moment.
    let why = replayed[0]["why"].as_str().ok_or("no reason")?;
    let named = why
        .strip_prefix("4 letters, unnamed: ")
        .and_then(|why| why.strip_suffix(", …"));
    let named: BTreeSet<&str> = named.ok_or_else(|| why.to_owned())?.split(", ").collect();
    let left: BTreeSet<&str> = all[1..].iter().map(id).collect();
    assert!(named.len() == 3 && named.is_subset(&left), "{why}");

    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "letters_replayed") {
        kinds.push(told.recv_timeout(SOON)?);
    }
    kinds.retain(|kind| kind.starts_with("letters_"));
    assert_eq!(kinds, ["letters_dropped", "letters_replayed"]);
    Ok(())
}
