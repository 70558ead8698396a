//! What the configuration of a broker means.

#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::{Value, json};

use super::*;

fn broker(more: Value) -> BrokerConfig {
    let mut config = json!({ "address": "broker.example:8883", "client_id": "c" });
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    serde_json::from_value(config).unwrap()
}

#[test]
fn files_and_variables_that_are_missing_are_named() {
    for (more, says) in [
        (
            json!({ "user": "u", "password": "${NO_SUCH_VARIABLE_9}" }),
            "${NO_SUCH_VARIABLE_9}, which is not set",
        ),
        (
            json!({ "user": "u", "password_file": "/no/such" }),
            "broker.password_file /no/such: ",
        ),
        (
            json!({ "tls": { "ca_file": "/no/such" } }),
            "broker.tls: ca_file /no/such: ",
        ),
    ] {
        let error = BrokerEndpoint::of(&broker(more), None, &RackPolicy::for_tests())
            .err()
            .unwrap();
        assert!(error.contains(says), "{error}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hush\n").unwrap();
    let endpoint = BrokerEndpoint::of(
        &broker(json!({ "user": "u", "password_file": file.path() })),
        None,
        &RackPolicy::for_tests(),
    )
    .unwrap();
    assert_eq!(endpoint.password.as_deref(), Some("hush"));
    std::fs::write(file.path(), "hu\0sh\n").unwrap();
    let broker = broker(json!({ "user": "u", "password_file": file.path() }));
    let error = BrokerEndpoint::of(&broker, None, &RackPolicy::for_tests())
        .err()
        .unwrap();
    assert!(error.contains("broker.password has"), "{error}");
}

#[test]
fn each_rack_of_a_group_has_a_client_identifier_of_its_own_and_a_short_session_is_rounded_up() {
    let endpoint = |more| {
        BrokerEndpoint::of(
            &broker(more),
            Some(&"rack-b".parse().unwrap()),
            &RackPolicy::for_tests(),
        )
        .unwrap()
    };
    let short = endpoint(json!({ "session_expiry": "1500ms" }));
    assert_eq!((short.client_id.as_str(), short.session_expiry), ("c-rack-b", 2));
    let exact = endpoint(json!({ "client_id": "x-${CARGO_PKG_NAME}", "session_expiry": "0s" }));
    let name = std::env::var("CARGO_PKG_NAME").unwrap();
    assert_eq!((exact.client_id, exact.session_expiry), (format!("x-{name}"), 0));
}
