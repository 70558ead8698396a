//! Parameters of Jaeger's API, and the searches that they mean.
//!
//! | parameter | of | means |
//! |---|---|---|
//! | `service`, `operation`, `spanKind` | spans | the service, the name, the attribute `span.kind` |
//! | `tags` | spans | a JSON object: attributes of the span or of its resource; `error` and `otel.status_code` are the status, `entity.name`, `entity.id` and `flux_id` what the span has |
//! | `tag` | spans | the same as `key:value`, any number of them |
//! | `minDuration`, `maxDuration` | spans | `1.2s`, `100ms`, `500us` |
//! | `start`, `end` | traces | microseconds since 1970 |
//! | `lookback` | traces | how far back from the end where there is no `start`: `1h`; else, and without it, two days |
//! | `endTs`, `lookback` | dependencies | milliseconds since 1970; milliseconds, a day without it |
//! | `limit` | traces | how many, 100 without it |
//! | `traceID` | traces | instead of a search; any number of them |
//!
//! A parameter that may be left out is left out where it is empty, which pages have for what nobody filled in.

use std::time::Duration;

use model::filter::{KeyedValues, MAX_CONDITIONS, TimePoint, TraceFilter};
use model::{FluxId, HumanDuration, Span, SpanStatus, Timestamp, TraceId, value_text};
use query::TraceSearch;
use serde_json::{Map, Value};

use crate::api::problem::ApiProblem;
use crate::api::query_params::decoded_pairs;

/// How far back Jaeger's page looks, if nothing else is said.
const LOOKBACK: HumanDuration = HumanDuration::from_secs(2 * 24 * 3_600);
/// The same of dependencies.
const DEPENDENCIES_LOOKBACK: Duration = Duration::from_secs(24 * 3_600);
/// Digits of a number: more are no time of ours.
const MOST_DIGITS: usize = 18;
/// Those that may be there several times.
const REPEATED: [&str; 2] = ["tag", "traceID"];
/// Those that mean nothing where they are empty.
const OPTIONAL: [&str; 11] = [
    "operation",
    "spanKind",
    "tags",
    "tag",
    "minDuration",
    "maxDuration",
    "lookback",
    "start",
    "end",
    "limit",
    "endTs",
];
const SEARCH: [&str; 13] = [
    "service",
    "operation",
    "tags",
    "tag",
    "start",
    "end",
    "lookback",
    "limit",
    "minDuration",
    "maxDuration",
    "traceID",
    "raw",
    "prettyPrint",
];

/// The tag that a span has which failed.
const STATUS_CODE: &str = "otel.status_code";

/// Spans of the time that Jaeger's page looks at.
pub(super) fn recent() -> TraceFilter {
    TraceFilter {
        since: Some(TimePoint::Ago(LOOKBACK)),
        ..TraceFilter::default()
    }
}

/// An id, as Jaeger writes it: zeros before it may be missing.
pub(super) fn trace_id(name: &str, text: &str) -> Result<TraceId, ApiProblem> {
    let id = format!("{text:0>32}").parse::<TraceId>();
    id.map_err(|error| ApiProblem::parameter(name, error))
}

/// A request's parameters, decoded.
#[derive(Debug)]
pub(super) struct JaegerParams(Vec<(String, String)>);

impl JaegerParams {
    /// Those of a query string; none but the known ones.
    pub(super) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, ApiProblem> {
        let mut params = decoded_pairs(query.unwrap_or_default())?;
        params.retain(|(name, value)| !(value.is_empty() && OPTIONAL.contains(&name.as_str())));
        let mut given = vec![false; known.len()];
        for (name, value) in &params {
            let Some(at) = known.iter().position(|known| *known == name.as_str()) else {
                let known = match known.is_empty() {
                    true => "none".to_owned(),
                    false => known.join(", "),
                };
                return Err(ApiProblem::unknown_parameter(name, &known));
            };
            if std::mem::replace(&mut given[at], true) && !REPEATED.contains(&name.as_str()) {
                return Err(ApiProblem::parameter(name, "given twice"));
            }
            if ["raw", "prettyPrint"].contains(&name.as_str()) && value.parse::<bool>().is_err() {
                return Err(ApiProblem::parameter(name, format!("{value:?} is not true or false")));
            }
        }
        Ok(Self(params))
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(other, _)| other == name);
        named.map(|(_, value)| value.as_str())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().find(|(other, _)| other == name);
        named.map(|(_, value)| value.as_str())
    }

    /// A whole number that is not negative.
    fn number(&self, name: &str) -> Result<Option<i64>, ApiProblem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let digits = text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<i64>().ok().filter(|_| digits).map(Some);
        number.ok_or_else(|| {
            let reason = format!("{text:?} is not a whole number of at most {MOST_DIGITS} digits");
            ApiProblem::parameter(name, reason)
        })
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, ApiProblem> {
        let duration = self.get(name).map(str::parse::<HumanDuration>).transpose();
        let duration = duration.map_err(|error| ApiProblem::parameter(name, error))?;
        Ok(duration.map(HumanDuration::get))
    }

    fn service(&self) -> Result<String, ApiProblem> {
        let named = self.get("service").filter(|name| !name.is_empty());
        let named = named.map(str::to_owned);
        named.ok_or_else(|| ApiProblem::parameter("service", "give the name of a service"))
    }

    /// The spans whose operations are asked for.
    pub(super) fn operations(&self) -> Result<TraceFilter, ApiProblem> {
        let kind = self
            .get("spanKind")
            .map(|kind| (Span::KIND.to_owned(), kind.to_owned()));
        Ok(TraceFilter {
            service: Some(self.service()?),
            attributes: kind.into_iter().collect(),
            ..recent()
        })
    }

    /// The spans whose calls are asked for.
    pub(super) fn dependencies(&self) -> Result<TraceFilter, ApiProblem> {
        let millis = self.number("lookback")?;
        let lookback = match millis.map(u64::try_from) {
            Some(Ok(millis)) => Duration::from_millis(millis),
            _ => DEPENDENCIES_LOOKBACK,
        };
        let end = self.number("endTs")?.map(|millis| millis.saturating_mul(1_000));
        Ok(window(None, end, lookback))
    }

    /// The spans of a search: their tags, and what some of these mean that are no attributes.
    fn tags(&self) -> Result<(KeyedValues, TraceFilter), ApiProblem> {
        let mut tags = KeyedValues::new();
        if let Some(text) = self.get("tags") {
            let object: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| ApiProblem::parameter("tags", format!("no JSON object: {error}")))?;
            tags.extend(
                object
                    .into_iter()
                    .filter_map(|(key, value)| Some((key, value_text(value)?))),
            );
        }
        for tag in self.all("tag") {
            let pair = tag.split_once(':').filter(|(key, _)| !key.is_empty());
            let (key, value) = pair.ok_or_else(|| ApiProblem::parameter("tag", format!("{tag:?} is not key:value")))?;
            tags.insert(key.to_owned(), value.to_owned());
        }
        if tags.len() > MAX_CONDITIONS {
            let reason = format!("{} tags are more than {MAX_CONDITIONS}: leave some out", tags.len());
            return Err(ApiProblem::parameter("tags", reason));
        }
        let mut shown = TraceFilter {
            status: match tags.get("error").map(String::as_str) {
                Some("true") => Some(SpanStatus::Error),
                Some("false") => Some(SpanStatus::Ok),
                _ => None,
            },
            ..TraceFilter::default()
        };
        if shown.status.is_some() {
            tags.remove("error");
        }
        if tags.get(STATUS_CODE).is_some_and(|code| code == "ERROR") && shown.status != Some(SpanStatus::Ok) {
            tags.remove(STATUS_CODE);
            shown.status = Some(SpanStatus::Error);
        }
        let name = tags.remove("entity.name");
        shown.entity = tags.remove("entity.id").or(name);
        let flux = tags.remove("flux_id").map(|id| id.parse::<FluxId>()).transpose();
        shown.flux_id = flux.map_err(|error| ApiProblem::parameter("tags", error))?;
        Ok((tags, shown))
    }
}

/// Spans between two times in microseconds, the last one included; without the first as far back as `lookback` says.
fn window(start: Option<i64>, end: Option<i64>, lookback: Duration) -> TraceFilter {
    let end = end.map(|end| Timestamp::from_micros(end.saturating_add(1)));
    let since = match (start, end) {
        (Some(start), _) => TimePoint::At(Timestamp::from_micros(start)),
        (None, Some(end)) => TimePoint::At(end.minus(lookback)),
        (None, None) => TimePoint::Ago(HumanDuration::from_millis(
            u64::try_from(lookback.as_millis()).unwrap_or(u64::MAX),
        )),
    };
    TraceFilter {
        since: Some(since),
        until: end.map(TimePoint::At),
        ..TraceFilter::default()
    }
}

/// Which traces are asked for.
#[derive(Debug)]
pub(super) enum TraceRequest {
    Ids(Vec<TraceId>),
    Search(Box<TraceSearch>),
}

impl TraceRequest {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, ApiProblem> {
        let params = JaegerParams::parse(query, &SEARCH)?;
        let ids = params.all("traceID").map(|id| trace_id("traceID", id));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        if !ids.is_empty() {
            return Ok(Self::Ids(ids));
        }
        let (start, end) = (params.number("start")?, params.number("end")?);
        if start.zip(end).is_some_and(|(start, end)| start > end) {
            return Err(ApiProblem::parameter("end", "it is before start: swap them"));
        }
        // A page says `custom` beside its own times.
        let lookback = params
            .get("lookback")
            .and_then(|text| text.parse::<HumanDuration>().ok());
        let limit = params
            .number("limit")?
            .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let (tags, shown) = params.tags()?;
        let filter = TraceFilter {
            service: Some(params.service()?),
            span_name: params.get("operation").map(str::to_owned),
            status: shown.status,
            entity: shown.entity,
            flux_id: shown.flux_id,
            limit,
            ..window(start, end, lookback.unwrap_or(LOOKBACK).get())
        };
        Ok(Self::Search(Box::new(TraceSearch {
            filter,
            tags,
            min_duration: params.duration("minDuration")?,
            max_duration: params.duration("maxDuration")?,
        })))
    }
}

#[cfg(test)]
mod tests;
