//! Schemas of answers in Jaeger's form.

use serde_json::{Value, json};

use super::schemas::{count, list, object, or_null, reference, text};

/// What every answer is within.
fn answer(of: Value) -> Value {
    object(json!({
        "data": list(of), "total": count(), "limit": count(), "offset": count(), "errors": { "type": "null" },
    }))
}

pub(super) fn all() -> Value {
    let tags = || list(reference("JaegerTag"));
    let time = || json!({ "type": "integer", "description": "Microseconds since 1970." });
    let warnings = || or_null(list(text()));
    let span = object(json!({
        "traceID": text(), "spanID": text(), "flags": count(), "operationName": text(),
        "references": list(object(json!({
            "refType": { "enum": ["CHILD_OF", "FOLLOWS_FROM"] }, "traceID": text(), "spanID": text(),
        }))),
        "startTime": time(), "duration": { "type": "integer", "minimum": 0, "description": "Microseconds." },
        "tags": tags(), "logs": list(object(json!({ "timestamp": time(), "fields": tags() }))),
        "processID": text(), "warnings": warnings(),
    }));
    let process = object(json!({ "serviceName": text(), "tags": tags() }));
    let trace = object(json!({
        "traceID": text(), "spans": list(span), "processes": { "type": "object", "additionalProperties": process },
        "warnings": warnings(),
    }));
    json!({
        "JaegerTag": object(json!({
            "key": text(), "type": { "enum": ["string", "bool", "int64", "float64"] }, "value": reference("Any"),
        })),
        "JaegerNames": answer(text()),
        "JaegerOperations": answer(object(json!({ "name": text(), "spanKind": text() }))),
        "JaegerTraces": answer(trace),
        "JaegerDependencies": answer(object(json!({ "parent": text(), "child": text(), "callCount": count() }))),
    })
}
