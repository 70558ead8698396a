//! Lists over HTTP: formats, packings, tags.

use std::io::Read as _;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use model::Table;
use tower::ServiceExt as _;

use super::*;

/// A router, what it asks, and how.
struct Api {
    bench: Bench,
    router: Router,
}

struct Given {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Given {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Api {
    async fn new() -> Self {
        Self::of(Bench::new().await)
    }

    fn of(bench: Bench) -> Self {
        let routes = telemetry::routes(Arc::clone(&bench.querier)).merge(sql::routes(Arc::clone(&bench.querier)));
        let router = guarded(routes, Arc::clone(&bench.exposition), bench.guards.clone());
        Self { bench, router }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Given {
        let mut request = Request::get(format!("/api/v1/telemetry/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.answer(request.body(Body::empty()).unwrap()).await
    }

    async fn answer(&self, request: Request<Body>) -> Given {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Given {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// The tag of an answer with `rows` rows.
    async fn tag(&self, path: &str, rows: usize) -> Option<String> {
        let given = self.get(path, &[]).await;
        assert_eq!(given.json()["data"].as_array().unwrap().len(), rows, "{path}");
        let tag = given.header("etag").map(str::to_owned);
        let keep = if tag.is_some() { "no-cache" } else { "no-store" };
        assert_eq!(given.header("cache-control"), Some(keep));
        tag
    }
}

fn point(number: i64) -> MetricPoint {
    MetricPoint {
        ts: log(number).ts,
        name: "load".to_owned(),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        metric_type: MetricType::Gauge,
        value: 0.1,
        labels: Attributes::new().with("cpu", number % 2),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_comes_in_the_format_that_is_asked_for_with_cursor_and_stats_in_headers() {
    let api = Api::new().await;
    api.bench.append(&(0..5).map(log).collect::<Vec<_>>()).await;
    let json = api.get("logs?limit=3", &[]).await;
    assert_eq!(json.header("x-next-cursor"), None);
    let cursor = json.json()["next_cursor"].as_str().unwrap().to_owned();
    let rows = json.json()["data"].as_array().unwrap().clone();
    for (path, accept, kind) in [
        ("logs?limit=3&format=ndjson", "*/*", "application/x-ndjson"),
        (
            "logs?limit=3",
            "text/csv;q=0.1, application/x-ndjson",
            "application/x-ndjson",
        ),
        ("logs?limit=3&format=csv", "image/png", "text/csv; charset=utf-8"),
        ("logs?limit=3", "text/csv", "text/csv; charset=utf-8"),
        (
            "logs?limit=3&format=arrow",
            "text/csv",
            "application/vnd.apache.arrow.stream",
        ),
    ] {
        let given = api.get(path, &[("accept", accept)]).await;
        assert_eq!(
            (given.status, given.header("content-type")),
            (StatusCode::OK, Some(kind))
        );
        assert_eq!(given.header("x-next-cursor"), Some(cursor.as_str()), "{path}");
        let stats: Value = serde_json::from_str(given.header("x-query-stats").unwrap()).unwrap();
        assert_eq!(stats["rows"], 3);
        assert!(given.headers.get_all("vary").iter().any(|vary| vary == "accept"));
        match kind {
            "application/x-ndjson" => {
                let lines = std::str::from_utf8(&given.body).unwrap().lines();
                let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
                assert_eq!(lines, rows);
            }
            "application/vnd.apache.arrow.stream" => {
                let batches = model::telemetry_codec::decode_arrow(Table::Logs, &given.body).unwrap();
                let messages = batches
                    .iter()
                    .flat_map(|batch| (0..batch.num_rows()).map(|row| model::batch::row_json(batch, row)));
                assert_eq!(messages.map(Value::Object).collect::<Vec<_>>(), rows);
            }
            _ => {
                let text = std::str::from_utf8(&given.body).unwrap();
                assert!(
                    text.starts_with("ts,entity_id,entity_name,flux_id,level,message,attributes\n"),
                    "{text}"
                );
                assert_eq!(text.lines().count(), 4);
            }
        }
    }
    let last = api.get(&format!("logs?cursor={cursor}&format=csv"), &[]).await;
    assert_eq!(
        (
            last.body.split(|byte| *byte == b'\n').count(),
            last.header("x-next-cursor")
        ),
        (4, None)
    );
    let none = api.get("logs?q=nothing&format=ndjson", &[]).await;
    assert_eq!((none.status, none.body.len()), (StatusCode::OK, 0));
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_a_store_that_lacks_a_file_says_in_every_format_that_it_is_partial() {
    let bench = Bench::new().await;
    bench.append(&[log(0)]).await;
    bench.append(&[point(0)]).await;
    bench.engine.flush().await.unwrap();
    let api = Api::of(bench);
    let lost = api.bench.engine.view().files(Table::Logs)[0].path.clone();
    let mut bytes = std::fs::read(&lost).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&lost, bytes).unwrap();
    assert_eq!(api.get("logs", &[]).await.status, StatusCode::OK, "it is put aside");
    let ask = async |statement: &str, format: &str| {
        let request = Request::post(format!("/api/v1/sql?format={format}")).header("content-type", "application/sql");
        let request = request.body(Body::from(statement.to_owned()));
        api.answer(request.unwrap()).await
    };
    for format in ["json", "ndjson", "csv", "arrow"] {
        for given in [
            api.get(&format!("logs?format={format}"), &[]).await,
            api.get(&format!("metrics/load?format={format}"), &[]).await,
            ask("SELECT count(*) AS n FROM logs", format).await,
        ] {
            assert_eq!(given.status, StatusCode::OK, "{format}");
            let partial = given.header("x-partial");
            let partial = partial.unwrap_or_else(|| panic!("{format}: {}", String::from_utf8_lossy(&given.body)));
            assert!(partial.contains(lost.to_str().unwrap()), "{format}: {partial}");
            if format == "json" {
                assert_eq!(given.json()["stats"]["partial"], partial);
            }
        }
        let of_no_table = ask("SELECT 1 AS n", format).await.headers;
        assert!(!of_no_table.contains_key("x-partial"), "{format}");
    }
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_knows_the_formats_and_refuses_others() {
    let api = Api::new().await;
    api.bench.append(&(0..5).map(point).collect::<Vec<_>>()).await;
    for path in [
        "logs?",
        "traces?",
        "metrics?",
        "metrics?interval=1m&",
        "metrics?interval=1m&shape=series&",
        "metrics/load?",
        "messages?",
        "messages/018f2c1e-0000-7000-8000-000000000000?",
        "dead_letters?",
    ] {
        let csv = api.get(&format!("{path}format=csv"), &[]).await;
        let first = csv.body.split(|byte| *byte == b'\n').next().unwrap();
        assert!(csv.status == StatusCode::OK && first.starts_with(b"ts,"), "{path}");
        let refused = api.get(path, &[("accept", "image/png, text/csv;q=0")]).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["code"]),
            (406, &json!("not_acceptable")),
            "{path}"
        );
        let unknown = api.get(&format!("{path}format=xml"), &[]).await;
        assert_eq!(
            (unknown.status.as_u16(), &unknown.json()["errors"][0]["parameter"]),
            (400, &json!("format")),
            "{path}"
        );
    }
    let one = api.get("metrics/load?limit=1", &[]).await.json();
    assert_eq!(
        (&one["metric"]["name"], one["data"].as_array().unwrap().len()),
        (&json!("load"), 1)
    );
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_answers_are_the_answers_and_a_long_one_comes_whole() {
    let api = Api::new().await;
    api.bench.append(&(0..3_000).map(log).collect::<Vec<_>>()).await;
    for format in ["ndjson", "csv", "arrow"] {
        let path = format!("logs?limit=3000&format={format}");
        let plain = api.get(&path, &[]).await;
        assert!(
            plain.body.len() > 200_000 && plain.header("content-encoding").is_none(),
            "{format}"
        );
        for packing in ["gzip", "zstd"] {
            let packed = api.get(&path, &[("accept-encoding", packing)]).await;
            assert_eq!(packed.header("content-encoding"), Some(packing));
            assert!(
                packed
                    .headers
                    .get_all("vary")
                    .iter()
                    .any(|vary| vary == "accept-encoding")
            );
            assert!(packed.body.len() < plain.body.len() / 2, "{format} {packing}");
            let mut whole = Vec::new();
            match packing {
                "gzip" => flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut whole),
                _ => zstd::Decoder::new(&packed.body[..]).unwrap().read_to_end(&mut whole),
            }
            .unwrap();
            assert_eq!(whole, plain.body, "{format} {packing}");
        }
    }
    let small = api.get("logs?limit=1", &[("accept-encoding", "gzip")]).await;
    assert_eq!(small.header("content-encoding"), None);
    assert_eq!(small.json()["data"].as_array().unwrap().len(), 1);
    let body = Body::from(r#"{"query": "SELECT message FROM logs"}"#);
    let sql = Request::post("/api/v1/sql?format=ndjson")
        .header("accept-encoding", "zstd")
        .body(body);
    let sql = api.answer(sql.unwrap()).await;
    assert_eq!(
        zstd::decode_all(&sql.body[..])
            .unwrap()
            .split(|byte| *byte == b'\n')
            .count(),
        3_001
    );
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_piece_of_an_answer_is_much_larger_than_a_chunk_and_one_row() {
    const ROW: usize = 20_000;
    let api = Api::new().await;
    let rows: Vec<_> = (0..100)
        .map(|number| LogRecord {
            message: "x".repeat(ROW),
            ..log(number)
        })
        .collect();
    api.bench.append(&rows).await;
    for format in ["json", "ndjson", "csv", "arrow"] {
        let list = Request::get(format!("/api/v1/telemetry/logs?limit=100&format={format}"));
        let sql = Request::post(format!("/api/v1/sql?format={format}"));
        let statement = Body::from(r#"{"query": "SELECT message FROM logs"}"#);
        for request in [list.body(Body::empty()), sql.body(statement)] {
            let request = request.unwrap();
            let response = api.router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let (mut pieces, mut bytes) = (response.into_body().into_data_stream(), 0);
            while let Some(piece) = futures::StreamExt::next(&mut pieces).await {
                let piece = piece.unwrap();
                assert!(piece.len() < (128 << 10) + 2 * ROW, "{format}: {}", piece.len());
                bytes += piece.len();
            }
            assert!(bytes > 100 * ROW, "{format}: {bytes}");
        }
    }
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_comes_in_pieces_with_its_logs_after_its_spans() {
    const ROW: usize = 20_000;
    let api = Api::new().await;
    let trace_id = model::TraceId::from_entropy([7; 16]);
    let spans: Vec<_> = (0..100)
        .map(|number: u8| model::Span {
            ts: log(number.into()).ts,
            trace_id,
            span_id: model::SpanId::from_entropy([number + 1; 8]),
            parent_span_id: None,
            flux_id: None,
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".to_owned(),
            span_name: "x".repeat(ROW),
            duration_ms: 1.0,
            status: model::SpanStatus::Ok,
            attributes: Attributes::new().with("n", 1),
        })
        .collect();
    api.bench.append(&spans).await;
    let logs: Vec<_> = (0..100)
        .map(|number| LogRecord {
            message: "x".repeat(ROW),
            attributes: Attributes::new().with("trace_id", trace_id.to_string()),
            ..log(number)
        })
        .collect();
    api.bench.append(&logs).await;
    let request = Request::get(format!("/api/v1/telemetry/traces/{trace_id}")).body(Body::empty());
    let response = api.router.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (mut pieces, mut whole) = (response.into_body().into_data_stream(), Vec::new());
    while let Some(piece) = futures::StreamExt::next(&mut pieces).await {
        let piece = piece.unwrap();
        assert!(piece.len() < (128 << 10) + 2 * ROW, "{}", piece.len());
        whole.extend(piece);
    }
    let json: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(
        json["trace"],
        json!({ "trace_id": trace_id, "spans": 100, "truncated": false, "logs": 100, "logs_truncated": false })
    );
    let (spans, logs) = (json["data"].as_array().unwrap(), json["logs"].as_array().unwrap());
    assert_eq!((spans.len(), logs.len()), (100, 100));
    assert_eq!(
        (&spans[0]["attributes"], &spans[0]["depth"]),
        (&json!({ "n": 1 }), &json!(0))
    );
    assert!(logs[0]["ts"].as_str() < logs[99]["ts"].as_str());
    assert_eq!(json["stats"]["rows"], 200);
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_that_hide_truncation_are_refused_over_http_1_0() {
    let api = Api::new().await;
    let rows: Vec<_> = (0..100)
        .map(|number| LogRecord {
            message: "x".repeat(2_000),
            ..log(number)
        })
        .collect();
    api.bench.append(&rows).await;
    for (format, limit, status) in [
        ("csv", 100, 505),
        ("ndjson", 100, 505),
        ("csv", 10, 200),
        ("json", 100, 200),
    ] {
        let path = format!("/api/v1/telemetry/logs?limit={limit}&format={format}");
        let answer = send(
            api.bench.api.addr(),
            &format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n"),
        )
        .await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(
            status == 505 || answer.body.matches("rack-a").count() == limit,
            "{path}"
        );
    }
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_range_has_a_tag_that_changes_when_its_rows_do() {
    let api = Api::new().await;
    // 12:30 is now: rows of eleven and ten o'clock.
    let (eleven, ten) = (3_600 + 600, 2 * 3_600 + 600);
    let path = "logs?since=2026-11-21T11:00:00Z&until=2026-11-21T12:00:00Z";
    let empty = api.tag(path, 0).await.unwrap();
    api.bench.append(&[log(eleven)]).await;
    assert_eq!(api.tag(path, 1).await, None, "a row is only in memory");
    api.bench.engine.flush().await.unwrap();
    let one = api.tag(path, 1).await.unwrap();
    assert_ne!(one, empty);
    let held = [("if-none-match", one.as_str())];
    let unchanged = api.get(path, &held).await;
    assert_eq!(
        (unchanged.status, unchanged.header("etag"), unchanged.body.len()),
        (StatusCode::NOT_MODIFIED, Some(one.as_str()), 0)
    );

    api.bench.append(&[log(ten), log(0)]).await;
    api.bench.engine.flush().await.unwrap();
    assert_eq!(api.tag(path, 1).await.as_ref(), Some(&one), "rows outside of the range");
    assert_eq!(api.get(path, &held).await.status, StatusCode::NOT_MODIFIED);

    api.bench.append(&[log(eleven + 1)]).await;
    assert_eq!(api.get(path, &held).await.status, StatusCode::OK);
    api.bench.engine.flush().await.unwrap();
    let two = api.tag(path, 2).await.unwrap();
    assert_ne!(two, one);
    assert_eq!(api.get(path, &held).await.status, StatusCode::OK);

    // Nobody answers queries any more.
    api.bench.querier.close().await;
    assert_eq!(api.get(path, &[]).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let unchanged = api.get(path, &[("if-none-match", &two)]).await;
    assert_eq!(unchanged.status, StatusCode::NOT_MODIFIED, "without a query");
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_of_one_question_and_open_ranges_have_none() {
    let api = Api::new().await;
    api.bench.append(&[log(4_000), log(4_001)]).await;
    api.bench.append(&[point(4_000)]).await;
    api.bench.engine.flush().await.unwrap();
    let until = "until=2026-11-21T12:00:00Z";
    let tag = api.tag(&format!("logs?{until}"), 2).await.unwrap();
    for other in ["limit=1", "level=warn", "order=asc", "offset=0&q=line", "format=csv"] {
        let path = format!("logs?{until}&{other}");
        let given = api.get(&path, &[("if-none-match", &tag)]).await;
        assert!(
            given.status == StatusCode::OK && given.header("etag").is_some_and(|other| other != tag),
            "{other}"
        );
    }
    let held = format!("\"other\", {}", tag.trim_start_matches("W/"));
    let given = api.get(&format!("logs?{until}"), &[("if-none-match", &held)]).await;
    assert_eq!(given.status, StatusCode::NOT_MODIFIED, "compared as weak tags are");
    for path in [
        "logs?",
        "logs?since=2026-11-21T10:00:00Z",
        "logs?until=2026-11-21T13:00:00Z",
    ] {
        assert_eq!(api.tag(path, 2).await, None, "{path}");
    }
    for path in [format!("metrics?interval=1m&{until}"), format!("metrics/load?{until}")] {
        let tag = api.tag(&path, 1).await.unwrap();
        let given = api.get(&path, &[("if-none-match", &tag)]).await;
        assert_eq!(given.status, StatusCode::NOT_MODIFIED, "{path}");
    }
    let first = api.get(&format!("logs?limit=1&{until}"), &[]).await.json();
    let next = format!("logs?{until}&cursor={}", first["next_cursor"].as_str().unwrap());
    assert!(api.tag(&next, 1).await.is_some());
    api.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_says_its_position_and_the_rows_around_it_are_found_by_that() {
    let api = Api::new().await;
    api.bench.append(&(0..5).map(log).collect::<Vec<_>>()).await;
    let all = api.get("logs?positions=true", &[]).await.json();
    let all = all["data"].as_array().unwrap();
    let position = all[2]["position"].as_str().unwrap();
    let around = |rest: &str| format!("logs?positions=true&around={position}&{rest}");
    let found = api.get(&around("before=1&after=1"), &[]).await.json();
    assert_eq!(found["data"].as_array().unwrap(), &all[1..4]);
    assert_eq!(
        found["around"],
        json!({ "position": position, "row": 1, "more_before": true, "more_after": true })
    );
    let alone = api.get(&around("before=0&after=0&format=csv"), &[]).await;
    let text = String::from_utf8(alone.body.to_vec()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].ends_with(",position") && lines[1].ends_with(position),
        "{text}"
    );
    let plain = api.get("logs", &[]).await.json();
    assert_eq!(
        (&plain["data"][0]["position"], &plain["around"]),
        (&Value::Null, &Value::Null)
    );
    for (bad, name) in [
        ("around=x", "around"),
        ("before=1", "before"),
        ("positions=x", "positions"),
    ] {
        let refused = api.get(&format!("logs?{bad}"), &[]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(refused.json()["errors"][0]["parameter"], name, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_cells_are_cut_and_rows_say_of_which_size_they_were() {
    let api = Api::new().await;
    let long = LogRecord {
        message: "ä".repeat(50_000),
        attributes: Attributes::new()
            .with("http.status", 500)
            .with("stack", "x".repeat(200_000)),
        ..log(0)
    };
    let size = json!({ "http.status": 500, "stack": "x".repeat(200_000) })
        .to_string()
        .len();
    api.bench.append(&[long, log(1)]).await;
    let cut = api.get("logs?cells=101", &[]).await;
    assert!(cut.body.len() < 2_000, "{}", cut.body.len());
    let rows = &cut.json()["data"];
    assert_eq!(rows[0]["message"], "ä".repeat(50));
    assert_eq!(rows[0]["attributes"]["http.status"], 500);
    let stack = rows[0]["attributes"]["stack"].as_str().unwrap();
    assert!((20..101).contains(&stack.len()), "{stack}");
    assert_eq!(rows[0]["cut"], json!({ "message": 100_000, "attributes": size }));
    assert_eq!((&rows[1]["cut"], &rows[1]["message"]), (&Value::Null, &json!("line 1")));
    assert!(!rows[1].as_object().unwrap().contains_key("cut"));
    let lines = api.get("logs?cells=101&format=ndjson", &[]).await;
    let first: Value = serde_json::from_slice(lines.body.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(first, rows[0]);
    let table = api.get("logs?cells=101&format=csv&positions=true", &[]).await;
    let text = String::from_utf8(table.body.to_vec()).unwrap();
    assert!(text.lines().next().unwrap().ends_with(",position,cut"), "{text}");
    // One row whole, by its position.
    let listed = api.get("logs?cells=64&positions=true", &[]).await.json();
    let position = listed["data"][0]["position"].as_str().unwrap();
    let whole = api
        .get(&format!("logs?around={position}&before=0&after=0"), &[])
        .await
        .json();
    assert_eq!(whole["data"][0]["message"], "ä".repeat(50_000));
    assert_eq!(whole["data"].as_array().unwrap().len(), 1);
    for bad in ["cells=63", "cells=1048577", "cells=x"] {
        let refused = api.get(&format!("logs?{bad}"), &[]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(refused.json()["errors"][0]["parameter"], "cells", "{bad}");
    }
}
