//! Pictures of small scenarios.
#![allow(clippy::unwrap_used, reason = "tests")]

use model::scenario::Scenario;
use serde_json::json;

use super::svg::places;
use super::{mermaid, svg};

fn scenario(kind: &str, wires: &[(&str, &str)]) -> Scenario {
    let gears: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| json!({ "name": name, "type": kind, "deploy": if *name == "d" { "far" } else { "near" } }))
        .collect();
    let wires: Vec<_> = wires
        .iter()
        .map(|(from, to)| json!({ "from": format!("{from}.out"), "to": format!("{to}.in") }))
        .collect();
    let meta = json!({ "name": "demo", "version": "1" });
    serde_json::from_value(json!({ "meta": meta, "gears": gears, "wires": wires })).unwrap()
}

#[test]
fn a_gear_stands_right_of_all_whose_messages_it_takes() {
    let diamond = scenario("pass", &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]);
    assert_eq!(places(&diamond), [(0, 0), (1, 0), (1, 1), (2, 0)]);
    assert_eq!(
        places(&scenario("pass", &[("d", "c"), ("c", "b"), ("b", "a")])),
        [(3, 0), (2, 0), (1, 0), (0, 0)]
    );
    let circle = places(&scenario("pass", &[("a", "b"), ("b", "a"), ("c", "c")]));
    assert_eq!(circle.len(), 4);
    assert_ne!(circle[0].0, circle[1].0, "a circle is drawn, and ends");
}

#[test]
fn mermaid_has_a_box_for_each_target_and_dots_for_what_goes_over_the_bus() {
    let text = mermaid(&scenario("pass", &[("a", "b"), ("b", "d")]));
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(lines[..2], ["%% demo:1", "flowchart LR"]);
    for line in [
        "subgraph t0[\"far\"]",
        "subgraph t1[\"near\"]",
        "g0[\"a<br/>pass\"]",
        "g0 -->|\"out to in\"| g1",
        "g1 -.->|\"out to in\"| g3",
    ] {
        assert!(lines.contains(&line), "{line}: {text}");
    }
}

#[test]
fn nothing_of_a_scenario_becomes_markup() {
    let hostile = scenario("\"]<script>&\u{1b}", &[("a", "b"), ("b", "a")]);
    let picture = svg(&hostile);
    assert!(
        picture.contains("&quot;]&lt;script&gt;&amp;\u{fffd}") && !picture.contains("<script>"),
        "{picture}"
    );
    assert_eq!(picture.matches("<g>").count(), 4);
    assert_eq!(picture.matches("marker-end").count(), 2);
    let text = mermaid(&hostile);
    assert!(text.contains("a<br/>#34;#93;#60;script#62;#38;#27;\"]"), "{text}");
}

#[test]
fn a_large_scenario_is_drawn() {
    let gears: Vec<_> = (0..20_000)
        .map(|n| json!({ "name": format!("g{n}"), "type": "t", "deploy": "r" }))
        .collect();
    let wires: Vec<_> = (1..20_000)
        .map(|n| json!({ "from": format!("g{n}.o"), "to": format!("g{}.i", n - 1) }))
        .collect();
    let whole = json!({ "meta": { "name": "x", "version": "1" }, "gears": gears, "wires": wires });
    let scenario: Scenario = serde_json::from_value(whole).unwrap();
    assert_eq!(places(&scenario)[0], (19_999, 0));
}
