//! Output of rows: tables, JSON, JSON lines and CSV.
//!
//! # Invariants
//!
//! - Stored control characters are never written as they are, whatever the format: a pipe may end at a terminal. Tables
//!   and CSV show them escaped (CSV keeps line breaks and tabs, quoted), JSON escapes them so that a reader gets them back.
//! - Colours only on a terminal, and never with `NO_COLOR`.
//! - Tables have the times of the zone, and values with their units, whether they go to a terminal or not; formats for
//!   programs have times in UTC and values as the Mixer wrote them.
//! - Tables fit the terminal; what goes elsewhere is whole.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use model::Timestamp;
use serde_json::Value;

use crate::args::{ApiArgs, ChartMode, OutputFormat};
use crate::client::Row;
use crate::control_chars::{escape_char, escape_controls, escape_where, is_control_or_bidi};
use crate::pager;
use crate::table_layout::{self, FittedTable, TableColumn};
use crate::terminal::TerminalSize;
use crate::time_args::DisplayZone;
use crate::value_units;

/// The columns that hold times; elsewhere a text that looks like one is left alone.
const TIMES: [&str; 12] = [
    "ts",
    "last_seen",
    "last_used",
    "stored",
    "earliest",
    "latest",
    "published",
    "created",
    "expires",
    "used",
    "requested",
    "until",
];
/// Those of them that say how long something is silent.
const AGES: [&str; 2] = ["last_seen", "last_used"];
/// The columns of a metric's points and buckets that are in its unit.
const MEASURED: [&str; 5] = ["value", "sum", "p50", "p90", "p99"];
/// The longest name that is a word.
const LONGEST_WORD: usize = 20;
/// The longest text that is looked at for being a time.
const LONGEST_TIME: usize = 40;

/// How the answer of one command is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPrinter {
    pub(crate) format: OutputFormat,
    pub(crate) zone: DisplayZone,
    may_page: bool,
    /// The cells of a line, if something limits it.
    width: Option<usize>,
    /// The time of the answer; without one no age is told.
    now: Option<Timestamp>,
    /// Whether values are shown as they are, without units.
    is_exact: bool,
}

/// How a time is written in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeForm {
    Full,
    /// In fewer cells.
    Narrow,
}

impl From<&ApiArgs> for RowPrinter {
    fn from(api: &ApiArgs) -> Self {
        Self {
            zone: api.zone(),
            may_page: !api.no_pager,
            now: Some(chassis::system_clock().now()),
            ..Self::of(api.output).fitting(api.wide)
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
            width: None,
            now: None,
            is_exact: false,
        }
    }

    /// The same on a terminal, whose width tables have unless they are to be `wide`.
    pub(crate) fn fitting(self, wide: bool) -> Self {
        Self {
            width: TerminalSize::of_stdout().filter(|_| !wide).map(|size| size.width),
            ..self
        }
    }

    /// The same for values that are to be shown as they are.
    pub(crate) fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// The same for rows that are of no use when they are cut.
    pub(crate) fn whole(self) -> Self {
        Self { width: None, ..self }
    }

    /// Prints rows; `columns` are what the table shows and the order of CSV columns.
    pub(crate) fn rows(self, rows: &[Row], columns: &[&str]) -> io::Result<()> {
        if self.format == OutputFormat::Table {
            let table = self.fitted(rows, columns);
            self.text(&table.text)?;
            note_hidden(&table);
            return Ok(());
        }
        let mut out = io::stdout().lock();
        self.write(&mut out, rows, columns)?;
        out.flush()
    }

    /// The same for a user at the terminal, whatever the format: through a pager, or until `stop` says so. Whether
    /// it came to its end.
    pub(crate) fn rows_until(self, rows: &[Row], columns: &[&str], stop: impl Fn() -> bool) -> io::Result<bool> {
        if self.format == OutputFormat::Table {
            let table = self.fitted(rows, columns);
            let is_whole = pager::show_until(&table.text, self.may_page, stop)?;
            note_hidden(&table);
            return Ok(is_whole);
        }
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

    /// Whether nothing is left out or cut: only a table can be.
    pub(crate) fn is_fitting(self, rows: &[Row], columns: &[&str]) -> bool {
        self.format != OutputFormat::Table || self.fitted(rows, columns).note().is_none()
    }

    /// The lines of a table, times in the zone.
    pub(crate) fn table(self, rows: &[Row], columns: &[&str]) -> String {
        self.fitted(rows, columns).text
    }

    fn fitted(self, rows: &[Row], columns: &[&str]) -> FittedTable {
        let of = |form: TimeForm| -> Vec<TableColumn> {
            let column = |name: &&str| self.column(rows, name, form);
            columns.iter().map(column).collect()
        };
        let full = of(TimeForm::Full);
        match self.width {
            Some(width) if !table_layout::is_fitting(&full, width) => table_layout::fitted(of(TimeForm::Narrow), width),
            _ => table_layout::whole(&full),
        }
    }

    fn column(self, rows: &[Row], name: &str, form: TimeForm) -> TableColumn {
        let cells = rows.iter().map(|row| self.cell(row, name, form)).collect();
        let is_text = !TIMES.contains(&name) && rows.iter().filter_map(|row| row.get(name)).any(may_be_cut);
        TableColumn::new(name, cells, is_text)
    }

    fn cell(self, row: &Row, column: &str, form: TimeForm) -> String {
        match row.get(column).unwrap_or(&Value::Null) {
            value if self.is_exact => plain(value),
            Value::String(text) if TIMES.contains(&column) => self.table_time(column, text, form),
            Value::Number(value) if MEASURED.contains(&column) => {
                let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
                // What the points of a bucket come to may be a count of them.
                let unit = match row.contains_key("samples") {
                    true => row.get(value_units::UNIT),
                    false => row.get("labels").and_then(|labels| labels.get("otel.unit")),
                };
                value_units::measured(&text(row.get("name")), &text(unit), value)
            }
            value => self.value(column, value),
        }
    }

    /// A time as a table has it: an age where that is what matters.
    fn table_time(self, column: &str, text: &str, form: TimeForm) -> String {
        let (Ok(at), Some(now)) = (text.parse::<Timestamp>(), self.now) else {
            return self.time(text);
        };
        let age = value_units::age(at, now).filter(|_| AGES.contains(&column));
        age.unwrap_or_else(|| match form {
            TimeForm::Full => self.zone.show(at),
            TimeForm::Narrow => self.zone.show_narrow(at, now),
        })
    }

    /// A value on one line, in the unit that its name says.
    pub(crate) fn value(self, name: &str, value: &Value) -> String {
        match value {
            Value::Number(number) => value_units::named(name, number),
            other => plain(other),
        }
    }

    /// A time of an answer in the zone, and how long ago it was.
    pub(crate) fn time_and_age(self, text: &str) -> String {
        let age = text
            .parse::<Timestamp>()
            .ok()
            .zip(self.now)
            .and_then(|(at, now)| value_units::age(at, now));
        let age = age.map_or_else(String::new, |age| format!(" ({age})"));
        format!("{}{age}", self.time(text))
    }

    /// A time of an answer in the zone; what is none as it is, without control characters.
    pub(crate) fn time(self, text: &str) -> String {
        text.parse()
            .map_or_else(|_| escape_controls(text).into_owned(), |at| self.zone.show(at))
    }
}

/// Says on standard error what of a table is not shown.
fn note_hidden(table: &FittedTable) {
    if let Some(note) = table.note() {
        let _ = writeln!(io::stderr(), "platform: {note}");
    }
}

/// Whether half of a value says something: a text does, an identifier, a word, a time or a bar does not.
fn may_be_cut(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let is_identifier = text.starts_with("SHA256:")
                || (text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'));
            let is_time = || text.len() <= LONGEST_TIME && text.parse::<Timestamp>().is_ok();
            let is_bar = || text.chars().all(|c| matches!(c, ' ' | '·' | '\u{2580}'..='\u{259f}'));
            let is_word = || text.len() <= LONGEST_WORD && !text.contains(char::is_whitespace);
            !is_identifier && !is_time() && !is_bar() && !is_word()
        }
        Value::Array(_) | Value::Object(_) => true,
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
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
mod tests;
