//! Output of rows: tables, JSON, JSON lines and CSV.
//!
//! # Invariants
//!
//! - Stored control characters are never written as they are, whatever the format: a pipe may end at a terminal. Tables
//!   and CSV show them escaped (CSV keeps line breaks and tabs, quoted), JSON escapes them so that a reader gets them back.
//! - Colours only on a terminal, and never with `NO_COLOR`.
//! - Tables have the times of the zone, whether they go to a terminal or not; formats for programs have them in UTC.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::args::{ApiArgs, ChartMode, OutputFormat};
use crate::client::Row;
use crate::control_chars::{escape_char, escape_controls, escape_where, is_control_or_bidi};
use crate::pager;
use crate::time_args::DisplayZone;

/// The columns that hold times; elsewhere a text that looks like one is left alone.
const TIMES: [&str; 5] = ["ts", "last_seen", "stored", "earliest", "latest"];

/// How the answer of one command is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPrinter {
    pub(crate) format: OutputFormat,
    pub(crate) zone: DisplayZone,
    may_page: bool,
}

impl From<&ApiArgs> for RowPrinter {
    fn from(api: &ApiArgs) -> Self {
        Self {
            format: api.output,
            zone: api.zone(),
            may_page: !api.no_pager,
        }
    }
}

impl RowPrinter {
    /// For rows without times that are few.
    pub(crate) fn of(format: OutputFormat) -> Self {
        Self {
            format,
            zone: DisplayZone::Utc,
            may_page: false,
        }
    }

    /// Prints rows; `columns` are what the table shows and the order of CSV columns.
    pub(crate) fn rows(self, rows: &[Row], columns: &[&str]) -> io::Result<()> {
        if self.format == OutputFormat::Table {
            return self.text(&self.table(rows, columns));
        }
        let mut out = io::stdout().lock();
        self.write(&mut out, rows, columns)?;
        out.flush()
    }

    /// The same for a user at the terminal, whatever the format: through a pager, or until `stop` says so. Whether
    /// it came to its end.
    pub(crate) fn rows_until(self, rows: &[Row], columns: &[&str], stop: impl Fn() -> bool) -> io::Result<bool> {
        let mut text = Vec::new();
        self.write(&mut text, rows, columns)?;
        pager::show_until(&String::from_utf8_lossy(&text), self.may_page, stop)
    }

    fn write(self, out: &mut impl Write, rows: &[Row], columns: &[&str]) -> io::Result<()> {
        match self.format {
            OutputFormat::Table => out.write_all(self.table(rows, columns).as_bytes()),
            OutputFormat::Json => writeln!(out, "{}", json_safe(&serde_json::to_string_pretty(rows)?)),
            OutputFormat::Ndjson => rows.iter().try_for_each(|row| ndjson(out, row)),
            OutputFormat::Csv => csv(out, rows, columns),
        }
    }

    /// Begins rows that come one by one, by [`RowPrinter::one`].
    pub(crate) fn begin(self, out: &mut impl Write, columns: &[&str]) -> io::Result<()> {
        match self.format {
            OutputFormat::Csv => csv_header(out, columns),
            OutputFormat::Table | OutputFormat::Json | OutputFormat::Ndjson => Ok(()),
        }
    }

    /// Prints one row of many that have no end; `line` is what people see of it.
    pub(crate) fn one(
        self,
        out: &mut impl Write,
        row: &Row,
        columns: &[&str],
        line: impl Fn(&Row) -> String,
    ) -> io::Result<()> {
        match self.format {
            OutputFormat::Table => out.write_all(line(row).as_bytes()),
            OutputFormat::Csv => csv_row(out, row, columns),
            OutputFormat::Json | OutputFormat::Ndjson => ndjson(out, row),
        }
    }

    /// Prints what was drawn for people.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        pager::show(text, self.may_page)
    }

    /// Whether a drawing belongs to the answer.
    pub(crate) fn draws(self, charting: ChartMode) -> bool {
        self.format == OutputFormat::Table
            && match charting {
                ChartMode::Auto => io::stdout().is_terminal(),
                ChartMode::Always => true,
                ChartMode::Never => false,
            }
    }

    /// The lines of a table, times in the zone.
    pub(crate) fn table(self, rows: &[Row], columns: &[&str]) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(
            columns
                .iter()
                .map(|column| escape_controls(&column.to_uppercase()).into_owned()),
        );
        for row in rows {
            table.add_row(columns.iter().map(|column| self.cell(row, column)));
        }
        let mut text = String::new();
        for line in table.lines() {
            let line = line.trim_end();
            text.push_str(line.strip_prefix(' ').unwrap_or(line));
            text.push('\n');
        }
        text
    }

    fn cell(self, row: &Row, column: &str) -> String {
        let value = row.get(column).unwrap_or(&Value::Null);
        match value.as_str() {
            Some(text) if TIMES.contains(&column) => self.time(text),
            _ => plain(value),
        }
    }

    /// A time of an answer in the zone; what is none as it is, without control characters.
    pub(crate) fn time(self, text: &str) -> String {
        text.parse()
            .map_or_else(|_| escape_controls(text).into_owned(), |at| self.zone.show(at))
    }
}

fn ndjson(out: &mut impl Write, row: &Row) -> io::Result<()> {
    writeln!(out, "{}", json_safe(&serde_json::to_string(row)?))
}

fn csv(out: &mut impl Write, rows: &[Row], columns: &[&str]) -> io::Result<()> {
    csv_header(out, columns)?;
    rows.iter().try_for_each(|row| csv_row(out, row, columns))
}

fn csv_header(out: &mut impl Write, columns: &[&str]) -> io::Result<()> {
    let header: Vec<_> = columns.iter().map(|column| quoted(column)).collect();
    writeln!(out, "{}", header.join(","))
}

fn csv_row(out: &mut impl Write, row: &Row, columns: &[&str]) -> io::Result<()> {
    let cells: Vec<_> = columns
        .iter()
        .map(|column| quoted(&text(row.get(*column).unwrap_or(&Value::Null))))
        .collect();
    writeln!(out, "{}", cells.join(","))
}

fn quoted(cell: &str) -> String {
    let cell = escape_where(
        cell,
        |c| is_control_or_bidi(c) && !matches!(c, '\n' | '\t'),
        escape_char,
    );
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.into_owned()
    }
}

/// JSON text with what `serde_json` leaves as it is (DEL, the controls above it, bidirectional marks) escaped too. Such
/// characters stand in strings only; the line breaks between values stay.
fn json_safe(json: &str) -> Cow<'_, str> {
    escape_where(
        json,
        |c| is_control_or_bidi(c) && c != '\n',
        |c| format!("\\u{:04x}", u32::from(c)),
    )
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value on one line, without control characters.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let pairs = fields
                .iter()
                .map(|(key, value)| format!("{}={}", escape_controls(key), escape_controls(&text(value))));
            pairs.collect::<Vec<_>>().join(" ")
        }
        other => escape_controls(&text(other)).into_owned(),
    }
}

/// Paints words if standard output wants colours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextPainter(bool);

impl TextPainter {
    pub(crate) fn for_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(io::stdout().is_terminal() && !refused)
    }

    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(false)
    }

    /// What went wrong.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    pub(crate) fn level(self, level: &str) -> String {
        self.word(&format!("{level:<5}"))
    }

    /// A level with what stands around it.
    pub(crate) fn word(self, level: &str) -> String {
        let style = match level.trim() {
            "error" => AnsiColor::Red.on_default().bold(),
            "warn" => AnsiColor::Yellow.on_default(),
            "debug" => Style::new().dimmed(),
            _ => AnsiColor::Green.on_default(),
        };
        self.with(style, level)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        if self.0 {
            format!("{}{text}{}", style.render(), style.render_reset())
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_strings;

    #[test]
    fn stored_control_characters_are_shown_and_not_obeyed() {
        assert_eq!(
            escape_controls("a\u{1b}[2Jb\u{7}\n\u{202e}"),
            "a\\u{1b}[2Jb\\u{7}\\n\\u{202e}"
        );
        assert_eq!(escape_controls("grüße"), "grüße");
        assert_eq!(plain(&serde_json::json!({"k\n": "v\t"})), "k\\n=v\\t");
    }

    #[test]
    fn json_gives_back_what_was_stored_and_writes_no_control_character() {
        let stored = "\u{1b}[2J\u{7f}\u{9b}\u{202e}é\n";
        let json = serde_json::to_string_pretty(&[stored]).unwrap_or_default();
        let written = json_safe(&json);
        assert!(!written.replace('\n', "").contains(is_control_or_bidi), "{written}");
        let read: Vec<String> = serde_json::from_str(&written).unwrap_or_default();
        assert_eq!(read, [stored]);
    }

    #[test]
    fn the_times_of_a_table_are_shown_as_such_and_texts_that_look_like_them_are_left_alone() {
        for (column, expected) in [
            ("ts", "2026-11-21T10:00:00.000000Z"),
            ("stored", "2026-11-21T10:00:00.000000Z"),
            ("message", "2026-11-21T10:00:00Z"),
        ] {
            let row = Row::from_iter([(column.to_owned(), "2026-11-21T10:00:00Z".into())]);
            assert_eq!(
                RowPrinter::of(OutputFormat::Table).cell(&row, column),
                expected,
                "{column}"
            );
        }
    }

    #[test]
    fn csv_quotes_what_would_break_a_line() {
        let row: Row = [
            ("a".to_owned(), Value::from("x,\"y\"\n")),
            ("b".to_owned(), Value::from("\u{1b}[2J\r")),
            ("c,d".to_owned(), Value::Null),
        ]
        .into_iter()
        .collect();
        let mut out = Vec::new();
        assert!(csv(&mut out, &[row], &["a", "b", "c,d"]).is_ok());
        assert_eq!(
            String::from_utf8_lossy(&out),
            "a,b,\"c,d\"\n\"x,\"\"y\"\"\n\",\\u{1b}[2J\\r,\n"
        );
    }

    fn hostile_row() -> impl Strategy<Value = Row> {
        let texts = prop::collection::vec((test_strings::text(), test_strings::text()), 0..4);
        (texts, test_strings::text(), test_strings::text()).prop_map(|(attributes, ts, message)| {
            let attributes: Row = attributes.into_iter().map(|(key, value)| (key, value.into())).collect();
            let row =
                serde_json::json!({ "ts": ts, "last_seen": message, "message": message, "attributes": attributes });
            row.as_object().cloned().unwrap_or_default()
        })
    }

    proptest! {
        #[test]
        fn no_stored_text_reaches_a_table_or_csv_with_its_controls(rows in prop::collection::vec(hostile_row(), 1..6)) {
            let columns = ["ts", "last_seen", "message", "attributes"];
            let table = RowPrinter::of(OutputFormat::Table).table(&rows, &columns);
            prop_assert_eq!(table.lines().count(), rows.len() + 1, "{}", table);
            prop_assert!(!table.replace('\n', "").contains(is_control_or_bidi), "{table:?}");
            let mut out = Vec::new();
            prop_assert!(csv(&mut out, &rows, &columns).is_ok());
            let text = String::from_utf8_lossy(&out).replace(['\n', '\t'], "");
            prop_assert!(!text.contains(is_control_or_bidi), "{text:?}");
        }

        #[test]
        fn json_gives_back_any_row_without_its_controls(row in hostile_row()) {
            let written = json_safe(&serde_json::to_string(&row).unwrap_or_default()).into_owned();
            prop_assert!(!written.contains(is_control_or_bidi), "{written:?}");
            prop_assert_eq!(serde_json::from_str::<Row>(&written).ok(), Some(row));
        }
    }
}
