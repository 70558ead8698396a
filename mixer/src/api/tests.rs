//! The API over a real socket: telemetry in front of a real engine, the rest in front of a whole Mixer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod access;
mod flux;
mod formats;
mod hostile;
mod iceberg;
mod jaeger;
mod otlp;
mod quotas;
mod refusals;
mod senders;
mod statements;

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
