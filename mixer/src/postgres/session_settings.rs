//! The settings of a session.
//!
//! Transactions hold nothing but settings: nothing is written, and every statement sees one moment.
//!
//! ```text
//! SHOW: SET LOCAL, to the end of the transaction ─> SET ─> what the client said when it connected ─> ours
//!                                                    └ as it was before, if the transaction is rolled back
//! ```
//!
//! # Invariants
//!
//! - Settings are remembered for `SHOW` and change nothing, except `statement_timeout`. What would change answers, as a time zone
//!   other than UTC, is refused, and a client that connects with it is warned.

use std::collections::BTreeMap;
use std::time::Duration;

use query::POSTGRES_SETTINGS;

use super::pg_error::PgError;

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
pub(super) const TIME_ZONE: &str = "timezone";
/// The longest value that is remembered.
const LONGEST: usize = 1_024;

type SettingValues = BTreeMap<&'static str, String>;

/// What is set at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SettingsSnapshot {
    session: SettingValues,
    local: SettingValues,
}

/// The settings of one session.
#[derive(Debug, Default)]
pub(super) struct SessionSettings {
    /// What the client said when it connected.
    given: SettingValues,
    session: SettingValues,
    /// What is set until the transaction ends.
    local: SettingValues,
    /// Those of the session when the transaction began.
    before: Option<SettingValues>,
}

impl SessionSettings {
    /// Those of a client that connects, and what is wrong with the ones that are left out.
    pub(super) fn new(given: &[(String, String)]) -> (Self, Vec<PgError>) {
        let mut settings = Self::default();
        let refused = given
            .iter()
            .filter_map(|(name, value)| settings.set(name, Some(value.as_str())).err());
        let refused = refused.collect();
        settings.given = std::mem::take(&mut settings.session);
        (settings, refused)
    }

    /// Remembers what may be set.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), PgError> {
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
    pub(super) fn set_local(&mut self, name: &str, value: Option<&str>) -> Result<(), PgError> {
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

    /// What is set now.
    pub(super) fn snapshot(&self) -> SettingsSnapshot {
        SettingsSnapshot {
            session: self.session.clone(),
            local: self.local.clone(),
        }
    }

    /// Sets what was set then.
    pub(super) fn restore(&mut self, then: SettingsSnapshot) {
        self.session = then.session;
        self.local = then.local;
    }

    /// What `SHOW` says.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let set = self.local.get(name).or_else(|| self.session.get(name));
        set.map(String::as_str).or_else(|| self.initial(name))
    }

    /// What `SHOW ALL` says, in the order of the names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let mut names: Vec<&'static str> = POSTGRES_SETTINGS.iter().chain(&FREE).map(|(name, _)| *name).collect();
        names.sort_unstable_by_key(|name| name.to_ascii_lowercase());
        names
            .into_iter()
            .map(move |name| (name, self.get(name).unwrap_or_default()))
    }

    /// What it was when the client connected.
    fn initial(&self, name: &str) -> Option<&str> {
        let given = self.given.get(name).map(String::as_str);
        given.or_else(|| known(name).map(|(_, value)| value))
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
            let known = POSTGRES_SETTINGS
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, value)| (*name, *value))
        })
    }
}

/// The name of a setting as PostgreSQL writes it, such as `TimeZone`.
pub(super) fn written_name(name: &str) -> &str {
    known(name).map_or(name, |(written, _)| written)
}

/// A setting by its name, in whatever letters, with what it is before anybody sets it.
fn known(name: &str) -> Option<(&'static str, &'static str)> {
    let mut all = POSTGRES_SETTINGS.iter().chain(&FREE);
    all.find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

/// The name of what is remembered, if it may be set; a fault if it cannot be this.
fn checked(name: &str, value: &str) -> Result<Option<&'static str>, PgError> {
    if name == TIME_ZONE && !is_utc(value) {
        let message = format!(
            "times are in UTC here, TimeZone cannot be \"{value}\": convert in the client, or in the statement, as in \
             date_trunc('day', ts AT TIME ZONE 'Europe/Berlin')"
        );
        return Err(PgError::error("22023", message));
    }
    if name == "statement_timeout" && millis(value).is_none() {
        let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
        return Err(PgError::error("22023", message));
    }
    if changes_answers(name, value) {
        let message = format!("{name} cannot be \"{value}\" here: values are sent in one form only");
        return Err(PgError::error("22023", message));
    }
    let free = FREE.iter().find(|(free, _)| *free == name);
    Ok(free.filter(|_| value.len() <= LONGEST).map(|(name, _)| *name))
}

/// Whether values would have to be sent in another form.
fn changes_answers(name: &str, value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    match name {
        // Without a conversion they are sent as they are.
        "client_encoding" => !["utf8", "utf-8", "unicode", "sql_ascii"].contains(&value.as_str()),
        "datestyle" => !value.contains("iso"),
        "intervalstyle" => value != "postgres",
        "bytea_output" => value != "hex",
        _ => false,
    }
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
    fn a_setting_is_shown_as_it_was_set_and_a_timeout_is_understood() {
        let mut settings = SessionSettings::default();
        assert_eq!(settings.statement_timeout(), None);
        assert!(settings.set("statement_timeout", Some("2min")).is_ok());
        assert!(settings.set("statement_timeout", Some("soon")).is_err());
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(120)));
        assert!(settings.set("server_version", Some("1")).is_ok() && settings.set("no_such_thing", Some("1")).is_ok());
        assert_eq!(settings.get("server_version"), Some(query::POSTGRES_VERSION));
        assert_eq!(settings.get("no_such_thing"), None);
        let all: Vec<_> = settings.all().collect();
        assert_eq!(all.first(), Some(&("application_name", "")));
        assert!(all.contains(&("statement_timeout", "2min")), "{all:?}");
        assert!(all.is_sorted_by_key(|(name, _)| name.to_lowercase()), "{all:?}");
        assert_eq!(
            (settings.get("timezone"), written_name("timezone")),
            (Some("UTC"), "TimeZone")
        );
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
        let (mut settings, refused) = SessionSettings::new(&given);
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
        let then = settings.snapshot();
        assert!(settings.set(NAME, None).is_ok());
        assert_eq!(settings.get(NAME), Some("at first"));
        settings.restore(then);
        assert_eq!(settings.get(NAME), Some("later"));
    }

    #[test]
    fn a_form_of_values_other_than_ours_is_refused() {
        let mut settings = SessionSettings::default();
        for (name, ours, other) in [
            ("client_encoding", "UTF8", "LATIN1"),
            ("datestyle", "ISO, DMY", "German"),
            ("intervalstyle", "postgres", "iso_8601"),
            ("bytea_output", "hex", "escape"),
        ] {
            assert!(settings.set(name, Some(ours)).is_ok(), "{name}");
            let refused = settings.set(name, Some(other)).map_err(|fault| fault.code);
            assert_eq!(refused, Err("22023"), "{name}");
        }
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
