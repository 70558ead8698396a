//! Counts the traffic of business messages by subject since the start. Backlogs are estimated in bytes from it, because the bus
//! reports only how many messages wait.
//!
//! # Invariants
//!
//! - At most [`MAX_SUBJECTS`] subjects are counted, so that publishers cannot fill the memory with names.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The most subjects that are counted.
const MAX_SUBJECTS: usize = 1 << 16;

/// A number of bus messages and of their bytes.
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

/// The traffic of each subject.
#[derive(Debug, Default)]
pub struct SubjectTraffic(Mutex<HashMap<String, TrafficVolume>>);

impl SubjectTraffic {
    pub(crate) fn add(&self, subject: &str, bytes: u64) {
        let mut all = self.0.lock();
        if let Some(volume) = all.get_mut(subject) {
            *volume += TrafficVolume { messages: 1, bytes };
        } else if all.len() < MAX_SUBJECTS {
            all.insert(subject.to_owned(), TrafficVolume { messages: 1, bytes });
        }
    }

    /// The traffic of one subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> TrafficVolume {
        self.0.lock().get(subject).copied().unwrap_or_default()
    }

    /// The traffic of all subjects that a condition selects.
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
