"""An application that shows metrics of every kind with Prometheus' client for Python; or a strict reader of what a Mixer shows.

usage: exposition.py serve
       exposition.py read < METRICS (OpenMetrics; prints how many families and samples)
"""

import sys

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


def read():
    families = list(text_string_to_metric_families(sys.stdin.read()))
    print(len(families), sum(len(family.samples) for family in families))


{"serve": serve, "read": read}[sys.argv[1]]()
