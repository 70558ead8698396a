"""What reads through a driver or has its own: SQLAlchemy and pandas, ADBC, ConnectorX, DuckDB."""

import datetime
import glob
import os
from importlib.metadata import version

import adbc_driver_postgresql.dbapi as adbc
import connectorx
import duckdb
import duckdb_extension_postgres_scanner
import pandas
import sqlalchemy

from answers import BASE, FIRST, PLACE, TABLES, URL, plain, table


def of_sqlalchemy(driver):
    engine = sqlalchemy.create_engine(URL.replace("postgresql:", f"postgresql+{driver}:"))
    inspector = sqlalchemy.inspect(engine)

    def typed(columns):
        return [(column["name"], repr(column["type"]), column["nullable"], column["default"]) for column in columns]

    def reflected(name):
        return sqlalchemy.Table(name, sqlalchemy.MetaData(), autoload_with=engine)

    def everything():
        metadata = sqlalchemy.MetaData()
        metadata.reflect(engine)
        return {name: len(of.columns) for name, of in sorted(metadata.tables.items())}

    def selected():
        logs = reflected("logs")
        with engine.connect() as connection:
            text = sqlalchemy.select(logs.c.ts, logs.c.flux_id, logs.c.message)
            text = text.where(logs.c.level.in_(["info", "debug"]), logs.c.ts >= BASE).order_by(logs.c.ts.desc()).limit(2)
            return [tuple(row) for row in connection.execute(text)]

    def streamed():
        with engine.connect().execution_options(stream_results=True, max_row_buffer=7) as connection:
            return len(connection.execute(sqlalchemy.text("SELECT message FROM logs")).fetchall())

    def in_parts():
        with engine.connect().execution_options(stream_results=True) as connection:
            return [len(part) for part in pandas.read_sql(sqlalchemy.text("SELECT * FROM logs"), connection, chunksize=400)]

    def as_table():
        read = pandas.read_sql_table("logs", engine).sort_values("ts")
        first = read.iloc[3]
        return list(read.shape), [str(kind) for kind in read.dtypes], [plain(first["ts"].to_pydatetime()), str(first["flux_id"]), first["message"]]

    def savepoint():
        with engine.connect() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(sqlalchemy.text("SELECT levl FROM logs"))
            except sqlalchemy.exc.DBAPIError as error:
                said = type(error).__name__
            return said, connection.execute(sqlalchemy.text("SELECT 1")).scalar()

    table(f"SQLAlchemy, {driver}", version("sqlalchemy"), {
        "schemas": lambda: [name for name in inspector.get_schema_names() if name == "public"],
        "tables": lambda: sorted(inspector.get_table_names()),
        "views": inspector.get_view_names,
        "materialized views": inspector.get_materialized_view_names,
        "sequences": inspector.get_sequence_names,
        "columns": lambda: {name: typed(inspector.get_columns(name)) for name in TABLES},
        "primary key": lambda: inspector.get_pk_constraint("logs")["constrained_columns"],
        "foreign keys": lambda: inspector.get_foreign_keys("logs"),
        "indexes": lambda: inspector.get_indexes("logs"),
        "unique constraints": lambda: inspector.get_unique_constraints("logs"),
        "check constraints": lambda: inspector.get_check_constraints("logs"),
        "comment": lambda: inspector.get_table_comment("logs"),
        "enums": inspector.get_enums,
        "has table": lambda: [inspector.has_table("logs"), inspector.has_table("nothing")],
        "autoload": lambda: [(column.name, repr(column.type)) for column in reflected("logs").columns],
        "reflect": everything,
        "select": selected,
        "stream_results": streamed,
        "savepoint": savepoint,
        "pandas read_sql": lambda: pandas.read_sql("SELECT level, count(*) FROM logs GROUP BY 1 ORDER BY 1", engine).to_dict("list"),
        "pandas read_sql in parts": in_parts,
        "pandas read_sql_table": as_table,
    })
    engine.dispose()


def of_adbc():
    def asked(text, *values):
        with adbc.connect(URL) as connection, connection.cursor() as cursor:
            cursor.execute(text, parameters=values or None)
            answer = cursor.fetch_arrow_table()
            return [(field.name, str(field.type)) for field in answer.schema], answer.to_pylist()

    def objects():
        with adbc.connect(URL) as connection:
            catalogs = connection.adbc_get_objects(depth="columns", catalog_filter="platform", db_schema_filter="public").read_all().to_pylist()
            tables = [of for catalog in catalogs for schema in catalog["catalog_db_schemas"] for of in schema["db_schema_tables"]]
            return sorted((of["table_name"], [column["column_name"] for column in of["table_columns"]]) for of in tables if of["table_name"] in TABLES)

    def schema():
        with adbc.connect(URL) as connection:
            return [(field.name, str(field.type)) for field in connection.adbc_get_table_schema("logs")]

    table("ADBC", version("adbc-driver-postgresql"), {
        "query": lambda: asked("SELECT message, ts, flux_id, level FROM logs ORDER BY ts LIMIT 4"),
        "parameter": lambda: asked("SELECT count(*) FROM logs WHERE level = $1", "info"),
        "interval, list": lambda: asked("SELECT count(*) AS n, array_agg(level ORDER BY ts) AS levels FROM logs WHERE ts < $1", BASE + datetime.timedelta(microseconds=2)),
        "objects": objects,
        "table types": lambda: "table" in adbc.connect(URL).adbc_get_table_types(),
        "schema of a table": schema,
    })


def of_connectorx():
    def asked(protocol, text="SELECT message, ts, level, flux_id FROM logs ORDER BY ts LIMIT 4", **way):
        read = connectorx.read_sql(URL, text, protocol=protocol, **way)
        return [str(kind) for kind in read.dtypes], [[plain(value.to_pydatetime()) if hasattr(value, "to_pydatetime") else str(value) for value in row] for row in read.values.tolist()]

    def partitioned():
        text = "SELECT message, length(message)::bigint AS n FROM logs"
        read = connectorx.read_sql(URL, text, partition_on="n", partition_num=3)
        return len(read), int(read["n"].sum())

    table("ConnectorX", version("connectorx"), {
        **{f"protocol {protocol}": lambda protocol=protocol: asked(protocol) for protocol in ("binary", "csv", "cursor", "simple")},
        "partition_on": partitioned,
    })


def of_duckdb():
    folder = os.path.dirname(duckdb_extension_postgres_scanner.__file__)
    session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    extension = glob.glob(f"{folder}/extensions/**/*.duckdb_extension", recursive=True)[0]
    session.sql(f"LOAD '{extension}'")
    session.sql(f"ATTACH '{PLACE}' AS p (TYPE postgres, READ_ONLY)")
    session.sql("SET TimeZone = 'UTC'")

    def rows(text):
        return session.sql(text).fetchall()

    shown = f"message, epoch_us(ts) - {FIRST} AS after, flux_id::VARCHAR, level"

    def as_text():
        session.sql("SET pg_use_text_protocol = true")
        said = rows(f"SELECT {shown} FROM p.logs ORDER BY ts LIMIT 4")
        session.sql("SET pg_use_text_protocol = false")
        return said

    table("DuckDB", duckdb.__version__, {
        "tables": lambda: sorted((row[2], row[3], row[4]) for row in rows("SHOW ALL TABLES") if row[0] == "p" and row[2] in TABLES),
        "count": lambda: rows("SELECT count(*) FROM p.public.logs"),
        "rows": lambda: rows(f"SELECT {shown} FROM p.logs ORDER BY ts LIMIT 4"),
        "rows as text": as_text,
        "filter": lambda: rows("SELECT count(*) FROM p.logs WHERE level = 'info' AND message LIKE 'row 1%'"),
        "postgres_query": lambda: sorted(rows("FROM postgres_query('p', 'SELECT level, count(*) AS n FROM logs GROUP BY 1')")),
        "postgres_scan": lambda: rows(f"SELECT count(*), count(flux_id) FROM postgres_scan('{PLACE}', 'public', 'logs')"),
        "join with a table here": lambda: rows("SELECT count(*) FROM p.logs JOIN (VALUES ('row 7'), ('no row')) AS t(m) ON message = m"),
    })
    session.close()
