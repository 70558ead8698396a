//! Fuzz targets of questions: statements, cursors of pages, ids of events.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. Statements that are carried out (the generated
//! ones of the tests), and how inputs are made (`model::fuzz`).

use model::fuzz::FuzzTarget;

use crate::cursor::{KeysetPosition, PageCursor};
use crate::live_tail::fuzz_resume_token;
use crate::sql::{fuzz_statement, split_statements};
use crate::time_range::TimeRange;

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    vec![
        FuzzTarget::of_text("postgres.statement", &STATEMENTS, |text| {
            for (begin, statement) in split_statements(text) {
                assert!(
                    text.get(begin..).is_some_and(|rest| rest.starts_with(statement)),
                    "a statement is elsewhere"
                );
            }
            fuzz_statement(text)
        }),
        cursor(),
        fuzz_resume_token(),
    ]
}

const STATEMENTS: [&str; 6] = [
    "SELECT ts, message FROM logs WHERE level = 'error' AND message LIKE '%time_out%' ORDER BY ts DESC LIMIT 10",
    "SELECT a.x, count(*) FILTER (WHERE b > 1.5e3) FROM (SELECT 1 AS x, 2 AS b) a GROUP BY 1 HAVING count(*) > 0;",
    "WITH w AS (SELECT $1::bigint AS n) SELECT n + INTERVAL '1 day 2:03' FROM w UNION ALL SELECT NULL",
    "SELECT attributes->>'a', e'\\'x\\n', $tag$ text $tag$, \"level\" /* a /* b */ c */ FROM traces -- end",
    "SELECT (a, b) IN ((1, 2), (3, 4)), x NOT BETWEEN -1 AND +1, CASE WHEN TRUE THEN 1 END FROM metrics",
    "EXPLAIN SELECT date_trunc('hour', ts) AT TIME ZONE 'Europe/Berlin' FROM logs",
];

fn cursor() -> FuzzTarget {
    const FINGERPRINT: u64 = 7;
    let position = KeysetPosition {
        ts: -5,
        hash: u64::MAX,
        seen: 3,
    };
    let token = PageCursor::new(FINGERPRINT, TimeRange::ALL, position).token();
    FuzzTarget::of_text("names.cursor", &[&token], |text| {
        PageCursor::<KeysetPosition>::parse(text, FINGERPRINT).is_ok_and(|cursor| {
            let again = PageCursor::parse(&cursor.token(), FINGERPRINT);
            assert!(again.is_ok_and(|again| again == cursor), "it is written as it is read");
            true
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reader_of_questions_panics() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }
}
