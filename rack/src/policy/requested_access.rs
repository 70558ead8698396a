//! What the configuration of a gear asks of its Rack, as far as it says so itself.
//!
//! # Invariants
//!
//! - The schema of a type says what each of its keys asks for (keyword [`KEYWORD`]): there is no second list. A test of `gear_spec` refuses a
//!   path or an address without it.

use std::net::SocketAddr;
use std::path::PathBuf;

use gear_spec::parse_url;
use serde_json::{Map, Value};

/// The keyword of schemas by which a key says what its value asks for.
const KEYWORD: &str = "x-access";

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
    /// What another rule than the policy bounds.
    Unchecked,
}

impl RequestKind {
    fn of(schema: &Value) -> Option<Self> {
        Some(match schema.get(KEYWORD)?.as_str()? {
            "read" => Self::Read,
            "write" => Self::Write,
            "listen" => Self::Listen,
            "connect" => Self::Connect,
            "url" => Self::Url,
            "references" => Self::References,
            "variables" => Self::Variables,
            "unchecked" => Self::Unchecked,
            _ => return None,
        })
    }
}

/// What a configuration that was checked asks for.
pub(super) fn requested_access(kind: &str, config: &Map<String, Value>) -> Vec<RequestedAccess> {
    let manifest = gear_spec::manifests().iter().find(|manifest| manifest.kind == kind);
    let (mut found, config) = (Vec::new(), Value::Object(config.clone()));
    if let Some(schema) = manifest.map(|manifest| (manifest.schema)()) {
        collect(&schema, &schema, &config, &mut found);
    }
    found
}

/// Follows a value along its schema.
fn collect(schema: &Value, root: &Value, value: &Value, found: &mut Vec<RequestedAccess>) {
    found.extend(
        RequestKind::of(schema)
            .into_iter()
            .flat_map(|kind| requests(value, kind)),
    );
    let place = schema.get("$ref").and_then(Value::as_str);
    let referred = place.and_then(|place| root.pointer(place.strip_prefix('#')?));
    let forms = ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|key| schema.get(key)?.as_array());
    for form in referred.into_iter().chain(forms.flatten()) {
        collect(form, root, value, found);
    }
    for (key, part) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        value
            .get(key)
            .into_iter()
            .for_each(|value| collect(part, root, value, found));
    }
    let items = schema.get("items");
    for (item, part) in value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| Some((item, items?)))
    {
        collect(part, root, item, found);
    }
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
        RequestKind::Unchecked => Vec::new(),
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
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    /// All properties of a schema, those of its parts too.
    fn properties_of<'s>(schema: &'s Value, found: &mut Vec<(&'s String, &'s Value)>) {
        let all = schema.get("properties").and_then(Value::as_object);
        found.extend(all.into_iter().flatten());
        let parts = schema.as_object().into_iter().flat_map(Map::values);
        for part in parts.chain(schema.as_array().into_iter().flatten()) {
            properties_of(part, found);
        }
    }

    #[test]
    fn a_text_that_names_a_target_or_a_secret_says_what_it_asks_for() {
        let words = [
            "address",
            "url",
            "env",
            "headers",
            "user",
            "password",
            "token",
            "client_id",
            "secret",
        ];
        for manifest in gear_spec::manifests() {
            let (schema, mut properties) = ((manifest.schema)(), Vec::new());
            properties_of(&schema, &mut properties);
            for (key, property) in properties {
                let (kind, said) = (manifest.kind, property.get(KEYWORD));
                assert!(
                    said.is_none() || RequestKind::of(property).is_some(),
                    "{kind}.{key}: {said:?}"
                );
                let is_asking = words.contains(&key.as_str()) && property["type"] != "integer";
                assert!(
                    !is_asking || said.is_some(),
                    "{kind}.{key} does not say what it asks for ({KEYWORD})"
                );
            }
        }
    }

    #[test]
    fn what_is_asked_for_is_found_in_every_part_of_a_configuration() {
        let config = json!({ "broker": {
            "address": "b:1", "user": "${USER_OF_IT}", "tls": { "ca_file": "ca", "key_file": "k" }, "password": null,
        } });
        let found = requested_access("mqtt_in", config.as_object().unwrap());
        let asks = [
            RequestedAccess::Connect {
                host: "b".to_owned(),
                port: 1,
            },
            RequestedAccess::Read("ca".into()),
            RequestedAccess::Read("k".into()),
            RequestedAccess::Variable("USER_OF_IT".to_owned()),
        ];
        assert!(
            found.len() == asks.len() && asks.iter().all(|one| found.contains(one)),
            "{found:?}"
        );
        assert!(requested_access("no_such_type", config.as_object().unwrap()).is_empty());
    }
}
