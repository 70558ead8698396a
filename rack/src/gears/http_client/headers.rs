//! The headers that a scenario sets.
//!
//! # Invariants
//!
//! - A secret never stands in a scenario: a header whose name sounds like one takes its value from the environment of the Rack.
//! - The Rack's own settings (`PLATFORM_…`) are not given away.

use std::collections::BTreeMap;

use chassis::config::{Resolved, resolve};
use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

use super::super::naming::{FLUX_ID, FLUX_PARENT};

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
const TRACED: [&str; 3] = ["traceparent", FLUX_ID, FLUX_PARENT];

/// Says what is wrong with headers as they stand in a scenario.
pub(in crate::gears) fn validate(headers: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, text) in headers {
        one(name, text, |_| Some(String::new()))?;
    }
    Ok(())
}

/// The headers with their values.
pub(in crate::gears) fn resolved(
    headers: &BTreeMap<String, String>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<HeaderMap, String> {
    headers.iter().map(|(name, text)| one(name, text, &env)).collect()
}

fn one(name: &str, text: &str, env: impl Fn(&str) -> Option<String>) -> Result<(HeaderName, HeaderValue), String> {
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("headers: {name:?} is no header's name"))?;
    if OURS.contains(&key) || TRACED.contains(&key.as_str()) {
        return Err(format!("headers.{name} is not for a scenario to set; leave it out"));
    }
    let is_secret = SECRET.iter().any(|part| key.as_str().contains(part));
    let mut own = None;
    let found = resolve(text, |variable| {
        if variable.starts_with("PLATFORM_") {
            own = Some(variable.to_owned());
        }
        env(variable)
    });
    if let Some(variable) = own {
        return Err(format!(
            "headers.{name}: ${{{variable}}} is a setting of the Rack itself and is not given away; use another variable"
        ));
    }
    let value = match found {
        Resolved::Text(value) => value,
        Resolved::Plain if is_secret => {
            return Err(format!(
                "headers.{name} is a secret and must not stand in a scenario: write a reference such as \"${{API_TOKEN}}\" \
                 and set that variable in the environment of the Rack"
            ));
        }
        Resolved::Plain => text.to_owned(),
        Resolved::Unset(variable) => {
            return Err(format!(
                "headers.{name} refers to ${{{variable}}}, which is not set in the environment of this Rack"
            ));
        }
    };
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
                error.contains(name) && error.contains("must not stand in a scenario"),
                "{error}"
            );
            let value = &check(name, "Bearer ${GOOD}").unwrap()[name];
            assert!(value == "Bearer hush" && value.is_sensitive());
        }
        assert_eq!(check("x-color", "blue").unwrap()["x-color"], "blue");
        for (name, value, says) in [
            ("authorization", "${BAD}", "${BAD}, which is not set"),
            ("x-y", "${PLATFORM_SNAKE_TOKEN}", "is not given away"),
            ("a b", "x", "no header's name"),
            ("x-y", "a\nb", "characters"),
            ("Content-Length", "3", "not for a scenario to set"),
            ("traceparent", "3", "not for a scenario to set"),
            ("Flux-Id", "3", "not for a scenario to set"),
            ("flux-parent", "3", "not for a scenario to set"),
        ] {
            let error = check(name, value).unwrap_err();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
