//! Records of others by what their fields mean.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn shaped(record: Value) -> Result<ShapedRecord, String> {
    let Value::Object(record) = record else {
        return Err("no object".to_owned());
    };
    ShapedRecord::of(record, &["host.name", "host", "service.name"].map(str::to_owned))
}

fn at(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

#[test]
fn times_of_every_usual_form_are_the_same_moment() {
    let noon = at("2026-11-21T12:00:00.123456Z");
    for form in [
        json!("2026-11-21T12:00:00.123456Z"),
        json!("2026-11-21T14:00:00.123456+02:00"),
        json!("2026-11-21T14:00:00.123456+0200"),
        json!("2026-11-21 12:00:00.123456"),
        json!("2026-11-21 12:00:00,123456"),
        json!("2026-11-21 07:00:00.123456 -0500"),
        json!("2026-11-21 12:00:00.123456 UTC"),
        json!(" 2026-11-21t12:00:00.123456z "),
        json!(1_795_262_400.123_456),
        json!("1795262400.123456"),
        json!("1795262400.123456789"),
        json!(1_795_262_400_123.456),
        json!(1_795_262_400_123_456_i64),
        json!("1795262400123456"),
        json!(1_795_262_400_123_456_789_i64),
        json!("1795262400123456789"),
    ] {
        assert_eq!(time_of(&form), noon, "{form}");
    }
    assert_eq!(time_of(&json!(1_795_262_400)), at("2026-11-21T12:00:00Z"));
    assert_eq!(time_of(&json!("1795262400123")), at("2026-11-21T12:00:00.123Z"));
}

#[test]
fn what_is_no_time_is_none() {
    for form in [
        json!(0),
        json!(-1_795_262_400),
        json!(35.5),
        json!(99_999_999),
        json!("yesterday"),
        json!(""),
        json!("."),
        json!("2026-11-21"),
        json!("2026-13-21T12:00:00Z"),
        json!("99999999999999999999"),
        json!("１７９５２６２４００"),
        json!(u64::MAX),
        json!(1e300),
        json!(true),
        json!(null),
        json!(["2026-11-21T12:00:00Z"]),
    ] {
        assert_eq!(time_of(&form), None, "{form}");
    }
    assert!(time_of(&json!(i64::MAX)).is_some(), "nanoseconds of the year 2262");
}

#[test]
fn fields_are_found_as_keys_with_dots_and_as_objects() {
    let flat = shaped(json!({
        "@timestamp": "2026-11-21T12:00:00Z", "log.level": "WARN", "message": "full\n", "host.name": "press-1",
        "trace.id": "0123456789abcdef0123456789ABCDEF", "span.id": "0123456789abcdef", "agent.version": "8.15.0",
        "flux_id": "0198a8b0-2d5e-7c3a-8f6b-0123456789ab",
    }))
    .unwrap();
    let nested = shaped(json!({
        "@timestamp": "2026-11-21T12:00:00Z", "log": { "level": "WARN" }, "message": "full\n", "host": { "name": "press-1" },
        "trace": { "id": "0123456789abcdef0123456789ABCDEF" }, "span": { "id": "0123456789abcdef" },
        "agent": { "version": "8.15.0" }, "flux_id": "0198a8b0-2d5e-7c3a-8f6b-0123456789ab",
    }))
    .unwrap();
    for found in [&flat, &nested] {
        assert_eq!(found.ts, at("2026-11-21T12:00:00Z"));
        assert_eq!(found.level, Some(Level::Warn));
        assert_eq!(found.message.as_deref(), Some("full"));
        assert_eq!(found.entity_name.as_deref(), Some("press-1"));
        let mut attributes = AttributeBuffer::default();
        found.set_attributes(&mut attributes, 400).unwrap();
        let mut text = Vec::new();
        attributes.write(&mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"agent.version":"8.15.0","host.name":"press-1","span_id":"0123456789abcdef","trace_id":"0123456789abcdef0123456789abcdef"}"#
        );
        assert_eq!(
            found.flux_id,
            Some("0198a8b0-2d5e-7c3a-8f6b-0123456789ab".parse().unwrap())
        );
    }
}

#[test]
fn what_cannot_be_understood_stays_a_field() {
    let found = shaped(json!({
        "time": 35, "level": "loud", "log": { "offset": 7 }, "body": "text", "host": 5, "trace_id": "0", "span_id": "zz", "flux_id": "1",
    }))
    .unwrap();
    assert_eq!((found.ts, found.level), (None, None));
    assert_eq!(found.message.as_deref(), Some("text"));
    assert_eq!((found.entity_name, found.trace_id, found.span_id), (None, None, None));
    let rest = json!({
        "time": 35, "level": "loud", "log": { "offset": 7 }, "host": 5, "trace_id": "0", "span_id": "zz", "flux_id": "1",
    });
    assert_eq!(Value::Object(found.rest), rest);
}

#[test]
fn a_level_that_says_more_than_ours_is_kept_as_well() {
    for (field, level, is_kept) in [
        (json!("Error"), Level::Error, false),
        (json!("warning"), Level::Warn, true),
        (json!("NOTICE"), Level::Info, true),
        (json!("fatal"), Level::Error, true),
        (json!(3), Level::Error, true),
        (json!(30), Level::Info, true),
        (json!("7"), Level::Debug, true),
    ] {
        let found = shaped(json!({ "level": field })).unwrap();
        assert_eq!(
            (found.level, found.rest.contains_key("level")),
            (Some(level), is_kept),
            "{field}"
        );
    }
    let second = shaped(json!({ "level": 99, "severity": "debug" })).unwrap();
    assert_eq!(second.level, Some(Level::Debug));
}

#[test]
fn a_field_that_can_only_be_a_time_refuses_what_is_none() {
    for (record, reason) in [
        (json!({ "@timestamp": "soon" }), "@timestamp: \"soon\" is no time"),
        (json!({ "timestamp": 0 }), "timestamp: 0 is no time"),
        (
            json!({ "timestamp": {}, "ts": 1_795_262_400 }),
            "timestamp: {} is no time",
        ),
    ] {
        let error = shaped(record).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
    let other = shaped(json!({ "@timestamp": null, "ts": 1_795_262_400 })).unwrap();
    assert_eq!(other.ts, at("2026-11-21T12:00:00Z"));
    let long = shaped(json!({ "host": "h".repeat(256) })).unwrap_err();
    assert_eq!(long, "the entity's name has 256 bytes, more than 255");
}

#[test]
fn the_level_of_a_line_is_that_behind_its_name() {
    for (line, level) in [
        ("ts=1 level=warn msg=\"x\"", Some(Level::Warn)),
        ("level=\"ERROR\" x", Some(Level::Error)),
        (r#"{"msg":"a","level" : "debug"}"#, Some(Level::Debug)),
        (r#"{"level":30}"#, Some(Level::Info)),
        ("[2026] severity: critical", Some(Level::Error)),
        ("time=10:00 lvl=eror", Some(Level::Error)),
        ("level=loud severity=info", Some(Level::Info)),
        (r#"{"@l":"Warning","@m":"x"}"#, Some(Level::Warn)),
        (r#"{"level" : "50", "msg":"x"}"#, Some(Level::Error)),
        (r#"{"msg":"x","PRIORITY":3}"#, Some(Level::Error)),
        // Numbers that count or measure something.
        ("severity: 3 of 5 sensors", None),
        ("water level: 7 m", None),
        ("fill level=4", None),
        ("level=50% pump=2", None),
        ("priority: 2nd", None),
        ("set \"level\"=3", None),
        (r#"{"level":3.5}"#, None),
        (r#"{"level":"4 of 9"}"#, None),
        (r#"{"level":-3}"#, None),
        ("3 warnings", None),
        ("sealevel=warn", None),
        ("an error occurred", None),
        ("level=", None),
        ("=:=", None),
        ("", None),
    ] {
        assert_eq!(level_of_line(line), level, "{line}");
    }
    let late = format!("{} level=warn", "x".repeat(LINE_HEAD));
    assert_eq!(level_of_line(&late), None);
}

#[test]
fn keys_that_multiply_are_refused() {
    let values: Map<String, Value> = (0..2_000).map(|n| (n.to_string(), json!(n))).collect();
    let found = shaped(json!({ "k".repeat(10_000): values })).unwrap();
    assert!(found.set_attributes(&mut AttributeBuffer::default(), 40_000).is_err());
}
