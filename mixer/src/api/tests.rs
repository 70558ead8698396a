//! The API over a real socket: telemetry in front of a real engine, the rest in front of a whole Mixer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod access;
mod flux;
mod formats;
mod hostile;
mod jaeger;
mod otlp;
mod quotas;
mod senders;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use engine::{AppendBatch, BatchOrigin, Engine, Settings};
use model::{
    Attributes, Clock, EntityId, Entropy, Level, LogRecord, MetricPoint, MetricType, Table, TelemetryRecord, Timestamp,
};
use query::{QueryEngine, QueryLimits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use chassis::config::{ConfigSources, load};

use chassis::host_guard::HostGuard;

use super::exposition::{ExpositionFormat, MetricsExposition};
use super::{ApiServer, SlowClientLimits, guarded, server, sql, telemetry};
use crate::access::AuthMode;
use crate::app::Mixer;
use crate::audit_keeper::refusal_channel;
use crate::authentication::{ApiAuthenticator, TokenStore};
use crate::config::{MixerConfig, SCHEMA};
use crate::registry::ClusterRegistry;
use crate::testing::{eventually, nats_server};

fn now() -> Timestamp {
    "2026-11-21T12:30:00Z".parse().unwrap()
}

struct Bench {
    engine: Arc<Engine>,
    querier: Arc<QueryEngine>,
    exposition: Arc<MetricsExposition>,
    api: ApiServer,
    /// Nobody is asked who calls.
    guards: (Arc<ApiAuthenticator>, Arc<HostGuard>),
    _dir: tempfile::TempDir,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn has_header(&self, name: &str, value: &str) -> bool {
        self.head.lines().any(|line| {
            let found = line.split_once(": ");
            found.is_some_and(|(n, v)| n.eq_ignore_ascii_case(name) && v.starts_with(value))
        })
    }
}

impl Bench {
    async fn new() -> Self {
        Self::with(SlowClientLimits::default()).await
    }

    async fn with(patience: SlowClientLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new(now);
        let settings = Settings::new(dir.path().join("store"));
        let engine = Engine::open(settings, clock.clone(), Entropy::new(|bytes| bytes.fill(7)))
            .await
            .unwrap();
        let querier = Arc::new(QueryEngine::new(Arc::clone(&engine), QueryLimits::default(), clock).unwrap());
        let exposition = Arc::new(MetricsExposition::of_requests());
        let routes = telemetry::routes(Arc::clone(&querier))
            .merge(super::jaeger::routes(Arc::clone(&querier)))
            .merge(sql::routes(Arc::clone(&querier)));
        let registry = Arc::new(ClusterRegistry::open(&dir.path().join("registry.redb")).unwrap());
        let tokens = TokenStore::open(
            registry,
            None,
            crate::testing::no_quotas(),
            (Clock::new(now), crate::testing::entropy()),
        )
        .unwrap();
        let authenticator = Arc::new(ApiAuthenticator::new(
            AuthMode::Off,
            Arc::new(tokens),
            refusal_channel().0,
        ));
        let hosts = Arc::new(HostGuard::new(([127, 0, 0, 1], 0).into(), Vec::new()));
        let guards = (authenticator, hosts);
        let router = guarded(routes, Arc::clone(&exposition), guards.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = server::start((router, listener), Vec::new(), (TaskTracker::new(), None), patience).unwrap();
        Self {
            engine,
            querier,
            exposition,
            api,
            guards,
            _dir: dir,
        }
    }

    async fn append<R: TelemetryRecord>(&self, rows: &[R]) {
        self.append_to(R::TABLE, R::to_batch(rows).unwrap()).await;
    }

    async fn append_to(&self, table: Table, rows: RecordBatch) {
        let batch = AppendBatch {
            table,
            origin: BatchOrigin::default(),
            payload: model::telemetry_codec::encode_arrow(std::slice::from_ref(&rows))
                .unwrap()
                .into(),
            rows: vec![rows],
        };
        self.engine.append(batch).await.unwrap();
    }

    async fn get(&self, path: &str) -> Answer {
        send(
            self.api.addr(),
            &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"),
        )
        .await
    }

    async fn close(self) {
        self.api.close().await;
        self.querier.close().await;
        self.engine.close().await.unwrap();
    }
}

async fn send(addr: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to {request}"));
    Answer {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn log(number: i64) -> LogRecord {
    LogRecord {
        ts: Timestamp::from_micros(now().micros() - number * 1_000_000),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        flux_id: None,
        level: Level::Warn,
        message: format!("line {number}"),
        attributes: Attributes::new().with("gear.id", "tail").with("n", number),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_under_the_columns_names_newest_first_and_page_by_cursor() {
    let bench = Bench::new().await;
    let rows: Vec<_> = (0..5).map(log).collect();
    bench.append(&rows).await;
    let answer = bench.get("/api/v1/telemetry/logs?gear_id=tail&limit=3&q=LINE%20").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.has_header("content-type", "application/json"));
    let json = answer.json();
    assert_eq!(
        json["data"][0],
        json!({
            "ts": "2026-11-21T12:30:00.000000Z", "entity_id": EntityId::for_name("rack-a"), "entity_name": "rack-a",
            "flux_id": null, "level": "warn", "message": "line 0", "attributes": {"gear.id": "tail", "n": 0},
        })
    );
    assert_eq!(json["stats"]["rows"], 3);
    let cursor = json["next_cursor"].as_str().unwrap();
    let rest = bench
        .get(&format!(
            "/api/v1/telemetry/logs?gear_id=tail&q=line%20&cursor={cursor}"
        ))
        .await;
    assert_eq!(rest.status, 400, "another q: {}", rest.body);
    let rest = bench
        .get(&format!("/api/v1/telemetry/logs?gear_id=tail&q=LINE+&cursor={cursor}"))
        .await
        .json();
    assert_eq!(rest["data"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next_cursor"], Value::Null);
    let nothing = bench.get("/api/v1/telemetry/logs?entity=nobody").await.json();
    assert_eq!(nothing["data"], json!([]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_metric_tells_what_it_is_and_an_unknown_one_is_404() {
    let bench = Bench::new().await;
    let point = MetricPoint {
        ts: now(),
        name: "system.memory.usage".to_owned(),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        metric_type: MetricType::Gauge,
        value: 42.5,
        labels: Attributes::new().with("otel.unit", "By").with("state", "used"),
    };
    bench.append(&[point]).await;
    let json = bench
        .get("/api/v1/telemetry/metrics/system.memory.usage?interval=1m&group_by=state")
        .await
        .json();
    let metric =
        json!({"name": "system.memory.usage", "type": "gauge", "unit": "By", "label_keys": ["otel.unit", "state"]});
    assert_eq!(json["metric"], metric);
    assert_eq!(json["data"][0]["labels"], json!({"state": "used"}));
    assert_eq!(json["data"][0]["value"], 42.5);
    let unknown = bench.get("/api/v1/telemetry/metrics/no.such").await;
    assert_eq!(
        (unknown.status, &unknown.json()["code"]),
        (404, &json!("metric_not_found"))
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn former_paths_answer_the_same_and_name_their_successors() {
    let bench = Bench::new().await;
    bench.append(&[log(1)]).await;
    let (former, current) = (
        bench.get("/api/v1/logs").await,
        bench.get("/api/v1/telemetry/logs").await,
    );
    assert_eq!(former.json()["data"], current.json()["data"]);
    assert!(former.has_header("deprecation", "@") && !current.has_header("deprecation", ""));
    assert!(former.has_header("link", "</api/v1/telemetry/logs>; rel=\"successor-version\""));
    for path in [
        "traces",
        "metrics",
        "traces/0123456789abcdef0123456789abcdef",
        "metrics/x",
    ] {
        assert!(
            bench
                .get(&format!("/api/v1/{path}"))
                .await
                .has_header("deprecation", "@"),
            "{path}"
        );
    }
    bench.close().await;
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

pub(in crate::api) async fn whole_mixer(folder: &std::path::Path) -> Mixer {
    whole_mixer_with(folder, ("api.port", "0")).await
}

async fn whole_mixer_with(folder: &std::path::Path, (key, value): (&str, &str)) -> Mixer {
    let flags = [
        ("store.dir", folder.join("data").display().to_string()),
        ("snake.port", "0".to_owned()),
        ("snake.server_binary", nats_server().display().to_string()),
        ("snake.max_store_mb", "256".to_owned()),
        ("api.port", "0".to_owned()),
        ("observability.self_tracing", "false".to_owned()),
        (key, value.to_owned()),
    ];
    let sources = ConfigSources {
        flags: flags.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        ..ConfigSources::default()
    };
    let config = MixerConfig::of(&load(&SCHEMA, &sources).unwrap()).unwrap();
    Mixer::start(config, chassis::system_clock(), chassis::os_entropy())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_mixer_says_how_it_is_what_it_holds_and_who_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let addr = mixer.api_addr();
    let ask = |method: &str, path: &str, body: &str| {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n");
        let request = format!("{head}\r\n{body}");
        async move { send(addr, &request).await }
    };
    let ready = eventually("readiness", || async {
        let answer = ask("GET", "/readyz", "").await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    for check in ["engine", "wal", "bus", "ingest"] {
        assert_eq!(ready["checks"][check]["ok"], true, "{ready}");
    }
    assert_eq!(ask("GET", "/healthz", "").await.json(), json!({"alive": true}));
    assert_eq!(ask("GET", "/version", "").await.json()["name"], "platform-mixer");
    let storage = ask("GET", "/api/v1/storage", "").await.json();
    assert_eq!(storage["data"]["tables"]["logs"]["files"], 0, "{storage}");
    let text = ask("GET", "/metrics", "").await;
    assert!(text.has_header("content-type", "text/plain; version=0.0.4"));
    for line in [
        "platform_engine_appended_rows_total ",
        "platform_ingest_consumer_open 1",
        "platform_racks{state=\"pending\"} 0",
        "platform_handshakes_refused_total{code=\"signature\"} 0",
        "platform_heartbeats_refused_total{code=\"answer_elsewhere\"} 0",
    ] {
        assert!(text.body.contains(line), "{line} is not in\n{}", text.body);
    }
    let racks = ask("GET", "/api/v1/racks", "").await.json();
    assert_eq!((&racks["data"], &racks["next_cursor"]), (&json!([]), &Value::Null));
    assert_eq!(ask("GET", "/api/v1/scenarios", "").await.json()["data"], json!([]));
    for (method, path, body, status, code) in [
        ("GET", "/api/v1/racks/nobody", "", 404, "unknown_rack"),
        ("GET", "/api/v1/racks?x=1", "", 400, "unknown_parameter"),
        (
            "POST",
            "/api/v1/racks/nobody/approve",
            "{\"name\": \"rack-a\"}",
            404,
            "unknown_rack",
        ),
        (
            "POST",
            "/api/v1/racks/nobody/approve",
            "{\"name\": \"a b\"}",
            400,
            "bad_body",
        ),
        (
            "POST",
            "/api/v1/racks/nobody/approve",
            "{\"nam\": \"a\"}",
            400,
            "bad_body",
        ),
        ("POST", "/api/v1/racks/nobody/suspend", "nonsense", 400, "bad_body"),
        ("POST", "/api/v1/racks/nobody/remove", "", 404, "unknown_rack"),
        ("DELETE", "/api/v1/racks/nobody", "", 405, "method_not_allowed"),
    ] {
        let answer = ask(method, path, body).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (status, &json!(code)),
            "{method} {path} {body}"
        );
    }
    let large = "x".repeat(70_000);
    assert_eq!(ask("POST", "/api/v1/racks/nobody/approve", &large).await.status, 413);
    mixer.close().await;
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

impl Bench {
    async fn sql(&self, head: &str, path: &str, body: &str) -> Answer {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        send(self.api.addr(), &request).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_before_its_first_chunk_has_the_status_of_its_failure() {
    let bench = Bench::new().await;
    let query = "SELECT n, 1 / (n - 3) FROM (VALUES (1), (2), (3)) t(n)";
    for format in ["json", "ndjson", "csv", "arrow"] {
        let path = format!("/api/v1/sql?format={format}");
        let answer = bench.sql("content-type: application/sql\r\n", &path, query).await;
        assert_eq!(answer.status, 400, "{format}: {}", answer.body);
        assert!(
            answer.has_header("content-type", "application/problem+json"),
            "{}",
            answer.head
        );
        assert!(answer.body.contains("Divide by zero"), "{}", answer.body);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_is_answered_in_the_format_that_is_asked_for() {
    let bench = Bench::new().await;
    let body = r#"{"query":"SELECT $1 AS a, 2 AS b","parameters":["x,y"],"limit":5.0}"#;
    for (head, path, kind, text) in [
        (
            "",
            "/api/v1/sql",
            "application/json",
            r#""data":[{"a":"x,y","b":2}],"stats":{"files_considered":0"#,
        ),
        ("accept: text/csv\r\n", "/api/v1/sql", "text/csv", "a,b\n\"x,y\",2\n"),
        (
            "",
            "/api/v1/sql?format=ndjson",
            "application/x-ndjson",
            "{\"a\":\"x,y\",\"b\":2}\n",
        ),
    ] {
        let answer = bench.sql(head, path, body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.has_header("content-type", kind), "{}", answer.head);
        assert!(answer.body.contains(text), "{kind}: {}", answer.body);
    }
    let plain = bench
        .sql(
            "content-type: application/sql\r\n",
            "/api/v1/sql?format=csv",
            "SELECT 1 AS a",
        )
        .await;
    assert!(plain.body.contains("a\n1\n"), "{}", plain.body);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_statement_that_reads_is_a_problem_with_its_place() {
    let bench = Bench::new().await;
    for (body, status, code) in [
        (r#"{"query":"SELECT nothing FROM logs"}"#, 400, "sql_error"),
        (r#"{"query":"SELECT 1; SELECT 2"}"#, 400, "sql_error"),
        (r#"{"query":"DROP TABLE logs"}"#, 403, "read_only"),
        (r#"{"query":"SET a = 1"}"#, 403, "read_only"),
        (r#"{"sql":"SELECT 1"}"#, 400, "bad_body"),
        (r#"{"query":"SELECT 1","limit":-1}"#, 400, "bad_body"),
        (r#"{"query":"SELECT 1","limit":0.5}"#, 400, "bad_body"),
        (r#"{"query":"SELECT 1","limit":18446744073709551616}"#, 400, "bad_body"),
        ("SELECT 1", 400, "bad_body"),
        ("", 400, "bad_body"),
    ] {
        let answer = bench
            .sql("content-type: application/json\r\n", "/api/v1/sql", body)
            .await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert_eq!(answer.json()["code"], code, "{body}: {}", answer.body);
    }
    let answer = bench
        .sql("", "/api/v1/sql", r#"{"query":"SELECT nothing FROM logs"}"#)
        .await;
    assert!(answer.body.contains("line 1, column 8"), "{}", answer.body);
    assert_eq!(answer.json()["position"], json!({ "line": 1, "column": 8 }));
    let problem = bench
        .sql("accept: image/png\r\n", "/api/v1/sql", r#"{"query":"SELECT 1"}"#)
        .await;
    assert_eq!(
        (problem.status, &problem.json()["code"]),
        (406, &json!("not_acceptable"))
    );
    assert_eq!(bench.sql("", "/api/v1/sql?format=xml", "{}").await.status, 400);
    assert_eq!(bench.get("/api/v1/sql").await.status, 405);
    bench.close().await;
}
