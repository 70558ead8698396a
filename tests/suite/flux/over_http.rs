//! One business signal over HTTP: from `http_out` of one Rack to `http_in` of another.

use harness::{Failure, TestRack, eventually};
use serde_json::json;

use super::{SOON, door, gear, signal, word};
use crate::first_light::mixer_with;

/// What listens on `rack-b`.
fn far(trust: &str) -> String {
    format!(
        "  - {{ name: far, type: http_in, deploy: rack-b, config: {{ listen: '127.0.0.1:0'{trust} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-b }}\n"
    )
}

fn scenario(version: u8, gears: &str, wires: &str) -> String {
    format!(
        "meta: {{ name: over-http, version: '{version}' }}
racks: [ {{ name: rack-a }}, {{ name: rack-b }} ]
gears:\n{gears}wires:\n  - {{ from: far.out, to: sink.in }}\n{wires}"
    )
}

/// A message goes to `door` on `rack-a` and by HTTP to `far` on `rack-b`: the answer's id, and what is stored under it once `gears` have
/// handled it.
fn one_message(trust: &str, gears: &[&str], judge: impl Fn(&super::Signal, &super::TestMixer)) -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(&scenario(1, &far(trust), ""))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let there = door(&mixer, "far")?;
    // Only now is it known where the other Rack listens; it goes on listening.
    let out = format!(
        "{}  - {{ name: door, type: http_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0' }} }}
  - {{ name: post, type: http_out, deploy: rack-a, config: {{ url: '{}/' }} }}\n",
        far(trust),
        there.base
    );
    let text = scenario(2, &out, "  - { from: door.out, to: post.in }\n");
    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, text.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let path = "/api/v1/scenarios/over-http:2/activate?wait=60s";
    let done = mixer.api.post(path, &json!({}))?;
    assert_eq!(done.json["data"]["converged"], true, "{}", done.text);
    let answer = door(&mixer, "door")?.send("/", &[], b"hello")?;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let id = answer.json["flux_id"].as_str().ok_or("no id")?.to_owned();
    let found = eventually("the whole signal", SOON, || {
        let found = signal(&mixer, &id).ok()?;
        (super::gears(found.get("span")?) == gears).then_some(found)
    })
    .map_err(|error| format!("{error}: {:#?}; rack-b:\n{}", signal(&mixer, &id), b.log()))?;
    judge(&found, &mixer);
    Ok(())
}

#[test]
fn a_signal_that_goes_by_http_to_another_rack_is_one_there_too() -> Result<(), Failure> {
    one_message("", &["door", "far", "post", "sink"], |found, mixer| {
        let span = |name: &str| found["span"].iter().find(|span| gear(span) == name).unwrap();
        assert_eq!(word(span("far"), "parent_span_id"), word(span("post"), "span_id"));
        assert_eq!(word(span("far"), "trace_id"), word(span("door"), "trace_id"));
        let id = word(span("far"), "flux_id");
        assert!(
            found["log"]
                .iter()
                .any(|log| gear(log) == "sink" && word(log, "message") == "hello"),
            "{found:?}"
        );
        let shown = mixer.platform(&["flux", id]).unwrap();
        for part in [
            "4 spans",
            "http_in door",
            "http_out post",
            "http_in far",
            "log_sink sink",
        ] {
            assert!(shown.out.contains(part), "{part}: {}", shown.out);
        }
    })
}

#[test]
fn where_no_sender_is_trusted_a_signal_begins_in_the_same_trace_and_the_gear_says_so() -> Result<(), Failure> {
    // The other signal's spans carry another id: they are not this one's.
    one_message(", trust_flux_id: false", &["door", "post"], |found, mixer| {
        let trace = word(&found["span"][0], "trace_id");
        let path = format!("/api/v1/telemetry/traces?trace_id={trace}");
        let all = eventually("the whole trace", SOON, || {
            mixer.api.rows(&path).ok().filter(|rows| rows.len() == 4)
        });
        let ids: std::collections::BTreeSet<String> =
            all.unwrap().iter().map(|row| word(row, "flux_id").to_owned()).collect();
        assert_eq!(ids.len(), 2);
        let said = || {
            mixer
                .api
                .rows("/api/v1/telemetry/logs?gear_id=far&q=trust_flux_id")
                .ok()
        };
        let said = eventually("what the gear says", SOON, || said().filter(|rows| !rows.is_empty()));
        assert_eq!(said.unwrap().len(), 1);
    })
}
