//! One filter, three uses: the query string of the REST API, the input of the plans, the flags of the CLI.
//!
//! Every field is optional. Names are the specification's; what the CLI has and the REST table lacks (`min_level`,
//! `entity`, `name`, `limit`) is accepted by both (docs/adr/0005-filters.md).
//!
//! # Invariants
//!
//! - Unknown parameters are errors. An empty filter asks for the newest rows of the last 24 hours.
//! - `since` and `until` are moments or ages; an age counts back from the time of the request.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BadId, FluxId, HumanDuration, Level, SpanStatus, Timestamp, TraceId};

/// The default number of rows.
pub const DEFAULT_LIMIT: u32 = 100;
/// The greatest number of rows one answer holds.
pub const MAX_LIMIT: u32 = 10_000;
/// How far back a query without `since` looks.
pub const DEFAULT_WINDOW: HumanDuration = HumanDuration::from_secs(24 * 3600);

/// A moment, or an age: `2026-11-21T10:00:00Z` or `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum When {
    /// A moment.
    At(Timestamp),
    /// That long before now.
    Ago(HumanDuration),
}

impl When {
    /// The moment, given the current time.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(age) => now.minus(age.get()),
        }
    }
}

impl FromStr for When {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        text.parse().map(Self::Ago).map_err(|_| BadId {
            what: "a time (RFC 3339 such as 2026-11-21T10:00:00Z, or an age such as 1h)",
            text: text.to_owned(),
        })
    }
}

impl TryFrom<String> for When {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        when.to_string()
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Ago(age) => age.fmt(f),
        }
    }
}

/// Which log records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(
    missing_docs,
    reason = "the specification's parameters; the module says what is added"
)]
pub struct LogFilter {
    /// Exactly this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// This level and graver ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_level: Option<Level>,
    /// From this moment on (inclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<When>,
    /// Before this moment (exclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<When>,
    /// A Rack's entity id or name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack_id: Option<String>,
    /// The attribute `gear.id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gear_id: Option<String>,
    /// An entity's name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// The business signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flux_id: Option<FluxId>,
    /// The attribute `trace_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// A case-insensitive part of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    /// At most so many rows; [`DEFAULT_LIMIT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Skip so many rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// Go on where an answer's `next_cursor` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Which spans.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceFilter {
    /// The business signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flux_id: Option<FluxId>,
    /// From this moment on (inclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<When>,
    /// Before this moment (exclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<When>,
    /// At least so long, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_duration_ms: Option<u32>,
    /// The outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SpanStatus>,
    /// An entity's name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_name: Option<String>,
    /// At most so many rows; [`DEFAULT_LIMIT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Skip so many rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// Go on where an answer's `next_cursor` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Which metric points, and how to bring them together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricFilter {
    /// The metric's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// An entity's name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// From this moment on (inclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<When>,
    /// Before this moment (exclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<When>,
    /// `entity_name`, `entity_id`, `name`, `type` or a label key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// The width of a time bucket; any duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<HumanDuration>,
    /// How values of a bucket become one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agg: Option<Aggregate>,
    /// At most so many rows; [`DEFAULT_LIMIT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Skip so many rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// Go on where an answer's `next_cursor` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How values of a bucket become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Aggregate {
    Avg,
    Sum,
    Min,
    Max,
    Count,
    Last,
    Rate,
}

/// Which telemetry that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetterFilter {
    /// From this moment on (inclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<When>,
    /// Before this moment (exclusive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<When>,
    /// At most so many rows; [`DEFAULT_LIMIT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Skip so many rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// Go on where an answer's `next_cursor` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_moment_and_an_age_are_told_apart() {
        let now = Timestamp::from_micros(10_000_000);
        assert_eq!(
            "4s".parse::<When>().unwrap().resolve(now),
            Timestamp::from_micros(6_000_000)
        );
        assert_eq!(
            "1970-01-01T00:00:01Z".parse::<When>().unwrap().resolve(now),
            Timestamp::from_micros(1_000_000)
        );
        assert!("yesterday".parse::<When>().is_err());
    }
}
