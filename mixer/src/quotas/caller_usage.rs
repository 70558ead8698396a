//! What one caller has taken, and whether it may take more.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chassis::token_bucket::TokenBucket;
use engine::InboundMemory;
use model::{ByteSize, HumanDuration};
use parking_lot::Mutex;
use query::QueryCaller;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::QuotaPolicy;
use super::caller_quotas::{CallerQuotas, token_rate};

/// Why a caller has to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token {token} has used up its quota `{quota}` ({limit}): wait {}, or raise quotas.{quota} of the Mixer, or the quota of the token",
    HumanDuration::from(Duration::from_secs(self.retry_seconds().get().into()))
)]
pub(crate) struct QuotaExceeded {
    token: String,
    quota: &'static str,
    limit: String,
    wait: Duration,
}

impl QuotaExceeded {
    /// Its key in `[quotas]`.
    pub(crate) const fn quota(&self) -> &'static str {
        self.quota
    }

    /// Whole seconds until it is worth trying again.
    pub(crate) fn retry_seconds(&self) -> NonZeroU32 {
        let begun = u64::from(self.wait.subsec_nanos() > 0);
        let seconds = u32::try_from(self.wait.as_secs().saturating_add(begun));
        NonZeroU32::new(seconds.unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
    }
}

/// What was stored on one day, UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DayTotal {
    /// Days since 1970.
    pub(crate) day: i64,
    /// Bytes of bodies, uncompressed.
    pub(crate) bytes: u64,
}

/// What of one caller is bounded by places apart from queries; half of what there is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QuotaPlaces {
    /// Taps of ports.
    Taps,
    /// Sessions of PostgreSQL clients.
    Sessions,
    /// Connections to the API.
    Connections,
}

/// See the module. One for each caller.
#[derive(Debug)]
pub(crate) struct CallerUsage {
    policy: Arc<QuotaPolicy>,
    /// The token's name.
    token: String,
    quotas: CallerQuotas,
    queries: Arc<QueryCaller>,
    taps: Arc<Semaphore>,
    sessions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    bodies: OnceLock<InboundMemory>,
    buckets: Mutex<UsageBuckets>,
    stored: Mutex<DayTotal>,
}

#[derive(Debug)]
struct UsageBuckets {
    requests: Option<TokenBucket>,
    scanned: Option<TokenBucket>,
    ingest: Option<TokenBucket>,
}

impl CallerUsage {
    pub(super) fn new(policy: Arc<QuotaPolicy>, token: String, quotas: CallerQuotas) -> Arc<Self> {
        let (now, places) = (policy.steady_time(), policy.places);
        let bucket = |per_second| token_rate(per_second).map(|rate| TokenBucket::new(rate, now));
        Arc::new(Self {
            queries: QueryCaller::new(quotas.queries, places.followers, places.patience),
            taps: Arc::new(Semaphore::new(places.taps.max(1))),
            sessions: Arc::new(Semaphore::new(places.sessions.max(1))),
            connections: Arc::new(Semaphore::new(places.connections.max(1))),
            bodies: OnceLock::new(),
            buckets: Mutex::new(UsageBuckets {
                requests: bucket(quotas.requests),
                scanned: bucket(quotas.scanned.get()),
                ingest: bucket(quotas.ingest.get()),
            }),
            stored: Mutex::default(),
            policy,
            token,
            quotas,
        })
    }

    /// Its places of queries.
    pub(crate) const fn queries(&self) -> &Arc<QueryCaller> {
        &self.queries
    }

    /// A place of a kind; none if it has half of all of them.
    pub(crate) fn place(&self, places: QuotaPlaces) -> Option<OwnedSemaphorePermit> {
        let places = match places {
            QuotaPlaces::Taps => &self.taps,
            QuotaPlaces::Sessions => &self.sessions,
            QuotaPlaces::Connections => &self.connections,
        };
        Arc::clone(places).try_acquire_owned().ok()
    }

    /// What its bodies together hold of the memory for all: three eighths of it, and one of them more.
    pub(crate) fn bodies(&self, all: &InboundMemory) -> &InboundMemory {
        self.bodies.get_or_init(|| all.part())
    }

    /// Takes a request.
    pub(crate) fn admit_request(&self) -> Result<(), QuotaExceeded> {
        let Some(rate) = token_rate(self.quotas.requests) else {
            return Ok(());
        };
        let taken = match &mut self.buckets.lock().requests {
            Some(bucket) => bucket.take(rate, self.policy.steady_time()),
            None => Ok(()),
        };
        taken.map_err(|wait| self.exceeded("requests", format!("{} a second", self.quotas.requests), wait))
    }

    /// Whether a query may begin, after what those before it have read.
    pub(crate) fn admit_query(&self) -> Result<(), QuotaExceeded> {
        let read = self.queries.take_bytes_read();
        let (now, quota) = (self.policy.steady_time(), self.quotas.scanned);
        let waited = settle(&mut self.buckets.lock().scanned, quota, read, now);
        waited.map_err(|wait| self.exceeded("scanned_mb", per_second(quota), wait))
    }

    /// Whether a body may come.
    pub(crate) fn admit_ingest(&self) -> Result<(), QuotaExceeded> {
        let (now, quota) = (self.policy.steady_time(), self.quotas.ingest);
        let waited = settle(&mut self.buckets.lock().ingest, quota, 0, now);
        waited.map_err(|wait| self.exceeded("ingest_mb", per_second(quota), wait))?;
        let most = self.quotas.stored.get();
        if most == 0 || self.stored_today().bytes < most {
            return Ok(());
        }
        let (_, left) = self.policy.today();
        Err(self.exceeded("stored_mb", format!("{} a day, UTC", self.quotas.stored), left))
    }

    /// Counts a body that has come.
    pub(crate) fn count_ingest(&self, bytes: u64) {
        let (now, quota) = (self.policy.steady_time(), self.quotas.ingest);
        // Whether more may come is asked for the next one.
        let _ = settle(&mut self.buckets.lock().ingest, quota, bytes, now);
    }

    /// Counts a body that was stored.
    pub(crate) fn count_stored(&self, bytes: u64) {
        self.with_today(|today| today.bytes = today.bytes.saturating_add(bytes));
    }

    /// What was stored today.
    pub(crate) fn stored_today(&self) -> DayTotal {
        self.with_today(|today| *today)
    }

    /// Goes on from what was stored before.
    pub(crate) fn resume(&self, stored: DayTotal) {
        *self.stored.lock() = stored;
    }

    fn with_today<T>(&self, look: impl FnOnce(&mut DayTotal) -> T) -> T {
        let (day, _) = self.policy.today();
        let mut stored = self.stored.lock();
        // A clock that was ahead gives a day back, and takes none.
        if stored.day != day {
            *stored = DayTotal { day, bytes: 0 };
        }
        look(&mut stored)
    }

    fn exceeded(&self, quota: &'static str, limit: String, wait: Duration) -> QuotaExceeded {
        self.policy.count_refusal();
        QuotaExceeded {
            token: self.token.clone(),
            quota,
            limit,
            wait,
        }
    }
}

/// Charges a bucket for bytes; how long until it is out of debt if it is in debt.
#[allow(clippy::cast_precision_loss, reason = "bytes of a few seconds need no 53 bits")]
fn settle(bucket: &mut Option<TokenBucket>, quota: ByteSize, bytes: u64, now: Instant) -> Result<(), Duration> {
    let Some((bucket, rate)) = bucket.as_mut().zip(token_rate(quota.get())) else {
        return Ok(());
    };
    // What came until now comes first, so that a full bucket does not keep it.
    let _ = bucket.wait_for(0.0, rate, now);
    bucket.charge(bytes as f64);
    bucket.wait_for(0.0, rate, now)
}

fn per_second(quota: ByteSize) -> String {
    format!("{quota} a second on average")
}
