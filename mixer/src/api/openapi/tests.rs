//! The tables against the router, the filters and each other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode, header};
use model::filter::{
    AuditFilter, CellFilter, CheckpointFilter, DeadLetterFilter, FluxFilter, HistogramFilter, LetterFilter, LogFilter,
    MessageFilter, MetricFilter, RowFilter, SeriesFilter, TopFilter, TraceFilter,
};
use model::telemetry_codec::{self, BatchEncoding, PublisherIdentity};
use model::{EntityId, Level, MetricType, SpanStatus, Table, inline_schema};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::route_table::ROUTES;
use super::{ApiRoute, document, problems};
use crate::access::ApiCaller;
use crate::api::page;
use crate::api::query_params::FORMAT;
use crate::api::scenarios::{ActivationParams, RollbackParams};
use crate::api::tests::whole_mixer;

/// The paths that a router has, as it shows itself.
fn paths(router: &Router) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let (routes, _) = shown.split_once("fallback_router").unwrap();
    let texts = routes.split('"').skip(1).step_by(2);
    texts.filter(|text| text.starts_with('/')).map(str::to_owned).collect()
}

/// The methods of a path, as the answer to one that it lacks names them.
async fn methods(router: &Router, path: &str) -> BTreeSet<String> {
    let path = path.replace(['{', '}'], "");
    let request = Request::options(&path).extension(ApiCaller::everybody());
    let request = request.body(Body::empty()).unwrap();
    let refused = router.clone().oneshot(request).await.unwrap();
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    let allow = refused.headers()[header::ALLOW].to_str().unwrap();
    let methods = allow.split(',').map(|method| method.trim().to_owned());
    methods.filter(|method| method != "HEAD").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_documented_and_every_documented_one_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let router = crate::api::all_routes_of(mixer.api_parts().unwrap()).unwrap();
    let mut served = BTreeSet::new();
    for path in paths(&router).into_iter().filter(|path| !page::is_path(path)) {
        let methods = methods(&router, &path).await;
        served.extend(methods.into_iter().map(|method| (path.clone(), method)));
    }
    let documented: Vec<_> = ROUTES
        .iter()
        .map(|route| (route.path.to_owned(), route.method.as_str().to_owned()))
        .collect();
    assert_eq!(
        documented.len(),
        documented.iter().collect::<BTreeSet<_>>().len(),
        "a route is documented twice"
    );
    assert_eq!(served, documented.into_iter().collect());

    let request = Request::get(super::PATH).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let described = document["paths"].as_object().unwrap();
    for route in ROUTES.iter() {
        let method = route.method.as_str().to_ascii_lowercase();
        assert!(described[route.path][&method].is_object(), "{method} {}", route.path);
    }
    mixer.close().await;
}

/// The fields that a filter has, as its refusal of another names them.
fn fields<F: DeserializeOwned>() -> BTreeSet<String> {
    let Err(refusal) = serde_json::from_value::<F>(json!({ "no such field": 1 })) else {
        panic!("a filter takes any field");
    };
    let refusal = refusal.to_string();
    let (_, known) = refusal.split_once("expected").unwrap();
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The parameters of a route that are in one place.
fn parameters(route: &ApiRoute, place: &str) -> Vec<Value> {
    let all = route.parameters().into_iter();
    all.filter(|parameter| parameter["in"] == place).collect()
}

/// What the parameters of a path are called in filters.
fn documented(route: &ApiRoute) -> BTreeSet<String> {
    let query = parameters(route, "query").into_iter();
    // The format belongs to no filter.
    let of_filters = query.filter(|parameter| parameter["name"] != FORMAT);
    of_filters
        .map(|parameter| match parameter["schema"]["patternProperties"].as_object() {
            Some(family) => family
                .keys()
                .next()
                .unwrap()
                .replace("[\\s\\S]", "<key>")
                .replace(['^', '\\'], ""),
            None => parameter["name"].as_str().unwrap().to_owned(),
        })
        .collect()
}

/// Whether its parameters are fields of filters.
fn lists_rows(route: &ApiRoute) -> bool {
    let begins = ["/api/v1/telemetry/", "/api/v1/messages", "/api/v1/flux/"];
    begins.iter().any(|begin| route.path.starts_with(begin))
}

#[test]
fn the_parameters_of_lists_are_the_fields_of_their_filters() {
    let both = |one: BTreeSet<String>, other: BTreeSet<String>| one.union(&other).cloned().collect::<BTreeSet<_>>();
    let messages = || both(fields::<MessageFilter>(), fields::<RowFilter>());
    // With what a path always refuses, or names itself.
    let filters: [(&str, BTreeSet<String>, &[&str]); 24] = [
        ("logs", both(fields::<LogFilter>(), fields::<RowFilter>()), &[]),
        (
            "logs/histogram",
            both(fields::<LogFilter>(), fields::<HistogramFilter>()),
            &["limit", "offset", "cursor", "order"],
        ),
        (
            "logs/top",
            both(fields::<LogFilter>(), fields::<TopFilter>()),
            &["offset", "cursor", "order"],
        ),
        ("logs/fields", fields::<LogFilter>(), &["offset", "cursor", "order"]),
        ("traces/fields", fields::<TraceFilter>(), &["offset", "cursor", "order"]),
        ("logs/tail", fields::<LogFilter>(), &["until", "offset", "order"]),
        ("traces", both(fields::<TraceFilter>(), fields::<RowFilter>()), &[]),
        (
            "traces/top",
            both(fields::<TraceFilter>(), fields::<TopFilter>()),
            &["offset", "cursor", "order"],
        ),
        ("traces/{trace_id}", fields::<CellFilter>(), &[]),
        ("services", fields::<TraceFilter>(), &["offset", "cursor", "order"]),
        ("dependencies", fields::<TraceFilter>(), &["offset", "cursor", "order"]),
        ("metrics", fields::<MetricFilter>(), &[]),
        ("metrics/{metric_name}", fields::<MetricFilter>(), &["name"]),
        ("metrics/names", fields::<SeriesFilter>(), &[]),
        ("metrics/{metric_name}/exemplars", fields::<SeriesFilter>(), &[]),
        ("metrics/{metric_name}/labels", fields::<SeriesFilter>(), &[]),
        (
            "metrics/{metric_name}/labels/{label_key}",
            fields::<SeriesFilter>(),
            &[],
        ),
        ("messages", messages(), &[]),
        ("messages/{flux_id}", messages(), &["flux_id"]),
        ("/api/v1/messages", messages(), &[]),
        (
            "/api/v1/messages/tail",
            fields::<MessageFilter>(),
            &["until", "offset", "order"],
        ),
        ("/api/v1/messages/{flux_id}", messages(), &["flux_id"]),
        (
            "/api/v1/flux/{flux_id}",
            both(fields::<FluxFilter>(), fields::<CellFilter>()),
            &[],
        ),
        (
            "dead_letters",
            both(fields::<DeadLetterFilter>(), fields::<RowFilter>()),
            &[],
        ),
    ];
    let lists = ROUTES.iter().filter(|route| lists_rows(route));
    assert_eq!(lists.count(), filters.len(), "a list is not compared");
    for (path, mut fields, refused) in filters {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/api/v1/telemetry/{path}")
        };
        let route = ROUTES.iter().find(|route| route.path == path).unwrap();
        for name in refused {
            assert!(fields.remove(*name), "{path} has no {name} to refuse");
        }
        assert_eq!(documented(route), fields, "{path}");
    }
}

#[test]
fn the_parameters_of_other_routes_are_the_fields_that_they_take() {
    for (path, fields) in [
        ("/api/v1/dlq", fields::<LetterFilter>()),
        ("/api/v1/scenarios/rollback", fields::<RollbackParams>()),
        ("/api/v1/scenarios/{reference}/activate", fields::<ActivationParams>()),
        ("/api/v1/audit", fields::<AuditFilter>()),
        ("/api/v1/audit/checkpoints", fields::<CheckpointFilter>()),
    ] {
        let route = ROUTES.iter().find(|route| route.path == path).unwrap();
        assert_eq!(documented(route), fields, "{path}");
    }
    let letters = ROUTES.iter().find(|route| route.path == "/api/v1/dlq").unwrap();
    let query = parameters(letters, "query");
    let state = query.iter().find(|parameter| parameter["name"] == "state").unwrap();
    for state in state["schema"]["enum"].as_array().unwrap() {
        let asked = json!({ "state": state });
        assert!(serde_json::from_value::<LetterFilter>(asked).is_ok(), "{state}");
    }
}

#[test]
fn paths_name_their_parameters_and_former_ones_are_their_successors() {
    let mut ids = BTreeMap::new();
    for route in ROUTES.iter() {
        let in_path: BTreeSet<_> = route
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        let named = parameters(route, "path");
        let named = named.iter().map(|parameter| parameter["name"].as_str().unwrap());
        assert_eq!(named.collect::<BTreeSet<_>>(), in_path);
        assert!(
            ids.insert(route.id, route.path).is_none(),
            "{} is there twice",
            route.id
        );
        if let Some(successor) = route.successor {
            assert_eq!(route.path.replace("/api/v1/", "/api/v1/telemetry/"), successor);
        }
        for link in route.links {
            let to = ROUTES.iter().find(|other| other.id == link.to);
            let to = to.unwrap_or_else(|| panic!("{} leads to {}, which is not there", route.id, link.to));
            for (name, _) in link.given {
                assert!(
                    to.parameters().iter().any(|parameter| parameter["name"] == *name),
                    "{} of {}",
                    name,
                    to.id
                );
            }
        }
        for status in route.problems.iter().chain(&problems::EVERYWHERE) {
            let known = problems::CODES.iter().any(|(known, ..)| known == status);
            assert!(known, "{}: no problem has the status {status}", route.path);
        }
    }
}

#[test]
fn the_duration_of_a_span_that_is_sent_is_a_number_that_its_column_can_hold() {
    let document = document::of(&ROUTES);
    let schema = &document["components"]["schemas"]["SpanSent"]["properties"]["duration_ms"];
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name("http"),
        entity_name: "http".to_owned(),
    };
    let is_taken = |duration: f64| {
        let record = json!({
            "ts": "2026-11-21T12:00:00Z", "trace_id": "ab".repeat(16), "span_id": "cd".repeat(8), "span_name": "s", "status": "ok",
            "duration_ms": duration,
        });
        let decoded = telemetry_codec::decode(
            Table::Traces,
            BatchEncoding::Json,
            &record.to_string().into(),
            &publisher,
        );
        decoded.is_ok()
    };
    for name in ["exclusiveMinimum", "exclusiveMaximum"] {
        let limit = schema[name].as_f64().unwrap();
        assert!(is_taken(limit * (1.0 - 1e-12)), "{name}");
        assert!(!is_taken(limit * (1.0 + 1e-12)), "{name}");
    }
}

#[test]
fn words_are_those_of_the_nouns() {
    let words = [
        (
            inline_schema::<Level>(),
            Level::ALL.iter().map(|word| word.as_str()).collect::<Vec<_>>(),
        ),
        (
            inline_schema::<SpanStatus>(),
            SpanStatus::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            inline_schema::<MetricType>(),
            MetricType::ALL.iter().map(|word| word.as_str()).collect(),
        ),
    ];
    for (schema, words) in words {
        assert_eq!(schema["enum"], json!(words));
    }
    for route in ROUTES.iter().filter(|route| lists_rows(route)) {
        for parameter in parameters(route, "query") {
            let Some(words) = parameter["schema"]["enum"].as_array() else {
                continue;
            };
            let name = parameter["name"].as_str().unwrap();
            if name == FORMAT {
                continue;
            }
            for word in words {
                let asked = json!({ name: word });
                let known = [
                    serde_json::from_value::<LogFilter>(asked.clone()).is_ok(),
                    serde_json::from_value::<TraceFilter>(asked.clone()).is_ok(),
                    serde_json::from_value::<MetricFilter>(asked.clone()).is_ok(),
                    serde_json::from_value::<MessageFilter>(asked.clone()).is_ok(),
                    serde_json::from_value::<HistogramFilter>(asked).is_ok(),
                ];
                assert!(known.contains(&true), "{word} of {name}");
            }
        }
    }
}

#[test]
fn texts_for_readers_have_no_gaps_of_lines_that_were_joined() {
    fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Value::String(text) if key == "description" || key == "summary" => found.push(text),
                        other => texts(other, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
            _ => {}
        }
    }
    let document = document::of(&ROUTES);
    let mut found = Vec::new();
    texts(&document, &mut found);
    assert!(found.len() > ROUTES.len(), "no texts were found");
    for text in found {
        assert!(!text.contains("  "), "{text}");
    }
}

#[test]
fn a_tail_gives_the_rows_of_the_list_it_follows() {
    let document = document::of(&ROUTES);
    let answer = |path: &str, media: &str| {
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        let reference = content[media]["schema"]["$ref"].as_str().unwrap().to_owned();
        document.pointer(&reference[1..]).unwrap().clone()
    };
    let mut tails = 0;
    for route in ROUTES.iter() {
        let Some(list) = route.path.strip_suffix("/tail") else {
            continue;
        };
        let events = answer(route.path, "text/event-stream");
        let rows = answer(list, "application/json");
        let item = &rows["properties"]["data"]["items"];
        assert_eq!(
            events["anyOf"][0]["properties"]["data"]["contentSchema"], *item,
            "{}",
            route.path
        );
        assert!(item["$ref"].is_string(), "{list} has no rows");
        tails += 1;
    }
    assert_eq!(tails, 2);
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    fn walk(value: &Value, document: &Value, used: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let place = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
                    used.insert(place.to_owned());
                }
                fields.values().for_each(|field| walk(field, document, used));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, document, used)),
            _ => {}
        }
    }
    let document = document::of(&ROUTES);
    let mut used = BTreeSet::new();
    walk(&document, &document, &mut used);
    for kind in ["schemas", "responses"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            // Problems that no single operation has.
            let general = ["Problem405"].contains(&name.as_str());
            let place = format!("/components/{kind}/{name}");
            assert!(general || used.contains(&place), "nothing uses {place}");
        }
    }
}
