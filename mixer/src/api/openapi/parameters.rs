//! Parameters of the table of routes: their names, schemas and descriptions. Those that are fields of one filter come from
//! the filter ([`filter_parameters`](super::filter_parameters)).
//!
//! # Invariants
//!
//! - The names of a path's parameters are the fields of its filters, those left out that the path always refuses.
//! - A text that a schema allows is one that the API accepts by itself, and the other way round as far as patterns can say it.

use model::filter::{DEFAULT_LIMIT, DURATION, MAX_LIMIT, TimePoint};
use model::{ColumnType, EntityId, FluxId, LetterId, Table, TraceId, inline_schema};
use serde_json::{Value, json};

const OUTPUT: &str = r"^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}$";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterLocation {
    Path,
    Query,
    Header,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParameterKind {
    /// Any text.
    Text,
    /// Any text of so many characters.
    Sized(u32, u32),
    Words(&'static [&'static str]),
    Pattern(&'static str),
    /// What a type of ours is written as.
    Of(fn() -> Value),
    /// A whole number: least, default, most.
    Number(u32, Option<u32>, u32),
    Switch,
    /// A column of a table, or a key of its JSON column.
    Field(Table),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ApiParameter {
    pub(super) name: &'static str,
    pub(super) place: ParameterLocation,
    pub(super) required: bool,
    pub(super) kind: ParameterKind,
    pub(super) says: &'static str,
}

pub(super) const fn query(name: &'static str, kind: ParameterKind, says: &'static str) -> ApiParameter {
    ApiParameter {
        name,
        place: ParameterLocation::Query,
        required: false,
        kind,
        says,
    }
}

const fn header(name: &'static str, kind: ParameterKind, says: &'static str) -> ApiParameter {
    ApiParameter {
        place: ParameterLocation::Header,
        ..query(name, kind, says)
    }
}

pub(super) const fn path(name: &'static str, kind: ParameterKind, says: &'static str) -> ApiParameter {
    ApiParameter {
        place: ParameterLocation::Path,
        required: true,
        ..query(name, kind, says)
    }
}

const SINCE: ApiParameter = query(
    "since",
    ParameterKind::Of(inline_schema::<TimePoint>),
    "Start (inclusive); by default 24 hours before `until` or now.",
);
const UNTIL: ApiParameter = query(
    "until",
    ParameterKind::Of(inline_schema::<TimePoint>),
    "End (exclusive). Not before `since`.",
);
const LIMIT: ApiParameter = query(
    "limit",
    ParameterKind::Number(1, Some(DEFAULT_LIMIT), MAX_LIMIT),
    "Maximum number of rows.",
);

const EVER: ApiParameter = ApiParameter {
    says: "Start (inclusive); by default the first stored row.",
    ..SINCE
};
const CURSOR: ApiParameter = query(
    "cursor",
    ParameterKind::Text,
    "The `next_cursor` of an answer; all other parameters but `limit` must stay the same.",
);

pub(super) const TIMES: &[ApiParameter] = &[SINCE, UNTIL];
/// Of what is found by an id.
pub(super) const ALL_TIMES: &[ApiParameter] = &[EVER, UNTIL];
/// Of a signal.
pub(super) const SIGNAL: &[ApiParameter] = &[LIMIT, CURSOR];
pub(super) const ORDER: &[ApiParameter] = &[query(
    "order",
    ParameterKind::Words(&["desc", "asc"]),
    "The order of rows, by time.",
)];
pub(super) const PAGES: &[ApiParameter] = &[
    LIMIT,
    query(
        "offset",
        ParameterKind::Number(0, Some(0), u32::MAX),
        "Number of rows to skip. Not together with `cursor`.",
    ),
    CURSOR,
];

pub(super) const METRIC: &[ApiParameter] = &[query("name", ParameterKind::Text, "The metric's name.")];
const fn field(table: Table) -> ApiParameter {
    ApiParameter {
        required: true,
        ..query(
            "field",
            ParameterKind::Field(table),
            "A column, or a key of the JSON column such as `attr.gear.id`.",
        )
    }
}
const fn most(most: u32, default: u32) -> ApiParameter {
    query(
        "limit",
        ParameterKind::Number(1, Some(default), most),
        "Maximum number of values.",
    )
}
pub(super) const LOGS_TOP: &[ApiParameter] = &[field(Table::Logs), most(1_000, DEFAULT_LIMIT)];
pub(super) const TRACES_TOP: &[ApiParameter] = &[field(Table::Traces), most(1_000, DEFAULT_LIMIT)];
pub(super) const SERIES_PAGE: &[ApiParameter] = &[SINCE, UNTIL, most(MAX_LIMIT, MAX_LIMIT)];
pub(super) const EXEMPLARS: &[ApiParameter] = &[SINCE, UNTIL, LIMIT];
pub(super) const TAIL: &[ApiParameter] = &[
    query(
        "since",
        ParameterKind::Of(inline_schema::<TimePoint>),
        "Begin with the stored rows from this time on, the oldest first.",
    ),
    query(
        "limit",
        ParameterKind::Number(1, None, MAX_LIMIT),
        "Begin with this many of the newest rows, the oldest first.",
    ),
    query("cursor", ParameterKind::Text, "Resume after the event with this `id`."),
    header(
        "Last-Event-ID",
        ParameterKind::Text,
        "The same, as browsers send it when they reconnect; takes precedence over `cursor`.",
    ),
];
pub(super) const FORMAT: &[ApiParameter] = &[query(
    "format",
    ParameterKind::Words(&["json", "ndjson", "csv", "arrow"]),
    "The format of the answer; takes precedence over `Accept`.",
)];
pub(super) const KNOWN: &[ApiParameter] = &[header(
    "If-None-Match",
    ParameterKind::Text,
    "The `ETag` of a cached answer: 304 if it is still valid.",
)];
pub(super) const INGEST: &[ApiParameter] = &[
    query(
        "durable",
        ParameterKind::Words(&["disk", "bucket"]),
        "Where rows must be durable before the answer: on the Mixer's disk, or in its object store too.",
    ),
    query(
        "partial",
        ParameterKind::Words(&["problem", "accept"]),
        "What a body is answered with of which only some rows are stored: the problem `partly_stored` (207), or 200.",
    ),
    query(
        "rejected",
        ParameterKind::Words(&["drop", "keep"]),
        "What becomes of rows that cannot be stored: `keep` keeps the first thousand of a body, of up to 8 MiB together, as dead letters.",
    ),
    query(
        "shape",
        ParameterKind::Words(&["platform", "auto"]),
        "The fields of the rows: those of the schema, or, with `auto`, those of any JSON or NDJSON, whose meaning is found out by their usual names.",
    ),
    header(
        "Idempotency-Key",
        ParameterKind::Sized(1, 255),
        "Identifies this body among those of its publisher: a repeated one is not stored again.",
    ),
    header(
        "Content-Encoding",
        ParameterKind::Words(&["", "identity", "gzip", "x-gzip", "zstd"]),
        "The compression of the body; case-insensitive.",
    ),
    header(
        "Flux-Entity-Name",
        ParameterKind::Sized(1, 255),
        "The entity name of rows without one; by default `http`.",
    ),
    header(
        "Flux-Entity-Id",
        ParameterKind::Of(inline_schema::<EntityId>),
        "The entity id of those rows; by default derived from the name.",
    ),
];
pub(super) const TRACE_PATH: &[ApiParameter] = &[path(
    "trace_id",
    ParameterKind::Of(inline_schema::<TraceId>),
    "The trace.",
)];
pub(super) const METRIC_PATH: &[ApiParameter] = &[path(
    "metric_name",
    ParameterKind::Sized(1, u32::MAX),
    "The metric's name.",
)];
pub(super) const LABEL_PATH: &[ApiParameter] =
    &[path("label_key", ParameterKind::Sized(1, u32::MAX), "The label's key.")];
pub(super) const FLUX_PATH: &[ApiParameter] = &[path(
    "flux_id",
    ParameterKind::Of(inline_schema::<FluxId>),
    "The business signal.",
)];
pub(super) const RACK_PATH: &[ApiParameter] = &[path("id", ParameterKind::Sized(1, u32::MAX), "A Rack's id or name.")];
pub(super) const TOKEN_PATH: &[ApiParameter] = &[path(
    "token",
    ParameterKind::Sized(1, u32::MAX),
    "A token's name or id.",
)];
pub(super) const INVITE_PATH: &[ApiParameter] = &[path(
    "invite",
    ParameterKind::Sized(1, u32::MAX),
    "An invite's name or id.",
)];
pub(super) const REQUEST_PATH: &[ApiParameter] = &[path(
    "request",
    ParameterKind::Sized(1, u32::MAX),
    "The id of a change that waits.",
)];
pub(super) const TAPPED: &[ApiParameter] = &[ApiParameter {
    required: true,
    ..query(
        "port",
        ParameterKind::Pattern(OUTPUT),
        "The gear and its output: `gear.port`.",
    )
}];
pub(super) const SCENARIO_PATH: &[ApiParameter] = &[path(
    "reference",
    ParameterKind::Sized(1, u32::MAX),
    "`name:version`, `name:latest`, `name` for the same, or at least eight digits that a content hash begins with.",
)];
pub(super) const INDEX_PATH: &[ApiParameter] = &[path(
    "index",
    ParameterKind::Sized(1, u32::MAX),
    "The name of an index.",
)];
pub(super) const NAME_PATH: &[ApiParameter] = &[path("name", ParameterKind::Sized(1, u32::MAX), "Any name.")];
pub(super) const NAMESPACE_PATH: &[ApiParameter] = &[path(
    "namespace",
    ParameterKind::Sized(1, u32::MAX),
    "The namespace; `%1F` is between the levels of one.",
)];
pub(super) const TABLE_PATH: &[ApiParameter] = &[path("table", ParameterKind::Sized(1, u32::MAX), "A table's name.")];
pub(super) const GEAR_PATH: &[ApiParameter] = &[path("type", ParameterKind::Sized(1, u32::MAX), "A gear type's name.")];
pub(super) const LETTERS_PAGE: &[ApiParameter] = &[
    ApiParameter {
        says: "Start (inclusive); by default everything that is kept.",
        ..SINCE
    },
    UNTIL,
    LIMIT,
    CURSOR,
];
pub(super) const LETTER_PATH: &[ApiParameter] = &[path(
    "letter_id",
    ParameterKind::Of(inline_schema::<LetterId>),
    "The letter.",
)];
pub(super) const IMPORT: &[ApiParameter] = &[query(
    "replace",
    ParameterKind::Switch,
    "Whether to replace the content stored under the name and version.",
)];
pub(super) const WAIT: &[ApiParameter] = &[query(
    "wait",
    ParameterKind::Pattern(DURATION),
    "How long to wait for the Racks, at most 100s; without it, as long as `mixer.scenario_wait_timeout` says, and at most that.",
)];
pub(super) const AUDIT_PAGE: &[ApiParameter] = &[
    query(
        "since",
        ParameterKind::Of(inline_schema::<TimePoint>),
        "Start (inclusive).",
    ),
    UNTIL,
    LIMIT,
    NUMBER_CURSOR,
];
pub(super) const CHECKPOINTS_PAGE: &[ApiParameter] = &[LIMIT, NUMBER_CURSOR];
const NUMBER_CURSOR: ApiParameter = query(
    "cursor",
    ParameterKind::Pattern("^[0-9]{1,19}$"),
    "The `next_cursor` of an answer.",
);
pub(super) const ROLLBACK: &[ApiParameter] = &[query(
    "to",
    ParameterKind::Pattern("^[0-9a-f]{64}$"),
    "Only to this content (the hash that a rehearsal with `dry_run` had): else nothing is changed (409).",
)];
pub(super) const ACTIVATION: &[ApiParameter] = &[
    query(
        "dry_run",
        ParameterKind::Switch,
        "Only report what would change on the Racks.",
    ),
    query(
        "resume_from",
        ParameterKind::Words(&["floor", "now"]),
        "Where wires go on that were paused: where they were paused (`floor`), or with what comes `now`.",
    ),
];

impl ApiParameter {
    /// As OpenAPI says it.
    pub(super) fn document(&self) -> Value {
        let place = match self.place {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
        };
        json!({
            "name": self.name, "in": place, "required": self.required, "description": self.says, "schema": self.kind.schema(),
        })
    }
}

impl ParameterKind {
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Sized(least, u32::MAX) => json!({ "type": "string", "minLength": least }),
            Self::Sized(least, most) => json!({ "type": "string", "minLength": least, "maxLength": most }),
            Self::Words(words) => json!({ "type": "string", "enum": words }),
            Self::Pattern(pattern) => json!({ "type": "string", "pattern": pattern }),
            Self::Of(schema) => schema(),
            Self::Number(least, None, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Self::Number(least, Some(default), most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most, "default": default })
            }
            Self::Switch => json!({ "type": "boolean" }),
            Self::Field(table) => json!({ "anyOf": [
                { "type": "string", "enum": fields(table) },
                { "type": "string", "pattern": "^attr\\.[\\s\\S]" },
            ] }),
        }
    }
}

/// The columns whose values are counted.
pub(super) fn fields(table: Table) -> Vec<&'static str> {
    let columns = table.columns().iter();
    let plain = columns.filter(|column| !matches!(column.kind, ColumnType::Time | ColumnType::Json | ColumnType::Blob));
    plain.map(|column| column.name).collect()
}
