//! Bulk requests into rows, and their answers.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::Table;
use serde_json::{Value, json};

use super::fuzz::SAMPLE;
use super::*;
use crate::sender::tests::{read, settings};

const ENTITY: [&str; 4] = ["host.name", "host", "hostname", "service.name"];

fn opened(body: &str) -> Result<(OpenedRequest, BulkItems), BulkError> {
    let bulk = BulkSettings {
        index: "logs".to_owned(),
        items: Arc::default(),
    };
    let items = Arc::clone(&bulk.items);
    let opened = request(Bytes::copy_from_slice(body.as_bytes()), bulk, settings(&ENTITY))?;
    Ok((opened, items.get().unwrap().clone()))
}

/// The rows of a request, what is wrong with which item, and the items.
#[allow(clippy::type_complexity, reason = "tests")]
fn bulk(body: &str) -> Result<(Vec<Value>, Vec<(u64, String)>, BulkItems), BulkError> {
    let (opened, items) = opened(body)?;
    let (rows, refused) = read(Table::Logs, opened);
    Ok((rows, refused, items))
}

#[test]
fn documents_are_rows_and_what_changes_stored_ones_is_refused() {
    let (rows, refused, items) = bulk(SAMPLE).unwrap();
    assert_eq!(
        rows,
        [
            json!({
                "ts": "2026-11-21T12:00:00.123000Z", "entity_name": "press-1", "level": "warn", "message": "one",
                "attributes": { "_index": "logs-app", "host.name": "press-1", "n": 1 },
            }),
            json!({
                "ts": "2026-11-21T12:00:00.123000Z", "entity_name": "http", "level": "info", "message": "two",
                "attributes": { "_id": "7", "_index": "logs", "tags": ["a"] },
            }),
            json!({
                "ts": "2026-11-21T12:30:00.000000Z", "entity_name": "http", "level": "info", "message": "",
                "attributes": { "_index": "logs", "time": "12" },
            }),
        ]
    );
    let reason = "what is stored is never changed: only [index] and [create] are supported";
    assert_eq!(refused, [(2, reason.to_owned()), (3, reason.to_owned())]);
    assert_eq!(items.len(), 5);
    let stored = |index: &str, id: &str| json!({ "_index": index, "_id": id, "_version": 1, "result": "created", "status": 201 });
    assert_eq!(
        items.answer(0, "g-0", None),
        json!({ "create": stored("logs-app", "g-0") })
    );
    assert_eq!(items.answer(1, "g-1", None), json!({ "index": stored("logs", "7") }));
    let error = |kind: &str, reason: &str| json!({ "type": kind, "reason": reason });
    assert_eq!(
        items.answer(2, "g-2", Some(reason)),
        json!({ "update": { "_index": "a", "_id": "8", "status": 400, "error": error("illegal_argument_exception", reason) } })
    );
    assert_eq!(
        items.answer(4, "g-4", Some("bad")),
        json!({ "index": { "_index": "logs", "_id": "g-4", "status": 400, "error": error("document_parsing_exception", "bad") } })
    );
}

#[test]
fn a_bad_document_refuses_its_item_alone() {
    let body = [
        r#"{"index":{}}"#,
        r#"{"message":"cut"#,
        r#"{"index":{}}"#,
        r#"["no object"]"#,
        r#"{"index":{}}"#,
        r#"{"@timestamp":"yesterday"}"#,
        r#"{"index":{}}"#,
        r#"{"message":"good"} x"#,
        r#"{"index":{}}"#,
        r#"{"message":"good","ts":1795262400}"#,
    ];
    let (rows, refused, _) = bulk(&body.join("\r\n")).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["message"], &rows[0]["ts"]),
        (&json!("good"), &json!("2026-11-21T12:00:00.000000Z"))
    );
    let wanted = [
        (0, "failed to parse: control character"),
        (1, "failed to parse: invalid type"),
        (2, "@timestamp: \"yesterday\" is no time"),
        (3, "failed to parse: trailing characters"),
    ];
    assert_eq!(refused.len(), wanted.len());
    for ((row, reason), (wanted, begin)) in refused.iter().zip(wanted) {
        assert!(*row == wanted && reason.starts_with(begin), "{row}: {reason}");
    }
    let many = format!("{{\"index\":{{}}}}\n{{\"a\":[{}1]}}\n", "1,".repeat(70_000));
    let (rows, refused, _) = bulk(&many).unwrap();
    assert!(
        rows.is_empty() && refused[0].1.contains("more than 65536"),
        "{refused:?}"
    );
}

#[test]
fn what_is_no_bulk_request_is_refused_as_a_whole() {
    for (body, reason) in [
        ("", "request body is required"),
        ("\n \n", "request body is required"),
        (
            "{\"message\":\"a\"}\n{}\n",
            "Malformed action/metadata line [1]: unknown variant",
        ),
        (
            "{\"index\":{}}\n{}\nnot json\n{}\n",
            "Malformed action/metadata line [3]",
        ),
        (
            "{\"index\":{},\"create\":{}}\n{}\n",
            "Malformed action/metadata line [1]",
        ),
        (
            "{\"index\":7}\n{}\n",
            "Malformed action/metadata line [1]: invalid type",
        ),
        (
            "{\"index\":{\"_index\":7}}\n{}\n",
            "Malformed action/metadata line [1]: invalid type",
        ),
        (
            "\n{\"create\":{}}\n",
            "the action of line [2] has no document behind it",
        ),
        (
            "{\"delete\":{}}\n{\"create\":{}}",
            "the action of line [2] has no document behind it",
        ),
    ] {
        let error = bulk(body).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{body}: {error}");
    }
    let long = format!("{{\"index\":{{\"_id\":\"{}\"}}}}\n{{}}\n", "i".repeat(9_000));
    assert!(bulk(&long).unwrap_err().to_string().contains("more than 8192"));
    let many = "{\"delete\":{}}\n".repeat(MAX_ITEMS + 1);
    assert!(matches!(bulk(&many), Err(BulkError::TooMany)));
    let named = format!("{{\"delete\":{{\"_id\":\"{}\"}}}}\n", "i".repeat(8_000)).repeat(1_100);
    assert!(matches!(bulk(&named), Err(BulkError::TooMany)));
}

#[test]
fn a_request_without_times_may_be_another_one_with_the_same_bytes() {
    let is_known_again = |body: &str| opened(body).unwrap().0.sender.is_some();
    assert!(is_known_again(
        "{\"index\":{}}\n{\"@timestamp\":\"2026-11-21T12:00:00Z\"}\n"
    ));
    assert!(!is_known_again("{\"index\":{}}\n{\"message\":\"tick\"}\n"));
    assert!(!is_known_again("{\"index\":{}}\n{\"message\":\"tick\",\"time\":12}\n"));
    assert!(!is_known_again("{\"delete\":{}}\n"));
    // What is refused anyway says nothing.
    let changes = "{\"delete\":{}}\n{\"update\":{}}\n{}\n{\"index\":{}}\n";
    assert!(is_known_again(&format!(
        "{changes}{{\"ts\":\"2026-11-21T12:00:00Z\"}}\n"
    )));
    assert!(!is_known_again(&format!("{changes}{{}}\n")));
}

#[test]
fn items_take_no_more_memory_than_was_said() {
    for body in [
        "{\"index\":{}}\n{}\n".repeat(20_000),
        "{\"delete\":{\"_id\":\"0123456789\"}}\n".repeat(20_000),
    ] {
        let (opened, _) = opened(&body).unwrap();
        assert!(
            opened.held <= items_bytes(body.as_bytes()),
            "{} {}",
            opened.held,
            body.len()
        );
    }
}

#[test]
fn fuzz_targets_take_their_samples() {
    for target in fuzz::fuzz_targets() {
        let tally = target.check(7, 300).unwrap();
        assert_eq!(tally.accepted + tally.refused, 300, "{}", target.name());
    }
}
