//! Parameters of Jaeger's API. What they mean: `api::jaeger::search_params`.

use model::filter::DEFAULT_LIMIT;

use super::parameters::{ApiParameter, ParameterKind, path, query};

/// Of traces in Jaeger's form.
pub(super) const SEARCH: &[ApiParameter] = &[
    query(
        "service",
        ParameterKind::Sized(1, u32::MAX),
        "The service; needed where no `traceID` is given.",
    ),
    query("operation", ParameterKind::Text, "The name of a span."),
    query(
        "tags",
        ParameterKind::Text,
        "A JSON object of attributes of the span or of its resource; `error` is the status.",
    ),
    query(
        "tag",
        ParameterKind::Pattern(r"^([^:]+:[\s\S]*)?$"),
        "One of these as `key:value`; may be repeated.",
    ),
    query(
        "start",
        ParameterKind::Pattern(NUMBER),
        "Start in microseconds since 1970 (inclusive).",
    ),
    query(
        "end",
        ParameterKind::Pattern(NUMBER),
        "End in microseconds since 1970 (inclusive). Not before `start`.",
    ),
    query(
        "lookback",
        ParameterKind::Text,
        "How far back from the end without `start`, such as `1h`; two days if it is no duration.",
    ),
    query(
        "limit",
        ParameterKind::Number(1, Some(DEFAULT_LIMIT), 1_500),
        "Maximum number of traces.",
    ),
    query(
        "minDuration",
        ParameterKind::Pattern(DURATION),
        "Minimum duration of the span, such as `1.2ms`.",
    ),
    query(
        "maxDuration",
        ParameterKind::Pattern(DURATION),
        "Maximum duration of the span.",
    ),
    query(
        "traceID",
        ParameterKind::Pattern(ID),
        "A trace, instead of a search; may be repeated. Zeros at its beginning may be missing.",
    ),
    RAW,
    PRETTY_PRINT,
];
/// Of one trace in Jaeger's form.
pub(super) const TRACE: &[ApiParameter] = &[
    path(
        "trace_id",
        ParameterKind::Pattern(ID),
        "The trace. Zeros at its beginning may be missing.",
    ),
    query(
        "start",
        ParameterKind::Text,
        "Without effect: where a trace is, an index says.",
    ),
    query("end", ParameterKind::Text, "Without effect."),
    RAW,
    PRETTY_PRINT,
];
pub(super) const SERVICE_PATH: &[ApiParameter] = &[path("service", ParameterKind::Sized(1, u32::MAX), "The service.")];
pub(super) const OPERATIONS: &[ApiParameter] = &[
    ApiParameter {
        required: true,
        ..query("service", ParameterKind::Sized(1, u32::MAX), "The service.")
    },
    query("spanKind", ParameterKind::Text, "The kind of spans, such as `server`."),
];
pub(super) const DEPENDENCIES: &[ApiParameter] = &[
    query(
        "endTs",
        ParameterKind::Pattern(NUMBER),
        "End in milliseconds since 1970; by default now.",
    ),
    query(
        "lookback",
        ParameterKind::Pattern(r"^[0-9]{0,18}$"),
        "How far back from the end, in milliseconds; by default a day.",
    ),
];
const RAW: ApiParameter = query("raw", ParameterKind::Switch, "Without effect.");
const PRETTY_PRINT: ApiParameter = query("prettyPrint", ParameterKind::Switch, "Without effect.");
const NUMBER: &str = "^[0-9]{0,18}$";
const ID: &str = "^(?!0+$)[0-9a-fA-F]{1,32}$";
/// A duration, or nothing.
const DURATION: &str = r"^((0|([0-9]{1,5}(\.[0-9]{1,6})?(ns|us|µs|ms|s|m|h)|[0-9]{1,4}d){1,3})?)$";
