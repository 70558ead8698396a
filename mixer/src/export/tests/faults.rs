//! Requests that are never answered or have to be divided, answers that nobody can read as a whole, and what letters are called.

use bytes::Bytes;
use engine::ArrivalPosition;

use super::super::letters::{LetterFiles, RefusedRequest};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_collector_dies_of_is_divided_although_it_is_away_in_between() {
    for (protocol, away) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(503)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(14)),
    ] {
        let store = ExportingStore::open().await;
        let sent = store.append("a", 2).await;
        let dies = ScriptedAnswer::Lose;
        let collector = TestCollector::start(protocol, &[dies, away, dies, away, dies]).await;
        let export = store.start(hasty(&collector));
        export.settled(2, 0).await;
        let rows: Vec<usize> = collector.received().iter().map(|request| request.rows.len()).collect();
        assert_eq!(rows, [2, 2, 2, 2, 2, 1, 1], "{protocol:?}");
        assert_eq!(collector.accepted(), sent);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_alone_is_never_answered_waits_and_is_no_dead_letter() {
    for protocol in PROTOCOLS {
        let store = ExportingStore::open().await;
        let sent = store.append("a", 5).await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.poison(&sent[2]);
        let export = store.start(hasty(&collector));
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
        let store = ExportingStore::open().await;
        let collector = TestCollector::start(protocol, &[]).await;
        collector.set_away(true);
        let mut sent = store.append("a", 6).await;
        let export = store.start(hasty(&collector));
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
        let store = ExportingStore::open().await;
        let sent = store.append("a", 3).await;
        let collector = TestCollector::start(protocol, &[busy; 10]).await;
        let export = store.start(hasty(&collector));
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
        let store = ExportingStore::open().await;
        let sent = store.append("a", 3).await;
        let collector = TestCollector::start(protocol, &[ScriptedAnswer::LongPartial(1)]).await;
        let export = store.export(&collector);
        export.settled(2, 1).await;
        assert_eq!((collector.accepted(), collector.received().len()), (sent, 1));
        let reason = &store.letters()[0].0;
        assert!(reason.contains("but for 1 records"), "{protocol:?}: {reason}");
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
        let store = ExportingStore::open().await;
        let sent = store.append("a", 128).await;
        let mut script = Vec::new();
        answers(128, too_large, &mut script);
        // Of the last two rows the first one is wrong.
        script.pop();
        script.extend([invalid; 2]);
        let collector = TestCollector::start(protocol, &script).await;
        let export = store.start(hasty(&collector));
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
async fn requests_with_the_same_first_row_have_a_letter_each_and_one_that_is_refused_again_has_one() {
    let store = ExportingStore::open().await;
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
