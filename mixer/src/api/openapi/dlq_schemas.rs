//! Schemas of the bodies and answers of the dead-letter queue.

use model::filter::{DURATION, LetterStateFilter, TimePoint};
use model::{LetterId, inline_schema, written_schema};
use serde_json::{Value, json};

use super::schemas::{answer, one, reference};
use crate::dlq::{LetterDetail, LetterUpdateReport, LetterView};

/// The dead-letter queue.
pub(super) fn all() -> Value {
    let flag = || json!({ "type": "boolean" });
    let by = json!({ "type": "string", "description": "Who makes the request; stored with the letter, up to 128 \
                                                       characters." });
    let wait = json!({ "type": ["string", "null"], "pattern": DURATION, "description": "How long to wait for the gears, at most 60s; without it 5s." });
    let body = |properties: Value| json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let replayed = json!({ "again": flag(), "wait": wait });
    json!({
        "LetterFacts": written_schema::<LetterView>(),
        "Letters": answer(reference("LetterFacts"), &json!({})),
        "Letter": one(&written_schema::<LetterDetail>()),
        "LettersChanged": one(&written_schema::<LetterUpdateReport>()),
        "ReplayWish": wish(&with(&json!({ "by": by, "dry_run": flag() }), &replayed)),
        "DropWish": wish(&json!({ "by": by, "dry_run": flag() })),
        "ReplayOfOne": body(with(&json!({ "by": by }), &replayed)),
        "DropOfOne": body(json!({ "by": by })),
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
            "state": inline_schema::<Option<LetterStateFilter>>(), "since": when(), "until": when(),
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
