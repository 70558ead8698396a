//! Resources and scopes: whose a record is, what all records of them share, several of them, and their order in a request.

use super::*;

fn scope(attributes: Vec<KeyValue>) -> InstrumentationScope {
    InstrumentationScope {
        name: "shop.http".to_owned(),
        version: "1.2".to_owned(),
        attributes,
        ..InstrumentationScope::default()
    }
}

fn request_of(resource: Resource) -> ExportLogsServiceRequest {
    ExportLogsServiceRequest {
        resource_logs: vec![logs_of(resource, None, vec![record("x")])],
    }
}

#[test]
fn attributes_of_resource_and_scope_are_in_every_row_under_names_of_their_own() {
    let all_types = || {
        vec![
            attribute("text", text("t")),
            attribute("bool", Kind::BoolValue(false)),
            attribute("int", Kind::IntValue(i64::MIN)),
            attribute("double", Kind::DoubleValue(0.1)),
            attribute("bytes", Kind::BytesValue(vec![0xff, 0])),
            attribute("list", list(vec![map(vec![attribute("k", list(vec![]))]), text("l")])),
            attribute(
                "map",
                map(vec![attribute("a", map(vec![attribute("b", Kind::IntValue(1))]))]),
            ),
            attribute("empty", map(vec![])),
            attribute("dotted.key", text("d")),
        ]
    };
    let resource = Resource {
        attributes: [vec![attribute("service.name", text(SERVICE))], all_types()].concat(),
        dropped_attributes_count: 2,
        ..Resource::default()
    };
    let scope = InstrumentationScope {
        dropped_attributes_count: 3,
        ..scope(all_types())
    };
    let mut sent = logs_of(resource, Some(scope), vec![record("x"), record("y")]);
    sent.schema_url = "https://opentelemetry.io/schemas/1.30.0".to_owned();
    sent.scope_logs[0].schema_url = "https://opentelemetry.io/schemas/1.29.0".to_owned();
    let sent = ExportLogsServiceRequest {
        resource_logs: vec![sent],
    };
    let mut expected = json!({
        "otel.resource.dropped_attributes_count": 2,
        "otel.schema_url": "https://opentelemetry.io/schemas/1.30.0",
        "otel.scope.dropped_attributes_count": 3,
        "otel.scope.name": "shop.http",
        "otel.scope.schema_url": "https://opentelemetry.io/schemas/1.29.0",
        "otel.scope.version": "1.2",
    });
    for prefix in ["resource.", "otel.scope."] {
        for (key, value) in [
            ("text", json!("t")),
            ("bool", json!(false)),
            ("int", json!(i64::MIN)),
            ("double", json!(0.1)),
            ("bytes", json!("/wA=")),
            ("list", json!([{ "k": [] }, "l"])),
            ("map.a.b", json!(1)),
            ("dotted.key", json!("d")),
        ] {
            expected[format!("{prefix}{key}")] = value;
        }
    }
    let expected = with_service(expected);
    let stored = rows(Table::Logs, &sent);
    assert_eq!(stored.len(), 2);
    for (row, message) in stored.iter().zip(["x", "y"]) {
        assert_eq!((&row["attributes"], &row["message"]), (&expected, &json!(message)));
    }
}

#[test]
fn numbers_of_a_resource_that_json_lacks_are_texts() {
    let sent = request_of(resource(vec![
        attribute("service.name", text(SERVICE)),
        attribute("nan", Kind::DoubleValue(f64::NAN)),
    ]));
    let stored = rows_of_protobuf(Table::Logs, &sent);
    assert_eq!(stored[0]["attributes"], with_service(json!({ "resource.nan": "NaN" })));
}

#[test]
fn a_records_own_attributes_are_never_those_of_its_resource() {
    let own = LogRecord {
        attributes: vec![
            attribute("service.name", text("own")),
            attribute("twice", text("first")),
            attribute("twice", text("last")),
        ],
        ..record("x")
    };
    let stored = row(Table::Logs, &logs(vec![own]));
    assert_eq!(
        stored["attributes"],
        with_service(json!({ "service.name": "own", "twice": "last" }))
    );
}

#[test]
fn an_entity_is_named_by_the_first_attribute_of_the_order_that_is_there() {
    let all = [
        ("service.name", "shop"),
        ("k8s.pod.name", "pod-7"),
        ("host.name", "web-1"),
    ];
    for (attributes, name) in [
        (&all[..], "web-1"),
        (&all[..2], "pod-7"),
        (&all[..1], "shop"),
        (&[], "unknown"),
        (&[("host.name", ""), ("service.name", "shop")], "shop"),
        (&[("host.name", "first"), ("host.name", "last")], "last"),
        (&[("service.instance.id", "1")], "unknown"),
    ] {
        let attributes = attributes.iter().map(|(key, value)| attribute(key, text(value)));
        let stored = row(Table::Logs, &request_of(resource(attributes.collect())));
        assert_eq!(stored["entity_name"], name);
        assert_eq!(stored["entity_id"], EntityId::for_name(name).to_string(), "{name}");
    }
    let number = request_of(resource(vec![attribute("host.name", Kind::IntValue(1))]));
    assert_eq!(row(Table::Logs, &number)["entity_name"], "unknown", "a name is a text");
    let none = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: None,
            ..logs_of(service(), None, vec![record("x")])
        }],
    };
    let stored = row(Table::Logs, &none);
    assert_eq!(
        (&stored["entity_name"], &stored["attributes"]),
        (&json!("unknown"), &json!({}))
    );
}

#[test]
fn an_entity_may_say_its_id() {
    let id = "0198a8b0-2d5e-7c3a-8f6b-000000000001";
    for (sent, expected) in [
        (id, id.to_owned()),
        ("no uuid", EntityId::for_name(SERVICE).to_string()),
    ] {
        let sent = request_of(resource(vec![
            attribute("platform.entity_id", text(sent)),
            attribute("service.name", text(SERVICE)),
        ]));
        let stored = row(Table::Logs, &sent);
        assert_eq!(stored["entity_id"], expected);
        assert_eq!(stored["entity_name"], SERVICE);
    }
}

#[test]
fn a_name_of_an_entity_that_is_too_long_refuses_its_records_alone() {
    let sent = ExportLogsServiceRequest {
        resource_logs: vec![
            logs_of(
                resource(vec![attribute("service.name", text(&"n".repeat(256)))]),
                None,
                vec![record("refused"), record("refused")],
            ),
            logs_of(service(), None, vec![record("stored")]),
        ],
    };
    let read = read_bytes(Table::Logs, sent.encode_to_vec()).unwrap();
    assert_eq!((read.rows.len(), read.rejected), (1, 2));
    assert_eq!(read.rows[0]["message"], "stored");
    assert!(read.refused[1].1.contains("256 bytes, more than 255"), "{read:?}");
    let longest = request_of(resource(vec![attribute("service.name", text(&"n".repeat(255)))]));
    assert_eq!(row(Table::Logs, &longest)["entity_name"], "n".repeat(255));
}

#[test]
fn a_signal_is_named_at_the_record_else_at_the_scope_else_at_the_resource() {
    let flux = |number: u8| format!("0198a8b0-2d5e-7c3a-8f6b-00000000000{number}");
    let named = |number: Option<u8>| number.map(|number| attribute("flux_id", text(&flux(number))));
    for (at_resource, at_scope, at_record, expected) in [
        (Some(1), Some(2), Some(3), Some(3)),
        (Some(1), Some(2), None, Some(2)),
        (Some(1), None, None, Some(1)),
        (None, None, None, None),
    ] {
        let resource = resource(named(at_resource).into_iter().collect());
        let scope = scope(named(at_scope).into_iter().collect());
        let own = LogRecord {
            attributes: named(at_record).into_iter().collect(),
            ..record("x")
        };
        let sent = ExportLogsServiceRequest {
            resource_logs: vec![logs_of(resource, Some(scope), vec![own])],
        };
        let stored = row(Table::Logs, &sent);
        assert_eq!(stored["flux_id"], json!(expected.map(flux)));
        assert_eq!(
            stored["attributes"],
            json!({ "otel.scope.name": "shop.http", "otel.scope.version": "1.2" }),
            "it is a column, and no attribute"
        );
    }
}

#[test]
fn a_signal_that_is_no_uuid_stays_an_attribute() {
    let own = LogRecord {
        attributes: vec![attribute("flux_id", text("order 7"))],
        ..record("x")
    };
    let stored = row(Table::Logs, &logs(vec![own]));
    assert_eq!(stored["flux_id"], Value::Null);
    assert_eq!(stored["attributes"], with_service(json!({ "flux_id": "order 7" })));
}

#[test]
fn a_span_names_its_signal_as_a_log_record_does() {
    let sent = Span {
        attributes: vec![attribute("flux_id", text(FLUX_ID))],
        ..span("GET /")
    };
    let stored = row(Table::Traces, &spans(vec![sent]));
    assert_eq!(
        (&stored["flux_id"], &stored["attributes"]),
        (&json!(FLUX_ID), &with_service(json!({})))
    );
}

#[test]
fn several_resources_and_scopes_do_not_mix() {
    let named = |name: &str| {
        resource(vec![
            attribute("service.name", text(name)),
            attribute(name, text("only here")),
        ])
    };
    let scoped = |name: &str, messages: [&str; 2]| ScopeLogs {
        scope: Some(InstrumentationScope {
            name: name.to_owned(),
            attributes: vec![attribute(name, text("only here"))],
            ..InstrumentationScope::default()
        }),
        log_records: messages.map(record).into(),
        ..ScopeLogs::default()
    };
    let bare = ScopeLogs {
        log_records: vec![record("bare")],
        ..ScopeLogs::default()
    };
    let of = |name: &str, scope_logs: Vec<ScopeLogs>| ResourceLogs {
        resource: Some(named(name)),
        scope_logs,
        ..ResourceLogs::default()
    };
    let sent = ExportLogsServiceRequest {
        resource_logs: vec![
            of("a", vec![scoped("s", ["1", "2"]), scoped("t", ["3", "4"]), bare]),
            of("empty", vec![]),
            of("b", vec![ScopeLogs::default(), scoped("s", ["5", "6"])]),
        ],
    };
    let stored: Vec<(String, Value)> = rows(Table::Logs, &sent)
        .iter()
        .map(|row| (row["message"].as_str().unwrap().to_owned(), row["attributes"].clone()))
        .collect();
    let attributes = |resource: &str, scope: Option<&str>| {
        let mut attributes = json!({ "resource.service.name": resource });
        attributes[format!("resource.{resource}")] = json!("only here");
        if let Some(scope) = scope {
            attributes["otel.scope.name"] = json!(scope);
            attributes[format!("otel.scope.{scope}")] = json!("only here");
        }
        attributes
    };
    let expected = [
        ("1", "a", Some("s")),
        ("2", "a", Some("s")),
        ("3", "a", Some("t")),
        ("4", "a", Some("t")),
        ("bare", "a", None),
        ("5", "b", Some("s")),
        ("6", "b", Some("s")),
    ]
    .map(|(message, resource, scope)| (message.to_owned(), attributes(resource, scope)));
    assert_eq!(stored, expected);
}

#[test]
fn a_resource_and_a_scope_count_wherever_they_stand_in_their_message() {
    let whole = logs_of(service(), Some(scope(vec![])), vec![record("x")]);
    let expected = rows(
        Table::Logs,
        &ExportLogsServiceRequest {
            resource_logs: vec![whole.clone()],
        },
    );
    let mut scopes = whole.clone();
    let resource = ResourceLogs {
        resource: scopes.resource.take(),
        ..ResourceLogs::default()
    };
    let mut records = scopes.scope_logs.remove(0);
    let scope = ScopeLogs {
        scope: records.scope.take(),
        ..ScopeLogs::default()
    };
    // Messages behind one another are one with the fields of both.
    let scope = [records.encode_to_vec(), scope.encode_to_vec()].concat();
    let resource = [nested(2, &scope), resource.encode_to_vec()].concat();
    let body = nested(1, &resource);
    let read = read_bytes(Table::Logs, body.clone()).unwrap();
    assert_eq!((read.rows, read.rejected), (expected, 0));
    // The control: the usual order is another body.
    let usual = ExportLogsServiceRequest {
        resource_logs: vec![whole],
    };
    assert_ne!(body, usual.encode_to_vec());
}

#[test]
fn a_large_resource_does_not_make_the_attributes_of_its_scope_bad() {
    let large = resource(vec![
        attribute("service.name", text(SERVICE)),
        attribute("k8s.annotations", text(&"x".repeat(200 << 10))),
    ]);
    let sent = ExportLogsServiceRequest {
        resource_logs: vec![logs_of(
            large,
            Some(scope(vec![attribute("a", text("b"))])),
            vec![record("x")],
        )],
    };
    let stored = row(Table::Logs, &sent);
    assert_eq!(stored["attributes"]["otel.scope.a"], "b");
}

#[test]
fn equal_bytes_are_another_request_only_if_the_first_record_has_no_time() {
    let is_known_again = |records: Vec<LogRecord>| {
        let body = logs(records).encode_to_vec().into();
        let opened = request(Table::Logs, OtlpEncoding::Protobuf, body, settings());
        opened.unwrap().sender.is_some()
    };
    let timeless = || LogRecord {
        time_unix_nano: 0,
        ..record("tick")
    };
    let observed = LogRecord {
        observed_time_unix_nano: AT,
        ..timeless()
    };
    assert!(is_known_again(vec![record("a"), timeless()]));
    assert!(is_known_again(vec![observed, timeless()]));
    assert!(!is_known_again(vec![timeless(), record("a")]));
    assert!(!is_known_again(vec![]));
}

#[test]
fn the_sender_of_a_request_is_its_first_resource() {
    let sender = |sent: &ExportLogsServiceRequest| {
        let body = sent.encode_to_vec().into();
        request(Table::Logs, OtlpEncoding::Protobuf, body, settings())
            .unwrap()
            .sender
    };
    let other = request_of(resource(vec![attribute("service.name", text("other"))]));
    assert_eq!(sender(&logs(vec![record("x")])), sender(&logs(vec![record("y")])));
    assert_ne!(sender(&logs(vec![record("x")])), sender(&other));
}
