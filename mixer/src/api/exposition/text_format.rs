//! The text formats of `/metrics`: OpenMetrics 1.0.0 as the registry writes it, and the Prometheus text format 0.0.4 made of it.
//!
//! | | OpenMetrics | Prometheus |
//! |---|---|---|
//! | the family of a counter | `requests` | `requests_total`, like its samples |
//! | the type of what is not known | `unknown` | `untyped` |
//! | `# UNIT`, `# EOF`, exemplars, `_created` | yes | no |
//!
//! # Invariants
//!
//! - A client that takes neither format gets the Prometheus one, as from other programs: scrapers ask for it in many ways.
//! - The help of a family stands before its type, as the registry writes it.

use http::HeaderMap;

use crate::api::content_negotiation::{media_ranges, preferred};

const PLAIN: &str = "text/plain";
const OPEN_METRICS: &str = "application/openmetrics-text";
/// The formats in the order in which they are given to who likes them as much, with the media ranges that they are in.
const FORMATS: [(ExpositionFormat, &[&str]); 2] = [
    (ExpositionFormat::Prometheus, &[PLAIN, "text/*"]),
    (ExpositionFormat::OpenMetrics, &[OPEN_METRICS, "application/*"]),
];

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    Prometheus,
    OpenMetrics,
}

impl ExpositionFormat {
    pub(crate) const ALL: [Self; 2] = [Self::Prometheus, Self::OpenMetrics];

    /// The one that a client likes best; ranges of other versions of the formats do not count.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let mut ranges = media_ranges(headers);
        ranges.retain(|range| match (range.name.as_str(), range.version.as_deref()) {
            (PLAIN, Some(version)) => version == "0.0.4",
            (OPEN_METRICS, Some(version)) => version == "1.0.0",
            _ => true,
        });
        preferred(&ranges, &FORMATS).unwrap_or(Self::Prometheus)
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What the registry wrote, in this format.
    pub(super) fn of_open_metrics(self, text: String) -> String {
        match self {
            Self::Prometheus => prometheus_text(&text),
            Self::OpenMetrics => text,
        }
    }
}

fn prometheus_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let (mut help, mut may_have_created) = (None, false);
    for line in open_metrics.lines() {
        if let Some(documented) = line.strip_prefix("# HELP ") {
            help = documented.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            let written = if kind == "unknown" { "untyped" } else { kind };
            text.extend(["# TYPE ", name, suffix, " ", written, "\n"]);
            may_have_created = matches!(kind, "counter" | "histogram" | "summary");
        } else if !(line.starts_with('#') || may_have_created && is_creation_time(line)) {
            text.extend([without_exemplar(line), "\n"]);
        }
    }
    text
}

/// Whether a sample says since when another one counts.
fn is_creation_time(sample: &str) -> bool {
    let name = sample.split(['{', ' ']).next();
    name.is_some_and(|name| name.ends_with("_created"))
}

/// A sample up to its exemplar, which begins with the first `#` outside of a label's value.
fn without_exemplar(sample: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let exemplar = sample.find(|character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            _ if was_escaped => {}
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' => return !is_quoted,
            _ => {}
        }
        false
    });
    exemplar.map_or(sample, |at| sample[..at].trim_end())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use http::header::ACCEPT;

    use super::*;
    use prometheus_client::metrics::counter::Counter;

    use crate::api::exposition::{MetricsExposition, RequestLabels};

    #[test]
    fn the_format_is_the_one_that_the_scraper_likes_best() {
        use ExpositionFormat::{OpenMetrics, Prometheus};
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (prometheus_2, OpenMetrics),
            (prometheus_3, OpenMetrics),
            (
                "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;q=0.8",
                Prometheus,
            ),
            (
                "text/plain;version=0.0.4;q=0.8,application/openmetrics-text;q=0.9",
                OpenMetrics,
            ),
            ("application/openmetrics-text; version=\"1.0.0\"", OpenMetrics),
            (
                "application/openmetrics-text; version=0.0.1, text/plain; q=0.1",
                Prometheus,
            ),
            ("application/openmetrics-text, text/plain;q=0", OpenMetrics),
            ("application/openmetrics-text;q=0, */*", Prometheus),
            ("text/plain;version=1.0.0, application/*;q=0.1", OpenMetrics),
            ("text/html, application/xhtml+xml, */*;q=0.8", Prometheus),
            ("text/*", Prometheus),
            ("*/*", Prometheus),
            ("", Prometheus),
            ("application/vnd.google.protobuf", Prometheus),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(ExpositionFormat::accepted(&headers), format, "{accept}");
        }
        assert_eq!(ExpositionFormat::accepted(&HeaderMap::new()), Prometheus);
    }

    #[test]
    fn open_metrics_become_prometheus_text() {
        let open_metrics = r##"# HELP jobs Jobs done, in all.
# TYPE jobs counter
# UNIT jobs jobs
jobs_total{of="a # b"} 3 # {trace_id="x"} 1 1.5
jobs_total{of="a \" # \\"} 4
jobs_created{of="a # b"} 1.5
# HELP file_created When the file was made
# TYPE file_created gauge
file_created 7
# TYPE time_seconds histogram
time_seconds_sum 0.5
time_seconds_bucket{le="+Inf"} 1 # {} 0.5
time_seconds_count 1
time_seconds_created 9
# HELP odd Nobody knows
# TYPE odd unknown
odd 1
# EOF
"##;
        let prometheus = r##"# HELP jobs_total Jobs done, in all.
# TYPE jobs_total counter
jobs_total{of="a # b"} 3
jobs_total{of="a \" # \\"} 4
# HELP file_created When the file was made
# TYPE file_created gauge
file_created 7
# TYPE time_seconds histogram
time_seconds_sum 0.5
time_seconds_bucket{le="+Inf"} 1
time_seconds_count 1
# HELP odd Nobody knows
# TYPE odd untyped
odd 1
"##;
        assert_eq!(prometheus_text(open_metrics), prometheus);
    }

    #[test]
    fn what_the_registry_writes_has_names_of_counters_on_every_line_of_theirs() {
        let mut exposition = MetricsExposition::of_requests();
        let answered = Counter::<u64>::default();
        answered.inc();
        exposition.registry.register("answers", "Requests answered", answered);
        let labels = RequestLabels {
            http_request_method: "GET",
            http_route: "/a # \"b\"".to_owned(),
            http_response_status_code: 200,
        };
        exposition.requests.get_or_create(&labels).observe(0.002);
        let text = exposition.text(ExpositionFormat::Prometheus).ok().unwrap();
        let labels = r##"{http_request_method="GET",http_route="/a # \"b\"",http_response_status_code="200"}"##;
        for line in [
            "# HELP platform_answers_total Requests answered.",
            "# TYPE platform_answers_total counter",
            "platform_answers_total 1",
            "# TYPE platform_http_server_request_duration_seconds histogram",
            &format!("platform_http_server_request_duration_seconds_count{labels} 1"),
            "# TYPE platform_http_server_active_requests gauge",
            "platform_http_server_active_requests 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("# EOF"), "{text}");
        let open_metrics = exposition.text(ExpositionFormat::OpenMetrics).ok().unwrap();
        assert!(
            open_metrics.contains("# TYPE platform_answers counter\n"),
            "{open_metrics}"
        );
        assert!(open_metrics.ends_with("# EOF\n"), "{open_metrics}");
    }
}
