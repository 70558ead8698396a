//! Utility statements: transactions, settings, prepared statements by name.
//!
//! Clients send them unasked. They are told by their first words; what is none of them is for the planner.

use query::statement_tokens;

use super::session_settings::{TIME_ZONE, written_name};

/// What such a statement is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UtilityStatement {
    Begin,
    Commit,
    Rollback,
    /// `SAVEPOINT name`, and what goes back to it or forgets it.
    Savepoint(String),
    RollbackTo(String),
    Release(String),
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
    /// `SELECT set_config(…)`, which answers with the value.
    SetConfig {
        name: String,
        value: String,
        is_local: bool,
    },
    Show(String),
    ShowAll,
    /// All prepared statements, or one.
    Deallocate(Option<String>),
    DiscardAll,
    /// All cursors, or one.
    CloseCursor(Option<String>),
    /// See [`super::copy_statement`].
    Copy,
    /// See [`super::cursor_statement`].
    Declare,
    /// See [`super::cursor_statement`].
    Fetch,
    /// Accepted, with nothing to do.
    Nothing(&'static str),
}

impl UtilityStatement {
    /// What a statement is if it is about the session.
    pub(super) fn of(text: &str) -> Option<Self> {
        let text = uncommented(text).trim_end_matches([';', ' ', '\t', '\r', '\n']);
        let words: Vec<&str> = text.split_whitespace().take(4).collect();
        if words.first().is_some_and(|first| begins_copy(first)) {
            return Some(Self::Copy);
        }
        let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
        Some(match upper.as_slice() {
            ["BEGIN", ..] | ["START", "TRANSACTION", ..] => Self::Begin,
            ["COMMIT" | "END", ..] => Self::Commit,
            ["ROLLBACK", "TO", ..] | ["ROLLBACK", "WORK" | "TRANSACTION", "TO", ..] => {
                Self::RollbackTo(last_name(text)?)
            }
            ["ROLLBACK" | "ABORT", ..] => Self::Rollback,
            ["SAVEPOINT", ..] => Self::Savepoint(last_name(text)?),
            ["RELEASE", ..] => Self::Release(last_name(text)?),
            ["UNLISTEN", ..] => Self::Nothing("UNLISTEN"),
            ["DECLARE", ..] => Self::Declare,
            ["FETCH" | "MOVE", ..] => Self::Fetch,
            ["CLOSE", ..] => return close(text),
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
            ["SHOW", "ALL"] => Self::ShowAll,
            ["SHOW", "TIME", "ZONE"] => Self::Show(TIME_ZONE.to_owned()),
            ["SHOW", name] => Self::Show(name.trim_matches('"').to_ascii_lowercase()),
            ["SELECT", ..] => return set_config(text),
            _ => return None,
        })
    }

    /// The columns that it answers with; none if it has no answer.
    pub(super) fn columns(&self) -> Vec<&str> {
        match self {
            Self::Show(name) => vec![written_name(name)],
            Self::ShowAll => vec!["name", "setting", "description"],
            Self::SetConfig { .. } => vec!["set_config"],
            _ => Vec::new(),
        }
    }
}

/// Whether a word is `COPY`, with what may stand right behind it.
fn begins_copy(word: &str) -> bool {
    let name = word.split(['(', '"']).next().unwrap_or_default();
    name.eq_ignore_ascii_case("copy")
}

/// The name that a statement ends with.
fn last_name(text: &str) -> Option<String> {
    Some(statement_tokens(text)?.last()?.name()?.to_owned())
}

/// `CLOSE ALL` or `CLOSE name`.
fn close(text: &str) -> Option<UtilityStatement> {
    let tokens = statement_tokens(text)?;
    let [_, cursor] = tokens.as_slice() else { return None };
    let name = match cursor.plain() {
        "all" => None,
        _ => Some(cursor.name()?.to_owned()),
    };
    Some(UtilityStatement::CloseCursor(name))
}

/// `SELECT set_config('name', 'value', is_local)`, alone and of literals. Any other use of the function the planner refuses.
fn set_config(text: &str) -> Option<UtilityStatement> {
    let (_, call) = word(text);
    let call = call.strip_prefix("pg_catalog.").unwrap_or(call);
    let (function, arguments) = call.split_once('(')?;
    let mut arguments = arguments.strip_suffix(')')?.split(',').map(str::trim);
    let mut literal = || {
        let literal = arguments.next()?.strip_prefix('\'')?.strip_suffix('\'')?;
        (!literal.contains('\'')).then(|| literal.to_owned())
    };
    let (name, value) = (literal()?.to_ascii_lowercase(), literal()?);
    let is_local = arguments.next()?.parse().ok()?;
    let is_it = function.trim_end().eq_ignore_ascii_case("set_config") && arguments.next().is_none();
    is_it.then_some(UtilityStatement::SetConfig { name, value, is_local })
}

/// `SET name = value`, `SET name TO value` or `SET TIME ZONE value`; of other forms only that they are there.
fn set(text: &str) -> UtilityStatement {
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
        UtilityStatement::SetLocal { name, value }
    } else {
        UtilityStatement::Set { name, value }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_unasked_is_known_and_statements_are_left_alone() {
        let set = |name: &str, value: &str| UtilityStatement::Set {
            name: name.to_owned(),
            value: (value != "DEFAULT").then(|| value.to_owned()),
        };
        let set_local = |name: &str, value: &str| UtilityStatement::SetLocal {
            name: name.to_owned(),
            value: (value != "DEFAULT").then(|| value.to_owned()),
        };
        for (text, expected) in [
            ("BEGIN READ ONLY;", UtilityStatement::Begin),
            ("/* a */ -- b\n start transaction", UtilityStatement::Begin),
            ("commit", UtilityStatement::Commit),
            ("ROLLBACK TO SAVEPOINT a", UtilityStatement::RollbackTo("a".to_owned())),
            (
                "rollback work to \"A b\";",
                UtilityStatement::RollbackTo("A b".to_owned()),
            ),
            ("SAVEPOINT S", UtilityStatement::Savepoint("s".to_owned())),
            ("RELEASE SAVEPOINT s;", UtilityStatement::Release("s".to_owned())),
            ("abort;", UtilityStatement::Rollback),
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
            ("RESET ALL;", UtilityStatement::ResetAll),
            (
                "reset Statement_Timeout",
                UtilityStatement::Reset("statement_timeout".to_owned()),
            ),
            ("RESET TIME ZONE", UtilityStatement::Reset("timezone".to_owned())),
            ("RESET SESSION AUTHORIZATION", UtilityStatement::Nothing("RESET")),
            (
                "SHOW server_version",
                UtilityStatement::Show("server_version".to_owned()),
            ),
            (
                "show TRANSACTION isolation LEVEL",
                UtilityStatement::Show("transaction_isolation".to_owned()),
            ),
            ("DEALLOCATE \"s1\"", UtilityStatement::Deallocate(Some("s1".to_owned()))),
            ("DISCARD ALL", UtilityStatement::DiscardAll),
            ("SHOW ALL", UtilityStatement::ShowAll),
            ("COPY(SELECT 1) TO STDOUT", UtilityStatement::Copy),
            ("declare c cursor for select 1", UtilityStatement::Declare),
            ("FETCH ALL FROM c", UtilityStatement::Fetch),
            ("CLOSE ALL;", UtilityStatement::CloseCursor(None)),
            ("close \"Big\"", UtilityStatement::CloseCursor(Some("Big".to_owned()))),
            ("CLOSE Big", UtilityStatement::CloseCursor(Some("big".to_owned()))),
            (
                "CLOSE \"my cursor\";",
                UtilityStatement::CloseCursor(Some("my cursor".to_owned())),
            ),
            ("CLOSE \"all\"", UtilityStatement::CloseCursor(Some("all".to_owned()))),
            ("UNLISTEN *", UtilityStatement::Nothing("UNLISTEN")),
            (
                "SELECT pg_catalog.set_config('Statement_Timeout', '5s', true)",
                UtilityStatement::SetConfig {
                    name: "statement_timeout".to_owned(),
                    value: "5s".to_owned(),
                    is_local: true,
                },
            ),
        ] {
            assert_eq!(UtilityStatement::of(text), Some(expected), "{text}");
        }
        for text in [
            "SELECT 1",
            "SELECT set_config('timezone', $1, false)",
            "SELECT set_config('timezone', 'UTC', false), 1",
            "SELECT set_config('timezone', 'UTC', false) FROM logs",
            "SHOW TABLES",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "INSERT INTO logs VALUES (1)",
            "CLOSE 'c'",
            "CLOSE a b",
            "",
        ] {
            assert_eq!(UtilityStatement::of(text), None, "{text}");
        }
    }
}
