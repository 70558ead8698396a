//! DNS rebinding, CSRF and CORS: what browsers send for pages of others, by any route, and what answers allow them; and tokens where no
//! credential belongs.

use axum::routing::get;
use http::HeaderMap;

use super::*;

/// Every route with something in the place of its parameters, and paths that no route has.
fn paths() -> Vec<(Method, String)> {
    let routes = every_route()
        .into_iter()
        .map(|(method, path, _)| (method, filled(path)));
    let nowhere = [(Method::GET, "/nothing"), (Method::POST, "/api/v1/nothing")];
    routes
        .chain(nowhere.map(|(method, path)| (method, path.to_owned())))
        .collect()
}

/// A request with these headers and no others.
fn bare(method: &Method, path: &str, headers: &[(&str, &str)]) -> Builder {
    let request = Request::builder().method(method).uri(path);
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_under_a_name_that_is_not_the_mixers() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let admin = credential(&admin);
    let admin = admin.as_str();
    for (method, path) in paths() {
        for host in [
            "evil.example",
            "evil.example:8090",
            "localhost.evil.example",
            "192.0.2.1",
        ] {
            let asked = bare(&method, &path, &[("host", host), ("authorization", admin)]);
            let answered = api.outcome(asked).await;
            let wanted = (StatusCode::MISDIRECTED_REQUEST, "unknown_host".to_owned());
            assert_eq!(answered, wanted, "{host}: {method} {path}");
        }
        let asked = bare(&method, &path, &[("host", "127.0.0.1:8090"), ("authorization", admin)]);
        let answered = api.outcome(asked).await;
        assert_ne!(answered.0, StatusCode::MISDIRECTED_REQUEST, "{method} {path}");
        assert!(is_let_in(&answered), "{method} {path}: {answered:?}");
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_of_another_site_asks_anything_by_any_route() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let admin = credential(&admin);
    let admin = admin.as_str();
    let of_others = [
        ("origin", "null"),
        ("origin", "http://evil.example"),
        ("origin", "http://localhost:3000"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ];
    let refused = (StatusCode::FORBIDDEN, "cross_origin".to_owned());
    for (method, path) in paths() {
        for (name, value) in of_others {
            let headers = [("host", "localhost"), ("authorization", admin), (name, value)];
            let answered = api.outcome(bare(&method, &path, &headers)).await;
            assert_eq!(answered, refused, "{name}: {value}: {method} {path}");
        }
        // Whoever follows a link of another page sees an answer that the page does not; no browser has the token.
        let headers = [
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let followed = api.outcome(bare(&method, &path, &headers)).await;
        match (method.as_str(), path.as_str()) {
            ("GET", "/healthz") => assert_eq!(followed.0, StatusCode::OK),
            ("GET", "/nothing") => assert_eq!(followed.0, StatusCode::NOT_FOUND),
            ("GET", _) => assert_eq!(followed.0, StatusCode::UNAUTHORIZED, "{path}"),
            _ => assert_eq!(followed, refused, "{method} {path}"),
        }
    }
    for own in [
        ("origin", "http://localhost"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
    ] {
        let headers = [("host", "localhost"), ("authorization", admin), own];
        let answered = api.outcome(bare(&Method::GET, "/version", &headers)).await;
        assert_eq!(answered.0, StatusCode::OK, "{own:?}");
    }
    mixer.close().await;
}

/// That browsers take an answer for what it says that it is, and give it to pages of this origin alone.
fn assert_protected(headers: &HeaderMap, what: &str) {
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{what}");
    assert_eq!(headers["cross-origin-resource-policy"], "same-origin", "{what}");
    let shared = headers.keys().find(|name| name.as_str().starts_with("access-control-"));
    assert_eq!(shared, None, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_for_pages_of_its_own_origin_and_allows_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let ingester = api
        .token("ingester", &[AccessRole::Ingester], AccessScope::default())
        .await;
    let (admin, ingester) = (credential(&admin), credential(&ingester));
    let own = ("origin", "http://localhost");
    let preflight = ("access-control-request-method", "POST");
    let as_admin = ("authorization", admin.as_str());
    for (method, path, host, headers, status) in [
        (Method::GET, "/healthz", "localhost", vec![own], 200),
        (Method::GET, "/version", "localhost", vec![own, as_admin], 200),
        (Method::GET, "/api/v1/racks", "localhost", vec![own, as_admin], 200),
        (
            Method::GET,
            "/api/v1/openapi.json",
            "localhost",
            vec![own, as_admin],
            200,
        ),
        (
            Method::GET,
            "/api/v1/telemetry/logs/tail",
            "localhost",
            vec![own, as_admin],
            200,
        ),
        (Method::POST, "/api/v1/sql", "localhost", vec![own, as_admin], 400),
        (Method::GET, "/api/v1/racks", "localhost", vec![own], 401),
        (Method::POST, "/api/v1/backup", "localhost", vec![own], 401),
        (
            Method::GET,
            "/api/v1/racks",
            "localhost",
            vec![own, ("authorization", ingester.as_str())],
            403,
        ),
        (
            Method::GET,
            "/version",
            "localhost",
            vec![("origin", "http://evil.example"), as_admin],
            403,
        ),
        (Method::GET, "/nothing", "localhost", vec![own, as_admin], 404),
        (Method::GET, "/nothing", "localhost", vec![own], 404),
        (
            Method::GET,
            "/api/v1/racks/nobody",
            "localhost",
            vec![own, as_admin],
            404,
        ),
        (Method::DELETE, "/api/v1/racks", "localhost", vec![own, as_admin], 405),
        (Method::OPTIONS, "/api/v1/racks", "localhost", vec![own, preflight], 405),
        (Method::OPTIONS, "/healthz", "localhost", vec![own, preflight], 405),
        (
            Method::OPTIONS,
            "/api/v1/racks",
            "localhost",
            vec![("origin", "http://evil.example"), preflight],
            403,
        ),
        (Method::GET, "/version", "evil.example", vec![as_admin], 421),
        (Method::GET, "/nothing", "evil.example", vec![], 421),
        (
            Method::OPTIONS,
            "/api/v1/racks",
            "evil.example",
            vec![("origin", "http://evil.example"), preflight],
            421,
        ),
    ] {
        let what = format!("{method} {path} of {host} with {headers:?}");
        let asked = bare(&method, path, &headers).header(header::HOST, host);
        let answer = api.respond(asked, Body::empty()).await;
        assert_eq!(answer.status().as_u16(), status, "{what}");
        assert_protected(answer.headers(), &what);
    }
    mixer.close().await;
}

/// A handler with a defect.
async fn defect() -> StatusCode {
    panic!("words of the defect")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_a_panic_is_for_pages_of_its_own_origin_too() {
    let bench = Bench::new().await;
    // A path of the table, which anybody may ask for: no other one reaches its handler.
    let routes = Router::new().route("/healthz", get(defect));
    let router = guarded(routes, Arc::clone(&bench.exposition), bench.guards.clone());
    let asked = request(&Method::GET, "/healthz").body(Body::empty()).unwrap();
    let answer = router.oneshot(asked).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_protected(answer.headers(), "a panic");
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["code"], "internal", "{problem}");
    assert!(!problem.to_string().contains("words of the defect"), "{problem}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_cookie_an_address_or_another_header_is_no_credential() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let (secret, whole) = (admin.expose(), credential(&admin));
    let whole = whole.as_str();
    let cookie = format!("token={secret}; access_token={secret}; Authorization={whole}");
    let elsewhere = [
        ("cookie", cookie.as_str()),
        ("x-api-key", secret),
        ("x-auth-token", secret),
        ("x-authorization", whole),
        ("proxy-authorization", whole),
        ("authorization", secret),
    ];
    let refused = (StatusCode::UNAUTHORIZED, "unauthorized".to_owned());
    let guarded = every_route()
        .into_iter()
        .filter(|(.., right)| *right != AccessRight::Anybody);
    for (method, path, _) in guarded {
        let path = filled(path);
        for (name, value) in elsewhere {
            let asked = bare(&method, &path, &[("host", "localhost"), (name, value)]);
            assert_eq!(api.outcome(asked).await, refused, "{name}: {method} {path}");
        }
        for name in ["token", "access_token", "authorization", "api_key"] {
            let asked = request(&method, &format!("{path}?{name}={secret}"));
            assert_eq!(api.outcome(asked).await, refused, "?{name}=: {method} {path}");
        }
    }
    let both = [
        ("host", "localhost"),
        ("authorization", "Bearer plt_1"),
        ("cookie", cookie.as_str()),
    ];
    let answered = api.outcome(bare(&Method::GET, "/version", &both)).await;
    assert_eq!(answered, refused, "a bad token is no reason to look elsewhere");
    let proper = api.bearer(&Method::GET, "/version", &admin).await;
    assert_eq!(proper.0, StatusCode::OK);
    mixer.close().await;
}
