//! Bulk requests of Elasticsearch's clients, and what they ask before.

use super::*;

const BULK: &str = "/elasticsearch/_bulk";
const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

/// A body of one document in an index.
fn body_of(document: &Value) -> String {
    format!("{{\"create\":{{\"_index\":\"logs-app\"}}}}\n{document}\n")
}

fn answer((status, headers, body): &Said) -> Value {
    assert_eq!(*status, StatusCode::OK, "{body}");
    assert_eq!(headers["x-elastic-product"], "Elasticsearch");
    serde_json::from_str(body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_stored_and_each_item_has_its_status() {
    let bench = SenderBench::new().await;
    let lines = [
        r#"{"create":{"_index":"logs-app"}}"#,
        r#"{"@timestamp":"2026-11-21T12:00:00Z","message":"one","log":{"level":"warn"},"host":{"name":"press-1"}}"#,
        r#"{"index":{"_id":"7"}}"#,
        r#"{"@timestamp":"yesterday"}"#,
        r#"{"delete":{"_id":"7"}}"#,
        r#"{"index":{"_id":"8"}}"#,
        r#"{"@timestamp":1795262400123,"msg":"two"}"#,
    ];
    for _ in 0..2 {
        let said = bench
            .send(Method::POST, "/elasticsearch/app/_bulk", &[NDJSON], lines.join("\n"))
            .await;
        let answer = answer(&said);
        assert_eq!(answer["errors"], true);
        assert!(answer["took"].is_u64(), "{answer}");
        let items = answer["items"].as_array().unwrap();
        let told: Vec<_> = items
            .iter()
            .map(|item| {
                let (action, item) = item.as_object().unwrap().iter().next().unwrap();
                (
                    action.as_str(),
                    item["_index"].as_str().unwrap(),
                    item["status"].as_u64().unwrap(),
                )
            })
            .collect();
        let wanted = [
            ("create", "logs-app", 201),
            ("index", "app", 400),
            ("delete", "app", 400),
            ("index", "app", 201),
        ];
        assert_eq!(told, wanted);
        assert!(items[0]["create"]["_id"].is_string());
        assert_eq!(items[3]["index"]["_id"], "8");
        let error = &items[1]["index"]["error"];
        assert_eq!(error["type"], "document_parsing_exception");
        assert!(
            error["reason"].as_str().unwrap().contains("\"yesterday\" is no time"),
            "{error}"
        );
    }
    let rows = bench
        .rows("SELECT ts, message, level, entity_name FROM logs ORDER BY ts")
        .await;
    assert_eq!(
        rows,
        json!([
            { "ts": "2026-11-21T12:00:00.000000Z", "message": "one", "level": "warn", "entity_name": "press-1" },
            { "ts": "2026-11-21T12:00:00.123000Z", "message": "two", "level": "info", "entity_name": "http" },
        ])
    );
    let letters = bench.letters().await;
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert!(
        letters.iter().all(|[subject, ..]| subject == "elasticsearch/logs"),
        "{letters:?}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_refused_items_than_are_named_have_their_status_too() {
    let bench = SenderBench::new().await;
    let is_bad = |n: usize| n % 3 == 1;
    let lines = (0..2_500).map(|n| {
        let document = if is_bad(n) {
            "[]".to_owned()
        } else {
            format!("{{\"ts\":1795262400,\"message\":\"line {n}\"}}")
        };
        format!("{{\"index\":{{}}}}\n{document}\n")
    });
    let said = bench
        .send(Method::POST, BULK, &[NDJSON], lines.collect::<String>())
        .await;
    let answer = answer(&said);
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items.len(), 2_500);
    for (n, item) in items.iter().enumerate() {
        let wanted = if is_bad(n) { 400 } else { 201 };
        assert_eq!(item["index"]["status"], wanted, "{n}: {item}");
    }
    let rows = bench.rows("SELECT count(*) AS n FROM logs").await;
    assert_eq!(rows, json!([{ "n": (0..2_500).filter(|n| !is_bad(*n)).count() }]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_answer_is_made_of_is_counted_until_it_is_read() {
    const ITEMS: usize = 20_000;
    let bench = SenderBench::new().await;
    let engine = bench.mixer.api_parts().unwrap().engine;
    let held = || engine.inbound().decoding.held();
    let lines = (0..ITEMS).map(|n| body_of(&json!({ "ts": 1_795_262_400, "message": n.to_string() })));
    let request = Request::post(BULK)
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {}", bench.token.expose()))
        .header(NDJSON.0, NDJSON.1)
        .body(Body::from(lines.collect::<String>()))
        .unwrap();
    let unread = bench.api.router.clone().oneshot(request).await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    // An item takes 24 bytes, beside the name of its index.
    let before = held();
    assert!(before > 24 * ITEMS as u64, "{before}");
    let body = axum::body::to_bytes(unread.into_body(), 1 << 24).await.unwrap();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["items"].as_array().unwrap().len(), ITEMS);
    let after = held();
    assert!(after + 24 * (ITEMS as u64) < before, "{after} of {before}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_entities_that_a_token_may_not_write_are_refused_as_items() {
    let bench = SenderBench::new().await;
    let scope: AccessScope = serde_json::from_value(json!({ "entities": ["press-1"] })).unwrap();
    let writer = bench.api.token("writer", &[AccessRole::Ingester], scope).await;
    let bearer = format!("Bearer {}", writer.expose());
    let lines: String = (0..300)
        .map(|n| {
            body_of(&json!({ "ts": 1_795_262_400, "message": n.to_string(), "host.name": format!("press-{}", n % 2) }))
        })
        .collect();
    let headers = [("authorization", bearer.as_str()), NDJSON];
    let said = bench.send_as(Method::POST, BULK, &headers, lines).await;
    let answer = answer(&said);
    for (n, item) in answer["items"].as_array().unwrap().iter().enumerate() {
        let wanted = if n % 2 == 1 { 201 } else { 400 };
        assert_eq!(item["create"]["status"], wanted, "{n}: {item}");
    }
    assert_eq!(
        bench.rows("SELECT count(*) AS n FROM logs").await,
        json!([{ "n": 150 }])
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_what_they_ask_before_they_send() {
    let bench = SenderBench::new().await;
    for (method, path) in [
        (Method::GET, "/elasticsearch"),
        (Method::GET, "/elasticsearch/"),
        (Method::HEAD, "/elasticsearch/"),
        (Method::GET, "/elasticsearch/_license?human=false"),
        (Method::GET, "/elasticsearch/_xpack"),
        (Method::GET, "/elasticsearch/_cluster/health"),
        (Method::GET, "/elasticsearch/_nodes/http"),
        (Method::GET, "/elasticsearch/_ilm/policy/filebeat"),
        (Method::PUT, "/elasticsearch/_ilm/policy/filebeat"),
        (Method::HEAD, "/elasticsearch/_index_template/filebeat-8.15.0"),
        (Method::PUT, "/elasticsearch/_index_template/filebeat-8.15.0"),
        (Method::PUT, "/elasticsearch/_component_template/logs"),
        (Method::HEAD, "/elasticsearch/_template/telegraf"),
        (Method::GET, "/elasticsearch/_ingest/pipeline/filebeat-apache"),
        (Method::GET, "/elasticsearch/_data_stream/filebeat-8.15.0"),
        (Method::HEAD, "/elasticsearch/_alias/logs"),
        (Method::HEAD, "/elasticsearch/logs-app"),
        (Method::PUT, "/elasticsearch/logs-app"),
    ] {
        let has_body = method != Method::HEAD;
        let said = bench.send(method.clone(), path, &[], "").await;
        assert_eq!(said.0, StatusCode::OK, "{method} {path}: {}", said.2);
        assert_eq!(said.1["x-elastic-product"], "Elasticsearch", "{method} {path}");
        assert_eq!(said.1[header::CONTENT_TYPE], "application/json", "{method} {path}");
        assert_eq!(
            serde_json::from_str::<Value>(&said.2).is_ok(),
            has_body,
            "{method} {path}"
        );
    }
    let root = answer(&bench.send(Method::GET, "/elasticsearch/", &[], "").await);
    assert_eq!(root["tagline"], "You Know, for Search");
    let major = root["version"]["number"]
        .as_str()
        .unwrap()
        .split('.')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(major, "8");
    for version in ["8", "9"] {
        let kind = format!("application/vnd.elasticsearch+json; compatible-with={version}");
        let said = bench
            .send(Method::GET, "/elasticsearch/", &[("accept", kind.as_str())], "")
            .await;
        assert_eq!(said.1[header::CONTENT_TYPE], kind.replace(' ', "").as_str());
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_media_types_and_compressions_of_clients_are_taken() {
    let bench = SenderBench::new().await;
    let body =
        |n: u32| body_of(&json!({ "@timestamp": "2026-11-21T12:00:00Z", "message": n.to_string() })).into_bytes();
    let kinds = [
        "application/json; charset=UTF-8",
        "application/x-ndjson",
        "application/vnd.elasticsearch+json; compatible-with=8",
        "application/vnd.elasticsearch+x-ndjson;compatible-with=9",
    ];
    for (n, kind) in (0..).zip(kinds) {
        let said = bench.send(Method::PUT, BULK, &[("content-type", kind)], body(n)).await;
        assert_eq!(answer(&said)["errors"], false, "{kind}");
    }
    let headers = [NDJSON, ("content-encoding", "gzip")];
    let said = bench.send(Method::POST, BULK, &headers, gzip(&body(4))).await;
    assert_eq!(answer(&said)["errors"], false);
    assert_eq!(bench.rows("SELECT count(*) AS n FROM logs").await, json!([{ "n": 5 }]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_those_of_elasticsearch() {
    let bench = SenderBench::new().await;
    let long = "i".repeat(256);
    let long = format!("/elasticsearch/{long}/_bulk");
    for (method, path, headers, body, status, kind, reason) in [
        (
            Method::POST,
            BULK,
            &[NDJSON][..],
            "",
            400,
            "illegal_argument_exception",
            "request body is required",
        ),
        (
            Method::POST,
            BULK,
            &[NDJSON],
            "{}\n{}\n",
            400,
            "illegal_argument_exception",
            "Malformed action/metadata line [1]",
        ),
        (
            Method::POST,
            BULK,
            &[("content-type", "text/plain")],
            "x",
            415,
            "media_type_header_exception",
            "no bulk request",
        ),
        (
            Method::POST,
            long.as_str(),
            &[NDJSON],
            "x",
            400,
            "illegal_argument_exception",
            "more than 255",
        ),
        (
            Method::GET,
            "/elasticsearch/logs/_search",
            &[],
            "",
            404,
            "resource_not_found_exception",
            "is not a path",
        ),
        (
            Method::GET,
            BULK,
            &[],
            "",
            405,
            "illegal_argument_exception",
            "GET is not supported here",
        ),
    ] {
        let said = bench.send(method, path, headers, body).await;
        let refused: Value = serde_json::from_str(&said.2).unwrap();
        assert_eq!(
            (said.0.as_u16(), &refused["status"]),
            (status, &json!(status)),
            "{path}: {refused}"
        );
        assert_eq!(refused["error"]["type"], kind, "{path}");
        assert_eq!(
            refused["error"]["root_cause"][0]["reason"], refused["error"]["reason"],
            "{path}"
        );
        assert!(
            refused["error"]["reason"].as_str().unwrap().contains(reason),
            "{path}: {refused}"
        );
        assert_eq!(said.1["x-elastic-product"], "Elasticsearch", "{path}");
    }
    let many = "{\"delete\":{}}\n".repeat(131_073);
    let said = bench.send(Method::POST, BULK, &[NDJSON], many).await;
    assert_eq!(said.0, StatusCode::PAYLOAD_TOO_LARGE, "{}", said.2);
    let said = bench.send_as(Method::GET, "/elasticsearch/", &[], "").await;
    assert_eq!(said.0, StatusCode::UNAUTHORIZED);
    assert!(said.2.contains("security_exception"), "{}", said.2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_are_stored_once_only_if_they_have_a_time() {
    let bench = SenderBench::new().await;
    for document in [
        json!({ "@timestamp": "2026-11-21T12:00:00Z", "message": "timed" }),
        json!({ "message": "tick" }),
    ] {
        for _ in 0..2 {
            let said = bench.send(Method::POST, BULK, &[NDJSON], body_of(&document)).await;
            assert_eq!(answer(&said)["items"][0]["create"]["status"], 201);
        }
    }
    let rows = bench
        .rows("SELECT message, count(*) AS n FROM logs GROUP BY message ORDER BY message")
        .await;
    assert_eq!(
        rows,
        json!([{ "message": "tick", "n": 2 }, { "message": "timed", "n": 1 }])
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_under_another_index_are_another_request() {
    let bench = SenderBench::new().await;
    let body = concat!(
        "{\"create\":{\"_index\":\"named\"}}\n{\"@timestamp\":\"2026-11-21T12:00:00Z\"}\n",
        "{\"create\":{}}\n{\"@timestamp\":\"2026-11-21T12:00:01Z\"}\n",
    );
    for path in ["a", "b", "a"] {
        let path = format!("/elasticsearch/{path}/_bulk");
        let said = bench.send(Method::POST, &path, &[NDJSON], body).await;
        assert_eq!(answer(&said)["items"][1]["create"]["status"], 201);
    }
    let rows = bench
        .rows("SELECT attr(attributes, '_index') AS name, count(*) AS n FROM logs GROUP BY name ORDER BY name")
        .await;
    assert_eq!(
        rows,
        json!([{ "name": "a", "n": 1 }, { "name": "b", "n": 1 }, { "name": "named", "n": 2 }])
    );
    bench.close().await;
}
