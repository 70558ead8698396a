//! Tail filter: which of the rows that came a tail shows.
//!
//! # Invariants
//!
//! - Many conditions on many rows hold no thread: others have their turn after each slice of rows.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use datafusion::arrow::array::BooleanBufferBuilder;
use datafusion::logical_expr::Expr;

use crate::Error;
use crate::data_scope::DataScope;
use crate::query_caller::QueryCaller;
use crate::scan::ScanFilter;

/// Which rows a tail shows.
pub(super) struct TailFilter {
    pub(super) scope: Arc<DataScope>,
    /// Whose the tail is, if that has places of its own.
    pub(super) caller: Option<Arc<QueryCaller>>,
    pub(super) conditions: Vec<Expr>,
    /// Both.
    pub(super) compiled: ScanFilter,
    /// Whether every row is let through.
    pub(super) all: bool,
}

impl TailFilter {
    /// How many of some rows, but for the first `skip`, are wanted, and which of all; `None` for all.
    pub(super) async fn matching_rows(
        &self,
        rows: &RecordBatch,
        skip: usize,
    ) -> Result<(usize, Option<BooleanArray>), Error> {
        let count = rows.num_rows();
        if self.all {
            return Ok((count - skip, None));
        }
        let mut kept = BooleanBufferBuilder::new(count);
        for slice in self.compiled.slices(rows) {
            match self.compiled.keep(&slice, || Ok::<_, Error>(()))? {
                Some(mask) => kept.append_buffer(mask.values()),
                None => kept.append_n(slice.num_rows(), true),
            }
            tokio::task::yield_now().await;
        }
        let kept = BooleanArray::new(kept.finish(), None);
        let wanted = kept.slice(skip, count - skip).true_count();
        Ok((wanted, Some(kept)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use datafusion::execution::session_state::SessionStateBuilder;
    use futures::FutureExt as _;
    use model::filter::LogFilter;
    use model::{Attributes, EntityId, Level, LogRecord, Table, TelemetryRecord as _, Timestamp};

    use super::*;
    use crate::filter;

    fn of_logs(filter: &LogFilter) -> TailFilter {
        let state = SessionStateBuilder::new().build();
        let conditions = filter::logs(filter);
        TailFilter {
            scope: Arc::default(),
            caller: None,
            compiled: ScanFilter::new(&state, Table::Logs, &conditions).unwrap(),
            all: conditions.is_empty(),
            conditions,
        }
    }

    fn rows(count: i64) -> RecordBatch {
        let row = |number: i64| LogRecord {
            ts: Timestamp::from_micros(number),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".to_owned(),
            flux_id: None,
            level: Level::Info,
            message: format!("row {number}"),
            attributes: Attributes::new().with("n", number),
        };
        LogRecord::to_batch(&(0..count).map(row).collect::<Vec<_>>()).unwrap()
    }

    #[tokio::test]
    async fn a_tail_that_filters_gives_others_their_turn_between_slices_and_finds_what_is_wanted() {
        let rows = rows(5_000);
        let all = of_logs(&LogFilter::default());
        let (wanted, kept) = all.matching_rows(&rows, 1_000).now_or_never().unwrap().unwrap();
        assert_eq!((wanted, kept), (4_000, None));
        // Each leaves out one row: what ends with it.
        let values: BTreeSet<String> = (4_900..5_000).map(|number: i64| format!("ROW {number}")).collect();
        let attributes = (0..90).map(|key| (format!("k{key}"), BTreeSet::from(["v".to_owned()])));
        let some = of_logs(&LogFilter {
            not_q: values,
            not_attributes: attributes.collect(),
            ..LogFilter::default()
        });
        assert!(
            some.matching_rows(&rows, 0).now_or_never().is_none(),
            "it holds its thread"
        );
        let (wanted, kept) = some.matching_rows(&rows, 1_000).await.unwrap();
        assert_eq!(wanted, 3_900);
        let kept = kept.unwrap();
        assert_eq!((kept.len(), kept.true_count()), (5_000, 4_900));
        assert!(kept.value(4_899) && !kept.value(4_900) && kept.value(0));
    }
}
