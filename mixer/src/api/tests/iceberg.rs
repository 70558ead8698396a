//! Iceberg's REST catalogue as its clients ask it, and as nobody should.

mod outages;

use ::iceberg::CatalogSettings;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use engine::{PartitionBy, StorageFormat};
use http::{HeaderMap, Method, Request, StatusCode, header};
use tower::ServiceExt;

use super::*;
use crate::iceberg_catalog::{CatalogService, PublisherThread};
use crate::testing::Hand;

const TABLES: [&str; 5] = ["dead_letters", "logs", "messages", "metrics", "traces"];
const LOGS: &str = "/iceberg/v1/namespaces/telemetry/tables/logs";

/// A store whose catalogue is published when a test says so.
struct CatalogBench {
    /// What guards the routes.
    bench: Bench,
    engine: Arc<Engine>,
    clock: Hand,
    thread: PublisherThread,
    service: Arc<CatalogService>,
    router: Router,
    _dir: tempfile::TempDir,
}

impl CatalogBench {
    async fn new() -> Self {
        Self::with(|settings| settings).await
    }

    async fn with(change: impl FnOnce(Settings) -> Settings) -> Self {
        let (bench, clock, dir) = (Bench::new().await, Hand::new(), tempfile::tempdir().unwrap());
        let settings = change(Settings {
            seal_grace: Duration::ZERO,
            flush_interval: Duration::from_millis(10),
            ..Settings::new(dir.path().join("store"))
        });
        let engine = Engine::open(settings, clock.clock(), crate::testing::entropy())
            .await
            .unwrap();
        let kept = CatalogSettings {
            snapshot_age: Duration::from_secs(3_600),
            partition_by: PartitionBy::Hour,
        };
        let (thread, service) = PublisherThread::new(&engine, kept, (clock.clock(), Duration::from_secs(3_600)));
        let router = router(&bench, Some(Arc::clone(&service)));
        Self {
            bench,
            engine,
            clock,
            thread,
            service,
            router,
            _dir: dir,
        }
    }

    /// Stores a log record in a file of its own, which is sealed.
    async fn seal_log(&self) {
        let record = LogRecord {
            ts: self.clock.clock().now(),
            ..log(0)
        };
        let rows = LogRecord::to_batch(&[record]).unwrap();
        let payload = model::telemetry_codec::encode_arrow(std::slice::from_ref(&rows)).unwrap();
        let batch = AppendBatch {
            table: Table::Logs,
            origin: BatchOrigin::default(),
            payload: payload.into(),
            rows: vec![rows],
        };
        self.engine.append(batch).await.unwrap();
        self.engine.flush().await.unwrap();
        self.clock.forward(Duration::from_secs(7_200));
        eventually("a sealed file", || async {
            let view = self.engine.view();
            let files = view.files(Table::Logs);
            files.iter().all(|file| file.sealed).then_some(())
        })
        .await;
    }

    /// Publishes the files that there are. Whether that succeeded.
    fn publish(&mut self) -> bool {
        tokio::task::block_in_place(|| self.thread.publish()).is_some()
    }

    async fn close(self) {
        self.engine.close().await.unwrap();
        self.bench.close().await;
    }
}

/// The routes behind their guards, where nobody is asked who calls.
fn router(bench: &Bench, service: Option<Arc<CatalogService>>) -> Router {
    let routes = crate::api::iceberg::routes(service.clone()).merge(crate::api::catalog::routes(service));
    guarded(routes, Arc::clone(&bench.exposition), bench.guards.clone())
}

async fn respond(router: &Router, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost");
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value));
    router
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap()
}

/// The whole answer to a request; null where it has no body.
async fn ask(router: &Router, method: Method, path: &str) -> (StatusCode, HeaderMap, Value) {
    let (head, body) = respond(router, method, path, &[]).await.into_parts();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let json = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&body).unwrap(),
    };
    (head.status, head.headers, json)
}

/// What a GET is answered with, which must be 200.
async fn get(router: &Router, path: &str) -> Value {
    let (status, headers, json) = ask(router, Method::GET, path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {json}");
    assert_eq!(headers[header::CONTENT_TYPE], "application/json", "{path}");
    json
}

/// Iceberg's name of a refusal, whose form is checked, and what it says.
async fn refusal(router: &Router, method: Method, path: &str) -> (u16, String, String) {
    let (status, headers, json) = ask(router, method, path).await;
    assert_eq!(headers[header::CONTENT_TYPE], "application/json", "{path}");
    let keys = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["error"], "{path}");
    let error = &json["error"];
    let mut parts = keys(error);
    parts.sort_unstable();
    assert_eq!(parts, ["code", "message", "type"], "{path}");
    assert_eq!(error["code"], status.as_u16(), "{path}");
    let text = |key: &str| error[key].as_str().unwrap().to_owned();
    assert!(!text("message").is_empty(), "{path}");
    (status.as_u16(), text("type"), text("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_the_namespace_its_tables_and_their_metadata() {
    let mut bench = CatalogBench::new().await;
    let router = bench.router.clone();
    for path in ["/iceberg/v1/namespaces/telemetry/tables", LOGS] {
        let (status, headers, _) = ask(&router, Method::GET, path).await;
        assert_eq!(
            status,
            StatusCode::SERVICE_UNAVAILABLE,
            "{path}: nothing is published yet"
        );
        assert_eq!(headers[header::RETRY_AFTER], "1", "{path}");
        assert_eq!(
            refusal(&router, Method::GET, path).await.1,
            "ServiceUnavailableException"
        );
    }
    assert!(bench.publish());

    let config = get(&router, "/iceberg/v1/config?warehouse=anything").await;
    assert_eq!((&config["defaults"], &config["overrides"]), (&json!({}), &json!({})));
    let endpoints = config["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 6);
    assert!(endpoints.contains(&json!("GET /v1/{prefix}/namespaces/{namespace}/tables/{table}")));
    assert!(
        endpoints
            .iter()
            .all(|endpoint| !endpoint.as_str().unwrap().starts_with("POST"))
    );

    for query in ["", "?pageToken=&pageSize=1", "?parent="] {
        let namespaces = get(&router, &format!("/iceberg/v1/namespaces{query}")).await;
        assert_eq!(namespaces, json!({ "namespaces": [["telemetry"]] }), "{query}");
    }
    let within = get(&router, "/iceberg/v1/namespaces?parent=telemetry").await;
    assert_eq!(within, json!({ "namespaces": [] }));
    let namespace = get(&router, "/iceberg/v1/namespaces/telemetry").await;
    assert_eq!(namespace, json!({ "namespace": ["telemetry"], "properties": {} }));
    let tables = get(&router, "/iceberg/v1/namespaces/telemetry/tables?pageToken=x").await;
    let named = TABLES.map(|name| json!({ "namespace": ["telemetry"], "name": name }));
    assert_eq!(tables, json!({ "identifiers": named }));

    for (path, status) in [
        ("/iceberg/v1/namespaces/telemetry", 204),
        ("/iceberg/v1/namespaces/other", 404),
        (LOGS, 204),
        ("/iceberg/v1/namespaces/telemetry/tables/nothing", 404),
    ] {
        let (found, _, body) = ask(&router, Method::HEAD, path).await;
        assert_eq!((found.as_u16(), body), (status, Value::Null), "HEAD {path}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_has_a_snapshot_of_its_files_and_is_known_again_by_its_tag() {
    let mut bench = CatalogBench::new().await;
    let router = bench.router.clone();
    assert!(bench.publish());
    let empty = get(&router, LOGS).await;
    assert_eq!(empty["metadata"]["format-version"], 2);
    assert_eq!(empty["metadata"]["snapshots"].as_array().map_or(0, Vec::len), 0);
    assert!(
        empty["metadata-location"]
            .as_str()
            .unwrap()
            .ends_with("/telemetry/logs/metadata/v1.metadata.json")
    );
    assert_eq!(empty["config"], json!({}));

    bench.seal_log().await;
    assert!(bench.publish());
    let (_, headers, loaded) = ask(&router, Method::GET, &format!("{LOGS}?snapshots=refs")).await;
    let snapshots = loaded["metadata"]["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0]["summary"]["total-records"], "1");
    assert_eq!(loaded["metadata"]["table-uuid"], empty["metadata"]["table-uuid"]);
    assert!(
        loaded["metadata-location"]
            .as_str()
            .unwrap()
            .ends_with("/v2.metadata.json")
    );

    let tag = headers[header::ETAG].to_str().unwrap().to_owned();
    assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
    for known in [
        tag.clone(),
        tag.trim_start_matches("W/").to_owned(),
        format!("\"x\", {tag}"),
    ] {
        let answer = respond(&router, Method::GET, LOGS, &[("if-none-match", known.as_str())]).await;
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(answer.headers()[header::ETAG], tag.as_str());
        let body = axum::body::to_bytes(answer.into_body(), 1 << 10).await.unwrap();
        assert!(body.is_empty(), "{known}");
    }
    let other = respond(&router, Method::GET, LOGS, &[("if-none-match", "W/\"1-00\"")]).await;
    assert_eq!(other.status(), StatusCode::OK);

    bench.seal_log().await;
    assert!(bench.publish());
    let changed = respond(&router, Method::GET, LOGS, &[("if-none-match", tag.as_str())]).await;
    assert_eq!(changed.status(), StatusCode::OK);
    assert_ne!(changed.headers()[header::ETAG], tag.as_str());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_behind_the_catalogue_is_can_be_asked() {
    let mut bench = CatalogBench::new().await;
    let router = bench.router.clone();
    bench.seal_log().await;
    assert!(bench.publish());
    let logs = async || {
        let catalog = get(&router, "/api/v1/catalog").await;
        let tables = catalog["data"]["tables"].as_array().unwrap().clone();
        assert_eq!(tables.len(), TABLES.len());
        (
            catalog,
            tables.into_iter().find(|table| table["table"] == "logs").unwrap(),
        )
    };
    let (catalog, table) = logs().await;
    assert_eq!(
        (&catalog["data"]["publishes"], &catalog["data"]["reason"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(
        (&table["files"], &table["rows"], &table["waiting_rows"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(
        (&table["lag_seconds"], &table["latest"]),
        (&json!(0), &table["latest_stored"])
    );
    assert!(table["snapshot_id"].as_str().unwrap().parse::<i64>().unwrap() > 0);
    // Two hours later than the first one.
    bench.seal_log().await;
    let (_, table) = logs().await;
    assert_eq!(
        (&table["rows"], &table["waiting_rows"], &table["lag_seconds"]),
        (&json!(1), &json!(1), &json!(7_200))
    );
    assert!(bench.publish());
    let (_, table) = logs().await;
    assert_eq!(
        (&table["rows"], &table["waiting_rows"], &table["lag_seconds"]),
        (&json!(2), &json!(0), &json!(0))
    );
    bench.close().await;
}

/// Requests that are refused, with the status and the type of the error.
const REFUSED: [(Method, &str, u16, &str); 24] = [
    (
        Method::GET,
        "/iceberg/v1/namespaces/other",
        404,
        "NoSuchNamespaceException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry%1Flogs",
        404,
        "NoSuchNamespaceException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/TELEMETRY/tables",
        404,
        "NoSuchNamespaceException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces?parent=other",
        404,
        "NoSuchNamespaceException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/other/tables/logs",
        404,
        "NoSuchNamespaceException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/nothing",
        404,
        "NoSuchTableException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/messages_orders",
        404,
        "NoSuchTableException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/..%2F..%2Fcluster.key",
        404,
        "NoSuchTableException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/messages_..%2Fx",
        404,
        "NoSuchTableException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/logs%00",
        404,
        "NoSuchTableException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/%1B%5B2J",
        404,
        "NoSuchTableException",
    ),
    (Method::GET, "/iceberg/v1/namespaces/%FF", 400, "BadRequestException"),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/%FF",
        400,
        "BadRequestException",
    ),
    (
        Method::GET,
        "/iceberg/v1/config?warehouse=%FF",
        400,
        "BadRequestException",
    ),
    (Method::GET, "/iceberg/v1/nothing", 404, "NotFoundException"),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/views",
        404,
        "NotFoundException",
    ),
    (
        Method::GET,
        "/iceberg/v1/namespaces/telemetry/tables/logs/credentials",
        404,
        "NotFoundException",
    ),
    (
        Method::POST,
        "/iceberg/v1/namespaces",
        405,
        "UnsupportedOperationException",
    ),
    (
        Method::POST,
        "/iceberg/v1/namespaces/telemetry/tables",
        405,
        "UnsupportedOperationException",
    ),
    (Method::POST, LOGS, 405, "UnsupportedOperationException"),
    (Method::DELETE, LOGS, 405, "UnsupportedOperationException"),
    (
        Method::POST,
        "/iceberg/v1/oauth/tokens",
        406,
        "UnsupportedOperationException",
    ),
    (
        Method::POST,
        "/iceberg/v1/namespaces/telemetry/tables/logs/metrics",
        406,
        "UnsupportedOperationException",
    ),
    (
        Method::POST,
        "/iceberg/v1/transactions/commit",
        406,
        "UnsupportedOperationException",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_one_of_icebergs() {
    let mut bench = CatalogBench::new().await;
    let router = bench.router.clone();
    assert!(bench.publish());
    let long = format!("/iceberg/v1/namespaces/telemetry/tables/{}", "x".repeat(10_000));
    let of_long = (Method::GET, long.as_str(), 404, "NoSuchTableException");
    for (method, path, status, kind) in REFUSED.into_iter().chain([of_long]) {
        let (found, named, says) = refusal(&router, method.clone(), path).await;
        assert_eq!((found, named.as_str()), (status, kind), "{method} {path}: {says}");
        assert!(
            says.len() < 512 && !says.contains(char::is_control),
            "{method} {path}: {says:?}"
        );
    }
    let says = async |path: &str| refusal(&router, Method::GET, path).await.2;
    assert_eq!(
        says("/iceberg/v1/namespaces/telemetry%1Flogs").await,
        "Namespace does not exist: telemetry.logs"
    );
    assert_eq!(
        says("/iceberg/v1/namespaces/telemetry/tables/nothing").await,
        "Table does not exist: telemetry.nothing"
    );
    let token = refusal(&router, Method::POST, "/iceberg/v1/oauth/tokens").await.2;
    assert!(token.contains("platform token create"), "{token}");
    let (_, headers, _) = ask(&router, Method::POST, LOGS).await;
    assert_eq!(headers[header::ALLOW], "GET,HEAD");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_lines_has_tables_without_snapshots_and_says_why() {
    let mut bench = CatalogBench::with(|settings| Settings {
        format: StorageFormat::Json,
        ..settings
    })
    .await;
    let router = bench.router.clone();
    bench.seal_log().await;
    assert!(bench.publish());
    let tables = get(&router, "/iceberg/v1/namespaces/telemetry/tables").await;
    assert_eq!(tables["identifiers"].as_array().map(Vec::len), Some(TABLES.len()));
    let loaded = get(&router, LOGS).await;
    assert_eq!(loaded["metadata"]["snapshots"].as_array().map_or(0, Vec::len), 0);
    let catalog = get(&router, "/api/v1/catalog").await;
    let reason = catalog["data"]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("1 data files are lines of JSON") && reason.contains("storage.format"),
        "{reason}"
    );
    let logs = &catalog["data"]["tables"][1];
    assert_eq!(
        (&logs["table"], &logs["rows"], &logs["waiting_rows"]),
        (&json!("logs"), &json!(0), &json!(1))
    );
    assert_eq!((&logs["snapshot_id"], &logs["latest"]), (&Value::Null, &Value::Null));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_storage_is_away_clients_are_told_when_to_ask_again() {
    let mut bench = CatalogBench::new().await;
    // A file is in the place of the folder: nothing can be read or written there.
    let folder = bench.engine.settings().store_dir.join("iceberg");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::write(&folder, b"").unwrap();
    assert!(!bench.publish() && !bench.publish());
    let reading = router(&bench.bench, Some(CatalogService::of_reader(&bench.engine)));
    for router in [&bench.router, &reading] {
        for path in ["/iceberg/v1/namespaces/telemetry/tables", LOGS] {
            let (status, headers, _) = ask(router, Method::GET, path).await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
            assert_eq!(headers[header::RETRY_AFTER], "1", "{path}");
            let (_, kind, says) = refusal(router, Method::GET, path).await;
            assert_eq!(kind, "ServiceUnavailableException", "{path}");
            assert!(!says.contains(&folder.display().to_string()), "{says}");
        }
        let namespaces = get(router, "/iceberg/v1/namespaces").await;
        assert_eq!(
            namespaces,
            json!({ "namespaces": [["telemetry"]] }),
            "what needs no storage"
        );
    }
    let catalog = get(&bench.router, "/api/v1/catalog").await;
    let trouble = catalog["data"]["trouble"].as_str().unwrap();
    assert!(trouble.contains(&folder.display().to_string()), "{trouble}");
    std::fs::remove_file(&folder).unwrap();
    assert!(bench.publish());
    let catalog = get(&bench.router, "/api/v1/catalog").await;
    assert_eq!(catalog["data"]["trouble"], Value::Null);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_is_switched_off_says_which_key_does_it() {
    let bench = Bench::new().await;
    let router = router(&bench, None);
    for path in ["/iceberg/v1/config", LOGS] {
        let (status, kind, says) = refusal(&router, Method::GET, path).await;
        assert_eq!(
            (status, kind.as_str()),
            (406, "UnsupportedOperationException"),
            "{path}"
        );
        assert!(says.contains("observability.embedded.iceberg.enabled"), "{says}");
    }
    let catalog = get(&router, "/api/v1/catalog").await;
    assert_eq!(catalog["data"]["tables"], json!([]));
    assert_eq!(
        catalog["data"]["reason"],
        "observability.embedded.iceberg.enabled is false"
    );
    bench.close().await;
}
