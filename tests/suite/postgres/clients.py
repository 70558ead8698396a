"""Drivers of PostgreSQL for Python over six log rows, "row 0" to "row 5": each check prints its name and what came of it.

usage: clients.py PORT USER
"""
import asyncio
import datetime
import io
import sys

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import connectorx
import pandas
import psycopg
import sqlalchemy
from psycopg_pool import ConnectionPool

PORT, USER = sys.argv[1:]
PLACE = f"host=127.0.0.1 port={PORT} user={USER} dbname=platform"
URL = f"postgresql://{USER}@127.0.0.1:{PORT}/platform"
HOUR = datetime.timedelta(hours=1)


def check(name, work):
    try:
        print(name, work(), flush=True)
    except Exception as error:
        print(name, type(error).__name__, " ".join(str(error).split())[:300], flush=True)


def of_psycopg():
    def one(text, *values):
        with psycopg.connect(PLACE) as connection:
            return connection.execute(text, values).fetchone()[0]

    def cursor():
        with psycopg.connect(PLACE) as connection, connection.cursor(name="big") as rows:
            rows.itersize = 2
            rows.execute("SELECT message FROM logs WHERE level = %s ORDER BY message", ["info"])
            return rows.fetchone(), len(rows.fetchall())

    def copied(statement):
        with psycopg.connect(PLACE) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
            return [bytes(part) for part in copy] if "csv" in statement else sorted(copy.rows())[0]

    def pooled():
        with ConnectionPool(PLACE, min_size=1, max_size=1) as pool:
            for _ in range(3):
                with pool.connection() as connection:
                    count = connection.execute("SELECT count(*) FROM logs").fetchone()
            return count

    check("psycopg.any", lambda: one("SELECT count(*) FROM logs WHERE level = ANY(%s)", ["info", "error"]))
    check("psycopg.interval", lambda: one("SELECT count(*) FROM logs WHERE ts > now() - %s", HOUR))
    check("psycopg.cursor", cursor)
    check("psycopg.csv", lambda: copied("COPY (SELECT message, level FROM logs ORDER BY 1 LIMIT 1) TO STDOUT (FORMAT csv)"))
    check("psycopg.copy", lambda: copied("COPY (SELECT message FROM logs) TO STDOUT (FORMAT BINARY)"))
    check("psycopg.pool", pooled)


async def of_asyncpg():
    place = {"host": "127.0.0.1", "port": int(PORT), "user": USER, "database": "platform"}

    async def told(name, work):
        try:
            said = await work
        except Exception as error:
            said = f"{type(error).__name__} {' '.join(str(error).split())[:300]}"
        print(name, said, flush=True)

    async def pooled():
        async with asyncpg.create_pool(**place, min_size=1, max_size=1) as pool:
            for _ in range(3):
                async with pool.acquire() as connection:
                    count = await connection.fetchval("SELECT count(*) FROM logs")
            return count

    connection = await asyncpg.connect(**place)

    async def copied():
        out = io.BytesIO()
        query = "SELECT message FROM logs WHERE level = $1 ORDER BY 1"
        done = await connection.copy_from_query(query, "info", output=out, format="csv")
        return done, out.getvalue()

    await told("asyncpg.pool", pooled())
    any_of = "SELECT count(*) FROM logs WHERE level = ANY($1)"
    await told("asyncpg.any", connection.fetchval(any_of, ["info", "debug"]))
    since = "SELECT count(*) FROM logs WHERE ts > now() - $1::interval"
    await told("asyncpg.interval", connection.fetchval(since, HOUR))
    await told("asyncpg.copy", copied())
    await connection.close()


def of_sqlalchemy():
    engine = sqlalchemy.create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))
    inspector = sqlalchemy.inspect(engine)
    names = ("ts", "flux_id", "message")

    def reflected():
        logs = sqlalchemy.Table("logs", sqlalchemy.MetaData(), autoload_with=engine)
        return [str(logs.c[name].type) for name in names]

    def streamed():
        with engine.connect().execution_options(stream_results=True, max_row_buffer=2) as connection:
            return len(connection.execute(sqlalchemy.text("SELECT message FROM logs")).fetchall())

    check("sqlalchemy.types", reflected)
    check("sqlalchemy.key", lambda: inspector.get_pk_constraint("logs")["constrained_columns"])
    check("sqlalchemy.indexes", lambda: inspector.get_indexes("logs"))
    check("sqlalchemy.foreign", lambda: inspector.get_foreign_keys("logs"))
    check("sqlalchemy.unique", lambda: inspector.get_unique_constraints("logs"))
    check("sqlalchemy.schemas", lambda: "public" in inspector.get_schema_names())
    check("sqlalchemy.streamed", streamed)
    check("pandas.table", lambda: len(pandas.read_sql_table("logs", engine)))


def of_arrow():
    def asked():
        with adbc.connect(URL) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT message, ts FROM logs ORDER BY 1 LIMIT 2")
            table = cursor.fetch_arrow_table()
            return [str(field.type) for field in table.schema], table["message"].to_pylist()

    check("adbc.query", asked)
    for protocol in ("binary", "csv", "cursor"):
        query = "SELECT message FROM logs ORDER BY 1 LIMIT 2"
        read = lambda: connectorx.read_sql(URL, query, protocol=protocol)["message"].tolist()
        check(f"connectorx.{protocol}", read)


of_psycopg()
asyncio.run(of_asyncpg())
of_sqlalchemy()
of_arrow()
