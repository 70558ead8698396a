"""The same questions to a running Mixer and to other engines on its files; a table of medians and every answer compared.

usage: queries.py SETUP

SETUP is JSON: `api` (base address), `tree` (the folder with logs/, traces/, metrics/), `work` (a folder to fill), `end` (the newest row's time),
`flux_id`, `trace_id`, `needle`, `rounds`, `peers`. Each round asks every engine every question once, in turn; the first two rounds do not count.
Ours is timed from the request to the last byte of the body, over one kept connection; the others from the call to the fetched rows, in process.
Answers must agree in their number of rows and the sum of their numbers, or else of their times. Packages: benches/requirements.txt.
"""
import datetime
import http.client
import json
import os
import statistics
import sys
import time
import urllib.parse

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
HOUR = datetime.timedelta(hours=1)
TABLES = ["logs", "traces", "metrics"]
ERRORS = "level IN ('error', 'fatal')"


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def iso(time_):
    return time_.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Question:
    """`ours` is a path with its query, or a statement; `sql` makes a statement of a dialect; `lazy` a plan of polars, from its module and the
    tables; `total` names the column whose sum is compared."""

    def __init__(self, name, ours, sql, lazy, total=None):
        self.name, self.ours, self.sql, self.lazy, self.total = name, ours, sql, lazy, total


def questions(setup):
    end = moment(setup["end"]) + datetime.timedelta(microseconds=1)
    hour, day = end - HOUR, end - 24 * HOUR
    everything = end - 60 * HOUR
    trace = setup["trace_id"]

    def path(what, since, **more):
        query = {"since": iso(since), "until": iso(end), **more}
        return f"/api/v1/telemetry/{what}?{urllib.parse.urlencode(query)}"

    def span(dialect, since):
        return f"ts >= {dialect.time(since)} AND ts < {dialect.time(end)}"

    def within(pl, since):
        return (pl.col("ts") >= since) & (pl.col("ts") < end)

    def newest(name, ours, since, condition, lazy, table="logs"):
        statement = lambda d: f"SELECT * FROM {d.table(table)} WHERE {span(d, since)} AND {condition(d)} ORDER BY ts DESC LIMIT 50"
        plan = lambda pl, tables: tables[table].filter(within(pl, since) & lazy(pl)).sort("ts", descending=True).limit(50)
        return Question(name, ours, statement, plan)

    def text(name, since, word):
        ours, condition = path("logs", since, limit=50, q=word), f"message LIKE '%{word}%'"
        return newest(name, ours, since, lambda d: condition, lambda pl: pl.col("message").str.contains(word, literal=True))

    def flux(name, uuid):
        ours, raw = path("logs", everything, limit=50, flux_id=uuid), bytes.fromhex(uuid.replace("-", ""))
        return newest(name, ours, everything, lambda d: f"flux_id = {d.uuid(uuid)}", lambda pl: pl.col("flux_id") == raw)

    def metric(interval, seconds):
        name = "http.server.requests"
        ours = path("metrics", day, name=name, group_by="entity_name", interval=interval, agg="avg", shape="series", limit=10000)
        sql = lambda d: (
            f"SELECT entity_name, {d.bucket(seconds)} AS bucket, avg(value) AS v FROM {d.table('metrics')} "
            f"WHERE name = '{name}' AND {span(d, day)} GROUP BY 1, 2 ORDER BY 1, 2"
        )
        lazy = lambda pl, tables: (
            tables["metrics"].filter((pl.col("name") == name) & within(pl, day))
            .group_by("entity_name", pl.col("ts").dt.truncate(f"{seconds}s").alias("bucket")).agg(pl.col("value").mean().alias("v")).sort("entity_name", "bucket")
        )
        return Question(f"one metric, 24 h, avg by entity, {interval}", ours, sql, lazy, "v")

    errors = lambda pl: pl.col("level").is_in(["error", "fatal"])
    slow = lambda pl: (pl.col("status") == "error") & (pl.col("duration_ms") >= 100)
    all_of = f"ts >= '{iso(everything)}' AND ts < '{iso(end)}'"
    ours_percentile = lambda at: f"approx_percentile_cont({at}) WITHIN GROUP (ORDER BY duration_ms)"
    pattern = "declined by (visa|alice): code 4[0-9]+"
    return [
        newest("newest 50 of the last hour", path("logs", hour, limit=50), hour, lambda d: "1 = 1", lambda pl: pl.lit(True)),
        newest("newest 50 errors in 24 h", path("logs", day, limit=50, min_level="error"), day, lambda d: ERRORS, errors),
        newest("newest 50 of one entity in 24 h", path("logs", day, limit=50, entity="db-03"), day, lambda d: "entity_name = 'db-03'", lambda pl: pl.col("entity_name") == "db-03"),
        text("rare text, all", everything, setup["needle"]),
        text("common text, newest 50 in 24 h", day, "payment"),
        text("absent text, all", everything, "zyzzyva"),
        flux("flux id, hit, all", setup["flux_id"]),
        flux("flux id, miss, all", setup["flux_id"][:-12] + "0" * 12),
        Question(
            "one trace by id", f"/api/v1/telemetry/traces/{trace}", lambda d: f"SELECT * FROM {d.table('traces')} WHERE trace_id = '{trace}'",
            lambda pl, tables: tables["traces"].filter(pl.col("trace_id") == trace),
        ),
        newest(
            "slow error spans in 24 h, newest 50", path("traces", day, limit=50, status="error", min_duration_ms=100), day,
            lambda d: "status = 'error' AND duration_ms >= 100", slow, "traces",
        ),
        metric("1m", 60),
        metric("5m", 300),
        metric("1h", 3600),
        Question(
            "count by level per hour, all", path("logs/histogram", everything, interval="1h", by="level"),
            lambda d: f"SELECT {d.bucket(3600)} AS bucket, level, count(*) AS n FROM {d.table('logs')} WHERE {span(d, everything)} GROUP BY 1, 2 ORDER BY 1, 2",
            lambda pl, tables: tables["logs"].filter(within(pl, everything)).group_by(pl.col("ts").dt.truncate("1h").alias("bucket"), "level").agg(pl.len().alias("n")).sort("bucket", "level"),
            "n",
        ),
        Question(
            "top entities by errors, all", path("logs/top", everything, field="entity_name", min_level="error", limit=10),
            lambda d: f"SELECT entity_name, count(*) AS n FROM {d.table('logs')} WHERE {span(d, everything)} AND {ERRORS} GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            lambda pl, tables: tables["logs"].filter(within(pl, everything) & errors(pl)).group_by("entity_name").agg(pl.len().alias("n")).sort(["n", "entity_name"], descending=[True, False]).limit(10),
            "n",
        ),
        Question(
            "percentiles by span name, all (ours and SQL's approximate)",
            f"SELECT span_name, {ours_percentile(0.5)} AS p50, {ours_percentile(0.99)} AS p99 FROM traces WHERE {all_of} GROUP BY 1 ORDER BY 1",
            lambda d: f"SELECT span_name, {d.percentile(0.5)} AS p50, {d.percentile(0.99)} AS p99 FROM {d.table('traces')} WHERE {span(d, everything)} GROUP BY 1 ORDER BY 1",
            lambda pl, tables: tables["traces"].filter(within(pl, everything)).group_by("span_name").agg(pl.col("duration_ms").quantile(0.5).alias("p50"), pl.col("duration_ms").quantile(0.99).alias("p99")).sort("span_name"),
        ),
        Question(
            "distinct flux ids, all", f"SELECT count(DISTINCT flux_id) AS n FROM logs WHERE {all_of}",
            lambda d: f"SELECT count(DISTINCT flux_id) AS n FROM {d.table('logs')} WHERE {span(d, everything)}",
            lambda pl, tables: tables["logs"].filter(within(pl, everything)).select(pl.col("flux_id").drop_nulls().n_unique().alias("n")), "n",
        ),
        Question(
            "regex scan, 24 h", f"SELECT count(*) AS n FROM logs WHERE ts >= '{iso(day)}' AND ts < '{iso(end)}' AND regexp_like(message, '{pattern}')",
            lambda d: f"SELECT count(*) AS n FROM {d.table('logs')} WHERE {span(d, day)} AND {d.matches(pattern)}",
            lambda pl, tables: tables["logs"].filter(within(pl, day) & pl.col("message").str.contains(pattern)).select(pl.len().alias("n")), "n",
        ),
    ]


class Ours:
    name = "ours"

    def __init__(self, setup):
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(setup["api"]).netloc, timeout=120)

    def ask(self, question):
        return self.answer(question.ours)

    def answer(self, asked):
        if asked.startswith("/"):
            self.connection.request("GET", asked)
        else:
            body = json.dumps({"query": asked})
            self.connection.request("POST", "/api/v1/sql", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {body[:300]}")
        return body

    def rows(self, body):
        rows = json.loads(body)
        rows = rows["data"] if "data" in rows else flat(rows["spans"])
        flattened = []
        for row in rows:
            if isinstance(row, dict) and "values" in row:
                flattened += [{"v": value} for value in row["values"] if value is not None]
            elif isinstance(row, dict):
                flattened.append({**row, "n": row.get("n", row.get("count"))})
        return flattened


def flat(spans):
    return [one for span in spans for one in [span, *flat(span.get("children", []))]]


class Dialect:
    def __init__(self, setup):
        self.tree, self.work = setup["tree"], setup["work"]

    def table(self, name):
        return name

    def time(self, at):
        return f"TIMESTAMPTZ '{iso(at)}'"

    def uuid(self, text):
        return f"'{text}'::UUID"

    def bucket(self, seconds):
        return f"time_bucket(INTERVAL '{seconds} seconds', ts)"

    def percentile(self, at):
        return f"approx_quantile(duration_ms, {at})"

    def matches(self, pattern):
        return f"regexp_matches(message, '{pattern}')"

    def ask(self, question):
        return self.run(question.sql(self))

    def rows(self, answer):
        return answer.to_pylist()


class OursSql(Dialect, Ours):
    """The same questions, all of them as statements."""

    name = "ours in SQL"

    def __init__(self, setup):
        Ours.__init__(self, setup)

    def time(self, at):
        return f"TIMESTAMP '{iso(at)}'"

    def uuid(self, text):
        return f"'{text}'"

    def percentile(self, at):
        return f"approx_percentile_cont({at}) WITHIN GROUP (ORDER BY duration_ms)"

    def matches(self, pattern):
        return f"regexp_like(message, '{pattern}')"

    def run(self, sql):
        return self.answer(sql)

    def rows(self, body):
        return Ours.rows(self, body)


class DuckDb(Dialect):
    name = "duckdb"

    def __init__(self, setup):
        super().__init__(setup)
        import duckdb

        self.store = duckdb.connect()
        self.store.execute("SET TimeZone = 'UTC'; SET enable_object_cache = true; SET parquet_metadata_cache = true")
        for table in TABLES:
            self.store.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{self.tree}/{table}/**/*.parquet')")

    def run(self, sql):
        return self.store.sql(sql).to_arrow_table()


class DataFusion(Dialect):
    name = "datafusion"

    def __init__(self, setup):
        super().__init__(setup)
        import datafusion

        options = datafusion.SessionConfig({"datafusion.execution.listing_table_ignore_subdirectory": "false", "datafusion.execution.parquet.pushdown_filters": "true"})
        self.store = datafusion.SessionContext(options)
        # By default it lists a folder once, and reads the sizes of then for ever: open files grow.
        self.store.sql("SET datafusion.runtime.list_files_cache_limit = '0K'")
        for table in TABLES:
            self.store.register_parquet(table, f"{self.tree}/{table}/")

    def time(self, at):
        return f"TIMESTAMP '{iso(at)}'"

    def uuid(self, text):
        return f"X'{text.replace('-', '')}'"

    def bucket(self, seconds):
        return f"date_bin(INTERVAL '{seconds} seconds', ts)"

    def percentile(self, at):
        return f"approx_percentile_cont({at}) WITHIN GROUP (ORDER BY duration_ms)"

    def matches(self, pattern):
        return f"regexp_like(message, '{pattern}')"

    def run(self, sql):
        return self.store.sql(sql).to_arrow_table()


class Polars:
    name = "polars"

    def __init__(self, setup):
        import polars

        self.polars = polars
        self.tables = {table: polars.scan_parquet(f"{setup['tree']}/{table}/**/*.parquet") for table in TABLES}

    def ask(self, question):
        return question.lazy(self.polars, self.tables).collect()

    def rows(self, answer):
        return answer.to_dicts()


class ClickHouse(Dialect):
    name = "clickhouse"
    session = None

    def __init__(self, setup):
        super().__init__(setup)
        from chdb.session import Session

        if ClickHouse.session is None:
            ClickHouse.session = Session(os.path.join(self.work, "clickhouse"))

    def table(self, name):
        return f"file('{self.tree}/{name}/**/*.parquet', Parquet, '{SHAPES[name]}')"

    def time(self, at):
        return f"toDateTime64('{at.astimezone(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M:%S.%f')}', 6, 'UTC')"

    def uuid(self, text):
        return f"toUUID('{text}')"

    def bucket(self, seconds):
        return f"toStartOfInterval(ts, INTERVAL {seconds} SECOND)"

    def percentile(self, at):
        return f"quantileTDigest({at})(duration_ms)"

    def matches(self, pattern):
        return f"match(message, '{pattern}')"

    def run(self, sql):
        return self.session.query(sql, "JSONEachRow").bytes()

    def rows(self, answer):
        return [json.loads(line) for line in answer.splitlines()]


SHAPES = {
    "logs": "ts DateTime64(6, \\'UTC\\'), entity_id UUID, entity_name String, flux_id Nullable(UUID), level String, message String, attributes String",
    "traces": "ts DateTime64(6, \\'UTC\\'), trace_id String, span_id String, parent_span_id Nullable(String), flux_id Nullable(UUID), entity_id UUID, entity_name String, "
    "span_name String, duration_ms Float32, status String, attributes String",
    "metrics": "ts DateTime64(6, \\'UTC\\'), entity_id UUID, entity_name String, name String, type String, value Float64, labels String",
}


class MergeTree(ClickHouse):
    """ClickHouse's own tables of the same rows, with the order and the indexes that suit each."""

    name = "mergetree"
    INDEXES = {
        "logs": ("ts", "INDEX flux flux_id TYPE bloom_filter GRANULARITY 4, INDEX words message TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 4, INDEX grams message TYPE ngrambf_v1(4, 32768, 3, 0) GRANULARITY 4"),
        "traces": ("ts", "INDEX trace trace_id TYPE bloom_filter GRANULARITY 4"),
        "metrics": ("(name, entity_name, ts)", "INDEX times ts TYPE minmax GRANULARITY 1"),
    }

    def __init__(self, setup):
        super().__init__(setup)
        self.session.query("CREATE DATABASE IF NOT EXISTS bench")
        for table in TABLES:
            order, indexes = self.INDEXES[table]
            shape = SHAPES[table].replace("\\'", "'")
            for column in ["entity_name", "level", "status", "name", "span_name", "type"]:
                shape = shape.replace(f" {column} String", f" {column} LowCardinality(String)")
            self.session.query(f"CREATE TABLE bench.{table} ({shape}, {indexes}) ENGINE = MergeTree ORDER BY {order}")
            self.session.query(f"INSERT INTO bench.{table} SELECT * FROM {ClickHouse.table(self, table)}")
            self.session.query(f"OPTIMIZE TABLE bench.{table} FINAL")

    def table(self, name):
        return f"bench.{name}"


OURS = [Ours, OursSql]
ENGINES = [*OURS, DuckDb, DataFusion, Polars, ClickHouse, MergeTree]


def micros(at):
    at = moment(at.replace(" ", "T")) if isinstance(at, str) else at
    at = at if at.tzinfo else at.replace(tzinfo=datetime.timezone.utc)
    return (at - EPOCH) // datetime.timedelta(microseconds=1)


def verdict(question, rows):
    """What an answer comes to: how many rows, and the sum of its numbers, or of its times."""
    if question.total is None:
        return len(rows), sum(micros(row["ts"]) for row in rows if "ts" in row)
    values = [float(row[question.total]) for row in rows if row.get(question.total) is not None]
    return len(values), round(sum(values), 3)


def agree(one, other):
    near = 0 if isinstance(one[1], int) else 1e-6 * max(abs(one[1]), abs(other[1]))
    return one[0] == other[0] and abs(one[1] - other[1]) <= near


def main():
    setup = json.loads(sys.argv[1])
    engines = [engine(setup) for engine in ENGINES if engine in OURS or engine.name in setup["peers"]]
    print("question | " + " | ".join(engine.name for engine in engines) + " | ours, and in SQL / best of the others", flush=True)
    red = 0
    for question in questions(setup):
        times, verdicts = {engine.name: [] for engine in engines}, {}
        for turn in range(setup["rounds"] + 2):
            for engine in engines:
                if engine.name in verdicts and isinstance(verdicts[engine.name], str):
                    continue
                begin = time.perf_counter()
                try:
                    answer = engine.ask(question)
                except Exception as error:  # a peer may lack a function; what it says is printed
                    verdicts[engine.name] = f"{type(error).__name__}: {str(error)[:200]}"
                    continue
                if turn >= 2:
                    times[engine.name].append((time.perf_counter() - begin) * 1e3)
                if turn == 0:
                    verdicts[engine.name] = verdict(question, engine.rows(answer))
        medians = {name: statistics.median(taken) for name, taken in times.items() if taken}
        names = [engine.name for engine in OURS]
        others = [value for name, value in medians.items() if name not in names]
        ratios = [medians[name] / min(others) if others and name in medians else float("nan") for name in names]
        red += sum(ratio > 1 for ratio in ratios)
        print(f"{question.name} | " + " | ".join(f"{medians[e.name]:.1f}" if e.name in medians else "-" for e in engines) + f" | {ratios[0]:.2f}, {ratios[1]:.2f}", flush=True)
        for name, found in verdicts.items():
            if isinstance(found, str):
                print(f"    {name} did not answer: {found}")
            elif not agree(found, verdicts["ours"]) if not isinstance(verdicts["ours"], str) else False:
                print(f"    {name} differs: {found}, ours {verdicts['ours']}")
    print(f"{red} questions and wordings behind the best of the others")


if __name__ == "__main__":
    main()
