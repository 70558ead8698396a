//! One filter, three uses: the query string of the REST API, the input of the plans, the flags of the CLI.
//!
//! Every field is optional. Names are the specification's; what the CLI has and the REST table lacks (`min_level`,
//! `entity`, `name`, `limit`) is accepted by both (docs/adr/0005-filters.md).
//!
//! # Invariants
//!
//! - Unknown parameters are errors. An empty filter asks for the newest rows of the last 24 hours.
//! - `since` and `until` are moments or ages; an age counts back from the time of the request.
//! - A field whose name ends with [`ANY_KEY`] holds the parameters of a family, by what they have in the place of it:
//!   `attr.http.status=500` is the entry `http.status` of `attr.<key>`. The value is compared with the text of a JSON
//!   scalar: `500` meets the number 500 and the text "500".
//! - What begins with `not.` excludes rows that have one of its values, and may be given more than once. Of these and of families'
//!   parameters a request has [`MAX_CONDITIONS`] at most.

mod param_values;
mod row_position;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FluxId, HumanDuration, Level, MessageDirection, SpanStatus, TraceId};

pub use param_values::{
    BucketShape, DURATION, HistogramGrouping, LetterStateFilter, MetricAggregate, POSITIVE_DURATION, RawForm,
    SortOrder, TimePoint,
};

pub use row_position::RowPosition;

/// In the name of a family of parameters, the place of the key.
pub const ANY_KEY: &str = "<key>";
/// A family's values by their keys.
pub type KeyedValues = BTreeMap<String, String>;
/// A family's values by their keys, where one may be given more than once.
pub type KeyedValueSets = BTreeMap<String, BTreeSet<String>>;

/// The default number of rows.
pub const DEFAULT_LIMIT: u32 = 100;
/// The greatest number of rows one answer holds.
pub const MAX_LIMIT: u32 = 10_000;

/// The least and the greatest size that cells are cut to.
pub const MIN_CELL: u32 = 64;
/// See [`MIN_CELL`].
pub const MAX_CELL: u32 = 1 << 20;

/// The default number of rows before and after one.
pub const DEFAULT_CONTEXT: u32 = 20;
/// The greatest number of rows before one, and after it.
pub const MAX_CONTEXT: u32 = 1_000;

/// The greatest number of parameters of families and of those that leave rows out that one request has in all: each may be a look at
/// every row.
pub const MAX_CONDITIONS: usize = 100;

/// A number of rows that no page can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not between 1 and {MAX_LIMIT}: page on with next_cursor")]
pub struct BadLimit(u32);

/// The rows of a page, of a filter's `limit`.
///
/// # Errors
/// [`BadLimit`].
pub fn page_size(limit: Option<u32>) -> Result<usize, BadLimit> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(BadLimit(limit));
    }
    Ok(limit as usize)
}

/// How far back a query without `since` looks.
pub const DEFAULT_WINDOW: HumanDuration = HumanDuration::from_secs(24 * 3600);

/// Declares filters: a field that has its default is not written, and one that is not declared is refused.
macro_rules! filters {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$says:meta])* pub $field:ident: $kind:ty,)* })*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name { $(
            $(#[$says])*
            #[serde(skip_serializing_if = "is_default")]
            pub $field: $kind,
        )* }
    )* };
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

filters! {
    /// Which log records.
    pub struct LogFilter {
        /// Exactly this level.
        pub level: Option<Level>,
        /// This level and above.
        pub min_level: Option<Level>,
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// A Rack's entity id or name.
        pub rack_id: Option<String>,
        /// The attribute `gear.id`.
        pub gear_id: Option<String>,
        /// An entity's name or id.
        pub entity: Option<String>,
        /// The service: the attribute `resource.service.name`, of records without it the entity's name.
        pub service: Option<String>,
        /// The business signal.
        pub flux_id: Option<FluxId>,
        /// The attribute `trace_id`.
        pub trace_id: Option<TraceId>,
        /// A part of the message, case-insensitive.
        pub q: Option<String>,
        /// Attributes with these values: `attr.http.status=500` for the key `http.status`. Compared with the text of a
        /// scalar.
        #[serde(rename = "attr.<key>")]
        pub attributes: KeyedValues,
        /// Exclude these levels.
        #[serde(rename = "not.level")]
        pub not_level: BTreeSet<Level>,
        /// Exclude these entities, by name or id.
        #[serde(rename = "not.entity")]
        pub not_entity: BTreeSet<String>,
        /// Exclude these services.
        #[serde(rename = "not.service")]
        pub not_service: BTreeSet<String>,
        /// Exclude messages with one of these parts, case-insensitive.
        #[serde(rename = "not.q")]
        pub not_q: BTreeSet<String>,
        /// Exclude these values of attributes: `not.attr.http.status=200`. A record that lacks the attribute stays.
        #[serde(rename = "not.attr.<key>")]
        pub not_attributes: KeyedValueSets,
        /// Which rows come first.
        pub order: Option<SortOrder>,
        /// At most so many rows; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Skip so many rows.
        pub offset: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// Which spans.
    pub struct TraceFilter {
        /// The business signal.
        pub flux_id: Option<FluxId>,
        /// The trace.
        pub trace_id: Option<TraceId>,
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// Minimum duration in milliseconds.
        #[schemars(range(max = u32::MAX))]
        pub min_duration_ms: Option<u32>,
        /// The outcome.
        pub status: Option<SpanStatus>,
        /// An entity's name or id.
        pub entity: Option<String>,
        /// The service: the attribute `resource.service.name`, of spans without it the entity's name.
        pub service: Option<String>,
        /// The operation.
        pub span_name: Option<String>,
        /// Attributes with these values: `attr.http.status=500` for the key `http.status`. Compared with the text of a
        /// scalar.
        #[serde(rename = "attr.<key>")]
        pub attributes: KeyedValues,
        /// Exclude these entities, by name or id.
        #[serde(rename = "not.entity")]
        pub not_entity: BTreeSet<String>,
        /// Exclude these services.
        #[serde(rename = "not.service")]
        pub not_service: BTreeSet<String>,
        /// Exclude these operations.
        #[serde(rename = "not.span_name")]
        pub not_span_name: BTreeSet<String>,
        /// Exclude these values of attributes: `not.attr.http.status=200`. A span that lacks the attribute stays.
        #[serde(rename = "not.attr.<key>")]
        pub not_attributes: KeyedValueSets,
        /// Which rows come first.
        pub order: Option<SortOrder>,
        /// At most so many rows; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Skip so many rows.
        pub offset: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// Which metric points, and how to bring them together.
    pub struct MetricFilter {
        /// The metric's name.
        pub name: Option<String>,
        /// An entity's name or id.
        pub entity: Option<String>,
        /// The service: the label `resource.service.name`, of points without it the entity's name.
        pub service: Option<String>,
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// `entity_name`, `entity_id`, `name`, `type` or a label key.
        #[schemars(length(min = 1))]
        pub group_by: Option<String>,
        /// The width of a time bucket, at least 1us.
        #[schemars(extend("pattern" = POSITIVE_DURATION))]
        pub interval: Option<HumanDuration>,
        /// How the values of a bucket are aggregated; `p50` to `p99`, or `p999` for 99.9 %, of histograms.
        pub agg: Option<MetricAggregate>,
        /// Labels with these values: `labels.cpu=0` for the key `cpu`.
        #[serde(rename = "labels.<key>")]
        pub labels: KeyedValues,
        /// A row for each bucket, or for each group with a list of values; `series` needs `interval`.
        pub shape: Option<BucketShape>,
        /// Whether empty buckets are included; needs `interval`.
        pub fill: Option<bool>,
        /// At most so many rows; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Skip so many rows.
        pub offset: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// Which telemetry that could not be decoded.
    pub struct DeadLetterFilter {
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// At most so many rows; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Skip so many rows.
        pub offset: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// How long the cells of rows are.
    pub struct CellFilter {
        /// Cut cells to so many bytes; `cut` of a row has the whole sizes of those that were longer.
        #[schemars(range(min = MIN_CELL, max = MAX_CELL))]
        pub cells: Option<u32>,
    }

    /// How the rows of a list are shown, and around which of them.
    pub struct RowFilter {
        /// Cut cells to so many bytes; `cut` of a row has the whole sizes of those that were longer.
        #[schemars(range(min = MIN_CELL, max = MAX_CELL))]
        pub cells: Option<u32>,
        /// Whether each row says its `position`.
        pub positions: Option<bool>,
        /// Instead of a page, the row of this `position`, with what came before and after it; or what did so at a time.
        pub around: Option<RowPosition>,
        /// How many rows before it; 20 by default.
        #[schemars(range(max = MAX_CONTEXT))]
        pub before: Option<u32>,
        /// How many rows after it; 20 by default.
        #[schemars(range(max = MAX_CONTEXT))]
        pub after: Option<u32>,
    }

    /// Which entries of the audit log.
    pub struct AuditFilter {
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// A Rack's id, or its name at that time.
        pub rack: Option<String>,
        /// What happened: `rack_removed`, `scenario_activated`, …
        pub kind: Option<String>,
        /// At most so many entries; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// Which checkpoints of the audit log.
    pub struct CheckpointFilter {
        /// At most so many; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// Which letters of the dead-letter queue. Without `since` it is all that are kept, not those of a day.
    pub struct LetterFilter {
        /// The name of the Rack that they come from.
        pub rack: Option<String>,
        /// The gear that could not handle them.
        pub gear: Option<String>,
        /// The subject of the letter, or of the wire that its message came by.
        pub subject: Option<String>,
        /// A part of the reason, case-insensitive.
        pub reason: Option<String>,
        /// The state of the letters; by default open or waiting.
        pub state: Option<LetterStateFilter>,
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// At most so many rows; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// Which business messages.
    pub struct MessageFilter {
        /// The business signal.
        pub flux_id: Option<FluxId>,
        /// The trace.
        pub trace_id: Option<TraceId>,
        /// A Rack's entity id or name.
        pub rack_id: Option<String>,
        /// An entity's name or id.
        pub entity: Option<String>,
        /// The gear that sent it.
        pub src_gear_id: Option<String>,
        /// The receiving gear, if there is only one.
        pub dst_gear_id: Option<String>,
        /// What kind of message it is.
        pub msg_type: Option<String>,
        /// Its direction as its Rack saw it: to gears of the same Rack (`internal`), also to another one (`outbound`),
        /// or from a sender that is not a Rack (`inbound`).
        pub direction: Option<MessageDirection>,
        /// The outcome.
        pub status: Option<SpanStatus>,
        /// Promoted fields with these values: `promoted.order=7` for the field `order`.
        #[serde(rename = "promoted.<key>")]
        pub promoted: KeyedValues,
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// How a message's bytes are shown, if at all; by default `hex`. `json` decodes them: the envelope's fields, and
        /// `body` as a value.
        pub raw: Option<RawForm>,
        /// Which rows come first.
        pub order: Option<SortOrder>,
        /// At most so many rows; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Skip so many rows.
        pub offset: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// What of one business signal: its messages, spans and log records, the oldest first.
    pub struct FluxFilter {
        /// Start (inclusive); by default the first stored row.
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// How a message's bytes are shown, if at all; by default `hex`. `json` decodes them: the envelope's fields, and
        /// `body` as a value.
        pub raw: Option<RawForm>,
        /// At most so many; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
        /// Go on where an answer's `next_cursor` says.
        pub cursor: Option<String>,
    }

    /// How log records are counted over time.
    pub struct HistogramFilter {
        /// The width of a time bucket, at least 1us; without it, about a sixtieth of the window.
        #[schemars(extend("pattern" = POSITIVE_DURATION))]
        pub interval: Option<HumanDuration>,
        /// What the counts are split by.
        pub by: Option<HistogramGrouping>,
        /// Whether empty buckets are included.
        pub fill: Option<bool>,
    }

    /// Whose values are counted.
    pub struct TopFilter {
        /// A column, or a key of the JSON column such as `attr.gear.id`.
        pub field: Option<String>,
    }

    /// Which metrics to list.
    pub struct SeriesFilter {
        /// An entity's name or id.
        pub entity: Option<String>,
        /// The service: the label `resource.service.name`, of points without it the entity's name.
        pub service: Option<String>,
        /// Labels with these values: `labels.cpu=0` for the key `cpu`.
        #[serde(rename = "labels.<key>")]
        pub labels: KeyedValues,
        /// From this moment on (inclusive).
        pub since: Option<TimePoint>,
        /// Before this moment (exclusive).
        pub until: Option<TimePoint>,
        /// At most so many; [`DEFAULT_LIMIT`].
        pub limit: Option<u32>,
    }
}

impl LetterFilter {
    /// Whether it asks for certain letters, not for all in some state.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        let texts = [&self.rack, &self.gear, &self.subject, &self.reason];
        texts.iter().any(|text| text.is_some()) || self.since.is_some() || self.until.is_some()
    }
}
