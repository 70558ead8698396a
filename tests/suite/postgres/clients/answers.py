"""What clients are asked with, and how their answers are printed: `client TAB version TAB operation TAB value`.

What is printed does not depend on the server: times are microseconds since the first row. An error is its class (SQLSTATE), or the name
of its type.
"""

import datetime
import json
import sys
import threading
import uuid

PORT, USER, FIRST = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
PLACE = f"host=127.0.0.1 port={PORT} user={USER} dbname=platform"
URL = f"postgresql://{USER}@127.0.0.1:{PORT}/platform"
UTC = datetime.timezone.utc
BASE = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=FIRST)
HOUR = datetime.timedelta(hours=1)
ID = uuid.UUID("018f6f1e-7f6a-7c3e-9d5b-000000000003")
ALL = "SELECT * FROM logs ORDER BY ts LIMIT 4"
# More pairs than anybody counts in a test's time.
ENDLESS = "WITH few AS (SELECT message FROM logs LIMIT 50) SELECT count(*) FROM few a, few b, few c, few d, few e WHERE a.message || b.message || c.message < d.message || e.message"
TABLES = ["logs", "messages", "metrics", "traces"]


def plain(value):
    """A value as it is printed: times count from the first row."""
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo else " without a zone"
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
        micros = round((value - BASE) / datetime.timedelta(microseconds=1))
        return f"+{micros} us{zone}"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return f"{type(value).__name__} {value}"


def failed(error):
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    code = code or getattr(getattr(error, "orig", None), "sqlstate", None)
    text = " ".join(str(error).split())[:200]
    return f"error {code}" if code else f"error {type(error).__name__}: {text}"


def told(client, release, operation, value):
    line = (client, release, operation, json.dumps(plain(value), ensure_ascii=False))
    print("\t".join(line), flush=True)


def table(client, release, operations):
    for operation, work in operations.items():
        try:
            value = work()
        except Exception as error:
            value = failed(error)
        told(client, release, operation, value)


def until_over(cancel, work):
    """What becomes of endless work that another thread cancels until it is over."""
    is_over, said = threading.Event(), []

    def worked():
        try:
            said.append(work())
        except Exception as error:
            said.append(failed(error))
        is_over.set()

    worker = threading.Thread(target=worked)
    worker.start()
    while not is_over.wait(0.05):
        cancel()
    worker.join()
    return said[0]
