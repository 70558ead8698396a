//! Statements that are about the session and not about rows: transactions, settings, prepared statements by name.
//!
//! Clients send them unasked. Transactions hold nothing, because nothing is written and every statement sees one moment; settings
//! are remembered for `SHOW` and change nothing, except `statement_timeout`.

use std::collections::BTreeMap;
use std::time::Duration;

/// What such a statement is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Utility {
    Begin,
    Commit,
    Rollback,
    RollbackTo,
    Set {
        name: String,
        value: String,
    },
    Show(String),
    /// All prepared statements, or one.
    Deallocate(Option<String>),
    DiscardAll,
    /// Accepted, with nothing to do.
    Nothing(&'static str),
}

impl Utility {
    /// What a statement is if it is about the session.
    pub(super) fn of(text: &str) -> Option<Self> {
        let text = uncommented(text).trim_end_matches([';', ' ', '\t', '\r', '\n']);
        let words: Vec<&str> = text.split_whitespace().take(4).collect();
        let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
        Some(match upper.as_slice() {
            ["BEGIN", ..] | ["START", "TRANSACTION", ..] => Self::Begin,
            ["COMMIT" | "END", ..] => Self::Commit,
            ["ROLLBACK", "TO", ..] | ["ROLLBACK", "WORK" | "TRANSACTION", "TO", ..] => Self::RollbackTo,
            ["ROLLBACK" | "ABORT", ..] => Self::Rollback,
            ["SAVEPOINT", ..] => Self::Nothing("SAVEPOINT"),
            ["RELEASE", ..] => Self::Nothing("RELEASE"),
            ["LISTEN", ..] => Self::Nothing("LISTEN"),
            ["UNLISTEN", ..] => Self::Nothing("UNLISTEN"),
            ["CLOSE", ..] => Self::Nothing("CLOSE CURSOR"),
            ["RESET", ..] => Self::Nothing("RESET"),
            ["DISCARD", "ALL"] => Self::DiscardAll,
            ["DISCARD", ..] => Self::Nothing("DISCARD"),
            ["DEALLOCATE", "ALL"] | ["DEALLOCATE", "PREPARE", "ALL"] => Self::Deallocate(None),
            ["DEALLOCATE", "PREPARE", _] | ["DEALLOCATE", _] => {
                Self::Deallocate(words.last().map(|name| name.trim_matches('"').to_owned()))
            }
            ["SET", ..] => set(text),
            ["SHOW", "TABLES" | "COLUMNS" | "FUNCTIONS" | "FULL" | "EXTENDED", ..] => return None,
            ["SHOW", "TRANSACTION", "ISOLATION", "LEVEL"] => Self::Show("transaction_isolation".to_owned()),
            ["SHOW", "TIME", "ZONE"] => Self::Show("timezone".to_owned()),
            ["SHOW", name] => Self::Show(name.trim_matches('"').to_ascii_lowercase()),
            _ => return None,
        })
    }
}

/// `SET name = value` or `SET name TO value`; of other forms only that they are there.
fn set(text: &str) -> Utility {
    let rest = text.get(3..).unwrap_or_default().trim_start();
    let scoped = ["SESSION ", "LOCAL "].iter().find_map(|scope| {
        let head = rest.get(..scope.len())?;
        head.eq_ignore_ascii_case(scope).then(|| rest.get(scope.len()..))?
    });
    let rest = scoped.unwrap_or(rest);
    let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
    let (name, value) = rest.split_at(end);
    let value = value.trim_start();
    let value = match value.get(..3) {
        Some(to) if to.eq_ignore_ascii_case("to ") => value.get(3..).unwrap_or_default(),
        _ => value.trim_start_matches('='),
    };
    Utility::Set {
        name: name.trim_matches('"').to_ascii_lowercase(),
        value: value.trim().trim_matches('\'').to_owned(),
    }
}

/// A text from its first word on.
fn uncommented(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let after = if rest.starts_with("--") {
            rest.split_once('\n')
        } else if rest.starts_with("/*") {
            rest.split_once("*/")
        } else {
            None
        };
        match after {
            Some((_, after)) => rest = after.trim_start(),
            None => return rest,
        }
    }
}

/// What every session says of itself; clients are told those of [`REPORTED`] when they connect.
const FIXED: [(&str, &str); 24] = [
    ("server_version", query::POSTGRES_VERSION),
    ("server_version_num", query::POSTGRES_VERSION_NUMBER),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("datestyle", "ISO, YMD"),
    ("timezone", "UTC"),
    ("intervalstyle", "postgres"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "off"),
    ("in_hot_standby", "off"),
    ("default_transaction_read_only", "on"),
    ("transaction_read_only", "on"),
    ("transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "repeatable read"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("lc_collate", "C"),
    ("lc_ctype", "C"),
    ("lc_messages", "C"),
    ("bytea_output", "hex"),
    ("escape_string_warning", "on"),
    ("session_authorization", "platform"),
    ("ssl", "off"),
];
/// What clients are told when they connect, under the names that they know.
const REPORTED: [&str; 10] = [
    "server_version",
    "server_encoding",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "IntervalStyle",
    "integer_datetimes",
    "standard_conforming_strings",
    "default_transaction_read_only",
    "in_hot_standby",
];
/// What a client may set, and what it is before.
const FREE: [(&str, &str); 8] = [
    ("application_name", ""),
    ("search_path", "public"),
    ("extra_float_digits", "1"),
    ("client_min_messages", "notice"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("row_security", "on"),
];
/// The longest value that is remembered.
const LONGEST: usize = 1_024;

/// The settings of one session.
#[derive(Debug, Default)]
pub(super) struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// Remembers what may be set; `false` if the value cannot be meant.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        if name == "statement_timeout" && millis(value).is_none() {
            return false;
        }
        if let Some(&(name, _)) = FREE.iter().find(|(free, _)| *free == name)
            && value.len() <= LONGEST
        {
            self.0.insert(name, value.to_owned());
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What `SHOW` says.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        if let Some(value) = self.0.get(name) {
            return Some(value);
        }
        let known = FIXED.iter().chain(&FREE).find(|(known, _)| *known == name);
        known.map(|(_, value)| *value)
    }

    /// How long a statement may take, if the client said so.
    pub(super) fn statement_timeout(&self) -> Option<Duration> {
        self.get("statement_timeout")
            .and_then(millis)
            .filter(|time| !time.is_zero())
    }

    /// Names and values that a client is told when it connects.
    pub(super) fn reported() -> impl Iterator<Item = (&'static str, &'static str)> {
        REPORTED.iter().filter_map(|name| {
            let known = FIXED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, value)| (*name, *value))
        })
    }
}

/// A time as PostgreSQL writes it: milliseconds, or with a unit.
fn millis(value: &str) -> Option<Duration> {
    let value = value.trim().trim_matches('\'');
    if value.eq_ignore_ascii_case("default") {
        return Some(Duration::ZERO);
    }
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let factor = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(factor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_unasked_is_known_and_statements_are_left_alone() {
        let set = |name: &str, value: &str| Utility::Set {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        for (text, expected) in [
            ("BEGIN READ ONLY;", Utility::Begin),
            ("/* a */ -- b\n start transaction", Utility::Begin),
            ("commit", Utility::Commit),
            ("ROLLBACK TO SAVEPOINT a", Utility::RollbackTo),
            ("abort;", Utility::Rollback),
            ("SET extra_float_digits = 3", set("extra_float_digits", "3")),
            (
                "SET application_name='Grafana; x'",
                set("application_name", "Grafana; x"),
            ),
            ("set session statement_timeout to '5s'", set("statement_timeout", "5s")),
            ("SHOW server_version", Utility::Show("server_version".to_owned())),
            (
                "show TRANSACTION isolation LEVEL",
                Utility::Show("transaction_isolation".to_owned()),
            ),
            ("DEALLOCATE \"s1\"", Utility::Deallocate(Some("s1".to_owned()))),
            ("DISCARD ALL", Utility::DiscardAll),
        ] {
            assert_eq!(Utility::of(text), Some(expected), "{text}");
        }
        for text in [
            "SELECT 1",
            "SHOW TABLES",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "INSERT INTO logs VALUES (1)",
            "",
        ] {
            assert_eq!(Utility::of(text), None, "{text}");
        }
    }

    #[test]
    fn a_setting_is_shown_as_it_was_set_and_a_timeout_is_understood() {
        let mut settings = Settings::default();
        assert_eq!(settings.statement_timeout(), None);
        assert!(settings.set("statement_timeout", "2min") && !settings.set("statement_timeout", "soon"));
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(120)));
        assert!(settings.set("server_version", "1") && settings.set("no_such_thing", "1"));
        assert_eq!(settings.get("server_version"), Some(query::POSTGRES_VERSION));
        assert_eq!(settings.get("no_such_thing"), None);
    }
}
