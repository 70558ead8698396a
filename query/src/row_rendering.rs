//! How the rows of lists are shown: messages with their bytes in a form, rows with their positions.

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use datafusion::execution::memory_pool::MemoryReservation;
use model::Timestamp;
use model::filter::{RawForm, RowPosition};

use crate::cursor::RowPlace;
use crate::query_result::ListAnswer;
use crate::query_scan::QueryScan;
use crate::{Error, message_rendering};

/// The column of rows' positions.
const POSITION: &str = "position";

/// How rows are shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowRendering {
    /// The bytes of messages.
    pub(crate) raw: RawForm,
    /// Whether each says its position.
    pub(crate) positions: bool,
}

impl RowRendering {
    /// Rows of a scan by their columns, with the place of each, and how many equal rows come before the first. What is made of them
    /// counts in `memory`.
    pub(crate) fn render(
        self,
        scan: &QueryScan,
        (rows, places, equal_before): (&RecordBatch, &[RowPlace], u64),
        next_cursor: Option<String>,
        memory: &MemoryReservation,
    ) -> Result<ListAnswer, Error> {
        let shown = message_rendering::render_messages(rows, self.raw, Some(memory))?;
        let list = ListAnswer::new(&shown, next_cursor, scan.stats(rows.num_rows()))?;
        if !self.positions {
            return Ok(list);
        }
        list.with_column(POSITION, Arc::new(positions(places, equal_before)))
    }
}

/// The positions of rows in order, of which so many equal ones come before the first.
fn positions(places: &[RowPlace], equal_before: u64) -> StringArray {
    let mut nth = u32::try_from(equal_before).unwrap_or(u32::MAX);
    let mut before = places.first();
    let texts = places.iter().enumerate().map(|(row, place)| {
        if before.replace(place) != Some(place) {
            nth = 0;
        } else if row > 0 {
            nth = nth.saturating_add(1);
        }
        let (ts, hash) = *place;
        let ts = Timestamp::from_micros(ts);
        RowPosition { ts, hash, nth }.to_string()
    });
    StringArray::from_iter_values(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_are_numbered_and_go_on_from_those_of_earlier_pages() {
        let numbers = |places: &[RowPlace], equal_before| {
            let positions = positions(places, equal_before);
            let numbers = positions.iter().flatten().map(|text| text[32..].to_owned());
            numbers.collect::<Vec<_>>().join(" ")
        };
        let places = [(7, 1), (7, 1), (7, 2), (6, 2), (6, 2), (6, 2)];
        let expected = "00000000 00000001 00000000 00000000 00000001 00000002";
        assert_eq!(numbers(&places, 0), expected);
        let expected = "00000005 00000006 00000000 00000000 00000001 00000002";
        assert_eq!(numbers(&places, 5), expected);
        assert_eq!(numbers(&places[1..3], u64::MAX), "ffffffff 00000000");
        assert_eq!(numbers(&[], 3), "");
    }
}
