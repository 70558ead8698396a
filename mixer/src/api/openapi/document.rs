//! Assembles the tables into one document.

use model::Table;
use model::telemetry_codec::BatchEncoding;
use protocols::otlp;
use query::RowFormat;
use serde_json::{Map, Value, json};

use super::{ApiRoute, RequestBody, ResponseBody, RouteMethod, problems, schemas};
use crate::access::{AccessRight, AccessRole};
use crate::api::content_negotiation::content_type;
use crate::api::exposition::ExpositionFormat;

pub(super) fn of(routes: &[ApiRoute]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[method(route.method)] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Platform Mixer",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Telemetry, messages, Racks and scenarios of a Mixer. Errors are RFC 9457 problems with a stable `code`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": { "schemas": schemas::all(), "responses": problems::responses(), "securitySchemes": security_schemes() },
    })
}

/// How callers say who they are.
fn security_schemes() -> Value {
    json!({
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API token, `plt_` and 64 hexadecimal digits. With `api.auth = \"auto\"` the Mixer's own user and root need none over loopback, with `\"own\"` its own user.",
        },
    })
}

const fn method(method: RouteMethod) -> &'static str {
    match method {
        RouteMethod::Get => "get",
        RouteMethod::Post => "post",
        RouteMethod::Put => "put",
        RouteMethod::Patch => "patch",
    }
}

/// The part of the API that a path belongs to.
fn tag(path: &str) -> &str {
    if path.starts_with("/v1/") {
        return "otlp";
    }
    if path.starts_with("/loki/") || path.starts_with("/elasticsearch") || path == "/api/v1/write" {
        return "senders";
    }
    if path.starts_with("/jaeger/") {
        return "jaeger";
    }
    if path.starts_with("/iceberg/") {
        return "iceberg";
    }
    let path = path.strip_prefix("/api/v1/").unwrap_or("operation");
    match path.split('/').next().unwrap_or(path) {
        "logs" | "traces" | "metrics" => "v0.4.4",
        "storage" | "catalog" | "openapi.json" => "operation",
        first => first,
    }
}

fn operation(route: &ApiRoute) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "tags": [tag(route.path)],
        "summary": route.summary,
        "parameters": route.parameters(),
        "responses": responses(route),
    });
    let successor = route.successor.map(|path| format!("The same as `{path}`."));
    if let Some(details) = successor.or_else(|| (!route.details.is_empty()).then(|| route.details.to_owned())) {
        operation["description"] = details.into();
    }
    match route.right {
        AccessRight::Anybody => operation["security"] = json!([]),
        AccessRight::Known => {}
        right => operation["x-roles"] = json!(AccessRole::names_with(right)),
    }
    if route.successor.is_some() {
        operation["deprecated"] = true.into();
    }
    if let Some(body) = body(route.sent) {
        operation["requestBody"] = body;
    }
    operation
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn typed(content_type: &str, schema: Value) -> (String, Value) {
    (content_type.to_owned(), json!({ "schema": schema }))
}

fn body(sent: RequestBody) -> Option<Value> {
    let (content, required) = match sent {
        RequestBody::Nothing => return None,
        RequestBody::Json(schema) => (vec![typed("application/json", reference(schema))], false),
        RequestBody::Required(schema) => (vec![typed("application/json", reference(schema))], true),
        RequestBody::Sql => {
            let text = || json!({ "type": "string", "minLength": 1, "examples": ["SELECT count(*) FROM logs"] });
            let content = vec![
                typed("application/json", reference("Statement")),
                typed("application/sql", text()),
                typed("text/plain", text()),
            ];
            (content, true)
        }
        RequestBody::Scenario => {
            let example = "meta: { name: demo, version: \"1\" }\nracks: [ { name: rack-a } ]\ngears:\n  - { name: numbers, type: generator, deploy: rack-a }\n";
            let text = json!({ "type": "string", "examples": [example] });
            (vec![typed("application/yaml", text)], true)
        }
        RequestBody::Records(table) => (records(table), true),
        RequestBody::Otlp => (otlp_bodies("Export…ServiceRequest"), true),
        RequestBody::Foreign(kinds, description) => {
            let kinds = kinds.iter();
            let content = kinds.map(|kind| typed(kind, json!({ "description": description })));
            (content.collect(), true)
        }
    };
    Some(json!({ "required": required, "content": content.into_iter().collect::<Map<_, _>>() }))
}

/// A message of OTLP in both encodings.
fn otlp_bodies(message: &str) -> Vec<(String, Value)> {
    let description = format!("{message} of opentelemetry-proto 1.10.");
    vec![
        typed(otlp::JSON, json!({ "type": "object", "description": description })),
        typed(otlp::PROTOBUF, json!({ "description": description })),
    ]
}

/// An answer of Elasticsearch, in the media type that a client asks for.
fn elasticsearch(says: &str) -> Value {
    let types = ["application/json", "application/vnd.elasticsearch+json"];
    let content: Map<_, _> = types
        .map(|kind| typed(kind, json!({ "type": "object" })))
        .into_iter()
        .collect();
    json!({ "description": says, "content": content })
}

/// What OTLP's refusals are: never 429, which its clients take for good.
fn otlp_refusals(route: &ApiRoute) -> impl Iterator<Item = (String, Value)> {
    let all = route
        .problems
        .iter()
        .chain(&problems::OF_CALLERS)
        .chain(&problems::EVERYWHERE);
    all.filter(|status| **status != 429).map(|status| {
        if [401, 403, 421].contains(status) {
            return (status.to_string(), problem_reference(*status));
        }
        let content: Map<_, _> = otlp_bodies("google.rpc.Status").into_iter().collect();
        let refusal = json!({ "description": "Refused; `code` is that of gRPC.", "content": content });
        (status.to_string(), refusal)
    })
}

fn records(table: Table) -> Vec<(String, Value)> {
    let name = schemas::record_name(table);
    let some = || json!({ "type": "array", "contains": reference(name), "minItems": 1 });
    [
        BatchEncoding::Json,
        BatchEncoding::Ndjson,
        BatchEncoding::Cbor,
        BatchEncoding::Arrow,
    ]
    .map(|encoding| {
        let schema = match encoding {
            BatchEncoding::Json => json!({ "anyOf": [reference(name), some()] }),
            BatchEncoding::Ndjson => {
                json!({ "anyOf": [reference(name), some()], "description": "One record a line." })
            }
            BatchEncoding::Cbor => some(),
            BatchEncoding::Arrow => json!({ "description": "An Arrow IPC stream of the table's columns." }),
        };
        typed(encoding.content_type(), schema)
    })
    .into()
}

fn problem_reference(status: u16) -> Value {
    json!({ "$ref": format!("#/components/responses/{}", problems::name(status)) })
}

fn responses(route: &ApiRoute) -> Value {
    let status = match route.answer {
        ResponseBody::Nothing => "204",
        _ => "200",
    };
    let mut responses = Map::from_iter([(status.to_owned(), answer(route))]);
    let of_callers: &[u16] = match route.right {
        AccessRight::Anybody => &[],
        _ => &problems::OF_CALLERS,
    };
    let problems = route.problems.iter().chain(of_callers).chain(&problems::EVERYWHERE);
    if let ResponseBody::Otlp = route.answer {
        responses.extend(otlp_refusals(route));
        return responses.into();
    }
    if let ResponseBody::Elasticsearch(_) = route.answer {
        let refusal = |status: &u16| (status.to_string(), elasticsearch("Refused, as Elasticsearch says it."));
        responses.extend(problems.map(refusal));
        return responses.into();
    }
    if let ResponseBody::Iceberg(_) = route.answer {
        let content = Map::from_iter([typed("application/json", reference("IcebergError"))]);
        let refusal = json!({ "description": "Refused, as Iceberg says it.", "content": content });
        responses.extend(problems.map(|status| (status.to_string(), refusal.clone())));
        let mut parameters = route.parameters.iter().copied().flatten();
        if parameters.any(|parameter| parameter.name == "If-None-Match") {
            let unchanged = json!({ "description": "The client has this version of the metadata." });
            responses.insert("304".to_owned(), unchanged);
        }
        return responses.into();
    }
    for status in problems {
        responses.insert(status.to_string(), problem_reference(*status));
    }
    if let ResponseBody::Rows(_) = route.answer {
        let description = "The client's cached answer is still valid.";
        responses.insert(
            "304".to_owned(),
            json!({ "description": description, "headers": tags() }),
        );
    }
    if route.has_second_person {
        let description = "Nothing was changed: `api.second_person` has another caller ask for the same, until the time of the answer.";
        let content = Map::from_iter([typed("application/json", reference("ChangeRequest"))]);
        let awaited = json!({ "description": description, "content": content });
        responses.insert("202".to_owned(), awaited);
    }
    if let ResponseBody::Ready(schema) = route.answer {
        let content = Map::from_iter([typed("application/json", reference(schema))]);
        let not = json!({ "description": "At least one check fails.", "content": content });
        responses.insert("503".to_owned(), not);
    }
    responses.into()
}

/// A body of rows in each format.
fn formats(schema: &str) -> Vec<(String, Value)> {
    let all = [
        (RowFormat::Json, reference(schema)),
        (RowFormat::Ndjson, json!({ "type": "string" })),
        (RowFormat::Csv, json!({ "type": "string" })),
        (RowFormat::Arrow, json!({})),
    ];
    all.map(|(format, schema)| typed(bare(content_type(format)), schema))
        .into()
}

/// A content type without its parameters.
fn bare(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or(content_type)
}

/// The headers by which an answer is known again.
fn tags() -> Value {
    let text = |says| json!({ "description": says, "schema": { "type": "string" } });
    json!({ "ETag": text("Of an answer whose time range has ended and whose rows are in data files."), "Cache-Control": text("`no-cache` with an `ETag`.") })
}

fn answer(route: &ApiRoute) -> Value {
    let content = match route.answer {
        ResponseBody::Json(schema) | ResponseBody::Ready(schema) | ResponseBody::Iceberg(schema) => {
            vec![typed("application/json", reference(schema))]
        }
        ResponseBody::Rows(schema) => formats(schema),
        ResponseBody::Sql => formats("SqlAnswer"),
        ResponseBody::Events(schema) => vec![typed("text/event-stream", reference(schema))],
        ResponseBody::Otlp => otlp_bodies("Export…ServiceResponse"),
        ResponseBody::Elasticsearch(says) => return elasticsearch(says),
        ResponseBody::Nothing => return json!({ "description": "Done." }),
        ResponseBody::Exposition => ExpositionFormat::ALL
            .map(|format| typed(bare(format.content_type()), json!({ "type": "string" })))
            .into(),
    };
    let mut answer = json!({ "description": "Done.", "content": content.into_iter().collect::<Map<_, _>>() });
    let mut headers = Map::new();
    let mut add = |more: Value| headers.extend(more.as_object().cloned().unwrap_or_default());
    if route.successor.is_some() {
        let text = |says| json!({ "description": says, "required": true, "schema": { "type": "string" } });
        add(json!({
            "Deprecation": text("Since when, as RFC 9745 writes it."),
            "Link": text("The path to use, as `successor-version`."),
        }));
    }
    let text = |says| json!({ "description": says, "schema": { "type": "string" } });
    if let ResponseBody::Rows(_) | ResponseBody::Sql = route.answer {
        add(json!({ "X-Partial": text("Why rows are missing, in every format; absent when none are.") }));
    }
    if let ResponseBody::Rows(_) = route.answer {
        add(tags());
        add(json!({
            "X-Next-Cursor": text("`next_cursor`, where the format is not JSON; absent after the last row."),
            "X-Query-Stats": text("`stats` as JSON, where the format is not JSON."),
        }));
    }
    if !headers.is_empty() {
        answer["headers"] = headers.into();
    }
    if !route.links.is_empty() {
        let links = route.links.iter().map(|link| {
            let given: Map<_, _> = link
                .given
                .iter()
                .map(|(name, from)| ((*name).to_owned(), Value::from(*from)))
                .collect();
            (
                link.to.to_owned(),
                json!({ "operationId": link.to, "parameters": given }),
            )
        });
        answer["links"] = links.collect::<Map<_, _>>().into();
    }
    answer
}
