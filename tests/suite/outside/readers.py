"""A reader of a live store: every line on standard input makes it read all logs anew and print a JSON object for each row;
a line ".print TEXT" prints TEXT. Errors go to standard error.

usage: readers.py duckdb|polars|pyarrow|pandas|chdb STORE SCHEMA

SCHEMA is what `platform schema` prints for polars and chdb, and platform.sql for DuckDB.
"""
import datetime
import json
import sys
import uuid


def polars_reader(store, schema):
    def read():
        names = {}
        exec(schema, names)
        return names["logs"].collect().to_dicts()
    return read


def pyarrow_reader(store, schema):
    import pyarrow.dataset as ds

    return lambda: ds.dataset(f"{store}/telemetry/logs", format="parquet").to_table().to_pylist()


def pandas_reader(store, schema):
    import pandas as pd

    return lambda: pd.read_parquet(f"{store}/telemetry/logs").to_dict("records")


def duckdb_reader(store, schema):
    import duckdb

    session = duckdb.connect()
    session.execute("SET TimeZone = 'UTC'")
    session.execute(schema)
    sql = "SELECT to_json(row) FROM (SELECT * REPLACE (strftime(ts, '%Y-%m-%dT%H:%M:%S.%fZ') AS ts) FROM logs) row"
    return lambda: [json.loads(row) for row, in session.execute(sql).fetchall()]


def chdb_reader(store, schema):
    from chdb.session import Session

    session = Session()
    for statement in schema.split(";\n"):
        if statement.strip():
            session.query(statement)
    sql = "SELECT * FROM logs SETTINGS date_time_output_format = 'iso' FORMAT JSONEachRow"
    return lambda: [json.loads(line) for line in str(session.query(sql)).splitlines()]


READERS = {"duckdb": duckdb_reader, "polars": polars_reader, "pyarrow": pyarrow_reader, "pandas": pandas_reader, "chdb": chdb_reader}


def plain(name, value):
    """A value as JSON of the API has it."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if name in ("entity_id", "flux_id") and value is not None and value == value:
        return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(str(value)))
    if name == "attributes" and isinstance(value, str):
        return json.loads(value)
    return None if value != value else value


def main():
    name, store, schema = sys.argv[1:]
    with open(schema) as file:
        read = READERS[name](store, file.read())
    for line in sys.stdin:
        if line.startswith(".print "):
            print(line[7:].rstrip("\n"), flush=True)
            continue
        try:
            for row in read():
                print(json.dumps({name: plain(name, value) for name, value in row.items()}))
        except Exception as error:  # whatever the reader raises is what a user of it would see
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


main()
