//! Severities of others as our four levels.
//!
//! Source of the numbers: OpenTelemetry's logs data model, "Severity fields".

use model::Level;

/// OpenTelemetry's number of a severity: 1 to 24; 0 says nothing.
pub(crate) const fn of_number(number: i32) -> Option<Level> {
    match number {
        1..=8 => Some(Level::Debug),
        9..=12 => Some(Level::Info),
        13..=16 => Some(Level::Warn),
        17..=24 => Some(Level::Error),
        _ => None,
    }
}

/// The number that a level has by itself.
pub(crate) const fn canonical_number(level: Level) -> i32 {
    match level {
        Level::Debug => 5,
        Level::Info => 9,
        Level::Warn => 13,
        Level::Error => 17,
    }
}

/// OpenTelemetry's short name of a level.
pub(crate) const fn canonical_text(level: Level) -> &'static str {
    match level {
        Level::Debug => "DEBUG",
        Level::Info => "INFO",
        Level::Warn => "WARN",
        Level::Error => "ERROR",
    }
}

/// The level that a text names, in any letter case: names of log libraries and of syslog.
pub(crate) fn of_text(text: &str) -> Option<Level> {
    const NAMES: [(&str, Level); 27] = [
        ("trace", Level::Debug),
        ("verbose", Level::Debug),
        ("finest", Level::Debug),
        ("finer", Level::Debug),
        ("fine", Level::Debug),
        ("debug", Level::Debug),
        ("dbug", Level::Debug),
        ("config", Level::Debug),
        ("info", Level::Info),
        ("information", Level::Info),
        ("informational", Level::Info),
        ("notice", Level::Info),
        ("log", Level::Info),
        ("warn", Level::Warn),
        ("warning", Level::Warn),
        ("error", Level::Error),
        ("err", Level::Error),
        ("eror", Level::Error),
        ("severe", Level::Error),
        ("crit", Level::Error),
        ("critical", Level::Error),
        ("fatal", Level::Error),
        ("panic", Level::Error),
        ("dpanic", Level::Error),
        ("alert", Level::Error),
        ("emerg", Level::Error),
        ("emergency", Level::Error),
    ];
    let text = text.trim();
    let text = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let found = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, level)| *level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_letter_case_and_numbered_ones_are_levels() {
        for (text, level) in [
            ("INFO", Level::Info),
            ("Warning", Level::Warn),
            ("ERROR2", Level::Error),
            (" trace ", Level::Debug),
        ] {
            assert_eq!(of_text(text), Some(level), "{text}");
        }
        assert_eq!(of_text(""), None);
        assert_eq!(of_text("loud"), None);
    }

    #[test]
    fn a_levels_own_number_is_its() {
        for level in Level::ALL {
            assert_eq!(of_number(canonical_number(*level)), Some(*level));
            assert_eq!(of_text(canonical_text(*level)), Some(*level));
        }
        assert_eq!([of_number(0), of_number(25), of_number(-1)], [None; 3]);
    }
}
