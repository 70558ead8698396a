//! Generated requests, most of them nonsense: each is answered, or the requester's fault, never ours.

use axum::Router;
use axum::body::Body;
use futures::StreamExt as _;
use http::Request;
use model::batch::{MessageRow, messages};
use model::{FluxId, MessageDirection, Span, SpanId, SpanStatus, TraceId};
use tower::ServiceExt as _;

use super::*;

const REQUESTS: u64 = 10_000;

pub(super) const PATHS: [&str; 24] = [
    "telemetry/logs",
    "telemetry/logs/histogram",
    "telemetry/logs/top",
    "telemetry/logs/fields",
    "telemetry/traces",
    "telemetry/traces/top",
    "telemetry/traces/fields",
    "telemetry/traces/{}",
    "telemetry/services",
    "telemetry/dependencies",
    "telemetry/metrics",
    "telemetry/metrics/names",
    "telemetry/metrics/{}",
    "telemetry/metrics/m",
    "telemetry/metrics/m/exemplars",
    "telemetry/metrics/m/labels",
    "telemetry/metrics/{}/labels",
    "telemetry/metrics/m/labels/{}",
    "telemetry/messages",
    "telemetry/messages/{}",
    "telemetry/dead_letters",
    "messages",
    "messages/{}",
    "flux/{}",
];

pub(super) const NAMES: [&str; 48] = [
    "level",
    "min_level",
    "since",
    "until",
    "rack_id",
    "gear_id",
    "entity",
    "flux_id",
    "trace_id",
    "q",
    "limit",
    "offset",
    "cursor",
    "order",
    "status",
    "service",
    "span_name",
    "min_duration_ms",
    "name",
    "group_by",
    "interval",
    "agg",
    "fill",
    "shape",
    "format",
    "by",
    "field",
    "src_gear_id",
    "dst_gear_id",
    "msg_type",
    "direction",
    "raw",
    "attr.n",
    "not.level",
    "not.q",
    "not.attr.n",
    "not.attr.",
    "cells",
    "positions",
    "around",
    "before",
    "after",
    "attr.",
    "labels.cpu",
    "promoted.k",
    "attr.{}",
    "labels.{}",
    "{}",
];

/// What may be right somewhere, and what is so nowhere.
const VALUES: [&str; 66] = [
    "",
    "0",
    "1",
    "7",
    "100",
    "10000",
    "4294967295",
    "4294967296",
    "-1",
    "1e9",
    "NaN",
    "null",
    "true",
    "false",
    "series",
    "asc",
    "desc",
    "up",
    "error",
    "ok",
    "warn",
    "info",
    "level",
    "entity_name",
    "entity_id",
    "message",
    "span_name",
    "duration_ms",
    "trace_id",
    "flux_id",
    "ts",
    "attributes",
    "attr.n",
    "attr.",
    "none",
    "hex",
    "base64",
    "json",
    "inbound",
    "avg",
    "rate",
    "last",
    "count",
    "p50",
    "p99",
    "p100",
    "p",
    "1us",
    "1ns",
    "0s",
    "1m",
    "24h",
    "500000h",
    "584542046y",
    "2026-11-21T12:00:00Z",
    "2024-02-29T23:59:60Z",
    "2026-03-29T02:30:00+02:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "m",
    "rack-a",
    "' OR 1=1 --",
    "{\"a\":1}",
    "\u{0}",
    "🦀\u{202e}\n",
    "7b7d",
];

/// A generator of the same requests for the same seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("PLATFORM_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = given.unwrap_or_else(|| clock.map_or(1, |since| since.subsec_nanos().into()));
        println!("PLATFORM_TEST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, n: usize) -> usize {
        // SplitMix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(n).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Percent-encoded: a known value, an id, bytes of any kind, or a stray escape.
    fn value(&mut self) -> String {
        match self.below(12) {
            0 => {
                let count = self.below(40);
                (0..count).map(|_| format!("%{:02x}", self.below(256))).collect()
            }
            1 => FluxId::at(now(), [1; 10]).to_string(),
            2 => TraceId::from_entropy([1; 16]).to_string(),
            3 => self.pick(&["%", "%zz", "%ff%fe", "%2", "+", "a=b"]).to_owned(),
            4 => "x".repeat(self.below(2_000)),
            _ => encoded(self.pick(&VALUES)),
        }
    }

    fn filled(&mut self, template: &str) -> String {
        match template.split_once("{}") {
            Some((before, after)) => format!("{before}{}{after}", self.value()),
            None => template.to_owned(),
        }
    }

    fn request(&mut self) -> String {
        let path = self.pick(&PATHS);
        let path = self.filled(path);
        let parameters: Vec<String> = (0..self.below(5))
            .map(|_| {
                let name = self.pick(&NAMES);
                format!("{}={}", self.filled(name), self.value())
            })
            .collect();
        format!("/api/v1/{path}?{}", parameters.join("&"))
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

async fn fill(bench: &Bench) {
    bench.append(&(0..20).map(log).collect::<Vec<_>>()).await;
    let point = |n: i64| MetricPoint {
        ts: Timestamp::from_micros(now().micros() - n * 7_000_000),
        name: "m".to_owned(),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        metric_type: MetricType::ALL[usize::try_from(n).unwrap() % MetricType::ALL.len()],
        value: if n == 5 { f64::NAN } else { 1.5 },
        labels: Attributes::new().with("cpu", n),
    };
    bench.append(&(0..20).map(point).collect::<Vec<_>>()).await;
    let span = |n: u8| Span {
        ts: now(),
        trace_id: TraceId::from_entropy([1; 16]),
        span_id: SpanId::from_entropy([n + 1; 8]),
        parent_span_id: None,
        flux_id: Some(FluxId::at(now(), [1; 10])),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        span_name: "send".to_owned(),
        duration_ms: f32::from(n),
        status: SpanStatus::Ok,
        attributes: Attributes::new().with("n", n),
    };
    bench.append(&(0..20).map(span).collect::<Vec<_>>()).await;
    let message = MessageRow {
        ts: now(),
        trace_id: TraceId::from_entropy([1; 16]),
        flux_id: FluxId::at(now(), [1; 10]),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        src_gear_id: "parse".to_owned(),
        dst_gear_id: None,
        msg_type: "order".to_owned(),
        direction: MessageDirection::Inbound,
        status: SpanStatus::Ok,
        raw_msg: vec![0, 255],
        promoted: Attributes::new().with("k", 1),
    };
    bench.append_to(Table::Messages, messages(&[message]).unwrap()).await;
}

async fn status(router: Router, uri: &str) -> u16 {
    let Ok(request) = Request::get(uri).body(Body::empty()) else {
        return 400;
    };
    match router.oneshot(request).await {
        Ok(response) => response.status().as_u16(),
        Err(never) => match never {},
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_generated_requests_are_never_a_server_error() {
    let bench = Bench::new().await;
    fill(&bench).await;
    // So many places that nobody is turned away for being one too many.
    let limits = QueryLimits::new(model::ByteSize::mib(512), Duration::from_secs(120), 64);
    let querier = Arc::new(QueryEngine::new(Arc::clone(&bench.engine), limits, Clock::new(now)).unwrap());
    let router = guarded(
        telemetry::routes(Arc::clone(&querier)),
        Arc::clone(&bench.exposition),
        bench.guards.clone(),
    );
    let mut random = Random::new();
    let mut requests: Vec<String> = (0..REQUESTS).map(|_| random.request()).collect();
    // What is right is among them.
    requests.extend(PATHS.map(|path| format!("/api/v1/{path}?limit=1").replace("{}", "m")));
    let answers = futures::stream::iter(requests).map(|uri| {
        let router = router.clone();
        async move { (status(router, &uri).await, uri) }
    });
    let mut answers = answers.buffer_unordered(8);
    let (mut answered, mut refused) = (0, 0);
    while let Some((status, uri)) = answers.next().await {
        assert!(status == 200 || (400..500).contains(&status), "{status}: {uri}");
        *(if status == 200 { &mut answered } else { &mut refused }) += 1;
    }
    println!("{answered} answered, {refused} refused");
    assert!(
        answered > 500 && refused > 500,
        "{answered} answered, {refused} refused"
    );
    querier.close().await;
    bench.close().await;
}
