//! Cases on real gears.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use model::scenario_test::ScenarioTestFile;

use super::*;

const FLOW: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: a }, { name: b } ]
gears:
  - { name: door, type: tcp_in, deploy: a, config: { listen: '127.0.0.1:0' } }
  - { name: decode, type: codec_json, deploy: a, config: { direction: decode } }
  - { name: hot, type: filter, deploy: b, config: { where: 'data.c > 50' } }
  - { name: slow, type: throttle, deploy: b, config: { rate: 1000 } }
  - { name: sink, type: log_sink, deploy: b }
wires:
  - { from: door.out, to: decode.in }
  - { from: decode.out, to: b.hot.in, lane: guaranteed }
  - { from: hot.out, to: slow.in }
  - { from: slow.out, to: sink.in, lane: guaranteed }
";

fn ambient() -> (Clock, Entropy) {
    (
        Clock::new(|| chrono::Utc::now().into()),
        Entropy::new(|buffer| getrandom::fill(buffer).unwrap()),
    )
}

fn file(cases: &str) -> ScenarioTestFile {
    model::scenario_test::parse(&format!("scenario: here\ncases:\n{cases}")).unwrap()
}

async fn ran(case: &ScenarioTestCase) -> ScenarioTestReport {
    ran_in(FLOW, case).await
}

async fn ran_in(flow: &str, case: &ScenarioTestCase) -> ScenarioTestReport {
    let scenario = model::scenario::parse(flow, gear_spec::manifests()).unwrap();
    assert_eq!(validate_case(&scenario, case), Vec::<String>::new());
    let (clock, entropy) = ambient();
    run(&scenario, case, (&clock, &entropy)).await.unwrap()
}

fn texts(report: &ScenarioTestReport, port: &str) -> Vec<String> {
    let ports = report.seen.iter().filter(|(seen, _)| seen.to_string() == port);
    ports
        .flat_map(|(_, messages)| messages)
        .map(|message| message.data.to_string())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_goes_through_real_gears_and_what_reaches_outside_is_neither_started_nor_needed() {
    let cases = file(
        "
  - name: from the door to the sink
    given: [ { from: door.out, messages: [ { text: '{\"c\": 91}' }, { text: '{\"c\": 20}' }, { text: '{' } ] } ]
    expect: [ { to: sink.in, count: 1 }, { from: hot.rest, count: 1 }, { from: decode.out, count: 2 } ]
  - name: at one gear
    given: [ { to: hot.in, messages: [ { data: { c: 60 } }, { data: { c: 70 } } ] } ]
    expect: [ { from: hot.out, count: 2 } ]
",
    );
    let [whole, one] = &cases.cases[..] else {
        unreachable!("{cases:?}")
    };
    let report = ran(whole).await;
    assert_eq!(texts(&report, "sink.in"), ["{\"c\":91}"]);
    assert_eq!(texts(&report, "hot.rest"), ["{\"c\":20}"]);
    assert_eq!(texts(&report, "decode.out"), ["{\"c\":91}", "{\"c\":20}"]);
    assert!(
        report.complaints.iter().any(|line| line.starts_with("decode: ")),
        "{report:?}"
    );
    let report = ran(one).await;
    assert_eq!(texts(&report, "hot.out"), ["{\"c\":60}", "{\"c\":70}"]);
    assert_eq!(
        texts(&report, "sink.in"),
        ["{\"c\":60}", "{\"c\":70}"],
        "gears stop in order"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_case_that_does_not_come_true_ends_at_its_timeout_with_what_came() {
    let cases = file(
        "
  - name: too much is expected
    timeout: 100ms
    given: [ { to: hot.in, messages: [ { data: { c: 60 } } ] } ]
    expect: [ { from: hot.out, count: 2 } ]
",
    );
    let report = ran(&cases.cases[0]).await;
    assert_eq!(texts(&report, "hot.out"), ["{\"c\":60}"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_case_whose_messages_were_not_all_taken_says_how_many_were() {
    let cases = file(&format!(
        "  - {{ name: a, timeout: 1s, given: [ {{ to: slow.in, messages: [ {} ] }} ], expect: [ {{ to: sink.in, count: 0 }} ] }}",
        ["{}"; 1100].join(", ")
    ));
    let report = ran_in(&FLOW.replace("rate: 1000", "rate: 0.001"), &cases.cases[0]).await;
    let [failure] = &report.failures[..] else {
        unreachable!("{:?}", report.failures)
    };
    assert!(
        failure.starts_with("only 10") && failure.contains("of 1100 given messages"),
        "{failure}"
    );
}

#[test]
fn bytes_that_are_recorded_are_bounded() {
    let mut seen = port_recorder::SeenMessages::default();
    let port = port_of(&"it".parse().unwrap(), "out", false).unwrap();
    let large = || crate::gears::testing::message(1, Value::Null, &[7; 1 << 20]);
    for _ in 1..MOST_SEEN_BYTES >> 20 {
        seen.add(&port, large());
        assert_eq!(seen.over, None);
    }
    seen.add(&port, large());
    assert_eq!(seen.over, Some(port));
}

#[test]
fn a_case_that_does_not_fit_its_scenario_is_told_what_there_is() {
    let flow = FLOW.replace("  - { from: door.out, to: decode.in }\n", "");
    let scenario = model::scenario::parse(&flow, gear_spec::manifests()).unwrap();
    for (given, expect, says) in [
        (
            "{ from: door.out, messages: [ {} ] }",
            "{ from: hot.out, count: 0 }",
            "door.out has no wire",
        ),
        (
            "{ to: x.in, messages: [] }",
            "{ from: hot.out, count: 0 }",
            "there is no gear x; there are door",
        ),
        (
            "{ to: hot.out, messages: [] }",
            "{ from: hot.out, count: 0 }",
            "hot (filter) has no input out; it has in",
        ),
        (
            "{ to: sink.in, messages: [] }",
            "{ from: hot.out, count: 0 }",
            "sink (log_sink) reaches outside",
        ),
        (
            "{ from: hot.out, messages: [] }",
            "{ from: hot.out, count: 0 }",
            "hot (filter) is started and sends",
        ),
        (
            "{ to: hot.in, messages: [] }",
            "{ from: door.out, count: 0 }",
            "it sends what is given only",
        ),
        (
            "{ to: hot.in, messages: [] }",
            "{ to: hot.in, count: 0 }",
            "hot (filter) is started: expect",
        ),
        (
            "{ to: hot.in, messages: [] }",
            "{ from: hot.out, where: 'data.c >' }",
            "where: at 1:9",
        ),
    ] {
        let cases = file(&format!("  - {{ name: a, given: [ {given} ], expect: [ {expect} ] }}"));
        let found = validate_case(&scenario, &cases.cases[0]);
        assert!(
            found.iter().any(|misfit| misfit.contains(says)),
            "{given} {expect}: {found:?}"
        );
    }
}

#[test]
fn of_every_type_it_is_known_whether_it_reaches_outside() {
    let types: BTreeSet<&str> = gear_spec::manifests().iter().map(|manifest| manifest.kind).collect();
    let known: BTreeSet<&str> = INSIDE.iter().chain(OUTSIDE).copied().collect();
    assert_eq!(
        known, types,
        "add a new type to INSIDE, if it can run without anything from outside, or to OUTSIDE"
    );
    assert_eq!(known.len(), INSIDE.len() + OUTSIDE.len());
}
