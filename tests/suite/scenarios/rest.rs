//! The same over REST.

use serde_json::json;

use super::*;

const YAML: &[(&str, &str)] = &[("content-type", "application/yaml")];

fn import(mixer: &TestMixer, query: &str, text: &str) -> Result<harness::api::Answer, Failure> {
    mixer
        .api
        .send(&format!("/api/v1/scenarios{query}"), YAML, text.as_bytes())
}

#[test]
fn the_same_content_is_the_same_scenario_and_another_one_needs_another_version_or_a_word() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let first = import(&mixer, "", &demo("1", 10))?;
    assert_eq!(
        (first.status, &first.json["data"]["reference"]),
        (200, &json!("demo:1")),
        "{}",
        first.text
    );
    let again = import(&mixer, "", &demo("1", 10))?;
    assert_eq!(first.json["data"]["new"], true);
    assert_eq!(
        (&again.json["data"]["new"], &again.json["data"]["hash"]),
        (&json!(false), &first.json["data"]["hash"])
    );

    let other = import(&mixer, "", &demo("1", 11))?;
    assert_eq!((other.status, &other.json["code"]), (409, &json!("reference_taken")));
    let way_out = other.json["detail"].as_str().unwrap();
    assert!(
        way_out.contains("new meta.version") && way_out.contains("replace=true"),
        "{way_out}"
    );
    let replaced = import(&mixer, "?replace=true", &demo("1", 11))?;
    assert_eq!(replaced.json["data"]["replaced"], first.json["data"]["hash"]);
    import(&mixer, "", &demo("2", 12))?;

    let [gone, hash] = [&first, &replaced].map(|imported| imported.json["data"]["hash"].as_str().unwrap());
    for (reference, rate) in [
        ("demo:1", 11),
        ("demo:2", 12),
        ("demo:latest", 12),
        ("demo", 12),
        (&hash[..12], 11),
    ] {
        let shown = mixer.api.get(&format!("/api/v1/scenarios/{reference}"))?.json;
        assert!(
            shown["data"]["text"]
                .as_str()
                .unwrap()
                .contains(&format!("rate: {rate}")),
            "{reference}: {shown}"
        );
    }
    let listed = mixer.api.rows("/api/v1/scenarios")?;
    assert_eq!(
        listed.len(),
        2,
        "what a reference no longer means is not listed: {listed:?}"
    );
    assert!(
        listed.iter().all(|row| row.get("text").is_none()),
        "texts are shown one at a time"
    );
    // What was replaced and never ran is not kept.
    for reference in ["demo:3", gone] {
        let unknown = mixer.api.get(&format!("/api/v1/scenarios/{reference}"))?;
        assert_eq!(
            (unknown.status, &unknown.json["code"]),
            (404, &json!("unknown_scenario"))
        );
        assert!(unknown.text.contains("demo:1, demo:2"), "{}", unknown.text);
    }
    Ok(())
}

#[test]
fn a_graph_has_gears_in_layers_and_wires_with_their_lanes_and_nothing_of_the_configuration() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let text = "
meta: { name: press, version: '1' }
racks: [ { name: rack-a }, { group: edge, labels: { role: edge } } ]
gears:
  - { name: store, type: log_sink, deploy: rack-a }
  - { name: numbers, type: generator, deploy: edge, config: { rate: 7 } }
  - { name: log, type: log_sink, deploy: edge }
wires:
  - { from: numbers.out, to: log.in }
  - { from: numbers.out, to: rack-a.store.in, max_bytes: 1048576, max_age: 1h, overflow: drop_oldest_to_dlq }
";
    let stored = import(&mixer, "", text)?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let hash = stored.json["data"]["hash"].as_str().unwrap();
    let graph = json!({
        "scenario": { "reference": "press:1", "hash": hash },
        "gears": [
            { "name": "store", "type": "log_sink", "deploy": "rack-a", "is_group": false, "layer": 1 },
            { "name": "numbers", "type": "generator", "deploy": "edge", "is_group": true, "layer": 0 },
            { "name": "log", "type": "log_sink", "deploy": "edge", "is_group": true, "layer": 1 },
        ],
        "wires": [
            { "from": "numbers.out", "to": "log.in", "lane": "hot" },
            {
                "from": "numbers.out", "to": "rack-a.store.in", "lane": "guaranteed",
                "max_bytes": 1_048_576, "max_age": "1h", "overflow": "drop_oldest_to_dlq",
            },
        ],
    });
    for reference in ["press:1", "press", hash] {
        let shown = mixer.api.get(&format!("/api/v1/scenarios/{reference}/graph"))?;
        assert_eq!((shown.status, &shown.json["data"]), (200, &graph), "{reference}");
    }
    let unknown = mixer.api.get("/api/v1/scenarios/press:2/graph")?;
    assert_eq!(
        (unknown.status, &unknown.json["code"]),
        (404, &json!("unknown_scenario"))
    );
    Ok(())
}

#[test]
fn an_endless_cycle_is_refused_by_the_hop_limit_and_its_gears() -> Result<(), Failure> {
    let mixer = TestMixer::start("[mixer]\nmax_hops = 3\n")?;
    let circle = |gears: &[&str]| {
        let name = |number: usize| format!("g{}", number % gears.len());
        let entries = (0..)
            .zip(gears)
            .map(|(number, gear)| format!("  - {{ name: {}, {gear}, deploy: rack-a }}\n", name(number)));
        let wires = (0..gears.len())
            .map(|number| format!("  - {{ from: {}.out, to: {}.in }}\n", name(number), name(number + 1)));
        let (entries, wires): (String, String) = (entries.collect(), wires.collect());
        format!(
            "meta: {{ name: round, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n{entries}wires:\n{wires}"
        )
    };
    let (filter, waits) = (
        "type: filter, config: { where: 'true' }",
        "type: throttle, config: { rate: 1 }",
    );
    let (drops, codec) = (
        "type: throttle, config: { rate: 1, when_full: drop }",
        "type: codec_json, config: { direction: encode }",
    );
    for (gears, line, says) in [
        (
            &[filter; 4][..],
            12,
            "no message completes the cycle of wires g0 -> g1 -> g2 -> g3 -> g0",
        ),
        (
            &[waits, codec],
            8,
            "no message leaves the cycle of wires g0 -> g1 -> g0",
        ),
    ] {
        let refused = import(&mixer, "", &circle(gears))?;
        assert_eq!((refused.status, &refused.json["code"]), (422, &json!("bad_scenario")));
        let errors = refused.json["errors"].as_array().unwrap();
        assert_eq!(
            (errors.len(), errors[0]["line"].as_u64()),
            (1, Some(line)),
            "{}",
            refused.text
        );
        assert!(refused.text.contains(says), "{}", refused.text);
    }
    for gears in [&[filter; 3][..], &[drops, codec]] {
        let stored = import(&mixer, "?replace=true", &circle(gears))?;
        assert_eq!(stored.status, 200, "{}", stored.text);
        assert!(
            stored.text.contains("the wires form a cycle: g0 -> g1 -> "),
            "{}",
            stored.text
        );
    }
    Ok(())
}

#[test]
fn a_bad_scenario_is_refused_with_the_place_of_each_fault() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let text = demo("1", 10)
        .replace("generator", "genrator")
        .replace("deploy: rack-a", "deploy: rack-b");
    let refused = import(&mixer, "", &text)?;
    assert_eq!((refused.status, &refused.json["code"]), (422, &json!("bad_scenario")));
    let errors = refused.json["errors"].as_array().unwrap();
    let places: Vec<_> = errors
        .iter()
        .map(|error| (error["line"].as_u64(), error["column"].as_u64()))
        .collect();
    assert_eq!(places, [(Some(4), Some(28)), (Some(4), Some(46))], "{}", refused.text);
    for (body, says) in [(&b"\xff"[..], "UTF-8"), (&vec![b' '; 16 << 20][..], "")] {
        let refused = mixer.api.send("/api/v1/scenarios", YAML, body)?;
        assert!(
            [400, 413].contains(&refused.status) && refused.text.contains(says),
            "{}",
            refused.text
        );
        assert_eq!(refused.json["code"], "bad_body");
    }
    let odd = import(&mixer, "?force=true", &demo("1", 10))?;
    assert_eq!((odd.status, &odd.json["code"]), (400, &json!("unknown_parameter")));
    Ok(())
}

#[test]
fn an_activation_tells_what_runs_where_and_a_rack_that_cannot_keeps_its_last_good_scenario() -> Result<(), Failure> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let (mixer, _rack) = pair()?;
    for text in [demo("1", 10), demo("2", 20), impossible(&taken)?] {
        assert_eq!(import(&mixer, "", &text)?.status, 200);
    }
    let dry = mixer
        .api
        .post("/api/v1/scenarios/demo:1/activate?dry_run=true", &json!({}))?;
    assert_eq!(dry.status, 200, "{}", dry.text);
    assert_eq!(
        (&dry.json["data"]["activated"], &rack(&dry.json, "rack-a")["gears"]),
        (&json!(null), &json!(["numbers"]))
    );
    assert_eq!(
        mixer.api.get("/api/v1/scenarios/status")?.json["data"]["scenario"],
        json!(null)
    );

    for version in ["1", "2"] {
        let done = mixer.api.post(
            &format!("/api/v1/scenarios/demo:{version}/activate?wait=30s"),
            &json!({}),
        )?;
        assert_eq!(done.json["data"]["converged"], true, "{}", done.text);
        let standing = rack(&done.json, "rack-a");
        assert_eq!(standing["running"]["reference"], format!("demo:{version}"));
        assert_eq!(standing["running"], standing["wanted"]);
    }

    // The answer comes as soon as the Rack has said no, not at the end of the wait.
    let bad = mixer
        .api
        .post("/api/v1/scenarios/demo:bad/activate?wait=50s", &json!({}))?;
    let standing = rack(&bad.json, "rack-a");
    assert_eq!(
        (&bad.json["data"]["converged"], &standing["converged"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(standing["wanted"]["reference"], "demo:bad");
    assert_eq!(standing["running"]["reference"], "demo:2", "{standing}");
    let reason = standing["reason"].as_str().unwrap();
    assert!(reason.contains(&taken.local_addr()?.to_string()), "{reason}");

    // Somebody who looked when another one was active before.
    let hash = "0".repeat(64);
    for path in ["rollback?to=", "rollback?dry_run=true&to="] {
        let path = format!("/api/v1/scenarios/{path}{hash}");
        let other = mixer.api.post(&path, &json!({}))?;
        assert_eq!(
            (other.status, &other.json["code"]),
            (409, &json!("former_changed")),
            "{path}"
        );
        let cut = mixer.api.post(&path[..path.len() - 1], &json!({}))?;
        let named = &cut.json["errors"][0]["parameter"];
        assert_eq!((cut.status, named), (400, &json!("to")), "{}", cut.text);
    }
    let would = mixer.api.post("/api/v1/scenarios/rollback?dry_run=true", &json!({}))?;
    let hash = would.json["data"]["scenario"]["hash"].as_str().unwrap();
    let path = format!("/api/v1/scenarios/rollback?wait=30s&to={hash}");
    let back = mixer.api.post(&path, &json!({}))?;
    assert_eq!(
        (
            &back.json["data"]["scenario"]["reference"],
            &back.json["data"]["converged"]
        ),
        (&json!("demo:2"), &json!(true)),
        "{}",
        back.text
    );
    let back = mixer.api.post("/api/v1/scenarios/rollback?wait=30s", &json!({}))?;
    assert_eq!(back.json["data"]["scenario"]["reference"], "demo:1", "further back");
    runs(&mixer, "demo:1")?;
    let none = mixer.api.post("/api/v1/scenarios/rollback", &json!({}))?;
    assert_eq!((none.status, &none.json["code"]), (409, &json!("nothing_before")));
    Ok(())
}

#[test]
fn racks_that_are_not_there_and_groups_that_mean_nobody_are_named() -> Result<(), Failure> {
    let (mixer, _rack) = pair()?;
    let text = "
meta: { name: plant, version: '1' }
racks:
  - { name: rack-a, labels: { role: edge } }
  - { name: rack-z }
  - { group: edge, labels: { role: edge } }
  - { group: core, labels: { role: core } }
gears:
  - { name: here, type: host_metrics, deploy: edge }
  - { name: there, type: host_metrics, deploy: rack-z }
  - { name: nowhere, type: host_metrics, deploy: core }
";
    let stored = import(&mixer, "", text)?;
    assert_eq!(stored.json["data"]["warnings"][0]["line"], 7, "{}", stored.text);
    let done = mixer
        .api
        .post("/api/v1/scenarios/plant/activate?wait=0s", &json!({}))?
        .json;
    assert_eq!(done["data"]["converged"], false);
    assert_eq!(rack(&done, "rack-z")["reason"], "it is not enrolled");
    assert_eq!(done["data"]["groups"][0]["racks"], json!(["rack-a"]));
    assert_eq!(done["data"]["groups"][1]["racks"], json!([]));
    let warning = done["data"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("group core (role=core)"), "{warning}");
    runs(&mixer, "plant:1")?;
    let status = mixer.api.get("/api/v1/scenarios/status")?.json;
    assert_eq!(
        (
            &rack(&status, "rack-a")["converged"],
            &rack(&status, "rack-a")["reason"]
        ),
        (&json!(true), &json!(null))
    );
    Ok(())
}

#[test]
fn a_restarted_mixer_resumes_what_was_active_and_knows_what_was_before() -> Result<(), Failure> {
    let (mut mixer, _rack) = pair()?;
    for version in ["1", "2"] {
        import(&mixer, "", &demo(version, 10))?;
        mixer.api.post(
            &format!("/api/v1/scenarios/demo:{version}/activate?wait=30s"),
            &json!({}),
        )?;
    }
    mixer.kill9()?;
    mixer.restart()?;
    let status = mixer.api.get("/api/v1/scenarios/status")?.json;
    assert_eq!(status["data"]["scenario"]["reference"], "demo:2");
    assert_eq!(status["data"]["history"][0]["reference"], "demo:1");
    let back = mixer.api.post("/api/v1/scenarios/rollback?wait=30s", &json!({}))?.json;
    assert_eq!(rack(&back, "rack-a")["running"]["reference"], "demo:1", "{back}");
    Ok(())
}

#[test]
fn gear_types_tell_their_ports_their_configuration_and_an_example() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let types = mixer.api.rows("/api/v1/gears")?;
    let names: Vec<_> = types.iter().filter_map(|kind| kind["type"].as_str()).collect();
    assert!(names.contains(&"generator") && names.contains(&"log_sink"), "{names:?}");
    let one = mixer.api.get("/api/v1/gears/generator")?.json;
    assert_eq!(
        (&one["data"]["type"], &one["data"]["outputs"]),
        (&json!("generator"), &json!(["out"]))
    );
    assert_eq!(one["data"]["schema"]["properties"]["rate"]["type"], "number");
    let example = one["data"]["example"].as_str().unwrap();
    assert_eq!(import(&mixer, "", example)?.status, 200);
    let unknown = mixer.api.get("/api/v1/gears/genrator")?;
    assert_eq!((unknown.status, &unknown.json["code"]), (404, &json!("unknown_gear")));
    Ok(())
}
