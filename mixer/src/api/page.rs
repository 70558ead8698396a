//! Static files: the page, which the build script (`build.rs`) packs into the program.
//!
//! | path | answer |
//! |---|---|
//! | `/` | `index.html`, to be asked for each time; it names the others by the digest of all of them |
//! | `/web/{digest}/{file}` | a file, to be kept for ever: what another build has is at another digest, and asked for here the problem `other_build` |
//!
//! # Invariants
//!
//! - Anybody may load it: who is about to log in has shown no token yet. It has nothing that is not in the source.
//! - Files go as the build gzipped them, or as they are to clients that take no gzip.
//! - Browsers run, load and send nothing that leads elsewhere (`Content-Security-Policy`), and show the page in no frame.
//!
//! # Not here
//!
//! What the page shows (`web/`); the hosts that it is served under (`chassis::host_guard`).

#[cfg(test)]
mod tests;

use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::problem::ApiProblem;
use super::row_response::known_tags;

const INDEX_PATH: &str = "/";
const FILE_PATH: &str = "/web/{*file}";
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// A file of the page.
struct PageFile {
    path: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    /// Gzipped.
    packed: &'static [u8],
}

pub(super) fn routes() -> Router {
    Router::new()
        .route(INDEX_PATH, get(index))
        .route(FILE_PATH, get(file))
        .layer(middleware::map_response(protect))
}

/// Whether a path, as the router writes it, is the page's.
pub(super) fn is_path(path: &str) -> bool {
    [INDEX_PATH, FILE_PATH].contains(&path)
}

async fn index(headers: HeaderMap) -> Response {
    INDEX.answer(&headers, "no-cache")
}

async fn file(uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path();
    let Some((digest, name)) = path.strip_prefix("/web/").and_then(|path| path.split_once('/')) else {
        return ApiProblem::no_route(path).into_response();
    };
    if digest == DIGEST
        && let Some(file) = FILES.iter().find(|file| file.path == name)
    {
        return file.answer(&headers, "public, max-age=31536000, immutable");
    }
    let is_other = digest != DIGEST && is_digest(digest);
    let problem = match is_other {
        true => ApiProblem::other_build(path),
        false => ApiProblem::no_route(path),
    };
    problem.into_response()
}

/// Whether a build may have this digest.
fn is_digest(text: &str) -> bool {
    text.len() == DIGEST.len() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

async fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

impl PageFile {
    /// The answer to a request for it, which a browser keeps as `keep` says.
    fn answer(&self, request: &HeaderMap, keep: &'static str) -> Response {
        // A weak one: it is the same however the file is encoded.
        let tag = format!("W/\"{DIGEST}\"");
        let is_known = known_tags(request).contains(&tag);
        let caching = [(ETAG, tag), (CACHE_CONTROL, keep.to_owned())];
        if is_known {
            return (StatusCode::NOT_MODIFIED, caching).into_response();
        }
        let kind = [(CONTENT_TYPE, self.content_type)];
        if takes_gzip(request) {
            return (caching, kind, [(CONTENT_ENCODING, "gzip")], self.packed).into_response();
        }
        (caching, kind, self.plain).into_response()
    }
}

/// Whether a client names gzip among the encodings that it takes.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let mut encodings = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    encodings.any(|encoding| {
        let (name, weight) = encoding.split_once(';').unwrap_or((encoding, "q=1"));
        let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight.is_ok_and(|weight| weight > 0.0))
    })
}
