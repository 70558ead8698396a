//! Requests that cannot be answered, and clients that do not behave.

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn;
use http::StatusCode;
use tower::ServiceExt;

use super::*;
use crate::api::counted_status::CountedStatus;
use crate::api::problem::ApiProblem;
use crate::api::{in_time, ingest};

/// The status that a sender is told of an answer, and the one that it is counted with.
async fn told_and_counted(router: Router, path: &str) -> (u16, u16) {
    let router = router
        .layer(from_fn(in_time))
        .layer(from_fn(ingest::refuse_in_kind))
        .layer(from_fn(ingest::refuse_senders_in_kind));
    let request = http::Request::post(path).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    (answer.status().as_u16(), CountedStatus::of(&answer).as_u16())
}

#[tokio::test(start_paused = true)]
async fn what_the_mixer_does_not_answer_in_time_is_counted_as_its_fault_whatever_the_sender_is_told() {
    for (path, told) in [
        ("/v1/logs", 503),
        ("/loki/api/v1/push", 503),
        ("/api/v1/write", 503),
        ("/elasticsearch/_bulk", 503),
        ("/api/v1/ingest/logs", 408),
    ] {
        let never = Router::new().fallback(std::future::pending::<StatusCode>);
        assert_eq!(told_and_counted(never, path).await, (told, 504), "{path}");
        let of_key = if told == 503 { 503 } else { 409 };
        let hangs = Router::new().fallback(|| async { ApiProblem::key_hangs() });
        assert_eq!(told_and_counted(hangs, path).await, (of_key, 503), "{path}");
        let in_use = Router::new().fallback(|| async { ApiProblem::key_in_use() });
        assert_eq!(told_and_counted(in_use, path).await, (of_key, 409), "{path}");
        // A body that came too slowly is the client's.
        let slow = Router::new().fallback(|| async { ApiProblem::slow_body() });
        assert_eq!(told_and_counted(slow, path).await, (told, 408), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_is_a_problem_with_a_code() {
    let bench = Bench::new().await;
    for (path, status, code) in [
        ("/api/v1/telemetry/logs?colour=red", 400, "unknown_parameter"),
        ("/api/v1/telemetry/logs?limit=10001", 400, "bad_parameter"),
        ("/api/v1/telemetry/metrics?interval=0s", 400, "bad_parameter"),
        ("/api/v1/telemetry/traces/zz", 400, "bad_parameter"),
        (
            "/api/v1/telemetry/traces/0123456789abcdef0123456789abcdef",
            404,
            "trace_not_found",
        ),
        ("/api/v1/telemetry/metrics/%ff", 400, "bad_parameter"),
        ("/nothing", 404, "no_route"),
    ] {
        let answer = bench.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.has_header("content-type", "application/problem+json"), "{path}");
        let json = answer.json();
        assert_eq!(
            (&json["code"], &json["status"]),
            (&json!(code), &json!(status)),
            "{path}"
        );
    }
    let named = bench.get("/api/v1/telemetry/logs?since=yesterday").await.json();
    assert_eq!(named["errors"][0]["parameter"], "since");
    let post =
        "POST /api/v1/telemetry/logs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let refused = send(bench.api.addr(), post).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (405, &json!("method_not_allowed"))
    );
    assert!(refused.has_header("allow", "GET"), "{}", refused.head);
    let foreign = post.replace("host: localhost", "host: localhost\r\norigin: http://elsewhere");
    assert_eq!(send(bench.api.addr(), &foreign).await.status, 403);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_whose_texts_are_no_texts_are_never_our_fault() {
    let bench = Bench::new().await;
    let rows: Vec<_> = (0..20).map(log).collect();
    bench.append(&rows).await;
    let values = [
        "",
        "0",
        "-1",
        "99999999999999999999",
        "%00",
        "%ff",
        "%",
        "%27%20OR%201=1--",
        "NaN",
        "1e9",
        "%F0%9F%A6%80",
        "null",
        "[]",
    ];
    let mut asked = 0;
    for path in hostile::PATHS {
        let path = path.replace("{}", "0123456789abcdef0123456789abcdef");
        for name in hostile::NAMES.into_iter().chain(["%00", ""]) {
            for value in values.iter().skip(asked % 3).step_by(3) {
                let path = format!("/api/v1/{path}?{name}={value}");
                let answer = bench.get(&path).await;
                assert!(answer.status < 500, "{path}: {} {}", answer.status, answer.body);
                asked += 1;
            }
            asked += 1;
        }
    }
    assert!(asked > 500, "{asked}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_no_head_does_not_hold_up_the_end_and_requests_are_counted() {
    let bench = Bench::new().await;
    let mut silent = TcpStream::connect(bench.api.addr()).await.unwrap();
    silent.write_all(b"GET /api").await.unwrap();
    assert_eq!(bench.get("/api/v1/telemetry/logs").await.status, 200);
    assert_eq!(bench.get("/nothing").await.status, 404);
    let text = bench.exposition.text(ExpositionFormat::OpenMetrics).ok().unwrap();
    for line in [
        "platform_http_server_request_duration_seconds_count{http_request_method=\"GET\",http_route=\"/api/v1/telemetry/logs\",http_response_status_code=\"200\"} 1",
        "platform_http_server_request_duration_seconds_count{http_request_method=\"GET\",http_route=\"\",http_response_status_code=\"404\"} 1",
        "# EOF",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let addr = bench.api.addr();
    tokio::time::timeout(Duration::from_secs(10), bench.close())
        .await
        .unwrap();
    assert!(TcpStream::connect(addr).await.is_err());
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_request_was_read_says_that_the_connection_ends() {
    let bench = Bench::new().await;
    let head = "POST /api/v1/sql HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 8\r\n\r\n";
    let answer = send(bench.api.addr(), head).await;
    assert_eq!(answer.status, 421);
    assert!(answer.has_header("connection", "close"), "{}", answer.head);
    bench.close().await;
}
