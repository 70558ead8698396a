//! Traffic of each subject of business messages since the start, to estimate backlogs in bytes: a stream knows their numbers only.
//!
//! # Invariants
//!
//! - At most [`MOST`] subjects are counted: strangers cannot fill the memory with names.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The most subjects.
const MOST: usize = 1 << 16;

/// Bus messages and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficVolume {
    /// Bus messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for TrafficVolume {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct SubjectTraffic(Mutex<HashMap<String, TrafficVolume>>);

impl SubjectTraffic {
    pub(crate) fn add(&self, subject: &str, bytes: u64) {
        let mut all = self.0.lock();
        if let Some(volume) = all.get_mut(subject) {
            *volume += TrafficVolume { messages: 1, bytes };
        } else if all.len() < MOST {
            all.insert(subject.to_owned(), TrafficVolume { messages: 1, bytes });
        }
    }

    /// What came by a subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> TrafficVolume {
        self.0.lock().get(subject).copied().unwrap_or_default()
    }

    /// What came by the subjects that a condition names.
    #[must_use]
    pub fn sum(&self, names: impl Fn(&str) -> bool) -> TrafficVolume {
        let all = self.0.lock();
        let mut sum = TrafficVolume::default();
        for (_, volume) in all.iter().filter(|(subject, _)| names(subject)) {
            sum += *volume;
        }
        sum
    }
}
