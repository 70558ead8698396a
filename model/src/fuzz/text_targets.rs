//! Targets of texts: names, ids, times, subjects, and the YAML files that need no gear types.
//!
//! # Invariants
//!
//! - What was read is written in a form that is read as the same: no two texts of one thing lead to different places.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use super::FuzzTarget;
use crate::filter::TimePoint;
use crate::scenario::{GearPort, ScenarioVersion};
use crate::subject::{parse_gear, parse_message, parse_telemetry};
use crate::trace_context::{MAX_TRACE_STATE, TraceParent, TraceState, baggage_flux_id, baggage_of};
use crate::{
    EntityId, EnvExpansion, FluxId, HumanDuration, KeyFingerprint, LetterId, MessageDestination, SpanId, SpecName,
    Timestamp, Token, TraceId, expand_env, scenario_test, spec,
};

/// The targets.
pub(super) fn targets() -> Vec<FuzzTarget> {
    vec![
        FuzzTarget::of_text("names.id", &IDS, |text| {
            let read = [
                rewrites::<EntityId>(text),
                rewrites::<FluxId>(text),
                rewrites::<TraceId>(text),
                rewrites::<SpanId>(text),
                rewrites::<LetterId>(text),
                rewrites::<KeyFingerprint>(text),
            ];
            read.contains(&true)
        }),
        FuzzTarget::of_text("names.name", &NAMES, |text| {
            let is_safe = |text: &str| !text.contains(['/', '\0', '*', '>', ' ']) && ![".", ".."].contains(&text);
            let read = [
                rewrites::<Token>(text),
                rewrites::<SpecName>(text),
                rewrites::<ScenarioVersion>(text),
            ];
            assert!(
                is_safe(text) || !read.contains(&true),
                "a name leads out of its folder or subject"
            );
            assert!(is_safe(Token::nearest(text).as_str()));
            let port = GearPort::try_from(text.to_owned());
            read.contains(&true)
                || rewrites::<MessageDestination>(text)
                || port.is_ok_and(|port| port.to_string() == text)
        }),
        FuzzTarget::of_text("names.time", &TIMES, |text| {
            let point = text.parse::<TimePoint>();
            assert!(
                !matches!(point, Ok(TimePoint::Ago(_))) || !text.contains('+'),
                "a duration has no sign"
            );
            let _ = point.map(|point| point.resolve(Timestamp::from_micros(0)));
            rewrites::<HumanDuration>(text) | rewrites::<Timestamp>(text)
        }),
        FuzzTarget::of_text("names.subject", &SUBJECTS, |subject| {
            let telemetry = parse_telemetry(subject).is_some();
            telemetry || parse_message(subject).is_some() || parse_gear(subject).is_some()
        }),
        FuzzTarget::of_text(
            "names.traceparent",
            &["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
            |text| {
                TraceParent::parse(text).is_some_and(|read| {
                    assert_eq!(TraceParent::parse(&read.to_string()), Some(read));
                    true
                })
            },
        ),
        FuzzTarget::of_text("names.tracestate", &["congo=t61rcWkgMzE, 0t@v=1"], |text| {
            TraceState::parse([text]).is_some_and(|read| {
                assert!(read.as_str().len() <= MAX_TRACE_STATE);
                assert_eq!(TraceState::parse([read.as_str()]).as_ref(), Some(&read));
                true
            })
        }),
        FuzzTarget::of_text(
            "names.baggage",
            &["user=x, flux_id=0193c3f2-7d1a-7000-8000-0123456789ab;level=1"],
            |text| {
                baggage_flux_id([text.as_bytes()]).is_some_and(|id| {
                    assert_eq!(baggage_flux_id([baggage_of(id).as_bytes()]), Some(id));
                    true
                })
            },
        ),
        FuzzTarget::of_text("yaml.spec", &SPECS, |yaml| spec::parse(yaml).is_ok()),
        FuzzTarget::of_text("yaml.scenario_test", &SCENARIO_TESTS, |yaml| {
            scenario_test::parse(yaml).is_ok()
        }),
        FuzzTarget::of_text("config.variables", &["${A} and ${B_1}", "plain $5"], |text| {
            if let EnvExpansion::Text(expanded) = expand_env(text, |_| Some("${A}".to_owned())) {
                assert!(
                    expanded.len() <= text.len() * 2,
                    "what a variable says is not expanded again"
                );
            }
            true
        }),
    ]
}

/// Whether a text is read, and written as something that is read as the same.
fn rewrites<T: FromStr + Display + PartialEq + Debug>(text: &str) -> bool {
    let Ok(read) = text.parse::<T>() else { return false };
    let written = read.to_string();
    assert!(
        written.parse::<T>().is_ok_and(|again| again == read),
        "{text:?} is written as {written:?}"
    );
    true
}

const IDS: [&str; 6] = [
    "0198a8b0-2d5e-7c3a-8f6b-0123456789ab",
    "{0198a8b0-2d5e-7c3a-8f6b-0123456789ab}",
    "0af7651916cd43dd8448eb211c80319c",
    "b7ad6b7169203331",
    "urn:uuid:0198a8b0-2d5e-7c3a-8f6b-0123456789ab",
    "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
];
const NAMES: [&str; 6] = [
    "press-1",
    "order_paid",
    "1.2.3-rc.1",
    "rack.gear.out",
    "internal",
    "read.out",
];
const TIMES: [&str; 8] = [
    "100ms",
    "1h30m",
    "1.5s",
    "5000d",
    "2026-11-21T12:30:00Z",
    "2026-11-21T12:00:00.123456+02:00",
    "1970-01-01T00:00:00.000001Z",
    "9999-12-31T23:59:59+23:59",
];
const SUBJECTS: [&str; 3] = [
    "flux.telemetry.logs.press-1",
    "flux.msg.press-1.read.out",
    "flux.gear.press-1.read",
];
const SPECS: [&str; 2] = [
    include_str!("../../../examples/specs/order.yaml"),
    "name: s\nversion: 1\nmatch: { msg_type: [a, 'b*'] }\n",
];
const SCENARIO_TESTS: [&str; 2] = [
    "scenario: flow.yaml\ntimeout: 3s\ncases:\n  - name: one\n    given: [ { from: a.out, messages: [ { data: { n: 1.5 }, meta: { k: v } }, { hex: 'ff00' }, { text: x } ] } ]\n    expect: [ { from: b.out, messages: [ { data: null }, {} ], exactly: true }, { to: c.in, count: 0 } ]\n",
    "scenario: { meta: { name: x } }\ncases: [ { name: a, expect: [ { to: c.in, count: 1 } ] } ]",
];
