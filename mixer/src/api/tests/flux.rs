//! Messages and signals over HTTP: both paths of messages, the formats of a signal, what is found by an id, what is refused.

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use model::batch::{MessageRow, messages};
use model::message::Message;
use model::{FluxId, MessageDirection, MessageId, Span, SpanStatus, TraceId};
use tower::ServiceExt as _;

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// A signal of long ago: one message, one span, one record of the same trace.
struct Stored {
    bench: Bench,
    router: Router,
    id: FluxId,
}

impl Stored {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let router = guarded(
            telemetry::routes(Arc::clone(&bench.querier)),
            Arc::clone(&bench.exposition),
            bench.guards.clone(),
        );
        let ts = Timestamp::from_micros(now().micros() - 20 * 86_400_000_000);
        let id = FluxId::at(now(), [1; 10]);
        let trace_id: TraceId = TRACE.parse().unwrap();
        let entity = (EntityId::for_name("rack-a"), "rack-a".to_owned());
        let message = Message {
            id: MessageId::at(ts, [2; 10]),
            ts,
            raw: Vec::new(),
            data: json!({ "order": 7 }),
            hops: 1,
            meta: Attributes::new().with("msg.type", "order"),
            parent: None,
            flux_id: id,
            sampled: true,
            span_id: SPAN.parse().unwrap(),
            trace_id,
            trace_state: None,
        };
        let row = MessageRow {
            ts,
            trace_id,
            flux_id: id,
            entity_id: entity.0,
            entity_name: entity.1.clone(),
            src_gear_id: "orders".to_owned(),
            dst_gear_id: None,
            msg_type: "order".to_owned(),
            direction: MessageDirection::Outbound,
            status: SpanStatus::Ok,
            raw_msg: message.to_cbor().unwrap(),
            promoted: Attributes::new().with("order", 7),
        };
        bench.append_to(Table::Messages, messages(&[row]).unwrap()).await;
        let span = Span {
            ts,
            trace_id,
            span_id: message.span_id,
            parent_span_id: None,
            flux_id: Some(id),
            entity_id: entity.0,
            entity_name: entity.1.clone(),
            span_name: "http_in orders".to_owned(),
            duration_ms: 1.5,
            status: SpanStatus::Ok,
            attributes: Attributes::new(),
        };
        bench.append(&[span]).await;
        let log = LogRecord {
            ts,
            attributes: Attributes::new().with("trace_id", TRACE),
            ..super::log(0)
        };
        bench.append(&[log]).await;
        Self { bench, router, id }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, Vec<u8>) {
        let path = path.replace("ID", &self.id.to_string());
        let mut request = Request::get(format!("/api/v1/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await;
        let (parts, body) = response.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), parts.headers, body.to_vec())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path, &[]).await;
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_found_by_its_id_however_old_its_rows_are_and_each_row_says_what_it_is() {
    let stored = Stored::new().await;
    let found = stored.json("flux/ID?raw=json").await;
    let rows = found["data"].as_array().unwrap();
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "span", "log"]);
    assert_eq!(rows[0]["raw_msg"]["body"], json!({ "order": 7 }));
    assert_eq!(
        (&rows[0]["raw_msg"]["span_id"], &rows[0]["promoted"]["order"]),
        (&json!(SPAN), &json!(7))
    );
    assert_eq!(
        (&rows[1]["duration_ms"], &rows[1]["span_id"]),
        (&json!(1.5), &json!(SPAN))
    );
    assert!(rows[1].get("parent_span_id").is_none() && rows[1].get("level").is_none());
    assert_eq!((&rows[2]["level"], rows[2].get("flux_id")), (&json!("warn"), None));
    assert_eq!(
        found["flux"],
        json!({ "flux_id": stored.id, "trace_ids": [TRACE], "trace_ids_truncated": false })
    );
    assert_eq!(
        (&found["next_cursor"], &found["stats"]["rows"]),
        (&Value::Null, &json!(3))
    );
    let first = stored.json("flux/ID?limit=1").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = stored.json(&format!("flux/ID?cursor={cursor}")).await;
    assert_eq!(rest["data"].as_array().unwrap().len(), 2);
    stored.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_comes_in_every_format_and_has_a_tag_once_its_time_is_over() {
    let stored = Stored::new().await;
    let (status, headers, csv) = stored.get("flux/ID", &[("accept", "text/csv")]).await;
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!((status, csv.lines().count()), (200, 4), "{csv}");
    assert!(
        csv.starts_with("kind,ts,flux_id,trace_id,entity_id,entity_name,"),
        "{csv}"
    );
    assert!(headers.contains_key("x-query-stats") && !headers.contains_key("etag"));
    let (_, _, lines) = stored.get("flux/ID?format=ndjson", &[]).await;
    assert_eq!(lines.split(|byte| *byte == b'\n').count(), 4);
    let (_, headers, arrow) = stored.get("flux/ID?format=arrow&raw=none", &[]).await;
    assert!(headers["content-type"] == "application/vnd.apache.arrow.stream" && !arrow.is_empty());
    stored.bench.engine.flush().await.unwrap();
    let past = "flux/ID?until=2026-11-20T00:00:00Z";
    let (status, headers, _) = stored.get(past, &[]).await;
    assert_eq!(status, 200);
    let tag = headers["etag"].to_str().unwrap();
    let (status, ..) = stored.get(past, &[("if-none-match", tag)]).await;
    assert_eq!(status, 304);
    stored.bench.append(&[super::log(2 * 86_400)]).await;
    let (status, ..) = stored.get(past, &[("if-none-match", tag)]).await;
    assert_eq!(status, 200, "a row of that time has come");
    let (status, ..) = stored.get("flux/ID", &[("accept", "image/png")]).await;
    assert_eq!(status, 406);
    stored.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_have_two_paths_that_answer_the_same_and_neither_is_deprecated() {
    let stored = Stored::new().await;
    for query in [
        "messages/ID?raw=json",
        "messages?since=500h&src_gear_id=orders&rack_id=rack-a&promoted.order=7",
    ] {
        let one = stored.json(query).await;
        let other = stored.json(&format!("telemetry/{query}")).await;
        assert_eq!(one["data"], other["data"]);
        assert_eq!(one["data"].as_array().unwrap().len(), 1, "{query}");
        let (_, headers, _) = stored.get(query, &[]).await;
        assert!(!headers.contains_key("deprecation"));
    }
    let decoded = stored.json("messages/ID?raw=json").await;
    assert_eq!(decoded["data"][0]["raw_msg"]["body_is"], "value");
    let none = stored.json("messages?since=500h&rack_id=rack-b").await;
    assert_eq!(none["data"], json!([]));
    stored.bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_signal_and_a_bad_request_are_distinguished() {
    let stored = Stored::new().await;
    let problem = async |path: &str| {
        let (status, headers, body) = stored.get(path, &[]).await;
        assert_eq!(headers["content-type"], "application/problem+json", "{path}");
        let body: Value = serde_json::from_slice(&body).unwrap();
        (status, body["code"].as_str().unwrap().to_owned(), body)
    };
    for path in [
        "flux/018f2c1e-0000-7000-8000-000000000000",
        "flux/ID?since=2026-11-21T00:00:00Z",
    ] {
        let (status, code, _) = problem(path).await;
        assert_eq!((status, code.as_str()), (404, "flux_not_found"), "{path}");
    }
    for (path, parameter) in [
        ("flux/12", "flux_id"),
        ("flux/%ff", "flux_id"),
        ("flux/ID?limit=0", "limit"),
        ("flux/ID?limit=10001", "limit"),
        ("flux/ID?cursor=7b7d", "cursor"),
        ("flux/ID?raw=text", "raw"),
        ("flux/ID?order=asc", "order"),
        ("flux/ID?since=1h&until=2h", "until"),
        ("flux/ID?format=xml", "format"),
        ("messages?raw=cbor", "raw"),
        ("messages/ID?flux_id=018f2c1e-0000-7000-8000-000000000000", "flux_id"),
    ] {
        let (status, _, body) = problem(path).await;
        assert_eq!(
            (status, &body["errors"][0]["parameter"]),
            (400, &json!(parameter)),
            "{path}: {body}"
        );
    }
    stored.bench.close().await;
}
