//! Value types of query parameters.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dead_letter::LetterState;
use crate::{BadId, HumanDuration, Timestamp};

/// What a duration of a request may be: `100ms`, `5s`, `1h30m`, `1.5h`. A term of days has fewer digits, so that three
/// terms never exceed what there is.
pub const DURATION: &str = r"^(0|([0-9]{1,5}(\.[0-9]{1,6})?(ns|us|µs|ms|s|m|h)|[0-9]{1,4}d){1,3})$";
/// The same, at least a microsecond.
pub const POSITIVE_DURATION: &str =
    r"^([0-9]{0,4}[1-9](\.[0-9]{1,6})?(us|µs|ms|s|m|h)|[0-9]{0,3}[1-9]d)([0-9]{1,5}(ms|s|m|h)){0,2}$";

/// A moment, or an age: `2026-11-21T10:00:00Z` or `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TimePoint {
    /// A moment.
    At(Timestamp),
    /// That long before now.
    Ago(HumanDuration),
}

plain_schema!(TimePoint, { "anyOf": [
    { "type": "string", "format": "date-time" },
    { "type": "string", "pattern": DURATION },
] });

impl TimePoint {
    /// Before everything that is stored.
    pub const EVER: Self = Self::At(Timestamp::MIN);

    /// The moment, given the current time.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(age) => now.minus(age.get()),
        }
    }
}

impl FromStr for TimePoint {
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

impl TryFrom<String> for TimePoint {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<TimePoint> for String {
    fn from(when: TimePoint) -> Self {
        when.to_string()
    }
}

impl fmt::Display for TimePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Ago(age) => age.fmt(f),
        }
    }
}

/// What became of letters of the dead-letter queue, as a filter says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are those of the states")]
pub enum LetterStateFilter {
    Open,
    Waiting,
    Replayed,
    Dropped,
    All,
}

impl LetterStateFilter {
    /// Whether a letter in a state is asked for; without a filter, what is not settled is.
    #[must_use]
    pub fn meets(asked: Option<Self>, state: LetterState) -> bool {
        match asked {
            None => matches!(state, LetterState::Open | LetterState::Waiting),
            Some(Self::All) => true,
            Some(Self::Open) => state == LetterState::Open,
            Some(Self::Waiting) => state == LetterState::Waiting,
            Some(Self::Replayed) => state == LetterState::Replayed,
            Some(Self::Dropped) => state == LetterState::Dropped,
        }
    }
}

/// The order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    /// The newest first.
    #[default]
    Desc,
    /// The oldest first.
    Asc,
}

/// How values of a bucket become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[allow(missing_docs, reason = "the names say it")]
pub enum MetricAggregate {
    Avg,
    Sum,
    Min,
    Max,
    Count,
    Last,
    Rate,
    /// What so many of ten thousand observations of histograms are not above: `p50` is 5,000, `p999` is 9,990.
    Percentile(u16),
}

plain_schema!(MetricAggregate, { "type": "string", "pattern": "^(avg|sum|min|max|count|last|rate|p[5-9][0-9]{1,3})$" });

const AGGREGATES: [(&str, MetricAggregate); 7] = [
    ("avg", MetricAggregate::Avg),
    ("sum", MetricAggregate::Sum),
    ("min", MetricAggregate::Min),
    ("max", MetricAggregate::Max),
    ("count", MetricAggregate::Count),
    ("last", MetricAggregate::Last),
    ("rate", MetricAggregate::Rate),
];

impl FromStr for MetricAggregate {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let named = AGGREGATES.iter().find(|(name, _)| *name == text);
        let digits = text.strip_prefix('p').filter(|digits| (2..=4).contains(&digits.len()));
        let share = || {
            format!("{:0<4}", digits?)
                .parse()
                .ok()
                .filter(|share: &u16| *share >= 5_000)
        };
        let known = named.map(|(_, known)| *known).or_else(|| share().map(Self::Percentile));
        known.ok_or_else(|| BadId {
            what: "an aggregate: avg, sum, min, max, count, last, rate, or a percentile such as p50, p95 or p999",
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for MetricAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, AGGREGATES.iter().find(|(_, known)| known == self)) {
            (Self::Percentile(share), _) => write!(f, "p{:0<2}", share.to_string().trim_end_matches('0')),
            (_, Some((name, _))) => f.pad(name),
            (_, None) => Ok(()),
        }
    }
}

impl TryFrom<String> for MetricAggregate {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<MetricAggregate> for String {
    fn from(aggregate: MetricAggregate) -> Self {
        aggregate.to_string()
    }
}

/// How buckets of metrics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BucketShape {
    /// A row for each bucket of each group.
    #[default]
    Rows,
    /// A row for each group, with a list of values.
    Series,
}

/// What the counts of a histogram are split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistogramGrouping {
    /// Nothing: one count a bucket.
    #[default]
    None,
    /// The level.
    Level,
    /// The entity's name.
    EntityName,
}

/// How the bytes of a message are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawForm {
    /// As lower-case hex.
    #[default]
    Hex,
    /// As base64 with padding.
    Base64,
    /// What they say: the envelope's fields, and the body as a value.
    Json,
    /// Not at all.
    None,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_time_and_an_age_are_distinguished() {
        let now = Timestamp::from_micros(10_000_000);
        assert_eq!(
            "4s".parse::<TimePoint>().unwrap().resolve(now),
            Timestamp::from_micros(6_000_000)
        );
        assert_eq!(
            "1970-01-01T00:00:01Z".parse::<TimePoint>().unwrap().resolve(now),
            Timestamp::from_micros(1_000_000)
        );
        assert!("yesterday".parse::<TimePoint>().is_err());
    }

    #[test]
    fn aggregates_are_their_names_and_percentiles_from_the_median_on() {
        for text in [
            "avg", "sum", "min", "max", "count", "last", "rate", "p50", "p90", "p95", "p99", "p501", "p999", "p9999",
        ] {
            assert_eq!(text.parse::<MetricAggregate>().unwrap().to_string(), text);
        }
        assert_eq!("p9990".parse(), Ok(MetricAggregate::Percentile(9_990)));
        assert_eq!(MetricAggregate::Percentile(9_990).to_string(), "p999");
        for text in [
            "", "p", "p9", "p49", "p100", "p-50", "p+99", "p9.9", "p99999", "median", "AVG", "p099",
        ] {
            assert!(text.parse::<MetricAggregate>().is_err(), "{text}");
        }
    }
}
