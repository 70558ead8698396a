"""Writes the rows of one Parquet file again, in their order, as others do: zstd, their defaults otherwise; a file each.

usage: sizes.py INPUT.parquet FOLDER. Packages: benches/requirements.txt.
"""
import sys


def duckdb(source, target):
    import duckdb

    store = duckdb.connect()
    store.execute("SET TimeZone = 'UTC'; SET threads = 1")
    store.execute(f"COPY (FROM read_parquet('{source}')) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


def datafusion(source, target):
    from datafusion import SessionConfig, SessionContext

    session = SessionContext(SessionConfig({"datafusion.execution.target_partitions": "1"}))
    session.register_parquet("rows", source)
    session.sql(f"COPY (SELECT * FROM rows) TO '{target}' STORED AS PARQUET OPTIONS ('format.compression' 'zstd(3)')").collect()


def clickhouse(source, target):
    import chdb

    chdb.query(f"SELECT * FROM file('{source}', Parquet) INTO OUTFILE '{target}' FORMAT Parquet SETTINGS output_format_parquet_compression_method = 'zstd', max_threads = 1")


def polars(source, target):
    import polars

    polars.read_parquet(source).write_parquet(target, compression="zstd")


def pyarrow(source, target):
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.parquet.read_table(source), target, compression="zstd")


def main():
    source, folder = sys.argv[1:]
    for write in (duckdb, datafusion, clickhouse, polars, pyarrow):
        write(source, f"{folder}/{write.__name__}.parquet")


main()
