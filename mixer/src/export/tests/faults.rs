//! Requests that are never answered, answers that nobody can read as a whole, and a collector that takes some signals only.

use bytes::Bytes;
use engine::ArrivalPosition;
use model::{Span, SpanId, SpanStatus, TraceId};

use super::super::letters::{RefusedRequest, RefusedRows};
use super::*;

/// Tries again so soon that many attempts are over in a moment.
fn hasty(protocol: CollectorProtocol, collector: &TestCollector) -> ExportSettings {
    ExportSettings {
        first_pause: Duration::from_millis(2),
        ..settings(protocol, collector)
    }
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_alone_is_never_answered_is_a_dead_letter_once_others_are_accepted() {
    for protocol in PROTOCOLS {
        // The first of a request, one in its middle, and its last.
        for bad in [0, 2, 4] {
            let dir = tempfile::tempdir().unwrap();
            let store = ExportingStore::open(dir.path()).await;
            let sent = store.append("a", 5).await;
            let collector = TestCollector::start(protocol, &[]).await;
            collector.poison(&sent[bad]);
            let export = store.start(hasty(protocol, &collector));
            if bad == 4 {
                // Nothing is behind it: it waits until something is.
                eventually("it was sent alone very often", || async {
                    let alone = collector
                        .received()
                        .into_iter()
                        .filter(|request| request.rows == sent[4..]);
                    (alone.count() > 9).then_some(())
                })
                .await;
                assert_eq!(export.logs().letters.get(), 0);
                assert!(export.status.trouble().is_some_and(|(_, is_denied)| !is_denied));
            }
            let behind = store.append("b", 1).await;
            export.settled(5, 1).await;
            let others = [&sent[..bad], &sent[bad + 1..], &behind[..]].concat();
            assert_eq!(sorted(collector.accepted()), others, "{protocol:?}, each once");
            let letters = store.letters();
            assert_eq!(letters.len(), 1);
            let (reason, payload) = &letters[0];
            assert!(reason.contains("this row alone"), "{reason}");
            let has = |text: &String| payload.windows(text.len()).any(|bytes| bytes == text.as_bytes());
            assert!(has(&sent[bad]) && !others.iter().any(has), "{protocol:?} {bad}");
            export.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_answers_nothing_for_long_gets_every_row_once_it_is_back() {
    for protocol in PROTOCOLS {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.set_away(true);
        let mut sent = store.append("a", 6).await;
        let export = store.start(hasty(protocol, &collector));
        // Down to a single row, and far beyond the attempts after which others are tried.
        eventually("it was tried very often", || async {
            (collector.received().len() > 19).then_some(())
        })
        .await;
        sent.extend(store.append("b", 2).await);
        assert!(collector.received().iter().any(|request| request.rows == sent[..1]));
        assert_eq!((export.logs().rows.get(), export.logs().letters.get()), (0, 0));
        collector.set_away(false);
        export.settled(8, 0).await;
        assert_eq!(sorted(collector.accepted()), sent, "{protocol:?}");
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_collector_says_not_to_send_now_is_never_divided() {
    for (protocol, busy) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(503)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(14)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let sent = store.append("a", 3).await;
        let collector = TestCollector::start(protocol, &[busy; 10]).await;
        let export = store.start(hasty(protocol, &collector));
        export.settled(3, 0).await;
        let received = collector.received();
        assert_eq!(received.len(), 11, "{protocol:?}");
        assert_same_bytes(&received);
        assert_eq!(collector.accepted(), sent);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_to_be_read_settles_its_request() {
    for protocol in PROTOCOLS {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let sent = store.append("a", 3).await;
        let collector = TestCollector::start(protocol, &[ScriptedAnswer::LongPartial(1)]).await;
        let export = store.export(protocol, &collector);
        export.settled(2, 1).await;
        assert_eq!((collector.accepted(), collector.received().len()), (sent, 1));
        let reason = &store.letters()[0].0;
        assert!(reason.contains("but for 1 records"), "{protocol:?}: {reason}");
        export.stop().await;
    }
}

/// Appends spans.
async fn append_spans(store: &ExportingStore, spans: u64) {
    let span = |number: u64| Span {
        ts: store.parts.clock.now(),
        trace_id: TraceId::from_entropy([7; 16]),
        span_id: SpanId::from_entropy((number + 1).to_be_bytes()),
        parent_span_id: None,
        flux_id: None,
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".into(),
        span_name: "turn".into(),
        duration_ms: 1.0,
        status: SpanStatus::Ok,
        attributes: Attributes::new(),
    };
    store.append_rows(&(0..spans).map(span).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_alone_is_denied_leaves_half_of_the_log_to_the_others() {
    for protocol in PROTOCOLS {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::with(engine::Settings {
            wal_max: model::ByteSize::mib(1),
            ..engine::Settings::new(dir.path())
        })
        .await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.deny(&[Table::Logs, Table::Traces]);
        let export = store.start(hasty(protocol, &collector));
        append_spans(&store, 1).await;
        let half = store.engine.stats().wal_max_bytes / 2;
        let mut sent = 0;
        while store.engine.stats().wal_bytes <= half {
            sent += store.append(&format!("{sent:06}"), 200).await.len();
        }
        // All are denied: somebody has to mend a key, and everything waits for that.
        let tried = export.logs().requests.get();
        eventually("logs are tried again", || async {
            (export.logs().requests.get() > tried + 1).then_some(())
        })
        .await;
        assert_eq!(export.logs().letters.get(), 0, "{protocol:?}");
        // Traces are taken: logs become dead letters, until there is room.
        collector.deny(&[Table::Logs]);
        eventually("logs leave the log", || async {
            append_spans(&store, 1).await;
            store.engine.flush().await.unwrap();
            let is_settled = export.logs().letters.get() > 0 && store.engine.stats().wal_bytes < half;
            is_settled.then_some(())
        })
        .await;
        let trouble = export.status.trouble().unwrap();
        assert!(trouble.1 && trouble.0.contains("logs since"), "{trouble:?}");
        assert_eq!(export.logs().rows.get(), 0);
        // What comes while there is room waits, and is sent once the path is there.
        let letters = export.logs().letters.get();
        collector.deny(&[]);
        let last = store.append("last", 2).await;
        eventually("logs are accepted", || async {
            collector.accepted().ends_with(&last).then_some(())
        })
        .await;
        assert!(export.logs().letters.get() >= letters && export.logs().rows.get() >= 2);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_refused_before_any_other_is_a_dead_letter_once_another_is_accepted() {
    for (protocol, invalid) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(400)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(3)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let sent = store.append("a", 2).await;
        // Both; the first; the second, for nothing was accepted before; the first again.
        let script = [invalid, invalid, ScriptedAnswer::Accept, invalid];
        let collector = TestCollector::start(protocol, &script).await;
        let export = store.start(hasty(protocol, &collector));
        export.settled(1, 1).await;
        let received: Vec<Vec<String>> = collector.received().into_iter().map(|request| request.rows).collect();
        let [first, second] = [&sent[..1], &sent[1..]];
        assert_eq!(received, [&sent[..], first, second, first], "{protocol:?}");
        assert_eq!(store.letters().len(), 1);
        assert_eq!(export.status.trouble(), None);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn halves_of_what_is_too_large_do_not_count_as_those_of_what_is_wrong() {
    /// The answers to a request of so many rows of which more than two are too large.
    fn answers(rows: usize, too_large: ScriptedAnswer, script: &mut Vec<ScriptedAnswer>) {
        if rows <= 2 {
            script.push(ScriptedAnswer::Accept);
            return;
        }
        script.push(too_large);
        for half in [rows / 2, rows - rows / 2] {
            answers(half, too_large, script);
        }
    }
    for (protocol, too_large, invalid) in [
        (
            CollectorProtocol::Http,
            ScriptedAnswer::Status(413),
            ScriptedAnswer::Status(400),
        ),
        (
            CollectorProtocol::Grpc,
            ScriptedAnswer::Code(8),
            ScriptedAnswer::Code(3),
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let sent = store.append("a", 128).await;
        let mut script = Vec::new();
        answers(128, too_large, &mut script);
        // Of the last two rows the first one is wrong.
        script.pop();
        script.extend([invalid; 2]);
        let collector = TestCollector::start(protocol, &script).await;
        let export = store.start(hasty(protocol, &collector));
        export.settled(127, 1).await;
        assert_eq!(
            collector.accepted(),
            [&sent[..126], &sent[127..]].concat(),
            "{protocol:?}"
        );
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_dead_letter_the_next_request_waits_as_one_that_is_sent_again() {
    for (protocol, refused) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(500)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(2)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let script = [ScriptedAnswer::Accept, refused, ScriptedAnswer::Accept];
        let collector = TestCollector::start(protocol, &script).await;
        let export = store.start(ExportSettings {
            first_pause: Duration::from_secs(3_600),
            ..settings(protocol, &collector)
        });
        store.append("a", 1).await;
        export.settled(1, 0).await;
        // More than one request.
        let sent = store.append("b", 8_193).await;
        eventually("the first of them is a letter", || async {
            (export.logs().letters.get() == 1).then_some(())
        })
        .await;
        for round in 1..=3 {
            append_spans(&store, 1).await;
            eventually("spans are accepted", || async {
                (export.status.of(Table::Traces)?.rows.get() == round).then_some(())
            })
            .await;
        }
        let logs: Vec<usize> = collector.received().iter().map(|request| request.rows.len()).collect();
        let logs: Vec<usize> = logs.into_iter().filter(|rows| *rows > 0).collect();
        assert_eq!(logs, [1, sent.len() - 1], "{protocol:?}");
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_the_same_first_row_have_a_letter_each_and_one_that_is_refused_again_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = ExportingStore::open(dir.path()).await;
    let place = |lsn| ArrivalPosition { lsn, row: 0 };
    for (end, message) in [(8, "one"), (9, "two"), (9, "two")] {
        let refused = RefusedRequest {
            signal: Table::Logs,
            collector: "c",
            rows: RefusedRows {
                range: (place(7), place(end)),
                count: 1,
                is_partial: false,
            },
            reason: "no".to_owned(),
            message: Bytes::from_static(message.as_bytes()),
        };
        let kept = refused.keep(&store.engine, store.parts.clock.now()).await;
        assert_eq!(kept, Ok(0), "{end} {message}");
    }
    let payloads: Vec<_> = store.letters().into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, [b"one", b"two"]);
}
