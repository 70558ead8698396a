//! How much a caller may: the defaults of the configuration, and what a token has in their place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chassis::token_bucket::TokenRate;
use model::{ByteSize, Clock, Timestamp};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CallerUsage;

/// So many seconds' worth may be taken at once.
const BURST_SECONDS: f64 = 10.0;
/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// The largest number of a quota.
const MOST: u64 = 1 << 30;

/// A whole number, however JSON writes it: `5.0` is one, too.
fn whole_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else {
        return Ok(None);
    };
    let written = || {
        let value = number.as_f64()?;
        let is_whole = value.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(&value);
        is_whole.then(|| format!("{value:.0}").parse().ok()).flatten()
    };
    let whole = number.as_u64().or_else(written);
    whole
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom(format!("{number} is no whole number")))
}

/// Quotas of a token, each in the place of the key of `[quotas]` with its name; 0 is no limit, but for `queries`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaOverrides {
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole_number")]
    #[schemars(range(max = MOST))]
    pub requests: Option<u64>,
    /// Queries that run at once.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole_number")]
    #[schemars(range(max = MOST))]
    pub queries: Option<u64>,
    /// MiB of data files a second that queries read.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole_number")]
    #[schemars(range(max = MOST))]
    pub scanned_mb: Option<u64>,
    /// MiB of ingest bodies a second.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole_number")]
    #[schemars(range(max = MOST))]
    pub ingest_mb: Option<u64>,
    /// MiB of ingest bodies a day.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole_number")]
    #[schemars(range(max = MOST))]
    pub stored_mb: Option<u64>,
}

impl QuotaOverrides {
    /// Why it cannot be a token's.
    pub(crate) fn check(&self) -> Result<(), String> {
        let all = [
            ("requests", self.requests),
            ("queries", self.queries),
            ("scanned_mb", self.scanned_mb),
            ("ingest_mb", self.ingest_mb),
            ("stored_mb", self.stored_mb),
        ];
        match all.iter().find(|(_, value)| value.is_some_and(|value| value > MOST)) {
            Some((name, _)) => Err(format!("quotas.{name}: it is {MOST} at most")),
            None => Ok(()),
        }
    }
}

/// What a caller may; what is 0 has no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallerQuotas {
    /// A second.
    pub(crate) requests: u64,
    /// At once; one at least.
    pub(crate) queries: usize,
    /// A second.
    pub(crate) scanned: ByteSize,
    /// A second.
    pub(crate) ingest: ByteSize,
    /// A day.
    pub(crate) stored: ByteSize,
}

/// A bucket's rate; none where there is no limit.
#[allow(clippy::cast_precision_loss, reason = "rates need no 53 bits")]
pub(super) fn token_rate(per_second: u64) -> Option<TokenRate> {
    let per_second = per_second as f64;
    (per_second > 0.0).then_some(TokenRate {
        per_second,
        burst: per_second * BURST_SECONDS,
    })
}

/// What every caller has of the places of all, one at least of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerPlaces {
    pub(crate) followers: usize,
    pub(crate) taps: usize,
    pub(crate) sessions: usize,
    pub(crate) connections: usize,
    /// How long its queries wait for each other.
    pub(crate) patience: Duration,
}

/// The quotas of every caller.
#[derive(Debug)]
pub(crate) struct QuotaPolicy {
    defaults: CallerQuotas,
    pub(super) places: CallerPlaces,
    clock: Clock,
    /// What the clock said last, and the moment that stands for it.
    seen: Mutex<(Timestamp, Instant)>,
    refusals: AtomicU64,
}

impl QuotaPolicy {
    /// The quotas of those that have none of their own.
    pub(crate) fn new(defaults: CallerQuotas, places: CallerPlaces, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            defaults,
            places,
            seen: Mutex::new((clock.now(), Instant::now())),
            clock,
            refusals: AtomicU64::new(0),
        })
    }

    /// The usage of a token that has some quotas of its own.
    pub(crate) fn of_token(self: &Arc<Self>, name: &str, own: &QuotaOverrides) -> Arc<CallerUsage> {
        let mib = |own: Option<u64>, default| own.map_or(default, ByteSize::mib);
        let queries = own.queries.filter(|queries| *queries > 0);
        let quotas = CallerQuotas {
            requests: own.requests.unwrap_or(self.defaults.requests),
            queries: queries.map_or(self.defaults.queries, |queries| {
                usize::try_from(queries).unwrap_or(usize::MAX)
            }),
            scanned: mib(own.scanned_mb, self.defaults.scanned),
            ingest: mib(own.ingest_mb, self.defaults.ingest),
            stored: mib(own.stored_mb, self.defaults.stored),
        };
        CallerUsage::new(Arc::clone(self), name.to_owned(), quotas)
    }

    /// The usage of a user of this machine, who has no limits but of places.
    pub(crate) fn of_local_user(self: &Arc<Self>) -> Arc<CallerUsage> {
        let quotas = CallerQuotas {
            queries: self.defaults.queries,
            ..CallerQuotas::default()
        };
        CallerUsage::new(Arc::clone(self), String::new(), quotas)
    }

    /// How often a caller was refused for a rate or an amount.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    pub(super) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// The days since 1970, and how long today has left, UTC.
    pub(crate) fn today(&self) -> (i64, Duration) {
        let now = self.clock.now().micros();
        let left = u64::try_from(DAY - now.rem_euclid(DAY)).unwrap_or(0);
        (now.div_euclid(DAY), Duration::from_micros(left))
    }

    /// A time that only goes forward: what the clock was set back by is left out.
    pub(super) fn steady_time(&self) -> Instant {
        let now = self.clock.now();
        let mut seen = self.seen.lock();
        let elapsed = u64::try_from(now.micros().saturating_sub(seen.0.micros())).unwrap_or(0);
        *seen = (now, seen.1 + Duration::from_micros(elapsed));
        seen.1
    }
}
