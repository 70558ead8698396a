//! Labels that operators give: what a group's gears run on.

use model::Timestamp;
use serde_json::Value;

use super::*;

const PLANT: &str = "meta: { name: plant, version: '1' }\nracks: [ { group: edge, labels: { role: edge } } ]\ngears:\n  \
                     - { name: numbers, type: generator, deploy: edge, config: { rate: 20 } }\n  \
                     - { name: sink, type: log_sink, deploy: edge }\nwires:\n  - { from: numbers.out, to: sink.in }\n";

/// The moment of the last message that the group's sink has written on a Rack.
fn last(mixer: &TestMixer, rack: &str) -> Option<Timestamp> {
    let path = format!("/api/v1/telemetry/logs?gear_id=sink&entity={rack}&since=1h&limit=20");
    let rows = mixer.api.rows(&path).unwrap();
    let message = rows.iter().find(|row| row["flux_id"].is_string())?;
    message["ts"].as_str()?.parse().ok()
}

/// Waits until every Rack runs what it should, with this Rack in the group.
fn group_is(mixer: &TestMixer, rack: &str) -> Result<(), Failure> {
    let status = || {
        mixer
            .api
            .get("/api/v1/scenarios/status")
            .map(|answer| answer.json["data"].clone())
    };
    let found = eventually(&format!("the group runs on {rack}"), SOON, || {
        let status = status().ok()?;
        (status["converged"] == true && status["groups"][0]["racks"] == json!([rack])).then_some(())
    });
    found.map_err(|error| format!("{error}: {:?}", status()).into())
}

/// Waits until the group's gears have written on this Rack for a while, and on the other one no more since it has left.
fn runs_only(mixer: &TestMixer, rack: &str, other: &str) -> Result<(), Failure> {
    group_is(mixer, rack)?;
    let left = Timestamp::from(std::time::SystemTime::now());
    let enough = Timestamp::from_micros(left.micros() + 2_000_000);
    eventually(&format!("messages of {rack}"), SOON, || {
        (last(mixer, rack)? > enough).then_some(())
    })?;
    assert!(last(mixer, other).is_none_or(|last| last <= left), "{other} goes on");
    Ok(())
}

#[test]
fn the_gears_of_a_group_run_where_the_label_is_and_move_with_it_also_while_a_rack_is_away() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    let (mut a, mut b) = (
        TestRack::new("rack-a", &mixer.bus_url, "")?,
        TestRack::new("rack-b", &mixer.bus_url, "")?,
    );
    a.start()?;
    b.start()?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("plant.yaml"), PLANT)?;
    let platform = |mixer: &TestMixer, args: &[&str]| {
        let done = run(
            &binary("platform")?,
            args,
            folder.path(),
            &[("PLATFORM_API_URL", &mixer.api.base)],
        )?;
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        Ok::<_, Failure>(done.out)
    };
    let alone = platform(&mixer, &["scenario", "activate", "plant.yaml", "--wait", "30s"])?;
    assert!(!alone.contains("numbers"), "{alone}");
    let shown = platform(
        &mixer,
        &["racks", "label", "rack-a", "role=edge", "site=hall 7", "-o", "json"],
    )?;
    let labels = json!({ "role": "edge", "site": "hall 7" });
    assert_eq!(serde_json::from_str::<Value>(&shown)?[0]["labels"], labels, "{shown}");
    runs_only(&mixer, "rack-a", "rack-b")?;

    // One after the other: for a moment both are in the group.
    platform(&mixer, &["racks", "label", "rack-b", "role=edge"])?;
    let shown = platform(&mixer, &["racks", "label", "rack-a", "role-", "none-"])?;
    assert!(shown.contains("hall 7") && !shown.contains("edge"), "{shown}");
    runs_only(&mixer, "rack-b", "rack-a")?;

    b.kill9()?;
    platform(&mixer, &["racks", "label", "rack-b", "role=spare"])?;
    platform(&mixer, &["racks", "label", "rack-a", "role=edge"])?;
    mixer.kill9()?;
    mixer.restart()?;
    b.spawn()?;
    // It starts with what it ran last, until it hears.
    eventually("rack-b has its part", SOON, || {
        let status = mixer.api.get("/api/v1/scenarios/status").ok()?.json;
        let racks = status["data"]["racks"].as_array()?;
        let is_there = |rack: &Value| rack["name"] == "rack-b" && rack["converged"] == true;
        racks.iter().any(is_there).then_some(())
    })?;
    runs_only(&mixer, "rack-a", "rack-b")?;
    let listed = platform(&mixer, &["racks", "list", "-o", "json"])?;
    let listed: Value = serde_json::from_str(&listed)?;
    assert_eq!(
        (&listed[0]["labels"], &listed[1]["labels"]),
        (&labels, &json!({ "role": "spare" }))
    );

    let mut told = mixer.api.rows("/api/v1/audit?kind=rack_labels")?;
    told.reverse();
    let told: Vec<_> = told
        .iter()
        .map(|row| {
            (
                row["rack"].as_str().unwrap(),
                row["from"].as_str().unwrap(),
                row["to"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("rack-a", "", "role=edge site=hall 7"),
        ("rack-b", "", "role=edge"),
        ("rack-a", "role=edge site=hall 7", "site=hall 7"),
        ("rack-b", "role=edge", "role=spare"),
        ("rack-a", "site=hall 7", "role=edge site=hall 7"),
    ];
    assert_eq!(told, expected);
    Ok(())
}

#[test]
fn labels_are_replaced_as_a_whole_and_bad_ones_are_refused_with_what_is_wrong() -> Result<(), Failure> {
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.spawn()?;
    let id = eventually("a pending Rack", SOON, || {
        let rack = mixer.api.get("/api/v1/racks/rack-a").ok()?.json;
        rack["data"]["id"].as_str().map(str::to_owned)
    })?;
    let put = |rack: &str, labels: &Value| mixer.api.put(&format!("/api/v1/racks/{rack}/labels"), labels);
    // Before it is adopted, too.
    for labels in [
        json!({ "role": "edge", "a": "" }),
        json!({ "site": "x" }),
        json!({ "site": "x" }),
    ] {
        let done = put("rack-a", &labels)?;
        assert_eq!(
            (done.status, &done.json["data"]["labels"]),
            (200, &labels),
            "{}",
            done.text
        );
    }
    assert_eq!(
        mixer.api.rows("/api/v1/audit?kind=rack_labels")?.len(),
        2,
        "the same again is no change"
    );
    let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("k{n}"), json!("v"))).collect();
    for (labels, says) in [
        (json!(null), "missing"),
        (json!(["role"]), "body"),
        (json!({ "role": 7 }), "string"),
        (json!({ "ro le": "edge" }), "ro le"),
        (json!({ "": "edge" }), "body"),
        (json!({ "role": "x".repeat(257) }), "257"),
        (many.into(), "64"),
    ] {
        let bad = put("rack-a", &labels)?;
        assert_eq!(
            (bad.status, &bad.json["code"]),
            (400, &json!("bad_body")),
            "{labels}: {}",
            bad.text
        );
        assert!(bad.text.contains(says), "{says}: {}", bad.text);
    }
    let (unknown, usage) = (put("rack-b", &json!({}))?, ["racks", "label", "rack-a", "role"]);
    assert_eq!((unknown.status, &unknown.json["code"]), (404, &json!("unknown_rack")));
    let usage = mixer.platform(&usage)?;
    assert!(
        usage.code == Some(64) && usage.err.contains("KEY=VALUE"),
        "{}",
        usage.err
    );
    assert_eq!(mixer.api.post("/api/v1/racks/rack-a/remove", &json!({}))?.status, 200);
    let removed = put(&id, &json!({}))?;
    assert_eq!(
        (removed.status, &removed.json["code"]),
        (409, &json!("wrong_state")),
        "{}",
        removed.text
    );
    Ok(())
}

#[test]
fn labels_that_are_changed_at_one_moment_are_all_changed_and_the_others_stay() -> Result<(), Failure> {
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.spawn()?;
    eventually("a pending Rack", SOON, || {
        (mixer.api.get("/api/v1/racks/rack-a").ok()?.status == 200).then_some(())
    })?;
    let path = "/api/v1/racks/rack-a/labels";
    mixer.api.put(path, &json!({ "stays": "x", "goes": "y" }))?;
    std::thread::scope(|scope| {
        let change = |changes: Value| {
            let api = &mixer.api;
            move || {
                api.patch(path, &changes)
                    .map(|answer| answer.status)
                    .map_err(|error| error.to_string())
            }
        };
        let all: Vec<_> = (0..8)
            .map(|number| {
                let key = format!("k{number}");
                scope.spawn(change(json!({ key: number.to_string(), "goes": null })))
            })
            .collect();
        for one in all {
            assert_eq!(one.join().unwrap(), Ok(200));
        }
    });
    let labels = mixer.api.get("/api/v1/racks/rack-a")?.json["data"]["labels"].clone();
    let labels: Vec<_> = labels.as_object().unwrap().keys().cloned().collect();
    assert_eq!(labels, ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "stays"]);
    let more: serde_json::Map<_, _> = (0..64).map(|number| (format!("m{number}"), json!(""))).collect();
    let refused = mixer.api.patch(path, &Value::Object(more))?;
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (422, &json!("too_many_labels"))
    );
    Ok(())
}
