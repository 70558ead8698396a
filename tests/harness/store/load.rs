//! The batches of a load.

use engine::{AppendBatch, BatchOrigin};
use model::telemetry_codec::{BatchId, encode_arrow};
use model::{Attributes, EntityId, Level, LogRecord, MetricPoint, MetricType, Table, TelemetryRecord, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Failure;

/// The driver's time: it stands still at half past twelve.
pub const NOON: i64 = 1_763_728_200_000_000;
const HOUR: i64 = 3_600_000_000;

/// Which part of the scripted run a batch belongs to: that decides its hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// To be sealed and rotated away, and the present hour.
    Old,
    /// To be sealed, and the present hour.
    Past,
    /// The present hour.
    Now,
    /// The present hour mostly, the three before it sometimes.
    Any,
}

/// What is appended.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Decides everything.
    pub seed: u64,
    /// A batch has at most so many rows.
    pub rows: u64,
    /// Whether phases follow the script's numbers.
    pub scripted: bool,
}

const WORDS: [&str; 12] = [
    "accepted",
    "connection",
    "from",
    "worker",
    "retry",
    "timeout",
    "while",
    "reading",
    "header",
    "queue",
    "drained",
    "ok",
];

impl Load {
    /// The scripted run's batches with rows to be rotated away.
    pub const OLD: std::ops::RangeInclusive<u64> = 1..=8;
    /// Its batches with rows to be sealed, sent after rotation.
    pub const PAST: std::ops::RangeInclusive<u64> = 11..=16;

    /// The phase of a batch.
    #[must_use]
    pub fn phase(&self, seq: u64) -> Phase {
        match seq {
            _ if !self.scripted => Phase::Any,
            seq if Self::OLD.contains(&seq) => Phase::Old,
            seq if Self::PAST.contains(&seq) => Phase::Past,
            _ => Phase::Now,
        }
    }

    /// Whose the batches are.
    #[must_use]
    pub fn entity() -> EntityId {
        EntityId::for_name("driver")
    }

    /// Batch `seq`, counted from 1.
    ///
    /// # Errors
    /// If the rows fit no batch, which would be a defect here.
    pub fn batch(&self, seq: u64) -> Result<AppendBatch, Failure> {
        let mut rng = StdRng::seed_from_u64(self.seed ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rows = rng.random_range(1..=self.rows.max(1));
        let table = if seq % 5 == 4 { Table::Metrics } else { Table::Logs };
        let times: Vec<i64> = (0..rows).map(|_| self.time(seq, &mut rng)).collect();
        let batch = if table == Table::Logs {
            let rows: Vec<_> = times
                .iter()
                .enumerate()
                .map(|(n, ts)| log(seq, n, *ts, &mut rng))
                .collect();
            LogRecord::to_batch(&rows)?
        } else {
            let rows: Vec<_> = times
                .iter()
                .enumerate()
                .map(|(n, ts)| point(seq, n, *ts, &mut rng))
                .collect();
            MetricPoint::to_batch(&rows)?
        };
        let producer = BatchId {
            entity: Self::entity(),
            boot_epoch: 1,
            seq,
        };
        Ok(AppendBatch {
            table,
            origin: BatchOrigin {
                producer: Some(producer),
                ..BatchOrigin::default()
            },
            payload: encode_arrow(std::slice::from_ref(&batch))?.into(),
            rows: vec![batch],
        })
    }

    fn time(&self, seq: u64, rng: &mut StdRng) -> i64 {
        let hours = match (self.phase(seq), rng.random_range(0..10)) {
            (Phase::Old, 0..4) => 4,
            (Phase::Old, 4..7) => 3,
            (Phase::Past, 0..4) => 2,
            (Phase::Past, 4..7) => 1,
            (Phase::Any, hours @ 0..3) => i64::from(hours) + 1,
            _ => 0,
        };
        NOON - hours * HOUR
            + rng.random_range(-20 * 60..20 * 60) * 1_000_000
            + i64::try_from(seq % 1_000_000).unwrap_or(0)
    }
}

fn words(rng: &mut StdRng) -> String {
    let count = rng.random_range(3..12);
    let words = (0..count).map(|_| WORDS[rng.random_range(0..WORDS.len())]);
    words.collect::<Vec<_>>().join(" ")
}

fn key(seq: u64, n: usize) -> String {
    format!("{seq}/{n}")
}

fn log(seq: u64, n: usize, ts: i64, rng: &mut StdRng) -> LogRecord {
    let levels = Level::ALL;
    LogRecord {
        ts: Timestamp::from_micros(ts),
        entity_id: Load::entity(),
        entity_name: "driver".to_owned(),
        flux_id: None,
        level: levels[rng.random_range(0..levels.len())],
        message: words(rng),
        attributes: Attributes::new()
            .with("k", key(seq, n))
            .with("port", rng.random::<u16>()),
    }
}

fn point(seq: u64, n: usize, ts: i64, rng: &mut StdRng) -> MetricPoint {
    MetricPoint {
        ts: Timestamp::from_micros(ts),
        name: format!("driver.load.{}", WORDS[rng.random_range(0..WORDS.len())]),
        entity_id: Load::entity(),
        entity_name: "driver".to_owned(),
        metric_type: MetricType::Gauge,
        value: rng.random::<f64>() * 1e6,
        labels: Attributes::new()
            .with("k", key(seq, n))
            .with("cpu", rng.random_range(0..8)),
    }
}
