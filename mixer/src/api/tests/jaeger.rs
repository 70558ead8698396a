//! Jaeger's API as its page and Grafana ask it, and as nobody should.

use model::{Span, SpanStatus, TraceId};

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn span(id: &str, parent: Option<&str>, seconds: i64, service: &str) -> Span {
    Span {
        ts: Timestamp::from_micros(now().micros() - seconds * 1_000_000),
        trace_id: TRACE.parse().unwrap(),
        span_id: id.parse().unwrap(),
        parent_span_id: parent.map(|id| id.parse().unwrap()),
        flux_id: None,
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        span_name: format!("op of {service}"),
        duration_ms: 2.5,
        status: SpanStatus::Ok,
        attributes: Attributes::new()
            .with(Span::SERVICE_NAME, service)
            .with(Span::KIND, "server")
            .with("http.status_code", 500),
    }
}

async fn bench_of_two_services() -> Bench {
    let bench = Bench::new().await;
    let shop = span("00000000000000a1", None, 60, "shop");
    bench
        .append(&[shop, span("00000000000000b1", Some("00000000000000a1"), 59, "a/b")])
        .await;
    bench
}

/// The data of an answer, which must be in Jaeger's form.
async fn data(bench: &Bench, path: &str) -> Value {
    let answer = bench.get(&format!("/jaeger/api/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    assert!(answer.has_header("content-type", "application/json"), "{path}");
    let mut document = answer.json();
    let data = document["data"].take();
    let total = data.as_array().map(Vec::len);
    assert_eq!(
        document,
        json!({ "data": null, "total": total, "limit": 0, "offset": 0, "errors": null }),
        "{path}"
    );
    data
}

#[tokio::test(flavor = "multi_thread")]
async fn jaegers_page_finds_services_operations_traces_and_calls() {
    let bench = bench_of_two_services().await;
    assert_eq!(data(&bench, "services").await, json!(["a/b", "shop"]));
    assert_eq!(data(&bench, "services/a%2Fb/operations").await, json!(["op of a/b"]));
    assert_eq!(data(&bench, "services/nobody/operations").await, json!([]));
    assert_eq!(
        data(&bench, "operations?service=shop").await,
        json!([{ "name": "op of shop", "spanKind": "server" }])
    );
    assert_eq!(data(&bench, "operations?service=shop&spanKind=client").await, json!([]));

    let end = now().micros();
    let start = end - 3_600 * 1_000_000;
    let times = format!("start={start}&end={end}&lookback=1h&limit=20&maxDuration&minDuration");
    let found = data(&bench, &format!("traces?service=shop&{times}")).await;
    assert_eq!(found[0]["traceID"], TRACE);
    let spans = found[0]["spans"].as_array().unwrap();
    let services: Vec<_> = spans
        .iter()
        .map(|span| &found[0]["processes"][span["processID"].as_str().unwrap()]["serviceName"])
        .collect();
    assert_eq!(services, ["shop", "a/b"], "the whole trace, by time");
    assert_eq!(
        (&spans[0]["duration"], &spans[0]["startTime"]),
        (&json!(2_500), &json!(end - 60_000_000))
    );
    for (query, count) in [
        ("service=shop&operation=op%20of%20shop", 1),
        ("service=shop&operation=op%20of%20a/b", 0),
        ("service=shop&tags=%7B%22http.status_code%22:%22500%22%7D", 1),
        ("service=shop&tags=%7B%22http.status_code%22:%22501%22%7D", 0),
        ("service=shop&tag=error:false", 1),
        ("service=shop&tag=error:true", 0),
        ("service=shop&minDuration=2.5ms&maxDuration=2500us", 1),
        ("service=shop&minDuration=2501us", 0),
        ("traceID=af7651916cd43dd8448eb211c80319c", 1),
    ] {
        let found = data(&bench, &format!("traces?{query}")).await;
        assert_eq!(found.as_array().map(Vec::len), Some(count), "{query}");
    }
    let one = data(&bench, &format!("traces/{TRACE}?prettyPrint=true")).await;
    assert_eq!(one, found);
    let calls = format!("dependencies?endTs={}&lookback=3600000", end / 1_000);
    assert_eq!(
        data(&bench, &calls).await,
        json!([{ "parent": "shop", "child": "a/b", "callCount": 1 }])
    );
    let before = format!("dependencies?endTs={}&lookback=3600000", start / 1_000);
    assert_eq!(data(&bench, &before).await, json!([]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_has_a_problem_that_jaegers_page_can_show() {
    let bench = bench_of_two_services().await;
    for (path, status, code) in [
        ("traces", 400, "bad_parameter"),
        ("traces?service=a&limit=1501", 400, "bad_parameter"),
        ("traces?service=a&start=2&end=1", 400, "bad_parameter"),
        ("traces?service=a&colour=red", 400, "unknown_parameter"),
        ("traces/0bf7651916cd43dd8448eb211c80319c", 404, "trace_not_found"),
        ("traces/xyz", 400, "bad_parameter"),
        ("operations", 400, "bad_parameter"),
        ("services?service=a", 400, "unknown_parameter"),
        ("services/%ff/operations", 400, "bad_parameter"),
        ("dependencies?endTs=now", 400, "bad_parameter"),
    ] {
        let answer = bench.get(&format!("/jaeger/api/{path}")).await;
        assert!(answer.has_header("content-type", "application/problem+json"), "{path}");
        let document = answer.json();
        assert_eq!((answer.status, &document["code"]), (status, &json!(code)), "{path}");
        let error = &document["errors"][0];
        assert_eq!(
            (&error["code"], &error["msg"], &document["data"]),
            (&json!(status), &document["detail"], &Value::Null),
            "{path}"
        );
        assert!(error["msg"].as_str().is_some_and(|text| !text.is_empty()), "{path}");
    }
    let unknown = TraceId::from_entropy([9; 16]);
    let answer = bench
        .get(&format!("/jaeger/api/traces?traceID={unknown}&traceID={TRACE}"))
        .await;
    assert_eq!(
        answer.json()["data"].as_array().map(Vec::len),
        Some(1),
        "one of two is there"
    );
    bench.close().await;
}
