//! What is recorded, and what is left out.
#![allow(clippy::unwrap_used, reason = "tests")]

use chassis::config::LogThrottleConfig;

use super::*;
use crate::spool::{self, SpoolFullPolicy, SpoolLimits};

struct RecorderBench {
    recorder: TelemetryRecorder,
    receiver: RecorderReceiver,
    counters: Arc<TelemetryCounters>,
    thread: spool::SpoolThread,
    _dir: tempfile::TempDir,
}

fn bench() -> RecorderBench {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::new(|| Timestamp::from_micros(1));
    let limits = SpoolLimits::new(1 << 20, SpoolFullPolicy::Block);
    let (spool, thread, _) = spool::open(dir.path(), limits, clock.clone(), spool::SpoolKind::Telemetry).unwrap();
    let counters = Arc::new(TelemetryCounters::default());
    let rules = LogThrottleConfig {
        enabled: false,
        rate: 1.0,
        burst: 1,
    };
    let (recorder, receiver) = TelemetryRecorder::new(RecorderParts {
        enabled: true,
        sampling_rate: 1.0,
        clock,
        throttle: Arc::new(LogRateLimiter::new(rules)),
        spool,
        identity: watch::channel(None).1,
        counters: Arc::clone(&counters),
    });
    RecorderBench {
        recorder,
        receiver,
        counters,
        thread,
        _dir: dir,
    }
}

#[tokio::test]
async fn a_number_that_is_not_finite_is_counted_and_does_not_cost_its_batch() {
    let bench = bench();
    for value in [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let labels = Attributes::new();
        bench.recorder.metric("load", MetricType::Gauge, value, "1", labels);
    }
    assert_eq!(bench.receiver.queue().take().len(), 1);
    assert_eq!(bench.counters.unencodable.load(Relaxed), 3);
    assert!(bench.thread.close(std::time::Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_full_queue_loses_its_oldest_rows_and_counts_them() {
    let RecorderBench {
        recorder,
        receiver,
        counters,
        thread,
        _dir,
    } = bench();
    for n in 0..QUEUE_ROWS + 10 {
        recorder.log(Level::Info, n.to_string(), Attributes::new(), None);
    }
    let rows = receiver.queue().take();
    assert_eq!((rows.len(), counters.dropped_in_memory.load(Relaxed)), (QUEUE_ROWS, 10));
    assert!(matches!(rows.front(), Some(TelemetryRow::Log(row)) if row.message == "10"));
    assert!(thread.close(std::time::Duration::from_secs(5)).await);
}

#[tokio::test]
async fn points_of_one_call_are_on_disk_together_or_refused_together() {
    let bench = bench();
    let owner = RackIdentity {
        entity_id: model::EntityId::for_name("rack-a"),
        name: "rack-a".parse().unwrap(),
        cluster_key: ed25519_dalek::SigningKey::from_bytes(&[7; 32]).verifying_key(),
        former_cluster_keys: Vec::new(),
    };
    let record = |count: usize| {
        let row = MetricRow {
            ts: Timestamp::from_micros(1),
            name: "x".repeat(1_000),
            metric_type: MetricType::Gauge,
            value: 1.0,
            labels: Attributes::new(),
        };
        bench.recorder.record_points(owner.clone(), vec![row; count])
    };
    let stored = || {
        let counters = &bench.counters;
        (counters.batches.load(Relaxed), counters.rows.load(Relaxed))
    };
    assert_eq!(record(700).await, Ok(()));
    assert_eq!(stored(), (2, 700), "more than one part");
    assert_eq!(record(400).await, Err(RecordingError::Full));
    assert_eq!(stored(), (2, 700));
    assert_eq!(record(0).await, Ok(()));
    assert!(bench.thread.close(std::time::Duration::from_secs(5)).await);
}
