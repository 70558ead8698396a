//! Tab completion: tables and columns as the Mixer lists them, functions, keywords, and the commands of the shell.

use std::collections::{BTreeMap, BTreeSet};

use super::ask;
use super::shell_commands::{NAMES, formats, is_command};
use super::statement_splitter::{is_unterminated, is_word, words};
use crate::client::{ApiClient, Row};
use crate::error::Error;

const COLUMNS: &str = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' \
                       ORDER BY table_name, ordinal_position";

const KEYWORDS: [&str; 58] = [
    "ALL",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CROSS",
    "CURRENT",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FILTER",
    "FIRST",
    "FOLLOWING",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "ILIKE",
    "IN",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PRECEDING",
    "RIGHT",
    "ROWS",
    "SELECT",
    "THEN",
    "TRUE",
    "UNION",
    "VALUES",
    "WHEN",
    "WHERE",
];

const FUNCTIONS: [&str; 37] = [
    "abs",
    "approx_percentile_cont",
    "attr",
    "avg",
    "coalesce",
    "concat",
    "contains_fold",
    "count",
    "date_bin",
    "date_part",
    "date_trunc",
    "histogram_quantile",
    "json_keys",
    "lag",
    "lead",
    "length",
    "lower",
    "max",
    "median",
    "min",
    "now",
    "nullif",
    "regexp_like",
    "regexp_replace",
    "replace",
    "round",
    "row_number",
    "split_part",
    "stddev",
    "substr",
    "sum",
    "time_bucket",
    "trim",
    "upper",
    "uuid",
    "uuid_text",
    "uuid_time",
];

/// Tables and their columns.
#[derive(Debug, Default)]
pub(super) struct CompletionSchema {
    tables: BTreeMap<String, Vec<String>>,
}

impl CompletionSchema {
    pub(super) fn ask(client: &ApiClient) -> Result<Self, Error> {
        let answer = ask(client, COLUMNS, Row::new(), None)?;
        let mut known = Self::default();
        for row in &answer.rows {
            // Names that must be quoted are left to those who know them.
            let text = |key: &str| row.get(key)?.as_str().filter(|name| name.chars().all(is_word));
            if let (Some(table), Some(column)) = (text("table_name"), text("column_name")) {
                known
                    .tables
                    .entry(table.to_owned())
                    .or_default()
                    .push(column.to_owned());
            }
        }
        Ok(known)
    }

    fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// The columns of the tables that a text names, or of all if it names none.
    fn columns(&self, text: &str) -> impl Iterator<Item = &str> {
        let named: BTreeSet<String> = words(text).map(str::to_lowercase).collect();
        let is_named = move |table: &str| named.contains(table);
        let any = self.tables().any(&is_named);
        let tables = self.tables.iter().filter(move |(table, _)| !any || is_named(table));
        tables.flat_map(|(_, columns)| columns).map(String::as_str)
    }
}

/// Where the word before `at` begins, and what it may become.
pub(super) fn complete(line: &str, at: usize, known: &CompletionSchema) -> (usize, Vec<String>) {
    let Some(head) = line.get(..at) else {
        return (at, Vec::new());
    };
    if is_command(head.trim_start()) {
        return command(head, known);
    }
    if is_unterminated(head) {
        return (at, Vec::new());
    }
    let begin = begin(head);
    let (before, word) = head.split_at(begin);
    let mut found: Vec<String> = Vec::new();
    if let Some(path) = before.strip_suffix('.') {
        let table = &path[self::begin(path)..];
        let table = table.to_lowercase();
        let columns: Vec<_> = match known.tables.get(&table) {
            Some(columns) => columns.iter().map(String::as_str).collect(),
            None => known.columns(line).collect(),
        };
        found.extend(starting(columns, word));
    } else {
        found.extend(starting(known.columns(line).chain(known.tables()), word));
        if !word.is_empty() {
            found.extend(starting(FUNCTIONS, word).map(|name| name + "("));
            let is_lower = !word.contains(char::is_uppercase);
            let keywords = starting(KEYWORDS, word);
            found.extend(keywords.map(|name| if is_lower { name.to_lowercase() } else { name }));
        }
    }
    found.sort_unstable();
    found.dedup();
    (begin, found)
}

fn command(head: &str, known: &CompletionSchema) -> (usize, Vec<String>) {
    let begin = head.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (before, word) = head.split_at(begin);
    let found = match before.trim() {
        "" => starting(NAMES, word).collect(),
        r"\d" => starting(known.tables(), word).collect(),
        r"\o" => formats()
            .into_iter()
            .filter(|format| format.starts_with(word))
            .collect(),
        r"\timing" => starting(["off", "on"], word).collect(),
        _ => Vec::new(),
    };
    (begin, found)
}

/// Where the last word of a text begins.
fn begin(text: &str) -> usize {
    text.trim_end_matches(is_word).len()
}

/// The names that begin like this, letter case aside.
fn starting<'a>(names: impl IntoIterator<Item = &'a str>, word: &str) -> impl Iterator<Item = String> {
    let begins = |name: &str| {
        name.get(..word.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(word))
    };
    names.into_iter().filter(move |name| begins(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> CompletionSchema {
        let table = |name: &str, columns: &[&str]| (name.to_owned(), columns.iter().map(ToString::to_string).collect());
        CompletionSchema {
            tables: [
                table("logs", &["ts", "level", "message"]),
                table("traces", &["ts", "status", "span_name"]),
            ]
            .into(),
        }
    }

    /// The line with its end completed in each way.
    fn completed(line: &str) -> Vec<String> {
        let (begin, found) = complete(line, line.len(), &known());
        found
            .into_iter()
            .map(|word| format!("{}{word}", &line[..begin]))
            .collect()
    }

    #[test]
    fn words_become_columns_tables_functions_and_keywords_in_the_case_that_was_typed() {
        for (line, wanted) in [
            ("sel", vec!["select"]),
            ("SEL", vec!["SELECT"]),
            ("SELECT lev", vec!["SELECT level"]),
            (
                "SELECT s",
                vec![
                    "SELECT select",
                    "SELECT span_name",
                    "SELECT split_part(",
                    "SELECT status",
                    "SELECT stddev(",
                    "SELECT substr(",
                    "SELECT sum(",
                ],
            ),
            ("SELECT time_b", vec!["SELECT time_bucket("]),
            ("SELECT * FROM lo", vec!["SELECT * FROM logs", "SELECT * FROM lower("]),
            ("SELECT * FROM logs WHERE sta", vec![]),
            (
                "SELECT * FROM logs WHERE logs.",
                vec![
                    "SELECT * FROM logs WHERE logs.level",
                    "SELECT * FROM logs WHERE logs.message",
                    "SELECT * FROM logs WHERE logs.ts",
                ],
            ),
            (
                "SELECT t.sp FROM traces t WHERE t.sp",
                vec!["SELECT t.sp FROM traces t WHERE t.span_name"],
            ),
            ("SELECT 'lev", vec![]),
            ("SELECT 1 -- lev", vec![]),
            ("SELECT é", vec![]),
        ] {
            assert_eq!(completed(line), wanted, "{line}");
        }
    }

    #[test]
    fn columns_are_those_of_the_tables_that_are_named_wherever_they_are() {
        let line = "SELECT st FROM traces";
        assert_eq!(
            complete(line, 9, &known()),
            (7, vec!["status".to_owned(), "stddev(".to_owned()])
        );
        let line = "SELECT st FROM logs";
        assert_eq!(complete(line, 9, &known()), (7, vec!["stddev(".to_owned()]));
    }

    #[test]
    fn commands_and_their_words_are_completed_too() {
        assert_eq!(completed(r"\t"), [r"\timing"]);
        assert_eq!(completed(r"\d l"), [r"\d logs"]);
        assert_eq!(completed(r"\o nd"), [r"\o ndjson"]);
        assert_eq!(completed(r"\timing o"), [r"\timing off", r"\timing on"]);
        assert_eq!(completed(r"\q n"), Vec::<String>::new());
    }

    #[test]
    fn lists_are_sorted_and_nothing_comes_twice() {
        assert!(KEYWORDS.is_sorted() && FUNCTIONS.is_sorted());
        let mut all = KEYWORDS.map(str::to_lowercase).to_vec();
        all.dedup();
        assert_eq!(all.len(), KEYWORDS.len());
    }
}
