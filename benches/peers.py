"""NDJSON logs into storage by other engines: one run in this process, its figures as one line of JSON.

usage: peers.py duckdb-parquet|clickhouse-parquet|clickhouse-mergetree FILE

Each reads the file with the types of our table, writes with zstd, and what it wrote is synced before the clock stops.
Packages: benches/requirements.txt.
"""
import json
import os
import resource
import shutil
import sys
import tempfile
import time

TYPES = {
    "duckdb": "{ts: 'TIMESTAMPTZ', entity_id: 'UUID', entity_name: 'VARCHAR', flux_id: 'UUID', level: 'VARCHAR', message: 'VARCHAR', attributes: 'JSON'}",
    "clickhouse": "ts DateTime64(6, 'UTC'), entity_id UUID, entity_name LowCardinality(String), flux_id Nullable(UUID), level LowCardinality(String), message String, attributes String",
}


def sync_tree(folder):
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            total += os.path.getsize(path)
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
    return total


def duckdb_parquet(source, folder):
    import duckdb

    store = duckdb.connect()
    store.execute("SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
    target = os.path.join(folder, "logs.parquet")
    read = f"read_json('{source}', format = 'newline_delimited', columns = {TYPES['duckdb']})"
    store.execute(f"COPY (FROM {read}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    return lambda: store.execute(f"SELECT count(*) FROM '{target}'").fetchone()[0]


def clickhouse(folder):
    from chdb.session import Session

    session = Session(os.path.join(folder, "store"))
    session.query("SET date_time_input_format = 'best_effort'")
    session.query("SET input_format_json_read_objects_as_strings = 1")
    return session


def clickhouse_parquet(source, folder):
    session = clickhouse(folder)
    target = os.path.join(folder, "logs.parquet")
    read = f"file('{source}', JSONEachRow, '{TYPES['clickhouse'].replace('LowCardinality(String)', 'String')}')".replace("'UTC'", "\\'UTC\\'")
    session.query(f"SELECT * FROM {read} INTO OUTFILE '{target}' FORMAT Parquet SETTINGS output_format_parquet_compression_method = 'zstd', date_time_input_format = 'best_effort', input_format_json_read_objects_as_strings = 1")
    return lambda: int(str(session.query(f"SELECT count() FROM file('{target}', Parquet)", "CSV")).strip())


def clickhouse_mergetree(source, folder):
    session = clickhouse(folder)
    session.query("CREATE DATABASE bench")
    session.query(f"CREATE TABLE bench.logs ({TYPES['clickhouse']}) ENGINE = MergeTree ORDER BY (ts) SETTINGS default_compression_codec = 'ZSTD(1)'")
    session.query(f"INSERT INTO bench.logs FROM INFILE '{source}' SETTINGS date_time_input_format = 'best_effort', input_format_json_read_objects_as_strings = 1 FORMAT JSONEachRow")
    return lambda: int(str(session.query("SELECT count() FROM bench.logs", "CSV")).strip())


def main():
    name, source = sys.argv[1:]
    run = {"duckdb-parquet": duckdb_parquet, "clickhouse-parquet": clickhouse_parquet, "clickhouse-mergetree": clickhouse_mergetree}[name]
    folder = tempfile.mkdtemp(dir=os.path.dirname(source))
    try:
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        count = run(source, folder)
        size = sync_tree(folder)
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(json.dumps({"rows": count(), "seconds": seconds, "cpu_seconds": cpu, "peak_mib": after.ru_maxrss / 1024, "bytes": size}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
