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

/// What is printed so far.
#[derive(Debug)]
pub(crate) struct KeyValueView {
    printer: RowPrinter,
    text: String,
}

impl KeyValueView {
    pub(crate) const fn new(printer: RowPrinter) -> Self {
        Self {
            printer,
            text: String::new(),
        }
    }

    /// Adds a line; a value of several lines goes on below itself.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        let lines = value.lines().map(escape_controls).collect::<Vec<_>>();
        let line = format!("{:<13} {}", escape_controls(name), lines.join(&format!("\n{:14}", "")));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
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
        self.text
    }
}
