//! One file per noun. Each takes its parsed flags, asks the Mixer, prints.

pub(crate) mod config;
pub(crate) mod gears;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod racks;
pub(crate) mod scenario;
pub(crate) mod storage;
pub(crate) mod traces;

use std::io::Write;

use crate::client::Page;

/// Says on standard error what the answer left out.
fn notes(page: &Page) {
    let mut out = std::io::stderr().lock();
    if let Some(reason) = &page.partial {
        let _ = writeln!(out, "platform: the answer is partial: {reason}");
    }
    if page.next_cursor.is_some() {
        let _ = writeln!(
            out,
            "platform: there are more rows; raise --limit or narrow --since/--until"
        );
    }
}
