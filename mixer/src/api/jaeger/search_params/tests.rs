//! What parameters of Jaeger mean, and which are refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;

fn search(query: &str) -> TraceSearch {
    match TraceRequest::parse(Some(query)).unwrap() {
        TraceRequest::Search(search) => *search,
        TraceRequest::Ids(ids) => panic!("{query} is of {ids:?}"),
    }
}

fn at(micros: i64) -> Option<TimePoint> {
    Some(TimePoint::At(Timestamp::from_micros(micros)))
}

#[test]
fn a_search_of_jaegers_page_is_a_filter_of_spans() {
    let asked = search(
        "service=shop&operation=buy&start=1000000&end=2000000&limit=20&lookback=custom&maxDuration=&minDuration=1.5ms\
         &tags=%7B%22http.status_code%22%3A500%2C%22error%22%3A%22true%22%7D&tag=a:b:c",
    );
    let filter = TraceFilter {
        service: Some("shop".to_owned()),
        span_name: Some("buy".to_owned()),
        status: Some(SpanStatus::Error),
        since: at(1_000_000),
        until: at(2_000_001),
        limit: Some(20),
        ..TraceFilter::default()
    };
    assert_eq!(asked.filter, filter);
    let tags = [("a", "b:c"), ("http.status_code", "500")];
    let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(asked.tags, tags.into());
    assert_eq!(
        (asked.min_duration, asked.max_duration),
        (Some(Duration::from_micros(1_500)), None)
    );
}

#[test]
fn without_times_a_search_is_of_two_days_or_of_its_lookback() {
    let since = |query: &str| search(query).filter.since;
    assert_eq!(since("service=a"), Some("2d".parse().unwrap()));
    assert_eq!(since("service=a&lookback=1h"), Some("1h".parse().unwrap()));
    assert_eq!(since("service=a&lookback=1h&end=7200000000"), at(3_600_000_001));
    assert_eq!(since("service=a&lookback=1h&start=5"), at(5));
    // What a page has fields for and nobody filled in.
    let empty = search("service=a&start=&end=&limit=&lookback=");
    assert_eq!(empty.filter, search("service=a").filter);
}

#[test]
fn tags_that_spans_are_shown_with_find_them() {
    let flux = "019aa5b8-0c3e-7c11-9d5b-0123456789ab";
    let asked = search(&format!(
        "service=a&tag=entity.name:rack-a&tag=flux_id:{flux}&tag=otel.status_code:ERROR&tag=a:b"
    ));
    assert_eq!(asked.filter.entity.as_deref(), Some("rack-a"));
    assert_eq!(asked.filter.flux_id, flux.parse().ok());
    assert_eq!(asked.filter.status, Some(SpanStatus::Error));
    assert_eq!(asked.tags, [("a".to_owned(), "b".to_owned())].into());
    let asked = search("service=a&tag=entity.id:x&tag=otel.status_code:OK");
    assert_eq!(asked.filter.entity.as_deref(), Some("x"));
    assert_eq!(asked.filter.status, None);
    assert_eq!(asked.tags, [(STATUS_CODE.to_owned(), "OK".to_owned())].into());
}

#[test]
fn ids_take_the_place_of_a_search_and_may_lack_zeros() {
    let asked = TraceRequest::parse(Some("traceID=abc&traceID=0af7651916cd43dd8448eb211c80319c")).unwrap();
    let TraceRequest::Ids(ids) = asked else {
        panic!("{asked:?}")
    };
    let ids: Vec<_> = ids.iter().map(TraceId::to_string).collect();
    assert_eq!(
        ids,
        ["00000000000000000000000000000abc", "0af7651916cd43dd8448eb211c80319c"]
    );
}

#[test]
fn what_cannot_be_used_is_named() {
    for (query, name) in [
        ("", "service"),
        ("service=", "service"),
        ("service=a&servise=b", "servise"),
        ("service=a&service=b", "service"),
        ("service=a&limit=+1", "limit"),
        ("service=a&limit=-1", "limit"),
        ("service=a&start=yesterday", "start"),
        ("service=a&start=1000000000000000000", "start"),
        ("service=a&start=2&end=1", "end"),
        ("service=a&minDuration=fast", "minDuration"),
        ("service=a&tags=a%3Db", "tags"),
        ("service=a&tag=a", "tag"),
        ("service=a&tag=:b", "tag"),
        ("service=a&tag=flux_id:7", "tags"),
        ("service=a&raw=yes", "raw"),
        ("traceID=xyz", "traceID"),
        ("traceID=0", "traceID"),
    ] {
        let problem = TraceRequest::parse(Some(query)).unwrap_err();
        let text = format!("{problem:?}");
        assert!(text.contains(&format!("Some({name:?})")), "{query}: {text}");
    }
    let tags = |most: usize| -> String { (0..most).map(|number| format!("&tag=a{number}:1")).collect() };
    let most = format!("service=a{}", tags(MAX_CONDITIONS));
    assert_eq!(search(&most).tags.len(), MAX_CONDITIONS);
    let more = TraceRequest::parse(Some(&format!("{most}&tag=b:1"))).unwrap_err();
    assert!(more.detail().contains("101 tags are more than 100"), "{more:?}");
    let none = JaegerParams::parse(Some("a=1"), &[]).unwrap_err();
    assert!(none.detail().contains("known are none"), "{none:?}");
}

#[test]
fn operations_and_dependencies_are_filters_of_spans_too() {
    let params = |query: &str| {
        let known = ["service", "spanKind", "endTs", "lookback"];
        JaegerParams::parse(Some(query), &known).unwrap()
    };
    let of_servers = params("service=shop&spanKind=server").operations().unwrap();
    assert_eq!(of_servers.service.as_deref(), Some("shop"));
    assert_eq!(
        of_servers.attributes.get(Span::KIND).map(String::as_str),
        Some("server")
    );
    let of_all = params("service=shop&spanKind=").operations().unwrap();
    assert!(of_all.attributes.is_empty());
    assert!(params("").operations().is_err());
    let calls = params("endTs=10&lookback=4").dependencies().unwrap();
    assert_eq!((calls.since, calls.until), (at(6_001), at(10_001)));
    let calls = params("").dependencies().unwrap();
    assert_eq!((calls.since, calls.until), (Some("1d".parse().unwrap()), None));
}
