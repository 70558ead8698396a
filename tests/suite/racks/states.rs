//! A Rack's ways from state to state, and how it stands to the active scenario in each of them.

use std::collections::BTreeSet;
use std::sync::mpsc;

use futures::StreamExt as _;
use harness::{Failure, TestMixer, TestRack, eventually};
use serde_json::{Value, json};

use super::{SOON, becomes, strict};

const SCENARIO: &str = "meta: { name: demo, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                        - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }\n";

fn state(mixer: &TestMixer, name: &str) -> Option<String> {
    let rack = mixer.api.get(&format!("/api/v1/racks/{name}")).ok()?;
    Some(rack.json["data"]["state"].as_str()?.to_owned())
}

/// Asks for a change: the status and, of a refusal, the code.
fn ask(mixer: &TestMixer, name: &str, verb: &str) -> Result<(u16, Value), Failure> {
    let done = mixer.api.post(&format!("/api/v1/racks/{name}/{verb}"), &json!({}))?;
    Ok((done.status, done.json["code"].clone()))
}

/// What is done, and what the Rack is shown as then.
pub(super) fn goes(mixer: &TestMixer, name: &str, verb: &str, to: &str) -> Result<(), Failure> {
    assert_eq!(ask(mixer, name, verb)?, (200, Value::Null), "{verb}");
    assert_eq!(state(mixer, name).as_deref(), Some(to), "{verb}");
    Ok(())
}

fn refused(mixer: &TestMixer, name: &str, verbs: &[&str]) -> Result<(), Failure> {
    for verb in verbs {
        assert_eq!(ask(mixer, name, verb)?, (409, json!("wrong_state")), "{verb}");
    }
    Ok(())
}

/// Of a Rack that is waited for while a Mixer starts: three heartbeats are longer than that takes.
const PATIENT: &str = "[rack]\nheartbeat_interval = \"5s\"\n";

/// A Rack that waits for approval.
fn pending(mixer: &TestMixer, name: &str) -> Result<TestRack, Failure> {
    pending_with(mixer, name, "")
}

/// The same, with more of its configuration.
fn pending_with(mixer: &TestMixer, name: &str, extra: &str) -> Result<TestRack, Failure> {
    let mut rack = TestRack::new(name, &mixer.bus_url, extra)?;
    rack.spawn()?;
    rack.process()?.line("pending ", SOON)?;
    assert_eq!(state(mixer, name).as_deref(), Some("pending"));
    Ok(rack)
}

#[test]
fn a_rack_goes_where_its_state_allows_and_every_other_way_is_refused() -> Result<(), Failure> {
    let mixer = strict()?;
    let mut rack = pending(&mixer, "rack-a")?;
    refused(&mixer, "rack-a", &["suspend", "resume"])?;

    goes(&mixer, "rack-a", "approve", "active")?;
    rack.process()?.line("ready ", SOON)?;
    goes(&mixer, "rack-a", "approve", "active")?;
    goes(&mixer, "rack-a", "resume", "active")?;

    goes(&mixer, "rack-a", "suspend", "suspended")?;
    refused(&mixer, "rack-a", &["approve"])?;
    goes(&mixer, "rack-a", "suspend", "suspended")?;
    goes(&mixer, "rack-a", "resume", "active")?;

    // Away and back it is what it was.
    rack.kill9()?;
    becomes(&mixer, "rack-a", "offline")?;
    rack.spawn()?;
    becomes(&mixer, "rack-a", "active")?;
    // What is asked for while it is away holds when it is back.
    rack.kill9()?;
    becomes(&mixer, "rack-a", "offline")?;
    goes(&mixer, "rack-a", "suspend", "offline")?;
    rack.spawn()?;
    becomes(&mixer, "rack-a", "suspended")?;
    rack.kill9()?;
    becomes(&mixer, "rack-a", "offline")?;
    goes(&mixer, "rack-a", "resume", "offline")?;
    rack.spawn()?;
    becomes(&mixer, "rack-a", "active")?;

    rack.kill9()?;
    becomes(&mixer, "rack-a", "offline")?;
    let id = mixer.api.get("/api/v1/racks/rack-a")?.json["data"]["id"].clone();
    let id = id.as_str().ok_or("no id")?;
    goes(&mixer, id, "remove", "removed")?;
    refused(&mixer, id, &["approve", "suspend", "resume"])?;
    goes(&mixer, id, "remove", "removed")?;
    rack.spawn()?;
    eventually("the refusal at the Rack", SOON, || {
        rack.log().contains("was removed from this cluster").then_some(())
    })
    .map_err(|error| format!("{error}: {}", rack.log()))?;
    assert_eq!(state(&mixer, id).as_deref(), Some("removed"));
    Ok(())
}

#[test]
fn a_rack_is_removed_from_every_state_for_ever() -> Result<(), Failure> {
    let mut mixer = strict()?;
    let mut removed = Vec::new();
    for (name, verbs) in [
        ("rack-p", &[][..]),
        ("rack-a", &["approve"][..]),
        ("rack-s", &["approve", "suspend"][..]),
        ("rack-o", &["approve"][..]),
    ] {
        let mut rack = pending(&mixer, name)?;
        for verb in verbs {
            assert_eq!(ask(&mixer, name, verb)?.0, 200);
        }
        if name == "rack-o" {
            // Of a Rack that never said how often it beats less is expected.
            eventually("its first heartbeat", SOON, || {
                let shown = mixer.api.get("/api/v1/racks/rack-o").ok()?;
                let facts = shown.json["data"]["facts"].as_object()?;
                (!facts.is_empty()).then_some(())
            })?;
            rack.kill9()?;
            becomes(&mixer, name, "offline")?;
        }
        let shown = mixer.api.get(&format!("/api/v1/racks/{name}"))?;
        let id = shown.json["data"]["id"].as_str().ok_or("no id")?.to_owned();
        goes(&mixer, &id, "remove", "removed")?;
        removed.push((rack, id));
    }
    // Neither a handshake nor an operator brings it back, also after a restart of both.
    mixer.kill9()?;
    mixer.restart()?;
    for (rack, id) in &mut removed {
        // One of them does not run already.
        let _ = rack.kill9();
        let before = rack.log().len();
        rack.spawn()?;
        eventually("the refusal of its handshake", SOON, || {
            let log = rack.log();
            log.get(before..)?
                .contains("start the Rack with a fresh state file to enrol again")
                .then_some(())
        })
        .map_err(|error| format!("{error}: {}", rack.log()))?;
        refused(&mixer, id, &["approve", "suspend", "resume"])?;
        assert_eq!(state(&mixer, id).as_deref(), Some("removed"));
    }
    Ok(())
}

/// The kinds of the events that a bus carries from now on.
pub(crate) fn events(mixer: &TestMixer) -> Result<mpsc::Receiver<String>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = mixer.operator()?;
    let mut events = runtime.block_on(async {
        let client = options.connect(&mixer.bus_url).await?;
        let events = client.subscribe("platform.event.>").await?;
        client.flush().await?;
        Ok::<_, Failure>(events)
    })?;
    let (tell, told) = mpsc::channel();
    // It ends with the bus, or when nobody listens any more.
    std::thread::spawn(move || {
        runtime.block_on(async {
            while let Some(event) = events.next().await {
                let kind = event.subject.rsplit('.').next().unwrap_or_default().to_owned();
                if tell.send(kind).is_err() {
                    break;
                }
            }
        });
    });
    Ok(told)
}

#[test]
fn every_change_of_a_racks_state_is_an_event() -> Result<(), Failure> {
    let mixer = strict()?;
    let told = events(&mixer)?;
    let heard = |wanted: &str| -> Result<(), Failure> {
        assert_eq!(told.recv_timeout(SOON)?, wanted);
        Ok(())
    };
    let mut rack = pending(&mixer, "rack-a")?;
    heard("rack_pending")?;
    goes(&mixer, "rack-a", "approve", "active")?;
    heard("rack_approved")?;
    rack.process()?.line("ready ", SOON)?;
    heard("rack_adopted")?;
    let labelled = mixer
        .api
        .put("/api/v1/racks/rack-a/labels", &json!({ "role": "edge" }))?;
    assert_eq!(labelled.status, 200, "{}", labelled.text);
    heard("rack_labels")?;
    let level = mixer
        .api
        .post("/api/v1/racks/rack-a/log-level", &json!({ "level": "debug" }))?;
    assert_eq!(level.status, 200, "{}", level.text);
    heard("rack_log_level")?;
    for (verb, to, kind) in [
        ("suspend", "suspended", "rack_suspended"),
        ("resume", "active", "rack_resumed"),
    ] {
        goes(&mixer, "rack-a", verb, to)?;
        heard(kind)?;
        // What changes nothing is no event.
        goes(&mixer, "rack-a", verb, to)?;
    }
    // Heard before it comes back: who is away for less than a look at the clocks is not missed.
    rack.kill9()?;
    heard("rack_offline")?;
    rack.spawn()?;
    heard("rack_online")?;
    // Back under another name.
    rack.kill9()?;
    heard("rack_offline")?;
    let file = rack.path().join("platform.toml");
    std::fs::write(
        &file,
        std::fs::read_to_string(&file)?.replace("\"rack-a\"", "\"rack-b\""),
    )?;
    rack.spawn()?;
    let both = BTreeSet::from([told.recv_timeout(SOON)?, told.recv_timeout(SOON)?]);
    assert_eq!(both, BTreeSet::from(["rack_online", "rack_renamed"].map(str::to_owned)));
    let id = mixer.api.get("/api/v1/racks/rack-b")?.json["data"]["id"].clone();
    goes(&mixer, id.as_str().ok_or("no id")?, "remove", "removed")?;
    heard("rack_removed")
}

/// Why `rack-a` does not run the active scenario; none if it does.
fn reason(mixer: &TestMixer) -> Option<Option<String>> {
    let report = mixer.api.get("/api/v1/scenarios/status").ok()?.json;
    let racks = report["data"]["racks"].as_array()?;
    let rack = racks.iter().find(|rack| rack["name"] == "rack-a")?;
    assert_eq!(rack["converged"], rack["reason"].is_null(), "{rack}");
    Some(rack["reason"].as_str().map(str::to_owned))
}

fn stands(mixer: &TestMixer, wanted: Option<&str>) -> Result<(), Failure> {
    let what = format!("rack-a stands so: {wanted:?}");
    eventually(&what, SOON, || (reason(mixer)?.as_deref() == wanted).then_some(()))
}

fn written(mixer: &TestMixer, kind: &str) -> Result<(), Failure> {
    eventually(&format!("{kind} in the audit log"), SOON, || {
        let rows = mixer.api.rows(&format!("/api/v1/audit?kind={kind}")).ok()?;
        (!rows.is_empty()).then_some(())
    })
}

#[test]
fn the_report_says_of_each_rack_whether_it_runs_the_scenario_and_why_not() -> Result<(), Failure> {
    let mut mixer = strict()?;
    let yaml = [("Content-Type", "application/yaml")];
    assert_eq!(
        mixer.api.send("/api/v1/scenarios", &yaml, SCENARIO.as_bytes())?.status,
        200
    );
    let done = mixer
        .api
        .post("/api/v1/scenarios/demo:1/activate?wait=0s", &json!({}))?;
    assert_eq!(done.status, 200, "{}", done.text);
    stands(&mixer, Some("it is not enrolled"))?;

    let mut rack = pending_with(&mixer, "rack-a", PATIENT)?;
    stands(&mixer, Some("it is pending: platform racks approve"))?;
    assert_eq!(ask(&mixer, "rack-a", "approve")?.0, 200);
    stands(&mixer, None)?;

    assert_eq!(ask(&mixer, "rack-a", "suspend")?.0, 200);
    stands(&mixer, Some("it is suspended: platform racks resume"))?;
    assert_eq!(ask(&mixer, "rack-a", "resume")?.0, 200);
    stands(&mixer, None)?;

    // Before it is told of another scenario it has not taken it.
    let next = SCENARIO.replace("version: '1'", "version: '2'");
    assert_eq!(mixer.api.send("/api/v1/scenarios", &yaml, next.as_bytes())?.status, 200);
    let rehearsed = mixer
        .api
        .post("/api/v1/scenarios/demo:2/activate?dry_run=true", &json!({}))?;
    assert_eq!(
        rehearsed.json["data"]["racks"][0]["reason"],
        "it has not applied it yet"
    );

    rack.kill9()?;
    stands(&mixer, Some("it is offline"))?;
    written(&mixer, "rack_offline")?;
    mixer.kill9()?;
    mixer.restart()?;
    stands(&mixer, Some("it is offline"))?;
    rack.spawn()?;
    stands(&mixer, None)?;
    written(&mixer, "rack_online")?;
    mixer.kill9()?;
    rack.kill9()?;
    mixer.restart()?;
    stands(&mixer, Some("it has not reported yet"))?;
    rack.spawn()?;
    stands(&mixer, None)?;
    Ok(())
}
