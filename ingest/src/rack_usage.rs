//! What each Rack sends over the bus, against its quotas: counted and told of, never held up.
//!
//! # Invariants
//!
//! - Only a Rack that the bus knows by its key is counted: nobody makes names up. At most [`MOST_RACKS`] are.
//! - A Rack beyond a quota is told of once, and again after it has kept to all of them for a span of [`SPAN`].
//! - Nothing waits: one consumer reads for all Racks in order, and who waits for one holds up all.
//!
//! # Not here
//!
//! What there is on the bus (`subject_traffic`); how a Rack is stopped (`mixer`).

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use model::{ByteSize, Timestamp, Token};
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::subject_traffic::TrafficVolume;

/// So many Racks are counted.
const MOST_RACKS: usize = 1 << 14;
/// Rates are looked at over spans of this length.
const SPAN: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(86_400);

/// What one Rack may send before it is told of; 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RackQuotas {
    /// Messages of the bus a second (`quotas.rack_messages`).
    pub messages: u64,
    /// Their bytes a second (`quotas.rack_mb`).
    pub bytes: ByteSize,
    /// Their bytes a day, UTC (`quotas.rack_stored_mb`).
    pub stored: ByteSize,
    /// Subjects (`quotas.rack_subjects`).
    pub subjects: usize,
}

/// What a Rack has sent since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RackTraffic {
    /// All of it.
    pub sent: TrafficVolume,
    /// What was beyond a quota.
    pub beyond: TrafficVolume,
}

/// The traffic of every Rack.
#[derive(Debug, Default)]
pub struct RackUsageTable {
    quotas: RackQuotas,
    racks: Mutex<BTreeMap<Token, RackUsage>>,
}

#[derive(Debug, Default)]
struct RackUsage {
    traffic: RackTraffic,
    span: (i64, TrafficVolume),
    day: (i64, u64),
    /// Those of the day; as many as may be, and one.
    subjects: HashSet<String>,
    /// The quota that it was told to be beyond, and the span in which it was so last, as long as that is not over.
    beyond_in: Option<(&'static str, i64)>,
}

impl RackUsageTable {
    /// With these quotas for each.
    #[must_use]
    pub fn new(quotas: RackQuotas) -> Self {
        Self {
            quotas,
            racks: Mutex::default(),
        }
    }

    /// Counts a message of a Rack.
    pub(crate) fn count(&self, rack: &Token, subject: &str, bytes: u64, now: Timestamp) {
        let mut racks = self.racks.lock();
        if !racks.contains_key(rack) {
            if racks.len() >= MOST_RACKS {
                return;
            }
            racks.insert(rack.clone(), RackUsage::default());
        }
        if let Some(usage) = racks.get_mut(rack) {
            usage.count(&self.quotas, (rack, subject), TrafficVolume { messages: 1, bytes }, now);
        }
    }

    /// What each Rack has sent, by name.
    #[must_use]
    pub fn all(&self) -> Vec<(Token, RackTraffic)> {
        let racks = self.racks.lock();
        racks
            .iter()
            .map(|(rack, usage)| (rack.clone(), usage.traffic))
            .collect()
    }
}

/// The number of a stretch of time since 1970.
fn number_of(now: Timestamp, stretch: Duration) -> i64 {
    now.micros()
        .div_euclid(i64::try_from(stretch.as_micros()).unwrap_or(i64::MAX))
}

impl RackUsage {
    fn count(&mut self, quotas: &RackQuotas, (rack, subject): (&Token, &str), message: TrafficVolume, now: Timestamp) {
        let (span, day) = (number_of(now, SPAN), number_of(now, DAY));
        if self.span.0 != span {
            self.span = (span, TrafficVolume::default());
        }
        if self.day.0 != day {
            self.day = (day, 0);
            self.subjects.clear();
        }
        self.span.1 += message;
        self.day.1 = self.day.1.saturating_add(message.bytes);
        if self.subjects.len() <= quotas.subjects && !self.subjects.contains(subject) {
            self.subjects.insert(subject.to_owned());
        }
        self.traffic.sent += message;
        let beyond = self.beyond(quotas);
        if beyond.is_some() {
            self.traffic.beyond += message;
        }
        match (beyond, self.beyond_in) {
            (Some(quota), told) if told.is_none_or(|(told, _)| told != quota) => {
                warn!(%rack, quota, "a Rack sends more than its quota: it is stored all the same; platform racks suspend stops it");
                self.beyond_in = Some((quota, span));
            }
            (Some(quota), _) => self.beyond_in = Some((quota, span)),
            (None, Some((_, last))) if span.saturating_sub(last).abs() > 1 => {
                info!(%rack, "a Rack keeps to its quotas again");
                self.beyond_in = None;
            }
            (None, _) => {}
        }
    }

    /// The key of a quota that it is beyond.
    fn beyond(&self, quotas: &RackQuotas) -> Option<&'static str> {
        let most = |per_second: u64| per_second.saturating_mul(SPAN.as_secs());
        let (_, span) = self.span;
        [
            ("quotas.rack_messages", span.messages, most(quotas.messages)),
            ("quotas.rack_mb", span.bytes, most(quotas.bytes.get())),
            ("quotas.rack_stored_mb", self.day.1, quotas.stored.get()),
            (
                "quotas.rack_subjects",
                self.subjects.len() as u64,
                quotas.subjects as u64,
            ),
        ]
        .into_iter()
        .find_map(|(key, has, most)| (most > 0 && has > most).then_some(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const QUOTAS: RackQuotas = RackQuotas {
        messages: 2,
        bytes: ByteSize::bytes(0),
        stored: ByteSize::bytes(1_000),
        subjects: 2,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn what_a_rack_sends_beyond_its_rate_is_counted_and_another_has_its_own() {
        let table = RackUsageTable::new(QUOTAS);
        let (a, b): (Token, Token) = ("a".parse().unwrap(), "b".parse().unwrap());
        for _ in 0..25 {
            table.count(&a, "one", 1, at(0));
        }
        table.count(&b, "one", 1, at(0));
        table.count(&a, "one", 1, at(10));
        let beyond: Vec<_> = table.all().iter().map(|(_, traffic)| traffic.beyond.messages).collect();
        assert_eq!(beyond, [5, 0]);
        assert_eq!(
            table.all()[0].1.sent,
            TrafficVolume {
                messages: 26,
                bytes: 26
            }
        );
    }

    #[test]
    fn a_day_and_subjects_have_bounds_of_their_own() {
        let table = RackUsageTable::new(QUOTAS);
        let rack: Token = "a".parse().unwrap();
        table.count(&rack, "one", 1_000, at(0));
        let beyond = || table.all()[0].1.beyond.messages;
        assert_eq!(beyond(), 0);
        table.count(&rack, "one", 1, at(20));
        assert_eq!(beyond(), 1);
        table.count(&rack, "two", 1, at(86_400));
        assert_eq!(beyond(), 1, "another day");
        table.count(&rack, "three", 1, at(86_420));
        table.count(&rack, "four", 1, at(86_440));
        assert_eq!(beyond(), 2, "subjects are those of a day");
        assert_eq!(
            table.racks.lock()[&rack].subjects.len(),
            3,
            "no more are kept than it takes"
        );
        table.count(&rack, "four", 1, at(2 * 86_400));
        assert_eq!(beyond(), 2, "another day");
    }
}
