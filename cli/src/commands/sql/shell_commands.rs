//! Backslash commands of the SQL shell.

use std::fmt;

use clap::ValueEnum;
use serde_json::Value;

use super::shell::ShellQuery;
use crate::args::OutputFormat;
use crate::client::Row;

pub(super) const HELP: &str = r"A statement may have many lines and ends with ; while what is below ends with its line.
\d                   the tables
\d TABLE             the columns of a table
\o FORMAT            print answers as table, json, ndjson or csv
\timing [on|off]     say how long answers take
\?                   this
\q, Ctrl-D           leave
Ctrl-C               cancel the statement that runs, or empty the line
Tab                  complete a table, a column, a function or a keyword
Up, Down, Ctrl-R     earlier statements";

/// All of them, as they are completed.
pub(super) const NAMES: [&str; 5] = [r"\?", r"\d", r"\o", r"\q", r"\timing"];

const TABLES: &str = "SELECT table_name, count(*) AS columns FROM information_schema.columns WHERE table_schema = 'public' \
                      GROUP BY table_name ORDER BY table_name";
const COLUMNS: &str = "SELECT column_name, data_type, is_nullable FROM information_schema.columns \
                       WHERE table_schema = 'public' AND table_name = $table ORDER BY ordinal_position";

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShellCommand {
    Leave,
    Do(ShellAction),
}

/// What the shell does without leaving.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShellAction {
    Help,
    /// Without a word it is switched.
    Timing(Option<bool>),
    /// Without a format it is shown.
    Output(Option<OutputFormat>),
    Describe(DescribeTarget),
}

/// What is described.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DescribeTarget {
    Tables,
    Columns(String),
}

impl ShellCommand {
    /// The command that a line is, if it is one; what is wrong with it.
    pub(super) fn of(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        if !is_command(line) {
            return Ok(None);
        }
        let mut words = line.trim_end_matches(';').split_whitespace();
        let (name, word) = (words.next().unwrap_or_default(), words.next());
        if words.next().is_some() {
            return Err(format!(r"{name} takes one word; \? shows help"));
        }
        let act = match (name, word) {
            (r"\q" | "quit" | "exit", None) => return Ok(Some(Self::Leave)),
            (r"\?" | r"\h", None) => ShellAction::Help,
            (r"\timing", None) => ShellAction::Timing(None),
            (r"\timing", Some("on")) => ShellAction::Timing(Some(true)),
            (r"\timing", Some("off")) => ShellAction::Timing(Some(false)),
            (r"\o", None) => ShellAction::Output(None),
            (r"\o", Some(format)) => match OutputFormat::from_str(format, true) {
                Ok(format) => ShellAction::Output(Some(format)),
                Err(_) => return Err(format!("{format} is none of {}", formats().join(", "))),
            },
            (r"\d" | r"\dt", None) => ShellAction::Describe(DescribeTarget::Tables),
            (r"\d", Some(table)) => ShellAction::Describe(DescribeTarget::Columns(table.to_owned())),
            _ => return Err(format!(r"unknown command {line}; \? lists the commands")),
        };
        Ok(Some(Self::Do(act)))
    }
}

impl DescribeTarget {
    /// The statement that describes it.
    pub(super) fn into_query(self) -> ShellQuery {
        let (text, parameters, missing) = match self {
            Self::Tables => (TABLES, Row::new(), None),
            Self::Columns(table) => {
                let missing = format!(r"there is no table {table}; \d lists them");
                let table = ("table".to_owned(), Value::from(table));
                (COLUMNS, Row::from_iter([table]), Some(missing))
            }
        };
        ShellQuery {
            text: text.to_owned(),
            parameters,
            limit: None,
            missing,
        }
    }
}

/// Whether a line is no statement.
pub(super) fn is_command(line: &str) -> bool {
    line.starts_with('\\') || matches!(line.trim_end_matches(';').trim(), "quit" | "exit")
}

/// The names of the formats.
pub(super) fn formats() -> Vec<String> {
    OutputFormat::value_variants().iter().map(ToString::to_string).collect()
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        out.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_commands_they_say_or_statements() {
        for line in [r"\q", r" \q;", "quit", "exit;"] {
            assert_eq!(ShellCommand::of(line), Ok(Some(ShellCommand::Leave)), "{line}");
        }
        for (line, act) in [
            (r" \? ", ShellAction::Help),
            (r"\timing", ShellAction::Timing(None)),
            (r"\timing off", ShellAction::Timing(Some(false))),
            (r"\o NDJSON", ShellAction::Output(Some(OutputFormat::Ndjson))),
            (r"\d", ShellAction::Describe(DescribeTarget::Tables)),
            (r"\dt", ShellAction::Describe(DescribeTarget::Tables)),
            (
                r"\d logs;",
                ShellAction::Describe(DescribeTarget::Columns("logs".to_owned())),
            ),
        ] {
            assert_eq!(ShellCommand::of(line), Ok(Some(ShellCommand::Do(act))), "{line}");
        }
        for statement in ["SELECT 1;", "exit_code;"] {
            assert_eq!(ShellCommand::of(statement), Ok(None), "{statement}");
        }
        for wrong in [r"\o xml", r"\x", r"\timing maybe", r"\d a b", r"\q now", r"\"] {
            assert!(ShellCommand::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_command_that_is_completed_is_known_and_explained() {
        for name in NAMES {
            assert!(
                matches!(ShellCommand::of(name), Ok(Some(_))) && HELP.contains(name),
                "{name}"
            );
        }
    }
}
