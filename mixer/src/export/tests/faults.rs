//! Requests that are never answered, answers that nobody can read as a whole, and a collector that takes some signals only.

use bytes::Bytes;
use engine::ArrivalPosition;
use model::{MetricPoint, MetricType, Span, SpanId, SpanStatus, TraceId};

use super::super::letters::{LetterFiles, RefusedRequest};
use super::*;

/// Tries again so soon that many attempts are over in a moment.
fn hasty(protocol: CollectorProtocol, collector: &TestCollector) -> ExportSettings {
    ExportSettings {
        first_pause: Duration::from_millis(2),
        ..settings(protocol, collector)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_alone_is_never_answered_waits_and_is_no_dead_letter() {
    for protocol in PROTOCOLS {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let sent = store.append("a", 5).await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.poison(&sent[2]);
        let export = store.start(hasty(protocol, &collector));
        eventually("it was sent alone very often", || async {
            let received = collector.received();
            let alone = received.iter().filter(|request| request.rows == sent[2..3]);
            (alone.count() > 9).then_some(())
        })
        .await;
        assert_eq!((export.logs().rows.get(), export.logs().letters.get()), (2, 0));
        assert!(export.status.trouble().is_some_and(|(_, is_denied)| !is_denied));
        // It is mended.
        collector.poison("nothing");
        export.settled(5, 0).await;
        assert_eq!(collector.accepted(), sent, "{protocol:?}, each once and in order");
        export.stop().await;
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
        // Down to a single row, and far beyond the attempts after which requests are divided.
        eventually("it was tried very often", || async {
            (collector.received().len() > 14).then_some(())
        })
        .await;
        sent.extend(store.append("b", 2).await);
        assert!(collector.received().iter().any(|request| request.rows == sent[..1]));
        assert_eq!((export.logs().rows.get(), export.logs().letters.get()), (0, 0));
        collector.set_away(false);
        export.settled(8, 0).await;
        assert_eq!(collector.accepted(), sent, "{protocol:?}");
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

/// Appends points of a metric.
async fn append_points(store: &ExportingStore, points: u32) {
    let point = |number: u32| MetricPoint {
        ts: store.parts.clock.now(),
        name: "load".into(),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".into(),
        metric_type: MetricType::Gauge,
        value: f64::from(number),
        labels: Attributes::new(),
    };
    store.append_rows(&(0..points).map(point).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_are_denied_wait_while_another_is_accepted_and_have_no_dead_letters() {
    for protocol in PROTOCOLS {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::with(engine::Settings {
            wal_max: model::ByteSize::mib(8),
            ..engine::Settings::new(dir.path())
        })
        .await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.refuse(SignalRefusal::NoPath, &[Table::Logs, Table::Traces]);
        append_spans(&store, 3).await;
        let (half, mut sent) = (store.engine.stats().wal_max_bytes / 2, Vec::new());
        while store.engine.stats().wal_bytes <= half {
            sent.extend(store.append(&format!("{:06}", sent.len()), 2_000).await);
        }
        append_points(&store, 2).await;
        let export = store.start(hasty(protocol, &collector));
        let [traces, metrics] = [Table::Traces, Table::Metrics].map(|signal| export.status.of(signal).unwrap());
        eventually("points are accepted, and the others are tried on", || async {
            let are_tried = export.logs().requests.get() > 2 && traces.requests.get() > 2;
            (metrics.rows.get() == 2 && are_tried).then_some(())
        })
        .await;
        let (reason, is_denied) = export.status.trouble().unwrap();
        let are_named = reason.contains("logs since") && reason.contains("traces since");
        assert!(is_denied && are_named && !reason.contains("metrics since"), "{reason}");
        for denied in [export.logs(), traces] {
            assert_eq!((denied.rows.get(), denied.letters.get()), (0, 0), "{}", denied.signal);
        }
        collector.refuse(SignalRefusal::NoPath, &[]);
        export.settled(sent.len() as u64, 0).await;
        eventually("spans are accepted", || async {
            (traces.rows.get() == 3).then_some(())
        })
        .await;
        assert!(collector.accepted() == sent, "each once and in order: {protocol:?}");
        assert!(store.letters().is_empty());
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_at_a_start_are_dead_letters_and_the_good_ones_behind_them_are_accepted() {
    for (protocol, refusals) in [
        (
            CollectorProtocol::Http,
            [ScriptedAnswer::Status(400), ScriptedAnswer::Status(500)],
        ),
        (
            CollectorProtocol::Grpc,
            [ScriptedAnswer::Code(3), ScriptedAnswer::Code(13)],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let sent = store.append("a", 2 * 8_192 + 5).await;
        // The first two of three requests are refused as they are.
        let collector = TestCollector::start(protocol, &[refusals[1]; 2]).await;
        let export = store.start(hasty(protocol, &collector));
        export.settled(5, 2).await;
        assert_eq!(collector.accepted(), sent[2 * 8_192..], "{protocol:?}");
        export.stop().await;
        // Again from a start: of two rows both are wrong, the next ones are right.
        store.engine.close().await.unwrap();
        drop(store);
        let store = ExportingStore::open(dir.path()).await;
        store.append("bad", 2).await;
        let collector = TestCollector::start(protocol, &[refusals[0]; 3]).await;
        let export = store.start(hasty(protocol, &collector));
        eventually("both are letters", || async {
            (export.logs().letters.get() == 2).then_some(())
        })
        .await;
        let good = store.append("good", 3).await;
        export.settled(3, 2).await;
        assert_eq!(collector.accepted(), good, "{protocol:?}");
        assert_eq!(collector.received().len(), 4);
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
async fn after_sixteen_letters_without_an_acceptance_one_request_a_minute_is_a_letter() {
    for (protocol, refusal) in [
        (CollectorProtocol::Http, SignalRefusal::Invalid),
        (CollectorProtocol::Grpc, SignalRefusal::Invalid),
        (CollectorProtocol::Http, SignalRefusal::AllRejected),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = ExportingStore::open(dir.path()).await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.refuse(refusal, &[Table::Logs]);
        let export = store.start(hasty(protocol, &collector));
        // What becomes of one request counts once: it may be divided, and then both rows are letters.
        let each = if refusal == SignalRefusal::Invalid { 2 } else { 1 };
        for round in 1..=16 {
            assert_eq!(export.status.trouble(), None, "{protocol:?} {refusal:?} {round}");
            store.append("bad", 2).await;
            export.settled(0, each * round).await;
        }
        let (reason, is_denied) = export.status.trouble().unwrap();
        assert!(is_denied && reason.contains("nothing is accepted"), "{reason}");
        for minute in 1..=2 {
            store.append("bad", 1).await;
            store.hand.forward(Duration::from_secs(59));
            let tried = export.logs().requests.get();
            eventually("it is sent again", || async {
                (export.logs().requests.get() > tried + 3).then_some(())
            })
            .await;
            assert_eq!(export.logs().letters.get(), each * 16 + minute - 1);
            store.hand.forward(Duration::from_secs(1));
            export.settled(0, each * 16 + minute).await;
            assert!(export.status.trouble().is_some_and(|(_, is_denied)| is_denied));
        }
        // The collector is mended, and what it refuses then is a letter at once.
        let kept = store.append("kept", 1).await;
        let tried = export.logs().requests.get();
        eventually("it is tried", || async {
            (export.logs().requests.get() > tried).then_some(())
        })
        .await;
        collector.refuse(refusal, &[]);
        export.settled(1, each * 16 + 2).await;
        assert_eq!(collector.received().last().map(|last| last.rows.clone()), Some(kept));
        assert_eq!(export.status.trouble(), None);
        collector.refuse(refusal, &[Table::Logs]);
        store.append("bad", 1).await;
        export.settled(1, each * 16 + 3).await;
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
