//! Table layout: which columns of a table fit a width, and how wide each of them is.
//!
//! Where all fit, each is as wide as its longest cell. Otherwise columns without any value are left out, then the least
//! important ones, until the rest fits with its texts cut to [`LEAST_TEXT`] cells. The texts share the room that is left.
//!
//! # Invariants
//!
//! - Numbers, identifiers, times, bars and short words are shown whole or not at all: half of one is a wrong one.
//! - The first column stays, and so does what the next command needs: the first of [`IDS`], and keys. Should they have no room, their
//!   lines are longer than the width.
//!
//! # Not here
//!
//! What a cell says (`output`): its control characters are escaped already.

use std::cmp::Reverse;

use crate::control_chars::escape_controls;
use crate::terminal::{fit, text_width};

/// Blanks between two columns.
const GAP: usize = 2;
/// The fewest cells that a text is cut to.
const LEAST_TEXT: usize = 10;
/// A cell that is longer is not what the others are padded to.
const LONGEST_PADDING: usize = 512;
/// What is left out before a text is cut to fewer cells than this …
const ROOMY_TEXT: usize = 40;
/// … is the first so many of these …
const DETAILS: usize = 20;
/// … and then the others, the first of them first, and columns from the end, until texts have [`LEAST_TEXT`].
const EXPENDABLE: [&str; 29] = [
    "span_id",
    "entity_id",
    "hash",
    "software",
    "ip",
    "quotas",
    "created_by",
    "limit_bytes",
    "content_type",
    "open_files",
    "hot_rows",
    "is_paused",
    "failed_values",
    "port",
    "attempts",
    "replays",
    "direction",
    "trace_id",
    "flux_id",
    "from",
    "host",
    "id",
    "last_seen",
    "gears",
    "entity_name",
    "state",
    "name",
    "rack",
    "service",
];
/// What a row can be asked for by; a table keeps the first that it has.
const IDS: [&str; 7] = ["flux_id", "trace_id", "id", "name", "rack", "wire", "service"];
/// What nobody types, and a Rack is approved by.
const KEY: &str = "key_fingerprint";

/// A column, with a cell for each row.
#[derive(Debug)]
pub(crate) struct TableColumn {
    name: String,
    header: String,
    cells: Vec<String>,
    /// Whether its cells may be cut.
    is_text: bool,
    /// The cells of the longest one, or of the header.
    width: usize,
}

impl TableColumn {
    pub(crate) fn new(name: &str, cells: Vec<String>, is_text: bool) -> Self {
        let header = escape_controls(&name.to_uppercase()).into_owned();
        let widest = cells.iter().map(|cell| text_width(cell)).max().unwrap_or(0);
        Self {
            name: name.to_owned(),
            width: widest.max(text_width(&header)),
            header,
            cells,
            is_text,
        }
    }

    /// Its width where texts have `cap` cells at most.
    fn shown(&self, cap: usize) -> usize {
        if self.is_text { self.width.min(cap) } else { self.width }
    }

    fn is_empty(&self) -> bool {
        !self.cells.is_empty() && self.cells.iter().all(String::is_empty)
    }
}

/// A table as it is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FittedTable {
    /// Its lines.
    pub(crate) text: String,
    /// The columns that have values and no room.
    pub(crate) left_out: Vec<String>,
    /// Whether a cell is cut.
    pub(crate) is_cut: bool,
}

impl FittedTable {
    /// What is not shown, if anything is.
    pub(crate) fn note(&self) -> Option<String> {
        match (self.left_out.as_slice(), self.is_cut) {
            ([], false) => None,
            ([], true) => Some("what ends with … is cut to fit the terminal; --wide shows it whole".to_owned()),
            (names, _) => Some(format!(
                "no room for {}; --wide shows all columns",
                escape_controls(&names.join(", "))
            )),
        }
    }
}

/// Whether all columns have room, whole.
pub(crate) fn is_fitting(columns: &[TableColumn], width: usize) -> bool {
    total(columns, usize::MAX) <= width
}

/// All columns, whole.
pub(crate) fn whole(columns: &[TableColumn]) -> FittedTable {
    FittedTable {
        text: lines(columns, usize::MAX),
        left_out: Vec::new(),
        is_cut: false,
    }
}

/// The columns that fit, their texts cut where they must be.
pub(crate) fn fitted(mut columns: Vec<TableColumn>, width: usize) -> FittedTable {
    let mut left_out = Vec::new();
    if !is_fitting(&columns, width) {
        let mut is_first = true;
        columns.retain(|column| std::mem::take(&mut is_first) || !column.is_empty());
    }
    let id = columns.iter().position(|column| IDS.contains(&column.name.as_str()));
    let id = id.map(|at| columns[at].name.clone());
    let is_needed = |column: &TableColumn| column.name == KEY || Some(&column.name) == id.as_ref();
    for column in &mut columns {
        column.is_text &= column.width > width || !is_needed(column);
    }
    for (room, ranks) in [(ROOMY_TEXT, DETAILS), (LEAST_TEXT, usize::MAX)] {
        while total(&columns, room) > width
            && let Some((rank, at)) = least_important(&columns, is_needed)
            && rank < ranks
        {
            left_out.push(columns.remove(at).name);
        }
    }
    let cap = text_cap(&columns, width);
    FittedTable {
        text: lines(&columns, cap),
        left_out,
        is_cut: columns.iter().any(|column| column.shown(cap) < column.width),
    }
}

/// The cells of a line where texts have `cap` cells at most.
fn total(columns: &[TableColumn], cap: usize) -> usize {
    let cells: usize = columns.iter().map(|column| column.shown(cap)).sum();
    cells + GAP * columns.len().saturating_sub(1)
}

/// The most cells that a text may have.
fn text_cap(columns: &[TableColumn], width: usize) -> usize {
    if is_fitting(columns, width) {
        return usize::MAX;
    }
    let caps = (LEAST_TEXT..width).rev();
    caps.into_iter()
        .find(|cap| total(columns, *cap) <= width)
        .unwrap_or(LEAST_TEXT)
}

/// Which of the columns behind the first is left out next, of those that are not needed: of those that matter as little, the last.
/// Its rank among all, and its place.
fn least_important(columns: &[TableColumn], is_needed: impl Fn(&TableColumn) -> bool) -> Option<(usize, usize)> {
    let rank = |at: usize| {
        let found = EXPENDABLE.iter().position(|name| *name == columns[at].name);
        found.unwrap_or(EXPENDABLE.len())
    };
    let behind = (1..columns.len()).filter(|at| !is_needed(&columns[*at]));
    behind
        .map(|at| (rank(at), at))
        .min_by_key(|(rank, at)| (*rank, Reverse(*at)))
}

fn lines(columns: &[TableColumn], cap: usize) -> String {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut text = String::new();
    put(&mut text, columns, cap, |column| &column.header);
    for at in 0..rows {
        put(&mut text, columns, cap, |column| &column.cells[at]);
    }
    text
}

/// Adds a line.
fn put(text: &mut String, columns: &[TableColumn], cap: usize, cell: impl Fn(&TableColumn) -> &String) {
    let mut line = String::new();
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        let (cell, width) = (cell(column), column.shown(cap));
        if width < column.width {
            line.push_str(&fit(cell, width));
        } else {
            let padding = width.min(LONGEST_PADDING).saturating_sub(text_width(cell));
            line.push_str(cell);
            line.push_str(&" ".repeat(padding));
        }
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn column(name: &str, cell: &str, is_text: bool) -> TableColumn {
        TableColumn::new(name, vec![cell.to_owned()], is_text)
    }

    fn spans() -> Vec<TableColumn> {
        vec![
            column("ts", "10:00:00.000", false),
            column("trace_id", "0af7651916cd43dd8448eb211c80319c", false),
            column("span_id", "00000000000000a1", false),
            column("flux_id", "0198c0de-0000-7000-8000-000000000001", false),
            column("span_name", "a long name of an operation", true),
            column("status", "ok", true),
            column("note", "", true),
        ]
    }

    #[test]
    fn what_does_not_fit_is_left_out_or_cut_and_told() {
        let table = fitted(spans(), 200);
        assert_eq!((table.left_out.len(), table.is_cut, table.note()), (0, false, None));
        assert!(table.text.contains("NOTE"), "{}", table.text);

        let table = fitted(spans(), 139);
        assert!(!table.text.contains("NOTE"), "nothing is in it: {}", table.text);
        assert_eq!((table.left_out.len(), table.is_cut), (0, false));

        let table = fitted(spans(), 70);
        assert_eq!(table.left_out, ["span_id", "flux_id"]);
        assert_eq!(
            table.text,
            "TS            TRACE_ID                          SPAN_NAME       STATUS\n\
             10:00:00.000  0af7651916cd43dd8448eb211c80319c  a long name o…  ok\n"
        );
        assert_eq!(
            table.note().as_deref(),
            Some("no room for span_id, flux_id; --wide shows all columns")
        );
        assert!(whole(&spans()).text.contains("SPAN_ID"));
    }

    #[test]
    fn what_the_next_command_needs_stays_whole_and_so_does_the_first_column() {
        let key = format!("SHA256:{}", "k".repeat(43));
        let racks = || {
            vec![
                column("name", "a-long-name-of-a-rack", true),
                column("id", "0198c0de-0000-7000-8000-000000000001", false),
                column("state", "pending", true),
                column("last_seen", "3 s ago", false),
                column("host", "press-7.plant.example", true),
                column("key_fingerprint", &key, false),
            ]
        };
        let table = fitted(racks(), 90);
        assert_eq!(table.left_out, ["host", "id", "last_seen"]);
        assert_eq!(
            table.text,
            format!("NAME                   STATE    KEY_FINGERPRINT\na-long-name-of-a-rack  pending  {key}\n")
        );
        let roomy = fitted(racks(), 120);
        assert_eq!(roomy.left_out, ["host", "id"]);
        let row = |columns, width| fitted(columns, width).text.lines().nth(1).map(str::to_owned);
        assert_eq!(row(racks(), 60), Some(format!("a-long-name-of-a-rack  {key}")));
        let trace = "10:00:00.000  0af7651916cd43dd8448eb211c80319c".to_owned();
        assert_eq!(row(spans(), 5), Some(trace));
    }

    #[test]
    fn a_long_cell_pads_nothing() {
        let columns = [
            TableColumn::new("a", vec!["x".repeat(100_000), String::new()], true),
            TableColumn::new("b", vec!["1".to_owned(), "2".to_owned()], false),
        ];
        let longest = whole(&columns).text.lines().last().map(str::len);
        assert_eq!(longest, Some(LONGEST_PADDING + GAP + 1));
    }

    proptest! {
        #[test]
        fn a_table_of_texts_never_exceeds_its_width(
            cells in prop::collection::vec(crate::test_strings::text(), 1..8),
            width in 12usize..120,
        ) {
            let column = |(at, cell): (usize, &String)| column(&format!("c{at}"), &escape_controls(cell), true);
            let columns: Vec<TableColumn> = cells.iter().enumerate().map(column).collect();
            let table = fitted(columns, width);
            prop_assert_eq!(table.text.lines().count(), 2);
            for line in table.text.lines() {
                prop_assert!(text_width(line) <= width, "{} > {width}: {line:?}", text_width(line));
            }
        }
    }
}
