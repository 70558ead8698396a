"""Clients of PostgreSQL from Python, and psql, over a thousand log rows: one line for each operation and what came of it.

usage: drivers.py PORT USER MICROSECONDS (the time of the first row, since 1970)

What is printed does not depend on the server: times are microseconds since the first row. Lines are `client TAB version TAB operation TAB
value`; an error is its class (SQLSTATE), or the name of its type.
"""

import asyncio
import datetime
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
import warnings
from importlib.metadata import version

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import connectorx
import duckdb
import duckdb_extension_postgres_scanner
import pandas
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy
from psycopg_pool import ConnectionPool

warnings.simplefilter("ignore")
PORT, USER, FIRST = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
PLACE = f"host=127.0.0.1 port={PORT} user={USER} dbname=platform"
URL = f"postgresql://{USER}@127.0.0.1:{PORT}/platform"
UTC = datetime.timezone.utc
BASE = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=FIRST)
HOUR = datetime.timedelta(hours=1)
ID = uuid.UUID("018f6f1e-7f6a-7c3e-9d5b-000000000003")
ODD = "SELECT message FROM logs WHERE message LIKE 'odd%'"
ALL = "SELECT * FROM logs ORDER BY ts LIMIT 4"
# More pairs than anybody counts in a test's time.
ENDLESS = "SELECT count(*) FROM logs a, logs b, logs c, logs d WHERE a.message || b.message < c.message || d.message"
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


def of_psql():
    if not shutil.which("psql"):
        return
    release = subprocess.run(["psql", "--version"], capture_output=True, text=True).stdout.split()[2]

    def asked(*commands, aligned=False):
        form = [] if aligned else ["-A", "-t"]
        program = ["psql", "-X", "-q", "-w", *form, "-v", "ON_ERROR_STOP=1", "-d", PLACE]
        done = subprocess.run(program, input="\n".join(commands), capture_output=True, text=True)
        return done.stdout.splitlines() + done.stderr.splitlines()

    def fields(command, first, last):
        return sorted("|".join(line.split("|")[first:last]) for line in asked(command))

    def copied_to_a_file():
        with tempfile.TemporaryDirectory() as folder:
            said = asked(f"\\copy logs (message, level) to '{folder}/logs.csv' csv header")
            with open(f"{folder}/logs.csv") as file:
                lines = file.read().splitlines()
        return said, lines[0], len(lines)

    one = "SELECT message, level, flux_id FROM logs ORDER BY ts LIMIT 1"
    table("psql", release, {
        r"\d": lambda: fields(r"\d", 0, 4),
        r"\d logs": lambda: asked(r"\d logs"),
        r"\d messages": lambda: asked(r"\d messages"),
        r"\d+ logs": lambda: asked(r"\d+ logs"),
        r"\d nothing": lambda: asked(r"\d nothing"),
        r"\dt": lambda: fields(r"\dt", 0, 4),
        r"\dt+": lambda: fields(r"\dt+", 0, 5),
        r"\dt m*": lambda: fields(r"\dt m*", 1, 2),
        r"\dn": lambda: fields(r"\dn", 0, 1),
        r"\df": lambda: asked(r"\df"),
        r"\l": lambda: "platform" in fields(r"\l", 0, 1),
        r"\l encoding": lambda: fields(r"\l platform", 2, 3),
        r"\du": lambda: asked(r"\du nobody"),
        r"\dv": lambda: asked(r"\dv"),
        r"\di": lambda: asked(r"\di"),
        r"\ds": lambda: asked(r"\ds"),
        r"\dT": lambda: asked(r"\dT"),
        r"\dp": lambda: asked(r"\dp logs"),
        r"\db": lambda: asked(r"\db nothing"),
        r"\dx": lambda: asked(r"\dx nothing"),
        r"\x": lambda: asked(r"\x", one + ";", aligned=True),
        r"\gx": lambda: asked(one + r" \gx", aligned=True),
        r"\gdesc": lambda: asked(r"SELECT ts, flux_id, level, count(*), max(ts) - min(ts), 1.5::float8 FROM logs GROUP BY ts, flux_id, level \gdesc"),
        r"\gset": lambda: asked(one + r" \gset", r"\echo :message :level"),
        r"\crosstabview": lambda: asked(r"SELECT level, entity_name, count(*) FROM logs GROUP BY 1, 2 ORDER BY 1 \crosstabview"),
        r"\copy to stdout": lambda: asked(r"\copy (SELECT message, level FROM logs ORDER BY ts LIMIT 2) to stdout csv header"),
        r"\copy to a file": copied_to_a_file,
        r"\encoding": lambda: asked(r"\encoding"),
        "table": lambda: asked(one + ";", aligned=True),
        "transaction": lambda: asked("BEGIN; SAVEPOINT a; SELECT count(*) FROM logs; ROLLBACK TO a; COMMIT;"),
        "error": lambda: [line for line in asked("SELECT levl FROM logs;") if line.startswith("LINE") or line.strip() == "^"],
        "sqlstate": lambda: asked(r"\set VERBOSITY sqlstate", "SELECT levl FROM logs;"),
        "insert": lambda: asked(r"\set VERBOSITY sqlstate", "INSERT INTO logs (level) VALUES ('x');"),
        "statement_timeout": lambda: asked(r"\set VERBOSITY sqlstate", "SET statement_timeout = 200;", ENDLESS + ";"),
        "SHOW": lambda: asked("SHOW TimeZone;", aligned=True) + asked("SHOW server_encoding;"),
    })


def of_psycopg():
    def rows(text, *values, **way):
        with psycopg.connect(PLACE) as connection:
            return connection.execute(text, values, **way).fetchall()

    def described():
        with psycopg.connect(PLACE) as connection:
            cursor = connection.execute(
                "SELECT *, count(*), max(ts) - min(ts), upper(level), ts::date, 1.5::float8, 2::int, 2::smallint, true, 'x'::varchar, "
                "NULL::uuid[], ARRAY['a'] FROM logs GROUP BY 1, 2, 3, 4, 5, 6, 7 LIMIT 1"
            )
            return [(column.name, column.type_code) for column in cursor.description]

    def cursor(connection, **way):
        with connection.cursor(name="Big one", **way) as rows:
            rows.itersize = 100
            rows.execute("SELECT message FROM logs WHERE level = %s ORDER BY ts", ["info"])
            return rows.fetchone(), rows.fetchmany(2), len(rows.fetchall())

    def in_transaction():
        with psycopg.connect(PLACE) as connection:
            return cursor(connection)

    def held():
        with psycopg.connect(PLACE, autocommit=True) as connection:
            return cursor(connection, withhold=True)

    def iterated():
        with psycopg.connect(PLACE) as connection, connection.cursor(name="all") as cursor:
            cursor.itersize = 7
            cursor.execute("SELECT message FROM logs")
            return sum(1 for _ in cursor)

    def copied(statement, types=None):
        with psycopg.connect(PLACE) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
            if types is None:
                return b"".join(copy).decode()
            copy.set_types(types)
            return list(copy.rows())

    def pooled():
        with ConnectionPool(PLACE, min_size=1, max_size=2) as pool:
            said = []
            for _ in range(4):
                with pool.connection() as connection:
                    said.append(connection.execute("SELECT count(*) FROM logs").fetchone()[0])
            return said

    def pipelined():
        with psycopg.connect(PLACE) as connection, connection.pipeline():
            answers = [connection.execute("SELECT %s::int + 1", [number]) for number in range(3)]
            return [answer.fetchone()[0] for answer in answers]

    def pipeline_after_an_error():
        with psycopg.connect(PLACE, autocommit=True) as connection:
            try:
                with connection.pipeline():
                    connection.execute("SELECT 1")
                    connection.execute("SELECT levl FROM logs")
                    connection.execute("SELECT 2")
                said = "none"
            except psycopg.Error as error:
                said = failed(error)
            return said, connection.execute("SELECT 3").fetchone()[0]

    def prepared():
        with psycopg.connect(PLACE) as connection:
            text = "SELECT message FROM logs WHERE level = %s AND flux_id = %s"
            return [connection.execute(text, ["error", ID], prepare=True).fetchall() for _ in range(3)][-1]

    def binary():
        with psycopg.connect(PLACE) as connection:
            return connection.cursor(binary=True).execute(ALL).fetchall()

    def values():
        text = "SELECT %s, %s, %s, %s, %s::date, %s, %s::float8, %s::bigint, %s::text[], %s::int[]"
        sent = [True, HOUR * 27, ID, BASE, BASE.date(), b"ab", 1.5, 2**40, ["a", None, 'b,"c'], [1, None]]
        said = rows(text, *sent)[0]
        return [type(value).__name__ for value in said], [a == b for a, b in zip(said, sent)]

    def savepoint():
        with psycopg.connect(PLACE) as connection:
            said = []

            def within(*statements):
                try:
                    with connection.transaction():
                        for statement in statements:
                            connection.execute(statement)
                except psycopg.Error as error:
                    said.append(failed(error))

            connection.execute("SET application_name = 'before'")
            connection.execute("DECLARE before CURSOR FOR SELECT message FROM logs ORDER BY ts")
            said.append(connection.execute("FETCH FROM before").fetchone()[0])
            after = "DECLARE after CURSOR WITH HOLD FOR SELECT 1"
            within("SET application_name = 'after'", after, "SELECT levl FROM logs")
            said.append(connection.execute("SHOW application_name").fetchone()[0])
            within("FETCH FROM after")
            said.append(connection.execute("FETCH FROM before").fetchone()[0])
            return said

    def cancelled():
        with psycopg.connect(PLACE, autocommit=True) as connection:
            said = until_over(connection.cancel_safe, lambda: connection.execute(ENDLESS))
            return said, connection.execute("SELECT 1").fetchone()[0]

    def timed_out():
        with psycopg.connect(PLACE, autocommit=True, options="-c statement_timeout=200") as connection:
            return connection.execute(ENDLESS).fetchall()

    def all_settings():
        shown = dict(row[:2] for row in rows("SHOW ALL"))
        names = ["bytea_output", "client_encoding", "DateStyle", "IntervalStyle", "max_index_keys", "standard_conforming_strings", "TimeZone"]
        return {name: shown.get(name) for name in names}

    def scrolled():
        with psycopg.connect(PLACE) as connection, connection.cursor(name="back", scrollable=False) as cursor:
            cursor.execute("SELECT message FROM logs ORDER BY ts")
            cursor.scroll(2)
            return cursor.fetchone()

    one = "SELECT count(*) FROM logs WHERE "
    table("psycopg", version("psycopg"), {
        "select": lambda: rows(ALL),
        "types and headers": described,
        "parameters": values,
        "list of texts": lambda: rows(one + "level = ANY(%s)", ["info", "debug"]),
        "list of numbers": lambda: rows(one + "length(message) = ANY(%s)", [5, 6]),
        "list of ids": lambda: rows(one + "flux_id = ANY(%s)", [ID, uuid.UUID(int=0)]),
        "list of times": lambda: rows(one + "ts = ANY(%s)", [BASE, BASE + HOUR]),
        "interval": lambda: rows(one + "ts > now() - %s", 24 * HOUR),
        "list and interval as answers": lambda: rows("SELECT array_agg(level ORDER BY ts), max(ts) - min(ts) FROM logs WHERE ts < %s", BASE + datetime.timedelta(microseconds=3)),
        "named cursor": in_transaction,
        "named cursor, iterated": iterated,
        "named cursor with hold": held,
        "named cursor, scrolled": scrolled,
        "copy text": lambda: copied("COPY (SELECT message, flux_id, attributes FROM logs WHERE message LIKE 'odd%' ORDER BY ts) TO STDOUT"),
        "copy csv": lambda: copied("COPY (SELECT message, flux_id, attributes FROM logs WHERE message LIKE 'odd%' ORDER BY ts) TO STDOUT (FORMAT csv, HEADER)"),
        "copy binary": lambda: copied("COPY (SELECT ts, flux_id, message, max(ts) OVER () - ts FROM logs ORDER BY ts LIMIT 2) TO STDOUT (FORMAT binary)", ["timestamptz", "uuid", "text", "interval"]),
        "copy table": lambda: copied("COPY logs (level) TO STDOUT").count("\n"),
        "stream": lambda: sum(1 for _ in psycopg.connect(PLACE).cursor().stream("SELECT message FROM logs")),
        "pool": pooled,
        "pipeline": pipelined,
        "pipeline after an error": pipeline_after_an_error,
        "prepared": prepared,
        "binary answers": binary,
        "dictionaries": lambda: psycopg.connect(PLACE).cursor(row_factory=psycopg.rows.dict_row).execute(ALL).fetchone(),
        "savepoint": savepoint,
        "cancel": cancelled,
        "statement_timeout": timed_out,
        "SHOW ALL": all_settings,
        "type by name": lambda: psycopg.types.TypeInfo.fetch(psycopg.connect(PLACE), "uuid").array_oid,
        "insert": lambda: rows("INSERT INTO logs (level) VALUES ('x')"),
        "copy in": lambda: copied("COPY logs FROM STDIN"),
        "error": lambda: rows("SELECT levl FROM logs"),
    })


def of_others():
    """What clients ask when they begin that are not run here, as they are known to ask it, without the rows of other schemas."""

    def rows(text):
        with psycopg.connect(PLACE) as connection:
            return connection.execute(text).fetchall()

    # Types, of lists their items, of ranges what they range over.
    kinds = """
        SELECT t.typname, CASE WHEN p.proname = 'array_recv' THEN 'a' ELSE t.typtype END AS kind, t.typnotnull,
            CASE WHEN p.proname = 'array_recv' THEN t.typelem
                 WHEN t.typtype = 'r' THEN r.rngsubtype
                 WHEN t.typtype = 'm' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = t.oid) END AS item
        FROM pg_type AS t LEFT JOIN pg_class AS c ON (c.oid = t.typrelid) LEFT JOIN pg_proc AS p ON p.oid = t.typreceive
        LEFT JOIN pg_range AS r ON (r.rngtypid = t.oid) JOIN pg_namespace AS n ON (n.oid = t.typnamespace)
        WHERE n.nspname = 'pg_catalog' AND t.typtype IN ('b', 'r', 'm', 'e', 'd')"""

    def types():
        # Rows of views are types too, and there are more of them from version to version.
        found = sorted(tuple(str(value) for value in row) for row in rows(kinds) if not row[0].startswith("_pg_"))
        return len(found), [row for row in found if row[0].lstrip("_") in ("uuid", "timestamptz", "int4range", "int4multirange")]

    tables = "SELECT quote_ident(table_name) FROM information_schema.tables WHERE quote_ident(table_schema) = 'public' ORDER BY 1"
    columns = """SELECT quote_ident(column_name), data_type, udt_name FROM information_schema.columns
        WHERE quote_ident(table_name) = 'logs' AND quote_ident(table_schema) = 'public' ORDER BY ordinal_position"""
    table("start-up of Npgsql", "", {
        "types": types,
        "composites": lambda: rows("SELECT t.oid, a.attname FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid JOIN pg_attribute a ON a.attrelid = t.typrelid WHERE t.typtype = 'c' AND c.relkind = 'c'"),
        "enums": lambda: rows("SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid ORDER BY oid, enumsortorder"),
    })
    table("start-up of Grafana", "", {
        "version": lambda: int(rows("SELECT current_setting('server_version_num')::int / 100")[0][0]) // 100,
        "timescaledb": lambda: rows("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'"),
        "tables": lambda: rows(tables),
        "columns": lambda: rows(columns),
        "time series": lambda: rows("SELECT floor(extract(epoch FROM ts) / 86400) * 86400 > 0 AS time, level AS metric, count(*) AS value FROM logs GROUP BY 1, 2 ORDER BY 1, 2"),
    })


def of_psycopg2():
    def connected(work, **way):
        connection = psycopg2.connect(PLACE)
        try:
            with connection, connection.cursor(**way) as cursor:
                return work(cursor)
        finally:
            connection.close()

    def rows(text, *values, **way):
        def work(cursor):
            cursor.execute(text, values)
            return cursor.fetchall()

        return connected(work, **way)

    def copied(cursor):
        out = io.StringIO()
        cursor.copy_expert("COPY (SELECT message, level FROM logs ORDER BY ts LIMIT 2) TO STDOUT WITH CSV HEADER", out)
        return out.getvalue()

    def cancelled():
        connection = psycopg2.connect(PLACE)
        said = until_over(connection.cancel, lambda: connection.cursor().execute(ENDLESS))
        connection.close()
        return said

    table("psycopg2", version("psycopg2-binary"), {
        "select": lambda: rows(ALL),
        "list": lambda: rows("SELECT count(*) FROM logs WHERE level = ANY(%s)", ["info", "debug"]),
        "interval": lambda: rows("SELECT count(*) FROM logs WHERE ts > now() - %s", 24 * HOUR),
        "named cursor": lambda: len(rows("SELECT message FROM logs", name="big")),
        "dictionaries": lambda: rows("SELECT message, level FROM logs ORDER BY ts LIMIT 1", cursor_factory=psycopg2.extras.RealDictCursor),
        "copy": lambda: connected(copied),
        "cancel": cancelled,
        "insert": lambda: rows("INSERT INTO logs (level) VALUES ('x')"),
    })


async def of_asyncpg():
    place = {"host": "127.0.0.1", "port": PORT, "user": USER, "database": "platform"}
    connection = await asyncpg.connect(**place)

    async def pooled():
        async with asyncpg.create_pool(**place, min_size=1, max_size=1) as pool:
            said = []
            for _ in range(3):
                async with pool.acquire() as taken:
                    said.append(await taken.fetchval("SELECT count(*) FROM logs"))
            return said

    async def copied(**way):
        out = io.BytesIO()
        done = await connection.copy_from_query("SELECT message FROM logs WHERE level = $1 ORDER BY ts LIMIT 2", "info", output=out, **way)
        return done, out.getvalue().hex() if way.get("format") == "binary" else out.getvalue()

    async def copied_table():
        out = io.BytesIO()
        done = await connection.copy_from_table("logs", columns=["level"], output=out)
        return done, len(out.getvalue())

    async def cursor():
        async with connection.transaction():
            return len([row async for row in connection.cursor("SELECT message FROM logs WHERE level = $1", "info", prefetch=7)])

    async def cursor_in_parts():
        async with connection.transaction():
            rows = await connection.cursor("SELECT message FROM logs ORDER BY ts")
            await rows.forward(2)
            return [tuple(row) for row in await rows.fetch(2)]

    async def nested():
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            try:
                async with connection.transaction():
                    await connection.execute("SELECT levl FROM logs")
            except asyncpg.PostgresError as error:
                return failed(error), await connection.fetchval("SELECT 1")

    async def prepared():
        statement = await connection.prepare("SELECT ts, flux_id, level FROM logs WHERE level = $1 AND ts >= $2 ORDER BY ts LIMIT 1")
        kinds = [[kind.name for kind in statement.get_parameters()], [(field.name, field.type.name) for field in statement.get_attributes()]]
        return kinds, [tuple(row) for row in await statement.fetch("info", BASE)]

    async def timed_out():
        try:
            await connection.fetchval(ENDLESS, timeout=0.2)
        except asyncio.TimeoutError:
            return "timeout", await connection.fetchval("SELECT 1")

    fetched = connection.fetchval
    count = "SELECT count(*) FROM logs WHERE "
    operations = {
        "select": lambda: connection.fetch(ALL),
        "prepared": prepared,
        "list of texts": lambda: fetched(count + "level = ANY($1)", ["info", "debug"]),
        "list of numbers": lambda: fetched(count + "length(message) = ANY($1::int[])", [5, 6]),
        "list of large numbers": lambda: fetched(count + "length(message) = ANY($1::bigint[])", [5, 6]),
        "list of ids": lambda: fetched(count + "flux_id = ANY($1)", [ID]),
        "list of times": lambda: fetched(count + "ts = ANY($1::timestamptz[])", [BASE]),
        "list of fractions": lambda: fetched("SELECT $1::float8[]", [1.5, None]),
        "list as an answer": lambda: fetched("SELECT array_agg(flux_id ORDER BY ts) FROM logs WHERE ts < $1", BASE + datetime.timedelta(microseconds=4)),
        "interval": lambda: fetched(count + "ts > now() - $1::interval", 24 * HOUR),
        "interval as an answer": lambda: fetched("SELECT max(ts) - min(ts) FROM logs"),
        "cursor": cursor,
        "cursor in parts": cursor_in_parts,
        "copy_from_query": copied,
        "copy_from_query csv": lambda: copied(format="csv", header=True),
        "copy_from_query binary": lambda: copied(format="binary"),
        "copy_from_table": copied_table,
        "pool": pooled,
        "nested transaction": nested,
        "timeout": timed_out,
        "executemany": lambda: connection.executemany("SELECT $1::int", [(1,), (2,)]),
        "reset": connection.reset,
        "insert": lambda: fetched("INSERT INTO logs (level) VALUES ('x')"),
    }
    for operation, work in operations.items():
        try:
            value = await work()
            value = [tuple(row) for row in value] if operation == "select" else value
        except Exception as error:
            value = failed(error)
        told("asyncpg", version("asyncpg"), operation, value)
    await connection.close()


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


of_psql()
of_psycopg()
of_others()
of_psycopg2()
asyncio.run(of_asyncpg())
of_sqlalchemy("psycopg")
of_sqlalchemy("psycopg2")
of_adbc()
of_connectorx()
of_duckdb()
