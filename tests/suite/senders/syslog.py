"""An application that logs by syslog (RFC 5424) to the socket of the machine's daemon, and says what is to be stored of each message.

usage: syslog.py SOCKET MESSAGES
"""

import json
import socket
import sys
from datetime import datetime, timedelta, timezone

path, count = sys.argv[1], int(sys.argv[2])
# Some minutes ago: what is old is not kept, and what is yet to come gets another time.
BEGIN = datetime.now(timezone.utc) - timedelta(minutes=10)
HOST, APP, LOCAL3 = "rsyslog", "shop", 19
SEVERITIES = [(2, "crit", "error"), (3, "err", "error"), (4, "warning", "warn"), (5, "notice", "info"), (6, "info", "info"), (7, "debug", "debug")]

daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
daemon.connect(path)
for number in range(count):
    at = BEGIN + timedelta(milliseconds=number)
    code, severity, level = SEVERITIES[number % len(SEVERITIES)]
    timestamp = at.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
    text = f"line {number} ä \"quoted\" [7]"
    structured = {"order@32473": {"number": str(number), "note": 'a "b" ] \\'}, "origin": {"ip": "127.0.0.1"}}
    escape = lambda value: value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")
    elements = "".join(f"[{id}" + "".join(f' {name}="{escape(value)}"' for name, value in of.items()) + "]" for id, of in structured.items())
    daemon.send(f"<{LOCAL3 * 8 + code}>1 {timestamp} {HOST} {APP} {1000 + number} ID{number} {elements} {text}".encode())
    data = {"facility": "local3", "severity": severity, "timestamp": timestamp, "host": HOST, "app": APP, "procid": str(1000 + number), "msgid": f"ID{number}",
            "structured": structured, "message": text}
    attributes = {"_index": "syslog", "host": HOST, "severity": code, "facility": "local3", "program": APP, "procid": str(1000 + number), "msgid": f"ID{number}",
                  "structured": elements}
    row = {"ts": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "entity_name": HOST, "level": level, "message": text, "attributes": attributes}
    print(json.dumps({"data": data, "row": row}))
