//! The pieces that a plan reads, and what is known of them.

use std::sync::Arc;

use arrow_schema::{Schema, SortOptions};
use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use engine::{Run, Segment};
use model::Timestamp;

use super::Order;
use crate::window::Window;

/// More sorted groups than this that overlap each other are merged cheaper by a top-k than by holding all of them open.
pub(super) const MOST_MERGED: usize = 8;

/// A segment, or one of its runs.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) segment: Arc<Segment>,
    pub(super) run: Option<Run>,
}

impl Piece {
    fn whole(segment: &Arc<Segment>) -> Self {
        Self {
            segment: Arc::clone(segment),
            run: None,
        }
    }

    /// The sorted pieces of a sealed segment.
    fn sorted(segment: &Arc<Segment>) -> Vec<Self> {
        let run = |run: &Run| Self {
            segment: Arc::clone(segment),
            run: Some(*run),
        };
        if segment.runs.is_empty() {
            vec![Self::whole(segment)]
        } else {
            segment.runs.iter().map(run).collect()
        }
    }

    fn rows(&self) -> u64 {
        self.run.map_or(self.segment.rows, |run| run.rows)
    }

    fn min_ts(&self) -> Timestamp {
        self.run.map_or(self.segment.min_ts, |run| run.min_ts)
    }

    fn max_ts(&self) -> Timestamp {
        self.run.map_or(self.segment.max_ts, |run| run.max_ts)
    }
}

pub(super) fn statistics(schema: &Schema, piece: &Piece) -> Statistics {
    let exact =
        |ts: Timestamp| Precision::Exact(ScalarValue::TimestampMicrosecond(Some(ts.micros()), Some("UTC".into())));
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = usize::try_from(piece.rows()).map_or(Precision::Absent, Precision::Exact);
    if let Some(ts) = statistics.column_statistics.first_mut() {
        ts.min_value = exact(piece.min_ts());
        ts.max_value = exact(piece.max_ts());
        ts.null_count = Precision::Exact(0);
    }
    statistics
}

/// `ts DESC`, as sealed segments are sorted.
pub(super) fn newest_first() -> LexOrdering {
    let options = SortOptions {
        descending: true,
        nulls_first: true,
    };
    [PhysicalSortExpr::new(Arc::new(Column::new("ts", 0)), options)].into()
}

/// The sorted pieces within a window of files whose order helps, and the other files.
pub(super) fn arrange(files: &[Arc<Segment>], window: Window, order: Order) -> (Vec<Piece>, Vec<Piece>) {
    let helps = |file: &&Arc<Segment>| order == Order::NewestFirst && file.sealed;
    let (sealed, other): (Vec<_>, Vec<_>) = files.iter().partition(helps);
    let sorted = sealed.into_iter().flat_map(Piece::sorted);
    (
        sorted
            .filter(|piece| window.meets(piece.min_ts(), piece.max_ts()))
            .collect(),
        other.into_iter().map(Piece::whole).collect(),
    )
}

/// At most `parts` hands, dealt round.
pub(super) fn dealt<T>(items: Vec<T>, parts: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..parts.min(items.len())).map(|_| Vec::new()).collect();
    let count = hands.len().max(1);
    for (index, item) in items.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(index % count) {
            hand.push(item);
        }
    }
    hands
}
