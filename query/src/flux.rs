//! One business signal: its messages, spans and log records, in time order.
//!
//! # Which rows
//!
//! | part | rows |
//! |---|---|
//! | messages | that carry the signal's id |
//! | spans, logs | that carry it |
//! | spans, logs of its traces | that carry none, and a trace that rows with the id carry |
//!
//! The parts have no row in common, so none comes twice. A row of the same trace that carries another id is another signal's.
//!
//! # Order
//!
//! `ts`; of one `ts` messages, spans, spans of its traces, logs, logs of its traces; within a part the hash of [`crate::cursor`].
//!
//! # Where is looked
//!
//! Everywhere within the time asked for, and that is all that is stored if none is given: indexes say which files have an id, and no
//! clock has to be trusted. What an id of version 7 says of its time would leave out rows of a Rack whose clock is a day behind.
//!
//! ```text
//! the parts with the id, limit + 1 rows each ─> their traces ─> the parts of these, the same ─> merged, cut, one table
//!                                               └ asked of a plan, if these rows are not all there are
//! ```
//!
//! # Invariants
//!
//! - Following `next_cursor` gives every row that was there at the first page exactly once: the traces are those of all rows with the
//!   id within the window, however many pages they have.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Expr, ident};
use model::filter::{RawForm, SortOrder};
use model::{FluxId, Table, TraceId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cursor::{KeysetPosition, PageCursor};
use crate::keyset_pagination::{self, PositionedRows};
use crate::query_result::{ListAnswer, QueryStats};
use crate::query_scan::QueryScan;
use crate::scalar_functions::{field_text, texts};
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;
use crate::{Error, filter, message_rendering};

/// Of a signal in more traces than this, rows without the id are looked for in so many of them: an index is asked for no more.
const MOST_TRACES: usize = 100;

/// The columns of an answer, each with a table that has it.
const COLUMNS: [(&str, Table); 19] = [
    ("ts", Table::Messages),
    ("flux_id", Table::Messages),
    ("trace_id", Table::Messages),
    ("entity_id", Table::Messages),
    ("entity_name", Table::Messages),
    ("src_gear_id", Table::Messages),
    ("dst_gear_id", Table::Messages),
    ("msg_type", Table::Messages),
    ("direction", Table::Messages),
    ("span_id", Table::Traces),
    ("parent_span_id", Table::Traces),
    ("span_name", Table::Traces),
    ("duration_ms", Table::Traces),
    ("status", Table::Traces),
    ("level", Table::Logs),
    ("message", Table::Logs),
    ("attributes", Table::Logs),
    ("promoted", Table::Messages),
    (message_rendering::RAW, Table::Messages),
];

/// Those that rows of all kinds have; what a row lacks of the others, objects leave out.
const COMMON: [&str; 3] = ["ts", "entity_id", "entity_name"];

/// A part of the answer, in their order at one `ts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FluxPart {
    Messages,
    Spans,
    SpansOfTraces,
    Logs,
    LogsOfTraces,
}

impl FluxPart {
    /// Those that carry the id.
    const OF_FLUX: [Self; 3] = [Self::Messages, Self::Spans, Self::Logs];
    /// Those that carry only a trace.
    const OF_TRACES: [Self; 2] = [Self::SpansOfTraces, Self::LogsOfTraces];

    const fn table(self) -> Table {
        match self {
            Self::Messages => Table::Messages,
            Self::Spans | Self::SpansOfTraces => Table::Traces,
            Self::Logs | Self::LogsOfTraces => Table::Logs,
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Messages => "message",
            Self::Spans | Self::SpansOfTraces => "span",
            Self::Logs | Self::LogsOfTraces => "log",
        }
    }
}

/// Where a page ends: in which part, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FluxPosition {
    #[serde(rename = "k")]
    part: FluxPart,
    #[serde(rename = "r")]
    position: KeysetPosition,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FluxRequest {
    pub(crate) id: FluxId,
    pub(crate) limit: usize,
    pub(crate) after: Option<FluxPosition>,
    pub(crate) fingerprint: u64,
    pub(crate) raw: RawForm,
}

/// The rows of a part.
struct FluxPartRows {
    part: FluxPart,
    rows: PositionedRows,
}

/// One look at a signal: at each of its tables in one view.
pub(crate) struct FluxScan {
    asked: FluxRequest,
    messages: QueryScan,
    spans: QueryScan,
    logs: QueryScan,
}

impl FluxScan {
    pub(crate) fn new(messages: QueryScan, asked: FluxRequest) -> Result<Self, Error> {
        let beside = |table| messages.scan_table(table, messages.window, Vec::new());
        Ok(Self {
            asked,
            spans: beside(Table::Traces)?,
            logs: beside(Table::Logs)?,
            messages,
        })
    }

    const fn table(&self, part: FluxPart) -> &QueryScan {
        match part.table() {
            Table::Traces => &self.spans,
            Table::Logs => &self.logs,
            _ => &self.messages,
        }
    }

    /// The page, the oldest rows first.
    pub(crate) async fn page(self) -> Result<ListAnswer, Error> {
        let mut found = Vec::new();
        for part in FluxPart::OF_FLUX {
            let of_flux = vec![filter::flux(self.asked.id)];
            found.push(self.first(part, of_flux).await?);
        }
        let mut traces = self.traces(&found).await?;
        let cut = traces.len() > MOST_TRACES;
        traces = traces.into_iter().take(MOST_TRACES).collect();
        if !traces.is_empty() {
            for part in FluxPart::OF_TRACES {
                let of_traces = filter::of_traces_without_flux(part.table(), &traces);
                found.push(self.first(part, of_traces).await?);
            }
        }
        let about = json!({ "flux_id": self.asked.id, "trace_ids": traces, "trace_ids_truncated": cut });
        let sparse = COLUMNS.iter().map(|(name, _)| *name);
        let sparse = sparse.filter(|name| !COMMON.contains(name)).collect();
        let mut list = self.merge_page(&found)?;
        if cut {
            list.stats.add_partial_reason(&format!(
                "the signal is in more than {MOST_TRACES} traces: rows without its id are looked for in so many of them"
            ));
        }
        Ok(list.with_sparse(sparse).about("flux", about))
    }

    /// The first rows of a part that the page can have.
    async fn first(&self, part: FluxPart, conditions: Vec<Expr>) -> Result<FluxPartRows, Error> {
        let mut scan = self.table(part).scan_with(conditions)?;
        scan.order = SortOrder::Asc;
        let mut from = None;
        if let Some(FluxPosition { part: last, position }) = self.asked.after {
            let moment = position.moment();
            match part.cmp(&last) {
                std::cmp::Ordering::Less => scan.window = scan.window.from(TimeRange::at(moment).until),
                std::cmp::Ordering::Equal => from = Some(position),
                std::cmp::Ordering::Greater => scan.window = scan.window.from(moment),
            }
        }
        let rows = keyset_pagination::positioned_rows(&scan, self.asked.limit, from).await?;
        Ok(FluxPartRows { part, rows })
    }

    /// The traces of the rows with the id: one more than count, at most.
    async fn traces(&self, found: &[FluxPartRows]) -> Result<BTreeSet<TraceId>, Error> {
        let mut traces = BTreeSet::new();
        if self.asked.after.is_none() && found.iter().all(|found| !found.rows.more) {
            found.iter().try_for_each(|found| add_traces(found, &mut traces))?;
            return Ok(traces);
        }
        for part in FluxPart::OF_FLUX {
            let scan = self.table(part).scan_with(vec![filter::flux(self.asked.id)])?;
            let frame = scan.frame(scan.window, RowOrder::Any)?;
            let frame = frame.select(vec![filter::trace_of(part.table()).alias("trace")])?;
            let frame = frame.filter(ident("trace").is_not_null())?.distinct()?;
            let frame = frame.sort(vec![ident("trace").sort(true, false)])?;
            for batch in frame.limit(0, Some(MOST_TRACES + 1))?.collect().await? {
                traces.extend(texts(batch.column(0))?.flatten().filter_map(trace));
            }
        }
        Ok(traces)
    }

    /// The page: what comes first of all parts.
    fn merge_page(&self, found: &[FluxPartRows]) -> Result<ListAnswer, Error> {
        let limit = self.asked.limit;
        let mut places: Vec<(i64, FluxPart, u64, usize, usize)> = Vec::new();
        for (number, FluxPartRows { part, rows }) in found.iter().enumerate() {
            let of_part = rows.places.iter().enumerate();
            places.extend(of_part.map(|(row, (ts, hash))| (*ts, *part, *hash, number, row)));
        }
        places.sort_unstable();
        let more = places.len() > limit || found.iter().any(|found| found.rows.more);
        places.truncate(limit);
        let stats = self.stats(places.len());
        let held = self.messages.memory("flux");
        let Some((ts, part, hash, ..)) = places.last().copied() else {
            return match self.asked.after {
                None => Err(self.not_found()),
                Some(_) => ListAnswer::new(&merge_parts(found, &[], self.asked.raw, &held)?, None, stats),
            };
        };
        let next = more.then(|| {
            let equal = places
                .iter()
                .rev()
                .take_while(|place| (place.0, place.1, place.2) == (ts, part, hash));
            let before = self
                .asked
                .after
                .filter(|after| (after.part, after.position.ts, after.position.hash) == (part, ts, hash));
            let seen = before
                .map_or(0, |before| before.position.seen)
                .saturating_add(equal.count() as u64);
            let position = KeysetPosition { ts, hash, seen };
            PageCursor::new(
                self.asked.fingerprint,
                self.messages.window,
                FluxPosition { part, position },
            )
            .token()
        });
        let order: Vec<_> = places.iter().map(|(.., number, row)| (*number, *row)).collect();
        held.try_grow(found.iter().map(|found| found.rows.rows.get_array_memory_size()).sum())?;
        ListAnswer::new(&merge_parts(found, &order, self.asked.raw, &held)?, next, stats)
    }

    fn stats(&self, rows: usize) -> QueryStats {
        self.messages
            .stats(rows)
            .add_cost(self.spans.stats(0))
            .add_cost(self.logs.stats(0))
    }

    fn not_found(&self) -> Error {
        let place = "in the store within the time asked for: no message, span or log record carries the id, or they have not arrived, or \
                     are past their retention";
        self.messages
            .not_found("flux", self.asked.id.to_string(), place.to_owned())
    }
}

fn trace(text: &str) -> Option<TraceId> {
    text.parse().ok()
}

fn add_traces(found: &FluxPartRows, traces: &mut BTreeSet<TraceId>) -> Result<(), Error> {
    let rows = &found.rows.rows;
    let column = |name: &str| rows.column_by_name(name).map(texts).transpose();
    if found.part.table() == Table::Logs {
        let attributes = column("attributes")?.into_iter().flatten().flatten();
        traces.extend(attributes.filter_map(|text| trace(&field_text(text, "trace_id")?)));
    } else {
        traces.extend(column("trace_id")?.into_iter().flatten().flatten().filter_map(trace));
    }
    Ok(())
}

/// Rows of all parts, by the number of the part and of the row in it, as one table.
fn merge_parts(
    found: &[FluxPartRows],
    order: &[(usize, usize)],
    raw: RawForm,
    memory: &MemoryReservation,
) -> Result<RecordBatch, Error> {
    let shown = found.iter().map(|found| match found.part {
        FluxPart::Messages => message_rendering::render_messages(&found.rows.rows, raw, Some(memory)),
        _ => Ok(found.rows.rows.clone()),
    });
    let shown = shown.collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(schema(shown.first()));
    let batches = found.iter().zip(&shown).map(|(found, rows)| {
        let kinds = std::iter::repeat_n(found.part.kind(), rows.num_rows());
        let kinds: ArrayRef = Arc::new(StringArray::from_iter_values(kinds));
        let others = schema
            .fields()
            .iter()
            .skip(1)
            .map(|field| match rows.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), rows.num_rows()),
            });
        RecordBatch::try_new(Arc::clone(&schema), std::iter::once(kinds).chain(others).collect())
    });
    let batches = batches.collect::<Result<Vec<_>, _>>()?;
    if order.is_empty() {
        return Ok(RecordBatch::new_empty(schema));
    }
    Ok(interleave_record_batch(&batches.iter().collect::<Vec<_>>(), order)?)
}

/// The columns of the answer, beside messages as they are shown.
fn schema(messages: Option<&RecordBatch>) -> Schema {
    let field = |(name, table): (&str, Table)| -> Option<FieldRef> {
        let of_table = table.schema();
        let of_table = match messages {
            Some(messages) if table == Table::Messages => messages.schema(),
            _ => of_table,
        };
        let (_, field) = of_table.column_with_name(name)?;
        Some(Arc::new(field.clone().with_nullable(true)))
    };
    let kind = Arc::new(Field::new("kind", DataType::Utf8, false));
    let fields = std::iter::once(kind).chain(COLUMNS.into_iter().filter_map(field));
    Schema::new(fields.collect::<Vec<_>>())
}
