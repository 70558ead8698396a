//! Content negotiation: media ranges of `Accept`, and the format of rows, where `format=` takes precedence over it.
//!
//! | | JSON | JSON lines | CSV | Arrow |
//! |---|---|---|---|---|
//! | `?format=` | `json` | `ndjson` | `csv` | `arrow` |
//! | `Accept` | `application/json` | `application/x-ndjson` | `text/csv` | `application/vnd.apache.arrow.stream` |
//!
//! Of media ranges the most particular one that a format is in says how much it is liked, as RFC 9110 has it. Of formats that are
//! liked as much the one that is named first is given, and JSON where none is named.

use http::HeaderMap;
use http::header::ACCEPT;
use query::RowFormat;

use super::problem::ApiProblem;

const NDJSON: &str = "application/x-ndjson";
const ARROW: &str = "application/vnd.apache.arrow.stream";
/// The formats in the order in which they are given to who likes them as much, with what ranges they are in besides `*/*`, the
/// most particular ones first.
const FORMATS: [(RowFormat, &[&str]); 4] = [
    (RowFormat::Json, &["application/json", "application/*"]),
    (
        RowFormat::Ndjson,
        &[NDJSON, "application/ndjson", "application/jsonl", "application/*"],
    ),
    (RowFormat::Csv, &["text/csv", "text/*"]),
    (RowFormat::Arrow, &[ARROW, "application/*"]),
];

pub(super) const fn content_type(format: RowFormat) -> &'static str {
    match format {
        RowFormat::Json => "application/json",
        RowFormat::Ndjson => NDJSON,
        RowFormat::Csv => "text/csv; charset=utf-8",
        RowFormat::Arrow => ARROW,
    }
}

/// The format that a client likes best of those that rows have.
pub(super) fn accepted(headers: &HeaderMap) -> Result<RowFormat, ApiProblem> {
    let ranges = media_ranges(headers);
    if ranges.is_empty() {
        return Ok(RowFormat::Json);
    }
    preferred(&ranges, &FORMATS)
        .ok_or_else(|| ApiProblem::not_acceptable(&["application/json", NDJSON, "text/csv", ARROW]))
}

/// The format that a client likes best of these, each with the ranges that it is in besides `*/*`.
pub(super) fn preferred<F: Copy>(ranges: &[MediaRange], formats: &[(F, &'static [&'static str])]) -> Option<F> {
    let mut best: Option<(F, f32, usize)> = None;
    for (format, names) in formats {
        let found = names.iter().chain(&["*/*"]).find_map(|name| {
            let at = ranges.iter().position(|range| range.name == *name)?;
            Some((ranges[at].weight, at))
        });
        let Some((weight, at)) = found.filter(|(weight, _)| *weight > 0.0) else {
            continue;
        };
        if best.is_none_or(|(_, other, place)| weight > other || weight >= other && at < place) {
            best = Some((*format, weight, at));
        }
    }
    best.map(|(format, ..)| format)
}

/// One media range of `Accept`.
#[derive(Debug)]
pub(super) struct MediaRange {
    /// Type and subtype, in lower case.
    pub(super) name: String,
    /// Its parameter `version`.
    pub(super) version: Option<String>,
    /// How much it is liked, from 0 to 1.
    weight: f32,
}

/// What `Accept` lists.
pub(super) fn media_ranges(headers: &HeaderMap) -> Vec<MediaRange> {
    let values = headers.get_all(ACCEPT).iter();
    let listed = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let ranges = listed.filter_map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let mut range = MediaRange {
            name: parts.next()?.to_ascii_lowercase(),
            version: None,
            weight: 1.0,
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.to_ascii_lowercase().as_str() {
                "q" => range.weight = value.parse().unwrap_or(1.0),
                "version" => range.version = Some(value.trim_matches('"').to_owned()),
                _ => {}
            }
        }
        (!range.name.is_empty()).then_some(range)
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())])
    }

    #[test]
    fn the_format_is_the_one_that_the_client_likes_best() {
        for (accept, format) in [
            ("*/*", RowFormat::Json),
            ("application/*", RowFormat::Json),
            ("text/html, application/xhtml+xml, */*;q=0.8", RowFormat::Json),
            ("text/csv", RowFormat::Csv),
            ("text/*", RowFormat::Csv),
            ("text/csv, */*;q=0.1", RowFormat::Csv),
            ("application/json;q=0.5, text/csv", RowFormat::Csv),
            ("application/json;q=0.5, */*", RowFormat::Ndjson),
            ("*/*;q=0.5, Text/CSV;q=0.6", RowFormat::Csv),
            ("application/json;q=0, application/*", RowFormat::Ndjson),
            ("application/x-ndjson, application/json", RowFormat::Ndjson),
            ("application/vnd.apache.arrow.stream; q=1", RowFormat::Arrow),
        ] {
            assert_eq!(accepted(&headers(accept)).unwrap(), format, "{accept}");
        }
        for none in ["image/png", "text/csv;q=0", "*/*;q=0", "application/problem+json"] {
            assert!(accepted(&headers(none)).is_err(), "{none}");
        }
        assert_eq!(accepted(&headers("")).unwrap(), RowFormat::Json);
        assert_eq!(accepted(&HeaderMap::new()).unwrap(), RowFormat::Json);
    }
}
