"""An application that exports with OpenTelemetry's SDK for Python, and says what it exported: for each record the row that is to be stored.

usage: sdk.py grpc|http|json logs|traces|metrics ENDPOINT RECORDS [SERVICE]
"""

import base64
import json
import struct
import sys
import time
from datetime import datetime, timedelta, timezone
from importlib import import_module

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

way, signal, endpoint, records = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
SERVICE = sys.argv[5] if len(sys.argv) > 5 else f"python-{way}"
PACKAGES = {"grpc": "opentelemetry.exporter.otlp.proto.grpc", "http": "opentelemetry.exporter.otlp.proto.http", "json": "opentelemetry.exporter.otlp.json.http"}
RESOURCE = {"service.name": SERVICE, "host.cpus": 4, "tags": ("a", "b"), "ratio": 0.5, "is.test": True}
SCOPE = {"name": "sender", "version": "1.2"}
# Of how many a request has: the SDK's own batches, so that there are several.
BATCH = 10
# Some minutes ago: what is old is not kept, and what is yet to come gets another time.
BEGIN = (int(time.time()) - 600) * 1_000_000_000 + 123_456_789


def exporter(module, name):
    """An exporter of the chosen package."""
    kind = getattr(import_module(f"{PACKAGES[way]}.{module}"), name)
    if way == "grpc":
        return kind(endpoint=endpoint, insecure=True, timeout=300)
    return kind(endpoint=f"{endpoint}/v1/{signal}", timeout=300)


def ts(nanos):
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=nanos // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def nanos_text(nanos):
    return f"{ts(nanos)[:-1]}{nanos % 1000:03}Z"


def single(value):
    """The shortest number that is the same with 32 bits."""
    packed = struct.pack("f", value)
    wide, = struct.unpack("f", packed)
    return next(short for digits in range(1, 18) if struct.pack("f", short := float(f"{wide:.{digits}g}")) == packed)


def flat(attributes, prefix=""):
    """Attributes as they are stored."""
    found = {}
    for key, value in dict(attributes or {}).items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            found[f"{prefix}{key}"] = list(value)
        elif isinstance(value, bytes):
            found[f"{prefix}{key}"] = base64.b64encode(value).decode()
        else:
            found[f"{prefix}{key}"] = value
    return found


def shared():
    return flat(RESOURCE, "resource.") | {f"otel.scope.{key}": value for key, value in SCOPE.items()}


def say(row):
    print(json.dumps(row))


def logs():
    provider = LoggerProvider(resource=Resource(RESOURCE), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter("_log_exporter", "OTLPLogExporter"), max_export_batch_size=BATCH))
    logger = provider.get_logger(SCOPE["name"], SCOPE["version"])
    levels = [(SeverityNumber.TRACE2, "debug"), (SeverityNumber.INFO, "info"), (SeverityNumber.WARN, "warn"), (SeverityNumber.FATAL, "error")]
    kept = {SeverityNumber.TRACE2, SeverityNumber.FATAL}
    for number in range(records):
        severity, level = levels[number % 4]
        bodies = [(f"line {number} ä\n", {}), ({"code": number, "in": {"a": [1, "b"]}}, {"body.code": number, "body.in.a": [1, "b"], "otel.body.type": "map"})]
        body, of_body = bodies[number % 2]
        message = body if isinstance(body, str) else "event.done"
        attributes = {"number": number, "half": number / 2, "flag": number % 3 == 0, "list": ["x", "y"], "map": {"k": {"deep": "v"}}}
        when = BEGIN + number * 1_000_001
        context = trace.set_span_in_context(trace.NonRecordingSpan(trace.SpanContext(number + 1, number + 2, False, trace.TraceFlags(1))))
        logger.emit(LogRecord(timestamp=when, observed_timestamp=when + 1, context=context, severity_number=severity, body=body, attributes=attributes,
                              event_name=None if isinstance(body, str) else "event.done"))
        expected = shared() | flat(attributes) | of_body | {"trace_id": f"{number + 1:032x}", "span_id": f"{number + 2:016x}"}
        if severity in kept:
            expected["otel.severity_number"] = severity.value
        if not isinstance(body, str):
            expected["otel.event.name"] = "event.done"
        say({"ts": ts(when), "entity_name": SERVICE, "level": level, "message": message, "attributes": expected})
    assert provider.force_flush(300_000)
    provider.shutdown()


def traces():
    provider = TracerProvider(resource=Resource(RESOURCE), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter("trace_exporter", "OTLPSpanExporter"), max_export_batch_size=BATCH))
    tracer = provider.get_tracer(SCOPE["name"], SCOPE["version"])
    kinds = list(trace.SpanKind)
    parent = None
    for number in range(records):
        begin = BEGIN + number * 1_000_003
        end = begin + number * 1_234_567
        kind = kinds[number % len(kinds)]
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent)) if parent else None
        links = [trace.Link(trace.SpanContext(7, 8, True), {"why": "batch"})] if number % 2 else []
        span = tracer.start_span(f"step {number % 3}", context=context, kind=kind, attributes={"number": number}, links=links, start_time=begin)
        expected = shared() | {"number": number, "span.kind": kind.name.lower()}
        if number % 4 == 1:
            span.set_status(trace.Status(trace.StatusCode.ERROR, "broke"))
            expected["otel.status_description"] = "broke"
        if number % 4 == 2:
            span.set_status(trace.Status(trace.StatusCode.OK))
            expected["otel.status_code"] = "OK"
        if number % 2 == 0:
            span.add_event("event", {"n": number}, timestamp=begin + 1)
            expected["otel.events"] = [{"time": nanos_text(begin + 1), "name": "event", "attributes": {"n": number}}]
        else:
            expected["otel.links"] = [{"trace_id": f"{7:032x}", "span_id": f"{8:016x}", "flags": 768, "attributes": {"why": "batch"}}]
        span.end(end_time=end)
        of = span.get_span_context()
        say({"ts": ts(begin), "entity_name": SERVICE, "trace_id": f"{of.trace_id:032x}", "span_id": f"{of.span_id:016x}",
             "parent_span_id": f"{parent.span_id:016x}" if parent else None, "span_name": f"step {number % 3}", "duration_ms": single((end - begin) / 1e6),
             "status": "error" if number % 4 == 1 else "ok", "attributes": expected})
        parent = of if number % 5 else None
    assert provider.force_flush(300_000)
    provider.shutdown()


def point_row(metric, point):
    """The row of a point as the SDK exports it."""
    data, labels = metric.data, shared() | flat(point.attributes)
    kind, value = "gauge", getattr(point, "value", None)
    if metric.unit:
        labels["otel.unit"] = metric.unit
    if getattr(point, "start_time_unix_nano", None):
        labels["otel.start_time"] = nanos_text(point.start_time_unix_nano)
    if hasattr(data, "is_monotonic"):
        kind = "counter" if data.is_monotonic else "gauge"
        if not data.is_monotonic:
            labels["otel.monotonic"] = False
    if hasattr(point, "count"):
        kind, value = "histogram", float(point.sum)
        labels |= {"otel.count": point.count, "otel.min": float(point.min), "otel.max": float(point.max)}
    if hasattr(point, "explicit_bounds"):
        labels |= {"otel.bounds": [float(bound) for bound in point.explicit_bounds], "otel.buckets": list(point.bucket_counts)}
    if hasattr(point, "scale"):
        labels["otel.scale"] = point.scale
        if point.zero_count:
            labels["otel.zero_count"] = point.zero_count
        for name, half in (("positive", point.positive), ("negative", point.negative)):
            if half.bucket_counts:
                labels |= {f"otel.{name}.offset": half.offset, f"otel.{name}.counts": list(half.bucket_counts)}
    return {"ts": ts(point.time_unix_nano), "entity_name": SERVICE, "name": metric.name, "type": kind, "value": float(value), "labels": labels}


def metrics():
    inner = exporter("metric_exporter", "OTLPMetricExporter")
    exported = inner.export

    def export(data, *args, **more):
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        say(point_row(metric, point))
        return exported(data, *args, **more)

    inner.export = export
    reader = PeriodicExportingMetricReader(inner, export_interval_millis=float("inf"), export_timeout_millis=300_000)
    exponential = View(instrument_name="sizes", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider(metric_readers=[reader], resource=Resource(RESOURCE), views=[exponential], shutdown_on_exit=False)
    meter = provider.get_meter(SCOPE["name"], SCOPE["version"])
    counter = meter.create_counter("requests", unit="1", description="is not stored")
    open_ones = meter.create_up_down_counter("open")
    gauge = meter.create_gauge("load", unit="%")
    times, sizes = meter.create_histogram("times", unit="s"), meter.create_histogram("sizes", unit="By")
    for round in range(max(records // 10, 1)):
        for zone in ("a", "b"):
            labels = {"zone": zone}
            counter.add(round + 1, labels)
            open_ones.add(-round, labels)
            gauge.set(round / 4, labels)
            times.record(0.1 * round, labels)
            sizes.record(3.0 ** (round % 20), labels)
        assert provider.force_flush(300_000)
    # What ends is collected once more.
    provider.shutdown()


{"logs": logs, "traces": traces, "metrics": metrics}[signal]()
