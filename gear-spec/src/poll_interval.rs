//! The interval of a gear that does something again and again, as configurations have it.

use std::time::Duration;

use model::HumanDuration;

/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(1);

/// The longest interval: what a timer of the runtime can wait for.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Says what is wrong with the interval of a configuration's key.
pub(crate) fn check_interval(key: &str, every: HumanDuration) -> Result<(), String> {
    if (SHORTEST..=LONGEST).contains(&every.get()) {
        Ok(())
    } else {
        Err(format!("{key} must be between 1ms and 366d, not {every}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_interval_that_no_timer_can_keep_is_refused() {
        assert_eq!(check_interval("every", HumanDuration::from_millis(1)), Ok(()));
        for bad in [HumanDuration::from_millis(0), HumanDuration::from_secs(400 * 86_400)] {
            let error = check_interval("every", bad).err().unwrap_or_default();
            assert!(error.starts_with("every must be between 1ms and 366d"), "{error}");
        }
    }
}
