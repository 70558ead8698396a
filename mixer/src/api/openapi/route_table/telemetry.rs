//! Routes that read rows: logs, traces, metrics, messages, signals, Jaeger's, SQL; with their former paths.

use model::filter::{
    CellFilter, FluxFilter, HistogramFilter, LogFilter, MessageFilter, MetricFilter, RowFilter, SeriesFilter,
    TraceFilter,
};
use model::{Table, inline_schema};

use super::super::parameters as p;
use super::super::{ApiRoute, RequestBody, ResponseBody, jaeger_parameters};
use super::{FIND, LETTERS_ONLY, LOGS_ONLY, METRICS_ONLY, QUERY, TRACES_ONLY, WINDOW, get, link, post};
use crate::access::AccessRight;

const MESSAGES_ONLY: &[Table] = &[Table::Messages];

/// What lists of rows may fail with, and those of one metric.
const ROWS: &[u16] = &[400, 406, 422, 503, 504, 505];
const ROWS_OF_ONE: &[u16] = &[400, 404, 406, 422, 503, 504, 505];

const LISTED: &str = "`offset` and `cursor` exclude each other, and a cursor belongs to its query. `around` excludes both and `limit`; `before` and `after` \
                      need it. A window that ends before it begins is refused.";
const LISTED_OF_ONE: &str = "A signal that no archived message has is an empty list. `offset` and `cursor` exclude each other, and a cursor belongs to \
                             its query. `around` excludes both and `limit`; `before` and `after` need it. A window that ends before it begins is \
                             refused.";
const POINTS: &str = "Without `interval`, `group_by` and `agg` the points themselves, else their aggregates. \
                      `fill=true` and `shape=series` need `interval`; `offset` and `cursor` exclude each other, and a \
                      cursor belongs to its query. A window that ends before it begins is refused.";

const LOGS: ApiRoute = get(AccessRight::ReadRows, "/api/v1/telemetry/logs", "logs", "Log records")
    .of(LOGS_ONLY)
    .filters_by(&[inline_schema::<LogFilter>, inline_schema::<RowFilter>])
    .takes(&[p::TIMES, p::ORDER, p::PAGES, p::FORMAT, p::KNOWN])
    .gives(ResponseBody::Rows("Logs"))
    .fails(ROWS)
    .details(LISTED);
const TRACES: ApiRoute = get(AccessRight::ReadRows, "/api/v1/telemetry/traces", "traces", "Spans")
    .of(TRACES_ONLY)
    .filters_by(&[inline_schema::<TraceFilter>, inline_schema::<RowFilter>])
    .takes(&[p::TIMES, p::ORDER, p::PAGES, p::FORMAT, p::KNOWN])
    .gives(ResponseBody::Rows("Spans"))
    .fails(ROWS)
    .leads_to(&[link("trace", &[("trace_id", "$response.body#/data/0/trace_id")])])
    .details(LISTED);
const TRACE: ApiRoute = get(
    AccessRight::ReadRows,
    "/api/v1/telemetry/traces/{trace_id}",
    "trace",
    "One trace: its spans as a tree, and its logs",
)
.of(&[Table::Traces, Table::Logs])
.filters_by(&[inline_schema::<CellFilter>])
.takes(&[p::TRACE_PATH])
.gives(ResponseBody::Json("Trace"))
.fails(FIND);
const METRICS: ApiRoute = get(
    AccessRight::ReadRows,
    "/api/v1/telemetry/metrics",
    "metrics",
    "Metric points, or their aggregates",
)
.of(METRICS_ONLY)
.filters_by(&[inline_schema::<MetricFilter>])
.takes(&[p::METRIC, p::TIMES, p::PAGES, p::FORMAT, p::KNOWN])
.gives(ResponseBody::Rows("Points"))
.fails(ROWS)
.details(POINTS);
const METRIC: ApiRoute = get(
    AccessRight::ReadRows,
    "/api/v1/telemetry/metrics/{metric_name}",
    "metric",
    "One metric: its description, and its points or aggregates",
)
.of(METRICS_ONLY)
.filters_by(&[inline_schema::<MetricFilter>])
.takes(&[p::METRIC_PATH, p::TIMES, p::PAGES, p::FORMAT, p::KNOWN])
.gives(ResponseBody::Rows("Metric"))
.fails(ROWS_OF_ONE)
.details(POINTS);

const MESSAGES: ApiRoute = get(
    AccessRight::ReadRows,
    "/api/v1/messages",
    "messages",
    "Business messages",
)
.of(MESSAGES_ONLY)
.filters_by(&[inline_schema::<MessageFilter>, inline_schema::<RowFilter>])
.takes(&[p::TIMES, p::ORDER, p::PAGES, p::FORMAT, p::KNOWN])
.gives(ResponseBody::Rows("Messages"))
.fails(ROWS)
.leads_to(&[
    link("messages_of", &[("flux_id", "$response.body#/data/0/flux_id")]),
    link("flux", &[("flux_id", "$response.body#/data/0/flux_id")]),
])
.details(LISTED);
const MESSAGES_TAIL: ApiRoute = get(
    AccessRight::ReadRows,
    "/api/v1/messages/tail",
    "messages_tail",
    "Business messages as they become visible, as server-sent events",
)
.of(MESSAGES_ONLY)
.filters_by(&[inline_schema::<MessageFilter>])
.takes(&[p::TAIL])
.gives(ResponseBody::Events("MessageEvent"))
.fails(&[400, 403, 503])
.details("An event without a name is a row as the list of messages gives it. All else is as with the tail of logs.");
const MESSAGES_OF: ApiRoute = get(
    AccessRight::ReadRows,
    "/api/v1/messages/{flux_id}",
    "messages_of",
    "The messages of one business signal, the oldest first",
)
.of(MESSAGES_ONLY)
.filters_by(&[inline_schema::<MessageFilter>, inline_schema::<RowFilter>])
.takes(&[p::FLUX_PATH, p::ALL_TIMES, p::ORDER, p::PAGES, p::FORMAT, p::KNOWN])
.gives(ResponseBody::Rows("Messages"))
.fails(ROWS)
.details(LISTED_OF_ONE);

pub(super) const ROUTES: &[ApiRoute] = &[
    LOGS,
    get(AccessRight::ReadRows, "/api/v1/telemetry/logs/histogram",
        "logs_histogram",
        "Counts of log records over time",
    )
.of(LOGS_ONLY)
    .filters_by(&[inline_schema::<LogFilter>, inline_schema::<HistogramFilter>])
    .takes(&[p::TIMES])
    .gives(ResponseBody::Json("Histogram"))
    .fails(QUERY)
    .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/telemetry/logs/top",
        "logs_top",
        "The most frequent values of a field of log records",
    )
.of(LOGS_ONLY)
    .filters_by(&[inline_schema::<LogFilter>])
    .takes(&[p::LOGS_TOP, p::TIMES])
    .gives(ResponseBody::Json("Values"))
    .fails(QUERY)
    .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/telemetry/logs/fields",
        "log_fields",
        "The fields of log records: columns and attributes, with how many records have each",
    )
    .of(LOGS_ONLY)
    .filters_by(&[inline_schema::<LogFilter>])
    .takes(&[p::SERIES_PAGE])
    .gives(ResponseBody::Json("FieldCounts"))
    .fails(QUERY)
    .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/telemetry/logs/tail",
        "logs_tail",
        "Log records as they become visible, as server-sent events",
    )
.of(LOGS_ONLY)
    .filters_by(&[inline_schema::<LogFilter>])
    .takes(&[p::TAIL])
    .gives(ResponseBody::Events("LogEvent"))
    .fails(&[400, 403, 503])
    .details(
        "An event without a name is a row as the list of logs gives it, its `id` the place behind it. `lagged` says that the reader was too \
         slow (`missed`, `resume`), `gap` that the stream cannot go on where it was to (`from`, `since`, `reason`), `error` that it ends (`detail`).",
    ),
    TRACES,
    get(AccessRight::ReadRows, "/api/v1/telemetry/traces/top",
        "traces_top",
        "The most frequent values of a field of spans",
    )
.of(TRACES_ONLY)
    .filters_by(&[inline_schema::<TraceFilter>])
    .takes(&[p::TRACES_TOP, p::TIMES])
    .gives(ResponseBody::Json("Values"))
    .fails(QUERY)
    .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/telemetry/traces/fields",
        "trace_fields",
        "The fields of spans: columns and attributes, with how many spans have each",
    )
    .of(TRACES_ONLY)
    .filters_by(&[inline_schema::<TraceFilter>])
    .takes(&[p::SERIES_PAGE])
    .gives(ResponseBody::Json("FieldCounts"))
    .fails(QUERY)
    .details(WINDOW),
    TRACE,
    get(AccessRight::ReadRows, "/api/v1/telemetry/services",
        "services",
        "The services of spans: how many spans and errors each has, and how long they took",
    )
    .of(TRACES_ONLY)
    .filters_by(&[inline_schema::<TraceFilter>])
    .takes(&[p::SERIES_PAGE])
    .gives(ResponseBody::Json("Services"))
    .fails(QUERY)
    .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/telemetry/dependencies",
        "dependencies",
        "Which service calls which, and how often",
    )
    .of(TRACES_ONLY)
    .filters_by(&[inline_schema::<TraceFilter>])
    .takes(&[p::SERIES_PAGE])
    .gives(ResponseBody::Json("Dependencies"))
    .fails(QUERY)
    .details(
        "A call is a span whose parent is a span of another service; filters are of the called spans. A window that ends before it begins \
         is refused.",
    ),
    METRICS,
    get(AccessRight::ReadRows, "/api/v1/telemetry/metrics/names", "metric_names", "The metrics that have points")
.of(METRICS_ONLY)
        .filters_by(&[inline_schema::<SeriesFilter>])
    .takes(&[p::SERIES_PAGE])
        .gives(ResponseBody::Json("Names"))
        .fails(QUERY)
        .leads_to(&[
            link("metric", &[("metric_name", "$response.body#/data/0/name")]),
            link("metric_labels", &[("metric_name", "$response.body#/data/0/name")]),
        ])
        .details(WINDOW),
    METRIC,
    get(AccessRight::ReadRows, "/api/v1/telemetry/metrics/{metric_name}/exemplars",
        "metric_exemplars",
        "The newest exemplars of a metric's points",
    )
    .of(METRICS_ONLY)
    .filters_by(&[inline_schema::<SeriesFilter>])
    .takes(&[p::METRIC_PATH, p::EXEMPLARS])
    .gives(ResponseBody::Json("Exemplars"))
    .fails(FIND)
    .details(
        "Observations with the trace and the span that they were made in. Looked at are the newest points that carry some, as many as \
         `limit` says. A window that ends before it begins is refused.",
    ),
    get(AccessRight::ReadRows, "/api/v1/telemetry/metrics/{metric_name}/labels",
        "metric_labels",
        "The keys of a metric's labels",
    )
.of(METRICS_ONLY)
    .filters_by(&[inline_schema::<SeriesFilter>])
    .takes(&[p::METRIC_PATH, p::SERIES_PAGE])
    .gives(ResponseBody::Json("Keys"))
    .fails(FIND)
    .leads_to(&[link(
        "metric_label_values",
        &[("metric_name", "$request.path.metric_name"), ("label_key", "$response.body#/data/0/key")],
    )])
    .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/telemetry/metrics/{metric_name}/labels/{label_key}",
        "metric_label_values",
        "The values of one of a metric's labels",
    )
.of(METRICS_ONLY)
    .filters_by(&[inline_schema::<SeriesFilter>])
    .takes(&[p::METRIC_PATH, p::LABEL_PATH, p::SERIES_PAGE])
    .gives(ResponseBody::Json("Values"))
    .fails(FIND)
    .details(WINDOW),
    MESSAGES,
    MESSAGES_TAIL,
    MESSAGES_OF,
    get(AccessRight::ReadRows, "/api/v1/flux/{flux_id}",
        "flux",
        "One business signal: its messages, spans and log records, the oldest first",
    )
.of(&[Table::Messages, Table::Traces, Table::Logs])
    .filters_by(&[inline_schema::<FluxFilter>, inline_schema::<CellFilter>])
    .takes(&[p::FLUX_PATH, p::ALL_TIMES, p::SIGNAL, p::FORMAT, p::KNOWN])
    .gives(ResponseBody::Rows("Signal"))
    .fails(ROWS_OF_ONE)
    .details(
        "Messages are those that left a gear by a wire of lane guaranteed; what went by wires of lane hot only is not archived. Spans \
         and log records that carry no signal come with the traces that the others carry. Of one time messages come first, then spans, \
         then log records; `kind` says what a row is, and what it does not have is left out. A cursor belongs to its query. A window \
         that ends before it begins is refused.",
    ),
    MESSAGES.also("/api/v1/telemetry/messages", "telemetry_messages"),
    MESSAGES_OF.also("/api/v1/telemetry/messages/{flux_id}", "telemetry_messages_of"),
    get(AccessRight::ReadRows, "/api/v1/telemetry/dead_letters",
        "dead_letters",
        "Telemetry that could not be decoded, with the reason",
    )
.of(LETTERS_ONLY)
    .filters_by(&[inline_schema::<RowFilter>])
    .takes(&[p::TIMES, p::PAGES, p::FORMAT, p::KNOWN])
    .gives(ResponseBody::Rows("DeadLetters"))
    .fails(ROWS)
    .details(LISTED),
    jaeger("/jaeger/api/services", "jaeger_services", "The names of services seen within two days")
        .gives(ResponseBody::Json("JaegerNames")),
    jaeger(
        "/jaeger/api/services/{service}/operations",
        "jaeger_operations_of",
        "The names of a service's operations seen within two days",
    )
    .takes(&[jaeger_parameters::SERVICE_PATH])
    .gives(ResponseBody::Json("JaegerNames")),
    jaeger("/jaeger/api/operations", "jaeger_operations", "A service's operations seen within two days, with their kinds")
        .takes(&[jaeger_parameters::OPERATIONS])
        .gives(ResponseBody::Json("JaegerOperations")),
    jaeger("/jaeger/api/traces", "jaeger_traces", "The newest traces with a span that meets a search")
        .takes(&[jaeger_parameters::SEARCH])
        .gives(ResponseBody::Json("JaegerTraces"))
        .fails(FIND)
        .details("All spans of a trace are there, 10,000 in one answer at most; `warnings` of traces say if there are more."),
    jaeger("/jaeger/api/traces/{trace_id}", "jaeger_trace", "One trace")
        .takes(&[jaeger_parameters::TRACE])
        .gives(ResponseBody::Json("JaegerTraces"))
        .fails(FIND),
    jaeger("/jaeger/api/dependencies", "jaeger_dependencies", "How often services called one another")
        .takes(&[jaeger_parameters::DEPENDENCIES])
        .gives(ResponseBody::Json("JaegerDependencies")),
    LOGS.formerly("/api/v1/logs", "former_logs"),
    TRACES.formerly("/api/v1/traces", "former_traces"),
    TRACE.formerly("/api/v1/traces/{trace_id}", "former_trace"),
    METRICS.formerly("/api/v1/metrics", "former_metrics"),
    METRIC.formerly("/api/v1/metrics/{metric_name}", "former_metric"),
    post(AccessRight::ReadRows, "/api/v1/sql", "sql", "One SQL statement that only reads")
        .takes(&[p::FORMAT])
        .with(RequestBody::Sql)
        .gives(ResponseBody::Sql)
        .fails(&[400, 403, 406, 413, 415, 422, 503, 504, 505])
        .details(
            "A statement that fails before the first 64 KiB of its answer are there has the status of its failure. An \
             answer that fails later never looks complete: JSON has `error` in the place of `stats`, JSON lines end \
             with a line `{\"error\": …}`, and all but JSON break off without their proper end.",
        ),
];

/// Of spans in Jaeger's form.
const fn jaeger(path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    get(AccessRight::ReadRows, path, id, summary)
        .of(TRACES_ONLY)
        .fails(QUERY)
}
