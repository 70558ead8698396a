//! Whatever is asked, the answer is rows or the requester's fault, never ours.

use model::filter::{DeadLetterFilter, LogFilter, MAX_LIMIT, MetricFilter, TimePoint, TraceFilter};
use model::{FluxId, HumanDuration, Timestamp, TraceId};

use super::Bench;
use super::random_world::{self, Random};
use crate::cursor::{KeysetPosition, PageCursor, fingerprint};
use crate::time_range::TimeRange;
use crate::{Error, ListQuery, QueryErrorKind};

const TEXTS: [&str; 12] = [
    "",
    "'; DROP TABLE logs; --",
    "\"",
    "\\",
    "%",
    "_",
    "\u{0}",
    "a\nb",
    "\u{202e}abc",
    "{\"a\":1}",
    "$(reboot)",
    "🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀",
];

fn fair<T>(answer: Result<T, Error>, asked: &impl std::fmt::Debug) {
    if let Err(error) = answer {
        let fair = matches!(
            error.kind(),
            QueryErrorKind::Parameter | QueryErrorKind::NotFound | QueryErrorKind::TooMuch
        );
        assert!(fair, "{asked:?}: {error}");
    }
}

fn extremes() -> Vec<TimePoint> {
    let moments = [i64::MIN, i64::MAX, 0, Timestamp::MIN.micros(), Timestamp::MAX.micros()];
    let ages = [0, 1, u64::MAX / 1_000_000];
    let moments = moments.map(|micros| TimePoint::At(Timestamp::from_micros(micros)));
    let ages = ages.map(|millis| TimePoint::Ago(HumanDuration::from_millis(millis)));
    moments.into_iter().chain(ages).collect()
}

async fn bench() -> Bench {
    let bench = Bench::new().await;
    let mut random = Random::new();
    let logs: Vec<_> = (0..40).map(|_| random_world::log(&mut random)).collect();
    let points: Vec<_> = (0..40).map(|_| random_world::point(&mut random)).collect();
    bench.append(&logs).await;
    bench.append(&points).await;
    bench.publish().await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_texts_are_only_texts() {
    let bench = bench().await;
    for text in TEXTS {
        let odd = || Some(text.to_owned());
        let logs = LogFilter {
            rack_id: odd(),
            ..LogFilter::default()
        };
        fair(bench.querier.page(ListQuery::Logs(logs.clone())).await, &logs);
        for logs in [
            LogFilter {
                q: odd(),
                ..LogFilter::default()
            },
            LogFilter {
                gear_id: odd(),
                ..LogFilter::default()
            },
            LogFilter {
                entity: odd(),
                ..LogFilter::default()
            },
            LogFilter {
                cursor: odd(),
                ..LogFilter::default()
            },
        ] {
            fair(bench.querier.page(ListQuery::Logs(logs.clone())).await, &logs);
        }
        let spans = TraceFilter {
            span_name: odd(),
            ..TraceFilter::default()
        };
        fair(bench.querier.page(ListQuery::Traces(spans.clone())).await, &spans);
        let points = MetricFilter {
            group_by: odd(),
            ..MetricFilter::default()
        };
        fair(bench.querier.page(ListQuery::Metrics(points.clone())).await, &points);
        fair(bench.querier.metric(text, &MetricFilter::default()).await, &text);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extreme_times_numbers_and_intervals_are_answered_or_refused() {
    let bench = bench().await;
    for since in extremes() {
        for until in extremes() {
            let filter = LogFilter {
                since: Some(since),
                until: Some(until),
                ..LogFilter::default()
            };
            fair(bench.querier.page(ListQuery::Logs(filter.clone())).await, &filter);
        }
        for interval in ["1us", "1ns", "0s", "500000h", "1h"] {
            let filter = MetricFilter {
                since: Some(since),
                interval: Some(interval.parse().unwrap()),
                ..MetricFilter::default()
            };
            fair(bench.querier.page(ListQuery::Metrics(filter.clone())).await, &filter);
        }
    }
    for (limit, offset) in [
        (0, 0),
        (MAX_LIMIT, u32::MAX),
        (MAX_LIMIT + 1, 0),
        (u32::MAX, u32::MAX),
        (1, 39),
        (1, 40),
    ] {
        let filter = LogFilter {
            limit: Some(limit),
            offset: Some(offset),
            ..LogFilter::default()
        };
        fair(bench.querier.page(ListQuery::Logs(filter.clone())).await, &filter);
    }
    let future = FluxId::at(Timestamp::from_micros(i64::MAX), [255; 10]);
    let filter = TraceFilter {
        flux_id: Some(future),
        min_duration_ms: Some(u32::MAX),
        ..TraceFilter::default()
    };
    fair(bench.querier.page(ListQuery::Traces(filter.clone())).await, &filter);
    let nobody = bench.querier.trace(TraceId::from_entropy([250; 16])).await;
    assert_eq!(nobody.unwrap_err().kind(), QueryErrorKind::NotFound);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_cursors_are_only_odd_windows() {
    let bench = bench().await;
    let filter = LogFilter::default();
    for ts in [i64::MIN, -1, 0, i64::MAX] {
        for (hash, seen) in [(0, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (7, 1 << 40)] {
            let cursor = PageCursor::new(fingerprint(&filter), TimeRange::ALL, KeysetPosition { ts, hash, seen });
            let filter = LogFilter {
                cursor: Some(cursor.token()),
                ..filter.clone()
            };
            fair(bench.querier.page(ListQuery::Logs(filter.clone())).await, &filter);
        }
    }
    fair(
        bench
            .querier
            .page(ListQuery::DeadLetters(DeadLetterFilter::default()))
            .await,
        &"dead letters",
    );
    bench.close().await;
}
