"""An application that shows metrics of every kind with Prometheus' client for Python; or a strict reader of what a Mixer shows.

usage: exposition.py serve
       exposition.py native             a native histogram in protobuf, which that client cannot show
       exposition.py read < METRICS     OpenMetrics; prints how many families and samples
"""

import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, start_http_server
from prometheus_client.openmetrics.parser import text_string_to_metric_families

TRACE = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}


def serve():
    registry = CollectorRegistry()
    orders = Counter("orders", "Orders that were taken.", ["shop"], registry=registry)
    orders.labels("north").inc(3, exemplar=TRACE)
    orders.labels("süd \"1\"\\\n").inc(0.5)
    for (name, value) in (("load", -1.5), ("tiny", 5e-324), ("huge", 1.7976931348623157e308), ("third", 1 / 3)):
        Gauge(name, "A gauge.", registry=registry).set(value)
    waiting = Histogram("wait_seconds", "How long orders wait.", ["shop"], buckets=(0.1, 1, 10), registry=registry)
    for value in (0.05, 0.5, 0.5, 20):
        waiting.labels("north").observe(value, exemplar=TRACE)
    Summary("size_bytes", "How large orders are.", registry=registry).observe(7)
    Info("shop", "What runs.", registry=registry).info({"version": "1.2"})
    Enum("state", "How it goes.", states=["up", "down"], registry=registry).state("down")
    server, thread = start_http_server(0, "127.0.0.1", registry)
    print(f"ready 127.0.0.1:{server.server_port}", flush=True)
    thread.join()


def varint(value):
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def field(number, value):
    """A field of protobuf: a number, a double or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def signed(value):
    return value << 1 if value >= 0 else (-value << 1) - 1


def native_family():
    """io.prometheus.client.MetricFamily: schema 3, buckets 2 and 3 and, after a gap, 6; one below zero."""
    span = lambda offset, length: field(1, signed(offset)) + field(2, length)
    deltas = lambda number, values: b"".join(field(number, signed(value)) for value in values)
    counts = field(1, 13) + field(2, 21.5) + field(5, signed(3)) + field(6, 0.001) + field(7, 1)
    below = field(9, span(4, 1)) + deltas(10, [2])
    above = field(12, span(2, 2)) + field(12, span(2, 1)) + deltas(13, [1, 2, 3])
    metric = field(1, field(1, b"shop") + field(2, b"north")) + field(7, counts + below + above)
    return field(1, b"native_seconds") + field(2, b"How long.") + field(3, 4) + field(4, metric)


def native():
    body = varint(len(native_family())) + native_family()

    class Target(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    print(f"ready 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def read():
    families = list(text_string_to_metric_families(sys.stdin.read()))
    print(len(families), sum(len(family.samples) for family in families))


{"serve": serve, "native": native, "read": read}[sys.argv[1]]()
