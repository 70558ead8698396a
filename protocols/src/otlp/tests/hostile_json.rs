//! Requests as JSON: the forms that the mapping allows, and what is none of them.

use super::*;

/// A request with one log record, whose fields are these.
fn log(fields: &Value) -> String {
    json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [fields] }] }] }).to_string()
}

fn span_with(fields: Value) -> String {
    let mut span = json!({ "traceId": "ab".repeat(16), "spanId": "cd".repeat(8), "name": "s" });
    for (key, value) in fields.as_object().unwrap() {
        span[key] = value.clone();
    }
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [span] }] }] }).to_string()
}

fn metric_with(data: &Value) -> String {
    let mut metric = json!({ "name": "n" });
    for (key, value) in data.as_object().unwrap() {
        metric[key] = value.clone();
    }
    let good = json!({ "name": "good", "gauge": { "dataPoints": [{ "asInt": "1" }] } });
    json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric, good] }] }] }).to_string()
}

fn only(table: Table, body: &str) -> Value {
    let read = read_json(table, body).unwrap_or_else(|error| panic!("{body}: {error}"));
    assert_eq!((read.rows.len(), read.rejected), (1, 0), "{body}: {read:?}");
    read.rows[0].clone()
}

#[test]
fn numbers_are_texts_or_numbers() {
    let expected = only(
        Table::Logs,
        &log(&json!({
            "timeUnixNano": AT.to_string(),
            "severityNumber": 17,
            "attributes": [{ "key": "n", "value": { "intValue": "-5" } }],
        })),
    );
    assert_eq!(
        (&expected["ts"], &expected["level"]),
        (&json!(AT_TEXT), &json!("error"))
    );
    assert_eq!(expected["attributes"], json!({ "n": -5 }));
    let numbers = json!({
        "timeUnixNano": AT,
        "severityNumber": 17,
        "attributes": [{ "key": "n", "value": { "intValue": -5 } }],
    });
    assert_eq!(only(Table::Logs, &log(&numbers)), expected);

    let gauge = |value: Value| {
        let read = read_json(
            Table::Metrics,
            &metric_with(&json!({ "gauge": { "dataPoints": [value] } })),
        )
        .unwrap();
        assert_eq!(read.rejected, 0, "{read:?}");
        read.rows[0]["value"].clone()
    };
    for value in [
        json!({ "asInt": "7" }),
        json!({ "asInt": 7 }),
        json!({ "asDouble": 7 }),
        json!({ "asDouble": 7.0 }),
    ] {
        assert_eq!(gauge(value), json!(7.0));
    }
    let buckets = |counts: Value| {
        let point = json!({ "count": 3, "sum": 1, "bucketCounts": counts, "explicitBounds": [1] });
        let read = read_json(
            Table::Metrics,
            &metric_with(&json!({ "histogram": { "dataPoints": [point] } })),
        )
        .unwrap();
        read.rows[0]["labels"]["otel.buckets"].clone()
    };
    assert_eq!(buckets(json!(["1", 2])), json!([1, 2]));
}

#[test]
fn what_is_null_or_missing_is_not_there() {
    let bare = only(Table::Logs, &log(&json!({})));
    assert_eq!((&bare["ts"], &bare["message"]), (&json!(NOW_TEXT), &json!("")));
    for fields in [
        json!({ "body": null }),
        json!({ "body": {} }),
        json!({ "body": { "stringValue": null } }),
        json!({ "attributes": [] }),
    ] {
        assert_eq!(only(Table::Logs, &log(&fields)), bare, "{fields}");
    }
    let null = json!({ "attributes": [{ "key": "k", "value": null }, { "key": "l" }, { "key": "m", "value": {} }] });
    assert_eq!(
        only(Table::Logs, &log(&null))["attributes"],
        json!({ "k": null, "l": null, "m": null })
    );
    for empty in [
        "{}",
        r#"{"resourceLogs":[]}"#,
        r#"{"resourceLogs":[{}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{}]}]}"#,
        r#"{"resourceLogs":null}"#,
        r#"{"resourceLogs":[{"scopeLogs":null}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":null}]}]}"#,
    ] {
        let read = read_json(Table::Logs, empty).unwrap();
        assert_eq!((read.rows.len(), read.rejected), (0, 0), "{empty}");
    }
    let no_schema = r#"{"resourceLogs":[{"schemaUrl":null,"scopeLogs":[{"schemaUrl":null,"logRecords":[{}]}]}]}"#;
    assert_eq!(only(Table::Logs, no_schema), bare);
    let status = only(Table::Traces, &span_with(json!({ "status": null })));
    assert_eq!(status, only(Table::Traces, &span_with(json!({ "status": {} }))));
}

#[test]
fn numbers_that_no_enumeration_has_are_kept_and_names_are_not_taken() {
    assert_eq!(
        only(Table::Logs, &log(&json!({ "severityNumber": 99 })))["attributes"],
        json!({ "otel.severity_number": 99 })
    );
    assert_eq!(
        only(Table::Traces, &span_with(json!({ "kind": 77 })))["attributes"],
        json!({ "span.kind": 77 })
    );
    // The protocol's JSON has numbers alone.
    for (table, body) in [
        (Table::Logs, log(&json!({ "severityNumber": "SEVERITY_NUMBER_INFO" }))),
        (Table::Traces, span_with(json!({ "kind": "SPAN_KIND_SERVER" }))),
    ] {
        assert!(read_json(table, &body).is_err(), "{body}");
    }
}

#[test]
fn unknown_fields_are_passed_over_at_every_level() {
    let unknown = json!({ "new": { "list": [1, "two", null] } });
    let with = |mut message: Value| {
        message["unknownField"] = unknown.clone();
        message
    };
    let body = |with: &dyn Fn(Value) -> Value| {
        let value = with(json!({ "stringValue": "v" }));
        let attribute = with(json!({ "key": "k", "value": value }));
        let record = with(json!({ "body": { "stringValue": "x" }, "attributes": [attribute.clone()] }));
        let scope = with(json!({ "scope": with(json!({ "name": "s" })), "logRecords": [record] }));
        let resource = with(json!({ "attributes": [attribute] }));
        with(json!({ "resourceLogs": [with(json!({ "resource": resource, "scopeLogs": [scope] }))] })).to_string()
    };
    let plain = body(&|message| message);
    let more = body(&with);
    assert!(more.len() > plain.len() + 300);
    assert_eq!(only(Table::Logs, &more), only(Table::Logs, &plain));
    assert_eq!(only(Table::Logs, &plain)["attributes"]["k"], "v");
}

#[test]
fn ids_are_hex_of_either_case_and_bytes_are_base64() {
    let ids = json!({ "traceId": "AB".repeat(16), "spanId": "Cd".repeat(8), "parentSpanId": "" });
    let stored = only(Table::Traces, &span_with(ids));
    assert_eq!(
        (&stored["trace_id"], &stored["span_id"], &stored["parent_span_id"]),
        (&json!("ab".repeat(16)), &json!("cd".repeat(8)), &Value::Null)
    );
    let bytes = |text: &str| log(&json!({ "attributes": [{ "key": "b", "value": { "bytesValue": text } }] }));
    assert_eq!(only(Table::Logs, &bytes("AQID"))["attributes"], json!({ "b": "AQID" }));
    assert!(read_json(Table::Logs, &bytes("not base64!")).is_err());
    for id in ["abc", "zz"] {
        assert!(
            read_json(Table::Traces, &span_with(json!({ "traceId": id }))).is_err(),
            "{id}"
        );
    }
    // Ids that are hex of another length, or of zeros, are wrong with the record alone.
    for id in ["ab".to_owned(), "00".repeat(16)] {
        let read = read_json(Table::Traces, &span_with(json!({ "traceId": id }))).unwrap();
        assert_eq!((read.rows.len(), read.rejected), (0, 1), "{id}");
    }
}

#[test]
fn a_metric_whose_data_cannot_be_read_is_told_and_the_others_are_stored() {
    let reason = "data of the metric \"n\" cannot be read";
    for data in [
        json!({}),
        json!({ "gauge": null }),
        json!({ "gauge": { "dataPoints": 5 } }),
        json!({ "gauge": { "dataPoints": [{ "timeUnixNano": "yesterday", "asInt": 1 }] } }),
        json!({ "gauge": { "dataPoints": [{ "asDouble": "NaN" }] } }),
        json!({ "gauge": { "dataPoints": [{ "asDouble": null }] } }),
        json!({ "sum": { "dataPoints": [{ "asInt": 1 }], "aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA" } }),
        json!({ "histogram": { "dataPoints": [{ "count": "many" }] } }),
        json!({ "kindThatIsNew": { "dataPoints": [{ "asInt": 1 }] } }),
    ] {
        let read = read_json(Table::Metrics, &metric_with(&data)).unwrap_or_else(|error| panic!("{data}: {error}"));
        assert_eq!((read.rows.len(), read.rejected), (1, 1), "{data}: {read:?}");
        assert_eq!(read.rows[0]["name"], "good");
        assert!(read.refused[0].1.starts_with(reason), "{data}: {}", read.refused[0].1);
    }
}

/// A point as protobuf that has the text of what cannot be read.
fn unread_point(text: &Value) -> Vec<u8> {
    let text = text.to_string();
    let mut field = vec![0xfa, 0x7f];
    prost::encoding::encode_varint(text.len() as u64, &mut field);
    field.extend_from_slice(text.as_bytes());
    field
}

#[test]
fn a_point_that_cannot_be_read_is_refused_alone_and_kept_as_it_was_sent() {
    let (number, distribution) = (json!({ "asInt": "1" }), json!({ "count": "1", "sum": 1 }));
    for (kind, good, bad, rows) in [
        (
            "gauge",
            &number,
            json!({ "asInt": "1", "timeUnixNano": "yesterday" }),
            1,
        ),
        ("gauge", &number, json!({ "asInt": "x" }), 1),
        ("sum", &number, json!({ "asInt": 1, "flags": "none" }), 1),
        ("histogram", &distribution, json!({ "count": "many" }), 1),
        ("exponentialHistogram", &distribution, json!({ "scale": 1.5 }), 1),
        ("summary", &distribution, json!({ "attributes": 7 }), 2),
    ] {
        let data = json!({ kind: { "dataPoints": [good, bad, good] } });
        let read = read_json(Table::Metrics, &metric_with(&data)).unwrap();
        assert_eq!(
            (read.rows.len() as u64, read.rejected),
            (2 * rows + 1, 1),
            "{kind}: {read:?}"
        );
        let (row, reason, sent) = &read.refused[0];
        assert_eq!((*row, sent), (rows, &unread_point(&bad)), "{kind}");
        assert!(
            reason.starts_with("data of the metric \"n\" cannot be read"),
            "{reason}"
        );
    }
}

#[test]
fn data_of_a_metric_that_cannot_be_read_is_kept_as_it_was_sent() {
    let points = json!([{ "asInt": 1 }, { "asInt": 2 }]);
    for data in [
        json!({ "dataPoints": points, "aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA" }),
        json!({ "dataPoints": [{ "asInt": 1 }, 5] }),
        json!(5),
    ] {
        let read = read_json(Table::Metrics, &metric_with(&json!({ "sum": data }))).unwrap();
        assert_eq!((read.rows.len(), read.rejected), (1, 1), "{data}: {read:?}");
        assert_eq!(read.refused[0].2, unread_point(&data));
    }
    let read = read_json(
        Table::Metrics,
        &metric_with(&json!({ "gauge": { "dataPoints": [{}] } })),
    )
    .unwrap();
    assert!(
        read.refused[0].1.starts_with("the point has no value that is"),
        "{read:?}"
    );
    let both = json!({ "gauge": {}, "sum": { "dataPoints": points }, "summary": 5 });
    let read = read_json(Table::Metrics, &metric_with(&both)).unwrap();
    assert_eq!((read.rows.len(), read.rejected), (3, 1), "{read:?}");
    let read = read_json(
        Table::Metrics,
        &metric_with(&json!({ "kindThatIsNew": { "dataPoints": points } })),
    )
    .unwrap();
    let named = nested(1, b"n");
    assert!(read.refused[0].2.starts_with(&named), "what is known of it: {read:?}");
}

#[test]
fn a_request_whose_first_metric_cannot_be_read_is_known_by_the_time_of_the_next_one() {
    let sender = |first: Value, nanos: &str| {
        let good = json!({ "name": "good", "gauge": { "dataPoints": [{ "timeUnixNano": nanos, "asInt": "1" }] } });
        let body = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [first, good] }] }] }).to_string();
        request(Table::Metrics, OtlpEncoding::Json, body.into(), settings())
            .unwrap()
            .sender
    };
    let unread = json!({ "name": "n", "gauge": { "dataPoints": 5 } });
    let at = AT.to_string();
    assert!(sender(unread.clone(), &at).is_some());
    assert_eq!(sender(unread, "0"), None);
    let without = json!({ "name": "n", "gauge": { "dataPoints": [{ "asInt": "1" }] } });
    assert_eq!(sender(without, &at), None, "the first that can be read counts");
}

#[test]
fn what_is_no_request_is_refused_whole() {
    let deep = format!(
        "{}{}",
        r#"{"kvlistValue":{"values":[{"key":"k","value":"#.repeat(500),
        "}]}}".repeat(500)
    );
    for body in [
        "",
        "5",
        "null",
        "\"text\"",
        "{",
        "{} {}",
        r#"{"resourceLogs":5}"#,
        r#"{"resourceLogs":[5]}"#,
        r#"{"resourceLogs":[null]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"-1"}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":1.5}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":7}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"intValue":"1e3"}}]}]}]}"#,
        &log(&json!({ "body": { "stringValue": "x" } })).replace("\"x\"", &deep),
        &log(&json!({ "body": { "stringValue": "x" } })).replace('x', "\\ud800"),
    ] {
        let error = read_json(Table::Logs, body).unwrap_err();
        assert!(matches!(error, OtlpError::Json(_)), "{body}");
        let shown = error.to_string();
        assert!(shown.starts_with("the body is no OTLP request as JSON: "), "{shown}");
    }
    let not_utf8 = [&b"{\"resourceLogs\":\""[..], &[0xff], b"\"}"].concat();
    assert!(reader(Table::Logs, OtlpEncoding::Json, not_utf8).is_err());
}

#[test]
fn what_a_request_becomes_in_memory_is_known_before() {
    for body in [
        log(&json!({ "body": { "stringValue": "x".repeat(10_000) } })),
        log(&json!({ "attributes": vec![json!({ "key": "k", "value": { "intValue": "1" } }); 1_000] })),
        log(&json!({ "body": { "arrayValue": { "values": vec![json!({}); 1_000] } } })),
    ] {
        let body = body.into_bytes();
        let objects = body.iter().filter(|byte| **byte == b'{').count() as u64;
        let said = json_bytes(&body);
        // The request, the resource and the scope around the record are not held.
        assert!(said >= body.len() as u64 + (objects - 3) * 400, "{said}");
        assert!(said < 1_000 * body.len() as u64, "{said}");
    }
}

#[test]
fn a_request_takes_what_its_largest_part_takes_however_many_there_are() {
    let attributes = |count: usize| vec![json!({ "key": "k", "value": { "intValue": "1" } }); count];
    let records = |count: usize, of: usize| {
        let record = json!({ "body": { "stringValue": "a [\\\"{,:1" }, "attributes": attributes(of) });
        let scope = json!({ "scope": { "name": "s" }, "logRecords": vec![record; count] });
        let scopes = json!({ "schemaUrl": "u", "scopeLogs": [scope], "resource": { "attributes": attributes(3) } });
        json!({ "resourceLogs": [scopes] }).to_string().into_bytes()
    };
    let (many, one) = (records(10_000, 6), records(1, 60_000));
    assert!(many.len() > 2_000_000 && one.len() > 2_000_000);
    let beside = |body: &[u8]| json_bytes(body) / body.len() as u64;
    assert_eq!(beside(&many), 1);
    assert!(beside(&one) > 20);
    // As much elsewhere is as much.
    for place in ["resource", "other"] {
        let body = json!({ "resourceLogs": [{ place: { "attributes": attributes(60_000) } }] }).to_string();
        assert!(beside(body.as_bytes()) > 20, "{place}");
    }
    let whole = format!(r#"{{"resourceLogs":[{{"resource":[{}]}}]}}"#, json!(attributes(60_000)));
    assert!(beside(whole.as_bytes()) > 20);
    assert!(
        json_bytes(&one[..one.len() / 2]) > 10 * one.len() as u64,
        "one that is cut off"
    );
    let text = format!(r#"{{"resourceLogs":[{{"schemaUrl":"{}"}}]}}"#, "x".repeat(100_000));
    assert!(json_bytes(text.as_bytes()) > 300_000);
}

#[test]
fn what_is_written_has_the_size_that_is_said() {
    let point = |bounds: &str| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"n","histogram":{{"dataPoints":[{{"sum":1,"min":1,"max":1,"explicitBounds":[{bounds}]}}]}}}}]}}]}}]}}"#
        )
    };
    let empty = r#"{"scopeMetrics":[{},{}]},"#.repeat(10_000);
    let metrics = |metric: &str, count: usize| {
        let list = vec![metric; count].join(",");
        format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{list}]}}]}}]}}"#)
    };
    let unread = vec![r#"{"flags":[]}"#; 100].join(",");
    let named = (0..20).map(|length| metrics(&format!(r#"{{"name":"{}"}}"#, "n".repeat(length)), 10_000));
    let bodies = [
        metrics("{}", 10_000),
        metrics(&format!(r#"{{"sum":{{"dataPoints":[{unread}]}}}}"#), 1_000),
        point(&vec!["1"; 50_000].join(", ")),
        point(&vec!["-1"; 50_000].join(",")),
        point(&vec![r#""NaN""#; 50_000].join(",\n")),
        format!(r#"{{"resourceMetrics":[{empty}{{}}]}}"#),
    ];
    for body in named.chain(bodies) {
        let written = json::to_protobuf(Table::Metrics, body.as_bytes()).unwrap().len() as u64;
        assert!(written <= json_bytes(body.as_bytes()), "{}", &body[..200]);
    }
}

#[test]
fn requests_are_those_of_the_protocols_own_reader_in_whatever_order_their_fields_stand() {
    fn compared<T: Message + Default + serde::de::DeserializeOwned>(table: Table, body: &str) {
        let written = json::to_protobuf(table, body.as_bytes()).unwrap();
        let wanted: T = serde_json::from_str(body).unwrap();
        assert_eq!(
            T::decode(written).unwrap().encode_to_vec(),
            wanted.encode_to_vec(),
            "{body}"
        );
    }
    let log = log(&json!({ "body": { "stringValue": "x".repeat(200) }, "severityNumber": 9 }));
    compared::<ExportLogsServiceRequest>(Table::Logs, &log);
    let span = span_with(
        json!({ "startTimeUnixNano": "5", "links": [{ "traceId": "ab".repeat(16), "spanId": "cd".repeat(8) }] }),
    );
    compared::<ExportTraceServiceRequest>(Table::Traces, &span);
    let gauge = metric_with(&json!({ "gauge": { "dataPoints": [{ "asInt": "1" }] } }));
    compared::<ExportMetricsServiceRequest>(Table::Metrics, &gauge);
    let record = r#"{"body":{"stringValue":"x"}}"#;
    let parts = [
        format!(r#""scopeLogs":[{{"logRecords":[{record},{record}],"schemaUrl":"s","scope":{{"name":"n"}}}},{{}}]"#),
        r#""schemaUrl":"r""#.to_owned(),
        r#""new":[{"scopeLogs":[{}]}]"#.to_owned(),
        r#""resource":{"attributes":[{"key":"k","value":{"intValue":"5"}}]}"#.to_owned(),
    ];
    for first in 0..parts.len() {
        let mut parts = parts.clone();
        parts.rotate_left(first);
        let resource = format!("{{{}}}", parts.join(","));
        compared::<ExportLogsServiceRequest>(
            Table::Logs,
            &format!(r#"{{"resourceLogs":[{resource},{{}},{resource}]}}"#),
        );
    }
}
