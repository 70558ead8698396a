//! Lines as real programs write them, and bodies that no program should.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::batch::row_json;
use model::telemetry_codec::{BodyRecordReader, RefusedRecord};
use serde_json::json;

use super::*;

fn settings() -> SenderSettings {
    SenderSettings {
        entity: ["host.name", "service.name"].map(str::to_owned).into(),
        fallback: PublisherIdentity {
            entity_id: EntityId::for_name("http"),
            entity_name: "http".to_owned(),
        },
        now: "2027-01-15T08:00:00Z".parse().unwrap(),
    }
}

fn reader(table: Table, framing: JsonFraming, body: &str) -> BodyRecordReader {
    let records = json_records(table, framing, body.as_bytes(), settings()).unwrap();
    let body = body.to_owned().into();
    BodyRecordReader::of_format(table, records, body, settings().fallback).keeping_refused()
}

/// The rows of a body, and what is said of the other records.
fn read(table: Table, framing: JsonFraming, body: &str) -> (Vec<Map<String, Value>>, Vec<RefusedRecord>) {
    let mut records = reader(table, framing, body);
    let mut rows = Vec::new();
    while let Some(part) = records.next_part(200).unwrap() {
        rows.extend((0..part.batch.num_rows()).map(|row| row_json(&part.batch, row)));
    }
    (rows, records.refused().to_vec())
}

/// The only row of a line.
fn row(table: Table, line: &str) -> Map<String, Value> {
    let (mut rows, refused) = read(table, JsonFraming::Lines, line);
    assert!(rows.len() == 1 && refused.is_empty(), "{line}: {refused:?}");
    rows.remove(0)
}

/// That a line becomes a log of this time, level, message, entity and attributes.
fn assert_log(line: &str, (ts, level, message, entity): (&str, &str, &str, &str), attributes: &Value) {
    let row = row(Table::Logs, line);
    let found = ["ts", "level", "message", "entity_name"].map(|name| row[name].as_str().unwrap().to_owned());
    let ts = ts.parse::<Timestamp>().unwrap().to_string();
    assert_eq!(found, [ts.as_str(), level, message, entity], "{line}");
    assert_eq!(row["entity_id"], EntityId::for_name(entity).to_string(), "{line}");
    assert_eq!(row["attributes"], *attributes, "{line}");
}

#[test]
fn lines_of_vector_and_fluent_bit_are_logs() {
    assert_log(
        r#"{"appname":"nginx","facility":"daemon","host":"web-1","hostname":"web-1.lan","message":"GET / 200","msgid":"ID47","procid":9211,"severity":"warning","source_type":"syslog","timestamp":"2026-11-21T12:00:00.123456789Z","version":1}"#,
        ("2026-11-21T12:00:00.123456Z", "warn", "GET / 200", "web-1"),
        &json!({ "appname": "nginx", "facility": "daemon", "host": "web-1", "hostname": "web-1.lan", "msgid": "ID47", "procid": 9211,
                 "severity": "warning", "source_type": "syslog", "version": 1 }),
    );
    assert_log(
        r#"{"date":1795262400.123456,"log":"level=error msg=\"no space left\"\n","kubernetes":{"pod_name":"api-7","labels":{"app":"api"}}}"#,
        (
            "2026-11-21T12:00:00.123456Z",
            "error",
            "level=error msg=\"no space left\"",
            "http",
        ),
        &json!({ "kubernetes.labels.app": "api", "kubernetes.pod_name": "api-7" }),
    );
    assert_log(
        r#"{"date":"2026-11-21T12:00:00.000000Z","cpu_p":1.5,"user_p":0.5}"#,
        ("2026-11-21T12:00:00Z", "info", "", "http"),
        &json!({ "cpu_p": 1.5, "user_p": 0.5 }),
    );
}

#[test]
fn lines_of_log_libraries_are_logs() {
    let noon = "2026-11-21T12:00:00.123Z";
    assert_log(
        r#"{"level":30,"time":1795262400123,"pid":657,"hostname":"press-1","msg":"hello"}"#,
        (noon, "info", "hello", "press-1"),
        &json!({ "hostname": "press-1", "level": 30, "pid": 657 }),
    );
    assert_log(
        r#"{"level":"dpanic","ts":1795262400.123,"logger":"api","caller":"api/main.go:7","msg":"bad","error":"EOF"}"#,
        (noon, "error", "bad", "http"),
        &json!({ "caller": "api/main.go:7", "error": "EOF", "level": "dpanic", "logger": "api" }),
    );
    assert_log(
        r#"{"animal":"walrus","level":"warning","msg":"A group emerges","size":10,"time":"2026-11-21T14:00:00+02:00"}"#,
        ("2026-11-21T12:00:00Z", "warn", "A group emerges", "http"),
        &json!({ "animal": "walrus", "level": "warning", "size": 10 }),
    );
    assert_log(
        r#"{"@t":"2026-11-21T12:00:00.1230000Z","@mt":"Hello, {User}","@l":"Fatal","@x":"System.Exception","User":"nblumhardt","@tr":"0123"}"#,
        (noon, "error", "Hello, {User}", "http"),
        &json!({ "@l": "Fatal", "@tr": "0123", "@x": "System.Exception", "User": "nblumhardt" }),
    );
    assert_log(
        r#"{"asctime": "2026-11-21 12:00:00,123", "levelname": "INFO", "name": "app", "message": "started", "trace_id": "0123456789abcdef0123456789abcdef"}"#,
        (noon, "info", "started", "http"),
        &json!({ "name": "app", "trace_id": "0123456789abcdef0123456789abcdef" }),
    );
    assert_log(
        r#"{"event": "user_logged_in", "user": {"id": 7}, "level": "debug", "timestamp": "2026-11-21T12:00:00.123Z"}"#,
        (noon, "debug", "user_logged_in", "http"),
        &json!({ "user.id": 7 }),
    );
    assert_log(
        r#"{"timestamp":"2026-11-21T12:00:00.123Z","level":"ERROR","fields":{"message":"failed","code":5},"target":"app::db"}"#,
        (noon, "error", "failed", "http"),
        &json!({ "fields.code": 5, "target": "app::db" }),
    );
    assert_log(
        r#"{"@timestamp":"2026-11-21T12:00:00.123Z","log.level":"WARN","message":"full","ecs.version":"1.2.0","service.name":"shop","host":{"name":"node-7"}}"#,
        (noon, "warn", "full", "node-7"),
        &json!({ "ecs.version": "1.2.0", "host.name": "node-7", "service.name": "shop" }),
    );
    assert_log(
        r#"{"version":"1.1","host":"example.org","short_message":"A short one","timestamp":1795262400.123,"level":3,"_user_id":9001}"#,
        (noon, "error", "A short one", "example.org"),
        &json!({ "_user_id": 9001, "host": "example.org", "level": 3, "version": "1.1" }),
    );
}

#[test]
fn lines_of_docker_and_journald_and_records_of_ours_are_logs() {
    assert_log(
        r#"{"log":"{\"level\":\"warn\",\"msg\":\"x\"}\n","stream":"stderr","time":"2026-11-21T12:00:00.123456789Z"}"#,
        (
            "2026-11-21T12:00:00.123456Z",
            "warn",
            r#"{"level":"warn","msg":"x"}"#,
            "http",
        ),
        &json!({ "stream": "stderr" }),
    );
    assert_log(
        r#"{"__REALTIME_TIMESTAMP":"1795262400123456","_HOSTNAME":"press-1","PRIORITY":"4","SYSLOG_IDENTIFIER":"sshd","MESSAGE":"closed","_PID":"77"}"#,
        ("2026-11-21T12:00:00.123456Z", "warn", "closed", "press-1"),
        &json!({ "PRIORITY": "4", "SYSLOG_IDENTIFIER": "sshd", "_HOSTNAME": "press-1", "_PID": "77" }),
    );
    assert_log(
        r#"{"ts":"2026-11-21T12:00:00Z","level":"debug","message":"ours","entity_name":"press-1","attributes":{"http":{"status":200},"message":"another"},"host":"ignored"}"#,
        ("2026-11-21T12:00:00Z", "debug", "ours", "press-1"),
        &json!({ "attributes.message": "another", "host": "ignored", "http.status": 200 }),
    );
    let id = EntityId::for_name("another");
    let line = format!(r#"{{"msg":"a","entity_name":"press-1","entity_id":"{id}","flux_id":null}}"#);
    let named = row(Table::Logs, &line);
    assert_eq!(
        (&named["entity_id"], &named["entity_name"]),
        (&json!(id.to_string()), &json!("press-1"))
    );
    let now = settings().now.to_string();
    assert_eq!(
        (&named["ts"], &named["attributes"], &named["flux_id"]),
        (&json!(now), &json!({}), &Value::Null),
        "a record without a time is of now"
    );
}

#[test]
fn points_of_vector_and_of_ours_are_metrics() {
    for (line, name, kind, value, entity, labels) in [
        (
            r#"{"name":"cpu_seconds","namespace":"host","tags":{"host":"web-1","mode":"idle"},"timestamp":"2026-11-21T12:00:00Z","kind":"absolute","counter":{"value":5}}"#,
            "cpu_seconds",
            "counter",
            5.0,
            "web-1",
            json!({ "host": "web-1", "kind": "absolute", "mode": "idle", "namespace": "host" }),
        ),
        (
            r#"{"metric":"load","value":"1.5","time":1795262400,"unit":"1","host":"web-1"}"#,
            "load",
            "gauge",
            1.5,
            "web-1",
            json!({ "host": "web-1", "otel.unit": "1" }),
        ),
        (
            r#"{"ts":"2026-11-21T12:00:00Z","name":"jobs","type":"Sum","value":-2,"labels":{"level":"high","message":"kept"},"entity_name":"press-1"}"#,
            "jobs",
            "counter",
            -2.0,
            "press-1",
            json!({ "level": "high", "message": "kept" }),
        ),
    ] {
        let row = row(Table::Metrics, line);
        let found = ["name", "type", "entity_name"].map(|name| row[name].as_str().unwrap());
        assert_eq!(found, [name, kind, entity], "{line}");
        assert_eq!((&row["value"], &row["labels"]), (&json!(value), &labels), "{line}");
        assert!(row["ts"].as_str().unwrap().starts_with("2026-11-21T12:00:00"), "{line}");
    }
}

#[test]
fn spans_of_zipkin_and_of_ours_are_traces() {
    for (line, parent, name, duration, status, entity, attributes) in [
        (
            r#"{"traceId":"0123456789abcdef","id":"00f067aa0ba902b7","parentId":"00f067aa0ba902b6","kind":"SERVER","name":"get /","timestamp":1795262400000000,"duration":1500,"localEndpoint":{"serviceName":"shop"},"tags":{"error":"timeout"}}"#,
            json!("00f067aa0ba902b6"),
            "get /",
            1.5,
            "error",
            "shop",
            json!({ "error": "timeout", "kind": "SERVER", "localEndpoint.serviceName": "shop" }),
        ),
        (
            r#"{"trace_id":"00000000000000000123456789abcdef","span_id":"00f067aa0ba902b7","span_name":"step","ts":"2026-11-21T12:00:00Z","duration_ms":2.5,"status":"OK","attributes":{"a":{"b":1}}}"#,
            Value::Null,
            "step",
            2.5,
            "ok",
            "http",
            json!({ "a.b": 1 }),
        ),
        (
            r#"{"traceID":"00000000000000000123456789abcdef","spanID":"00f067aa0ba902b7","operationName":"step","start":"2026-11-21T12:00:00Z","end":"2026-11-21T12:00:00.25Z","status_code":500}"#,
            Value::Null,
            "step",
            250.0,
            "ok",
            "http",
            json!({ "status_code": 500 }),
        ),
    ] {
        let row = row(Table::Traces, line);
        let found =
            ["trace_id", "span_id", "span_name", "status", "entity_name"].map(|name| row[name].as_str().unwrap());
        let ids = ["00000000000000000123456789abcdef", "00f067aa0ba902b7"];
        assert_eq!(found, [ids[0], ids[1], name, status, entity], "{line}");
        assert_eq!(
            (&row["parent_span_id"], &row["duration_ms"]),
            (&parent, &json!(duration)),
            "{line}"
        );
        assert_eq!(row["attributes"], attributes, "{line}");
        assert!(row["ts"].as_str().unwrap().starts_with("2026-11-21T12:00:00"), "{line}");
    }
}

#[test]
fn no_span_takes_less_than_no_time() {
    for (fields, duration, attributes) in [
        (json!({ "duration": -1_500 }), 0.0, json!({ "duration": -1_500 })),
        (json!({ "duration_ms": "-0.5" }), 0.0, json!({ "duration_ms": "-0.5" })),
        (json!({ "duration": "NaN" }), 0.0, json!({ "duration": "NaN" })),
        (
            json!({ "duration_ms": -1, "start": "2026-11-21T12:00:00Z", "end": "2026-11-21T12:00:01Z" }),
            1_000.0,
            json!({ "duration_ms": -1 }),
        ),
        (
            json!({ "duration_ms": -1, "duration_us": 500 }),
            0.5,
            json!({ "duration_ms": -1 }),
        ),
        (
            json!({ "start": "2026-11-21T12:00:01Z", "end": "2026-11-21T12:00:00Z" }),
            0.0,
            json!({}),
        ),
        (json!({ "duration_ms": 0 }), 0.0, json!({})),
    ] {
        let mut record = json!({ "trace_id": "0123456789abcdef", "id": "00f067aa0ba902b7" });
        record
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let row = row(Table::Traces, &record.to_string());
        assert_eq!(
            (&row["duration_ms"], &row["attributes"]),
            (&json!(duration), &attributes),
            "{record}"
        );
    }
}

#[test]
fn records_are_found_in_lines_in_arrays_and_one_behind_the_other() {
    let messages = |rows: &[Map<String, Value>]| -> Vec<String> {
        rows.iter()
            .map(|row| row["message"].as_str().unwrap().to_owned())
            .collect()
    };
    let (a, b) = (r#"{"msg":"a, ]}"}"#, r#"{"msg":"b"}"#);
    let pretty = "{\n  \"msg\": \"a, ]}\"\n}\n";
    for (framing, body) in [
        (JsonFraming::Lines, format!("\n {a}\r\n\n{b}")),
        (JsonFraming::Document, format!(" [{a} ,\n{b}\n]\n")),
        (JsonFraming::Document, format!("{a}{b}")),
        (JsonFraming::Document, format!("{a}\n{b}\n")),
        (JsonFraming::Document, format!("{pretty}{b}")),
    ] {
        let (rows, refused) = read(Table::Logs, framing, &body);
        assert_eq!(messages(&rows), ["a, ]}", "b"], "{body}");
        assert!(refused.is_empty(), "{body}: {refused:?}");
    }
    assert_eq!(read(Table::Logs, JsonFraming::Document, " [ ] ").0.len(), 0);
    for nothing in ["", "7", "\"a\"", "]"] {
        let refused = json_records(Table::Logs, JsonFraming::Document, nothing.as_bytes(), settings());
        assert!(refused.unwrap_err().contains("neither an array"), "{nothing}");
    }
}

#[test]
fn what_is_no_record_is_refused_alone_and_kept_as_it_was_sent() {
    let good = r#"{"msg":"good"}"#;
    let deep = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
    let many = format!("[{}1]", "1,".repeat(1 << 17));
    let many = format!("{{\"a\":{many}}}");
    let leaves: Map<String, Value> = (0..1_000).map(|n| (n.to_string(), n.into())).collect();
    let multiplied = json!({ "k".repeat(1 << 16): leaves }).to_string();
    for (bad, says) in [
        ("7", "invalid type"),
        ("[1]", "invalid type"),
        ("{}", "no fields"),
        (r#"{"msg":null}"#, "no fields"),
        (r#"{"msg":"a""#, "EOF"),
        (r#"{"msg":"a"} {"msg":"b"}"#, "trailing"),
        (r#"{"@timestamp":"soon","msg":"a"}"#, "@timestamp"),
        (deep.as_str(), "recursion limit"),
        (many.as_str(), "values"),
        (multiplied.as_str(), "bytes"),
    ] {
        let (rows, refused) = read(Table::Logs, JsonFraming::Lines, &format!("{good}\n{bad}\n{good}\n"));
        assert_eq!((rows.len(), refused.len()), (2, 1), "{says}");
        let (record, reason) = (&refused[0].record[..], &refused[0].reason);
        assert!(record == bad.as_bytes() && refused[0].row == 1, "{says}");
        assert!(reason.contains(says), "{reason}");
    }
    for (body, row, says, record) in [
        (format!("[{good},{good}"), 1, "not closed", good),
        (format!("[{good}] {good} "), 1, "bytes follow", good),
        (format!("[{good},]"), 1, "EOF", ""),
        (format!("{good} x {good}"), 1, "expected value", "x {\"msg\":\"good\"}"),
    ] {
        let (rows, refused) = read(Table::Logs, JsonFraming::Document, &body);
        assert_eq!((rows.len(), refused.len(), refused[0].row), (1, 1, row), "{body}");
        assert!(refused[0].reason.contains(says), "{body}: {refused:?}");
        assert_eq!(refused[0].record, record, "{body}");
    }
}

#[test]
fn points_and_spans_lacking_what_they_need_are_refused_with_its_names() {
    for (table, record, says) in [
        (Table::Metrics, r#"{"value":1}"#, "metric_name"),
        (Table::Metrics, r#"{"name":"","value":1}"#, "metric_name"),
        (
            Table::Metrics,
            r#"{"name":"a","value":"high"}"#,
            "no number under value",
        ),
        (Table::Metrics, r#"{"name":"a","value":"NaN"}"#, "not a finite number"),
        (Table::Metrics, r#"{"name":"a","value":1e999}"#, "number out of range"),
        (
            Table::Traces,
            r#"{"span_id":"00f067aa0ba902b7"}"#,
            "the trace is missing",
        ),
        (
            Table::Traces,
            r#"{"trace_id":"0123456789abcdef","id":"0"}"#,
            "the span is missing",
        ),
        (
            Table::Traces,
            r#"{"trace_id":"0123456789abcdef","id":"00f067aa0ba902b7","duration_ms":1e300}"#,
            "not a finite number",
        ),
    ] {
        let (rows, refused) = read(table, JsonFraming::Lines, record);
        assert_eq!((rows.len(), refused.len()), (0, 1), "{record}");
        assert!(refused[0].reason.contains(says), "{record}: {refused:?}");
    }
}

#[test]
fn a_body_is_read_on_from_where_it_was_left() {
    let lines: Vec<String> = (0..50)
        .map(|n| {
            if n % 7 == 3 {
                n.to_string()
            } else {
                format!("{{\"msg\":\"{n}\"}}")
            }
        })
        .collect();
    for (framing, body) in [
        (JsonFraming::Lines, lines.join("\n")),
        (JsonFraming::Document, format!("[{}]", lines.join(","))),
    ] {
        let mut first = reader(Table::Logs, framing, &body);
        let part = first.next_part(300).unwrap().unwrap();
        let mut again = reader(Table::Logs, framing, &body);
        assert_eq!(again.skip_to(part.to, 100).unwrap(), part.batch.num_rows() as u64);
        let mut rows = part.batch.num_rows();
        while let Some(part) = again.next_part(usize::MAX).unwrap() {
            rows += part.batch.num_rows();
        }
        assert_eq!((rows, again.rejected()), (43, 7), "{framing:?}");
    }
}
