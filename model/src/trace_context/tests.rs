//! The cases of W3C's test suite of Trace Context, and those of Baggage.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const TRACE: &str = "12345678901234567890123456789012";
const SPAN: &str = "1234567890123456";
const SIGNAL: &str = "0193c3f2-7d1a-7000-8000-0123456789ab";

#[test]
fn a_sampling_rate_keeps_about_its_share_of_traces_and_the_ends_are_exact() {
    assert_eq!((sampling_threshold(1.0), sampling_threshold(0.0)), (ALL_TRACES, 0));
    let below = sampling_threshold(0.25);
    assert_eq!(below >> 56, 0x3f + u64::from(below == 1 << 62));
    let trace = |byte: u8| TraceId::from_entropy([byte; 16]);
    assert!(is_sampled(&trace(0x3e), below) && !is_sampled(&trace(0x41), below));
    assert!(is_sampled(&trace(0xff), ALL_TRACES) && !is_sampled(&trace(0x01), 0));
}

fn state(values: &[&str]) -> Option<String> {
    TraceState::parse(values.iter().copied()).map(String::from)
}

#[test]
fn a_valid_traceparent_is_read_whatever_its_version_and_written_as_version_00() {
    let sampled = format!("00-{TRACE}-{SPAN}-01");
    for (text, is_sampled) in [
        (sampled.clone(), true),
        (format!("00-{TRACE}-{SPAN}-00"), false),
        (format!("00-{TRACE}-{SPAN}-02"), false),
        (format!("00-{TRACE}-{SPAN}-ff"), true),
        (format!("cc-{TRACE}-{SPAN}-01"), true),
        (format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"), true),
        (format!(" \t00-{TRACE}-{SPAN}-01\t "), true),
    ] {
        let read = TraceParent::parse(&text).unwrap();
        assert_eq!(
            (read.trace_id.to_string(), read.span_id.to_string()),
            (TRACE.into(), SPAN.into())
        );
        assert_eq!(read.sampled, is_sampled, "{text}");
        assert_eq!(read.to_string() == sampled, is_sampled, "{text}");
    }
}

#[test]
fn an_invalid_traceparent_is_none() {
    for bad in [
        String::new(),
        "00".to_owned(),
        format!("ff-{TRACE}-{SPAN}-01"),
        format!("cc-{TRACE}-{SPAN}-01.what-the-future-will-not-be-like"),
        format!("00-{TRACE}-{SPAN}-01."),
        format!("00-{TRACE}-{SPAN}-01-what-the-future-will-be-like"),
        format!("00-{TRACE}-{SPAN}-01-"),
        format!(".0-{TRACE}-{SPAN}-01"),
        format!("0.-{TRACE}-{SPAN}-01"),
        format!("000-{TRACE}-{SPAN}-01"),
        format!("0-{TRACE}-{SPAN}-01"),
        format!("00-00000000000000000000000000000000-{SPAN}-01"),
        format!("00-.{}-{SPAN}-01", &TRACE[1..]),
        format!("00-{TRACE}1-{SPAN}-01"),
        format!("00-{}-{SPAN}-01", &TRACE[1..]),
        format!("00-{}-{SPAN}-01", "ABCDEF78901234567890123456789012"),
        format!("00-{TRACE}-0000000000000000-01"),
        format!("00-{TRACE}-.{}-01", &SPAN[1..]),
        format!("00-{TRACE}-{SPAN}7-01"),
        format!("00-{TRACE}-{}-01", &SPAN[1..]),
        format!("00-{TRACE}-{SPAN}-.0"),
        format!("00-{TRACE}-{SPAN}-0."),
        format!("00-{TRACE}-{SPAN}-001"),
        format!("00-{TRACE}-{SPAN}-1"),
        format!("00-{TRACE}-{SPAN}"),
    ] {
        assert_eq!(TraceParent::parse(&bad), None, "{bad}");
    }
}

#[test]
fn a_valid_tracestate_is_passed_on_in_its_order() {
    let members: Vec<String> = (1..=32).map(|number| format!("bar{number:02}=1")).collect();
    let longest = ["z".repeat(256), format!("{}@{}", "t".repeat(241), "v".repeat(14))];
    let value: String = (' '..='~').filter(|c| !",=".contains(*c)).collect();
    for (values, wanted) in [
        (vec!["foo=1,bar=2"], "foo=1,bar=2"),
        (vec!["foo=1", "bar=2,rojo=3", "congo=4"], "foo=1,bar=2,rojo=3,congo=4"),
        (vec!["foo=1", "", "bar=2"], "foo=1,bar=2"),
        (vec!["foo=1,,\t , bar=2"], "foo=1,bar=2"),
        (vec!["foo=1 \t , \t bar=2, \t baz=3"], "foo=1,bar=2,baz=3"),
        (vec![" \tfoo=1\t "], "foo=1"),
        // Which of them counts is for the system that wrote them.
        (vec!["foo=1,foo=2"], "foo=1,foo=2"),
        (vec!["0t@v=1,a_b-c*d/e=2"], "0t@v=1,a_b-c*d/e=2"),
        (vec!["a= b"], "a= b"),
        (vec![members.join(",").as_str()], members.join(",").as_str()),
        (vec![format!("a={value}").as_str()], format!("a={value}").as_str()),
        (
            vec![format!("{}=1", longest[0]).as_str()],
            format!("{}=1", longest[0]).as_str(),
        ),
        (
            vec![format!("{}=1", longest[1]).as_str()],
            format!("{}=1", longest[1]).as_str(),
        ),
        (
            vec![format!("a={}", "v".repeat(256)).as_str()],
            format!("a={}", "v".repeat(256)).as_str(),
        ),
    ] {
        assert_eq!(state(&values).as_deref(), Some(wanted), "{values:?}");
        let read = TraceState::try_from(wanted.to_owned()).unwrap();
        assert_eq!(read.as_str(), wanted);
    }
}

#[test]
fn one_invalid_member_makes_a_tracestate_none() {
    let too_many: Vec<String> = (1..=33).map(|number| format!("bar{number:02}=1")).collect();
    for bad in [
        "",
        " , ",
        "foo",
        "foo=",
        "=1",
        "foo =1",
        "FOO=1",
        "foo.bar=1",
        "1foo=1",
        "foo@=1,bar=2",
        "@foo=1,bar=2",
        "foo@@bar=1,bar=2",
        "foo@bar@baz=1,bar=2",
        "foo@1=2",
        "foo=bar=baz",
        "foo=b\u{e4}r",
        "foo=b\tr",
        &too_many.join(","),
        &format!("{}=1", "z".repeat(257)),
        &format!("{}@v=1", "t".repeat(242)),
        &format!("t@{}=1", "v".repeat(15)),
        &format!("a={}", "v".repeat(257)),
    ] {
        assert_eq!(state(&[bad]), None, "{bad}");
        assert_eq!(
            state(&["good=1", bad]).is_some(),
            bad.trim_matches([' ', ',']).is_empty(),
            "{bad}"
        );
    }
    let error = TraceState::try_from("FOO=1".repeat(100)).unwrap_err().to_string();
    assert!(error.contains("a tracestate") && error.len() < 120, "{error}");
}

#[test]
fn what_is_kept_of_a_tracestate_is_bounded_and_long_members_go_first() {
    let (long, short) = (format!("long={}", "x".repeat(200)), format!("s={}", "x".repeat(100)));
    let kept = |members: &[&str]| state(&[&members.join(",")]).unwrap();
    assert_eq!(kept(&[&long, &long]), [long.as_str(), &long].join(","));
    assert_eq!(
        kept(&[&short, &long, &long, &short]),
        [short.as_str(), &short].join(",")
    );
    assert_eq!(kept(&[short.as_str(); 6]), [short.as_str(); 4].join(","));
    let (exact, over) = (format!("a={}", "x".repeat(125)), format!("b={}", "x".repeat(126)));
    let rest = format!("c={}", "x".repeat(124));
    assert_eq!(kept(&[&exact, &exact, &exact, &over]).len(), 3 * 127 + 2 + 1 + 128);
    assert_eq!(
        kept(&[&exact, &exact, &exact, &rest, "d=1"]),
        [exact.as_str(), &exact, &exact, &rest].join(",")
    );
}

#[test]
fn a_request_is_of_a_trace_if_it_says_so_once() {
    let (parent, other) = (format!("00-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-00"));
    let read = |parents: &[&str], states: &[&str]| {
        RemoteContext::read(|name| {
            let values = if name == TRACEPARENT { parents } else { states };
            values
                .iter()
                .map(|value| value.as_bytes())
                .collect::<Vec<_>>()
                .into_iter()
        })
    };
    let of_both = read(&[&parent], &["foo=1", "bar=2"]).unwrap();
    assert_eq!(of_both.parent.to_string(), parent);
    assert_eq!(of_both.state.unwrap().as_str(), "foo=1,bar=2");
    // A bad state is none alone; without a parent it counts for nothing.
    assert_eq!(read(&[&parent], &["FOO=1"]).unwrap().state, None);
    assert_eq!(read(&[&parent], &[]).unwrap().state, None);
    let invalid: [&[&str]; 4] = [&[], &[&parent, &other], &[&parent, &parent], &["foo"]];
    for parents in invalid {
        assert_eq!(read(parents, &["foo=1"]), None, "{parents:?}");
    }
}

#[test]
fn baggage_names_one_signal_of_version_7_or_none() {
    let id: FluxId = SIGNAL.parse().unwrap();
    let read = |values: &[&str]| baggage_flux_id(values.iter().map(|value| value.as_bytes()));
    let large = format!("a={},flux_id={SIGNAL}", "x".repeat(MAX_BAGGAGE));
    let full = format!("flux_id={SIGNAL},a={}", "x".repeat(MAX_BAGGAGE - SIGNAL.len() - 11));
    assert_eq!(full.len(), MAX_BAGGAGE);
    assert_eq!(read(&[&baggage_of(id)]), Some(id));
    for good in [
        format!("user=x%20y,flux_id={SIGNAL}"),
        format!(" flux_id \t=\t {SIGNAL} ;secret;level=1 , user=x"),
        format!("broken,,=,flux_id={SIGNAL}"),
        full,
    ] {
        assert_eq!(read(&[&good]), Some(id), "{good}");
    }
    assert_eq!(read(&["user=x", &format!("flux_id={SIGNAL}")]), Some(id));
    for bad in [
        String::new(),
        "flux_id".to_owned(),
        "flux_id=".to_owned(),
        format!("Flux_Id={SIGNAL}"),
        format!("x=1;flux_id={SIGNAL}"),
        "flux_id=0193c3f2-7d1a-4000-8000-0123456789ab".to_owned(),
        "flux_id=00000000-0000-0000-0000-000000000000".to_owned(),
        format!("flux_id={SIGNAL}0"),
        format!("flux_id={SIGNAL},flux_id={SIGNAL}"),
        large,
    ] {
        assert_eq!(read(&[&bad]), None, "{bad}");
    }
    assert_eq!(
        baggage_flux_id([&b"a=\xff"[..], format!("flux_id={SIGNAL}").as_bytes()]),
        None
    );
}
