//! What the configuration of a gear asks of its Rack, as far as it says so itself.
//!
//! # Invariants
//!
//! - Each key of a gear's configuration that names a file, an address or a variable is in the table ([`REQUESTS`]); a test holds it against the
//!   schemas of all types.

use std::net::SocketAddr;
use std::path::PathBuf;

use gear_spec::parse_url;
use serde_json::{Map, Value};

/// Something that a gear asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestedAccess {
    Read(PathBuf),
    Write(PathBuf),
    Listen(SocketAddr),
    Connect { host: String, port: u16 },
    Variable(String),
}

/// What the value of a key asks for.
#[derive(Debug, Clone, Copy)]
enum RequestKind {
    Read,
    Write,
    Listen,
    /// `host:port`.
    Connect,
    Url,
    /// A text, or the values of a table, with `${NAME}` references.
    References,
    /// A list of names.
    Variables,
}

/// Types with the keys, as JSON pointers, by which they ask.
const REQUESTS: &[(&[&str], &str, RequestKind)] = &[
    (&["file_tail"], "/path", RequestKind::Read),
    (&["wasm"], "/module", RequestKind::Read),
    (&["http_get", "http_out"], "/ca_file", RequestKind::Read),
    (&["mqtt_in", "mqtt_out"], "/broker/password_file", RequestKind::Read),
    (&["mqtt_in", "mqtt_out"], "/broker/tls/ca_file", RequestKind::Read),
    (
        &["mqtt_in", "mqtt_out"],
        "/broker/tls/certificate_file",
        RequestKind::Read,
    ),
    (&["mqtt_in", "mqtt_out"], "/broker/tls/key_file", RequestKind::Read),
    (&["file_out"], "/path", RequestKind::Write),
    (&["http_in", "syslog_in", "tcp_in"], "/listen", RequestKind::Listen),
    (&["modbus", "tcp_out"], "/address", RequestKind::Connect),
    (&["mqtt_in", "mqtt_out"], "/broker/address", RequestKind::Connect),
    (&["http_get", "http_out"], "/url", RequestKind::Url),
    (&["http_get", "http_out"], "/headers", RequestKind::References),
    (&["mqtt_in", "mqtt_out"], "/broker/client_id", RequestKind::References),
    (&["mqtt_in", "mqtt_out"], "/broker/user", RequestKind::References),
    (&["mqtt_in", "mqtt_out"], "/broker/password", RequestKind::References),
    (&["exec"], "/env", RequestKind::Variables),
];

/// What a configuration that was checked asks for.
pub(super) fn requested_access(kind: &str, config: &Map<String, Value>) -> Vec<RequestedAccess> {
    let config = Value::Object(config.clone());
    let of_kind = REQUESTS.iter().filter(|(kinds, ..)| kinds.contains(&kind));
    let asked = of_kind.filter_map(|(_, pointer, request)| Some((config.pointer(pointer)?, *request)));
    asked.flat_map(|(value, request)| requests(value, request)).collect()
}

fn requests(value: &Value, request: RequestKind) -> Vec<RequestedAccess> {
    let text = value.as_str();
    let one = |access: Option<RequestedAccess>| access.into_iter().collect();
    match request {
        RequestKind::Read => one(text.map(|path| RequestedAccess::Read(path.into()))),
        RequestKind::Write => one(text.map(|path| RequestedAccess::Write(path.into()))),
        RequestKind::Listen => one(text.and_then(|text| text.parse().ok()).map(RequestedAccess::Listen)),
        RequestKind::Connect => one(text.and_then(host_and_port)),
        RequestKind::Url => one(text.and_then(target_of_url)),
        RequestKind::References => texts(value).flat_map(references).collect(),
        RequestKind::Variables => texts(value)
            .map(|name| RequestedAccess::Variable(name.to_owned()))
            .collect(),
    }
}

/// A text, or those in a list or a table.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let listed = value.as_array().into_iter().flatten();
    let named = value.as_object().into_iter().flat_map(|table| table.values());
    std::iter::once(value)
        .chain(listed)
        .chain(named)
        .filter_map(Value::as_str)
}

fn references(text: &str) -> Vec<RequestedAccess> {
    let mut names = Vec::new();
    model::expand_env(text, |name| {
        names.push(RequestedAccess::Variable(name.to_owned()));
        Some(String::new())
    });
    names
}

fn host_and_port(address: &str) -> Option<RequestedAccess> {
    let (host, port) = address.rsplit_once(':')?;
    let (host, port) = (host.to_owned(), port.parse().ok()?);
    Some(RequestedAccess::Connect { host, port })
}

fn target_of_url(url: &str) -> Option<RequestedAccess> {
    let url = parse_url(url).ok()?;
    let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
    Some(RequestedAccess::Connect {
        host: url.host()?.to_owned(),
        port: url.port_u16().unwrap_or(usual),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of keys by which configurations name files, addresses and variables.
    fn asks(name: &str) -> bool {
        [
            "_file",
            "path",
            "module",
            "address",
            "listen",
            "url",
            "env",
            "headers",
            "user",
            "password",
            "client_id",
        ]
        .iter()
        .any(|word| {
            if word.starts_with('_') {
                name.ends_with(word)
            } else {
                name == *word
            }
        })
    }

    /// The names of the keys of a schema, those of its parts too.
    fn keys_of(schema: &Value, found: &mut Vec<String>) {
        for (name, part) in schema.as_object().into_iter().flatten() {
            if name == "properties" {
                found.extend(part.as_object().into_iter().flat_map(|keys| keys.keys().cloned()));
            }
            keys_of(part, found);
        }
        schema
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|part| keys_of(part, found));
    }

    #[test]
    fn every_key_by_which_a_gear_asks_for_something_is_in_the_table() {
        // The path of requests is none of a file.
        let harmless = ("http_in", "path");
        for manifest in gear_spec::manifests() {
            let mut keys = Vec::new();
            keys_of(&(manifest.schema)(), &mut keys);
            for key in keys.iter().filter(|key| asks(key)) {
                let mut rows = REQUESTS.iter().filter(|(kinds, ..)| kinds.contains(&manifest.kind));
                let is_known = rows.any(|(_, pointer, _)| pointer.rsplit('/').next() == Some(key));
                assert!(
                    is_known || harmless == (manifest.kind, key.as_str()),
                    "{}.{key} is not in the table",
                    manifest.kind
                );
            }
        }
    }
}
