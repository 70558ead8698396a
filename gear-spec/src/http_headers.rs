//! The headers of requests that a scenario sets.
//!
//! # Invariants
//!
//! - A header whose name sounds like a secret takes its value from the environment of the Rack (`secret_references`).

use std::collections::BTreeMap;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Uri};
use model::trace_context::{BAGGAGE, TRACEPARENT, TRACESTATE};

use crate::network_address::is_loopback_host;
use crate::secret_references::{self, ValueSecrecy};

/// The header that names the business signal.
pub const FLUX_ID: &str = "flux-id";
/// The header that names the message that a request was made of.
pub const FLUX_PARENT: &str = "flux-parent";
/// Parts of names of headers whose values are secrets.
const SECRET: [&str; 7] = [
    "authorization",
    "cookie",
    "credential",
    "key",
    "password",
    "secret",
    "token",
];
/// Headers that HTTP sets.
const OURS: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers by which gears say what a message belongs to.
const TRACED: [&str; 5] = [TRACEPARENT, TRACESTATE, BAGGAGE, FLUX_ID, FLUX_PARENT];

/// Says what is wrong with headers as they stand in a scenario.
pub(crate) fn validate(headers: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, text) in headers {
        one(name, text, |_| Some(String::new()))?;
    }
    Ok(())
}

/// Says that a value of the environment would go over the network in clear.
pub(crate) fn check_secrecy(url: &Uri, headers: &BTreeMap<String, String>) -> Result<(), String> {
    let is_safe = url.scheme_str() == Some("https") || url.host().is_some_and(is_loopback_host);
    let mut referring = headers.iter().filter(|(_, text)| text.contains("${"));
    match referring.next() {
        Some((name, _)) if !is_safe => Err(format!(
            "headers.{name} has a value of the Rack's environment, and anybody on the way to an http:// address reads it: use https://, or set \
             allow_insecure to true"
        )),
        _ => Ok(()),
    }
}

/// The headers with their values.
///
/// # Errors
/// A sentence that names the header.
pub fn resolved(headers: &BTreeMap<String, String>, env: impl Fn(&str) -> Option<String>) -> Result<HeaderMap, String> {
    headers.iter().map(|(name, text)| one(name, text, &env)).collect()
}

fn one(name: &str, text: &str, env: impl Fn(&str) -> Option<String>) -> Result<(HeaderName, HeaderValue), String> {
    let key =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("headers: {name:?} is not a header's name"))?;
    if OURS.contains(&key) || TRACED.contains(&key.as_str()) {
        return Err(format!("headers.{name} is not for a scenario to set; leave it out"));
    }
    let is_secret = SECRET.iter().any(|part| key.as_str().contains(part));
    let secrecy = if is_secret {
        ValueSecrecy::Secret
    } else {
        ValueSecrecy::Plain
    };
    let value = secret_references::resolved(&format!("headers.{name}"), text, secrecy, env)?;
    let value = HeaderValue::from_str(&value).map(|mut value| {
        value.set_sensitive(is_secret);
        value
    });
    let value = value.map_err(|_| format!("headers.{name} has characters that a header must not have"))?;
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn check(name: &str, value: &str) -> Result<HeaderMap, String> {
        let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        validate(&headers)?;
        resolved(&headers, |name| (name == "GOOD").then(|| "hush".to_owned()))
    }

    #[test]
    fn a_secret_comes_from_the_environment_and_never_from_the_scenario() {
        for name in ["Authorization", "x-api-key", "X-Token", "Cookie", "x-secret-thing"] {
            let error = check(name, "plain").unwrap_err();
            assert!(
                error.contains(name) && error.contains("must not be in a scenario"),
                "{error}"
            );
            let value = &check(name, "Bearer ${GOOD}").unwrap()[name];
            assert!(value == "Bearer hush" && value.is_sensitive());
        }
        assert_eq!(check("x-color", "blue").unwrap()["x-color"], "blue");
        for (name, value, says) in [
            ("authorization", "${BAD}", "${BAD}, which is not set"),
            ("x-y", "${PLATFORM_SNAKE_TOKEN}", "is not given away"),
            ("a b", "x", "not a header's name"),
            ("x-y", "a\nb", "characters"),
            ("Content-Length", "3", "not for a scenario to set"),
            ("traceparent", "3", "not for a scenario to set"),
            ("TraceState", "a=3", "not for a scenario to set"),
            ("baggage", "a=3", "not for a scenario to set"),
            ("Flux-Id", "3", "not for a scenario to set"),
            ("flux-parent", "3", "not for a scenario to set"),
        ] {
            let error = check(name, value).unwrap_err();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
