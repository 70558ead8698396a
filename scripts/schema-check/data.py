"""Gives a Mixer a little of everything: rows over HTTP, and over the bus a message, and telemetry that cannot be decoded.

usage: PLATFORM_TOKEN=plt_… data.py API_URL BUS_URL FILE_WITH_THE_OPERATORS_KEY_FOR_THE_BUS
"""

import json
import os
import socket
import sys
import time
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

import cbor
import nkey

api, bus = sys.argv[1], urllib.parse.urlsplit(sys.argv[2])
TRACE = "0af7651916cd43dd8448eb211c80319c"
FLUX = "018f2c1e-7b1a-7000-8000-000000000001"
now = datetime.now(timezone.utc)
known = {"Authorization": f"Bearer {os.environ['PLATFORM_TOKEN']}"}


def at(seconds):
    return (now - timedelta(seconds=seconds)).isoformat()


def send(table, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    request = urllib.request.Request(f"{api}/api/v1/ingest/{table}", lines,
                                     {"Content-Type": "application/x-ndjson", **known})
    with urllib.request.urlopen(request) as answer:
        stored = json.load(answer)["data"]["stored"]
    assert stored == len(rows), (table, stored)


levels = ["debug", "info", "warn", "error"]
send("logs", [{"ts": at(n), "level": levels[n % 4], "message": f"line {n}", "flux_id": FLUX if n % 10 == 0 else None, "attributes": {"trace_id": TRACE}} for n in range(200)])
spans = range(1, 9)
send("traces", [{"ts": at(10 - n), "trace_id": TRACE, "span_id": f"{n:016x}", "parent_span_id": f"{n - 1:016x}" if n > 1 else None,
                 "span_name": "step", "duration_ms": n / 3, "status": "error" if n == 5 else "ok"} for n in spans])
gauge = [{"ts": at(n), "name": "schema.check", "type": "gauge", "value": n, "labels": {"cpu": n % 2, "otel.unit": "By"}} for n in range(200)]
histogram = [{"ts": at(100 - n), "name": "schema.check.histogram", "type": "histogram", "value": n * 5.0,
              "labels": {"otel.count": n, "otel.bounds": [1, 10], "otel.buckets": [0, n, 0],
                         "otel.exemplars": [{"time": at(100 - n), "value": 5, "trace_id": TRACE, "span_id": f"{1:016x}"}]}} for n in range(1, 100)]
counter = [{"ts": at(100 - n), "name": "schema.check.counter", "type": "counter", "value": n % 50} for n in range(100)]
send("metrics", gauge + histogram + counter)

message = cbor.encoded({
    "id": uuid.UUID(FLUX).bytes, "flux_id": uuid.UUID(FLUX).bytes, "trace_id": TRACE, "span_id": "b7ad6b7169203331", "sampled": True, "ts": at(5), "hops": 1,
    "meta": {"msg.type": "order"}, "raw": b"body",
})
with socket.create_connection((bus.hostname, bus.port)) as connection:
    info = json.loads(connection.makefile("rb").readline().removeprefix(b"INFO "))
    with open(sys.argv[3]) as seed:
        proof = nkey.proof(seed.read().strip(), info["nonce"])
    connection.sendall(f"CONNECT {json.dumps({'verbose': False, **proof})}\r\n".encode())
    # Under the name of a Rack that there is, only that Rack's messages are taken.
    for subject, payload in (("flux.msg.elsewhere.orders.out", message), ("flux.telemetry.logs.node-01", b"garbage")):
        connection.sendall(f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n")
    connection.sendall(b"PING\r\n")
    said = b""
    while b"PONG" not in said:
        more = connection.recv(4096)
        said += more
        assert more and b"-ERR" not in said, said

patience = time.monotonic() + 60
for path in ("dead_letters", "messages"):
    while not json.load(urllib.request.urlopen(urllib.request.Request(f"{api}/api/v1/telemetry/{path}?limit=1", headers=known)))["data"]:
        assert time.monotonic() < patience, f"{path} are awaited in vain"
        time.sleep(0.2)
