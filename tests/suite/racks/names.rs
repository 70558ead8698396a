//! Names: two Racks that want the same one, and names that would leave their folder.

use std::path::Path;

use super::*;

#[test]
fn a_name_that_another_rack_has_is_refused_with_its_holder_and_the_way_out() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut first = TestRack::new("press", &mixer.bus_url, "")?;
    first.start()?;
    let holder = mixer.api.get("/api/v1/racks/press")?.json["data"]["id"].clone();
    let holder = holder.as_str().ok_or("no id")?.to_owned();
    let mut second = TestRack::new("press", &mixer.bus_url, "")?;
    second.spawn()?;
    let said = eventually("the second Rack hears of the conflict", SOON, || {
        let log = second.log();
        log.lines()
            .find(|line| line.contains("belongs to Rack"))
            .map(str::to_owned)
    })?;
    for part in [holder.as_str(), "press", "base.name", "platform racks remove"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        std::fs::read_to_string(mixer.path().join("logs/mixer.log"))?.contains("NameTaken"),
        "the Mixer says it too"
    );
    assert_eq!(
        mixer.api.rows("/api/v1/racks")?.len(),
        1,
        "the second one is nobody so far"
    );

    // The way out that the sentence names.
    let removed = mixer.api.post("/api/v1/racks/press/remove", &json!({}))?;
    assert_eq!(removed.status, 200, "{}", removed.text);
    eventually("the second Rack has the name", SOON, || {
        let rack = mixer.api.get("/api/v1/racks/press").ok()?.json;
        (rack["data"]["state"] == "active" && rack["data"]["id"] != holder.as_str()).then_some(())
    })
}

/// Every file below a folder.
fn files(folder: &Path, found: &mut Vec<String>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

#[test]
fn no_name_of_a_rack_a_scenario_or_a_gear_leads_out_of_its_folder() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    for name in [
        "../../evil",
        "..",
        "a/b",
        "/etc/evil",
        "a\\b",
        "evil\0",
        "e.vil",
        "evil*",
        ">",
        "",
    ] {
        let answer = mixer
            .api
            .post("/api/v1/racks/rack-a/approve", &json!({ "name": name }))?;
        assert_eq!(
            (answer.status, &answer.json["code"]),
            (400, &json!("bad_body")),
            "{name:?}: {}",
            answer.text
        );
        for part in ["name: demo", "name: rack-a", "name: numbers"] {
            let quoted = serde_json::to_string(name)?;
            let text = SCENARIO.replacen(part, &format!("name: {quoted}"), 1);
            let yaml = [("content-type", "application/yaml")];
            let answer = mixer.api.send("/api/v1/scenarios", &yaml, text.as_bytes())?;
            assert_eq!(
                (answer.status, &answer.json["code"]),
                (422, &json!("bad_scenario")),
                "{name:?} for {part}: {}",
                answer.text
            );
        }
    }
    for path in [
        "/api/v1/racks/..%2F..%2Fevil",
        "/api/v1/scenarios/..%2F..%2Fevil",
        "/api/v1/scenarios/..%2F..%2Fevil:1",
        "/api/v1/gears/..%2F..%2Fevil",
    ] {
        assert_eq!(mixer.api.get(path)?.status, 404, "{path}");
    }
    let mut evil = TestRack::new("../evil", &mixer.bus_url, "")?;
    evil.spawn()?;
    let ended = evil.process()?.wait(SOON)?;
    assert_eq!(ended.code(), Some(78), "base.name is refused at the start");
    let mut found = Vec::new();
    files(mixer.path(), &mut found)?;
    files(rack.path(), &mut found)?;
    assert!(!found.iter().any(|path| path.contains("evil")), "{found:?}");
    Ok(())
}

const SCENARIO: &str = "meta: { name: demo, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                        - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1 } }\n";
