//! The examples of the formats' own descriptions, and what is none of either.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn points(text: &str, format: PrometheusFormat) -> Vec<ScrapedPoint> {
    parse(text, format, 1_000).unwrap()
}

fn point<'p>(points: &'p [ScrapedPoint], name: &str, label: Option<(&str, &str)>) -> &'p ScrapedPoint {
    let has = |point: &&ScrapedPoint| {
        let is_labelled = |(key, value): (&str, &str)| point.labels.get(key) == Some(&value.into());
        point.name == name && label.is_none_or(is_labelled)
    };
    let mut found = points.iter().filter(has);
    let first = found.next().unwrap();
    assert_eq!(found.next(), None, "{name}");
    first
}

const TEXT: &str = r#"# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9

# Minimalistic line:
metric_without_timestamp_and_labels 12.47

# A weird metric from before the epoch:
something_weird{problem="division by zero"} +Inf -3982045

# A histogram, which has a pretty complex representation in the text format:
# HELP http_request_duration_seconds A histogram of the request duration.
# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le="0.05"} 24054
http_request_duration_seconds_bucket{le="0.1"} 33444
http_request_duration_seconds_bucket{le="0.2"} 100392
http_request_duration_seconds_bucket{le="0.5"} 129389
http_request_duration_seconds_bucket{le="1"} 133988
http_request_duration_seconds_bucket{le="+Inf"} 144320
http_request_duration_seconds_sum 53423
http_request_duration_seconds_count 144320

# Finally a summary, which has a complex representation, too:
# HELP rpc_duration_seconds A summary of the RPC duration in seconds.
# TYPE rpc_duration_seconds summary
rpc_duration_seconds{quantile="0.01"} 3102
rpc_duration_seconds{quantile="0.99"} 76656
rpc_duration_seconds_sum 1.7560473e+07
rpc_duration_seconds_count 2693
"#;

#[test]
fn the_example_of_the_text_format_becomes_points_of_every_type() {
    let all = points(TEXT, PrometheusFormat::Text);
    let posted = point(&all, "http_requests_total", Some(("code", "200")));
    assert_eq!((posted.metric_type, posted.value), (MetricType::Counter, 1027.0));
    assert_eq!(posted.ts, Some(Timestamp::from_micros(1_395_066_363_000_000)));
    let escaped = point(&all, "msdos_file_access_time_seconds", None);
    assert_eq!(escaped.labels.get("path"), Some(&json!("C:\\DIR\\FILE.TXT")));
    assert_eq!(
        escaped.labels.get("error"),
        Some(&json!("Cannot find file:\n\"FILE.TXT\""))
    );
    let plain = point(&all, "metric_without_timestamp_and_labels", None);
    assert_eq!(
        (plain.metric_type, plain.value, plain.ts),
        (MetricType::Gauge, 12.47, None)
    );
    assert!(all.iter().all(|point| point.name != "something_weird"));
    let histogram = point(&all, "http_request_duration_seconds", None);
    assert_eq!(
        (histogram.metric_type, histogram.value),
        (MetricType::Histogram, 53_423.0)
    );
    let labels = json!({
        "otel.bounds": [0.05, 0.1, 0.2, 0.5, 1.0],
        "otel.buckets": [24_054, 9_390, 66_948, 28_997, 4_599, 10_332],
        "otel.count": 144_320,
    });
    assert_eq!(json!(histogram.labels.as_map()), labels);
    let quantile = point(&all, "rpc_duration_seconds", Some(("quantile", "0.99")));
    assert_eq!((quantile.metric_type, quantile.value), (MetricType::Gauge, 76_656.0));
    assert_eq!(quantile.labels.get("otel.summary"), Some(&json!(true)));
    let count = point(&all, "rpc_duration_seconds_count", None);
    assert_eq!((count.metric_type, count.value), (MetricType::Counter, 2_693.0));
    assert_eq!(all.len(), 9);
}

#[test]
fn open_metrics_has_units_starts_and_counters_with_an_end_to_their_name() {
    let text = r#"# TYPE acme_http_router_request_seconds summary
# UNIT acme_http_router_request_seconds seconds
# HELP acme_http_router_request_seconds Latency though all of ACME's HTTP request router.
acme_http_router_request_seconds_sum{path="/api/v1",method="GET"} 9036.32
acme_http_router_request_seconds_count{path="/api/v1",method="GET"} 807283.0
acme_http_router_request_seconds_created{method="GET",path="/api/v1"} 1605281325.0
acme_http_router_request_seconds_count{path="/api/v2",method="POST"} 34.0
# TYPE go_goroutines gauge
go_goroutines 69
# TYPE process_cpu_seconds counter
# UNIT process_cpu_seconds seconds
process_cpu_seconds_total 4.20072246e+06
# TYPE foo info
foo_info{version="1"} 1
# EOF
"#;
    let all = points(text, PrometheusFormat::OpenMetrics);
    let sum = point(&all, "acme_http_router_request_seconds_sum", None);
    assert_eq!((sum.metric_type, sum.value), (MetricType::Counter, 9036.32));
    assert_eq!(sum.labels.get("otel.unit"), Some(&json!("seconds")));
    assert_eq!(
        sum.labels.get("otel.start_time"),
        Some(&json!("2020-11-13T15:28:45.000000000Z"))
    );
    let other = point(
        &all,
        "acme_http_router_request_seconds_count",
        Some(("path", "/api/v2")),
    );
    assert_eq!(other.labels.get("otel.start_time"), None);
    let cpu = point(&all, "process_cpu_seconds_total", None);
    assert_eq!((cpu.metric_type, cpu.value), (MetricType::Counter, 4_200_722.46));
    assert_eq!(point(&all, "foo_info", None).metric_type, MetricType::Gauge);
    assert_eq!(all.len(), 6);
    let cut = text.strip_suffix("# EOF\n").unwrap();
    assert_eq!(
        parse(cut, PrometheusFormat::OpenMetrics, 1_000),
        Err(PrometheusTextError::Truncated)
    );
}

#[test]
fn exemplars_of_a_histogram_lead_to_traces() {
    let text = r#"# TYPE foo histogram
foo_bucket{le="0.01"} 0
foo_bucket{le="0.1"} 8 # {} 0.054
foo_bucket{le="1"} 11 # {trace_id="KOO5S4vxi0o"} 0.67
foo_bucket{le="10"} 17 # {trace_id="oHg5SJYRHA0",user="7"} 9.8 1520879607.789
foo_bucket{le="+Inf"} 17
foo_count 17
foo_sum 324789.3
foo_created 1520430000.123
# EOF
"#;
    let all = points(text, PrometheusFormat::OpenMetrics);
    let histogram = point(&all, "foo", None);
    let labels = json!({
        "otel.bounds": [0.01, 0.1, 1.0, 10.0],
        "otel.buckets": [0, 8, 3, 6, 0],
        "otel.count": 17,
        "otel.exemplars": [
            { "value": 0.054 },
            { "value": 0.67, "trace_id": "KOO5S4vxi0o" },
            { "value": 9.8, "trace_id": "oHg5SJYRHA0", "time": "2018-03-12T18:33:27.789000000Z", "attributes": { "user": "7" } },
        ],
        "otel.start_time": "2018-03-07T13:40:00.123000000Z",
    });
    assert_eq!(json!(histogram.labels.as_map()), labels);
    assert_eq!(histogram.value, 324_789.3);
    let counter = "# TYPE bar counter\nbar_total 3 # {trace_id=\"x\"} 1\n# EOF\n";
    let counter = points(counter, PrometheusFormat::OpenMetrics);
    assert_eq!(
        counter[0].labels.get("otel.exemplars"),
        Some(&json!([{ "value": 1.0, "trace_id": "x" }]))
    );
}

#[test]
fn histograms_are_joined_by_their_labels_in_any_order_and_without_what_is_missing() {
    let text = r#"# TYPE h histogram
h_bucket{le="2",a="x",b="y"} 5
h_bucket{b="y",le="1",a="x"} 2
h_sum{b="y",a="x"} 7
h_count{a="x",b="y"} 6
h_bucket{a="other",b="y",le="1"} 9
h_bucket{a="other",b="y",le="+Inf"} 4
"#;
    let all = points(text, PrometheusFormat::Text);
    assert_eq!(all.len(), 2);
    let whole = point(&all, "h", Some(("a", "x")));
    assert_eq!(whole.labels.get("otel.bounds"), Some(&json!([1.0, 2.0])));
    assert_eq!(whole.labels.get("otel.buckets"), Some(&json!([2, 3, 1])));
    // Buckets that do not grow are none.
    let other = point(&all, "h", Some(("a", "other")));
    assert_eq!(other.labels.get("otel.buckets"), None);
    assert_eq!(
        (other.labels.get("otel.count"), other.labels.get("otel.no_sum")),
        (Some(&json!(4)), Some(&json!(true)))
    );
}

#[test]
fn a_line_that_is_none_refuses_the_whole_and_is_named() {
    for (line, reason) in [
        ("{a=\"b\"} 1", "there is no name"),
        ("1x 1", "there is no name"),
        ("x", "is no value"),
        ("x one", "\"one\" is no value"),
        ("x 1 soon", "\"soon\" is no time"),
        ("x 1 9223372036854775807", "is no time"),
        ("x 1 2 3", "nothing should stand behind"),
        ("x{a} 1", "the label \"a\" has no ="),
        ("x{a=b} 1", "does not begin with a quote"),
        ("x{a=\"b} 1", "does not end with a quote"),
        ("x{a=\"b\\\"} 1", "does not end with a quote"),
        ("x{a=\"b\" c=\"d\"} 1", "neither , nor }"),
        ("x{a=\"b\",", "there is no name"),
        ("x 1 # 2", "does not begin with {"),
    ] {
        let error = parse(&format!("good 1\n{line}\n"), PrometheusFormat::Text, 1_000).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("line 2: ") && text.contains(reason), "{line}: {text}");
    }
    assert_eq!(
        parse("a 1\nb 2\n", PrometheusFormat::Text, 1),
        Err(PrometheusTextError::TooMany(1))
    );
    let many: String = (0..=128).map(|number| format!("l{number}=\"\",")).collect();
    assert!(parse(&format!("x{{{many}}} 1"), PrometheusFormat::Text, 1).is_err());
    let odd = points("x {a=\"b\",} NaN\ny\t{ c = \"d\\e\" , }\t2\r\n", PrometheusFormat::Text);
    assert_eq!(odd.len(), 1);
    assert_eq!(odd[0].labels.get("c"), Some(&json!("d\\e")));
}

#[test]
fn no_bytes_of_a_text_make_it_panic() {
    for cut in 0..TEXT.len() {
        for with in ["", "\"", "}", "\\", "é", "\u{0}"] {
            let text = format!("{}{with}{}", &TEXT[..cut], &TEXT[cut..]);
            parse(&text, PrometheusFormat::Text, 1_000).ok();
        }
    }
}
