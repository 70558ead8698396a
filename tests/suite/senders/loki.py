"""An application that logs with python-logging-loki, and says for each record the row that is to be stored.

usage: loki.py URL RECORDS
"""

import json
import logging
import sys
from datetime import datetime, timedelta, timezone

import logging_loki

url, count = sys.argv[1], int(sys.argv[2])
HOST = "python-logging-loki"
LEVELS = [(logging.DEBUG, "debug", "debug"), (logging.INFO, "info", "info"), (logging.WARNING, "warning", "warn"), (logging.CRITICAL, "critical", "error")]

handler = logging_loki.LokiHandler(url=f"{url}/loki/api/v1/push", tags={"host": HOST, "plant": "nörth \"1\""}, version="1")
logger = logging.getLogger("shop")
logger.setLevel(logging.DEBUG)
logger.addHandler(handler)
times = []


def note(answer, *_, **__):
    """The library's own time of an entry is only in its request."""
    assert answer.status_code == 204, answer.text
    (stream,) = json.loads(answer.request.body)["streams"]
    times.append(int(stream["values"][0][0]))


handler.emitter.session.hooks["response"].append(note)
for number in range(count):
    severity, said, level = LEVELS[number % 4]
    tags = {"number": str(number), "trace_id": "0af7651916cd43dd8448eb211c80319c"}
    line = f"line {number} ä" if number % 2 else f"line {number}\n  of two {{}}"
    logger.log(severity, line, extra={"tags": tags})
    assert len(times) == number + 1, "an entry was not sent"
    ts = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=times[-1] // 1000)
    attributes = {"host": HOST, "plant": "nörth \"1\"", "severity": said, "logger": "shop"} | tags
    print(json.dumps({"ts": ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "entity_name": HOST, "level": level, "message": line, "attributes": attributes}))
