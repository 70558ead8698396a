"""An engine that reads the Iceberg catalogue of a Mixer: answers each question, a JSON object on a line of standard input, with a JSON value on
a line of standard output; a line ".print TEXT" prints TEXT. Only errors of the engine go to standard error.

usage: engines.py ENGINE SETTINGS

ENGINE is a key of ENGINES below, or `mixer`: the Mixer's own SQL. SETTINGS is a JSON object: `api` (address of the Mixer), `store` (its folder), `log`
(a file for what engines print), `token` if the Mixer is to be shown one, and for a bucket `s3` with `endpoint`, `bucket`, `key` and `secret`.

What engines return is compared by a digest that does not depend on the order of rows: DuckDB makes each row a text, in which a value looks
the same whatever type it came in, and adds up the rows' MD5.
"""
import ctypes
import datetime
import importlib.metadata
import json
import os
import struct
import sys
import urllib.request

NAMESPACE = "telemetry"


class PyIceberg:
    package = "pyiceberg"

    def __init__(self, settings):
        from pyiceberg.catalog import load_catalog

        # Without a token it says `Bearer None` unless it is told to say nothing.
        token = settings.get("token")
        who = {"token": token} if token else {"auth": {"type": "noop"}}
        self.catalog = load_catalog("mixer", type="rest", uri=settings["api"] + "/iceberg", **who, **self.keys(settings))

    @staticmethod
    def keys(settings):
        s3 = settings.get("s3")
        return {"s3.access-key-id": s3["key"], "s3.secret-access-key": s3["secret"]} if s3 else {}

    def tables(self):
        return [name for _, name in self.catalog.list_tables(NAMESPACE)]

    def load(self, table):
        return self.catalog.load_table(f"{NAMESPACE}.{table}")

    @staticmethod
    def condition(where):
        if not where:
            return {}
        if "entity" in where:
            return {"row_filter": f"entity_name = '{where['entity']}'"}
        return {"row_filter": f"ts >= '{where['from']}+00:00' and ts < '{where['to']}+00:00'"}

    def scan(self, table, snapshot, where):
        return self.load(table).scan(snapshot_id=snapshot, **self.condition(where))

    def arrow(self, table, columns, snapshot, where):
        return self.scan(table, snapshot, where).select(*columns).to_arrow()

    def count(self, table, snapshot, where):
        return self.scan(table, snapshot, where).count()

    def join(self):
        return None


class DataFrames(PyIceberg):
    """Engines with data frames, through pyiceberg."""

    def count(self, table, snapshot, where):
        return self.arrow(table, ["ts"], snapshot, where).num_rows

    def condition_of(self, col, where):
        if "entity" in where:
            return col("entity_name") == where["entity"]
        moment = lambda text: datetime.datetime.fromisoformat(text + "+00:00")
        return (col("ts") >= moment(where["from"])) & (col("ts") < moment(where["to"]))


class Polars(DataFrames):
    package = "polars"

    def __init__(self, settings):
        super().__init__(settings)
        # Data files are not read through pyiceberg.
        s3 = settings.get("s3")
        self.options = s3 and {
            "aws_access_key_id": s3["key"],
            "aws_secret_access_key": s3["secret"],
            "aws_endpoint_url": s3["endpoint"],
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def frame(self, table, snapshot):
        import polars

        return polars.scan_iceberg(self.load(table), snapshot_id=snapshot, storage_options=self.options)

    def arrow(self, table, columns, snapshot, where):
        import polars

        frame = self.frame(table, snapshot)
        frame = frame.filter(self.condition_of(polars.col, where)) if where else frame
        return frame.select(columns).collect().to_arrow()

    def join(self):
        import polars

        both = self.frame("logs", None).join(self.frame("metrics", None), on=["ts", "entity_id"])
        return both.select(polars.len(), polars.col("value").sum()).collect().row(0)


class Daft(DataFrames):
    package = "daft"

    def frame(self, table, snapshot):
        import daft

        return daft.read_iceberg(self.load(table), snapshot_id=snapshot)

    def arrow(self, table, columns, snapshot, where):
        import daft

        frame = self.frame(table, snapshot)
        frame = frame.where(self.condition_of(daft.col, where)) if where else frame
        return frame.select(*columns).to_arrow()

    def join(self):
        import daft

        both = self.frame("logs", None).join(self.frame("metrics", None), on=["ts", "entity_id"])
        both = both.agg(daft.col("value").count().alias("n"), daft.col("value").sum().alias("sum"))
        return list(both.to_pydict()["n"] + both.to_pydict()["sum"])


class SqlEngine:
    """What engines of SQL have in common; `rows` and `fetch` run a statement."""

    def name(self, table, snapshot):
        return f"m.{NAMESPACE}.{table}" + (f" VERSION AS OF {snapshot}" if snapshot else "")

    def moment(self, text):
        return f"TIMESTAMP '{text}Z'"

    def statement(self, what, table, snapshot, where):
        sql = f"SELECT {what} FROM {self.name(table, snapshot)}"
        if where and "entity" in where:
            return f"{sql} WHERE entity_name = '{where['entity']}'"
        if where:
            return f"{sql} WHERE ts >= {self.moment(where['from'])} AND ts < {self.moment(where['to'])}"
        return sql

    def arrow(self, table, columns, snapshot, where):
        return self.fetch(self.statement(", ".join(columns), table, snapshot, where))

    def count(self, table, snapshot, where):
        return self.rows(self.statement("count(*) AS n", table, snapshot, where))[0][0]

    def join(self):
        logs, points = self.name("logs", None), self.name("metrics", None)
        on = "log.ts = point.ts AND log.entity_id = point.entity_id"
        return self.rows(f"SELECT count(*) AS n, sum(point.value) AS total FROM {logs} log JOIN {points} point ON {on}")[0]

    def rows(self, sql):
        return [list(row.values()) for row in self.fetch(sql).to_pylist()]


class DuckDB(SqlEngine):
    package = "duckdb"

    def __init__(self, settings):
        import duckdb
        from duckdb_extensions import import_extension

        self.session = duckdb.connect()
        self.session.execute("SET TimeZone = 'UTC'")
        s3 = settings.get("s3")
        for extension in ["avro", "httpfs", "iceberg"]:
            import_extension(extension)
            self.session.load_extension(extension)
        if s3:
            self.session.execute(
                f"CREATE SECRET bucket (TYPE s3, KEY_ID '{s3['key']}', SECRET '{s3['secret']}', REGION 'us-east-1', URL_STYLE 'path', "
                f"ENDPOINT '{s3['endpoint'].split('//')[1]}', USE_SSL false)"
            )
        who, token = "AUTHORIZATION_TYPE 'none'", settings.get("token")
        if token:
            self.session.execute(f"CREATE SECRET mixer (TYPE iceberg, TOKEN '{token}')")
            who = "SECRET mixer"
        # What the catalogue says of a bucket would else be taken for the keys as well.
        who += ", ACCESS_DELEGATION_MODE 'none'"
        self.session.execute(f"ATTACH '{NAMESPACE}' AS m (TYPE iceberg, ENDPOINT '{settings['api']}/iceberg', {who})")

    def tables(self):
        found = self.session.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'm'").fetchall()
        return [name for name, in found]

    def name(self, table, snapshot):
        return f"m.{NAMESPACE}.{table}" + (f" AT (VERSION => {snapshot})" if snapshot else "")

    def moment(self, text):
        return f"TIMESTAMPTZ '{text}+00'"

    def fetch(self, sql):
        return self.session.execute(sql).fetch_arrow_table()


class Sail(SqlEngine):
    package = "pysail"

    def __init__(self, settings):
        s3 = settings.get("s3")
        if s3:
            os.environ |= {"AWS_ACCESS_KEY_ID": s3["key"], "AWS_SECRET_ACCESS_KEY": s3["secret"], "AWS_REGION": "us-east-1"}
            os.environ |= {"AWS_ENDPOINT": s3["endpoint"], "AWS_ENDPOINT_URL": s3["endpoint"], "AWS_ALLOW_HTTP": "true"}
        who = f', bearer_access_token="{settings["token"]}"' if settings.get("token") else ""
        os.environ["SAIL_CATALOG__LIST"] = f'[{{name="m", type="iceberg-rest", uri="{settings["api"]}/iceberg"{who}}}]'
        os.environ["SAIL_CATALOG__DEFAULT_CATALOG"] = '"m"'
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        self.server = SparkConnectServer("127.0.0.1", 0)
        self.server.start(background=True)
        _, port = self.server.listening_address
        self.session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

    def tables(self):
        return [row["tableName"] for row in self.session.sql(f"SHOW TABLES IN m.{NAMESPACE}").collect()]

    def fetch(self, sql):
        client, frame = self.session.client, self.session.sql(sql)
        return client.to_table(frame._plan.to_proto(client))[0]


class Spark(Sail):
    package = "pyspark"

    def __init__(self, settings):
        from importlib.util import find_spec

        from pyspark.sql import SparkSession

        # Iceberg and AWS's client with all that they need, under names of its own; nothing else of this package is used.
        package = find_spec("feature_store_pyspark").submodule_search_locations[0]
        s3 = settings.get("s3")
        if s3:
            os.environ |= {"AWS_ACCESS_KEY_ID": s3["key"], "AWS_SECRET_ACCESS_KEY": s3["secret"], "AWS_REGION": "us-east-1"}
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        values = {
            "spark.jars": os.path.join(package, "jars/sagemaker-feature-store-spark-sdk-3.5.jar"),
            "spark.driver.memory": "8g",
            "spark.driver.maxResultSize": "0",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.catalog.m": "smfs.shaded.org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.m.type": "rest",
            "spark.sql.catalog.m.uri": settings["api"] + "/iceberg",
            # A table is looked for anew in each statement.
            "spark.sql.catalog.m.cache-enabled": "false",
        }
        if settings.get("token"):
            values["spark.sql.catalog.m.token"] = settings["token"]
        builder = SparkSession.builder.master("local[1]")
        for key, value in values.items():
            builder = builder.config(key, value)
        self.session = builder.getOrCreate()

    def fetch(self, sql):
        import pyarrow

        frame = self.session.sql(sql)
        batches = frame._collect_as_arrow()
        return pyarrow.Table.from_batches(batches) if batches else pyarrow.table({name: [] for name in frame.columns})


class ClickHouse(SqlEngine):
    package = "chdb"

    def __init__(self, settings):
        from chdb.session import Session

        # It reads files below its working folder only.
        os.chdir(settings["store"])
        self.session, self.settings = Session(), settings
        # It does not tell texts from bytes, which need not be UTF-8.
        self.session.query("SET output_format_arrow_string_as_string = 0")
        s3 = settings.get("s3")
        if s3:
            self.session.query("SET allow_database_iceberg = 1")
            token = settings.get("token")
            who = f", auth_header = 'Authorization: Bearer {token}'" if token else ""
            self.session.query(
                f"CREATE DATABASE m ENGINE = DataLakeCatalog('{settings['api']}/iceberg/v1', '{s3['key']}', '{s3['secret']}') "
                f"SETTINGS catalog_type = 'rest', warehouse = '{NAMESPACE}', storage_endpoint = '{s3['endpoint']}/{s3['bucket']}', "
                # Else it takes what the catalogue says of the bucket for the keys as well.
                f"vended_credentials = false{who}"
            )

    def tables(self):
        if not self.settings.get("s3"):
            return None
        found = self.session.query("SELECT name FROM system.tables WHERE database = 'm' SETTINGS show_data_lake_catalogs_in_system_tables = 1", "TSV")
        return [name.split(".")[1] for name in str(found).split()]

    def name(self, table, snapshot):
        if self.settings.get("s3"):
            return f"m.`{NAMESPACE}.{table}`"
        return f"icebergLocal('{self.settings['store']}/iceberg/{NAMESPACE}/{table}')"

    def moment(self, text):
        return f"toDateTime64('{text}', 6, 'UTC')"

    def statement(self, what, table, snapshot, where):
        sql = super().statement(what, table, snapshot, where)
        return f"{sql} SETTINGS iceberg_snapshot_id = {snapshot}" if snapshot else sql

    def fetch(self, sql):
        import pyarrow

        answer = self.session.query(sql, "ArrowStream")
        return pyarrow.ipc.open_stream(pyarrow.py_buffer(answer.bytes())).read_all()


class Mixer(SqlEngine):
    """The Mixer's own SQL: it has rows that are not in the catalogue yet."""

    package = None

    def __init__(self, settings):
        self.url = settings["api"] + "/api/v1/sql?format=arrow"

    def tables(self):
        return [name for name, in self.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")]

    def name(self, table, snapshot):
        return table

    def moment(self, text):
        return f"TIMESTAMPTZ '{text}Z'"

    def fetch(self, sql):
        import pyarrow

        request = urllib.request.Request(self.url, sql.encode(), {"content-type": "application/sql"})
        with urllib.request.urlopen(request) as answer:
            return pyarrow.ipc.open_stream(answer).read_all()


ENGINES = {
    "pyiceberg": PyIceberg,
    "duckdb": DuckDB,
    "polars": Polars,
    "daft": Daft,
    "sail": Sail,
    "spark": Spark,
    "chdb": ClickHouse,
    "mixer": Mixer,
}


class Comparison:
    """Rows as texts that are the same for every engine."""

    def __init__(self):
        import duckdb

        self.session = duckdb.connect()
        self.session.execute("SET TimeZone = 'UTC'")

    def ask(self, arrow, sql):
        self.session.register("answer", arrow)
        try:
            return self.session.execute(sql).fetchall()
        finally:
            self.session.unregister("answer")

    def digest(self, arrow, columns):
        have = {name: kind for name, kind, *_ in self.ask(arrow, "DESCRIBE answer")}
        texts = [self.text(f'"{name}"', kind, have[name]) for name, kind in columns]
        row = "concat_ws('|', " + ", ".join(f"coalesce({text}, '(null)')" for text in texts) + ")"
        count, total = self.ask(arrow, f"SELECT count(*), sum(md5_number_lower({row})::HUGEINT) FROM answer")[0]
        return {"rows": count, "digest": str(total)}

    @staticmethod
    def text(column, kind, have):
        if kind == "timestamptz":
            return f"epoch_us({column})::VARCHAR"
        if have == "BLOB":
            return f"lower(hex({column}))" if kind in ("uuid", "binary") else f"decode({column})"
        if kind == "uuid":
            return f"replace(lower({column}::VARCHAR), '-', '')"
        return f"{column}::VARCHAR"

    def streams(self, arrow):
        """Of each stream, by the messages `STREAM NUMBER NOISE`: rows, different numbers, the first and the last of them; and rows that are not of one piece."""
        have = {name: kind for name, kind, *_ in self.ask(arrow, "DESCRIBE answer")}
        texts = ", ".join(f"{self.text(name, 'string', have[name])} AS {name}" for name in ["entity_name", "message", "attributes"])
        found = self.ask(
            arrow,
            "SELECT s, count(*), count(DISTINCT n), min(n), max(n), count(*) FILTER (WHERE torn) FROM (SELECT split_part(message, ' ', 1) AS s, "
            "split_part(message, ' ', 2)::BIGINT AS n, coalesce(attributes->>'noise', '') <> split_part(message, ' ', 3) OR entity_name <> s AS torn "
            f"FROM (SELECT {texts} FROM answer)) GROUP BY s",
        )
        return {"streams": {stream: numbers for stream, *numbers, _ in found}, "torn": sum(row[-1] for row in found)}


class OpenedFiles:
    """Which data files below a folder are opened meanwhile, by whomever: what a scan reads."""

    IN_OPEN = 0x20

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.queue = libc.inotify_init1(os.O_NONBLOCK)
        if self.queue < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        for place, _, _ in os.walk(folder):
            libc.inotify_add_watch(self.queue, place.encode(), self.IN_OPEN)

    def names(self):
        found = set()
        while True:
            try:
                events = os.read(self.queue, 1 << 16)
            except BlockingIOError:
                os.close(self.queue)
                return found
            while events:
                folder, _, _, length = struct.unpack_from("iIII", events)
                name = events[16:16 + length].rstrip(b"\0").decode()
                events = events[16 + length:]
                if name.endswith(".parquet"):
                    found.add((folder, name))


def answer(engine, comparison, question):
    """The answer to a question: `do` says what, `table`, `snapshot` and `where` of what."""
    of = question.get("table", "logs"), question.get("snapshot"), question.get("where")
    match question["do"]:
        case "version":
            return importlib.metadata.version(engine.package) if engine.package else ""
        case "tables":
            found = engine.tables()
            return found and sorted(found)
        case "count":
            return engine.count(*of)
        case "opened":
            # A count could be answered from the metadata alone.
            opened = OpenedFiles(question["folder"])
            return [engine.arrow(of[0], ["entity_name", "message"], *of[1:]).num_rows, len(opened.names())]
        case "join":
            found = engine.join()
            return found and [int(found[0]), float(found[1])]
        case "types":
            arrow = engine.arrow(of[0], [name for name, _ in question["columns"]], *of[1:])
            return {field.name: str(field.type) for field in arrow.schema}
        case "digest":
            arrow = engine.arrow(of[0], [name for name, _ in question["columns"]], *of[1:])
            return comparison.digest(arrow, question["columns"])
        case "streams":
            columns = ["entity_name", "message", "attributes", "ts"]
            arrow = engine.arrow(of[0], columns, *of[1:])
            kinds = [("entity_name", "string"), ("message", "string"), ("attributes", "string"), ("ts", "timestamptz")]
            return comparison.streams(arrow) | comparison.digest(arrow, kinds)


def main():
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    # What engines print is neither an answer nor an error.
    answers, errors = (os.fdopen(os.dup(stream), "w") for stream in (1, 2))
    with open(settings["log"], "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    engine = comparison = None
    for line in sys.stdin:
        if line.startswith(".print "):
            print(line[7:].rstrip("\n"), file=answers, flush=True)
            continue
        try:
            engine = engine or ENGINES[name](settings)
            comparison = comparison or Comparison()
            print(json.dumps(answer(engine, comparison, json.loads(line.rstrip().rstrip(";")))), file=answers, flush=True)
        except Exception as error:  # whatever the engine raises is what a user of it would see
            print(f"{type(error).__name__}: {error}", file=errors, flush=True)


main()
