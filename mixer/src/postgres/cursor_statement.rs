//! `DECLARE`, `FETCH` and `MOVE`: cursors of SQL.
//!
//! ```text
//! DECLARE name [ BINARY ] [ ASENSITIVE | INSENSITIVE ] [ [ NO ] SCROLL ] CURSOR [ { WITH | WITHOUT } HOLD ] FOR query
//! { FETCH | MOVE } [ NEXT | FORWARD [ count | ALL ] | count | ALL ] [ FROM | IN ] name
//! ```

use query::{StatementToken, statement_tokens};

use super::pg_error::PgError;

/// A cursor that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CursorDeclaration {
    pub(super) name: String,
    pub(super) query: String,
    /// Where the query begins in the statement.
    pub(super) begin: usize,
    /// Whether its rows come in binary where the client does not say how.
    pub(super) is_binary: bool,
    /// Whether it outlives its transaction.
    pub(super) is_held: bool,
}

/// The next rows of a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CursorFetch {
    pub(super) name: String,
    pub(super) most: usize,
    /// Whether they are passed over instead of sent.
    pub(super) is_move: bool,
}

impl CursorDeclaration {
    /// Reads a statement that begins with `DECLARE`.
    pub(super) fn parse(text: &str) -> Result<Self, PgError> {
        let tokens = statement_tokens(text).ok_or_else(|| syntax("DECLARE cannot be read"))?;
        let name = tokens.get(1).and_then(StatementToken::name);
        let name = name.ok_or_else(|| syntax("DECLARE names no cursor"))?.to_owned();
        let (mut is_binary, mut is_held) = (false, false);
        let mut before = "";
        for token in tokens.get(2..).unwrap_or_default() {
            match token.plain() {
                "for" => {
                    let query = text.get(token.end..).unwrap_or_default().to_owned();
                    return Ok(Self {
                        name,
                        query,
                        begin: token.end,
                        is_binary,
                        is_held,
                    });
                }
                "binary" => is_binary = true,
                "hold" => is_held = before == "with",
                "asensitive" | "insensitive" | "no" | "scroll" | "cursor" | "with" | "without" => {}
                _ => break,
            }
            before = token.plain();
        }
        Err(syntax("DECLARE is written DECLARE name CURSOR FOR SELECT …"))
    }
}

impl CursorFetch {
    /// Reads a statement that begins with `FETCH` or `MOVE`.
    pub(super) fn parse(text: &str) -> Result<Self, PgError> {
        let tokens = statement_tokens(text).ok_or_else(|| syntax("FETCH cannot be read"))?;
        let is_end = |token: &StatementToken| token.plain() == ";";
        let end = tokens.iter().position(is_end).unwrap_or(tokens.len());
        let tokens = tokens.get(..end).unwrap_or_default();
        let Some((name, said)) = tokens.split_last().and_then(|(last, rest)| Some((last.name()?, rest))) else {
            return Err(syntax("FETCH names no cursor"));
        };
        let (first, said) = said.split_first().ok_or_else(|| syntax("FETCH names no cursor"))?;
        let said: Vec<&str> = said.iter().map(StatementToken::plain).collect();
        let said = match said.as_slice() {
            [said @ .., "from" | "in"] => said,
            said => said,
        };
        let most = match said {
            [] | ["next" | "forward"] => 1,
            ["all"] | ["forward", "all"] => usize::MAX,
            [count] | ["forward", count] if count.parse::<usize>().is_ok_and(|count| count > 0) => {
                count.parse().unwrap_or(usize::MAX)
            }
            _ => return Err(PgError::error("55000", "cursor can only scan forward")),
        };
        Ok(Self {
            name: name.to_owned(),
            most,
            is_move: first.plain() == "move",
        })
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
    fn declarations_of_drivers_are_read() {
        for (text, name, query, is_held, is_binary) in [
            ("DECLARE \"Big\" CURSOR FOR SELECT 1", "Big", " SELECT 1", false, false),
            (
                "declare C no scroll cursor without hold for select 'for'",
                "c",
                " select 'for'",
                false,
                false,
            ),
            (
                "DECLARE \"a b\" BINARY INSENSITIVE CURSOR WITH HOLD FOR VALUES (1)",
                "a b",
                " VALUES (1)",
                true,
                true,
            ),
        ] {
            let read = CursorDeclaration::parse(text).unwrap();
            assert_eq!(
                (read.name.as_str(), read.query.as_str(), read.is_held, read.is_binary),
                (name, query, is_held, is_binary),
                "{text}"
            );
            assert_eq!(&text[read.begin..], query);
        }
        for text in [
            "DECLARE",
            "DECLARE c CURSOR",
            "DECLARE 'c' CURSOR FOR SELECT 1",
            "DECLARE c int",
        ] {
            assert_eq!(CursorDeclaration::parse(text).unwrap_err().code, "42601", "{text}");
        }
    }

    #[test]
    fn a_fetch_goes_forward() {
        for (text, name, most, is_move) in [
            ("FETCH c", "c", 1, false),
            ("fetch next from c;", "c", 1, false),
            ("FETCH FORWARD 100 FROM \"Big\"", "Big", 100, false),
            ("FETCH ALL IN c", "c", usize::MAX, false),
            ("FETCH FORWARD ALL FROM \"all\"", "all", usize::MAX, false),
            ("MOVE 7 c", "c", 7, true),
        ] {
            let read = CursorFetch::parse(text).unwrap();
            assert_eq!(
                (read.name.as_str(), read.most, read.is_move),
                (name, most, is_move),
                "{text}"
            );
        }
        for (text, code) in [
            ("FETCH BACKWARD 3 FROM c", "55000"),
            ("FETCH PRIOR c", "55000"),
            ("MOVE ABSOLUTE 3 IN c", "55000"),
            ("FETCH -1 FROM c", "55000"),
            ("FETCH 0 FROM c", "55000"),
            ("FETCH", "42601"),
            ("FETCH FROM 'c'", "42601"),
        ] {
            assert_eq!(CursorFetch::parse(text).unwrap_err().code, code, "{text}");
        }
    }
}
