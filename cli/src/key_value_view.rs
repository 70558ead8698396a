//! Key-value view of one thing for people: a line for each known field.
//!
//! # Invariants
//!
//! - Nothing that is stored reaches the terminal as it is: names and values are escaped, line breaks of values are indented.
//!
//! # Not here
//!
//! Many things (tables: [`crate::output`]).

use serde_json::Value;

use crate::client::Row;
use crate::control_chars::escape_controls;
use crate::output::RowPrinter;

/// The cells that names have at least; longer ones than the second push no value aside.
const NAME_WIDTHS: (usize, usize) = (13, 24);

/// What is printed so far.
#[derive(Debug)]
pub(crate) struct KeyValueView {
    printer: RowPrinter,
    /// Names, and the lines of their values.
    entries: Vec<(String, Vec<String>)>,
}

impl KeyValueView {
    pub(crate) const fn new(printer: RowPrinter) -> Self {
        Self {
            printer,
            entries: Vec::new(),
        }
    }

    /// Adds a line; a value of several lines goes on below itself.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        let lines = value.lines().map(|line| escape_controls(line).into_owned());
        self.entries.push((escape_controls(name).into_owned(), lines.collect()));
    }

    /// Adds a line for each of these keys that has a value; those of `times` are shown in the zone.
    pub(crate) fn add_keys(&mut self, row: &Row, keys: &[&str], times: &[&str]) {
        for key in keys {
            match row.get(*key).unwrap_or(&Value::Null) {
                Value::Null => {}
                Value::String(time) if times.contains(key) => {
                    let time = self.printer.time_and_age(time);
                    self.add(key, &time);
                }
                value => self.add(key, &self.printer.value(key, value)),
            }
        }
    }

    pub(crate) fn finish(self) -> String {
        let widths = self.entries.iter().map(|(name, _)| name.chars().count());
        let (usual, most) = NAME_WIDTHS;
        let width = widths.filter(|width| *width <= most).max().unwrap_or(usual).max(usual);
        let mut text = String::new();
        for (name, lines) in &self.entries {
            let below = format!("\n{:width$} ", "");
            text.push_str(format!("{name:<width$} {}", lines.join(&below)).trim_end());
            text.push('\n');
        }
        text
    }
}
