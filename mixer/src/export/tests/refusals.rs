//! What a collector refuses: what waits until it is mended, what is a dead letter, when, and where that has a place.

use model::{MetricPoint, MetricType, Span, SpanId, SpanStatus, TraceId};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_or_address_is_said_and_keeps_everything_until_it_is_mended() {
    for (protocol, denied) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(401)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(16)),
        (CollectorProtocol::Http, ScriptedAnswer::Status(404)),
        (CollectorProtocol::Http, ScriptedAnswer::Status(405)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(12)),
    ] {
        let store = ExportingStore::open().await;
        let sent = store.append("a", 2).await;
        let collector = TestCollector::start(protocol, &[denied; 2]).await;
        let export = store.export(&collector);
        let trouble = eventually("the trouble is said", || async { export.status.trouble() }).await;
        assert!(
            trouble.1 && trouble.0.contains(&collector.address.to_string()),
            "{trouble:?}"
        );
        assert!(export.logs().oldest().is_some());
        export.settled(2, 0).await;
        assert_eq!(export.status.trouble(), None);
        assert_eq!(collector.accepted(), sent);
        assert!(store.letters().is_empty());
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
        let store = ExportingStore::with_log(Some(ByteSize::mib(8))).await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.refuse(SignalRefusal::NoPath, &[Table::Logs, Table::Traces]);
        append_spans(&store, 3).await;
        let (half, mut sent) = (store.engine.stats().wal_max_bytes / 2, Vec::new());
        while store.engine.stats().wal_bytes <= half {
            sent.extend(store.append(&format!("{:06}", sent.len()), 2_000).await);
        }
        append_points(&store, 2).await;
        let export = store.start(hasty(&collector));
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
        let store = ExportingStore::open().await;
        let sent = store.append("a", 2 * 8_192 + 5).await;
        // The first two of three requests are refused as they are.
        let collector = TestCollector::start(protocol, &[refusals[1]; 2]).await;
        let export = store.start(hasty(&collector));
        export.settled(5, 2).await;
        assert_eq!(collector.accepted(), sent[2 * 8_192..], "{protocol:?}");
        export.stop().await;
        // Again from a start: of two rows both are wrong, the next ones are right.
        let store = store.reopen().await;
        store.append("bad", 2).await;
        let collector = TestCollector::start(protocol, &[refusals[0]; 3]).await;
        let export = store.start(hasty(&collector));
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
async fn after_sixteen_letters_without_an_acceptance_one_request_a_minute_is_a_letter() {
    for (protocol, refusal) in [
        (CollectorProtocol::Http, SignalRefusal::Invalid),
        (CollectorProtocol::Grpc, SignalRefusal::Invalid),
        (CollectorProtocol::Http, SignalRefusal::AllRejected),
    ] {
        let store = ExportingStore::open().await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.refuse(refusal, &[Table::Logs]);
        let export = store.start(hasty(&collector));
        // What becomes of one request counts once: it may be divided, and then both rows are letters.
        let each = if refusal == SignalRefusal::Invalid { 2 } else { 1 };
        for round in 1..=16 {
            assert_eq!(export.status.trouble(), None, "{protocol:?} {refusal:?} {round}");
            store.append("bad", 2).await;
            export.settled(0, each * round).await;
        }
        // Nothing waits, and the last trouble can be looked up.
        assert_eq!(export.status.trouble(), None);
        let trouble = export.logs().trouble().unwrap();
        assert!(
            trouble.is_denied && trouble.reason.contains("nothing is accepted"),
            "{trouble:?}"
        );
        for minute in 1..=2 {
            store.append("bad", 1).await;
            store.hand.forward(Duration::from_secs(59));
            let tried = export.logs().requests.get();
            eventually("it is sent again", || async {
                (export.logs().requests.get() > tried + 3).then_some(())
            })
            .await;
            assert_eq!(export.logs().letters.get(), each * 16 + minute - 1);
            assert!(export.status.trouble().is_some_and(|(_, is_denied)| is_denied));
            store.hand.forward(Duration::from_secs(1));
            export.settled(0, each * 16 + minute).await;
            assert_eq!(export.status.trouble(), None);
        }
        // Neither does a pause of it make it one that accepts.
        collector.refuse(SignalRefusal::Busy, &[Table::Logs]);
        // The collector is mended, and what it refuses then is a letter at once.
        let kept = store.append("kept", 1).await;
        let tried = export.logs().requests.get();
        eventually("it is tried", || async {
            (export.logs().requests.get() > tried + 2).then_some(())
        })
        .await;
        assert!(export.status.trouble().is_some_and(|(_, is_denied)| is_denied));
        collector.refuse(refusal, &[]);
        export.settled(1, each * 16 + 2).await;
        assert_eq!(collector.received().last().map(|last| last.rows.clone()), Some(kept));
        assert_eq!(export.status.trouble(), None);
        collector.refuse(refusal, &[Table::Logs]);
        store.append("bad", 1).await;
        export.settled(1, each * 16 + 3).await;
        assert_eq!(export.status.trouble(), None);
        assert_eq!(store.letters().len() as u64, each * 16 + 3);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_finds_everything_too_large_costs_a_bounded_number_of_letters_and_stops_in_order() {
    for protocol in PROTOCOLS {
        let store = ExportingStore::open().await;
        let sent = store.append("a", 1_024).await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.refuse(SignalRefusal::TooLarge, &[Table::Logs]);
        let export = store.start(hasty(&collector));
        // So many letters of a request count as one.
        let most = 16 * 33;
        eventually("a row waits", || async {
            let is_denied = export.status.trouble().is_some_and(|(_, is_denied)| is_denied);
            (is_denied && export.logs().letters.get() == most).then_some(())
        })
        .await;
        let tried = export.logs().requests.get();
        eventually("it is sent again", || async {
            (export.logs().requests.get() > tried + 3).then_some(())
        })
        .await;
        assert_eq!(export.logs().letters.get(), most, "{protocol:?}");
        store.hand.forward(Duration::from_secs(60));
        let most = most + 33;
        eventually("as many are letters a minute later", || async {
            (export.logs().letters.get() == most).then_some(())
        })
        .await;
        export.stop().await;
        collector.refuse(SignalRefusal::TooLarge, &[]);
        let export = store.start(hasty(&collector));
        export.settled(1_024 - most, 0).await;
        assert_eq!(collector.accepted(), sent[most as usize..], "{protocol:?}");
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_divided_request_does_not_hold_up_the_end() {
    let store = ExportingStore::open().await;
    store.append("a", 8_000).await;
    let collector = TestCollector::start(CollectorProtocol::Http, &[]).await;
    collector.refuse(SignalRefusal::TooLarge, &[Table::Logs]);
    let export = store.start(hasty(&collector));
    eventually("it is divided", || async {
        (export.logs().requests.get() > 2).then_some(())
    })
    .await;
    export.stop().await;
    // All of it would be twice as many requests as rows.
    assert!(collector.received().len() < 4_000, "{}", collector.received().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_in_part_never_counts_as_refused() {
    for protocol in PROTOCOLS {
        let store = ExportingStore::open().await;
        let collector = TestCollector::start(protocol, &[ScriptedAnswer::LongPartial(1); 20]).await;
        let export = store.start(hasty(&collector));
        for letters in 1..=20 {
            store.append("a", 2).await;
            eventually("it has a letter", || async {
                let is_settled = export.logs().oldest().is_none();
                (is_settled && export.logs().letters.get() == letters).then_some(())
            })
            .await;
            assert_eq!(export.logs().trouble(), None, "{protocol:?}");
        }
        assert_eq!((collector.received().len(), export.logs().retries.get()), (20, 0));
        export.stop().await;
    }
}

/// Fills the log with what waits behind a path that is not there, and has the collector refuse the first request of it. With files of
/// letters that take all that such files may, or with none.
async fn refuse_while_the_log_is_full(is_full_of_files: bool) {
    let store = ExportingStore::with_log(Some(ByteSize::mib(1))).await;
    let script = [ScriptedAnswer::Accept, ScriptedAnswer::Status(500)];
    let collector = TestCollector::start(CollectorProtocol::Http, &script).await;
    let export = store.start(hasty(&collector));
    let mut rows = store.append("a", 1).await.len();
    export.settled(1, 0).await;
    let quarantine = store.dir.path().join("quarantine");
    if is_full_of_files {
        std::fs::create_dir_all(&quarantine).unwrap();
        durable_fs::write_durably(&quarantine.join("export_old.otlp"), &vec![1; 4 << 20]).unwrap();
    }
    // Nothing leaves the log, which fills up.
    collector.refuse(SignalRefusal::NoPath, &[Table::Logs]);
    let patience = Duration::from_secs(1);
    loop {
        let appended = tokio::time::timeout(patience, store.append(&format!("{rows:06}"), 500)).await;
        if appended.is_err() {
            break;
        }
        rows += 500;
    }
    collector.refuse(SignalRefusal::NoPath, &[]);
    let refused = eventually("a request is refused", || async {
        let received = collector.received();
        received.into_iter().find(|request| request.answer == script[1])
    })
    .await;
    let (letters, lost) = if is_full_of_files {
        (0, 0)
    } else {
        (1, refused.rows.len())
    };
    let status = export.logs();
    eventually("all others are accepted", || async {
        let is_there = status.rows.get() as usize + lost == rows && status.letters.get() == letters;
        (is_there && status.oldest().is_none()).then_some(())
    })
    .await;
    let files = std::fs::read_dir(quarantine).unwrap().flatten();
    let names: Vec<String> = files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(names.len() == 1 && names[0].ends_with(".otlp"), "{names:?}");
    let accepted = collector.accepted();
    let again = accepted.iter().filter(|row| **row == refused.rows[0]).count();
    assert_eq!((accepted.len(), again), (rows - lost, usize::from(is_full_of_files)));
    assert_eq!(export.status.trouble(), None);
    export.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_for_which_the_log_has_no_room_is_a_file() {
    refuse_while_the_log_is_full(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_letter_has_no_place_is_sent_again() {
    refuse_while_the_log_is_full(true).await;
}
