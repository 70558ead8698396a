#!/usr/bin/env python3
# What a Mixer answers before its store becomes a fixture, as JSON: statements with the rows and the digest that they gave, Racks, letters,
# scenarios, the audit log, and tokens. Used by make-fixtures.sh:
#   fixture-record.py API VERSION CUTOFF SENDER READER REVOKED
import json, sys, urllib.request

api, version, cutoff, sender, reader, revoked = sys.argv[1:]
ID = "uuid_text({})".format
COLUMNS = {
    "logs": [ID("entity_id"), "entity_name", ID("flux_id"), "level", "message", "attributes"],
    "traces": ["trace_id", "span_id", "parent_span_id", ID("flux_id"), ID("entity_id"), "entity_name", "span_name", "duration_ms", "status", "attributes"],
    "metrics": ["name", ID("entity_id"), "entity_name", "type", "value", "labels"],
    "messages": ["trace_id", ID("flux_id"), ID("entity_id"), "entity_name", "src_gear_id", "dst_gear_id", "msg_type", "direction", "status", "encode(raw_msg, 'hex')", "promoted"],
    "messages_order": ["trace_id", ID("flux_id"), "src_gear_id", "number", "line"],
}


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(api + path, data, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def digest(table):
    # A null is not the same as a text that is empty, and both keep their place.
    columns = ", ".join(f"coalesce(CAST({column} AS text), '-')" for column in ["CAST(ts AS bigint)", *COLUMNS[table]])
    lines = f"SELECT concat_ws('|', {columns}) AS line FROM {table} WHERE ts < '{cutoff}'"
    statement = f"SELECT count(*) AS n, sha256(string_agg(line, ' ' ORDER BY line)) AS digest FROM ({lines}) AS all_lines"
    row = ask("/api/v1/sql", {"query": statement})["data"][0]
    return {"table": table, "statement": statement, "rows": row["n"], "digest": row["digest"]}


def some(rows, *keys):
    return [{key: row[key] for key in keys} for row in rows]


letters = ask("/api/v1/dlq?state=all")["data"]
json.dump(
    {
        "version": version,
        "tables": [digest(table) for table in COLUMNS],
        "letters": some(letters, "id", "ts", "rack", "gear", "port", "from", "reason", "state", "attempts", "replays"),
        "racks": some(ask("/api/v1/racks")["data"], "id", "name", "state", "labels"),
        "scenarios": ask("/api/v1/scenarios")["data"],
        "invites": some(ask("/api/v1/invites")["data"], "id", "name", "created", "expires", "used", "used_by"),
        # Decisions; when a Rack came and went may be forgotten by a Mixer that is killed.
        "audit": [entry for entry in ask("/api/v1/audit?limit=1000")["data"] if entry["chain"]],
        "tokens": {"sender": sender, "reader": reader, "revoked": revoked},
    },
    sys.stdout,
    indent=1,
    sort_keys=True,
)
