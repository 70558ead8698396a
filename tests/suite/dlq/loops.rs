//! A message that goes in a circle ends as a letter, and goes on when the circle is open.

use super::*;

fn round(version: &str, wires: &str) -> String {
    format!(
        "meta: {{ name: round, version: '{version}' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 10, count: 1 }} }}\n  \
         - {{ name: one, type: filter, deploy: rack-a, config: {{ where: 'true' }} }}\n  \
         - {{ name: two, type: filter, deploy: rack-a, config: {{ where: 'true' }} }}\n  \
         - {{ name: sink, type: log_sink, deploy: rack-a }}\nwires:\n  - {{ from: numbers.out, to: one.in }}\n  \
         - {{ from: one.out, to: two.in }}\n{wires}"
    )
}

/// The Rack's own limit.
const LIMITED: &str = "[rack]\nheartbeat_interval = \"2s\"\nmax_hops = 5\n";

fn a_circle(lane: &str) -> Result<(), Failure> {
    let circle = format!("  - {{ from: two.out, to: one.in{lane} }}\n");
    let (mixer, _scenario) = mixer_with(&round("1", &circle))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, LIMITED)?;
    rack.start()?;
    let letter = letters(&mixer, "reason=max_hops", 1)?.remove(0);
    // numbers 1, one 2, two 3, one 4, two 5: the sixth, from one, is one too many.
    assert_eq!(
        (&letter["gear"], &letter["port"], &letter["way"]),
        (&json!("one"), &json!("out"), &json!("out")),
        "{letter:?}"
    );

    let open = round("2", "  - { from: two.out, to: sink.in }\n").replace(
        "- { name: numbers, type: generator, deploy: rack-a, config: { rate: 10, count: 1 } }",
        "- { name: numbers, type: filter, deploy: rack-a, config: { where: 'true' } }",
    );
    let kind = [("content-type", "application/yaml")];
    assert_eq!(mixer.api.send("/api/v1/scenarios", &kind, open.as_bytes())?.status, 200);
    let done = mixer
        .api
        .post("/api/v1/scenarios/round:2/activate?wait=60s", &json!({}))?;
    assert_eq!(done.json["data"]["converged"], true, "{}", done.text);
    let done = mixer.api.post(
        &format!("/api/v1/dlq/{}/replay", id(&letter)),
        &json!({ "wait": "30s" }),
    )?;
    assert_eq!(done.json["data"]["state"], "replayed", "{}", done.text);
    let flux = letter["flux_id"].as_str().ok_or("no flux_id")?;
    let path = format!("/api/v1/telemetry/logs?gear_id=sink&flux_id={flux}");
    let rows = eventually("the message at the sink", SOON, || {
        mixer.api.rows(&path).ok().filter(|rows| !rows.is_empty())
    })
    .map_err(|error| format!("{error}; rack-a:\n{}", rack.log()))?;
    assert_eq!(rows.len(), 1, "{rows:?}");
    Ok(())
}

#[test]
fn a_message_in_a_cycle_in_memory_is_a_letter_and_resumes_from_there() -> Result<(), Failure> {
    a_circle("")
}

#[test]
fn a_message_in_a_cycle_over_the_bus_is_a_letter_and_resumes_from_there() -> Result<(), Failure> {
    a_circle(", lane: guaranteed")
}
