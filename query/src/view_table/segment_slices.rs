//! The pieces that a plan reads, their order, and how they are shared out.
//!
//! # Invariants
//!
//! - A chain is in the order `ts DESC` from its first row to its last.

use std::sync::Arc;

use arrow_schema::SortOptions;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use engine::{DataFileHandle, SortedRun};
use model::Timestamp;

use super::RowOrder;
use crate::time_range::TimeRange;

/// More chains than this are merged cheaper by a top-k than by holding all of them open.
const MAX_CHAINS: usize = 8;

/// A segment, or one of its runs.
#[derive(Debug, Clone)]
pub(super) struct SegmentSlice {
    pub(super) segment: Arc<DataFileHandle>,
    pub(super) run: Option<SortedRun>,
}

impl SegmentSlice {
    fn whole(segment: &Arc<DataFileHandle>) -> Self {
        Self {
            segment: Arc::clone(segment),
            run: None,
        }
    }

    /// The sorted pieces of a sealed segment.
    fn sorted(segment: &Arc<DataFileHandle>) -> Vec<Self> {
        let run = |run: &SortedRun| Self {
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

/// What is known of a piece: how many rows it has, and of columns their first, `ts`. Of the others nothing is known, and nothing is
/// said: a plan of thousands of files would keep some hundred bytes for each of their columns.
pub(super) fn statistics(piece: &SegmentSlice) -> Statistics {
    let exact =
        |ts: Timestamp| Precision::Exact(ScalarValue::TimestampMicrosecond(Some(ts.micros()), Some("UTC".into())));
    let ts = ColumnStatistics {
        min_value: exact(piece.min_ts()),
        max_value: exact(piece.max_ts()),
        null_count: Precision::Exact(0),
        ..ColumnStatistics::new_unknown()
    };
    Statistics {
        num_rows: usize::try_from(piece.rows()).map_or(Precision::Absent, Precision::Exact),
        total_byte_size: Precision::Absent,
        column_statistics: vec![ts],
    }
}

/// `ts DESC`, as sealed segments are sorted.
pub(super) fn newest_first() -> Option<LexOrdering> {
    let options = SortOptions {
        descending: true,
        nulls_first: true,
    };
    LexOrdering::new([PhysicalSortExpr::new(Arc::new(Column::new("ts", 0)), options)])
}

/// The chains of sorted pieces that are worth their order, and the other segments.
pub(super) fn arrange<'a>(
    files: impl Iterator<Item = &'a Arc<DataFileHandle>>,
    window: TimeRange,
    order: RowOrder,
) -> (Vec<Vec<SegmentSlice>>, Vec<SegmentSlice>) {
    if order == RowOrder::Any {
        return (Vec::new(), files.map(SegmentSlice::whole).collect());
    }
    let (sealed, open): (Vec<_>, Vec<_>) = files.partition(|file| file.sealed);
    let sorted = sealed.iter().copied().flat_map(SegmentSlice::sorted);
    let chains = chains(
        sorted
            .filter(|piece| window.overlaps(piece.min_ts(), piece.max_ts()))
            .collect(),
    );
    if chains.len() > MAX_CHAINS {
        return (
            Vec::new(),
            open.into_iter().chain(sealed).map(SegmentSlice::whole).collect(),
        );
    }
    (chains, open.into_iter().map(SegmentSlice::whole).collect())
}

/// As few chains as possible, newest first, in which each piece begins after the next one ends.
fn chains(mut pieces: Vec<SegmentSlice>) -> Vec<Vec<SegmentSlice>> {
    pieces.sort_by_key(|piece| std::cmp::Reverse((piece.max_ts(), piece.min_ts(), piece.segment.id)));
    let mut chains: Vec<Vec<SegmentSlice>> = Vec::new();
    for piece in pieces {
        let fits = |chain: &&mut Vec<SegmentSlice>| chain.last().is_some_and(|last| last.min_ts() > piece.max_ts());
        match chains.iter_mut().find(fits) {
            Some(chain) => chain.push(piece),
            None => chains.push(vec![piece]),
        }
    }
    chains
}

/// At most `parts` parts that keep the order: the first holds the newest pieces.
pub(super) fn contiguous(chain: &[SegmentSlice], parts: usize) -> Vec<Vec<SegmentSlice>> {
    let size = chain.len().div_ceil(parts).max(1);
    chain.chunks(size).map(<[_]>::to_vec).collect()
}

/// At most `parts` hands, dealt round.
pub(super) fn round_robin<T>(items: Vec<T>, parts: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..parts.min(items.len())).map(|_| Vec::new()).collect();
    let count = hands.len().max(1);
    for (index, item) in items.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(index % count) {
            hand.push(item);
        }
    }
    hands
}
