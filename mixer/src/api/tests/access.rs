//! Every route against every kind of caller, generated from the table of routes.

mod catalog;
mod cross_origin;
mod entity_rows;
mod ingest_scopes;
mod live_streams;
mod page;
mod roles;
mod scopes;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use axum::{Extension, Router};
use http::request::Builder;
use http::{Method, Request, StatusCode, header};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::access::{AccessRight, AccessRole, AccessScope, ApiToken};
use crate::api::authorization::PROXY_HEADERS;
use crate::api::openapi::every_route;
use crate::authentication::NewToken;
use crate::quotas::{CallerQuotas, QuotaOverrides};
use crate::registry::AuditActor;
use crate::testing::Hand;

/// The status of an answer, and its code where it is a problem of the requester's.
type CallOutcome = (StatusCode, String);

/// The routes of a whole Mixer behind tokens alone, on a clock of its own for them.
pub(super) struct GuardedApi {
    pub(super) router: Router,
    tokens: Arc<TokenStore>,
    pub(super) clock: Hand,
}

impl GuardedApi {
    fn new(mixer: &Mixer, folder: &std::path::Path) -> Self {
        Self::with(
            mixer,
            folder,
            CallerQuotas {
                queries: 100,
                ..CallerQuotas::default()
            },
        )
    }

    /// With quotas, on the same clock.
    pub(super) fn with(mixer: &Mixer, folder: &std::path::Path, quotas: CallerQuotas) -> Self {
        Self::with_parts(mixer, folder, quotas).0
    }

    /// The same routes, and a server of them that receives OTLP at ports of its own.
    pub(super) async fn serve(mixer: &Mixer, folder: &std::path::Path, quotas: CallerQuotas) -> (Self, ApiServer) {
        let (api, parts) = Self::with_parts(mixer, folder, quotas);
        let listen = || TcpListener::bind("127.0.0.1:0");
        let listeners = crate::api::ApiListeners {
            api: listen().await.unwrap(),
            otlp_http: Some(listen().await.unwrap()),
            otlp_grpc: Some(listen().await.unwrap()),
        };
        let server = crate::api::serve(parts, listeners, (Vec::new(), None)).unwrap();
        (api, server)
    }

    fn with_parts(mixer: &Mixer, folder: &std::path::Path, quotas: CallerQuotas) -> (Self, crate::api::ApiParts) {
        let clock = Hand::new();
        let quotas = crate::testing::quotas(quotas, clock.clock());
        let registry = Arc::new(ClusterRegistry::open(&folder.join("tokens.redb")).unwrap());
        let tokens = TokenStore::open(registry, None, quotas, (clock.clock(), crate::testing::entropy())).unwrap();
        let tokens = Arc::new(tokens);
        let authenticator = Arc::new(ApiAuthenticator::new(
            AuthMode::Tokens,
            Arc::clone(&tokens),
            crate::audit_keeper::refusal_channel().0,
        ));
        let parts = crate::api::ApiParts {
            authenticator,
            ..mixer.api_parts().unwrap()
        };
        let hosts = HostGuard::new(([127, 0, 0, 1], 0).into(), Vec::new());
        let router = crate::api::routes(parts.clone(), hosts, &TaskTracker::new()).unwrap();
        // As a server has it: without, no stream begins.
        let router = router.layer(Extension(server::ShutdownToken(CancellationToken::new())));
        (Self { router, tokens, clock }, parts)
    }

    pub(super) async fn token(&self, name: &str, roles: &[AccessRole], scope: AccessScope) -> ApiToken {
        let new = NewToken {
            name: name.parse().unwrap(),
            roles: roles.to_vec(),
            scope,
            lifetime: None,
            quotas: QuotaOverrides::default(),
        };
        self.tokens.create(new, &AuditActor::default()).await.unwrap().0
    }

    /// A token whose scope is said as requests say it.
    async fn scoped(&self, name: &str, roles: &[AccessRole], scope: Value) -> ApiToken {
        self.token(name, roles, serde_json::from_value(scope).unwrap()).await
    }

    /// A token of an admin that is good for so long.
    async fn expiring(&self, name: &str, lifetime: Duration) -> ApiToken {
        let new = NewToken {
            name: name.parse().unwrap(),
            roles: vec![AccessRole::Admin],
            scope: AccessScope::default(),
            lifetime: Some(lifetime),
            quotas: QuotaOverrides::default(),
        };
        self.tokens.create(new, &AuditActor::default()).await.unwrap().0
    }

    /// One token for each role, without a limit.
    async fn token_of_each_role(&self) -> BTreeMap<AccessRole, ApiToken> {
        let mut by_role = BTreeMap::new();
        for role in AccessRole::ALL {
            by_role.insert(role, self.token(role.as_str(), &[role], AccessScope::default()).await);
        }
        by_role
    }

    /// The answer to a request; nothing of its body is read.
    async fn respond(&self, request: Builder, body: impl Into<Body>) -> Response {
        let request = request.body(body.into()).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// What comes of a request without a body; of a good answer nothing is read.
    async fn outcome(&self, request: Builder) -> CallOutcome {
        let answer = self.respond(request, Body::empty()).await;
        let status = answer.status();
        if !status.is_client_error() {
            return (status, String::new());
        }
        if status == StatusCode::UNAUTHORIZED {
            assert_eq!(answer.headers()[header::WWW_AUTHENTICATE], "Bearer realm=\"platform\"");
        }
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        // The answer to HEAD has none.
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = match (&problem["code"], &problem["error"]["message"]) {
            // Of OTLP's refusals it is gRPC's.
            (Value::Number(_), _) => foreign_code(status, problem["message"].as_str().unwrap_or_default()),
            // Of Iceberg's it is the status.
            (Value::Null, Value::String(said)) => foreign_code(status, said),
            (code, _) => code.as_str().unwrap_or_default(),
        };
        (status, code.to_owned())
    }

    /// The whole answer to a request.
    async fn fetch(&self, request: Builder, body: impl Into<Body>) -> (StatusCode, Value) {
        let answer = self.respond(request, body).await;
        let status = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn ask(&self, method: &Method, path: &str, authorization: Option<&str>) -> CallOutcome {
        let mut request = request(method, path);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        self.outcome(request).await
    }

    async fn bearer(&self, method: &Method, path: &str, token: &ApiToken) -> CallOutcome {
        self.ask(method, path, Some(&credential(token))).await
    }
}

/// The beginning of a request to the Mixer by its own name.
fn request(method: &Method, path: &str) -> Builder {
    let request = Request::builder().method(method).uri(path);
    request.header(header::HOST, "localhost")
}

/// A token as `Authorization` has it.
fn credential(token: &ApiToken) -> String {
    format!("Bearer {}", token.expose())
}

/// The code that a refusal of OTLP or of Iceberg would have as a problem.
fn foreign_code(status: StatusCode, said: &str) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::MISDIRECTED_REQUEST => "unknown_host",
        StatusCode::FORBIDDEN if said.contains("only pages of this very host may") => "cross_origin",
        StatusCode::FORBIDDEN => "forbidden",
        _ => "",
    }
}

/// Whether a caller came as far as the handler.
fn is_let_in((status, code): &CallOutcome) -> bool {
    *status != StatusCode::UNAUTHORIZED && code != "forbidden"
}

/// Whether a caller that is known was refused for its roles or its scope.
fn is_forbidden((status, code): &CallOutcome) -> bool {
    *status == StatusCode::FORBIDDEN && code == "forbidden"
}

/// A path with something in the place of its parameters.
fn filled(path: &str) -> String {
    let id = "0123456789abcdef0123456789abcdef";
    let parts: Vec<_> = path
        .split('/')
        .map(|part| if part.starts_with('{') { id } else { part })
        .collect();
    parts.join("/")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_lets_in_the_roles_that_have_its_right_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let by_role = api.token_of_each_role().await;
    let revoked = api.token("revoked", &[AccessRole::Admin], AccessScope::default()).await;
    api.tokens.revoke("revoked", &AuditActor::default()).await.unwrap();
    let expired = api.expiring("expired", Duration::from_secs(60)).await;
    assert!(
        is_let_in(&api.bearer(&Method::GET, "/version", &expired).await),
        "not yet expired"
    );
    api.clock.forward(Duration::from_secs(60));
    let unknown = ApiToken::generate(&crate::testing::entropy());
    let bad: Vec<(&str, Option<String>)> = vec![
        ("no token", None),
        (
            "an unknown token",
            Some(format!("Bearer {}", unknown.expose().replace('a', "b"))),
        ),
        ("a revoked token", Some(format!("Bearer {}", revoked.expose()))),
        ("an expired token", Some(format!("Bearer {}", expired.expose()))),
        ("no bearer", Some("Basic cGx0XzE6".to_owned())),
        (
            "half a token",
            Some(format!("Bearer {}", &by_role[&AccessRole::Admin].expose()[..40])),
        ),
        ("nothing", Some("Bearer ".to_owned())),
    ];

    let routes = every_route();
    let reads = routes.iter().filter(|(method, ..)| *method == Method::GET).count();
    let all = routes.len() * (bad.len() + AccessRole::ALL.len()) + reads * AccessRole::ALL.len();
    let mut cells = 0;
    for (method, path, right) in routes {
        let path = filled(path);
        for (what, value) in &bad {
            let answered = api.ask(&method, &path, value.as_deref()).await;
            let let_in = right == AccessRight::Anybody;
            assert_eq!(is_let_in(&answered), let_in, "{what}: {method} {path}: {answered:?}");
            assert!(
                let_in || answered.0 == StatusCode::UNAUTHORIZED,
                "{what}: {method} {path}: {answered:?}"
            );
            cells += 1;
        }
        for (role, token) in &by_role {
            let answered = api.bearer(&method, &path, token).await;
            assert_eq!(
                is_let_in(&answered),
                role.has(right),
                "{role}: {method} {path}: {answered:?}"
            );
            assert!(answered.0 != StatusCode::UNAUTHORIZED, "{role}: {method} {path}");
            cells += 1;
            if method == Method::GET {
                // Its answer has no body that would say why.
                let (status, _) = api.bearer(&Method::HEAD, &path, token).await;
                let is_refused = status == StatusCode::FORBIDDEN;
                assert_eq!(is_refused, !role.has(right), "{role}: HEAD {path}: {status}");
                assert_ne!(status, StatusCode::UNAUTHORIZED, "{role}: HEAD {path}");
                cells += 1;
            }
        }
    }
    assert_eq!(cells, all);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn liveness_alone_is_open_to_anybody_asked_for_with_get_or_with_head() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let routes = every_route();
    let open = routes.iter().filter(|(.., right)| *right == AccessRight::Anybody);
    let open: Vec<_> = open.map(|(method, path, _)| (method.as_str(), *path)).collect();
    assert_eq!(open, [("GET", "/healthz")]);
    for (_, path, _) in routes.iter().filter(|(method, ..)| *method == Method::GET) {
        let (status, _) = api.ask(&Method::HEAD, &filled(path), None).await;
        let wanted = match *path {
            "/healthz" => StatusCode::OK,
            _ => StatusCode::UNAUTHORIZED,
        };
        assert_eq!(status, wanted, "HEAD {path}");
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_no_row_names_and_a_method_that_it_lacks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    for (method, path, wanted) in [
        (Method::GET, "/nothing", StatusCode::NOT_FOUND),
        (Method::DELETE, "/api/v1/racks", StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/healthz", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        assert_eq!(api.bearer(&method, path, &admin).await.0, wanted, "{method} {path}");
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_believed_only_without_a_proxy_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let ask = |headers: &str| {
        let request = format!("GET /api/v1/whoami HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        let addr = mixer.api_addr();
        async move { send(addr, &request).await }
    };
    let local = ask("").await;
    assert_eq!(local.status, 200, "{}", local.body);
    assert_eq!(local.json()["data"]["roles"], json!(["admin"]));
    for name in PROXY_HEADERS {
        assert_eq!(ask(&format!("{name}: 192.0.2.1\r\n")).await.status, 401, "{name}");
    }
    assert_eq!(
        ask("x-request-id: 192.0.2.1\r\n").await.status,
        200,
        "no proxy's header"
    );
    assert_eq!(
        ask("authorization: Bearer plt_1\r\n").await.status,
        401,
        "a bad token is no reason to look elsewhere"
    );
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_authorization_headers_are_no_credential() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let reader = api.token("reader", &[AccessRole::Reader], AccessScope::default()).await;
    let (admin, reader) = (credential(&admin), credential(&reader));
    let (admin, reader) = (admin.as_str(), reader.as_str());
    for (first, second) in [
        (admin, reader),
        (reader, admin),
        (admin, admin),
        (admin, "Bearer plt_1"),
        ("", admin),
    ] {
        let asked = request(&Method::GET, "/api/v1/tokens")
            .header(header::AUTHORIZATION, first)
            .header(header::AUTHORIZATION, second);
        let answered = api.outcome(asked).await;
        let answered = (answered.0.as_u16(), answered.1.as_str());
        assert_eq!(answered, (401, "unauthorized"), "{first:.12}, then {second:.12}");
    }
    let answered = api.ask(&Method::GET, "/api/v1/tokens", Some(admin)).await;
    assert_eq!(answered.0, StatusCode::OK);
    let joined = format!("{admin}, {admin}");
    let answered = api.ask(&Method::GET, "/api/v1/tokens", Some(&joined)).await;
    assert_eq!(answered.0, StatusCode::UNAUTHORIZED, "two in one header are none");
    mixer.close().await;
}
