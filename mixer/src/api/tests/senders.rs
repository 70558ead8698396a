//! What other senders' requests become, over the API: rows, answers, dead letters.

mod elasticsearch;
mod loki;
mod remote_write;

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use model::ByteSize;
use tower::ServiceExt;

use super::access::GuardedApi;
use super::*;
use crate::access::{AccessRole, AccessScope, ApiToken};
use crate::quotas::CallerQuotas;

/// What an answer says: its status, its headers, its body.
type Said = (StatusCode, HeaderMap, String);

/// A Mixer, and a token that may store and read.
struct SenderBench {
    mixer: Mixer,
    api: GuardedApi,
    token: ApiToken,
    _folder: tempfile::TempDir,
}

impl SenderBench {
    async fn new() -> Self {
        let quotas = CallerQuotas {
            queries: 100,
            ..CallerQuotas::default()
        };
        Self::with(quotas).await
    }

    async fn with(quotas: CallerQuotas) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mixer = whole_mixer(folder.path()).await;
        let api = GuardedApi::with(&mixer, folder.path(), quotas);
        let roles = [AccessRole::Reader, AccessRole::Ingester];
        let token = api.token("sender", &roles, AccessScope::default()).await;
        Self {
            mixer,
            api,
            token,
            _folder: folder,
        }
    }

    /// The answer to a request with headers of its own beside the token's.
    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Said {
        let bearer = format!("Bearer {}", self.token.expose());
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        self.send_as(method, path, &all, body).await
    }

    /// The same without the token.
    async fn send_as(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Said {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost");
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body.into()).unwrap();
        let answer = self.api.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = axum::body::to_bytes(answer.into_body(), 1 << 24).await.unwrap();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The rows of a statement.
    async fn rows(&self, statement: &str) -> Value {
        let kind = [("content-type", "application/sql")];
        let (status, _, body) = self
            .send(Method::POST, "/api/v1/sql", &kind, statement.to_owned())
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["data"].take()
    }

    /// What is said of the letters that were kept: subject, reason and content type.
    async fn letters(&self) -> Vec<[String; 3]> {
        let (status, _, body) = self.send(Method::GET, "/api/v1/telemetry/dead_letters", &[], "").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let letters = answer["data"].as_array().unwrap().iter();
        letters
            .map(|letter| {
                ["subject", "reason", "content_type"].map(|key| letter[key].as_str().unwrap_or("").to_owned())
            })
            .collect()
    }

    async fn close(self) {
        self.mixer.close().await;
    }
}

/// A field of a protobuf message with its length before it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128, "one byte of length");
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// The detail of a problem.
fn detail((_, _, body): &Said) -> String {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    problem["detail"].as_str().unwrap_or(body).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_as_a_password_or_an_api_key_is_good_for_ingest_alone() {
    use base64::Engine as _;
    let bench = SenderBench::new().await;
    let token = bench.token.expose().to_owned();
    let encoded = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    for (value, is_good) in [
        (format!("Basic {}", encoded(format!("anybody:{token}"))), true),
        (format!("basic {}", encoded(format!(":{token}"))), true),
        (format!("ApiKey {}", encoded(format!("id:{token}"))), true),
        (format!("ApiKey {token}"), true),
        (format!("Basic {}", encoded(token.clone())), false),
        (format!("Basic {}", encoded(format!("{token}:"))), false),
        (format!("Basic {token}"), false),
        (format!("Digest {token}"), false),
        ("ApiKey".to_owned(), false),
    ] {
        let headers = [("authorization", value.as_str()), ("content-type", "application/json")];
        let said = bench.send_as(Method::POST, "/loki/api/v1/push", &headers, "{}").await;
        let wanted = if is_good {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::UNAUTHORIZED
        };
        assert_eq!(said.0, wanted, "{value:.12}: {}", said.2);
        let said = bench.send_as(Method::GET, "/api/v1/telemetry/logs", &headers, "").await;
        assert_eq!(said.0, StatusCode::UNAUTHORIZED, "{value:.12}: it reads nothing");
        let twice = [headers[0], headers[0], headers[1]];
        let said = bench.send_as(Method::POST, "/loki/api/v1/push", &twice, "{}").await;
        assert_eq!(said.0, StatusCode::UNAUTHORIZED, "{value:.12}: two headers are none");
    }
    bench.close().await;
}
