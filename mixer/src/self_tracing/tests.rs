//! Whose traces are kept, what work is a part of, and what is shown of a statement.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::trace_context::TraceParent;

use super::query_text::{operation, sanitized};
use super::*;
use crate::testing::{Hand, entropy};

fn recorder(rate: f64) -> (SpanRecorder, mpsc::Receiver<Span>) {
    SpanRecorder::new(&"mixer-07".parse().unwrap(), (Hand::new().clock(), entropy()), rate)
}

fn caller(sampled: bool) -> RemoteContext {
    let parent = TraceParent {
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".parse().unwrap(),
        span_id: "00f067aa0ba902b7".parse().unwrap(),
        sampled,
    };
    RemoteContext { parent, state: None }
}

#[tokio::test]
async fn a_trace_is_kept_as_its_caller_says_and_work_within_work_is_a_part_of_it() {
    let (recorder, mut spans) = recorder(0.0);
    assert!(recorder.begin(None, "GET /x".to_owned()).is_none());
    assert!(recorder.begin(Some(&caller(false)), "GET /x".to_owned()).is_none());
    let mut work = recorder.begin(Some(&caller(true)), "GET /x".to_owned()).unwrap();
    work.set("http.route", "/x");
    work.scope(async { WorkSpan::of_statement("SELECT 'a'").end(SpanStatus::Ok) })
        .await;
    work.end(SpanStatus::Error);
    // Outside of work there are no parts, and what is given up is none.
    WorkSpan::child("alone").end(SpanStatus::Ok);
    drop(recorder.begin(Some(&caller(true)), "GET /y".to_owned()));

    let (part, whole) = (spans.try_recv().unwrap(), spans.try_recv().unwrap());
    assert!(spans.try_recv().is_err());
    let parent = caller(true).parent;
    assert_eq!(
        (whole.trace_id, whole.parent_span_id),
        (parent.trace_id, Some(parent.span_id))
    );
    assert_eq!(
        (part.trace_id, part.parent_span_id),
        (parent.trace_id, Some(whole.span_id))
    );
    assert_eq!((whole.span_name.as_str(), whole.status), ("GET /x", SpanStatus::Error));
    assert_eq!((part.span_name.as_str(), part.status), ("SELECT", SpanStatus::Ok));
    assert_eq!(
        (whole.entity_name.as_str(), whole.entity_id),
        ("mixer-07", EntityId::for_name("mixer-07"))
    );
    assert_eq!(
        whole.attributes.get("resource.service.name"),
        Some(&"platform-mixer".into())
    );
    assert_eq!(part.attributes.get("db.query.text"), Some(&"SELECT ?".into()));
}

#[test]
fn spans_beyond_the_queue_and_without_a_writer_are_counted_and_hold_nobody_up() {
    let (recorder, spans) = recorder(1.0);
    let work = || recorder.begin(None, "GET /x".to_owned()).unwrap().end(SpanStatus::Ok);
    (0..QUEUE + 3).for_each(|_| work());
    assert_eq!(recorder.counts(), (0, 3));
    drop(spans);
    work();
    assert_eq!(recorder.counts(), (0, 4));
    let none = SpanRecorder::default();
    assert!(none.begin(Some(&caller(true)), "GET /x".to_owned()).is_none());
}

#[test]
fn a_statement_is_shown_without_literals_and_ends_where_they_are_in_doubt() {
    for (statement, shown) in [
        (
            " SELECT * FROM logs\n WHERE message = 'se''cret' AND n > 42 LIMIT 5",
            "SELECT * FROM logs WHERE message = ? AND n > ? LIMIT ?",
        ),
        (
            "select \"a b\", t1.x FROM t1 -- hush\nWHERE x = $1",
            "select \"a b\", t1.x FROM t1 WHERE x = $1",
        ),
        ("SELECT /* hush */ 1.5e10, .5, E'x', ''", "SELECT ?, .?, E?, ?"),
        ("SELECT 'größe', größe", "SELECT ?, größe"),
        ("SELECT 'a\\' b secret'", "SELECT …"),
        ("SELECT $$secret$$", "SELECT …"),
        ("SELECT $a$secret$a$", "SELECT …"),
        ("SELECT 'secret", "SELECT …"),
        ("SELECT \"secret", "SELECT …"),
        ("SELECT /* a /* b */ secret */ 1", "SELECT …"),
        ("", ""),
    ] {
        assert_eq!(sanitized(statement), shown, "{statement}");
    }
    let long = sanitized(&format!("SELECT {}", "a, ".repeat(10_000)));
    assert!(
        long.ends_with('…') && (2_000..2_100).contains(&long.len()),
        "{}",
        long.len()
    );
    for (statement, wanted) in [
        ("\n ((select 1))", "SELECT"),
        ("explain select 1", "EXPLAIN"),
        ("DROP TABLE x", "_OTHER"),
        ("", "_OTHER"),
    ] {
        assert_eq!(operation(statement), wanted, "{statement}");
    }
}
