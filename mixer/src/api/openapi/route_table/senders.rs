//! Routes that store rows: those of OTLP, of the protocols that agents speak, and of records.

use model::Table;
use protocols::otlp::{JSON, PROTOBUF};

use super::super::parameters as p;
use super::super::{ApiRoute, RequestBody, ResponseBody, RouteMethod};
use super::{LOGS_ONLY, METRICS_ONLY, TRACES_ONLY, get, post};
use crate::access::AccessRight;

const SENDERS: &[u16] = &[400, 408, 413, 415, 503];
const INGEST: &[u16] = &[207, 400, 403, 409, 413, 415, 422, 503];

const SENT: &str = "Up to 64 MiB uncompressed. Success means durable and visible; with 400 valid records are stored and the others are kept as dead \
                    letters. The same request again is stored once. What can be stored later is refused with 503, never with 429 or 409.";

pub(super) const ROUTES: &[ApiRoute] = &[
    otlp(
        "/v1/logs",
        "otlp_logs",
        "Stores log records that OpenTelemetry exports",
        LOGS_ONLY,
    ),
    otlp(
        "/v1/metrics",
        "otlp_metrics",
        "Stores metrics that OpenTelemetry exports",
        METRICS_ONLY,
    ),
    otlp(
        "/v1/traces",
        "otlp_traces",
        "Stores spans that OpenTelemetry exports",
        TRACES_ONLY,
    ),
    post(
        AccessRight::Ingest,
        "/loki/api/v1/push",
        "loki_push",
        "Stores log entries that clients of Grafana Loki push",
    )
    .of(LOGS_ONLY)
    .with(RequestBody::Foreign(
        &[JSON, PROTOBUF],
        "A push request of Loki 3; protobuf as a block of snappy.",
    ))
    .gives(ResponseBody::Nothing)
    .fails(SENDERS)
    .details(SENT),
    post(
        AccessRight::Ingest,
        "/api/v1/write",
        "remote_write",
        "Stores metrics that Prometheus writes",
    )
    .of(METRICS_ONLY)
    .with(RequestBody::Foreign(
        &[PROTOBUF],
        "A remote write request of version 1.0 or 2.0, a block of snappy.",
    ))
    .gives(ResponseBody::Nothing)
    .fails(SENDERS)
    .details(SENT),
    bulk(RouteMethod::Post, "/elasticsearch/_bulk", "elasticsearch_bulk"),
    bulk(RouteMethod::Put, "/elasticsearch/_bulk", "put_elasticsearch_bulk"),
    bulk(
        RouteMethod::Post,
        "/elasticsearch/{index}/_bulk",
        "elasticsearch_index_bulk",
    )
    .takes(&[p::INDEX_PATH]),
    bulk(
        RouteMethod::Put,
        "/elasticsearch/{index}/_bulk",
        "put_elasticsearch_index_bulk",
    )
    .takes(&[p::INDEX_PATH]),
    asked("/elasticsearch", "elasticsearch"),
    asked("/elasticsearch/", "elasticsearch_root"),
    asked("/elasticsearch/_license", "elasticsearch_license"),
    asked("/elasticsearch/_xpack", "elasticsearch_xpack"),
    asked("/elasticsearch/_cluster/health", "elasticsearch_health"),
    asked("/elasticsearch/_nodes/http", "elasticsearch_nodes"),
    asked("/elasticsearch/_ilm/policy/{name}", "elasticsearch_policy").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_ilm/policy/{name}", "put_elasticsearch_policy").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_index_template/{name}", "elasticsearch_index_template").takes(&[p::NAME_PATH]),
    acknowledged(
        "/elasticsearch/_index_template/{name}",
        "put_elasticsearch_index_template",
    )
    .takes(&[p::NAME_PATH]),
    asked(
        "/elasticsearch/_component_template/{name}",
        "elasticsearch_component_template",
    )
    .takes(&[p::NAME_PATH]),
    acknowledged(
        "/elasticsearch/_component_template/{name}",
        "put_elasticsearch_component_template",
    )
    .takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_template/{name}", "elasticsearch_template").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_template/{name}", "put_elasticsearch_template").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_ingest/pipeline/{name}", "elasticsearch_pipeline").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_ingest/pipeline/{name}", "put_elasticsearch_pipeline").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_data_stream/{name}", "elasticsearch_data_stream").takes(&[p::NAME_PATH]),
    acknowledged("/elasticsearch/_data_stream/{name}", "put_elasticsearch_data_stream").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/_alias/{name}", "elasticsearch_alias").takes(&[p::NAME_PATH]),
    asked("/elasticsearch/{index}", "elasticsearch_index").takes(&[p::INDEX_PATH]),
    acknowledged("/elasticsearch/{index}", "put_elasticsearch_index").takes(&[p::INDEX_PATH]),
    ingest(
        "/api/v1/ingest/logs",
        "ingest_logs",
        "Stores log records",
        Table::Logs,
        LOGS_ONLY,
    ),
    ingest(
        "/api/v1/ingest/metrics",
        "ingest_metrics",
        "Stores metric points",
        Table::Metrics,
        METRICS_ONLY,
    ),
    ingest(
        "/api/v1/ingest/traces",
        "ingest_traces",
        "Stores spans",
        Table::Traces,
        TRACES_ONLY,
    ),
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
