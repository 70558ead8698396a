//! Log records: bodies of every type, severities, times, ids.

use super::*;

fn log_row(message: &str, level: &str, attributes: Value) -> Value {
    json!({
        "ts": AT_TEXT,
        "entity_id": EntityId::for_name(SERVICE).to_string(),
        "entity_name": SERVICE,
        "flux_id": null,
        "level": level,
        "message": message,
        "attributes": with_service(attributes),
    })
}

#[test]
fn a_log_record_is_stored_field_by_field() {
    let sent = LogRecord {
        time_unix_nano: AT,
        observed_time_unix_nano: AT + SECOND,
        severity_number: 14,
        severity_text: "WARN2".to_owned(),
        body: Some(value(text("the oven is hot"))),
        attributes: vec![
            attribute("http.status", Kind::IntValue(503)),
            attribute("ratio", Kind::DoubleValue(0.25)),
            attribute("retried", Kind::BoolValue(true)),
            attribute("user", text("äöü \"quoted\"\n")),
            attribute("blob", Kind::BytesValue(vec![1, 2, 3])),
            attribute("list", list(vec![text("a"), Kind::IntValue(1), Kind::BoolValue(false)])),
            attribute(
                "map",
                map(vec![attribute("inner", map(vec![attribute("deep", text("x"))]))]),
            ),
            attribute("maps", list(vec![map(vec![attribute("k", Kind::IntValue(1))])])),
            KeyValue {
                key: "nothing".to_owned(),
                ..KeyValue::default()
            },
        ],
        dropped_attributes_count: 3,
        flags: 0x101,
        trace_id: vec![0xab; 16],
        span_id: vec![0xcd; 8],
        event_name: String::new(),
    };
    let attributes = json!({
        "blob": "AQID",
        "http.status": 503,
        "list": ["a", 1, false],
        "map.inner.deep": "x",
        "maps": [{ "k": 1 }],
        "nothing": null,
        "otel.dropped_attributes_count": 3,
        "otel.flags": 0x101,
        "otel.severity_number": 14,
        "otel.severity_text": "WARN2",
        "ratio": 0.25,
        "retried": true,
        "span_id": "cd".repeat(8),
        "trace_id": "ab".repeat(16),
        "user": "äöü \"quoted\"\n",
    });
    assert_eq!(
        row(Table::Logs, &logs(vec![sent])),
        log_row("the oven is hot", "warn", attributes)
    );
}

#[test]
fn bodies_of_every_type_become_a_message_and_say_what_they_were() {
    let code = || attribute("code", Kind::IntValue(5));
    for (body, event, message, attributes) in [
        (None, "", "", json!({})),
        (
            None,
            "user.login",
            "user.login",
            json!({ "otel.event.name": "user.login" }),
        ),
        (Some(text("hello")), "", "hello", json!({})),
        (
            Some(text("hello")),
            "user.login",
            "hello",
            json!({ "otel.event.name": "user.login" }),
        ),
        (
            Some(Kind::BoolValue(true)),
            "",
            "true",
            json!({ "otel.body.type": "bool" }),
        ),
        (Some(Kind::IntValue(-7)), "", "-7", json!({ "otel.body.type": "int" })),
        (
            Some(Kind::DoubleValue(2.5)),
            "",
            "2.5",
            json!({ "otel.body.type": "double" }),
        ),
        (
            Some(Kind::BytesValue(vec![1, 2, 3])),
            "",
            "AQID",
            json!({ "otel.body.type": "bytes" }),
        ),
        (
            Some(list(vec![text("a"), Kind::IntValue(1), map(vec![code()])])),
            "",
            r#"["a",1,{"code":5}]"#,
            json!({ "otel.body.type": "array" }),
        ),
        (
            Some(map(vec![attribute("message", text("said")), code()])),
            "",
            "said",
            json!({ "otel.body.type": "map", "body.message": "said", "body.code": 5 }),
        ),
        (
            Some(map(vec![attribute("msg", text("said"))])),
            "user.login",
            "said",
            json!({ "otel.body.type": "map", "body.msg": "said", "otel.event.name": "user.login" }),
        ),
        (
            Some(map(vec![code()])),
            "user.login",
            "user.login",
            json!({ "otel.body.type": "map", "body.code": 5, "otel.event.name": "user.login" }),
        ),
        (
            Some(map(vec![attribute("a", map(vec![code()]))])),
            "",
            r#"{"a":{"code":5}}"#,
            json!({ "otel.body.type": "map", "body.a.code": 5 }),
        ),
        (Some(map(vec![])), "", "{}", json!({ "otel.body.type": "map" })),
    ] {
        let sent = LogRecord {
            body: body.clone().map(value),
            event_name: event.to_owned(),
            ..record("")
        };
        assert_eq!(
            row(Table::Logs, &logs(vec![sent])),
            log_row(message, "info", attributes),
            "{body:?} {event}"
        );
    }
}

#[test]
fn numbers_that_json_lacks_are_texts() {
    let sent = LogRecord {
        body: Some(value(Kind::DoubleValue(f64::NAN))),
        attributes: vec![
            attribute("nan", Kind::DoubleValue(f64::NAN)),
            attribute("most", Kind::DoubleValue(f64::INFINITY)),
            attribute("list", list(vec![Kind::DoubleValue(f64::NEG_INFINITY)])),
        ],
        ..record("")
    };
    let attributes = json!({ "list": ["-inf"], "most": "inf", "nan": "NaN", "otel.body.type": "double" });
    assert_eq!(
        rows_of_protobuf(Table::Logs, &logs(vec![sent])),
        [log_row("NaN", "info", attributes)]
    );
}

#[test]
fn severities_by_number_by_text_by_both_and_by_none_are_levels() {
    for (number, severity_text, level, attributes) in [
        (0, "", "info", json!({})),
        (1, "", "debug", json!({ "otel.severity_number": 1 })),
        (
            4,
            "TRACE4",
            "debug",
            json!({ "otel.severity_number": 4, "otel.severity_text": "TRACE4" }),
        ),
        (5, "", "debug", json!({})),
        (5, "DEBUG", "debug", json!({})),
        (8, "", "debug", json!({ "otel.severity_number": 8 })),
        (9, "INFO", "info", json!({})),
        (9, "Information", "info", json!({ "otel.severity_text": "Information" })),
        (12, "", "info", json!({ "otel.severity_number": 12 })),
        (13, "", "warn", json!({})),
        (16, "", "warn", json!({ "otel.severity_number": 16 })),
        (17, "ERROR", "error", json!({})),
        (
            21,
            "FATAL",
            "error",
            json!({ "otel.severity_number": 21, "otel.severity_text": "FATAL" }),
        ),
        (24, "", "error", json!({ "otel.severity_number": 24 })),
        // The number is what counts.
        (9, "ERROR", "info", json!({ "otel.severity_text": "ERROR" })),
        (0, "WARN", "warn", json!({})),
        (0, "warning", "warn", json!({ "otel.severity_text": "warning" })),
        (0, "loud", "info", json!({ "otel.severity_text": "loud" })),
        // No number of the protocol.
        (25, "", "info", json!({ "otel.severity_number": 25 })),
        (-1, "ERROR", "error", json!({ "otel.severity_number": -1 })),
    ] {
        let sent = LogRecord {
            severity_number: number,
            severity_text: severity_text.to_owned(),
            ..record("x")
        };
        assert_eq!(
            row(Table::Logs, &logs(vec![sent])),
            log_row("x", level, attributes),
            "{number} {severity_text}"
        );
    }
}

#[test]
fn the_time_is_the_records_own_else_when_it_was_observed_else_when_it_came() {
    for (time, observed, ts) in [
        (AT, AT + SECOND, AT_TEXT),
        (0, AT, AT_TEXT),
        (0, 0, NOW_TEXT),
        (1, 0, "1970-01-01T00:00:00.000000Z"),
        (u64::MAX, 0, "2554-07-21T23:34:33.709551Z"),
    ] {
        let sent = LogRecord {
            time_unix_nano: time,
            observed_time_unix_nano: observed,
            ..record("x")
        };
        assert_eq!(row(Table::Logs, &logs(vec![sent]))["ts"], ts, "{time} {observed}");
    }
}

#[test]
fn ids_that_are_not_there_are_no_attributes_and_the_sampled_flag_says_nothing() {
    for (trace_id, span_id, flags) in [(vec![], vec![], 0), (vec![0; 16], vec![0; 8], 1)] {
        let sent = LogRecord {
            trace_id,
            span_id,
            flags,
            ..record("x")
        };
        assert_eq!(row(Table::Logs, &logs(vec![sent])), log_row("x", "info", json!({})));
    }
}

#[test]
fn counts_of_zero_that_a_sender_writes_are_as_good_as_none() {
    let counted = |number: u8| vec![number << 3, 0];
    let record = [record("x").encode_to_vec(), counted(7)].concat();
    let resource = [service().encode_to_vec(), counted(2)].concat();
    let scope = [nested(1, &counted(4)), nested(2, &record)].concat();
    let body = nested(1, &[nested(1, &resource), nested(2, &scope)].concat());
    assert_eq!(
        read_bytes(Table::Logs, body).unwrap().rows,
        [log_row("x", "info", json!({}))]
    );
}
