//! Suspended, resumed, removed: what becomes of a Rack's gears.

use std::net::TcpStream;

use super::*;

#[test]
fn a_suspended_rack_closes_its_sockets_a_resumed_one_opens_them_and_a_removed_one_never_again() -> Result<(), Failure> {
    let listen = harness::free_address()?;
    let text = format!(
        "meta: {{ name: hook, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: hook, type: http_in, deploy: rack-a, config: {{ listen: '{listen}', path: /in }} }}\n"
    );
    let (mixer, _scenario) = crate::first_light::mixer_with(&text)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let is_open = |wanted: bool| {
        eventually(&format!("the socket is open: {wanted}"), SOON, || {
            (TcpStream::connect(listen).is_ok() == wanted).then_some(())
        })
    };
    let change = |verb: &str| -> Result<(), Failure> {
        let answer = mixer.api.post(&format!("/api/v1/racks/rack-a/{verb}"), &json!({}))?;
        assert_eq!(answer.status, 200, "{}", answer.text);
        Ok(())
    };
    is_open(true)?;
    change("suspend")?;
    assert!(
        TcpStream::connect(listen).is_err(),
        "the Rack has obeyed when the request is answered"
    );
    rack.kill9()?;
    rack.spawn()?;
    eventually("the Rack is enrolled again", SOON, || {
        (rack.log().matches("enrolled").count() >= 2).then_some(())
    })?;
    assert!(
        TcpStream::connect(listen).is_err(),
        "it is suspended after a restart too"
    );
    change("resume")?;
    is_open(true)?;
    change("remove")?;
    is_open(false)?;
    let gone = mixer.api.post("/api/v1/racks/rack-a/resume", &json!({}))?;
    assert_eq!(gone.status, 404, "its name is free: {}", gone.text);
    Ok(())
}

#[test]
fn a_suspended_rack_is_shown_without_a_scenario_that_runs_once_it_has_stopped_its_gears() -> Result<(), Failure> {
    let text = "meta: { name: demo, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1 } }\n";
    let (mut mixer, _scenario) = crate::first_light::mixer_with(text)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let runs_it = |mixer: &TestMixer| {
        eventually("the Rack runs the scenario", SOON, || {
            let seen = mixer.api.get("/api/v1/racks/rack-a").ok()?.json["data"].clone();
            (seen["scenario"]["running"]["reference"] == "demo:1").then_some(())
        })
    };
    let runs_nothing = |mixer: &TestMixer| -> Result<(), Failure> {
        let seen = mixer.api.get("/api/v1/racks/rack-a")?.json["data"].clone();
        assert_eq!(seen["state"], "suspended", "{seen}");
        assert_eq!(seen["scenario"], json!({ "wanted": null, "running": null }), "{seen}");
        let report = mixer.api.get("/api/v1/scenarios/status")?.json["data"].clone();
        assert!(report["racks"][0]["running"].is_null(), "{report}");
        Ok(())
    };
    runs_it(&mixer)?;
    assert_eq!(mixer.api.post("/api/v1/racks/rack-a/suspend", &json!({}))?.status, 200);
    runs_nothing(&mixer)?;
    // Only the Rack's heartbeats say it to a Mixer that did not ask for it.
    mixer.kill9()?;
    mixer.restart()?;
    eventually("a heartbeat", SOON, || {
        let seen = mixer.api.get("/api/v1/racks/rack-a").ok()?.json["data"].clone();
        seen["facts"]["cpu.usage"].is_number().then_some(())
    })?;
    runs_nothing(&mixer)?;
    assert_eq!(mixer.api.post("/api/v1/racks/rack-a/resume", &json!({}))?.status, 200);
    runs_it(&mixer)
}

#[test]
fn a_heartbeat_says_what_the_machine_is_and_has_left_what_waits_and_what_runs() -> Result<(), Failure> {
    let text = "meta: { name: demo, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1 } }\n";
    let (mixer, _scenario) = crate::first_light::mixer_with(text)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let seen = eventually("a heartbeat with everything", SOON, || {
        let seen = mixer.api.get("/api/v1/racks/rack-a").ok()?.json["data"].clone();
        let facts = &seen["facts"];
        let whole = facts["cpu.usage"].is_number() && seen["scenario"]["running"]["reference"] == "demo:1";
        whole.then_some(seen)
    })?;
    let fact = |key: &str| seen["facts"][key].as_f64().unwrap_or(f64::NAN);
    assert!((0.0..=1.0).contains(&fact("cpu.usage")), "{seen}");
    assert!(
        fact("memory.used") > 0.0 && fact("memory.used") <= fact("memory.total"),
        "{seen}"
    );
    assert!(
        fact("disk.free") > 0.0 && fact("disk.free") <= fact("disk.total"),
        "{seen}"
    );
    assert!(seen["spool_bytes"].is_u64(), "{seen}");
    Ok(())
}
