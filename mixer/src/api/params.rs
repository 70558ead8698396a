//! Query strings to filters: strictly decoded, each parameter tried by itself so that the bad one is named.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::Problem;

/// Parameters that are numbers in a filter.
const NUMBERS: [&str; 3] = ["limit", "offset", "min_duration_ms"];
/// Parameters that may hold an RFC 3339 time.
const TIMES: [&str; 2] = ["since", "until"];

/// A request's parameters in order, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut params: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name)
                .ok_or_else(|| Problem::parameter(&printable(name), "its name is not UTF-8 in percent encoding"))?;
            let value =
                decode(value).ok_or_else(|| Problem::parameter(&name, "its value is not UTF-8 in percent encoding"))?;
            if params.iter().any(|(known, _)| *known == name) {
                return Err(Problem::parameter(&name, "given twice"));
            }
            params.push((name, value));
        }
        Ok(Self(params))
    }

    /// The filter that the parameters spell.
    pub(crate) fn filter<F: DeserializeOwned>(self) -> Result<F, Problem> {
        let mut all = Map::new();
        for (name, value) in self.0 {
            let value = typed(&name, value)?;
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            if let Err(error) = serde_json::from_value::<F>(Value::Object(alone)) {
                return Err(bad(&name, &error.to_string()));
            }
            all.insert(name, value);
        }
        serde_json::from_value(Value::Object(all)).map_err(|error| Problem::parameter("query", error))
    }

    /// Refuses any parameter.
    pub(crate) fn none(&self) -> Result<(), Problem> {
        match self.0.first() {
            Some((name, _)) => Err(Problem::unknown_parameter(name, "none")),
            None => Ok(()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

fn typed(name: &str, value: String) -> Result<Value, Problem> {
    if NUMBERS.contains(&name) {
        let number: Result<u32, _> = value.parse();
        let wrong = |_| Problem::parameter(name, format!("{value:?} is not a whole number from 0 to {}", u32::MAX));
        return number.map(Value::from).map_err(wrong);
    }
    if TIMES.contains(&name) {
        return Ok(Value::from(with_plus(value)));
    }
    Ok(Value::from(value))
}

/// A time's `+02:00` whose plus was not escaped arrives as a space.
fn with_plus(value: String) -> String {
    match value.rsplit_once(' ') {
        Some((time, zone)) if zone.len() == 5 && zone.as_bytes()[2] == b':' => format!("{time}+{zone}"),
        _ => value,
    }
}

fn bad(name: &str, reason: &str) -> Problem {
    match reason.split_once("unknown field") {
        Some((_, rest)) => {
            let known = rest.split_once("expected").map_or("none", |(_, known)| known.trim());
            Problem::unknown_parameter(name, known.strip_prefix("one of ").unwrap_or(known))
        }
        None => Problem::parameter(name, reason),
    }
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

/// What every list answers.
#[derive(Debug, Serialize)]
pub(crate) struct Listing<T> {
    pub(crate) data: T,
    pub(crate) next_cursor: Option<String>,
    pub(crate) stats: Map<String, Value>,
}

impl<T> Listing<Vec<T>> {
    /// A list that is always whole.
    pub(crate) fn whole(data: Vec<T>) -> Self {
        let stats = Map::from_iter([("rows".to_owned(), data.len().into())]);
        Self {
            data,
            next_cursor: None,
            stats,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use model::filter::{LogFilter, MetricFilter, When};

    #[test]
    fn parameters_are_decoded_strictly_and_typed() {
        let params =
            Params::parse("q=a%20b%2Bc+d&limit=7&level=warn&gear_id=%C3%A9&since=2026-11-21T10:00:00+02:00").unwrap();
        let filter: LogFilter = params.filter().unwrap();
        assert_eq!(filter.q.as_deref(), Some("a b+c d"));
        assert_eq!((filter.limit, filter.gear_id.as_deref()), (Some(7), Some("é")));
        assert_eq!(filter.since, Some(When::At("2026-11-21T08:00:00Z".parse().unwrap())));
    }

    #[test]
    fn the_bad_parameter_is_the_one_that_is_named() {
        for (query, name, code) in [
            ("level=info&colour=red", "colour", "unknown_parameter"),
            ("q=x&level=loud", "level", "bad_parameter"),
            ("limit=-1&level=info", "limit", "bad_parameter"),
            ("limit=1&limit=1", "limit", "bad_parameter"),
            ("q=%zz", "q", "bad_parameter"),
            ("q=%ff", "q", "bad_parameter"),
            ("since=yesterday", "since", "bad_parameter"),
            ("trace_id=00", "trace_id", "bad_parameter"),
        ] {
            let problem = Params::parse(query).and_then(Params::filter::<LogFilter>).unwrap_err();
            let text = format!("{problem:?}");
            assert!(
                text.contains(&format!("Some({name:?})")) && text.contains(code),
                "{query}: {text}"
            );
        }
        assert!(Params::parse("interval=5x").unwrap().filter::<MetricFilter>().is_err());
        assert!(Params::parse("a=1").unwrap().none().is_err());
    }
}
