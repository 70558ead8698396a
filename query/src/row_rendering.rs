//! How the rows of lists are shown: messages with their bytes in a form, rows with their positions.

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use datafusion::execution::memory_pool::MemoryReservation;
use model::Timestamp;
use model::filter::{RawForm, RowPosition};

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
    /// Rows of a scan by their columns, with the `ts` and the hash of each. What is made of them counts in `memory`.
    pub(crate) fn render(
        self,
        scan: &QueryScan,
        (rows, places): (&RecordBatch, &[(i64, u64)]),
        next_cursor: Option<String>,
        memory: &MemoryReservation,
    ) -> Result<ListAnswer, Error> {
        let shown = message_rendering::render_messages(rows, self.raw, Some(memory))?;
        let list = ListAnswer::new(&shown, next_cursor, scan.stats(rows.num_rows()))?;
        if !self.positions {
            return Ok(list);
        }
        let position = |(ts, hash): &(i64, u64)| {
            let ts = Timestamp::from_micros(*ts);
            RowPosition { ts, hash: *hash }.to_string()
        };
        let positions = StringArray::from_iter_values(places.iter().map(position));
        list.with_column(POSITION, Arc::new(positions))
    }
}
