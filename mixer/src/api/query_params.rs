//! Query parameters: decodes query strings strictly into filters, each parameter by itself so that the bad one
//! is named; and path parameters.
//!
//! `attr.http.status=500` is a member of a family: the entry `http.status` of the filter's field `attr.<key>`. What begins with `not.`
//! is a list of values, each a parameter of its own; all else is given once. Of both kinds a request has [`MAX_CONDITIONS`] at most.

use std::collections::HashSet;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use model::filter::{ANY_KEY, MAX_CONDITIONS};
use query::RowFormat;
use serde::Deserialize;
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::{Map, Value};

use super::problem::ApiProblem;

/// Parameters that are numbers in a filter.
const NUMBERS: [&str; 6] = ["limit", "offset", "min_duration_ms", "before", "after", "cells"];
/// Parameters that may hold an RFC 3339 time.
const TIMES: [&str; 3] = ["since", "until", "around"];
/// Parameters that are true or false.
const SWITCHES: [&str; 4] = ["fill", "dry_run", "replace", "positions"];
/// The parameter of the format that rows are answered in.
pub(crate) const FORMAT: &str = "format";
/// What the names of families' members begin with.
const FAMILIES: [&str; 4] = ["attr.", "labels.", "promoted.", "not.attr."];
/// What the names of parameters begin with that may be given more than once.
const REPEATABLE: &str = "not.";

/// A request's parameters in order, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    /// Those of a query string.
    pub(super) fn parse(query: &str) -> Result<Self, ApiProblem> {
        let params = decoded_pairs(query)?;
        let mut conditions = params.iter().filter(|(name, _)| is_condition(name));
        if let Some((name, _)) = conditions.nth(MAX_CONDITIONS) {
            let reason = format!(
                "a request has at most {MAX_CONDITIONS} parameters that begin with {}, {REPEATABLE} in all: leave some out",
                FAMILIES.join(", ")
            );
            return Err(ApiProblem::parameter(name, reason));
        }
        let twice = {
            let mut names = HashSet::new();
            let mut once = params.iter().enumerate().filter(|(_, (name, _))| !is_repeatable(name));
            once.find_map(|(at, (name, _))| (!names.insert(name.as_str())).then_some(at))
        };
        match twice {
            Some(at) => Err(ApiProblem::parameter(&params[at].0, "given twice")),
            None => Ok(Self(params)),
        }
    }

    /// The filter that the parameters spell.
    pub(crate) fn filter<F: DeserializeOwned>(self) -> Result<F, ApiProblem> {
        let mut all = Map::new();
        for (name, value) in self.0 {
            let (field, value) = field(&name, value)?;
            if let Err(error) = alone::<F>(field.clone(), value.clone()) {
                return Err(bad(&name, &error));
            }
            add(&mut all, field, value);
        }
        whole(all)
    }

    /// The two filters that the parameters spell; each parameter belongs to one of them.
    pub(crate) fn filters<F: DeserializeOwned, G: DeserializeOwned>(self) -> Result<(F, G), ApiProblem> {
        let (mut first, mut second) = (Map::new(), Map::new());
        for (name, value) in self.0 {
            let (field, value) = field(&name, value)?;
            let of_first = alone::<F>(field.clone(), value.clone());
            let of_second = alone::<G>(field.clone(), value.clone());
            match (of_first, of_second) {
                (Ok(()), _) => add(&mut first, field, value),
                (Err(_), Ok(())) => add(&mut second, field, value),
                (Err(one), Err(other)) => return Err(bad_for_both(&name, &one, &other)),
            }
        }
        Ok((whole(first)?, whole(second)?))
    }

    /// The format that rows are asked for in; it is no parameter any more then.
    pub(crate) fn take_format(&mut self) -> Result<Option<RowFormat>, ApiProblem> {
        let Some(at) = self.0.iter().position(|(name, _)| name == FORMAT) else {
            return Ok(None);
        };
        let (name, value) = self.0.remove(at);
        let format = RowFormat::deserialize(value.into_deserializer());
        format
            .map(Some)
            .map_err(|error: ValueError| ApiProblem::parameter(&name, error))
    }

    /// Refuses any parameter.
    fn reject_all(&self) -> Result<(), ApiProblem> {
        self.reject_others("none")
    }

    /// Refuses any parameter where one was known and taken.
    pub(crate) fn reject_others(&self, taken: &str) -> Result<(), ApiProblem> {
        match self.0.first() {
            Some((name, _)) => Err(ApiProblem::unknown_parameter(name, taken)),
            None => Ok(()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for QueryParams {
    type Rejection = ApiProblem;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiProblem> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

/// That a request has no parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoParams;

impl<S: Sync> FromRequestParts<S> for NoParams {
    type Rejection = ApiProblem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        QueryParams::from_request_parts(parts, state).await?.reject_all()?;
        Ok(Self)
    }
}

/// A parameter in the path, as it came.
pub(crate) type InPath = Result<Path<String>, PathRejection>;

/// A parameter in the path.
pub(crate) fn in_path(name: &str, found: InPath) -> Result<String, ApiProblem> {
    found
        .map(|Path(text)| text)
        .map_err(|error| ApiProblem::parameter(name, error.body_text()))
}

/// The parameters of a query string, decoded, as often as they are there.
pub(super) fn decoded_pairs(query: &str) -> Result<Vec<(String, String)>, ApiProblem> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name)
            .ok_or_else(|| ApiProblem::parameter(&printable(name), "its name is not UTF-8 in percent encoding"))?;
        let value =
            decode(value).ok_or_else(|| ApiProblem::parameter(&name, "its value is not UTF-8 in percent encoding"))?;
        Ok((name, value))
    });
    decoded.collect()
}

fn is_repeatable(name: &str) -> bool {
    name.starts_with(REPEATABLE)
}

/// Whether there may be any number of such parameters, each of which every row is compared with.
fn is_condition(name: &str) -> bool {
    is_repeatable(name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// A filter's field, and what a parameter says of it.
fn field(name: &str, value: String) -> Result<(String, Value), ApiProblem> {
    let family = FAMILIES
        .iter()
        .find_map(|family| Some((family, name.strip_prefix(family)?)));
    match family {
        Some((_, "")) => Err(ApiProblem::parameter(name, "it lacks a key")),
        Some((family, key)) => {
            let value = listed(name, value.into());
            let entry = Map::from_iter([(key.to_owned(), value)]);
            Ok((format!("{family}{ANY_KEY}"), entry.into()))
        }
        None => Ok((name.to_owned(), listed(name, typed(name, value)?))),
    }
}

/// A value, or a list of it where there may be more.
fn listed(name: &str, value: Value) -> Value {
    match is_repeatable(name) {
        true => Value::Array(vec![value]),
        false => value,
    }
}

/// Adds what a parameter says to what others have said.
fn add(all: &mut Map<String, Value>, field: String, value: Value) {
    match (all.get_mut(&field), value) {
        (Some(Value::Object(entries)), Value::Object(more)) => {
            for (key, value) in more {
                add(entries, key, value);
            }
        }
        (Some(Value::Array(values)), Value::Array(more)) => values.extend(more),
        (_, value) => {
            all.insert(field, value);
        }
    }
}

/// Whether a filter can have a field with this value.
fn alone<F: DeserializeOwned>(field: String, value: Value) -> Result<(), String> {
    let alone = Map::from_iter([(field, value)]);
    let read = serde_json::from_value::<F>(Value::Object(alone));
    read.map(drop).map_err(|error| error.to_string())
}

fn whole<F: DeserializeOwned>(all: Map<String, Value>) -> Result<F, ApiProblem> {
    serde_json::from_value(Value::Object(all)).map_err(|error| ApiProblem::parameter("query", error))
}

fn typed(name: &str, value: String) -> Result<Value, ApiProblem> {
    if NUMBERS.contains(&name) {
        // A number may have a sign for the parser.
        let number: Option<u32> = value.parse().ok().filter(|_| !value.starts_with('+'));
        let wrong = || ApiProblem::parameter(name, format!("{value:?} is not a whole number from 0 to {}", u32::MAX));
        return number.map(Value::from).ok_or_else(wrong);
    }
    if SWITCHES.contains(&name) {
        let is_on: Result<bool, _> = value.parse();
        return is_on
            .map(Value::from)
            .map_err(|_| ApiProblem::parameter(name, format!("{value:?} is not true or false")));
    }
    if TIMES.contains(&name) {
        return Ok(Value::from(with_plus(value)));
    }
    Ok(Value::from(value))
}

/// A time's `+02:00` whose plus was not escaped arrives as a space. What follows a day alone is a time of day, not a zone.
fn with_plus(value: String) -> String {
    match value.rsplit_once(' ') {
        Some((time, zone)) if time.contains(':') && zone.len() == 5 && zone.as_bytes()[2] == b':' => {
            format!("{time}+{zone}")
        }
        _ => value,
    }
}

fn bad(name: &str, reason: &str) -> ApiProblem {
    match known(reason) {
        Some(known) => ApiProblem::unknown_parameter(name, known),
        None => ApiProblem::parameter(name, reason),
    }
}

fn bad_for_both(name: &str, one: &str, other: &str) -> ApiProblem {
    match (known(one), known(other)) {
        (Some(these), Some(those)) => ApiProblem::unknown_parameter(name, &format!("{these}, {those}")),
        (None, _) => ApiProblem::parameter(name, one),
        (_, None) => ApiProblem::parameter(name, other),
    }
}

/// The fields that a filter has, if it lacks the one that was tried.
fn known(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("unknown field")?;
    let known = rest.split_once("expected").map_or("none", |(_, known)| known.trim());
    Some(known.strip_prefix("one of ").unwrap_or(known))
}

/// Strict percent decoding: a stray `%` or bytes that are not UTF-8 are refused.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn printable(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;
    use model::Level;
    use model::filter::{
        HistogramFilter, HistogramGrouping, KeyedValueSets, LogFilter, MetricFilter, SortOrder, TimePoint,
    };

    #[test]
    fn parameters_are_decoded_strictly_and_typed() {
        let params =
            QueryParams::parse("q=a%20b%2Bc+d&limit=7&level=warn&gear_id=%C3%A9&since=2026-11-21T10:00:00+02:00")
                .unwrap();
        let filter: LogFilter = params.filter().unwrap();
        assert_eq!(filter.q.as_deref(), Some("a b+c d"));
        assert_eq!((filter.limit, filter.gear_id.as_deref()), (Some(7), Some("é")));
        assert_eq!(
            filter.since,
            Some(TimePoint::At("2026-11-21T08:00:00Z".parse().unwrap()))
        );
    }

    #[test]
    fn a_time_of_day_behind_a_blank_is_no_zone() {
        let read = |query: &str| QueryParams::parse(query).and_then(QueryParams::filter::<LogFilter>);
        for query in [
            "since=2026-11-21 10:00",
            "since=2026-11-21+10:00",
            "since=2026-11-21%2010:00",
        ] {
            let text = format!("{:?}", read(query).unwrap_err());
            assert!(text.contains("2026-11-21 10:00") && text.contains("RFC 3339"), "{text}");
        }
        let at = Some(TimePoint::At("2026-11-21T08:00:00Z".parse().unwrap()));
        assert_eq!(read("since=2026-11-21 10:00:00+02:00").unwrap().since, at);
    }

    #[test]
    fn many_parameters_are_read_in_a_time_that_grows_with_their_number() {
        let mut query: String = (0..100_000).map(|number| format!("p{number}=&")).collect();
        let begun = std::time::Instant::now();
        assert_eq!(QueryParams::parse(&query).unwrap().0.len(), 100_000);
        query.push_str("p0=");
        assert!(QueryParams::parse(&query).is_err());
        assert!(begun.elapsed().as_secs() < 20, "it compares each with each");
    }

    #[test]
    fn members_of_a_family_come_together_and_parameters_go_where_they_belong() {
        let query = "attr.http.status=500&order=asc&attr.a%20b=%2B&by=level&fill=true&interval=5m";
        let (logs, shape): (LogFilter, HistogramFilter) = QueryParams::parse(query).unwrap().filters().unwrap();
        let attributes: Vec<_> = logs
            .attributes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(attributes, [("a b", "+"), ("http.status", "500")]);
        assert_eq!(
            (logs.order, shape.by),
            (Some(SortOrder::Asc), Some(HistogramGrouping::Level))
        );
        assert_eq!((shape.fill, shape.interval.is_some()), (Some(true), true));
    }

    #[test]
    fn what_is_left_out_may_be_given_more_than_once() {
        let query = "not.level=debug&not.attr.a.b=1&not.level=info&not.attr.a.b=2&not.attr.c=3&attr.a.b=4&not.entity=x";
        let filter: LogFilter = QueryParams::parse(query).unwrap().filter().unwrap();
        let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(filter.not_level, BTreeSet::from([Level::Debug, Level::Info]));
        assert_eq!((filter.not_entity, filter.attributes.len()), (set(&["x"]), 1));
        let without = [("a.b".to_owned(), set(&["1", "2"])), ("c".to_owned(), set(&["3"]))];
        assert_eq!(filter.not_attributes, KeyedValueSets::from(without));
        for (query, named, says) in [
            ("not.level=info&not.level=loud", "not.level", "loud"),
            ("not.attr.=1", "not.attr.", "lacks a key"),
            ("not.colour=red", "not.colour", "`not.entity`"),
            ("level=info&level=info", "level", "given twice"),
        ] {
            let problem = QueryParams::parse(query).and_then(QueryParams::filter::<LogFilter>);
            let text = format!("{:?}", problem.unwrap_err());
            assert!(
                text.contains(&format!("Some({named:?})")) && text.contains(says),
                "{query}: {text}"
            );
        }
    }

    #[test]
    fn a_request_has_so_many_conditions_and_the_first_that_is_too_many_is_named() {
        let mut query: String = (0..MAX_CONDITIONS / 2)
            .map(|number| format!("not.q={number}&attr.a{number}=1&"))
            .collect();
        query.push_str("level=info&limit=7");
        let filter: LogFilter = QueryParams::parse(&query).unwrap().filter().unwrap();
        assert_eq!(filter.not_q.len() + filter.attributes.len(), MAX_CONDITIONS);
        for more in [
            "not.level=debug",
            "attr.b=1",
            "not.attr.b=1",
            "labels.b=1",
            "promoted.b=1",
        ] {
            let refused = QueryParams::parse(&format!("{query}&{more}&not.q=last")).unwrap_err();
            let (name, _) = more.split_once('=').unwrap();
            let text = format!("{refused:?}");
            assert!(
                text.contains(&format!("Some({name:?})")) && text.contains(&format!("at most {MAX_CONDITIONS} ")),
                "{text}"
            );
        }
    }

    #[test]
    fn the_bad_parameter_is_the_one_that_is_named() {
        for (query, name, code) in [
            ("level=info&colour=red", "colour", "unknown_parameter"),
            ("q=x&level=loud", "level", "bad_parameter"),
            ("limit=-1&level=info", "limit", "bad_parameter"),
            ("limit=%2B1", "limit", "bad_parameter"),
            ("limit=1&limit=1", "limit", "bad_parameter"),
            ("q=%zz", "q", "bad_parameter"),
            ("q=%ff", "q", "bad_parameter"),
            ("since=yesterday", "since", "bad_parameter"),
            ("trace_id=00", "trace_id", "bad_parameter"),
        ] {
            let problem = QueryParams::parse(query)
                .and_then(QueryParams::filter::<LogFilter>)
                .unwrap_err();
            let text = format!("{problem:?}");
            assert!(
                text.contains(&format!("Some({name:?})")) && text.contains(code),
                "{query}: {text}"
            );
        }
        for (query, name, known) in [
            ("labels.a=1", "labels.a", "`attr.<key>`"),
            ("attr.=1", "attr.", "lacks a key"),
            ("attr.a=1&attr.a=2", "attr.a", "given twice"),
            ("attr=1", "attr", "`attr.<key>`"),
            ("order=up", "order", "`asc`"),
        ] {
            let problem = QueryParams::parse(query)
                .and_then(QueryParams::filter::<LogFilter>)
                .unwrap_err();
            let text = format!("{problem:?}");
            assert!(
                text.contains(&format!("Some({name:?})")) && text.contains(known),
                "{query}: {text}"
            );
        }
        let both = |query| QueryParams::parse(query).and_then(QueryParams::filters::<LogFilter, HistogramFilter>);
        let text = format!("{:?}", both("bye=level").unwrap_err());
        assert!(text.contains("`min_level`") && text.contains("`interval`"), "{text}");
        assert!(format!("{:?}", both("by=size").unwrap_err()).contains("entity_name"));
        assert!(
            QueryParams::parse("interval=5x")
                .unwrap()
                .filter::<MetricFilter>()
                .is_err()
        );
        assert!(QueryParams::parse("a=1").unwrap().reject_all().is_err());
    }
}
