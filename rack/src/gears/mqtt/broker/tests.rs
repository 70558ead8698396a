//! What may be configured of a broker, and what it means.

#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::{Value, json};

use super::*;

fn broker(more: Value) -> Result<BrokerConfig, String> {
    let mut config = json!({ "address": "broker.example:8883", "client_id": "c" });
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let broker: BrokerConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
    broker.validate().map(|()| broker)
}

#[test]
fn a_broker_that_makes_no_sense_is_refused_by_the_name_of_its_key() {
    for (more, says) in [
        (json!({ "address": "broker" }), "broker.address"),
        (json!({ "client_id": "" }), "broker.client_id"),
        (json!({ "version": "4" }), "version must be 3.1.1 or 5"),
        (json!({ "version": 3.1 }), "version must be 3.1.1 or 5"),
        (
            json!({ "user": "u", "password": "plain" }),
            "broker.password is a secret",
        ),
        (json!({ "password": "${P}" }), "broker.user must be set"),
        (json!({ "user": "u", "password": "${PLATFORM_X}" }), "is not given away"),
        (
            json!({ "user": "u", "password": "${P}", "password_file": "p" }),
            "exclude each other",
        ),
        (json!({ "keep_alive": "500ms" }), "broker.keep_alive"),
        (json!({ "connect_timeout": "0s" }), "broker.connect_timeout"),
        (json!({ "reconnect_min": "1m" }), "broker.reconnect_max"),
        (json!({ "tls": { "key_file": "k" } }), "belong together"),
        (json!({ "tls": { "server_name": "a b" } }), "broker.tls.server_name"),
        (json!({ "tls": { "ca": "k" } }), "unknown field `ca`"),
    ] {
        let error = broker(more.clone()).unwrap_err();
        assert!(error.contains(says), "{more}: {error}");
    }
    assert_eq!(broker(json!({})).unwrap().version, MqttVersion::V5);
    for (written, meant) in [
        (json!(5), MqttVersion::V5),
        (json!("5"), MqttVersion::V5),
        (json!("3.1.1"), MqttVersion::V3),
    ] {
        assert_eq!(broker(json!({ "version": written })).unwrap().version, meant);
    }
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
        let error = broker(more).unwrap().endpoint(None).err().unwrap();
        assert!(error.contains(says), "{error}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hush\n").unwrap();
    let endpoint = broker(json!({ "user": "u", "password_file": file.path() }))
        .unwrap()
        .endpoint(None)
        .unwrap();
    assert_eq!(endpoint.password.as_deref(), Some("hush"));
    std::fs::write(file.path(), "hu\0sh\n").unwrap();
    let broker = broker(json!({ "user": "u", "password_file": file.path() })).unwrap();
    let error = broker.endpoint(None).err().unwrap();
    assert!(error.contains("broker.password has"), "{error}");
}

#[test]
fn each_rack_of_a_group_has_a_client_identifier_of_its_own_and_a_short_session_is_rounded_up() {
    let endpoint = |more| {
        broker(more)
            .unwrap()
            .endpoint(Some(&"rack-b".parse().unwrap()))
            .unwrap()
    };
    let short = endpoint(json!({ "session_expiry": "1500ms" }));
    assert_eq!((short.client_id.as_str(), short.session_expiry), ("c-rack-b", 2));
    let exact = endpoint(json!({ "client_id": "x-${CARGO_PKG_NAME}", "session_expiry": "0s" }));
    let name = std::env::var("CARGO_PKG_NAME").unwrap();
    assert_eq!((exact.client_id, exact.session_expiry), (format!("x-{name}"), 0));
}
