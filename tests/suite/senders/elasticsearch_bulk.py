"""An application that indexes documents with a client of Elasticsearch, and says for each of them the row that is to be stored.

usage: elasticsearch_bulk.py elasticsearch|elasticsearch8 URL DOCUMENTS
"""

import json
import sys
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from importlib import import_module

module, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
client, helpers = import_module(module), import_module(f"{module}.helpers")
# Some minutes ago: what is old is not kept, and what is yet to come gets another time.
BEGIN = datetime.now(timezone.utc) - timedelta(minutes=10)
LEVELS = [("DEBUG", "debug"), ("Info", "info"), ("warning", "warn"), ("critical", "error")]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def document(number):
    """A document with its action, and its row."""
    ts = BEGIN + timedelta(milliseconds=number)
    said, level = LEVELS[number % 4]
    id = str(uuid.UUID(int=number))
    source = {
        "@timestamp": ts, "message": f"line {number} ä \"quoted\"", "log": {"level": said}, "host": {"name": module, "cpus": 4},
        "trace": {"id": TRACE}, "span": {"id": SPAN}, "number": number, "half": number / 2, "price": Decimal("1.25"), "flag": number % 3 == 0,
        "tags": ["a", "b"], "order": {"lines": [{"article": 1}, {"article": 2}], "note": None},
    }
    attributes = {
        "_index": "shop", "_id": id, "host.name": module, "host.cpus": 4, "trace_id": TRACE, "span_id": SPAN, "number": number, "half": number / 2,
        "price": 1.25, "flag": number % 3 == 0, "tags": ["a", "b"], "order.lines": [{"article": 1}, {"article": 2}], "order.note": None,
    }
    # Another word than the level's own stays beside it.
    if said.lower() != level:
        attributes["log.level"] = said
    print(json.dumps({"ts": ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "entity_name": module, "level": level, "message": source["message"], "attributes": attributes}))
    return {"_index": "shop", "_id": id, "_op_type": "create" if number % 2 else "index"} | source


with client.Elasticsearch(url, request_timeout=300) as plain, client.Elasticsearch(url, request_timeout=300, http_compress=True) as packed:
    plain.info()
    part = count // 3
    succeeded, errors = helpers.bulk(plain, map(document, range(part)), chunk_size=10)
    assert (succeeded, errors) == (part, []), errors
    streamed = list(helpers.streaming_bulk(packed, map(document, range(part, 2 * part)), chunk_size=10))
    parallel = list(helpers.parallel_bulk(packed, map(document, range(2 * part, count)), chunk_size=10, thread_count=4))
    for is_done, item in streamed + parallel:
        assert is_done, item
    # What is refused is told, and no success.
    try:
        helpers.bulk(plain, [{"_op_type": "update", "_index": "shop", "_id": "1", "doc": {"number": 1}}])
        raise SystemExit("an update is taken for done")
    except helpers.BulkIndexError as error:
        assert len(error.errors) == 1 and error.errors[0]["update"]["status"] == 400, error.errors
