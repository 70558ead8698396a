//! Quotas over the API: who is refused, and what others notice of it.

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use model::ByteSize;
use tower::ServiceExt;

use super::access::GuardedApi;
use super::*;
use crate::access::{AccessRole, AccessScope, ApiToken};
use crate::quotas::CallerQuotas;

/// Rows enough for a join that has no end.
const ROWS: usize = 500;
const ENDLESS: &str =
    "SELECT count(*) FROM logs a, logs b, logs c, logs d WHERE a.message || b.message < c.message || d.message";

/// Quotas of places alone.
const PLACES: CallerQuotas = CallerQuotas {
    requests: 0,
    queries: 4,
    scanned: ByteSize::bytes(0),
    ingest: ByteSize::bytes(0),
    stored: ByteSize::bytes(0),
};

/// What an answer says: its status, its headers, its body.
type Said = (StatusCode, HeaderMap, String);

impl GuardedApi {
    async fn say(&self, token: &ApiToken, path: &str, (kind, body): (&str, String)) -> Said {
        let request = Request::builder()
            .method(if body.is_empty() { Method::GET } else { Method::POST })
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, kind)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        let request = request.body(Body::from(body)).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = axum::body::to_bytes(answer.into_body(), 1 << 24).await.unwrap();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn sql(&self, token: &ApiToken, statement: &str) -> Said {
        self.say(token, "/api/v1/sql", ("application/sql", statement.to_owned()))
            .await
    }

    async fn send_rows(&self, token: &ApiToken, rows: usize) -> Said {
        let lines: String = (0..rows)
            .map(|row| {
                format!(
                    "{{\"ts\":\"{}\",\"level\":\"info\",\"message\":\"row {row}\"}}\n",
                    chassis::system_clock().now()
                )
            })
            .collect();
        self.say(token, "/api/v1/ingest/logs", ("application/x-ndjson", lines))
            .await
    }

    async fn reader(&self, name: &str) -> ApiToken {
        let roles = [AccessRole::Reader, AccessRole::Ingester];
        self.token(name, &roles, AccessScope::default()).await
    }
}

/// Seconds to wait, of an answer that names a quota.
fn refused((status, headers, body): &Said, quota: &str) -> u64 {
    assert_eq!(*status, StatusCode::TOO_MANY_REQUESTS, "{body}");
    let problem: Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["code"], "quota_exceeded", "{body}");
    assert!(
        problem["detail"].as_str().unwrap().contains(&format!("quotas.{quota}")),
        "{body}"
    );
    headers[header::RETRY_AFTER].to_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_greedy_token_cannot_keep_the_query_of_another_from_running() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = Arc::new(GuardedApi::with(&mixer, folder.path(), PLACES));
    let (greedy, modest) = (api.reader("greedy").await, api.reader("modest").await);
    assert_eq!(api.send_rows(&greedy, ROWS).await.0, StatusCode::OK);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (api, greedy) = (Arc::clone(&api), greedy.clone());
        asked.spawn(async move { api.sql(&greedy, ENDLESS).await });
    }
    // Nothing ends but what is refused: as many run as may.
    for _ in 0..8 {
        let first = asked.join_next().await.unwrap().unwrap();
        assert!(refused(&first, "queries") > 0);
    }
    for statement in ["SELECT 1", "SELECT count(*) FROM logs"] {
        let (status, _, body) = api.sql(&modest, statement).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    let (status, _, body) = api
        .say(&greedy, "/api/v1/telemetry/logs?limit=1", ("", String::new()))
        .await;
    assert_eq!(
        status,
        StatusCode::OK,
        "its own lists are answered beside its statements: {body}"
    );
    asked.shutdown().await;
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_bytes_of_bodies_and_bytes_that_queries_read_have_rates() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let quotas = CallerQuotas {
        requests: 3,
        scanned: ByteSize::bytes(10),
        ingest: ByteSize::bytes(2_000),
        stored: ByteSize::bytes(100_000),
        ..PLACES
    };
    let api = GuardedApi::with(&mixer, folder.path(), quotas);
    let (a, b) = (api.reader("a").await, api.reader("b").await);
    let version = async |token: &ApiToken| api.say(token, "/version", ("", String::new())).await;
    for _ in 0..30 {
        assert_eq!(version(&a).await.0, StatusCode::OK);
    }
    let wait = refused(&version(&a).await, "requests");
    assert_eq!(version(&b).await.0, StatusCode::OK, "another has its own");
    api.clock.forward(Duration::from_secs(wait));
    assert_eq!(version(&a).await.0, StatusCode::OK);

    assert_eq!(api.send_rows(&b, ROWS).await.0, StatusCode::OK);
    let wait = refused(&api.send_rows(&b, ROWS).await, "ingest_mb");
    api.clock.forward(Duration::from_secs(wait));
    assert_eq!(api.send_rows(&b, ROWS).await.0, StatusCode::OK);
    api.clock.forward(Duration::from_secs(3_600));
    assert_eq!(api.send_rows(&b, 2 * ROWS).await.0, StatusCode::OK);
    api.clock.forward(Duration::from_secs(3_600));
    let wait = refused(&api.send_rows(&b, 1).await, "stored_mb");
    api.clock.forward(Duration::from_secs(wait));
    assert_eq!(api.send_rows(&b, 1).await.0, StatusCode::OK, "the next day");

    let engine = mixer.api_parts().unwrap().engine;
    eventually("every row in a file", || async {
        (engine.stats().memtable_rows == 0).then_some(())
    })
    .await;
    let counts = async |token: &ApiToken| {
        api.sql(token, "SELECT count(DISTINCT message || level) FROM logs")
            .await
    };
    assert_eq!(counts(&b).await.0, StatusCode::OK);
    let wait = refused(&counts(&b).await, "scanned_mb");
    assert_eq!(counts(&a).await.0, StatusCode::OK, "what others read is not its");
    api.clock.forward(Duration::from_secs(wait));
    assert_eq!(counts(&b).await.0, StatusCode::OK);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_less_of_the_disk_is_free_than_must_be_ingest_is_refused_at_once_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer_with(folder.path(), ("store.min_free_mb", "1073741824")).await;
    let api = GuardedApi::with(&mixer, folder.path(), PLACES);
    let sender = api.reader("sender").await;
    let (status, headers, body) = api.send_rows(&sender, 1).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    let stats = mixer.api_parts().unwrap().engine.stats();
    assert_eq!(stats.free_limit_bytes, 5 << 48, "a quarter more to go on than to stop");
    assert!(headers.contains_key(header::RETRY_AFTER), "{headers:?}");
    assert!(
        body.contains("disk is almost full") && body.contains("nothing of the request is stored"),
        "{body}"
    );
    let (status, _, body) = api.say(&sender, "/readyz", ("", String::new())).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(body.contains("disk is almost full"), "{body}");
    assert_eq!(api.sql(&sender, "SELECT count(*) FROM logs").await.0, StatusCode::OK);
    api.reader("another").await;
    mixer.close().await;
}
