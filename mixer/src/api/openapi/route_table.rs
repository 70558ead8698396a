//! Every method of every path.

use model::filter::{
    AuditFilter, CheckpointFilter, FluxFilter, HistogramFilter, LetterFilter, LogFilter, MessageFilter, MetricFilter,
    SeriesFilter, TraceFilter,
};
use model::{Table, inline_schema};
use protocols::otlp::{JSON, PROTOBUF};
use serde_json::Value;

use super::parameters::{self as p, ApiParameter};
use super::{ApiRoute, OperationLink, PATH, RequestBody, ResponseBody, RouteMethod, jaeger_parameters};
use crate::access::AccessRight;

const LOGS_ONLY: &[Table] = &[Table::Logs];
const TRACES_ONLY: &[Table] = &[Table::Traces];
const METRICS_ONLY: &[Table] = &[Table::Metrics];
const MESSAGES_ONLY: &[Table] = &[Table::Messages];
const LETTERS_ONLY: &[Table] = &[Table::DeadLetters];

/// What queries may fail with.
const QUERY: &[u16] = &[400, 422, 503, 504];
/// The same where something is asked for by its name.
const FIND: &[u16] = &[400, 404, 422, 503, 504];
/// What lists of rows may fail with, and those of one metric.
const ROWS: &[u16] = &[400, 406, 422, 503, 504, 505];
const ROWS_OF_ONE: &[u16] = &[400, 404, 406, 422, 503, 504, 505];
const CHANGE: &[u16] = &[400, 403, 404, 409, 413];
const SENDERS: &[u16] = &[400, 408, 413, 415, 503];
const INGEST: &[u16] = &[207, 400, 403, 409, 413, 415, 422, 503];

const SENT: &str = "Up to 64 MiB uncompressed. Success means durable and visible; with 400 valid records are stored and the others are kept as dead \
                    letters. The same request again is stored once. What can be stored later is refused with 503, never with 429 or 409.";
const WINDOW: &str = "A window that ends before it begins is refused.";
const LISTED: &str = "`offset` and `cursor` exclude each other, and a cursor belongs to its query. A window that ends before it begins is refused.";
const LISTED_OF_ONE: &str = "A signal that no archived message has is an empty list. `offset` and `cursor` exclude each other, and a cursor belongs to \
                             its query. A window that ends before it begins is refused.";
const POINTS: &str = "Without `interval`, `group_by` and `agg` the points themselves, else their aggregates. \
                      `fill=true` and `shape=series` need `interval`; `offset` and `cursor` exclude each other, and a \
                      cursor belongs to its query. A window that ends before it begins is refused.";

const ACTIVATED: &str = "200 also where Racks do not run it: `converged` says whether all do, `racks` why not. A Rack that cannot apply it \
                         keeps its last good scenario; one that appears later gets it then.";

/// What changes of letters may fail with.
const LETTERS: &[u16] = &[400, 403, 409, 413, 422, 503, 504];
const LETTER: &[u16] = &[400, 403, 404, 409, 413, 422, 503, 504];
const REPLAYED: &str = "A letter is replayed once even if it is requested twice, unless `again` is set. The answer \
                        waits for the gears as long as `wait` says, at most 60s; a letter whose Rack is offline is \
                        `waiting` and is replayed when the Rack is online.";

const fn get(right: AccessRight, path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    ApiRoute {
        method: RouteMethod::Get,
        right,
        tables: &[],
        path,
        id,
        summary,
        details: "",
        filters: &[],
        parameters: &[],
        sent: RequestBody::Nothing,
        answer: ResponseBody::Json("Any"),
        has_second_person: false,
        problems: &[],
        successor: None,
        links: &[],
    }
}

const fn link(to: &'static str, given: &'static [(&'static str, &'static str)]) -> OperationLink {
    OperationLink { to, given }
}

const fn post(right: AccessRight, path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    ApiRoute {
        method: RouteMethod::Post,
        ..get(right, path, id, summary)
    }
}

impl ApiRoute {
    /// Of the rows of these tables.
    const fn of(self, tables: &'static [Table]) -> Self {
        Self { tables, ..self }
    }

    const fn takes(self, parameters: &'static [&'static [ApiParameter]]) -> Self {
        Self { parameters, ..self }
    }

    const fn filters_by(self, filters: &'static [fn() -> Value]) -> Self {
        Self { filters, ..self }
    }

    const fn with(self, sent: RequestBody) -> Self {
        Self { sent, ..self }
    }

    const fn gives(self, answer: ResponseBody) -> Self {
        Self { answer, ..self }
    }

    /// It may need a second person.
    const fn by_two(self) -> Self {
        Self {
            has_second_person: true,
            ..self
        }
    }

    const fn fails(self, problems: &'static [u16]) -> Self {
        Self { problems, ..self }
    }

    const fn leads_to(self, links: &'static [OperationLink]) -> Self {
        Self { links, ..self }
    }

    const fn details(self, details: &'static str) -> Self {
        Self { details, ..self }
    }

    /// The same at another path, which is as good.
    const fn also(self, path: &'static str, id: &'static str) -> Self {
        Self {
            links: &[],
            path,
            id,
            ..self
        }
    }

    /// The same at its v0.4.4 path.
    const fn formerly(self, path: &'static str, id: &'static str) -> Self {
        Self {
            successor: Some(self.path),
            links: &[],
            path,
            id,
            ..self
        }
    }
}

const LOGS: ApiRoute = get(AccessRight::ReadRows, "/api/v1/telemetry/logs", "logs", "Log records")
    .of(LOGS_ONLY)
    .filters_by(&[inline_schema::<LogFilter>])
    .takes(&[p::TIMES, p::ORDER, p::PAGES, p::FORMAT, p::KNOWN])
    .gives(ResponseBody::Rows("Logs"))
    .fails(ROWS)
    .details(LISTED);
const TRACES: ApiRoute = get(AccessRight::ReadRows, "/api/v1/telemetry/traces", "traces", "Spans")
    .of(TRACES_ONLY)
    .filters_by(&[inline_schema::<TraceFilter>])
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
.filters_by(&[inline_schema::<MessageFilter>])
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
.filters_by(&[inline_schema::<MessageFilter>])
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
    .filters_by(&[inline_schema::<FluxFilter>])
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
    otlp("/v1/logs", "otlp_logs", "Stores log records that OpenTelemetry exports", LOGS_ONLY),
    otlp("/v1/metrics", "otlp_metrics", "Stores metrics that OpenTelemetry exports", METRICS_ONLY),
    otlp("/v1/traces", "otlp_traces", "Stores spans that OpenTelemetry exports", TRACES_ONLY),
    post(AccessRight::Ingest, "/loki/api/v1/push", "loki_push", "Stores log entries that clients of Grafana Loki push")
        .of(LOGS_ONLY)
        .with(RequestBody::Foreign(&[JSON, PROTOBUF], "A push request of Loki 3; protobuf as a block of snappy."))
        .gives(ResponseBody::Nothing)
        .fails(SENDERS)
        .details(SENT),
    post(AccessRight::Ingest, "/api/v1/write", "remote_write", "Stores metrics that Prometheus writes")
        .of(METRICS_ONLY)
        .with(RequestBody::Foreign(&[PROTOBUF], "A remote write request of version 1.0 or 2.0, a block of snappy."))
        .gives(ResponseBody::Nothing)
        .fails(SENDERS)
        .details(SENT),
    bulk(RouteMethod::Post, "/elasticsearch/_bulk", "elasticsearch_bulk"),
    bulk(RouteMethod::Put, "/elasticsearch/_bulk", "put_elasticsearch_bulk"),
    bulk(RouteMethod::Post, "/elasticsearch/{index}/_bulk", "elasticsearch_index_bulk").takes(&[p::INDEX_PATH]),
    bulk(RouteMethod::Put, "/elasticsearch/{index}/_bulk", "put_elasticsearch_index_bulk").takes(&[p::INDEX_PATH]),
    asked("/elasticsearch", "elasticsearch"),
    asked("/elasticsearch/", "elasticsearch_root"),
    asked("/elasticsearch/_license", "elasticsearch_license"),
    asked("/elasticsearch/_xpack", "elasticsearch_xpack"),
    asked("/elasticsearch/_cluster/health", "elasticsearch_health"),
    asked("/elasticsearch/_nodes/http", "elasticsearch_nodes"),
    asked("/elasticsearch/_ilm/policy/{name}", "elasticsearch_policy").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_ilm/policy/{name}", "put_elasticsearch_policy").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_index_template/{name}", "elasticsearch_index_template").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_index_template/{name}", "put_elasticsearch_index_template").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_component_template/{name}", "elasticsearch_component_template").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_component_template/{name}", "put_elasticsearch_component_template").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_template/{name}", "elasticsearch_template").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_template/{name}", "put_elasticsearch_template").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_ingest/pipeline/{name}", "elasticsearch_pipeline").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_ingest/pipeline/{name}", "put_elasticsearch_pipeline").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_data_stream/{name}", "elasticsearch_data_stream").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_data_stream/{name}", "put_elasticsearch_data_stream").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_alias/{name}", "elasticsearch_alias").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/{index}", "elasticsearch_index").takes(&[p::INDEX_PATH]),
    acknowledged("/elasticsearch/{index}", "put_elasticsearch_index").takes(&[p::INDEX_PATH]),
    ingest("/api/v1/ingest/logs", "ingest_logs", "Stores log records", Table::Logs, LOGS_ONLY),
    ingest(
        "/api/v1/ingest/metrics",
        "ingest_metrics",
        "Stores metric points",
        Table::Metrics,
        METRICS_ONLY,
    ),
    ingest("/api/v1/ingest/traces", "ingest_traces", "Stores spans", Table::Traces, TRACES_ONLY),
    get(AccessRight::ReadFleet, "/api/v1/racks", "racks", "Every Rack, the oldest first; removed ones included")
        .gives(ResponseBody::Json("Racks"))
        .fails(&[400])
        .leads_to(&[
            link("rack", &[("id", "$response.body#/data/0/id")]),
            link("approve_rack", &[("id", "$response.body#/data/0/id")]),
            link("suspend_rack", &[("id", "$response.body#/data/0/id")]),
            link("resume_rack", &[("id", "$response.body#/data/0/id")]),
            link("remove_rack", &[("id", "$response.body#/data/0/id")]),
            link("rack_labels", &[("id", "$response.body#/data/0/id")]),
        ]),
    get(AccessRight::ReadFleet, "/api/v1/racks/{id}", "rack", "One Rack")
        .takes(&[p::RACK_PATH])
        .gives(ResponseBody::Json("Rack"))
        .fails(&[400, 404]),
    change(AccessRight::AdmitRacks, "/api/v1/racks/{id}/approve",
        "approve_rack",
        "Adopts a pending Rack, under another name if one is given, and only with the key that is given",
    )
    .with(RequestBody::Json("Approval"))
    .by_two(),
    change(AccessRight::OperateRacks, "/api/v1/racks/{id}/suspend", "suspend_rack", "Stops a Rack's gears"),
    change(AccessRight::OperateRacks, "/api/v1/racks/{id}/resume", "resume_rack", "Resumes a suspended Rack"),
    change(AccessRight::RemoveRacks, "/api/v1/racks/{id}/remove", "remove_rack", "Revokes a Rack's identity"),
    change(AccessRight::OperateRacks, "/api/v1/racks/{id}/log-level", "rack_log_level", "Changes the level of a Rack's own log")
        .with(RequestBody::Required("LogLevel"))
        .fails(&[400, 403, 404, 409, 413, 503])
        .details("Until the Rack restarts or its configuration file changes the level."),
    ApiRoute {
        method: RouteMethod::Put,
        ..change(AccessRight::LabelRacks, "/api/v1/racks/{id}/labels", "rack_labels", "Replaces the labels of a Rack")
    }
    .with(RequestBody::Required("Labels"))
    .details("Groups of a scenario select Racks by their labels. The Rack is sent its new assignment, now or when it \
              is online."),
    ApiRoute {
        method: RouteMethod::Patch,
        ..change(AccessRight::LabelRacks, "/api/v1/racks/{id}/labels", "change_rack_labels", "Sets and removes labels of a Rack")
    }
    .with(RequestBody::Required("LabelChanges"))
    .fails(&[400, 403, 404, 409, 413, 422])
    .details("A label that is null is removed; those that are not named stay, even under concurrent changes."),
    get(AccessRight::ReadRows, "/api/v1/racks/{id}/tap", "rack_tap", "Messages as they leave an output port of a Rack, as server-sent events")
.of(MESSAGES_ONLY)
        .takes(&[p::RACK_PATH, p::TAPPED])
        .gives(ResponseBody::Events("TapEvent"))
        .fails(&[400, 404, 409, 503])
        .details(
            "Of all wires of the port, of both lanes; the flow is not slowed. An event without a name is a message: \
             the first 4 KiB of its body and of its metadata, the body as `encoding` says. `lagged` says how many \
             messages passed and are not shown: a Rack shows 1 MiB a second at most, and no more than the reader \
             takes. `error` says why the stream ends (`detail`).",
        ),
    get(AccessRight::ReadFleet, "/api/v1/wires", "wires", "The wires of lane guaranteed and what waits for each, the largest backlog first")
        .gives(ResponseBody::Json("Wires"))
        .fails(&[400])
        .details(
            "A wire that is held is at its limit: its senders wait until its receiver takes messages. What the bus \
             keeps is counted in bus messages, each of one message or more; bytes are an estimate by what was \
             archived.",
        ),
    get(AccessRight::ReadFleet, "/api/v1/scenarios", "scenarios", "The stored scenarios")
        .gives(ResponseBody::Json("Scenarios"))
        .fails(&[400])
        .leads_to(&[
            link("scenario", &[("reference", "$response.body#/data/0/reference")]),
            link("activate_scenario", &[("reference", "$response.body#/data/0/reference")]),
        ]),
    post(AccessRight::WriteScenarios, "/api/v1/scenarios", "import_scenario", "Checks a scenario and stores it")
        .takes(&[p::IMPORT])
        .with(RequestBody::Scenario)
        .gives(ResponseBody::Json("Imported"))
        .fails(&[400, 403, 409, 413, 415, 422])
        .leads_to(&[link("activate_scenario", &[("reference", "$response.body#/data/reference")])])
        .details("A file of up to 4 MiB. The same content again changes nothing. Racks keep running what they run \
                  until it is activated."),
    get(AccessRight::ReadFleet, "/api/v1/scenarios/status",
        "scenario_status",
        "The assignment of each Rack in the active scenario, what it runs, and why not",
    )
    .gives(ResponseBody::Json("ScenarioReport"))
    .fails(&[400, 422]),
    post(AccessRight::ActivateScenarios, "/api/v1/scenarios/rollback",
        "rollback_scenario",
        "Activates the previously active scenario, each time one further back",
    )
    .takes(&[p::WAIT])
    .with(RequestBody::Json("Nothing"))
    .gives(ResponseBody::Json("ScenarioReport"))
    .by_two()
    .fails(&[400, 403, 404, 409, 413, 422])
    .details(ACTIVATED),
    get(AccessRight::ReadScenarios, "/api/v1/scenarios/{reference}", "scenario", "One stored scenario")
        .takes(&[p::SCENARIO_PATH])
        .gives(ResponseBody::Json("Scenario"))
        .fails(&[400, 404]),
    post(AccessRight::ActivateScenarios, "/api/v1/scenarios/{reference}/activate",
        "activate_scenario",
        "Activates a stored scenario",
    )
    .takes(&[p::SCENARIO_PATH, p::DRY_RUN, p::WAIT])
    .with(RequestBody::Json("Nothing"))
    .gives(ResponseBody::Json("ScenarioReport"))
    .by_two()
    .fails(&[400, 403, 404, 413, 422])
    .details(ACTIVATED),
    post(AccessRight::WriteScenarios, "/api/v1/scenarios/{reference}/delete",
        "delete_scenario",
        "Deletes a stored scenario",
    )
    .takes(&[p::SCENARIO_PATH])
    .with(RequestBody::Json("Nothing"))
    .gives(ResponseBody::Json("Deleted"))
    .fails(&[400, 403, 404, 409, 413, 422])
    .details("The active one cannot be deleted. A rollback can still restore a deleted one."),
    get(AccessRight::ReadAudit, "/api/v1/audit", "audit", "The audit log: changes of Racks, scenarios and dead letters and who made them, the \
                                   newest first")
        .filters_by(&[inline_schema::<AuditFilter>])
    .takes(&[p::AUDIT_PAGE])
        .gives(ResponseBody::Json("Audit"))
        .fails(&[400])
        .details("A window that ends before it begins is refused. Decisions and refused calls are kept as long as `audit.keep` says (the last 500000 at the most), and the last 50000 sightings (offline, online)."),
    get(AccessRight::ReadAudit, "/api/v1/audit/checkpoints", "audit_checkpoints", "The signed checkpoints of the audit log's hash chain, the newest first")
        .filters_by(&[inline_schema::<CheckpointFilter>])
        .takes(&[p::CHECKPOINTS_PAGE])
        .gives(ResponseBody::Json("AuditCheckpoints"))
        .fails(&[400])
        .details("One an hour, if there was an entry. `signed` has the rest in it, signed with the cluster's key of then (`signed_by`): `platform audit verify` checks it. `cluster_key` is the fingerprint of the cluster's key now; `successions` are the keys before it, the oldest first, each signing the next (hexadecimal digits)."),
    get(AccessRight::ReadRows, "/api/v1/dlq", "letters", "The letters of the dead-letter queue, the newest first")
.of(LETTERS_ONLY)
        .filters_by(&[inline_schema::<LetterFilter>])
    .takes(&[p::LETTERS_PAGE])
        .gives(ResponseBody::Json("Letters"))
        .fails(QUERY)
        .leads_to(&[
            link("letter", &[("letter_id", "$response.body#/data/0/id")]),
            link("replay_letter", &[("letter_id", "$response.body#/data/0/id")]),
            link("drop_letter", &[("letter_id", "$response.body#/data/0/id")]),
        ])
        .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/dlq/{letter_id}", "letter", "One letter: where it came from, why it failed, its message and its bytes")
.of(LETTERS_ONLY)
        .takes(&[p::LETTER_PATH])
        .gives(ResponseBody::Json("Letter"))
        .fails(FIND),
    post(AccessRight::HandleLetters, "/api/v1/dlq/replay", "replay_letters", "Replays letters to the gears that could not handle them")
.of(LETTERS_ONLY)
        .with(RequestBody::Required("ReplayWish"))
        .gives(ResponseBody::Json("LettersChanged"))
        .fails(LETTERS)
        .details(REPLAYED),
    post(AccessRight::HandleLetters, "/api/v1/dlq/drop", "drop_letters", "Marks letters as dropped; their rows stay until they expire")
.of(LETTERS_ONLY)
        .with(RequestBody::Required("DropWish"))
        .gives(ResponseBody::Json("LettersChanged"))
        .fails(LETTERS),
    post(AccessRight::HandleLetters, "/api/v1/dlq/{letter_id}/replay", "replay_letter", "Replays a letter to the gear that could not handle it")
.of(LETTERS_ONLY)
        .takes(&[p::LETTER_PATH])
        .with(RequestBody::Json("ReplayOfOne"))
        .gives(ResponseBody::Json("Letter"))
        .fails(LETTER)
        .details(REPLAYED),
    post(AccessRight::HandleLetters, "/api/v1/dlq/{letter_id}/drop", "drop_letter", "Marks a letter as dropped; its row stays until it expires")
.of(LETTERS_ONLY)
        .takes(&[p::LETTER_PATH])
        .with(RequestBody::Json("DropOfOne"))
        .gives(ResponseBody::Json("Letter"))
        .fails(LETTER),
    get(AccessRight::ManageTokens, "/api/v1/tokens", "tokens", "The API tokens, without their secrets")
        .gives(ResponseBody::Json("Tokens"))
        .fails(&[400]),
    post(AccessRight::ManageTokens, "/api/v1/tokens", "create_token", "Makes an API token")
        .with(RequestBody::Required("TokenRequest"))
        .gives(ResponseBody::Json("CreatedToken"))
        .fails(&[400, 409, 413, 422])
        .leads_to(&[link("revoke_token", &[("token", "$response.body#/data/id")])])
        .details("The secret is in this answer and in no other."),
    post(AccessRight::ManageTokens, "/api/v1/tokens/{token}/revoke", "revoke_token", "Revokes an API token at once")
        .takes(&[p::TOKEN_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Token"))
        .fails(&[400, 404, 409, 413]),
    post(AccessRight::BackUp, "/api/v1/backup", "backup", "Copies the registry and the keys into a folder of the Mixer's machine")
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Backup"))
        .fails(&[400, 413, 422])
        .details("The answer says where it is; nothing of it is sent. `platform-mixer restore` brings it back."),
    get(AccessRight::ReadAudit, "/api/v1/security", "security", "What is off in the Mixer's security, and how to mend it")
        .gives(ResponseBody::Json("SecurityFindings"))
        .fails(&[400])
        .details("`platform doctor --security` shows it, with what the Rack's own file says."),
    get(AccessRight::InviteRacks, "/api/v1/invites", "invites", "The invites of Racks, without their texts")
        .gives(ResponseBody::Json("Invites"))
        .fails(&[400]),
    post(AccessRight::InviteRacks, "/api/v1/invites", "create_invite", "Makes an invite, which admits one Rack under one name")
        .with(RequestBody::Required("InviteRequest"))
        .gives(ResponseBody::Json("CreatedInvite"))
        .by_two()
        .fails(&[400, 409, 413, 422])
        .leads_to(&[link("revoke_invite", &[("invite", "$response.body#/data/id")])])
        .details("Its text is in this answer and in no other. It takes the place of an open invite for the name."),
    post(AccessRight::InviteRacks, "/api/v1/invites/{invite}/revoke", "revoke_invite", "Revokes an open invite at once")
        .takes(&[p::INVITE_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Invite"))
        .fails(&[400, 404, 413]),
    get(AccessRight::HandleRequests, "/api/v1/requests", "change_requests", "The changes that wait for a second person, the oldest first")
        .gives(ResponseBody::Json("ChangeRequests"))
        .fails(&[400])
        .leads_to(&[link("withdraw_change_request", &[("request", "$response.body#/data/0/id")])]),
    post(AccessRight::HandleRequests, "/api/v1/requests/{request}/withdraw", "withdraw_change_request", "Forgets a change that waits for a second person")
        .takes(&[p::REQUEST_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("ChangeRequest"))
        .fails(&[400, 404, 413]),
    get(AccessRight::Known, "/api/v1/whoami", "whoami", "Who the caller is, with its roles and scope")
        .gives(ResponseBody::Json("Caller"))
        .fails(&[400]),
    get(AccessRight::ReadFleet, "/api/v1/gears", "gears", "The gear types that a scenario may name")
        .gives(ResponseBody::Json("Gears"))
        .fails(&[400])
        .leads_to(&[link("gear", &[("type", "$response.body#/data/0/type")])]),
    get(AccessRight::ReadFleet, "/api/v1/gears/{type}", "gear", "One gear type: its ports, and the JSON Schema of its configuration")
        .takes(&[p::GEAR_PATH])
        .gives(ResponseBody::Json("Gear"))
        .fails(&[400, 404]),
    get(AccessRight::ReadFleet, "/api/v1/specs", "specs", "The specs of business messages: what is in force, and which files are refused")
        .gives(ResponseBody::Json("Specs"))
        .fails(&[400]),
    get(AccessRight::ReadFleet, "/api/v1/storage", "storage", "Statistics of the store and of ingest")
        .gives(ResponseBody::Json("Storage"))
        .fails(&[400]),
    get(AccessRight::Monitor, PATH, "openapi", "This document")
        .gives(ResponseBody::Json("OpenApi"))
        .fails(&[400]),
    get(AccessRight::Anybody, "/healthz", "healthz", "Liveness: whether the process answers").gives(ResponseBody::Json("Health")),
    get(AccessRight::Monitor, "/readyz",
        "readyz",
        "Readiness: whether telemetry sent now would be stored, with each check's result",
    )
    .gives(ResponseBody::Ready("Readiness")),
    get(AccessRight::Monitor, "/version", "version", "The program and its version").gives(ResponseBody::Json("Version")),
    get(AccessRight::Monitor, "/metrics", "exposition", "The Mixer's own metrics, for a scraper")
        .gives(ResponseBody::Exposition)
        .fails(&[404])
        .details("The Prometheus text format 0.0.4, or OpenMetrics 1.0.0 if `Accept` prefers it."),
];

/// A signal of OTLP.
const fn otlp(path: &'static str, id: &'static str, summary: &'static str, tables: &'static [Table]) -> ApiRoute {
    post(AccessRight::Ingest, path, id, summary)
        .of(tables)
        .with(RequestBody::Otlp)
        .gives(ResponseBody::Otlp)
        .fails(&[400, 408, 413, 415, 503])
        .details(
            "OTLP/HTTP 1.10, gzip or zstd, of up to 64 MiB uncompressed. 200 means durable and visible; records that cannot be \
             stored are named in the partial success and kept as dead letters. The same request again is stored once.",
        )
}

/// What clients of Elasticsearch ask before they send.
const fn asked(path: &'static str, id: &'static str) -> ApiRoute {
    get(
        AccessRight::Ingest,
        path,
        id,
        "What clients of Elasticsearch ask before they send: a constant",
    )
    .gives(ResponseBody::Elasticsearch("As if it were there."))
}

/// What they want to be there.
const fn acknowledged(path: &'static str, id: &'static str) -> ApiRoute {
    ApiRoute {
        method: RouteMethod::Put,
        summary: "What clients of Elasticsearch want to be there: acknowledged, and nothing is kept",
        ..asked(path, id)
    }
}

/// A bulk request.
const fn bulk(method: RouteMethod, path: &'static str, id: &'static str) -> ApiRoute {
    const SAYS: &str = "Lines of actions, each with a line of its document behind it.";
    ApiRoute {
        method,
        ..post(AccessRight::Ingest, path, id, "Stores documents that clients of Elasticsearch send as log records")
            .of(LOGS_ONLY)
            .with(RequestBody::Foreign(&["application/x-ndjson", JSON], SAYS))
            .gives(ResponseBody::Elasticsearch("The status of each item: 201, or 400 with the reason."))
            .fails(SENDERS)
            .details(
                "Up to 64 MiB uncompressed and 131,072 items. 201 means durable and visible; refused documents are kept as dead \
                 letters. The same request again is stored once if its first document has a time. `update` and `delete` are refused.",
            )
    }
}

/// Of spans in Jaeger's form.
const fn jaeger(path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    get(AccessRight::ReadRows, path, id, summary)
        .of(TRACES_ONLY)
        .fails(QUERY)
}

const fn ingest(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    table: Table,
    tables: &'static [Table],
) -> ApiRoute {
    post(AccessRight::Ingest, path, id, summary)
        .of(tables)
        .takes(&[p::INGEST])
        .with(RequestBody::Records(table))
        .gives(ResponseBody::Json("Stored"))
        .fails(INGEST)
        .details(
            "200 means durable and visible. Valid rows are stored even if others are invalid: that is answered with 207, and \
             those that are not stored are listed. A body of up to 64 MiB uncompressed.",
        )
}

const fn change(right: AccessRight, path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    post(right, path, id, summary)
        .takes(&[p::RACK_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Rack"))
        .fails(CHANGE)
}
