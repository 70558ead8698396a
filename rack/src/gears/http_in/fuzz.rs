//! Fuzz targets of the credentials of requests: a bearer token and a signature.
//!
//! # Invariants
//!
//! - Who is let in has shown the very token, or the very signature in digits of either case.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use model::fuzz::FuzzTarget;
use ring::hmac;

use super::super::request_authentication::RequestAuthentication;

const TOKEN: &str = "a token of enough bytes";
const BODY: &[u8] = b"order";

/// The targets.
pub(in crate::gears) fn fuzz_targets() -> Vec<FuzzTarget> {
    vec![bearer(), signature()]
}

fn headers(name: HeaderName, value: &[u8]) -> HeaderMap {
    let value = HeaderValue::from_bytes(value).into_iter();
    value.map(|value| (name.clone(), value)).collect()
}

fn bearer() -> FuzzTarget {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
    let token = hmac::sign(&key, TOKEN.as_bytes());
    let wanted = RequestAuthentication::Bearer { key, token };
    let samples = vec![
        format!("Bearer {TOKEN}").into_bytes(),
        format!("bearer  {TOKEN} ").into_bytes(),
    ];
    FuzzTarget::new("tokens.bearer", samples, move |value| {
        let is_known = wanted.check_headers(&headers(AUTHORIZATION, value)).is_ok();
        let shown = value.get("bearer ".len()..).unwrap_or_default().trim_ascii();
        assert!(!is_known || shown == TOKEN.as_bytes(), "it takes another token");
        is_known
    })
}

fn signature() -> FuzzTarget {
    let key = hmac::Key::new(hmac::HMAC_SHA256, TOKEN.as_bytes());
    let header = HeaderName::from_static("x-signature");
    let digits = model::hex::encode(hmac::sign(&key, BODY).as_ref());
    let wanted = RequestAuthentication::Signature {
        key,
        header: header.clone(),
    };
    let samples = vec![
        format!("sha256={digits}").into_bytes(),
        digits.to_uppercase().into_bytes(),
    ];
    FuzzTarget::new("tokens.signature", samples, move |value| {
        let is_known = wanted.check_body(&headers(header.clone(), value), BODY).is_ok();
        let shown = value.strip_prefix(b"sha256=").unwrap_or(value);
        assert!(
            !is_known || shown.eq_ignore_ascii_case(digits.as_bytes()),
            "it takes another signature"
        );
        is_known
    })
}
