//! Racks as operators handle them while they run.

mod audit;
mod backup_restore;
mod credentials;
mod invites;
mod labels;
mod life;
mod names;
mod operator_mode;
mod rotation;
mod sandbox;
pub(crate) mod states;

use std::time::Duration;

use harness::process::run;
use harness::{Failure, TestMixer, TestRack, binary, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// A port that is free now, for a Mixer that comes back on it.
pub(crate) fn free_port() -> Result<String, Failure> {
    Ok(harness::free_port()?.to_string())
}

/// A Mixer that asks before it adopts anybody.
fn strict() -> Result<TestMixer, Failure> {
    TestMixer::start("[enrollment]\nauto_adopt = false\npush_delay = \"50ms\"\n")
}

/// What a command of an operator on the Mixer's machine prints.
fn printed(mixer: &TestMixer, args: &[&str]) -> Result<String, Failure> {
    let done = mixer.platform(args)?;
    assert_eq!(done.code, Some(0), "{args:?}: {}{}", done.out, done.err);
    Ok(done.out.trim().to_owned())
}

/// A Rack as the Mixer shows it, by its name or id.
fn shown(mixer: &TestMixer, rack: &str) -> Result<Value, Failure> {
    Ok(mixer.api.get(&format!("/api/v1/racks/{rack}"))?.json["data"].clone())
}

fn becomes(mixer: &TestMixer, rack: &str, state: &str) -> Result<(), Failure> {
    eventually(&format!("{rack} is {state}"), SOON, || {
        (shown(mixer, rack).ok()?["state"] == state).then_some(())
    })
}

/// Waits until a Rack obeys a command of this Mixer.
fn obeys(mixer: &TestMixer, rack: &str) -> Result<(), Failure> {
    eventually(&format!("{rack} obeys"), SOON, || {
        let path = format!("/api/v1/racks/{rack}/log-level");
        let answer = mixer.api.post(&path, &json!({ "level": "info" })).ok()?;
        (answer.status == 200).then_some(())
    })
}

#[test]
fn the_level_of_a_racks_log_changes_while_it_runs() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let level = |level: &str| {
        let args = ["racks", "log-level", "rack-a", level, "--api-url", &mixer.api.base];
        run(&binary("platform")?, &args, rack.path(), &[])
    };
    // A change is told at level info: at error and warn nothing is to be seen of it.
    for word in ["debug", "error", "warn", "info"] {
        let done = level(word)?;
        assert_eq!(done.code, Some(0), "{}", done.err);
    }
    eventually("the last change in the log", SOON, || {
        rack.log().contains("the Mixer set the log level to info").then_some(())
    })?;
    let log = rack.log();
    assert!(log.contains("the Mixer set the log level to debug"), "{log}");
    assert!(
        !log.contains("the log level to error") && !log.contains("the log level to warn"),
        "{log}"
    );

    assert_eq!(level("loud")?.code, Some(64));
    let bad = mixer.api.post("/api/v1/racks/rack-a/log-level", &json!({}))?;
    assert_eq!((bad.status, &bad.json["code"]), (400, &json!("bad_body")));
    rack.kill9()?;
    let entries = || mixer.api.rows("/api/v1/audit?kind=rack_log_level");
    let before = entries()?.len();
    let silent = mixer
        .api
        .post("/api/v1/racks/rack-a/log-level", &json!({ "level": "info" }))?;
    assert_eq!(
        (silent.status, &silent.json["code"]),
        (503, &json!("rack_silent")),
        "{}",
        silent.text
    );
    // What was asked of it, and that it did not say a word: it may have obeyed.
    let entries = entries()?;
    assert_eq!(entries.len(), before + 2, "{entries:?}");
    assert!(
        entries[0]["why"]
            .as_str()
            .is_some_and(|why| why.contains("did not confirm the command")),
        "{entries:?}"
    );
    assert_eq!((&entries[1]["to"], &entries[1]["why"]), (&json!("info"), &json!(null)));
    Ok(())
}
