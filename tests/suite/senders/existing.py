"""An application that knows nothing of OpenTelemetry: it makes requests, and says which.

usage: existing.py URL REQUESTS
"""

import json
import sys

import requests

base, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    url = f"{base}/{'healthz' if number % 4 else 'nothing'}"
    answer = requests.get(url, timeout=60)
    print(json.dumps({"name": "GET", "kind": "client", "url": url, "code": str(answer.status_code), "status": "ok" if answer.ok else "error"}))
