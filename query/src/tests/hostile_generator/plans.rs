//! Hostile plans: joins, windows, recursion, groups, lists, aggregates, the catalogue.

use super::{COUNTS, Draw};

pub(super) fn joined(draw: &mut Draw<'_>) -> String {
    let tables = draw.some(6, ", ", |draw| {
        format!(
            "{} t{}",
            draw.pick(&["logs", "logs", "traces", "metrics"]),
            draw.below(1_000_000)
        )
    });
    let names: Vec<&str> = tables.split(", ").filter_map(|table| table.split(' ').nth(1)).collect();
    let (first, last) = (
        names.first().copied().unwrap_or("t"),
        names.last().copied().unwrap_or("t"),
    );
    match draw.below(9) {
        0 => format!("SELECT count(*) FROM {tables}"),
        1 => format!("SELECT count(*) FROM {tables} WHERE {first}.ts::text || {last}.ts::text = 'no such'"),
        2 => format!("SELECT * FROM {tables} ORDER BY {first}.ts, {last}.ts DESC"),
        3 => format!("SELECT count(DISTINCT {first}.ts::text || {last}.flux_id::text) FROM {tables}"),
        4 => format!("SELECT * FROM {tables} WHERE {first}.ts < {last}.ts AND {first}.ts > {last}.ts"),
        5 => "SELECT count(*) FROM logs a FULL JOIN logs b ON a.level > b.message FULL JOIN traces c ON a.ts <> c.ts".to_owned(),
        6 => "SELECT * FROM logs a WHERE NOT EXISTS (SELECT 1 FROM logs b, logs c WHERE b.message || c.message = a.message)".to_owned(),
        7 => "SELECT (SELECT max(b.message || c.message) FROM logs b, logs c WHERE b.level = a.level) FROM logs a".to_owned(),
        _ => format!("SELECT count(*) FROM logs{}", " NATURAL JOIN (SELECT level FROM logs) t".repeat(draw.size(40))),
    }
}

pub(super) fn unnested(draw: &mut Draw<'_>) -> String {
    let (text, more) = (draw.grown(), draw.literal(2_000));
    match draw.below(5) {
        0 => format!("SELECT message, attributes, unnest(string_to_array({text}, NULL)) FROM logs"),
        1 => format!(
            "SELECT unnest(string_to_array({text}, 'a')), unnest(string_to_array(message, NULL)), {more} FROM logs"
        ),
        2 => format!(
            "SELECT count(*) FROM logs, unnest(string_to_array({more}, NULL)) a, unnest(string_to_array({more}, NULL)) b"
        ),
        3 => "SELECT unnest(array_agg(message)), array_agg(attributes) FROM logs".to_owned(),
        _ => format!(
            "SELECT unnest(make_array({})) FROM logs",
            draw.some(2_000, ", ", |_| "message".to_owned())
        ),
    }
}

pub(super) fn windowed(draw: &mut Draw<'_>) -> String {
    let function = draw.pick(&[
        "row_number()",
        "rank()",
        "lag(message, 1000000)",
        "lead(message || attributes, -5)",
        "nth_value(message, 99999999)",
        "count(*)",
        "sum(length(message))",
        "array_agg(message)",
        "string_agg(message, ',')",
        "max(message)",
        "median(length(message))",
        "ntile(2147483647)",
        "first_value(attributes)",
        "count(DISTINCT message)",
        "avg('NaN'::double precision)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY length(message))",
    ]);
    let partition = draw.pick(&[
        "",
        "PARTITION BY level ",
        "PARTITION BY message, attributes ",
        "PARTITION BY 1 ",
    ]);
    let order = draw.pick(&[
        "",
        "ORDER BY ts ",
        "ORDER BY message || attributes DESC ",
        "ORDER BY random() ",
    ]);
    let frame = draw.pick(&[
        "",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN INTERVAL '999999999 years' PRECEDING AND INTERVAL '1 s' FOLLOWING",
        "ROWS BETWEEN 5000 PRECEDING AND 5000 FOLLOWING",
        "GROUPS BETWEEN 1 PRECEDING AND 18446744073709551615 FOLLOWING",
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    ]);
    let from = draw.pick(&["logs", "logs", "logs a, logs b", "(SELECT a.* FROM logs a, logs b)"]);
    let qualified = if from == "logs a, logs b" { "a." } else { "" };
    let text = format!("SELECT {function} OVER ({partition}{order}{frame}) FROM {from}");
    ["message", "attributes", "level", "ts "]
        .iter()
        .fold(text, |text, column| {
            text.replace(&format!(" {column}"), &format!(" {qualified}{column}"))
                .replace(&format!("({column}"), &format!("({qualified}{column}"))
        })
}

pub(super) fn recursive(draw: &mut Draw<'_>) -> String {
    let (first, step) = draw.pick(&[
        ("1", "n + 1"),
        ("'x'", "n || n"),
        ("0.5", "n * 2"),
        ("'ab'", "replace(n, 'a', 'aab')"),
        ("ARRAY[1]", "array_concat(n, n)"),
        ("now()", "n + INTERVAL '1 year'"),
        ("1", "n * 3"),
        ("'x'", "repeat(n, 3)"),
    ]);
    let (from, all) = (
        draw.pick(&["t", "t, logs", "t a, t b", "t WHERE true"]),
        draw.pick(&["ALL ", "ALL ", ""]),
    );
    let step = if from.contains(" a,") {
        step.replace('n', "a.n").replace("a.now", "now")
    } else {
        step.to_owned()
    };
    format!(
        "WITH RECURSIVE t(n) AS (SELECT {first} UNION {all}SELECT {step} FROM {from}) SELECT count(*), max(n) FROM t"
    )
}

pub(super) fn grouped(draw: &mut Draw<'_>) -> String {
    let count = draw.size(30);
    let names: Vec<String> = (0..count).map(|n| format!("substr(message, {n})")).collect();
    let names = names.join(", ");
    match draw.below(6) {
        0 => format!("SELECT count(*) FROM logs GROUP BY CUBE ({names})"),
        1 => format!("SELECT count(*) FROM logs GROUP BY ROLLUP ({names})"),
        2 => format!("SELECT DISTINCT {names}, ts, attributes FROM logs"),
        3 => format!("SELECT {names}, count(DISTINCT attributes) FROM logs GROUP BY {names} ORDER BY {names}"),
        4 => format!(
            "SELECT count(*) FROM logs GROUP BY GROUPING SETS ({})",
            draw.some(500, ", ", |draw| format!(
                "(level, substr(message, {}))",
                draw.below(99)
            ))
        ),
        _ => "SELECT a.message, b.message, c.message, count(*) FROM logs a, logs b, logs c GROUP BY 1, 2, 3 ORDER BY 4"
            .to_owned(),
    }
}

pub(super) fn catalogue(draw: &mut Draw<'_>) -> String {
    let tables = draw.some(5, ", ", |draw| {
        let table = draw.pick(&[
            "pg_catalog.pg_class",
            "pg_catalog.pg_attribute",
            "pg_catalog.pg_proc",
            "pg_catalog.pg_type",
            "information_schema.columns",
            "information_schema.tables",
            "information_schema.df_settings",
            "information_schema.routines",
            "pg_catalog.pg_settings",
        ]);
        format!("{table} t{}", draw.below(1_000_000))
    });
    match draw.below(4) {
        0 => format!("SELECT count(*) FROM {tables}"),
        1 => format!("SELECT * FROM {tables} ORDER BY 1"),
        2 => "SELECT quote_ident(quote_ident(quote_ident(proname))), pg_get_expr(proname, 1), format_type(oid::int, 1) FROM pg_proc".to_owned(),
        _ => "SELECT a.proname || b.proname FROM pg_proc a, pg_proc b, pg_attribute c ORDER BY 1".to_owned(),
    }
}

pub(super) fn aggregated(draw: &mut Draw<'_>) -> String {
    let (text, huge) = (draw.grown(), draw.literal(30_000));
    let from = draw.pick(&["logs", "logs", "(SELECT a.* FROM logs a, logs b) AS logs"]);
    match draw.below(9) {
        0 => format!("SELECT array_agg({text}) FROM {from}"),
        1 => format!("SELECT string_agg({text}, {huge}) FROM {from}"),
        2 => format!("SELECT count(DISTINCT {text}) FROM {from}"),
        3 => format!("SELECT level, array_agg(DISTINCT {text} ORDER BY {text}) FROM {from} GROUP BY level"),
        4 => format!(
            "SELECT array_agg(array_agg_) FROM (SELECT array_agg({text}) AS array_agg_ FROM {from} GROUP BY ts) AS q"
        ),
        5 => format!(
            "SELECT median(length({text})), percentile_cont(0.5) WITHIN GROUP (ORDER BY length({text})) FROM {from}"
        ),
        6 => {
            format!("SELECT first_value({text} ORDER BY ts), max({text}), min({text}) FROM {from} GROUP BY message, ts")
        }
        7 => format!("SELECT array_length(array_concat(array_agg({text}), array_agg({text})), 1) FROM {from}"),
        _ => format!(
            "SELECT {} FROM {from}",
            draw.some(300, ", ", |draw| format!("max(message || '{}')", draw.below(1_000)))
        ),
    }
}

pub(super) fn combined(draw: &mut Draw<'_>) -> String {
    let op = draw.pick(&["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL"]);
    let one = draw.pick(&[
        "SELECT message FROM logs",
        "SELECT 'a'",
        "SELECT a.message FROM logs a, logs b",
        "TABLE logs",
        "VALUES ('b')",
    ]);
    let count = draw.size(80);
    vec![one; count].join(&format!(" {op} "))
}

pub(super) fn refused(draw: &mut Draw<'_>) -> String {
    let count = draw.pick(COUNTS);
    match draw.below(8) {
        0 => format!("SELECT array_repeat('x', {count}), range(1, {count})"),
        1 => format!("SELECT array_resize(ARRAY[1], {count}, 0) FROM logs"),
        2 => "SELECT levenshtein(message, attributes) FROM logs".to_owned(),
        3 => "SELECT * FROM read_csv('/etc/passwd')".to_owned(),
        4 => format!("SELECT pg_sleep({count})"),
        5 => "SELECT map(ARRAY['a'], ARRAY[message]) FROM logs".to_owned(),
        6 => "COPY logs TO '/tmp/x'".to_owned(),
        _ => format!("SET work_mem = {count}"),
    }
}
