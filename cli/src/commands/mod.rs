//! One file per noun. Each takes its parsed flags, asks the Mixer, prints.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod config;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod flux;
pub(crate) mod gears;
pub(crate) mod join;
pub(crate) mod logs;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod program;
pub(crate) mod racks;
pub(crate) mod requests;
pub(crate) mod scenario;
pub(crate) mod schema;
pub(crate) mod spec;
pub(crate) mod sql;
pub(crate) mod storage;
pub(crate) mod tail;
pub(crate) mod tap;
mod timeline;
pub(crate) mod tokens;
pub(crate) mod traces;
pub(crate) mod wires;

use std::io::{self, Write};

use crate::client::ResultPage;
use crate::control_chars::escape_controls;
use crate::error::Error;

/// What an answer without rows means where rows were expected.
const NO_ROWS: &str = "no rows in this window (--since, --until; default: the last 24 h); `platform racks list` shows \
                       who reports, --wait 30s waits for the first row";

/// Says on standard error that there are rows behind the page, or `none` if there is nothing in it. An error if it is partial.
fn notes(page: &ResultPage, none: &str) -> Result<(), Error> {
    if page.rows.is_empty() {
        note(none);
    }
    if page.next_cursor.is_some() {
        note("there are more rows; raise --limit or narrow --since/--until");
    }
    Error::if_partial(page.partial.clone())
}

/// Says something on standard error.
fn note(says: &str) {
    let _ = writeln!(io::stderr(), "platform: {}", escape_controls(says));
}
