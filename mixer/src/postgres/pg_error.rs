//! Maps errors to PostgreSQL's: a class (SQLSTATE), a text, a position.

use bytes::{BufMut, BytesMut};
use query::{Error, QueryErrorKind};

use super::framing::put_text;
use crate::quotas::QuotaExceeded;

/// One error for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PgError {
    /// Whether the connection ends with it.
    pub(super) fatal: bool,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Where in the statement's text it is, in characters from 1.
    pub(super) position: Option<usize>,
}

/// The bytes of the longest name, as in PostgreSQL: a session keeps names until they are closed.
const LONGEST_NAME: usize = 63;

impl PgError {
    /// Refuses the name of what a session would keep if it is too long.
    pub(super) fn check_name(name: &str) -> Result<(), Self> {
        if name.len() > LONGEST_NAME {
            let message = format!(
                "a name of {} bytes is too long: at most {LONGEST_NAME} are allowed",
                name.len()
            );
            return Err(Self::error("42622", message));
        }
        Ok(())
    }

    pub(super) fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            fatal: false,
            code,
            message: message.into(),
            position: None,
        }
    }

    pub(super) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            fatal: true,
            ..Self::error(code, message)
        }
    }

    /// What is no message of the protocol; there is no way to find the next one.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::fatal("08P01", message)
    }

    pub(super) fn cancelled() -> Self {
        Self::error("57014", "canceling statement due to user request")
    }

    /// An answer with more rows than any may have.
    pub(super) fn too_many_rows(most: u64) -> Self {
        let message = format!("the answer has more than {most} rows, as many as query.max_rows allows: ask for fewer");
        Self::error("54000", message)
    }

    /// A quota that is used up.
    pub(super) fn quota(exceeded: &QuotaExceeded) -> Self {
        Self::error("53400", exceeded.to_string())
    }

    /// What is wrong with a statement that begins at a byte of a text.
    pub(super) fn of(error: &Error, text: &str, begin: usize) -> Self {
        if error.kind() == QueryErrorKind::Internal {
            tracing::error!(%error, "a statement of a PostgreSQL client failed");
        }
        let (message, position) = match error {
            Error::Statement { reason, at } => (reason.clone(), at.and_then(|at| position(text, begin, at))),
            other => (other.to_string(), None),
        };
        Self {
            position,
            ..Self::error(code(error), message)
        }
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        let severity = if self.fatal { "FATAL" } else { "ERROR" };
        put_fields(out, severity, self.code, &self.message, self.position);
    }
}

/// The fields of an error or a notice.
pub(super) fn put_fields(out: &mut BytesMut, severity: &str, code: &str, message: &str, position: Option<usize>) {
    let mut field = |kind: u8, text: &str| {
        out.put_u8(kind);
        put_text(out, text);
    };
    field(b'S', severity);
    field(b'V', severity);
    field(b'C', code);
    field(b'M', message);
    if let Some(position) = position {
        field(b'P', &position.to_string());
    }
    out.put_u8(0);
}

/// The class of an error.
fn code(error: &Error) -> &'static str {
    match (error.kind(), error) {
        (QueryErrorKind::Statement, Error::Statement { reason, .. }) => of_statement(reason),
        (QueryErrorKind::Statement | QueryErrorKind::Parameter, _) => "42000",
        (QueryErrorKind::ReadOnly, _) => "25006",
        (QueryErrorKind::Forbidden, _) => "42501",
        (QueryErrorKind::StoredElsewhere, _) => "0A000",
        (QueryErrorKind::NotFound, _) => "02000",
        (QueryErrorKind::TooMuch, Error::Memory(_)) => "53200",
        (QueryErrorKind::TooMuch, _) => "54000",
        (QueryErrorKind::Busy, Error::SnapshotTooOld(_)) => "72000",
        (QueryErrorKind::Busy | QueryErrorKind::TooMany, _) => "53000",
        (QueryErrorKind::QuotaExceeded, _) => "53400",
        (QueryErrorKind::Timeout, _) => "57014",
        (QueryErrorKind::Closed, _) => "57P01",
        (QueryErrorKind::Internal, _) => "XX000",
    }
}

/// The class of what a statement did wrong, by what is said of it.
fn of_statement(reason: &str) -> &'static str {
    const CLASSES: [(&str, &str); 16] = [
        ("Expected: ", "42601"),
        ("is not a UUID", "22P02"),
        ("Error parsing timestamp", "22007"),
        ("is not a regular expression", "2201B"),
        ("No field named", "42703"),
        ("Invalid function", "42883"),
        ("No function matches", "42883"),
        ("table '", "42P01"),
        ("mbiguous", "42702"),
        ("ivide by zero", "22012"),
        ("verflow", "22003"),
        ("is out of range", "22003"),
        ("Can't cast value", "22003"),
        ("Cannot cast", "22P02"),
        ("Cast error", "22P02"),
        ("more than", "54000"),
    ];
    let reason = without_quoted_texts(reason);
    let found = CLASSES.iter().find(|(part, _)| reason.contains(part));
    found.map_or("42601", |(_, class)| class)
}

/// A reason without what it quotes: words of the statement choose no class. Of an apostrophe within a word nothing is left out.
fn without_quoted_texts(reason: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(reason.len()), reason);
    while let Some((before, quote, after)) = rest
        .find(['\'', '"'])
        .and_then(|at| Some((rest.get(..at)?, rest.get(at..=at)?, rest.get(at + 1..)?)))
    {
        let is_apostrophe = before.ends_with(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric);
        let quoted = if is_apostrophe { None } else { after.split_once(quote) };
        kept.extend([before, quote]);
        rest = match quoted {
            Some((_, after)) => {
                kept.push_str(quote);
                after
            }
            None => after,
        };
    }
    kept + rest
}

/// Line and column within a part of a text, as characters of the whole, from 1.
fn position(text: &str, begin: usize, (line, column): (u64, u64)) -> Option<usize> {
    let (line, column) = (usize::try_from(line).ok()?, usize::try_from(column).ok()?);
    let part = text.get(begin..)?;
    let before = text.get(..begin)?.chars().count();
    let lines = part.split_inclusive('\n').take(line.checked_sub(1)?);
    Some(before + lines.map(|line| line.chars().count()).sum::<usize>() + column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_is_out_of_range_and_words_of_the_statement_choose_no_class() {
        for (reason, class) in [
            (
                "Arithmetic overflow: Overflow happened on: 9223372036854775807 + 1",
                "22003",
            ),
            (
                "Cast error: value of 9223372036854775808 is out of range Int64",
                "22003",
            ),
            ("Cast error: Can't cast value 3000000000 to type Int32", "22003"),
            ("Cast error: Cannot cast string 'a' to value of Int32 type", "22P02"),
            (
                "Cast error: Cannot cast string 'overflow' to value of Int32 type",
                "22P02",
            ),
            ("Expected: end of statement, found: overflow", "42601"),
            ("'overflow' is not a UUID", "22P02"),
            ("No field named \"is not a UUID\"", "42703"),
            ("table 'platform.main.Expected: ' not found", "42P01"),
            ("'overflow' is not the name of a time zone", "42601"),
        ] {
            assert_eq!(of_statement(reason), class, "{reason}");
        }
    }

    #[test]
    fn a_place_is_counted_in_characters_of_the_whole_text() {
        let text = "SELECT 'ä';\nSELECT\n  'ö', levl";
        let begin = text.find(";\n").unwrap_or_default() + 1;
        let at = position(text, begin, (3, 8)).unwrap_or_default();
        assert_eq!(text.chars().nth(at - 1), Some('l'), "{at}");
        assert_eq!(position("SELECT x", 0, (1, 8)), Some(8));
        assert_eq!(position("SELECT x", 0, (0, 8)), None);
    }
}
