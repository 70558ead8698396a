//! Statements that are about the session and not about rows: transactions, settings, prepared statements by name.
//!
//! Clients send them unasked. Transactions hold nothing but settings: nothing is written, and every statement sees one moment.
//!
//! ```text
//! SHOW: SET LOCAL, to the end of the transaction ─> SET ─> what the client said when it connected ─> ours
//!                                                    └ as it was before, if the transaction is rolled back
//! ```
//!
//! # Invariants
//!
//! - Settings are remembered for `SHOW` and change nothing, except `statement_timeout`. A time zone other than UTC would change
//!   answers: it is refused, and a client that connects with one is warned.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault::Fault;

/// What such a statement is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Utility {
    Begin,
    Commit,
    Rollback,
    RollbackTo,
    /// Without a value, to what it was when the client connected.
    Set {
        name: String,
        value: Option<String>,
    },
    /// As `Set`, until the transaction ends.
    SetLocal {
        name: String,
        value: Option<String>,
    },
    Reset(String),
    ResetAll,
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
            ["RESET", "ALL"] => Self::ResetAll,
            ["RESET", "TIME", "ZONE"] => Self::Reset(TIME_ZONE.to_owned()),
            ["RESET", name] => Self::Reset(name.trim_matches('"').to_ascii_lowercase()),
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
            ["SHOW", "TIME", "ZONE"] => Self::Show(TIME_ZONE.to_owned()),
            ["SHOW", name] => Self::Show(name.trim_matches('"').to_ascii_lowercase()),
            _ => return None,
        })
    }
}

/// `SET name = value`, `SET name TO value` or `SET TIME ZONE value`; of other forms only that they are there.
fn set(text: &str) -> Utility {
    let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
    let (_, text) = word(text);
    let (scope, rest) = word(text);
    let is_local = is(scope, "local");
    let (name, value) = word(if is_local || is(scope, "session") { rest } else { text });
    let (second, after) = word(value);
    let (name, value) = match (name.trim_matches('"').to_ascii_lowercase(), second) {
        (name, zone) if name == "time" && is(zone, "zone") => (TIME_ZONE.to_owned(), after),
        (name, to) if is(to, "to") => (name, after),
        (name, _) => (name, value.trim_start_matches('=').trim_start()),
    };
    let is_initial = is(value, "default") || (name == TIME_ZONE && is(value, "local"));
    let value = (!is_initial).then(|| value.trim_end().trim_matches('\'').to_owned());
    if is_local {
        Utility::SetLocal { name, value }
    } else {
        Utility::Set { name, value }
    }
}

/// The first word of a text, and what comes after it.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c == '=' || c.is_whitespace());
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    (word, rest.trim_start())
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
const TIME_ZONE: &str = "timezone";
/// The longest value that is remembered.
const LONGEST: usize = 1_024;

type Values = BTreeMap<&'static str, String>;

/// The settings of one session.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// What the client said when it connected.
    given: Values,
    session: Values,
    /// What is set until the transaction ends.
    local: Values,
    /// Those of the session when the transaction began.
    before: Option<Values>,
}

impl Settings {
    /// Those of a client that connects, and what is wrong with the ones that are left out.
    pub(super) fn new(given: &[(String, String)]) -> (Self, Vec<Fault>) {
        let mut settings = Self::default();
        let refused = given
            .iter()
            .filter_map(|(name, value)| settings.set(name, Some(value.as_str())).err());
        let refused = refused.collect();
        settings.given = std::mem::take(&mut settings.session);
        (settings, refused)
    }

    /// Remembers what may be set.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        let Some(value) = value else {
            self.reset(name);
            return Ok(());
        };
        if let Some(name) = checked(name, value)? {
            self.local.remove(name);
            self.session.insert(name, value.to_owned());
        }
        Ok(())
    }

    /// Remembers what may be set, until the transaction ends.
    pub(super) fn set_local(&mut self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        let value = value.or_else(|| self.initial(name)).map(str::to_owned);
        if let Some(value) = value
            && let Some(name) = checked(name, &value)?
        {
            self.local.insert(name, value);
        }
        Ok(())
    }

    pub(super) fn reset(&mut self, name: &str) {
        self.local.remove(name);
        self.session.remove(name);
    }

    pub(super) fn reset_all(&mut self) {
        self.local.clear();
        self.session.clear();
    }

    /// A transaction begins.
    pub(super) fn begin(&mut self) {
        self.before = Some(self.session.clone());
    }

    /// The transaction, if there is one, ends.
    pub(super) fn commit(&mut self) {
        self.local.clear();
        self.before = None;
    }

    /// The transaction, if there is one, ends with what was set in it.
    pub(super) fn roll_back(&mut self) {
        self.local.clear();
        if let Some(before) = self.before.take() {
            self.session = before;
        }
    }

    /// What `SHOW` says.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let set = self.local.get(name).or_else(|| self.session.get(name));
        set.map(String::as_str).or_else(|| self.initial(name))
    }

    /// What it was when the client connected.
    fn initial(&self, name: &str) -> Option<&str> {
        let ours = || FIXED.iter().chain(&FREE).find(|(known, _)| *known == name);
        let given = self.given.get(name).map(String::as_str);
        given.or_else(|| ours().map(|(_, value)| *value))
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

/// The name of what is remembered, if it may be set; a fault if it cannot be this.
fn checked(name: &str, value: &str) -> Result<Option<&'static str>, Fault> {
    if name == TIME_ZONE && !is_utc(value) {
        let message = format!(
            "times are in UTC here, TimeZone cannot be \"{value}\": convert in the client, or in the statement, as in \
             date_trunc('day', ts AT TIME ZONE 'Europe/Berlin')"
        );
        return Err(Fault::error("22023", message));
    }
    if name == "statement_timeout" && millis(value).is_none() {
        let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
        return Err(Fault::error("22023", message));
    }
    let free = FREE.iter().find(|(free, _)| *free == name);
    Ok(free.filter(|_| value.len() <= LONGEST).map(|(name, _)| *name))
}

/// Whether a time zone is UTC by one of its names, or as an offset of nothing.
fn is_utc(zone: &str) -> bool {
    const NAMES: [&str; 5] = ["uct", "z", "zulu", "universal", "greenwich"];
    let zone = zone.trim_matches(['"', ' ']).to_ascii_lowercase();
    let zone = zone.strip_prefix("etc/").unwrap_or(&zone);
    let offset = zone.strip_prefix("utc").or_else(|| zone.strip_prefix("gmt"));
    let is_nothing = |offset: &str| offset.chars().all(|c| "+-:0".contains(c));
    NAMES.contains(&zone) || (!zone.is_empty() && is_nothing(offset.unwrap_or(zone)))
}

/// A time as PostgreSQL writes it: milliseconds, or with a unit.
fn millis(value: &str) -> Option<Duration> {
    let value = value.trim();
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
            value: (value != "DEFAULT").then(|| value.to_owned()),
        };
        let set_local = |name: &str, value: &str| Utility::SetLocal {
            name: name.to_owned(),
            value: (value != "DEFAULT").then(|| value.to_owned()),
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
            ("SET LOCAL\nstatement_timeout=5", set_local("statement_timeout", "5")),
            ("SET statement_timeout TO DEFAULT", set("statement_timeout", "DEFAULT")),
            ("SET TIME ZONE 'UTC'", set("timezone", "UTC")),
            ("SET SESSION TIMEZONE TO 'Asia/Tokyo'", set("timezone", "Asia/Tokyo")),
            ("set local time zone local", set_local("timezone", "DEFAULT")),
            ("RESET ALL;", Utility::ResetAll),
            (
                "reset Statement_Timeout",
                Utility::Reset("statement_timeout".to_owned()),
            ),
            ("RESET TIME ZONE", Utility::Reset("timezone".to_owned())),
            ("RESET SESSION AUTHORIZATION", Utility::Nothing("RESET")),
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
        assert!(settings.set("statement_timeout", Some("2min")).is_ok());
        assert!(settings.set("statement_timeout", Some("soon")).is_err());
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(120)));
        assert!(settings.set("server_version", Some("1")).is_ok() && settings.set("no_such_thing", Some("1")).is_ok());
        assert_eq!(settings.get("server_version"), Some(query::POSTGRES_VERSION));
        assert_eq!(settings.get("no_such_thing"), None);
    }

    #[test]
    fn a_setting_goes_back_to_what_it_was_before_the_transaction_or_at_the_connection() {
        const NAME: &str = "application_name";
        let given = [
            (NAME, "at first"),
            ("timezone", "Europe/Berlin"),
            ("statement_timeout", "soon"),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (mut settings, refused) = Settings::new(&given);
        assert_eq!(refused.len(), 2, "{refused:?}");
        settings.begin();
        assert!(settings.set(NAME, Some("set")).is_ok() && settings.set_local(NAME, Some("local")).is_ok());
        assert_eq!(settings.get(NAME), Some("local"));
        settings.commit();
        assert_eq!(settings.get(NAME), Some("set"));
        settings.begin();
        settings.reset_all();
        assert_eq!(settings.get(NAME), Some("at first"));
        settings.roll_back();
        assert_eq!(settings.get(NAME), Some("set"));
        settings.begin();
        assert!(settings.set_local(NAME, None).is_ok());
        assert_eq!(settings.get(NAME), Some("at first"));
        assert!(settings.set(NAME, Some("later")).is_ok());
        assert_eq!(settings.get(NAME), Some("later"));
        settings.commit();
        assert!(settings.set(NAME, None).is_ok());
        assert_eq!(settings.get(NAME), Some("at first"));
    }

    #[test]
    fn utc_has_many_names_and_other_zones_are_refused() {
        for zone in [
            "UTC",
            "utc",
            "Etc/UTC",
            "GMT",
            "Etc/GMT0",
            "GMT+0",
            "GMT-00:00",
            "Zulu",
            "Z",
            "0",
            "+00:00",
        ] {
            assert!(is_utc(zone), "{zone}");
        }
        for zone in ["Europe/Berlin", "CET", "+02:00", "GMT+1", "", "Etc/GMT-10"] {
            assert!(!is_utc(zone), "{zone}");
        }
    }
}
