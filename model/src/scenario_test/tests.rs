//! Files of cases, good and bad.

#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::json;

use super::*;

#[test]
fn a_file_says_what_is_given_and_what_is_expected() {
    let file = parse(
        "
scenario: flow.yaml
timeout: 3s
cases:
  - name: one
    given: [ { from: a.out, messages: [ { data: { n: 1.5 }, meta: { k: v } }, { hex: 'ff00' }, { text: x } ] } ]
    expect: [ { from: b.out, messages: [ { data: null }, {} ], exactly: true }, { to: c.in, count: 0 } ]
  - { name: two, timeout: 1ms, expect: [ { from: b.out, where: data.n > 1 } ] }
",
    )
    .unwrap();
    assert_eq!(file.scenario, ScenarioSource::Path("flow.yaml".to_owned()));
    let [one, two] = &file.cases[..] else {
        unreachable!("{file:?}")
    };
    assert_eq!(
        (one.timeout, two.timeout),
        (HumanDuration::from_secs(3), HumanDuration::from_millis(1))
    );
    assert_eq!((one.name.as_str(), one.place), ("one", (5, 11)));
    let given = &one.given[0];
    assert_eq!(
        (given.port.to_string(), given.port.is_input),
        ("a.out".to_owned(), false)
    );
    assert_eq!(given.messages[0].data, Some(json!({ "n": 1.5 })));
    let raws: Vec<_> = given.messages.iter().map(MessagePattern::raw).collect();
    assert_eq!(raws, [None, Some(&b"\xff\x00"[..]), Some(b"x")]);
    let least: Vec<_> = one
        .expect
        .iter()
        .chain(&two.expect)
        .map(ExpectedMessages::least)
        .collect();
    assert_eq!(least, [2, 0, 1]);
    let bodies: Vec<_> = one.expect[0]
        .messages
        .iter()
        .flatten()
        .map(|message| &message.data)
        .collect();
    assert_eq!(bodies, [&Some(Value::Null), &None], "null is a value");
    let inline = parse("scenario: { meta: { name: x } }\ncases: [ { name: a, expect: [ { to: c.in, count: 1 } ] } ]");
    let wanted = ScenarioSource::Inline("{\"meta\":{\"name\":\"x\"}}".to_owned());
    assert_eq!(inline.unwrap().scenario, wanted);
}

#[test]
fn everything_that_is_wrong_is_named_with_its_place() {
    for (yaml, says) in [
        ("scenario: x\ncases: []", "1:1: there are no cases"),
        (
            "cases: [ { name: a, expect: [ { to: c.in, count: 1 } ] } ]",
            "missing field `scenario`",
        ),
        (
            "scenario: [1]\ncases: [ { name: a, expect: [ { to: c.in, count: 1 } ] } ]",
            "1:11: scenario is neither",
        ),
        ("scenario: x\ncase: []", "unknown field `case`"),
        (
            "scenario: x\ncases: [ { name: a, expect: [] } ]",
            "2:29: expect says nothing",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { to: c.in } ] } ]",
            "expect 1: it says nothing",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { count: 1 } ] } ]",
            "expect 1: it says either `to",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { to: r.c.in, count: 1 } ] } ]",
            "names a Rack",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { to: c.in, exactly: true, count: 1 } ] } ]",
            "exactly is about",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { to: c.in, count: 2, messages: [ {} ] } ] } ]",
            "count is 2",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { to: c.in, messages: [ { hex: f } ] } ] } ]",
            "is not hexadecimal",
        ),
        (
            "scenario: x\ncases: [ { name: a, expect: [ { to: c.in, messages: [ { hex: ff, text: a } ] } ] } ]",
            "not both",
        ),
        (
            "scenario: x\ncases:\n  - { name: a, expect: [ { to: c.in, count: 1 } ] }\n  - { name: a, expect: [ { to: c.in, count: 1 } ] }",
            "4:13: two cases",
        ),
    ] {
        let faults = parse(yaml).unwrap_err();
        let told: Vec<_> = faults.iter().map(SourceDiagnostic::to_string).collect();
        assert!(told.iter().any(|fault| fault.contains(says)), "{yaml}: {told:?}");
    }
}
