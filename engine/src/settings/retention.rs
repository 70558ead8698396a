//! How long data is kept.

use std::time::Duration;

use model::ByteSize;
use serde::Serialize;

/// What makes old partitions go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RetentionPolicy {
    /// Their age.
    #[default]
    Time,
    /// The store's total size.
    Size,
    /// Either.
    Both,
}

/// When data goes; the age is [`crate::Settings::max_age`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionSettings {
    /// What makes it go.
    pub policy: RetentionPolicy,
    /// The total size of data files, log and catalogue above which the oldest partitions go.
    pub max_size: ByteSize,
    /// The time between checks. A check happens at a flush tick.
    pub check_interval: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            policy: RetentionPolicy::default(),
            max_size: ByteSize::mib(10 << 10),
            check_interval: Duration::from_secs(3_600),
        }
    }
}
