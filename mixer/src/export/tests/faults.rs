//! Requests that are never answered, answers that nobody can read as a whole, and a collector that takes some signals only.

use bytes::Bytes;
use engine::ArrivalPosition;
use model::{Span, SpanId, SpanStatus, TraceId};

use super::super::letters::{LetterFiles, RefusedRequest};
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
async fn a_signal_that_alone_is_denied_leaves_half_of_the_log_to_the_others_and_keeps_its_own() {
    for (protocol, refusal) in [
        (CollectorProtocol::Http, SignalRefusal::NoPath),
        (CollectorProtocol::Grpc, SignalRefusal::NoPath),
        (CollectorProtocol::Http, SignalRefusal::Invalid),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::with(engine::Settings {
            wal_max: model::ByteSize::mib(8),
            ..engine::Settings::new(dir.path())
        })
        .await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.refuse(refusal, &[Table::Logs, Table::Traces]);
        let half = store.engine.stats().wal_max_bytes / 2;
        let mut sent = Vec::new();
        while store.engine.stats().wal_bytes <= half {
            sent.extend(store.append(&format!("{:06}", sent.len()), 2_000).await);
        }
        // Nothing is taken: somebody has to mend a key, and everything waits for that.
        let export = store.start(hasty(protocol, &collector));
        eventually("logs are tried again", || async {
            (export.logs().requests.get() > 2).then_some(())
        })
        .await;
        assert_eq!(export.logs().letters.get(), 0, "{protocol:?} {refusal:?}");
        // Traces are taken: logs become dead letters, until there is room.
        collector.refuse(refusal, &[Table::Logs]);
        append_spans(&store, 1).await;
        eventually("logs leave the log", || async {
            let is_short = store.engine.stats().wal_bytes <= half;
            (export.logs().letters.get() > 0 && is_short).then_some(())
        })
        .await;
        let trouble = export.status.trouble().unwrap();
        assert!(trouble.1 && trouble.0.contains("logs since"), "{trouble:?}");
        assert_eq!(export.logs().rows.get(), 0);
        // What comes while there is room waits with the others, and is sent once the path is there.
        collector.refuse(refusal, &[]);
        sent.extend(store.append("last", 2).await);
        eventually("logs are accepted", || async {
            let is_over = collector.accepted().contains(&sent[sent.len() - 1]) && export.logs().oldest().is_none();
            is_over.then_some(())
        })
        .await;
        let accepted = sorted(collector.accepted());
        let given_up = sent.len() - accepted.len();
        assert!(accepted == sorted(sent.split_off(given_up)), "the oldest gave way");
        // A segment was too much, one is let go of as a whole, and so is a request.
        let most = (given_up + accepted.len()) / 2 + 8_192;
        assert!(
            (1..=most).contains(&given_up),
            "{given_up} of {most}: {protocol:?} {refusal:?}"
        );
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
async fn refusals_are_not_believed_without_an_acceptance_while_other_signals_go_on() {
    for (protocol, refusal) in [
        (CollectorProtocol::Http, SignalRefusal::Invalid),
        (CollectorProtocol::Grpc, SignalRefusal::Invalid),
        (CollectorProtocol::Http, SignalRefusal::AllRejected),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let collector = TestCollector::start(protocol, &[]).await;
        let export = store.start(hasty(protocol, &collector));
        store.append("first", 1).await;
        export.settled(1, 0).await;
        collector.refuse(refusal, &[Table::Logs]);
        for round in 1..=16 {
            assert_eq!(export.status.trouble(), None, "{protocol:?} {refusal:?} {round}");
            // What becomes of one request counts once: it is divided, and both rows are letters.
            store.append("bad", if round < 16 { 2 } else { 1 }).await;
            let letters = match refusal {
                SignalRefusal::Invalid => (2 * round).min(31),
                _ => round,
            };
            eventually("it is in dead letters", || async {
                let is_settled = export.logs().letters.get() == letters && export.logs().oldest().is_none();
                is_settled.then_some(())
            })
            .await;
        }
        let letters = export.logs().letters.get();
        let (reason, is_denied) = export.status.trouble().unwrap();
        assert!(is_denied && reason.contains("nothing is accepted"), "{reason}");
        let kept = store.append("kept", 1).await;
        let tried = export.logs().requests.get();
        for round in 1..=5 {
            append_spans(&store, 1).await;
            eventually("spans are accepted, and the row is tried", || async {
                let spans = export.status.of(Table::Traces)?.rows.get();
                (spans == round && export.logs().requests.get() >= tried + round).then_some(())
            })
            .await;
            assert!(export.status.trouble().is_some_and(|(_, is_denied)| is_denied));
        }
        assert_eq!((export.logs().rows.get(), export.logs().letters.get()), (1, letters));
        collector.refuse(refusal, &[]);
        export.settled(2, letters).await;
        assert_eq!(collector.received().last().map(|last| last.rows.clone()), Some(kept));
        assert_eq!(export.status.trouble(), None);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_the_same_first_row_have_a_letter_each_and_one_that_is_refused_again_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = ExportingStore::open(dir.path()).await;
    let place = |lsn| ArrivalPosition { lsn, row: 0 };
    let files = Arc::new(LetterFiles::default());
    for (end, message, is_partial) in [
        (8, "one", false),
        (9, "two", false),
        (9, "two", false),
        (9, "two", true),
    ] {
        let reason = if is_partial {
            "the collector accepted it but for 1"
        } else {
            "no"
        };
        let refused = RefusedRequest {
            signal: Table::Logs,
            collector: "c",
            range: (place(7), place(end)),
            rows: 1,
            is_partial,
            reason: reason.to_owned(),
            message: Bytes::from_static(message.as_bytes()),
        };
        let kept = refused.keep(&store.engine, &files, store.parts.clock.now()).await;
        assert_eq!(kept, Ok(()), "{end} {message}");
    }
    let payloads: Vec<_> = store.letters().into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, [b"one", b"two", b"two"]);
}
