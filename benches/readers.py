"""A reader of a live tree: asks the same question again and again for a while and judges every answer; one line of JSON.

usage: readers.py duckdb|polars|pyarrow|chdb TREE STATE SECONDS

TREE holds log rows whose message begins with ten digits of an hour and ten digits of the row's number in that hour, and
whose attributes are LENGTH bytes. STATE is replaced by the writer: for each hour the rows that were published, the
hours that rotation has taken out of the catalogue, and how many seals there were. Packages: benches/requirements.txt.
"""
import json
import sys
import time

COLUMNS = ["ts", "entity_id", "entity_name", "flux_id", "level", "message", "attributes"]


def duckdb_reader(tree):
    import duckdb

    store = duckdb.connect()
    store.execute("SET TimeZone = 'UTC'; SET threads = 1")
    sql = f"""SELECT substr(message, 1, 10) AS hour, count(*), count(DISTINCT substr(message, 11, 10)),
        max(CAST(substr(message, 11, 10) AS BIGINT)), sum(length(CAST(attributes AS VARCHAR))), count(entity_name), count(level), count(ts), count(entity_id)
        FROM read_parquet('{tree}/**/*.parquet') GROUP BY 1"""
    return lambda: store.execute(sql).fetchall()


def polars_reader(tree):
    import polars as pl

    number = pl.col("message").str.slice(10, 10)
    wanted = [
        pl.len(), number.n_unique().alias("distinct"), number.cast(pl.Int64).max().alias("last"),
        pl.col("attributes").str.len_bytes().sum().alias("bytes"), pl.col("entity_name").count().alias("a"),
        pl.col("level").count().alias("b"), pl.col("ts").count().alias("c"), pl.col("entity_id").count().alias("d"),
    ]
    def ask():
        rows = pl.scan_parquet(f"{tree}/**/*.parquet").select(COLUMNS)
        return rows.group_by(pl.col("message").str.slice(0, 10).alias("hour")).agg(wanted).collect().rows()
    return ask


def pyarrow_reader(tree):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    pa.set_cpu_count(1)
    def ask():
        table = ds.dataset(tree, format="parquet").to_table(columns=COLUMNS)
        message = table["message"].cast(pa.string())
        number = pc.utf8_slice_codeunits(message, 10, 20)
        rows = pa.table({
            "hour": pc.utf8_slice_codeunits(message, 0, 10), "number": number, "value": number.cast(pa.int64()),
            "bytes": pc.binary_length(table["attributes"].cast(pa.string())), "name": table["entity_name"].cast(pa.string()), "ts": table["ts"],
            "level": table["level"].cast(pa.string()), "id": table["entity_id"].cast(pa.binary(16)),
        })
        wanted = [([], "count_all"), ("number", "count_distinct"), ("value", "max"), ("bytes", "sum"), ("name", "count"), ("level", "count"), ("ts", "count"), ("id", "count")]
        out = rows.group_by("hour").aggregate(wanted).to_pydict()
        names = ["hour", "count_all", "number_count_distinct", "value_max", "bytes_sum", "name_count", "level_count", "ts_count", "id_count"]
        return list(zip(*(out[name] for name in names)))
    return ask


def chdb_reader(tree):
    from chdb.session import Session

    session = Session()
    session.query("SET max_threads = 1")
    sql = f"""SELECT substring(message, 1, 10) AS hour, count(), uniqExact(substring(message, 11, 10)),
        max(toInt64(substring(message, 11, 10))), sum(length(toString(attributes))), count(entity_name), count(level), count(ts), count(entity_id)
        FROM file('{tree}/**/*.parquet', Parquet, 'ts DateTime64(6), entity_id FixedString(16), entity_name String, level String, message String, attributes String')
        GROUP BY hour FORMAT JSONCompactStringsEachRow"""
    def ask():
        answer = session.query(sql)
        return [[value if at == 0 else int(value) for at, value in enumerate(json.loads(line))] for line in str(answer).splitlines()]
    return ask


READERS = {"duckdb": duckdb_reader, "polars": polars_reader, "pyarrow": pyarrow_reader, "chdb": chdb_reader}


def judge(answer, before, after, length):
    """What is wrong with an answer: rows torn, doubled or missing."""
    wrong = []
    seen = {}
    for hour, rows, distinct, last, size, *filled in answer:
        seen[hour] = rows
        if distinct != rows:
            wrong.append(f"hour {hour}: {rows - distinct} rows doubled")
        if size != rows * length or any(count != rows for count in filled):
            wrong.append(f"hour {hour}: torn, {rows} rows, {size} bytes, {filled}")
        if last + 1 != distinct and hour not in after["removed"]:
            wrong.append(f"hour {hour}: {last + 1 - distinct} rows missing below {last}")
    for hour, rows in before["published"].items():
        if seen.get(hour, 0) < rows and hour not in after["removed"]:
            wrong.append(f"hour {hour}: {seen.get(hour, 0)} rows, {rows} were published before")
    return wrong


def main():
    name, tree, state_file, seconds = sys.argv[1:]
    def state():
        with open(state_file) as file:
            return json.load(file)
    ask = READERS[name](tree)
    while not state()["published"]:
        time.sleep(0.05)
    queries, errors, wrong, took = 0, {"at a seal": 0, "at a removal": 0, "else": 0}, [], []
    examples = []
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        before = state()
        start = time.monotonic()
        try:
            answer = ask()
        except Exception as error:  # whatever the reader raises is what a user of it would see
            time.sleep(0.3)  # the writer's state is a few milliseconds behind the tree
            after = state()
            if after["removed"] != before["removed"]:
                kind = "at a removal"
            elif after["seals"] != before["seals"]:
                kind = "at a seal"
            else:
                kind = "else"
            errors[kind] += 1
            examples.append(f"{kind}: {type(error).__name__}: {str(error)[:160]}")
            queries += 1
            continue
        took.append(time.monotonic() - start)
        queries += 1
        found = judge(answer, before, state(), before["length"])
        if found:
            time.sleep(0.3)
            wrong += judge(answer, before, state(), before["length"])
    took.sort()
    print(json.dumps({
        "reader": name, "queries": queries, "errors": errors, "wrong": len(wrong),
        "median_ms": round(took[len(took) // 2] * 1000, 1) if took else None, "examples": (wrong + examples)[:6],
    }))


main()
