//! `COPY … TO STDOUT`: the query whose rows are copied, and the format of the copy.
//!
//! ```text
//! COPY { table [ ( column, … ) ] | ( query ) } TO STDOUT [ [ WITH ] ( option value, … ) | [ WITH ] options of before 9.0 ]
//! ```
//!
//! # Invariants
//!
//! - Options are refused that PostgreSQL refuses, with its codes.
//! - What would write, here or into a file, is refused as any statement that changes something (25006).

use query::{StatementToken, TokenKind, statement_tokens};

use super::pg_error::PgError;

/// A copy of the rows of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CopyStatement {
    pub(super) query: String,
    /// Where the query begins in the statement, if it stands there.
    pub(super) begin: Option<usize>,
    pub(super) format: CopyFormat,
}

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CopyFormat {
    Text(DelimitedFormat),
    Csv {
        form: DelimitedFormat,
        quote: u8,
        escape: u8,
        quotes_all: bool,
    },
    Binary,
}

/// What formats of text have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DelimitedFormat {
    pub(super) delimiter: u8,
    pub(super) null: String,
    pub(super) has_header: bool,
}

/// The options as they were given.
#[derive(Debug, Default)]
struct CopyOptions {
    format: Option<String>,
    delimiter: Option<u8>,
    null: Option<String>,
    has_header: Option<bool>,
    quote: Option<u8>,
    escape: Option<u8>,
    quotes_all: Option<bool>,
    encoding: Option<String>,
}

impl CopyStatement {
    /// Reads a statement that begins with the word.
    pub(super) fn parse(text: &str) -> Result<Self, PgError> {
        let tokens = statement_tokens(text).ok_or_else(|| syntax("COPY cannot be read"))?;
        let tokens = tokens.get(1..).unwrap_or_default();
        let (query, begin, rest) = match tokens.first().map(StatementToken::plain) {
            Some("(") => query_in_brackets(text, tokens)?,
            _ => query_of_table(text, tokens)?,
        };
        let options = match rest {
            [to, stdout, options @ ..] if to.plain() == "to" && stdout.plain() == "stdout" => options,
            _ => {
                let message = "COPY is refused except COPY … TO STDOUT: statements only read, and there are no files";
                return Err(PgError::error("25006", message));
            }
        };
        let format = CopyOptions::parse(options)?.format()?;
        Ok(Self { query, begin, format })
    }
}

/// The query of `COPY (query) …`, where it begins, and what comes after it.
type CopySource<'a> = (String, Option<usize>, &'a [StatementToken]);

fn query_in_brackets<'a>(text: &str, tokens: &'a [StatementToken]) -> Result<CopySource<'a>, PgError> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.plain() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 0 {
            continue;
        }
        let begin = tokens.first().map_or(0, |open| open.end);
        let query = text.get(begin..token.begin).unwrap_or_default();
        return Ok((
            query.to_owned(),
            Some(begin),
            tokens.get(index + 1..).unwrap_or_default(),
        ));
    }
    Err(syntax("COPY ( has no closing bracket"))
}

fn query_of_table<'a>(text: &str, tokens: &'a [StatementToken]) -> Result<CopySource<'a>, PgError> {
    let is_end = |token: &StatementToken| ["(", "to", "from"].contains(&token.plain());
    let end = tokens.iter().position(is_end).unwrap_or(tokens.len());
    let (table, rest) = tokens.split_at(end);
    let is_name = |token: &StatementToken| token.name().is_some() || token.plain() == ".";
    let (Some(first), Some(last)) = (table.first(), table.last()) else {
        return Err(syntax("COPY names no table"));
    };
    if !table.iter().all(is_name) {
        return Err(syntax("COPY takes the name of a table, or a query in brackets"));
    }
    let table = text.get(first.begin..last.end).unwrap_or_default();
    let (columns, rest) = match rest.first().map(StatementToken::plain) {
        Some("(") => {
            let is_close = |token: &StatementToken| token.plain() == ")";
            let close = rest
                .iter()
                .position(is_close)
                .ok_or_else(|| syntax("COPY has no closing bracket"))?;
            let (listed, rest) = rest.split_at(close + 1);
            let listed = listed.get(1..close).unwrap_or_default();
            let is_listed = |token: &StatementToken| token.name().is_some() || token.plain() == ",";
            match (listed.first(), listed.last()) {
                (Some(first), Some(last)) if listed.iter().all(is_listed) => {
                    (text.get(first.begin..last.end).unwrap_or_default(), rest)
                }
                _ => return Err(syntax("COPY takes names of columns in brackets")),
            }
        }
        _ => ("*", rest),
    };
    Ok((format!("SELECT {columns} FROM {table}"), None, rest))
}

impl CopyOptions {
    /// Reads options of both styles: brackets, commas, `WITH` and `AS` tell nothing.
    fn parse(tokens: &[StatementToken]) -> Result<Self, PgError> {
        let mut options = Self::default();
        let mut tokens = tokens
            .iter()
            .filter(|token| !["(", ")", ",", ";", "with", "as"].contains(&token.plain()))
            .peekable();
        while let Some(token) = tokens.next() {
            match token.plain() {
                "format" => set(&mut options.format, required("FORMAT", tokens.next())?)?,
                style @ ("csv" | "binary") => set(&mut options.format, style.to_owned())?,
                "delimiter" | "delimiters" => set(&mut options.delimiter, one_byte("delimiter", tokens.next())?)?,
                "null" => set(&mut options.null, required("NULL", tokens.next())?)?,
                "quote" => set(&mut options.quote, one_byte("quote", tokens.next())?)?,
                "escape" => set(&mut options.escape, one_byte("escape", tokens.next())?)?,
                "header" => {
                    let said = tokens.peek().and_then(|token| truth(token));
                    set(&mut options.has_header, said.unwrap_or(true))?;
                    if said.is_some() {
                        tokens.next();
                    }
                }
                "force_quote" => options.force_quote(tokens.next())?,
                "force" if tokens.next_if(|token| token.plain() == "quote").is_some() => {
                    options.force_quote(tokens.next())?;
                }
                "encoding" => {
                    let encoding = tokens.next().and_then(value).unwrap_or_default().to_lowercase();
                    if !["utf8", "utf-8", "unicode"].contains(&encoding.as_str()) {
                        return Err(PgError::error("22023", "COPY writes UTF-8 only"));
                    }
                    set(&mut options.encoding, encoding)?;
                }
                _ => {
                    let name = value(token).unwrap_or_default();
                    return Err(syntax(&format!(
                        "option \"{name}\" of COPY … TO STDOUT is not recognized"
                    )));
                }
            }
        }
        Ok(options)
    }

    fn force_quote(&mut self, columns: Option<&StatementToken>) -> Result<(), PgError> {
        if columns.is_none_or(|columns| columns.plain() != "*") {
            return Err(PgError::error(
                "0A000",
                "FORCE_QUOTE of some columns is not supported: use *",
            ));
        }
        set(&mut self.quotes_all, true)
    }

    /// Refuses what does not go together.
    fn check(&self) -> Result<(), PgError> {
        let refused = |code, message: &str| Err(PgError::error(code, message));
        let (is_csv, is_binary) = match self.format.as_deref() {
            Some("csv") => (true, false),
            Some("binary") => (false, true),
            _ => (false, false),
        };
        if is_binary && self.delimiter.is_some() {
            return refused("42601", "cannot specify DELIMITER in BINARY mode");
        }
        if is_binary && self.null.is_some() {
            return refused("42601", "cannot specify NULL in BINARY mode");
        }
        if is_binary && self.has_header == Some(true) {
            return refused("0A000", "cannot specify HEADER in BINARY mode");
        }
        for (is_given, option) in [
            (self.quote.is_some(), "quote"),
            (self.escape.is_some(), "escape"),
            (self.quotes_all.is_some(), "force quote"),
        ] {
            if is_given && !is_csv {
                return refused("0A000", &format!("COPY {option} available only in CSV mode"));
            }
        }
        let delimiter = self.delimiter.unwrap_or(if is_csv { b',' } else { b'\t' });
        let of_text = |byte: u8| matches!(byte, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9');
        if !is_csv && of_text(delimiter) {
            let message = format!("COPY delimiter cannot be \"{}\"", char::from(delimiter));
            return refused("22023", &message);
        }
        let quote = is_csv.then(|| self.quote.unwrap_or(b'"'));
        if quote == Some(delimiter) {
            return refused("22023", "COPY delimiter and quote must be different");
        }
        let unset = if is_csv { "" } else { "\\N" };
        let null = self.null.as_deref().unwrap_or(unset).as_bytes();
        if null.contains(&b'\r') || null.contains(&b'\n') {
            return refused(
                "22023",
                "COPY null representation cannot use newline or carriage return",
            );
        }
        if null.contains(&delimiter) {
            return refused("0A000", "COPY delimiter must not appear in the NULL specification");
        }
        if quote.is_some_and(|quote| null.contains(&quote)) {
            return refused("0A000", "CSV quote character must not appear in the NULL specification");
        }
        Ok(())
    }

    fn format(self) -> Result<CopyFormat, PgError> {
        self.check()?;
        let form = |delimiter, null: &str| DelimitedFormat {
            delimiter: self.delimiter.unwrap_or(delimiter),
            null: self.null.clone().unwrap_or_else(|| null.to_owned()),
            has_header: self.has_header.unwrap_or_default(),
        };
        match self.format.as_deref() {
            None | Some("text") => Ok(CopyFormat::Text(form(b'\t', "\\N"))),
            Some("csv") => {
                let quote = self.quote.unwrap_or(b'"');
                Ok(CopyFormat::Csv {
                    form: form(b',', ""),
                    quote,
                    escape: self.escape.unwrap_or(quote),
                    quotes_all: self.quotes_all.unwrap_or_default(),
                })
            }
            Some("binary") => Ok(CopyFormat::Binary),
            Some(other) => Err(PgError::error(
                "22023",
                format!("COPY format \"{other}\" not recognized"),
            )),
        }
    }
}

/// Gives an option its value, which it must not have yet.
fn set<T>(option: &mut Option<T>, value: T) -> Result<(), PgError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(syntax("conflicting or redundant options")),
    }
}

/// The value that an option must have.
fn required(option: &str, token: Option<&StatementToken>) -> Result<String, PgError> {
    let given = token.and_then(value);
    given.ok_or_else(|| syntax(&format!("{option} has no value")))
}

/// What a token says as the value of an option that is true or false.
fn truth(token: &StatementToken) -> Option<bool> {
    match value(token)?.to_lowercase().as_str() {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// What a token says as the value of an option.
fn value(token: &StatementToken) -> Option<String> {
    match &token.kind {
        TokenKind::Word(text) | TokenKind::Name(text) | TokenKind::Text(text) | TokenKind::Sign(text) => {
            Some(text.clone())
        }
    }
}

fn one_byte(option: &str, token: Option<&StatementToken>) -> Result<u8, PgError> {
    let text = token.and_then(value).unwrap_or_default();
    match text.as_bytes() {
        [byte] if !b"\r\n".contains(byte) => Ok(*byte),
        _ => Err(PgError::error(
            "0A000",
            format!("COPY {option} must be a single one-byte character"),
        )),
    }
}

fn syntax(message: &str) -> PgError {
    PgError::error("42601", message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_styles_of_options_are_read_and_the_query_is_what_stands_in_brackets() {
        let text = |delimiter, null: &str, has_header| DelimitedFormat {
            delimiter,
            null: null.to_owned(),
            has_header,
        };
        let csv = |form| CopyFormat::Csv {
            form,
            quote: b'"',
            escape: b'"',
            quotes_all: false,
        };
        for (statement, query, format) in [
            (
                "COPY (SELECT ')', 1) TO STDOUT",
                "SELECT ')', 1",
                CopyFormat::Text(text(b'\t', "\\N", false)),
            ),
            (
                "COPY (select 1) TO STDOUT (FORMAT \"binary\");",
                "select 1",
                CopyFormat::Binary,
            ),
            ("copy (select 1) to stdout with binary", "select 1", CopyFormat::Binary),
            (
                "COPY (select 1) TO STDOUT (FORMAT 'csv')",
                "select 1",
                csv(text(b',', "", false)),
            ),
            (
                "COPY  logs TO STDOUT csv header",
                "SELECT * FROM logs",
                csv(text(b',', "", true)),
            ),
            (
                "COPY public.\"logs\"(\"message\", ts) TO STDOUT WITH (FORMAT csv, DELIMITER ';', NULL 'x', HEADER false)",
                "SELECT \"message\", ts FROM public.\"logs\"",
                csv(text(b';', "x", false)),
            ),
            (
                "COPY logs TO STDOUT WITH DELIMITER AS E'\\t' NULL AS ''",
                "SELECT * FROM logs",
                CopyFormat::Text(text(b'\t', "", false)),
            ),
            (
                "COPY logs TO STDOUT (FORMAT csv, HEADER 'false')",
                "SELECT * FROM logs",
                csv(text(b',', "", false)),
            ),
            (
                "COPY logs TO STDOUT (DELIMITER '|', HEADER 'on')",
                "SELECT * FROM logs",
                CopyFormat::Text(text(b'|', "\\N", true)),
            ),
        ] {
            let read = CopyStatement::parse(statement).unwrap();
            assert_eq!((read.query.as_str(), read.format), (query, format), "{statement}");
            if let Some(begin) = read.begin {
                assert!(statement[begin..].starts_with(query), "{statement}");
            }
        }
    }

    #[test]
    fn what_writes_or_is_no_option_is_refused() {
        for (statement, code) in [
            ("COPY logs FROM STDIN", "25006"),
            ("COPY logs TO '/etc/passwd'", "25006"),
            ("COPY (SELECT 1) TO PROGRAM 'cat'", "25006"),
            ("COPY logs", "25006"),
            ("COPY (SELECT 1 TO STDOUT", "42601"),
            ("COPY TO STDOUT", "42601"),
            ("COPY logs; TO STDOUT", "42601"),
            ("COPY logs TO STDOUT (FREEZE)", "42601"),
            ("COPY logs TO STDOUT (FORMAT parquet)", "22023"),
            ("COPY logs TO STDOUT (FORMAT csv, DELIMITER 'ab')", "0A000"),
            ("COPY logs TO STDOUT (FORMAT csv, FORCE_QUOTE (ts))", "0A000"),
            ("COPY logs TO STDOUT (ENCODING 'latin1')", "22023"),
            ("COPY logs TO STDOUT (DELIMITER 'a')", "22023"),
            ("COPY logs TO STDOUT (DELIMITER '.')", "22023"),
            ("COPY logs TO STDOUT (FORMAT csv, DELIMITER '\"')", "22023"),
            ("COPY logs TO STDOUT (FORMAT csv, QUOTE '|', DELIMITER '|')", "22023"),
            ("COPY logs TO STDOUT (DELIMITER '|', NULL 'a|b')", "0A000"),
            ("COPY logs TO STDOUT (FORMAT csv, NULL '\"')", "0A000"),
            ("COPY logs TO STDOUT (DELIMITER 'N')", "0A000"),
            ("COPY logs TO STDOUT (NULL E'\\n')", "22023"),
            ("COPY logs TO STDOUT (FORMAT binary, DELIMITER '|')", "42601"),
            ("COPY logs TO STDOUT (FORMAT binary, NULL 'x')", "42601"),
            ("COPY logs TO STDOUT (FORMAT binary, HEADER)", "0A000"),
            ("COPY logs TO STDOUT (QUOTE '|')", "0A000"),
            ("COPY logs TO STDOUT (ESCAPE '|')", "0A000"),
            ("COPY logs TO STDOUT (FORCE_QUOTE *)", "0A000"),
            ("COPY logs TO STDOUT (HEADER, HEADER false)", "42601"),
            ("COPY logs TO STDOUT (FORMAT csv, FORMAT csv)", "42601"),
        ] {
            let refused = CopyStatement::parse(statement).map_err(|fault| fault.code);
            assert_eq!(refused, Err(code), "{statement}");
        }
    }
}
