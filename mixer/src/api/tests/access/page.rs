//! The page: files of the program, for anybody who asks this very host for them.

use std::io;

use http::HeaderMap;

use super::*;

/// What a browser is told of the page.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The answer to a request: its status, its headers and its bytes.
async fn answer_to(api: &GuardedApi, asked: Builder) -> (StatusCode, HeaderMap, Vec<u8>) {
    let (head, body) = api.respond(asked, Body::empty()).await.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (head.status, head.headers, body.to_vec())
}

fn get(path: &str) -> Builder {
    request(&Method::GET, path)
}

/// The index, and where its files are.
async fn index_of(api: &GuardedApi) -> (HeaderMap, String, String) {
    let (status, headers, body) = answer_to(api, get("/")).await;
    assert_eq!(status, StatusCode::OK);
    let index = String::from_utf8(body).unwrap();
    let (base, _) = index.split_once("/app/main.js").unwrap();
    let base = base.rsplit('"').next().unwrap().to_owned();
    (headers, index, base)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_loaded_without_a_token_by_the_names_that_its_index_has() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let refused = api.ask(&Method::GET, "/api/v1/whoami", None).await;
    assert_eq!(refused.0, StatusCode::UNAUTHORIZED, "the API asks for one");

    let (headers, index, base) = index_of(&api).await;
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-cache"),
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(!index.contains("{{"), "{index}");
    let digest = base.strip_prefix("/web/").unwrap();
    assert!(
        digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{base}"
    );
    // What the script imports is asked for with it, and what it imports later is not.
    let preloads = |file: &str| index.contains(&format!("<link rel=\"modulepreload\" href=\"{base}/{file}\" />"));
    for file in [
        "app/main.js",
        "app/html.js",
        "vendor/preact.js",
        "vendor/hooks.js",
        "vendor/htm.js",
    ] {
        assert!(preloads(file), "{file}: {index}");
    }
    assert!(!preloads("app/pages/overview.js"), "{index}");

    let files: Vec<&str> = index.split('"').filter(|text| text.starts_with(&base)).collect();
    assert!(files.len() > 8, "{index}");
    for path in files {
        let browser = get(path).header(header::ACCEPT_ENCODING, "gzip, deflate, br, zstd");
        let (status, headers, packed) = answer_to(&api, browser).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        let kind = match path.rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        for (name, value) in [
            ("content-type", kind),
            ("cache-control", "public, max-age=31536000, immutable"),
            ("content-encoding", "gzip"),
            ("vary", "accept-encoding"),
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(headers[name], value, "{path}: {name}");
        }
        let mut unpacked = Vec::new();
        io::copy(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
        let without = get(path).header(header::ACCEPT_ENCODING, "gzip;q=0");
        let (_, headers, plain) = answer_to(&api, without).await;
        assert!(!headers.contains_key(header::CONTENT_ENCODING), "{path}");
        let file = path.strip_prefix(&base).unwrap();
        let source = std::fs::read(format!("{}/../web{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(plain == unpacked, "{path}");
        // Of our own files, comments and indentation are left out (`api::page::tests`), and lines stay lines.
        let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
        let is_own = !file.starts_with("/vendor/");
        assert_eq!(lines(&plain), lines(&source), "{path} is not web{file}");
        assert!(is_own || plain == source, "{path} is not web{file}");
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_browser_has_of_the_page_is_not_sent_again_and_another_builds_files_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let (_, _, base) = index_of(&api).await;
    let script = format!("{base}/app/main.js");
    for path in ["/", script.as_str()] {
        let (_, headers, whole) = answer_to(&api, get(path)).await;
        let tag = &headers[header::ETAG];
        let known = get(path).header(header::IF_NONE_MATCH, tag.clone());
        let (status, again, body) = answer_to(&api, known).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
        assert_eq!(again[header::ETAG], tag, "{path}");
        assert_eq!(again[header::CACHE_CONTROL], headers[header::CACHE_CONTROL], "{path}");
        let other = get(path).header(header::IF_NONE_MATCH, "W/\"0123456789abcdef\"");
        let (status, _, body) = answer_to(&api, other).await;
        assert_eq!((status, &body), (StatusCode::OK, &whole), "{path}");

        let (status, headers, body) = answer_to(&api, request(&Method::HEAD, path)).await;
        assert_eq!((status, body.len()), (StatusCode::OK, 0), "HEAD {path}");
        assert_eq!(headers[header::CONTENT_LENGTH], whole.len().to_string(), "HEAD {path}");
        let (status, headers, _) = answer_to(&api, request(&Method::POST, path)).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "POST {path}");
        assert_eq!(headers[header::ALLOW], "GET,HEAD", "POST {path}");
    }
    // What an open page asks for after an upgrade.
    for file in ["app/main.js", "app/pages/gone.js"] {
        let path = format!("/web/0123456789abcdef/{file}");
        let (status, headers, body) = answer_to(&api, get(&path)).await;
        let kind = headers[header::CONTENT_TYPE].to_str().unwrap();
        assert_eq!(
            (status, kind),
            (StatusCode::NOT_FOUND, "application/problem+json"),
            "{path}"
        );
        assert!(!headers.contains_key(header::CACHE_CONTROL), "{path}");
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "other_build", "{path}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(&path) && detail.ends_with("load the page again"),
            "{detail}"
        );
    }
    for path in [
        "/web/0123456789ABCDEF/app/main.js",
        "/web/0123456789abcdef",
        "/web/app/main.js",
        "/web/",
        "/index.html",
        &format!("{base}0/app/main.js"),
        &format!("{base}/app/nothing.js"),
        &format!("{base}/app/main.js/"),
        &format!("{base}/../Cargo.toml"),
        &format!("{base}/index.html"),
        &format!("{base}/vendor/SHA256SUMS"),
    ] {
        let answered = api.outcome(get(path)).await;
        assert_eq!(answered, (StatusCode::NOT_FOUND, "no_route".to_owned()), "{path}");
        let (_, headers, _) = answer_to(&api, get(path)).await;
        assert!(!headers.contains_key(header::CACHE_CONTROL), "{path}");
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_under_its_own_host_to_its_own_origin_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let (_, _, base) = index_of(&api).await;
    let script = format!("{base}/app/main.js");
    for path in ["/", script.as_str()] {
        let foreign = Request::builder().uri(path).header(header::HOST, "evil.example");
        let refused = (StatusCode::MISDIRECTED_REQUEST, "unknown_host".to_owned());
        assert_eq!(api.outcome(foreign).await, refused, "{path}");
        let embedded = get(path).header("sec-fetch-site", "cross-site");
        let refused = (StatusCode::FORBIDDEN, "cross_origin".to_owned());
        assert_eq!(api.outcome(embedded).await, refused, "{path}");
        let own = get(path).header("sec-fetch-site", "same-origin");
        assert_eq!(api.outcome(own).await.0, StatusCode::OK, "{path}");
    }
    let followed = get("/")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document");
    assert_eq!(api.outcome(followed).await.0, StatusCode::OK, "a link to the page");
    mixer.close().await;
}
