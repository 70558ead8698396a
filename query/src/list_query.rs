//! A list query: which rows of which table.
//!
//! Not here: its page and its tag (`query_engine::lists`).

use datafusion::logical_expr::Expr;
use model::filter::{
    DeadLetterFilter, FluxFilter, LetterFilter, LogFilter, MessageFilter, MetricFilter, TimePoint, TraceFilter,
};
use model::{FluxId, Table};

use crate::cursor::fingerprint;
use crate::filter;
use crate::row_query::RowQuery;

/// Which rows are asked for.
#[derive(Debug, Clone)]
pub enum ListQuery {
    /// Log records.
    Logs(LogFilter),
    /// Spans.
    Traces(TraceFilter),
    /// Metric points, or their aggregates.
    Metrics(MetricFilter),
    /// Business messages.
    Messages(MessageFilter),
    /// Telemetry that could not be decoded.
    DeadLetters(DeadLetterFilter),
    /// One business signal: its messages, spans and log records, the oldest first.
    Flux(FluxId, FluxFilter),
    /// The rows that letters of the dead-letter queue can be among: what the filter says of their state is not met here.
    Letters(LetterFilter),
}

/// The rows of a table that a filter with an offset asks for.
macro_rules! rows_of {
    ($table:ident, $filter:ident) => {
        RowQuery::new(
            (Table::$table, fingerprint($filter)),
            ($filter.since, $filter.until),
            ($filter.limit, $filter.offset, &$filter.cursor),
        )
    };
}

impl ListQuery {
    pub(crate) fn row_query(&self) -> RowQuery {
        match self {
            Self::Logs(filter) => RowQuery {
                order: filter.order,
                flux_id: filter.flux_id,
                ..rows_of!(Logs, filter)
            },
            Self::Traces(filter) => RowQuery {
                order: filter.order,
                flux_id: filter.flux_id,
                ..rows_of!(Traces, filter)
            },
            Self::Metrics(filter) => rows_of!(Metrics, filter),
            Self::Messages(filter) => RowQuery {
                order: filter.order,
                flux_id: filter.flux_id,
                raw: filter.raw.unwrap_or_default(),
                ..rows_of!(Messages, filter)
            },
            Self::DeadLetters(filter) => rows_of!(DeadLetters, filter),
            Self::Flux(id, filter) => RowQuery {
                also: &[Table::Traces, Table::Logs],
                raw: filter.raw.unwrap_or_default(),
                ..RowQuery::new(
                    (Table::Messages, fingerprint(filter) ^ fingerprint(id)),
                    (Some(filter.since.unwrap_or(TimePoint::EVER)), filter.until),
                    (filter.limit, None, &filter.cursor),
                )
            },
            Self::Letters(filter) => RowQuery::new(
                (Table::DeadLetters, fingerprint(filter)),
                (Some(filter.since.unwrap_or(TimePoint::EVER)), filter.until),
                (filter.limit, None, &filter.cursor),
            ),
        }
    }

    pub(crate) fn conditions(&self) -> Vec<Expr> {
        match self {
            Self::Logs(filter) => filter::logs(filter),
            Self::Traces(filter) => filter::traces(filter),
            Self::Metrics(filter) => filter::metrics(filter),
            Self::Messages(filter) => filter::messages(filter),
            Self::DeadLetters(_) | Self::Flux(..) => Vec::new(),
            Self::Letters(filter) => filter::letters(filter),
        }
    }
}
