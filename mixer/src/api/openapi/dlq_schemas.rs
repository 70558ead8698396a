//! Schemas of the bodies and answers of the dead-letter queue.

use model::filter::{DURATION, TimePoint};
use model::{LetterId, Token, inline_schema};
use serde_json::{Map, Value, json};

use super::parameters as p;
use super::schemas::{answer, count, counts, list, object, or_null, reference, text, time};

/// The dead-letter queue.
pub(super) fn all() -> Value {
    let flag = || json!({ "type": "boolean" });
    let id = || inline_schema::<LetterId>();
    let token = || inline_schema::<Option<Token>>();
    let states: Vec<_> = p::LETTER_STATES.iter().filter(|state| **state != "all").collect();
    let view = json!({
        "id": id(), "ts": time(), "state": { "enum": states }, "kind": { "enum": ["gear", "message", "telemetry", "unknown"] },
        "rack": token(), "gear": token(), "port": token(), "way": { "enum": ["in", "out", null] },
        "from": or_null(text()), "subject": text(), "reason": text(), "attempts": or_null(count()), "replays": count(),
        "replay_of": or_null(id()), "flux_id": or_null(json!({ "type": "string", "format": "uuid" })), "trace_id": or_null(text()),
        "bytes": count(), "replayable": flag(), "why_not": or_null(text()),
        "changed": or_null(time()), "changed_by": or_null(text()), "note": or_null(text()),
    });
    let whole = with(
        &view,
        &json!({
            "content_type": or_null(text()), "headers": { "type": "object" }, "message": { "type": ["object", "null"] },
            "payload": { "type": "string", "pattern": "^([0-9a-f]{2})*$" },
        }),
    );
    let refusal = object(json!({ "id": id(), "reason": text() }));
    let mut report: Map<_, _> = counts(&[
        "matched",
        "changed",
        "already",
        "waiting",
        "replayed",
        "dropped",
        "refused_total",
    ]);
    report.insert("refused".to_owned(), list(refusal));
    report.insert("dry_run".to_owned(), flag());
    let mut report = object(report.into());
    report["properties"]["partial"] = text();
    let by = json!({ "type": "string", "description": "Who makes the request; stored with the letter, up to 128 \
                                                       characters." });
    let wait = json!({ "type": ["string", "null"], "pattern": DURATION, "description": "How long to wait for the gears, at most 60s; without it 5s." });
    let one = |properties: Value| json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let replayed = json!({ "again": flag(), "wait": wait });
    json!({
        "LetterFacts": object(view),
        "Letters": answer(reference("LetterFacts"), &json!({})),
        "Letter": object(json!({ "data": object(whole) })),
        "LettersChanged": object(json!({ "data": report })),
        "ReplayWish": wish(&with(&json!({ "by": by, "dry_run": flag() }), &replayed)),
        "DropWish": wish(&json!({ "by": by, "dry_run": flag() })),
        "ReplayOfOne": one(with(&json!({ "by": by }), &replayed)),
        "DropOfOne": one(json!({ "by": by })),
    })
}

/// The properties of two objects.
fn with(some: &Value, more: &Value) -> Value {
    let objects = [some, more].into_iter().filter_map(Value::as_object);
    Value::Object(
        objects
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

/// Letters by their ids, by a filter that is one, or all of them.
fn wish(beside: &Value) -> Value {
    let text = || json!({ "type": ["string", "null"] });
    let when = || inline_schema::<Option<TimePoint>>();
    let names = ["rack", "gear", "subject", "reason", "since", "until"];
    let filter = || {
        json!({ "type": "object", "additionalProperties": false, "properties": {
            "rack": text(), "gear": text(), "subject": text(), "reason": text(),
            "state": { "enum": ["open", "waiting", "replayed", "dropped", "all", null] }, "since": when(), "until": when(),
        } })
    };
    let says = |name: &&str| json!({ "required": [name], "properties": { *name: { "type": "string" } } });
    let mut narrow = filter();
    narrow["anyOf"] = names.iter().map(says).collect();
    let ids = json!({ "type": "array", "items": inline_schema::<LetterId>(), "minItems": 1 });
    let no_ids = json!({ "type": "array", "maxItems": 0 });
    let shape = |required: &str, properties: Value| {
        json!({
            "type": "object", "required": [required], "properties": with(&properties, beside), "additionalProperties": false,
        })
    };
    json!({ "anyOf": [
        shape("ids", json!({ "ids": ids, "all": { "const": false }, "filter": { "type": "null" } })),
        shape("filter", json!({ "filter": narrow, "all": { "type": "boolean" }, "ids": no_ids })),
        shape("all", json!({ "all": { "const": true }, "filter": { "anyOf": [filter(), { "type": "null" }] }, "ids": no_ids })),
    ] })
}
