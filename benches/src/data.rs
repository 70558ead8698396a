//! Deterministic telemetry as it looks in the field: a few dozen message shapes with varying parts, 3 to 6 attributes,
//! bursts, a skewed choice of hosts, flux ids on a part of the rows, 1 % of the rows late by up to ten minutes.
//!
//! # Invariants
//!
//! - The same seed and number give the same rows on every machine.
//! - Times advance by [`ROWS_PER_SECOND`] on average, from [`START`] on.
//!
//! # Not here
//!
//! Real logs: their licences do not allow to ship them.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use model::{
    Attributes, EntityId, FluxId, Level, LogRecord, MetricPoint, MetricType, Span, SpanId, SpanStatus, Table,
    TelemetryRecord, Timestamp, TraceId,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The first row's time: 2026-01-05T10:00:00Z.
pub const START: Timestamp = Timestamp::from_micros(1_767_607_200_000_000);
/// Rows per second of event time, on average.
pub const ROWS_PER_SECOND: i64 = 20_000;

const HOSTS: usize = 40;

/// Message shapes: `#` is a number, `@` an address, `~` a hexadecimal id, `%` a word.
const SHAPES: [(&str, &str, u8); 24] = [
    ("http", "GET /api/v2/%/# 200 in # ms from @", 0),
    ("http", "POST /api/v2/%/#/items 201 in # ms from @ body # bytes", 0),
    (
        "http",
        "upstream @ answered 502 for /api/v2/%/# after # ms, trying the next one",
        2,
    ),
    (
        "auth",
        "accepted publickey for % from @ port # ssh2: ED25519 SHA256:~",
        0,
    ),
    ("auth", "failed password for invalid user % from @ port # ssh2", 2),
    ("auth", "session closed for user % after # s", 0),
    (
        "db",
        "slow statement took # ms: SELECT * FROM % WHERE id = $1, rows #",
        2,
    ),
    (
        "db",
        "checkpoint complete: wrote # buffers, # segments added, sync files #, longest # ms",
        0,
    ),
    (
        "db",
        "could not serialize access due to concurrent update of % (transaction #)",
        3,
    ),
    ("queue", "consumer % lags # messages behind partition #", 2),
    ("queue", "committed offset # of partition # for group %", 1),
    ("queue", "rebalance of group % finished in # ms with # members", 0),
    ("storage", "received block blk_# of size # from @", 0),
    ("storage", "verification succeeded for blk_#", 1),
    ("storage", "replica blk_# on @ is corrupt, checksum ~ expected ~", 3),
    (
        "kernel",
        "TCP: request_sock_TCP: possible SYN flooding on port #. Sending cookies.",
        2,
    ),
    ("kernel", "nvme0n1: I/O # QID # timeout, completion polled", 2),
    ("cron", "(%) CMD (/usr/lib/%/cleanup --older-than #d)", 0),
    ("cache", "evicted # entries of %, # bytes free, hit ratio 0.#", 1),
    ("cache", "miss for key %:#:~", 1),
    ("order", "order # of customer # accepted, total #.# EUR, payment %", 0),
    ("order", "payment of order # declined by %: code #", 3),
    ("order", "shipment ~ left warehouse % with # parcels", 0),
    ("scheduler", "task % (attempt #) finished on @ in # ms, result ~", 0),
];
const WORDS: [&str; 24] = [
    "orders",
    "invoices",
    "alice",
    "bob",
    "carol",
    "billing",
    "inventory",
    "payments",
    "search",
    "deploy",
    "root",
    "www-data",
    "telemetry",
    "catalog",
    "shipping",
    "accounts",
    "mailer",
    "reports",
    "gateway",
    "ledger",
    "visa",
    "north",
    "south",
    "postgres",
];
const LEVELS: [Level; 4] = [Level::Info, Level::Debug, Level::Warn, Level::Error];

/// A source of rows.
#[derive(Debug)]
pub struct Source {
    random: SmallRng,
    hosts: Vec<(EntityId, String)>,
    now: i64,
    /// The mean gap between two rows in µs.
    mean: i64,
    /// Rows left of the present burst, and its gap between two rows in µs.
    burst: (u32, i64),
}

impl Source {
    /// The rows of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_rate(seed, ROWS_PER_SECOND)
    }

    /// The rows of a seed at another rate.
    #[must_use]
    pub fn with_rate(seed: u64, rows_per_second: i64) -> Self {
        let name = |at: usize| format!("{}-{:02}", ["web", "db", "edge", "worker"][at % 4], at / 4);
        Self {
            random: SmallRng::seed_from_u64(seed),
            hosts: (0..HOSTS).map(|at| (EntityId::for_name(&name(at)), name(at))).collect(),
            now: START.micros(),
            mean: 1_000_000 / rows_per_second.clamp(1, 1_000_000),
            burst: (0, 0),
        }
    }

    /// So many rows of a seed, or traces, from one time to another; bursts are random, so the last one is only about at the end.
    #[must_use]
    pub fn between(seed: u64, rows: u64, (start, end): (Timestamp, Timestamp)) -> Self {
        let span = end.micros() - start.micros();
        Self {
            now: start.micros(),
            mean: (span / rows.max(1).cast_signed()).max(1),
            ..Self::new(seed)
        }
    }

    /// The next rows of a table; logs for a table without telemetry.
    ///
    /// # Errors
    /// Only if rows do not fit their schema, a defect of `model`.
    pub fn batch(&mut self, table: Table, rows: usize) -> Result<RecordBatch, ArrowError> {
        match table {
            Table::Metrics => MetricPoint::to_batch(&(0..rows).map(|at| self.point(at)).collect::<Vec<_>>()),
            Table::Traces => {
                let mut spans = Vec::with_capacity(rows + 8);
                while spans.len() < rows {
                    self.trace(&mut spans);
                }
                spans.truncate(rows);
                Span::to_batch(&spans)
            }
            _ => LogRecord::to_batch(&(0..rows).map(|_| self.log()).collect::<Vec<_>>()),
        }
    }

    /// The time of the latest row so far.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    fn tick(&mut self) -> Timestamp {
        if self.burst.0 == 0 {
            let mean = self.mean;
            let gap = if self.random.random_ratio(1, 8) {
                mean / 10
            } else {
                mean * 9 / 8
            };
            self.burst = (self.random.random_range(20..400), gap);
        }
        self.burst.0 -= 1;
        self.now += self.burst.1 + self.random.random_range(0..3);
        let late = self.random.random_ratio(1, 100);
        let by = if late {
            self.random.random_range(0..600_000_000)
        } else {
            0
        };
        Timestamp::from_micros(self.now - by)
    }

    /// A host; low numbers come far more often.
    fn host(&mut self) -> (EntityId, String) {
        let at = self
            .random
            .random_range(0..HOSTS)
            .min(self.random.random_range(0..HOSTS));
        self.hosts[at].clone()
    }

    fn log(&mut self) -> LogRecord {
        let ts = self.tick();
        let (entity_id, entity_name) = self.host();
        let at = self
            .random
            .random_range(0..SHAPES.len())
            .min(self.random.random_range(0..SHAPES.len()));
        let (component, shape, level) = SHAPES[at];
        let flux_id = self
            .random
            .random_ratio(2, 5)
            .then(|| FluxId::at(ts, self.random.random()));
        LogRecord {
            ts,
            entity_id,
            entity_name,
            flux_id,
            level: LEVELS[usize::from(level)],
            message: self.fill(shape),
            attributes: self.attributes(component, at),
        }
    }

    fn fill(&mut self, shape: &str) -> String {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(shape.len() + 32);
        for part in shape.chars() {
            // Writing to a String does not fail.
            let _ = match part {
                '#' => {
                    let digits = self.random.random_range(1..6u32);
                    write!(text, "{}", self.random.random_range(0..10u32.pow(digits)))
                }
                '@' => {
                    let [a, b]: [u8; 2] = self.random.random();
                    write!(text, "10.{}.{a}.{b}", a % 4)
                }
                '~' => write!(text, "{:012x}", self.random.random::<u64>() >> 16),
                '%' => write!(text, "{}", WORDS[self.random.random_range(0..WORDS.len())]),
                other => write!(text, "{other}"),
            };
        }
        text
    }

    fn attributes(&mut self, component: &str, shape: usize) -> Attributes {
        let mut attributes = Attributes::new()
            .with("gear.id", format!("tail-{component}"))
            .with("gear.type", "file_tail")
            .with("thread", self.random.random_range(1..33u32));
        if shape.is_multiple_of(2) {
            attributes.set(
                "http.status",
                [200, 200, 200, 201, 404, 500][self.random.random_range(0..6)],
            );
        }
        if shape.is_multiple_of(3) {
            attributes.set("user.id", self.random.random_range(1..20_000u32));
        }
        if shape.is_multiple_of(5) {
            attributes.set("region", ["eu-1", "eu-2", "us-1"][self.random.random_range(0..3)]);
        }
        attributes
    }

    /// A trace: a root and up to seven spans below it, each within its parent.
    fn trace(&mut self, spans: &mut Vec<Span>) {
        const OPERATIONS: [&str; 8] = [
            "GET /api/v2/orders",
            "POST /api/v2/payments",
            "SELECT orders",
            "UPDATE inventory",
            "publish order.accepted",
            "render invoice",
            "cache get",
            "auth check",
        ];
        let trace_id = TraceId::from_entropy(self.random.random());
        let start = self.tick();
        let flux_id = self
            .random
            .random_ratio(3, 10)
            .then(|| FluxId::at(start, self.random.random()));
        let (first, mut left) = (spans.len(), self.random.random_range(1..=8));
        let (mut begin, mut length) = (start.micros(), self.random.random_range(2_000..200_000i64));
        while left > 0 {
            let parent = spans.len().checked_sub(1).filter(|last| *last >= first);
            let parent = parent.map(|last| self.random.random_range(first..=last));
            let (entity_id, entity_name) = self.host();
            let at = self.random.random_range(0..OPERATIONS.len());
            spans.push(Span {
                ts: Timestamp::from_micros(begin),
                trace_id,
                span_id: SpanId::from_entropy(self.random.random()),
                parent_span_id: parent.and_then(|parent| spans.get(parent)).map(|parent| parent.span_id),
                flux_id,
                entity_id,
                entity_name,
                span_name: OPERATIONS[at].to_owned(),
                duration_ms: length as f32 / 1000.0,
                status: if self.random.random_ratio(1, 50) {
                    SpanStatus::Error
                } else {
                    SpanStatus::Ok
                },
                attributes: self.attributes("otlp", at),
            });
            begin += self.random.random_range(1..=length / 8 + 1);
            length = length * 3 / 4 + 1;
            left -= 1;
        }
    }

    /// Points come as scrapes do: every series of a host in turn, at nearly the same time.
    fn point(&mut self, at: usize) -> MetricPoint {
        let ts = self.tick();
        let series = at % 250;
        let (entity_id, entity_name) = self.hosts[(at / 250) % HOSTS].clone();
        let (name, metric_type) = match series % 5 {
            0 => ("system.cpu.time", MetricType::Counter),
            1 => ("system.memory.usage", MetricType::Gauge),
            2 => ("http.server.requests", MetricType::Counter),
            3 => ("system.disk.io", MetricType::Counter),
            _ => ("system.network.errors", MetricType::Gauge),
        };
        let value = match metric_type {
            MetricType::Counter => (self.now / 1000) as f64 / 16.0 + series as f64,
            _ => f64::from(self.random.random_range(0..4096u32)) * 4096.0,
        };
        let labels = Attributes::new()
            .with("device", format!("dev{}", series / 5 % 10))
            .with("mode", ["user", "system", "idle", "iowait", "steal"][series / 50 % 5])
            .with("otel.unit", ["s", "By", "{request}", "By", "{error}"][series % 5]);
        MetricPoint {
            ts,
            name: name.to_owned(),
            entity_id,
            entity_name,
            metric_type,
            value,
            labels,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_seed_gives_the_same_rows_and_another_seed_others() {
        let of = |seed| Source::new(seed).batch(Table::Logs, 500).unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
