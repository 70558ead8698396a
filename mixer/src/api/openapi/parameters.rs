//! Parameters: their names, schemas and descriptions.
//!
//! # Invariants
//!
//! - The names of a path's parameters are the fields of its filters, those left out that the path always refuses.
//! - A text that a schema allows is one that the API accepts by itself, and the other way round as far as patterns can say it.

use model::filter::{DEFAULT_LIMIT, MAX_LIMIT};
use model::{ColumnType, Table};
use serde_json::{Value, json};

/// Durations: `100ms`, `5s`, `1h30m`, `1.5h`. A term of days has fewer digits, so that three terms never exceed what there is.
pub(super) const DURATION: &str = r"^(0|([0-9]{1,5}(\.[0-9]{1,6})?(ns|us|µs|ms|s|m|h)|[0-9]{1,4}d){1,3})$";
const POSITIVE_DURATION: &str =
    r"^([0-9]{0,4}[1-9](\.[0-9]{1,6})?(us|µs|ms|s|m|h)|[0-9]{0,3}[1-9]d)([0-9]{1,5}(ms|s|m|h)){0,2}$";
pub(super) const TRACE_ID: &str = "^(?!0{32}$)[0-9a-fA-F]{32}$";
pub(super) const SPAN_ID: &str = "^(?!0{16}$)[0-9a-fA-F]{16}$";
pub(super) const TOKEN: &str = "^[A-Za-z0-9_-]{1,64}$";
const OUTPUT: &str = r"^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}$";

pub(super) const LETTER_ID: &str = "^[0-9a-fA-F]{32}$";

pub(super) const LETTER_STATES: &[&str] = &["open", "waiting", "replayed", "dropped", "all"];
pub(super) const LEVELS: &[&str] = &["debug", "info", "warn", "error"];
pub(super) const STATUSES: &[&str] = &["ok", "error"];
pub(super) const TYPES: &[&str] = &["counter", "gauge", "histogram"];
pub(super) const DIRECTIONS: &[&str] = &["inbound", "outbound", "internal"];

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
    /// A moment or an age.
    When,
    Duration,
    Uuid,
    /// A whole number: least, default, most.
    Number(u32, Option<u32>, u32),
    Switch,
    /// A column of a table, or a key of its JSON column.
    Field(Table),
    /// Parameters that begin so.
    Family(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ApiParameter {
    pub(super) name: &'static str,
    pub(super) place: ParameterLocation,
    pub(super) required: bool,
    pub(super) kind: ParameterKind,
    pub(super) says: &'static str,
}

const fn query(name: &'static str, kind: ParameterKind, says: &'static str) -> ApiParameter {
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

const fn path(name: &'static str, kind: ParameterKind, says: &'static str) -> ApiParameter {
    ApiParameter {
        place: ParameterLocation::Path,
        required: true,
        ..query(name, kind, says)
    }
}

const ENTITY: ApiParameter = query("entity", ParameterKind::Text, "An entity's name or id.");
const FLUX_ID: ApiParameter = query("flux_id", ParameterKind::Uuid, "The business signal.");
const TRACE: ApiParameter = query("trace_id", ParameterKind::Pattern(TRACE_ID), "The trace.");
const SINCE: ApiParameter = query(
    "since",
    ParameterKind::When,
    "Start (inclusive); by default 24 hours before `until` or now.",
);
const UNTIL: ApiParameter = query("until", ParameterKind::When, "End (exclusive). Not before `since`.");
const STATUS: ApiParameter = query("status", ParameterKind::Words(STATUSES), "The outcome.");
const INTERVAL: ApiParameter = query(
    "interval",
    ParameterKind::Duration,
    "The width of a time bucket, at least 1us.",
);
const FILL: ApiParameter = query("fill", ParameterKind::Switch, "Whether empty buckets are included.");
const ATTRIBUTES: ApiParameter = query(
    "attributes",
    ParameterKind::Family("attr."),
    "Attributes with these values: `attr.http.status=500` for the key `http.status`. Compared with the text of a scalar.",
);
const LABELS: ApiParameter = query(
    "labels",
    ParameterKind::Family("labels."),
    "Labels with these values: `labels.cpu=0` for the key `cpu`.",
);
const LIMIT: ApiParameter = query(
    "limit",
    ParameterKind::Number(1, Some(DEFAULT_LIMIT), MAX_LIMIT),
    "Maximum number of rows.",
);

const RAW: ApiParameter = query(
    "raw",
    ParameterKind::Words(&["hex", "base64", "json", "none"]),
    "How a message's bytes are shown, if at all; by default `hex`. `json` decodes them: the envelope's fields, and \
     `body` as a value.",
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
pub(super) const SIGNAL: &[ApiParameter] = &[RAW, LIMIT, CURSOR];
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

pub(super) const LOGS: &[ApiParameter] = &[
    query("level", ParameterKind::Words(LEVELS), "Exactly this level."),
    query("min_level", ParameterKind::Words(LEVELS), "This level and above."),
    query("rack_id", ParameterKind::Text, "A Rack's entity id or name."),
    query("gear_id", ParameterKind::Text, "The attribute `gear.id`."),
    ENTITY,
    FLUX_ID,
    query(
        "trace_id",
        ParameterKind::Pattern(TRACE_ID),
        "The attribute `trace_id`.",
    ),
    query("q", ParameterKind::Text, "A part of the message, case-insensitive."),
    ATTRIBUTES,
];
pub(super) const TRACES: &[ApiParameter] = &[
    FLUX_ID,
    TRACE,
    query(
        "min_duration_ms",
        ParameterKind::Number(0, None, u32::MAX),
        "Minimum duration in milliseconds.",
    ),
    STATUS,
    ENTITY,
    query("span_name", ParameterKind::Text, "The operation."),
    ATTRIBUTES,
];
/// Of metrics, the name apart.
pub(super) const METRICS: &[ApiParameter] = &[
    ENTITY,
    query(
        "group_by",
        ParameterKind::Sized(1, u32::MAX),
        "`entity_name`, `entity_id`, `name`, `type` or a label key.",
    ),
    INTERVAL,
    query(
        "agg",
        ParameterKind::Pattern("^(avg|sum|min|max|count|last|rate|p[5-9][0-9])$"),
        "How the values of a bucket are aggregated; `p50` to `p99` of histograms.",
    ),
    LABELS,
    query(
        "shape",
        ParameterKind::Words(&["rows", "series"]),
        "A row for each bucket, or for each group with a list of values; `series` needs `interval`.",
    ),
    query(
        "fill",
        ParameterKind::Switch,
        "Whether empty buckets are included; needs `interval`.",
    ),
];
pub(super) const METRIC: &[ApiParameter] = &[query("name", ParameterKind::Text, "The metric's name.")];
/// Of messages, the flux id apart.
pub(super) const MESSAGES: &[ApiParameter] = &[
    TRACE,
    query("rack_id", ParameterKind::Text, "A Rack's entity id or name."),
    ENTITY,
    query("src_gear_id", ParameterKind::Text, "The gear that sent it."),
    query(
        "dst_gear_id",
        ParameterKind::Text,
        "The receiving gear, if there is only one.",
    ),
    query("msg_type", ParameterKind::Text, "What kind of message it is."),
    query(
        "direction",
        ParameterKind::Words(DIRECTIONS),
        "Its direction as its Rack saw it: to gears of the same Rack (`internal`), also to another one (`outbound`), \
         or from a sender that is not a Rack (`inbound`).",
    ),
    STATUS,
    query(
        "promoted",
        ParameterKind::Family("promoted."),
        "Promoted fields with these values: `promoted.order=7` for the field `order`.",
    ),
    RAW,
];
pub(super) const FLUX: &[ApiParameter] = &[FLUX_ID];
pub(super) const HISTOGRAM: &[ApiParameter] = &[
    INTERVAL,
    query(
        "by",
        ParameterKind::Words(&["none", "level", "entity_name"]),
        "What the counts are split by.",
    ),
    FILL,
];
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
pub(super) const SERIES: &[ApiParameter] = &[ENTITY, LABELS, SINCE, UNTIL, most(MAX_LIMIT, MAX_LIMIT)];
pub(super) const TAIL: &[ApiParameter] = &[
    query(
        "since",
        ParameterKind::When,
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
        ParameterKind::Uuid,
        "The entity id of those rows; by default derived from the name.",
    ),
];
pub(super) const TRACE_PATH: &[ApiParameter] = &[path("trace_id", ParameterKind::Pattern(TRACE_ID), "The trace.")];
pub(super) const METRIC_PATH: &[ApiParameter] = &[path(
    "metric_name",
    ParameterKind::Sized(1, u32::MAX),
    "The metric's name.",
)];
pub(super) const LABEL_PATH: &[ApiParameter] =
    &[path("label_key", ParameterKind::Sized(1, u32::MAX), "The label's key.")];
pub(super) const FLUX_PATH: &[ApiParameter] = &[path("flux_id", ParameterKind::Uuid, "The business signal.")];
pub(super) const RACK_PATH: &[ApiParameter] = &[path("id", ParameterKind::Sized(1, u32::MAX), "A Rack's id or name.")];
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
pub(super) const GEAR_PATH: &[ApiParameter] = &[path("type", ParameterKind::Sized(1, u32::MAX), "A gear type's name.")];
pub(super) const LETTERS: &[ApiParameter] = &[
    query("rack", ParameterKind::Text, "The name of the Rack that they come from."),
    query("gear", ParameterKind::Text, "The gear that could not handle them."),
    query(
        "subject",
        ParameterKind::Text,
        "The subject of the letter, or of the wire that its message came by.",
    ),
    query("reason", ParameterKind::Text, "A part of the reason, case-insensitive."),
    query(
        "state",
        ParameterKind::Words(LETTER_STATES),
        "The state of the letters; by default open or waiting.",
    ),
    query(
        "since",
        ParameterKind::When,
        "Start (inclusive); by default everything that is kept.",
    ),
    UNTIL,
    LIMIT,
    query(
        "cursor",
        ParameterKind::Text,
        "The `next_cursor` of an answer; all other parameters but `limit` must stay the same.",
    ),
];
pub(super) const LETTER_PATH: &[ApiParameter] = &[path("letter_id", ParameterKind::Pattern(LETTER_ID), "The letter.")];
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
pub(super) const AUDIT: &[ApiParameter] = &[
    query("since", ParameterKind::When, "Start (inclusive)."),
    UNTIL,
    query("rack", ParameterKind::Text, "A Rack's id, or its name at that time."),
    query(
        "kind",
        ParameterKind::Text,
        "What happened: `rack_removed`, `scenario_activated`, …",
    ),
    LIMIT,
    query(
        "cursor",
        ParameterKind::Pattern("^[0-9]{1,19}$"),
        "The `next_cursor` of an answer.",
    ),
];
pub(super) const DRY_RUN: &[ApiParameter] = &[query(
    "dry_run",
    ParameterKind::Switch,
    "Only report what would change on the Racks.",
)];

impl ApiParameter {
    /// As OpenAPI says it.
    pub(super) fn document(&self) -> Value {
        let place = match self.place {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
        };
        let mut said = json!({
            "name": self.name, "in": place, "required": self.required, "description": self.says, "schema": self.kind.schema(),
        });
        if matches!(self.kind, ParameterKind::Family(_)) {
            said["style"] = "form".into();
            said["explode"] = true.into();
        }
        said
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
            Self::When => json!({ "anyOf": [
                { "type": "string", "format": "date-time" },
                { "type": "string", "pattern": DURATION },
            ] }),
            Self::Duration => json!({ "type": "string", "pattern": POSITIVE_DURATION }),
            Self::Uuid => json!({ "type": "string", "format": "uuid" }),
            Self::Number(least, None, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Self::Number(least, Some(default), most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most, "default": default })
            }
            Self::Switch => json!({ "type": "boolean" }),
            Self::Field(table) => json!({ "anyOf": [
                { "type": "string", "enum": fields(table) },
                { "type": "string", "pattern": "^attr\\.[\\s\\S]" },
            ] }),
            Self::Family(prefix) => {
                let pattern = format!("^{}[\\s\\S]", prefix.replace('.', "\\."));
                json!({
                    "type": "object",
                    "patternProperties": { pattern: { "type": ["string", "number", "boolean"] } },
                    "additionalProperties": false,
                })
            }
        }
    }
}

/// The columns whose values are counted.
pub(super) fn fields(table: Table) -> Vec<&'static str> {
    let columns = table.columns().iter();
    let plain = columns.filter(|column| !matches!(column.kind, ColumnType::Time | ColumnType::Json | ColumnType::Blob));
    plain.map(|column| column.name).collect()
}
