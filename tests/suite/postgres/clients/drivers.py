"""Clients of PostgreSQL from Python, and psql, over a thousand log rows.

usage: drivers.py PORT USER MICROSECONDS (the time of the first row, since 1970)
"""

import asyncio
import datetime
import io
import uuid
import warnings
from importlib.metadata import version

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
from psycopg_pool import ConnectionPool

from answers import ALL, BASE, ENDLESS, HOUR, ID, PLACE, PORT, USER, failed, table, told, until_over
from frameworks import of_adbc, of_connectorx, of_duckdb, of_sqlalchemy
from psql import of_psql

warnings.simplefilter("ignore")


def of_psycopg():
    def rows(text, *values, **way):
        with psycopg.connect(PLACE) as connection:
            return connection.execute(text, values, **way).fetchall()

    def described():
        with psycopg.connect(PLACE) as connection:
            cursor = connection.execute(
                "SELECT *, count(*), max(ts) - min(ts), upper(level), ts::date, 1.5::float8, 2::int, 2::smallint, true, 'x'::text, "
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
