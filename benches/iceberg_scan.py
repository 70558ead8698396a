"""Scans the table of log rows once through the Iceberg catalogue, as a client that has just started; prints how many rows it has and what that took.

usage: iceberg_scan.py pyiceberg|duckdb CATALOGUE FROM TO [ENDPOINT KEY SECRET]

FROM and TO bound the times of the rows, RFC 3339. ENDPOINT (host:port) and the keys are of the bucket, if there is one. Packages: those of
`make lakehouse`.
"""
import sys
import time


def pyiceberg(catalogue, begin, end, bucket):
    from pyiceberg.catalog import load_catalog

    keys = dict(zip(["s3.access-key-id", "s3.secret-access-key"], bucket[1:]))
    # Without a token it says `Bearer None` unless it is told to say nothing.
    catalog = load_catalog("mixer", type="rest", uri=catalogue, auth={"type": "noop"}, **keys)
    table = catalog.load_table("telemetry.logs")
    # It does not know Z.
    begin, end = (moment.replace("Z", "+00:00") for moment in (begin, end))
    scan = table.scan(row_filter=f"ts >= '{begin}' and ts < '{end}'", selected_fields=("ts",))
    return scan.to_arrow().num_rows


def duckdb(catalogue, begin, end, bucket):
    import duckdb
    from duckdb_extensions import import_extension

    session = duckdb.connect()
    for extension in ["avro", "httpfs", "iceberg"]:
        import_extension(extension)
        session.load_extension(extension)
    if bucket:
        endpoint, key, secret = bucket
        session.execute(
            f"CREATE SECRET bucket (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', ENDPOINT '{endpoint}', "
            "URL_STYLE 'path', USE_SSL false)"
        )
    # What the catalogue says of a bucket would else be taken for the keys as well.
    who = "AUTHORIZATION_TYPE 'none', ACCESS_DELEGATION_MODE 'none'"
    session.execute(f"ATTACH 'telemetry' AS m (TYPE iceberg, ENDPOINT '{catalogue}', {who})")
    where = f"ts >= TIMESTAMPTZ '{begin}' AND ts < TIMESTAMPTZ '{end}'"
    return session.execute(f"SELECT count(*) FROM m.telemetry.logs WHERE {where}").fetchone()[0]


engine, catalogue, begin, end, *bucket = sys.argv[1:]
began = time.monotonic()
rows = {"pyiceberg": pyiceberg, "duckdb": duckdb}[engine](catalogue, begin, end, bucket)
print(f"{rows} rows in {time.monotonic() - began:.2f} s")
