//! A store, its exporter, and a collector that answers in every way.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod collector;
mod faults;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use engine::{AppendBatch, BatchOrigin, Engine};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, ByteSize, EntityId, Level, LogRecord, Table, TelemetryRecord};
use tempfile::TempDir;

use super::endpoint::{CollectorProtocol, CollectorTarget};
use super::{ExportCompression, ExportParts, ExportSettings, ExportStatus, header_map};
use crate::tasks::{FailureReceiver, SupervisedTask, failure_channel};
use crate::testing::{Hand, entropy, eventually};
use collector::{ReceivedExport, ScriptedAnswer, SignalRefusal, TestCollector};

const PROTOCOLS: [CollectorProtocol; 2] = [CollectorProtocol::Grpc, CollectorProtocol::Http];

/// A store whose telemetry is exported and kept nowhere else.
struct ExportingStore {
    engine: Arc<Engine>,
    parts: ExportParts,
    hand: Hand,
    dir: Arc<TempDir>,
}

/// A running export.
struct RunningExport {
    status: Arc<ExportStatus>,
    tasks: Vec<SupervisedTask>,
    _failures: FailureReceiver,
}

impl ExportingStore {
    async fn open() -> Self {
        Self::with_log(None).await
    }

    /// Its log has so much room, or the usual one.
    async fn with_log(wal_max: Option<ByteSize>) -> Self {
        Self::open_in(Arc::new(tempfile::tempdir().unwrap()), wal_max).await
    }

    /// Ends in order, and starts again.
    async fn reopen(self) -> Self {
        let dir = Arc::clone(&self.dir);
        self.engine.close().await.unwrap();
        drop(self);
        Self::open_in(dir, None).await
    }

    /// Nothing is flushed by itself.
    async fn open_in(dir: Arc<TempDir>, wal_max: Option<ByteSize>) -> Self {
        let mut settings = engine::Settings::new(dir.path());
        settings.export = engine::ExportMode::Only;
        settings.flush_interval = Duration::from_secs(3_600);
        settings.wal_max = wal_max.unwrap_or(settings.wal_max);
        let hand = Hand::new();
        let (clock, entropy) = (hand.clock(), entropy());
        let engine = Engine::open(settings, clock.clone(), entropy.clone()).await.unwrap();
        let parts = ExportParts {
            engine: Arc::clone(&engine),
            clock,
            entropy,
        };
        Self {
            engine,
            parts,
            hand,
            dir,
        }
    }

    async fn append_rows<R: TelemetryRecord>(&self, rows: &[R]) {
        let batch = R::to_batch(rows).unwrap();
        let payload = encode_arrow(std::slice::from_ref(&batch)).unwrap().into();
        let append = AppendBatch {
            table: R::TABLE,
            origin: BatchOrigin::default(),
            payload,
            rows: vec![batch],
        };
        self.engine.append(append).await.unwrap();
    }

    /// Appends log lines; their texts.
    async fn append(&self, name: &str, rows: usize) -> Vec<String> {
        let line = |row| LogRecord {
            ts: self.parts.clock.now(),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: None,
            level: Level::Info,
            message: format!("{name}/{row}"),
            attributes: Attributes::new(),
        };
        let lines: Vec<LogRecord> = (0..rows).map(line).collect();
        self.append_rows(&lines).await;
        lines.into_iter().map(|line| line.message).collect()
    }

    fn export(&self, collector: &TestCollector) -> RunningExport {
        self.start(settings(collector))
    }

    fn export_with(
        &self,
        collector: &TestCollector,
        compression: ExportCompression,
        timeout: Duration,
    ) -> RunningExport {
        self.start(ExportSettings {
            compression,
            timeout,
            ..settings(collector)
        })
    }

    fn start(&self, settings: ExportSettings) -> RunningExport {
        let (fatal, failures) = failure_channel();
        let (status, tasks) = super::start(settings, &self.parts, &fatal).unwrap();
        RunningExport {
            status,
            tasks,
            _failures: failures,
        }
    }

    /// The payloads and reasons of dead letters.
    fn letters(&self) -> Vec<(String, Vec<u8>)> {
        let view = self.engine.view();
        let rows = view.hot(Table::DeadLetters).iter().flat_map(|hot| {
            let rows = 0..hot.batch.num_rows();
            rows.map(|row| model::batch::row_json(&hot.batch, row))
        });
        let letter = |row: serde_json::Map<String, serde_json::Value>| {
            let reason = row["reason"].as_str().unwrap().to_owned();
            let is_partial = row["headers"].get("partial").is_some();
            let has_none = reason.contains(&format!("but for {} records", row["headers"]["rows"]));
            let is_accepted = reason.contains("the collector accepted it");
            assert_eq!(is_partial, is_accepted && !has_none, "{row:?}");
            assert!(
                row["subject"] == "otlp-export/logs" && row["headers"]["rows"].as_u64() > Some(0),
                "{row:?}"
            );
            (reason, model::hex::decode(row["payload"].as_str().unwrap()).unwrap())
        };
        rows.map(letter).collect()
    }
}

fn settings(collector: &TestCollector) -> ExportSettings {
    let endpoint = collector.address.to_string();
    let target = match collector.protocol {
        CollectorProtocol::Grpc => CollectorTarget::grpc(&endpoint, true),
        CollectorProtocol::Http => CollectorTarget::http(&endpoint, true),
    };
    ExportSettings {
        target: target.unwrap(),
        headers: header_map([("x-api-key", "s3cret")].into_iter()).unwrap(),
        compression: ExportCompression::Gzip,
        timeout: Duration::from_secs(20),
        first_pause: Duration::from_millis(200),
    }
}

/// Tries again so soon that many attempts are over in a moment.
fn hasty(collector: &TestCollector) -> ExportSettings {
    ExportSettings {
        first_pause: Duration::from_millis(2),
        ..settings(collector)
    }
}

impl RunningExport {
    fn logs(&self) -> &super::SignalStatus {
        self.status.of(Table::Logs).unwrap()
    }

    /// Waits until so many rows were accepted, or became letters.
    async fn settled(&self, rows: u64, letters: u64) {
        let status = self.logs();
        let is_settled = || async {
            let is_there = status.rows.get() >= rows && status.letters.get() >= letters;
            (is_there && status.oldest().is_none()).then_some(())
        };
        eventually("everything is settled", is_settled).await;
        assert_eq!((status.rows.get(), status.letters.get()), (rows, letters));
    }

    async fn stop(self) {
        for task in self.tasks {
            task.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_once_and_in_order_over_either_protocol_packed_or_not() {
    for protocol in PROTOCOLS {
        for compression in [ExportCompression::Gzip, ExportCompression::None] {
            let store = ExportingStore::open().await;
            let mut sent = store.append("a", 9_000).await;
            let collector = TestCollector::start(protocol, &[]).await;
            let export = store.export_with(&collector, compression, Duration::from_secs(20));
            sent.extend(store.append("b", 3).await);
            export.settled(9_003, 0).await;
            assert!(collector.accepted() == sent, "{protocol:?} {compression:?}");
            let received = collector.received();
            for request in &received {
                assert!(request.rows.len() <= 8_192 && request.headers["x-api-key"] == "s3cret");
                let is_packed = ["content-encoding", "grpc-encoding"].map(|name| request.headers.contains_key(name));
                assert_eq!(is_packed.contains(&true), compression == ExportCompression::Gzip);
                let accepted = request
                    .headers
                    .get("grpc-accept-encoding")
                    .map(|packings| packings.to_str().unwrap());
                assert_eq!(
                    accepted,
                    (protocol == CollectorProtocol::Grpc).then_some("identity,gzip")
                );
                let wanted = match protocol {
                    CollectorProtocol::Grpc => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
                    CollectorProtocol::Http => "/v1/logs",
                };
                assert_eq!(request.path, wanted);
            }
            assert_eq!(export.logs().requests.get(), received.len() as u64);
            // What was accepted does not come again.
            export.stop().await;
            let store = store.reopen().await;
            let again = store.export(&collector);
            let new = store.append("c", 1).await;
            again.settled(1, 0).await;
            assert_eq!(collector.accepted()[9_003..], new);
            again.stop().await;
        }
    }
}

/// The requests' bodies are all the same.
fn assert_same_bytes(received: &[ReceivedExport]) {
    assert!(
        received.windows(2).all(|pair| pair[0].body == pair[1].body),
        "{received:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_answered_or_not_now_is_sent_again_as_it_was() {
    for (protocol, script) in [
        (
            CollectorProtocol::Http,
            [
                ScriptedAnswer::Status(503),
                ScriptedAnswer::Silence,
                ScriptedAnswer::Cut,
            ],
        ),
        (
            CollectorProtocol::Grpc,
            [ScriptedAnswer::Code(14), ScriptedAnswer::Silence, ScriptedAnswer::Cut],
        ),
    ] {
        let store = ExportingStore::open().await;
        let sent = store.append("a", 5).await;
        let collector = TestCollector::start(protocol, &script).await;
        let timeout = Duration::from_millis(500);
        let export = store.export_with(&collector, ExportCompression::Gzip, timeout);
        export.settled(5, 0).await;
        let received = collector.received();
        assert_eq!(received.len(), 4, "{protocol:?}");
        assert_same_bytes(&received);
        assert_eq!(received[3].rows, sent);
        // Doubles are where the collector accepted and could not say so.
        assert_eq!(collector.accepted().len(), 3 * 5);
        assert_eq!(export.logs().retries.get(), 3);
        assert_eq!(export.logs().trouble(), None);
        assert!(store.letters().is_empty());
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_or_in_part_is_a_dead_letter_with_the_request() {
    for (protocol, refusal, says) in [
        (
            CollectorProtocol::Http,
            ScriptedAnswer::Status(500),
            "500 Internal Server Error: scripted",
        ),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(2), "gRPC status 2"),
    ] {
        let store = ExportingStore::open().await;
        let script = [ScriptedAnswer::Accept, refusal, ScriptedAnswer::Partial(1)];
        let collector = TestCollector::start(protocol, &script).await;
        let export = store.export(&collector);
        store.append("first", 1).await;
        export.settled(1, 0).await;
        store.append("a", 2).await;
        export.settled(1, 1).await;
        store.append("b", 3).await;
        export.settled(3, 2).await;
        store.append("c", 1).await;
        export.settled(4, 2).await;
        assert_eq!(export.logs().rejected.get(), 1);
        let letters = store.letters();
        let reasons: Vec<&str> = letters.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(
            reasons,
            [says, "the collector accepted it but for 1 records: too old"],
            "{protocol:?}"
        );
        for ((_, payload), name) in letters.iter().zip(["a/0", "b/0"]) {
            let has = payload.windows(name.len()).any(|bytes| bytes == name.as_bytes());
            assert!(has, "the letter has the request, not packed: {name}");
        }
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_comes_in_halves_down_to_a_single_row() {
    for (protocol, too_large) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(413)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(8)),
    ] {
        let store = ExportingStore::open().await;
        let sent = [store.append("a", 3).await, store.append("b", 2).await].concat();
        // Five rows; two; the first of them, which is too large alone.
        let collector = TestCollector::start(protocol, &[too_large; 3]).await;
        let export = store.export(&collector);
        export.settled(4, 1).await;
        let counts: Vec<usize> = collector.received().iter().map(|export| export.rows.len()).collect();
        assert_eq!(counts, [5, 2, 1, 1, 3], "{protocol:?}");
        assert_eq!(collector.accepted(), sent[1..]);
        assert_eq!(store.letters().len(), 1);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_row_takes_no_others_to_the_dead_letters() {
    for (protocol, invalid) in [
        (CollectorProtocol::Http, ScriptedAnswer::Status(400)),
        (CollectorProtocol::Grpc, ScriptedAnswer::Code(3)),
    ] {
        let store = ExportingStore::open().await;
        let sent = store.append("a", 4).await;
        // All four; the first two are right; the others; the third.
        let script = [invalid, ScriptedAnswer::Accept, invalid, invalid];
        let collector = TestCollector::start(protocol, &script).await;
        let export = store.export(&collector);
        export.settled(3, 1).await;
        let counts: Vec<usize> = collector.received().iter().map(|export| export.rows.len()).collect();
        assert_eq!(counts, [4, 2, 2, 1, 1], "{protocol:?}");
        assert_eq!(collector.accepted(), [&sent[..2], &sent[3..]].concat());
        assert_eq!(store.letters().len(), 1);
        export.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_ends_while_nobody_answers_goes_on_with_the_same_rows() {
    let store = ExportingStore::open().await;
    let sent = store.append("a", 4).await;
    let collector = TestCollector::start(CollectorProtocol::Http, &[ScriptedAnswer::Silence]).await;
    let timeout = Duration::from_millis(300);
    let export = store.export_with(&collector, ExportCompression::Gzip, timeout);
    eventually("a request came", || async { collector.received().first().cloned() }).await;
    export.stop().await;
    let begun = collector.received().len();
    let store = store.reopen().await;
    let export = store.export(&collector);
    export.settled(4, 0).await;
    let received = collector.received();
    assert_eq!(received.len(), begun + 1);
    assert_eq!(received[begun].rows, sent);
    export.stop().await;
}
