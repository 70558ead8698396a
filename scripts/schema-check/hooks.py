"""What schemathesis does not know by itself: the encodings of telemetry."""

import itertools
import json
import os
import re
import sys

import schemathesis

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import cbor


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    records = value if isinstance(value, list) else [value]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@schemathesis.serializer("application/sql")
def statement(_context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.serializer("application/cbor")
def binary(_context, value):
    return cbor.encoded(value)


@schemathesis.serializer("application/x-protobuf")
def protobuf(_context, value):
    """The document has no schema of these messages: without fields each of them is good."""
    return value if isinstance(value, bytes) else b""


@schemathesis.deserializer("application/vnd.apache.arrow.stream")
def arrow(_context, response):
    """An Arrow stream begins with the length of its schema and ends with its end mark; what is between is other tests' affair."""
    mark = b"\xff" * 4
    if not response.content.startswith(mark) or not response.content.endswith(mark + b"\0" * 4):
        raise ValueError("not a whole Arrow stream")
    return {}


@schemathesis.hook
def filter_query(_context, query):
    """Meant to be wrong, but on the wire right: a list or an object among attributes is written as attributes, a text as a list of one."""
    families = ("attr.", "labels.", "promoted.")
    given = (query or {}).items()
    if any(name.startswith(families) and isinstance(value, (list, dict)) for name, value in given):
        return False
    return all(is_list_of_texts(name, value) for name, value in given if name.startswith("not."))


def is_list_of_texts(name, value):
    """Whether what is left out is a list as the document has it: of attributes' values, numbers and truths are texts too."""
    texts = (str, int, float) if name.startswith("not.attr.") else str
    return isinstance(value, list) and all(isinstance(item, texts) for item in value)


KEYS = itertools.count()
STATEMENTS = itertools.cycle([
    "SELECT * FROM logs ORDER BY ts DESC LIMIT 3",
    "SELECT * FROM traces LIMIT 3",
    "SELECT * FROM metrics LIMIT 3",
    "SELECT * FROM messages",
    "SELECT level, count(*) AS n, max(ts) FROM logs GROUP BY level",
    "SELECT 'NaN'::double AS a, NULL AS b, [1, 2] AS c, now() AS d, interval '1 day' AS e, true AS f",
    "EXPLAIN SELECT count(*) FROM logs",
    "SHOW TABLES",
    "SELECT 1 AS a WHERE false",
])


OTLP = {
    "/v1/logs": {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "schema check"}}]}]}]},
    "/v1/metrics": {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "schema.check.otlp", "gauge": {"dataPoints": [{"asDouble": 1.5}]}}]}]}]},
    "/v1/traces": {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "schema check"}]}]}]},
}


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """What OpenAPI has no words for: a request that is to be right keeps the rules between its parts too."""
    if "/ingest/" in case.operation.path and (case.query or {}).get("shape") == "auto":
        # Nearly every object is a record then, and CBOR none.
        case.query.pop("shape")
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    query, headers = case.query or {}, case.headers or {}
    # Conditions are bounded in all, not each kind of them.
    if sum(len(value) for value in query.values() if isinstance(value, (list, dict))) > 100:
        for name, value in query.items():
            if isinstance(value, list):
                query[name] = value[:10]
            elif isinstance(value, dict):
                query[name] = dict(itertools.islice(value.items(), 10))
    # A wait that is longer than this check has patience is right, too.
    if "wait" in query and not re.fullmatch(r"(\d{1,3}(ns|us|ms))+", str(query["wait"])):
        query["wait"] = "100ms"
    # Only an answer can give them.
    query.pop("cursor", None)
    if "/tail" in case.operation.path:
        headers.pop("Last-Event-ID", None)
    if "since" in query:
        # It would have to be later; without since it is tried as well.
        query.pop("until", None)
    if "around" in query:
        # It has no pages, and a window of its own.
        for name in ("limit", "offset", "since", "until"):
            query.pop(name, None)
    else:
        query.pop("before", None)
        query.pop("after", None)
    if "interval" not in query and "/metrics" in case.operation.path:
        query.pop("fill", None)
        query.pop("shape", None)
    if case.operation.path == "/jaeger/api/traces":
        # JSON inside a text; and a search needs a service, which an id takes the place of.
        query.pop("tags", None)
        query.setdefault("service", "node-01")
        if "start" in query:
            query.pop("end", None)
        case.query = query
    if "/dlq/" in case.operation.path and isinstance(case.body, dict) and "since" in (case.body.get("filter") or {}):
        case.body["filter"].pop("until", None)
    # What SQL is.
    if case.operation.path.endswith("/sql"):
        if isinstance(case.body, dict):
            case.body["query"] = next(STATEMENTS)
            case.body.pop("parameters", None)
        else:
            case.body = next(STATEMENTS)
    # What OTLP's messages are.
    if case.operation.path in OTLP and case.media_type == "application/json":
        case.body = OTLP[case.operation.path]
    # What agents send: an empty block of snappy, and a document behind its action.
    if case.operation.path in ("/loki/api/v1/push", "/api/v1/write") and case.media_type == "application/x-protobuf":
        case.body = b"\0"
    if case.operation.path == "/loki/api/v1/push" and case.media_type == "application/json":
        case.body = {"streams": []}
    if case.operation.path.endswith("/_bulk"):
        case.media_type = "application/x-ndjson"
        case.body = [{"create": {}}, {"message": "schema check"}]
    # Bodies are not packed, and each is another one.
    headers.pop("Content-Encoding", None)
    if "Idempotency-Key" in headers:
        headers["Idempotency-Key"] = f"schema-check-{next(KEYS)}"
