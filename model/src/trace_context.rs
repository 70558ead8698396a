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
/// The threshold under which every trace is kept.
pub const ALL_TRACES: u64 = u64::MAX;
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

/// Below which threshold ([`is_sampled`]) traces are, so that about this share of them is kept.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the rate is clamped to 0..1 and a share of 2^64 needs no more than 53 bits"
)]
#[must_use]
pub fn sampling_threshold(rate: f64) -> u64 {
    if rate < 1.0 {
        (rate.max(0.0) * u64::MAX as f64) as u64
    } else {
        ALL_TRACES
    }
}

/// Whether a new trace is kept: the last eight bytes of its id are random, and below the threshold.
#[must_use]
pub fn is_sampled(trace: &TraceId, below: u64) -> bool {
    let [.., a, b, c, d, e, f, g, h] = *trace.as_bytes();
    below == ALL_TRACES || u64::from_be_bytes([a, b, c, d, e, f, g, h]) < below
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
mod tests;
