//! W3C Trace Context and Baggage: headers by which programs tell each other of one trace and one business signal.
//!
//! | header | what |
//! |---|---|
//! | `traceparent` | `00-<trace id>-<span id>-<flags>`; the last bit of the flags says that the trace is sampled |
//! | `tracestate` | what tracing systems add to it: `key=value` members, the latest first |
//! | `baggage` | what applications add: `key=value;property` members, of which `flux_id` names the business signal |
//!
//! # Invariants
//!
//! - What is invalid is ignored, as both recommendations say: without a valid `traceparent` a `tracestate` counts for nothing.
//! - A [`TraceState`] is at most [`MAX_TRACE_STATE`] bytes of whole members: those beyond 128 bytes are dropped first, then the last ones.
//!
//! # Not here
//!
//! Other members of `baggage`: they are what a sender tells its own servers, and end here. Whether a sender may name a signal (`http_in`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BadId, FluxId, SpanId, TraceId};

/// The header that names the trace and the span that sends.
pub const TRACEPARENT: &str = "traceparent";
/// The header of tracing systems.
pub const TRACESTATE: &str = "tracestate";
/// The header of applications.
pub const BAGGAGE: &str = "baggage";
/// The most bytes of a `tracestate` that are kept; less must not be (W3C).
pub const MAX_TRACE_STATE: usize = 512;
/// The most bytes of `baggage` that are read.
pub const MAX_BAGGAGE: usize = 8192;
/// The member of `baggage` that names the business signal.
const FLUX_ID: &str = "flux_id";
/// The most members of a `tracestate`.
const MAX_MEMBERS: usize = 32;
/// Members that are longer are dropped before others.
const LONG_MEMBER: usize = 128;
/// What may stand around members.
const SPACE: [char; 2] = [' ', '\t'];

/// A sender's place in its trace: `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that sends.
    pub span_id: SpanId,
    /// Whether the trace is kept.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a header value. Versions above 00 may carry more behind the flags; version ff is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_matches(SPACE).split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lower_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if version.len() != 2 || flags.len() != 2 || ![version, trace, span, flags].into_iter().all(lower_hex) {
            return None;
        }
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        Some(Self {
            trace_id: trace.parse().ok()?,
            span_id: span.parse().ok()?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            sampled,
        } = self;
        write!(f, "00-{trace_id}-{span_id}-{:02x}", u8::from(*sampled))
    }
}

/// What tracing systems add to a trace: `tracestate`, passed on as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceState(String);

impl TraceState {
    /// Reads the values of all headers, in their order; none if one member is invalid, there are too many, or there is none.
    #[must_use]
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut members = Vec::new();
        for member in values.into_iter().flat_map(|value| value.split(',')) {
            let member = member.trim_matches(SPACE);
            if member.is_empty() {
                continue;
            }
            if members.len() == MAX_MEMBERS || !is_member(member) {
                return None;
            }
            members.push(member);
        }
        let size = |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>();
        if size(&members) > MAX_TRACE_STATE + 1 {
            members.retain(|member| member.len() <= LONG_MEMBER);
        }
        while size(&members) > MAX_TRACE_STATE + 1 {
            members.pop();
        }
        (!members.is_empty()).then(|| Self(members.join(",")))
    }

    /// As it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TraceState {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        Self::parse([text.as_str()]).ok_or_else(|| BadId {
            what: "a tracestate",
            text: text.chars().take(80).collect(),
        })
    }
}

impl From<TraceState> for String {
    fn from(state: TraceState) -> Self {
        state.0
    }
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else {
        return false;
    };
    let is_value = value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    is_key(key) && is_value && (1..=256).contains(&value.len())
}

/// `name`, or `tenant@system`.
fn is_key(key: &str) -> bool {
    fn begins(part: &str, may: fn(&u8) -> bool) -> bool {
        part.as_bytes().first().is_some_and(may)
    }
    let goes_on = |part: &str, most: usize| {
        let is_good = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
        part.len() <= most && part.bytes().all(is_good)
    };
    match key.split_once('@') {
        None => begins(key, u8::is_ascii_lowercase) && goes_on(key, 256),
        Some((tenant, system)) => {
            begins(tenant, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && goes_on(tenant, 241)
                && begins(system, u8::is_ascii_lowercase)
                && goes_on(system, 14)
        }
    }
}

/// What the headers of a request say of its sender's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteContext {
    /// The sender's place.
    pub parent: TraceParent,
    /// What tracing systems add.
    pub state: Option<TraceState>,
}

impl RemoteContext {
    /// Reads a request by the values of its headers of a name; none if it is of no trace, or says so twice.
    #[must_use]
    pub fn read<'a, I: Iterator<Item = &'a [u8]>>(values: impl Fn(&str) -> I) -> Option<Self> {
        let mut parents = values(TRACEPARENT);
        let parent = TraceParent::parse(std::str::from_utf8(parents.next()?).ok()?)?;
        if parents.next().is_some() {
            return None;
        }
        let states: Result<Vec<_>, _> = values(TRACESTATE).map(std::str::from_utf8).collect();
        let state = states.ok().and_then(TraceState::parse);
        Some(Self { parent, state })
    }
}

/// The business signal that the values of `baggage` name: an id of version 7, once; all else counts for nothing.
#[must_use]
pub fn baggage_flux_id<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<FluxId> {
    let (mut found, mut size) = (None, 0);
    for value in values {
        size += value.len();
        if size > MAX_BAGGAGE {
            return None;
        }
        for member in std::str::from_utf8(value).ok()?.split(',') {
            let pair = member.split(';').next().unwrap_or_default();
            let Some((key, value)) = pair.split_once('=') else {
                continue;
            };
            if key.trim_matches(SPACE) != FLUX_ID {
                continue;
            }
            let id = value.trim_matches(SPACE).parse::<FluxId>().ok();
            let id = id.filter(|id| id.created().is_some() && found.is_none())?;
            found = Some(id);
        }
    }
    found
}

/// The `baggage` that names a business signal.
#[must_use]
pub fn baggage_of(flux_id: FluxId) -> String {
    format!("{FLUX_ID}={flux_id}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TRACE: &str = "12345678901234567890123456789012";
    const SPAN: &str = "1234567890123456";
    const SIGNAL: &str = "0193c3f2-7d1a-7000-8000-0123456789ab";

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
}
